/* vault_store_test.c — revisions of a vault: what a write makes of the one before, what is shared
 * and given back, what is told and what is not.  Texts of refusals stand in tests/vectors. */
#include "egress/vault/vault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "base/secret.h"

static const struct vault_rules rules = {.body_min = 6};

/* ---- a policy that lets all hosts through but one */

static struct str cover_fault(void *user, const struct binding *b, struct str host, struct arena *a)
{
    const char *const *denied = user;
    if (!*denied || !str_eq(host, str_of(*denied)))
        return STR("");
    return arena_printf(a, "%.*s: %.*s is denied", STR_ARG(b->name), STR_ARG(host));
}

struct fixture {
    struct arena a;
    const char *denied; /* the host; NULL: none */
    struct vault_cover cover;
    struct vault_fault fault;
};

static int begin(void **state)
{
    struct fixture *f = mem_new(sizeof *f);
    arena_init(&f->a, NULL, 0);
    f->cover = (struct vault_cover){cover_fault, &f->denied};
    *state = f;
    return secret_held() == 0 ? 0 : -1;
}

static int end(void **state)
{
    struct fixture *f = *state;
    arena_done(&f->a);
    mem_free(f);
    return secret_held() == 0 ? 0 : -1; /* everything was given back */
}

static struct vault *try_create(struct fixture *f, const char *body)
{
    f->fault = (struct vault_fault){0};
    struct vault_create *c = vault_create_read(str_of(body), &rules, &f->a, &f->fault);
    struct vault *v = c ? vault_new(c, &rules, &f->cover, &f->a, &f->fault) : NULL;
    vault_create_free(c);
    return v;
}

static struct vault *create(struct fixture *f, const char *body)
{
    struct vault *v = try_create(f, body);
    if (!v)
        fail_msg("%d %.*s", f->fault.status, STR_ARG(f->fault.text));
    return v;
}

static struct vault *try_edit(struct fixture *f, const struct vault *old, const char *body)
{
    f->fault = (struct vault_fault){0};
    struct vault_patch *p = vault_patch_read(str_of(body), &rules, &f->a, &f->fault);
    struct vault *v = p ? vault_edit(old, p, &rules, &f->cover, &f->a, &f->fault) : NULL;
    vault_patch_free(p);
    return v;
}

/* The next revision; the old one is given back. */
static struct vault *edit(struct fixture *f, struct vault *old, const char *body)
{
    struct vault *v = try_edit(f, old, body);
    if (!v)
        fail_msg("%d %.*s", f->fault.status, STR_ARG(f->fault.text));
    vault_unref(old);
    return v;
}

static void same(struct str got, const char *expected)
{
    if (!str_eq(got, str_of(expected)))
        fail_msg("got \"%.*s\", expected \"%s\"", STR_ARG(got), expected);
}

static bool has(struct str text, const char *piece)
{
    struct str p = str_of(piece);
    for (size_t i = 0; i + p.n <= text.n; i++)
        if (memcmp(text.p + i, p.p, p.n) == 0)
            return true;
    return false;
}

static struct str shown(struct fixture *f, const struct vault *v)
{
    struct json_out o;
    json_out_init(&o);
    vault_put_state(v, &o);
    struct str text = arena_str(&f->a, (struct str){o.p, o.n});
    json_out_done(&o);
    return text;
}

#define ONE                                                                       \
    "{\"credentials\":[{\"name\":\"k1\",\"source\":{\"type\":\"inline\","         \
    "\"value\":\"sk-test-not-a-secret-0001\"}}],"                                 \
    "\"bindings\":[{\"name\":\"b1\",\"match\":{\"hosts\":[\"api.example.com\"]}," \
    "\"auth\":{\"type\":\"bearer\",\"credential\":\"k1\"}}]}"

static const struct armed *armed(const struct vault *v, const char *name)
{
    return vault_armed(v, bindings_named(vault_bindings(v), str_of(name)));
}

/* ---- reads */

