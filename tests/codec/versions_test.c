/* versions_test.c — exchanges between every pair of versions, {HTTP/1.1, HTTP/2} on either side:
 * what is asked and answered arrives, whoever breaks off is noticed on the other side and nowhere
 * else, and nothing is owed in the end.  Peers are codecs of ours (peer.h); where a peer does what
 * no codec of ours does, its frames are written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/h2frames.h"
#include "harness/peer.h"
#include "net/tls.h"

enum { PEERS = 48, BIG = 300000, STREAMS = 100 };

static struct rig rig; /* cmocka runs one test after the other */
static struct peer peers[PEERS];
static struct peer *all[PEERS];
static unsigned npeers;
static enum version client_is, origin_is; /* the pair that runs */

/* ---- the stage */

static struct proxy_rules with_streams(void)
{
    struct proxy_rules rules = rig_rules;
    struct http_limits *both[] = {&rules.client, &rules.origin};
    for (int i = 0; i < 2; i++) {
        both[i]->window_max = 262144;
        both[i]->max_streams = STREAMS;
        both[i]->max_resets = 200;
        both[i]->max_control = 1000;
    }
    return rules;
}

static void begin(void)
{
    struct proxy_rules rules = with_streams();
    rig_init(&rig, &rules);
    npeers = 0;
}

static void finish(void)
{
    for (unsigned i = 0; i < npeers; i++)
        peer_done(&peers[i]);
    rig_done(&rig);
}

static void settle(void)
{
    peer_pump(all, npeers);
    fake_settle(rig.w);
    rig_check(&rig);
}

static void wait_ms(uint64_t ms)
{
    fake_time(rig.w, ms);
    settle();
}

static struct peer *new_peer(void)
{
    assert_true(npeers < PEERS);
    all[npeers] = &peers[npeers];
    return &peers[npeers++];
}

static struct peer *client(void)
{
    struct peer *p = new_peer();
    peer_client(p, &rig, client_is);
    settle();
    return p;
}

static bool dials(void)
{
    return fake_dials(rig.w) > 0;
}

static struct peer *origin_with(unsigned max_streams)
{
    struct peer *p = new_peer();
    assert_true(dials());
    peer_origin(p, &rig, origin_is, max_streams);
    settle();
    return p;
}

static struct peer *origin(void)
{
    return origin_with(STREAMS);
}

/* "/a/…" or, where the origin is to be spoken to in HTTP/2, "/a2/…". */
static const char *to_origin(void)
{
    return origin_is == H2 ? "/a2/x" : "/a/x";
}

static struct call *asks(struct peer *p, const char *method, const char *body, bool end)
{
    struct call *c = peer_ask(p, method, to_origin(), body, end);
    assert_non_null(c);
    settle();
    return c;
}

static struct call *last_call(struct peer *p)
{
    assert_true(p->ncalls > 0);
    return &p->calls[p->ncalls - 1];
}

static void has(struct call *c, const char *text)
{
    if (!call_has(c, text))
        print_error("h%d to h%d, %s: no <%s> in\n%s", client_is + 1, origin_is + 1,
                    c->peer->origin ? "origin" : "client", text, call_text(c));
    assert_true(call_has(c, text));
}

static void has_not(struct call *c, const char *text)
{
    if (call_has(c, text))
        print_error("h%d to h%d: <%s> in\n%s", client_is + 1, origin_is + 1, text, call_text(c));
    assert_false(call_has(c, text));
}

static void answers(struct call *c, int status, const char *body)
{
    call_answer(c, status, body, true);
    settle();
}

static unsigned open_origins(void)
{
    return origin_open(proxy_origins(rig.p));
}

static unsigned idle_origins(void)
{
    return origin_idle(proxy_origins(rig.p));
}

static bool is_closed(const struct conn *c)
{
    return fake_end(c) == FAKE_CLOSED || fake_end(c) == FAKE_RESET;
}

static bool logged(const char *text)
{
    bool found = strstr(trace_text(&rig.lines), text) != NULL;
    if (!found)
        print_error("h%d to h%d: no <%s> in\n%s", client_is + 1, origin_is + 1, text,
                    trace_text(&rig.lines));
    return found;
}

static unsigned count_of(const char *text)
{
    unsigned n = 0;
    for (const char *at = trace_text(&rig.lines); (at = strstr(at, text)); at++)
        n++;
    return n;
}

static void nothing_is_owed(void)
{
    const struct meter *m = meter();
    assert_int_equal(m->received[0], m->credited[0]);
    assert_int_equal(m->given[0], m->sent[0]);
    assert_int_equal(rig_running(&rig), 0);
}

static void for_each_pair(void (*run)(void))
{
    for (client_is = H1; client_is <= H2; client_is++)
        for (origin_is = H1; origin_is <= H2; origin_is++) {
            begin();
            run();
            finish();
        }
}

