/* h1_server_test.c — the HTTP/1 server codec over a fake connection: what is told and what is
 * written must not depend on how the bytes were cut; and what becomes of the connection after each
 * kind of ending. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/side.h"

/* ---- the user: answers each request in the same way */

enum moment { AT_END, AT_HEAD, NEVER };

struct script {
    enum moment when;
    const struct http_head *interim; /* sent as the head comes */
    struct http_head head;
    const char *body; /* NULL: the head is the end */
    const struct http_head *trailers;
    bool open; /* no end() */
};

static const struct script plain = {.head = {.status = 200, .length = 2}, .body = "ok"};
static const struct script silent = {.when = NEVER};

static void say(struct tap *t, const struct script *s)
{
    tap_head(t, &s->head, s->body == NULL);
    if (s->body)
        tap_data(t, str_of(s->body));
    if (s->body && !s->open)
        tap_end(t, s->trailers);
}

static void on_head(struct tap *t, struct http_head *head, bool end)
{
    const struct script *s = t->context;
    (void)head;
    if (s->interim)
        tap_head(t, s->interim, false);
    if (s->when == AT_HEAD || (s->when == AT_END && end))
        say(t, s);
}

static void on_end(struct tap *t, struct http_head *trailers)
{
    const struct script *s = t->context;
    (void)trailers;
    if (s->when == AT_END && !t->tunnel)
        say(t, s);
}

static void on_fault(struct tap *t, const struct http_fault *fault)
{
    const struct script *s = t->context;
    if (s->when == NEVER || t->said_end)
        return;
    tap_head(t, &(struct http_head){.status = fault->status, .length = -1}, true);
}

static const struct tap_user answering = {.head = on_head, .end = on_end, .fault = on_fault};

/* ---- one input, one text */

struct exchange {
    const char *name;
    const char *input;
    bool eof;
    const struct script *script;
    const char *events, *output;
};

static void run_exchange(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct exchange *e = arg;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H1_SERVER, NULL, &answering,
              (void *)(uintptr_t)(e->script ? e->script : &plain));
    side_feed(&x, str_of(e->input), cuts);
    if (e->eof) {
        fake_feed_eof(x.c);
        fake_settle(w);
    }
    trace_line(&ret->events, "%s", trace_text(&x.trace));
    trace_line(&ret->output, "%.*s", STR_ARG(fake_written(x.c)));
    side_done(&x);
    worker_free(w);
}

static void check(const struct exchange *e)
{
    struct outcome o;
    char text[4096];
    same_however_cut(run_exchange, (void *)(uintptr_t)e, strlen(e->input), &o);
    snprintf(text, sizeof text, "%s\n", e->events);
    if (strcmp(trace_text(&o.events), text) != 0)
        print_error("in %s:\n", e->name);
    assert_string_equal(trace_text(&o.events), text);
    snprintf(text, sizeof text, "%s\n", e->output);
    if (strcmp(trace_text(&o.output), text) != 0)
        print_error("in %s:\n", e->name);
    assert_string_equal(trace_text(&o.output), text);
    outcome_done(&o);
}

#define OK2 "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
#define OK2_CLOSE "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"

static struct field link_field[] = {{{"Link", 4}, {"</a.css>", 8}}};
static struct field trailer_field[] = {{{"X-Sum", 5}, {"9", 1}}};
static const struct http_head early_hints = {
    .status = 103, .length = -1, .fields = link_field, .nfields = 1};
static const struct http_head go_on = {.status = 100, .length = -1};
static const struct http_head sum = {.length = -1, .fields = trailer_field, .nfields = 1};

static const struct script chunked = {.head = {.status = 200, .length = -1}, .body = "hello"};
static const struct script chunked_sum = {
    .head = {.status = 200, .length = -1}, .body = "hello", .trailers = &sum};
static const struct script empty = {.head = {.status = 200, .length = -1}};
static const struct script no_content = {.head = {.status = 204, .length = -1}, .body = "stray"};
static const struct script not_modified = {.head = {.status = 304, .length = 5}, .body = "stray"};
static const struct script hints = {
    .interim = &early_hints, .head = {.status = 200, .length = 2}, .body = "ok"};
static const struct script continuing = {
    .interim = &go_on, .head = {.status = 200, .length = 2}, .body = "ok"};
static const struct script refusing = {.head = {.status = 403, .length = 2}, .body = "no"};
static const struct script unheard = {.head = {.status = 799, .length = -1}, .body = "?"};

