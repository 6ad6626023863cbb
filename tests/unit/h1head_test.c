/* h1head_test.c — heads, byte by byte and whole: what passes the scan, what the start line and the
 * fields may be (DESIGN 18.3 L1, L14 to L16, each a row here). */
#include "http/h1head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#define TEXT(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

/* ---- the scan */

struct scan_case {
    struct str input;
    enum h1_scan_result result;
    size_t used; /* DONE only */
    unsigned lines;
};

/* Feeds the input in two pieces, each piece every so many bytes. */
static enum h1_scan_result scan_cut(struct str in, size_t limit, size_t cut, size_t every,
                                    size_t *ret_used, unsigned *ret_lines)
{
    struct h1_scan s = {0};
    enum h1_scan_result r = H1_SCAN_MORE;
    size_t at = 0, used = 0;
    while (at < in.n && r == H1_SCAN_MORE) {
        size_t n = at < cut && cut < in.n ? cut - at : in.n - at;
        if (n > every)
            n = every;
        r = h1_scan(&s, in.p + at, n, limit, &used);
        if (r == H1_SCAN_MORE)
            assert_int_equal(used, n);
        at += r == H1_SCAN_DONE ? used : n;
    }
    *ret_used = at;
    *ret_lines = s.lines;
    return r;
}

static void check_scan(const struct scan_case *c, size_t limit)
{
    size_t used;
    unsigned lines;
    for (size_t cut = 0; cut < c->input.n; cut++) {
        for (size_t every = 1; every <= c->input.n; every += every < 3 ? 1 : c->input.n) {
            enum h1_scan_result r = scan_cut(c->input, limit, cut, every, &used, &lines);
            if (r != c->result)
                print_error("%.*s cut at %zu, every %zu\n", STR_ARG(c->input), cut, every);
            assert_int_equal(r, c->result);
            if (r != H1_SCAN_DONE)
                continue;
            assert_int_equal(used, c->used);
            assert_int_equal(lines, c->lines);
        }
    }
}