#define EACH_PAIR(name)            \
    static void in_##name(void);   \
    static void name(void **state) \
    {                              \
        (void)state;               \
        for_each_pair(in_##name);  \
    }                              \
    static void in_##name(void)

static char *letters(size_t n)
{
    char *p = mem_new(n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 26);
    return p;
}

/* ---- what passes */

EACH_PAIR(a_request_and_its_answer_pass)
{
    struct peer *c = client();
    struct call *q = asks(c, "GET", "", true);
    struct call *a = last_call(origin());
    has(a, origin_is == H2 ? "GET /a2/x host=h:80" : "GET /a/x host=h:80");
    has(a, "end\n");
    answers(a, 200, "ok");
    has(q, "200 length=2");
    has(q, "x-gate: 1");
    has(q, "data ok\nend\nclosed ok\n");
    assert_int_equal(idle_origins(), 1);
    assert_true(
        logged(client_is == H2 ? "\"protocol\":\"HTTP/2.0\"" : "\"protocol\":\"HTTP/1.1\""));
    assert_true(logged(origin_is == H2 ? "\"origin_protocol\":\"HTTP/2.0\""
                                       : "\"origin_protocol\":\"HTTP/1.1\""));
    nothing_is_owed();
    q = asks(c, "GET", "", true);
    assert_false(dials());
    a = last_call(a->peer);
    answers(a, 404, "no");
    has(q, "404 length=2");
    assert_int_equal(counter_get(&proxy_metrics(rig.p)->reused), 1);
    nothing_is_owed();
}

EACH_PAIR(big_bodies_pass_both_ways)
{
    char *text = letters(BIG);
    struct call *q = asks(client(), "POST", text, true);
    struct call *a = last_call(origin());
    settle();
    has(a, "data <300000 bytes");
    answers(a, 200, text);
    has(q, "data <300000 bytes");
    has(q, "end\nclosed ok\n");
    const char *there = strstr(call_text(a), "data <"), *back = strstr(call_text(q), "data <");
    assert_int_equal(strncmp(there, back, strlen("data <300000 bytes 0123456789abcdef>")), 0);
    size_t most = 262144 + 65536;
    assert_true(meter()->most_held[0] <= most && meter()->most_held[1] <= most);
    nothing_is_owed();
    mem_free(text);
}

EACH_PAIR(a_reader_that_stops_holds_up_the_writer_and_nobody_else)
{
    char *text = letters(2 * BIG);
    struct peer *c = client(), *other = client();
    c->hold = true;
    struct call *q = asks(c, "GET", "", true);
    struct peer *o = origin();
    struct call *a = last_call(o);
    call_answer(a, 200, text, true);
    settle();
    assert_true(q->tap.received < BIG);
    assert_true(meter()->most_held[1] <= 262144);
    assert_int_equal(rig_running(&rig), 1);
    struct call *q2 = asks(other, "GET", "", true);
    struct call *a2 = last_call(origin_is == H2 ? o : origin());
    answers(a2, 200, "ok");
    has(q2, "data ok\nend\nclosed ok\n");
    for (int i = 0; i < 100 && !q->tap.over; i++) {
        tap_credit_all(&q->tap);
        settle();
    }
    has(q, "end\nclosed ok\n");
    assert_int_equal(q->tap.received, 2 * BIG);
    nothing_is_owed();
    mem_free(text);
}

EACH_PAIR(trailers_pass_both_ways)
{
    struct field sum = {STR("x-sum"), STR("1")}, grpc = {STR("grpc-status"), STR("7")};
    struct http_head up = {.fields = &sum, .nfields = 1}, down = {.fields = &grpc, .nfields = 1};
    struct call *q = asks(client(), "POST", "body", false);
    struct call *a = last_call(origin());
    tap_end(&q->tap, &up);
    settle();
    has(a, "data body\nend {x-sum: 1}\n");
    call_answer(a, 200, "some", false);
    tap_end(&a->tap, &down);
    settle();
    has(q, "data some\nend {grpc-status: 7}\nclosed ok\n");
    assert_true(logged("\"grpc_status\":7"));
    nothing_is_owed();
}

/* gRPC: a failure that is nothing but a head. */
EACH_PAIR(an_answer_of_trailers_only_says_its_outcome)
{
    struct field fields[] = {{STR("content-type"), STR("application/grpc")},
                             {STR("grpc-status"), STR("14")}};
    struct http_head head = {.status = 200, .length = -1, .fields = fields, .nfields = 2};
    struct call *q = asks(client(), "POST", "message", true);
    call_answer_head(last_call(origin()), &head, true);
    settle();
    has(q, "grpc-status: 14");
    has(q, "closed ok\n");
    assert_true(logged("\"grpc_status\":14"));
    nothing_is_owed();
}

EACH_PAIR(heads_before_the_final_one_pass)
{
    struct call *q = asks(client(), "GET", "", true);
    struct call *a = last_call(origin());
    struct field link = {STR("link"), STR("</a>")};
    struct http_head hints = {.status = 103, .length = -1, .fields = &link, .nfields = 1};
    call_answer_head(a, &hints, false);
    settle();
    has(q, "103 {link: </a>}\n");
    answers(a, 200, "ok");
    has(q, "data ok\nend\nclosed ok\n");
    nothing_is_owed();
}

EACH_PAIR(answers_without_a_body_have_none)
{
    static const struct {
        const char *method;
        int status;
        int64_t length;
    } table[] = {{"HEAD", 200, 1234}, {"GET", 304, 7}, {"GET", 204, -1}, {"POST", 200, 0}};
    struct peer *c = client(), *o = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[32];
        struct call *q = asks(c, table[i].method, "", true);
        o = o ? o : origin();
        struct http_head head = {.status = table[i].status, .length = table[i].length};
        call_answer_head(last_call(o), &head, true);
        settle();
        snprintf(text, sizeof text, "%d length=%d", table[i].status, (int)table[i].length);
        if (table[i].length >= 0)
            has(q, text);
        has_not(q, "data");
        has(q, "end\nclosed ok\n");
    }
    assert_int_equal(idle_origins(), 1);
    nothing_is_owed();
}

EACH_PAIR(an_early_answer_arrives_and_ends_it)
{
    struct peer *c = client();
    struct call *q = asks(c, "POST", "some", false);
    struct peer *o = origin();
    answers(last_call(o), 413, "big");
    has(q, "413 length=3");
    has(q, "data big\nend\n");
    settle();
    assert_int_equal(rig_running(&rig), 0);
    assert_true(logged("\"status\":413"));
    if (client_is == H2) {
        assert_false(is_closed(c->far));
        struct call *again = asks(c, "GET", "", true);
        struct peer *p = origin_is == H2 ? o : origin();
        answers(last_call(p), 200, "ok");
        has(again, "data ok\nend\nclosed ok\n");
    }
    if (origin_is == H2)
        assert_int_equal(open_origins(), 1);
}

EACH_PAIR(both_bodies_run_at_once)
{
    struct call *q = asks(client(), "POST", "one", false);
    struct call *a = last_call(origin());
    call_answer(a, 200, "eins", false);
    settle();
    has(q, "data eins\n");
    tap_data(&q->tap, STR("two"));
    settle();
    has(a, "two\n");
    tap_data(&a->tap, STR("zwei"));
    settle();
    has(q, "data zwei\n");
    tap_end(&a->tap, NULL); /* the answer may end first */
    settle();
    assert_true(call_has(q, "end\n"));
    nothing_is_owed();
}

/* ---- many at once */

static void many_streams_share_what_they_can(void **state)
{
    (void)state;
    client_is = origin_is = H2;
    begin();
    struct peer *c = client();
    struct call *q[20];
    for (int i = 0; i < 20; i++)
        q[i] = asks(c, "GET", "", true);
    assert_int_equal(fake_dials(rig.w), 1);
    struct peer *o = origin();
    assert_int_equal(o->ncalls, 20);
    for (int i = 19; i >= 0; i--)
        answers(&o->calls[i], 400 + i, "x");
    for (int i = 0; i < 20; i++) {
        char text[24];
        snprintf(text, sizeof text, "%d length=1", 400 + i);
        has(q[i], text);
        has(q[i], "closed ok\n");
    }
    assert_int_equal(idle_origins(), 1);
    nothing_is_owed();
    finish();
}

