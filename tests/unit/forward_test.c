/* forward_test.c — what the vectors of heads leave open: the whole removal list, odd lines of
 * proxies, interim answers. */
#include "ingress/forward.h"
#include "ingress/resolver.h"
#include "proxy/requestid.h"

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

enum { MAX_FIELDS = 32 };

/* "Name: value" lines, one per '\n', as rules.c leaves them. */
static struct http_head head_of(const char *lines)
{
    struct http_head h = {.method = STR("GET"),
                          .authority = STR("gw.test"),
                          .path = STR("/in"),
                          .length = -1,
                          .protocol = STR("")};
    struct str rest = lines[0] ? str_of(lines) : STR_NONE, line;
    h.fields = arena_get(&mem, MAX_FIELDS * sizeof *h.fields);
    while (str_next(&rest, '\n', &line)) {
        ptrdiff_t colon = str_chr(line, ':');
        head_add(&h, str_head(line, (size_t)colon), str_trim(str_skip(line, (size_t)colon + 1)));
    }
    return h;
}

static const char *lines_of(const struct http_head *h)
{
    static char text[2000];
    size_t n = 0;
    for (unsigned i = 0; i < h->nfields; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s: %.*s", i ? "\n" : "",
                              STR_ARG(h->fields[i].name), STR_ARG(h->fields[i].value));
    text[n] = 0;
    return text;
}

static struct forward_facts facts_of(const char *peer)
{
    struct forward_facts f = {.local_port = 28888,
                              .target = STR("10.0.0.5:80"),
                              .path = STR("/out?q"),
                              .request_id = STR("id")};
    assert_true(ip_parse(str_of(peer), &f.peer));
    return f;
}

static struct forward_rules trusting(const char *list)
{
    struct forward_rules rules = {0};
    struct str bad;
    assert_true(cidr_set_parse(str_of(list), &mem, &rules.trusted, &bad));
    return rules;
}

#define OURS(peers, host, proto, port)                                                  \
    "X-Forwarded-For: " peers "\nX-Forwarded-Host: " host "\nX-Forwarded-Proto: " proto \
    "\nX-Forwarded-Port: " port
#define PLAIN OURS("9.9.9.9", "gw.test", "http", "28888")