static void lines_end_in_crlf_and_nothing_else(void **state)
{
    (void)state;
    static const struct scan_case table[] = {
        {TEXT("\r\n"), H1_SCAN_DONE, 2, 0},
        {TEXT("\r\nX"), H1_SCAN_DONE, 2, 0},
        {TEXT("A\r\n\r\n"), H1_SCAN_DONE, 5, 1},
        {TEXT("A\r\nB\r\n\r\nC\n"), H1_SCAN_DONE, 8, 2},
        {TEXT("A\r\nB: \tx\t \r\n\r\n\r\n"), H1_SCAN_DONE, 14, 2},
        {TEXT("A \0 \r\n\r\n"), H1_SCAN_DONE, 8, 1}, /* NUL is for the fields to refuse */
        {TEXT("A"), H1_SCAN_MORE, 0, 0},
        {TEXT("A\r"), H1_SCAN_MORE, 0, 0},
        {TEXT("A\r\n"), H1_SCAN_MORE, 0, 0},
        {TEXT("A\r\n\r"), H1_SCAN_MORE, 0, 0},
        {TEXT("A\n\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\n\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\rB\r\n\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\r\n\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\n\r\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\n\rB"), H1_SCAN_BAD, 0, 0},
        {TEXT("\rA"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\nB: c\n\r\n"), H1_SCAN_BAD, 0, 0}, /* L14: a bare LF anywhere */
        {TEXT("A\r\n B\r\n\r\n"), H1_SCAN_BAD, 0, 0}, /* L15: folded */
        {TEXT("A\r\nB: c\r\n\td\r\n\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\nB:\r\n c\r\n\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("A\r\n \r\n\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT(" A\r\n\r\n"), H1_SCAN_BAD, 0, 0},
        {TEXT("\tA\r\n\r\n"), H1_SCAN_BAD, 0, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check_scan(&table[i], 100);
}

static void the_limit_counts_every_byte_of_the_head(void **state)
{
    (void)state;
    static const struct scan_case fits = {TEXT("AB\r\nC: d\r\n\r\n"), H1_SCAN_DONE, 12, 2};
    static const struct scan_case over = {TEXT("AB\r\nC: d\r\n\r\n"), H1_SCAN_TOO_LARGE, 0, 0};
    static const struct scan_case open = {TEXT("ABCDEFGH"), H1_SCAN_MORE, 0, 0};
    static const struct scan_case open_over = {TEXT("ABCDEFGH"), H1_SCAN_TOO_LARGE, 0, 0};
    check_scan(&fits, 12);
    check_scan(&fits, 13);
    for (size_t limit = 0; limit < 12; limit++)
        check_scan(&over, limit);
    check_scan(&open, 8);
    check_scan(&open_over, 7);
}

/* The first thing that is wrong decides, wherever the reads end. */
static void what_lies_beyond_the_limit_is_not_looked_at(void **state)
{
    (void)state;
    static const struct scan_case beyond = {TEXT("ABCDEFGH\rX\r\n\r\n"), H1_SCAN_TOO_LARGE, 0, 0};
    static const struct scan_case before = {TEXT("AB\rDEFGHIJ\r\n\r\n"), H1_SCAN_BAD, 0, 0};
    for (size_t limit = 1; limit < 9; limit++)
        check_scan(&beyond, limit);
    for (size_t limit = 3; limit < 14; limit++)
        check_scan(&before, limit);
}

/* ---- complete heads */

struct head {
    struct arena arena;
    struct http_raw raw;
    struct http_fault fault;
    enum why why;
};

/* In memory of its own, so that a look beyond the block is found. */
static struct str copy(struct arena *a, struct str text)
{
    char *p = mem_new(text.n);
    memcpy(p, text.p, text.n);
    struct str s = arena_str(a, (struct str){p, text.n});
    mem_free(p);
    return s;
}

static unsigned lines_of(struct str text)
{
    struct h1_scan s = {0};
    size_t used;
    assert_int_equal(h1_scan(&s, text.p, text.n, SIZE_MAX - 1, &used), H1_SCAN_DONE);
    assert_int_equal(used, text.n);
    return s.lines;
}

static void read_request(struct head *h, struct str text)
{
    unsigned lines = lines_of(text);
    arena_init(&h->arena, NULL, 0);
    h->fault = (struct http_fault){0, NULL};
    h->why =
        h1head_request(copy(&h->arena, text), lines ? lines - 1 : 0, &h->arena, &h->raw, &h->fault);
}

static void read_response(struct head *h, struct str text)
{
    unsigned lines = lines_of(text);
    arena_init(&h->arena, NULL, 0);
    h->why = h1head_response(copy(&h->arena, text), lines ? lines - 1 : 0, &h->arena, &h->raw);
}

static void start_lines_of_requests(void **state)
{
    (void)state;
    static const struct {
        struct str text;
        int status; /* 0: fine */
        const char *method, *target;
        unsigned minor;
    } table[] = {
        {TEXT("GET / HTTP/1.1\r\n\r\n"), 0, "GET", "/", 1},
        {TEXT("GET / HTTP/1.0\r\n\r\n"), 0, "GET", "/", 0},
        {TEXT("m!#$%&'*+-.^_`|~9 * HTTP/1.1\r\n\r\n"), 0, "m!#$%&'*+-.^_`|~9", "*",
         1}, /* L16: any token */
        {TEXT("X /\x80\xff#\"<>^{}|\\`%zz? HTTP/1.1\r\n\r\n"), 0, "X", "/\x80\xff#\"<>^{}|\\`%zz?",
         1}, /* L16: any byte */
        {TEXT("CONNECT a:1 HTTP/1.1\r\n\r\n"), 0, "CONNECT", "a:1", 1},
        {TEXT("GET  / HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0}, /* L14: two blanks */
        {TEXT("GET /  HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / a HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/1.1 \r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / \r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET /\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("G\xc3\xa9T / HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GE(T / HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET\t/\tHTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET /\t HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET /\0 HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET /\x1f HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET /\x7f HTTP/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / ICE/1.0\r\n\r\n"), 400, NULL, NULL, 0}, /* L14: other protocols */
        {TEXT("GET / RTSP/1.0\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / http/1.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/1.10\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/11\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/1,1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/1.\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/x.1\r\n\r\n"), 400, NULL, NULL, 0},
        {TEXT("GET / HTTP/1.2\r\n\r\n"), 505, NULL, NULL, 0},
        {TEXT("GET / HTTP/0.9\r\n\r\n"), 505, NULL, NULL, 0},
        {TEXT("GET / HTTP/2.0\r\n\r\n"), 505, NULL, NULL, 0}, /* L14: version 2.0 */
        {TEXT("PRI * HTTP/2.0\r\n\r\n"), 505, NULL, NULL, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct head h;
        read_request(&h, table[i].text);
        assert_int_equal(h.why, table[i].status ? WHY_CLIENT_PROTOCOL : WHY_OK);
        if (table[i].status == 0) {
            assert_true(str_eq(h.raw.method, str_of(table[i].method)));
            assert_true(str_eq(h.raw.target, str_of(table[i].target)));
            assert_int_equal(h.raw.minor, table[i].minor);
        } else {
            assert_int_equal(h.fault.status, table[i].status);
            assert_non_null(h.fault.text);
        }
        arena_done(&h.arena);
    }
}

static void status_lines(void **state)
{
    (void)state;
    static const struct {
        struct str text;
        int status; /* 0: refused */
        unsigned minor;
    } table[] = {
        {TEXT("HTTP/1.1 200 OK\r\n\r\n"), 200, 1},
        {TEXT("HTTP/1.0 404 Not  Found\t\x80\r\n\r\n"), 404, 0},
        {TEXT("HTTP/1.1 200 \r\n\r\n"), 200, 1},
        {TEXT("HTTP/1.1 200\r\n\r\n"), 200, 1},
        {TEXT("HTTP/1.1 100 Continue\r\n\r\n"), 100, 1},
        {TEXT("HTTP/1.1 999 x\r\n\r\n"), 999, 1},
        {TEXT("HTTP/1.1 099 x\r\n\r\n"), 0, 0}, /* L14 */
        {TEXT("HTTP/1.1 000 x\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 20 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 2000 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 2x0 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 +20 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1  200 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1\t200 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 200\tOK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 200 O\0K\r\n\r\n"), 0, 0},
        {TEXT("HTTP/2.0 200 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.2 200 OK\r\n\r\n"), 0, 0},
        {TEXT("ICE/1.0 200 OK\r\n\r\n"), 0, 0},
        {TEXT("http/1.1 200 OK\r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1 \r\n\r\n"), 0, 0},
        {TEXT("HTTP/1.1\r\n\r\n"), 0, 0},
        {TEXT("x\r\n\r\n"), 0, 0},
        {TEXT("\r\n"), 0, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct head h;
        read_response(&h, table[i].text);
        assert_int_equal(h.why, table[i].status ? WHY_OK : WHY_ORIGIN_PROTOCOL);
        if (table[i].status) {
            assert_int_equal(h.raw.status, table[i].status);
            assert_int_equal(h.raw.minor, table[i].minor);
        }
        arena_done(&h.arena);
    }
}

struct fields_case {
    struct str lines;
    const char *fields; /* "name=value|..."; NULL: refused */
};

static const struct fields_case fields_table[] = {
    {TEXT(""), ""},
    {TEXT("A:b\r\n"), "A=b|"},
    {TEXT("A: b\r\n"), "A=b|"},
    {TEXT("A: \t b \t \r\n"), "A=b|"},
    {TEXT("A: b  c\r\n"), "A=b  c|"},
    {TEXT("A:\r\n"), "A=|"},
    {TEXT("A: \t\r\n"), "A=|"},
    {TEXT("A:\r\nB:\r\nC: d\r\nE:\r\n"), "A=|B=|C=d|E=|"},
    {TEXT("A: :b: c:\r\n"), "A=:b: c:|"},
    {TEXT("A: b\tc\r\n"), "A=b\tc|"},
    {TEXT("A: \x80\xff\r\n"), "A=\x80\xff|"},
    {TEXT("Set-Cookie: a=1\r\nset-cookie: b=2, c\r\n"),
     "Set-Cookie=a=1|set-cookie=b=2, c|"}, /* H7 */
    {TEXT("!#$%&'*+-.^_`|~9aZ: 1\r\n"), "!#$%&'*+-.^_`|~9aZ=1|"},
    {TEXT("Connection: upgrade\r\nUpgrade: h2c, websocket\r\n"),
     "Connection=upgrade|Upgrade=h2c, websocket|"}, /* L5 */
    {TEXT("Connection: close\r\nX: 1\r\n"), "Connection=close|X=1|"},
    {TEXT("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
     "Content-Length=5|Transfer-Encoding=chunked|"}, /* for rules.c */
    {TEXT("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
     "Transfer-Encoding=chunked|Content-Length=5|"},
    {TEXT("Transfer-Encoding:\r\n"), "Transfer-Encoding=|"}, /* L14: rules.c refuses it */
    {TEXT("Transfer-Encoding: gzip, chunked\r\n"), "Transfer-Encoding=gzip, chunked|"},
    {TEXT("Transfer-Encoding: foo\r\n"), "Transfer-Encoding=foo|"},
    {TEXT("Host : a\r\n"), NULL}, /* L1 */
    {TEXT("Host\t: a\r\n"), NULL},
    {TEXT("X A: 1\r\n"), NULL},
    {TEXT(": 1\r\n"), NULL},
    {TEXT("A: b\r\n: 1\r\n"), NULL},
    {TEXT(":\r\n"), NULL},
    {TEXT("A\r\n"), NULL},
    {TEXT("A\r\nB: c\r\n"), NULL},
    {TEXT("A: b\0c\r\n"), NULL},
    {TEXT("A\0: b\r\n"), NULL},
    {TEXT("A: \x01\r\n"), NULL},
    {TEXT("A: \x7f\r\n"), NULL},
    {TEXT("\xc3\xa9: 1\r\n"), NULL},
    {TEXT("A(b): 1\r\n"), NULL},
    {TEXT("\"A\": 1\r\n"), NULL},
    {TEXT("Content-Length: 5\t\r\nA: \t\r\n"),
     "Content-Length=5|A=|"}, /* blanks at an end are nothing */
    {TEXT("Content-Length: 5x\r\n"), NULL},
    {TEXT("Content-Length: -5\r\n"), NULL},
};

static void assert_fields(const struct field *fields, unsigned n, const char *expected)
{
    char text[512] = "";
    size_t at = 0;
    for (unsigned i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%.*s=%.*s|", STR_ARG(fields[i].name),
                               STR_ARG(fields[i].value));
    assert_string_equal(text, expected);
    for (unsigned i = 0; i < n; i++)
        assert_non_null(fields[i].value.p);
}

static void fields_come_as_they_are_or_not_at_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fields_table / sizeof *fields_table; i++) {
        static const char *const starts[] = {"GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n"};
        const struct fields_case *c = &fields_table[i];
        for (int response = 0; response < 2; response++) {
            struct head h;
            char text[512];
            size_t at = strlen(starts[response]);
            memcpy(text, starts[response], at);
            memcpy(text + at, c->lines.p, c->lines.n);
            memcpy(text + at + c->lines.n, "\r\n", 2);
            struct str block = {text, at + c->lines.n + 2};
            if (response)
                read_response(&h, block);
            else
                read_request(&h, block);
            if ((h.why == WHY_OK) != (c->fields != NULL))
                print_error("row %zu: %.*s\n", i, STR_ARG(c->lines));
            assert_int_equal(h.why, c->fields  ? WHY_OK
                                    : response ? WHY_ORIGIN_PROTOCOL
                                               : WHY_CLIENT_PROTOCOL);
            if (c->fields)
                assert_fields(h.raw.fields, h.raw.nfields, c->fields);
            else if (!response)
                assert_int_equal(h.fault.status, 400);
            arena_done(&h.arena);
        }
    }
}

static void a_head_may_have_very_many_fields(void **state)
{
    (void)state;
    enum { FIELDS = 30000 };
    static char text[FIELDS * 5 + 100];
    size_t at = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < FIELDS; i++, at += 5)
        memcpy(text + at, "a:b\r\n", 5);
    memcpy(text + at, "\r\n", 2);
    struct head h;
    read_request(&h, (struct str){text, at + 2});
    assert_int_equal(h.why, WHY_OK);
    assert_int_equal(h.raw.nfields, FIELDS);
    assert_true(str_eq(h.raw.fields[FIELDS - 1].value, STR("b")));
    arena_done(&h.arena);
}

/* L6, H1-12 */
static void trailers_lose_what_frames_or_routes(void **state)
{
    (void)state;
    static const struct {
        struct str text;
        const char *fields;
    } table[] = {
        {TEXT("\r\n"), ""},
        {TEXT("X-T: 1\r\nGrpc-Status:0\r\n\r\n"), "X-T=1|Grpc-Status=0|"},
        {TEXT("Content-Length: 5\r\nX: 1\r\nTransfer-Encoding: chunked\r\nHost: b\r\nConnection: "
              "x\r\nTE: x\r\nUpgrade: x\r\n\r\n"),
         "X=1|"},
        {TEXT("X Y: 1\r\n\r\n"), NULL},
        {TEXT("X\r\n\r\n"), NULL},
        {TEXT("X: \0\r\n\r\n"), NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct arena a;
        struct http_head head;
        arena_init(&a, NULL, 0);
        enum why why = h1head_trailers(copy(&a, table[i].text), lines_of(table[i].text), &a, &head);
        assert_int_equal(why == WHY_OK, table[i].fields != NULL);
        if (table[i].fields) {
            assert_fields(head.fields, head.nfields, table[i].fields);
            assert_int_equal(head.length, -1);
        }
        arena_done(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_in_crlf_and_nothing_else),
        cmocka_unit_test(the_limit_counts_every_byte_of_the_head),
        cmocka_unit_test(what_lies_beyond_the_limit_is_not_looked_at),
        cmocka_unit_test(start_lines_of_requests),
        cmocka_unit_test(status_lines),
        cmocka_unit_test(fields_come_as_they_are_or_not_at_all),
        cmocka_unit_test(a_head_may_have_very_many_fields),
        cmocka_unit_test(trailers_lose_what_frames_or_routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