static void requests_are_told_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const struct exchange table[] = {
        {"a plain request keeps the connection",
         "GET /a?b=c HTTP/1.1\r\nHost: gw.test\r\nX-A: 1\r\nx-a:\t2 \r\n\r\n", false, NULL,
         "accept\nGET /a?b=c host=gw.test {X-A: 1; x-a: 2} end\nclosed ok\n", OK2},
        {"any token is a method, any byte a target",
         "m-search /\xc3\xa9#\"<>^{} HTTP/1.1\r\nHost: a\r\n\r\n", false, NULL,
         "accept\nm-search /\\xc3\\xa9#\"<>^{} host=a end\nclosed ok\n", OK2},
        {"pipelined requests are answered in order",
         "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: "
         "3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
         false, NULL,
         "accept\nGET /1 host=a end\nclosed ok\naccept\nPOST /2 host=a length=3\ndata "
         "abc\nend\nclosed ok\n"
         "accept\nGET /3 host=a end\nclosed ok\n",
         OK2 OK2 OK2},
        {"empty lines before a request are skipped",
         "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n\r\n",
         false, NULL, "accept\nGET / host=a end\nclosed ok\naccept\nGET /2 host=a end\nclosed ok\n",
         OK2 OK2},
        {"HTTP/1.0 ends the connection", "GET / HTTP/1.0\r\n\r\n", false, NULL,
         "accept\nGET / no host end\nclosed ok\nconn close ok\nsession closed\n", OK2_CLOSE},
        {"HTTP/1.0 may ask to keep it",
         "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET /2 HTTP/1.0\r\nConnection: "
         "keep-alive\r\n\r\n",
         false, NULL,
         "accept\nGET / no host end\nclosed ok\naccept\nGET /2 no host end\nclosed ok\n",
         "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok"
         "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok"},
        {"connection: close ends it",
         "GET / HTTP/1.1\r\nHost: a\r\nConnection: x-b, CLOSE\r\nX-B: 1\r\n\r\n", false, NULL,
         "accept\nGET / host=a end\nclosed ok\nconn close ok\nsession closed\n", OK2_CLOSE},
        {"a body by length",
         "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello\r\nthere", false, NULL,
         "accept\nPUT / host=a length=11\ndata hello\\r\\nther\nend\nclosed ok\naccept\n", OK2},
        {"a length of nothing", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", false,
         NULL, "accept\nPUT / host=a length=0 end\nclosed ok\n", OK2},
        {"a chunked body with extensions and trailers",
         "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
         "chunked\r\n\r\n5;a=\"b;c\"\r\nhello\r\n00A\r\n0123456789\r\n0;x\r\n"
         "X-T: 1\r\nContent-Length: 5\r\nx-u:\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
         false, NULL,
         "accept\nPOST / host=a\ndata hello0123456789\nend {X-T: 1; x-u: }\nclosed ok\naccept\nGET "
         "/2 host=a end\nclosed ok\n",
         OK2 OK2},
        {"an empty chunked body",
         "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", false, NULL,
         "accept\nPOST / host=a\nend\nclosed ok\n", OK2},
        {"an answer of unknown length is chunked",
         "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", false, &chunked,
         "accept\nGET / host=a end\nclosed ok\naccept\nGET / host=a end\nclosed ok\n",
         "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
         "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
        {"trailers go behind the last chunk", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false,
         &chunked_sum, "accept\nGET / host=a end\nclosed ok\n",
         "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: "
         "9\r\n\r\n"},
        {"an answer of unknown length to HTTP/1.0 goes until the end",
         "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false, &chunked_sum,
         "accept\nGET / no host end\nclosed ok\nconn close ok\nsession closed\n",
         "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"},
        {"an answer without a body says so", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, &empty,
         "accept\nGET / host=a end\nclosed ok\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"},
        {"HEAD has a length and no body",
         "HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n", false, NULL,
         "accept\nHEAD / host=a end\nclosed ok\naccept\nHEAD / host=a end\nclosed ok\n",
         "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: "
         "2\r\n\r\n"},
        {"HEAD of unknown length has neither", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", false,
         &chunked_sum, "accept\nHEAD / host=a end\nclosed ok\n", "HTTP/1.1 200 OK\r\n\r\n"},
        {"204 has no body and no length", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, &no_content,
         "accept\nGET / host=a end\nclosed ok\n", "HTTP/1.1 204 No Content\r\n\r\n"},
        {"304 has no body", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, &not_modified,
         "accept\nGET / host=a end\nclosed ok\n",
         "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"},
        {"1xx comes first and ends nothing", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, &hints,
         "accept\nGET / host=a end\nclosed ok\n",
         "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" OK2},
        {"1xx is nothing for HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", false, &hints,
         "accept\nGET / no host end\nclosed ok\nconn close ok\nsession closed\n", OK2_CLOSE},
        {"100 asks for the body",
         "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", false,
         &continuing,
         "accept\nPUT / host=a length=3 expect {Expect: 100-continue}\ndata abc\nend\nclosed ok\n",
         "HTTP/1.1 100 Continue\r\n\r\n" OK2},
        {"a refused upgrade leaves an ordinary connection",
         "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /2 "
         "HTTP/1.1\r\nHost: a\r\n\r\n",
         false, &refusing,
         "accept\nGET /ws host=a protocol=websocket end\nclosed ok\naccept\nGET /2 host=a "
         "end\nclosed ok\n",
         "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nnoHTTP/1.1 403 "
         "Forbidden\r\ncontent-length: 2\r\n\r\nno"},
        {"an unknown status has no phrase", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, &unheard,
         "accept\nGET / host=a end\nclosed ok\n",
         "HTTP/1.1 799 \r\ntransfer-encoding: chunked\r\n\r\n1\r\n?\r\n0\r\n\r\n"},
        {"the end between two requests is a good end", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true,
         NULL, "accept\nGET / host=a end\nclosed ok\nconn close ok\nsession closed\n", OK2},
        {"the end inside a head is the client leaving", "GET / HTTP/1.1\r\nHost: a\r\n\r", true,
         NULL, "accept\nconn close client-gone\nclosed client-gone\nsession closed\n", ""},
        {"the end inside a body is the client leaving",
         "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabc", true, NULL,
         "accept\nPUT / host=a length=4\ndata abc\nconn close client-gone\nclosed "
         "client-gone\nsession closed\n",
         ""},
        {"the end inside the last chunk is the client leaving",
         "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: 1\r\n",
         true, NULL,
         "accept\nPUT / host=a\ndata abc\nconn close client-gone\nclosed client-gone\nsession "
         "closed\n",
         ""},
        {"the end while the answer is awaited is the client leaving",
         "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, &silent,
         "accept\nGET / host=a end\nconn close client-gone\nclosed client-gone\nsession closed\n",
         ""},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(&table[i]);
}

/* ---- faults: input, what is told, with which status it is answered */

struct fault_case {
    const char *input;
    size_t n; /* 0: a C string */
    const char *events;
    int status;
};

static void run_fault(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct fault_case *f = arg;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H1_SERVER, NULL, &answering, (void *)(uintptr_t)&plain);
    side_feed(&x, (struct str){f->input, f->n ? f->n : strlen(f->input)}, cuts);
    side_feed(&x, STR("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"), cuts);
    trace_line(&ret->events, "%s", trace_text(&x.trace));
    trace_line(&ret->output, "%.*s", STR_ARG(fake_written(x.c)));
    assert_int_equal(fake_end(x.c), FAKE_FIN);
    fake_feed_eof(x.c);
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_CLOSED);
    side_done(&x);
    worker_free(w);
}

static void check_fault(const struct fault_case *f)
{
    struct outcome o;
    char events[1024], output[128];
    size_t n = f->n ? f->n : strlen(f->input);
    same_however_cut(run_fault, (void *)(uintptr_t)f, n, &o);
    snprintf(events, sizeof events, "accept\n%s\nclosed ok\nconn fin\n\n", f->events);
    if (strcmp(trace_text(&o.events), events) != 0)
        print_error("for %.*s:\n", (int)n, f->input);
    assert_string_equal(trace_text(&o.events), events);
    snprintf(output, sizeof output,
             "HTTP/1.1 %d %.*s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n\n", f->status,
             STR_ARG(head_reason(f->status)));
    assert_string_equal(trace_text(&o.output), output);
    outcome_done(&o);
}