/* H2-04. */
static void an_origin_that_takes_one_at_a_time_serves_all(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++) {
        origin_is = H2;
        begin();
        struct peer *c = client(), *o[20];
        struct call *q[20];
        for (int i = 0; i < 20; i++)
            q[i] = asks(client_is == H2 || i == 0 ? c : client(), "GET", "", true);
        assert_int_equal(fake_dials(rig.w), 1);
        o[0] = origin_with(1);
        assert_int_equal(o[0]->ncalls, 1);
        assert_int_equal(fake_dials(rig.w), 19);
        for (int i = 1; i < 10; i++)
            o[i] = origin_with(1);
        unsigned served = 0;
        for (int round = 0; round < 20; round++) /* ten of them serve all */
            for (int i = 0; i < 10; i++) {
                struct call *a = last_call(o[i]);
                if (a->tap.over || a->tap.said_end)
                    continue;
                answers(a, 200, "x");
                served++;
            }
        assert_int_equal(served, 20);
        for (int i = 0; i < 20; i++)
            has(q[i], "data x\nend\nclosed ok\n");
        assert_false(dials());
        nothing_is_owed();
        finish();
    }
}

static void an_origin_that_does_not_speak_http2_is_502(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++) {
        static const char *const says[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "nonsense", ""};
        for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
            origin_is = H2;
            begin();
            struct peer *c = client();
            struct call *q = asks(c, "GET", "", true);
            struct conn *far = rig_origin(&rig);
            fake_feed(far, says[i], strlen(says[i]));
            settle();
            fake_feed_eof(far);
            settle();
            has(q, "502");
            has(q, "closed ok\n");
            assert_int_equal(open_origins(), 0);
            assert_true(logged("\"why\":\"origin-protocol\""));
            assert_false(is_closed(c->far));
            finish();
        }
    }
}

static void an_origin_that_never_says_its_settings_is_504(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++) {
        origin_is = H2;
        begin();
        struct call *q = asks(client(), "GET", "", true);
        wait_ms(3000);
        struct conn *far = rig_origin(&rig);
        wait_ms(1900);
        has_not(q, "504");
        wait_ms(200);
        has(q, "504");
        assert_true(is_closed(far));
        assert_true(logged("\"why\":\"deadline\""));
        finish();
    }
}

/* ---- who breaks off */

enum place { IN_WAIT, IN_UPLOAD, IN_BODY, IN_BOTH, IN_DIAL, PLACES };

struct scene {
    struct peer *client, *origin;
    struct call *q, *a;
};

/* shared: the HTTP/2 origin that is there already. */
static struct scene scene_beside(enum place place, struct peer *shared)
{
    struct scene s = {.client = client()};
    bool upload = place == IN_UPLOAD || place == IN_BOTH;
    s.q = asks(s.client, upload ? "POST" : "GET", upload ? "some" : "", !upload);
    if (place == IN_DIAL)
        return s;
    s.origin = dials() ? origin() : shared;
    s.a = last_call(s.origin);
    if (place == IN_BODY || place == IN_BOTH)
        call_answer(s.a, 200, "part", false);
    settle();
    return s;
}

static struct scene scene_in(enum place place)
{
    return scene_beside(place, NULL);
}

/* The way in which one stream of this peer goes, and no other. */
static void breaks_off(struct call *c, enum why why)
{
    if (c->peer->version == H1)
        peer_break(c->peer);
    else
        tap_cancel(&c->tap, why);
    settle();
}

static bool is_over(struct call *c)
{
    return c->tap.over || is_closed(c->peer->far);
}

/* Another exchange on the same connections, where there can be one. */
static struct call *beside(struct scene *s)
{
    if (client_is != H2)
        return NULL;
    return asks(s->client, "GET", "", true);
}

static void lives(struct scene *s, struct call *q)
{
    if (!q)
        return;
    has_not(q, "closed");
    struct peer *o = origin_is == H2 && s->origin ? s->origin : &peers[npeers - 1];
    if (dials())
        o = origin();
    answers(last_call(o), 200, "lives");
    has(q, "data lives\nend\nclosed ok\n");
}

EACH_PAIR(a_client_that_breaks_off_takes_its_stream_along)
{
    for (enum place place = 0; place < PLACES; place++) {
        struct scene s = scene_in(place);
        struct call *other = beside(&s);
        if (other && origin_is == H1)
            origin();
        breaks_off(s.q, WHY_CLIENT_GONE);
        assert_int_equal(rig_running(&rig), other ? 1 : 0);
        if (s.a)
            assert_true(is_over(s.a));
        if (s.origin && origin_is == H2)
            assert_false(is_closed(s.origin->far));
        lives(&s, other);
        assert_int_equal(fake_dials(rig.w), 0);
        finish();
        assert_true(meter()->received[1] >= meter()->credited[1]);
        begin();
    }
}

EACH_PAIR(a_client_whose_connection_breaks_takes_all_along)
{
    for (enum place place = 0; place < PLACES; place++) {
        struct scene s = scene_in(place);
        struct call *other = beside(&s);
        peer_break(s.client);
        settle();
        assert_int_equal(rig_running(&rig), 0);
        assert_false(dials());
        assert_int_equal(count_of("\"why\":\"client-gone\""), other ? 2 : 1);
        if (s.a)
            assert_true(is_over(s.a));
        if (origin_is == H1)
            assert_int_equal(open_origins(), 0);
        finish();
        begin();
    }
}

EACH_PAIR(an_origin_that_breaks_off_is_an_answer_of_ours_or_a_cut)
{
    for (enum place place = 0; place < IN_DIAL; place++) {
        struct scene s = scene_in(place);
        struct call *other = beside(&s);
        if (other && origin_is == H1)
            origin();
        breaks_off(s.a, WHY_ORIGIN_GONE);
        if (place == IN_BODY || place == IN_BOTH) {
            has(s.q, "200");
            has(s.q, "closed origin-gone\n");
            has_not(s.q, "end\n");
        } else {
            has(s.q, "502");
            has(s.q, "end\n");
        }
        lives(&s, other);
        assert_true(logged("\"why\":\"origin-gone\""));
        if (origin_is == H2)
            assert_false(is_closed(s.origin->far));
        finish();
        begin();
    }
}

EACH_PAIR(an_origin_whose_connection_breaks_ends_all_on_it)
{
    for (enum place place = 0; place < IN_DIAL; place++) {
        struct scene s = scene_in(place);
        struct call *other = origin_is == H2 ? beside(&s) : NULL;
        peer_break(s.origin);
        settle();
        has(s.q, place == IN_BODY || place == IN_BOTH ? "closed origin-gone\n" : "502");
        if (other) { /* idempotent, and on a connection that was there */
            struct peer *again = origin();
            answers(last_call(again), 200, "again");
            has(other, "data again\nend\nclosed ok\n");
        }
        finish();
        begin();
    }
}

