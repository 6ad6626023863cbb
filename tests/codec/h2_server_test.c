/* h2_server_test.c — the HTTP/2 server codec over a fake connection: what is told and what is
 * written must not depend on how the bytes were cut; windows give back what they take; every way to
 * end a stream or the connection ends just that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/h2side.h"

/* ---- one input, one text */

struct exchange {
    const char *name;
    const char *input; /* after the preface and its SETTINGS */
    const struct script *script;
    const char *events, *output; /* output: without our SETTINGS and the ACK of theirs */
};

struct run {
    const struct exchange *e;
    struct frames input;
};

static void run_exchange(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct run *r = arg;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H2_SERVER, NULL, &answering,
              (void *)(uintptr_t)(r->e->script ? r->e->script : &plain));
    side_feed(&x, frames_str(&r->input), cuts);
    for (unsigned i = 0; i < x.n; i++)
        if (!x.taps[i].over)
            tap_flush(&x.taps[i]);
    lines_by_stream(&x.trace);
    trace_add(&ret->events, str_of(trace_text(&x.trace)));
    read_output(&x, &ret->output);
    side_done(&x);
    worker_free(w);
}

static void check(const struct exchange *e)
{
    struct outcome o;
    struct run r = {.e = e};
    frames_add(&r.input, "preface\nsettings");
    frames_add(&r.input, e->input);
    same_however_cut(run_exchange, &r, r.input.n, &o);
    check_text(e->name, trace_text(&o.events), e->events);
    check_text(e->name, trace_text(&o.output), e->output);
    outcome_done(&o);
    frames_done(&r.input);
}

static struct field link_field[] = {{{"Link", 4}, {"</a.css>", 8}}};
static struct field trailer_field[] = {{{"X-Sum", 5}, {"9", 1}}};
static const struct http_head early_hints = {
    .status = 103, .length = -1, .fields = link_field, .nfields = 1};
static const struct http_head go_on = {.status = 100, .length = -1};
static const struct http_head sum = {.length = -1, .fields = trailer_field, .nfields = 1};

static const struct script with_sum = {
    .head = {.status = 200, .length = -1}, .body = "hello", .trailers = &sum};
static const struct script only_sum = {
    .head = {.status = 200, .length = -1}, .body = "", .trailers = &sum};
static const struct script no_content = {.head = {.status = 204, .length = -1}, .body = "stray"};
static const struct script not_modified = {.head = {.status = 304, .length = 5}, .body = "stray"};
static const struct script hints = {
    .interim = &early_hints, .head = {.status = 200, .length = 2}, .body = "ok"};
static const struct script continuing = {
    .interim = &go_on, .head = {.status = 200, .length = 2}, .body = "ok"};
static const struct script refusing = {.head = {.status = 403, .length = 2}, .body = "no"};
static const struct script early = {
    .when = AT_HEAD, .head = {.status = 413, .length = 2}, .body = "no"};
static const struct script granting = {
    .when = AT_HEAD, .head = {.status = 101, .length = -1}, .body = "hi", .open = true};
static const struct script granting_end = {
    .when = AT_HEAD, .head = {.status = 101, .length = -1}, .body = "hi"};

