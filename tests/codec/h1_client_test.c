/* h1_client_test.c — the HTTP/1 client codec over a fake connection: answers however they are cut,
 * when a connection may be used again and when it must not, and that each side reads what the other
 * writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/text.h"
#include "harness/side.h"
#include "http/websocket.h"

/* ---- what is asked */

struct ask {
    struct http_head head;
    const char *body; /* NULL: the head is the end */
    const struct http_head *trailers;
    bool open; /* no end() yet */
};

#define TEXT(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }
#define HEAD_OF(m) .method = TEXT(m), .path = TEXT("/"), .authority = TEXT("a"), .length = -1

static const struct ask get = {.head = {HEAD_OF("GET")}};
static const struct ask head_method = {.head = {HEAD_OF("HEAD")}};
static const struct ask post = {.head = {HEAD_OF("POST")}, .body = "hello"};
static const struct ask half_post = {.head = {HEAD_OF("POST")}, .body = "hello", .open = true};
static const struct ask websocket = {.head = {HEAD_OF("GET"), .protocol = TEXT("websocket")}};
static const struct ask connect_host = {
    .head = {.method = TEXT("CONNECT"), .path = TEXT(""), .authority = TEXT("a:1"), .length = -1}};

static const struct tap_user nobody = {0};

static struct tap *ask(struct side *x, const struct ask *a)
{
    struct tap *t = side_open(x);
    assert_non_null(t);
    tap_head(t, &a->head, a->body == NULL);
    if (a->body)
        tap_data(t, str_of(a->body));
    if (a->body && !a->open)
        tap_end(t, a->trailers);
    fake_settle(x->w);
    return t;
}

/* ---- one answer, one text */

struct answer {
    const char *name;
    const struct ask *ask;
    const char *input;
    bool eof;
    const char *events;
};

static void run_answer(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct answer *a = arg;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H1_CLIENT, NULL, &nobody, NULL);
    ask(&x, a->ask);
    side_feed(&x, str_of(a->input), cuts);
    if (a->eof) {
        fake_feed_eof(x.c);
        fake_settle(w);
    }
    tap_flush(side_tap(&x));
    trace_line(&ret->events, "%s", trace_text(&x.trace));
    side_done(&x);
    worker_free(w);
}

static void check(const struct answer *a)
{
    struct outcome o;
    char text[4096];
    same_however_cut(run_answer, (void *)(uintptr_t)a, strlen(a->input), &o);
    snprintf(text, sizeof text, "%s\n", a->events);
    if (strcmp(trace_text(&o.events), text) != 0)
        print_error("in %s:\n", a->name);
    assert_string_equal(trace_text(&o.events), text);
    outcome_done(&o);
}

#define OK "HTTP/1.1 200 OK\r\n"
#define REUSED "closed ok\nidle\n"
#define ENDED "conn close ok\nclosed ok\nsession closed\n"
#define GONE "conn close origin-gone\nclosed origin-gone\nsession closed\n"
#define BAD "conn close origin-protocol\nclosed origin-protocol\nsession closed\n"

