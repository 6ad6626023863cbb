/* kube_objects_test.c — which sandbox a Kubernetes object is, beyond the rows of the vectors:
 * broken ones keep that sandbox, and nobody else, from being served, and never open what was
 * closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ingress/kube/objects.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

#define READY "\"status\":{\"ready\":1,\"replicas\":1}"
#define ADDRESS "\"sandbox.opensandbox.io/endpoints\":\"[\\\"10.0.0.1\\\"]\""

struct read {
    struct arena a;
    char *copy; /* of exactly the length, so that a read past the end is seen */
    struct kube_object o;
    const char *error;
};

static bool read_as(struct read *r, const char *text, enum kube_kind kind)
{
    size_t n = strlen(text);
    arena_init(&r->a, NULL, 0);
    r->copy = malloc(n ? n : 1);
    memcpy(r->copy, text, n);
    r->error = NULL;
    return kube_object_read((struct str){r->copy, n}, kind, &r->a, &r->o, &r->error);
}

static void done(struct read *r)
{
    arena_done(&r->a);
    free(r->copy);
}

static void assert_text(const char *of, struct str s, const char *z)
{
    if (!str_eq(s, str_of(z)))
        fail_msg("%s: \"%.*s\" is not \"%s\"", of, STR_ARG(s), z);
}

static void an_object_says_who_it_is_and_where(void **state)
{
    (void)state;
    struct read r;
    assert_true(read_as(&r,
                        "{\"metadata\":{\"name\":\"sb1\",\"namespace\":\"ns\",\"uid\":\"u-1\","
                        "\"resourceVersion\":\"77\",\"annotations\":{" ADDRESS
                        ",\"opensandbox.io/secure-access-token\":\" \\u00a0t\\u0061 \"}}," READY
                        "}",
                        KUBE_BATCHSANDBOX));
    assert_text("name", r.o.name, "sb1");
    assert_text("ns", r.o.ns, "ns");
    assert_text("uid", r.o.uid, "u-1");
    assert_text("version", r.o.version, "77");
    assert_text("id", r.o.draft.id, "sb1");
    assert_text("token", r.o.draft.token, "ta");
    assert_int_equal(r.o.draft.state, SANDBOX_RUNNING);
    assert_true(r.o.draft.until_unix_s == INT64_MAX);
    assert_ptr_equal(r.o.draft.ends, &r.o.end);
    struct sandbox *s = sandbox_new(&r.o.draft);
    done(&r);
    assert_text("host", sandbox_endpoint(s, 80)->host, "10.0.0.1");
    assert_text("key", s->key, "sb1");
    sandbox_unref(s);
}

static void what_cannot_be_named_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "1",
        "null",
        "[]",
        "{}",
        "{\"metadata\":{}}",
        "{\"metadata\":null}",
        "{\"metadata\":[]}",
        "{\"metadata\":{\"name\":\"\"}}",
        "{\"metadata\":{\"name\":null}}",
        "{\"metadata\":{\"name\":1}}",
        "{\"metadata\":{\"name\":[\"sb\"]}}",
        "{\"metadata\":{\"name\":\"a\\u0000b\"}}",
        "{\"metadata\":{\"name\":\"\xff\"}}",
        "{\"metadata\":{\"name\":\"a\",\"name\":\"b\"}}",
        "{\"metadata\":{\"name\":\"a\",\"\\u006eame\":\"b\"}}",
        "{\"metadata\":{\"name\":\"a\"},\"metadata\":{\"name\":\"b\"}}",
        "{\"metadata\":{\"name\":\"a\",\"namespace\":\"x\",\"namespace\":\"y\"}}",
        "{\"metadata\":{\"name\":\"a\",\"namespace\":1}}",
        "{\"metadata\":{\"name\":\"a\",\"uid\":{}}}",
        "{\"metadata\":{\"name\":\"a\",\"resourceVersion\":7}}",
        "{\"metadata\":{\"name\":\"a\"",
        "{\"metadata\":{\"name\":\"a\"}} x",
        "{\"metadata\":{\"name\":\"a\",}}",
        "{\"metadata\":{\"name\" \"a\"}}",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct read r;
        if (read_as(&r, texts[i], KUBE_BATCHSANDBOX))
            fail_msg("read: %s", texts[i]);
        assert_non_null(r.error);
        done(&r);
    }
}

