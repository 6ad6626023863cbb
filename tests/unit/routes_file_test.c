/* routes_file_test.c — what a file of routes may say, and where each fault is seen. */
#include "ingress/routes_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void assert_text(struct str s, const char *z)
{
    if (s.n != strlen(z) || memcmp(s.p, z, s.n) != 0)
        fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(s), z);
}

static struct routes_list parse(const char *text)
{
    struct routes_list l;
    struct json_fault fault;
    if (!routes_parse(str_of(text), &l, &fault))
        fail_msg("%s: %u:%u: %s", text, fault.line, fault.column, fault.text);
    return l;
}

/* One sandbox "a" with the members `inside`. */
static struct routes_list parse_one(const char *inside)
{
    char text[4096];
    snprintf(text, sizeof text, "{\"sandboxes\":{\"a\":{%s}}}", inside);
    struct routes_list l = parse(text);
    assert_int_equal(l.n, 1);
    return l;
}

static void an_entry_with_an_address_is_running_open_and_endless(void **state)
{
    (void)state;
    struct routes_list l = parse_one("\"address\":\"10.0.0.1\"");
    const struct sandbox *s = l.items[0];
    assert_text(s->id, "a");
    assert_text(s->token, "");
    assert_text(s->reason, "");
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_true(s->until_unix_s == INT64_MAX);
    const struct endpoint *e = sandbox_endpoint(s, 8080);
    assert_text(e->host, "10.0.0.1");
    assert_int_equal(e->to, 0);
    assert_int_equal(e->wire, WIRE_DEFAULT);
    routes_list_free(&l);
}

static void an_address_is_an_ip_address_or_a_name(void **state)
{
    (void)state;
    static const struct {
        const char *address, *host;
    } rows[] = {
        {"127.0.0.1", "127.0.0.1"},
        {"0.0.0.0", "0.0.0.0"},
        {"::1", "::1"},
        {"[::1]", "::1"},
        {"[FD00:0:0:0::A]", "fd00::a"},
        {"::ffff:10.0.0.1", "10.0.0.1"},
        {"[::ffff:0a00:0001]", "10.0.0.1"},
        {"localhost", "localhost"},
        {"Sandbox-1.ns.svc.cluster.local", "Sandbox-1.ns.svc.cluster.local"},
        {"name.test.", "name.test."},
        {"_sip._tcp.name.test", "_sip._tcp.name.test"},
        {"a_b.test", "a_b.test"},
        {"3com.com", "3com.com"},
        {"1.2.3.4.in-addr.arpa", "1.2.3.4.in-addr.arpa"},
        {"x1", "x1"},
        {"xn--bcher-kva.test", "xn--bcher-kva.test"},
        {"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg.test",
         "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg.test"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char inside[256];
        snprintf(inside, sizeof inside, "\"address\":\"%s\"", rows[i].address);
        struct routes_list l = parse_one(inside);
        assert_text(sandbox_endpoint(l.items[0], 1)->host, rows[i].host);
        routes_list_free(&l);
    }
}

static void what_only_looks_like_an_address_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        " ",
        "10.0.0.256",
        "10.0.0",
        "010.0.0.1",
        "127.1",
        "1",
        "0x7f.0x1",
        "0x7f000001",
        "0x",
        "a.0x1f",
        "a.1",
        "a.1.",
        "10.0.0.1.",
        "10.0.0.1:80",
        "name:80",
        "[::1]:80",
        "[10.0.0.1]",
        "[name]",
        "[::1",
        "::1]",
        "[]",
        ":::",
        "fe80::1%eth0",
        "[fe80::1%25eth0]",
        "12345::",
        "name..test",
        ".name",
        ".",
        "..",
        "-a.test",
        "a-.test",
        "a b",
        "a/b",
        "a@b",
        "a,b",
        "a\\u0001",
        "b\\u00fccher.test",
        "http://a",
        "a:",
        " 10.0.0.1",
        "10.0.0.1 ",
        "*.test",
        "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg.test",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        struct routes_list l;
        struct json_fault fault;
        snprintf(text, sizeof text, "{\"sandboxes\":{\"a\":{\"address\":\"%s\"}}}", rows[i]);
        if (routes_parse(str_of(text), &l, &fault))
            fail_msg("taken: %s", rows[i]);
        assert_int_equal(fault.line, 1);
        assert_int_equal(fault.column, 30);
        assert_string_equal(
            fault.text,
            "sandbox \"a\": \"address\" must be an IP address or a host name, without port");
    }
}