static void answers_are_told_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const struct answer table[] = {
        {"a body by length", &get, OK "X-A: 1\r\nContent-Length: 7\r\nx-a:2\r\n\r\nhello\r\n",
         false, "200 length=7 {X-A: 1; x-a: 2}\ndata hello\\r\\n\nend\n" REUSED},
        {"a length of nothing", &get, OK "Content-Length: 0\r\n\r\n", false,
         "200 length=0 end\n" REUSED},
        {"a chunked body with extensions and trailers", &get,
         OK "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nX-T: 1\r\n\r\n",
         false, "200\ndata hello!\nend {X-T: 1}\n" REUSED},
        {"framing in trailers is dropped", &get,
         OK "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\nHost: b\r\n\r\n", false,
         "200\nend\n" REUSED},
        {"an answer to HEAD has no body", &head_method, OK "Content-Length: 1234\r\n\r\n", false,
         "200 length=1234 end\n" REUSED},
        {"chunked neither", &head_method, OK "Transfer-Encoding: chunked\r\n\r\n", false,
         "200 end\n" REUSED},
        {"204 has no body", &get, "HTTP/1.1 204 No Content\r\n\r\n", false, "204 end\n" REUSED},
        {"204 with a length has none either", &get,
         "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", false, "204 end\n" REUSED},
        {"304 has no body", &get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false,
         "304 length=5 end\n" REUSED},
        {"a body until the end", &get, OK "\r\nhello", true, "200\ndata hello\nend\n" ENDED},
        {"an empty body until the end", &get, OK "\r\n", true, "200\nend\n" ENDED},
        {"a body until the end goes on", &get, OK "\r\nhello", false, "200\ndata hello\n"},
        {"HTTP/1.0 ends the connection", &get, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
         false, "200 length=2\ndata ok\nend\n" ENDED},
        {"HTTP/1.0 may keep it", &get,
         "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", false,
         "200 length=2\ndata ok\nend\n" REUSED},
        {"connection: close ends it", &get,
         OK "Connection: x, Close\r\nX: 1\r\nContent-Length: 2\r\n\r\nok", false,
         "200 length=2\ndata ok\nend\n" ENDED},
        {"any number of 1xx comes first", &get,
         "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 199 "
         "\r\n\r\n" OK "Content-Length: 2\r\n\r\nok",
         false, "100\n103 {Link: </a>}\n199\n200 length=2\ndata ok\nend\n" REUSED},
        {"1xx alone ends nothing", &get, "HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\n",
         false, "100\n"},
        {"no phrase, no blank", &get, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false,
         "200 length=0 end\n" REUSED},
        {"an unknown status is passed on", &get, "HTTP/1.1 999 \xff\r\nContent-Length: 0\r\n\r\n",
         false, "999 length=0 end\n" REUSED},
        {"equal lengths are one", &get, OK "Content-Length: 2\r\n\r\nok", false,
         "200 length=2\ndata ok\nend\n" REUSED},
        {"coding and length: the coding counts, the peer is suspect (H1-02)", &get,
         OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false,
         "200\ndata hello\nend\n" ENDED},
        {"hop-by-hop fields stay here (H1-04)", &get,
         OK "Connection: X-Int, keep-alive\r\nX-Int: a\r\nKeep-Alive: "
            "timeout=9\r\nProxy-Authenticate: Basic\r\nTrailer: X-T\r\n"
            "Content-Length: 0\r\n\r\n",
         false, "200 length=0 end\n" REUSED},
        {"the end before an answer", &get, "", true, GONE},
        {"the end inside a head", &get, OK "Content-Le", true, GONE},
        {"the end behind 1xx", &get, "HTTP/1.1 100 Continue\r\n\r\n", true, "100\n" GONE},
        {"the end inside a body by length", &get, OK "Content-Length: 50\r\n\r\nhello", true,
         "200 length=50\ndata hello\n" GONE},
        {"the end inside a chunk", &get, OK "Transfer-Encoding: chunked\r\n\r\n6\r\nhello", true,
         "200\ndata hello\n" GONE},
        {"the end between chunks", &get, OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
         true, "200\ndata hello\n" GONE},
        {"the end behind the last chunk", &get,
         OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", true,
         "200\ndata hello\n" GONE},
        {"the end inside the trailers", &get,
         OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\n", true,
         "200\ndata hello\n" GONE},
        {"a refused upgrade is an ordinary answer", &websocket,
         "HTTP/1.1 403 Forbidden\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno", false,
         "403 length=2\ndata no\nend\n" REUSED},
        {"a switch that was asked for", &websocket,
         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: "
         "Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
         false,
         "101 protocol=websocket {Sec-WebSocket-Accept: x}\ndata HTTP/1.1 200 OK\\r\\n\\r\\n\n"},
        {"the other end of a tunnel", &websocket,
         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
         "upgrade\r\n\r\nframe",
         true, "101 protocol=websocket\ndata frame\nend\n"},
        {"1xx before a switch", &websocket,
         "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: "
         "upgrade\r\n\r\nframe",
         false, "103\n101 protocol=websocket\ndata frame\n"},
        {"a 2xx to CONNECT", &connect_host, "HTTP/1.1 299 Fine\r\nContent-Length: 3\r\n\r\nabcdef",
         false, "299 protocol=connect\ndata abcdef\n"},
        {"another answer to CONNECT", &connect_host,
         "HTTP/1.1 407 No\r\nContent-Length: 3\r\n\r\nabc", false,
         "407 length=3\ndata abc\nend\n" REUSED},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(&table[i]);
}

