/* h2_limits_test.c — what an HTTP/2 server holds, sends and puts up with: windows that give back
 * what they take, turns between streams, the size of heads, floods, and how a connection that is
 * idle or drains comes to its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/h2side.h"

/* ---- windows */

static char block[1 << 20];

static uint64_t credit(const struct side *x, uint32_t id)
{
    return frames_credit(fake_written(x->c), false, id);
}

enum { CONNECTION_WINDOW = 4 << 20, FIRST_WINDOW = 65535 };

static void credit_opens_the_windows(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    assert_int_equal(credit(&x, 0), CONNECTION_WINDOW - FIRST_WINDOW);
    uint64_t first = credit(&x, 0);
    feed(&x, "post 1 /");
    side_tap(&x)->hold = true;
    feed_data(&x, 1, 65536, false);
    assert_int_equal(side_tap(&x)->received, 65536);
    assert_int_equal(credit(&x, 1), 0);
    tap_credit(side_tap(&x), 30000);
    fake_settle(w);
    assert_int_equal(credit(&x, 1), 0); /* less than half is not worth a frame */
    tap_credit(side_tap(&x), 10000);
    fake_settle(w);
    assert_int_equal(credit(&x, 1), 40000);
    assert_int_equal(credit(&x, 0), first);
    side_done(&x);
    worker_free(w);
}

static void more_than_the_window_ends_the_stream(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "post 1 /");
    side_tap(&x)->hold = true;
    feed_data(&x, 1, 65537, false);
    struct trace t;
    trace_init(&t);
    read_output(&x, &t);
    assert_string_equal(trace_text(&t), "1 rst 3\n");
    assert_true(side_tap(&x)->over);
    trace_done(&t);
    side_done(&x);
    worker_free(w);
}

static void a_window_grows_while_its_credit_comes_quickly(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_server(&x, w, NULL, &answering, &silent);
        feed(&x, "post 1 /");
        uint64_t given = 0;
        for (int i = 0; i < 32; i++) {
            feed_data(&x, 1, 32768, false);
            given += 32768;
            if (slow)
                fake_time(w, 20);
        }
        uint64_t window = 65536 + credit(&x, 1) - given;
        if (slow)
            assert_in_range(window, 32768, 65536);
        else
            assert_in_range(window, 131072, 262144);
        side_done(&x);
        worker_free(w);
    }
}

/* However streams end, what they took of the connection's window comes back. */
static void nothing_of_the_connections_window_is_lost(void **state)
{
    (void)state;
    enum { ENDS = 8, ROUNDS = 12, BYTES = 60000 };
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_h2_limits;
    limits.max_resets = 0;
    begin_server(&x, w, &limits, &answering, &silent);
    uint32_t id = 1;
    uint64_t given = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int how = 0; how < ENDS; how++, id += 2) {
            static const char *const begins[ENDS] = {
                [6] = "post #  /|content-length: 50000",
                [7] = "headers #|:method: CONNECT|:protocol: websocket|:scheme: http|:path: "
                      "/ws|:authority: a"};
            feed_for(&x, begins[how] ? begins[how] : "post # /", id);
            struct tap *t = side_tap(&x);
            t->hold = true;
            feed_data(&x, id, BYTES, how == 2);
            given += BYTES;
            if (how == 0) { /* the client resets */
                feed_for(&x, "rst # 8", id);
            } else if (how == 1) { /* we cancel */
                tap_cancel(t, WHY_ORIGIN_GONE);
            } else if (how == 2) { /* a good end without credit */
                tap_head(t, &empty.head, true);
            } else if (how == 3) { /* an early answer */
                tap_head(t, &empty.head, true);
                fake_settle(w);
                feed_data(&x, id, 1000, false);
                given += 1000;
            } else if (how == 4) { /* cut */
                tap_head(t, &unknown.head, false);
                tap_data(t, STR("x"));
                tap_cancel(t, WHY_ORIGIN_GONE);
            } else if (how == 5) { /* credited */
                tap_credit_all(t);
                tap_cancel(t, WHY_CLIENT_GONE);
            } else if (how == 7) { /* a refused tunnel */
                tap_head(t, &empty.head, true);
            }
            fake_settle(w);
            assert_true(t->over || t->cancelled);
        }
    }
    uint64_t window = FIRST_WINDOW + credit(&x, 0) - given;
    assert_in_range(window, CONNECTION_WINDOW / 2, CONNECTION_WINDOW);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    assert_int_equal(x.s->running, 0);
    side_done(&x);
    worker_free(w);
}

