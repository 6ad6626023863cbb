/* h2_client_test.c — the HTTP/2 client codec over a fake connection: what is asked, what is told
 * however the answer was cut, when a stream may be opened, and how each way to end is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/h2side.h"

static const struct tap_user listening = {0};

static const struct http_head get = {.method = {"GET", 3},
                                     .scheme = {"http", 4},
                                     .authority = {"a", 1},
                                     .path = {"/", 1},
                                     .length = -1};
static const struct http_head post = {.method = {"POST", 4},
                                      .scheme = {"http", 4},
                                      .authority = {"a", 1},
                                      .path = {"/p", 2},
                                      .length = -1};
static const struct http_head upgrade = {.method = {"GET", 3},
                                         .scheme = {"http", 4},
                                         .authority = {"a", 1},
                                         .path = {"/ws", 3},
                                         .length = -1,
                                         .protocol = {"websocket", 9}};

static struct tap *ask(struct side *x, const struct http_head *head, bool end)
{
    struct tap *t = side_open(x);
    assert_non_null(t);
    tap_head(t, head, end);
    fake_settle(x->w);
    return t;
}

#define GET1 "1 headers {:method: GET; :scheme: http; :authority: a; :path: /}\n1 end\n"
#define POST1 "1 headers {:method: POST; :scheme: http; :authority: a; :path: /p}\n"
#define WS1                                                                                    \
    "1 headers {:method: CONNECT; :protocol: websocket; :scheme: http; :authority: a; :path: " \
    "/ws}\n"

/* ---- one answer, one text */

struct answer {
    const char *name;
    const struct http_head *request; /* NULL: get */
    const char *input;
    const char *events; /* after the first "idle" */
};

struct run {
    const struct answer *a;
    struct frames input;
};

static void run_answer(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct run *r = arg;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings 8=1");
    ask(&x, r->a->request ? r->a->request : &get, true);
    side_feed(&x, frames_str(&r->input), cuts);
    for (unsigned i = 0; i < x.n; i++)
        if (!x.taps[i].over)
            tap_flush(&x.taps[i]);
    trace_add(&ret->events, str_of(trace_text(&x.trace)));
    read_output(&x, &ret->output);
    side_done(&x);
    worker_free(w);
}

static void check(const struct answer *a)
{
    struct outcome o;
    struct run r = {.a = a};
    char text[2048];
    frames_add(&r.input, a->input);
    same_however_cut(run_answer, &r, r.input.n, &o);
    snprintf(text, sizeof text, "idle\n%s", a->events);
    check_text(a->name, trace_text(&o.events), text);
    outcome_done(&o);
    frames_done(&r.input);
}