static void requests_are_told_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const struct exchange table[] = {
        {"a plain request", "get 1 /a?b=c|x-a: 1|x-a: 2", NULL,
         "1 accept\n1 GET /a?b=c host=a {x-a: 1; x-a: 2} end\n1 closed ok\n", OK2("1")},
        {"many requests at once", "get 1 /1\npost 3 /3\nget 5 /5\ndata 3 end|abc", NULL,
         "1 accept\n1 GET /1 host=a end\n1 closed ok\n2 accept\n2 POST /3 host=a\n2 data abc\n2 "
         "end\n2 "
         "closed ok\n3 accept\n3 GET /5 host=a end\n3 closed ok\n",
         OK2("1") OK2("3") OK2("5")},
        {"a body with its length", "post 1 /|content-length: 11\ndata 1|hello\ndata 1 end| there",
         NULL, "1 accept\n1 POST / host=a length=11\n1 data hello there\n1 end\n1 closed ok\n",
         OK2("1")},
        {"a body that ends with nothing", "post 1 /\ndata 1|hello\ndata 1 end", NULL,
         "1 accept\n1 POST / host=a\n1 data hello\n1 end\n1 closed ok\n", OK2("1")},
        {"padding is no body", "post 1 /\nframe 0 8 1|\3abc000\nframe 0 9 1|\1d0", NULL,
         "1 accept\n1 POST / host=a\n1 data abcd\n1 end\n1 closed ok\n", OK2("1")},
        {"trailers", "post 1 /\ndata 1|hello\nheaders 1 end|x-t: 1|x-u: ", NULL,
         "1 accept\n1 POST / host=a\n1 data hello\n1 end {x-t: 1; x-u: }\n1 closed ok\n", OK2("1")},
        {"trailers without a body", "post 1 /\nheaders 1 end|x-t: 1", NULL,
         "1 accept\n1 POST / host=a\n1 end {x-t: 1}\n1 closed ok\n", OK2("1")},
        {"a head in pieces",
         "headers 1 end part|:method: GET|:scheme: http\ncontinuation 1 part|:authority: a|:path: "
         "/\ncontinuation 1|x-a: 1",
         NULL, "1 accept\n1 GET / host=a {x-a: 1} end\n1 closed ok\n", OK2("1")},
        {"te: trailers is passed on", "get 1 /|te: trailers", NULL,
         "1 accept\n1 GET / host=a te end\n1 closed ok\n", OK2("1")},
        {"an answer of unknown length", "get 1 /", &unknown,
         "1 accept\n1 GET / host=a end\n1 closed ok\n",
         "1 headers {:status: 200}\n1 data hello\n1 end\n"},
        {"trailers end an answer", "get 1 /", &with_sum,
         "1 accept\n1 GET / host=a end\n1 closed ok\n",
         "1 headers {:status: 200}\n1 data hello\n1 headers {x-sum: 9}\n1 end\n"},
        {"trailers and no body", "get 1 /", &only_sum,
         "1 accept\n1 GET / host=a end\n1 closed ok\n",
         "1 headers {:status: 200}\n1 headers {x-sum: 9}\n1 end\n"},
        {"an answer without a body", "get 1 /", &empty,
         "1 accept\n1 GET / host=a end\n1 closed ok\n", "1 headers {:status: 200}\n1 end\n"},
        {"HEAD has a length and no body",
         "headers 1 end|:method: HEAD|:scheme: http|:authority: a|:path: /", NULL,
         "1 accept\n1 HEAD / host=a end\n1 closed ok\n",
         "1 headers {:status: 200; content-length: 2}\n1 end\n"},
        {"204 has neither", "get 1 /", &no_content, "1 accept\n1 GET / host=a end\n1 closed ok\n",
         "1 headers {:status: 204}\n1 end\n"},
        {"304 has no body", "get 1 /", &not_modified, "1 accept\n1 GET / host=a end\n1 closed ok\n",
         "1 headers {:status: 304; content-length: 5}\n1 end\n"},
        {"1xx comes first and ends nothing", "get 1 /", &hints,
         "1 accept\n1 GET / host=a end\n1 closed ok\n",
         "1 headers {:status: 103; link: </a.css>}\n" OK2("1")},
        {"100 asks for the body", "post 1 /|expect: 100-continue\ndata 1 end|abc", &continuing,
         "1 accept\n1 POST / host=a expect {expect: 100-continue}\n1 data abc\n1 end\n1 closed "
         "ok\n",
         "1 headers {:status: 100}\n" OK2("1")},
        {"an upgrade is a tunnel", WS "\ndata 1|abc\ndata 1|def\ndata 1 end", &granting,
         "1 accept\n1 GET /ws host=a protocol=websocket end\n1 data abcdef\n1 end\n",
         "1 headers {:status: 200}\n1 data hi\n"},
        {"both ends of a tunnel", WS "\ndata 1|abc\ndata 1 end", &granting_end,
         "1 accept\n1 GET /ws host=a protocol=websocket end\n1 data abc\n1 end\n1 closed ok\n",
         "1 headers {:status: 200}\n1 data hi\n1 end\n"},
        {"the server's end of a tunnel leaves the client's open", WS "\ndata 1|abc", &granting_end,
         "1 accept\n1 GET /ws host=a protocol=websocket end\n1 data abc\n",
         "1 headers {:status: 200}\n1 data hi\n1 end\n"},
        {"trailers are no part of a tunnel", WS "\ndata 1|abc\nheaders 1 end|x-t: 1", &granting,
         "1 accept\n1 GET /ws host=a protocol=websocket end\n1 data abc\n1 end\n",
         "1 headers {:status: 200}\n1 data hi\n"},
        {"a request for a tunnel that ends at once",
         "headers 1 end|:method: CONNECT|:protocol: websocket|:scheme: http|:path: /|:authority: a",
         &granting_end, "1 accept\n1 GET / host=a protocol=websocket end\n1 end\n1 closed ok\n",
         "1 headers {:status: 200}\n1 data hi\n1 end\n"},
        {"an upgrade to anything else is not served",
         "headers 1|:method: CONNECT|:protocol: chat|:scheme: http|:path: /|:authority: a",
         &refusing, "1 accept\n1 fault 501 unknown protocol\n1 closed ok\n",
         "1 headers {:status: 501}\n1 end\n1 rst 0\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(&table[i]);
}

/* ---- what is broken ends its stream and nothing else */

static void malformed_requests_end_their_stream(void **state)
{
    (void)state;
#define REQ ":method: GET|:scheme: http|:authority: a|:path: /"
    static const char *const table[] = {
        "headers 1 end|" REQ "|connection: close",
        "headers 1 end|" REQ "|upgrade: h2c",
        "headers 1 end|" REQ "|keep-alive: 5",
        "headers 1 end|" REQ "|proxy-connection: x",
        "headers 1 end|" REQ "|transfer-encoding: ",
        "headers 1 end|" REQ "|transfer-encoding: chunked",
        "headers 1 end|" REQ "|content-length: 1|content-length: 2",
        "headers 1 end|" REQ "|content-length: 5",
        "headers 1|" REQ "|content-length: 10\ndata 1 end|abc",
        "headers 1|" REQ "|content-length: 2\ndata 1 end|abc",
        "headers 1|" REQ "|content-length: 10\ndata 1|abc\nheaders 1 end|x: y",
        "headers 1|" REQ "|content-length: -1",
        "headers 1 end|" REQ "|: x",
        "headers 1 end|" REQ "|a\x7f: x",
        "headers 1 end|" REQ "|a\xc3\xa9: x",
        "headers 1 end|" REQ "|A: x",
        "headers 1 end|" REQ "|a: x\ry",
        "headers 1 end|" REQ "|a: x\t",
        "headers 1 end|" REQ "|a:  x",
        "headers 1 end|" REQ "|te: gzip",
        "headers 1 end|" REQ "|host: b",
        "headers 1 end|" REQ "|:path: /",
        "headers 1 end|" REQ "|:foo: x",
        "headers 1 end|" REQ "|:status: 200",
        "headers 1 end|" REQ "|x: y|:authority: a",
        "headers 1 end|:method: GET|:scheme: http|:authority: a|:path: x",
        "headers 1 end|:method: GET|:scheme: http|:authority: a|:path: *",
        "headers 1 end|:method: GET|:scheme: http|:authority: a|:path: /a\tb",
        "headers 1 end|:method: GET|:scheme: http|:authority: a|:path: ",
        "headers 1 end|:method: GE(T|:scheme: http|:authority: a|:path: /",
        "headers 1 end|:method: GET|:authority: a|:path: /",
        "headers 1 end|:scheme: http|:authority: a|:path: /",
        "headers 1 end|:method: GET|:scheme: http|:authority: a@b|:path: /",
        "headers 1 end|:method: GET|:scheme: http|:authority: a/b|:path: /",
        "headers 1 end|:method: GET|:scheme: http|:path: /",
        "headers 1 end|:method: GET|:protocol: websocket|:scheme: http|:authority: a|:path: /",
        "headers 1|:method: CONNECT|:scheme: http|:authority: a|:path: /",
        "headers 1|" REQ "\nheaders 1|x: y",
        "headers 1|" REQ "\nheaders 1 end|:path: /",
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        struct trace out;
        begin_server(&x, w, NULL, &answering, &plain);
        feed(&x, table[i]);
        feed(&x, "get 3 /");
        trace_init(&out);
        read_output(&x, &out);
        if (!side_stream(&x, 1)->over ||
            !strstr(trace_text(&x.trace), "1 closed client-protocol") ||
            strcmp(trace_text(&out), "1 rst 1\n" OK2("3")) != 0)
            print_error("for %s:\n%s%s", table[i], trace_text(&x.trace), trace_text(&out));
        assert_string_equal(trace_text(&out), "1 rst 1\n" OK2("3"));
        assert_non_null(strstr(trace_text(&x.trace), "1 closed client-protocol\n"));
        assert_int_equal(fake_end(x.c), FAKE_UP);
        trace_done(&out);
        side_done(&x);
        worker_free(w);
    }
}

/* A line feed in a value cannot be said in a script. */
static void a_line_feed_in_a_value_ends_its_stream(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct frames f = {0};
    char block[256];
    size_t n = frames_field(block, STR(":method"), STR("GET"));
    n += frames_field(block + n, STR(":scheme"), STR("http"));
    n += frames_field(block + n, STR(":authority"), STR("a"));
    n += frames_field(block + n, STR(":path"), STR("/"));
    n += frames_field(block + n, STR("x"), STR("a\nb"));
    begin_server(&x, w, NULL, &answering, &plain);
    frames_raw(&f, FRAME_HEADERS, 5, 1, block, n);
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    check_events(&x, "1 accept\n1 closed client-protocol\n");
    frames_done(&f);
    side_done(&x);
    worker_free(w);
}

/* ---- what breaks the connection */

static void broken_connections_end_with_goaway(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        unsigned code;
    } table[] = {
        {"data 1 end|x", 1},         /* idle stream */
        {"rst 1 8", 1},              /* idle stream */
        {"window 1 5", 1},           /* idle stream */
        {"get 2 /", 1},              /* not a client's id */
        {"get 5 /\nget 3 /", 1},     /* H2-05 */
        {"get 1 /\nget 1 /", 5},     /* closed, seen half-closed */
        {"frame 2 0 0|12345", 1},    /* PRIORITY of no stream */
        {"frame 3 0 1|123", 6},      /* RST_STREAM of three bytes */
        {"frame 7 0 1|12345678", 1}, /* GOAWAY of a stream */
        {"get 1 /\ndata 1|x", 5},    /* half-closed */
        {"get 1 /\nrst 0 8", 1},
        {"frame 1 37 1|\x80", 6},                          /* a priority cut off */
        {"frame 4 0 1|", 1},                               /* SETTINGS on a stream */
        {"frame 4 1 0|123456", 6},                         /* ACK with a payload */
        {"frame 4 0 0|12345", 6},                          /* no multiple of six */
        {"settings 2=2", 1},                               /* ENABLE_PUSH 2 */
        {"settings 4=4294967295", 3},                      /* window over 2^31-1 */
        {"frame 6 0 0|123", 6},                            /* PING of three bytes */
        {"window 0 0", 1},                                 /* no increment */
        {"window 0 2147483647", 3},                        /* overflow */
        {"frame 5 4 1|1234", 1},                           /* PUSH_PROMISE of a client */
        {"continuation 1|x: y", 1},                        /* of nothing */
        {"headers 1 part|:method: GET\nping 12345678", 1}, /* something between */
        {"frame 1 5 1|\xff\xff\xff\xff", 9},               /* compression */
        {"post 1 /\nframe 0 8 1|\x20"
         "abc",
         1}, /* more padding than payload */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        struct trace out;
        char expected[64];
        begin_server(&x, w, NULL, &answering, &silent);
        feed(&x, table[i].script);
        trace_init(&out);
        read_output(&x, &out);
        snprintf(expected, sizeof expected, " %u\n", table[i].code);
        const char *goaway = strstr(trace_text(&out), "goaway ");
        if (!goaway || !strstr(goaway, expected))
            print_error("for %s:\n%s%s", table[i].script, trace_text(&x.trace), trace_text(&out));
        assert_non_null(goaway);
        assert_non_null(strstr(goaway, expected));
        assert_int_equal(fake_end(x.c), FAKE_FIN);
        for (unsigned n = 1; n <= x.n; n++)
            assert_true(side_stream(&x, n)->over);
        feed(&x, "get 101 /"); /* nobody listens */
        fake_feed_eof(x.c);
        fake_settle(w);
        assert_int_equal(fake_end(x.c), FAKE_CLOSED);
        trace_done(&out);
        side_done(&x);
        worker_free(w);
    }
}