/* ---- refused */

/* A frame by hand, as from the origin. */
static void frame(struct peer *o, uint8_t type, uint32_t stream, const uint8_t *p, uint8_t n)
{
    uint8_t head[9] = {0, 0, n, type, 0, 0, 0, (uint8_t)(stream >> 8), (uint8_t)stream};
    settle();
    fake_feed(o->far, (const char *)head, sizeof head);
    fake_feed(o->far, (const char *)p, n);
    settle();
}

enum { RST_STREAM = 3, GOAWAY = 7, REFUSED_STREAM = 7 };

static void refuses(struct peer *o, uint32_t stream)
{
    static const uint8_t code[4] = {0, 0, 0, REFUSED_STREAM};
    frame(o, RST_STREAM, stream, code, sizeof code);
}

static void sends_away(struct peer *o, uint8_t last)
{
    const uint8_t body[8] = {0, 0, 0, last};
    frame(o, GOAWAY, 0, body, sizeof body);
}

static void what_is_refused_is_asked_once_more_whatever_it_is(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++)
        for (int more = 0; more < 2; more++) {
            origin_is = H2;
            begin();
            struct call *q = asks(client(), "POST", "body", !more);
            struct peer *o = origin();
            has(last_call(o), "data body\n");
            refuses(o, 1);
            struct peer *p = origin(); /* another connection */
            if (more) {
                tap_data(&q->tap, STR("more"));
                tap_end(&q->tap, NULL);
            }
            settle();
            has(last_call(p), more ? "data bodymore\nend\n" : "data body\nend\n");
            refuses(p, 1); /* and no more than once */
            has(q, "502");
            assert_true(logged("\"retried\":true"));
            assert_false(dials());
            nothing_is_owed();
            finish();
        }
}

static void a_body_that_was_too_long_to_keep_is_not_sent_again(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++) {
        origin_is = H2;
        begin();
        char *text = letters(REPLAY_BYTES + 1);
        struct call *q = asks(client(), "POST", text, true);
        struct peer *o = origin();
        settle();
        refuses(o, 1);
        assert_false(dials());
        has(q, "502");
        nothing_is_owed();
        finish();
        mem_free(text);
    }
}

static void a_goaway_sends_the_rest_elsewhere_and_finishes_what_runs(void **state)
{
    (void)state;
    client_is = origin_is = H2;
    begin();
    struct peer *c = client();
    struct call *first = asks(c, "POST", "one", true), *second = asks(c, "POST", "two", true);
    struct peer *o = origin();
    assert_int_equal(o->ncalls, 2);
    sends_away(o, 1);
    struct peer *p = origin();
    has(last_call(p), "data two\nend\n");
    answers(last_call(p), 200, "new");
    answers(&o->calls[0], 200, "old");
    has(first, "data old\nend\nclosed ok\n");
    has(second, "data new\nend\nclosed ok\n");
    struct call *third = asks(c, "GET", "", true);
    answers(last_call(p), 200, "later");
    has(third, "data later\n");
    assert_true(is_closed(o->far));
    nothing_is_owed();
    finish();
}

/* ---- upgrades */

static struct call *wants_tunnel(struct peer *p, const char *path)
{
    static struct field fields[] = {{STR_NONE, STR_NONE}, {STR_NONE, STR_NONE}};
    fields[0] = (struct field){STR("sec-websocket-version"), STR("13")};
    fields[1] = (struct field){STR("sec-websocket-key"), STR("dGhlIHNhbXBsZSBub25jZQ==")};
    struct http_head head = {.method = STR("GET"),
                             .scheme = STR("http"),
                             .authority = STR("gw.test"),
                             .path = str_of(path),
                             .protocol = STR("websocket"),
                             .length = -1,
                             .fields = fields,
                             .nfields = p->version == H1 ? 2 : 1};
    struct call *c = peer_ask_head(p, &head, true);
    assert_non_null(c);
    settle();
    return c;
}

/* An HTTP/1.1 origin of WebSockets that was asked by an HTTP/1.1 client answers the key itself. */
static void grants_tunnel(struct call *a)
{
    struct field accept = {STR("sec-websocket-accept"), STR("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")};
    bool own = client_is == H1 && a->peer->version == H1;
    struct http_head head = {.status = 101,
                             .protocol = STR("websocket"),
                             .length = -1,
                             .keyless = !own,
                             .fields = &accept,
                             .nfields = own ? 1 : 0};
    call_answer_head(a, &head, false);
    settle();
}

EACH_PAIR(a_tunnel_carries_bytes_both_ways_and_ends_each_way_by_itself)
{
    struct call *q = wants_tunnel(client(), to_origin());
    struct call *a = last_call(origin());
    has(a, "protocol=websocket");
    grants_tunnel(a);
    has(q, "101 protocol=websocket");
    assert_int_equal(proxy_count(rig.p, X_TUNNEL), 1);
    tap_data(&q->tap, STR("ping"));
    tap_data(&a->tap, STR("pong"));
    settle();
    has(a, "data ping\n");
    has(q, "data pong\n");
    tap_end(&a->tap, NULL);
    settle();
    has(q, "end\n");
    tap_data(&q->tap, STR("still"));
    settle();
    has(a, "data still\n");
    tap_end(&q->tap, NULL);
    settle();
    has(a, "end\nclosed ok\n");
    has(q, "closed ok\n");
    assert_true(logged("\"why\":\"ok\""));
    nothing_is_owed();
}

EACH_PAIR(a_tunnel_that_breaks_on_one_side_ends_on_the_other)
{
    for (int of_origin = 0; of_origin < 2; of_origin++) {
        struct call *q = wants_tunnel(client(), to_origin());
        struct call *a = last_call(origin());
        grants_tunnel(a);
        peer_break(of_origin ? a->peer : q->peer);
        settle();
        assert_true(is_over(of_origin ? q : a));
        assert_int_equal(rig_running(&rig), 0);
        assert_true(logged(of_origin ? "\"why\":\"origin-gone\"" : "\"why\":\"client-gone\""));
        finish();
        begin();
    }
}

/* WS-10: the origin has said all it had to say and is gone.  Whether its last bytes have left by
 * then (80000 of them do not fit into a window that nobody opens) or not, they arrive. */
