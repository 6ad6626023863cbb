/* route_test.c — what the vectors of routes leave open: messages, prefixes, slices, the mask of the
 * log. */
#include "ingress/route.h"

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

static const struct route_rules automatic = {.mode = ROUTE_AUTO},
                                by_header = {.mode = ROUTE_BY_HEADER},
                                by_uri = {.mode = ROUTE_BY_URI};
static const struct route_rules domain = {.mode = ROUTE_AUTO, .base_domain = {"gw.test", 7}};
static const struct route_rules lenient = {.mode = ROUTE_AUTO, .lenient_ports = true};

/* header NULL: none. */
static bool parse(const struct route_rules *rules, const char *header, const char *host,
                  const char *path, struct route *r, struct fault *f)
{
    struct field fields[1] = {{STR("opensandbox-ingress-to"), str_of(header)}};
    struct http_head h = {.method = STR("GET"),
                          .authority = str_of(host),
                          .path = str_of(path),
                          .fields = fields,
                          .nfields = header != NULL};
    return route_parse(rules, &h, &mem, r, f);
}

/* "id port forward [prefix] [signed forward]", or the message of the refusal. */
static struct str outcome(const struct route_rules *rules, const char *header, const char *host,
                          const char *path)
{
    struct route r;
    struct fault f;
    if (!parse(rules, header, host, path, &r, &f))
        return fault_message(&f, &mem);
    struct str text = r.form == FORM_SCOPE ? arena_cat(&mem, STR("scope "), r.token)
                                           : arena_printf(&mem, "%.*s %u", STR_ARG(r.id), r.port);
    text = arena_printf(&mem, "%.*s %.*s", STR_ARG(text), STR_ARG(r.forward));
    if (r.prefix.n)
        text = arena_printf(&mem, "%.*s [%.*s]", STR_ARG(text), STR_ARG(r.prefix));
    if (r.by)
        text = arena_printf(&mem, "%.*s (%.*s %.*s %.*s%s)", STR_ARG(text), STR_ARG(r.by->exp36),
                            STR_ARG(r.by->signature), STR_ARG(r.by->forward),
                            r.by->climbs ? " climbs" : "");
    return text;
}

#define BAD "invalid ingress route: "