static void an_unknown_preface_ends_the_connection(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H2_SERVER, NULL, &answering, (void *)(uintptr_t)&plain);
    side_feed(&x, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), &(struct cuts){0});
    check_events(&x, "conn fin\n");
    fake_time(w, 6000);
    check_events(&x, "conn fin\nconn close client-protocol\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void odd_but_legal_frames_are_tolerated(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &plain);
    feed(&x, "priority 3\npriority 5\npriority 7\npriority 9\npriority 11\nping ack 87654321\n"
             "frame 66 255 0|whatever\nframe 66 255 77|whatever\nget 5 /");
    feed(&x, "window 5 10\nrst 5 8\n"
             "frame 0 1 5|late\npost 7 /\nframe 0 8 7|\003000\nframe 0 9 7|\003000\n");
    check_output(&x, OK2("5") OK2("7"));
    assert_int_equal(fake_end(x.c), FAKE_UP);
    side_done(&x);
    worker_free(w);
}

static void ping_and_settings_are_acknowledged(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct trace out;
    begin_server(&x, w, NULL, &answering, &plain);
    feed(&x, "ping 12345678\nsettings 3=7\nsettings 1=0");
    trace_init(&out);
    read_output(&x, &out);
    assert_string_equal(trace_text(&out), "ping ack 12345678\nsettings ack\nsettings ack\n");
    trace_done(&out);
    side_done(&x);
    worker_free(w);
}