static void broken_answers_end_the_connection(void **state)
{
    (void)state;
    static const struct answer table[] = {
        {"no HTTP", &get, "hello world this is not http\r\n\r\n", false, BAD},
        {"an empty line first", &get, "\r\n" OK "\r\n", false, BAD},
        {"a status of two digits", &get, "HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok", false,
         BAD},
        {"a status of four", &get, "HTTP/1.1 2000 OK\r\n\r\n", false, BAD},
        {"status 099", &get, "HTTP/1.1 099 OK\r\n\r\n", false, BAD},
        {"version 2", &get, "HTTP/2.0 200 OK\r\n\r\n", false, BAD},
        {"ICE", &get, "ICE/1.0 200 OK\r\n\r\n", false, BAD},
        {"a bare LF behind the status line", &get, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
         false, BAD},
        {"a bare CR in a value", &get, OK "X-A: a\rb\r\nContent-Length: 2\r\n\r\nok", false, BAD},
        {"a control byte in a value", &get, OK "X-A: \x01\r\nContent-Length: 2\r\n\r\nok", false,
         BAD},
        {"a blank before the colon", &get, OK "X-A : b\r\nContent-Length: 2\r\n\r\nok", false, BAD},
        {"a folded line", &get, OK "X-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok", false, BAD},
        {"a length that is no number", &get, OK "Content-Length: 5x\r\n\r\nhello", false, BAD},
        {"two lengths", &get, OK "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", false, BAD},
        {"an unknown coding", &get, OK "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", false,
         BAD},
        {"an empty coding", &get, OK "Transfer-Encoding:\r\n\r\nhello", false, BAD},
        {"a coding in HTTP/1.0", &get,
         "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, BAD},
        {"a bad chunk", &get, OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n", false,
         "200\ndata hello\n" BAD},
        {"a bare CR in an extension", &get,
         OK "Transfer-Encoding: chunked\r\n\r\n5;x=\"\r\"\r\nhello\r\n0\r\n\r\n", false,
         "200\n" BAD},
        {"a bad trailer", &get, OK "Transfer-Encoding: chunked\r\n\r\n0\r\nX Y: 1\r\n\r\n", false,
         "200\n" BAD},
        {"a switch nobody asked for", &get,
         "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", false, BAD},
        {"a switch to something else (WS-03)", &websocket,
         "HTTP/1.1 101 S\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n", false, BAD},
        {"a switch to nothing (WS-03)", &websocket, "HTTP/1.1 101 S\r\nConnection: upgrade\r\n\r\n",
         false, BAD},
        {"a switch without the option", &websocket, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n",
         false, BAD},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(&table[i]);
}

/* ---- what is written */

static void requests_are_framed_anew(void **state)
{
    (void)state;
    static struct field x_sum[] = {{TEXT("X-Sum"), TEXT("9")}};
    static const struct http_head sum = {.length = -1, .fields = x_sum, .nfields = 1};
    static const struct {
        struct ask ask;
        const char *output;
    } table[] = {
        {{.head = {HEAD_OF("GET")}}, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"},
        {{.head = {HEAD_OF("GET"), .fields = x_sum, .nfields = 1}},
         "GET / HTTP/1.1\r\nhost: a\r\nX-Sum: 9\r\n\r\n"},
        {{.head = {HEAD_OF("POST")}}, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"},
        {{.head = {HEAD_OF("PATCH")}}, "PATCH / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"},
        {{.head = {HEAD_OF("DELETE")}}, "DELETE / HTTP/1.1\r\nhost: a\r\n\r\n"},
        {{.head = {.method = TEXT("GET"), .path = TEXT("/a"), .authority = TEXT("a"), .length = 0}},
         "GET /a HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"},
        {{.head = {HEAD_OF("POST")}, .body = "hello", .trailers = &sum},
         "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: "
         "chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n"},
        {{.head = {.method = TEXT("PUT"), .path = TEXT("/"), .authority = TEXT("a"), .length = 5},
          .body = "hello"},
         "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"},
        {{.head = {HEAD_OF("POST"), .te_trailers = true}},
         "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\ncontent-length: "
         "0\r\n\r\n"},
        {{.head = {HEAD_OF("GET"), .protocol = TEXT("websocket")}},
         "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"},
        {{.head = {.method = TEXT("CONNECT"),
                   .path = TEXT(""),
                   .authority = TEXT("a:1"),
                   .length = -1}},
         "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct worker *w = worker_new(0);
        struct side x;
        side_init(&x, w, H1_CLIENT, NULL, &nobody, NULL);
        ask(&x, &table[i].ask);
        struct str out = fake_written(x.c);
        assert_int_equal(out.n, strlen(table[i].output));
        assert_memory_equal(out.p, table[i].output, out.n);
        side_done(&x);
        worker_free(w);
    }
}

static void long_fields_are_written_whole(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2035, 2036, 2037, 2038, 2048, 5000, 40000};
    static char value[40000], expected[42000];
    memset(value, 'v', sizeof value);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct field fields[] = {{TEXT("x-first"), TEXT("1")},
                                 {TEXT("x-long"), {value, lengths[i]}},
                                 {TEXT("x-last"), TEXT("2")}};
        struct ask a = {.head = {HEAD_OF("GET"), .fields = fields, .nfields = 3}};
        int n =
            snprintf(expected, sizeof expected,
                     "GET / HTTP/1.1\r\nhost: a\r\nx-first: 1\r\nx-long: %.*s\r\nx-last: 2\r\n\r\n",
                     (int)lengths[i], value);
        struct worker *w = worker_new(0);
        struct side x;
        side_init(&x, w, H1_CLIENT, NULL, &nobody, NULL);
        ask(&x, &a);
        assert_int_equal(fake_written(x.c).n, n);
        assert_memory_equal(fake_written(x.c).p, expected, n);
        side_done(&x);
        worker_free(w);
    }
}

/* ---- single scenes */

struct scene {
    struct worker *w;
    struct side x;
};

static struct tap *begin(struct scene *s, const struct ask *a)
{
    s->w = worker_new(0);
    side_init(&s->x, s->w, H1_CLIENT, NULL, &nobody, NULL);
    return a ? ask(&s->x, a) : NULL;
}

static void done(struct scene *s)
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

static void assert_events(struct scene *s, const char *text)
{
    if (s->x.n > 0)
        tap_flush(side_tap(&s->x));
    assert_string_equal(trace_text(&s->x.trace), text);
}

#define ANSWER OK "Content-Length: 2\r\n\r\nok"
#define ANSWER_EVENTS "200 length=2\ndata ok\nend\n"

static void a_connection_carries_one_exchange_after_the_other(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &get);
    assert_null(side_open(&s.x)); /* busy */
    feed(&s, ANSWER);
    ask(&s.x, &post);
    feed(&s, OK "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    ask(&s.x, &head_method);
    feed(&s, OK "Content-Length: 9\r\n\r\n");
    ask(&s.x, &get);
    feed(&s, OK "\r\nok");
    feed_eof(&s);
    assert_events(&s, ANSWER_EVENTS REUSED "200\ndata ok\nend\n" REUSED "200 length=9 end\n" REUSED
                                           "200\ndata ok\nend\n" ENDED);
    assert_int_equal(s.x.idles, 3);
    done(&s);
}

static void ask_again(struct side *x)
{
    if (x->idles < 4)
        tap_head(side_open(x), &get.head, true);
}

static void the_next_exchange_may_begin_inside_idle(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &get);
    s.x.on_idle = ask_again;
    feed(&s, ANSWER);
    feed(&s, "HTTP/1.1 204 No Content\r\n\r\n");
    feed(&s, OK "Content-Length: 0\r\n\r\n");
    feed(&s, ANSWER);
    assert_events(&s, ANSWER_EVENTS REUSED "204 end\n" REUSED
                                           "200 length=0 end\n" REUSED ANSWER_EVENTS REUSED);
    done(&s);
}

/* H13 */
static void bytes_behind_an_answer_end_the_connection(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &get);
    feed(&s, ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    assert_events(&s, ANSWER_EVENTS ENDED);
    done(&s);
    begin(&s, &head_method);
    feed(&s, OK "Content-Length: 4\r\n\r\nevil");
    assert_events(&s, "200 length=4 end\n" ENDED);
    done(&s);
    begin(&s, &get);
    feed(&s, "HTTP/1.1 204 No Content\r\n\r\nevil");
    assert_events(&s, "204 end\n" ENDED);
    done(&s);
}

static void bytes_on_an_idle_connection_end_it(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &get);
    feed(&s, ANSWER);
    feed(&s, "H");
    assert_events(&s, ANSWER_EVENTS REUSED "conn close origin-protocol\nsession closed\n");
    done(&s);
    begin(&s, NULL);
    feed(&s, "H");
    assert_events(&s, "conn close origin-protocol\nsession closed\n");
    done(&s);
}

/* What came before our request has left is no answer to it; it may be sent again elsewhere. */
static void what_comes_before_the_request_has_left_is_no_answer(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        for (int what = 0; what < 3; what++) {
            struct scene s;
            begin(&s, NULL);
            struct tap *t = side_open(&s.x);
            if (asked)
                tap_head(t, &get.head, true);
            if (what == 0)
                fake_feed(s.x.c, ANSWER, strlen(ANSWER));
            else if (what == 1)
                fake_feed_eof(s.x.c);
            else
                fake_feed_error(s.x.c);
            fake_settle(s.w);
            assert_false(t->spoke);
            assert_events(&s, "conn close origin-gone\nclosed refused\nsession closed\n");
            assert_int_equal(fake_written(s.x.c).n, 0);
            done(&s);
        }
    }
}

