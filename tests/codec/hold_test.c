/* hold_test.c — requests whose body the gate wants to see before anything of it leaves: whole, too
 * long, replaced, refused, late, and sent again.  As exchange_test.c, over harness/rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/ends.h"
#include "harness/h2frames.h"

enum { WINDOW = 65536 };

/* What held() is told and does. */
static struct {
    unsigned asked;
    bool whole;
    size_t len;
    const char *instead; /* the body becomes this, and the head says so */
    bool refuses;
} how;

static void held(struct rig *r, struct verdict *v, struct buf *body, bool whole, struct arena *a)
{
    (void)r;
    how.asked++;
    how.whole = whole;
    how.len = body->len;
    if (how.refuses)
        *v = (struct verdict){.act = ACT_REPLY,
                              .why = WHY_DENIED,
                              .status = 413,
                              .code = STR("long"),
                              .message = STR("too long"),
                              .note = v->note};
    if (!how.instead || !whole)
        return;
    struct http_head *head = head_copy(v->head, 0, a);
    buf_clear(body);
    buf_str(body, str_of(how.instead));
    head->length = (int64_t)body->len;
    v->head = head;
}

static int set_up(void **state)
{
    struct proxy_rules rules = rig_rules;
    (void)state;
    rules.client.max_streams = 100;
    rules.client.max_resets = 200;
    rules.client.max_control = 1000;
    rig_init(&rig, &rules);
    memset(&how, 0, sizeof how);
    rig.hold = 10;
    rig.held = held;
    nends = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_done(&rig);
    return 0;
}

static void was_asked(unsigned times, bool whole, size_t len)
{
    assert_int_equal(how.asked, times);
    assert_int_equal(how.whole, whole);
    assert_int_equal(how.len, len);
}

#define POST(n) "POST /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: " n "\r\n\r\n"
#define CHUNKED "POST /a/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
#define OK2 "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

/* ---- */

static void nothing_leaves_until_the_body_is_whole(void **state)
{
    (void)state;
    struct end *c = client(POST("5") "he");
    assert_false(dials());
    assert_int_equal(how.asked, 0);
    says(c, "ll");
    assert_false(dials());
    says(c, "o");
    was_asked(1, true, 5);
    struct end *o = origin();
    reads(o, "POST /a/x HTTP/1.1\r\n", "\r\n\r\nhello");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
    says(c, "POST /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na"); /* as does the next */
    reads(o, "POST ", "\r\n\r\na");
    says(o, OK2);
    was_asked(2, true, 1);
    nothing_is_owed();
}

static void a_request_without_a_body_is_not_held(void **state)
{
    (void)state;
    client("GET /a/x HTTP/1.1\r\nhost: x\r\n\r\n");
    struct end *o = origin();
    reads(o, "GET /a/x HTTP/1.1\r\n", "\r\n\r\n");
    client(POST("0"));
    assert_true(dials());
    assert_int_equal(how.asked, 0);
}