/* ---- what is sent */

static size_t data_bytes(const struct side *x, uint32_t id)
{
    struct trace t;
    char prefix[32];
    trace_init(&t);
    assert_true(frames_read(fake_written(x->c), false, false, &t));
    snprintf(prefix, sizeof prefix, "%u data ", id);
    const char *at = strstr(trace_text(&t), prefix);
    size_t n = at ? strcspn(at, "\n") - strlen(prefix) : 0;
    trace_done(&t);
    return n;
}

static void give(struct tap *t, size_t n)
{
    tap_head(t, &unknown.head, false);
    tap_data(t, (struct str){block, n});
}

static void a_large_answer_keeps_to_the_windows(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    memset(block, 'x', sizeof block);
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "get 1 /");
    give(side_tap(&x), 200000);
    tap_end(side_tap(&x), NULL);
    fake_settle(w);
    assert_int_equal(side_tap(&x)->sent, 65535);
    feed(&x, "window 1 1000000");
    assert_int_equal(side_tap(&x)->sent, 65535);
    feed(&x, "window 0 34465");
    assert_int_equal(side_tap(&x)->sent, 100000);
    feed(&x, "window 0 1000000");
    assert_true(side_tap(&x)->over);
    assert_int_equal(side_tap(&x)->sent, 200000);
    assert_int_equal(data_bytes(&x, 1), 200000);
    side_done(&x);
    worker_free(w);
}

static void a_slow_reader_stops_its_stream_only(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    memset(block, 'x', sizeof block);
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "settings 4=1000\nwindow 0 1000000\nget 1 /\nget 3 /");
    give(side_stream(&x, 1), 100000);
    give(side_stream(&x, 2), 100000);
    fake_settle(w);
    feed(&x, "window 3 1000000");
    assert_int_equal(side_stream(&x, 1)->sent, 1000);
    assert_int_equal(side_stream(&x, 2)->sent, 100000);
    side_done(&x);
    worker_free(w);
}

static void streams_take_turns(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    memset(block, 'x', sizeof block);
    begin_server(&x, w, NULL, &answering, &silent);
    fake_room(x.c, 0);
    feed(&x, "settings 4=10000000\nwindow 0 10000000\nget 1 /|priority: u=0\nget 3 /|priority: "
             "u=7, i\nget 5 /\nget 7 /");
    for (unsigned n = 1; n <= 4; n++)
        give(side_stream(&x, n), sizeof block);
    for (int i = 0; i < 8; i++) {
        fake_room(x.c, 131072);
        fake_settle(w);
    }
    for (unsigned n = 1; n <= 4; n++)
        assert_in_range(side_stream(&x, n)->sent, 180000, 330000);
    side_done(&x);
    worker_free(w);
}

static void no_more_is_made_than_the_kernel_takes(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "settings 4=10000000\nwindow 0 10000000\nget 1 /");
    fake_room(x.c, 1000);
    give(side_tap(&x), sizeof block);
    fake_settle(w);
    assert_int_equal(side_tap(&x)->sent, 0); /* of a batch that has not left in full */
    assert_in_range(conn_unsent(x.c), 1, 65536 + 16384);
    side_done(&x);
    worker_free(w);
}

/* ---- limits of heads */

static const char *fill_text(char *to, size_t n)
{
    memset(to, 'v', n);
    to[n] = '\0';
    return to;
}

static void request_of(struct frames *f, uint32_t id, bool end, unsigned fields, size_t value)
{
    char *head = mem_new(256 + fields * (value + 32)), *text = mem_new(value + 1);
    size_t n = frames_field(head, STR(":method"), STR("GET")), at = 0;
    n += frames_field(head + n, STR(":scheme"), STR("http"));
    n += frames_field(head + n, STR(":authority"), STR("a"));
    n += frames_field(head + n, STR(":path"), STR("/"));
    for (unsigned i = 0; i < fields; i++)
        n += frames_field(head + n, STR("x"), str_of(fill_text(text, value)));
    for (unsigned flags = end; at < n; flags = 0) {
        size_t piece = n - at < 16384 ? n - at : 16384;
        frames_raw(f, at == 0 ? FRAME_HEADERS : FRAME_CONTINUATION,
                   flags | (at + piece == n ? 4 : 0), id, head + at, piece);
        at += piece;
    }
    mem_free(head);
    mem_free(text);
}