/* ---- resets and ends by the client */

static void a_reset_is_the_client_leaving_in_every_state(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        const struct script *answer;
        const char *events;
    } table[] = {
        {"post 1 /\nrst 1 8", &silent, "1 accept\n1 POST / host=a\n1 closed client-gone\n"},
        {"post 1 /\ndata 1|abc\nrst 1 0", &silent,
         "1 accept\n1 POST / host=a\n1 data abc\n1 closed client-gone\n"},
        {"get 1 /\nrst 1 8", &silent, "1 accept\n1 GET / host=a end\n1 closed client-gone\n"},
        {WS "\nrst 1 8", &silent,
         "1 accept\n1 GET /ws host=a protocol=websocket end\n1 closed client-gone\n"},
        {WS "\ndata 1|abc\nrst 1 8", &silent,
         "1 accept\n1 GET /ws host=a protocol=websocket end\n1 closed client-gone\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_server(&x, w, NULL, &answering, table[i].answer);
        feed(&x, table[i].script);
        check_events(&x, table[i].events);
        check_output(&x, "");
        x.taps[0].context = (void *)(uintptr_t)&plain;
        x.context = (void *)(uintptr_t)&plain;
        feed(&x, "get 3 /");
        check_output(&x, OK2("3"));
        side_done(&x);
        worker_free(w);
    }
}