static void a_state_shows_what_get_shows(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(
        f, "{\"credentials\":[{\"name\":\"k1\",\"source\":{\"type\":\"inline\",\"value\":\"sk-test-"
           "not-a-secret-0001\"}}],\"bindings\":[{\"name\":\"b1\",\"match\":{\"hosts\":[\"API."
           "Example.com.\"],\"methods\":[\"get\"],\"paths\":[\"/v1/*\"],\"ports\":[443]},\"auth\":{"
           "\"type\":\"apiKey\",\"name\":\"X-API-KEY\",\"credential\":\"k1\"}}]}");
    same(shown(f, v),
         "{\"revision\":1,\"credentials\":[{\"name\":\"k1\",\"sourceType\":\"inline\",\"revision\":"
         "1}],\"bindings\":[{\"name\":\"b1\",\"revision\":1,\"match\":{\"schemes\":[\"https\"],"
         "\"hosts\":[\"api.example.com\"],\"methods\":[\"GET\"],\"paths\":[\"/v1/*\"]},\"auth\":{"
         "\"type\":\"apiKey\",\"name\":\"X-Api-Key\"}}]}");
    vault_unref(v);
}

static void one_item_is_shown_by_its_name(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    struct json_out o;
    json_out_init(&o);
    assert_false(vault_put_credential(v, STR("k"), &o));
    assert_false(vault_put_binding(v, STR("k1"), &o));
    assert_int_equal(o.n, 0);
    assert_true(vault_put_credential(v, STR("k1"), &o));
    same((struct str){o.p, o.n}, "{\"name\":\"k1\",\"sourceType\":\"inline\",\"revision\":1}");
    json_out_done(&o);
    assert_true(vault_put_binding(v, STR("b1"), &o));
    assert_true(has((struct str){o.p, o.n}, "\"auth\":{\"type\":\"bearer\"}"));
    json_out_done(&o);
    vault_put_bindings(v, &o);
    assert_true(has((struct str){o.p, o.n}, "{\"revision\":1,\"bindings\":[{\"name\":\"b1\""));
    assert_false(has((struct str){o.p, o.n}, "credentials"));
    json_out_done(&o);
    vault_put_credentials(v, &o);
    assert_false(has((struct str){o.p, o.n}, "bindings"));
    json_out_done(&o);
    vault_unref(v);
}

static void no_vault_is_an_empty_one(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(vault_revision(NULL), 0);
    assert_null(vault_bindings(NULL));
    assert_null(vault_redaction(NULL));
    same(vault_uncovered(NULL, &f->cover, &f->a), "");
    vault_unref(NULL);
    struct vault *v = create(f, "{}");
    same(shown(f, v), "{\"revision\":1,\"credentials\":[],\"bindings\":[]}");
    assert_null(vault_redaction(v));
    vault_unref(v);
}

static void nothing_that_is_shown_holds_a_secret_or_what_leads_to_it(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(
        f, "{\"credentials\":[{\"name\":\"k1\",\"source\":{\"value\":\"VALUE\"}}],\"bindings\":[{"
           "\"name\":\"b1\",\"match\":{\"hosts\":[\"a.x.y\"],\"schemes\":[\"http\"],\"paths\":[\"/"
           "%41\"]},\"auth\":{\"type\":\"customHeaders\",\"headers\":[{\"name\":\"X-HEADER\","
           "\"credential\":\"k1\"}],\"substitutions\":[{\"credential\":\"k1\",\"placeholder\":"
           "\"PLACE\",\"in\":[\"query\"]}]}}]}");
    struct str text = shown(f, v);
    for (unsigned i = 0; vault_warning(v, i, &f->a).p; i++)
        text = arena_cat(&f->a, text, vault_warning(v, i, &f->a));
    assert_false(has(text, "VALUE") || has(text, "PLACE") || has(text, "eader\""));
    assert_false(has(text, "\"credential\""));
    vault_unref(v);
}

/* ---- revisions */

