/* connect_test.c — CONNECT through the proxy, from h1, h2 and bytes: the connection to the origin,
 * the look at what the client says first, connections that the gate takes, and the second judgement
 * of what runs.  As exchange_test.c, over harness/rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/peer.h"

enum { ENDS = 32, WINDOW = 65536 };

struct end {
    struct conn *c;
    size_t at; /* read off its connection so far */
};

static struct rig rig;
static struct end ends[ENDS];
static unsigned nends;

static int set_up(void **state)
{
    struct proxy_rules rules = rig_rules;
    (void)state;
    rules.client.max_streams = 100;
    rules.client.max_resets = 200;
    rules.client.max_control = 1000;
    rig_init(&rig, &rules);
    nends = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_done(&rig);
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

static struct end *client(const char *text)
{
    struct end *e = end_of(rig_client(&rig));
    says(e, text);
    return e;
}

/* A connection that somebody has looked at, and left its first bytes untaken. */
static struct end *handed(const char *text)
{
    struct end *e = end_of(rig_conn(&rig));
    fake_feed(e->c, text, strlen(text));
    proxy_take(rig.p, e->c, PROXY_RAW, STR("h:443"));
    settle();
    return e;
}

static struct end *origin(void)
{
    assert_true(fake_dials(rig.w) > 0);
    struct end *e = end_of(rig_origin(&rig));
    rig_check(&rig);
    return e;
}

static void reads(struct end *e, const char *text)
{
    struct str rest = str_skip(fake_written(e->c), e->at), want = str_of(text);
    if (!str_eq(rest, want))
        print_error("<%.*s> is not <%.*s>\n", STR_ARG(rest), STR_ARG(want));
    assert_true(str_eq(rest, want));
    e->at += rest.n;
}

/* Whatever it is, it begins with this and has that in it. */
static void reads_refusal(struct end *e, const char *start, const char *part)
{
    struct str rest = str_skip(fake_written(e->c), e->at);
    assert_true(str_starts(rest, str_of(start)));
    assert_non_null(memmem(rest.p, rest.n, part, strlen(part)));
    e->at += rest.n;
}

static bool is_up(const struct end *e)
{
    return fake_end(e->c) == FAKE_UP;
}

static bool is_closed(const struct end *e)
{
    return fake_end(e->c) == FAKE_CLOSED || fake_end(e->c) == FAKE_RESET;
}

/* So many lines in all, and the last one has both of these. */
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

static void was_judged(const char *text)
{
    assert_string_equal(trace_text(&rig.judged), text);
}

static void nothing_is_owed(void)
{
    const struct meter *m = meter();
    assert_int_equal(m->received[0], m->credited[0]);
    assert_int_equal(m->given[0], m->sent[0]);
}

#define CONNECT(host) "CONNECT " host ":443 HTTP/1.1\r\nHost: " host ":443\r\n\r\n"
#define GRANTED "HTTP/1.1 200 OK\r\n\r\n"

/* A granted tunnel. */
static void tunnel(const char *text, struct end **ret_client, struct end **ret_origin)
{
    *ret_client = client(text);
    *ret_origin = origin();
    reads(*ret_client, GRANTED);
    assert_true(proxy_count(rig.p, X_TUNNEL) > 0);
}

/* ---- plain tunnels */

static void a_connect_is_granted_when_its_connection_is_up(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("h"));
    reads(c, "");
    assert_int_equal(proxy_count(rig.p, X_DIAL), 1);
    struct end *o = origin();
    reads(c, GRANTED);
    reads(o, "");
    says(c, "to there");
    reads(o, "to there");
    says(o, "and back");
    reads(c, "and back");
    was_judged("judged forward\ndialled ok tunnel\n");
    leaves(c);
    assert_int_equal(fake_end(o->c), FAKE_FIN);
    says(o, "!");
    reads(c, "!");
    leaves(o);
    assert_true(is_closed(c) && is_closed(o));
    assert_int_equal(fake_end(o->c), FAKE_CLOSED);
    logged(1, "\"status\":200", "\"why\":\"ok\"");
    logged(1, "\"bytes_in\":8", "\"bytes_out\":9");
    assert_int_equal(origin_open(proxy_origins(rig.p)), 0);
    nothing_is_owed();
}

static void either_side_may_end_first(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("h"), &c, &o);
    leaves(o);
    assert_int_equal(fake_end(c->c), FAKE_FIN);
    says(c, "still");
    reads(o, "still");
    leaves(c);
    assert_true(is_closed(c) && is_closed(o));
    nothing_is_owed();
    tunnel(CONNECT("h"), &c, &o);
    leaves(c);
    wait_ms(14000);
    assert_true(is_up(c));
    wait_ms(1500); /* half of it may stay 15 s */
    assert_true(is_closed(c) && is_closed(o));
    logged(2, "\"why\":\"deadline\"", "\"state\":\"tunnel\"");
}

static void a_tunnel_that_breaks_on_one_side_ends_on_the_other(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("h"), &c, &o);
    breaks(c);
    assert_true(is_closed(o));
    logged(1, "\"why\":\"client-gone\"", "");
    tunnel(CONNECT("h"), &c, &o);
    breaks(o);
    assert_true(is_closed(c));
    logged(2, "\"why\":\"origin-gone\"", "");
    tunnel(CONNECT("h"), &c, &o);
    wait_ms(39000);
    assert_true(is_up(o));
    wait_ms(1500);
    assert_true(is_closed(c) && is_closed(o));
}