EACH_PAIR(what_is_sent_into_a_tunnel_without_an_end_is_refused_after_the_last_byte)
{
    char *text = letters(80000);
    for (int slow = 0; slow < 2; slow++) {
        struct peer *c = client();
        c->hold = slow;
        struct call *q = wants_tunnel(c, to_origin());
        struct call *a = last_call(origin());
        grants_tunnel(a);
        tap_data(&a->tap, str_of(text));
        tap_end(&a->tap, NULL);
        settle();
        peer_break(a->peer);
        if (!slow || client_is == H1)
            tap_data(&q->tap, STR("hello?"));
        settle();
        for (int i = 0; slow && i < 10; i++) {
            tap_credit_all(&q->tap);
            settle();
        }
        has(q, "data <80000 bytes");
        has(q, "end\n");
        tap_data(&q->tap, STR("hello?"));
        settle();
        wait_ms(3100);
        assert_int_equal(rig_running(&rig), 0);
        assert_true(client_is == H1 ? is_closed(c->far) : q->tap.over);
        assert_true(logged("\"why\":\"origin-gone\""));
        finish();
        begin();
    }
    mem_free(text);
}

EACH_PAIR(an_upgrade_that_is_refused_is_an_answer)
{
    struct peer *c = client();
    struct call *q = wants_tunnel(c, to_origin());
    struct call *a = last_call(origin());
    answers(a, 403, "no");
    has(q, "403 length=2");
    has(q, "data no\nend\n");
    assert_int_equal(rig_running(&rig), 0);
    if (client_is == H2)
        assert_false(is_closed(c->far));
    nothing_is_owed();
}

static void an_upgrade_takes_an_http2_connection_that_is_there(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++) {
        origin_is = H2;
        begin();
        struct peer *c = client();
        asks(c, "GET", "", true);
        struct peer *o = origin();
        answers(last_call(o), 200, "ok");
        struct call *q = wants_tunnel(client(), to_origin());
        assert_false(dials());
        grants_tunnel(last_call(o));
        has(q, "101 protocol=websocket");
        asks(c, "GET", "", true);
        answers(last_call(o), 200, "ok");
        assert_int_equal(rig_running(&rig), 1);
        finish();
    }
}

static void only_a_bodyless_websocket_becomes_an_extended_connect(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "GET /a2/x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "content-length: 5\r\n\r\nhel",
        "GET /a2/x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: wire\r\n\r\n",
        "POST /a2/x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: wire\r\n"
        "content-length: 0\r\n\r\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        client_is = origin_is = H2;
        begin();
        asks(client(), "GET", "", true);
        struct peer *o = origin();
        answers(last_call(o), 200, "ok");
        struct conn *c = rig_client(&rig);
        fake_feed(c, texts[i], strlen(texts[i]));
        settle();
        assert_int_equal(fake_dials(rig.w), 1);
        assert_int_equal(o->ncalls, 1);
        origin_is = H1;
        has(last_call(origin()), i == 0 ? "protocol=websocket" : "protocol=wire");
        finish();
    }
}

/* ---- ends from above */

EACH_PAIR(a_pool_that_is_over_ends_them_all)
{
    struct scene reads = scene_in(IN_BODY);
    struct call *waits = asks(client(), "GET", "", true);
    if (dials())
        origin();
    proxy_purge(rig.p, origin_is == H2 ? STR("a2") : STR("a"));
    settle();
    has(reads.q, "closed origin-gone\n");
    has(waits, "502");
    assert_int_equal(open_origins(), 0);
    assert_int_equal(count_of("\"why\":\"revoked\""), 2);
    assert_int_equal(rig_running(&rig), 0);
}

static void moves(void)
{
    proxy_move(rig.p, origin_is == H2 ? STR("a2") : STR("a"), STR("new"));
    settle();
}

EACH_PAIR(a_place_that_was_left_answers_what_was_sent_as_a_whole)
{
    struct scene reads = scene_in(IN_BODY);
    struct call *waits = asks(client(), "POST", "body", true);
    if (dials())
        origin();
    struct call *sends = asks(client(), "POST", "bo", false);
    struct peer *o = dials() ? origin() : reads.a->peer;
    struct call *asked = origin_is == H2 ? &o->calls[1] : NULL;
    moves();
    has(sends, "502");
    tap_data(&reads.a->tap, STR("rest"));
    tap_end(&reads.a->tap, NULL);
    settle();
    has(reads.q, "rest\nend\nclosed ok\n");
    if (asked) {
        assert_int_equal(open_origins(), 1); /* one stream ends, another goes on */
        answers(asked, 200, "ok");
        has(waits, "data ok\nend\nclosed ok\n");
    }
    wait_ms(7100);
    if (!asked)
        has(waits, "502");
    assert_int_equal(open_origins(), 0);
    assert_false(dials());
    assert_int_equal(rig_running(&rig), 0);
}

static bool elsewhere(struct rig *r, const struct facts *f, enum why why, enum stage stage)
{
    (void)r;
    (void)f;
    return why == WHY_REVOKED && stage == STAGE_DIAL;
}

/* The other streams of its connection may run on. */
static void what_a_place_that_was_left_refuses_is_decided_anew(void **state)
{
    (void)state;
    origin_is = H2;
    for (client_is = H1; client_is <= H2; client_is++)
        for (int may = 0; may < 2; may++) {
            begin();
            rig.again = may ? elsewhere : NULL;
            struct call *q = asks(client(), "POST", "body", true);
            struct peer *o = origin();
            moves();
            refuses(o, 1);
            if (may) {
                struct peer *p = origin();
                has(last_call(p), "data body\nend\n");
                answers(last_call(p), 200, "ok");
            }
            has(q, may ? "data ok\nend\nclosed ok\n" : "502");
            assert_false(dials());
            nothing_is_owed();
            finish();
        }
}

static unsigned drained;

static void on_drained(void *user)
{
    (void)user;
    drained++;
}

EACH_PAIR(a_drain_finishes_what_runs)
{
    struct scene s = scene_in(IN_BODY);
    struct peer *idle = client();
    drained = 0;
    proxy_drain(rig.p, on_drained, NULL);
    settle();
    wait_ms(2500);
    assert_true(is_closed(idle->far));
    assert_int_equal(drained, 0);
    tap_data(&s.a->tap, STR("rest"));
    tap_end(&s.a->tap, NULL);
    settle();
    has(s.q, "rest\nend\nclosed ok\n");
    wait_ms(3100);
    assert_int_equal(drained, 1);
    assert_int_equal(open_origins(), 0);
}