static void a_patch_makes_the_next_revision_beside_the_old_one(void **state)
{
    struct fixture *f = *state;
    struct vault *one = create(f, ONE);
    struct vault *two = try_edit(
        f, one,
        "{\"expectedRevision\":1,\"credentials\":{\"replace\":[{\"name\":\"k1\",\"source\":{"
        "\"value\":\"sk-test-not-a-secret-0002\"}}],\"add\":[{\"name\":\"k0\",\"source\":{"
        "\"value\":\"v\"}}]}}");
    assert_non_null(two);
    assert_int_equal(vault_revision(one), 1);
    assert_int_equal(vault_revision(two), 2);
    same(armed(one, "b1")->headers[0].value, "Bearer sk-test-not-a-secret-0001");
    same(armed(two, "b1")->headers[0].value, "Bearer sk-test-not-a-secret-0002");
    two = edit(f, two, "{}");
    assert_true(has(shown(f, two),
                    "{\"revision\":3,\"credentials\":[{\"name\":\"k0\",\"sourceType\":"
                    "\"inline\",\"revision\":2},{\"name\":\"k1\",\"sourceType\":"
                    "\"inline\",\"revision\":2}]"));
    assert_true(has(shown(f, two), "{\"name\":\"b1\",\"revision\":3,"));
    vault_unref(two);
    same(armed(one, "b1")->headers[0].value, "Bearer sk-test-not-a-secret-0001");
    vault_unref(one);
}

static void a_patch_outlives_its_vault_and_the_other_way_round(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    v = edit(f, v,
             "{\"bindings\":{\"add\":[{\"name\":\"b2\",\"match\":{\"hosts\":[\"b.x.y\"]},"
             "\"auth\":{\"type\":\"basic\",\"credential\":\"k1\"}}]}}");
    v = edit(f, v, "{\"bindings\":{\"delete\":[\"b1\"]}}");
    assert_int_equal(bindings_count(vault_bindings(v)), 1);
    same(armed(v, "b2")->headers[0].value, "Basic sk-test-not-a-secret-0001");
    vault_unref(v);
}

static void values_that_stay_are_shared(void **state)
{
    struct fixture *f = *state;
    struct vault *one = create(f, "{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":"
                                  "\"0123456789012345678901234567890123456789\"}}]}");
    size_t held = secret_held();
    assert_true(held >= 40);
    struct vault *two = try_edit(f, one, "{}");
    assert_int_equal(secret_held(), held);
    vault_unref(one);
    assert_int_equal(secret_held(), held);
    vault_unref(two);
    assert_int_equal(secret_held(), 0);
}

static void what_a_request_points_to_lies_in_the_memory_of_secrets(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    assert_true(secret_covers(armed(v, "b1")->headers[0].value.p));
    vault_unref(v);
}

static void a_refused_write_leaves_nothing(void **state)
{
    static const char *const bodies[] = {
        "{\"credentials\":[{\"name\":\"a\",\"source\":{\"value\":\"v\"}},{\"name\":\"b\","
        "\"source\":"
        "{\"value\":\"v\",\"x\":1}}]}",
        "{\"credentials\":[{\"name\":\"a\",\"source\":{\"value\":\"v\"}},{\"name\":\"a\","
        "\"source\":"
        "{\"value\":\"v\"}}]}",
        "{\"credentials\":[{\"name\":\"\",\"source\":{\"value\":\"v\"}}]}",
        "{\"credentials\":[{\"name\":\"a\",\"source\":{\"value\":\"v\"}}],\"bindings\":[{}]}",
        "{\"credentials\":[{\"name\":\"a\",\"source\":{\"value\":\"v\"}}],\"bindings\":[1]}",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_null(try_create(f, bodies[i]));
        assert_int_equal(f->fault.status, 400);
        assert_true(f->fault.text.n > 0);
        assert_int_equal(secret_held(), 0);
    }
}

static void the_revision_is_told_before_the_content(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    assert_null(try_edit(f, v, "{\"expectedRevision\":-5,\"credentials\":{\"delete\":[\"zz\"]}}"));
    assert_int_equal(f->fault.status, 409);
    same(f->fault.text, "expectedRevision -5 does not match current revision 1");
    assert_null(try_edit(f, v, "{\"credentials\":{\"delete\":[\"expectedRevision\"]}}"));
    assert_int_equal(f->fault.status, 400);
    same(f->fault.text, "credential \"expectedRevision\" does not exist");
    vault_unref(v);
}

