/* settings_test.c — the gateway's rows and the rules between them (contract ingress 1.2, 1.3);
 * docs/settings.md keeps up. */
#include "ingress/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "conf/sources.h"

struct fixture {
    struct arena a;
    struct ingress_settings s;
    struct str error;
    char keys[64], blank[64];
};

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static const char *both_variables(const char *name)
{
    return strcmp(name, "OPENSANDBOX_SECURE_ACCESS_KEYS") == 0          ? "v=AAEC"
           : strcmp(name, "OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY") == 0 ? "hush"
                                                                        : NULL;
}

static const char *bad_key_variable(const char *name)
{
    return strcmp(name, "OPENSANDBOX_SECURE_ACCESS_KEYS") == 0 ? "v=hush!" : NULL;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    arena_init(&f.a, NULL, 0);
    snprintf(f.keys, sizeof f.keys, "/tmp/settings_test.%d.keys", (int)getpid());
    snprintf(f.blank, sizeof f.blank, "/tmp/settings_test.%d.blank", (int)getpid());
    write_file(f.keys, "f=AAEC\n");
    write_file(f.blank, " \n");
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    unlink(f->keys);
    unlink(f->blank);
    arena_done(&f->a);
    return 0;
}

/* Words separated by single blanks; KEYS and BLANK stand for the fixture's files. */
static bool judge_with(struct fixture *f, const char *words, const char *(*variables)(const char *))
{
    enum { WORDS = 12 };
    char *argv[WORDS];
    int argc = 0;
    struct str rest = str_of(words);
    for (struct str word; rest.n && str_next(&rest, ' ', &word);) {
        const char *file = str_iends(word, STR("=KEYS"))    ? f->keys
                           : str_iends(word, STR("=BLANK")) ? f->blank
                                                            : NULL;
        if (file)
            word = arena_cat(&f->a, str_head(word, (size_t)str_chr(word, '=') + 1), str_of(file));
        assert_true(argc < WORDS);
        argv[argc++] = (char *)(uintptr_t)arena_printf(&f->a, "%.*s", STR_ARG(word)).p;
    }
    struct conf_input in = {argc, argv, variables, false};
    enum conf_action action;
    f->s = (struct ingress_settings){0};
    f->error = STR_NONE;
    return conf_load(&ingress_schema, &in, &f->a, &f->s, &action, &f->error) &&
           ingress_settings_check(&f->s, &f->a, &f->error);
}

static bool judge(struct fixture *f, const char *words)
{
    return judge_with(f, words, no_variables);
}

static bool contains(struct str s, const char *z)
{
    return memmem(s.p, s.n, z, strlen(z)) != NULL;
}

static void every_row_has_help_a_group_and_a_good_default(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ingress_schema.nrows; i++) {
        const struct setting *row = &ingress_schema.rows[i];
        if (!row->help || strlen(row->help) < 5 || !row->group || !*row->group)
            fail_msg("%s has no help", row->name);
        assert_ptr_equal(schema_find(&ingress_schema, str_of(row->name)),
                         row); /* so each name stands once */
        struct str error;
        if (!schema_set(row, &f->s, str_of(row->def), &f->a, &error))
            fail_msg("%.*s", STR_ARG(error));
    }
}

static void no_two_rows_share_a_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ingress_schema.nrows; i++)
        for (size_t k = 0; k < i; k++)
            if (ingress_schema.rows[i].offset == ingress_schema.rows[k].offset)
                fail_msg("%s and %s", ingress_schema.rows[i].name, ingress_schema.rows[k].name);
}

static void the_reference_lists_every_row_with_its_default(void **state)
{
    struct fixture *f = *state;
    struct str text, error;
    if (!conf_read_file(STR(SOURCE_DIR "/docs/settings.md"), 1 << 20, &f->a, &text, &error))
        fail_msg("%.*s", STR_ARG(error));
    for (size_t i = 0; i < ingress_schema.nrows; i++) {
        const struct setting *row = &ingress_schema.rows[i];
        const char *dashes = row->flags & SETTING_VARIABLE ? "" : "--",
                   *tick = *row->def ? "`" : "";
        struct str line = arena_printf(&f->a, "\n| `%s%s` | %s%s%s | ", dashes, row->name, tick,
                                       *row->def ? row->def : "empty", tick);
        struct str heading = arena_printf(&f->a, "\n## %s\n", row->group);
        if (!memmem(text.p, text.n, line.p, line.n) ||
            !memmem(text.p, text.n, heading.p, heading.n))
            fail_msg("docs/settings.md has no line%.*s", STR_ARG(line));
    }
}