/* An answer that waits for the client's window. */
static void a_reset_drops_an_answer_under_way(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &unknown);
    feed(&x, "settings 4=3\nget 1 /");
    check_output(&x, "settings ack\n1 headers {:status: 200}\n1 data hel\n");
    feed(&x, "rst 1 8");
    check_events(&x, "1 accept\n1 GET / host=a end\n1 closed client-gone\n");
    assert_int_equal(side_tap(&x)->sent, 3);
    side_done(&x);
    worker_free(w);
}

static void the_end_of_the_connection_ends_its_streams(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_server(&x, w, NULL, &answering, &silent);
        feed(&x, "get 1 /\npost 3 /\nget 5 /");
        if (how == 0)
            fake_feed_eof(x.c);
        else if (how == 1)
            fake_feed_error(x.c);
        else
            x.s->ops->close(x.s, WHY_CLIENT_GONE);
        fake_settle(w);
        for (unsigned n = 1; n <= 3; n++)
            assert_true(side_stream(&x, n)->over);
        assert_null(x.s);
        side_done(&x);
        worker_free(w);
    }
}

static void the_end_between_requests_is_a_good_end(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &plain);
    feed(&x, "get 1 /");
    fake_feed_eof(x.c);
    fake_settle(w);
    check_events(&x, "1 accept\n1 GET / host=a end\n1 closed ok\nconn close ok\nsession closed\n");
    side_done(&x);
    worker_free(w);
}