static void faults_of_form_are_told_when_the_body_is_read(void **state)
{
    static const struct {
        const char *body;
        bool read; /* its fault waits */
    } rows[] = {
        {"[]", false},
        {"{\"expectedRevision\":1.0}", false},
        {"{\"credentials\":{\"add\":[{\"name\":\" \",\"source\":{\"value\":\"v\"}}]}}", true},
        {"{\"bindings\":{\"add\":[{\"name\":\"b\"}]}}", true},
        {"{\"bindings\":{\"replace\":[{\"name\":\"b\",\"match\":{\"hosts\":[null]}}]}}", false},
        {"{\"credentials\":{\"add\":[{\"name\":\"a\\u0000\"}]}}", false},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct vault_patch *p = vault_patch_read(str_of(rows[i].body), &rules, &f->a, &f->fault);
        if (!p != !rows[i].read)
            fail_msg("%s", rows[i].body);
        if (!p)
            assert_true(
                str_starts(f->fault.text, STR("invalid credential vault mutation request: ")));
        vault_patch_free(p);
    }
}

static void each_list_of_a_patch_has_its_texts(void **state)
{
    static const struct {
        const char *body, *text;
    } rows[] = {
        {"{\"bindings\":{\"replace\":[{\"name\":\"zz\",\"match\":{\"hosts\":[\"a.x.y\"]},\"auth\":{"
         "\"type\":\"passthrough\"}}]}}",
         "binding \"zz\" does not exist"},
        {"{\"credentials\":{\"add\":[{\"name\":\"k1\",\"source\":{\"value\":\"v\"}}]}}",
         "credential \"k1\" already exists"},
        {"{\"credentials\":{\"replace\":[{\"name\":\"k1\",\"source\":{\"value\":\"v\"}},{\"name\":"
         "\" k1\",\"source\":{\"value\":\"v\"}}]}}",
         "credential \"k1\" mentioned by multiple operations"},
        {"{\"bindings\":{\"delete\":[\"b1\",\"\xc2\xa0\"]}}",
         "binding delete name cannot be blank"},
        {"{\"credentials\":{\"delete\":[\"k1\"]}}",
         "binding \"b1\" references unknown credential \"k1\""},
        {"{\"credentials\":{\"replace\":[{\"name\":\"k1\",\"source\":{\"value\":\"a\\u007f\"}}]}}",
         "binding \"b1\": credential \"k1\" cannot be used in a header"},
    };
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_null(try_edit(f, v, rows[i].body));
        same(f->fault.text, rows[i].text);
        assert_int_equal(f->fault.status, 400);
    }
    assert_int_equal(vault_revision(v), 1);
    vault_unref(v);
}

/* ---- the policy */

static void each_host_of_each_binding_must_be_covered(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    same(vault_uncovered(v, &f->cover, &f->a), "");
    f->denied = "api.example.com";
    same(vault_uncovered(v, &f->cover, &f->a), "b1: api.example.com is denied");
    assert_null(try_edit(f, v, "{}")); /* over a binding that it does not touch */
    same(f->fault.text, "b1: api.example.com is denied");
    assert_int_equal(f->fault.status, 400);
    vault_unref(v);
}

