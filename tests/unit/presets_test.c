/* presets_test.c — every file of policies/presets, read by what reads writes to the API, alone and
 * all of them together. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "egress/state/file.h"
#include "egress/vault/vault.h"
#include "policies/policy.h"

enum { MAX_PRESETS = 64, FILE_BYTES = 1 << 16, DEPTH = 16 };

#define FOLDER SOURCE_DIR "/policies/presets/"

struct preset {
    struct str file; /* without .json */
    struct json_doc *doc;
    struct str policy, vault; /* as texts for the API */
};

static struct {
    struct arena a;
    struct preset at[MAX_PRESETS];
    unsigned n;
    struct str readme;
} t;

/* ---- reading */

static void put_value(struct json_out *o, const struct json_doc *d, const struct json *v)
{
    int64_t n;
    enum json_type type = json_type(v);
    if (type == JSON_STRING)
        json_put_str(o, json_string(v));
    else if (type == JSON_NUMBER && json_int(d, v, &n))
        json_put_int(o, n);
    else if (type == JSON_BOOL)
        json_put_bool(o, json_bool(v));
    if (type != JSON_ARRAY && type != JSON_OBJECT)
        return;
    json_open(o, type == JSON_ARRAY ? '[' : '{');
    for (const struct json *c = json_first(v); c; c = json_next(c)) {
        if (type == JSON_OBJECT)
            json_key(o, json_name(c).p);
        put_value(o, d, c);
    }
    json_close(o, type == JSON_ARRAY ? ']' : '}');
}

static struct str text_of(const struct json_doc *d, const char *member)
{
    struct json_out o;
    const struct json *v = json_member(json_root(d), str_of(member));
    assert_non_null(v);
    json_out_init(&o);
    put_value(&o, d, v);
    struct str s = arena_str(&t.a, (struct str){o.p, o.n});
    json_out_done(&o);
    return s;
}

static struct str get(const char *path)
{
    struct file_bytes f = {.exists = false};
    assert_int_equal(file_get(path, FILE_BYTES, &f), 0);
    assert_true(f.exists);
    struct str s = arena_str(&t.a, (struct str){f.p, f.n});
    file_bytes_done(&f);
    return s;
}

static void load(const char *file)
{
    struct json_fault fault;
    assert_true(t.n < MAX_PRESETS);
    struct preset *p = &t.at[t.n++];
    p->file = arena_printf(&t.a, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    p->doc = json_parse(get(arena_printf(&t.a, FOLDER "%s", file).p), FILE_BYTES, DEPTH, &fault);
    if (!p->doc)
        fail_msg("%s:%u:%u: %s", file, fault.line, fault.column, fault.text);
    p->policy = text_of(p->doc, "policy");
    p->vault = text_of(p->doc, "vault");
}

static int setup(void **state)
{
    (void)state;
    arena_init(&t.a, NULL, 0);
    DIR *dir = opendir(FOLDER);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (str_iends(str_of(e->d_name), STR(".json")))
            load(e->d_name);
    closedir(dir);
    t.readme = get(FOLDER "README.md");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < t.n; i++)
        json_free(t.at[i].doc);
    arena_done(&t.a);
    return 0;
}

static struct str member(const struct preset *p, const char *name)
{
    const struct json *v = json_member(json_root(p->doc), str_of(name));
    return v ? json_string(v) : STR_NONE;
}

/* ---- the real validators */

static struct policy *policy_of(struct str text)
{
    struct document user;
    struct json_fault fault;
    if (!document_parse(text, &user, &fault))
        fail_msg("%u: %s", fault.column, fault.text);
    struct policy *p = policy_new(NULL, NULL, &user);
    document_done(&user);
    return p;
}

/* As the API asks (contract egress-vault 7). */
static struct str uncovered(void *user, const struct binding *b, struct str host, struct arena *a)
{
    const struct policy *p = user;
    struct str name =
        str_starts(host, STR("*.")) ? arena_cat(a, STR("probe"), str_skip(host, 1)) : host;
    if (policy_name(p, name).allow)
        return STR("");
    return arena_printf(a, "%.*s: %.*s is not allowed", STR_ARG(b->name), STR_ARG(host));
}

static const struct vault_rules scoped = {.scoped = true, .body_min = 6};

static struct vault *vault_of(struct str text, const struct policy *p, const char *what)
{
    struct vault_fault fault = {0};
    struct vault_cover cover = {uncovered, (void *)(uintptr_t)p};
    struct vault_create *c = vault_create_read(text, &scoped, &t.a, &fault);
    struct vault *v = c ? vault_new(c, &scoped, &cover, &t.a, &fault) : NULL;
    if (!v)
        fail_msg("%s: %.*s", what, STR_ARG(fault.text));
    vault_create_free(c);
    return v;
}