static void a_complete_answer_survives_the_clients_end(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &plain);
    fake_room(x.c, 10);
    feed(&x, "get 1 /");
    fake_feed_eof(x.c);
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_UP);
    fake_room(x.c, SIZE_MAX);
    fake_settle(w);
    check_events(&x, "1 accept\n1 GET / host=a end\n1 closed ok\nconn close ok\nsession closed\n");
    check_output(&x, "goaway 1 0\n" OK2("1"));
    side_done(&x);
    worker_free(w);
}

/* ---- early answers */

static void an_early_answer_ends_the_request(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &early);
    feed(&x, "post 1 /|content-length: 100000\ndata 1|abc");
    check_events(&x, "1 accept\n1 POST / host=a length=100000\n1 data abc\n1 closed ok\n");
    check_output(&x, "1 headers {:status: 413; content-length: 2}\n1 data no\n1 end\n1 rst 0\n");
    feed(&x, "data 1|late\ndata 1|later\nget 3 /");
    assert_int_equal(fake_end(x.c), FAKE_UP);
    side_done(&x);
    worker_free(w);
}

/* ---- our own cancel */

static void a_cancelled_answer_is_cut_after_what_was_given(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct tap *t;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "settings 4=3\nget 1 /");
    t = side_tap(&x);
    tap_head(t, &unknown.head, false);
    tap_data(t, STR("hello"));
    tap_cancel(t, WHY_ORIGIN_GONE);
    fake_settle(w);
    check_output(&x, "settings ack\n1 headers {:status: 200}\n1 data hel\n");
    assert_int_equal(x.s->running, 0);
    feed(&x, "window 1 100");
    check_output(&x, "settings ack\n1 headers {:status: 200}\n1 data hello\n1 rst 2\n");
    side_done(&x);
    worker_free(w);
}

static void a_cut_does_not_wait_for_ever(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "settings 4=3\nget 1 /");
    tap_head(side_tap(&x), &unknown.head, false);
    tap_data(side_tap(&x), STR("hello"));
    tap_cancel(side_tap(&x), WHY_DEADLINE);
    fake_settle(w);
    fake_time(w, 6000);
    check_output(&x, "settings ack\n1 headers {:status: 200}\n1 data hel\n1 rst 2\n");
    side_done(&x);
    worker_free(w);
}

static void cancelling_says_why(void **state)
{
    (void)state;
    static const struct {
        enum why why;
        bool headed, told;
        const char *output;
    } table[] = {
        {WHY_CLIENT_GONE, false, true, "1 rst 8\n"},
        {WHY_REVOKED, false, true, "1 rst 8\n"},
        {WHY_ORIGIN_GONE, false, true, "1 rst 2\n"},
        {WHY_DEADLINE, false, true, "1 rst 2\n"},
        {WHY_CLIENT_PROTOCOL, false, true, "1 rst 1\n"},
        {WHY_OVERLOAD, false, true, "1 rst 2\n"},
        {WHY_OVERLOAD, false, false, "1 rst 7\n"},
        {WHY_CLIENT_GONE, true, true, "1 rst 8\n"},
        {WHY_REVOKED, true, true, "1 rst 8\n"},
        {WHY_ORIGIN_GONE, true, true, "1 headers {:status: 200}\n1 data x\n1 rst 2\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        begin_server(&x, w, NULL, &answering, &silent);
        if (table[i].told)
            feed(&x, "post 1 /");
        else
            feed(&x, "headers 1 part|:method: GET");
        if (table[i].headed) {
            tap_head(side_tap(&x), &unknown.head, false);
            tap_data(side_tap(&x), STR("x"));
        }
        tap_cancel(side_tap(&x), table[i].why);
        fake_settle(w);
        check_output(&x, table[i].output);
        assert_int_equal(x.s->running, 0);
        assert_int_equal(fake_end(x.c), FAKE_UP);
        side_done(&x);
        worker_free(w);
    }
}

static void a_cancelled_tunnel_is_reset(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &granting_end);
    feed(&x, WS "\ndata 1|abc");
    tap_cancel(side_tap(&x), WHY_ORIGIN_GONE); /* its origin ended, and then was gone (WS-10) */
    fake_settle(w);
    check_output(&x, "1 headers {:status: 200}\n1 data hi\n1 end\n1 rst 0\n");
    side_done(&x);
    worker_free(w);
}

