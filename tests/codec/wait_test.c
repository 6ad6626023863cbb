/* wait_test.c — requests that wait for somebody to be asked, and requests that are decided once
 * more because the first try came to nothing: who is told what and how often, what is read and
 * credited meanwhile, and that all of it ends.  As hold_test.c, over harness/rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/ends.h"
#include "harness/h2frames.h"
#include "harness/peer.h"

enum { WINDOW = 65536, KEPT = 100000, PEERS = 4 };

/* What is decided: "/w/KEY/..." waits so often, and is then forwarded in pool "w"; "/v/KEY/..." and
 * others are forwarded at once. */
static struct {
    unsigned waits;
    bool always, refuses, cannot;
    uint64_t wait_ms;
    unsigned decided, told, drops; /* told: decisions that were told something */
    bool yes;                      /* again() */
    unsigned asked;
    bool waits_then; /* what goes again waits first */
} how;

static const char news[] = "news";

static void drop(void *told)
{
    assert_ptr_equal(told, news);
    how.drops++;
}

static void resume(const char *key)
{
    proxy_resume(rig.p, str_of(key), (void *)(uintptr_t)news, drop);
}

static struct str key_of(const struct facts *f)
{
    struct str rest = str_skip(f->head->path, 3), key = STR("");
    bool some = str_next(&rest, '/', &key);
    assert_true(some && key.n > 0);
    return key;
}

static bool decide(struct rig *r, const struct facts *f, struct arena *a, struct verdict *v)
{
    (void)r;
    how.decided++;
    assert_true(!f->told || (f->told == news && f->turn > 0 && f->asked_ms > 0));
    how.told += f->told != NULL;
    if (how.always || (str_starts(f->head->path, STR("/w/")) && f->turn < how.waits) ||
        (how.waits_then && f->turn == 1)) {
        *v = (struct verdict){
            .act = ACT_WAIT, .key = arena_str(a, key_of(f)), .wait_ms = how.wait_ms};
        return true;
    }
    if (how.refuses)
        *v = (struct verdict){.act = ACT_REPLY,
                              .why = WHY_NO_ROUTE,
                              .status = 404,
                              .code = STR("no"),
                              .message = STR("nobody")};
    return how.refuses;
}

static bool may_wait(struct rig *r, const struct facts *f, bool first, struct verdict *v)
{
    (void)r;
    (void)f;
    (void)first;
    if (how.cannot)
        *v = (struct verdict){.act = ACT_REPLY,
                              .why = WHY_OVERLOAD,
                              .status = 503,
                              .code = STR("full"),
                              .message = STR("no lot")};
    return !how.cannot;
}

static bool again(struct rig *r, const struct facts *f, enum why why, enum stage stage)
{
    (void)r;
    if (why == WHY_REVOKED)
        assert_true(stage == STAGE_DIAL || stage == STAGE_WAIT);
    else
        assert_true(f->turn <= 1 &&
                    (stage == STAGE_DIAL || (stage == STAGE_ANSWER && why == WHY_STALE)));
    how.asked++;
    return how.yes;
}

static void begin(const struct proxy_rules *given)
{
    struct proxy_rules rules = given ? *given : rig_rules;
    struct http_limits *both[] = {&rules.client, &rules.origin};
    for (int i = 0; i < 2; i++) {
        both[i]->max_streams = 100;
        both[i]->max_resets = 200;
        both[i]->max_control = 1000;
    }
    rig_init(&rig, &rules);
    memset(&how, 0, sizeof how);
    how.waits = 1;
    rig.decide = decide;
    rig.wait = may_wait;
    rig.unwanted = 410;
    nends = 0;
}