static void the_end_of_an_idle_connection_is_no_fault(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &get);
    feed(&s, ANSWER);
    feed_eof(&s);
    assert_events(&s, ANSWER_EVENTS REUSED "conn close ok\nsession closed\n");
    done(&s);
}

static void a_drained_session_ends_after_its_exchange(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &get);
    s.x.s->ops->drain(s.x.s);
    feed(&s, ANSWER);
    assert_events(&s, ANSWER_EVENTS ENDED);
    done(&s);
    begin(&s, &get);
    feed(&s, ANSWER);
    s.x.s->ops->drain(s.x.s);
    assert_null(side_open(&s.x));
    fake_settle(s.w);
    assert_events(&s, ANSWER_EVENTS REUSED "conn close drain\nsession closed\n");
    done(&s);
}

static void closing_a_session_is_quiet_and_told_later(void **state)
{
    (void)state;
    struct scene s;
    struct tap *t = begin(&s, &half_post);
    t->in_op = true; /* an event now would be one inside an operation */
    s.x.s->ops->close(s.x.s, WHY_REVOKED);
    t->in_op = false;
    tap_data(t, STR("swallowed"));
    assert_null(side_open(&s.x));
    fake_settle(s.w);
    assert_events(&s, "conn close revoked\nclosed revoked\nsession closed\n");
    done(&s);
}

static void cancel_closes_the_connection(void **state)
{
    (void)state;
    struct scene s;
    struct tap *t = begin(&s, &half_post);
    feed(&s, OK "\r\nhel");
    tap_cancel(t, WHY_CLIENT_GONE);
    feed(&s, "lo");
    assert_events(&s,
                  "200\ndata hel\ncancel client-gone\nconn close client-gone\nsession closed\n");
    done(&s);
}

