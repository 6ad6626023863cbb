/* lifecycle_answer_test.c — answers of the lifecycle server: every state, every form of an
 * endpoint, every kind of header, and what is not to be understood. */
#include "ingress/lifecycle_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

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

static void a_status_says_what_became_of_a_call(void **state)
{
    static const struct {
        int status;
        enum lifecycle_verdict v;
    } rows[] = {
        {200, LIFECYCLE_GOOD},    {201, LIFECYCLE_TROUBLE}, {204, LIFECYCLE_TROUBLE},
        {302, LIFECYCLE_TROUBLE}, {304, LIFECYCLE_TROUBLE}, {400, LIFECYCLE_WRONG},
        {401, LIFECYCLE_REFUSED}, {403, LIFECYCLE_REFUSED}, {404, LIFECYCLE_ABSENT},
        {405, LIFECYCLE_TROUBLE}, {409, LIFECYCLE_TROUBLE}, {429, LIFECYCLE_TROUBLE},
        {500, LIFECYCLE_TROUBLE}, {503, LIFECYCLE_TROUBLE}, {599, LIFECYCLE_TROUBLE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(lifecycle_judge(rows[i].status), rows[i].v);
}

/* ---- state */

static bool read_state(const char *body, struct lifecycle_state *ret)
{
    const char *fault = NULL;
    bool good = lifecycle_read_state(str_of(body), STR("sb1"), &mem, ret, &fault);
    assert_true(good == !fault);
    return good;
}

static void states_are_those_of_the_contract_and_any_other_is_running(void **state)
{
    static const struct {
        const char *name;
        enum sandbox_state state;
    } rows[] = {
        {"Running", SANDBOX_RUNNING},       {"Pausing", SANDBOX_RUNNING},
        {"Stopping", SANDBOX_RUNNING},      {"Hibernating", SANDBOX_RUNNING},
        {"running", SANDBOX_RUNNING},       {"Pending", SANDBOX_NOT_READY},
        {"Allocated", SANDBOX_NOT_READY},   {"Paused", SANDBOX_NOT_READY},
        {"Resuming", SANDBOX_NOT_READY},    {"Failed", SANDBOX_NOT_READY},
        {"Terminated", SANDBOX_TERMINATED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lifecycle_state s;
        struct str body =
            arena_printf(&mem, "{\"id\":\"sb1\",\"status\":{\"state\":\"%s\"}}", rows[i].name);
        const char *fault;
        assert_true(lifecycle_read_state(body, STR("sb1"), &mem, &s, &fault));
        assert_int_equal(s.state, rows[i].state);
        assert_true(str_eq(s.name, str_of(rows[i].name)));
        assert_int_equal(s.until_unix_s, INT64_MAX);
    }
}

static void an_end_is_read_and_what_nobody_needs_is_skipped(void **state)
{
    static const struct {
        const char *members;
        int64_t until;
    } rows[] = {
        {"", INT64_MAX},
        {",\"expiresAt\":null", INT64_MAX},
        {",\"expiresAt\":\"1970-01-01T00:01:00Z\"", 60},
        {",\"expiresAt\":\"1970-01-01T02:00:00.999999+02:00\"", 0},
        {",\"metadata\":{\"a\":[1,{\"b\":null}]},\"image\":{\"uri\":\"x\"},\"entrypoint\":[],\"n\":"
         "1.5e3",
         INT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lifecycle_state s;
        struct str body = arena_printf(&mem,
                                       "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\","
                                       "\"reason\":null,\"message\":\"m\"}%s}",
                                       rows[i].members);
        assert_true(read_state(body.p, &s));
        assert_int_equal(s.until_unix_s, rows[i].until);
    }
}

static void a_state_that_is_not_understood_is_none(void **state)
{
    static const char *const rows[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"id\":\"sb1\"}",
        "{\"id\":\"sb1\",\"status\":null}",
        "{\"id\":\"sb1\",\"status\":\"Running\"}",
        "{\"id\":\"sb1\",\"status\":{}}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"\"}}",
        "{\"id\":\"sb1\",\"status\":{\"state\":1}}",
        "{\"id\":\"sb2\",\"status\":{\"state\":\"Running\"}}",
        "{\"id\":\"SB1\",\"status\":{\"state\":\"Running\"}}",
        "{\"id\":1,\"status\":{\"state\":\"Running\"}}",
        "{\"status\":{\"state\":\"Running\"}}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"}} x",
        "{\"id\":\"sb1\",\"id\":\"sb1\",\"status\":{\"state\":\"Running\"}}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"tomorrow\"}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"\"}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":1700000000}",
        "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"metadata\":\"\xff\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lifecycle_state s;
        if (read_state(rows[i], &s))
            fail_msg("%s was taken", rows[i]);
    }
}

static void a_long_name_of_a_state_is_cut(void **state)
{
    (void)state;
    struct lifecycle_state s;
    struct str body = arena_printf(&mem, "{\"id\":\"sb1\",\"status\":{\"state\":\"%0500d\"}}", 0);
    assert_true(read_state(body.p, &s));
    assert_int_equal(s.name.n, 64);
}

/* ---- endpoints */

static void addresses_are_host_port_and_path(void **state)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
        const char *authority, *path;
    } rows[] = {
        {"10.0.0.1:8080", "10.0.0.1", 8080, "10.0.0.1:8080", ""},
        {"10.0.0.1", "10.0.0.1", 80, "10.0.0.1", ""},
        {"10.0.0.1/", "10.0.0.1", 80, "10.0.0.1", ""},
        {"box.test:1/proxy/8080", "box.test", 1, "box.test:1", "/proxy/8080"},
        {"box.test/a/b///", "box.test", 80, "box.test", "/a/b"},
        {"box.test/a//b", "box.test", 80, "box.test", "/a//b"},
        {"box.test/a%2Fb/;x=@:!", "box.test", 80, "box.test", "/a%2Fb/;x=@:!"},
        {"box.test/...", "box.test", 80, "box.test", "/..."},
        {"[fd00::1]:65535", "fd00::1", 65535, "[fd00::1]:65535", ""},
        {"[fd00::1]/x", "fd00::1", 80, "[fd00::1]", "/x"},
        {"localhost:40001/proxy/80", "localhost", 40001, "localhost:40001", "/proxy/80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct endpoint e;
        struct endpoint_url u;
        if (!lifecycle_read_address(str_of(rows[i].text), &mem, &e, &u))
            fail_msg("%s was not taken", rows[i].text);
        assert_true(str_eq(e.host, str_of(rows[i].host)));
        assert_int_equal(e.to, rows[i].port);
        assert_int_equal(e.port, 0);
        assert_true(str_eq(u.authority, str_of(rows[i].authority)));
        assert_true(str_eq(u.path, str_of(rows[i].path)));
        assert_true(e.url == &u && !e.tls && u.nadd == 0 && u.query.n == 0);
    }
}