static void the_body_and_its_head_may_be_replaced(void **state)
{
    (void)state;
    how.instead = "something longer than it was";
    struct end *c = client(POST("5") "hello");
    struct end *o = origin();
    struct str s = unread(o);
    assert_non_null(memmem(s.p, s.n, "content-length: 28\r\n", 20));
    assert_true(str_iends(s, STR("\r\n\r\nsomething longer than it was")));
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
    how.instead = "";
    says(c, CHUNKED "3\r\nabc\r\n0\r\n\r\n");
    s = unread(o);
    assert_non_null(memmem(s.p, s.n, "content-length: 0\r\n", 19));
    assert_true(str_iends(s, STR("\r\n\r\n")));
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

static void a_body_that_is_too_long_goes_on_as_it_is(void **state)
{
    (void)state;
    how.instead = "never";
    struct end *c = client(CHUNKED "8\r\n12345678\r\n");
    assert_int_equal(how.asked, 0);
    says(c, "3\r\nabc\r\n");
    was_asked(1, false, 11);
    struct end *o = origin();
    says(c, "1\r\nd\r\n0\r\n\r\n");
    reads(o, "POST /a/x HTTP/1.1\r\n", "\r\n\r\nb\r\n12345678abc\r\n1\r\nd\r\n0\r\n\r\n");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

/* One that says so is not even begun with. */
static void a_body_that_will_be_too_long_is_not_waited_for(void **state)
{
    (void)state;
    struct end *c = client(POST("11"));
    was_asked(1, false, 0);
    struct end *o = origin();
    says(c, "hello world");
    reads(o, "POST /a/x HTTP/1.1\r\n", "\r\n\r\nhello world");
    says(o, OK2);
    nothing_is_owed();
    client(POST("10") "hello worl");
    was_asked(2, true, 10);
}

static void it_may_be_refused(void **state)
{
    (void)state;
    how.refuses = true;
    struct end *c = client(POST("5") "hello");
    reads(c, "HTTP/1.1 413 ", "");
    assert_false(is_closed(c));
    assert_int_equal(fake_end(c->c), FAKE_UP); /* the body was read */
    says(c, CHUNKED "b\r\nhello world\r\n");
    reads(c, "HTTP/1.1 413 ", "");
    assert_true(fake_end(c->c) != FAKE_UP);
    c = client(POST("11") "hello");
    reads(c, "HTTP/1.1 413 ", "");
    assert_false(dials());
    was_asked(3, false, 0);
    assert_true(logged("\"why\":\"denied\""));
}

/* More than a window is held: the client is not stopped by it. */
static void what_is_held_is_credited(void **state)
{
    (void)state;
    enum { N = 4 * WINDOW };
    char *text = mem_new(N + 1);
    memset(text, 'a', N);
    rig.hold = N;
    struct end *c = client(CHUNKED "40000\r\n");
    says(c, text);
    assert_int_equal(fake_unread(c->c), 0);
    says(c, "\r\n0\r\n\r\n");
    was_asked(1, true, N);
    struct end *o = origin();
    assert_true(fake_written(o->c).n > N);
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    assert_true(meter()->most_held[0] <= WINDOW);
    nothing_is_owed();
    mem_free(text);
}

/* A client can begin many and end none: all of them together are bounded, whatever memory may be
 * had, and there is room again when some are gone. */
static void many_that_are_held_are_too_much(void **state)
{
    (void)state;
    enum { N = 1 << 20, MOST = 64 };
    char *text = mem_new(N + 1);
    struct end *begun[4];
    memset(text, 'a', N);
    rig.hold = 32 * N;
    for (int k = 0; k < 4; k++) {
        begun[k] = client(CHUNKED "4000000\r\n");
        for (int i = 0; i < MOST / 4; i++)
            says(begun[k], text);
    }
    silent(begun[3]);
    struct end *late = client(POST("5") "hell");
    reads(late, "HTTP/1.1 503 ", "");
    fake_feed_eof(begun[0]->c);
    settle();
    late = client(POST("5") "hell");
    silent(late);
    assert_int_equal(how.asked, 0);
    mem_free(text);
}

static void what_asks_for_an_upgrade_that_is_not_passed_on_is_held_too(void **state)
{
    (void)state;
    rig.plain = true;
    how.instead = "new";
    struct end *c = client("POST /a/x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: y\r\n"
                           "content-length: 5\r\n\r\nhello");
    was_asked(1, true, 5);
    reads(origin(), "POST /a/x HTTP/1.1\r\n", "content-length: 3\r\n\r\nnew");
    silent(c);
}

static void the_client_is_asked_for_it(void **state)
{
    (void)state;
    struct end *c = client(
        "POST /a/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n");
    reads(c, "HTTP/1.1 100 Continue\r\n", "\r\n\r\n");
    says(c, "hello");
    struct end *o = origin();
    reads(o, "POST /a/x HTTP/1.1\r\n", "\r\n\r\nhello");
    says(o, "HTTP/1.1 100 Continue\r\n\r\n" OK2); /* it was said already */
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

static void one_that_will_be_too_long_is_asked_for_by_the_origin(void **state)
{
    (void)state;
    how.refuses = true;
    struct end *c = client(
        "POST /a/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 50\r\n\r\n");
    reads(c, "HTTP/1.1 413 ", ""); /* a refused one gets no 100 */
    how.refuses = false;
    c = client(
        "POST /a/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 50\r\n\r\n");
    struct end *o = origin();
    silent(c);
    says(o, "HTTP/1.1 100 Continue\r\n\r\n");
    reads(c, "HTTP/1.1 100 Continue\r\n", "");
}

static void a_body_that_does_not_come_is_not_waited_for_long(void **state)
{
    (void)state;
    struct end *c = client(POST("5") "he");
    wait_ms(15000);
    says(c, "l"); /* it moves */
    wait_ms(19000);
    silent(c);
    wait_ms(2000);
    reads(c, "HTTP/1.1 408 ", "");
    assert_false(dials());
    assert_true(logged("\"why\":\"deadline\""));
}

static void whoever_leaves_in_it_is_gone(void **state)
{
    (void)state;
    struct end *c = client(POST("5") "he");
    fake_feed_error(c->c);
    settle();
    assert_int_equal(rig_running(&rig), 0);
    c = client(CHUNKED "zz\r\n"); /* and one that breaks it is told so */
    reads(c, "HTTP/1.1 400 ", "");
    assert_int_equal(how.asked, 0);
    assert_false(dials());
}

static void a_policy_that_changes_ends_it(void **state)
{
    (void)state;
    struct end *c = client(POST("5") "he");
    rig.banned = "h";
    proxy_recheck(rig.p);
    settle();
    reads(c, "HTTP/1.1 502 ", "");
    says(c, "llo");
    assert_false(dials());
    assert_int_equal(how.asked, 0);
}

/* What was replaced is what goes again; what the client was credited for is not credited twice. */
static void a_lost_connection_gets_the_new_body_again(void **state)
{
    (void)state;
    rig.hold = 0;
    struct end *c = client(POST("1") "a"), *o = origin();
    unread(o);
    says(o, OK2);
    unread(c);
    rig.hold = 10;
    how.instead = "instead";
    says(c, "PUT /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello");
    reads(o, "PUT /a/x HTTP/1.1\r\n", "\r\n\r\ninstead");
    fake_feed_eof(o->c);
    settle();
    struct end *o2 = origin();
    reads(o2, "PUT /a/x HTTP/1.1\r\n", "\r\n\r\ninstead");
    says(o2, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    assert_int_equal(how.asked, 1);
    nothing_is_owed();
}

/* 64 KiB are kept to be sent again, and no more. */
static void a_long_one_is_not_kept_twice(void **state)
{
    (void)state;
    enum { N = 2 * REPLAY_BYTES };
    char *text = mem_new(N + 1);
    memset(text, 'a', N);
    rig.hold = N;
    struct end *c = client("PUT /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na");
    struct end *o = origin();
    says(o, OK2);
    unread(c);
    says(c, "PUT /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: 131072\r\n\r\n");
    says(c, text);
    was_asked(2, true, N);
    fake_feed_eof(o->c);
    settle();
    assert_false(dials());
    reads(c, "HTTP/1.1 502 ", "");
    nothing_is_owed();
    mem_free(text);
}

static void a_stream_of_http2_is_held_like_any(void **state)
{
    (void)state;
    struct frames f = {NULL, 0, 0};
    frames_add(&f, "preface\n"
                   "settings\n"
                   "headers 1|:method: POST|:scheme: http|:path: /a/x|:authority: a\n"
                   "data 1|hel\n");
    struct end *c = end_of(rig_client(&rig));
    fake_feed(c->c, f.p, f.n);
    settle();
    assert_false(dials());
    frames_done(&f);
    f = (struct frames){NULL, 0, 0};
    frames_add(&f, "data 1 end|lo\n");
    fake_feed(c->c, f.p, f.n);
    settle();
    was_asked(1, true, 5);
    struct end *o = origin();
    reads(o, "POST /a/x HTTP/1.1\r\n", "hello\r\n0\r\n\r\n");
    says(o, OK2);
    nothing_is_owed();
    frames_done(&f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing_leaves_until_the_body_is_whole),
        TEST(a_request_without_a_body_is_not_held),
        TEST(the_body_and_its_head_may_be_replaced),
        TEST(a_body_that_is_too_long_goes_on_as_it_is),
        TEST(a_body_that_will_be_too_long_is_not_waited_for),
        TEST(it_may_be_refused),
        TEST(what_is_held_is_credited),
        TEST(many_that_are_held_are_too_much),
        TEST(what_asks_for_an_upgrade_that_is_not_passed_on_is_held_too),
        TEST(the_client_is_asked_for_it),
        TEST(one_that_will_be_too_long_is_asked_for_by_the_origin),
        TEST(a_body_that_does_not_come_is_not_waited_for_long),
        TEST(whoever_leaves_in_it_is_gone),
        TEST(a_policy_that_changes_ends_it),
        TEST(a_lost_connection_gets_the_new_body_again),
        TEST(a_long_one_is_not_kept_twice),
        TEST(a_stream_of_http2_is_held_like_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