static void feed_request(struct side *x, uint32_t id, bool end, unsigned fields, size_t value)
{
    struct frames f = {0};
    request_of(&f, id, end, fields, value);
    side_feed(x, frames_str(&f), &(struct cuts){0});
    frames_done(&f);
}

static void a_head_that_is_too_large_is_answered_431(void **state)
{
    (void)state;
    static const struct {
        unsigned fields;
        size_t value;
    } table[] = {{1, 8192}, {300, 0}, {2, 5000}, {300, 60}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_server(&x, w, NULL, &answering, &plain);
        feed_request(&x, 1, false, table[i].fields, table[i].value);
        check_events(&x, "1 accept\n1 fault 431 message head too large\n1 closed ok\n");
        feed(&x, "data 1|body\nget 3 /");
        check_output(&x, "1 headers {:status: 431}\n1 end\n1 rst 0\n" OK2("3"));
        side_done(&x);
        worker_free(w);
    }
}

static void a_head_just_below_the_limit_is_read(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &plain);
    feed_request(&x, 1, true, 1, 8192 - 33 - (4 * 32 + 10 + 3 + 11 + 4 + 5 + 1 + 7 - 2));
    assert_non_null(strstr(trace_text(&x.trace), "1 GET /"));
    check_output(&x, OK2("1"));
    side_done(&x);
    worker_free(w);
}

static void trailers_that_are_too_large_are_a_fault(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct frames f = {0};
    begin_server(&x, w, NULL, &answering, &plain);
    feed(&x, "post 1 /\ndata 1|abc");
    size_t n = frames_field(block, STR("x"), (struct str){block + 32768, 9000});
    memset(block + 32768, 'v', 9000);
    n = frames_field(block, STR("x"), (struct str){block + 32768, 9000});
    frames_raw(&f, FRAME_HEADERS, 5, 1, block, n);
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    check_events(&x, "1 accept\n1 POST / host=a\n1 data abc\n1 fault 431 trailer section too "
                     "large\n1 closed ok\n");
    check_output(&x, "1 headers {:status: 431}\n1 end\n");
    frames_done(&f);
    side_done(&x);
    worker_free(w);
}

static void the_heads_of_a_connection_are_limited_together(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    for (uint32_t i = 0; i < 6; i++)
        feed_request(&x, 2 * i + 1, true, 1, 7500);
    for (unsigned n = 1; n <= 4; n++)
        assert_non_null(side_stream(&x, n)->head);
    assert_null(side_stream(&x, 5)->head);
    assert_true(side_stream(&x, 5)->got_fault && side_stream(&x, 6)->got_fault);
    for (unsigned n = 1; n <= 6; n++)
        tap_head(side_stream(&x, n), &empty.head, true);
    fake_settle(w);
    feed_request(&x, 13, true, 1, 7500); /* they are gone */
    assert_non_null(side_stream(&x, 7)->head);
    side_done(&x);
    worker_free(w);
}

/* A field of 4000 bytes, indexed once, named by one byte thousands of times. */
static void an_index_bomb_ends_its_stream(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct frames f = {0};
    begin_server(&x, w, NULL, &answering, &plain);
    size_t n = frames_field(block, STR(":method"), STR("GET"));
    n += frames_field(block + n, STR(":scheme"), STR("http"));
    n += frames_field(block + n, STR(":authority"), STR("a"));
    n += frames_field(block + n, STR(":path"), STR("/"));
    memset(block + 40000, 'v', 4000);
    block[n] = 0x40; /* with incremental indexing */
    size_t m = frames_field(block + 20000, STR("x"), (struct str){block + 40000, 4000});
    memcpy(block + n + 1, block + 20001, m - 1);
    n += m;
    memset(block + n, 0x80 | 62, 10000);
    n += 10000;
    frames_raw(&f, FRAME_HEADERS, 5, 1, block, n);
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    check_events(&x, "1 accept\n1 closed client-protocol\n");
    check_output(&x, "1 rst 11\n");
    feed(&x, "get 3 /");
    check_output(&x, "1 rst 11\n" OK2("3"));
    frames_done(&f);
    side_done(&x);
    worker_free(w);
}