static void the_reference_lists_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct str text, error, line;
    assert_true(conf_read_file(STR(SOURCE_DIR "/docs/settings.md"), 1 << 20, &f->a, &text, &error));
    while (str_next(&text, '\n', &line)) {
        if (!str_starts(line, STR("| `--")))
            continue;
        struct str name = str_skip(line, 5);
        name = str_head(name, (size_t)str_chr(name, '`'));
        if (!schema_find(&ingress_schema, name) && !schema_find(&schema_specials, name))
            fail_msg("docs/settings.md has --%.*s", STR_ARG(name));
    }
}

/* Contract ingress 1.2 and 1.3, whole. */
static void defaults_are_those_of_the_contract(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name, *value;
    } wanted[] = {
        {"log-level", "info"},
        {"port", "28888"},
        {"namespace", "opensandbox"},
        {"provider-type", "batchsandbox"},
        {"mode", "auto"},
        {"secure-access-keys", ""},
        {"renew-intent-enabled", "false"},
        {"renew-intent-redis-dsn", "redis://127.0.0.1:6379/0"},
        {"renew-intent-queue-key", "opensandbox:renew:intent"},
        {"renew-intent-queue-max-len", "0"},
        {"renew-intent-min-interval", "60"},
        {"activity-enabled", "false"},
        {"activity-redis-dsn", "redis://127.0.0.1:6379/0"},
        {"activity-min-interval", "5s"},
        {"activity-ttl-seconds", "1800"},
        {"fastpath-endpoint", ""},
        {"fastpath-access-mode", "direct-fastlet-proxy"},
        {"fastpath-wait-timeout-millis", "2000"},
        {"wake-enabled", "false"},
        {"wake-park-budget", "5s"},
        {"wake-park-max", "1024"},
        {"wake-retry-interval", "50ms"},
        {"wake-retry-factor", "1.3"},
        {"wake-retry-jitter", "0.1"},
        {"network-readiness-shadow-window", "1m0s"},
        {"network-readiness-shadow-max-targets", "1024"},
        {"network-readiness-shadow-min-attempts", "20"},
        {"network-readiness-shadow-min-targets", "5"},
        {"network-readiness-shadow-min-signal-targets", "2"},
        {"network-readiness-shadow-failure-ratio", "0.2"},
        {"base-domain", ""},
        {"lenient-ports", "false"},
        {"backend-host", "target"},
        {"trusted-proxies", ""},
        {"allow-target-cidr", ""},
        {"deny-ports", ""},
        {"signature-failure-limit", "100"},
        {"secure-access-keys-file", ""},
        {"admin-addr", "127.0.0.1:28889"},
        {"drain-timeout", "30s"},
        {"config", ""},
        {"workers", "0"},
        {"routes", ""},
        {"lifecycle-url", ""},
        {"lifecycle-api-key-file", ""},
        {"tls-port", "0"},
        {"tls-cert", ""},
        {"tls-key", ""},
        {"tls-cert-dir", ""},
        {"tls-client-ca", ""},
        {"tls-ticket-keys-file", ""},
        {"proxy-protocol", "false"},
        {"backend-protocol", "auto"},
        {"forward-api-key", "false"},
        {"renew-on-traffic", "true"},
        {"max-connections-per-sandbox", "0"},
        {"rate-limit-per-sandbox", "0"},
        {"admin-token-file", ""},
        {"head-timeout", "30s"},
        {"keep-alive-timeout", "1m15s"},
        {"connect-timeout", "30s"},
        {"response-timeout", "1h0m0s"},
        {"decide-timeout", "10s"},
        {"idle-timeout", "1h0m0s"},
        {"tunnel-idle-timeout", "0s"},
        {"move-timeout", "5s"},
        {"half-close-timeout", "1m0s"},
        {"linger-timeout", "5s"},
        {"backend-idle-timeout", "1m30s"},
        {"backend-idle-max", "64"},
        {"max-head-bytes", "1MiB"},
        {"h2-max-streams", "256"},
        {"h2-max-resets", "200"},
        {"h2-max-control-frames", "1000"},
        {"max-connections", "0"},
        {"max-memory", "0"},
        {"OPENSANDBOX_SECURE_ACCESS_KEYS", ""},
        {"OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY", ""},
        {"lifecycle-cache", "2s"},
        {"lifecycle-negative-cache", "1s"},
        {"lifecycle-not-ready-cache", "500ms"},
        {"lifecycle-stale-max", "1m0s"},
        {"lifecycle-max-calls", "32"},
        {"lifecycle-connect-timeout", "1s"},
        {"lifecycle-timeout", "3s"},
    };
    assert_true(judge(f, ""));
    assert_int_equal(ingress_schema.nrows, sizeof wanted / sizeof wanted[0]);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const struct setting *row = schema_find(&ingress_schema, str_of(wanted[i].name));
        if (!row)
            fail_msg("%s is missing", wanted[i].name);
        struct str shown = schema_show(row, &f->s, true, &f->a);
        if (!str_eq(shown, str_of(wanted[i].value)))
            fail_msg("%s: %.*s", wanted[i].name, STR_ARG(shown));
    }
}