static void broken_requests_are_answered_and_the_connection_ends(void **state)
{
    (void)state;
#define LINE "fault 400 malformed request line"
#define FIELD "fault 400 malformed header field"
#define HEAD "fault 400 malformed message head"
#define CHUNK "POST / host=a\nfault 400 malformed chunked body"
#define DATA_CHUNK "POST / host=a\ndata hello\nfault 400 malformed chunked body"
#define H "Host: a\r\n"
#define TE H "Transfer-Encoding: chunked\r\n\r\n"
    static const struct fault_case table[] = {
        {"GET  / HTTP/1.1\r\n" H "\r\n", 0, LINE, 400},
        {"GET / HTTP/1.1 \r\n" H "\r\n", 0, LINE, 400},
        {"GET\t/\tHTTP/1.1\r\n" H "\r\n", 0, LINE, 400},
        {"GET /\r\n" H "\r\n", 0, LINE, 400},
        {"GET\r\n\r\n", 0, LINE, 400},
        {" GET / HTTP/1.1\r\n" H "\r\n", 0, HEAD, 400},
        {"GE(T / HTTP/1.1\r\n" H "\r\n", 0, LINE, 400},
        {"GET /\x7f HTTP/1.1\r\n" H "\r\n", 0, LINE, 400},
        {"GET /a\0b HTTP/1.1\r\n" H "\r\n", 30, LINE, 400},
        {"GET / HTTP/1.1x\r\n" H "\r\n", 0, LINE, 400},
        {"GET / http/1.1\r\n" H "\r\n", 0, LINE, 400},
        {"GET / HTTP/01.1\r\n" H "\r\n", 0, LINE, 400},
        {"GET / ICE/1.0\r\n" H "\r\n", 0, LINE, 400},
        {"GET / HTTP/1.2\r\n" H "\r\n", 0, "fault 505 HTTP version not supported", 505},
        {"GET / HTTP/3.0\r\n" H "\r\n", 0, "fault 505 HTTP version not supported", 505},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, "fault 505 HTTP version not supported", 505},
        {"GET a HTTP/1.1\r\n" H "\r\n", 0, "fault 400 malformed request target", 400},
        {"GET * HTTP/1.1\r\n" H "\r\n", 0, "fault 400 malformed request target", 400},
        {"GET / HTTP/1.1\r\n\r\n", 0, "fault 400 no Host", 400},
        {"GET / HTTP/1.1\r\n" H H "\r\n", 0, "fault 400 more than one Host", 400},
        {"GET / HTTP/1.1\nHost: a\n\n", 0, HEAD, 400},
        {"GET /\rx HTTP/1.1\r\n" H "\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n X: 1\r\n" H "\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n" H "X: 1\r\n\t2\r\n\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n" H "X: 1\r2\r\n\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n" H "X: 1\r\r\n\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n" H "X: 1\n\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n" H "\n", 0, HEAD, 400},
        {"\nGET / HTTP/1.1\r\n" H "\r\n", 0, HEAD, 400},
        {"\rGET / HTTP/1.1\r\n" H "\r\n", 0, HEAD, 400},
        {"\r\r\nGET / HTTP/1.1\r\n" H "\r\n", 0, HEAD, 400},
        {"\r\n\nGET / HTTP/1.1\r\n" H "\r\n", 0, HEAD, 400},
        {"GET / HTTP/1.1\r\n" H "X : 1\r\n\r\n", 0, FIELD, 400},
        {"GET / HTTP/1.1\r\n" H "X A: 1\r\n\r\n", 0, FIELD, 400},
        {"GET / HTTP/1.1\r\n" H ": 1\r\n\r\n", 0, FIELD, 400},
        {"GET / HTTP/1.1\r\n" H "X\r\n\r\n", 0, FIELD, 400},
        {"GET / HTTP/1.1\r\n" H "X: \0\r\n\r\n", 33, FIELD, 400},
        {"GET / HTTP/1.1\r\n" H "X: \x01\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5, 5\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5 5\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 9223372036854775808\r\n\r\n", 0,
         "fault 400 malformed Content-Length", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         0, "fault 400 Content-Length together with Transfer-Encoding", 400},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n" H "\r\n0\r\n\r\n",
         0, "fault 400 Content-Length together with Transfer-Encoding", 400},
        {"POST / HTTP/1.0\r\n" TE "0\r\n\r\n", 0, "fault 400 Transfer-Encoding in HTTP/1.0", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n", 0,
         "fault 501 unknown transfer coding", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", 0,
         "fault 501 unknown transfer coding", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", 0,
         "fault 501 unknown transfer coding", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, gzip\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked,\r\n\r\n", 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n", 0,
         "fault 400 malformed Transfer-Encoding", 400},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" TE, 0, FIELD, 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n chunked\r\n\r\n", 0, HEAD, 400},
        {"POST / HTTP/1.1\r\n" TE "5g\r\nhello\r\n0\r\n\r\n", 0, CHUNK, 400},
        {"POST / HTTP/1.1\r\n" TE "5\nhello\r\n0\r\n\r\n", 0, CHUNK, 400},
        {"POST / HTTP/1.1\r\n" TE "5\r\nhelloXX0\r\n\r\n", 0, DATA_CHUNK, 400},
        {"POST / HTTP/1.1\r\n" TE "5\r\nhello\n0\r\n\r\n", 0, DATA_CHUNK, 400},
        {"POST / HTTP/1.1\r\n" TE "5\r\nhello\r\n0\r\nX T: 1\r\n\r\n", 0,
         "POST / host=a\ndata hello\nfault 400 malformed trailer section", 400},
        {"POST / HTTP/1.1\r\n" TE "5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n", 0,
         "POST / host=a\ndata hello\nfault 400 malformed trailer section", 400},
        {"POST / HTTP/1.1\r\n" TE "5\r\nhello\r\n0\r\n\n", 0,
         "POST / host=a\ndata hello\nfault 400 malformed trailer section", 400},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check_fault(&table[i]);
}

/* A head of exactly n bytes. */
static struct str head_of(char *to, size_t n, bool lines)
{
    static const char start[] = "GET / HTTP/1.1\r\nHost: a\r\n";
    size_t at = sizeof start - 1;
    memcpy(to, start, at);
    while (lines && at + 5 <= n - 2) {
        memcpy(to + at, "a:b\r\n", 5);
        at += 5;
    }
    if (at + 2 < n) {
        memset(to + at, 'x', n - at - 4);
        to[at + 1] = ':';
        memcpy(to + n - 4, "\r\n", 2);
    }
    memcpy(to + n - 2, "\r\n", 2);
    return (struct str){to, n};
}

static void a_head_may_have_the_limit_and_no_byte_more(void **state)
{
    (void)state;
    static char text[8300];
    for (size_t n = 8190; n <= 8194; n++) {
        struct worker *w = worker_new(0);
        struct side x;
        side_init(&x, w, H1_SERVER, NULL, &answering, (void *)(uintptr_t)&plain);
        side_feed(&x, head_of(text, n, false), &(struct cuts){.every = 1000});
        const char *written = fake_written(x.c).p;
        assert_memory_equal(written + 9, n <= 8192 ? "200" : "431", 3);
        side_done(&x);
        worker_free(w);
    }
}

static void too_large_is_told_the_same_however_it_is_cut(void **state)
{
    (void)state;
    static char text[9001];
    memset(text, 'x', 9000);
    static const struct fault_case too_large = {text, 9000, "fault 431 message head too large",
                                                431};
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    text[8500] = '\r'; /* what lies beyond the limit is not looked at */
    check_fault(&too_large);
    static const struct fault_case many = {text, 8192, "fault 431 too many header fields", 431};
    head_of(text, 8192, true);
    check_fault(&many);
}

static void trailers_have_the_limit_of_heads(void **state)
{
    (void)state;
    static char text[9100];
    static const char start[] =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    size_t at = sizeof start - 1;
    memcpy(text, start, at);
    memset(text + at, 'x', 9000);
    static const struct fault_case large = {
        text, sizeof start - 1 + 9000, "POST / host=a\nfault 431 trailer section too large", 431};
    check_fault(&large);
    for (size_t i = at; i + 5 <= at + 9000; i += 5)
        memcpy(text + i, "a:b\r\n", 5);
    memcpy(text + at + 8190, "\r\n", 2);
    static const struct fault_case many = {
        text, sizeof start - 1 + 8192, "POST / host=a\nfault 431 trailer section too large", 431};
    check_fault(&many);
}