EACH_PAIR(the_drain_deadline_cuts_every_state)
{
    struct peer *shared = NULL;
    for (enum place place = 0; place < PLACES; place++)
        shared = scene_beside(place, shared).origin;
    drained = 0;
    proxy_drain(rig.p, on_drained, NULL);
    settle();
    proxy_cut(rig.p);
    settle();
    assert_int_equal(rig_running(&rig), 0);
    assert_int_equal(open_origins(), 0);
    assert_int_equal(drained, 1);
}

EACH_PAIR(deadlines_are_each_streams_own)
{
    struct peer *c = client();
    struct call *q = asks(c, "GET", "", true);
    origin();
    wait_ms(19900);
    has_not(q, "504");
    wait_ms(200);
    has(q, "504");
    has(q, "closed ok\n");
    assert_false(is_closed(c->far));
    assert_true(logged("\"why\":\"deadline\""));
    nothing_is_owed();
}

/* A head that never gets whole is its stream's fault; the connection is the codec's business. */
static void half_a_head_is_408_on_its_stream(void **state)
{
    (void)state;
    struct frames f = {0};
    struct trace lines;
    begin();
    trace_init(&lines);
    struct conn *c = rig_client(&rig);
    frames_add(&f, "preface\nsettings\nheaders 1 part|:method: GET\n");
    fake_feed(c, frames_str(&f).p, frames_str(&f).n);
    settle();
    wait_ms(9900);
    assert_int_equal(proxy_count(rig.p, X_HEAD), 1);
    assert_int_equal(rig.nlines, 0);
    wait_ms(200);
    assert_int_equal(rig_running(&rig), 0);
    assert_true(logged("\"status\":408"));
    assert_true(frames_read(fake_written(c), false, false, &lines));
    assert_non_null(strstr(trace_text(&lines), "1 headers {:status: 408"));
    trace_done(&lines);
    frames_done(&f);
    finish();
}

/* The answer is whole, and then the rest of the request is not wanted. */
static void a_refused_upload_is_answered_and_then_stopped(void **state)
{
    (void)state;
    static const char *const asked[] = {
        "headers 1|:method: POST|:scheme: http|:path: /refuse/|:authority: a\n",
        "headers 1|:method: POST|:scheme: http|:path: /refuse/|:authority: a|content-length: 9\n"
        "data 1|some\n",
        "headers 1|:method: PUT|:scheme: http|:path: /refuse/|:authority: a|expect: 100-continue\n",
    };
    for (unsigned i = 0; i < 3; i++) {
        struct frames f = {0};
        struct trace lines;
        begin();
        trace_init(&lines);
        struct conn *c = rig_client(&rig);
        frames_add(&f, "preface\nsettings\n");
        frames_add(&f, asked[i]);
        fake_feed(c, frames_str(&f).p, frames_str(&f).n);
        settle();
        assert_true(frames_read(fake_written(c), false, false, &lines));
        const char *text = trace_text(&lines), *head = strstr(text, "1 headers {:status: 403");
        assert_null(strstr(text, ":status: 100"));
        assert_non_null(head);
        const char *end = strstr(head, "\n1 end\n"), *rst = strstr(head, "\n1 rst 0\n");
        assert_true(end && rst && end < rst);
        assert_int_equal(rig_running(&rig), 0);
        assert_int_equal(fake_end(c), FAKE_UP);
        trace_done(&lines);
        frames_done(&f);
        finish();
    }
}

/* STR-03 (c): FIN, and no reset. */
EACH_PAIR(a_client_that_closes_takes_along_what_has_no_answer_yet)
{
    static const enum place places[] = {IN_WAIT, IN_UPLOAD, IN_BOTH, IN_DIAL};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct scene s = scene_in(places[i]);
        fake_feed_eof(s.client->far);
        s.client->broken = true;
        settle();
        assert_int_equal(rig_running(&rig), 0);
        assert_false(dials());
        if (s.a)
            assert_true(is_over(s.a));
        assert_true(logged("\"why\":\"client-gone\""));
        finish();
        begin();
    }
}

static void a_connection_over_the_limit_is_told_so_and_ends(void **state)
{
    (void)state;
    struct frames f = {0};
    struct trace lines;
    begin();
    trace_init(&lines);
    struct conn *c = rig_surplus(&rig);
    frames_add(&f, "preface\nsettings\nget 1 /a/x\n");
    fake_feed(c, frames_str(&f).p, frames_str(&f).n);
    settle();
    assert_true(frames_read(fake_written(c), false, false, &lines));
    assert_non_null(strstr(trace_text(&lines), "1 headers {:status: 503"));
    wait_ms(1100); /* the notice has its round trip */
    trace_clear(&lines);
    assert_true(frames_read(fake_written(c), false, false, &lines));
    assert_non_null(strstr(trace_text(&lines), "goaway 1 0"));
    wait_ms(3100);
    assert_true(is_closed(c));
    trace_done(&lines);
    frames_done(&f);
    finish();
}

static void without_memory_the_stream_is_refused_and_the_connection_lives(void **state)
{
    (void)state;
    client_is = origin_is = H2;
    begin();
    struct peer *c = client();
    struct call *q = asks(c, "GET", "", true);
    struct peer *o = origin();
    rig.p->rules.max_memory = 1;
    struct call *late = asks(c, "GET", "", true);
    has(late, "503");
    has(late, "closed ok\n");
    rig.p->rules.max_memory = 0;
    answers(last_call(o), 200, "ok");
    has(q, "data ok\nend\nclosed ok\n");
    struct call *again = asks(c, "GET", "", true);
    answers(last_call(o), 200, "ok");
    has(again, "data ok\n");
    assert_false(is_closed(c->far));
    finish();
}

static void half_a_made_switch_closes_an_http1_client_and_spares_the_others(void **state)
{
    (void)state;
    for (client_is = H1; client_is <= H2; client_is++) {
        origin_is = H1;
        begin();
        struct peer *c = client();
        struct call *q = wants_tunnel(c, "/a/x");
        struct conn *far = rig_origin(&rig);
        static const char other[] =
            "HTTP/1.1 101 Switching\r\nupgrade: other\r\nconnection: upgrade\r\n\r\n";
        fake_feed(far, other, sizeof other - 1);
        settle();
        has(q, "502");
        wait_ms(3100);
        assert_int_equal(is_closed(c->far), client_is == H1);
        assert_true(is_closed(far));
        finish();
    }
}

/* ---- what comes before a session */

static struct tls_ctx *no_tls(void)
{
    return NULL;
}