static void wrong_settings_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *words, *named;
    } cases[] = {
        {"--port=65536", "port: "},
        {"--workers=-1", "workers: "},
        {"--workers=1025", "workers: "},
        {"--drain-timeout=-1s", "drain-timeout: "},
        {"--head-timeout=0", "head-timeout: "},
        {"--keep-alive-timeout=0s", "keep-alive-timeout: "},
        {"--connect-timeout=-1s", "connect-timeout: "},
        {"--response-timeout=0", "response-timeout: "},
        {"--decide-timeout=0", "decide-timeout: "},
        {"--idle-timeout=0", "idle-timeout: "},
        {"--tunnel-idle-timeout=-1s", "tunnel-idle-timeout: "},
        {"--move-timeout=-1s", "move-timeout: "},
        {"--half-close-timeout=0", "half-close-timeout: "},
        {"--linger-timeout=0", "linger-timeout: "},
        {"--backend-idle-timeout=0", "backend-idle-timeout: "},
        {"--backend-idle-max=-1", "backend-idle-max: "},
        {"--max-head-bytes=1023", "max-head-bytes: "},
        {"--max-head-bytes=65MiB", "max-head-bytes: "},
        {"--max-connections=-1", "max-connections: "},
        {"--max-memory=-1", "max-memory: "},
        {"--tls-port=65536", "tls-port: "},
        {"--backend-host=keep", "backend-host: "},
        {"--backend-protocol=h2", "backend-protocol: "},
        {"--max-connections-per-sandbox=-1", "max-connections-per-sandbox: "},
        {"--rate-limit-per-sandbox=-1", "rate-limit-per-sandbox: "},
        {"--wake-park-max=0", "wake-park-max: "},
        {"--wake-park-budget=0", "wake-park-budget: "},
        {"--wake-retry-interval=0", "wake-retry-interval: "},
        {"--provider-type=Static", "provider-type: "},
        {"--provider-type=static", "routes: "},
        {"--provider-type=batchsandbox --routes=r", "routes: "},
        {"--provider-type=lifecycle --routes=r", "routes: "},
        {"--base-domain=*.gw.test", "base-domain: "},
        {"--base-domain=.gw.test", "base-domain: "},
        {"--base-domain=gw.test:80", "base-domain: "},
        {"--base-domain=.", "base-domain: "},
        {"--trusted-proxies=10.0.0.0/8,x", "trusted-proxies: \"x\""},
        {"--allow-target-cidr=::1/129", "allow-target-cidr: \"::1/129\""},
        {"--deny-ports=22,0", "deny-ports: \"0\""},
        {"--admin-addr=", "admin-addr: "},
        {"--admin-addr=28889", "admin-addr: "},
        {"--admin-addr=localhost:28889", "admin-addr: "},
        {"--admin-addr=::1:28889", "admin-addr: "},
        {"--admin-addr=[127.0.0.1]:1", "admin-addr: "},
        {"--admin-addr=[]:1", "admin-addr: "},
        {"--admin-addr=127.0.0.1:65536", "admin-addr: "},
        {"--admin-addr=127.0.0.1:", "admin-addr: "},
        {"--admin-addr=127.0.0.1:28888", "admin-addr: "},
        {"--port=28889", "admin-addr: "},
        {"--tls-port=28888 --tls-cert-dir=/tmp", "tls-port: "},
        {"--tls-port=28889 --tls-cert-dir=/tmp", "admin-addr: "},
        {"--tls-port=443", "tls-port: needs a certificate"},
        {"--tls-port=443 --tls-cert=KEYS", "tls-key: 0 files for 1"},
        {"--tls-port=443 --tls-key=KEYS --tls-cert-dir=/tmp", "tls-key: 1 files for 0"},
        {"--tls-port=443 --tls-cert=/nowhere/c --tls-key=KEYS", "tls-cert: /nowhere/c: No such"},
        {"--tls-port=443 --tls-cert-dir=/nowhere", "tls-cert-dir: /nowhere: No such"},
        {"--tls-port=443 --tls-cert-dir=/tmp --tls-client-ca=/nowhere/a", "tls-client-ca: "},
        {"--tls-port=443 --tls-cert-dir=/tmp --tls-ticket-keys-file=/nowhere/a",
         "tls-ticket-keys-file: /nowhere/a: No such"},
        {"--tls-port=443 --tls-cert=KEYS, --tls-key=KEYS,", "tls-cert: "},
        {"--proxy-protocol", "proxy-protocol: needs trusted-proxies"},
        {"--proxy-protocol --trusted-proxies=", "proxy-protocol: needs trusted-proxies"},
        {"--h2-max-streams=0", "h2-max-streams: "},
        {"--h2-max-resets=0", "h2-max-resets: "},
        {"--h2-max-control-frames=0", "h2-max-control-frames: "},
        {"--routes=r --admin-token-file=/nowhere/t", "admin-token-file: /nowhere/t: No such"},
        {"--routes=r --admin-token-file=BLANK", "admin-token-file: the file is blank"},
        {"--provider-type=fast-sandbox", "fastpath-endpoint: "},
        {"--fastpath-endpoint=fp:9000", "secure-access-keys: "},
        {"--fastpath-endpoint=fp --secure-access-keys=a=AAEC", "fastpath-endpoint: "},
        {"--fastpath-endpoint=fp:0 --secure-access-keys=a=AAEC", "fastpath-endpoint: "},
        {"--fastpath-endpoint=http://fp:1 --secure-access-keys=a=AAEC", "fastpath-endpoint: "},
        {"--wake-enabled", "wake-enabled: "},
        {"--provider-type=lifecycle --lifecycle-api-key-file=KEYS", "lifecycle-url: "},
        {"--provider-type=lifecycle --lifecycle-url=http://h", "lifecycle-api-key-file: "},
        {"--provider-type=lifecycle --lifecycle-url=h:80 --lifecycle-api-key-file=KEYS",
         "lifecycle-url: "},
        {"--provider-type=lifecycle --lifecycle-url=http:// --lifecycle-api-key-file=KEYS",
         "lifecycle-url: "},
        {"--provider-type=lifecycle --lifecycle-url=http://h:0 --lifecycle-api-key-file=KEYS",
         "lifecycle-url: "},
        {"--provider-type=lifecycle --lifecycle-url=http://u@h --lifecycle-api-key-file=KEYS",
         "lifecycle-url: "},
        {"--provider-type=lifecycle --lifecycle-url=http://h/?q --lifecycle-api-key-file=KEYS",
         "lifecycle-url: "},
        {"--provider-type=lifecycle --lifecycle-url=http://h --lifecycle-api-key-file=BLANK",
         "lifecycle-api-key-file: the file is blank"},
        {"--provider-type=lifecycle --lifecycle-url=http://h --lifecycle-api-key-file=/nowhere/k",
         "lifecycle-api-key-file: /nowhere/k"},
        {"--secure-access-keys-file=/nowhere/k", "secure-access-keys-file: /nowhere/k: No such"},
        {"--renew-intent-enabled --renew-intent-redis-dsn=redis://:hush@h:x",
         "renew-intent-redis-dsn: "},
        {"--activity-enabled --activity-redis-dsn=redis://:hush@h/x", "activity-redis-dsn: "},
        {"--network-readiness-shadow-max-targets=1", "network-readiness-shadow-min-targets: "},
        {"--network-readiness-shadow-min-signal-targets=1025",
         "network-readiness-shadow-min-signal-targets: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (judge(f, cases[i].words))
            fail_msg("%s was taken", cases[i].words);
        struct str error = str_starts(f->error, STR("--")) ? str_skip(f->error, 2) : f->error;
        if (!str_starts(error, str_of(cases[i].named)) || str_chr(error, '\n') >= 0 ||
            contains(error, "hush"))
            fail_msg("%s: %.*s", cases[i].words, STR_ARG(f->error));
    }
}

