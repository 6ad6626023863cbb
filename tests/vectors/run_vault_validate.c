/* run_vault_validate.c — vault_validate: what a create on an empty sidecar is taken for, or why it
 * is refused. */
#include "egress/intercept/passlist.h"
#include "egress/state/cover.h"
#include "egress/vault/vault.h"
#include "vectors/run_egress.h"

static struct policy *policy_of(struct row *r)
{
    static const struct str usual =
        STR("{\"egress\":[{\"action\":\"allow\",\"target\":\"api.example.com\"},"
            "{\"action\":\"allow\",\"target\":\"code.example.com\"},"
            "{\"action\":\"allow\",\"target\":\"*.apps.example.com\"}]}");
    struct document user;
    struct json_fault fault;
    if (row_member(r->v, "policy"))
        return row_policy(r);
    if (!document_parse(usual, &user, &fault)) {
        row_fail(r, "%s", fault.text);
        return NULL;
    }
    struct policy *p = policy_new(NULL, NULL, &user);
    document_done(&user);
    return p;
}

static struct passlist *passlist_of(struct row *r)
{
    const struct json *list = row_member(row_member(r->v, "facts"), "ignore_hosts");
    struct str *at = arena_get(r->a, ((list ? json_count(list) : 0) + 1) * sizeof *at);
    unsigned n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        at[n++] = json_string(v);
    return passlist_new(at, n, NULL, NULL);
}

static bool passed(void *user, struct str host)
{
    return passlist_covers(user, host);
}

static struct str body_of(struct row *r)
{
    struct json_out o;
    const struct json *body = row_member(r->v, "body");
    if (!body)
        return row_text(r->v, "body_text");
    json_out_init(&o);
    row_put(&o, r, body);
    struct str text = arena_str(r->a, (struct str){o.p, o.n});
    json_out_done(&o);
    return text;
}

static struct vault *create(struct row *r, struct cover *c, struct vault_fault *ret)
{
    struct vault_rules rules = {.scoped = row_bool(row_member(r->v, "facts"), "scoped_match"),
                                .body_min = 6};
    struct vault_cover cover = cover_of(c);
    struct vault_create *asked = vault_create_read(body_of(r), &rules, r->a, ret);
    struct vault *v = asked ? vault_new(asked, &rules, &cover, r->a, ret) : NULL;
    vault_create_free(asked);
    return v;
}

static bool expect_refusal(struct row *r, const struct vault_fault *fault)
{
    const struct json *expect = row_member(r->v, "expect"),
                      *excludes = row_member(expect, "excludes");
    if (!row_same_int(r, "status", fault->status, row_int(r, expect, "status", 400)))
        return false;
    for (const struct json *v = excludes ? json_first(excludes) : NULL; v; v = json_next(v))
        if (row_has(fault->text, json_string(v)))
            return row_fail(r, "the text holds what it must not");
    return row_has(fault->text, row_text(expect, "error_contains")) ||
           row_same(r, "error", fault->text, row_text(expect, "error_contains"));
}

/* As GET shows it, but for its revision. */
static bool same_binding(struct row *r, const struct json_doc *doc, const struct json *got,
                         const struct json *expected)
{
    if (!row_same_int(r, "members", (int64_t)json_count(got), (int64_t)json_count(expected) + 1))
        return false;
    for (const struct json *v = json_first(expected); v; v = json_next(v)) {
        const struct json *member = json_member(got, json_name(v));
        if (!member || !same_json(doc, member, r->doc, v))
            return row_fail(r, "%.*s differs", STR_ARG(json_name(v)));
    }
    return true;
}

static bool same_list(struct row *r, const struct json_doc *doc, const char *name)
{
    const struct json *expected = row_member(row_member(r->v, "expect"), name),
                      *got = row_member(json_root(doc), name);
    if (!expected)
        return true;
    if (!row_same_int(r, name, (int64_t)json_count(got), (int64_t)json_count(expected)))
        return false;
    const struct json *g = json_first(got);
    for (const struct json *e = json_first(expected); e; e = json_next(e), g = json_next(g))
        if (json_type(e) == JSON_STRING ? !row_same(r, name, row_text(g, "name"), json_string(e))
                                        : !same_binding(r, doc, g, e))
            return false;
    return true;
}

static bool expect_state(struct row *r, const struct vault *v)
{
    struct json_out o;
    struct json_fault fault;
    json_out_init(&o);
    vault_put_state(v, &o);
    struct json_doc *doc = json_parse((struct str){o.p, o.n}, 0, 16, &fault);
    bool good = doc ? same_list(r, doc, "credentials") && same_list(r, doc, "bindings")
                    : row_fail(r, "the state is no JSON: %s", fault.text);
    json_free(doc);
    json_out_done(&o);
    return good;
}

bool run_vault_validate(struct row *r)
{
    struct policy *p = policy_of(r);
    if (!p)
        return false;
    struct passlist *list = passlist_of(r);
    struct cover c = {p, passed, list};
    struct vault_fault fault = {0};
    struct vault *v = create(r, &c, &fault);
    bool ok = row_bool(row_member(r->v, "expect"), "ok"), good;
    if (v && ok)
        good = expect_state(r, v);
    else if (!v && !ok)
        good = expect_refusal(r, &fault);
    else
        good = row_fail(r, "%s: %.*s", v ? "taken" : "refused", STR_ARG(fault.text));
    vault_unref(v);
    passlist_free(list);
    policy_free(p);
    return good;
}