static void a_field_above_64_kib_ends_the_connection(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_h2_limits;
    limits.max_head_bytes = 1 << 20;
    begin_server(&x, w, &limits, &answering, &plain);
    feed_request(&x, 1, true, 10, 60000);
    assert_non_null(strstr(trace_text(&x.trace), "1 closed ok\n"));
    feed_request(&x, 3, true, 1, 70000);
    assert_int_equal(frames_count(fake_written(x.c), false, FRAME_GOAWAY), 1);
    assert_int_equal(fake_end(x.c), FAKE_FIN);
    side_done(&x);
    worker_free(w);
}

static void a_head_is_not_read_without_memory(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_h2_limits;
    limits.max_head_bytes = 65536;
    limits.max_memory = 1;
    begin_server(&x, w, &limits, &answering, &plain);
    feed(&x, "get 1 /");
    feed_request(&x, 3, true, 10, 1000);
    assert_non_null(strstr(trace_text(&x.trace), "1 GET / host=a end\n"));
    assert_non_null(strstr(trace_text(&x.trace), "2 fault 503 out of memory for message heads\n"));
    side_done(&x);
    worker_free(w);
}

static void an_answer_head_that_is_too_large_ends_its_stream(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "get 1 /");
    memset(block, 'v', 200000);
    struct field big = {STR("x"), {block, 200000}};
    struct http_head head = {.status = 200, .length = -1, .fields = &big, .nfields = 1};
    tap_head(side_tap(&x), &head, false);
    fake_settle(w);
    check_output(&x, "1 rst 2\n");
    check_events(&x, "1 accept\n1 GET / host=a end\n1 closed limit\n");
    side_done(&x);
    worker_free(w);
}

static void an_incomplete_head_can_be_answered(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "headers 1 part|:method: GET|:scheme: http");
    tap_head(side_tap(&x), &(struct http_head){.status = 408, .length = -1}, true);
    fake_settle(w);
    check_events(&x, "1 accept\n1 closed ok\n");
    feed(&x, "continuation 1|:authority: a|:path: /");
    check_output(&x, "1 headers {:status: 408}\n1 end\n1 rst 0\n");
    assert_int_equal(fake_end(x.c), FAKE_UP);
    side_done(&x);
    worker_free(w);
}

/* ---- floods (H2-02, H2-03) */

static void repeat(struct side *x, const char *script, unsigned times)
{
    for (unsigned i = 0; i < times && x->s && fake_end(x->c) == FAKE_UP; i++)
        feed_for(x, script, 2 * i + 1);
}

static void floods_end_the_connection(void **state)
{
    (void)state;
    static const struct {
        const char *name, *before, *script;
        unsigned times;
    } table[] = {
        {"rapid reset", "", "get # /\nrst # 8", 100},
        {"malformed requests", "", "headers # end|:method: GET|x: y", 100},
        {"DATA on streams that we have answered", "post 1 /", "data 1|", 1000},
        {"SETTINGS", "", "settings", 1000},
        {"PING", "", "ping 12345678", 1000},
        {"empty DATA", "post 1 /", "data 1|", 1000},
        {"WINDOW_UPDATE", "get 1 /", "window 1 1", 1000},
        {"WINDOW_UPDATE of the connection", "", "window 0 1", 1000},
        {"PRIORITY", "", "priority #", 1000},
        {"CONTINUATION", "headers 1 part|:method: GET", "continuation 1 part|x: y", 1000},
        {"resets of what is closed", "get 1 /\nrst 1 8", "rst 1 8", 1000},
        {"GOAWAY", "get 1 /", "goaway 0 0", 1000},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        struct trace t;
        begin_server(&x, w, NULL, &answering, &silent);
        feed(&x, table[i].before);
        x.trace.quiet = true;
        repeat(&x, table[i].script, table[i].times);
        trace_init(&t);
        read_output(&x, &t);
        const char *goaway = strstr(trace_text(&t), "goaway");
        if (!goaway || !strstr(goaway, " 11\n"))
            print_error("%s:\n%.500s", table[i].name, trace_text(&t));
        assert_non_null(goaway);
        assert_non_null(strstr(goaway, " 11\n"));
        assert_int_equal(fake_end(x.c), FAKE_FIN);
        assert_in_range(x.n, 0, side_h2_limits.max_resets + 2);
        fake_time(w, 6000);
        assert_null(x.s);
        trace_done(&t);
        side_done(&x);
        worker_free(w);
    }
}