static void a_name_has_253_bytes_at_most(void **state)
{
    (void)state;
    for (int n = 253; n <= 254; n++) {
        char text[512], name[300];
        struct read r;
        memset(name, 'n', sizeof name);
        snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%.*s\"}}", n, name);
        assert_int_equal(read_as(&r, text, KUBE_BATCHSANDBOX), n == 253);
        done(&r);
    }
}

struct row {
    const char *text, *reason; /* NULL: it runs */
    const char *host, *token;
};

static void check(const struct row *rows, size_t n, enum kube_kind kind)
{
    for (size_t i = 0; i < n; i++) {
        struct read r;
        if (!read_as(&r, rows[i].text, kind))
            fail_msg("%s: %s", rows[i].text, r.error);
        bool runs = r.o.draft.state == SANDBOX_RUNNING;
        if (runs != !rows[i].reason)
            fail_msg("%s: %s, %.*s", rows[i].text, runs ? "runs" : "does not run",
                     STR_ARG(r.o.draft.reason));
        assert_int_equal(r.o.draft.nends, runs ? 1 : 0);
        assert_int_equal(r.o.draft.fault, 0);
        assert_text(rows[i].text, r.o.draft.reason, rows[i].reason ? rows[i].reason : "");
        if (runs)
            assert_text(rows[i].text, r.o.end.host, rows[i].host);
        if (rows[i].token)
            assert_text(rows[i].text, r.o.draft.token, rows[i].token);
        done(&r);
    }
}

#define BATCH(annotations, status) "{\"metadata\":{\"name\":\"sb\"," annotations "}," status "}"
#define WITH(more) "\"annotations\":{" more "}"
#define ENDPOINTS(list) WITH("\"sandbox.opensandbox.io/endpoints\":" list)
#define NO_LIST "failed to parse endpoints annotation"
#define NO_IP "endpoints annotation contains no IPs"