static void faults_come_by_name_and_conflicts_last(void **state)
{
    struct fixture *f = *state;
    f->denied = "c.x.y";
    assert_null(try_create(
        f, "{\"bindings\":[{\"name\":\"c\",\"match\":{\"hosts\":[\"c.x.y\"]},\"auth\":{\"type\":"
           "\"passthrough\"}},{\"name\":\"b\",\"match\":{\"hosts\":[\"b.x.y\"]},\"auth\":{\"type\":"
           "\"passthrough\"}},{\"name\":\"a\",\"match\":{\"hosts\":[\"b.x.y\"]},\"auth\":{\"type\":"
           "\"passthrough\"}}]}"));
    same(f->fault.text, "c: c.x.y is denied");
    f->denied = NULL;
    assert_null(try_create(
        f, "{\"bindings\":[{\"name\":\"c\",\"match\":{\"hosts\":[\"c.x.y\"]},\"auth\":{\"type\":"
           "\"bearer\",\"credential\":\"z\"}},{\"name\":\"b\",\"match\":{\"hosts\":[\"b.x.y\"]},"
           "\"auth\":{\"type\":\"bearer\",\"credential\":\"y\"}}]}"));
    same(f->fault.text, "binding \"b\" references unknown credential \"y\"");
}

/* ---- redaction and warnings */

static void what_a_binding_uses_is_redacted_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(
        f,
        "{\"credentials\":[{\"name\":\"used\",\"source\":{\"value\":\"used-value\"}},{\"name\":"
        "\"idle\",\"source\":{\"value\":\"idle-value\"}},{\"name\":\"put\",\"source\":{"
        "\"value\":\"put-value\"}}],\"bindings\":[{\"name\":\"b\",\"match\":{\"hosts\":[\"a.x.y\""
        "]},\"auth\":{\"type\":\"bearer\",\"credential\":\"used\",\"substitutions\":[{"
        "\"credential\":\"put\",\"placeholder\":\"__p__\",\"in\":[\"body\"]}]}}]}");
    struct redaction *r = vault_redaction(v);
    assert_non_null(r);
    same(redact_value(r, STR("x Bearer used-value y put-value z idle-value __p__"), &f->a),
         "x [REDACTED] y [REDACTED] z idle-value [REDACTED]");
    vault_unref(v);
}

static void warnings_name_the_first_and_count_the_rest(void **state)
{
    struct fixture *f = *state;
    struct vault *v = create(f, ONE);
    assert_null(vault_warning(v, 0, &f->a).p);
    vault_unref(v);
    v = create(f,
               "{\"credentials\":[{\"name\":\"s\",\"source\":{\"value\":\"12345\"}},{\"name\":"
               "\"idle\",\"source\":{\"value\":\"1\"}}],\"bindings\":[{\"name\":\"b\",\"match\":{"
               "\"hosts\":[\"a.x.y\"],\"schemes\":[\"http\"]},\"auth\":{\"type\":\"bearer\","
               "\"credential\":\"s\"}},{\"name\":\"c\",\"match\":{\"hosts\":[\"b.x.y\"],"
               "\"schemes\":[\"http\"],\"paths\":[\"/a%20b\"]},\"auth\":{\"type\":\"passthrough\""
               "}}]}");
    struct str first = vault_warning(v, 0, &f->a), second = vault_warning(v, 1, &f->a),
               third = vault_warning(v, 2, &f->a);
    assert_true(str_starts(first, STR("binding \"c\": a path pattern with a percent escape")));
    assert_true(str_starts(second, STR("binding \"b\" and 1 more: scheme http")));
    assert_true(str_starts(third, STR("credential \"s\": a value that short")));
    assert_null(vault_warning(v, 3, &f->a).p);
    vault_unref(v);
}

/* ---- size */