static void what_could_lead_elsewhere_is_no_address(void **state)
{
    static const char *const rows[] = {
        "",
        ":80",
        "/x",
        "http://10.0.0.1",
        "https://10.0.0.1:80/x",
        "//10.0.0.1",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.1:+80",
        "10.0.0.1:80:80",
        "fd00::1",
        "fd00::1:80",
        "[fd00::1",
        "[fd00::1]80",
        "[10.0.0.1]:80",
        "user@10.0.0.1",
        "user:pw@10.0.0.1:80",
        "a@b@c",
        "10.0.0.1?x",
        "10.0.0.1:80/x?y=1",
        "10.0.0.1:80/x#y",
        "10.0.0.1#x",
        "10.0.0.1\\x",
        " 10.0.0.1",
        "10.0.0.1 ",
        "10.0.0.1\r\nX: y",
        "box test",
        "10.0.0.1/a b",
        "10.0.0.1/..",
        "10.0.0.1/a/../b",
        "10.0.0.1/./b",
        "10.0.0.1/%2e%2E/b",
        "10.0.0.1/.%2e",
        "10.0.0.1/%",
        "10.0.0.1/%2",
        "10.0.0.1/%zz",
        "10.0.0.1/\xc3\xa9",
        "10.0.0.1/<x>",
        "10.0.0.1/\"",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct endpoint e;
        struct endpoint_url u;
        if (lifecycle_read_address(str_of(rows[i]), &mem, &e, &u))
            fail_msg("%s was taken", rows[i]);
    }
}