static void good_settings_are_taken(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[] = {
        "--port=0 --admin-addr=127.0.0.1:0",
        "--admin-addr=:28889",
        "--admin-addr=[::1]:1",
        "--port=1 --admin-addr=[::]:2 --tls-port=3 --tls-cert-dir=/tmp",
        "--base-domain=gw.test.",
        "--base-domain=localhost",
        "--drain-timeout=0",
        "--tls-cert=/nowhere/c --tls-ticket-keys-file=/nowhere/k", /* off: not looked at */
        "--proxy-protocol --trusted-proxies=10.0.0.0/8",
        "--lifecycle-url=nonsense",
        "--activity-redis-dsn=nonsense --renew-intent-redis-dsn=nonsense",
        "--tls-port=443 --tls-cert=KEYS --tls-key=KEYS --tls-client-ca=KEYS "
        "--tls-ticket-keys-file=KEYS",
        "--provider-type=fast-sandbox --fastpath-endpoint=[fd00::1]:9000 "
        "--secure-access-keys=a=AAEC",
        "--fastpath-endpoint=fp:9000 --secure-access-keys-file=KEYS --wake-enabled",
        "--provider-type=lifecycle --lifecycle-url=https://h.test/base "
        "--lifecycle-api-key-file=KEYS",
        "--provider-type=lifecycle --lifecycle-url=HTTP://[::1]:8080 --lifecycle-api-key-file=KEYS",
        "--provider-type=static --routes=/nowhere/r", /* read by its own hook */
        "--secure-access-keys=a=AAEC,a=/w==",
        "--secure-access-keys=a=AAEC --secure-access-keys-file=/nowhere/k", /* the flag is enough */
        "--renew-intent-enabled --renew-intent-redis-dsn=unix:///run/r.sock --activity-enabled",
        "--head-timeout=2562047h",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!judge(f, cases[i]))
            fail_msg("%s: %.*s", cases[i], STR_ARG(f->error));
}