static void a_refused_connect_is_an_answer(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("refuse"));
    reads_refusal(c, "HTTP/1.1 403 ", "refused");
    assert_int_equal(fake_dials(rig.w), 0);
    logged(1, "\"status\":403", "\"why\":\"denied\"");
}

/* What came behind the request is no request. */
static void a_connect_that_cannot_connect_is_an_answer_and_the_end(void **state)
{
    (void)state;
    struct {
        enum why why;
        const char *start;
    } cases[] = {{WHY_DIAL, "HTTP/1.1 502 "}, {WHY_DEADLINE, "HTTP/1.1 504 "}};
    for (unsigned i = 0; i < 2; i++) {
        struct end *c = client(CONNECT("h") "GET /local HTTP/1.1\r\nhost: x\r\n\r\n");
        fake_dial_fail(fake_dial_first(rig.w), cases[i].why, 111);
        settle();
        reads_refusal(c, cases[i].start, "connection: close\r\n");
        says(c, "GET /local HTTP/1.1\r\nhost: x\r\n\r\n");
        reads(c, "");
        logged(i + 1, why_text(cases[i].why), "\"state\":\"closing\"");
        leaves(c);
        assert_true(is_closed(c));
    }
    struct end *c = client(CONNECT("denied"));
    assert_null(rig_origin(&rig));
    settle();
    reads_refusal(c, "HTTP/1.1 502 ", "denied in dial");
    nothing_is_owed();
}

static void a_connect_with_a_body_is_refused(void **state)
{
    (void)state;
    struct end *c = client("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nContent-Length: 3\r\n\r\nabc");
    reads_refusal(c, "HTTP/1.1 400 ", "CONNECT with a body");
    c = client("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nTransfer-Encoding: chunked\r\n\r\n");
    reads_refusal(c, "HTTP/1.1 400 ", "CONNECT with a body");
    assert_int_equal(fake_dials(rig.w), 0);
    c = client("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nContent-Length: 0\r\n\r\n");
    origin();
    reads(c, GRANTED);
}

static void bytes_before_the_grant_are_the_tunnels(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("h") "early");
    says(c, " birds");
    reads(c, "");
    struct end *o = origin();
    settle();
    reads(c, GRANTED);
    reads(o, "early birds");
    leaves(c);
    leaves(o);
    nothing_is_owed();
}

static void an_upgrade_asked_for_with_it_is_none(void **state)
{
    (void)state;
    struct end *c = client("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nConnection: upgrade\r\n"
                           "Upgrade: connect\r\n\r\n");
    struct end *o = origin();
    reads(c, GRANTED);
    reads(o, "");
}

static void an_origin_that_speaks_first_is_heard(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("h"), &c, &o);
    says(o, "220 ready");
    reads(c, "220 ready");
}

static void each_tunnel_has_a_connection_of_its_own(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("h"), &c, &o);
    struct end *c2 = client("GET /h/x HTTP/1.1\r\nhost: x\r\n\r\n"), *o2 = origin();
    says(o2, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_int_equal(origin_idle(proxy_origins(rig.p)), 1);
    struct end *c3, *o3;
    tunnel(CONNECT("h"), &c3, &o3);
    says(c3, "x");
    reads(o3, "x");
    reads(o, "");
    assert_int_equal(origin_idle(proxy_origins(rig.p)), 1);
    assert_true(is_up(c2));
}

static void a_connection_that_dies_is_not_tried_again(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("h"), &c, &o);
    says(c, "x");
    breaks(o);
    assert_int_equal(fake_dials(rig.w), 0);
    assert_true(is_closed(c));
}

static void a_tunnel_at_a_standstill_holds_a_window_at_most(void **state)
{
    (void)state;
    struct end *c, *o;
    static char block[300000];
    tunnel(CONNECT("h"), &c, &o);
    fake_room(o->c, 0);
    says_bytes(c, (struct str){block, sizeof block});
    assert_true(meter()->most_held[0] <= WINDOW / 2);
    fake_room(o->c, SIZE_MAX);
    settle();
    assert_int_equal(fake_written(o->c).n, sizeof block);
    fake_room(c->c, 0);
    says_bytes(o, (struct str){block, sizeof block});
    assert_true(meter()->most_held[1] <= WINDOW);
    fake_room(c->c, SIZE_MAX);
    settle();
    assert_int_equal(fake_written(c->c).n, sizeof block + strlen(GRANTED));
    nothing_is_owed();
}

/* ---- bytes from their first one on */

static void a_connection_that_was_looked_at_is_a_connect_to_the_gate(void **state)
{
    (void)state;
    struct end *c = handed("hello"), *o = origin();
    reads(o, "hello");
    says(o, "hi");
    reads(c, "hi"); /* and no head */
    leaves(c);
    leaves(o);
    assert_true(is_closed(c));
    logged(1, "\"protocol\":\"raw\"", "\"status\":200");
    logged(1, "\"path\":\"h:443\"", "\"bytes_in\":5");
    assert_int_equal(proxy_clients(rig.p), 0);
    nothing_is_owed();
}

static void one_that_says_nothing_is_connected_too(void **state)
{
    (void)state;
    struct end *c = handed(""), *o = origin();
    says(o, "220 ready");
    reads(c, "220 ready");
}