static bool read_endpoint(const char *headers, struct lifecycle_endpoint *ret)
{
    const char *fault = NULL;
    struct str body = arena_printf(
        &mem, "{\"endpoint\":\"10.0.0.1:40001/proxy/80\",\"headers\":%s,\"new\":1}", headers);
    bool good = lifecycle_read_endpoint(body, &mem, ret, &fault);
    assert_true(good == !fault);
    return good;
}

static void headers_are_kept_demanded_or_left_out(void **state)
{
    (void)state;
    struct lifecycle_endpoint e;
    assert_true(
        read_endpoint("{\"OpenSandbox-Secure-Access\":\" tok \",\"OPENSANDBOX-EGRESS-AUTH\":"
                      "\"egress\",\"X-Tenant\":\" a b\\t\",\"cookie\":\"c=1\",\"X-Null\":null}",
                      &e));
    assert_true(str_eq(e.token, STR("tok")) && !e.gateway);
    assert_int_equal(e.url.nadd, 2);
    assert_true(str_eq(e.url.add[0].name, STR("x-tenant")));
    assert_true(str_eq(e.url.add[0].value, STR("a b")));
    assert_true(str_eq(e.url.add[1].name, STR("cookie")));
    assert_true(e.end.url == &e.url && str_eq(e.url.path, STR("/proxy/80")));
}

static void no_headers_mean_an_open_sandbox(void **state)
{
    static const char *const rows[] = {"{}", "null", "{\"OPENSANDBOX-EGRESS-AUTH\":\"x\"}",
                                       "{\"OpenSandbox-Secure-Access\":\"\"}"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lifecycle_endpoint e;
        assert_true(read_endpoint(rows[i], &e));
        assert_true(e.token.n == 0 && e.url.nadd == 0 && !e.gateway);
    }
}

static void a_way_back_to_a_gateway_is_seen_whatever_else_there_is(void **state)
{
    static const char *const rows[] = {
        "{\"OpenSandbox-Ingress-To\":\"sb1-80\"}",
        "{\"X-A\":\"b\",\"opensandbox-ingress-to\":\"\"}",
        "{\"OPEN-SANDBOX-INGRESS\":\"sb1-80\",\"OpenSandbox-Secure-Access\":\"t\"}",
        "{\"Host\":\"x\",\"OpenSandbox-Ingress-To\":\"sb1-80\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lifecycle_endpoint e;
        assert_true(read_endpoint(rows[i], &e));
        assert_true(e.gateway && e.url.nadd == 0);
    }
}