static void what_is_useful_pays_for_what_is_not(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &plain);
    x.trace.quiet = true;
    for (unsigned i = 0; i < 300; i++) {
        char script[256];
        unsigned id = 4 * i + 1;
        snprintf(script, sizeof script,
                 "get %u /\npost %u /\nrst %u 8\nping 12345678\nwindow 0 1\nwindow 0 1", id, id + 2,
                 id + 2);
        feed(&x, script);
    }
    assert_int_equal(x.n, 600);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    side_done(&x);
    worker_free(w);
}

static void answers_to_frames_do_not_pile_up(void **state)
{
    (void)state;
    enum { PINGS = 20000 };
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_h2_limits;
    limits.max_control = 0;
    begin_server(&x, w, &limits, &answering, &plain);
    fake_room(x.c, 0);
    struct frames f = {0};
    for (int i = 0; i < PINGS; i++)
        frames_add(&f, "ping 12345678");
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    frames_done(&f);
    assert_true(fake_unread(x.c) > PINGS / 2 * 17);
    assert_in_range(worker_held(w), 0, 600000);
    fake_room(x.c, SIZE_MAX);
    fake_settle(w);
    assert_int_equal(fake_unread(x.c), 0);
    assert_int_equal(frames_count(fake_written(x.c), false, FRAME_PING), PINGS);
    side_done(&x);
    worker_free(w);
}

static void more_streams_than_were_granted_are_refused(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct frames f = {0};
    struct http_limits limits = side_h2_limits;
    limits.max_streams = 3;
    side_init(&x, w, H2_SERVER, &limits, &answering, (void *)(uintptr_t)&silent);
    frames_add(&f, "preface\nsettings\nget 1 /\nget 3 /\nget 5 /\nget 7 /");
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    assert_int_equal(x.n, 3);
    struct trace t;
    trace_init(&t);
    assert_true(frames_read(fake_written(x.c), false, false, &t));
    assert_non_null(strstr(trace_text(&t), "\n7 rst 7\n"));
    trace_clear(&t);
    feed(&x, "settings ack\nget 9 /"); /* now it knows */
    assert_int_equal(x.n, 3);
    assert_true(frames_read(fake_written(x.c), false, false, &t));
    assert_non_null(strstr(trace_text(&t), "goaway 5 1\n"));
    trace_done(&t);
    frames_done(&f);
    side_done(&x);
    worker_free(w);
}

/* ---- draining and idling */

static void draining_names_the_last_stream_after_a_round_trip(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_server(&x, w, NULL, &answering, &silent);
        feed(&x, "get 1 /");
        x.s->ops->drain(x.s);
        fake_settle(w);
        struct trace t;
        trace_init(&t);
        read_output(&x, &t);
        assert_int_equal(strncmp(trace_text(&t), "goaway 2147483647 0\nping drain", 30), 0);
        trace_done(&t);
        feed(&x, "get 3 /"); /* was on its way */
        assert_int_equal(x.n, 2);
        if (late) {
            fake_time(w, 1200);
        } else {
            struct frames f = {0};
            frames_raw(&f, FRAME_PING, 1, 0, "drain\0\0", 8);
            side_feed(&x, frames_str(&f), &(struct cuts){0});
            frames_done(&f);
        }
        feed(&x, "get 5 /"); /* too late */
        assert_int_equal(x.n, 2);
        tap_head(side_stream(&x, 1), &empty.head, true);
        fake_settle(w);
        assert_int_equal(fake_end(x.c), FAKE_UP);
        tap_head(side_stream(&x, 2), &empty.head, true);
        fake_settle(w);
        assert_int_equal(fake_end(x.c), FAKE_FIN);
        trace_init(&t);
        read_output(&x, &t);
        assert_non_null(strstr(trace_text(&t), "goaway 3 0\n1 headers"));
        trace_done(&t);
        fake_feed_eof(x.c);
        fake_settle(w);
        assert_null(x.s);
        side_done(&x);
        worker_free(w);
    }
}

static void what_begins_after_the_last_stream_was_named_is_refused(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_h2_limits;
    limits.drain_idle_ms = 0; /* no round trip */
    begin_server(&x, w, &limits, &answering, &silent);
    feed(&x, "get 1 /");
    fake_room(x.c, 0);
    feed(&x, "ping 12345678");
    x.s->ops->drain(x.s);
    feed(&x, "get 3 /"); /* our GOAWAY has not left yet */
    assert_int_equal(x.n, 1);
    fake_room(x.c, SIZE_MAX);
    fake_settle(w);
    check_output(&x, "ping ack 12345678\ngoaway 1 0\n3 rst 7\n");
    side_done(&x);
    worker_free(w);
}