/* H5, seen from the other side. */
static void an_answer_before_the_request_is_complete_does_not_end_the_exchange(void **state)
{
    (void)state;
    struct scene s;
    struct tap *t = begin(&s, &half_post);
    feed(&s, ANSWER);
    assert_events(&s, ANSWER_EVENTS);
    tap_data(t, STR("more"));
    tap_end(t, NULL);
    fake_settle(s.w);
    assert_events(&s, ANSWER_EVENTS REUSED);
    done(&s);
    t = begin(&s, &half_post);
    feed(&s, OK "\r\nok");
    feed_eof(&s);
    assert_events(&s, "200\ndata ok\nend\n");
    tap_end(t, NULL);
    fake_settle(s.w);
    assert_events(&s, "200\ndata ok\nend\n" ENDED);
    done(&s);
    t = begin(&s, &half_post);
    feed(&s, ANSWER);
    feed_eof(&s); /* the answer is whole, the connection is not for another */
    tap_end(t, NULL);
    fake_settle(s.w);
    assert_events(&s, ANSWER_EVENTS ENDED);
    done(&s);
}

static void a_request_the_kernel_has_not_taken_is_not_done(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, NULL);
    fake_room(s.x.c, 10);
    ask(&s.x, &post);
    feed(&s, ANSWER);
    assert_events(
        &s,
        ANSWER_EVENTS ENDED); /* an early answer; the rest of the request will not be waited for */
    done(&s);
}

static void a_switch_before_the_request_is_complete_is_a_fault(void **state)
{
    (void)state;
    struct scene s;
    static const struct ask half = {
        .head = {HEAD_OF("GET"), .protocol = TEXT("websocket")}, .body = "x", .open = true};
    begin(&s, &half);
    feed(&s, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    assert_events(&s, BAD);
    done(&s);
}

static void a_reset_is_told_once_in_every_state(void **state)
{
    (void)state;
    static const struct {
        const struct ask *ask;
        const char *input, *events;
    } table[] = {
        {&get, "", ""},
        {&get, "HTTP/1.1 2", ""},
        {&get, "HTTP/1.1 100 C\r\n\r\n", "100\n"},
        {&get, OK "\r\n", "200\n"},
        {&get, OK "\r\nhello", "200\ndata hello\n"}, /* a reset is no end of a body */
        {&get, OK "Content-Length: 9\r\n\r\nhello", "200 length=9\ndata hello\n"},
        {&half_post, ANSWER, ANSWER_EVENTS},
        {&websocket, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nx",
         "101 protocol=websocket\ndata x\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct scene s;
        char events[256];
        begin(&s, table[i].ask);
        feed(&s, table[i].input);
        fake_feed_error(s.x.c);
        fake_settle(s.w);
        snprintf(events, sizeof events, "%s" GONE, table[i].events);
        assert_events(&s, events);
        done(&s);
    }
}

static void heads_have_a_limit_and_1xx_share_it(void **state)
{
    (void)state;
    struct scene s;
    static char big[9000];
    memset(big, 'x', sizeof big - 1);
    memcpy(big, "HTTP/1.1 200 ", 13);
    begin(&s, &get);
    feed(&s, big);
    assert_events(&s, BAD);
    done(&s);
    struct tap *t = begin(&s, &get);
    for (int i = 0; i < 1000 && !t->over; i++)
        feed(&s, "HTTP/1.1 102 Processing\r\n\r\n");
    assert_true(t->over);
    assert_true(fake_end(s.x.c) == FAKE_CLOSED);
    done(&s);
}

/* ---- back-pressure */

static void feed_body(struct scene *s, const char *fields, bool in_chunks)
{
    static char body[200];
    memset(body, 'b', sizeof body);
    feed(s, OK);
    feed(s, fields);
    for (int i = 0; i < 400; i++) {
        if (in_chunks)
            fake_feed(s->x.c, "c8\r\n", 4);
        fake_feed(s->x.c, body, sizeof body);
        if (in_chunks)
            fake_feed(s->x.c, "\r\n", 2);
    }
    if (in_chunks)
        fake_feed(s->x.c, "0\r\n\r\n", 5);
    fake_feed_eof(s->x.c);
    fake_settle(s->w);
}

static void a_body_stops_at_the_window_and_goes_on_with_credit(void **state)
{
    (void)state;
    static const char *const fields[] = {"\r\n", "Content-Length: 80000\r\n\r\n",
                                         "Transfer-Encoding: chunked\r\n\r\n"};
    for (size_t i = 0; i < 3; i++) {
        struct scene s;
        begin(&s, NULL);
        s.x.hold = true;
        struct tap *t = ask(&s.x, &get);
        feed_body(&s, fields[i], i == 2);
        assert_int_equal(t->received, 1024);
        assert_true(fake_unread(s.x.c) > 80000 - 1024 - 3 * CHUNK_BYTES);
        while (!t->got_end) {
            tap_credit(t, tap_owed(t) < 999 ? tap_owed(t) : 999);
            fake_settle(s.w);
        }
        assert_int_equal(t->received, 80000);
        assert_true(t->over);
        done(&s);
    }
}

static void a_large_body_reads_in_bulk_and_goes_back_afterwards(void **state)
{
    (void)state;
    struct scene s;
    static char block[65536];
    struct http_limits limits = side_limits;
    limits.window = 1 << 20;
    s.w = worker_new(0);
    side_init(&s.x, s.w, H1_CLIENT, &limits, &nobody, NULL);
    s.x.trace.quiet = true;
    struct tap *t = ask(&s.x, &get);
    feed(&s, OK "Content-Length: 1048576\r\n\r\n");
    for (int i = 0; i < 16; i++)
        side_feed(&s.x, (struct str){block, sizeof block}, &(struct cuts){0});
    assert_int_equal(t->received, 1048576);
    assert_true(t->over);
    assert_int_equal(s.x.idles, 1);
    done(&s);
}

/* Not a byte is lost where pieces are copied and where they are pointed to. */
static void chunks_of_every_size_come_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,    511,  512,   513,   1023,  1024,
                                   1025, 5000, 15000, 16384, 20000, 70000};
    static char text[70000];
    struct http_limits limits = side_limits;
    limits.window = 16000;
    struct worker *w = worker_new(0);
    struct side x;
    side_init(&x, w, H1_CLIENT, &limits, &nobody, NULL);
    ask(&x, &get);
    side_feed(&x, STR(OK "Transfer-Encoding: chunked\r\n\r\n"), &(struct cuts){0});
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char line[32];
        for (size_t k = 0; k < sizes[i]; k++)
            text[k] = (char)('a' + (k * 7 + i) % 26);
        int n = snprintf(line, sizeof line, "%zx\r\n", sizes[i]);
        side_feed(&x, (struct str){line, (size_t)n}, &(struct cuts){.every = 2});
        side_feed(&x, (struct str){text, sizes[i]}, &(struct cuts){.every = 9000});
        side_feed(&x, STR("\r\n"), &(struct cuts){0});
        assert_true(side_tap(&x)->data_n >= sizes[i]);
        assert_memory_equal(side_tap(&x)->data + side_tap(&x)->data_n - sizes[i], text, sizes[i]);
    }
    side_feed(&x, STR("0\r\n\r\n"), &(struct cuts){0});
    assert_true(side_tap(&x)->got_end);
    side_done(&x);
    worker_free(w);
}