static void answers_are_told_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const struct http_head head = {.method = {"HEAD", 4},
                                          .scheme = {"http", 4},
                                          .authority = {"a", 1},
                                          .path = {"/", 1},
                                          .length = -1};
    static const struct answer table[] = {
        {"a plain answer", NULL, "headers 1|:status: 200|content-length: 2|x-a: b\ndata 1 end|ok",
         "1 200 length=2 {x-a: b}\n1 data ok\n1 end\n1 closed ok\nidle\n"},
        {"a head is the end", NULL, "headers 1 end|:status: 204", "1 204 end\n1 closed ok\nidle\n"},
        {"an answer of unknown length", NULL,
         "headers 1|:status: 200\ndata 1|he\ndata 1|llo\ndata 1 end",
         "1 200\n1 data hello\n1 end\n1 closed ok\nidle\n"},
        {"trailers", NULL, "headers 1|:status: 200\ndata 1|hello\nheaders 1 end|x-t: 1",
         "1 200\n1 data hello\n1 end {x-t: 1}\n1 closed ok\nidle\n"},
        {"trailers only", NULL, "headers 1 end|:status: 200|grpc-status: 5",
         "1 200 {grpc-status: 5} end\n1 closed ok\nidle\n"},
        {"1xx before the answer", NULL,
         "headers 1|:status: 100\nheaders 1|:status: 103|link: </a>\nheaders 1 end|:status: 200",
         "1 100\n1 103 {link: </a>}\n1 200 end\n1 closed ok\nidle\n"},
        {"1xx and trailers are told apart", NULL,
         "headers 1|:status: 103\nheaders 1|:status: 200\nheaders 1 end|x-t: 1",
         "1 103\n1 200\n1 end {x-t: 1}\n1 closed ok\nidle\n"},
        {"HEAD", &head, "headers 1 end|:status: 200|content-length: 5",
         "1 200 length=5 end\n1 closed ok\nidle\n"},
        {"a tunnel", &upgrade, "headers 1|:status: 200\ndata 1|abc\ndata 1 end",
         "1 101 protocol=websocket\n1 data abc\n1 end\n"},
        {"a tunnel that ends at once", &upgrade, "headers 1 end|:status: 200",
         "1 101 protocol=websocket\n1 end\n"},
        {"a refused tunnel", &upgrade, "headers 1|:status: 403|content-length: 2\ndata 1 end|no",
         "1 403 length=2\n1 data no\n1 end\n1 closed ok\nidle\n"},
        {"no status", NULL, "headers 1 end|x-a: b", "1 closed origin-protocol\nidle\n"},
        {"a status of two digits", NULL, "headers 1 end|:status: 20",
         "1 closed origin-protocol\nidle\n"},
        {"101 is not of this version", NULL, "headers 1|:status: 101",
         "1 closed origin-protocol\nidle\n"},
        {"a field of one hop", NULL, "headers 1 end|:status: 200|connection: close",
         "1 closed origin-protocol\nidle\n"},
        {"a length that is not kept", NULL,
         "headers 1|:status: 200|content-length: 5\ndata 1 end|ok",
         "1 200 length=5\n1 data ok\n1 closed origin-protocol\nidle\n"},
        {"a body for HEAD", &head, "headers 1|:status: 200\ndata 1 end|ok",
         "1 200\n1 closed origin-protocol\nidle\n"},
        {"a reset", NULL, "rst 1 2", "1 closed origin-gone\nidle\n"},
        {"a reset in the body", NULL, "headers 1|:status: 200\ndata 1|ok\nrst 1 2",
         "1 200\n1 data ok\n1 closed origin-gone\nidle\n"},
        {"not begun with", NULL, "rst 1 7", "1 closed refused\nidle\n"},
        {"begun with all the same", NULL, "headers 1|:status: 100\nrst 1 7",
         "1 100\n1 closed origin-gone\nidle\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(&table[i]);
}

/* ---- what is asked */

static void requests_are_written(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    struct tap *t = ask(&x, &post, false);
    tap_data(t, STR("hello"));
    fake_settle(w);
    tap_data(t, STR(" there"));
    tap_end(t, NULL);
    fake_settle(w);
    assert_int_equal(t->sent, 11);
    check_output(&x, POST1 "1 data hello there\n1 end\n");
    feed(&x, "headers 1 end|:status: 200");
    check_events(&x, "idle\n1 200 end\n1 closed ok\nidle\n");
    side_done(&x);
    worker_free(w);
}

static void trailers_end_a_request(void **state)
{
    (void)state;
    static struct field fields[] = {{{"X-T", 3}, {"1", 1}}};
    static const struct http_head trailers = {.length = -1, .fields = fields, .nfields = 1};
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    struct tap *t = ask(&x, &post, false);
    tap_data(t, STR("hello"));
    tap_end(t, &trailers);
    fake_settle(w);
    check_output(&x, POST1 "1 data hello\n1 headers {x-t: 1}\n1 end\n");
    side_done(&x);
    worker_free(w);
}

/* ---- when streams may be opened */

static void nothing_is_opened_before_the_origin_has_said_how_much_it_takes(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H2_CLIENT, NULL, &listening, NULL);
    fake_settle(w);
    assert_null(side_open(&x));
    check_events(&x, "");
    feed(&x, "settings 3=2");
    check_events(&x, "idle\n");
    assert_non_null(side_open(&x));
    assert_non_null(side_open(&x));
    assert_null(side_open(&x));
    assert_int_equal(x.s->running, 2);
    tap_cancel(side_stream(&x, 1), WHY_CLIENT_GONE);
    fake_settle(w);
    check_events(&x, "idle\n1 cancel client-gone\nidle\n");
    assert_non_null(side_open(&x));
    side_done(&x);
    worker_free(w);
}