static void an_idle_connection_drains_after_a_round_trip(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    x.s->ops->drain(x.s);
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    fake_time(w, 1200);
    assert_int_equal(fake_end(x.c), FAKE_FIN);
    fake_time(w, 5200);
    check_events(&x, "conn fin\nconn close drain\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void an_idle_connection_ends_in_time(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &plain);
    fake_time(w, 50000);
    feed(&x, "get 1 /");
    fake_time(w, 50000);
    feed(&x, "ping 12345678"); /* is no request */
    assert_int_equal(fake_end(x.c), FAKE_UP);
    fake_time(w, 11000);
    assert_int_equal(fake_end(x.c), FAKE_FIN);
    check_output(&x, "ping ack 12345678\ngoaway 1 0\n" OK2("1"));
    side_done(&x);
    worker_free(w);
}

static void a_running_stream_keeps_the_connection(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "get 1 /");
    fake_time(w, 200000);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    side_done(&x);
    worker_free(w);
}

static void a_client_that_says_goaway_is_served_to_the_end(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "get 1 /\ngoaway 0 0");
    assert_int_equal(fake_end(x.c), FAKE_UP);
    tap_head(side_tap(&x), &empty.head, true);
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_FIN);
    check_output(&x, "goaway 1 0\n1 headers {:status: 200}\n1 end\n");
    side_done(&x);
    worker_free(w);
}

/* ---- what must not be remembered */

static void secrets_never_enter_the_compression_table(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    size_t sizes[3];
    for (uint32_t i = 0; i < 3; i++) {
        char script[32];
        struct field fields[] = {{STR("set-cookie"), STR("s=0123456789012345678901234567890123")},
                                 {STR("x-plain"), STR("0123456789012345678901234567890123456")}};
        struct http_head head = {
            .status = 200, .length = -1, .fields = fields + i / 2, .nfields = 1};
        size_t before = fake_written(x.c).n;
        snprintf(script, sizeof script, "get %u /", 2 * i + 1);
        feed(&x, script);
        tap_head(side_tap(&x), &head, true);
        fake_settle(w);
        sizes[i] = fake_written(x.c).n - before;
    }
    assert_in_range(sizes[1], sizes[0] - 1, sizes[0]); /* said in full again */
    side_done(&x);
    worker_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credit_opens_the_windows),
        cmocka_unit_test(more_than_the_window_ends_the_stream),
        cmocka_unit_test(a_window_grows_while_its_credit_comes_quickly),
        cmocka_unit_test(nothing_of_the_connections_window_is_lost),
        cmocka_unit_test(a_large_answer_keeps_to_the_windows),
        cmocka_unit_test(a_slow_reader_stops_its_stream_only),
        cmocka_unit_test(streams_take_turns),
        cmocka_unit_test(no_more_is_made_than_the_kernel_takes),
        cmocka_unit_test(a_head_that_is_too_large_is_answered_431),
        cmocka_unit_test(a_head_just_below_the_limit_is_read),
        cmocka_unit_test(trailers_that_are_too_large_are_a_fault),
        cmocka_unit_test(the_heads_of_a_connection_are_limited_together),
        cmocka_unit_test(an_index_bomb_ends_its_stream),
        cmocka_unit_test(a_field_above_64_kib_ends_the_connection),
        cmocka_unit_test(a_head_is_not_read_without_memory),
        cmocka_unit_test(an_answer_head_that_is_too_large_ends_its_stream),
        cmocka_unit_test(an_incomplete_head_can_be_answered),
        cmocka_unit_test(floods_end_the_connection),
        cmocka_unit_test(what_is_useful_pays_for_what_is_not),
        cmocka_unit_test(answers_to_frames_do_not_pile_up),
        cmocka_unit_test(more_streams_than_were_granted_are_refused),
        cmocka_unit_test(draining_names_the_last_stream_after_a_round_trip),
        cmocka_unit_test(what_begins_after_the_last_stream_was_named_is_refused),
        cmocka_unit_test(an_idle_connection_drains_after_a_round_trip),
        cmocka_unit_test(an_idle_connection_ends_in_time),
        cmocka_unit_test(a_running_stream_keeps_the_connection),
        cmocka_unit_test(a_client_that_says_goaway_is_served_to_the_end),
        cmocka_unit_test(secrets_never_enter_the_compression_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