/* ---- each by itself */

static void there_are_presets_and_the_readme_names_each(void **state)
{
    (void)state;
    assert_true(t.n >= 13);
    for (unsigned i = 0; i < t.n; i++) {
        struct str row = arena_printf(&t.a, "\n| `%.*s` |", STR_ARG(t.at[i].file));
        if (!memmem(t.readme.p, t.readme.n, row.p, row.n))
            fail_msg("README.md has no row for %.*s", STR_ARG(t.at[i].file));
        assert_int_equal(json_count(json_root(t.at[i].doc)), 4);
        assert_true(str_eq(member(&t.at[i], "name"), t.at[i].file));
        assert_true(member(&t.at[i], "description").n > 0);
    }
}

static void a_policy_denies_what_it_does_not_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < t.n; i++) {
        struct document d;
        struct json_fault fault;
        assert_true(document_parse(t.at[i].policy, &d, &fault));
        assert_false(d.allow);
        assert_true(d.rules->n > 0 && d.rules->at[d.rules->n - 1].allow);
        assert_int_equal(rules_warnings(d.rules, true, &t.a).n, 0);
        for (unsigned k = 0; k < d.rules->n; k++)
            assert_int_equal(d.rules->at[k].target.kind, TARGET_NAME);
        document_done(&d);
    }
}

static void a_vault_is_accepted_with_its_policy_even_where_scopes_are_required(void **state)
{
    (void)state;
    for (unsigned i = 0; i < t.n; i++) {
        struct policy *p = policy_of(t.at[i].policy);
        struct vault *v = vault_of(t.at[i].vault, p, t.at[i].file.p);
        assert_int_equal(vault_warning(v, 0, &t.a).n, 0);
        vault_unref(v);
        policy_free(p);
    }
}

static void expect_careful(const struct binding *b)
{
    assert_true(b->schemes.n == 1 && binding_has_scheme(b, true));
    for (unsigned k = 0; k < b->nsubstitutions; k++) {
        const struct substitution *s = &b->substitutions[k];
        if (s->in != SURFACE_HEADER)
            fail_msg("%.*s: an origin could be made to store what is put in", STR_ARG(b->name));
        assert_true(s->placeholder.n >= 12 && str_starts(s->placeholder, STR("__")));
    }
    assert_true(b->type != AUTH_PASSTHROUGH || b->nsubstitutions > 0);
    assert_int_not_equal(b->type, AUTH_BASIC); /* nobody has a value that is coded already */
}

static void credentials_go_by_https_into_headers_and_nowhere_else(void **state)
{
    (void)state;
    for (unsigned i = 0; i < t.n; i++) {
        struct policy *p = policy_of(t.at[i].policy);
        struct vault *v = vault_of(t.at[i].vault, p, t.at[i].file.p);
        const struct bindings *all = vault_bindings(v);
        for (unsigned k = 0; k < bindings_count(all); k++)
            expect_careful(bindings_at(all, k));
        vault_unref(v);
        policy_free(p);
    }
}

static void every_value_is_a_placeholder(void **state)
{
    (void)state;
    for (unsigned i = 0; i < t.n; i++) {
        const struct json *vault = json_member(json_root(t.at[i].doc), STR("vault"));
        const struct json *list = json_member(vault, STR("credentials"));
        for (const struct json *c = json_first(list); c; c = json_next(c)) {
            const struct json *source = json_member(c, STR("source"));
            assert_true(str_eq(json_string(json_member(source, STR("value"))), STR("REPLACE_ME")));
        }
    }
}

/* ---- all together, as the README has them joined */

static struct str joined(const char *of, const char *list)
{
    struct json_out o;
    json_out_init(&o);
    json_open(&o, '[');
    for (unsigned i = 0; i < t.n; i++) {
        const struct json *outer = json_member(json_root(t.at[i].doc), str_of(of));
        const struct json *at = json_member(outer, str_of(list));
        for (const struct json *c = at ? json_first(at) : NULL; c; c = json_next(c))
            put_value(&o, t.at[i].doc, c);
    }
    json_close(&o, ']');
    struct str s = arena_str(&t.a, (struct str){o.p, o.n});
    json_out_done(&o);
    return s;
}

static void all_of_them_can_be_used_together(void **state)
{
    (void)state;
    struct str policy = arena_printf(&t.a, "{\"defaultAction\":\"deny\",\"egress\":%.*s}",
                                     STR_ARG(joined("policy", "egress")));
    struct str vault =
        arena_printf(&t.a, "{\"credentials\":%.*s,\"bindings\":%.*s}",
                     STR_ARG(joined("vault", "credentials")), STR_ARG(joined("vault", "bindings")));
    struct policy *p = policy_of(policy);
    struct vault *v = vault_of(vault, p, "all");
    assert_true(bindings_count(vault_bindings(v)) >= 13);
    vault_unref(v);
    policy_free(p);
}

