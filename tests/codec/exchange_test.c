/* exchange_test.c — the proxy from end to end without a socket: the real exchange, pools and codecs
 * between fake clients and fake origins, in a time that the test turns.  Each test leaves nothing
 * behind: rig_done() sees to that, and meter.h watches every stream meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/rig.h"
#include "harness/wire.h"

enum { ENDS = 32, WINDOW = 65536, BIG = 1 << 20 };

/* ---- the stage */

/* One of the peers: what was read off its connection so far. */
struct end {
    struct conn *c;
    size_t at;
    bool asks_head; /* its last request was a HEAD */
};

static struct rig rig; /* cmocka runs one test after the other */
static struct arena mem;
static struct end ends[ENDS];
static unsigned nends;

static int set_up_with(const struct proxy_rules *rules)
{
    rig_init(&rig, rules);
    arena_init(&mem, NULL, 0);
    nends = 0;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return set_up_with(NULL);
}

static int tear_down(void **state)
{
    (void)state;
    rig_done(&rig);
    arena_done(&mem);
    return 0;
}

static struct end *end_of(struct conn *c)
{
    assert_non_null(c);
    assert_true(nends < ENDS);
    ends[nends] = (struct end){.c = c};
    return &ends[nends++];
}

static void settle(void)
{
    fake_settle(rig.w);
    rig_check(&rig);
}

static void wait_ms(uint64_t ms)
{
    fake_time(rig.w, ms);
    rig_check(&rig);
}

static void says_bytes(struct end *e, struct str s)
{
    fake_feed(e->c, s.p, s.n);
    settle();
}

static void says(struct end *e, const char *text)
{
    says_bytes(e, str_of(text));
}

static void leaves(struct end *e)
{
    fake_feed_eof(e->c);
    settle();
}

static void breaks(struct end *e)
{
    fake_feed_error(e->c);
    settle();
}

/* A client that sends this as soon as it is there. */
static struct end *client(const char *text)
{
    struct end *e = end_of(rig_client(&rig));
    e->asks_head = str_starts(str_of(text), STR("HEAD"));
    says(e, text);
    return e;
}

static bool waits_for_origin(void)
{
    return fake_dials(rig.w) > 0;
}

/* The origin that is being dialled. */
static struct end *origin(void)
{
    assert_true(waits_for_origin());
    return end_of(rig_origin(&rig));
}

static struct str unread(struct end *e)
{
    return str_skip(fake_written(e->c), e->at);
}

static bool silent(struct end *e)
{
    return unread(e).n == 0;
}

static bool is_up(const struct end *e)
{
    return fake_end(e->c) == FAKE_UP;
}

static bool is_closed(const struct end *e)
{
    return fake_end(e->c) == FAKE_CLOSED || fake_end(e->c) == FAKE_RESET;
}

static struct wire_message next_request(struct end *e, enum wire expected)
{
    struct wire_message m;
    struct str rest = unread(e);
    size_t before = rest.n;
    enum wire w = wire_request(&rest, &mem, &m);
    if (w != expected)
        print_error("on the wire: <%.*s>\n", (int)unread(e).n, unread(e).p);
    assert_int_equal(w, expected);
    e->at += before - rest.n;
    return m;
}

static struct wire_message next_answer(struct end *e, enum wire expected)
{
    struct wire_message m;
    struct str rest = unread(e);
    size_t before = rest.n;
    enum wire w = wire_response(
        &rest, e->asks_head, fake_end(e->c) == FAKE_FIN || fake_end(e->c) == FAKE_CLOSED, &mem, &m);
    if (w != expected)
        print_error("on the wire: <%.*s>\n", (int)unread(e).n, unread(e).p);
    assert_int_equal(w, expected);
    e->at += before - rest.n;
    return m;
}

static void assert_text(struct str s, const char *text)
{
    if (!str_eq(s, str_of(text)))
        print_error("<%.*s>\n", (int)s.n, s.p);
    assert_true(str_eq(s, str_of(text)));
}

/* A whole request with this first line and body. */
static struct wire_message asked(struct end *origin_end, const char *start, const char *body)
{
    struct wire_message m = next_request(origin_end, WIRE_WHOLE);
    assert_text(m.start, start);
    assert_text(m.body, body);
    return m;
}

/* A whole answer. */
static struct wire_message answered(struct end *client_end, int status, const char *body)
{
    struct wire_message m = next_answer(client_end, WIRE_WHOLE);
    assert_int_equal(m.status, status);
    assert_text(m.body, body);
    return m;
}

/* An answer of ours: a body that nobody has to know. */
static void refused(struct end *client_end, int status)
{
    struct wire_message m = next_answer(client_end, WIRE_WHOLE);
    assert_int_equal(m.status, status);
    assert_null(wire_field(&m, "x-gate").p);
    assert_true(m.body.n > 0);
}

/* The answer is there in part and the connection is over: nobody takes it for whole. */
static void cut_off(struct end *client_end, int status)
{
    struct wire_message m = next_answer(client_end, WIRE_PART);
    assert_int_equal(m.status, status);
    assert_true(is_closed(client_end));
}