static void bytes_and_their_end_wait_for_the_connection(void **state)
{
    (void)state;
    struct end *c = handed("a");
    says(c, "b");
    leaves(c);
    struct end *o = origin();
    settle();
    reads(o, "ab");
    assert_int_equal(fake_end(o->c), FAKE_FIN);
    says(o, "answer");
    leaves(o);
    reads(c, "answer");
    assert_true(is_closed(c));
    nothing_is_owed();
}

static void to_bytes_no_answer_can_be_given_so_they_are_cut(void **state)
{
    (void)state;
    struct end *c = handed("hello");
    fake_dial_fail(fake_dial_first(rig.w), WHY_DIAL, 111);
    settle();
    reads(c, "");
    assert_true(is_closed(c));
    logged(1, "\"status\":502", "\"why\":\"dial\"");
    c = end_of(rig_conn(&rig));
    proxy_take(rig.p, c->c, PROXY_RAW, STR("refuse:443"));
    settle();
    reads(c, "");
    assert_true(is_closed(c));
    logged(2, "\"status\":403", "\"why\":\"denied\"");
    c = handed("gone");
    breaks(c);
    assert_int_equal(fake_dials(rig.w), 0);
}

/* ---- looking */

static void nothing_leaves_before_the_gate_has_seen_enough(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    for (const char *at = "pass"; *at; at++) {
        says_bytes(c, (struct str){at, 1});
        reads(o, "");
    }
    assert_int_equal(rig.nlooks, 4);
    says(o, "meanwhile");
    reads(c, "meanwhile");
    says(c, " and on");
    reads(o, "pass and on");
    says(c, " no more looks");
    reads(o, " no more looks");
    assert_int_equal(rig.nlooks, 5);
    leaves(c);
    leaves(o);
    assert_true(is_closed(c) && is_closed(o));
    nothing_is_owed();
}

static void early_bytes_are_looked_at_too(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("look") "pass now"), *o = origin();
    settle();
    reads(o, "pass now");
    c = client(CONNECT("look") "other thing");
    o = origin();
    settle();
    reads(o, "");
    assert_true(is_closed(o));
    reads(c, GRANTED);
}

static void what_is_refused_has_not_left(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "wrong thing");
    reads(o, "");
    assert_true(is_closed(o) && is_closed(c));
    logged(1, "\"why\":\"identity\"", "\"status\":200");
}

static void silence_is_told_and_what_comes_later_passes(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(o, "220 ready");
    reads(c, "220 ready");
    wait_ms(1800);
    assert_int_equal(rig.nlooks, 0);
    wait_ms(400);
    assert_int_equal(rig.nlooks, 1);
    says(c, "anything");
    reads(o, "anything");
    assert_int_equal(rig.nlooks, 1);
}

static void who_does_not_finish_is_refused(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    wait_ms(1000);
    says(c, "pa");
    wait_ms(1800);
    assert_true(is_up(o));
    wait_ms(400);
    reads(o, "");
    assert_true(is_closed(o) && is_closed(c));
    logged(1, "\"why\":\"identity\"", "");
}

/* A byte now and then is no silence; but a beginning has as long as a head. */
static void who_begins_for_ever_is_cut(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "more ");
    for (int i = 0; i < 9; i++) {
        assert_true(is_up(o));
        wait_ms(1000);
        says(c, "x");
    }
    wait_ms(3000);
    reads(o, "");
    assert_true(is_closed(o) && is_closed(c));
    logged(1, "\"why\":\"deadline\"", "");
}

static void a_beginning_that_takes_too_long_is_late_though_bytes_come(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "slow ");
    for (int i = 0; i < 9; i++) {
        wait_ms(1000);
        says(c, "x");
    }
    reads(o, "");
    wait_ms(1500);
    says(c, "x");
    reads(o, "slow xxxxxxxxxx");
}

static void who_says_more_than_a_window_is_cut(void **state)
{
    (void)state;
    struct end *c, *o;
    static char block[WINDOW];
    tunnel(CONNECT("look"), &c, &o);
    says(c, "more ");
    says_bytes(c, (struct str){block, sizeof block});
    reads(o, "");
    assert_true(is_closed(o) && is_closed(c));
    logged(1, "\"why\":\"limit\"", "");
}

static void who_ends_before_it_is_known_what_it_is_is_cut(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "more ");
    leaves(c);
    reads(o, "");
    assert_true(is_closed(o) && is_closed(c));
    logged(1, "\"why\":\"identity\"", "");
    tunnel(CONNECT("look"), &c, &o);
    leaves(c); /* nothing at all: silence, which passes */
    assert_int_equal(fake_end(o->c), FAKE_FIN);
}

static void an_origin_lost_while_we_look_ends_it(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "pa");
    breaks(o);
    assert_true(is_closed(c));
    logged(1, "\"why\":\"origin-gone\"", "");
    tunnel(CONNECT("look"), &c, &o);
    fake_room(c->c, 0);
    says(o, "last words");
    leaves(o);
    breaks(o);
    says(c, "pass on"); /* which is how it shows */
    fake_room(c->c, SIZE_MAX);
    settle();
    reads(c, "last words");
    wait_ms(10000);
    assert_true(is_closed(c));
    assert_int_equal(rig_running(&rig), 0);
    nothing_is_owed();
}

static void looking_costs_no_memory_that_stays(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "more ");
    size_t before = worker_held(rig.w);
    for (int i = 0; i < 500; i++)
        says(c, "x");
    assert_in_range(worker_held(rig.w), before, before + 2 * CHUNK_BYTES);
    says(c, "x");
    assert_int_equal(rig.nlooks, 502);
}