/* Prints what it takes; no test asserts a time. */
static void a_thousand_bindings_are_one_write(void **state)
{
    struct fixture *f = *state;
    struct json_out o;
    struct timespec before, after;
    json_out_init(&o);
    json_put_raw(&o, STR("{\"credentials\":["));
    o.comma = false;
    for (int i = 0; i < 1000; i++, o.comma = false)
        json_put_raw(&o, arena_printf(&f->a,
                                      "%s{\"name\":\"k%d\",\"source\":{\"value\":\"sk-test-%d\"}}",
                                      i ? "," : "", i, i));
    json_put_raw(&o, STR("],\"bindings\":["));
    o.comma = false;
    for (int i = 0; i < 1000; i++, o.comma = false)
        json_put_raw(&o, arena_printf(&f->a,
                                      "%s{\"name\":\"b%d\",\"match\":{\"hosts\":[\"%s%d.x.y\"],"
                                      "\"paths\":[\"/p/%d/*\"]},\"auth\":{\"type\":\"bearer\","
                                      "\"credential\":\"k%d\"}}",
                                      i ? "," : "", i, i % 3 ? "h" : "*.w", i % 50, i, i));
    json_put_raw(&o, STR("]}"));
    struct str body = arena_printf(&f->a, "%.*s", (int)o.n, o.p);
    json_out_done(&o);
    clock_gettime(CLOCK_MONOTONIC, &before);
    struct vault *v = create(f, body.p);
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("1,000 bindings: %.1f ms\n", (double)(after.tv_sec - before.tv_sec) * 1e3 +
                                            (double)(after.tv_nsec - before.tv_nsec) / 1e6);
    assert_int_equal(bindings_count(vault_bindings(v)), 1000);
    same(armed(v, "b77")->headers[0].value, "Bearer sk-test-77");
    vault_unref(v);
}

static void a_write_that_would_come_to_too_much_changes_nothing(void **state)
{
    static const struct {
        struct vault_rules rules;
        const char *patch, *fault;
    } rows[] = {
        {{.max_credentials = 1, .max_bindings = 2},
         "{\"credentials\":{\"add\":[{\"name\":\"l\",\"source\":{\"value\":\"w\"}}]}}",
         "too many credentials: 2, the limit is 1"},
        {{.max_credentials = 2, .max_bindings = 1},
         "{\"bindings\":{\"add\":[{\"name\":\"c\",\"match\":{\"hosts\":[\"c.d\"]},\"auth\":{"
         "\"type\":"
         "\"passthrough\"}}]}}",
         "too many bindings: 2, the limit is 1"},
        {{.max_credentials = 1, .max_bindings = 1},
         "{\"credentials\":{\"replace\":[{\"name\":\"k\",\"source\":{\"value\":\"w\"}}]}}",
         NULL},
    };
    struct fixture *f = *state;
    struct vault *old =
        create(f, "{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":\"v\"}}],"
                  "\"bindings\":[{\"name\":\"b\",\"match\":{\"hosts\":[\"a.b\"]},"
                  "\"auth\":{\"type\":\"bearer\",\"credential\":\"k\"}}]}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct vault_rules *r = &rows[i].rules;
        f->fault = (struct vault_fault){0};
        struct vault_patch *p = vault_patch_read(str_of(rows[i].patch), r, &f->a, &f->fault);
        assert_non_null(p);
        struct vault *v = vault_edit(old, p, r, &f->cover, &f->a, &f->fault);
        vault_patch_free(p);
        assert_int_equal(v == NULL, rows[i].fault != NULL);
        assert_int_equal(f->fault.status, v ? 0 : 400);
        if (!v)
            same(f->fault.text, rows[i].fault);
        vault_unref(v);
    }
    vault_unref(old);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_state_shows_what_get_shows),
        TEST(one_item_is_shown_by_its_name),
        TEST(no_vault_is_an_empty_one),
        TEST(nothing_that_is_shown_holds_a_secret_or_what_leads_to_it),
        TEST(a_patch_makes_the_next_revision_beside_the_old_one),
        TEST(a_patch_outlives_its_vault_and_the_other_way_round),
        TEST(values_that_stay_are_shared),
        TEST(what_a_request_points_to_lies_in_the_memory_of_secrets),
        TEST(a_refused_write_leaves_nothing),
        TEST(the_revision_is_told_before_the_content),
        TEST(faults_of_form_are_told_when_the_body_is_read),
        TEST(each_list_of_a_patch_has_its_texts),
        TEST(each_host_of_each_binding_must_be_covered),
        TEST(faults_come_by_name_and_conflicts_last),
        TEST(what_a_binding_uses_is_redacted_and_nothing_else),
        TEST(warnings_name_the_first_and_count_the_rest),
        TEST(a_thousand_bindings_are_one_write),
        TEST(a_write_that_would_come_to_too_much_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