/* ---- single scenes */

struct scene {
    struct worker *w;
    struct side x;
};

static void scene_init(struct scene *s, const struct script *script)
{
    s->w = worker_new(0);
    side_init(&s->x, s->w, H1_SERVER, NULL, &answering, (void *)(uintptr_t)script);
}

static void scene_done(struct scene *s)
{
    side_done(&s->x);
    worker_free(s->w);
}

static void feed(struct scene *s, const char *text)
{
    side_feed(&s->x, str_of(text), &(struct cuts){0});
}

static void feed_eof(struct scene *s)
{
    fake_feed_eof(s->x.c);
    fake_settle(s->w);
}

#define assert_events(s, text) assert_string_equal(trace_text(&(s)->x.trace), text)

static void assert_output(struct scene *s, const char *text)
{
    struct str out = fake_written(s->x.c);
    if (out.n != strlen(text) || memcmp(out.p, text, out.n) != 0)
        print_error("written: %.*s\n", STR_ARG(out));
    assert_int_equal(out.n, strlen(text));
    assert_memory_equal(out.p, text, out.n);
}

#define GET "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_EVENTS "accept\nGET / host=a end\n"
#define PUT9 "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
#define PUT9_EVENTS "accept\nPUT / host=a length=9\n"

static void the_next_request_waits_for_the_answer_of_this_one(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET GET);
    assert_events(&s, GET_EVENTS);
    say(side_tap(&s.x), &plain);
    fake_settle(s.w);
    assert_events(&s, GET_EVENTS "closed ok\n" GET_EVENTS);
    assert_output(&s, OK2);
    scene_done(&s);
}

static void a_flood_of_pipelined_requests_stays_in_the_kernel(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    for (int i = 0; i < 4000; i++)
        fake_feed(s.x.c, GET, strlen(GET));
    fake_settle(s.w);
    assert_events(&s, GET_EVENTS);
    assert_true(fake_unread(s.x.c) > 4000 * strlen(GET) - 3 * CHUNK_BYTES);
    scene_done(&s);
}

static void all_of_a_long_pipeline_is_answered(void **state)
{
    (void)state;
    enum { REQUESTS = 60 };
    struct scene s;
    scene_init(&s, &plain);
    for (int i = 0; i < REQUESTS; i++)
        fake_feed(s.x.c, GET, strlen(GET));
    fake_settle(s.w);
    assert_int_equal(s.x.n, REQUESTS);
    assert_int_equal(fake_written(s.x.c).n, REQUESTS * strlen(OK2));
    scene_done(&s);
}