static void requests_go_on_with_our_fields_and_without_what_is_ours_or_hop_by_hop(void **state)
{
    static const struct {
        const char *trusted, *in, *out;
    } rows[] = {
        {"", "A: 1", "A: 1\n" PLAIN "\nX-Request-Id: id"},
        {"",
         "OpenSandbox-Ingress-To: a\nopensandbox-ingress-to: b\nOPEN-SANDBOX-INGRESS: "
         "c\nOpenSandbox-Secure-Access: d\nOPENSANDBOX-ACCESS-RENEW: skip\n"
         "X-Fast-Sandbox-Route-Credential: e\nX-Request-Id: f\nx-request-id: "
         "g\nOPEN-SANDBOX-API-KEY: h\nForwarded: i\nX-Real-IP: j\nX-Forwarded-For: k\n"
         "X-Forwarded-Host: l\nX-Forwarded-Proto: m\nX-Forwarded-Port: n\nX-Forwarded-Prefix: "
         "o\nLast: 1",
         "Last: 1\n" PLAIN "\nX-Request-Id: id"},
        {"",
         "X-Forwarded-Server: a\nOpenSandbox-Ingress-Too: b\nX-Real-Ip2: "
         "c\nOPENSANDBOX-EGRESS-AUTH: d\nVia: e\nCookie: f\nAuthorization: g\nX-Forwarded-Foo: h",
         "X-Forwarded-Server: a\nOpenSandbox-Ingress-Too: b\nX-Real-Ip2: "
         "c\nOPENSANDBOX-EGRESS-AUTH: d\nVia: e\nCookie: f\nAuthorization: g\nX-Forwarded-Foo: "
         "h\n" PLAIN "\nX-Request-Id: id"},
        {"9.0.0.0/8",
         "Forwarded: i\nX-Real-IP: j\nX-Forwarded-For: 1.1.1.1\nA: "
         "1\nX-Forwarded-For:\nX-Forwarded-For: x, y",
         "Forwarded: i\nX-Real-IP: j\nA: 1\n" OURS("1.1.1.1, x, y, 9.9.9.9", "gw.test", "http",
                                                   "28888") "\nX-Request-Id: id"},
        {"9.0.0.0/8",
         "X-Forwarded-Host:\nX-Forwarded-Proto:\nX-Forwarded-Port:\nX-Forwarded-For:\nX-Forwarded-"
         "Prefix:",
         PLAIN "\nX-Request-Id: id"},
        {"9.0.0.0/8", "X-Forwarded-Host: a\nX-Forwarded-Host: b\nX-Forwarded-Prefix: /p/",
         OURS("9.9.9.9", "a", "http", "28888") "\nX-Forwarded-Prefix: /p/\nX-Request-Id: id"},
        {"9.0.0.0/8",
         "OpenSandbox-Secure-Access: d\nOPEN-SANDBOX-API-KEY: h\nX-Fast-Sandbox-Route-Credential: "
         "e",
         PLAIN "\nX-Request-Id: id"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h = head_of(rows[i].in);
        struct forward_rules rules = trusting(rows[i].trusted);
        struct forward_facts facts = facts_of("9.9.9.9");
        unsigned before = h.nfields;
        const char *out = lines_of(forward_request(&rules, &facts, &h, &mem));
        if (strcmp(out, rows[i].out) != 0)
            fail_msg("row %zu:\n%s\n-- not --\n%s", i, out, rows[i].out);
        assert_int_equal(h.nfields,
                         before); /* the client's head is untouched: a retry reads it again */
    }
}

static void typed_members_stay_but_path_and_authority(void **state)
{
    (void)state;
    struct http_head h = head_of("");
    struct forward_facts facts = facts_of("::1");
    struct forward_rules rules = {0};
    h.protocol = STR("websocket");
    h.te_trailers = h.idempotent = h.expect_continue = true;
    h.length = 7;
    h.scheme = STR("http");
    struct http_head *out = forward_request(&rules, &facts, &h, &mem);
    assert_true(str_eq(out->method, STR("GET")) && str_eq(out->protocol, STR("websocket")) &&
                str_eq(out->scheme, STR("http")));
    assert_true(out->te_trailers && out->idempotent && out->expect_continue && out->length == 7);
    assert_true(str_eq(out->path, STR("/out?q")) && str_eq(out->authority, STR("10.0.0.5:80")));
    assert_true(str_eq(*head_get(out, STR("x-forwarded-for")), STR("::1")));
}

static void a_request_without_host_gets_none_forwarded(void **state)
{
    (void)state;
    struct http_head h = head_of("");
    struct forward_facts facts = facts_of("9.9.9.9");
    struct forward_rules rules = {.preserve_host = true};
    h.authority = STR_NONE;
    struct http_head *out = forward_request(&rules, &facts, &h, &mem);
    assert_null(head_get(out, STR("X-Forwarded-Host")));
    assert_true(str_eq(out->authority, STR("10.0.0.5:80")));
    h.authority = STR("[::1]:80");
    out = forward_request(&rules, &facts, &h, &mem);
    assert_true(str_eq(*head_get(out, STR("X-Forwarded-Host")), STR("[::1]:80")));
    assert_true(str_eq(out->authority, STR("[::1]:80")));
}

static void prefixes_are_joined_with_one_slash(void **state)
{
    static const char *const rows[][3] = {
        {"/edge", "/sandboxes/a/port/1", "/edge/sandboxes/a/port/1"},
        {"/edge//", "/a/1", "/edge/a/1"},
        {"/", "/a/1", "/a/1"},
        {"", "/a/1", "/a/1"},
        {"/edge", "", "/edge"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct forward_rules rules = trusting("9.9.9.9");
        struct forward_facts facts = facts_of("9.9.9.9");
        struct field field = {STR("x-forwarded-prefix"), str_of(rows[i][0])};
        struct http_head h = {.authority = STR("gw"), .fields = &field, .nfields = 1};
        facts.prefix = str_of(rows[i][1]);
        const struct str *prefix =
            head_get(forward_request(&rules, &facts, &h, &mem), STR("X-Forwarded-Prefix"));
        assert_non_null(prefix);
        assert_true(str_eq(*prefix, str_of(rows[i][2])));
    }
}

static void switches_let_the_api_key_and_the_credential_pass(void **state)
{
    (void)state;
    struct http_head h =
        head_of("open-sandbox-api-key: k\nX-Fast-Sandbox-Route-Credential: forged");
    struct forward_rules rules = {.forward_api_key = true};
    struct forward_facts facts = facts_of("9.9.9.9");
    facts.credential = STR("issued");
    facts.tls = true;
    struct http_head *out = forward_request(&rules, &facts, &h, &mem);
    assert_string_equal(lines_of(out),
                        "open-sandbox-api-key: k\n" OURS(
                            "9.9.9.9", "gw.test", "https",
                            "28888") "\nX-Request-Id: id\nX-Fast-Sandbox-Route-Credential: issued");
}

static void a_base_url_comes_before_path_and_query_byte_for_byte(void **state)
{
    static const char *const rows[][4] = {
        /* base path, base query, asked, sent */
        {"", "", "/x?a=1", "/x?a=1"},
        {"", "", "/x?", "/x?"},
        {"/b", "", "/", "/b/"},
        {"/b", "", "/x?", "/b/x?"},
        {"/b", "", "//x/../y?a?b", "/b//x/../y?a?b"},
        {"/b", "k=1", "/x", "/b/x?k=1"},
        {"/b", "k=1", "/x?", "/b/x?k=1"},
        {"/b", "k=1", "/x?a=2", "/b/x?k=1&a=2"},
        {"", "k=1", "/x?a=2", "/x?k=1&a=2"},
        {"/b", "", "/%s%n\xff", "/b/%s%n\xff"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct endpoint_url url = {.path = str_of(rows[i][0]), .query = str_of(rows[i][1])};
        struct str got = forward_join(&url, str_of(rows[i][2]), &mem);
        if (!str_eq(got, str_of(rows[i][3])))
            fail_msg("row %zu: %.*s, not %s", i, STR_ARG(got), rows[i][3]);
    }
}

static void what_the_provider_sets_takes_the_place_of_what_the_client_sent(void **state)
{
    (void)state;
    static const struct field add[] = {{{"x-tenant", 8}, {"ours", 4}}, {{"cookie", 6}, {"c", 1}}};
    static const struct endpoint_url url = {{"box.test", 8}, {"/proxy/80", 9}, {"", 0}, add, 2};
    struct http_head h =
        head_of("X-Tenant: theirs\nA: 1\nx-tenant: again\nCookie: x\nX-Tenant2: 2");
    struct forward_rules rules = {0};
    struct forward_facts facts = facts_of("9.9.9.9");
    facts.url = &url;
    struct http_head *out = forward_request(&rules, &facts, &h, &mem);
    assert_string_equal(lines_of(out), "A: 1\nX-Tenant2: 2\n" PLAIN
                                       "\nX-Request-Id: id\nx-tenant: ours\ncookie: c");
    assert_true(str_eq(out->path, STR("/proxy/80/out?q")));
    assert_true(str_eq(out->authority, STR("box.test")));
    rules.preserve_host = true;
    out = forward_request(&rules, &facts, &h, &mem);
    assert_true(str_eq(out->authority, STR("gw.test")));
}

static void a_url_without_authority_leaves_host_to_the_target(void **state)
{
    (void)state;
    static const struct endpoint_url url = {.path = {"/b", 2}};
    struct http_head h = head_of("X-Fast-Sandbox-Route-Credential: forged");
    struct forward_rules rules = {0};
    struct forward_facts facts = facts_of("9.9.9.9");
    facts.url = &url;
    facts.to_tls = true;
    struct http_head *out = forward_request(&rules, &facts, &h, &mem);
    assert_true(str_eq(out->authority, STR("10.0.0.5:80")));
    assert_true(str_eq(out->scheme, STR("https")));
    assert_null(head_get(out, STR("x-fast-sandbox-route-credential")));
}

static void many_lines_of_a_proxy_cost_no_more_than_their_bytes(void **state)
{
    (void)state;
    enum { LINES = 20000 };
    struct field *fields = arena_get(&mem, LINES * sizeof *fields);
    for (unsigned i = 0; i < LINES; i++)
        fields[i] = (struct field){STR("X-Forwarded-For"), STR("10.0.0.1")};
    struct http_head h = {.authority = STR("gw"), .fields = fields, .nfields = LINES};
    struct forward_rules rules = trusting("9.9.9.9");
    struct forward_facts facts = facts_of("9.9.9.9");
    size_t before = mem.extra;
    struct http_head *out = forward_request(&rules, &facts, &h, &mem);
    assert_int_equal(head_get(out, STR("X-Forwarded-For"))->n, LINES * 10 + 7);
    assert_true(mem.extra - before < 4 * 1024 * 1024);
}

static void answers_get_what_is_missing_once(void **state)
{
    static const struct {
        int status;
        const char *protocol, *in, *out;
    } rows[] = {
        {200, "", "A: 1",
         "A: 1\nX-Request-Id: id\nReverse-Proxy-Server-Powerby: OpenSandbox-ingress\nDate: now"},
        {200, "", "date: x\nX-REQUEST-ID:\nreverse-proxy-server-powerby: OpenSandbox-ingress",
         "date: x\nX-REQUEST-ID:\nreverse-proxy-server-powerby: OpenSandbox-ingress"},
        {200, "", "Date: x\nReverse-Proxy-Server-Powerby: another",
         "Date: x\nReverse-Proxy-Server-Powerby: another\nX-Request-Id: "
         "id\nReverse-Proxy-Server-Powerby: OpenSandbox-ingress"},
        {103, "", "Link: x", "Link: x"},
        {100, "", "", ""},
        {101, "websocket", "Set-Cookie: a", "Set-Cookie: a\nX-Request-Id: id"},
        {200, "connect", "", "X-Request-Id: id"},
        {500, "", "Date: x",
         "Date: x\nX-Request-Id: id\nReverse-Proxy-Server-Powerby: OpenSandbox-ingress"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h = head_of(rows[i].in);
        h.status = rows[i].status;
        h.protocol = str_of(rows[i].protocol);
        h.length = 5;
        struct http_head *out = forward_response(&h, STR("id"), STR("now"), &mem);
        char want[400];
        snprintf(want, sizeof want, "%s", rows[i].out);
        char *colon = strstr(want, "X-REQUEST-ID:\n"); /* an empty value prints a blank */
        const char *got = lines_of(out);
        if (colon)
            assert_non_null(strstr(got, "X-REQUEST-ID: \n"));
        else if (strcmp(got, want) != 0)
            fail_msg("%d: %s", rows[i].status, got);
        assert_int_equal(out->length, 5);
        assert_int_equal(out->status, rows[i].status);
        assert_int_equal(out->nfields, colon ? 3 : out->nfields);
    }
}

static void the_client_is_the_last_address_that_is_not_trusted(void **state)
{
    static const struct {
        const char *trusted, *peer, *lines, *client;
    } rows[] = {
        {"192.0.2.0/24", "192.0.2.1", "X-Forwarded-For: 1.1.1.1, nonsense, 192.0.2.9", "192.0.2.9"},
        {"192.0.2.0/24", "192.0.2.1", "X-Forwarded-For: nonsense", "192.0.2.1"},
        {"192.0.2.0/24", "192.0.2.1", "X-Forwarded-For: 1.1.1.1:80", "192.0.2.1"},
        {"192.0.2.0/24", "192.0.2.1", "X-Forwarded-For: 1.1.1.1,,\t,192.0.2.9,", "1.1.1.1"},
        {"192.0.2.0/24", "192.0.2.1",
         "X-Forwarded-For: 1.1.1.1\nA: b\nx-forwarded-for: 192.0.2.5\nX-Forwarded-For:", "1.1.1.1"},
        {"192.0.2.0/24", "192.0.2.1",
         "X-Forwarded-For: 1.1.1.1\nX-Forwarded-For: bad\nX-Forwarded-For: 192.0.2.5", "192.0.2.5"},
        {"192.0.2.0/24", "192.0.2.1", "X-Forwarded-For: ::ffff:9.8.7.6", "9.8.7.6"},
        {"192.0.2.0/24", "10.0.0.1", "X-Forwarded-For: 1.1.1.1", "10.0.0.1"},
        {"", "10.0.0.1", "X-Forwarded-For: 1.1.1.1", "10.0.0.1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct forward_rules rules = trusting(rows[i].trusted);
        struct http_head h = head_of(rows[i].lines);
        struct ip peer, want;
        assert_true(ip_parse(str_of(rows[i].peer), &peer) &&
                    ip_parse(str_of(rows[i].client), &want));
        struct ip client = forward_client_ip(&rules.trusted, &peer, &h);
        if (!ip_eq(&client, &want))
            fail_msg("%s", rows[i].lines);
    }
}

static void a_request_id_is_taken_over_only_in_its_own_form(void **state)
{
    (void)state;
    static const uint8_t noise[16] = {0xde, 0xad, [15] = 0x0f};
    static const char made[] = "dead000000000000000000000000000f";
    char longest[129];
    memset(longest, 'x', sizeof longest);
    struct field field = {STR("x-request-id"), {longest, 128}};
    struct http_head h = {.fields = &field, .nfields = 1};
    assert_true(str_eq(request_id(&h, noise, &mem), field.value));
    field.value.n = 129;
    assert_true(str_eq(request_id(&h, noise, &mem), STR(made)));
    static const char *const bad[] = {"", "a b", "a/b", "a,b", "\xc3\xa9", "a\x7f", "a:b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        field.value = str_of(bad[i]);
        assert_true(str_eq(request_id(&h, noise, &mem), STR(made)));
    }
    field.value = STR("A-z_0.9");
    assert_true(str_eq(request_id(&h, noise, &mem), field.value));
    h.nfields = 0;
    assert_true(str_eq(request_id(&h, noise, &mem), STR(made)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_go_on_with_our_fields_and_without_what_is_ours_or_hop_by_hop),
        cmocka_unit_test(typed_members_stay_but_path_and_authority),
        cmocka_unit_test(a_request_without_host_gets_none_forwarded),
        cmocka_unit_test(prefixes_are_joined_with_one_slash),
        cmocka_unit_test(switches_let_the_api_key_and_the_credential_pass),
        cmocka_unit_test(a_base_url_comes_before_path_and_query_byte_for_byte),
        cmocka_unit_test(what_the_provider_sets_takes_the_place_of_what_the_client_sent),
        cmocka_unit_test(a_url_without_authority_leaves_host_to_the_target),
        cmocka_unit_test(many_lines_of_a_proxy_cost_no_more_than_their_bytes),
        cmocka_unit_test(answers_get_what_is_missing_once),
        cmocka_unit_test(the_client_is_the_last_address_that_is_not_trusted),
        cmocka_unit_test(a_request_id_is_taken_over_only_in_its_own_form),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