static void headers_that_cannot_be_sent_spoil_the_answer(void **state)
{
    static const char *const names[] = {
        "Host",
        "connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "Proxy-Authenticate",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Expect",
        "X-Request-Id",
        "X-Forwarded-For",
        "Forwarded",
        "X-Real-IP",
        "X-Forwarded-Proto",
        "OPEN-SANDBOX-API-KEY",
        "OpenSandbox-Access-Renew",
        "X-Fast-Sandbox-Route-Credential",
        "",
        "a b",
        "a:",
        "a\\n",
        "\xc3\xa9",
    };
    static const char *const others[] = {
        "[]",
        "\"x\"",
        "7",
        "{\"a\":1}",
        "{\"a\":[\"b\"]}",
        "{\"a\":\"b\\r\\nc: d\"}",
        "{\"a\":\"\\u007f\"}",
        "{\"a\":\"1\",\"A\":\"2\"}",
        "{\"OpenSandbox-Secure-Access\":\"a\",\"opensandbox-secure-access\":\"b\"}",
    };
    (void)state;
    struct lifecycle_endpoint e;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (read_endpoint(arena_printf(&mem, "{\"%s\":\"x\"}", names[i]).p, &e))
            fail_msg("%s was taken", names[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (read_endpoint(others[i], &e))
            fail_msg("%s was taken", others[i]);
}

static void a_token_of_another_type_never_opens_a_sandbox(void **state)
{
    static const char *const rows[] = {"{\"OpenSandbox-Secure-Access\":1}",
                                       "{\"OpenSandbox-Secure-Access\":{}}",
                                       "{\"OpenSandbox-Secure-Access\":\"a\\u0001\"}"};
    (void)state;
    struct lifecycle_endpoint e;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_false(read_endpoint(rows[i], &e));
}

static void more_headers_than_a_bound_are_refused(void **state)
{
    (void)state;
    struct lifecycle_endpoint e;
    for (int n = 64; n <= 65; n++) {
        struct str list = STR("");
        for (int i = 0; i < n; i++)
            list = arena_printf(&mem, "%.*s%s\"x-%d\":\"\"", STR_ARG(list), i ? "," : "", i);
        assert_int_equal(read_endpoint(arena_printf(&mem, "{%.*s}", STR_ARG(list)).p, &e), n == 64);
    }
}

static void an_endpoint_must_be_there(void **state)
{
    static const char *const rows[] = {
        "{}", "{\"endpoint\":null}", "{\"endpoint\":7}", "{\"endpoint\":\"\"}", "{\"headers\":{}}",
        "x"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lifecycle_endpoint e;
        const char *fault = NULL;
        assert_false(lifecycle_read_endpoint(str_of(rows[i]), &mem, &e, &fault));
        assert_non_null(fault);
    }
}

/* ---- errors, targets */

static void codes_are_logged_only_in_their_form(void **state)
{
    static const char *const rows[][2] = {
        {"{\"code\":\"KUBERNETES::SANDBOX_NOT_FOUND\",\"message\":\"m\"}",
         "KUBERNETES::SANDBOX_NOT_FOUND"},
        {"{\"code\":\"a key: s3cret\"}", ""},
        {"{\"code\":\"A\\nB\"}", ""},
        {"{\"code\":7}", ""},
        {"{\"code\":null}", ""},
        {"{}", ""},
        {"<html>", ""},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(str_eq(lifecycle_read_code(str_of(rows[i][0]), &mem), str_of(rows[i][1])));
}

static void an_id_is_one_segment_of_the_target(void **state)
{
    static const char *const rows[][2] = {
        {"sb1", "sb1"},
        {"0d6e2c1a-7a52-4b8f-9d3f-5f6e0a1b2c3d", "0d6e2c1a-7a52-4b8f-9d3f-5f6e0a1b2c3d"},
        {"a/b", "a%2Fb"},
        {"../x", "..%2Fx"},
        {"a?b#c", "a%3Fb%23c"},
        {"a%2F", "a%252F"},
        {"\xc3\xa9 \r\n", "%C3%A9%20%0D%0A"},
        {"...", "..."},
    };
    (void)state;
    struct str target;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(lifecycle_target(str_of(rows[i][0]), &mem, &target));
        assert_true(str_eq(target, arena_printf(&mem, "/v1/sandboxes/%s", rows[i][1])));
    }
    char long_id[257];
    memset(long_id, 'a', sizeof long_id);
    assert_true(lifecycle_target((struct str){long_id, 256}, &mem, &target));
    assert_false(lifecycle_target((struct str){long_id, 257}, &mem, &target));
    assert_false(lifecycle_target(STR("."), &mem, &target));
    assert_false(lifecycle_target(STR(".."), &mem, &target));
    assert_false(lifecycle_target(STR(""), &mem, &target));
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_status_says_what_became_of_a_call),
        T(states_are_those_of_the_contract_and_any_other_is_running),
        T(an_end_is_read_and_what_nobody_needs_is_skipped),
        T(a_state_that_is_not_understood_is_none),
        T(a_long_name_of_a_state_is_cut),
        T(addresses_are_host_port_and_path),
        T(what_could_lead_elsewhere_is_no_address),
        T(headers_are_kept_demanded_or_left_out),
        T(no_headers_mean_an_open_sandbox),
        T(a_way_back_to_a_gateway_is_seen_whatever_else_there_is),
        T(headers_that_cannot_be_sent_spoil_the_answer),
        T(a_token_of_another_type_never_opens_a_sandbox),
        T(more_headers_than_a_bound_are_refused),
        T(an_endpoint_must_be_there),
        T(codes_are_logged_only_in_their_form),
        T(an_id_is_one_segment_of_the_target),
    };
    return cmocka_run_group_tests_name("lifecycle_answer", tests, NULL, NULL);
}