static void an_answer_leaves_in_the_turn_in_which_it_came(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    tap_head(side_tap(&s.x), &chunked.head, false);
    worker_turn(s.w);
    assert_output(&s, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    tap_data(side_tap(&s.x), STR("x"));
    worker_turn(s.w);
    assert_output(&s, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n");
    scene_done(&s);
}

static void what_is_said_in_one_turn_is_one_chunk(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    tap_head(side_tap(&s.x), &chunked.head, false);
    for (int i = 0; i < 17; i++)
        tap_data(side_tap(&s.x), STR("x"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_output(&s, "HTTP/1.1 200 OK\r\ntransfer-encoding: "
                      "chunked\r\n\r\n11\r\nxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
    scene_done(&s);
}

static void a_request_after_close_is_not_answered(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &plain);
    feed(&s, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" GET);
    assert_events(&s, GET_EVENTS
                  "closed ok\nconn fin\n"); /* a close with bytes unread would be a reset */
    assert_output(&s, OK2_CLOSE);
    feed(&s, GET);
    feed_eof(&s);
    assert_events(&s, GET_EVENTS "closed ok\nconn fin\nconn close ok\nsession closed\n");
    scene_done(&s);
}

/* H5 */
static void an_early_answer_ends_the_connection_and_swallows_the_rest(void **state)
{
    (void)state;
    static const struct script early = {
        .when = AT_HEAD, .head = {.status = 413, .length = 2}, .body = "no"};
    struct scene s;
    scene_init(&s, &early);
    feed(&s, PUT9);
    assert_events(&s, PUT9_EVENTS "closed ok\nconn fin\n");
    assert_output(
        &s, "HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
    feed(&s, "123456789" GET);
    assert_events(&s, PUT9_EVENTS "closed ok\nconn fin\n");
    assert_int_equal(fake_unread(s.x.c), 0);
    feed_eof(&s);
    assert_events(&s, PUT9_EVENTS "closed ok\nconn fin\nconn close ok\nsession closed\n");
    scene_done(&s);
}

static void lingering_has_a_deadline(void **state)
{
    (void)state;
    static const struct script early = {
        .when = AT_HEAD, .head = {.status = 413, .length = 2}, .body = "no"};
    struct scene s;
    scene_init(&s, &early);
    feed(&s, PUT9);
    fake_time(s.w, 4900);
    feed(&s, "1");
    assert_int_equal(fake_end(s.x.c), FAKE_FIN);
    fake_time(s.w, 200);
    assert_events(&s, PUT9_EVENTS "closed ok\nconn fin\nconn close deadline\nsession closed\n");
    scene_done(&s);
}

static void a_lingering_connection_reads_what_the_window_kept_out(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    s.x.hold = true;
    feed(&s, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    static char much[60000];
    memset(much, 'x', sizeof much);
    side_feed(&s.x, (struct str){much, sizeof much}, &(struct cuts){0});
    assert_true(fake_unread(s.x.c) > 0);
    say(side_tap(&s.x), &plain);
    fake_settle(s.w);
    assert_int_equal(fake_end(s.x.c), FAKE_FIN);
    assert_int_equal(fake_unread(s.x.c), 0);
    scene_done(&s);
}

/* The request completes while the end of its early answer waits for the kernel: closing then would
 * cut the answer. */
static void an_early_answer_to_a_slow_reader_arrives_whole(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    fake_room(s.x.c, 10);
    feed(&s, PUT9);
    say(side_tap(&s.x), &plain);
    fake_settle(s.w);
    feed(&s, "123456789");
    assert_events(&s, PUT9_EVENTS "data 123456789\nend\n");
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_output(&s, OK2_CLOSE);
    assert_int_equal(fake_lost(s.x.c), 0);
    assert_events(&s,
                  PUT9_EVENTS "data 123456789\nend\nclosed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
}

/* H6 */
static void a_half_close_after_the_final_head_is_no_departure(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    tap_head(side_tap(&s.x), &go_on, false);
    tap_head(side_tap(&s.x), &chunked.head, false);
    feed_eof(&s);
    assert_events(&s, GET_EVENTS);
    tap_data(side_tap(&s.x), STR("x"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_events(&s, GET_EVENTS "closed ok\nconn close ok\nsession closed\n");
    assert_int_equal(fake_lost(s.x.c), 0);
    scene_done(&s);
}

static void a_half_close_after_1xx_is_a_departure(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    tap_head(side_tap(&s.x), &go_on, false);
    fake_settle(s.w);
    feed_eof(&s);
    assert_events(&s, GET_EVENTS "conn close client-gone\nclosed client-gone\nsession closed\n");
    scene_done(&s);
}

static void a_half_close_behind_a_broken_request_does_not_keep_the_answer_back(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &plain);
    fake_room(s.x.c, 5);
    feed(&s, "GET\r\n\r\n");
    feed_eof(&s);
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_output(&s, "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    assert_int_equal(fake_lost(s.x.c), 0);
    assert_events(
        &s, "accept\nfault 400 malformed request line\nclosed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
}

static void leaving_before_a_broken_request_is_answered_is_leaving(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, "GET\r\n\r\n");
    feed_eof(&s);
    assert_events(&s, "accept\nfault 400 malformed request line\nconn close client-gone\nclosed "
                      "client-gone\nsession closed\n");
    scene_done(&s);
}

static void a_reset_is_told_once_in_every_state(void **state)
{
    (void)state;
    static const struct {
        const char *input;
        int said; /* 1: head, 2: data, 3: end, not taken by the kernel */
        const char *events;
    } table[] = {
        {"", 0, ""},
        {"GET", 0, "accept\n"},
        {PUT9, 0, PUT9_EVENTS},
        {PUT9 "123", 0, PUT9_EVENTS "data 123\n"},
        {GET, 0, GET_EVENTS},
        {GET, 1, GET_EVENTS},
        {GET, 2, GET_EVENTS},
        {GET, 3, GET_EVENTS},
        {GET GET, 3, GET_EVENTS},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct scene s;
        char events[256];
        scene_init(&s, &silent);
        fake_room(s.x.c, 0);
        feed(&s, table[i].input);
        if (table[i].said > 0)
            tap_head(side_tap(&s.x), &chunked.head, false);
        if (table[i].said > 1)
            tap_data(side_tap(&s.x), STR("hello"));
        if (table[i].said > 2)
            tap_end(side_tap(&s.x), NULL);
        fake_settle(s.w);
        fake_feed_error(s.x.c);
        fake_settle(s.w);
        snprintf(events, sizeof events, "%sconn close client-gone\n%ssession closed\n",
                 table[i].events, table[i].input[0] ? "closed client-gone\n" : "");
        assert_events(&s, events);
        scene_done(&s);
    }
}

/* ---- cut answers */

static void begin_answer(struct scene *s, const char *request, const struct http_head *head)
{
    scene_init(s, &silent);
    feed(s, request);
    tap_head(side_tap(&s->x), head, false);
    tap_data(side_tap(&s->x), STR("hello"));
}

static void a_cut_answer_breaks_off_after_what_was_queued(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int64_t length;
        const char *events, *output;
    } table[] = {
        {GET, 9, GET_EVENTS "cancel origin-gone\nconn close origin-gone\nsession closed\n",
         "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"},
        {GET, -1, GET_EVENTS "cancel origin-gone\nconn close origin-gone\nsession closed\n",
         "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"},
        {"GET / HTTP/1.0\r\n\r\n", -1,
         "accept\nGET / no host end\ncancel origin-gone\nconn reset origin-gone\nsession closed\n",
         "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"},
    };
    for (size_t i = 0; i < 3; i++) {
        for (int early = 0; early < 2;
             early++) { /* cancelled before the head was serialized, and after */
            struct scene s;
            begin_answer(&s, table[i].request,
                         &(struct http_head){.status = 200, .length = table[i].length});
            if (!early)
                fake_settle(s.w);
            tap_cancel(side_tap(&s.x), WHY_ORIGIN_GONE);
            fake_settle(s.w);
            assert_events(&s, table[i].events);
            assert_output(&s, table[i].output);
            scene_done(&s);
        }
    }
}

static void a_cut_answer_waits_for_a_slow_reader_up_to_a_deadline(void **state)
{
    (void)state;
    struct scene s;
    begin_answer(&s, "GET / HTTP/1.0\r\n\r\n", &chunked.head);
    fake_room(s.x.c, 3);
    fake_settle(s.w);
    tap_cancel(side_tap(&s.x), WHY_ORIGIN_GONE);
    fake_time(s.w, 4900);
    assert_int_equal(fake_end(s.x.c), FAKE_UP);
    fake_time(s.w, 200);
    assert_int_equal(fake_end(s.x.c), FAKE_RESET);
    scene_done(&s);
}

static void a_half_close_does_not_make_a_cut_answer_look_whole(void **state)
{
    (void)state;
    struct scene s;
    begin_answer(&s, "GET / HTTP/1.0\r\n\r\n", &chunked.head);
    fake_room(s.x.c, 3);
    fake_settle(s.w);
    tap_cancel(side_tap(&s.x), WHY_ORIGIN_GONE);
    feed_eof(&s);
    assert_int_equal(fake_end(s.x.c), FAKE_UP);
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_int_equal(fake_end(s.x.c), FAKE_RESET);
    assert_output(&s, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello");
    scene_done(&s);
}

static void no_ending_of_ours_makes_an_answer_until_eof_look_whole(void **state)
{
    (void)state;
    static const enum why whys[] = {WHY_REVOKED, WHY_CLIENT_GONE, WHY_DEADLINE};
    for (size_t i = 0; i < 4; i++) {
        struct scene s;
        begin_answer(&s, "GET / HTTP/1.0\r\n\r\n", &chunked.head);
        fake_settle(s.w);
        if (i < 3)
            tap_cancel(side_tap(&s.x), whys[i]);
        else
            s.x.s->ops->close(s.x.s, WHY_DRAIN);
        fake_settle(s.w);
        assert_int_equal(fake_end(s.x.c), FAKE_RESET);
        scene_done(&s);
    }
}

static void an_answer_until_eof_that_the_kernel_has_not_taken_is_not_whole(void **state)
{
    (void)state;
    struct scene s;
    begin_answer(&s, "GET / HTTP/1.0\r\n\r\n", &chunked.head);
    fake_room(s.x.c, 3);
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    tap_cancel(side_tap(&s.x), WHY_REVOKED);
    fake_settle(s.w);
    assert_int_equal(fake_end(s.x.c), FAKE_RESET);
    scene_done(&s);
}

static void a_stream_cancelled_behind_its_end_still_arrives(void **state)
{
    (void)state;
    struct scene s;
    begin_answer(&s, GET, &(struct http_head){.status = 200, .length = 5});
    fake_room(s.x.c, 3);
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    tap_cancel(side_tap(&s.x), WHY_DEADLINE);
    fake_settle(s.w);
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_output(&s, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    assert_int_equal(fake_lost(s.x.c), 0);
    scene_done(&s);
}

static void neither_does_a_half_close_behind_it_cut_it(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        struct scene s;
        begin_answer(&s, GET, &(struct http_head){.status = 200, .length = 5});
        fake_room(s.x.c, 3);
        tap_end(side_tap(&s.x), NULL);
        fake_settle(s.w);
        if (before)
            feed_eof(&s);
        tap_cancel(side_tap(&s.x), WHY_DEADLINE);
        fake_settle(s.w);
        if (!before)
            feed_eof(&s);
        assert_int_equal(fake_end(s.x.c), FAKE_UP);
        fake_room(s.x.c, SIZE_MAX);
        fake_settle(s.w);
        assert_output(&s, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        assert_int_equal(fake_end(s.x.c), FAKE_CLOSED);
        assert_int_equal(fake_lost(s.x.c), 0);
        scene_done(&s);
    }
}

static void revoked_and_gone_do_not_wait(void **state)
{
    (void)state;
    static const enum why whys[] = {WHY_REVOKED, WHY_CLIENT_GONE};
    for (size_t i = 0; i < 2; i++) {
        struct scene s;
        begin_answer(&s, GET, &chunked.head);
        fake_room(s.x.c, 0);
        fake_settle(s.w);
        tap_cancel(side_tap(&s.x), whys[i]);
        assert_int_equal(fake_end(s.x.c), FAKE_CLOSED);
        scene_done(&s);
    }
}

static void cancel_before_an_answer_closes(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    tap_cancel(side_tap(&s.x), WHY_OVERLOAD);
    fake_settle(s.w);
    assert_events(&s, GET_EVENTS "cancel overload\nconn close overload\nsession closed\n");
    scene_done(&s);
}

static void a_cut_answer_swallows_what_the_client_still_sends(void **state)
{
    (void)state;
    struct scene s;
    static char much[60000];
    memset(much, 'x', sizeof much);
    scene_init(&s, &silent);
    s.x.hold = true;
    feed(&s, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    side_feed(&s.x, (struct str){much, sizeof much}, &(struct cuts){0});
    fake_room(s.x.c, 3);
    tap_head(side_tap(&s.x), &chunked.head, false);
    tap_data(side_tap(&s.x), STR("hello"));
    fake_settle(s.w);
    assert_true(fake_unread(s.x.c) > 0);
    tap_cancel(side_tap(&s.x), WHY_ORIGIN_GONE);
    fake_settle(s.w);
    assert_int_equal(fake_end(s.x.c), FAKE_UP);
    assert_int_equal(fake_unread(s.x.c),
                     0); /* bytes unread at the close would be a reset that takes the queue along */
    scene_done(&s);
}

/* ---- time */

static void an_idle_connection_ends_after_its_time(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &plain);
    fake_time(s.w, 59900);
    feed(&s, GET);
    fake_time(s.w, 59900);
    feed(&s, "\r\n"); /* does not count */
    assert_int_equal(fake_end(s.x.c), FAKE_UP);
    fake_time(s.w, 200);
    assert_events(&s, GET_EVENTS "closed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
}

static void no_timer_of_the_codec_runs_during_an_exchange(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, "G");
    fake_time(s.w, 1000000);
    feed(&s, "ET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fake_time(s.w, 1000000);
    assert_events(&s, GET_EVENTS);
    scene_done(&s);
}

static void draining_answers_once_more_and_closes(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    s.x.s->ops->drain(s.x.s);
    fake_time(s.w, 10000);
    say(side_tap(&s.x), &plain);
    fake_settle(s.w);
    assert_output(&s, OK2_CLOSE);
    assert_events(&s, GET_EVENTS "closed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
}

static void an_idle_connection_that_drains_waits_for_a_request_on_its_way(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &plain);
    feed(&s, GET);
    s.x.s->ops->drain(s.x.s);
    fake_time(s.w, 1900);
    assert_int_equal(fake_end(s.x.c), FAKE_UP);
    feed(&s, GET);
    assert_output(&s, OK2 OK2_CLOSE);
    assert_events(&s,
                  GET_EVENTS "closed ok\n" GET_EVENTS "closed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
    scene_init(&s, &plain);
    s.x.s->ops->drain(s.x.s);
    fake_time(s.w, 2100);
    assert_events(&s, "conn close ok\nsession closed\n");
    scene_done(&s);
}

/* The answer that promised to keep the connection has left already: a request may be on its way. */
static void draining_keeps_the_promise_of_an_answer_that_has_left(void **state)
{
    (void)state;
    struct scene s;
    begin_answer(&s, GET, &chunked.head);
    fake_settle(s.w);
    s.x.s->ops->drain(s.x.s);
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_events(&s, GET_EVENTS "closed ok\n");
    fake_time(s.w, 2100);
    assert_events(&s, GET_EVENTS "closed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
}

/* B7 */
static void a_head_in_pieces_is_not_waited_for_above_the_memory_cap(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_limits;
    limits.max_memory = 1;
    side_init(&x, w, H1_SERVER, &limits, &answering, (void *)(uintptr_t)&plain);
    side_feed(&x, STR(GET), &(struct cuts){0});
    side_feed(&x, STR("GET / HT"), &(struct cuts){0});
    assert_string_equal(
        trace_text(&x.trace), GET_EVENTS
        "closed ok\naccept\nfault 503 out of memory for message heads\nclosed ok\nconn fin\n");
    side_done(&x);
    worker_free(w);
}

static void without_a_drain_time_idle_ends_at_once(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct side x;
    struct http_limits limits = side_limits;
    limits.drain_idle_ms = 0;
    side_init(&x, w, H1_SERVER, &limits, &answering, (void *)(uintptr_t)&plain);
    x.s->ops->drain(x.s);
    x.s->ops->drain(x.s);
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_CLOSED);
    side_done(&x);
    side_init(&x, w, H1_SERVER, &limits, &answering, (void *)(uintptr_t)&silent);
    side_feed(&x, STR(GET), &(struct cuts){0});
    tap_head(side_tap(&x), &chunked.head, false);
    fake_settle(w);
    x.s->ops->drain(x.s);
    tap_end(side_tap(&x), NULL);
    fake_settle(w);
    assert_int_equal(fake_end(x.c), FAKE_CLOSED);
    assert_int_equal(fake_lost(x.c), 0);
    side_done(&x);
    worker_free(w);
}

static void closing_a_session_is_quiet_and_told_later(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, GET);
    side_tap(&s.x)->in_op = true; /* an event now would be one inside an operation */
    s.x.s->ops->close(s.x.s, WHY_DEADLINE);
    side_tap(&s.x)->in_op = false;
    tap_head(side_tap(&s.x), &plain.head, false); /* swallowed */
    tap_data(side_tap(&s.x), STR("ok"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_events(&s, GET_EVENTS "conn close deadline\nclosed deadline\nsession closed\n");
    scene_done(&s);
}

/* ---- back-pressure */

static void feed_body(struct scene *s, bool in_chunks)
{
    static char body[200];
    memset(body, 'b', sizeof body);
    if (!in_chunks)
        feed(s, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 80000\r\n\r\n");
    else
        feed(s, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 400; i++) {
        if (in_chunks)
            fake_feed(s->x.c, "c8;x\r\n", 6);
        fake_feed(s->x.c, body, sizeof body);
        if (in_chunks)
            fake_feed(s->x.c, "\r\n", 2);
    }
    if (in_chunks)
        fake_feed(s->x.c, "0\r\n\r\n", 5);
    fake_settle(s->w);
}

static void a_body_stops_at_the_window_and_goes_on_with_credit(void **state)
{
    (void)state;
    for (int in_chunks = 0; in_chunks < 2; in_chunks++) {
        struct scene s;
        scene_init(&s, &plain);
        s.x.hold = true;
        feed_body(&s, in_chunks);
        struct tap *t = side_tap(&s.x);
        assert_int_equal(t->received, 1024);
        assert_true(fake_unread(s.x.c) > 80000 - 1024 - 3 * CHUNK_BYTES);
        tap_credit(t, 24);
        fake_settle(s.w);
        assert_int_equal(t->received, 1048);
        while (!t->got_end) { /* the tap checks the window at each event */
            tap_credit(t, tap_owed(t) < 333 ? tap_owed(t) : 333);
            fake_settle(s.w);
        }
        assert_int_equal(t->received, 80000);
        assert_int_equal(fake_unread(s.x.c), 0);
        assert_output(&s, OK2);
        scene_done(&s);
    }
}

static void tiny_chunks_do_not_become_tiny_slices(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &plain);
    s.x.hold = true;
    feed(&s, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    static char tiny[6 * 1024];
    for (size_t i = 0; i < sizeof tiny; i += 6)
        memcpy(tiny + i, "1\r\nx\r\n", 6);
    side_feed(&s.x, (struct str){tiny, sizeof tiny}, &(struct cuts){0});
    assert_int_equal(side_tap(&s.x)->received, 1024);
    assert_true(side_tap(&s.x)->slices < 8);
    scene_done(&s);
}

static void sent_counts_the_body_and_not_its_framing(void **state)
{
    (void)state;
    struct scene s;
    begin_answer(&s, GET, &chunked.head);
    fake_settle(s.w);
    assert_int_equal(side_tap(&s.x)->sent, 5);
    fake_room(s.x.c, 0);
    for (int i = 0; i < 100; i++) {
        static char block[4096];
        tap_data(side_tap(&s.x), (struct str){block, sizeof block});
    }
    fake_settle(s.w);
    assert_true(side_tap(&s.x)->sent <= 5 + 65536); /* one batch at most waits outside the codec */
    scene_done(&s);
}

static void the_body_of_an_answer_to_head_is_dropped_with_credit(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    tap_head(side_tap(&s.x), &chunked.head, false);
    for (int i = 0; i < 100; i++) {
        static char block[4096];
        tap_data(side_tap(&s.x), (struct str){block, sizeof block});
    }
    fake_settle(s.w);
    assert_int_equal(side_tap(&s.x)->sent, 100 * 4096);
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_output(&s, "HTTP/1.1 200 OK\r\n\r\n");
    scene_done(&s);
}

/* ---- upgrades */

#define UPGRADE "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#define UPGRADE_EVENTS "accept\nGET /ws host=a protocol=websocket end\n"
#define SWITCHED \
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"

static const struct http_head switching = {
    .status = 101, .length = -1, .protocol = {"websocket", 9}};

/* WS-01 */
static void run_upgrade(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    struct scene s;
    (void)arg;
    static const struct script granting = {
        .head = {.status = 101, .length = -1, .protocol = {"websocket", 9}},
        .body = "hi",
        .open = true};
    scene_init(&s, &granting);
    side_feed(&s.x, STR(UPGRADE "GET /frames HTTP/1.1\r\n\r\n0\r\n\r\n"), cuts);
    trace_line(&ret->events, "%s", trace_text(&s.x.trace));
    feed_eof(&s);
    trace_line(&ret->output, "%.*s", STR_ARG(fake_written(s.x.c)));
    tap_data(side_tap(&s.x), STR("bye"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    trace_line(&ret->events, "%s", trace_text(&s.x.trace));
    trace_line(&ret->output, "%.*s", STR_ARG(fake_written(s.x.c)));
    scene_done(&s);
}

static void what_comes_behind_a_handshake_is_the_tunnels(void **state)
{
    (void)state;
    struct outcome o;
    same_however_cut(run_upgrade, NULL, strlen(UPGRADE) + 29, &o);
    /* the run of data is open until something else comes */
    assert_string_equal(trace_text(&o.events), UPGRADE_EVENTS
                        "\n" UPGRADE_EVENTS
                        "data GET /frames HTTP/1.1\\r\\n\\r\\n0\\r\\n\\r\\n\nend\nclosed ok\n"
                        "conn close ok\nsession closed\n\n");
    assert_string_equal(trace_text(&o.output), SWITCHED "hi\n" SWITCHED "hibye\n");
    outcome_done(&o);
}

/* WS-04, the other way round */
static void a_grant_that_came_over_http2_answers_the_clients_key(void **state)
{
    (void)state;
    static struct field chat[] = {{{"sec-websocket-protocol", 22}, {"chat", 4}}};
    static const struct {
        const char *key_lines, *answer;
        struct http_head head;
    } rows[] = {
        {"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         "sec-websocket-protocol: chat\r\nsec-websocket-accept: "
         "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
         {.status = 101,
          .length = -1,
          .protocol = {"websocket", 9},
          .keyless = true,
          .fields = chat,
          .nfields = 1}},
        {"", "", {.status = 101, .length = -1, .protocol = {"websocket", 9}, .keyless = true}},
        /* h1 to h1 nothing is made up */
        {"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         "",
         {.status = 101, .length = -1, .protocol = {"websocket", 9}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene s;
        char text[512];
        scene_init(&s, &silent);
        snprintf(text, sizeof text,
                 "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: "
                 "websocket\r\n%s\r\n",
                 rows[i].key_lines);
        feed(&s, text);
        tap_head(side_tap(&s.x), &rows[i].head, false);
        fake_settle(s.w);
        snprintf(text, sizeof text,
                 "HTTP/1.1 101 Switching Protocols\r\n%sconnection: upgrade\r\nupgrade: "
                 "websocket\r\n\r\n",
                 rows[i].answer);
        assert_output(&s, text);
        scene_done(&s);
    }
}

static void the_scheme_is_that_of_the_connection(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        struct scene s;
        scene_init(&s, &silent);
        if (tls)
            fake_tls(s.x.c, "http/1.1", "a");
        assert_int_equal(s.x.s->running, 0);
        feed(&s, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        const struct http_head *head = side_tap(&s.x)->head;
        assert_true(str_eq(head->scheme, tls ? STR("https") : STR("http")));
        assert_int_equal(s.x.s->running, 1);
        tap_head(side_tap(&s.x), &(struct http_head){.status = 200, .length = 0}, true);
        fake_settle(s.w);
        assert_int_equal(s.x.s->running, 0);
        scene_done(&s);
    }
}

static void begin_tunnel(struct scene *s)
{
    scene_init(s, &silent);
    feed(s, UPGRADE);
    tap_head(side_tap(&s->x), &switching, false);
    fake_settle(s->w);
}

static void a_tunnel_may_end_one_way_and_go_on_the_other(void **state)
{
    (void)state;
    struct scene s;
    begin_tunnel(&s);
    tap_data(side_tap(&s.x), STR("x"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_events(&s, UPGRADE_EVENTS "conn fin\n");
    feed(&s, "still here");
    fake_time(s.w, 1000000);
    feed_eof(&s);
    assert_events(&s, UPGRADE_EVENTS
                  "conn fin\ndata still here\nend\nclosed ok\nconn close ok\nsession closed\n");
    assert_output(&s, SWITCHED "x");
    scene_done(&s);
}

static void a_tunnel_of_which_the_client_ended_first_still_brings_all(void **state)
{
    (void)state;
    struct scene s;
    begin_tunnel(&s);
    fake_room(s.x.c, 1);
    feed_eof(&s);
    tap_data(side_tap(&s.x), STR("hello"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    assert_events(&s, UPGRADE_EVENTS "end\n");
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_output(&s, SWITCHED "hello");
    assert_events(&s, UPGRADE_EVENTS "end\nclosed ok\nconn close ok\nsession closed\n");
    scene_done(&s);
}

static void a_tunnel_has_half_a_window(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    s.x.hold = true;
    feed(&s, UPGRADE);
    static char frames[50000];
    memset(frames, 'f', sizeof frames);
    side_feed(&s.x, (struct str){frames, sizeof frames}, &(struct cuts){0});
    assert_int_equal(side_tap(&s.x)->received, 0);
    tap_head(side_tap(&s.x), &switching, false);
    fake_settle(s.w);
    assert_int_equal(side_tap(&s.x)->received, side_limits.window / 2); /* it may stall for days */
    while (tap_owed(side_tap(&s.x)) > 0) {
        tap_credit_all(side_tap(&s.x));
        fake_settle(s.w);
    }
    assert_int_equal(side_tap(&s.x)->received, sizeof frames);
    scene_done(&s);
}

static void a_tunnel_that_is_cut_ends_after_what_was_queued(void **state)
{
    (void)state;
    struct scene s;
    begin_tunnel(&s);
    tap_data(side_tap(&s.x), STR("last words"));
    tap_cancel(side_tap(&s.x), WHY_ORIGIN_GONE);
    fake_settle(s.w);
    assert_output(&s, SWITCHED "last words");
    assert_events(&s,
                  UPGRADE_EVENTS "cancel origin-gone\nconn close origin-gone\nsession closed\n");
    scene_done(&s);
}

static void a_switch_before_the_request_is_complete_ends_the_connection(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &silent);
    feed(&s, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: "
             "websocket\r\nContent-Length: 5\r\n\r\nab");
    tap_head(side_tap(&s.x), &switching, false);
    tap_data(side_tap(&s.x), STR("x"));
    fake_settle(s.w);
    assert_events(
        &s,
        "accept\nGET /ws host=a length=5 protocol=websocket\ndata ab\nconn close origin-protocol\n"
        "closed origin-protocol\nsession closed\n");
    assert_output(&s, "");
    scene_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_told_the_same_however_they_are_cut),
        cmocka_unit_test(broken_requests_are_answered_and_the_connection_ends),
        cmocka_unit_test(a_head_may_have_the_limit_and_no_byte_more),
        cmocka_unit_test(too_large_is_told_the_same_however_it_is_cut),
        cmocka_unit_test(trailers_have_the_limit_of_heads),
        cmocka_unit_test(the_next_request_waits_for_the_answer_of_this_one),
        cmocka_unit_test(a_flood_of_pipelined_requests_stays_in_the_kernel),
        cmocka_unit_test(all_of_a_long_pipeline_is_answered),
        cmocka_unit_test(an_answer_leaves_in_the_turn_in_which_it_came),
        cmocka_unit_test(what_is_said_in_one_turn_is_one_chunk),
        cmocka_unit_test(a_request_after_close_is_not_answered),
        cmocka_unit_test(an_early_answer_ends_the_connection_and_swallows_the_rest),
        cmocka_unit_test(lingering_has_a_deadline),
        cmocka_unit_test(a_lingering_connection_reads_what_the_window_kept_out),
        cmocka_unit_test(an_early_answer_to_a_slow_reader_arrives_whole),
        cmocka_unit_test(a_half_close_after_the_final_head_is_no_departure),
        cmocka_unit_test(a_half_close_after_1xx_is_a_departure),
        cmocka_unit_test(a_half_close_behind_a_broken_request_does_not_keep_the_answer_back),
        cmocka_unit_test(leaving_before_a_broken_request_is_answered_is_leaving),
        cmocka_unit_test(a_reset_is_told_once_in_every_state),
        cmocka_unit_test(a_cut_answer_breaks_off_after_what_was_queued),
        cmocka_unit_test(a_cut_answer_waits_for_a_slow_reader_up_to_a_deadline),
        cmocka_unit_test(a_half_close_does_not_make_a_cut_answer_look_whole),
        cmocka_unit_test(no_ending_of_ours_makes_an_answer_until_eof_look_whole),
        cmocka_unit_test(an_answer_until_eof_that_the_kernel_has_not_taken_is_not_whole),
        cmocka_unit_test(a_stream_cancelled_behind_its_end_still_arrives),
        cmocka_unit_test(neither_does_a_half_close_behind_it_cut_it),
        cmocka_unit_test(revoked_and_gone_do_not_wait),
        cmocka_unit_test(cancel_before_an_answer_closes),
        cmocka_unit_test(a_cut_answer_swallows_what_the_client_still_sends),
        cmocka_unit_test(an_idle_connection_ends_after_its_time),
        cmocka_unit_test(no_timer_of_the_codec_runs_during_an_exchange),
        cmocka_unit_test(draining_answers_once_more_and_closes),
        cmocka_unit_test(an_idle_connection_that_drains_waits_for_a_request_on_its_way),
        cmocka_unit_test(draining_keeps_the_promise_of_an_answer_that_has_left),
        cmocka_unit_test(a_head_in_pieces_is_not_waited_for_above_the_memory_cap),
        cmocka_unit_test(without_a_drain_time_idle_ends_at_once),
        cmocka_unit_test(closing_a_session_is_quiet_and_told_later),
        cmocka_unit_test(a_body_stops_at_the_window_and_goes_on_with_credit),
        cmocka_unit_test(tiny_chunks_do_not_become_tiny_slices),
        cmocka_unit_test(sent_counts_the_body_and_not_its_framing),
        cmocka_unit_test(the_body_of_an_answer_to_head_is_dropped_with_credit),
        cmocka_unit_test(what_comes_behind_a_handshake_is_the_tunnels),
        cmocka_unit_test(a_grant_that_came_over_http2_answers_the_clients_key),
        cmocka_unit_test(the_scheme_is_that_of_the_connection),
        cmocka_unit_test(a_tunnel_may_end_one_way_and_go_on_the_other),
        cmocka_unit_test(a_tunnel_of_which_the_client_ended_first_still_brings_all),
        cmocka_unit_test(a_tunnel_has_half_a_window),
        cmocka_unit_test(a_tunnel_that_is_cut_ends_after_what_was_queued),
        cmocka_unit_test(a_switch_before_the_request_is_complete_ends_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