/* How often the text stands in the access lines. */
static unsigned lines_with(const char *text)
{
    unsigned n = 0;
    for (const char *at = trace_text(&rig.lines); (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* So many lines in all, and the last one has all of these. */
static void logged(unsigned n, const char *a, const char *b)
{
    assert_int_equal(rig.nlines, n);
    const char *last = trace_text(&rig.lines);
    for (const char *at = last; (at = strstr(at, "\n{"));)
        last = ++at;
    if (!strstr(last, a) || !strstr(last, b))
        print_error("%s", last);
    assert_non_null(strstr(last, a));
    assert_non_null(strstr(last, b));
}

static unsigned idle_origins(void)
{
    return origin_idle(proxy_origins(rig.p));
}

static unsigned open_origins(void)
{
    return origin_open(proxy_origins(rig.p));
}

static bool judged(const char *text)
{
    return strstr(trace_text(&rig.judged), text) != NULL;
}

static char *repeated(char c, size_t n)
{
    char *p = arena_get(&mem, n + 1);
    memset(p, c, n);
    p[n] = '\0';
    return p;
}

/* Everything that came from clients was credited, everything that was given to them has left, and
 * nothing lies about but what the fake connections keep for themselves. */
static void nothing_is_owed(void)
{
    const struct meter *m = meter();
    assert_int_equal(m->received[0], m->credited[0]);
    assert_int_equal(m->given[0], m->sent[0]);
    assert_true(worker_held(rig.w) <= 3 * (size_t)CHUNK_BYTES);
}

#define GET(path) "GET " path " HTTP/1.1\r\nhost: x\r\n\r\n"
#define OK2 "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

/* A client's connection and an idle one to an origin of pool "a", both used once. */
static void acquainted(struct end **ret_client, struct end **ret_origin)
{
    *ret_client = client(GET("/a/first"));
    *ret_origin = origin();
    asked(*ret_origin, "GET /a/first HTTP/1.1", "");
    says(*ret_origin, OK2);
    answered(*ret_client, 200, "ok");
    assert_int_equal(idle_origins(), 1);
}

/* ---- plain ones */

static void a_request_goes_there_and_its_answer_back(void **state)
{
    (void)state;
    struct end *c =
        client("GET /a/x?y HTTP/1.1\r\nHost: some.where\r\nX-Request-Id: id-1\r\nX-Own: 1\r\n\r\n");
    assert_int_equal(proxy_count(rig.p, X_DIAL), 1);
    struct end *o = origin();
    struct wire_message q = asked(o, "GET /a/x?y HTTP/1.1", "");
    assert_text(wire_field(&q, "host"), "h:80");
    assert_text(wire_field(&q, "x-own"), "1");
    assert_text(wire_field(&q, "x-rid"), "id-1");
    assert_int_equal(proxy_count(rig.p, X_WAIT), 1);
    says(o, "HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello");
    struct wire_message m = answered(c, 201, "hello");
    assert_text(wire_field(&m, "x-a"), "b");
    assert_text(wire_field(&m, "x-gate"), "1");
    assert_null(wire_field(&m, "connection").p);
    assert_int_equal(rig_running(&rig), 0);
    assert_true(is_up(c) && is_up(o));
    assert_int_equal(idle_origins(), 1);
    logged(1, "\"status\":201", "\"request_id\":\"id-1\"");
    logged(1, "\"why\":\"ok\"", "\"bytes_out\":5");
    assert_string_equal(trace_text(&rig.judged), "judged forward\ndialled ok\n");
    nothing_is_owed();
}

static void bodies_pass_in_both_directions_in_the_framing_they_came_in(void **state)
{
    (void)state;
    struct end *c = client("POST /a/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhe");
    struct end *o = origin();
    assert_int_equal(next_request(o, WIRE_PART).length, 5);
    o->at = 0;
    says(c, "llo");
    asked(o, "POST /a/1 HTTP/1.1", "hello");
    says(o, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    says(o, "2\r\nde\r\n0\r\nx-t: 1\r\n\r\n");
    assert_true(answered(c, 200, "abcde").chunked);
    says(c, "PUT /a/2 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: "
            "chunked\r\n\r\n3\r\nxyz\r\n0\r\nx-t: 2\r\n\r\n");
    struct wire_message q = asked(o, "PUT /a/2 HTTP/1.1", "xyz");
    assert_true(q.chunked);
    assert_non_null(memmem(fake_written(o->c).p, fake_written(o->c).n, "0\r\nx-t: 2\r\n\r\n", 13));
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    answered(c, 200, "");
    assert_int_equal(rig.nlines, 2);
    assert_int_equal(idle_origins(), 1);
    nothing_is_owed();
}

static void an_answer_that_ends_with_its_connection_is_chunked_for_the_client(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/")), *o = origin();
    says(o, "HTTP/1.1 200 OK\r\n\r\nhel");
    says(o, "lo");
    leaves(o);
    assert_true(answered(c, 200, "hello").chunked);
    assert_true(is_up(c) && is_closed(o));
    logged(1, "\"status\":200", "\"why\":\"ok\"");
    nothing_is_owed();
}

static void an_old_client_gets_no_chunks_and_no_1xx(void **state)
{
    (void)state;
    struct end *c = client("GET /a/ HTTP/1.0\r\n\r\n"), *o = origin();
    says(o, "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: "
            "chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    struct wire_message m = answered(c, 200, "hello");
    assert_true(m.until_eof && is_closed(c));
}

static void answers_without_a_body_have_none(void **state)
{
    (void)state;
    struct end *c = client("HEAD /a/ HTTP/1.1\r\nhost: x\r\n\r\n"), *o = origin();
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n");
    struct wire_message m = answered(c, 200, "");
    assert_int_equal(m.length, 1234);
    c->asks_head = false;
    says(c, GET("/a/"));
    says(o, "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n");
    answered(c, 304, "");
    says(c, GET("/a/"));
    says(o, "HTTP/1.1 204 No Content\r\n\r\n");
    answered(c, 204, "");
    assert_int_equal(idle_origins(), 1);
    assert_int_equal(rig.nlines, 3);
}

static void heads_before_the_final_one_pass(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/")), *o = origin();
    wait_ms(19000);
    says(o, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 103);
    wait_ms(19000); /* each starts the wait anew */
    says(o, "HTTP/1.1 199 \r\n\r\n" OK2);
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 199);
    answered(c, 200, "ok");
    logged(1, "\"status\":200", "\"why\":\"ok\"");
}

static void pages_and_refusals_are_answered_without_an_origin(void **state)
{
    (void)state;
    struct end *c = client(GET("/local/"));
    answered(c, 200, "here");
    says(c, GET("/refuse/"));
    refused(c, 403);
    says(c, "POST /refuse/ HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc");
    refused(c, 403);
    c->asks_head = true;
    says(c, "HEAD /refuse/ HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 403);
    assert_true(is_up(c) && silent(c));
    assert_int_equal(open_origins(), 0);
    assert_int_equal(rig.nlines, 3); /* none for the page */
    assert_int_equal(lines_with("\"why\":\"denied\""), 3);
    nothing_is_owed();
}

/* ---- much */

static void a_slow_client_holds_up_its_origin_at_one_window(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/")), *o = origin();
    fake_room(c->c, 1000);
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 1048576\r\n\r\n");
    says_bytes(o, (struct str){repeated('x', BIG), BIG});
    assert_true(fake_unread(o->c) > BIG - 3 * WINDOW);
    for (int i = 0; i < 40; i++) {
        fake_room(c->c, 30000);
        settle();
    }
    fake_room(c->c, SIZE_MAX);
    settle();
    assert_int_equal(next_answer(c, WIRE_WHOLE).body.n, BIG);
    assert_true(meter()->most_held[1] <= WINDOW && meter()->most_held[1] > WINDOW / 2);
    assert_int_equal(idle_origins(), 1);
    nothing_is_owed();
}

static void a_slow_origin_holds_up_its_client_at_one_window(void **state)
{
    (void)state;
    struct end *c = client("POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n");
    struct str body = {repeated('x', BIG), BIG};
    says_bytes(c, body); /* not even dialled: one window waits here, the rest in the kernel */
    assert_true(fake_unread(c->c) > BIG - 2 * WINDOW);
    struct end *o = origin();
    next_request(o, WIRE_WHOLE);
    fake_room(o->c, 1000);
    assert_int_equal(fake_unread(c->c), 0);
    says(o, OK2);
    answered(c, 200, "ok");
    says(c, "POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n");
    says_bytes(c, body);
    assert_true(fake_unread(c->c) > BIG - 4 * WINDOW);
    for (int i = 0; i < 40; i++) {
        fake_room(o->c, 30000);
        settle();
    }
    fake_room(o->c, SIZE_MAX);
    settle();
    assert_int_equal(next_request(o, WIRE_WHOLE).body.n, BIG);
    says(o, OK2);
    answered(c, 200, "ok");
    assert_true(meter()->most_held[0] <= WINDOW);
    nothing_is_owed();
}

static void pipelined_requests_are_answered_in_order_each_by_its_own_pool(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/1") GET("/b/2") GET("/local/") GET("/a/3"));
    struct end *a = origin();
    asked(a, "GET /a/1 HTTP/1.1", "");
    assert_false(waits_for_origin());
    says(a, OK2);
    struct end *b = origin();
    asked(b, "GET /b/2 HTTP/1.1", "");
    assert_true(silent(a));
    says(b, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nb");
    asked(a, "GET /a/3 HTTP/1.1", ""); /* the pooled one */
    says(a, "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n");
    answered(c, 200, "ok");
    answered(c, 200, "b");
    answered(c, 200, "here");
    answered(c, 404, "");
    assert_int_equal(rig.nlines, 3);
    assert_int_equal(idle_origins(), 2);
}

/* ---- the retry (contract ingress 8.4) */

struct death {
    const char *name, *request, *later; /* later: said after the first part is on its way */
    bool retried;
};

#define REQ(method, more) method " /a/again HTTP/1.1\r\nhost: x\r\n" more "\r\n"

static const struct death deaths[] = {
    {"GET", REQ("GET", ""), NULL, true},
    {"HEAD", REQ("HEAD", ""), NULL, true},
    {"OPTIONS", REQ("OPTIONS", ""), NULL, true},
    {"TRACE", REQ("TRACE", ""), NULL, true},
    {"DELETE", REQ("DELETE", ""), NULL, true},
    {"PUT with its body", REQ("PUT", "content-length: 5\r\n") "hello", NULL, true},
    {"PUT with half of it", REQ("PUT", "content-length: 5\r\n") "he", "llo", true},
    {"chunked PUT", REQ("PUT", "transfer-encoding: chunked\r\n") "2\r\nhe\r\n",
     "3\r\nllo\r\n0\r\nx-t: 1\r\n\r\n", true},
    {"POST", REQ("POST", "content-length: 5\r\n") "hello", NULL, false},
    {"POST without a body", REQ("POST", "content-length: 0\r\n"), NULL, false},
    {"PATCH", REQ("PATCH", "content-length: 5\r\n") "hello", NULL, false},
    {"a method of nobody's", REQ("BREW", ""), NULL, false},
    {"POST with a key", REQ("POST", "content-length: 5\r\nIdempotency-Key: 1\r\n") "hello", NULL,
     true},
    {"POST with the other key",
     REQ("POST", "content-length: 5\r\nx-idempotency-key: 1\r\n") "hello", NULL, true},
};

static void check_death(const struct death *d, bool reset)
{
    struct end *c, *o;
    acquainted(&c, &o);
    c->asks_head = str_starts(str_of(d->request), STR("HEAD"));
    says(c, d->request);
    assert_false(silent(o));
    reset ? breaks(o) : leaves(o);
    if (waits_for_origin() != d->retried)
        print_error("%s, %s\n", d->name, reset ? "reset" : "end");
    assert_int_equal(waits_for_origin(), d->retried);
    if (!d->retried) {
        if (d->later)
            says(c, d->later);
        c->asks_head ? (void)next_answer(c, WIRE_WHOLE) : refused(c, 502);
        logged(2, "\"status\":502", "\"why\":\"origin-gone\"");
        return;
    }
    struct end *again = origin();
    if (d->later)
        says(c, d->later);
    struct wire_message m = next_request(again, WIRE_WHOLE);
    assert_text(m.body, strstr(d->name, "P") && !strstr(d->name, "OPTIONS") ? "hello" : "");
    says(again, c->asks_head ? "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" : OK2);
    answered(c, 200, c->asks_head ? "" : "ok");
    logged(2, "\"status\":200", "\"retried\":true");
    assert_int_equal(counter_get(&proxy_metrics(rig.p)->retries), 1);
    nothing_is_owed();
}

static void a_pooled_connection_that_dies_is_tried_again_where_that_is_safe(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof deaths / sizeof *deaths; i++)
        for (int reset = 0; reset < 2; reset++) {
            set_up_with(NULL);
            check_death(&deaths[i], reset);
            tear_down(NULL);
        }
}

static void a_new_connection_that_dies_is_not_tried_again(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/")), *o = origin();
    leaves(o);
    assert_false(waits_for_origin());
    refused(c, 502);
    assert_true(is_up(c));
}

static void a_request_is_tried_again_once_only(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    says(c, GET("/a/"));
    breaks(o);
    struct end *again = origin();
    breaks(again);
    assert_false(waits_for_origin());
    refused(c, 502);
    assert_int_equal(counter_get(&proxy_metrics(rig.p)->retries), 1);
}

static void the_second_try_never_takes_another_pooled_connection(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/1")), *d = client(GET("/a/2"));
    struct end *o = origin(), *p = origin();
    says(o, OK2);
    says(p, OK2);
    assert_int_equal(idle_origins(), 2);
    says(c, GET("/a/3"));
    breaks(fake_written(p->c).n > fake_written(o->c).n ? p : o);
    assert_true(waits_for_origin());
    assert_int_equal(idle_origins(), 1);
    (void)d;
}

static void what_no_byte_of_has_left_may_be_sent_whatever_it_is(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    const char *post = "POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
    fake_feed(c->c, post, strlen(post)); /* the pool gives its connection, */
    fake_feed_error(o->c);               /* which dies before the turn ends */
    settle();
    assert_true(silent(o) || fake_written(o->c).n == o->at);
    struct end *again = origin();
    asked(again, "POST /a/ HTTP/1.1", "hi");
    says(again, OK2);
    answered(c, 200, "ok");
    nothing_is_owed();
}

static void what_an_origin_says_before_it_was_asked_is_not_our_answer(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    fake_feed(c->c, GET("/a/"), strlen(GET("/a/")));
    fake_feed(o->c, OK2, strlen(OK2)); /* in the same turn: meant for nobody */
    settle();
    assert_true(silent(c) && is_closed(o));
    struct end *again = origin();
    says(again, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nours");
    answered(c, 200, "ours");
}

static void a_body_over_the_limit_is_not_sent_again(void **state)
{
    (void)state;
    for (size_t n = REPLAY_BYTES; n <= REPLAY_BYTES + 1; n++) {
        char head[128];
        struct end *c, *o;
        set_up_with(NULL);
        acquainted(&c, &o);
        snprintf(head, sizeof head, "PUT /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: %zu\r\n\r\n",
                 n);
        says(c, head);
        says_bytes(c, (struct str){repeated('y', n), n});
        assert_int_equal(next_request(o, WIRE_WHOLE).body.n, n);
        breaks(o);
        if (n > REPLAY_BYTES) {
            refused(c, 502);
        } else {
            struct end *again = origin();
            assert_int_equal(next_request(again, WIRE_WHOLE).body.n, n);
            says(again, OK2);
            answered(c, 200, "ok");
        }
        nothing_is_owed();
        tear_down(NULL);
    }
}

/* The first connection took some of the body and gave credit for it; the second must not give it
 * again (meter.h). */
static void credit_is_given_once_though_the_body_goes_twice(void **state)
{
    (void)state;
    enum { N = 60000 };
    struct end *c, *o;
    char head[128];
    acquainted(&c, &o);
    snprintf(head, sizeof head, "PUT /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n", N);
    fake_room(o->c, 30000);
    says(c, head);
    says_bytes(c, (struct str){repeated('z', 40000), 40000});
    breaks(o);
    says_bytes(c, (struct str){repeated('z', 20000), 20000});
    struct end *again = origin();
    assert_int_equal(next_request(again, WIRE_WHOLE).body.n, N);
    says(again, OK2);
    answered(c, 200, "ok");
    nothing_is_owed();
}

static void a_second_try_that_cannot_connect_is_502(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    says(c, "PUT /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello");
    leaves(o);
    fake_dial_fail(fake_dial_first(rig.w), WHY_DIAL, 111);
    settle();
    refused(c, 502);
    logged(2, "\"why\":\"dial\"", "\"retried\":true");
    assert_true(judged("dialled dial errno"));
    nothing_is_owed();
}

static void part_of_an_answer_forbids_the_second_try(void **state)
{
    (void)state;
    static const char *const parts[] = {"H", "HTTP/1.1 200 OK\r\nconte",
                                        "HTTP/1.1 103 Hints\r\n\r\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct end *c, *o;
        set_up_with(NULL);
        acquainted(&c, &o);
        says(c, GET("/a/"));
        says(o, parts[i]);
        leaves(o);
        assert_false(waits_for_origin());
        if (i == 2)
            assert_int_equal(next_answer(c, WIRE_WHOLE).status, 103);
        refused(c, 502);
        tear_down(NULL);
    }
}

/* ---- early answers */

static void an_early_answer_goes_down_and_the_rest_is_swallowed(void **state)
{
    (void)state;
    struct end *c = client("POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\nsome");
    struct end *o = origin();
    says(o, "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig");
    struct wire_message m = answered(c, 413, "big");
    assert_text(wire_field(&m, "connection"), "close");
    assert_int_equal(fake_end(c->c), FAKE_FIN); /* no reset that would kill the answer */
    assert_true(is_closed(o));                  /* its request was not complete */
    assert_int_equal(rig_running(&rig), 0);
    says_bytes(c, (struct str){repeated('x', 200000), 200000});
    assert_int_equal(fake_unread(c->c), 0);
    wait_ms(3100);
    assert_true(is_closed(c));
    logged(1, "\"status\":413", "\"why\":\"ok\"");
}

static void an_early_head_leaves_both_bodies_running(void **state)
{
    (void)state;
    struct end *c =
        client("POST /a/ HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n");
    struct end *o = origin();
    says(o, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nyo\r\n");
    next_answer(c, WIRE_PART);
    c->at = 0;
    says(c, "3\r\nyou\r\n0\r\n\r\n");
    asked(o, "POST /a/ HTTP/1.1", "hiyou");
    says(o, "0\r\n\r\n");
    answered(c, 200, "yo");
    nothing_is_owed();
}

static void our_own_early_answer_swallows_the_rest_too(void **state)
{
    (void)state;
    struct end *c = client("POST /refuse/ HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n");
    refused(c, 403);
    says_bytes(c, (struct str){repeated('x', 200000), 200000});
    assert_int_equal(fake_unread(c->c), 0);
    wait_ms(3100);
    assert_true(is_closed(c));
    assert_int_equal(rig.nlines, 1);
}

static void what_waited_for_an_origin_in_vain_is_credited(void **state)
{
    (void)state;
    struct end *c = client("POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n");
    says_bytes(c, (struct str){repeated('x', 300000), 300000});
    assert_true(fake_unread(c->c) > 0);
    fake_room(c->c, 0); /* the answer does not leave: it is the exchange that swallows */
    fake_dial_fail(fake_dial_first(rig.w), WHY_DIAL, 111);
    settle();
    assert_int_equal(fake_unread(c->c), 0);
    fake_room(c->c, SIZE_MAX);
    settle();
    refused(c, 502);
    nothing_is_owed();
}

/* The answer is whole and the client served; an origin that does not take the rest of the request
 * must not keep us. */
static void an_origin_that_reads_no_more_is_given_up_after_its_answer(void **state)
{
    (void)state;
    struct end *c = client("POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n");
    struct end *o = origin();
    fake_room(o->c, 0);
    says_bytes(c, (struct str){repeated('x', 60000), 60000});
    says(o, OK2);
    answered(c, 200, "ok");
    assert_int_equal(rig_running(&rig), 0);
    assert_true(is_closed(o) && is_up(c));
    logged(1, "\"status\":200", "\"why\":\"ok\"");
}

/* ---- origins that fail */

static void what_cannot_be_dialled_is_told(void **state)
{
    (void)state;
    static const struct {
        enum why why;
        int error, status;
    } table[] = {
        {WHY_DNS, 0, 502}, {WHY_DIAL, 111, 502}, {WHY_DEADLINE, 110, 504}, {WHY_OVERLOAD, 24, 503}};
    struct end *c = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        c = c ? c : client("");
        says(c, GET("/a/"));
        fake_dial_fail(fake_dial_first(rig.w), table[i].why, table[i].error);
        settle();
        refused(c, table[i].status);
        assert_true(is_up(c));
    }
    says(c, GET("/a@denied/"));
    assert_null(rig_origin(&rig));
    refused(c, 502);
    logged(5, "\"why\":\"denied\"", "\"state\":\"closing\"");
    assert_int_equal(open_origins(), 0);
}

static void out_of_descriptors_makes_idle_connections_give_way(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    says(c, GET("/b/"));
    fake_dial_fail(fake_dial_first(rig.w), WHY_OVERLOAD, 24);
    settle();
    assert_true(is_closed(o) && silent(c));
    assert_int_equal(idle_origins(), 0);
    assert_true(waits_for_origin()); /* once more, now that there is one */
    fake_dial_fail(fake_dial_first(rig.w), WHY_OVERLOAD, 24);
    settle();
    refused(c, 503);
    assert_false(waits_for_origin());
}

struct fall {
    const char *said;
    bool resets;
    int status; /* what the client gets */
    bool cut;   /* and it is cut off */
    const char *why;
};

static void an_origin_that_falls_is_an_answer_of_ours_or_a_cut(void **state)
{
    (void)state;
    static const struct fall falls[] = {
        {"", false, 502, false, "origin-gone"},
        {"", true, 502, false, "origin-gone"},
        {"HTTP/1.1 2", false, 502, false, "origin-gone"},
        {"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", false, 200, true, "origin-gone"},
        {"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", false, 200, true, "origin-gone"},
        {"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", true, 200, true, "origin-gone"},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", false, 200, true,
         "origin-gone"},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", true, 200,
         true, "origin-gone"},
        {"HTTP/1.1 200 OK\r\n\r\nhello", true, 200, true, "origin-gone"}, /* a reset ends no body */
        {"nonsense\r\n\r\n", false, 502, false, "origin-protocol"},
        {"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", false, 502, false,
         "origin-protocol"},
        {"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", false, 502,
         false, "origin-protocol"},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", false, 200, true,
         "origin-protocol"},
    };
    for (size_t i = 0; i < sizeof falls / sizeof *falls; i++) {
        const struct fall *f = &falls[i];
        char why[64];
        set_up_with(NULL);
        struct end *c = client(GET("/a/")), *o = origin();
        says(o, f->said);
        f->resets ? breaks(o) : leaves(o);
        snprintf(why, sizeof why, "\"why\":\"%s\"", f->why);
        f->cut ? cut_off(c, f->status) : refused(c, f->status);
        assert_true(f->cut || is_up(c));
        assert_int_equal(open_origins(), 0);
        logged(1, why, "\"request_id\"");
        tear_down(NULL);
    }
}

static void an_answer_too_large_for_us_is_502(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/")), *o = origin();
    says(o, "HTTP/1.1 200 OK\r\nx: ");
    says(o, repeated('x', 9000));
    refused(c, 502);
    assert_true(is_closed(o));
}

static void unasked_bytes_end_an_idle_connection(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    says(o, "HTTP/1.1 408 Timeout\r\n\r\n");
    assert_true(is_closed(o));
    assert_int_equal(open_origins(), 0);
    says(c, GET("/a/2"));
    struct end *fresh = origin();
    says(fresh, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: "
                "4\r\n\r\nevil");
    answered(c, 200, "ok");
    assert_true(is_closed(fresh));
    says(c, GET("/a/3"));
    assert_true(waits_for_origin() && silent(c));
}

/* ---- clients that leave */

enum place { IN_HEAD, IN_WAIT, IN_UPLOAD, IN_BODY, IN_STALLED_BODY, IN_TUNNEL, IN_DIAL, PLACES };

static struct end *client_in(enum place place, struct end **ret_origin)
{
    *ret_origin = NULL;
    if (place == IN_HEAD)
        return client("GET /a/ HTTP/1.1\r\nhos");
    struct end *c = client(
        place == IN_UPLOAD ? "POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhi"
        : place == IN_TUNNEL
            ? "GET /a/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            : GET("/a/"));
    if (place == IN_DIAL)
        return c;
    struct end *o = *ret_origin = origin();
    if (place == IN_STALLED_BODY)
        fake_room(c->c, 50);
    if (place == IN_BODY || place == IN_STALLED_BODY)
        says(o, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello");
    if (place == IN_TUNNEL)
        says(o, "HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
    return c;
}

static void a_client_that_breaks_off_takes_its_origin_along_from_every_state(void **state)
{
    (void)state;
    for (enum place place = 0; place < PLACES; place++) {
        struct end *o;
        set_up_with(NULL);
        struct end *c = client_in(place, &o);
        breaks(c);
        assert_int_equal(rig_running(&rig), 0);
        assert_int_equal(open_origins(), 0);
        assert_false(waits_for_origin());
        assert_true(!o || is_closed(o));
        if (place == IN_HEAD)
            assert_int_equal(rig.nlines, 0); /* nothing was asked */
        else
            logged(1, "\"why\":\"client-gone\"", "\"path\":\"/a/\"");
        if (place == IN_DIAL)
            assert_true(judged("dialled client-gone"));
        tear_down(NULL);
    }
}

/* H6: until the final head has come the end of the client's sending is leaving, from then on it is
 * not. */
static void a_client_that_ends_its_sending_has_left_until_the_answer_began(void **state)
{
    (void)state;
    for (enum place place = 0; place < PLACES; place++) {
        struct end *o;
        set_up_with(NULL);
        struct end *c = client_in(place, &o);
        leaves(c);
        bool lives = place >= IN_BODY && place <= IN_TUNNEL;
        assert_int_equal(rig_running(&rig), lives);
        assert_int_equal(open_origins(), lives);
        if (!lives) {
            assert_true(is_closed(c) && (!o || is_closed(o)));
            assert_int_equal(counter_get(&proxy_metrics(rig.p)->ended[WHY_CLIENT_GONE]), 1);
        } else if (place == IN_TUNNEL) {
            assert_int_equal(fake_end(o->c), FAKE_FIN);
            says(o, "bye");
            leaves(o);
            assert_int_equal(next_answer(c, WIRE_WHOLE).status, 101);
            assert_text(unread(c), "bye");
            assert_int_equal(rig_running(&rig), 0);
            logged(1, "\"status\":101", "\"why\":\"ok\"");
        } else {
            fake_room(c->c, SIZE_MAX);
            says(o, "more");
            answered(c, 200, "hellomore");
            assert_true(is_closed(c));
            assert_int_equal(rig_running(&rig), 0);
        }
        tear_down(NULL);
    }
}

/* ---- tunnels */

static struct end *tunnel(struct end **ret_origin)
{
    struct end *c = client_in(IN_TUNNEL, ret_origin);
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 101);
    next_request(*ret_origin, WIRE_WHOLE);
    assert_int_equal(proxy_count(rig.p, X_TUNNEL), 1);
    return c;
}

static void a_tunnel_carries_bytes_both_ways_and_ends_each_way_by_itself(void **state)
{
    (void)state;
    struct end *o, *c = tunnel(&o);
    says(c, "ping");
    says(o, "pong");
    assert_text(unread(o), "ping");
    assert_text(unread(c), "pong");
    leaves(o);
    assert_int_equal(fake_end(c->c), FAKE_FIN);
    says(c, "still");
    assert_text(unread(o), "pingstill");
    leaves(c);
    assert_int_equal(rig_running(&rig), 0);
    assert_true(is_closed(c) && is_closed(o));
    logged(1, "\"why\":\"ok\"", "\"bytes_in\":9");
    nothing_is_owed();
}

/* Both have said all, but the origin is slow to take it: that is no half request. */
static void the_last_bytes_of_a_tunnel_have_the_time_of_a_half_closed_one(void **state)
{
    (void)state;
    struct end *o, *c = tunnel(&o);
    fake_room(o->c, 0);
    says_bytes(c, (struct str){repeated('u', 30000), 30000});
    leaves(o);
    leaves(c);
    wait_ms(13000);
    assert_true(is_closed(c));
    fake_room(o->c, SIZE_MAX);
    settle();
    assert_int_equal(unread(o).n, 30000);
    assert_int_equal(rig_running(&rig), 0);
    logged(1, "\"why\":\"ok\"", "\"state\":\"tunnel\"");
}

static void a_tunnel_that_breaks_on_one_side_ends_on_the_other(void **state)
{
    (void)state;
    for (int of_origin = 0; of_origin < 2; of_origin++) {
        set_up_with(NULL);
        struct end *o, *c = tunnel(&o);
        breaks(of_origin ? o : c);
        assert_true(is_closed(of_origin ? c : o));
        logged(1, of_origin ? "\"why\":\"origin-gone\"" : "\"why\":\"client-gone\"",
               "\"state\":\"tunnel\"");
        tear_down(NULL);
    }
}

static void bytes_behind_the_handshake_are_not_lost(void **state)
{
    (void)state;
    struct end *c = client(
        "GET /a/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nearly");
    struct end *o = origin();
    next_request(o, WIRE_WHOLE);
    assert_true(silent(o));
    says(o, "HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nfirst");
    assert_text(unread(o), "early");
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 101);
    assert_text(unread(c), "first");
}

static void an_upgrade_takes_a_connection_of_its_own_and_never_gives_it_back(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    says(c, "GET /a/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    struct end *own = origin();
    says(own, "HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno");
    answered(c, 403, "no");
    assert_int_equal(rig_running(&rig), 0);
    assert_true(is_up(c));
}

static void a_tunnel_at_a_standstill_holds_half_a_window_each_way(void **state)
{
    (void)state;
    struct end *o, *c = tunnel(&o);
    fake_room(c->c, 0);
    fake_room(o->c, 0);
    says_bytes(c, (struct str){repeated('u', BIG), BIG});
    says_bytes(o, (struct str){repeated('d', BIG), BIG});
    for (int i = 0; i < 2; i++)
        assert_true(meter()->most_held[i] <= WINDOW / 2);
    fake_room(c->c, SIZE_MAX);
    fake_room(o->c, SIZE_MAX);
    settle();
    assert_int_equal(unread(o).n, BIG);
    assert_int_equal(unread(c).n, BIG);
    leaves(o);
    leaves(c);
    nothing_is_owed();
}

/* ---- pools */

static void no_connection_is_shared_between_pools_or_addresses(void **state)
{
    (void)state;
    static const char *const others[] = {GET("/b/"), GET("/a@other/"), GET("/ab/"), GET("/A/"),
                                         GET("/a#/")};
    struct end *c, *o;
    acquainted(&c, &o);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        says(c, others[i]);
        assert_true(waits_for_origin());
        struct end *other = origin();
        next_request(other, WIRE_WHOLE);
        says(other, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
        answered(c, 200, "ok");
        assert_true(silent(o));
    }
    says(c, GET("/a/"));
    assert_false(waits_for_origin());
    asked(o, "GET /a/ HTTP/1.1", "");
}

static void a_pool_that_is_over_ends_what_is_idle_and_what_is_busy(void **state)
{
    (void)state;
    struct end *idle_client, *idle;
    acquainted(&idle_client, &idle);
    struct end *dials = client(GET("/a/d"));
    /* one of them takes the idle connection: another one for the pool */
    asked(idle, "GET /a/d HTTP/1.1", "");
    struct end *waits = client(GET("/a/w")), *waits_at = origin();
    struct end *reads = client(GET("/a/r")), *reads_at = origin();
    says(reads_at, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello");
    struct end *dialling = client(GET("/a/dial"));
    assert_true(waits_for_origin());
    struct end *spare_client = client(GET("/b/")), *other = NULL;
    assert_int_equal(fake_dials(rig.w), 2);
    proxy_purge(rig.p, STR("a"));
    settle();
    assert_int_equal(fake_dials(rig.w), 1); /* of the other pool */
    refused(dials, 502);
    refused(waits, 502);
    refused(dialling, 502);
    cut_off(reads, 200);
    assert_true(is_closed(idle) && is_closed(waits_at) && is_closed(reads_at));
    assert_int_equal(lines_with("\"why\":\"revoked\""), 4);
    other = origin();
    says(other, OK2);
    answered(spare_client, 200, "ok");
    assert_int_equal(open_origins(), 1);
    says(dials, GET("/a/new")); /* whoever comes by that name later gets a pool of his own */
    struct end *fresh = origin();
    says(fresh, OK2);
    answered(dials, 200, "ok");
    assert_int_equal(idle_origins(), 2);
    proxy_purge(rig.p, STR("a"));
    proxy_purge(rig.p, STR("nobody"));
    settle();
    assert_true(is_closed(fresh) && is_up(other));
}

static void who_comes_by_that_name_in_the_same_turn_gets_a_pool_of_his_own(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    proxy_purge(rig.p, STR("a"));
    fake_feed(c->c, GET("/a/new"),
              strlen(GET("/a/new"))); /* the old connections are still closing */
    struct end *fresh = origin();
    assert_true(is_closed(o));
    says(fresh, OK2);
    answered(c, 200, "ok");
    assert_int_equal(idle_origins(), 1);
    proxy_purge(rig.p, STR("a"));
    settle();
    assert_true(is_closed(fresh));
}

static void an_answer_of_ours_is_not_cut_when_the_pool_ends(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/"));
    fake_room(c->c, 10); /* the answer waits to be taken */
    fake_dial_fail(fake_dial_first(rig.w), WHY_DIAL, 111);
    settle();
    proxy_purge(rig.p, STR("a"));
    fake_room(c->c, SIZE_MAX);
    settle();
    refused(c, 502);
    logged(1, "\"why\":\"dial\"", "\"status\":502");
}

static void moves(const char *from, const char *to)
{
    proxy_move(rig.p, str_of(from), str_of(to));
    settle();
}

static void what_a_place_that_was_left_is_answering_runs_on(void **state)
{
    (void)state;
    struct end *idle_client, *idle, *fresh;
    acquainted(&idle_client, &idle);
    struct end *waits = client(GET("/a/w")), *reads, *reads_at, *posts, *posts_at;
    asked(idle, "GET /a/w HTTP/1.1", ""); /* again() is not there: it may not be asked twice */
    reads = client(GET("/a/r"));
    reads_at = origin();
    says(reads_at, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello");
    posts = client("POST /a/p HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhello you");
    posts_at = origin();
    asked(posts_at, "POST /a/p HTTP/1.1", "hello you");
    moves("a", "b");
    says(idle_client, GET("/a/new"));
    fresh = origin(); /* not the one that gets free now */
    says(reads_at, "you!");
    answered(reads, 200, "helloyou!");
    says(posts_at, OK2);
    answered(posts, 200, "ok");
    says(idle, OK2);
    answered(waits, 200, "ok");
    assert_true(is_closed(reads_at) && is_closed(posts_at) && is_closed(idle));
    assert_int_equal(lines_with("\"why\":\"revoked\""), 0);
    says(fresh, OK2);
    answered(idle_client, 200, "ok");
    assert_int_equal(idle_origins(), 1);
    nothing_is_owed();
}

static void nothing_is_sent_any_more_to_a_place_that_was_left(void **state)
{
    (void)state;
    struct end *c = client("POST /a/p HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhell");
    struct end *o = origin(), *late, *unsent;
    next_request(o, WIRE_PART);
    acquainted(&unsent, &late);
    fake_room(late->c, 5);
    says(unsent, "POST /a/w HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    assert_text(unread(late), "POST ");
    moves("a", "b");
    refused(c, 502);
    refused(unsent, 502);
    fake_room(late->c, SIZE_MAX);
    says(c, "o you");
    settle();
    assert_text(unread(late), "POST ");
    assert_true(silent(o) && is_closed(late) && is_closed(o));
}

static void what_has_no_end_or_no_connection_yet_ends_with_a_move(void **state)
{
    (void)state;
    struct end *idle_client, *idle, *at;
    acquainted(&idle_client, &idle);
    struct end *t = tunnel(&at), *dials = client(GET("/a/d"));
    asked(idle, "GET /a/d HTTP/1.1", "");
    says(idle, OK2);
    answered(dials, 200, "ok");
    client(GET("/a/busy"));
    dials = client(GET("/a/d"));
    assert_true(waits_for_origin());
    moves("a", "b");
    assert_true(is_closed(t) && is_closed(at));
    refused(dials, 502);
    assert_false(waits_for_origin());
    assert_true(is_up(idle));
    wait_ms(7100);
    assert_true(is_closed(idle));
    assert_int_equal(open_origins(), 0);
}

static void a_place_that_was_left_has_so_much_time_and_no_more(void **state)
{
    (void)state;
    struct end *reads = client(GET("/a/r")), *at = origin(), *waits, *waits_at;
    says(at, "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhello");
    waits = client("POST /a/w HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    waits_at = origin();
    moves("a", "b");
    wait_ms(5000);
    says(at, "hello"); /* does not put it off */
    moves("b", "c");   /* nor does this */
    wait_ms(1900);
    assert_true(is_up(reads) && silent(waits));
    wait_ms(200);
    cut_off(reads, 200);
    refused(waits, 502);
    assert_true(is_closed(at) && is_closed(waits_at));
    assert_int_equal(lines_with("\"why\":\"revoked\""), 2);
    nothing_is_owed();
}

static void what_runs_on_ends_with_the_pool_that_came_after(void **state)
{
    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        struct end *reads = client(GET("/a/r")), *at = origin();
        says(at, "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhello");
        moves("a", "b");
        if (twice)
            moves("b", "c");
        proxy_purge(rig.p, STR("a"));
        settle();
        assert_true(is_up(reads) && is_up(at));
        proxy_purge(rig.p, twice ? STR("c") : STR("b"));
        settle();
        cut_off(reads, 200);
        assert_true(is_closed(at));
    }
}

static void nothing_is_sent_again_to_a_place_that_was_left(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    says(c, GET("/a/x"));
    asked(o, "GET /a/x HTTP/1.1", "");
    moves("a", "b");
    leaves(o); /* a second connection would be taken where it has not moved */
    refused(c, 502);
    assert_false(waits_for_origin());
}

static void a_client_may_take_longer_than_the_place_that_was_left(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/r")), *o = origin();
    fake_room(c->c, 10);
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    moves("a", "b");
    wait_ms(8000);
    fake_room(c->c, SIZE_MAX);
    settle();
    answered(c, 200, "hello");
}

#define BOTH_FRAMINGS                          \
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" \
    "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"

static void what_was_not_complete_is_never_kept(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        BOTH_FRAMINGS,
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct end *c = client(GET("/a/")), *o = origin();
        says(o, answers[i]);
        answered(c, 200, "ok");
        assert_true(is_closed(o));
        assert_int_equal(open_origins(), 0);
    }
    struct end *o, *c = client_in(IN_BODY, &o);
    breaks(c);
    assert_true(is_closed(o));
    assert_int_equal(idle_origins(), 0);
}

static void idle_connections_have_limits_and_an_end(void **state)
{
    (void)state;
    struct end *clients[10], *origins[10];
    for (int i = 0; i < 10; i++) {
        clients[i] = client(i < 6 ? GET("/a/") : GET("/b/"));
        origins[i] = origin();
    }
    for (int i = 0; i < 6; i++)
        says(origins[i], OK2);
    assert_int_equal(idle_origins(), 4); /* per pool: the oldest went */
    assert_true(is_closed(origins[0]) && is_closed(origins[1]) && is_up(origins[2]));
    wait_ms(1000);
    for (int i = 6; i < 10; i++)
        says(origins[i], OK2);
    assert_int_equal(idle_origins(), 8);
    struct end *c = client(GET("/c/")), *o = origin();
    says(o, OK2);
    answered(c, 200, "ok");
    assert_int_equal(idle_origins(), 8); /* over all: again the oldest */
    assert_true(is_closed(origins[2]) && is_up(origins[3]));
    says(clients[0], GET("/a/2")); /* the youngest is taken */
    assert_true(fake_written(origins[5]->c).n > fake_written(origins[4]->c).n);
    says(origins[5], OK2);
    wait_ms(49200); /* the old ones go; one second younger ones stay */
    assert_true(is_closed(origins[3]) && is_closed(origins[4]) && is_up(origins[6]));
    wait_ms(1000);
    assert_int_equal(idle_origins(), 0);
    assert_int_equal(open_origins(), 0);
}

static void an_idle_connection_that_ends_is_forgotten(void **state)
{
    (void)state;
    struct end *c, *o;
    acquainted(&c, &o);
    leaves(o);
    assert_true(is_closed(o));
    assert_int_equal(open_origins(), 0);
    says(c, GET("/a/"));
    assert_true(waits_for_origin());
}

/* ---- deadlines */

static void a_head_that_does_not_come_is_408(void **state)
{
    (void)state;
    struct end *c = client("GET /a/ HTTP/1.1\r\n");
    for (int i = 0; i < 9; i++) {
        wait_ms(1000);
        says(c, "x: y\r\n"); /* it goes on, and yet: the whole head in time */
    }
    assert_true(silent(c));
    wait_ms(1100);
    struct wire_message m = next_answer(c, WIRE_WHOLE);
    assert_int_equal(m.status, 408);
    assert_text(wire_field(&m, "connection"), "close");
    wait_ms(3100);
    assert_true(is_closed(c));
    logged(1, "\"status\":408", "\"why\":\"deadline\"");
}

/* The 408 is on its way when the head is complete after all: it is answered already. */
static void a_head_that_comes_too_late_is_not_answered_twice(void **state)
{
    (void)state;
    struct end *c = client("GET /a/ HTTP/1.1\r\nhost: x\r\n");
    fake_room(c->c, 0);
    wait_ms(10100);
    says(c, "\r\n");
    assert_false(waits_for_origin());
    fake_room(c->c, SIZE_MAX);
    settle();
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 408);
    assert_true(silent(c));
    assert_int_equal(rig.nlines, 1);
}

static void a_dial_has_its_own_deadline(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/"));
    wait_ms(4900);
    assert_true(silent(c));
    wait_ms(200);
    refused(c, 504);
    logged(1, "\"status\":504", "\"why\":\"deadline\"");
    assert_true(judged("dialled deadline errno"));
}

static void a_silent_origin_is_504(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/")), *o = origin();
    wait_ms(19900);
    assert_true(silent(c));
    wait_ms(200);
    refused(c, 504);
    assert_true(is_closed(o) && is_up(c));
    logged(1, "\"status\":504", "\"why\":\"deadline\"");
}

static void an_upload_that_stands_still_is_408_or_504_by_whose_fault_it_is(void **state)
{
    (void)state;
    struct proxy_rules rules = rig_rules;
    rules.timeout_ms[X_WAIT] = 3600000;
    for (int origin_stalls = 0; origin_stalls < 2; origin_stalls++) {
        set_up_with(&rules);
        struct end *c = client("POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n"),
                   *o = origin();
        if (origin_stalls)
            fake_room(o->c, 0);
        wait_ms(20000);
        says_bytes(c, (struct str){repeated('x', BIG), origin_stalls ? BIG : 9});
        wait_ms(29800);
        assert_true(silent(c));
        wait_ms(300);
        refused(c, origin_stalls ? 504 : 408);
        assert_true(is_closed(o));
        tear_down(NULL);
    }
}

static void the_wait_for_an_answer_begins_when_the_body_has_left(void **state)
{
    (void)state;
    struct end *c = client("POST /a/ HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nhi"),
               *o = origin();
    wait_ms(15000);
    says(c, "ho");
    wait_ms(19000);
    says(o, OK2);
    answered(c, 200, "ok");
}

static void a_body_that_stands_still_is_cut(void **state)
{
    (void)state;
    for (int client_stalls = 0; client_stalls < 2; client_stalls++) {
        set_up_with(NULL);
        struct end *c = client(GET("/a/")), *o = origin();
        if (client_stalls)
            fake_room(c->c, 120);
        says(o, "HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n");
        says_bytes(o, (struct str){repeated('x', 1000), 1000});
        wait_ms(29000);
        if (!client_stalls) {
            says(o, "x");
            wait_ms(29000);
        }
        assert_int_equal(rig_running(&rig), 1);
        wait_ms(1500);
        assert_int_equal(rig_running(&rig), 0);
        wait_ms(3100); /* what is queued had its time */
        assert_true(is_closed(c) && is_closed(o));
        logged(1, "\"why\":\"deadline\"", "\"state\":\"body\"");
        tear_down(NULL);
    }
}

static void tunnels_have_a_deadline_for_silence_and_one_for_half_of_them(void **state)
{
    (void)state;
    struct end *o, *c = tunnel(&o);
    wait_ms(39000);
    says(c, "x");
    wait_ms(39000);
    assert_int_equal(rig_running(&rig), 1);
    wait_ms(1500);
    assert_int_equal(rig_running(&rig), 0);
    for (int of_origin = 0; of_origin < 2; of_origin++) {
        c = tunnel(&o);
        leaves(of_origin ? o : c);
        wait_ms(14000);
        says(of_origin ? c : o, "x");
        wait_ms(14000);
        assert_int_equal(rig_running(&rig), 1);
        wait_ms(1500);
        assert_int_equal(rig_running(&rig), 0);
    }
    assert_int_equal(lines_with("\"why\":\"deadline\""), 3);
}

static void a_handshake_has_45_seconds(void **state)
{
    (void)state;
    struct proxy_rules rules = rig_rules;
    rules.timeout_ms[X_WAIT] = 3600000;
    set_up_with(&rules);
    struct end
        *c = client(
            "GET /a/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"),
        *o = origin();
    wait_ms(44900);
    assert_true(silent(c));
    wait_ms(200);
    refused(c, 504);
    assert_true(is_closed(o));
    tear_down(NULL);
}

static void an_answer_of_ours_that_nobody_reads_is_given_up(void **state)
{
    (void)state;
    struct end *c = client("POST /refuse/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n");
    (void)c;
    struct end *d = end_of(rig_client(&rig));
    fake_room(d->c, 0);
    says(d, "POST /refuse/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n");
    assert_int_equal(proxy_count(rig.p, X_CLOSING), 1);
    for (int i = 0; i < 9; i++) { /* its body trickles on: that is no reason to wait longer */
        wait_ms(1000);
        if (!is_closed(d))
            says(d, "x");
    }
    assert_int_equal(rig_running(&rig), 0);
    assert_true(is_closed(d));
}

static void an_idle_client_is_closed(void **state)
{
    (void)state;
    struct end *quiet = client(""), *c = client(GET("/local/"));
    answered(c, 200, "here");
    wait_ms(59900);
    assert_true(is_up(quiet) && is_up(c));
    wait_ms(200);
    assert_true(is_closed(quiet) && is_closed(c));
    assert_int_equal(proxy_clients(rig.p), 0);
}

/* ---- Expect (H4) */

#define EXPECTING \
    "POST /a/ HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"

static void we_ask_for_the_body_after_a_second(void **state)
{
    (void)state;
    struct end *c = client(EXPECTING), *o = origin();
    wait_ms(900);
    assert_true(silent(c));
    wait_ms(200);
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 100);
    says(c, "hi");
    asked(o, "POST /a/ HTTP/1.1", "hi");
    says(o, "HTTP/1.1 100 Continue\r\n\r\n"); /* it has been said */
    assert_true(silent(c));
    says(o, OK2);
    answered(c, 200, "ok");
    nothing_is_owed();
}

static void a_refused_request_is_not_asked_for_its_body(void **state)
{
    (void)state;
    struct end *c = client("POST /refuse/ HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
                           "content-length: 2\r\n\r\n");
    struct wire_message m = next_answer(c, WIRE_WHOLE);
    assert_int_equal(m.status, 403);
    assert_text(wire_field(&m, "connection"), "close");
    wait_ms(1500);
    assert_true(silent(c));
    assert_false(waits_for_origin());
}

static void the_origin_may_ask_for_it_or_refuse(void **state)
{
    (void)state;
    struct end *c = client(EXPECTING), *o = origin();
    says(o, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(next_answer(c, WIRE_WHOLE).status, 100);
    wait_ms(1500);
    assert_true(silent(c)); /* not by us as well */
    says(c, "hi");
    says(o, OK2);
    answered(c, 200, "ok");
    says(c, EXPECTING);
    says(o, "HTTP/1.1 417 No\r\ncontent-length: 0\r\n\r\n");
    answered(c, 417, "");
    wait_ms(1500);
    assert_true(silent(c));
}

static void a_body_that_comes_unasked_needs_no_100(void **state)
{
    (void)state;
    struct end *c = client(EXPECTING "h"), *o = origin();
    wait_ms(1500);
    assert_true(silent(c));
    says(c, "i");
    asked(o, "POST /a/ HTTP/1.1", "hi");
}

/* ---- faults of clients */

static void a_broken_request_is_answered_and_closed(void **state)
{
    (void)state;
    static const char *const heads[] = {"nonsense\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
                                        "GET /a/ HTTP/1.1\r\nhost: x\r\n bad\r\n\r\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct end *c = client(heads[i]);
        refused(c, 400);
        wait_ms(3100);
        assert_true(is_closed(c));
    }
    assert_int_equal(rig.nlines, 3);
    assert_int_equal(lines_with("\"why\":\"client-protocol\""), 3);
}

static void a_body_that_breaks_is_400_until_the_answer_began_then_a_cut(void **state)
{
    (void)state;
    static const char broken[] =
        "POST /a/ HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";
    struct end *c = client(broken), *o = origin();
    says(c, "zz\r\n");
    refused(c, 400);
    assert_true(is_closed(o));
    struct end *d = client(broken), *p = origin();
    says(p, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello");
    says(d, "zz\r\n");
    cut_off(d, 200);
    assert_true(is_closed(p));
    struct end *e = client(broken); /* while dialling */
    says(e, "zz\r\n");
    refused(e, 400);
    assert_false(waits_for_origin());
    assert_int_equal(lines_with("\"why\":\"client-protocol\""), 3);
}

/* ---- drain */

static unsigned drained;

static void on_drained(void *user)
{
    (void)user;
    drained++;
}

static void draining_finishes_what_runs(void **state)
{
    (void)state;
    struct end *idle_client, *idle_origin;
    drained = 0;
    acquainted(&idle_client, &idle_origin);
    struct end *runs = client(GET("/b/")), *o = origin();
    struct listener *l = fake_listener(rig.w, 1, proxy_accept, rig.p);
    proxy_add_listener(rig.p, l);
    proxy_drain(rig.p, on_drained, NULL);
    settle();
    assert_false(fake_listener_stopped(l)); /* handshakes are under way */
    wait_ms(200);
    assert_true(fake_listener_stopped(l));
    struct conn *late = fake_listener_taken(l);
    assert_non_null(late); /* it waited in the queue: it is served */
    rig_keep(&rig, late);
    struct end *last = end_of(late);
    says(last, GET("/local/"));
    struct wire_message m = answered(last, 200, "here");
    assert_text(wire_field(&m, "connection"), "close");
    says(idle_client, GET("/a/")); /* it was on its way */
    says(idle_origin, OK2);
    m = answered(idle_client, 200, "ok");
    assert_text(wire_field(&m, "connection"), "close");
    assert_true(is_closed(idle_client));
    says(o, OK2);
    m = answered(runs, 200, "ok");
    assert_text(wire_field(&m, "connection"), "close");
    assert_true(is_closed(runs));
    assert_int_equal(drained, 1);
    settle();
    assert_int_equal(open_origins(), 0);
    fake_listener_free(l);
}

static void idle_clients_go_two_seconds_after_the_drain_began(void **state)
{
    (void)state;
    struct end *c, *o;
    drained = 0;
    acquainted(&c, &o);
    proxy_drain(rig.p, on_drained, NULL);
    wait_ms(1900);
    assert_true(is_up(c));
    assert_int_equal(drained, 0);
    wait_ms(200);
    assert_true(is_closed(c));
    assert_int_equal(drained, 1);
    assert_int_equal(open_origins(), 0);
}

static void the_drain_deadline_cuts_every_state(void **state)
{
    (void)state;
    struct end *o;
    drained = 0;
    for (enum place place = 0; place < PLACES; place++)
        client_in(place, &o);
    client(GET("/local/"));
    struct end *stuck = end_of(rig_client(&rig));
    fake_room(stuck->c, 0);
    says(stuck, GET("/refuse/"));
    proxy_drain(rig.p, on_drained, NULL);
    settle();
    assert_int_equal(rig_running(&rig), PLACES + 1);
    assert_int_equal(drained, 0);
    proxy_cut(rig.p);
    settle();
    assert_int_equal(rig_running(&rig), 0);
    assert_int_equal(proxy_clients(rig.p), 0);
    assert_int_equal(open_origins(), 0);
    assert_int_equal(drained, 1);
    assert_int_equal(rig.nlines, PLACES); /* no head, no line */
}

/* ---- overload (B7) */

static void connections_over_the_limit_are_told_so_and_closed(void **state)
{
    (void)state;
    struct end *c = end_of(rig_surplus(&rig));
    says(c, GET("/a/"));
    struct wire_message m = next_answer(c, WIRE_WHOLE);
    assert_int_equal(m.status, 503);
    assert_text(wire_field(&m, "connection"), "close");
    assert_true(is_closed(c));
    assert_false(waits_for_origin());
    struct end *d = end_of(rig_surplus(&rig));
    says(d, GET("/local/"));
    answered(d, 200, "here"); /* the probe's page */
    logged(1, "\"why\":\"overload\"", "\"status\":503");
    assert_int_equal(counter_get(&proxy_metrics(rig.p)->overload), 1);
}

static void over_the_memory_cap_new_requests_are_refused_and_what_runs_goes_on(void **state)
{
    (void)state;
    struct proxy_rules rules = rig_rules;
    rules.max_memory = rules.client.max_memory = 150000;
    set_up_with(&rules);
    struct end *slow[3], *at[3];
    for (int i = 0; i < 3; i++) {
        slow[i] = client(GET("/a/"));
        at[i] = origin();
        fake_room(slow[i]->c, 0);
    }
    struct end *old = client(GET("/b/")), *idle = origin();
    says(idle, OK2);
    answered(old, 200, "ok");
    for (int i = 0; i < 3; i++) {
        says(at[i], "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
        says_bytes(at[i], (struct str){repeated('m', 100000), 100000});
    }
    assert_true(worker_held(rig.w) > rules.max_memory);
    struct end *late = client(GET("/a/late"));
    refused(late, 503);
    assert_true(is_closed(late) && is_closed(idle)); /* idle ones give way */
    says(old, GET("/b/"));
    refused(old, 503);
    struct end *probe = client(GET("/local/")), *head = client("GET /a/ HTTP/1.1\r\nhos");
    answered(probe, 200, "here");
    refused(head, 503); /* nor is a head waited for */
    assert_int_equal(counter_get(&proxy_metrics(rig.p)->overload), 3);
    assert_int_equal(lines_with("\"why\":\"overload\""), 3);
    for (int i = 0; i < 3; i++)
        fake_room(slow[i]->c, SIZE_MAX);
    settle();
    for (int i = 0; i < 3; i++)
        assert_int_equal(next_answer(slow[i], WIRE_WHOLE).body.n, 100000);
    says(probe, GET("/b/again"));
    assert_true(waits_for_origin());
    tear_down(NULL);
}

/* Between 7/8 and all of it: who is already there is served, who is new is not. */
static void near_the_memory_cap_only_new_clients_are_refused(void **state)
{
    (void)state;
    struct proxy_rules rules = rig_rules;
    set_up_with(&rules);
    struct end *old = client(GET("/local/")), *slow = client(GET("/a/")), *at = origin();
    answered(old, 200, "here");
    fake_room(slow->c, 0);
    says(at, "HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n");
    says_bytes(at, (struct str){repeated('m', 60000), 60000});
    rig.p->rules.max_memory = worker_held(rig.w) * 15 / 14;
    struct end *fresh = client(GET("/b/"));
    refused(fresh, 503);
    says(old, GET("/b/"));
    assert_true(waits_for_origin());
    tear_down(NULL);
}

/* ---- what can be seen */

static void one_exchange(void *arg, const struct exchange_view *x)
{
    unsigned *n = arg;
    assert_true(x->state < XSTATES && x->age_ms < 1000000);
    n[x->state]++;
}

static void one_pool(void *arg, struct str pool, unsigned idle, unsigned users)
{
    unsigned *n = arg;
    assert_true(pool.n > 0);
    n[0]++;
    n[1] += idle;
    n[2] += users;
}

static void what_runs_can_be_seen(void **state)
{
    (void)state;
    struct end *o;
    unsigned states[XSTATES] = {0}, pools[3] = {0};
    for (enum place place = 0; place < PLACES; place++)
        client_in(place, &o);
    proxy_each(rig.p, one_exchange, states);
    static const unsigned expected[XSTATES] = {
        [X_HEAD] = 1, [X_DIAL] = 1, [X_WAIT] = 2, [X_BODY] = 2, [X_TUNNEL] = 1};
    assert_memory_equal(states, expected, sizeof states);
    origin_each(proxy_origins(rig.p), one_pool, pools);
    assert_int_equal(pools[0], 1);
    assert_int_equal(pools[2], PLACES - 1);
    assert_int_equal(proxy_clients(rig.p), PLACES);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_goes_there_and_its_answer_back),
        TEST(bodies_pass_in_both_directions_in_the_framing_they_came_in),
        TEST(an_answer_that_ends_with_its_connection_is_chunked_for_the_client),
        TEST(an_old_client_gets_no_chunks_and_no_1xx),
        TEST(answers_without_a_body_have_none),
        TEST(heads_before_the_final_one_pass),
        TEST(pages_and_refusals_are_answered_without_an_origin),
        TEST(a_slow_client_holds_up_its_origin_at_one_window),
        TEST(a_slow_origin_holds_up_its_client_at_one_window),
        TEST(pipelined_requests_are_answered_in_order_each_by_its_own_pool),
        cmocka_unit_test(a_pooled_connection_that_dies_is_tried_again_where_that_is_safe),
        TEST(a_new_connection_that_dies_is_not_tried_again),
        TEST(a_request_is_tried_again_once_only),
        TEST(the_second_try_never_takes_another_pooled_connection),
        TEST(what_no_byte_of_has_left_may_be_sent_whatever_it_is),
        TEST(what_an_origin_says_before_it_was_asked_is_not_our_answer),
        cmocka_unit_test(a_body_over_the_limit_is_not_sent_again),
        TEST(credit_is_given_once_though_the_body_goes_twice),
        TEST(a_second_try_that_cannot_connect_is_502),
        cmocka_unit_test(part_of_an_answer_forbids_the_second_try),
        TEST(an_early_answer_goes_down_and_the_rest_is_swallowed),
        TEST(an_early_head_leaves_both_bodies_running),
        TEST(our_own_early_answer_swallows_the_rest_too),
        TEST(what_waited_for_an_origin_in_vain_is_credited),
        TEST(an_origin_that_reads_no_more_is_given_up_after_its_answer),
        TEST(what_cannot_be_dialled_is_told),
        TEST(out_of_descriptors_makes_idle_connections_give_way),
        cmocka_unit_test(an_origin_that_falls_is_an_answer_of_ours_or_a_cut),
        TEST(an_answer_too_large_for_us_is_502),
        TEST(unasked_bytes_end_an_idle_connection),
        cmocka_unit_test(a_client_that_breaks_off_takes_its_origin_along_from_every_state),
        cmocka_unit_test(a_client_that_ends_its_sending_has_left_until_the_answer_began),
        TEST(a_tunnel_carries_bytes_both_ways_and_ends_each_way_by_itself),
        TEST(the_last_bytes_of_a_tunnel_have_the_time_of_a_half_closed_one),
        cmocka_unit_test(a_tunnel_that_breaks_on_one_side_ends_on_the_other),
        TEST(bytes_behind_the_handshake_are_not_lost),
        TEST(an_upgrade_takes_a_connection_of_its_own_and_never_gives_it_back),
        TEST(a_tunnel_at_a_standstill_holds_half_a_window_each_way),
        TEST(no_connection_is_shared_between_pools_or_addresses),
        TEST(a_pool_that_is_over_ends_what_is_idle_and_what_is_busy),
        TEST(who_comes_by_that_name_in_the_same_turn_gets_a_pool_of_his_own),
        TEST(an_answer_of_ours_is_not_cut_when_the_pool_ends),
        TEST(what_a_place_that_was_left_is_answering_runs_on),
        TEST(nothing_is_sent_any_more_to_a_place_that_was_left),
        TEST(what_has_no_end_or_no_connection_yet_ends_with_a_move),
        TEST(a_place_that_was_left_has_so_much_time_and_no_more),
        TEST(what_runs_on_ends_with_the_pool_that_came_after),
        TEST(nothing_is_sent_again_to_a_place_that_was_left),
        TEST(a_client_may_take_longer_than_the_place_that_was_left),
        TEST(what_was_not_complete_is_never_kept),
        TEST(idle_connections_have_limits_and_an_end),
        TEST(an_idle_connection_that_ends_is_forgotten),
        TEST(a_head_that_does_not_come_is_408),
        TEST(a_head_that_comes_too_late_is_not_answered_twice),
        TEST(a_dial_has_its_own_deadline),
        TEST(a_silent_origin_is_504),
        cmocka_unit_test(an_upload_that_stands_still_is_408_or_504_by_whose_fault_it_is),
        TEST(the_wait_for_an_answer_begins_when_the_body_has_left),
        cmocka_unit_test(a_body_that_stands_still_is_cut),
        TEST(tunnels_have_a_deadline_for_silence_and_one_for_half_of_them),
        cmocka_unit_test(a_handshake_has_45_seconds),
        TEST(an_answer_of_ours_that_nobody_reads_is_given_up),
        TEST(an_idle_client_is_closed),
        TEST(we_ask_for_the_body_after_a_second),
        TEST(the_origin_may_ask_for_it_or_refuse),
        TEST(a_refused_request_is_not_asked_for_its_body),
        TEST(a_body_that_comes_unasked_needs_no_100),
        TEST(a_broken_request_is_answered_and_closed),
        TEST(a_body_that_breaks_is_400_until_the_answer_began_then_a_cut),
        TEST(draining_finishes_what_runs),
        TEST(idle_clients_go_two_seconds_after_the_drain_began),
        TEST(the_drain_deadline_cuts_every_state),
        TEST(connections_over_the_limit_are_told_so_and_closed),
        cmocka_unit_test(over_the_memory_cap_new_requests_are_refused_and_what_runs_goes_on),
        cmocka_unit_test(near_the_memory_cap_only_new_clients_are_refused),
        TEST(what_runs_can_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