static void an_origin_with_one_stream_serves_many_requests(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings 1=0 4=0 3=1\nwindow 0 65535");
    for (unsigned i = 0; i < 20; i++) {
        char script[64];
        struct tap *t = ask(&x, &post, false);
        tap_data(t, STR("hello"));
        tap_end(t, NULL);
        fake_settle(w);
        assert_int_equal(t->sent, 0);
        snprintf(script, sizeof script, "window %u 5", 2 * i + 1);
        feed(&x, script);
        assert_int_equal(t->sent, 5);
        assert_null(side_open(&x));
        snprintf(script, sizeof script, "headers %u end|:status: 200", 2 * i + 1);
        feed(&x, script);
        assert_true(t->over);
    }
    assert_int_equal(x.idles, 21);
    side_done(&x);
    worker_free(w);
}

static void a_window_may_turn_negative(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    static char block[1000];
    memset(block, 'x', sizeof block);
    begin_client(&x, w, NULL, &listening, "settings 4=500");
    struct tap *t = ask(&x, &post, false);
    tap_data(t, (struct str){block, sizeof block});
    tap_end(t, NULL);
    fake_settle(w);
    assert_int_equal(t->sent, 500);
    feed(&x, "settings 4=100");
    feed(&x, "window 1 400"); /* 0 again */
    assert_int_equal(t->sent, 500);
    feed(&x, "window 1 100");
    assert_int_equal(t->sent, 600);
    feed(&x, "settings 4=10000");
    assert_int_equal(t->sent, 1000);
    side_done(&x);
    worker_free(w);
}

static void extended_connect_is_known_when_announced(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings 8=1");
    assert_true(x.s->extended);
    side_done(&x);
    begin_client(&x, w, NULL, &listening, "settings 3=5");
    assert_false(x.s->extended);
    side_done(&x);
    worker_free(w);
}

/* ---- tunnels */

static void a_tunnel_is_open_both_ways(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings 8=1");
    struct tap *t = ask(&x, &upgrade, true);
    check_output(&x, WS1);
    feed(&x, "headers 1|:status: 200");
    tap_data(t, STR("hello"));
    feed(&x, "data 1|there");
    feed(&x, "data 1 end");
    check_events(&x, "idle\n1 101 protocol=websocket\n1 data there\n1 end\n");
    tap_data(t, STR(" you"));
    tap_end(t, NULL);
    fake_settle(w);
    check_output(&x, WS1 "1 data hello you\n1 end\n");
    check_events(&x, "idle\n1 101 protocol=websocket\n1 data there\n1 end\n1 closed ok\nidle\n");
    side_done(&x);
    worker_free(w);
}

static void a_refused_tunnel_ends_our_side(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings 8=1");
    ask(&x, &upgrade, true);
    feed(&x, "headers 1|:status: 403");
    check_output(&x, WS1 "1 end\n");
    feed(&x, "data 1 end|no");
    check_events(&x, "idle\n1 403\n1 data no\n1 end\n1 closed ok\nidle\n");
    side_done(&x);
    worker_free(w);
}

/* ---- ends */