static int set_up(void **state)
{
    (void)state;
    begin(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_done(&rig);
    return 0;
}

static void on_drained(void *user)
{
    bool *drained = user;
    *drained = true;
}

static bool happened(const char *text)
{
    bool same = strcmp(trace_text(&rig.judged), text) == 0;
    if (!same)
        print_error("<%s> is not <%s>\n", trace_text(&rig.judged), text);
    trace_clear(&rig.judged);
    return same;
}

static unsigned waiting(void)
{
    return proxy_count(rig.p, X_DECIDE);
}

static void leaves(struct end *e)
{
    fake_feed_error(e->c);
    settle();
}

static void may_go_again(bool yes)
{
    rig.again = again;
    how.yes = yes;
}

#define GET(path) "GET " path " HTTP/1.1\r\nhost: x\r\n\r\n"
#define POST(path, n) "POST " path " HTTP/1.1\r\nhost: x\r\ncontent-length: " n "\r\n\r\n"
#define OK2 "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
#define STALE "HTTP/1.1 410 Gone\r\ncontent-length: 4\r\n\r\nGone"

/* ---- waiting */

static void a_request_waits_until_its_key_is_known(void **state)
{
    (void)state;
    struct end *c = client(GET("/w/k/x"));
    assert_true(happened("wait k first\n"));
    assert_int_equal(waiting(), 1);
    assert_false(dials());
    silent(c);
    resume("other");
    assert_int_equal(how.drops, 1); /* nobody waits for that */
    resume("k");
    assert_int_equal(how.decided, 1); /* not within the call */
    settle();
    assert_int_equal(how.decided, 2);
    assert_int_equal(how.told, 1);
    assert_int_equal(how.drops, 2);
    assert_true(happened("waited k ok\njudged forward\n"));
    struct end *o = origin();
    reads(o, "GET /w/k/x HTTP/1.1\r\n", "\r\n\r\n");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    assert_true(logged("\"decide_ms\":"));
    nothing_is_owed();
    says(c, GET("/w/k/x")); /* and so does the next */
    assert_true(happened("dialled ok\nwait k first\n"));
}

static void only_the_first_of_a_key_asks(void **state)
{
    (void)state;
    client(GET("/w/k/1"));
    client(GET("/w/k/2"));
    client(GET("/w/l/3"));
    assert_true(happened("wait k first\nwait k\nwait l first\n"));
    resume("k");
    client(GET("/w/k/4")); /* what was told may be old by now */
    assert_true(strstr(trace_text(&rig.judged), "wait k first\n") != NULL);
    assert_int_equal(waiting(), 2);
    assert_int_equal(how.told, 2);
    assert_int_equal(how.drops, 1);
}

static void whoever_waits_again_waits_for_the_next_call(void **state)
{
    (void)state;
    how.waits = 3;
    client(GET("/w/k/1"));
    client(GET("/w/k/2"));
    trace_clear(&rig.judged);
    resume("k");
    settle();
    assert_true(happened("waited k ok\nwait k first\nwaited k ok\nwait k\n"));
    assert_int_equal(waiting(), 2);
    resume("k");
    settle();
    resume("k");
    settle();
    assert_int_equal(waiting(), 0);
    assert_int_equal(how.drops, 3);
    assert_int_equal(how.told, 6);
    assert_int_equal(rig.places, 2);
}

static void a_gate_that_never_knows_is_not_asked_for_ever(void **state)
{
    (void)state;
    how.always = true;
    struct end *c = client(GET("/w/k/1"));
    for (int i = 0; i < 8; i++) {
        silent(c);
        resume("k");
        settle();
    }
    reads(c, "HTTP/1.1 503 ", "overload in decide\n");
    assert_int_equal(how.decided, 9);
    assert_null(strstr(trace_text(&rig.judged), "judged"));
    nothing_is_owed();
}

static void its_body_is_not_read(void **state)
{
    (void)state;
    enum { N = 4 * WINDOW };
    char *text = mem_new(N + 1);
    memset(text, 'a', N);
    struct end *c = client(POST("/w/k/x", "262144"));
    says(c, text);
    assert_int_equal(meter()->credited[0], 0);
    assert_true(meter()->received[0] <= 2 * WINDOW && fake_unread(c->c) >= N - 2 * WINDOW);
    resume("k");
    settle();
    struct end *o = origin();
    reads(o, "POST /w/k/x HTTP/1.1\r\n", "aaaa");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
    mem_free(text);
}

static void whoever_waits_to_be_asked_for_it_is_not_asked(void **state)
{
    (void)state;
    struct end *c = client("POST /w/k/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
                           "content-length: 5\r\n\r\n");
    wait_ms(3000);
    silent(c);
    resume("k");
    settle();
    struct end *o = origin();
    says(o, "HTTP/1.1 100 Continue\r\n\r\n");
    reads(c, "HTTP/1.1 100 Continue\r\n", "\r\n\r\n");
    says(c, "hello");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

static void a_wait_that_cannot_begin_is_an_answer(void **state)
{
    (void)state;
    how.cannot = true;
    struct end *c = client(POST("/w/k/x", "5") "he");
    assert_true(happened("wait k first\njudged reply\n"));
    reads(c, "HTTP/1.1 503 ", "no lot\n");
    how.cannot = false;
    client(GET("/w/k/x"));
    assert_true(happened("wait k first\n")); /* it left nothing behind */
}

static void what_was_asked_may_come_to_nothing(void **state)
{
    (void)state;
    how.refuses = true;
    struct end *c[3];
    for (int i = 0; i < 3; i++)
        c[i] = client(GET("/w/k/x"));
    resume("k");
    settle();
    for (int i = 0; i < 3; i++)
        reads(c[i], "HTTP/1.1 404 ", "nobody\n");
    assert_int_equal(how.drops, 1);
    nothing_is_owed();
}

static void a_wait_has_a_deadline(void **state)
{
    (void)state;
    struct end *c = client(POST("/w/k/x", "50") "he");
    trace_clear(&rig.judged);
    wait_ms(7000);
    says(c, "l"); /* this does not put it off */
    silent(c);
    wait_ms(1200);
    reads(c, "HTTP/1.1 504 ", "deadline in decide\n");
    assert_true(happened("waited k deadline\n"));
    assert_true(logged("\"why\":\"deadline\""));
    how.wait_ms = 2000; /* the verdict's own */
    c = client(GET("/w/k/x"));
    assert_true(happened("wait k first\n"));
    wait_ms(1900);
    silent(c);
    wait_ms(200);
    reads(c, "HTTP/1.1 504 ", "deadline in decide\n");
}

static void whoever_leaves_waits_no_more(void **state)
{
    (void)state;
    struct end *first = client(GET("/w/k/1")), *second = client(GET("/w/k/2"));
    trace_clear(&rig.judged);
    leaves(first);
    assert_true(happened("waited k client-gone\n"));
    client(GET("/w/k/3"));
    assert_true(happened("wait k\n"));
    leaves(second);
    leaves(&ends[2]);
    assert_int_equal(rig_running(&rig), 0);
    trace_clear(&rig.judged);
    client(GET("/w/k/4"));
    assert_true(happened("wait k first\n"));
    resume("k");
    fake_feed_error(ends[3].c); /* told, but gone before its turn */
    settle();
    assert_int_equal(how.drops, 1);
    assert_int_equal(rig_running(&rig), 0);
}

static void a_body_that_breaks_off_ends_the_wait(void **state)
{
    (void)state;
    struct end *c =
        client("POST /w/k/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    trace_clear(&rig.judged);
    says(c, "zz\r\n");
    reads(c, "HTTP/1.1 400 ", "");
    assert_true(happened("waited k client-protocol\n"));
}

static void a_drain_lets_them_wait_and_a_cut_does_not(void **state)
{
    (void)state;
    struct end *one = client(GET("/w/k/1"));
    client(GET("/w/l/2"));
    bool drained = false;
    trace_clear(&rig.judged);
    proxy_drain(rig.p, on_drained, &drained);
    settle();
    assert_int_equal(waiting(), 2);
    resume("k");
    settle();
    says(origin(), OK2);
    reads(one, "HTTP/1.1 200 OK\r\n", "ok");
    assert_false(drained);
    trace_clear(&rig.judged);
    proxy_cut(rig.p);
    settle();
    assert_true(happened("waited l drain\n"));
    assert_true(drained);
}

/* The loop goes round while they are told. */
static void many_are_told_some_at_a_time(void **state)
{
    (void)state;
    enum { N = 1000 };
    how.refuses = true;
    rig.quiet = true;
    for (int i = 0; i < N; i++)
        client(GET("/w/k/x"));
    assert_int_equal(waiting(), N);
    resume("k");
    unsigned turns = 0;
    for (unsigned before = N; waiting() > 0; turns++) {
        worker_turn(rig.w);
        assert_true(before - waiting() < N / 2);
        before = waiting();
    }
    assert_true(turns > 2);
    settle();
    assert_int_equal(how.drops, 1);
    for (int i = 0; i < N; i++)
        reads(&ends[i], "HTTP/1.1 404 ", "nobody\n");
    all_is_credited();
}

/* The rig frees the proxy, and the worker, with the bell still to ring. */
static void the_proxy_may_go_before_all_were_told(void **state)
{
    (void)state;
    client(GET("/w/k/x"));
    proxy_cut(rig.p);
    client(GET("/w/k/y"));
    resume("k");
    proxy_cut(rig.p);
    assert_int_equal(rig_running(&rig), 0);
    tear_down(NULL);
    assert_int_equal(how.drops, 1);
    set_up(NULL);
}

static void too_many_do_not_wait(void **state)
{
    (void)state;
    struct end *c = end_of(rig_surplus(&rig));
    says(c, GET("/w/k/x"));
    reads(c, "HTTP/1.1 503 ", "");
    assert_true(happened(""));
    nothing_is_owed();
}

static void streams_of_http2_wait_like_any(void **state)
{
    (void)state;
    struct frames f = {NULL, 0, 0};
    frames_add(&f, "preface\n"
                   "settings\n"
                   "get 1 /w/k/x\n"
                   "get 3 /w/l/x\n"
                   "get 5 /w/k/x\n");
    struct end *c = end_of(rig_client(&rig));
    fake_feed(c->c, f.p, f.n);
    settle();
    assert_int_equal(waiting(), 3);
    frames_done(&f);
    f = (struct frames){NULL, 0, 0};
    frames_add(&f, "rst 1 8\n");
    fake_feed(c->c, f.p, f.n);
    settle();
    assert_int_equal(waiting(), 2);
    resume("k");
    settle();
    assert_int_equal(waiting(), 1);
    assert_true(dials());
    frames_done(&f);
}

/* What came while it waited is held, credited and shown like what comes later. */
static void what_waited_may_be_held(void **state)
{
    (void)state;
    rig.hold = 10;
    struct end *c = client(POST("/w/k/x", "5") "hello");
    resume("k");
    settle();
    struct end *o = origin();
    reads(o, "POST /w/k/x HTTP/1.1\r\n", "\r\n\r\nhello");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
    says(c, POST("/w/k/x", "5") "he");
    resume("k");
    settle();
    assert_int_equal(meter()->received[0], meter()->credited[0]);
    says(c, "llo");
    reads(o, "POST /w/k/x HTTP/1.1\r\n", "\r\n\r\nhello");
    says(o, OK2);
    nothing_is_owed();
}

/* The gate is asked about them when there is a decision, and anew when there is another one. */
static void trailers_may_come_while_it_waits(void **state)
{
    (void)state;
    rig.marks = true;
    may_go_again(true);
    rig.keep = KEPT;
    struct end *c = client("POST /w/k/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
                           "2\r\nhi\r\n0\r\nx-t: 1\r\n\r\n");
    resume("k");
    settle();
    struct end *o = origin();
    reads(o, "POST ", "\r\n2\r\nhi\r\n0\r\nx-t: 1\r\nx-gate: 1\r\n\r\n");
    says(o, STALE);
    o = origin();
    reads(o, "POST ", "\r\n2\r\nhi\r\n0\r\nx-t: 1\r\nx-gate: 1\r\n\r\n");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

/* ---- admitted, and moving */

static void who_is_not_admitted_is_answered(void **state)
{
    (void)state;
    rig.full = true;
    struct end *c = client(GET("/a/x"));
    assert_true(happened("judged reply\n"));
    reads(c, "HTTP/1.1 403 ", "");
    c = client(GET("/w/k/x"));
    rig.full = false;
    resume("k");
    settle();
    assert_int_equal(rig.places, 1);
    leaves(c);
    assert_int_equal(rig.places, 0);
    client(GET("/local"));
    client(GET("/refuse"));
    assert_int_equal(rig.places, 0);
}

static void what_moves_is_told_now_and_then(void **state)
{
    (void)state;
    struct end *c = client(POST("/a/x", "6") "a"), *o = origin();
    assert_int_equal(rig.nmoved, 0);
    wait_ms(1100);
    assert_int_equal(rig.nmoved, 0); /* nothing has moved */
    says(c, "b");
    assert_int_equal(rig.nmoved, 1);
    says(c, "c");
    assert_int_equal(rig.nmoved, 1);
    wait_ms(1100);
    says(c, "def");
    assert_int_equal(rig.nmoved, 2);
    wait_ms(1100);
    says(o, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok");
    assert_int_equal(rig.nmoved, 3);
    wait_ms(1100);
    says(o, "ok");
    assert_int_equal(rig.nmoved, 4);
    reads(c, "HTTP/1.1 200 OK\r\n", "okok");
    c = client(POST("/refuse", "5") "a");
    wait_ms(1100);
    says(c, "b");
    c = client(POST("/w/k/x", "5") "a");
    wait_ms(1100);
    says(c, "b");
    assert_int_equal(rig.nmoved, 4); /* nothing of it goes anywhere */
}

/* ---- again */

static void fails(enum why why)
{
    assert_true(dials());
    fake_dial_fail(fake_dial_first(rig.w), why, 0);
    settle();
}

static void who_cannot_connect_is_decided_once_more(void **state)
{
    static const enum why whys[] = {WHY_DIAL, WHY_DNS, WHY_TLS, WHY_DEADLINE};
    (void)state;
    may_go_again(true);
    for (size_t i = 0; i < sizeof whys / sizeof *whys; i++) {
        struct end *c = client(POST("/a/x", "5") "he");
        trace_clear(&rig.judged);
        fails(whys[i]);
        assert_non_null(strstr(trace_text(&rig.judged), " in dial\n"));
        assert_null(strstr(trace_text(&rig.judged), "judged"));
        assert_int_equal(rig.places, 1);
        says(c, "llo");
        silent(c);
        struct end *o = origin();
        reads(o, "POST /a/x HTTP/1.1\r\n", "\r\n\r\nhello");
        says(o, OK2);
        reads(c, "HTTP/1.1 200 OK\r\n", "ok");
        nothing_is_owed();
        leaves(c);
        leaves(o);
    }
    assert_int_equal(how.asked, 4);
    struct end *c = client(GET("/a/x")); /* once */
    fails(WHY_DIAL);
    fails(WHY_DIAL);
    assert_int_equal(how.asked, 5);
    reads(c, "HTTP/1.1 502 ", "dial in dial\n");
    may_go_again(false);
    c = client(GET("/a/x"));
    fails(WHY_DNS);
    reads(c, "HTTP/1.1 502 ", "dns in dial\n");
    assert_int_equal(how.asked, 6);
    c = client(GET("/a@denied/x")); /* a refusal is no failure */
    assert_null(rig_origin(&rig));
    settle();
    reads(c, "HTTP/1.1 502 ", "denied in dial\n");
    assert_int_equal(how.asked, 6);
}

static void a_websocket_that_cannot_connect_is_decided_once_more(void **state)
{
    (void)state;
    may_go_again(true);
    how.waits_then = true;
    struct end *c = client("GET /v/k/x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n"
                           "upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                           "sec-websocket-version: 13\r\n\r\n");
    fails(WHY_DIAL);
    assert_int_equal(waiting(), 1);
    resume("k");
    settle();
    struct end *o = origin();
    says(o, "HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhi");
    reads(c, "HTTP/1.1 101 ", "\r\n\r\nhi");
    assert_int_equal(rig.places, 1);
}

static void an_answer_that_is_not_wanted_is_asked_for_once_more(void **state)
{
    (void)state;
    may_go_again(true);
    struct end *c = client(GET("/a/x")), *o = origin();
    trace_clear(&rig.judged);
    says(o, STALE);
    silent(c);
    assert_true(is_closed(o));
    assert_true(happened("again stale in answer\n"));
    o = origin();
    reads(o, "GET /a/x HTTP/1.1\r\n", "\r\n\r\n");
    says(o, STALE); /* the second one is final */
    reads(c, "HTTP/1.1 503 ", "stale in answer\n");
    assert_int_equal(how.asked, 1);
    assert_true(logged("\"why\":\"stale\""));
    nothing_is_owed();
    may_go_again(false);
    c = client(GET("/a/x"));
    says(origin(), STALE);
    reads(c, "HTTP/1.1 503 ", "stale in answer\n");
}

static void pool_ends(void)
{
    proxy_purge(rig.p, STR("a"));
    settle();
}

static void who_has_heard_nothing_outlives_its_pool_a_few_times(void **state)
{
    (void)state;
    may_go_again(true);
    struct end *c = client(GET("/a/x"));
    for (unsigned i = 0; i < 3; i++) {
        struct end *o = origin();
        reads(o, "GET /a/x HTTP/1.1\r\n", "\r\n\r\n");
        pool_ends();
        assert_true(is_closed(o));
        silent(c);
        assert_int_equal(how.asked, i + 1);
    }
    says(origin(), OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
    pool_ends();
    c = client(GET("/a/x")); /* not for ever */
    for (unsigned i = 0; i < 8; i++) {
        silent(c);
        origin();
        pool_ends();
    }
    origin();
    pool_ends();
    reads(c, "HTTP/1.1 502 ", "revoked in wait\n");
    assert_int_equal(rig.places, 0);
}

/* The origin may have done what it was asked, or the client seen some of it. */
static void what_cannot_be_repeated_ends_with_its_pool(void **state)
{
    (void)state;
    may_go_again(true);
    struct end *c = client(POST("/a/x", "0"));
    origin();
    pool_ends();
    reads(c, "HTTP/1.1 502 ", "revoked in wait\n");
    c = client(GET("/a/x"));
    says(origin(), "HTTP/1.1 103 x\r\n\r\n");
    pool_ends();
    reads(c, "HTTP/1.1 103 ", "revoked in wait\n");
    assert_int_equal(how.asked, 0);
    c = client(POST("/a/x", "0")); /* nothing has left yet */
    assert_true(dials());
    pool_ends();
    assert_int_equal(how.asked, 1);
    says(origin(), OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
}

/* Of a POST nothing has left: whoever it is for now has not heard of it. */
static void what_has_not_begun_goes_elsewhere_with_its_body(void **state)
{
    (void)state;
    may_go_again(true);
    for (int move = 0; move < 2; move++) {
        struct end *c = client(GET("/a/x")), *o = origin();
        reads(o, "GET /a/x HTTP/1.1\r\n", "\r\n\r\n");
        says(o, OK2);
        reads(c, "HTTP/1.1 200 OK\r\n", "ok");
        fake_feed(c->c, POST("/a/y", "9") "hello", strlen(POST("/a/y", "9") "hello"));
        assert_int_equal(proxy_count(rig.p, X_WAIT), 1); /* in this turn */
        if (move)
            proxy_move(rig.p, STR("a"), STR("b"));
        else
            proxy_purge(rig.p, STR("a"));
        settle();
        silent(o);
        assert_true(is_closed(o));
        o = origin();
        says(c, " you");
        reads(o, "POST /a/y HTTP/1.1\r\n", "\r\n\r\nhello you");
        says(o, OK2);
        reads(c, "HTTP/1.1 200 OK\r\n", "ok");
        nothing_is_owed();
        pool_ends();
    }
}

static void it_may_wait_before_it_goes_again(void **state)
{
    (void)state;
    may_go_again(true);
    how.waits_then = true;
    rig.keep = KEPT;
    struct end *c = client(POST("/v/k/x", "10") "hello");
    struct end *o = origin();
    reads(o, "POST /v/k/x HTTP/1.1\r\n", "\r\n\r\nhello");
    trace_clear(&rig.judged);
    says(o, STALE);
    assert_true(happened("again stale in answer\nwait k first\n"));
    says(c, " you ");
    silent(c);
    resume("k");
    settle();
    o = origin();
    reads(o, "POST /v/k/x HTTP/1.1\r\n", "\r\n\r\nhello you ");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
    c = client(POST("/v/k/x", "10") "hello"); /* and wait in vain */
    says(o, STALE);
    wait_ms(8200);
    reads(c, "HTTP/1.1 504 ", "deadline in decide\n");
    says(c, " you ");
    nothing_is_owed();
    assert_int_equal(rig.places, 0);
    c = client(POST("/v/k/x", "10") "hello"); /* or leave */
    says(origin(), STALE);
    assert_int_equal(waiting(), 1);
    leaves(c);
    nothing_is_owed();
    assert_int_equal(rig.places, 0);
}

/* What was kept goes again, and is not credited twice; what is longer is not kept. */
static void a_body_goes_again_as_far_as_it_was_kept(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 1000, WINDOW, KEPT, KEPT + 1, 2 * KEPT};
    static char text[2 * KEPT + 1];
    memset(text, 'a', sizeof text - 1);
    may_go_again(true);
    rig.keep = KEPT;
    for (int stated = 0; stated < 2; stated++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t n = sizes[i];
            char head[200];
            if (stated)
                snprintf(head, sizeof head, POST("/a/x", "%zu"), n);
            else
                snprintf(head, sizeof head,
                         "POST /a/x HTTP/1.1\r\nhost: x\r\n"
                         "transfer-encoding: chunked\r\n\r\n%zx\r\n",
                         n);
            struct end *c = client(head), *o = origin();
            fake_feed(c->c, text, n);
            says(c, stated ? "" : "\r\n");
            assert_true(fake_written(o->c).n >= n);
            says(o, STALE);
            if (n > KEPT) {
                reads(c, "HTTP/1.1 503 ", "stale in answer\n");
                leaves(c);
                continue;
            }
            silent(c);
            o = origin();
            assert_true(fake_written(o->c).n >= n);
            says(c, stated ? "" : "0\r\n\r\n");
            says(o, OK2);
            reads(c, "HTTP/1.1 200 OK\r\n", "ok");
            nothing_is_owed();
            leaves(c);
            leaves(o);
        }
    assert_int_equal(how.asked, 8);
    assert_int_equal(rig.places, 0);
}

/* Part of it is still on its way to the first origin when that has had enough. */
static void a_body_goes_again_while_it_leaves(void **state)
{
    (void)state;
    static char text[KEPT + 1];
    memset(text, 'a', sizeof text - 1);
    may_go_again(true);
    rig.keep = KEPT;
    struct end *c = client(POST("/a/x", "100000")), *o = origin();
    fake_room(o->c, 30000);
    says(c, text);
    says(o, STALE);
    silent(c);
    o = origin();
    assert_true(fake_written(o->c).n > KEPT);
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

static void without_a_place_to_keep_it_a_body_does_not_go_again(void **state)
{
    (void)state;
    may_go_again(true);
    struct end *c = client(POST("/a/x", "5") "hello");
    says(origin(), STALE);
    reads(c, "HTTP/1.1 503 ", "stale in answer\n");
    assert_int_equal(how.asked, 0);
}

static void what_has_gone_down_is_not_taken_back(void **state)
{
    (void)state;
    may_go_again(true);
    rig.keep = KEPT;
    struct end *c = client(GET("/a/x")), *o = origin();
    says(o, "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n");
    unread(c);
    says(o, STALE);
    reads(c, "HTTP/1.1 503 ", "stale in answer\n");
    assert_int_equal(how.asked, 0);
    c = client("POST /a/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
               "content-length: 5\r\n\r\n");
    o = origin();
    says(o, "HTTP/1.1 100 Continue\r\n\r\n"); /* this says nothing of the answer */
    reads(c, "HTTP/1.1 100 Continue\r\n", "");
    says(c, "he");
    says(o, STALE);
    assert_int_equal(how.asked, 1);
    o = origin();
    says(o, "HTTP/1.1 100 Continue\r\n\r\n");
    says(c, "llo");
    silent(c); /* it was asked for it once */
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

static void a_lost_connection_may_lead_to_another_decision(void **state)
{
    (void)state;
    struct end *c = client(GET("/a/x")), *o = origin();
    may_go_again(true);
    says(o, OK2);
    unread(c);
    says(c, "PUT /a/x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello");
    unread(o);
    fake_feed_eof(o->c); /* the retry of 8.4 ... */
    settle();
    fails(WHY_DIAL); /* ... finds nobody there */
    assert_int_equal(how.asked, 1);
    o = origin();
    reads(o, "PUT /a/x HTTP/1.1\r\n", "\r\n\r\nhello");
    says(o, OK2);
    reads(c, "HTTP/1.1 200 OK\r\n", "ok");
    nothing_is_owed();
}

/* Near the cap nobody's body is kept, and it passes all the same. */
static void a_worker_that_is_full_keeps_nothing(void **state)
{
    struct proxy_rules rules = rig_rules;
    static char text[KEPT + 1];
    memset(text, 'a', sizeof text - 1);
    tear_down(state);
    rules.max_memory = 80000;
    begin(&rules);
    may_go_again(true);
    rig.keep = KEPT;
    struct end *c = client(POST("/a/x", "100000")), *o = origin();
    says(c, text);
    assert_true(fake_written(o->c).n > KEPT);
    assert_true(worker_held(rig.w) <= 80000);
    says(o, STALE);
    reads(c, "HTTP/1.1 503 ", "stale in answer\n");
    assert_int_equal(how.asked, 0);
}

/* ---- between every pair of versions */

static struct peer peers[PEERS];
static struct peer *all[PEERS];

static void pump(unsigned n)
{
    peer_pump(all, n);
    fake_settle(rig.w);
    rig_check(&rig);
}

static void goes_again(enum version near, enum version far)
{
    const char *path = far == H2 ? "/w2/x" : "/w1/x";
    unsigned n = 0;
    may_go_again(true);
    rig.keep = KEPT;
    peer_client(all[n++], &rig, near);
    pump(n);
    struct call *c = peer_ask(&peers[0], "POST", path, "hello", true);
    pump(n);
    peer_origin(all[n++], &rig, far, 100);
    pump(n);
    assert_int_equal(peers[1].ncalls, 1);
    call_answer(&peers[1].calls[0], 410, "gone", true);
    pump(n);
    struct peer *second = &peers[1]; /* of HTTP/2: another stream of that connection */
    if (fake_dials(rig.w) > 0) {
        second = all[n];
        peer_origin(all[n++], &rig, far, 100);
        pump(n);
    }
    struct call *got = &second->calls[second->ncalls - 1];
    assert_true(call_has(got, "data hello"));
    call_answer(got, 200, "ok", true);
    pump(n);
    assert_true(call_has(c, "200"));
    assert_true(call_has(c, "data ok"));
    assert_false(call_has(c, "410"));
    assert_int_equal(how.asked, 1);
    all_is_credited();
    for (unsigned i = 0; i < n; i++)
        peer_done(&peers[i]);
}

static void it_goes_again_between_all_versions(void **state)
{
    for (unsigned i = 0; i < PEERS; i++)
        all[i] = &peers[i];
    for (int i = 0; i < 4; i++) {
        goes_again(i & 1 ? H2 : H1, i & 2 ? H2 : H1);
        tear_down(state);
        set_up(state);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_request_waits_until_its_key_is_known),
        TEST(only_the_first_of_a_key_asks),
        TEST(whoever_waits_again_waits_for_the_next_call),
        TEST(a_gate_that_never_knows_is_not_asked_for_ever),
        TEST(its_body_is_not_read),
        TEST(whoever_waits_to_be_asked_for_it_is_not_asked),
        TEST(a_wait_that_cannot_begin_is_an_answer),
        TEST(what_was_asked_may_come_to_nothing),
        TEST(a_wait_has_a_deadline),
        TEST(whoever_leaves_waits_no_more),
        TEST(a_body_that_breaks_off_ends_the_wait),
        TEST(a_drain_lets_them_wait_and_a_cut_does_not),
        TEST(many_are_told_some_at_a_time),
        TEST(the_proxy_may_go_before_all_were_told),
        TEST(too_many_do_not_wait),
        TEST(streams_of_http2_wait_like_any),
        TEST(what_waited_may_be_held),
        TEST(trailers_may_come_while_it_waits),
        TEST(who_is_not_admitted_is_answered),
        TEST(what_moves_is_told_now_and_then),
        TEST(who_cannot_connect_is_decided_once_more),
        TEST(a_websocket_that_cannot_connect_is_decided_once_more),
        TEST(an_answer_that_is_not_wanted_is_asked_for_once_more),
        TEST(who_has_heard_nothing_outlives_its_pool_a_few_times),
        TEST(what_cannot_be_repeated_ends_with_its_pool),
        TEST(what_has_not_begun_goes_elsewhere_with_its_body),
        TEST(it_may_wait_before_it_goes_again),
        TEST(a_body_goes_again_as_far_as_it_was_kept),
        TEST(a_body_goes_again_while_it_leaves),
        TEST(without_a_place_to_keep_it_a_body_does_not_go_again),
        TEST(what_has_gone_down_is_not_taken_back),
        TEST(a_lost_connection_may_lead_to_another_decision),
        TEST(a_worker_that_is_full_keeps_nothing),
        TEST(it_goes_again_between_all_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
