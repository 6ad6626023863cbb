/* egress_settings_test.c — the sidecar's rows, what they come to, and what is said about them
 * (contract egress-policy 1); the vectors of env.jsonl hold the rest. */
#include "egress/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "conf/sources.h"

struct fixture {
    struct arena a;
    struct egress_settings s;
    struct str error;
};

static int setup(void **state)
{
    static struct fixture f;
    arena_init(&f.a, NULL, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_done(&f->a);
    return 0;
}

/* One variable of ours set (NULL: none). */
static bool load(struct fixture *f, const char *name, const char *value)
{
    char full[128];
    struct conf_input in = {0, NULL, egress_getenv, true};
    enum conf_action action;
    snprintf(full, sizeof full, EGRESS_VARIABLE "%s", name ? name : "");
    if (name)
        setenv(full, value, 1);
    f->s = (struct egress_settings){0};
    bool good = conf_load(&egress_schema, &in, &f->a, &f->s, &action, &f->error) &&
                egress_settings_check(&f->s, &f->a, &f->error);
    if (name)
        unsetenv(full);
    return good;
}

static bool has(struct str text, const char *piece)
{
    return text.n && memmem(text.p, text.n, piece, strlen(piece));
}

static void every_default_is_right_alone(void **state)
{
    struct fixture *f = *state;
    assert_true(load(f, NULL, NULL));
    assert_int_equal(f->s.mode, EGRESS_DNS);
    assert_int_equal(f->s.core.workers, 1);
    assert_int_equal(f->s.core.drain_timeout, INT64_C(8000000000));
    assert_int_equal(f->s.dns_timeout, INT64_C(5000000000));
    assert_int_equal(f->s.max_body_bytes, 1 << 20);
    assert_int_equal(addr_port(&f->s.http.sa), 18080);
    assert_int_equal(f->s.proxy.sa.sa_family, 0);
    assert_int_equal(f->s.admin.sa.sa_family, 0);
    assert_int_equal(egress_settings_missing(&f->s, &f->a).n, 0);
    assert_int_equal(egress_settings_warnings(&f->s, &f->a).n, 0);
}

static void wrong_values_are_named(void **state)
{
    static const char *const rows[][2] = {
        {"MAX_RULES", "0x10"},
        {"MAX_RULES", "+1"},
        {"DNS_UPSTREAM", "dns.test"},
        {"DNS_UPSTREAM", "8.8.8.8:0"},
        {"DNS_UPSTREAM", " , "},
        {"DNS_UPSTREAM", "8.8.8.8:65536"},
        {"DNS_UPSTREAM", "[::1"},
        {"DNS_UPSTREAM", ":53"},
        {"NAMESERVER_EXEMPT", "10.0.0.0/8"},
        {"DNS_UPSTREAM_PROBE", "a..b"},
        {"HTTP_ADDR", "127.0.0.1:0"},
        {"HTTP_ADDR", "host.test:80"},
        {"ADMIN_ADDR", "1"},
        {"DRAIN_TIMEOUT", "8s"},
        {"PROXY_CLIENTS", "x"},
        {"DENY_WEBHOOK", "http://"},
        {"DENY_WEBHOOK", "http://a:b/"},
        {"DENY_WEBHOOK", "ftp://a/"},
        {"MITMPROXY_SCRIPT", "/x.py"},
        {"PROFILE", "fast-sandbox"},
        {"API_MAX_CONNECTIONS", "0"},
        {"UPSTREAM_PROXY_AUTH", "x"},
        {"MITMPROXY_PORT", "0"},
        {"TOKEN", " "},
        {"TOKEN", "a\nb"},
        {"MAX_BODY_BYTES", "1"},
        {"LOG_LEVEL", "all"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (load(f, rows[i][0], rows[i][1]) || !has(f->error, rows[i][0]))
            fail_msg("%s=%s: %.*s", rows[i][0], rows[i][1], STR_ARG(f->error));
}

static void upstreams_come_in_all_forms(void **state)
{
    struct fixture *f = *state;
    char text[ADDR_TEXT_BYTES];
    static const char *const expected[] = {"8.8.8.8:53", "1.1.1.1:5353", "[2001:db8::1]:53",
                                           "[2001:db8::2]:853", "[2001:db8::3]:53"};
    assert_true(load(f, "DNS_UPSTREAM",
                     " 8.8.8.8 , 1.1.1.1:5353,,2001:db8::1,[2001:db8::2]:853,[2001:db8::3],"
                     "8.8.8.8:53"));
    assert_int_equal(f->s.nupstreams, 5);
    for (size_t i = 0; i < 5; i++) {
        size_t n = addr_text(&f->s.upstreams[i].sa, text);
        assert_true(str_eq((struct str){text, n}, str_of(expected[i])));
    }
}

static void listeners_may_be_named_localhost(void **state)
{
    struct fixture *f = *state;
    char text[ADDR_TEXT_BYTES];
    assert_true(load(f, "HTTP_ADDR", "localhost:8081"));
    size_t n = addr_text(&f->s.http.sa, text);
    assert_true(str_eq((struct str){text, n}, STR("127.0.0.1:8081")));
    assert_false(load(f, "HTTP_ADDR", "localhost:"));
    assert_false(load(f, "HTTP_ADDR", "localhost:123456"));
}

static void values_above_a_cap_are_capped_and_told(void **state)
{
    struct fixture *f = *state;
    assert_true(load(f, "DNS_UPSTREAM_TIMEOUT", "121"));
    assert_int_equal(f->s.dns_timeout, INT64_C(120000000000));
    assert_true(has(egress_settings_warnings(&f->s, &f->a), "DNS_UPSTREAM_TIMEOUT"));
    assert_true(load(f, "DNS_UPSTREAM_PROBE_INTERVAL_SEC", "4000"));
    assert_int_equal(f->s.probe_interval, INT64_C(3600000000000));
}

static void what_looks_wrong_is_told(void **state)
{
    static const char *const rows[][2] = {
        {"DOH_BLOCKLIST", "9.9.9.9"},     {"BLOCK_DOH_443", "on"},
        {"REDIRECT_BACKEND", "IPtables"}, {"NAMESERVER_EXEMPT", "10.0.0.1, 10.0.0.1"},
        {"PROXY_CLIENTS", "10.0.0.0/8"},  {"MITMPROXY_SHADOW", "yes"}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(load(f, rows[i][0], rows[i][1]));
        assert_true(has(egress_settings_warnings(&f->s, &f->a), rows[i][0]));
    }
    static const char *const foreign[] = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
                                          "OTEL_EXPORTER_OTLP_ENDPOINT", "HOST_IP"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        setenv(foreign[i], i < 2 ? "http://collector.test:4318" : "192.0.2.1", 1);
        assert_true(load(f, NULL, NULL));
        assert_true(has(egress_settings_warnings(&f->s, &f->a), foreign[i]));
        setenv("OTEL_SDK_DISABLED", "true", 1);
        assert_true(load(f, NULL, NULL));
        assert_int_equal(egress_settings_warnings(&f->s, &f->a).n, 0);
        unsetenv("OTEL_SDK_DISABLED");
        unsetenv(foreign[i]);
    }
    setenv(EGRESS_VARIABLE "RULEZ", "{}", 1);
    struct str lines = egress_settings_warnings(&f->s, &f->a);
    unsetenv(EGRESS_VARIABLE "RULEZ");
    assert_true(has(lines, EGRESS_VARIABLE "RULEZ"));
}

static void parts_that_are_not_there_are_refused(void **state)
{
    static const char *const rows[][2] = {{"EXPERIMENTAL_REVISION_RUNTIME", "1"},
                                          {"QUARANTINE_ID", "x"}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(load(f, rows[i][0], rows[i][1]));
        assert_true(has(egress_settings_missing(&f->s, &f->a), rows[i][0]));
    }
}

static void secrets_are_never_shown(void **state)
{
    struct fixture *f = *state;
    assert_true(load(f, "TOKEN", "hush-hush"));
    struct str shown = conf_print(&egress_schema, &f->s, &f->a);
    assert_false(has(shown, "hush"));
    assert_true(has(shown, "\"OPENSANDBOX_EGRESS_TOKEN\": \"***\""));
    assert_false(load(f, "TOKEN", "hush "));
    assert_false(has(f->error, "hush"));
    assert_false(load(f, "UPSTREAM_PROXY", "http://me:hush@proxy.test:3128"));
    assert_false(has(f->error, "hush"));
    assert_false(load(f, "DENY_WEBHOOK", "http://me:hush@:x/"));
    assert_false(has(f->error, "hush"));
    assert_false(load(f, "DENY_WEBHOOK", "http://me:hush@a b/"));
    assert_false(has(f->error, "hush"));
    assert_false(load(f, "UPSTREAM_PROXY_AUTH", "hush\r\nX: y"));
    assert_false(has(f->error, "hush"));
    assert_true(has(f->error, "control characters"));
}

static void a_parent_is_taken_apart(void **state)
{
    struct fixture *f = *state;
    setenv(EGRESS_VARIABLE "PROXY_ADDR", ":3128", 1);
    assert_true(load(f, "UPSTREAM_PROXY", "HTTPS://Proxy.test/"));
    assert_true(f->s.parent.tls);
    assert_int_equal(f->s.parent.port, 443);
    assert_true(str_eq(f->s.parent.host, STR("Proxy.test")));
    assert_true(load(f, "UPSTREAM_PROXY", "http://[2001:db8::1]:3128"));
    assert_true(str_eq(f->s.parent.host, STR("2001:db8::1")));
    assert_int_equal(f->s.parent.port, 3128);
    assert_false(load(f, "UPSTREAM_PROXY", "http://*.proxy.test"));
    unsetenv(EGRESS_VARIABLE "PROXY_ADDR");
}

static void every_row_is_a_variable_with_a_help(void **state)
{
    struct fixture *f = *state;
    struct str help = schema_help(&egress_schema, &f->a);
    for (size_t i = 0; i < egress_schema.nrows; i++) {
        const struct setting *row = &egress_schema.rows[i];
        assert_string_equal(row->name, row->env);
        assert_true(row->flags & SETTING_VARIABLE);
        assert_true(*row->help);
        assert_true(has(help, row->name));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(row->name, egress_schema.rows[k].name);
    }
}

static void the_reference_lists_every_row_with_its_default_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct str text, line;
    size_t listed = 0;
    assert_true(conf_read_file(STR(SOURCE_DIR "/docs/sidecar-settings.md"), 1 << 20, &f->a, &text,
                               &f->error));
    for (size_t i = 0; i < egress_schema.nrows; i++) {
        const struct setting *row = &egress_schema.rows[i];
        const char *tick = *row->def ? "`" : "";
        struct str want = arena_printf(&f->a, "\n| `%s` | %s%s%s | ", row->name, tick,
                                       *row->def ? row->def : "empty", tick);
        struct str heading = arena_printf(&f->a, "\n## %s\n", row->group);
        if (!memmem(text.p, text.n, want.p, want.n) ||
            !memmem(text.p, text.n, heading.p, heading.n))
            fail_msg("docs/sidecar-settings.md has no line%.*s", STR_ARG(want));
    }
    while (str_next(&text, '\n', &line))
        listed += str_starts(line, STR("| `"));
    assert_int_equal(listed, egress_schema.nrows);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_default_is_right_alone),
        T(wrong_values_are_named),
        T(upstreams_come_in_all_forms),
        T(listeners_may_be_named_localhost),
        T(values_above_a_cap_are_capped_and_told),
        T(what_looks_wrong_is_told),
        T(parts_that_are_not_there_are_refused),
        T(secrets_are_never_shown),
        T(a_parent_is_taken_apart),
        T(every_row_is_a_variable_with_a_help),
        T(the_reference_lists_every_row_with_its_default_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