static void much_passes_after_the_look(void **state)
{
    (void)state;
    struct end *c, *o;
    static char block[900000];
    tunnel(CONNECT("look"), &c, &o);
    says(c, "pass ");
    reads(o, "pass ");
    says_bytes(c, (struct str){block, sizeof block});
    says_bytes(o, (struct str){block, sizeof block});
    assert_int_equal(fake_written(o->c).n, 5 + sizeof block);
    assert_int_equal(fake_written(c->c).n, strlen(GRANTED) + sizeof block);
    nothing_is_owed();
}

/* ---- over HTTP/2 */

static struct call *asks_over_h2(struct peer *p, const char *authority)
{
    struct http_head head = {.method = STR("CONNECT"),
                             .authority = str_of(authority),
                             .path = STR(""),
                             .protocol = STR(""),
                             .length = -1};
    peer_client(p, &rig, H2);
    peer_pump(&p, 1);
    struct call *c = peer_ask_head(p, &head, false);
    assert_non_null(c);
    peer_pump(&p, 1);
    return c;
}

static void over_http2_a_connect_is_a_stream(void **state)
{
    (void)state;
    struct peer p, *all = &p;
    struct call *c = asks_over_h2(&p, "h:443");
    struct end *o = origin();
    peer_pump(&all, 1);
    assert_true(call_has(c, "200 protocol=connect\n"));
    tap_data(&c->tap, STR("to there"));
    peer_pump(&all, 1);
    reads(o, "to there");
    says(o, "and back");
    leaves(o);
    peer_pump(&all, 1);
    assert_true(call_has(c, "data and back\nend\n"));
    tap_end(&c->tap, NULL);
    peer_pump(&all, 1);
    settle();
    assert_true(is_closed(o));
    logged(1, "\"protocol\":\"HTTP/2.0\"", "\"why\":\"ok\"");
    peer_done(&p);
}

/* A connection with other streams on it cannot be given away. */
static void over_http2_it_is_looked_at_and_never_taken(void **state)
{
    (void)state;
    static const char *const words[] = {"pass ", "take ", "wrong "};
    for (int i = 0; i < 3; i++) {
        struct peer p, *all = &p;
        struct call *c = asks_over_h2(&p, "look:443");
        struct end *o = origin();
        peer_pump(&all, 1);
        tap_data(&c->tap, str_of(words[i]));
        peer_pump(&all, 1);
        settle();
        reads(o, i == 0 ? words[i] : "");
        assert_int_equal(is_up(o), i == 0);
        if (i > 0) {
            logged((unsigned)i, "\"why\":\"identity\"", "");
            assert_true(call_has(c, "closed"));
        } else {
            breaks(o);
            rig.nlines--;
        }
        peer_pump(&all, 1);
        peer_done(&p);
    }
}

static void over_http2_a_failure_is_an_answer(void **state)
{
    (void)state;
    struct peer p, *all = &p;
    struct call *c = asks_over_h2(&p, "h:443");
    fake_dial_fail(fake_dial_first(rig.w), WHY_DIAL, 111);
    settle();
    peer_pump(&all, 1);
    assert_true(call_has(c, "502 "));
    assert_non_null(peer_ask(&p, "GET", "/local", "", true)); /* the connection lives */
    peer_pump(&all, 1);
    peer_done(&p);
}

/* ---- taking */

/* What was looked at ("take ") is the method of the first request. */
static void requests_are_served(struct end *c)
{
    says(c, "/a/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
            "GET /local HTTP/1.1\r\nhost: x\r\n\r\n");
    struct end *o = origin();
    struct str seen = fake_written(o->c);
    assert_true(str_starts(seen, STR("take /a/1 HTTP/1.1\r\nhost: h:80\r\n")));
    assert_memory_equal(seen.p + seen.n - 6, "\r\n\r\nhi", 6);
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    struct str rest = str_skip(fake_written(c->c), c->at);
    assert_true(str_starts(rest, STR("HTTP/1.1 200 OK\r\n")));
    assert_non_null(memmem(rest.p, rest.n, "\r\n\r\nokHTTP/1.1 200 OK\r\n", 23));
    assert_memory_equal(rest.p + rest.n - 4, "here", 4);
    c->at += rest.n;
}

static void a_taken_connection_is_served_as_http(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "ta");
    says(c, "ke ");
    reads(o, "");
    assert_true(is_closed(o) && is_up(c));
    logged(1, "\"path\":\"look:443\"", "\"why\":\"ok\"");
    logged(1, "\"bytes_in\":0", "\"status\":200");
    assert_int_equal(proxy_clients(rig.p), 1);
    requests_are_served(c);
    was_judged("judged forward\ndialled ok tunnel\ntaken look\njudged forward\ndialled ok\n"
               "judged local\n");
    leaves(c);
    assert_true(is_closed(c));
    assert_int_equal(proxy_clients(rig.p), 0);
    nothing_is_owed();
}

static void bytes_that_came_with_the_connect_are_taken_along(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("look") "take /local HTTP/1.1\r\nhost: x\r\n\r\n");
    struct end *o = origin();
    settle();
    assert_true(is_closed(o));
    struct str rest = fake_written(c->c);
    assert_true(str_starts(rest, STR(GRANTED "HTTP/1.1 200 OK\r\n")));
    assert_memory_equal(rest.p + rest.n - 4, "here", 4);
}

