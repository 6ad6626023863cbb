/* rules_test.c — framing, targets, hop-by-hop fields and reuse, as tables.  Cards: H1-01 to H1-08
 * of the HTTP/1 fault list. */
#include "http/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { MAX_FIELDS = 64 };

static struct arena mem;

static int begin(void **state)
{
    (void)state;
    arena_init(&mem, NULL, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_done(&mem);
    return 0;
}

/* ---- h1_reusable ---- */

static void h1_reuses_only_when_both_ends_are_done_and_nothing_is_left(void **state)
{
    static const struct {
        const char *what;
        struct h1_end e;
        bool reusable;
    } rows[] = {
        {"all is well", {true, true, true, true, false, 0}, true},
        {"our request is still going out", {false, true, true, true, false, 0}, false},
        {"the answer is not complete", {true, false, true, true, false, 0}, false},
        {"neither is complete", {false, false, true, true, false, 0}, false},
        {"the peer said close", {true, true, false, true, false, 0}, false},
        {"we said close", {true, true, true, false, false, 0}, false},
        {"both said close", {true, true, false, false, false, 0}, false},
        {"the end of the connection was the end of the body",
         {true, true, true, true, true, 0},
         false},
        {"one byte too many", {true, true, true, true, false, 1}, false},
        {"a whole answer too many", {true, true, true, true, false, SIZE_MAX}, false},
        {"nothing has begun", {false, false, false, false, false, 0}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (h1_reusable(&rows[i].e) != rows[i].reusable)
            fail_msg("%s", rows[i].what);
}

static void of_all_combinations_exactly_one_is_reusable(void **state)
{
    (void)state;
    unsigned reusable = 0;
    for (unsigned bits = 0; bits < 64; bits++) {
        struct h1_end e = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32 ? 7 : 0};
        bool want = e.request_done && e.response_done && e.peer_keeps && e.we_keep &&
                    !e.until_eof && e.unread == 0;
        assert_int_equal(h1_reusable(&e), want);
        reusable += h1_reusable(&e);
    }
    assert_int_equal(reusable, 1);
}

/* ---- heads from text ---- */

/* "Name: value" lines, one per '\n', as a codec would give them: trimmed, in memory of their own.
 */
static void read_lines(const char *lines, struct http_raw *raw)
{
    raw->fields = arena_get(&mem, MAX_FIELDS * sizeof *raw->fields);
    raw->nfields = 0;
    struct str rest = lines[0] ? arena_str(&mem, str_of(lines)) : STR_NONE, line;
    while (str_next(&rest, '\n', &line)) {
        ptrdiff_t colon = str_chr(line, ':');
        assert_true(colon >= 0 && raw->nfields < MAX_FIELDS);
        raw->fields[raw->nfields++] = (struct field){str_head(line, (size_t)colon),
                                                     str_trim(str_skip(line, (size_t)colon + 1))};
    }
}

struct outcome {
    struct http_head head;
    struct framing framing;
    struct http_fault fault;
    enum why why;
};

static struct outcome request(const char *method, const char *target, unsigned minor,
                              const char *lines)
{
    struct outcome o = {0};
    struct http_raw raw = {
        .method = str_of(method), .target = arena_str(&mem, str_of(target)), .minor = minor};
    read_lines(lines, &raw);
    o.why = rules_request(&raw, STR("http"), &o.head, &o.framing, &o.fault);
    assert_true(o.why == WHY_OK ||
                (o.why == WHY_CLIENT_PROTOCOL && o.fault.status >= 400 && o.fault.text));
    return o;
}

static struct outcome response(const struct http_head *to, int status, unsigned minor,
                               const char *lines)
{
    struct outcome o = {0};
    struct http_raw raw = {.status = status, .minor = minor};
    read_lines(lines, &raw);
    o.why = rules_response(&raw, to, &o.head, &o.framing);
    assert_true(o.why == WHY_OK || o.why == WHY_ORIGIN_PROTOCOL);
    return o;
}

/* "none", "5", "chunked", "eof"; "400", … with a '!' for refusals. */
static const char *body_of(const struct outcome *o)
{
    static char text[40];
    if (o->why != WHY_OK)
        snprintf(text, sizeof text, "!%d", o->why == WHY_CLIENT_PROTOCOL ? o->fault.status : 502);
    else if (o->framing.body == BODY_LENGTH)
        snprintf(text, sizeof text, "%lld", (long long)o->framing.length);
    else
        snprintf(text, sizeof text, "%s",
                 o->framing.body == BODY_NONE      ? "none"
                 : o->framing.body == BODY_CHUNKED ? "chunked"
                                                   : "eof");
    return text;
}

/* The fields that are left, "A=1 B=2". */
static const char *fields_of(const struct http_head *h)
{
    static char text[1000];
    size_t n = 0;
    for (unsigned i = 0; i < h->nfields; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s=%.*s", i ? " " : "",
                              STR_ARG(h->fields[i].name), STR_ARG(h->fields[i].value));
    text[n] = 0;
    return text;
}

#define TE "Transfer-Encoding: "
#define CL "Content-Length: "

static void a_request_is_framed_in_one_way_or_refused(void **state)
{
    static const struct {
        unsigned minor;
        const char *lines, *body;
    } rows[] = {
        {1, "", "none"},
        {1, CL "5", "5"},
        {1, CL "0", "none"},
        {1, CL "0005", "5"},
        {1, CL "9223372036854775807", "9223372036854775807"},
        {1, CL "9223372036854775808", "!400"},
        {1, CL "18446744073709551621", "!400"},
        {1, CL "99999999999999999999999999999999999999", "!400"},
        {1, CL "", "!400"},
        {1, CL "+5", "!400"},
        {1, CL "-5", "!400"},
        {1, CL "0x5", "!400"},
        {1, CL "5 5", "!400"},
        {1, CL "5a", "!400"},
        {1, CL "5.0", "!400"},
        {1, CL "\"5\"", "!400"},
        {1, CL "5e0", "!400"},
        {1, CL "5\x0b", "!400"},
        {1, CL "5;a", "!400"},
        {1, CL "5, 6", "!400"},
        {1, CL "5, 5", "!400"},
        {1, CL "5,", "!400"},
        {1, CL "5\n" CL "5", "!400"},
        {1, CL "5\n" CL "6", "!400"},
        {1, CL "0\n" CL "44", "!400"},
        {1, "content-LENGTH: 5", "5"},
        {1, "Content_Length: 44\n" CL "5", "5"},
        {1, TE "chunked", "chunked"},
        {1, "transfer-encoding: CHUNKED", "chunked"},
        {1, TE " chunked\t", "chunked"},
        {1, TE "chunked,", "!400"},
        {1, TE ",chunked", "!400"},
        {1, TE "", "!400"},
        {1, TE "chunked, chunked", "!400"},
        {1, TE "chunked\n" TE "chunked", "!400"},
        {1, TE "gzip\n" TE "chunked", "!400"},
        {1, TE "chunked, gzip", "!400"},
        {1, TE "gzip, chunked", "!501"},
        {1, TE "gzip", "!501"},
        {1, TE "foo, chunked", "!501"},
        {1, TE "xchunked", "!501"},
        {1, TE "identity", "!501"},
        {1, TE "chunked;a=b", "!400"},
        {1, TE "\"chunked\"", "!400"},
        {1, TE "chun ked", "!400"},
        {1, TE "chunked\x0b", "!400"},
        {1, CL "4\n" TE "chunked", "!400"},
        {1, TE "chunked\n" CL "4", "!400"},
        {1, CL "0\n" TE "chunked", "!400"},
        {1, CL "4\n" TE "gzip, chunked", "!400"},
        {1, CL "4\n" TE "xchunked", "!400"},
        {0, CL "5", "5"},
        {0, TE "chunked", "!400"},
        {0, TE "gzip", "!400"},
        {0, CL "5\n" TE "chunked", "!400"},
        {1, "Content-Encoding: chunked\n" CL "5", "5"},
        {1, "Transfer_Encoding: chunked\n" CL "5", "5"},
        {1, "Connection: Content-Length\n" CL "5", "5"},
        {1, "Connection: Transfer-Encoding\n" TE "chunked", "chunked"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[300];
        snprintf(lines, sizeof lines, "Host: gw%s%s", rows[i].lines[0] ? "\n" : "", rows[i].lines);
        struct outcome o = request("POST", "/", rows[i].minor, lines);
        if (strcmp(body_of(&o), rows[i].body) != 0)
            fail_msg("%s: %s, not %s", rows[i].lines, body_of(&o), rows[i].body);
    }
}

static void the_stated_length_stands_in_the_head(void **state)
{
    (void)state;
    assert_int_equal(request("POST", "/", 1, "Host: gw\n" CL "5").head.length, 5);
    assert_int_equal(request("POST", "/", 1, "Host: gw\n" CL "0").head.length, 0);
    assert_int_equal(request("POST", "/", 1, "Host: gw").head.length, -1);
    assert_int_equal(request("POST", "/", 1, "Host: gw\n" TE "chunked").head.length, -1);
}

static void a_target_gives_one_authority_and_one_path(void **state)
{
    static const struct {
        const char *method, *target, *result; /* "authority path", or a status */
    } rows[] = {
        {"GET", "/", "gw /"},
        {"GET", "/a%2Fb?x=%zz#y", "gw /a%2Fb?x=%zz#y"},
        {"GET", "//x", "gw //x"},
        {"GET", "/\"<>^`{|}\\", "gw /\"<>^`{|}\\"},
        {"GET", "/caf\xc3\xa9\xff", "gw /caf\xc3\xa9\xff"},
        {"GET", "http://other.test/p", "other.test /p"},
        {"GET", "HTTP://other.test:80/p?q", "other.test:80 /p?q"},
        {"GET", "https://other.test", "other.test /"},
        {"GET", "http://other.test?x=1", "other.test /?x=1"},
        {"GET", "http://o?", "o /?"},
        {"GET", "http://o#f", "o /#f"},
        {"GET", "http://[::1]:80?x", "[::1]:80 /?x"},
        {"GET", "http://[::1]/x//", "[::1] /x//"},
        {"GET", "http://", "400"},
        {"GET", "http:///x", "400"},
        {"GET", "http:/x", "400"},
        {"GET", "http://?x", "400"},
        {"GET", "http://u@h/", "400"},
        {"GET", "http://h:8x/", "400"},
        {"GET", "ftp://h/", "400"},
        {"GET", "foo", "400"},
        {"GET", "?x", "400"},
        {"GET", "", "400"},
        {"GET", "gw.test:80", "400"},
        {"GET", "*", "400"},
        {"get", "/", "gw /"},
        {"OPTIONS", "*", "gw *"},
        {"options", "*", "400"},
        {"OPTIONS", "*?x", "400"},
        {"OPTIONS", "/", "gw /"},
        {"CONNECT", "h.test:443", "h.test:443 "},
        {"CONNECT", "[::1]:443", "[::1]:443 "},
        {"CONNECT", "h.test", "400"},
        {"CONNECT", "h.test:", "400"},
        {"CONNECT", "/x", "400"},
        {"CONNECT", "http://h.test/", "400"},
        {"PURGE-X", "/", "gw /"},
        {"GE(T", "/", "400"},
        {"", "/", "400"},
        {"GET", "/a b", "400"},
        {"GET", "/a\tb", "400"},
        {"GET", "/a\x7f", "400"},
        {"GET", "/a\x01", "400"},
        {"GET", "/a\rb", "400"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct outcome o = request(rows[i].method, rows[i].target, 1, "Host: gw");
        char text[200];
        if (o.why == WHY_OK)
            snprintf(text, sizeof text, "%.*s %.*s", STR_ARG(o.head.authority),
                     STR_ARG(o.head.path));
        else
            snprintf(text, sizeof text, "%d", o.fault.status);
        if (strcmp(text, rows[i].result) != 0)
            fail_msg("%s %s: %s, not %s", rows[i].method, rows[i].target, text, rows[i].result);
    }
}

static void an_absolute_target_says_so_and_leaves_the_host_to_be_compared(void **state)
{
    static const struct {
        const char *method, *target, *absolute;
    } rows[] = {
        {"GET", "/x", ""},           {"OPTIONS", "*", ""},
        {"CONNECT", "h:1", ""},      {"GET", "http://other.test/p", "http"},
        {"GET", "HTTP://o", "http"}, {"GET", "https://o?x", "https"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct outcome o = request(rows[i].method, rows[i].target, 1, "Host: gw");
        assert_int_equal(o.why, WHY_OK);
        assert_true(str_eq(o.head.absolute, str_of(rows[i].absolute)));
        assert_true(str_eq(o.head.host, STR("gw")));
    }
    assert_null(request("GET", "http://o/", 0, "").head.host.p);
    struct outcome o = request("GET", "http://o/", 1, "Host:");
    assert_non_null(o.head.host.p);
    assert_int_equal(o.head.host.n, 0);
}

static void a_nul_in_the_target_is_refused(void **state)
{
    (void)state;
    struct field host = {STR("Host"), STR("gw")};
    struct http_raw raw = {
        .method = STR("GET"), .target = STR("/a\0b"), .minor = 1, .fields = &host, .nfields = 1};
    struct outcome o;
    assert_int_equal(rules_request(&raw, STR("http"), &o.head, &o.framing, &o.fault),
                     WHY_CLIENT_PROTOCOL);
}

static void there_is_exactly_one_good_host(void **state)
{
    static const struct {
        unsigned minor;
        const char *lines, *authority; /* NULL: refused; "-": none */
    } rows[] = {
        {1, "Host: gw.test", "gw.test"},
        {1, "hOST: gw.test:8080", "gw.test:8080"},
        {1, "Host: GW.Test.", "GW.Test."},
        {1, "Host:", ""},
        {1, "", NULL},
        {0, "", "-"},
        {0, "Host: gw", "gw"},
        {0, "Host: gw\nHost: gw", NULL},
        {1, "Host: a\nHost: b", NULL},
        {1, "Host: a\nHost: a", NULL},
        {1, "Host: a\nhost:", NULL},
        {1, "Host: a/x", NULL},
        {1, "Host: u@a", NULL},
        {1, "Host: a:8x", NULL},
        {1, "Host: a b", NULL},
        {1, "Host: a, b", NULL},
        {0, "Host: a/x", NULL},
        {1, "Host : gw", NULL},
        {1, "Host: gw\nConnection: Host", "gw"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct outcome o = request("GET", "/", rows[i].minor, rows[i].lines);
        if ((o.why == WHY_OK) != (rows[i].authority != NULL))
            fail_msg("%s", rows[i].lines);
        if (o.why != WHY_OK)
            continue;
        bool none = strcmp(rows[i].authority, "-") == 0;
        assert_int_equal(o.head.authority.p == NULL, none);
        assert_true(none || str_eq(o.head.authority, str_of(rows[i].authority)));
        assert_int_equal(o.head.nfields, 0);
    }
}

static void a_bad_host_is_refused_under_an_absolute_target_too(void **state)
{
    (void)state;
    assert_int_equal(request("GET", "http://a/", 1, "Host: x/y").fault.status, 400);
    assert_int_equal(request("GET", "http://a/", 1, "").fault.status, 400);
    assert_int_equal(request("GET", "http://a/", 0, "").why, WHY_OK);
}

static void authorities_follow_the_uri_grammar(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {"a", true},
        {"a.b-c_d~e", true},
        {"a:80", true},
        {"a:", true},
        {"a:123456", true},
        {"127.0.0.1:1", true},
        {"[::1]", true},
        {"[::1]:80", true},
        {"[::ffff:10.0.0.1]:8080", true},
        {"a%2Fb", true},
        {"!$&'()*+,;=", true},
        {"", false},
        {":80", false},
        {"a:80:81", false},
        {"a:-1", false},
        {"a:8 ", false},
        {"[]", false},
        {"[::1", false},
        {"::1", false},
        {"[::1]x", false},
        {"[::1]:x", false},
        {"[1.2.3.4]", false},
        {"[::1%25lo]", false},
        {"[v1.a]", false},
        {"a@b", false},
        {"a/b", false},
        {"a?b", false},
        {"a#b", false},
        {"a\\b", false},
        {"a b", false},
        {"a%", false},
        {"a%2", false},
        {"a%zz", false},
        {"caf\xc3\xa9", false},
        {"a\x7f", false},
        {"a<b", false},
        {"\"a\"", false},
        {"a^b", false},
        {"a|b", false},
        {"{a}", false},
        {"a`b", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rules_authority(str_of(rows[i].text)) != rows[i].good)
            fail_msg("%s", rows[i].text);
    assert_false(rules_authority(STR("a\0b")));
}

static void hop_by_hop_fields_never_stay(void **state)
{
    static const struct {
        const char *lines, *left;
    } rows[] = {
        {"A: 1\nB: 2\nA: 3", "A=1 B=2 A=3"},
        {"Connection: close\nA: 1", "A=1"},
        {"A: 1\nKEEP-ALIVE: x\nProxy-Connection: x\nB: 2\nProxy-Authenticate: "
         "x\nproxy-authorization: x\nC: 3",
         "A=1 B=2 C=3"},
        {"TE: gzip\nTrailer: X\nUpgrade: foo\nHTTP2-Settings: x\nA: 1", "A=1"},
        {"Connection: X-Hop\nX-Hop: 1\nX-Keep: 2", "X-Keep=2"},
        {"X-Hop: 1\nX-Keep: 2\nx-hop: 3\nConnection: x-HOP", "X-Keep=2"},
        {"Connection:\nX-Hop: 1\nConnection: keep-alive , ,\tX-Hop ,b\nB: 1\nC: 2", "C=2"},
        {"Connection: x-forwarded-host ,X-Request-Id,\tx-hop\nX-Hop: 1\nX-Request-Id: "
         "r1\nX-Forwarded-Host: e",
         "X-Request-Id=r1"},
        {"Connection: close, a b, X-\xc3\xa9\nA: 1", "A=1"},
        {"Connection: Expect, Idempotency-Key\nExpect: 100-continue\nIdempotency-Key: k\nA: 1",
         "A=1"},
        {"Content-Length: 3\nA: 1\nContent-Type: x", "A=1 Content-Type=x"},
        {"Te-: 1\nHosts: 2\nConnections: 3\nX-Connection: 4",
         "Te-=1 Hosts=2 Connections=3 X-Connection=4"},
        {"Expect: 100-continue\nVia: 1.1 x", "Expect=100-continue Via=1.1 x"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[400];
        snprintf(lines, sizeof lines, "Host: gw\n%s", rows[i].lines);
        struct outcome o = request("POST", "/", 1, lines);
        assert_int_equal(o.why, WHY_OK);
        if (strcmp(fields_of(&o.head), rows[i].left) != 0)
            fail_msg("%s\nleft %s, not %s", rows[i].lines, fields_of(&o.head), rows[i].left);
    }
}

static void connection_options_are_bounded(void **state)
{
    (void)state;
    char lines[4000];
    size_t n = (size_t)snprintf(lines, sizeof lines, "Host: gw\nA0: 1\nConnection: A0");
    for (int i = 1; i < 200; i++)
        n += (size_t)snprintf(lines + n, sizeof lines - n, ", A%d", i);
    assert_int_equal(request("GET", "/", 1, lines).fault.status, 400);
    assert_int_equal(response(&(struct http_head){.method = STR("GET")}, 200, 1, lines).why,
                     WHY_ORIGIN_PROTOCOL);
}

static void names_and_values_hold_no_bytes_that_end_lines(void **state)
{
    static const struct {
        const char *line;
        bool request, response;
    } rows[] = {
        {"X-A: a\tb", true, true},
        {"X-A: caf\xc3\xa9\xff", true, true},
        {"X-A:", true, true},
        {"X-A: a\rb", false, false},
        {"X-A: a\x01", false, true},
        {"X-A: a\x7f", false, true},
        {"X-A: 1234567\x1f", false, true},
        {"X-A: 12345678\r", false, false},
        {"X-A: 1234567\r8", false, false},
        {"X-A: 12345678901234567890\x0b", false, true},
        {"X A: 1", false, false},
        {"X-A : 1", false, false},
        {": 1", false, false},
        {"X(A: 1", false, false},
        {"X\xc3\xa9: 1", false, false},
        {"X-\x01: 1", false, false},
        {"\"X\": 1", false, false},
    };
    (void)state;
    static const struct http_head get = {.method = {"GET", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[200];
        snprintf(lines, sizeof lines, "Host: gw\n%s", rows[i].line);
        if ((request("GET", "/", 1, lines).why == WHY_OK) != rows[i].request)
            fail_msg("request: %s", rows[i].line);
        if ((response(&get, 200, 1, rows[i].line).why == WHY_OK) != rows[i].response)
            fail_msg("response: %s", rows[i].line);
    }
}

static void a_nul_or_lf_in_a_value_is_refused_at_every_offset(void **state)
{
    (void)state;
    static const struct http_head get = {.method = {"GET", 3}};
    for (unsigned bad = 0; bad < 2; bad++) {
        for (unsigned at = 0; at < 30; at++) {
            char value[30];
            memset(value, 'a', sizeof value);
            value[at] = "\0\n"[bad];
            struct field fields[2] = {{STR("Host"), STR("gw")}, {STR("X"), {value, sizeof value}}};
            struct http_raw raw = {.method = STR("GET"),
                                   .target = STR("/"),
                                   .minor = 1,
                                   .status = 200,
                                   .fields = fields,
                                   .nfields = 2};
            struct outcome o;
            assert_int_equal(rules_request(&raw, STR("http"), &o.head, &o.framing, &o.fault),
                             WHY_CLIENT_PROTOCOL);
            struct field again[2] = {{STR("X"), {value, sizeof value}}};
            raw.fields = again;
            raw.nfields = 1;
            assert_int_equal(rules_response(&raw, &get, &o.head, &o.framing), WHY_ORIGIN_PROTOCOL);
        }
    }
}

static void an_upgrade_is_one_token_that_was_asked_for(void **state)
{
    static const struct {
        const char *method;
        unsigned minor;
        const char *lines, *protocol;
    } rows[] = {
        {"GET", 1, "Connection: Upgrade\nUpgrade: websocket", "websocket"},
        {"GET", 1, "Connection: upgrade\nUpgrade: WebSocket", "websocket"},
        {"GET", 1,
         "Connection: keep-alive\nUpgrade: x\nConnection: a, UPGRADE\nUpgrade: foo, websocket",
         "websocket"},
        {"GET", 0, "Connection: Upgrade\nUpgrade: websocket", ""},
        {"GET", 1, "Upgrade: websocket", ""},
        {"GET", 1, "Connection: Upgrade", ""},
        {"GET", 1, "Connection: upgraded\nUpgrade: websocket", ""},
        {"POST", 1, "Connection: Upgrade\nUpgrade: websocket", ""},
        {"get", 1, "Connection: Upgrade\nUpgrade: websocket", ""},
        {"POST", 1, "Connection: Upgrade\nUpgrade: my-proto/2", "my-proto/2"},
        {"GET", 1, "Connection: Upgrade\nUpgrade: H2C", ""},
        {"GET", 1, "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: x", ""},
        {"GET", 1, "Connection: Upgrade\nUpgrade: h2c, foo", "foo"},
        {"GET", 1, "Connection: Upgrade\nUpgrade: websocket/13", "websocket/13"},
        {"GET", 1, "Connection: Upgrade\nUpgrade: , ,foo", "foo"},
        {"GET", 1, "Connection: Upgrade\nUpgrade: a b, \"c\"", ""},
        {"GET", 1, "Connection: Upgrade\nUpgrade: a//b", ""},
        {"GET", 1, "Connection: Upgrade\nUpgrade: /b", ""},
        {"GET", 1, "Connection: Upgrade\nUpgrade:", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[300];
        snprintf(lines, sizeof lines, "Host: gw\n%s", rows[i].lines);
        struct outcome o = request(rows[i].method, "/", rows[i].minor, lines);
        assert_int_equal(o.why, WHY_OK);
        if (!str_eq(o.head.protocol, str_of(rows[i].protocol)))
            fail_msg("%s: %.*s", rows[i].lines, STR_ARG(o.head.protocol));
    }
}

static void of_extended_connects_only_websocket_is_served(void **state)
{
    (void)state;
    assert_true(str_eq(rules_extended_connect(STR("WebSocket")), STR("websocket")));
    assert_int_equal(rules_extended_connect(STR("connect-udp")).n, 0);
    assert_int_equal(rules_extended_connect(STR("websocket2")).n, 0);
    assert_int_equal(rules_extended_connect(STR("")).n, 0);
}

static void the_peer_keeps_the_connection_by_version_and_option(void **state)
{
    static const struct {
        unsigned minor;
        const char *lines;
        bool keeps;
    } rows[] = {
        {1, "", true},
        {1, "Connection: keep-alive", true},
        {1, "Connection: close", false},
        {1, "Connection: CLOSE", false},
        {1, "Connection: x\nConnection: keep-alive, close", false},
        {1, "Connection: closed", true},
        {0, "", false},
        {0, "Connection: keep-alive", true},
        {0, "Connection: Keep-Alive, close", false},
        {0, "Keep-Alive: timeout=5", false},
    };
    (void)state;
    static const struct http_head get = {.method = {"GET", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[300];
        snprintf(lines, sizeof lines, "Host: gw%s%s", rows[i].lines[0] ? "\n" : "", rows[i].lines);
        assert_int_equal(request("GET", "/", rows[i].minor, lines).framing.keep_alive,
                         rows[i].keeps);
        snprintf(lines, sizeof lines, CL "0%s%s", rows[i].lines[0] ? "\n" : "", rows[i].lines);
        assert_int_equal(response(&get, 200, rows[i].minor, lines).framing.keep_alive,
                         rows[i].keeps);
    }
}

static void te_expect_and_idempotency_become_members(void **state)
{
    static const struct {
        const char *method;
        unsigned minor;
        const char *lines;
        bool te, expect, idempotent;
    } rows[] = {
        {"GET", 1, "A: 1", false, false, true},
        {"HEAD", 1, "A: 1", false, false, true},
        {"OPTIONS", 1, "A: 1", false, false, true},
        {"TRACE", 1, "A: 1", false, false, true},
        {"PUT", 1, "A: 1", false, false, true},
        {"DELETE", 1, "A: 1", false, false, true},
        {"POST", 1, "A: 1", false, false, false},
        {"PATCH", 1, "A: 1", false, false, false},
        {"get", 1, "A: 1", false, false, false},
        {"POST", 1, "Idempotency-Key: k", false, false, true},
        {"POST", 1, "x-idempotency-key:", false, false, true},
        {"POST", 1, "Idempotency-Key: k\nConnection: Idempotency-Key", false, false, false},
        {"POST", 1, "TE: trailers", true, false, false},
        {"POST", 1, "TE: deflate\nte: gzip;q=0.5, Trailers", true, false, false},
        {"POST", 1, "TE: trailersx", false, false, false},
        {"POST", 1, "Expect: 100-Continue", false, true, false},
        {"POST", 0, "Expect: 100-continue", false, false, false},
        {"POST", 1, "Expect: 200-maybe", false, false, false},
        {"POST", 1, "Expect: 100-continue\nConnection: expect", false, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[300];
        snprintf(lines, sizeof lines, "Host: gw\n%s", rows[i].lines);
        struct outcome o = request(rows[i].method, "/", rows[i].minor, lines);
        if (o.head.te_trailers != rows[i].te || o.head.expect_continue != rows[i].expect ||
            o.head.idempotent != rows[i].idempotent)
            fail_msg("%s %s", rows[i].method, rows[i].lines);
    }
}

/* ---- responses ---- */

static void a_response_is_framed_in_one_way_or_refused(void **state)
{
    static const struct {
        const char *method;
        int status;
        unsigned minor;
        const char *lines, *body;
        int64_t length;
        bool keeps;
    } rows[] = {
        {"GET", 200, 1, CL "5", "5", 5, true},
        {"GET", 200, 1, CL "0", "none", 0, true},
        {"GET", 200, 1, "", "eof", -1, false},
        {"GET", 200, 1, "Connection: keep-alive", "eof", -1, false},
        {"GET", 200, 1, TE "chunked", "chunked", -1, true},
        {"GET", 200, 1, TE "Chunked\nConnection: close", "chunked", -1, false},
        {"GET", 200, 1, CL "5\n" TE "chunked", "chunked", -1, false},
        {"GET", 200, 1, CL "5, 5", "5", 5, true},
        {"GET", 200, 1, CL "5\n" CL "5", "5", 5, true},
        {"GET", 200, 1, CL "5\n" CL "05,5", "5", 5, true},
        {"GET", 200, 1, CL "5, 6", "!502", 0, false},
        {"GET", 200, 1, CL "5\n" CL "6", "!502", 0, false},
        {"GET", 200, 1, CL "5,", "!502", 0, false},
        {"GET", 200, 1, CL "", "!502", 0, false},
        {"GET", 200, 1, CL "5x", "!502", 0, false},
        {"GET", 200, 1, CL "-1", "!502", 0, false},
        {"GET", 200, 1, CL "9223372036854775808", "!502", 0, false},
        {"GET", 200, 1, CL "5\nA: 1\n" CL "6\n" TE "chunked", "!502", 0, false},
        {"GET", 200, 1, TE "gzip, chunked", "!502", 0, false},
        {"GET", 200, 1, TE "chunked\n" TE "chunked", "!502", 0, false},
        {"GET", 200, 1, TE "", "!502", 0, false},
        {"GET", 200, 1, TE "gzip", "!502", 0, false},
        {"GET", 200, 1, TE "chunked;a=b", "!502", 0, false},
        {"GET", 200, 0, TE "chunked", "!502", 0, false},
        {"GET", 200, 0, CL "5", "5", 5, false},
        {"GET", 200, 0, CL "5\nConnection: keep-alive", "5", 5, true},
        {"HEAD", 200, 1, CL "1234", "none", 1234, true},
        {"HEAD", 200, 1, "", "none", -1, true},
        {"HEAD", 200, 1, TE "chunked", "none", -1, true},
        {"HEAD", 200, 1, CL "5\n" TE "chunked", "none", -1, false},
        {"GET", 304, 1, CL "77", "none", 77, true},
        {"GET", 304, 1, "", "none", -1, true},
        {"GET", 204, 1, CL "5", "none", -1, true},
        {"GET", 204, 1, "", "none", -1, true},
        {"GET", 100, 1, "", "none", -1, true},
        {"GET", 103, 1, "Link: x\n" CL "5", "none", -1, true},
        {"GET", 199, 1, "", "none", -1, true},
        {"GET", 205, 1, CL "0", "none", 0, true},
        {"GET", 999, 1, CL "1", "1", 1, true},
        {"GET", 99, 1, CL "1", "!502", 0, false},
        {"GET", 1000, 1, CL "1", "!502", 0, false},
        {"GET", 0, 1, CL "1", "!502", 0, false},
        {"POST", 404, 1, CL "3", "3", 3, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head to = {.method = str_of(rows[i].method)};
        struct outcome o = response(&to, rows[i].status, rows[i].minor, rows[i].lines);
        if (strcmp(body_of(&o), rows[i].body) != 0)
            fail_msg("%s %d %s: %s, not %s", rows[i].method, rows[i].status, rows[i].lines,
                     body_of(&o), rows[i].body);
        if (o.why != WHY_OK)
            continue;
        if (o.head.length != rows[i].length || o.framing.keep_alive != rows[i].keeps ||
            o.head.status != rows[i].status)
            fail_msg("%s %d %s: length %lld, keeps %d", rows[i].method, rows[i].status,
                     rows[i].lines, (long long)o.head.length, o.framing.keep_alive);
    }
}

static void fields_of_a_response_that_concern_one_hop_do_not_stay(void **state)
{
    (void)state;
    static const struct http_head get = {.method = {"GET", 3}};
    struct outcome o = response(
        &get, 200, 1,
        "Connection: X-Int, keep-alive\nX-Int: a\nKeep-Alive: timeout=9\nProxy-Authenticate: "
        "Basic\nTrailer: X-T\n"
        "Upgrade: h2\nHost: x\nSet-Cookie: a=1\nSet-Cookie: b=2\nExpect: x\n" TE "chunked");
    assert_string_equal(fields_of(&o.head), "Set-Cookie=a=1 Set-Cookie=b=2 Expect=x");
    assert_int_equal(o.head.protocol.n, 0);
    o = response(&get, 103, 1, "Connection: X-Int\nX-Int: a\nLink: x");
    assert_string_equal(fields_of(&o.head), "Link=x");
    o = response(&get, 200, 1, CL "0\nConnection: X-Request-Id\nX-Request-Id: a");
    assert_string_equal(fields_of(&o.head), "");
}

static void a_switch_must_be_to_what_was_asked_for(void **state)
{
    static const struct {
        const char *asked, *lines;
        bool good;
    } rows[] = {
        {"websocket", "Connection: Upgrade\nUpgrade: websocket", true},
        {"websocket", "Connection: keep-alive\nconnection: upgrade\nupgrade: WebSocket", true},
        {"my-proto/2", "Connection: Upgrade\nUpgrade: My-Proto/2", true},
        {"websocket", "Connection: Upgrade\nUpgrade: other", false},
        {"websocket", "Connection: Upgrade\nUpgrade: websocket, other", false},
        {"websocket", "Connection: Upgrade\nUpgrade:", false},
        {"websocket", "Connection: Upgrade", false},
        {"websocket", "Upgrade: websocket", false},
        {"websocket", "Connection: upgraded\nUpgrade: websocket", false},
        {"websocket", "", false},
        {"", "Connection: Upgrade\nUpgrade: websocket", false},
        {"", "", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head to = {.method = STR("GET"), .protocol = str_of(rows[i].asked)};
        struct outcome o = response(&to, 101, 1, rows[i].lines);
        if ((o.why == WHY_OK) != rows[i].good)
            fail_msg("%s: %s", rows[i].asked, rows[i].lines);
        if (o.why != WHY_OK)
            continue;
        assert_true(str_eq(o.head.protocol, to.protocol));
        assert_int_equal(o.framing.body, BODY_NONE);
        assert_false(o.framing.keep_alive);
    }
}

static void a_refused_upgrade_is_an_ordinary_answer(void **state)
{
    (void)state;
    struct http_head to = {.method = STR("GET"), .protocol = STR("websocket")};
    struct outcome o = response(&to, 403, 1, "Connection: Upgrade\nUpgrade: websocket\n" CL "4");
    assert_int_equal(o.head.protocol.n, 0);
    assert_int_equal(o.framing.length, 4);
    assert_true(o.framing.keep_alive);
}

static void a_2xx_to_connect_is_a_tunnel_and_others_are_answers(void **state)
{
    (void)state;
    struct http_head to = {.method = STR("CONNECT"), .authority = STR("h:1")};
    struct outcome o = response(&to, 200, 1, CL "5");
    assert_true(str_eq(o.head.protocol, STR("connect")));
    assert_int_equal(o.framing.body, BODY_NONE);
    assert_int_equal(o.head.length, -1);
    assert_false(o.framing.keep_alive);
    o = response(&to, 407, 1, CL "5");
    assert_int_equal(o.head.protocol.n, 0);
    assert_int_equal(o.framing.length, 5);
}

/* ---- trailers ---- */

static void trailers_carry_no_framing_and_no_credentials(void **state)
{
    (void)state;
    struct http_raw raw;
    read_lines(
        "grpc-status: 0\nContent-Length: 5\nTransfer-Encoding: chunked\nX-T: 1\nHost: "
        "x\nConnection: X-T\nTrailer: y\nTE: z\n"
        "OpenSandbox-Secure-Access: tok\nopen-sandbox-ingress: sb-1\nX-Forwarded-For: "
        "1.2.3.4\nForwarded: for=x\nX-T: a\rb\nX T: 1\nX-U:\nX-Fast-Sandbox-Route-Credential: c",
        &raw);
    rules_trailers(raw.fields, &raw.nfields);
    struct http_head h = {.fields = raw.fields, .nfields = raw.nfields};
    assert_string_equal(fields_of(&h), "grpc-status=0 X-T=1 X-U=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h1_reuses_only_when_both_ends_are_done_and_nothing_is_left),
        cmocka_unit_test(of_all_combinations_exactly_one_is_reusable),
        cmocka_unit_test(a_request_is_framed_in_one_way_or_refused),
        cmocka_unit_test(the_stated_length_stands_in_the_head),
        cmocka_unit_test(a_target_gives_one_authority_and_one_path),
        cmocka_unit_test(an_absolute_target_says_so_and_leaves_the_host_to_be_compared),
        cmocka_unit_test(a_nul_in_the_target_is_refused),
        cmocka_unit_test(there_is_exactly_one_good_host),
        cmocka_unit_test(a_bad_host_is_refused_under_an_absolute_target_too),
        cmocka_unit_test(authorities_follow_the_uri_grammar),
        cmocka_unit_test(hop_by_hop_fields_never_stay),
        cmocka_unit_test(connection_options_are_bounded),
        cmocka_unit_test(names_and_values_hold_no_bytes_that_end_lines),
        cmocka_unit_test(a_nul_or_lf_in_a_value_is_refused_at_every_offset),
        cmocka_unit_test(an_upgrade_is_one_token_that_was_asked_for),
        cmocka_unit_test(of_extended_connects_only_websocket_is_served),
        cmocka_unit_test(the_peer_keeps_the_connection_by_version_and_option),
        cmocka_unit_test(te_expect_and_idempotency_become_members),
        cmocka_unit_test(a_response_is_framed_in_one_way_or_refused),
        cmocka_unit_test(fields_of_a_response_that_concern_one_hop_do_not_stay),
        cmocka_unit_test(a_switch_must_be_to_what_was_asked_for),
        cmocka_unit_test(a_refused_upgrade_is_an_ordinary_answer),
        cmocka_unit_test(a_2xx_to_connect_is_a_tunnel_and_others_are_answers),
        cmocka_unit_test(trailers_carry_no_framing_and_no_credentials),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