static void a_name_has_253_bytes_at_most_without_its_final_dot(void **state)
{
    (void)state;
    struct routes_list l;
    struct json_fault fault;
    for (size_t n = 250; n < 258; n++)
        for (unsigned dot = 0; dot < 2; dot++) {
            char name[300], text[400];
            for (size_t i = 0; i < n; i++)
                name[i] = i % 50 == 49 && i + 1 < n ? '.' : 'a';
            snprintf(name + n, 2, "%s", dot ? "." : "");
            snprintf(text, sizeof text, "{\"sandboxes\":{\"a\":{\"address\":\"%s\"}}}", name);
            bool good = routes_parse(str_of(text), &l, &fault);
            assert_int_equal(good, n <= 253);
            if (good)
                routes_list_free(&l);
        }
}

static void states_are_read_as_the_gateway_answers_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum sandbox_state state;
        const char *reason;
    } rows[] = {
        {"Running", SANDBOX_RUNNING, ""},
        {"Pausing", SANDBOX_RUNNING, ""},
        {"Stopping", SANDBOX_RUNNING, ""},
        {"Pending", SANDBOX_NOT_READY, "Pending"},
        {"Allocated", SANDBOX_NOT_READY, "Allocated"},
        {"Paused", SANDBOX_NOT_READY, "Paused"},
        {"Resuming", SANDBOX_NOT_READY, "Resuming"},
        {"Failed", SANDBOX_NOT_READY, "Failed"},
        {"Terminated", SANDBOX_TERMINATED, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char inside[128];
        snprintf(inside, sizeof inside, "\"state\":\"%s\",\"address\":\"h\"", rows[i].text);
        struct routes_list l = parse_one(inside);
        assert_int_equal(l.items[0]->state, rows[i].state);
        assert_text(l.items[0]->reason, rows[i].reason);
        routes_list_free(&l);
    }
}

static void a_token_is_trimmed_of_all_white_space(void **state)
{
    (void)state;
    static const struct {
        const char *text, *token;
    } rows[] = {
        {"tok", "tok"},
        {"", ""},
        {"  \\t\\r\\n ", ""},
        {"\\u00a0\\u3000 to k\\u2003\\u0085\\u000b\\f", "to k"},
        {"\\u200btok", "\xe2\x80\x8btok"}, /* no white space */
        {"\\ufefftok", "\xef\xbb\xbftok"},
        {"\\u1680\\u2000\\u200a\\u2028\\u2029\\u202f\\u205ftok", "tok"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char inside[256];
        snprintf(inside, sizeof inside, "\"address\":\"h\",\"secureAccessToken\":\"%s\"",
                 rows[i].text);
        struct routes_list l = parse_one(inside);
        assert_text(l.items[0]->token, rows[i].token);
        routes_list_free(&l);
    }
}

static void an_expiry_counts_from_the_second_it_lies_in(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t until;
    } rows[] = {
        {"2026-01-31T12:00:00Z", 1769860800},        {"2026-01-31T12:00:00.999999999Z", 1769860800},
        {"2026-01-31T14:30:00.5+02:30", 1769860800}, {"1970-01-01T00:00:00Z", 0},
        {"9999-12-31T23:59:59Z", 253402300799},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char inside[128];
        snprintf(inside, sizeof inside, "\"address\":\"h\",\"expiresAt\":\"%s\"", rows[i].text);
        struct routes_list l = parse_one(inside);
        assert_true(l.items[0]->until_unix_s == rows[i].until);
        routes_list_free(&l);
    }
}