static void a_connection_is_taken_when_the_grant_has_left(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("look"));
    fake_room(c->c, 10);
    struct end *o = origin();
    says(c, "take ");
    says(c, "/local HTTP/1.1\r\nhost: x\r\n\r\n");
    leaves(c);
    reads(o, "");
    assert_true(is_closed(o));
    assert_int_equal(rig.nlines, 0);
    assert_int_equal(proxy_count(rig.p, X_TUNNEL), 1);
    fake_room(c->c, SIZE_MAX);
    settle();
    struct str rest = fake_written(c->c);
    assert_true(str_starts(rest, STR(GRANTED "HTTP/1.1 200 OK\r\n")));
    assert_true(is_closed(c)); /* the end of what it said is heard too */
    assert_int_equal(rig_running(&rig), 0);
}

static void who_is_lost_before_it_is_taken_is_not_taken(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct end *c = client(CONNECT("look"));
        fake_room(c->c, 10);
        origin();
        says(c, "take ");
        if (i == 0)
            breaks(c);
        else if (i == 1)
            wait_ms(41000);
        else
            proxy_purge(rig.p, STR("look")); /* its pool is none of its any more */
        wait_ms(45000);
        assert_null(strstr(trace_text(&rig.judged), "taken"));
        assert_int_equal(rig_running(&rig), 0);
    }
}

static void a_tunnel_whose_origin_has_ended_is_not_taken(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    leaves(o);
    says(c, "take ");
    assert_true(is_closed(c));
    logged(1, "\"why\":\"identity\"", "");
}

static void a_taken_connection_may_be_bytes_again(void **state)
{
    (void)state;
    struct end *c, *o;
    rig.take_as = PROXY_RAW;
    tunnel(CONNECT("look"), &c, &o);
    says(c, "take it");
    struct end *o2 = origin();
    reads(o2, "take it");
    says(o2, "well");
    reads(c, "well");
    reads(o, "");
}

static void bytes_can_be_looked_at_and_taken(void **state)
{
    (void)state;
    struct end *c = end_of(rig_conn(&rig));
    proxy_take(rig.p, c->c, PROXY_RAW, STR("look:443"));
    settle();
    struct end *o = origin();
    says(c, "take ");
    assert_true(is_closed(o));
    requests_are_served(c);
    nothing_is_owed();
}

static void a_taken_connection_ends_with_the_drain(void **state)
{
    (void)state;
    struct end *c, *o;
    tunnel(CONNECT("look"), &c, &o);
    proxy_drain(rig.p, NULL, NULL);
    settle();
    says(c, "take /local HTTP/1.1\r\nhost: x\r\n\r\n");
    struct str rest = fake_written(c->c);
    assert_non_null(memmem(rest.p, rest.n, "here", 4)); /* served once, then closed */
    wait_ms(2000);
    assert_true(is_closed(c));
}

/* ---- judged once more */

static void recheck(const char *banned)
{
    rig.banned = banned;
    proxy_recheck(rig.p);
    settle();
}

/* Whoever takes it judges it as what it is by then; as what it was passed on for it would end. */
static void what_is_about_to_be_taken_is_not_cut(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("look"));
    fake_room(c->c, 10);
    origin();
    says(c, "take ");
    recheck("look");
    fake_room(c->c, SIZE_MAX);
    says(c, "/local HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_non_null(strstr(trace_text(&rig.judged), "taken look\n"));
    struct str rest = fake_written(c->c);
    assert_true(str_starts(rest, STR(GRANTED "HTTP/1.1 200 OK\r\n")));
}

static void what_lost_its_permission_is_cut_in_every_state(void **state)
{
    (void)state;
    struct end *t, *to, *l, *lo, *b, *bo, *w, *d, *raw, *other, *oo;
    tunnel(CONNECT("h"), &t, &to);
    says(t, "x");
    b = client("GET /p/big HTTP/1.1\r\nhost: x\r\n\r\n");
    bo = origin();
    says(bo, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
    w = client("GET /p/wait HTTP/1.1\r\nhost: x\r\n\r\n");
    origin();
    other = client(CONNECT("free"));
    oo = origin();
    reads(other, GRANTED);
    l = client(CONNECT("look"));
    lo = origin();
    reads(l, GRANTED);
    d = client(CONNECT("h"));
    raw = handed("hello");
    assert_int_equal(rig_running(&rig), 7);
    recheck("none of them");
    assert_int_equal(rig_running(&rig), 7);
    assert_int_equal(rig.nrechecks, 7 + 5); /* five when they came up */
    recheck("h");
    assert_true(is_closed(t) && is_closed(to));
    assert_true(is_closed(b) && is_closed(bo) && is_closed(raw));
    reads_refusal(w, "HTTP/1.1 502 ", "revoked in wait");
    reads_refusal(d, "HTTP/1.1 502 ", "revoked in dial");
    assert_int_equal(fake_dials(rig.w), 0);
    assert_int_equal(rig_running(&rig), 2);
    says(other, "lives");
    reads(oo, "lives");
    recheck("look");
    assert_true(is_closed(l) && is_closed(lo));
    assert_int_equal(rig_running(&rig), 1);
}

static void an_answer_of_ours_is_not_cut(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("h"));
    fake_room(c->c, 5);
    fake_dial_fail(fake_dial_first(rig.w), WHY_DIAL, 111);
    settle();
    recheck("h");
    fake_room(c->c, SIZE_MAX);
    settle();
    reads_refusal(c, "HTTP/1.1 502 ", "dial in dial");
    recheck("h");
}