static void routes_alone_make_the_provider_static(void **state)
{
    struct fixture *f = *state;
    assert_true(judge(f, "--routes=r"));
    assert_int_equal(f->s.provider_type, PROVIDER_STATIC);
    assert_false(f->s.provider_given);
    assert_true(judge(f, "--routes=r --provider-type=static") && f->s.provider_given);
    assert_true(judge(f, ""));
    assert_int_equal(f->s.provider_type, PROVIDER_BATCHSANDBOX);
}

static void keys_come_from_flag_then_file_then_variable(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *words, *text;
    } cases[] = {
        {"--secure-access-keys=a=AAEC --secure-access-keys-file=KEYS", "a=AAEC"},
        {"--secure-access-keys-file=KEYS", "f=AAEC\n"},
        {"--secure-access-keys= --secure-access-keys-file=BLANK", "v=AAEC"},
        {"", "v=AAEC"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str text;
        assert_true(judge_with(f, cases[i].words, both_variables));
        assert_true(ingress_settings_keys(&f->s, &f->a, &text, &f->error));
        if (!str_eq(text, str_of(cases[i].text)))
            fail_msg("%s: %.*s", cases[i].words, STR_ARG(text));
    }
}

static void a_bad_key_ring_is_named_by_its_source_and_never_shown(void **state)
{
    struct fixture *f = *state;
    assert_false(judge(f, "--secure-access-keys=a=hush!"));
    assert_true(str_starts(f->error, STR("secure-access-keys: ")) && !contains(f->error, "hush"));
    write_file(f->keys, "a=hush!");
    assert_false(judge(f, "--secure-access-keys-file=KEYS"));
    assert_true(str_starts(f->error, STR("secure-access-keys-file: ")) &&
                !contains(f->error, "hush"));
    assert_false(judge_with(f, "", bad_key_variable));
    assert_true(
        str_starts(f->error, STR("OPENSANDBOX_SECURE_ACCESS_KEYS (secure-access-keys): ")) &&
        !contains(f->error, "hush"));
}