/* ---- tunnels */

static void a_refused_tunnel_drops_what_was_meant_for_it(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, WS "\ndata 1|frames");
    tap_head(side_tap(&x), &refusing.head, false);
    tap_data(side_tap(&x), STR("no"));
    fake_settle(w);
    feed(&x, "data 1|more frames");
    tap_end(side_tap(&x), NULL);
    fake_settle(w);
    check_events(&x, "1 accept\n1 GET /ws host=a protocol=websocket end\n1 closed ok\n");
    check_output(&x, "1 headers {:status: 403; content-length: 2}\n1 data no\n1 end\n1 rst 0\n");
    side_done(&x);
    worker_free(w);
}

static void what_came_before_the_grant_comes_after_it(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, WS "\ndata 1|early\ndata 1 end| birds");
    check_events(&x, "1 accept\n1 GET /ws host=a protocol=websocket end\n");
    struct http_head grant = {.status = 101, .length = -1, .protocol = STR("websocket")};
    tap_head(side_tap(&x), &grant, false);
    fake_settle(w);
    check_events(&x,
                 "1 accept\n1 GET /ws host=a protocol=websocket end\n1 data early birds\n1 end\n");
    tap_data(side_tap(&x), STR("bye"));
    tap_end(side_tap(&x), NULL);
    fake_settle(w);
    check_output(&x, "1 headers {:status: 200}\n1 data bye\n1 end\n");
    assert_true(side_tap(&x)->over);
    side_done(&x);
    worker_free(w);
}

static void a_grant_nobody_asked_for_is_none(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    begin_server(&x, w, NULL, &answering, &silent);
    feed(&x, "get 1 /");
    struct http_head grant = {.status = 101, .length = -1, .protocol = STR("websocket")};
    side_tap(&x)->got_end = true;
    tap_head(side_tap(&x), &grant, false);
    fake_settle(w);
    check_events(&x, "1 accept\n1 GET / host=a end\n1 closed origin-protocol\n");
    check_output(&x, "1 rst 2\n");
    side_done(&x);
    worker_free(w);
}

/* ---- the user acts from within events */

enum event { ON_ACCEPT, ON_HEAD, ON_DATA, ON_END, ON_SENT, ON_CLOSED, EVENTS };

struct meddler {
    struct side *x;
    enum event when;
    bool close; /* the session; else: cancels the stream */
    unsigned acts;
};

static void meddle(struct tap *t, enum event now)
{
    struct meddler *m = t->context;
    if (m->when != now || !m->x->s)
        return;
    m->acts++;
    if (m->close)
        m->x->s->ops->close(m->x->s, WHY_DRAIN);
    else
        tap_cancel(t, WHY_OVERLOAD);
}

static void meddle_head(struct tap *t, struct http_head *head, bool end)
{
    (void)head, (void)end;
    meddle(t, ON_HEAD);
    tap_head(t, &empty.head, false);
    tap_data(t, STR("answer"));
}

static void meddle_data(struct tap *t, struct str bytes)
{
    (void)bytes;
    meddle(t, ON_DATA);
}

static void meddle_end(struct tap *t, struct http_head *trailers)
{
    (void)trailers;
    meddle(t, ON_END);
    tap_end(t, NULL);
}

static void meddle_sent(struct tap *t, size_t n)
{
    (void)n;
    meddle(t, ON_SENT);
}