static void a_named_port_has_its_own_address_and_protocol(void **state)
{
    (void)state;
    struct routes_list l =
        parse_one("\"ports\":{"
                  "\"8080\":{\"address\":\"127.0.0.1:9000\",\"protocol\":\"h2c\"},"
                  "\"80\":{\"protocol\":\"h1\"},"
                  "\"443\":{\"address\":\"[fd00::0:1]:65535\"},"
                  "\"444\":{\"address\":\"name.test.:1\",\"protocol\":\"auto\"},"
                  "\"1\":{}},"
                  "\"address\":\"10.0.0.1\"");
    static const struct {
        uint16_t port, named, to;
        const char *host;
        enum wire wire;
    } rows[] = {
        {8080, 8080, 9000, "127.0.0.1", WIRE_H2C},  {80, 80, 0, "10.0.0.1", WIRE_H1},
        {443, 443, 65535, "fd00::1", WIRE_DEFAULT}, {444, 444, 1, "name.test.", WIRE_AUTO},
        {1, 1, 0, "10.0.0.1", WIRE_DEFAULT},        {2, 0, 0, "10.0.0.1", WIRE_DEFAULT},
        {65535, 0, 0, "10.0.0.1", WIRE_DEFAULT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct endpoint *e = sandbox_endpoint(l.items[0], rows[i].port);
        assert_int_equal(e->port, rows[i].named);
        assert_int_equal(e->to, rows[i].to);
        assert_int_equal(e->wire, rows[i].wire);
        assert_text(e->host, rows[i].host);
    }
    routes_list_free(&l);
}

static void a_list_is_sorted_by_id(void **state)
{
    (void)state;
    struct routes_list l = parse(
        " {\"sandboxes\" : {\"b\":{\"address\":\"h\"}, \"a b\":{\"address\":\"h\"},"
        "\"B\":{\"address\":\"h\"},\"\\u00e9\":{\"address\":\"h\"},\"a\":{\"address\":\"h\"}}}\n");
    static const char *const ids[] = {"B", "a", "a b", "b", "\xc3\xa9"};
    assert_int_equal(l.n, 5);
    for (size_t i = 0; i < l.n; i++)
        assert_text(l.items[i]->id, ids[i]);
    routes_list_free(&l);
    l = parse("{\"sandboxes\":{}}");
    assert_int_equal(l.n, 0);
    routes_list_free(&l);
}

static void an_id_has_256_bytes_at_most(void **state)
{
    (void)state;
    struct routes_list l;
    struct json_fault fault;
    for (size_t n = 255; n < 258; n++) {
        char id[300], text[400];
        memset(id, 'i', n);
        id[n] = '\0';
        snprintf(text, sizeof text, "{\"sandboxes\":{\"%s\":{\"address\":\"h\"}}}", id);
        bool good = routes_parse(str_of(text), &l, &fault);
        assert_int_equal(good, n <= 256);
        if (good)
            routes_list_free(&l);
    }
}

#define S(inside) "{\"sandboxes\":{\n \"a\":{" inside "}}}"
#define AT "\"address\":\"h\","

static void every_fault_is_named_with_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line, column;
        const char *fault; /* its beginning */
    } rows[] = {
        {"", 1, 1, ""},
        {" ", 1, 2, ""},
        {"nul", 1, 1, ""},
        {"[]", 1, 1, "must be of type object, not array"},
        {"\n null", 2, 2, "must be of type object, not null"},
        {"\"sandboxes\"", 1, 1, "must be of type object, not string"},
        {"{}", 1, 1, "\"sandboxes\" is missing"},
        {"{\"sandboxes\":{}}x", 1, 17, ""},
        {"{\"sandboxes\":{},\n\"more\":1}", 2, 8, "unknown member \"more\""},
        {"{\"sandboxes\":{},\"Sandboxes\":{}}", 1, 29, "unknown member \"Sandboxes\""},
        {"{\"sandboxes\":{},\n\"sandboxes\":{}}", 2, 1, "doubled member name"},
        {"{\"sandboxes\":[]}", 1, 14, "\"sandboxes\" must be of type object, not array"},
        {"{\"sandboxes\":null}", 1, 14, "\"sandboxes\" must be of type object, not null"},
        {"{\"sandboxes\":{\"\":{\"address\":\"h\"}}}", 1, 18,
         "a sandbox id must be 1 to 256 bytes"},
        {"{\"sandboxes\":{\"a\\n\":{\"address\":\"h\"}}}", 1, 21,
         "a sandbox id must be 1 to 256 bytes"},
        {"{\"sandboxes\":{\"\\u007f\":{\"address\":\"h\"}}}", 1, 24,
         "a sandbox id must be 1 to 256 bytes"},
        {"{\"sandboxes\":{\"a\":{\"address\":\"h\"},\n\"a\":{\"address\":\"h\"}}}", 2, 1,
         "doubled member name"},
        {"{\"sandboxes\":{\"a\":{\"address\":\"h\"},\n \"\\u0061\":{\"address\":\"h\"}}}", 2, 2,
         "doubled member name"},
        {"{\"sandboxes\":{\"a\":\"10.0.0.1\"}}", 1, 19,
         "sandbox \"a\": must be of type object, not string"},
        {S(""), 2, 6, "sandbox \"a\": \"address\" is missing"},
        {S("\"state\":\"Running\""), 2, 6, "sandbox \"a\": \"address\" is missing"},
        {S("\"address\":null"), 2, 17,
         "sandbox \"a\": \"address\" must be of type string, not null"},
        {S("\"address\":1"), 2, 17,
         "sandbox \"a\": \"address\" must be of type string, not number"},
        {S("\"address\":[\"h\"]"), 2, 17,
         "sandbox \"a\": \"address\" must be of type string, not array"},
        {S("\"address\":\"h:80\""), 2, 17, "sandbox \"a\": \"address\" must be an IP address"},
        {S("\"address\":\"h\",\n\"address\":\"h\""), 3, 1, "doubled member name \"address\""},
        {S(AT "\"x\":1"), 2, 25, "sandbox \"a\": unknown member \"x\""},
        {S(AT "\"Address\":\"h\""), 2, 31, "sandbox \"a\": unknown member \"Address\""},
        {S(AT "\"bad\\nname\":1"), 2, 33, "sandbox \"a\": unknown member \"bad?name\""},
        {S(AT "\"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd\xc3\xa9\":1"), 2, 66,
         "sandbox \"a\": unknown member \"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd...\""},
        {S(AT "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddd\xc3\xa9z\":1"), 2, 66,
         "sandbox \"a\": unknown member \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddd...\""},
        {S(AT "\"state\":\"running\""), 2, 29,
         "sandbox \"a\": \"state\" must be Pending, Allocated, Running"},
        {S(AT "\"state\":\"\""), 2, 29, "sandbox \"a\": \"state\" must be"},
        {S(AT "\"state\":true"), 2, 29,
         "sandbox \"a\": \"state\" must be of type string, not boolean"},
        {S(AT "\"secureAccessToken\":7"), 2, 41,
         "sandbox \"a\": \"secureAccessToken\" must be of type string"},
        {S(AT "\"secureAccessToken\":null"), 2, 41,
         "sandbox \"a\": \"secureAccessToken\" must be of type string"},
        {S(AT "\"expiresAt\":0"), 2, 33,
         "sandbox \"a\": \"expiresAt\" must be of type string, not number"},
        {S(AT "\"expiresAt\":\"\""), 2, 33,
         "sandbox \"a\": \"expiresAt\" must be a time as in RFC 3339"},
        {S(AT "\"expiresAt\":\"2026-02-30T00:00:00Z\""), 2, 33,
         "sandbox \"a\": \"expiresAt\" must be a time"},
        {S(AT "\"expiresAt\":\"2026-02-01T00:00:00\""), 2, 33,
         "sandbox \"a\": \"expiresAt\" must be a time"},
        {S(AT "\"expiresAt\":\"2026-02-01 00:00:00Z\""), 2, 33,
         "sandbox \"a\": \"expiresAt\" must be a time"},
        {S(AT "\"ports\":[]"), 2, 29, "sandbox \"a\": \"ports\" must be of type object, not array"},
        {S(AT "\"ports\":{\"80\":{},\"80\":{}}"), 2, 38, "doubled member name \"80\""},
        {S(AT "\"ports\":{\"0\":{}}"), 2, 34, "sandbox \"a\": \"0\" is no port: 1 to 65535"},
        {S(AT "\"ports\":{\"080\":{}}"), 2, 36, "sandbox \"a\": \"080\" is no port"},
        {S(AT "\"ports\":{\"+80\":{}}"), 2, 36, "sandbox \"a\": \"+80\" is no port"},
        {S(AT "\"ports\":{\"65536\":{}}"), 2, 38, "sandbox \"a\": \"65536\" is no port"},
        {S(AT "\"ports\":{\"http\":{}}"), 2, 37, "sandbox \"a\": \"http\" is no port"},
        {S(AT "\"ports\":{\"\":{}}"), 2, 33, "sandbox \"a\": \"\" is no port"},
        {S(AT "\"ports\":{\"80\":8080}"), 2, 35,
         "sandbox \"a\": port 80 must be of type object, not number"},
        {S(AT "\"ports\":{\"80\":null}"), 2, 35,
         "sandbox \"a\": port 80 must be of type object, not null"},
        {S(AT "\"ports\":{\"80\":{\"to\":1}}"), 2, 41, "sandbox \"a\": unknown member \"to\""},
        {S(AT "\"ports\":{\"80\":{\"protocol\":\"h2\"}}"), 2, 47,
         "sandbox \"a\": \"protocol\" must be auto, h1"},
        {S(AT "\"ports\":{\"80\":{\"protocol\":\"H1\"}}"), 2, 47,
         "sandbox \"a\": \"protocol\" must be auto, h1"},
        {S(AT "\"ports\":{\"80\":{\"protocol\":null}}"), 2, 47,
         "sandbox \"a\": \"protocol\" must be of type string"},
        {S(AT "\"ports\":{\"80\":{\"address\":80}}"), 2, 46,
         "sandbox \"a\": \"address\" must be of type string"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"h\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be host:port"},
        {S(AT "\"ports\":{\"80\":{\"address\":\":80\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"h:\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"h:0\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"h:080\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"::1:80\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"[::1]\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port must be"},
        {S(AT "\"ports\":{\"80\":{\"address\":\"10.0.0:80\"}}"), 2, 46,
         "sandbox \"a\": \"address\" of a port"},
        {S(AT "\"ports\":{\"80\":{\"address\":{\"x\":{\"y\":[[[]]]}}}}"), 2, 57, ""}, /* too deep */
        {"{\"sandboxes\":{\"a\":{\"address\":\"h\"},\n\"b\":{}}}", 2, 5,
         "sandbox \"b\": \"address\" is missing"},
        {"{\"sandboxes\":{\"a\":{\"address\":\"h\"}}", 1, 35, ""},
        {"\xef\xbb\xbf{\"sandboxes\":{}}", 1, 1, ""},
        {"{\"sandboxes\":{\"a\":{\"address\":\"h\xff\"}}}", 1, 32, ""},
        {"{\"sandboxes\":{\"a\":{\"address\":\"h\\u0000\"}}}", 1, 32, ""},
        {"{\"sandboxes\":{},}", 1, 17, ""},
        {"{/* no */\"sandboxes\":{}}", 1, 2, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct routes_list l;
        struct json_fault f = {0};
        if (routes_parse(str_of(rows[i].text), &l, &f))
            fail_msg("taken: %s", rows[i].text);
        if (f.line != rows[i].line || f.column != rows[i].column ||
            strncmp(f.text, rows[i].fault, strlen(rows[i].fault)) != 0 || f.text[0] == '\0')
            fail_msg("%s\n: %u:%u: %s", rows[i].text, f.line, f.column, f.text);
    }
}

static void a_fault_shows_no_content_but_names(void **state)
{
    (void)state;
    struct routes_list l;
    struct json_fault f;
    assert_false(routes_parse(STR("{\"sandboxes\":{\"a\":{\"address\":\"hunter2:1\","
                                  "\"secureAccessToken\":\"hunter2\"}}}"),
                              &l, &f));
    assert_null(strstr(f.text, "hunter2"));
    assert_false(routes_parse(
        STR("{\"sandboxes\":{\"a\":{\"address\":\"h\",\"state\":\"hunter2\"}}}"), &l, &f));
    assert_null(strstr(f.text, "hunter2"));
}

static void a_long_id_in_a_fault_is_cut(void **state)
{
    (void)state;
    struct routes_list l;
    struct json_fault f;
    char id[257], text[512];
    memset(id, 'i', 256);
    id[256] = '\0';
    snprintf(text, sizeof text, "{\"sandboxes\":{\"%s\":{\"address\":\"h\",\"state\":\"\"}}}", id);
    assert_false(routes_parse(str_of(text), &l, &f));
    assert_true(
        strncmp(
            f.text,
            "sandbox \"iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii...\": \"state\" must be Pending",
            78) == 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_with_an_address_is_running_open_and_endless),
        cmocka_unit_test(an_address_is_an_ip_address_or_a_name),
        cmocka_unit_test(what_only_looks_like_an_address_is_refused),
        cmocka_unit_test(a_name_has_253_bytes_at_most_without_its_final_dot),
        cmocka_unit_test(states_are_read_as_the_gateway_answers_them),
        cmocka_unit_test(a_token_is_trimmed_of_all_white_space),
        cmocka_unit_test(an_expiry_counts_from_the_second_it_lies_in),
        cmocka_unit_test(a_named_port_has_its_own_address_and_protocol),
        cmocka_unit_test(a_list_is_sorted_by_id),
        cmocka_unit_test(an_id_has_256_bytes_at_most),
        cmocka_unit_test(every_fault_is_named_with_line_and_column),
        cmocka_unit_test(a_fault_shows_no_content_but_names),
        cmocka_unit_test(a_long_id_in_a_fault_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