/* ---- tunnels */

#define SWITCH "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"

static void a_tunnel_may_end_one_way_and_go_on_the_other(void **state)
{
    (void)state;
    struct scene s;
    struct tap *t = begin(&s, &websocket);
    feed(&s, SWITCH "a");
    tap_data(t, STR("x"));
    tap_end(t, NULL);
    fake_settle(s.w);
    feed(&s, "b");
    feed_eof(&s);
    assert_events(&s, "101 protocol=websocket\ndata a\nconn fin\ndata b\nend\n" ENDED);
    done(&s);
    t = begin(&s, &websocket);
    feed(&s, SWITCH "a");
    feed_eof(&s);
    fake_room(s.x.c, 2);
    tap_data(t, STR("hello"));
    tap_end(t, NULL);
    fake_settle(s.w);
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_events(&s, "101 protocol=websocket\ndata a\nend\n" ENDED);
    assert_int_equal(fake_lost(s.x.c), 0);
    done(&s);
    t = begin(&s, &websocket);
    feed(&s, SWITCH "a");
    fake_room(s.x.c, 2);
    tap_data(t, STR("hello"));
    tap_end(t, NULL);
    fake_settle(s.w);
    feed_eof(&s); /* while our last bytes wait for the kernel */
    assert_false(t->over);
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_true(t->over);
    assert_int_equal(fake_lost(s.x.c), 0);
    done(&s);
}

/* ---- a handshake that came over HTTP/2 (WS-04) */

static struct field version_13[] = {{TEXT("sec-websocket-version"), TEXT("13")},
                                    {TEXT("origin"), TEXT("https://a")}};
static const struct ask keyless = {
    .head = {HEAD_OF("GET"), .protocol = TEXT("websocket"), .keyless = true}};
static const struct ask keyless_13 = {.head = {HEAD_OF("GET"), .protocol = TEXT("websocket"),
                                               .keyless = true, .fields = version_13,
                                               .nfields = 2}};

#define BEFORE_KEY "GET / HTTP/1.1\r\nhost: a\r\n"
#define FIELDS_13 "sec-websocket-version: 13\r\norigin: https://a\r\n"
#define ASKS "connection: upgrade\r\nupgrade: websocket\r\n\r\n"

/* The key in what was written; all around it must be `before` and `after`. */
static struct str made_key(struct str written, const char *before, const char *after)
{
    size_t n = strlen(before) + strlen("sec-websocket-key: ");
    char text[512];
    assert_true(written.n >= n + WEBSOCKET_KEY_BYTES);
    struct str key = str_head(str_skip(written, n), WEBSOCKET_KEY_BYTES);
    snprintf(text, sizeof text, "%ssec-websocket-key: %.*s\r\n%s", before, STR_ARG(key), after);
    assert_true(str_eq(written, str_of(text)));
    return key;
}