/* ---- what they are for */

struct request {
    const char *preset, *method, *host, *target, *binding; /* NULL: none */
};

static const struct preset *named(const char *name)
{
    for (unsigned i = 0; i < t.n; i++)
        if (str_eq(t.at[i].file, str_of(name)))
            return &t.at[i];
    fail_msg("no preset %s", name);
    return NULL;
}

static void requests_get_the_binding_that_is_meant_for_them(void **state)
{
    (void)state;
    static const struct request rows[] = {
        {"github", "GET", "api.github.com", "/repos/REPLACE_OWNER/x/pulls?state=all", "github-api"},
        {"github", "GET", "api.github.com", "/repos/somebody/x", NULL},
        {"github", "POST", "api.github.com", "/gists", NULL},
        {"github", "GET", "github.com", "/REPLACE_OWNER/x.git/info/refs?service=git-upload-pack",
         "github-git"},
        {"github", "POST", "github.com", "/REPLACE_OWNER/x.git/git-upload-pack", "github-git"},
        {"github", "GET", "github.com", "/somebody/x.git/info/refs", NULL},
        {"github", "GET", "raw.githubusercontent.com", "/REPLACE_OWNER/x/main/y", NULL},
        {"gitlab", "GET", "gitlab.com", "/api/v4/projects/1/issues", "gitlab-api"},
        {"gitlab", "POST", "gitlab.com", "/REPLACE_GROUP/x.git/git-receive-pack", "gitlab-git"},
        {"gitlab", "POST", "gitlab.com", "/api/v4/snippets", NULL},
        {"npm-private", "GET", "r.npmjs.org", "/@REPLACE_SCOPE%2fname", "npm-private"},
        {"npm-private", "GET", "r.npmjs.org", "/@REPLACE_SCOPE/name/-/name-1.0.0.tgz",
         "npm-private"},
        {"npm-private", "PUT", "r.npmjs.org", "/@REPLACE_SCOPE%2fname", NULL},
        {"npm-private", "GET", "r.npmjs.org", "/left-pad", NULL},
        {"docker-hub", "GET", "a.docker.io", "/token?service=x", "docker-hub-login"},
        {"docker-hub", "GET", "a.docker.io", "/v2/", NULL},
        {"huggingface", "HEAD", "huggingface.co", "/REPLACE_OWNER/m/resolve/main/config.json",
         "huggingface"},
        {"openai", "POST", "api.openai.com", "/v1/responses", "openai"},
        {"anthropic", "POST", "api.anthropic.com", "/v1/messages", "anthropic"},
        {"anthropic", "POST", "api.anthropic.com", "/v2/messages", NULL},
        {"gemini", "POST", "generativelanguage.googleapis.com", "/v1beta/models/x:generateContent",
         "gemini"},
        {"bedrock", "POST", "bedrock-runtime.replace-me.amazonaws.com", "/model/a.b-1%3A0/converse",
         "bedrock"},
        {"azure-openai", "POST", "replace-me.openai.azure.com",
         "/openai/deployments/x/chat/completions?api-version=1", "azure-openai"},
        {"azure-openai", "POST", "other.openai.azure.com", "/openai/deployments/x", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct request *r = &rows[i];
        const struct preset *preset = named(r->preset);
        struct policy *p = policy_of(preset->policy);
        struct vault *v = vault_of(preset->vault, p, r->preset);
        const struct binding *b = NULL;
        struct binding_request q = {true, 443, str_of(r->method), str_of(r->host),
                                    str_of(r->target)};
        enum binding_choice choice = bindings_choose(vault_bindings(v), &q, &b);
        if (choice != (r->binding ? BINDING_ONE : BINDING_NONE))
            fail_msg("row %zu: choice %d", i, choice);
        if (r->binding && !str_eq(b->name, str_of(r->binding)))
            fail_msg("row %zu: %.*s", i, STR_ARG(b->name));
        vault_unref(v);
        policy_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_presets_and_the_readme_names_each),
        cmocka_unit_test(a_policy_denies_what_it_does_not_name),
        cmocka_unit_test(a_vault_is_accepted_with_its_policy_even_where_scopes_are_required),
        cmocka_unit_test(credentials_go_by_https_into_headers_and_nowhere_else),
        cmocka_unit_test(every_value_is_a_placeholder),
        cmocka_unit_test(all_of_them_can_be_used_together),
        cmocka_unit_test(requests_get_the_binding_that_is_meant_for_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