static void a_proxy_header_comes_before_everything(void **state)
{
    (void)state;
    static const char header[] = "PROXY TCP4 10.1.2.3 10.0.0.1 1234 80\r\n";
    static const char request[] = "GET /local/ HTTP/1.1\r\nhost: x\r\n\r\n";
    begin();
    rig.begin = (struct begin){.proxy_header = true, .tls = no_tls()};
    struct conn *good = rig_client(&rig), *bad = rig_client(&rig), *slow = rig_client(&rig),
                *gone = rig_client(&rig);
    assert_int_equal(proxy_clients(rig.p), 4);
    fake_feed(good, header, sizeof header - 1);
    fake_feed(good, request, sizeof request - 1);
    fake_feed(bad, request, sizeof request - 1);
    fake_feed_error(gone);
    fake_settle(rig.w);
    assert_non_null(memmem(fake_written(good).p, fake_written(good).n, "here", 4));
    assert_true(is_closed(bad));
    assert_int_equal(fake_written(bad).n, 0);
    assert_int_equal(proxy_clients(rig.p), 2);
    wait_ms(9900);
    assert_false(is_closed(slow));
    wait_ms(200); /* the deadline of a head */
    assert_true(is_closed(slow));
    assert_int_equal(proxy_clients(rig.p), 1);
    assert_int_equal(counter_get(&proxy_metrics(rig.p)->unopened), 2);
    finish();
}

static void a_drain_gives_openings_up_as_it_does_idle_clients(void **state)
{
    (void)state;
    static const char header[] = "PROXY TCP4 10.1.2.3 10.0.0.1 1234 80\r\n";
    static const char request[] = "GET /local/ HTTP/1.1\r\nhost: x\r\n\r\n";
    for (int cut = 0; cut < 2; cut++) {
        begin();
        rig.begin = (struct begin){.proxy_header = true};
        struct conn *slow = rig_client(&rig), *served = rig_client(&rig);
        drained = 0;
        proxy_drain(rig.p, on_drained, NULL);
        fake_settle(rig.w);
        fake_feed(served, header, sizeof header - 1);
        fake_feed(served, request, sizeof request - 1);
        fake_settle(rig.w);
        assert_non_null(memmem(fake_written(served).p, fake_written(served).n, "here", 4));
        assert_false(is_closed(slow));
        if (cut)
            proxy_cut(rig.p);
        else
            wait_ms(2200);
        fake_settle(rig.w);
        assert_true(is_closed(slow));
        wait_ms(3100);
        assert_int_equal(proxy_clients(rig.p), 0);
        assert_int_equal(drained, 1);
        finish();
    }
}

/* ---- over TLS the origin chooses */

static struct tls_ctx *over_tls(void)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    rig.tls = tls_client_new(&(struct tls_client_rules){.insecure = true}, &a, &error);
    arena_done(&a);
    assert_non_null(rig.tls);
    return rig.tls;
}

static struct call *asks_for(struct peer *p, const char *method, const char *body)
{
    struct call *q = peer_ask(p, method, "/a/x", body, true);
    assert_non_null(q);
    settle();
    return q;
}

EACH_PAIR(over_tls_the_origin_chooses_and_bodies_pass)
{
    struct tls_ctx *tls = over_tls();
    char *text = letters(BIG);
    struct peer *c = client();
    struct call *q = asks_for(c, "POST", text);
    struct call *a = last_call(origin());
    settle();
    has(a, "data <300000 bytes");
    answers(a, 200, text);
    has(q, "data <300000 bytes");
    has(q, "end\nclosed ok\n");
    assert_true(logged(origin_is == H2 ? "\"origin_protocol\":\"HTTP/2.0\""
                                       : "\"origin_protocol\":\"HTTP/1.1\""));
    nothing_is_owed();
    asks_for(c, "GET", "");
    assert_false(dials());
    answers(last_call(a->peer), 200, "ok");
    nothing_is_owed();
    assert_int_equal(rig.npeers, 2);
    mem_free(text);
    tls_ctx_unref(tls);
}

EACH_PAIR(those_who_come_before_it_has_chosen_are_all_served)
{
    enum { N = 5 };
    struct tls_ctx *tls = over_tls();
    struct call *q[N];
    for (int i = 0; i < N; i++)
        q[i] = asks_for(client(), "POST", "hello");
    assert_int_equal(fake_dials(rig.w), 1);
    struct peer *o[N];
    unsigned n = 0;
    while (dials())
        o[n++] = origin();
    assert_int_equal(n, origin_is == H2 ? 1 : N);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < o[i]->ncalls; k++) {
            has(&o[i]->calls[k], "data hello\n");
            answers(&o[i]->calls[k], 200, "ok");
        }
    for (int i = 0; i < N; i++)
        has(q[i], "data ok\nend\nclosed ok\n");
    nothing_is_owed();
    tls_ctx_unref(tls);
}

EACH_PAIR(over_tls_an_upgrade_is_http1s)
{
    struct tls_ctx *tls = over_tls();
    struct peer *c = client();
    asks_for(c, "GET", "");
    answers(last_call(origin()), 200, "ok");
    struct field fields[] = {{STR("sec-websocket-key"), STR("dGhlIHNhbXBsZSBub25jZQ==")},
                             {STR("sec-websocket-version"), STR("13")}};
    struct http_head head = {.method = STR("GET"),
                             .scheme = STR("https"),
                             .authority = STR("x"),
                             .path = STR("/a/ws"),
                             .protocol = STR("websocket"),
                             .fields = fields,
                             .nfields = 2,
                             .length = -1};
    enum version chosen = origin_is;
    struct peer *other = client();
    assert_non_null(peer_ask_head(other, &head, client_is == H1));
    settle();
    assert_true(dials() || client_is == H2); /* h2: the client may not know that it can */
    if (dials()) {
        assert_false(fake_dial_offers(fake_dial_first(rig.w), "h2"));
        origin_is = H1;
        has(last_call(origin()), "protocol=websocket");
        origin_is = chosen;
    }
    tls_ctx_unref(tls);
}

static void refuses_protocols(void)
{
    fake_dial_says(fake_dial_first(rig.w), "no application protocol in common");
    fake_dial_fail(fake_dial_first(rig.w), WHY_TLS, 0);
    settle();
}

EACH_PAIR(who_refuses_http1_is_offered_http2_once)
{
    struct tls_ctx *tls = over_tls();
    rig.h1_only = true;
    struct call *q = asks_for(client(), "POST", "hello");
    assert_false(fake_dial_offers(fake_dial_first(rig.w), "h2"));
    refuses_protocols();
    assert_true(dials() && fake_dial_offers(fake_dial_first(rig.w), "h2"));
    if (origin_is == H2) {
        struct call *a = last_call(origin());
        settle();
        has(a, "data hello\n");
        answers(a, 200, "ok");
        has(q, "data ok\nend\nclosed ok\n");
    } else {
        refuses_protocols();
        has(q, "502");
        has(q, "tls in dial: no application protocol in common");
    }
    assert_false(dials());
    nothing_is_owed();
    tls_ctx_unref(tls);
}