static void a_batchsandbox_runs_when_it_is_ready_and_has_an_address(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {BATCH(WITH(ADDRESS), READY), NULL, "10.0.0.1", ""},
        {BATCH(WITH(ADDRESS), "\"status\":{\"ready\":2}"), NULL, "10.0.0.1", NULL},
        {BATCH(WITH(ADDRESS), "\"status\":{}"), "ready: 0/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"status\":null"), "ready: 0/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"status\":[1]"), "ready: 0/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"spec\":{}"), "ready: 0/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"status\":{\"ready\":\"1\",\"replicas\":2}"), "ready: 0/2", NULL,
         NULL},
        {BATCH(WITH(ADDRESS), "\"status\":{\"ready\":1.0}"), "ready: 0/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"status\":{\"ready\":true}"), "ready: 0/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"status\":{\"ready\":-1}"), "ready: -1/0", NULL, NULL},
        {BATCH(WITH(ADDRESS), "\"status\":{\"ready\":1,\"ready\":1}"), "ready: 0/0", NULL, NULL},
        {BATCH(ENDPOINTS("\"[\\\"::1\\\"]\""), READY), NULL, "::1", NULL},
        {BATCH(ENDPOINTS("\"[\\\"fe80::1%eth0\\\",\\\"10.0.0.2\\\"]\""), READY), NULL, "10.0.0.2",
         NULL},
        {BATCH(ENDPOINTS("\"[\\\"host\\\",\\\" 10.0.0.1\\\",\\\"10.0.0.3\\\"]\""), READY), NULL,
         "10.0.0.3", NULL},
        {BATCH(ENDPOINTS("\"[\\\"10.0.\\\\u0030.4\\\"]\""), READY), NULL, "10.0.0.4", NULL},
        {BATCH(ENDPOINTS("\" null\\n\""), READY), NO_IP, NULL, NULL},
        {BATCH(ENDPOINTS("\"[null,null]\""), READY), NO_IP, NULL, NULL},
        {BATCH(ENDPOINTS("\"true\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"0\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"nul\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\" \""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"[\\\"10.0.0.1\\\"] x\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"[\\\"10.0.0.1\\\",]\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"[\\\"10.0.0.1\\\",{}]\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"[\\\"10.0.0.1\\\",true]\""), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("[\"10.0.0.1\"]"), READY), NO_LIST, NULL, NULL},
        {BATCH(ENDPOINTS("\"\""), READY), "missing sandbox.opensandbox.io/endpoints annotation",
         NULL, NULL},
        {BATCH(ENDPOINTS("null"), READY), "missing sandbox.opensandbox.io/endpoints annotation",
         NULL, NULL},
        {BATCH("\"annotations\":null", READY), "BatchSandbox has no annotations", NULL, NULL},
        /* what is not read may be anything */
        {"{\"spec\":{\"a\":1,\"a\":2,\"b\":\"\\u0000\",\"c\":[[[[{}]]]]},\"spec\":1,"
         "\"metadata\":{\"name\":\"sb\",\"labels\":1,\"managedFields\":[{\"x\":1,\"x\":1}],"
         "\"deletionTimestamp\":\"2026-10-01T00:00:00Z\"," WITH(ADDRESS) "}," READY "}",
         NULL, "10.0.0.1", NULL},
    };
    check(rows, COUNT(rows), KUBE_BATCHSANDBOX);
}

#define TOKEN(value) \
    "\"annotations\":{" ADDRESS ",\"opensandbox.io/secure-access-token\":" value "}"

static void a_broken_token_closes_rather_than_opens(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {BATCH(TOKEN("\"t\""), READY), NULL, "10.0.0.1", "t"},
        {BATCH(TOKEN("\"\""), READY), NULL, "10.0.0.1", ""},
        {BATCH(TOKEN("null"), READY), "annotations: the token is no text", NULL, NULL},
        {BATCH(TOKEN("1"), READY), "annotations: the token is no text", NULL, NULL},
        {BATCH(TOKEN("[\"t\"]"), READY), "annotations: the token is no text", NULL, NULL},
        {BATCH(TOKEN("\"a\\u0000\""), READY), "annotations: the token is no text", NULL, NULL},
        {BATCH(TOKEN("\"a\",\"opensandbox.io/secure-access-token\":\"\""), READY),
         "annotations: a doubled member", NULL, NULL},
        {BATCH(TOKEN("\"a\",\"opensandbox.io\\/secure-access-token\":\"\""), READY),
         "annotations: a doubled member", NULL, NULL},
        {BATCH(TOKEN("\"a\"") ",\"annotations\":{" ADDRESS "}", READY),
         "annotations: doubled annotations", NULL, NULL},
        {BATCH("\"annotations\":\"x\"", READY), "annotations: no object", NULL, NULL},
        {BATCH("\"annotations\":[]", READY), "annotations: no object", NULL, NULL},
        {BATCH("\"annotations\":{\"a\" 1}", READY), "annotations: broken JSON", NULL, NULL},
        {BATCH(WITH(ADDRESS), READY "," READY), "doubled status", NULL, NULL},
    };
    check(rows, COUNT(rows), KUBE_BATCHSANDBOX);
}

#define AGENT(status) "{\"metadata\":{\"name\":\"sb\"},\"status\":" status "}"
#define FQDN "\"serviceFQDN\":\"a.b.svc\""
#define IS_READY "{\"type\":\"Ready\",\"status\":\"True\"}"