static void a_handshake_over_http2_gets_a_fresh_key(void **state)
{
    (void)state;
    struct scene s;
    char first[WEBSOCKET_KEY_BYTES];
    begin(&s, &keyless);
    struct str key =
        made_key(fake_written(s.x.c), BEFORE_KEY, "sec-websocket-version: 13\r\n" ASKS);
    uint8_t bytes[WEBSOCKET_KEY_BYTES];
    size_t n;
    assert_true(text_base64(key, bytes, &n));
    assert_int_equal(n, 16);
    memcpy(first, key.p, sizeof first);
    done(&s);
    begin(&s, &keyless_13);
    key = made_key(fake_written(s.x.c), BEFORE_KEY FIELDS_13, ASKS);
    assert_memory_not_equal(first, key.p, sizeof first);
    done(&s);
}

/* The answer's fields; %s stands for the right value. */
struct grant {
    const char *answer, *events;
};

static void run_grant(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct grant *g = arg;
    struct scene s;
    char accept[WEBSOCKET_ACCEPT_BYTES + 1] = {0}, text[1024];
    begin(&s, &keyless);
    websocket_accept(
        made_key(fake_written(s.x.c), BEFORE_KEY, "sec-websocket-version: 13\r\n" ASKS), accept);
    struct str rest = str_of(g->answer), piece;
    size_t n = 0;
    for (bool first = true; str_next(&rest, '%', &piece); first = false)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", first ? "" : accept,
                              STR_ARG(piece));
    side_feed(&s.x, (struct str){text, n}, cuts);
    tap_flush(side_tap(&s.x));
    trace_line(&ret->events, "%s", trace_text(&s.x.trace));
    done(&s);
}

static void the_answer_to_our_key_is_checked_and_ends_here(void **state)
{
    (void)state;
#define GRANTED "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    static const struct grant table[] = {
        {GRANTED "Sec-WebSocket-Accept: %\r\nSec-WebSocket-Protocol: p\r\n\r\nframe",
         "101 protocol=websocket {Sec-WebSocket-Protocol: p}\ndata frame\n"},
        {GRANTED "A: 1\r\nsec-websocket-accept:%  \r\nB: 2\r\n\r\n",
         "101 protocol=websocket {A: 1; B: 2}\n"},
        {"HTTP/1.1 103 E\r\n\r\n" GRANTED "Sec-WebSocket-Accept: %\r\n\r\n",
         "103\n101 protocol=websocket\n"},
        {GRANTED "\r\n", BAD},
        {GRANTED "Sec-WebSocket-Accept: \r\n\r\n", BAD},
        {GRANTED "Sec-WebSocket-Accept: x%\r\n\r\n", BAD},
        {GRANTED "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", BAD},
        {GRANTED "Sec-WebSocket-Accept: %\r\nSec-WebSocket-Accept: %\r\n\r\n", BAD},
        {GRANTED "Sec-WebSocket-Accept: %\r\nSec-WebSocket-Accept: x\r\n\r\n", BAD},
        {GRANTED "Sec-WebSocket-Accept: %, %\r\n\r\n", BAD},
        /* over HTTP/2 it would look like a grant */
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", BAD},
        {"HTTP/1.1 204 N\r\n\r\n", BAD},
        {"HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno", "403 length=2\ndata no\nend\n" REUSED},
        {"HTTP/1.1 302 F\r\nContent-Length: 0\r\n\r\n", "302 length=0 end\n" REUSED},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct outcome o;
        char text[512];
        same_however_cut(run_grant, (void *)(uintptr_t)&table[i], strlen(table[i].answer), &o);
        snprintf(text, sizeof text, "%s\n", table[i].events);
        if (strcmp(trace_text(&o.events), text) != 0)
            print_error("in row %zu:\n", i);
        assert_string_equal(trace_text(&o.events), text);
        outcome_done(&o);
    }
}

static void the_next_request_knows_nothing_of_the_key(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, &keyless);
    feed(&s, "HTTP/1.1 403 F\r\nContent-Length: 0\r\n\r\n");
    ask(&s.x, &websocket);
    feed(&s, SWITCH "a"); /* h1 to h1: what is there or not is between the ends */
    tap_flush(side_tap(&s.x));
    assert_events(&s, "403 length=0 end\n" REUSED "101 protocol=websocket\ndata a\n");
    done(&s);
}

/* ---- each side reads what the other writes */