static void who_has_not_asked_yet_is_not_judged(void **state)
{
    (void)state;
    client("GET /a");
    recheck("");
    assert_int_equal(rig.nrechecks, 0);
    assert_int_equal(rig_running(&rig), 1);
}

static void what_is_kept_for_later_goes(void **state)
{
    (void)state;
    struct end *c = client("GET /a/1 HTTP/1.1\r\nhost: x\r\n\r\n"), *o = origin();
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_int_equal(origin_idle(proxy_origins(rig.p)), 1);
    struct end *busy = client("GET /b/1 HTTP/1.1\r\nhost: x\r\n\r\n"), *bo = origin();
    recheck(NULL);
    assert_true(is_closed(o) && is_up(c) && is_up(bo));
    says(bo, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    reads_refusal(busy, "HTTP/1.1 200 ", "x-gate");
    assert_true(is_closed(bo)); /* its address was judged under the old one */
    assert_int_equal(origin_open(proxy_origins(rig.p)), 0);
}

static void a_permission_that_is_lost_while_we_dial_is_seen_when_it_is_up(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("h"));
    rig.banned = "h"; /* and nobody has rechecked */
    struct end *o = origin();
    reads_refusal(c, "HTTP/1.1 502 ", "revoked in dial");
    reads(o, "");
    assert_true(is_closed(o));
    c = client("POST /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi");
    o = origin();
    reads_refusal(c, "HTTP/1.1 502 ", "revoked in dial");
    reads(o, "");
    nothing_is_owed();
}

/* ---- anything in any order: the meter and the rig look on */

enum { PLAYERS = 12, ACTS = 300, PLAYS = 400 };

static unsigned dice(uint64_t *seed, unsigned n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33) % n;
}

struct player {
    struct conn *c;
    bool left;
};

static void speak(struct player *p, uint64_t *seed)
{
    static const char *const words[] = {"pass ",
                                        "take ",
                                        "more ",
                                        "wr",
                                        "x",
                                        "GET /a/1 HTTP/1.1\r\n",
                                        "host: x\r\n\r\n",
                                        "CONNECT look:1 HTTP/1.1\r\nhost: x",
                                        "\r\n\r\n",
                                        "/local HTTP/1.1\r\nhost: x\r\n\r\n"};
    static char block[70000];
    unsigned i = dice(seed, sizeof words / sizeof *words + 1);
    if (p->left)
        return;
    if (i < sizeof words / sizeof *words)
        fake_feed(p->c, words[i], strlen(words[i]));
    else
        fake_feed(p->c, block, dice(seed, sizeof block));
}

static struct conn *enters(uint64_t *seed)
{
    static const char *const first[] = {CONNECT("h"),
                                        CONNECT("look"),
                                        CONNECT("look") "take ",
                                        CONNECT("look") "pas",
                                        CONNECT("denied"),
                                        CONNECT("refuse"),
                                        "GET /a/x HTTP/1.1\r\nhost: x\r\n\r\n"};
    struct conn *c = rig_conn(&rig);
    unsigned i = dice(seed, 9);
    if (i < 7)
        fake_feed(c, first[i], strlen(first[i]));
    if (i < 7)
        proxy_accept(rig.p, c);
    else
        proxy_take(rig.p, c, PROXY_RAW, i == 7 ? STR("h:1") : STR("look:1"));
    return c;
}

static void act(struct player *players, unsigned *n, uint64_t *seed)
{
    struct player *p = *n > 0 ? &players[dice(seed, *n)] : NULL;
    unsigned what = p ? dice(seed, 16) : 0;
    struct dial *d = fake_dial_first(rig.w);
    if (what == 0 && *n < PLAYERS)
        players[(*n)++] = (struct player){.c = enters(seed)};
    else if (what == 1 && d && *n < PLAYERS) {
        struct conn *c = rig_origin(&rig);
        if (c)
            players[(*n)++] = (struct player){.c = c};
    } else if (what == 2 && d)
        fake_dial_fail(d, WHY_DIAL, 111);
    else if (what == 3 && p && !p->left && dice(seed, 3) == 0) {
        p->left = true;
        dice(seed, 2) ? fake_feed_eof(p->c) : fake_feed_error(p->c);
    } else if (what == 4 && p)
        fake_room(p->c, dice(seed, 2) ? SIZE_MAX : dice(seed, 100));
    else if (what == 5) {
        rig.banned = dice(seed, 3) ? NULL : dice(seed, 2) ? "look" : "h";
        proxy_recheck(rig.p);
        rig.banned = dice(seed, 4) ? NULL : rig.banned;
    } else if (what == 6)
        wait_ms(dice(seed, 4000));
    else if (what == 7 && dice(seed, 30) == 0)
        proxy_purge(rig.p, dice(seed, 2) ? STR("look") : STR("h"));
    else if (p)
        speak(p, seed);
    if (dice(seed, 4))
        settle();
}