static void an_agent_sandbox_runs_when_its_first_ready_condition_is_true(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {AGENT("{\"conditions\":[" IS_READY "]," FQDN "}"), NULL, "a.b.svc", ""},
        {AGENT("{\"conditions\":[1,null,{}," IS_READY "]," FQDN "}"), NULL, "a.b.svc", NULL},
        {AGENT("{\"conditions\":[{\"type\":\"ready\",\"status\":\"False\"}," IS_READY "]," FQDN
               "}"),
         NULL, "a.b.svc", NULL},
        {AGENT("{\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\"}," IS_READY "]," FQDN
               "}"),
         "DependenciesNotReady: Ready condition is not True", NULL, NULL},
        {AGENT("{\"conditions\":[{\"type\":\"Ready\"}]," FQDN "}"),
         "DependenciesNotReady: Ready condition is not True", NULL, NULL},
        {AGENT("{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True \"}]," FQDN "}"),
         "DependenciesNotReady: Ready condition is not True", NULL, NULL},
        {AGENT("{\"conditions\":[{\"type\":\"Ready\",\"reason\":7,\"message\":null}]}"),
         "DependenciesNotReady: Ready condition is not True", NULL, NULL},
        {AGENT("{\"conditions\":[{\"type\":\"Ready\",\"reason\":\"R\",\"message\":\"\"}]}"),
         "R: Ready condition is not True", NULL, NULL},
        {AGENT("{\"conditions\":[]," FQDN "}"), "ReadyConditionMissing: ready condition missing",
         NULL, NULL},
        {AGENT("{\"conditions\":[{\"type\":\"Other\",\"status\":\"True\"}]," FQDN "}"),
         "ReadyConditionMissing: ready condition missing", NULL, NULL},
        {AGENT("{\"conditions\":null," FQDN "}"), "NoConditions: no sandbox conditions reported",
         NULL, NULL},
        {AGENT("{\"conditions\":[" IS_READY " 1]," FQDN "}"), "broken status", NULL, NULL},
        {AGENT("{\"conditions\":[{\"type\":\"X\",\"status\":\"True\",\"type\":\"Ready\"}]," FQDN
               "}"),
         "broken status", NULL, NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"conditions\":[]," FQDN "}"), "broken status", NULL,
         NULL},
        {AGENT("[]"), "missing status", NULL, NULL},
        {AGENT("null"), "missing status", NULL, NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":\"10.0.0.9\"}"), NULL, "10.0.0.9",
         NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":\"a.b.svc.\"}"), NULL, "a.b.svc.",
         NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":[\"a\"]}"), "no serviceFQDN", NULL,
         NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":\"a b\"}"),
         "serviceFQDN is no host name", NULL, NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":\"a\\r\\nX: y\"}"),
         "serviceFQDN is no host name", NULL, NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":\"a:80\"}"),
         "serviceFQDN is no host name", NULL, NULL},
        {AGENT("{\"conditions\":[" IS_READY "],\"serviceFQDN\":\"0x7f.1\"}"),
         "serviceFQDN is no host name", NULL, NULL},
    };
    check(rows, COUNT(rows), KUBE_AGENT_SANDBOX);
}

static void a_reason_is_cut_where_a_character_ends(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 3; shift++) {
        char text[2048], message[1001];
        struct read r;
        for (size_t i = 0; i + 2 < sizeof message; i += 2)
            memcpy(message + i, "\xc3\xa4", 2);
        message[sizeof message - 1] = '\0';
        snprintf(text, sizeof text,
                 AGENT("{\"conditions\":[{\"type\":\"Ready\",\"reason\":\"%.*s\","
                       "\"message\":\"%s\"}]}"),
                 (int)shift + 1, "RRR", message);
        assert_true(read_as(&r, text, KUBE_AGENT_SANDBOX));
        assert_in_range(r.o.draft.reason.n, 254, 256);
        assert_int_equal((uint8_t)r.o.draft.reason.p[r.o.draft.reason.n - 1], 0xa4);
        done(&r);
    }
}

static void names_are_folded_as_the_original_folds_them(void **state)
{
    (void)state;
    static const struct {
        const char *id, *name;
    } rows[] = {
        {"", "sandbox-e3b0c442"},
        {"a", "a"},
        {"A_b", "a-b"},
        {"-", "sandbox-3973e022"},
        {"a--b", "a-b"},
        {"a-_-b", "a-b"},
        {"\xe2\x84\xaa", "k"}, /* the sign of Kelvin */
        {"\xc4\xb0x", "ix"},   /* a dotted I */
        {"\xff\xfe", "sandbox-b3d510ef"},
        {"9", "sandbox-9"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena a;
        arena_init(&a, NULL, 0);
        struct str name = agent_dns1035(str_of(rows[i].id), &a);
        if (name.n != strlen(rows[i].name) || memcmp(name.p, rows[i].name, name.n) != 0)
            fail_msg("%s: %.*s", rows[i].id, STR_ARG(name));
        arena_done(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_says_who_it_is_and_where),
        cmocka_unit_test(what_cannot_be_named_is_refused),
        cmocka_unit_test(a_name_has_253_bytes_at_most),
        cmocka_unit_test(a_batchsandbox_runs_when_it_is_ready_and_has_an_address),
        cmocka_unit_test(a_broken_token_closes_rather_than_opens),
        cmocka_unit_test(an_agent_sandbox_runs_when_its_first_ready_condition_is_true),
        cmocka_unit_test(a_reason_is_cut_where_a_character_ends),
        cmocka_unit_test(names_are_folded_as_the_original_folds_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