static void what_a_client_writes_a_server_reads_the_same(void **state)
{
    (void)state;
    static struct field many[] = {{TEXT("X-A"), TEXT("1\t \x80\xff!")},
                                  {TEXT("x-a"), TEXT("")},
                                  {TEXT("Cookie"), TEXT("a=b; c=\"d\"")}};
    static const struct ask asks[] = {
        {.head = {HEAD_OF("GET"), .fields = many, .nfields = 3}},
        {.head = {HEAD_OF("PURGE-X"), .fields = many, .nfields = 3}, .body = "hello"},
        {.head = {.method = TEXT("PUT"),
                  .path = TEXT("/%2f?a=\x80"),
                  .authority = TEXT("[::1]:8"),
                  .length = 5},
         .body = "hello"},
        {.head =
             {.method = TEXT("OPTIONS"), .path = TEXT("*"), .authority = TEXT("a"), .length = -1}},
        {.head = {HEAD_OF("POST"), .te_trailers = true}},
        {.head = {HEAD_OF("GET"), .protocol = TEXT("websocket")}},
        {.head = {HEAD_OF("GET"), .protocol = TEXT("websocket"), .te_trailers = true}},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        struct scene s;
        struct side server;
        struct trace expected;
        begin(&s, &asks[i]);
        side_init(&server, s.w, H1_SERVER, NULL, &nobody, NULL);
        side_feed(&server, fake_written(s.x.c), &(struct cuts){.every = 3});
        tap_flush(side_tap(&server));
        trace_init(&expected);
        trace_line(&expected, "accept");
        struct http_head head = asks[i].head;
        if (!asks[i].body && str_eq(head.method, STR("POST")))
            head.length = 0;
        trace_head(&expected, "", &head, asks[i].body == NULL);
        if (asks[i].body)
            trace_line(&expected, "data hello\nend");
        assert_string_equal(trace_text(&server.trace), trace_text(&expected));
        trace_done(&expected);
        side_done(&server);
        done(&s);
    }
}

static const struct http_head *const spoken[] = {
    &(struct http_head){.status = 200, .length = 5},
    &(struct http_head){.status = 200, .length = -1},
    &(struct http_head){.status = 404,
                        .length = 5,
                        .fields =
                            (struct field[]){{TEXT("X-A"), TEXT("1")}, {TEXT("x-a"), TEXT("")}},
                        .nfields = 2},
    &(struct http_head){.status = 799, .length = -1},
};

static void what_a_server_writes_a_client_reads_the_same(void **state)
{
    (void)state;
    static struct field x_sum[] = {{TEXT("X-Sum"), TEXT("9")}};
    for (size_t i = 0; i < sizeof spoken / sizeof *spoken; i++) {
        struct scene s;
        struct side server;
        struct trace expected;
        begin(&s, &get);
        side_init(&server, s.w, H1_SERVER, NULL, &nobody, NULL);
        side_feed(&server, fake_written(s.x.c), &(struct cuts){0});
        tap_head(side_tap(&server), &(struct http_head){.status = 103, .length = -1}, false);
        tap_head(side_tap(&server), spoken[i], false);
        tap_data(side_tap(&server), STR("hello"));
        tap_end(side_tap(&server),
                &(struct http_head){.length = -1, .fields = x_sum, .nfields = 1});
        fake_settle(s.w);
        side_feed(&s.x, fake_written(server.c), &(struct cuts){.every = 3});
        trace_init(&expected);
        trace_line(&expected, "103");
        trace_head(&expected, "", spoken[i], false);
        trace_line(&expected, "data hello\nend%s\nclosed ok\nidle",
                   spoken[i]->length < 0 ? " {X-Sum: 9}" : "");
        assert_events(&s, trace_text(&expected));
        trace_done(&expected);
        side_done(&server);
        done(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_told_the_same_however_they_are_cut),
        cmocka_unit_test(broken_answers_end_the_connection),
        cmocka_unit_test(requests_are_framed_anew),
        cmocka_unit_test(long_fields_are_written_whole),
        cmocka_unit_test(a_connection_carries_one_exchange_after_the_other),
        cmocka_unit_test(the_next_exchange_may_begin_inside_idle),
        cmocka_unit_test(bytes_behind_an_answer_end_the_connection),
        cmocka_unit_test(bytes_on_an_idle_connection_end_it),
        cmocka_unit_test(what_comes_before_the_request_has_left_is_no_answer),
        cmocka_unit_test(the_end_of_an_idle_connection_is_no_fault),
        cmocka_unit_test(a_drained_session_ends_after_its_exchange),
        cmocka_unit_test(closing_a_session_is_quiet_and_told_later),
        cmocka_unit_test(cancel_closes_the_connection),
        cmocka_unit_test(an_answer_before_the_request_is_complete_does_not_end_the_exchange),
        cmocka_unit_test(a_request_the_kernel_has_not_taken_is_not_done),
        cmocka_unit_test(a_switch_before_the_request_is_complete_is_a_fault),
        cmocka_unit_test(a_reset_is_told_once_in_every_state),
        cmocka_unit_test(heads_have_a_limit_and_1xx_share_it),
        cmocka_unit_test(a_body_stops_at_the_window_and_goes_on_with_credit),
        cmocka_unit_test(a_large_body_reads_in_bulk_and_goes_back_afterwards),
        cmocka_unit_test(a_tunnel_may_end_one_way_and_go_on_the_other),
        cmocka_unit_test(chunks_of_every_size_come_whole),
        cmocka_unit_test(a_handshake_over_http2_gets_a_fresh_key),
        cmocka_unit_test(the_answer_to_our_key_is_checked_and_ends_here),
        cmocka_unit_test(the_next_request_knows_nothing_of_the_key),
        cmocka_unit_test(what_a_client_writes_a_server_reads_the_same),
        cmocka_unit_test(what_a_server_writes_a_client_reads_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