static void whatever_happens_nothing_is_left(void **state)
{
    unsigned taken = 0;
    for (uint64_t i = 0; i < PLAYS; i++) {
        struct player players[PLAYERS];
        uint64_t seed = i;
        unsigned n = 0;
        set_up(state);
        rig.take_as = i % 3 == 0 ? PROXY_RAW : PROXY_HTTP;
        for (int k = 0; k < ACTS; k++)
            act(players, &n, &seed);
        settle();
        taken += strstr(trace_text(&rig.judged), "taken") != NULL;
        tear_down(state);
    }
    assert_true(taken > PLAYS / 10);
}

/* ---- late: looked at before anything is dialled */

static void a_late_one_is_granted_and_dialled_when_it_has_spoken(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("late"));
    reads(c, GRANTED);
    assert_int_equal(fake_dials(rig.w), 0);
    assert_int_equal(proxy_count(rig.p, X_TUNNEL), 1);
    says(c, "pass o");
    assert_int_equal(fake_dials(rig.w), 1);
    assert_int_equal(proxy_count(rig.p, X_DIAL), 1);
    says(c, "n it");
    struct end *o = origin();
    reads(o, "pass on it");
    assert_int_equal(proxy_count(rig.p, X_TUNNEL), 1);
    says(o, "goes");
    reads(c, "goes");
    says(c, "!");
    reads(o, "!");
    was_judged("judged forward\ndialled ok tunnel\n");
    leaves(c);
    leaves(o);
    assert_true(is_closed(c) && is_closed(o));
    logged(1, "\"status\":200", "\"why\":\"ok\"");
    nothing_is_owed();
}

static void a_late_one_that_keeps_silent_is_dialled_then(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("late"));
    wait_ms(1500);
    assert_int_equal(fake_dials(rig.w), 0);
    wait_ms(1000);
    struct end *o = origin();
    says(o, "220 ready");
    reads(c, GRANTED "220 ready");
}

static void a_late_one_that_is_refused_was_never_dialled(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("late"));
    says(c, "wrong");
    assert_int_equal(fake_dials(rig.w), 0);
    assert_true(is_closed(c));
    logged(1, "\"why\":\"identity\"", "\"status\":200");
    was_judged("judged forward\n");
}

static void a_late_one_is_taken_without_an_origin(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("late"));
    reads(c, GRANTED);
    says(c, "take ");
    assert_int_equal(fake_dials(rig.w), 0);
    was_judged("judged forward\ntaken late\n");
    requests_are_served(c);
    leaves(c);
    assert_true(is_closed(c));
    nothing_is_owed();
}

static void a_late_one_that_cannot_be_dialled_is_cut(void **state)
{
    (void)state;
    static const enum why whys[] = {WHY_DIAL, WHY_TLS};
    for (unsigned i = 0; i < 2; i++) {
        struct end *c = client(CONNECT("late") "pass ");
        reads(c, GRANTED);
        fake_dial_fail(fake_dial_first(rig.w), whys[i], 0);
        settle();
        reads(c, "");
        wait_ms(4000);
        assert_true(is_closed(c));
        logged(i + 1, why_text(whys[i]), "\"status\":200");
    }
    struct end *c = client(CONNECT("late") "pass ");
    wait_ms(6000);
    assert_true(is_closed(c));
    logged(3, "\"why\":\"deadline\"", "");
}

static void a_late_one_whose_client_leaves_is_over_in_each_state(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("late"));
    breaks(c);
    assert_int_equal(rig_running(&rig), 0);
    c = client(CONNECT("late") "pass ");
    assert_int_equal(fake_dials(rig.w), 1);
    breaks(c);
    assert_int_equal(fake_dials(rig.w), 0);
    assert_int_equal(rig_running(&rig), 0);
    c = client(CONNECT("late") "pass ");
    leaves(c); /* has said all: that is what the origin gets */
    struct end *o = origin();
    reads(o, "pass ");
    assert_int_equal(fake_end(o->c), FAKE_FIN);
    says(o, "bye");
    leaves(o);
    reads(c, GRANTED "bye");
    assert_true(is_closed(c));
}

static void another_policy_ends_a_late_one_before_it_is_dialled(void **state)
{
    (void)state;
    struct end *c = client(CONNECT("late"));
    rig.banned = "late";
    proxy_recheck(rig.p);
    settle();
    assert_true(is_closed(c));
    logged(1, "\"why\":\"revoked\"", "");
    rig.banned = NULL;
    c = client(CONNECT("late") "pass ");
    rig.banned = "late";
    assert_non_null(rig_origin(&rig)); /* it came up, and is not wanted any more */
    settle();
    assert_true(is_closed(c));
}

static void a_relayed_connection_may_be_late_too(void **state)
{
    (void)state;
    struct end *c = end_of(rig_conn(&rig));
    fake_feed(c->c, "pass it", 7);
    proxy_take(rig.p, c->c, PROXY_RAW, STR("late:443"));
    settle();
    struct end *o = origin();
    reads(o, "pass it");
    reads(c, "");
    says(o, "x");
    reads(c, "x");
}

static void over_http2_a_late_one_is_the_same(void **state)
{
    (void)state;
    struct peer p, *all = &p;
    struct call *c = asks_over_h2(&p, "late:443");
    assert_true(call_has(c, "200 protocol=connect\n"));
    assert_int_equal(fake_dials(rig.w), 0);
    tap_data(&c->tap, STR("pass on"));
    peer_pump(&all, 1);
    struct end *o = origin();
    reads(o, "pass on");
    says(o, "and back");
    peer_pump(&all, 1);
    assert_true(call_has(c, "data and back\n"));
    tap_end(&c->tap, NULL);
    leaves(o);
    peer_pump(&all, 1);
    settle();
    assert_true(is_closed(o));
    peer_done(&p);
}