static void every_source_gives_its_route_or_its_message(void **state)
{
    static const struct {
        const struct route_rules *rules;
        const char *header, *host, *path, *result;
    } rows[] = {
        /* labels */
        {&automatic, "sb-8080", "gw", "/x?y", "sb 8080 /x?y"},
        {&automatic, "https://http://sb-80.a", "gw", "/", "sb 80 /"},
        {&automatic, "https://https://sb-80.a", "gw", "/", "https://sb 80 /"},
        {&automatic, "https://nothing.x", "gw", "/", BAD "invalid host: https://nothing.x"},
        {&automatic, "sb-", "gw", "/", BAD "invalid port format: invalid port \"\""},
        {&automatic, "sb-80a", "gw", "/", BAD "invalid port format: invalid port \"80a\""},
        {&automatic, "sb-0080", "gw", "/",
         BAD "invalid port format: port must not have leading zeros"},
        {&automatic, "sb-00", "gw", "/",
         BAD "invalid port format: port must not have leading zeros"},
        {&automatic, "sb-08a", "gw", "/", BAD "invalid port format: invalid port \"08a\""},
        {&automatic, "sb-+80", "gw", "/", BAD "invalid port format: invalid port \"+80\""},
        {&automatic, "-a-80", "gw", "/", BAD "invalid host: -a-80"},
        {&automatic, "-a-80-x2qxvk-5528a7c9a", "gw", "/p", "-a 80 /p (x2qxvk 5528a7c9a /p)"},
        {&automatic, "-80-x2qxvk-5528a7c9a", "gw", "/", BAD "invalid host: -80-x2qxvk-***"},
        {&automatic, "80-x2qxvk-5528a7c9a", "gw", "/",
         BAD "invalid port format: invalid port \"***\""},
        {&automatic, "--80", "gw", "/", BAD "invalid host: --80"},
        {&lenient, "sb-+080", "gw", "/", "sb 80 /"},
        {&lenient, "sb-00000000000000000000000000000080", "gw", "/", "sb 80 /"},
        {&lenient, "sb-+0", "gw", "/", BAD "missing sandbox ID or port"},
        {&lenient, "sb--5", "gw", "/", "sb- 5 /"},
        {&lenient, "sb-+", "gw", "/", BAD "invalid port format: invalid port \"+\""},
        {&lenient, "x-+080-x2qxvk-5528a7c9a", "gw", "/",
         BAD "invalid port format: invalid port \"***\""},
        /* Hosts */
        {&automatic, NULL, "sb-80.gw:1234", "/x", "sb 80 /x"},
        {&automatic, NULL, "sb-80:", "/x", BAD "invalid port format: invalid port \"80:\""},
        {&automatic, NULL, "sb-80:x", "/x", BAD "invalid port format: invalid port \"80:x\""},
        {&automatic, NULL, "www.gw:80", "/x", BAD "invalid host: www.gw:80"},
        {&automatic, NULL, "", "/x", "missing header 'Opensandbox-Ingress-To' or 'Host'"},
        {&automatic, "  ", "", "/x", "missing header 'Opensandbox-Ingress-To' or 'Host'"},
        {&automatic, NULL, "f1.a.b", "/sandboxes/sb/port/1/y", "sb 1 /y [/sandboxes/sb/port/1]"},
        {&by_header, NULL, "f1.a.b:80", "/sandboxes/sb/port/1/y",
         "scope f1.a.b /sandboxes/sb/port/1/y"},
        {&by_header, NULL, "sb-0.gw", "/sandboxes/sb/port/1/y", "sb 1 /y [/sandboxes/sb/port/1]"},
        {&by_header, NULL, "x-80-x2qxvk-5528a7c9b", "/sandboxes/sb/port/1/y",
         "x 80 /sandboxes/sb/port/1/y (x2qxvk 5528a7c9b /sandboxes/sb/port/1/y)"},
        {&by_header, NULL, NULL, "/sandboxes/sb/port/0/y",
         BAD "invalid port format: invalid port \"0\""},
        {&domain, NULL, "sb-80.gw.test..", "/x",
         "missing header 'Opensandbox-Ingress-To' or 'Host'"},
        {&domain, NULL, "sb-80.xgw.test", "/x",
         "missing header 'Opensandbox-Ingress-To' or 'Host'"},
        {&domain, NULL, "sb-80.gw.test.evil.test", "/x",
         "missing header 'Opensandbox-Ingress-To' or 'Host'"},
        {&domain, NULL, "[::1]", "/x", "missing header 'Opensandbox-Ingress-To' or 'Host'"},
        {&domain, NULL, "a.sb-80.gw.test", "/x", BAD "invalid host: a.sb-80.gw.test"},
        {&domain, NULL, "sb-0.gw.test", "/x", BAD "missing sandbox ID or port"},
        {&domain, NULL, NULL, "/sandboxes/sb/port/1", "sb 1 / [/sandboxes/sb/port/1]"},
        /* source 3 */
        {&automatic, NULL, "gw", "/sandboxes/a.b_c~d-E/port/1?",
         "a.b_c~d-E 1 /? [/sandboxes/a.b_c~d-E/port/1]"},
        {&automatic, NULL, "gw", "/sandboxes/./port/1", BAD "invalid sandbox id"},
        {&automatic, NULL, "gw", "/sandboxes/f1.x/port/1",
         BAD "route scope: invalid: malformed token"},
        {&automatic, NULL, "gw", "/sandboxes/f1/port/1", "f1 1 / [/sandboxes/f1/port/1]"},
        {&automatic, NULL, "gw", "/sandboxes/x/port/",
         BAD "invalid port format: invalid port \"\""},
        {&automatic, NULL, "gw", "/sandboxes/x/port/080",
         BAD "invalid port format: port must not have leading zeros"},
        {&lenient, NULL, "gw", "/sandboxes/x/port/080",
         BAD "invalid port format: port must not have leading zeros"},
        {&automatic, NULL, "gw", "/sandboxes/x/port/1/x2qxvk/5528a7c9a?q#r",
         "x 1 /x2qxvk/5528a7c9a?q#r [/sandboxes/x/port/1] (x2qxvk 5528a7c9a /?q#r)"},
        {&automatic, NULL, "gw", "/sandboxes/x/port/1/x2qxvk/5528a7c9a/..",
         "x 1 /x2qxvk/5528a7c9a/.. [/sandboxes/x/port/1] (x2qxvk 5528a7c9a /.. climbs)"},
        {&automatic, NULL, "gw", "/sandboxes/x/port/1/x2qxvk/5528a7c%39a",
         "x 1 /x2qxvk/5528a7c%39a [/sandboxes/x/port/1]"},
        {&automatic, NULL, "gw", "/sandboxes/x/port/1/x2qxvk/",
         "x 1 /x2qxvk/ [/sandboxes/x/port/1]"},
        {&automatic, NULL, "gw", "/sandboxes/x/port/1/a%zz", "x 1 /a%zz [/sandboxes/x/port/1]"},
        {&automatic, NULL, "gw", "/sandboxes/x/Port/1", BAD "invalid host: gw"},
        {&automatic, NULL, "gw", "/sandboxes", BAD "invalid host: gw"},
        {&automatic, NULL, "gw", "/sandboxes/x/port?/1", BAD "invalid host: gw"},
        /* source 5 */
        {&by_uri, "hd-1", "ho-2", "/s%62/8%30?x", "sb 80 /?x [/s%62/8%30]"},
        {&by_uri, NULL, "gw", "/sb?/80",
         BAD "invalid URI path format: expected '/<sandbox-id>/<sandbox-port>/<path-to-request>', "
             "got: /sb"},
        {&by_uri, NULL, "gw", "/s%6/80", BAD "invalid sandbox id"},
        {&by_uri, NULL, "gw", "/%2e%2e/80", BAD "invalid sandbox id"},
        {&by_uri, NULL, "gw", "/./80", BAD "invalid sandbox id"},
        {&by_uri, NULL, "gw", "/a%0ab/80", BAD "invalid sandbox id"},
        {&by_uri, NULL, "gw", "/a%7fb/80", BAD "invalid sandbox id"},
        {&by_uri, NULL, "gw", "/%25/80", "% 80 / [/%25/80]"},
        {&by_uri, NULL, "gw", "/%661.x/80", BAD "route scope: invalid: malformed token"},
        {&by_uri, NULL, "gw", "/sb/8%3", BAD "invalid port format: invalid port \"8%3\""},
        {&by_uri, NULL, "gw", "/sb/%30%38",
         BAD "invalid port format: port must not have leading zeros"},
        {&by_uri, NULL, "gw", "/sb/80/%31a2b3c/01234567a/..%2f",
         "sb 80 /%31a2b3c/01234567a/..%2f [/sb/80] (1a2b3c 01234567a /..%2f climbs)"},
        {&by_uri, NULL, "gw", "/sb/80/1a2b3c/0123456%7/x", "sb 80 /1a2b3c/0123456%7/x [/sb/80]"},
        {&by_uri, NULL, "gw", "/f1.tok?x", "scope f1.tok /?x"},
        {&by_uri, NULL, "gw", "/sandboxes/f1.x/port/1",
         BAD "route scope: invalid: malformed token"},
        {&by_uri, NULL, "gw", "*",
         BAD "invalid URI path format: expected '/<sandbox-id>/<sandbox-port>/<path-to-request>', "
             "got: *"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str got = outcome(rows[i].rules, rows[i].header, rows[i].host, rows[i].path);
        if (!str_eq(got, str_of(rows[i].result)))
            fail_msg("%s | %s | %s:\n  got %.*s\n  not %s", rows[i].header ? rows[i].header : "-",
                     rows[i].host ? rows[i].host : "-", rows[i].path, STR_ARG(got), rows[i].result);
    }
}

static void a_connect_has_no_path_in_any_mode(void **state)
{
    (void)state;
    const struct route_rules *all[] = {&automatic, &by_header, &by_uri, &domain};
    for (size_t i = 0; i < 4; i++) {
        struct route r;
        struct fault f;
        assert_false(parse(all[i], "sb-80", "sb-80.gw.test", "", &r, &f));
        assert_int_equal(f.id, FAULT_PATH_MISSING);
    }
}

static void only_the_first_line_of_a_routing_field_counts(void **state)
{
    (void)state;
    struct field fields[] = {
        {STR("OpenSandbox-Ingress-To"), STR(" ")},
        {STR("OpenSandbox-Ingress-To"), STR("no-1")},
        {STR("OPEN-SANDBOX-INGRESS"), STR("old-2")},
        {STR("Open-Sandbox-Ingress"), STR("no-3")},
    };
    struct http_head h = {
        .authority = STR("ho-4"), .path = STR("/"), .fields = fields, .nfields = 4};
    struct route r;
    struct fault f;
    assert_true(route_parse(&automatic, &h, &mem, &r, &f));
    assert_true(str_eq(r.id, STR("old")));
    assert_int_equal(r.source, FROM_HEADER);
}

static void what_is_forwarded_is_a_slice_of_what_came(void **state)
{
    (void)state;
    static const char path[] = "/sandboxes/x/port/1/x2qxvk/5528a7c9a/p?q";
    struct route r;
    struct fault f;
    assert_true(parse(&automatic, NULL, "gw", path, &r, &f));
    assert_ptr_equal(r.forward.p, path + 19);
    assert_ptr_equal(r.by->forward.p, path + 36);
    assert_ptr_equal(r.prefix.p, path);
}

static void the_gateway_answers_exactly_three_targets_itself(void **state)
{
    static const char *const rows[][2] = {
        {"/status.ok", "/status.ok"},
        {"/status.ok?", "/status.ok"},
        {"/status.ok/network-readiness?x", "/status.ok/network-readiness"},
        {"*", "*"},
        {"/status.ok/", ""},
        {"/status.okx", ""},
        {"/status.ok/network-readiness/", ""},
        {"//status.ok", ""},
        {"/", ""},
        {"", ""},
        {"/status", ""},
        {"/status.ok#x", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h = {.path = str_of(rows[i][0])};
        assert_true(str_eq(route_local(&h), str_of(rows[i][1])));
    }
}

static void a_long_value_is_cut_in_messages(void **state)
{
    (void)state;
    char value[600];
    memset(value, 'a', sizeof value);
    memcpy(value + 254, "\xe2\x82\xac", 3); /* a character over the border goes as a whole */
    struct fault f = {.id = FAULT_INVALID_HOST, .value = {value, sizeof value}};
    struct str message = fault_message(&f, &mem);
    assert_int_equal(message.n, sizeof(BAD "invalid host: ") - 1 + 254);
    memset(value + 254, 'b', 3);
    assert_int_equal(fault_message(&f, &mem).n, sizeof(BAD "invalid host: ") - 1 + 256);
    memset(value, 0x80, sizeof value); /* bytes that are no UTF-8 at all */
    assert_in_range(fault_message(&f, &mem).n, sizeof(BAD "invalid host: ") - 1 + 253,
                    sizeof(BAD "invalid host: ") - 1 + 256);
    f.value.n = 256;
    assert_int_equal(fault_message(&f, &mem).n, sizeof(BAD "invalid host: ") - 1 + 256);
}

static void a_value_is_never_a_format(void **state)
{
    (void)state;
    struct fault f = {.id = FAULT_INVALID_HOST, .value = STR("%n%s%v%u")};
    assert_true(str_eq(fault_message(&f, &mem), STR(BAD "invalid host: %n%s%v%u")));
    f = (struct fault){.id = FAULT_PORT_DENIED, .port = 22};
    assert_true(str_eq(fault_message(&f, &mem), STR("port 22 is closed on this gateway")));
}

static void every_fault_has_a_status_a_code_and_a_message(void **state)
{
    (void)state;
    for (unsigned id = 0; id < FAULTS; id++) {
        struct fault f = {.id = (enum fault_id)id, .value = STR("v"), .port = 1};
        int status = fault_status(f.id);
        assert_in_range(status, 400, 599);
        assert_true(fault_code(f.id).n > 0 && fault_message(&f, &mem).n > 0);
        assert_in_range(fault_why(f.id), WHY_OK + 1, WHYS - 1);
        assert_int_equal(fault_retry(f.id), status == 503 || f.id == FAULT_RATE_LIMITED);
    }
    assert_int_equal(fault_by_name(STR("wake_lot_full")), FAULT_WAKE_LOT_FULL);
    assert_int_equal(fault_by_name(STR("nonsense")), FAULTS);
}

static void signatures_and_queries_do_not_reach_the_log(void **state)
{
    static const char *const rows[][2] = {
        {"/a/b?token=x", "/a/b"},
        {"/sandboxes/x/port/1/x2qxvk/5528a7c9a/p?q", "/sandboxes/x/port/1/x2qxvk/***/p"},
        {"/sandboxes/x/port/1/x2qxvk/5528a7c9a", "/sandboxes/x/port/1/x2qxvk/***"},
        {"/sb/80/1a2b3c/0123456%37a/x", "/sb/80/1a2b3c/***/x"},
        {"/sb/80/%31a2b3c/%30%31%32%33%34%35%36%37%61", "/sb/80/%31a2b3c/***"},
        {"/sb/0/x2qxvk/5528a7c9a", "/sb/0/x2qxvk/***"},
        {"/f1.a.b.80.k.mac/x2qxvk/5528a7c9a/5528a7c9a", "/***/x2qxvk/***/***"},
        {"/f1.", "/***"},
        {"/a/f1.x", "/a/f1.x"},
        {"/sandboxes/f1.a.b.80.k.mac/port/80/", "/sandboxes/***/port/80/"},
        {"//f1.a.b.80.k.mac/x", "//***/x"},
        {"/%661.a.b.80.k.mac/x", "/***/x"},
        {"/a/f1.a.b.80.k%2Emac", "/a/***"},
        {"/a/%zzf1.a.b.80.k.mac", "/a/%zzf1.a.b.80.k.mac"},
        {"/x2qxvk//5528a7c9a", "/x2qxvk//5528a7c9a"},
        {"/A/5528a7c9a", "/A/5528a7c9a"},
        {"/%zz/5528a7c9a", "/%zz/5528a7c9a"},
        {"*", "*"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h = {.path = str_of(rows[i][0])};
        struct str got = route_masked_uri(&h, &mem);
        if (!str_eq(got, str_of(rows[i][1])))
            fail_msg("%s: %.*s", rows[i][0], STR_ARG(got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_gives_its_route_or_its_message),
        cmocka_unit_test(a_connect_has_no_path_in_any_mode),
        cmocka_unit_test(only_the_first_line_of_a_routing_field_counts),
        cmocka_unit_test(what_is_forwarded_is_a_slice_of_what_came),
        cmocka_unit_test(the_gateway_answers_exactly_three_targets_itself),
        cmocka_unit_test(a_long_value_is_cut_in_messages),
        cmocka_unit_test(a_value_is_never_a_format),
        cmocka_unit_test(every_fault_has_a_status_a_code_and_a_message),
        cmocka_unit_test(signatures_and_queries_do_not_reach_the_log),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