static void meddle_closed(struct tap *t, enum why why)
{
    (void)why;
    meddle(t, ON_CLOSED);
}

static const struct tap_user meddling = {.head = meddle_head,
                                         .data = meddle_data,
                                         .end = meddle_end,
                                         .sent = meddle_sent,
                                         .closed = meddle_closed};

static void the_user_may_end_things_from_within_any_event(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 2 * EVENTS; n++) {
        struct worker *w = worker_new(0);
        struct side x;
        struct meddler m = {&x, n % EVENTS, n >= EVENTS, 0};
        begin_server(&x, w, NULL, &meddling, &m);
        feed(&x, "post 1 /\npost 3 /\ndata 1|abc\ndata 3|def\npost 5 /");
        feed(&x, "data 1 end|abc\nheaders 3 end|x-t: 1\nrst 5 8\nget 7 /\npost 9 /\ndata 9 end|x");
        if (m.when != ON_ACCEPT)
            assert_in_range(m.acts, 1, 5);
        if (m.close && m.acts > 0)
            assert_null(x.s);
        else
            assert_int_equal(fake_end(x.c), FAKE_UP);
        side_done(&x);
        worker_free(w);
    }
}

static void credit_after_the_end_is_the_connections_only(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct frames f = {0};
    static char piece[16384];
    begin_server(&x, w, NULL, &answering, &silent);
    uint64_t first = frames_credit(fake_written(x.c), false, 0);
    for (uint32_t id = 1; id < 100; id += 2) {
        char script[32];
        snprintf(script, sizeof script, "post %u /", id);
        frames_add(&f, script);
        for (int i = 0; i < 4; i++)
            frames_raw(&f, FRAME_DATA, i == 3, id, piece, sizeof piece);
    }
    x.hold = true;
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    assert_int_equal(frames_credit(fake_written(x.c), false, 0), first);
    for (unsigned n = 1; n <= 50; n++) {
        assert_true(side_stream(&x, n)->got_end);
        tap_credit_all(side_stream(&x, n));
    }
    fake_settle(w);
    assert_in_range(frames_credit(fake_written(x.c), false, 0) - first, 2 << 20, 4 << 20);
    for (uint32_t id = 1; id < 100; id += 2)
        assert_int_equal(frames_credit(fake_written(x.c), false, id), 0);
    for (unsigned n = 1; n <= 50; n++)
        tap_head(side_stream(&x, n), &empty.head, true);
    fake_settle(w);
    assert_int_equal(x.s->running, 0);
    frames_done(&f);
    side_done(&x);
    worker_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_told_the_same_however_they_are_cut),
        cmocka_unit_test(malformed_requests_end_their_stream),
        cmocka_unit_test(a_line_feed_in_a_value_ends_its_stream),
        cmocka_unit_test(broken_connections_end_with_goaway),
        cmocka_unit_test(an_unknown_preface_ends_the_connection),
        cmocka_unit_test(odd_but_legal_frames_are_tolerated),
        cmocka_unit_test(ping_and_settings_are_acknowledged),
        cmocka_unit_test(a_reset_is_the_client_leaving_in_every_state),
        cmocka_unit_test(a_reset_drops_an_answer_under_way),
        cmocka_unit_test(the_end_of_the_connection_ends_its_streams),
        cmocka_unit_test(the_end_between_requests_is_a_good_end),
        cmocka_unit_test(a_complete_answer_survives_the_clients_end),
        cmocka_unit_test(an_early_answer_ends_the_request),
        cmocka_unit_test(a_cancelled_answer_is_cut_after_what_was_given),
        cmocka_unit_test(a_cut_does_not_wait_for_ever),
        cmocka_unit_test(cancelling_says_why),
        cmocka_unit_test(a_cancelled_tunnel_is_reset),
        cmocka_unit_test(a_refused_tunnel_drops_what_was_meant_for_it),
        cmocka_unit_test(what_came_before_the_grant_comes_after_it),
        cmocka_unit_test(a_grant_nobody_asked_for_is_none),
        cmocka_unit_test(the_user_may_end_things_from_within_any_event),
        cmocka_unit_test(credit_after_the_end_is_the_connections_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