/* ---- draining some */

static bool is_named(void *user, const struct conn_info *info)
{
    const char **sni = user;
    return str_eq(info->sni, str_of(*sni));
}

static void the_clients_that_are_named_end_after_what_runs(void **state)
{
    (void)state;
    struct end *idle = end_of(rig_conn(&rig)), *busy = end_of(rig_conn(&rig)),
               *other = end_of(rig_conn(&rig));
    fake_tls(idle->c, NULL, "one.test");
    fake_tls(busy->c, NULL, "one.test");
    fake_tls(other->c, NULL, "two.test");
    proxy_take(rig.p, idle->c, PROXY_HTTP, STR(""));
    proxy_take(rig.p, busy->c, PROXY_HTTP, STR(""));
    proxy_take(rig.p, other->c, PROXY_HTTP, STR(""));
    says(busy, "GET /a/1 HTTP/1.1\r\nhost: x\r\n\r\n");
    const char *name = "one.test";
    proxy_drain_clients(rig.p, is_named, &name);
    settle();
    assert_true(is_up(busy) && is_up(other));
    struct end *o = origin();
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    struct str s = fake_written(busy->c);
    assert_non_null(memmem(s.p, s.n, "connection: close\r\n", 19));
    assert_true(is_closed(busy));
    wait_ms(4000); /* 2 s: a request may have been on its way */
    assert_true(is_closed(idle) && is_up(other));
    says(other, "GET /local HTTP/1.1\r\nhost: x\r\n\r\n");
    s = fake_written(other->c);
    assert_null(memmem(s.p, s.n, "connection: close\r\n", 19));
    assert_true(is_up(other));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_connect_is_granted_when_its_connection_is_up),
        TEST(either_side_may_end_first),
        TEST(a_tunnel_that_breaks_on_one_side_ends_on_the_other),
        TEST(a_refused_connect_is_an_answer),
        TEST(a_connect_that_cannot_connect_is_an_answer_and_the_end),
        TEST(a_connect_with_a_body_is_refused),
        TEST(bytes_before_the_grant_are_the_tunnels),
        TEST(an_upgrade_asked_for_with_it_is_none),
        TEST(an_origin_that_speaks_first_is_heard),
        TEST(each_tunnel_has_a_connection_of_its_own),
        TEST(a_connection_that_dies_is_not_tried_again),
        TEST(a_tunnel_at_a_standstill_holds_a_window_at_most),
        TEST(a_connection_that_was_looked_at_is_a_connect_to_the_gate),
        TEST(one_that_says_nothing_is_connected_too),
        TEST(bytes_and_their_end_wait_for_the_connection),
        TEST(to_bytes_no_answer_can_be_given_so_they_are_cut),
        TEST(nothing_leaves_before_the_gate_has_seen_enough),
        TEST(early_bytes_are_looked_at_too),
        TEST(what_is_refused_has_not_left),
        TEST(silence_is_told_and_what_comes_later_passes),
        TEST(who_does_not_finish_is_refused),
        TEST(who_begins_for_ever_is_cut),
        TEST(a_beginning_that_takes_too_long_is_late_though_bytes_come),
        TEST(who_says_more_than_a_window_is_cut),
        TEST(who_ends_before_it_is_known_what_it_is_is_cut),
        TEST(an_origin_lost_while_we_look_ends_it),
        TEST(looking_costs_no_memory_that_stays),
        TEST(much_passes_after_the_look),
        TEST(over_http2_a_connect_is_a_stream),
        TEST(over_http2_it_is_looked_at_and_never_taken),
        TEST(over_http2_a_failure_is_an_answer),
        TEST(a_taken_connection_is_served_as_http),
        TEST(bytes_that_came_with_the_connect_are_taken_along),
        TEST(a_connection_is_taken_when_the_grant_has_left),
        TEST(who_is_lost_before_it_is_taken_is_not_taken),
        TEST(a_tunnel_whose_origin_has_ended_is_not_taken),
        TEST(a_taken_connection_may_be_bytes_again),
        TEST(bytes_can_be_looked_at_and_taken),
        TEST(a_taken_connection_ends_with_the_drain),
        TEST(what_is_about_to_be_taken_is_not_cut),
        TEST(what_lost_its_permission_is_cut_in_every_state),
        TEST(an_answer_of_ours_is_not_cut),
        TEST(who_has_not_asked_yet_is_not_judged),
        TEST(what_is_kept_for_later_goes),
        TEST(a_permission_that_is_lost_while_we_dial_is_seen_when_it_is_up),
        TEST(a_late_one_is_granted_and_dialled_when_it_has_spoken),
        TEST(a_late_one_that_keeps_silent_is_dialled_then),
        TEST(a_late_one_that_is_refused_was_never_dialled),
        TEST(a_late_one_is_taken_without_an_origin),
        TEST(a_late_one_that_cannot_be_dialled_is_cut),
        TEST(a_late_one_whose_client_leaves_is_over_in_each_state),
        TEST(another_policy_ends_a_late_one_before_it_is_dialled),
        TEST(a_relayed_connection_may_be_late_too),
        TEST(over_http2_a_late_one_is_the_same),
        TEST(the_clients_that_are_named_end_after_what_runs),
        cmocka_unit_test(whatever_happens_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