static void the_lifecycle_key_may_come_from_its_variable(void **state)
{
    struct fixture *f = *state;
    assert_true(
        judge_with(f, "--provider-type=lifecycle --lifecycle-url=http://h", both_variables));
    assert_true(str_eq(f->s.lifecycle_api_key, STR("hush")));
    struct str printed = conf_print(&ingress_schema, &f->s, &f->a);
    assert_false(contains(printed, "hush") || contains(printed, "AAEC"));
    assert_true(contains(printed, "\"OPENSANDBOX_SECURE_ACCESS_KEYS\": \"***\""));
}

static void routes_over_rest_need_no_file_and_only_the_static_provider(void **state)
{
    struct fixture *f = *state;
    assert_true(judge(f, "--provider-type=static --admin-token-file=KEYS"));
    assert_true(judge(f, "--routes=r --admin-token-file=KEYS"));
    assert_false(judge(f, "--provider-type=static"));
    assert_true(str_starts(f->error, STR("routes: ")));
    assert_false(judge(f, "--admin-token-file=KEYS"));
    assert_true(str_starts(f->error, STR("admin-token-file: ")));
}

static void odd_settings_are_warned_of(void **state)
{
    struct fixture *f = *state;
    static const char wake[] = "--fastpath-endpoint=f:1 --secure-access-keys=a=AAEC --wake-enabled";
    char words[200];
    snprintf(words, sizeof words, "%s --wake-park-budget=2s", wake);
    assert_true(judge(f, words));
    struct str lines = ingress_settings_warnings(&f->s, &f->a), line;
    assert_true(str_next(&lines, '\n', &line) && str_starts(line, STR("wake-park-budget: ")));
    assert_false(str_next(&lines, '\n', &line));
    snprintf(words, sizeof words, "%s --wake-park-budget=2001ms", wake);
    assert_true(judge(f, words));
    assert_int_equal(ingress_settings_warnings(&f->s, &f->a).n, 0);
    assert_true(judge(f, "--wake-park-budget=1ms"));
    assert_int_equal(ingress_settings_warnings(&f->s, &f->a).n, 0);
}

static void a_listener_is_an_address_or_all_of_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *ip;
        bool any;
        uint16_t port;
    } cases[] = {{"127.0.0.1:28889", "127.0.0.1", false, 28889},
                 {"[::1]:1", "::1", false, 1},
                 {"[fd00::1]:0", "fd00::1", false, 0},
                 {":80", NULL, true, 80},
                 {"0.0.0.0:80", "0.0.0.0", true, 80},
                 {"[::]:80", "::", true, 80}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct own_listener own;
        struct ip ip = {0};
        if (!ingress_listener_parse(str_of(cases[i].text), &own))
            fail_msg("%s was refused", cases[i].text);
        assert_true(!cases[i].ip || ip_parse(str_of(cases[i].ip), &ip));
        assert_true(ip_eq(&own.ip, &ip) && own.any == cases[i].any && own.port == cases[i].port);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(every_row_has_help_a_group_and_a_good_default),
        T(no_two_rows_share_a_place),
        T(the_reference_lists_every_row_with_its_default),
        T(the_reference_lists_nothing_else),
        T(defaults_are_those_of_the_contract),
        T(wrong_settings_are_refused_by_name),
        T(good_settings_are_taken),
        T(routes_alone_make_the_provider_static),
        T(keys_come_from_flag_then_file_then_variable),
        T(a_bad_key_ring_is_named_by_its_source_and_never_shown),
        T(the_lifecycle_key_may_come_from_its_variable),
        T(routes_over_rest_need_no_file_and_only_the_static_provider),
        T(odd_settings_are_warned_of),
        T(a_listener_is_an_address_or_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