static void an_early_answer_leaves_the_rest_to_the_user(void **state)
{
    (void)state;
    static const char *const events = "idle\n1 413 end\n1 closed ok\nidle\n";
    for (int how = 0; how < 3; how++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_client(&x, w, NULL, &listening, "settings");
        struct tap *t = ask(&x, &post, false);
        tap_data(t, STR("hello"));
        fake_settle(w);
        feed(&x, "headers 1 end|:status: 413");
        assert_false(t->over);
        if (how == 0)
            feed(&x, "rst 1 0");
        else if (how == 1)
            tap_end(t, NULL);
        else
            tap_cancel(t, WHY_OK);
        fake_settle(w);
        if (how < 2)
            check_events(&x, events);
        static const char *const outputs[] = {"", "1 end\n", "1 rst 8\n"};
        char text[256];
        snprintf(text, sizeof text, "%s1 data hello\n%s", POST1, outputs[how]);
        check_output(&x, text);
        assert_int_equal(x.s->running, 0);
        assert_non_null(side_open(&x));
        side_done(&x);
        worker_free(w);
    }
}

static void goaway_refuses_what_is_younger_than_it_says(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    ask(&x, &get, true);
    ask(&x, &get, true);
    feed(&x, "goaway 3 0");
    check_events(&x, "idle\n3 closed refused\n");
    assert_null(side_open(&x));
    feed(&x, "headers 1 end|:status: 200");
    assert_int_equal(fake_end(x.c), FAKE_UP);
    feed(&x, "headers 3 end|:status: 201");
    check_events(&x, "idle\n3 closed refused\n1 200 end\n1 closed ok\n2 201 end\n2 closed ok\n"
                     "conn close ok\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void a_lost_connection_is_told_to_each(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    ask(&x, &get, true);
    feed(&x, "headers 3|:status: 200");
    fake_room(x.c, 0);
    tap_head(side_open(&x), &get, true);
    side_open(&x);
    fake_feed_error(x.c);
    fake_settle(w);
    check_events(&x, "idle\n2 200\nconn close origin-gone\n1 closed origin-gone\n2 closed "
                     "origin-gone\n3 closed refused\n4 closed refused\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void garbage_ends_the_session(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H2_CLIENT, NULL, &listening, NULL);
    fake_settle(w);
    side_feed(&x, STR("HTTP/1.1 400 Bad Request\r\n\r\n"), &(struct cuts){0});
    check_events(&x, "conn close origin-protocol\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void a_broken_connection_is_told_to_each(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    ask(&x, &get, true);
    feed(&x, "headers 1|:status: 200");
    feed(&x, "frame 5 4 1|1234:"); /* push, which we have turned off */
    check_events(&x, "idle\n1 200\n1 closed origin-protocol\n2 closed origin-protocol\nconn close "
                     "origin-protocol\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void draining_finishes_what_runs(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    x.s->ops->drain(x.s);
    assert_null(side_open(&x));
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    feed(&x, "headers 1 end|:status: 200");
    check_events(&x, "idle\n1 200 end\n1 closed ok\nconn close drain\nsession closed\n");
    check_output(&x, "goaway 0 0\n" GET1);
    side_done(&x);
    worker_free(w);
}

static void an_idle_session_drains_at_once(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    x.s->ops->drain(x.s);
    fake_settle(w);
    check_events(&x, "idle\nconn close drain\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void a_cancelled_request_is_reset(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    tap_cancel(side_tap(&x), WHY_CLIENT_GONE);
    fake_settle(w);
    feed(&x, "headers 1|:status: 200\ndata 1|late\ndata 1 end|answer");
    check_output(&x, GET1 "1 rst 8\n");
    check_events(&x, "idle\n1 cancel client-gone\nidle\n");
    side_done(&x);
    worker_free(w);
}

static void a_request_cancelled_before_it_was_written_leaves_nothing(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    struct tap *t = side_open(&x);
    tap_head(t, &get, true);
    tap_cancel(t, WHY_CLIENT_GONE);
    fake_settle(w);
    check_output(&x, "");
    ask(&x, &get, true);
    check_output(&x, "3 headers {:method: GET; :scheme: http; :authority: a; :path: /}\n3 end\n");
    side_done(&x);
    worker_free(w);
}

/* ---- limits */

static char block[1 << 20];

static void feed_head(struct side *x, uint32_t id, bool end, unsigned fields, size_t value)
{
    struct frames f = {0};
    char *head = mem_new(256 + fields * (value + 32)), *text = mem_new(value + 1);
    size_t n = frames_field(head, STR(":status"), STR("200"));
    memset(text, 'v', value);
    for (unsigned i = 0; i < fields; i++)
        n += frames_field(head + n, STR("x"), (struct str){text, value});
    assert_true(n <= 16384);
    frames_raw(&f, FRAME_HEADERS, end ? 5 : 4, id, head, n);
    side_feed(x, frames_str(&f), &(struct cuts){0});
    frames_done(&f);
    mem_free(head);
    mem_free(text);
}

static void an_answer_head_that_is_too_large_is_worth_nothing(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    feed_head(&x, 1, true, 1, 9000);
    check_events(&x, "idle\n1 closed origin-protocol\nidle\n");
    check_output(&x, GET1 "1 rst 1\n");
    side_done(&x);
    worker_free(w);
}

static void interim_answers_are_limited_together(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    ask(&x, &get, true);
    x.trace.quiet = true;
    for (int i = 0; i < 1000 && !side_tap(&x)->over; i++)
        feed(&x, "headers 1|:status: 103|link: </a>");
    assert_true(side_tap(&x)->over);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    side_done(&x);
    worker_free(w);
}

static void a_request_head_that_is_too_large_for_any_origin_is_not_tried_again(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    memset(block, 'v', 200000);
    struct field big = {STR("x"), {block, 200000}};
    struct http_head head = get;
    head.fields = &big;
    head.nfields = 1;
    ask(&x, &head, true);
    check_events(&x, "idle\n1 closed limit\nidle\n");
    check_output(&x, "");
    ask(&x, &get, true);
    side_done(&x);
    worker_free(w);
}

static void an_origin_cannot_flood_us(void **state)
{
    (void)state;
    static const char *const table[] = {"ping 12345678", "settings", "window 0 1", "data 1|",
                                        "priority 1"};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_client(&x, w, NULL, &listening, "settings");
        ask(&x, &get, true);
        feed(&x, "headers 1|:status: 200");
        for (int n = 0; n < 1000 && x.s; n++)
            feed(&x, table[i]);
        assert_null(x.s);
        assert_int_equal(frames_count(fake_written(x.c), true, FRAME_GOAWAY), 1);
        side_done(&x);
        worker_free(w);
    }
}

static void credit_holds_an_origin_back(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct frames f = {0};
    begin_client(&x, w, NULL, &listening, "settings");
    struct tap *t = ask(&x, &get, true);
    t->hold = true;
    feed(&x, "headers 1|:status: 200");
    for (int i = 0; i < 4; i++)
        frames_raw(&f, FRAME_DATA, 0, 1, block, 16384);
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    assert_int_equal(t->received, 65536);
    assert_int_equal(t->slices, 1); /* no copies of large pieces */
    assert_int_equal(frames_credit(fake_written(x.c), true, 1), 0);
    tap_credit_all(t);
    fake_settle(w);
    assert_int_equal(frames_credit(fake_written(x.c), true, 1), 65536 + 65536); /* and growth */
    frames_done(&f);
    side_done(&x);
    worker_free(w);
}

static void nothing_of_the_connections_window_is_lost(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    uint64_t given = 0;
    struct http_limits limits = side_h2_limits;
    limits.max_resets = 0;
    side_init(&x, w, H2_CLIENT, &limits, &listening, NULL);
    feed(&x, "settings\nsettings ack");
    for (uint32_t id = 1; id < 400; id += 2) {
        struct frames f = {0};
        char script[64];
        struct tap *t = ask(&x, &get, true);
        t->hold = true;
        snprintf(script, sizeof script, "headers %u|:status: 200", id);
        feed(&x, script);
        for (int i = 0; i < 3; i++)
            frames_raw(&f, FRAME_DATA, 0, id, block, 16384);
        side_feed(&x, frames_str(&f), &(struct cuts){0});
        given += 3 * 16384;
        frames_done(&f);
        snprintf(script, sizeof script, id % 4 == 1 ? "rst %u 2" : "data %u end|x", id);
        if (id % 8 == 3)
            tap_cancel(t, WHY_CLIENT_GONE);
        given += id % 4 == 1 ? 0 : 1;
        feed(&x, script);
        assert_true(t->over || t->cancelled);
    }
    uint64_t window = 65535 + frames_credit(fake_written(x.c), true, 0) - given;
    assert_in_range(window, 2 << 20, 4 << 20);
    side_done(&x);
    worker_free(w);
}

static void uploads_take_turns(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings 4=10000000 9=1\nwindow 0 10000000");
    fake_room(x.c, 0);
    for (int i = 0; i < 4; i++) {
        struct tap *t = ask(&x, &post, false);
        tap_data(t, (struct str){block, sizeof block});
    }
    for (int i = 0; i < 8; i++) {
        fake_room(x.c, 131072);
        fake_settle(w);
    }
    for (unsigned n = 1; n <= 4; n++)
        assert_in_range(side_stream(&x, n)->sent, 180000, 330000);
    side_done(&x);
    worker_free(w);
}

static void an_origin_that_only_fails_is_left(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_client(&x, w, NULL, &listening, "settings");
    x.trace.quiet = true;
    for (uint32_t id = 1; id < 200 && x.s; id += 2) {
        char script[64];
        if (!ask(&x, &get, true))
            break;
        snprintf(script, sizeof script, "rst %u 2", id);
        feed(&x, script);
    }
    assert_null(x.s);
    assert_in_range(x.n, side_h2_limits.max_resets, side_h2_limits.max_resets + 2);
    side_done(&x);
    worker_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_told_the_same_however_they_are_cut),
        cmocka_unit_test(requests_are_written),
        cmocka_unit_test(trailers_end_a_request),
        cmocka_unit_test(nothing_is_opened_before_the_origin_has_said_how_much_it_takes),
        cmocka_unit_test(an_origin_with_one_stream_serves_many_requests),
        cmocka_unit_test(a_window_may_turn_negative),
        cmocka_unit_test(extended_connect_is_known_when_announced),
        cmocka_unit_test(a_tunnel_is_open_both_ways),
        cmocka_unit_test(a_refused_tunnel_ends_our_side),
        cmocka_unit_test(an_early_answer_leaves_the_rest_to_the_user),
        cmocka_unit_test(goaway_refuses_what_is_younger_than_it_says),
        cmocka_unit_test(a_lost_connection_is_told_to_each),
        cmocka_unit_test(garbage_ends_the_session),
        cmocka_unit_test(a_broken_connection_is_told_to_each),
        cmocka_unit_test(draining_finishes_what_runs),
        cmocka_unit_test(an_idle_session_drains_at_once),
        cmocka_unit_test(a_cancelled_request_is_reset),
        cmocka_unit_test(a_request_cancelled_before_it_was_written_leaves_nothing),
        cmocka_unit_test(an_answer_head_that_is_too_large_is_worth_nothing),
        cmocka_unit_test(interim_answers_are_limited_together),
        cmocka_unit_test(a_request_head_that_is_too_large_for_any_origin_is_not_tried_again),
        cmocka_unit_test(an_origin_cannot_flood_us),
        cmocka_unit_test(credit_holds_an_origin_back),
        cmocka_unit_test(nothing_of_the_connections_window_is_lost),
        cmocka_unit_test(uploads_take_turns),
        cmocka_unit_test(an_origin_that_only_fails_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
