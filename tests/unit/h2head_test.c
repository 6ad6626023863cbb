/* h2head_test.c — header lists of HTTP/2 as tables: what is malformed, what a head becomes, what
 * goes out.  Cards: H2-01, H2-06, WS-04, WS-10 of the case lists. */
#include "http/h2head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { MAX_FIELDS = 48 };

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

#define TEXT(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }
#define GET ":method=GET|:scheme=https|:authority=a.test|:path=/|"
#define POST ":method=POST|:scheme=https|:authority=a.test|:path=/|"

/* "name=value" between bars; the first '=' parts them. */
static struct h2_list list_of(struct str text)
{
    struct h2_list list = {arena_get(&mem, MAX_FIELDS * sizeof *list.fields), 0};
    struct str rest = arena_str(&mem, text), piece;
    while (str_next(&rest, '|', &piece)) {
        ptrdiff_t equals = str_chr(piece, '=');
        if (equals < 0)
            continue;
        assert_true(list.nfields < MAX_FIELDS);
        list.fields[list.nfields++] =
            (struct field){str_head(piece, (size_t)equals), str_skip(piece, (size_t)equals + 1)};
    }
    return list;
}

static const char *text_of(const struct field *fields, unsigned n)
{
    struct str s = STR("");
    for (unsigned i = 0; i < n; i++)
        s = arena_printf(&mem, "%.*s%.*s=%.*s|", STR_ARG(s), STR_ARG(fields[i].name),
                         STR_ARG(fields[i].value));
    return arena_printf(&mem, "%.*s", STR_ARG(s)).p;
}

static enum why read_request(struct str text, bool ends, struct http_head *head, int *status)
{
    struct http_fault fault = {0, NULL};
    struct h2_list list = list_of(text);
    enum why why = h2head_request(&list, ends, STR("https"), &mem, head, &fault);
    assert_true(why == WHY_OK || why == WHY_CLIENT_PROTOCOL);
    assert_true((why == WHY_OK) == (fault.status == 0));
    assert_true((why == WHY_OK) == (fault.text == NULL));
    *status = fault.status;
    return why;
}

static void must_read(const char *text, bool ends, struct http_head *head)
{
    int status;
    if (read_request(str_of(text), ends, head, &status) != WHY_OK)
        fail_msg("%s: %d", text, status);
}

/* ---- malformed requests ---- */