EACH_PAIR(an_upgrade_is_never_offered_http2)
{
    struct tls_ctx *tls = over_tls();
    rig.h1_only = true;
    struct http_head head = {.method = STR("GET"),
                             .scheme = STR("https"),
                             .authority = STR("x"),
                             .path = STR("/a/ws"),
                             .protocol = STR("websocket"),
                             .length = -1};
    struct peer *c = client();
    assert_non_null(peer_ask_head(c, &head, client_is == H1));
    settle();
    if (dials())
        refuses_protocols();
    assert_false(dials());
    tls_ctx_unref(tls);
}

/* Nothing of a request goes to who has not proved enough, on whatever connection. */
EACH_PAIR(a_connection_that_may_not_carry_it_carries_nothing)
{
    struct tls_ctx *tls = over_tls();
    struct peer *c = client();
    rig.peer = WHY_IDENTITY;
    struct call *q = asks_for(c, "POST", "secret");
    struct peer *o = origin();
    has(q, "502");
    has(q, "identity in dial");
    assert_int_equal(o->ncalls, 0);
    assert_int_equal(idle_origins(), 1);
    struct peer *c2 = client();
    q = asks_for(c2, "POST", "secret");
    has(q, "identity in request");
    assert_int_equal(o->ncalls, 0);
    rig.peer = WHY_OK;
    q = asks_for(client(), "POST", "hello");
    assert_false(dials());
    has(last_call(o), "data hello\n");
    rig.peer = WHY_IDENTITY; /* asked once, before it went */
    answers(last_call(o), 200, "ok");
    has(q, "data ok\nend\nclosed ok\n");
    assert_int_equal(idle_origins(), 1);
    tls_ctx_unref(tls);
}

EACH_PAIR(what_was_wrong_with_the_origins_tls_is_told)
{
    struct tls_ctx *tls = over_tls();
    struct peer *c = client();
    struct call *q = asks_for(c, "GET", "");
    fake_dial_says(fake_dial_first(rig.w), "certificate has expired");
    fake_dial_fail(fake_dial_first(rig.w), WHY_TLS, 0);
    settle();
    has(q, "tls in dial: certificate has expired");
    q = asks_for(client(), "GET", "");
    struct peer *o = origin(); /* and what is said only after the handshake */
    fake_fault(o->far, "asks for a client certificate");
    peer_break(o);
    settle();
    has(q, "502");
    has(q, "tls in wait: asks for a client certificate");
    tls_ctx_unref(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_tls_the_origin_chooses_and_bodies_pass),
        cmocka_unit_test(those_who_come_before_it_has_chosen_are_all_served),
        cmocka_unit_test(over_tls_an_upgrade_is_http1s),
        cmocka_unit_test(who_refuses_http1_is_offered_http2_once),
        cmocka_unit_test(an_upgrade_is_never_offered_http2),
        cmocka_unit_test(a_connection_that_may_not_carry_it_carries_nothing),
        cmocka_unit_test(what_was_wrong_with_the_origins_tls_is_told),
        cmocka_unit_test(a_refused_upload_is_answered_and_then_stopped),
        cmocka_unit_test(a_request_and_its_answer_pass),
        cmocka_unit_test(big_bodies_pass_both_ways),
        cmocka_unit_test(a_reader_that_stops_holds_up_the_writer_and_nobody_else),
        cmocka_unit_test(trailers_pass_both_ways),
        cmocka_unit_test(an_answer_of_trailers_only_says_its_outcome),
        cmocka_unit_test(heads_before_the_final_one_pass),
        cmocka_unit_test(answers_without_a_body_have_none),
        cmocka_unit_test(an_early_answer_arrives_and_ends_it),
        cmocka_unit_test(both_bodies_run_at_once),
        cmocka_unit_test(many_streams_share_what_they_can),
        cmocka_unit_test(an_origin_that_takes_one_at_a_time_serves_all),
        cmocka_unit_test(an_origin_that_does_not_speak_http2_is_502),
        cmocka_unit_test(an_origin_that_never_says_its_settings_is_504),
        cmocka_unit_test(a_client_that_breaks_off_takes_its_stream_along),
        cmocka_unit_test(a_client_whose_connection_breaks_takes_all_along),
        cmocka_unit_test(an_origin_that_breaks_off_is_an_answer_of_ours_or_a_cut),
        cmocka_unit_test(an_origin_whose_connection_breaks_ends_all_on_it),
        cmocka_unit_test(what_is_refused_is_asked_once_more_whatever_it_is),
        cmocka_unit_test(a_body_that_was_too_long_to_keep_is_not_sent_again),
        cmocka_unit_test(a_goaway_sends_the_rest_elsewhere_and_finishes_what_runs),
        cmocka_unit_test(a_tunnel_carries_bytes_both_ways_and_ends_each_way_by_itself),
        cmocka_unit_test(a_tunnel_that_breaks_on_one_side_ends_on_the_other),
        cmocka_unit_test(what_is_sent_into_a_tunnel_without_an_end_is_refused_after_the_last_byte),
        cmocka_unit_test(an_upgrade_that_is_refused_is_an_answer),
        cmocka_unit_test(an_upgrade_takes_an_http2_connection_that_is_there),
        cmocka_unit_test(only_a_bodyless_websocket_becomes_an_extended_connect),
        cmocka_unit_test(a_pool_that_is_over_ends_them_all),
        cmocka_unit_test(a_place_that_was_left_answers_what_was_sent_as_a_whole),
        cmocka_unit_test(what_a_place_that_was_left_refuses_is_decided_anew),
        cmocka_unit_test(a_drain_finishes_what_runs),
        cmocka_unit_test(the_drain_deadline_cuts_every_state),
        cmocka_unit_test(deadlines_are_each_streams_own),
        cmocka_unit_test(half_a_head_is_408_on_its_stream),
        cmocka_unit_test(a_client_that_closes_takes_along_what_has_no_answer_yet),
        cmocka_unit_test(a_connection_over_the_limit_is_told_so_and_ends),
        cmocka_unit_test(without_memory_the_stream_is_refused_and_the_connection_lives),
        cmocka_unit_test(half_a_made_switch_closes_an_http1_client_and_spares_the_others),
        cmocka_unit_test(a_proxy_header_comes_before_everything),
        cmocka_unit_test(a_drain_gives_openings_up_as_it_does_idle_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