static void what_http1_would_read_otherwise_is_malformed(void **state)
{
    static const struct str rows[] = {
        TEXT(GET "connection=close|"),
        TEXT(GET "connection=|"),
        TEXT(GET "connection=x-a|x-a=1|"),
        TEXT(GET "upgrade=h2c|"),
        TEXT(GET "upgrade=websocket|"),
        TEXT(GET "keep-alive=5|"),
        TEXT(GET "proxy-connection=x|"),
        TEXT(GET "transfer-encoding=|"),
        TEXT(GET "transfer-encoding=chunked|"),
        TEXT(GET "te=gzip|"),
        TEXT(GET "te=trailers, gzip|"),
        TEXT(GET "te=trailers;q=1|"),
        TEXT(GET "te=|"),
        TEXT(GET "te=trailers|te=gzip|"),
        TEXT(POST "content-length=1|content-length=2|"),
        TEXT(POST "content-length=1|content-length=1|"),
        TEXT(POST "content-length=1, 1|"),
        TEXT(POST "content-length=|"),
        TEXT(POST "content-length=+1|"),
        TEXT(POST "content-length=-1|"),
        TEXT(POST "content-length=0x1|"),
        TEXT(POST "content-length=9223372036854775808|"),
        TEXT(POST "content-length=1 1|"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        int status = 0;
        if (read_request(rows[i], false, &head, &status) == WHY_OK || status != 400)
            fail_msg("%.*s: %d", STR_ARG(rows[i]), status);
    }
}

static void names_are_tokens_in_lower_case(void **state)
{
    static const struct str rows[] = {
        TEXT(GET "=x|"),
        TEXT(GET "X-a=1|"),
        TEXT(GET "x-A=1|"),
        TEXT(GET "x a=1|"),
        TEXT(GET "x-a =1|"),
        TEXT(GET " x-a=1|"),
        TEXT(GET "x:a=1|"),
        TEXT(GET "x-a:=1|"),
        TEXT(GET "x\x7f=1|"),
        TEXT(GET "x\x80=1|"),
        TEXT(GET "x\xff=1|"),
        TEXT(GET "x\0y=1|"),
        TEXT(GET "x\r\ny=1|"),
        TEXT(GET "x\ty=1|"),
        TEXT(GET "x(=1|"),
        TEXT(GET "x/y=1|"),
        TEXT(GET "x\"=1|"),
        TEXT(GET "x@=1|"),
        TEXT(GET "Cookie=a|"),
        TEXT(GET "Host=a|"),
        TEXT(GET "x,y=1|"),
        TEXT(GET "x[y=1|"),
        TEXT(GET "x{y}=1|"),
        TEXT(GET "\xc3\xa9=1|"),
        TEXT(GET "Content-Length=0|"),
        TEXT(GET "tE=trailers|"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        int status = 0;
        if (read_request(rows[i], true, &head, &status) == WHY_OK || status != 400)
            fail_msg("row %zu: %.*s", i, STR_ARG(rows[i]));
    }
}

static void every_byte_of_a_name_and_a_value_is_judged(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        struct http_head head;
        struct field fields[5] = {{STR(":method"), STR("GET")},
                                  {STR(":scheme"), STR("http")},
                                  {STR(":authority"), STR("a")},
                                  {STR(":path"), STR("/")}};
        struct http_fault fault;
        char inside[] = {'x', (char)c, 'x'};
        bool token = c < 128 && c > 32 && c != 127 && !strchr("\"(),/:;<=>?@[\\]{}", (int)c) &&
                     !(c >= 'A' && c <= 'Z');
        fields[4] = (struct field){{inside, 3}, STR("v")};
        bool name = h2head_request(&(struct h2_list){fields, 5}, true, STR("http"), &mem, &head,
                                   &fault) == WHY_OK;
        assert_int_equal(name, token);
        for (unsigned at = 0; at < 3; at++) {
            char value[] = "xxx";
            value[at] = (char)c;
            fields[4] = (struct field){STR("x-v"), {value, 3}};
            bool ok = h2head_request(&(struct h2_list){fields, 5}, true, STR("http"), &mem, &head,
                                     &fault) == WHY_OK;
            bool right = c == ' ' || c == '\t' ? at == 1 : c >= 32 && c != 127;
            assert_int_equal(ok, right);
        }
        fields[4] = (struct field){STR("x-v"), {inside + 1, 1}};
        bool alone = h2head_request(&(struct h2_list){fields, 5}, true, STR("http"), &mem, &head,
                                    &fault) == WHY_OK;
        assert_int_equal(alone, c > 32 && c != 127);
        /* and in a target */
        char path[] = {'/', (char)c};
        fields[3].value = (struct str){path, 2};
        bool target = h2head_request(&(struct h2_list){fields, 4}, true, STR("http"), &mem, &head,
                                     &fault) == WHY_OK;
        assert_int_equal(target, c > 32 && c != 127);
    }
}

static void pseudo_header_fields_are_judged_together(void **state)
{
    static const struct str rows[] = {
        TEXT(""),
        TEXT(":scheme=https|:authority=a|:path=/|"),          /* no method */
        TEXT(":method=GET|:authority=a|:path=/|"),            /* no scheme */
        TEXT(":method=GET|:scheme=https|:authority=a|"),      /* no path */
        TEXT(":method=GET|:scheme=https|:path=/|"),           /* no authority */
        TEXT(":method=|:scheme=https|:authority=a|:path=/|"), /* empty ones */
        TEXT(":method=GET|:scheme=|:authority=a|:path=/|"),
        TEXT(":method=GET|:scheme=https|:authority=|:path=/|"),
        TEXT(":method=GET|:scheme=https|:authority=a|:path=|"),
        TEXT(":method=GE(T|:scheme=https|:authority=a|:path=/|"),
        TEXT(":method=GET |:scheme=https|:authority=a|:path=/|"),
        TEXT(":method=GET / HTTP/1.1|:scheme=https|:authority=a|:path=/|"),
        TEXT(":method=GET|:scheme=ftp|:authority=a|:path=/|"),
        TEXT(":method=GET|:scheme=http://x|:authority=a|:path=/|"),
        TEXT(GET ":method=GET|"), /* twice */
        TEXT(GET ":scheme=https|"),
        TEXT(GET ":authority=a.test|"),
        TEXT(GET ":path=/|"),
        TEXT(GET ":status=200|"), /* of answers */
        TEXT(GET ":foo=1|"),      /* unknown */
        TEXT(GET ":=1|"),
        TEXT(GET ":Path=1|"),
        TEXT(":METHOD=GET|:scheme=https|:authority=a|:path=/|"),
        TEXT(":method=GET|:scheme=https|x-a=1|:authority=a|:path=/|"), /* behind others */
        TEXT(GET "x-a=1|:foo=1|"),
        TEXT(GET ":protocol=websocket|"),                              /* without CONNECT */
        TEXT(":method=CONNECT|:scheme=https|:authority=a:1|:path=/|"), /* WS-10 */
        TEXT(":method=CONNECT|:authority=a:1|:path=/|"),
        TEXT(":method=CONNECT|:scheme=https|:authority=a:1|"),
        TEXT(":method=CONNECT|"),
        TEXT(":method=CONNECT|host=a:1|"),
        TEXT(":method=CONNECT|:authority=a|"),
        TEXT(":method=CONNECT|:authority=a:|"),
        TEXT(":method=CONNECT|:authority=[::1]|"),
        TEXT(":method=CONNECT|:authority=a:1|content-length=0|"),
        TEXT(":method=CONNECT|:protocol=websocket|:authority=a|:path=/|"),
        TEXT(":method=CONNECT|:protocol=websocket|:scheme=https|:path=/|host=a|"),
        TEXT(":method=CONNECT|:protocol=websocket|:scheme=https|:authority=a|"),
        TEXT(":method=CONNECT|:protocol=websocket|:scheme=https|:authority=a|:path=*|"),
        TEXT(":method=CONNECT|:protocol=|:scheme=https|:authority=a|:path=/|"),
        TEXT(":method=CONNECT|:protocol=a b|:scheme=https|:authority=a|:path=/|"),
        TEXT(":method=CONNECT|:protocol=websocket|:scheme=https|:authority=a|:path=/|"
             "content-length=3|"),
        TEXT(":method=CONNECT|:protocol=websocket|:protocol=websocket|:scheme=https|:authority=a|"
             ":path=/|"),
        TEXT(":method=connect|:protocol=websocket|:scheme=https|:authority=a|:path=/|"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int ends = 0; ends < 2; ends++) {
            struct http_head head;
            int status = 0;
            if (read_request(rows[i], ends, &head, &status) == WHY_OK || status != 400)
                fail_msg("%.*s: %d", STR_ARG(rows[i]), status);
        }
}

static void a_target_is_a_path_and_an_authority_is_one(void **state)
{
    static const struct {
        const char *method, *authority, *path;
        bool ok;
    } rows[] = {
        {"GET", "a.test", "/", true},
        {"GET", "a.test", "//", true},
        {"GET", "a.test", "/a/../b?c#d", true}, /* a fragment is a byte like others, as in h1 */
        {"GET", "a.test", "/\x80", true},
        {"GET", "a.test:8443", "/", true},
        {"GET", "[::1]:80", "/", true},
        {"OPTIONS", "a.test", "*", true},
        {"OPTIONS", "a.test", "/*", true},
        {"GET", "a.test", "*", false},
        {"options", "a.test", "*", false},
        {"GET", "a.test", "x", false},
        {"GET", "a.test", "?x", false},
        {"GET", "a.test", "#", false},
        {"GET", "a.test", "http://b/", false},
        {"GET", "a.test", "https://a.test/", false},
        {"GET", "a.test", "a.test:443", false},
        {"GET", "a.test", "/a b", false},
        {"GET", "a.test", "/ HTTP/1.1\r\nx: y", false},
        {"GET", "a.test", "/a\tb", false},
        {"GET", "a.test", " /", false},
        {"GET", "a.test", "/\x7f", false},
        {"GET", "a@b", "/", false},
        {"GET", "a/b", "/", false},
        {"GET", "a?b", "/", false},
        {"GET", "a#b", "/", false},
        {"GET", "a b", "/", false},
        {"GET", "a\tb", "/", false},
        {"GET", " a", "/", false},
        {"GET", "a,b", "/", true}, /* sub-delims of a reg-name */
        {"GET", "a:x", "/", false},
        {"GET", "a:1:2", "/", false},
        {"GET", "[::1", "/", false},
        {"GET", "a\\b", "/", false},
        {"GET", "\xc3\xa9", "/", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct field fields[] = {{STR(":method"), str_of(rows[i].method)},
                                 {STR(":scheme"), STR("http")},
                                 {STR(":path"), str_of(rows[i].path)},
                                 {STR(":authority"), str_of(rows[i].authority)}};
        struct http_head head;
        struct http_fault fault = {0, NULL};
        enum why why =
            h2head_request(&(struct h2_list){fields, 4}, true, STR("http"), &mem, &head, &fault);
        if ((why == WHY_OK) != rows[i].ok)
            fail_msg("%s %s %s", rows[i].method, rows[i].authority, rows[i].path);
        if (!rows[i].ok)
            continue;
        assert_true(str_eq(head.path, str_of(rows[i].path)));
        assert_true(str_eq(head.authority, str_of(rows[i].authority)));
    }
}

static void host_and_authority_are_one_name(void **state)
{
    static const struct {
        const char *text, *authority; /* NULL: malformed */
    } rows[] = {
        {GET, "a.test"},
        {GET "host=a.test|", "a.test"},
        {GET "host=A.Test|", "a.test"},
        {":method=GET|:scheme=https|:path=/|host=b.test:1|", "b.test:1"},
        {":method=GET|:scheme=https|:path=/|host=|", ""},
        {GET "host=b.test|", NULL},
        {GET "host=a.test:443|", NULL},
        {GET "host=a.test.|", NULL},
        {GET "host=|", NULL},
        {GET "host=a.test|host=a.test|", NULL},
        {GET "host=a.test|host=b.test|", NULL},
        {":method=GET|:scheme=https|:path=/|host=a@b|", NULL},
        {":method=GET|:scheme=https|:path=/|host=a/b|", NULL},
        {":method=GET|:scheme=https|:path=/|host=a|host=a|", NULL},
        {":method=CONNECT|:authority=a:1|host=a:1|", "a:1"},
        {":method=CONNECT|:authority=a:1|host=b:1|", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        int status;
        enum why why = read_request(str_of(rows[i].text), true, &head, &status);
        if ((why == WHY_OK) != (rows[i].authority != NULL))
            fail_msg("%s", rows[i].text);
        if (why != WHY_OK)
            continue;
        assert_true(str_eq(head.authority, str_of(rows[i].authority)));
        assert_non_null(head.authority.p);
        assert_null(head_get(&head, STR("host")));
    }
}

/* ---- good requests ---- */

static void a_request_becomes_a_head(void **state)
{
    struct http_head head;
    (void)state;
    must_read(":method=POST|:path=/a?b|:authority=a.test|:scheme=http|x-a=1|content-length=12|"
              "te=trailers|expect=100-continue|x-empty=|x-a=2|",
              false, &head);
    assert_true(str_eq(head.method, STR("POST")));
    assert_true(str_eq(head.path, STR("/a?b")));
    assert_true(str_eq(head.scheme, STR("https"))); /* of the connection */
    assert_int_equal(head.length, 12);
    assert_int_equal(head.status, 0);
    assert_true(head.te_trailers && head.expect_continue && !head.idempotent);
    assert_int_equal(head.protocol.n, 0);
    assert_string_equal(text_of(head.fields, head.nfields),
                        "x-a=1|expect=100-continue|x-empty=|x-a=2|");
}

static void what_concerns_one_hop_is_taken_out(void **state)
{
    struct http_head head;
    (void)state;
    must_read(GET "trailer=x|proxy-authorization=b|proxy-authenticate=c|http2-settings=d|x-a=1|",
              true, &head);
    assert_string_equal(text_of(head.fields, head.nfields), "x-a=1|");
    assert_false(head.te_trailers);
}

static void the_length_is_what_is_stated_or_follows_from_the_end(void **state)
{
    static const struct {
        const char *text;
        bool ends;
        int64_t length; /* -2: malformed */
    } rows[] = {
        {GET, true, -1},
        {GET, false, -1},
        {POST, true, 0},
        {POST, false, -1},
        {":method=PUT|:scheme=http|:authority=a|:path=/|", true, 0},
        {":method=PATCH|:scheme=http|:authority=a|:path=/|", true, 0},
        {":method=DELETE|:scheme=http|:authority=a|:path=/|", true, -1},
        {POST "content-length=0|", true, 0},
        {GET "content-length=0|", true, 0},
        {POST "content-length=0|", false, 0},
        {POST "content-length=007|", false, 7},
        {POST "content-length=9223372036854775807|", false, INT64_MAX},
        {POST "content-length=10|", false, 10},
        {POST "content-length=10|", true, -2},
        {GET "content-length=10|", true, -2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        int status;
        enum why why = read_request(str_of(rows[i].text), rows[i].ends, &head, &status);
        if ((why == WHY_OK) != (rows[i].length != -2))
            fail_msg("%s", rows[i].text);
        if (why == WHY_OK && head.length != rows[i].length)
            fail_msg("%s: %lld", rows[i].text, (long long)head.length);
    }
}

static void cookie_crumbs_are_joined_where_the_first_stood(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {GET "cookie=a=1|x=y|", "cookie=a=1|x=y|"},
        {GET "cookie=a=1|cookie=b=2|", "cookie=a=1; b=2|"},
        {GET "x=1|cookie=a=1|y=2|cookie=b=2|z=3|cookie=c=3|", "x=1|cookie=a=1; b=2; c=3|y=2|z=3|"},
        {GET "cookie=|cookie=b|", "cookie=b|"},
        {GET "cookie=a|cookie=|", "cookie=a|"}, /* no blank may end a value */
        {GET "cookie=|cookie=|", "cookie=|"},
        {GET "cookie=a|host=a.test|cookie=|trailer=q|cookie=c|", "cookie=a; c|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        must_read(rows[i].in, true, &head);
        assert_string_equal(text_of(head.fields, head.nfields), rows[i].out);
    }
}

static void cookie_crumbs_go_on_as_they_came(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {GET "cookie=a=1; b=2|", "cookie=a=1; b=2|"},
        {GET "cookie=a=1|cookie=b=2|", "cookie=a=1|cookie=b=2|"},
        {GET "cookie=a=1; x=2|cookie=b=2|", "cookie=a=1|cookie=x=2; b=2|"}, /* no more than came */
        {GET "cookie=a|x=1|cookie=b|cookie=c|", "cookie=a|cookie=b|cookie=c|x=1|"},
        {GET "cookie=a|cookie=|cookie=c|", "cookie=a|cookie=c|"},
        {GET "cookie=|cookie=|", "cookie=|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        struct h2_list list;
        must_read(rows[i].in, true, &head);
        h2head_write_request(&head, true, &mem, &list);
        const char *text = strstr(text_of(list.fields, list.nfields), ":path=");
        assert_non_null(text);
        assert_string_equal(strchr(text, '|') + 1, rows[i].out);
    }
}

static void methods_and_keys_say_what_may_be_sent_again(void **state)
{
    static const struct {
        const char *text;
        bool idempotent;
    } rows[] = {
        {GET, true},
        {POST, false},
        {POST "idempotency-key=1|", true},
        {POST "x-idempotency-key=1|", true},
        {":method=get|:scheme=http|:authority=a|:path=/|", false},
        {":method=CONNECT|:authority=a:1|", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        must_read(rows[i].text, true, &head);
        assert_int_equal(head.idempotent, rows[i].idempotent);
    }
}

static void connect_is_a_tunnel_to_its_authority(void **state)
{
    struct http_head head;
    (void)state;
    must_read(":method=CONNECT|:authority=a.test:443|x=1|", false, &head);
    assert_true(str_eq(head.method, STR("CONNECT")));
    assert_true(str_eq(head.authority, STR("a.test:443")));
    assert_true(head.path.n == 0 && head.path.p);
    assert_int_equal(head.length, -1);
    assert_int_equal(head.protocol.n, 0);
}

static void extended_connect_is_an_upgrade_without_a_key(void **state)
{
    struct http_head head;
    int status = 0;
    (void)state;
    must_read(":method=CONNECT|:protocol=WebSocket|:scheme=https|:authority=a|:path=/ws?x|"
              "sec-websocket-version=13|sec-websocket-key=theirs|sec-websocket-accept=theirs|"
              "sec-websocket-protocol=p|origin=https://a|",
              false, &head);
    assert_true(str_eq(head.method, STR("GET")));
    assert_true(str_eq(head.protocol, STR("websocket")));
    assert_true(str_eq(head.path, STR("/ws?x")));
    assert_string_equal(text_of(head.fields, head.nfields),
                        "sec-websocket-version=13|sec-websocket-protocol=p|origin=https://a|");
    enum why why = read_request(
        STR(":method=CONNECT|:protocol=connect-udp|:scheme=https|:authority=a|:path=/|"), false,
        &head, &status);
    assert_int_equal(why, WHY_CLIENT_PROTOCOL);
    assert_int_equal(status, 501);
}

static void an_ordinary_request_keeps_fields_of_a_handshake(void **state)
{
    struct http_head head;
    (void)state;
    must_read(GET "sec-websocket-key=x|", true, &head);
    assert_string_equal(text_of(head.fields, head.nfields), "sec-websocket-key=x|");
}

/* ---- responses ---- */

static const struct http_head plain_get = {.method = {"GET", 3}, .protocol = {"", 0}};
static const struct http_head upgrade = {.method = {"GET", 3}, .protocol = {"websocket", 9}};
static const struct http_head connect_to = {.method = {"CONNECT", 7}, .protocol = {"", 0}};

static void a_broken_response_is_the_origins_fault(void **state)
{
    static const struct str rows[] = {
        TEXT(""),
        TEXT("x=1|"),
        TEXT(":status=|"),
        TEXT(":status=20|"),
        TEXT(":status=2000|"),
        TEXT(":status=099|"),
        TEXT(":status=2x0|"),
        TEXT(":status=+20|"),
        TEXT(":status= 20|"),
        TEXT(":status=200 OK|"),
        TEXT(":status=101|"),
        TEXT(":status=200|:status=200|"),
        TEXT(":status=200|:path=/|"),
        TEXT(":method=GET|:status=200|"),
        TEXT(":status=200|:foo=1|"),
        TEXT("x=1|:status=200|"),
        TEXT(":status=200|x=1|:status=200|"),
        TEXT(":status=200|X=1|"),
        TEXT(":status=200|=1|"),
        TEXT(":status=200|x=a\rb|"),
        TEXT(":status=200|x=a\nb|"),
        TEXT(":status=200|x=a\0b|"),
        TEXT(":status=200|x= a|"),
        TEXT(":status=200|x=a\t|"),
        TEXT(":status=200|connection=close|"),
        TEXT(":status=200|keep-alive=5|"),
        TEXT(":status=200|proxy-connection=x|"),
        TEXT(":status=200|transfer-encoding=chunked|"),
        TEXT(":status=200|upgrade=h2c|"),
        TEXT(":status=200|content-length=1|content-length=2|"),
        TEXT(":status=200|content-length=1, 2|"),
        TEXT(":status=200|content-length=x|"),
        TEXT(":status=200|content-length=|"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        struct h2_list list = list_of(rows[i]);
        if (h2head_response(&list, &plain_get, &head) != WHY_ORIGIN_PROTOCOL)
            fail_msg("%.*s", STR_ARG(rows[i]));
    }
}

static void a_response_becomes_a_head(void **state)
{
    static const struct {
        const struct http_head *request;
        const char *text;
        int status;
        int64_t length;
        const char *protocol, *fields;
    } rows[] = {
        {&plain_get, ":status=200|content-length=5|x=1|set-cookie=a|set-cookie=b|", 200, 5, "",
         "x=1|set-cookie=a|set-cookie=b|"},
        {&plain_get, ":status=200|content-length=5|content-length=5|", 200, 5, "", ""},
        {&plain_get, ":status=200|cookie=a|cookie=b|", 200, -1, "", "cookie=a|cookie=b|"},
        {&plain_get, ":status=100|", 100, -1, "", ""},
        {&plain_get, ":status=103|link=</a>|content-length=3|", 103, -1, "", "link=</a>|"},
        {&plain_get, ":status=204|content-length=3|", 204, -1, "", ""},
        {&plain_get, ":status=304|content-length=3|", 304, 3, "", ""},
        {&plain_get, ":status=999|trailer=x|", 999, -1, "", ""},
        {&plain_get, ":status=200|sec-websocket-accept=x|", 200, -1, "", "sec-websocket-accept=x|"},
        {&upgrade, ":status=200|sec-websocket-accept=forged|sec-websocket-protocol=p|", 101, -1,
         "websocket", "sec-websocket-protocol=p|"},
        {&upgrade, ":status=204|", 101, -1, "websocket", ""},
        {&upgrade, ":status=200|content-length=7|", 101, -1, "websocket", ""},
        {&upgrade, ":status=403|content-length=7|", 403, 7, "", ""},
        {&upgrade, ":status=103|", 103, -1, "", ""},
        {&connect_to, ":status=200|content-length=7|", 200, -1, "connect", ""},
        {&connect_to, ":status=502|content-length=7|", 502, 7, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head;
        struct h2_list list = list_of(str_of(rows[i].text));
        if (h2head_response(&list, rows[i].request, &head) != WHY_OK)
            fail_msg("%s", rows[i].text);
        if (head.status != rows[i].status || head.length != rows[i].length)
            fail_msg("%s: %d %lld", rows[i].text, head.status, (long long)head.length);
        assert_true(str_eq(head.protocol, str_of(rows[i].protocol)));
        assert_string_equal(text_of(head.fields, head.nfields), rows[i].fields);
    }
}

/* ---- trailers ---- */

static void trailers_hold_no_framing_and_no_pseudo_header_field(void **state)
{
    static const struct {
        const char *text, *out; /* NULL: malformed */
    } rows[] = {
        {"", ""},
        {"grpc-status=0|grpc-message=|", "grpc-status=0|grpc-message=|"},
        {"x=1|content-length=5|host=a|trailer=y|expect=100-continue|te=trailers|", "x=1|"},
        {"x=1|opensandbox-secure-access=a|x-forwarded-for=b|", "x=1|"},
        {":status=200|", NULL},
        {"x=1|:path=/|", NULL},
        {"X=1|", NULL},
        {"=1|", NULL},
        {"x y=1|", NULL},
        {"x= a|", NULL},
        {"x=a\nb|", NULL},
        {"connection=close|", NULL},
        {"transfer-encoding=chunked|", NULL},
        {"upgrade=h2c|", NULL},
        {"te=gzip|", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int request = 0; request < 2; request++) {
            struct http_head head;
            struct h2_list list = list_of(str_of(rows[i].text));
            enum why why = h2head_trailers(&list, request, &head);
            if (rows[i].out) {
                assert_int_equal(why, WHY_OK);
                assert_string_equal(text_of(head.fields, head.nfields), rows[i].out);
            } else {
                assert_int_equal(why, request ? WHY_CLIENT_PROTOCOL : WHY_ORIGIN_PROTOCOL);
            }
        }
}

/* ---- what goes out ---- */

static struct http_head head_of(const char *method, const char *path, const char *fields)
{
    struct h2_list list = list_of(str_of(fields));
    return (struct http_head){.method = str_of(method),
                              .scheme = STR("http"),
                              .authority = STR("b:80"),
                              .path = str_of(path),
                              .length = -1,
                              .protocol = STR(""),
                              .fields = list.fields,
                              .nfields = list.nfields};
}

static const char *written_request(const struct http_head *head, bool ends)
{
    struct h2_list list;
    h2head_write_request(head, ends, &mem, &list);
    return text_of(list.fields, list.nfields);
}

#define OUT(method, path) ":method=" method "|:scheme=http|:authority=b:80|:path=" path "|"

static void a_request_goes_out_with_pseudo_header_fields_first(void **state)
{
    (void)state;
    struct http_head head = head_of("GET", "/a?b", "X-A=V|cookie=a|User-Agent=U|");
    assert_string_equal(written_request(&head, true),
                        OUT("GET", "/a?b") "x-a=V|cookie=a|user-agent=U|");
    assert_true(str_eq(head.fields[0].name, STR("X-A"))); /* the head is left as it was */
    head.te_trailers = true;
    assert_string_equal(written_request(&head, true),
                        OUT("GET", "/a?b") "x-a=V|cookie=a|user-agent=U|te=trailers|");
    head = head_of("OPTIONS", "*", "");
    assert_string_equal(written_request(&head, true), OUT("OPTIONS", "*"));
    head.authority = head.scheme = STR_NONE;
    assert_string_equal(written_request(&head, true), ":method=OPTIONS|:scheme=http|:path=*|");
}

static void a_request_states_its_length_once(void **state)
{
    static const struct {
        const char *method;
        int64_t length;
        bool ends;
        const char *stated;
    } rows[] = {
        {"GET", -1, true, ""},
        {"GET", 0, true, "content-length=0|"},
        {"GET", 5, false, "content-length=5|"},
        {"GET", -1, false, ""},
        {"POST", -1, true, "content-length=0|"},
        {"POST", 0, true, "content-length=0|"},
        {"POST", 0, false, "content-length=0|"},
        {"POST", -1, false, ""},
        {"POST", INT64_MAX, false, "content-length=9223372036854775807|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head = head_of(rows[i].method, "/", "");
        head.length = rows[i].length;
        const char *text = written_request(&head, rows[i].ends);
        const char *want = arena_printf(&mem, ":method=%s|:scheme=http|:authority=b:80|:path=/|%s",
                                        rows[i].method, rows[i].stated)
                               .p;
        assert_string_equal(text, want);
    }
}

static void an_upgrade_goes_out_as_extended_connect(void **state)
{
    (void)state;
    struct http_head head = head_of(
        "GET", "/ws", "Sec-WebSocket-Key=k|Sec-WebSocket-Version=13|Sec-WebSocket-Accept=a|X=1|");
    head.protocol = STR("websocket");
    assert_string_equal(written_request(&head, true),
                        ":method=CONNECT|:protocol=websocket|:scheme=http|:authority=b:80|"
                        ":path=/ws|sec-websocket-version=13|x=1|");
    head.length = 0;
    assert_null(strstr(written_request(&head, true), "content-length"));
    head = head_of("CONNECT", "", "x=1|");
    assert_string_equal(written_request(&head, false), ":method=CONNECT|:authority=b:80|x=1|");
}

static void a_response_goes_out_with_its_status_first(void **state)
{
    static const struct {
        const struct http_head *request;
        int status;
        int64_t length;
        const char *protocol, *fields, *out;
    } rows[] = {
        {&plain_get, 200, 5, "", "X-A=1|", ":status=200|x-a=1|content-length=5|"},
        {&plain_get, 200, -1, "", "X-A=1|", ":status=200|x-a=1|"},
        {&plain_get, 100, -1, "", "", ":status=100|"},
        {&plain_get, 103, 4, "", "Link=a|", ":status=103|link=a|"},
        {&plain_get, 204, 0, "", "", ":status=204|"},
        {&plain_get, 304, 9, "", "", ":status=304|content-length=9|"},
        {&plain_get, 999, 0, "", "", ":status=999|content-length=0|"},
        {NULL, 431, 3, "", "", ":status=431|content-length=3|"},
        {&upgrade, 101, -1, "websocket", "Sec-WebSocket-Accept=x|Sec-WebSocket-Protocol=p|",
         ":status=200|sec-websocket-protocol=p|"},
        {&upgrade, 403, 3, "", "Sec-WebSocket-Accept=x|", ":status=403|content-length=3|"},
        {&upgrade, 200, 3, "", "",
         ":status=502|content-length=3|"}, /* no grant: must not look so */
        {&connect_to, 200, 3, "connect", "x=1|", ":status=200|x=1|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int ends = 0; ends < 2; ends++) {
            struct http_head head = head_of("", "", rows[i].fields);
            struct h2_list list;
            head.status = rows[i].status;
            head.length = rows[i].length;
            head.protocol = str_of(rows[i].protocol);
            h2head_write_response(&head, rows[i].request, ends, &mem, &list);
            assert_string_equal(text_of(list.fields, list.nfields), rows[i].out);
        }
}

static void trailers_go_out_in_lower_case(void **state)
{
    struct http_head head = head_of("", "", "Grpc-Status=0|x=1|");
    struct h2_list list;
    (void)state;
    h2head_write_trailers(&head, &mem, &list);
    assert_string_equal(text_of(list.fields, list.nfields), "grpc-status=0|x=1|");
}

static void what_is_written_reads_as_the_same_head(void **state)
{
    static const char *const rows[] = {
        GET "x-a=1|te=trailers|cookie=a=1|",
        POST "content-length=10|",
        ":method=CONNECT|:authority=a:1|",
        ":method=CONNECT|:protocol=websocket|:scheme=http|:authority=a|:path=/|x=1|",
        ":method=OPTIONS|:scheme=https|:authority=a|:path=*|",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head head, again;
        must_read(rows[i], false, &head);
        must_read(written_request(&head, false), false, &again);
        assert_true(str_eq(head.method, again.method) && str_eq(head.path, again.path));
        assert_true(str_eq(head.authority, again.authority));
        assert_true(str_eq(head.protocol, again.protocol));
        assert_true(head.length == again.length && head.te_trailers == again.te_trailers);
        assert_string_equal(text_of(head.fields, head.nfields),
                            text_of(again.fields, again.nfields));
    }
}

static void credentials_enter_no_table(void **state)
{
    static const char *const yes[] = {"cookie",
                                      "set-cookie",
                                      "Cookie",
                                      "authorization",
                                      "opensandbox-secure-access",
                                      "open-sandbox-api-key",
                                      "x-fast-sandbox-route-credential"};
    static const char *const no[] = {"",        ":path",       "accept", "content-type",
                                     "cookies", "authorizatio"};
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(h2head_sensitive(str_of(yes[i])));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(h2head_sensitive(str_of(no[i])));
}

static void a_host_that_differs_is_handed_on_to_who_asks_for_it(void **state)
{
    static const struct {
        const char *text, *host; /* NULL: none is handed on, or with a status it is refused */
        int status;
    } rows[] = {
        {":method=GET|:scheme=https|:authority=a.b|:path=/|host=c.d|", "c.d", 0},
        {":method=GET|:scheme=https|:authority=a.b|:path=/|host=A.B|", NULL, 0},
        {":method=GET|:scheme=https|:authority=a.b|:path=/|", NULL, 0},
        {":method=GET|:scheme=https|:path=/|host=a.b|", NULL, 0},
        {":method=GET|:scheme=https|:authority=a.b|:path=/|host=|", NULL, 400},
        {":method=GET|:scheme=https|:authority=a.b|:path=/|host=c d|", NULL, 400},
        {":method=GET|:scheme=https|:authority=a.b|:path=/|host=c.d|host=c.d|", NULL, 400},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_fault fault = {0, NULL};
        struct http_head head;
        struct h2_list list = list_of(str_of(rows[i].text));
        enum why why = h2head_request_of_two(&list, true, STR("https"), &mem, &head, &fault);
        assert_int_equal(why == WHY_OK, rows[i].status == 0);
        assert_int_equal(fault.status, rows[i].status);
        if (why != WHY_OK)
            continue;
        assert_int_equal(head.host.p != NULL, rows[i].host != NULL);
        assert_true(!rows[i].host || str_eq(head.host, str_of(rows[i].host)));
        assert_true(str_eq(head.authority, STR("a.b")));
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        T(what_http1_would_read_otherwise_is_malformed),
        T(names_are_tokens_in_lower_case),
        T(every_byte_of_a_name_and_a_value_is_judged),
        T(pseudo_header_fields_are_judged_together),
        T(a_target_is_a_path_and_an_authority_is_one),
        T(host_and_authority_are_one_name),
        T(a_request_becomes_a_head),
        T(what_concerns_one_hop_is_taken_out),
        T(the_length_is_what_is_stated_or_follows_from_the_end),
        T(cookie_crumbs_are_joined_where_the_first_stood),
        T(cookie_crumbs_go_on_as_they_came),
        T(methods_and_keys_say_what_may_be_sent_again),
        T(connect_is_a_tunnel_to_its_authority),
        T(extended_connect_is_an_upgrade_without_a_key),
        T(an_ordinary_request_keeps_fields_of_a_handshake),
        T(a_broken_response_is_the_origins_fault),
        T(a_response_becomes_a_head),
        T(trailers_hold_no_framing_and_no_pseudo_header_field),
        T(a_request_goes_out_with_pseudo_header_fields_first),
        T(a_request_states_its_length_once),
        T(an_upgrade_goes_out_as_extended_connect),
        T(a_response_goes_out_with_its_status_first),
        T(trailers_go_out_in_lower_case),
        T(what_is_written_reads_as_the_same_head),
        T(credentials_enter_no_table),
        T(a_host_that_differs_is_handed_on_to_who_asks_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
