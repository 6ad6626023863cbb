/* run_policy_files.c — always_rules and log_skip: the operator's files.  What needs a file to watch
 * and a clock is run against the program. */
#include "policies/domains.h"
#include "policies/rulefile.h"
#include "vectors/run_policy.h"

static bool is_error(struct row *r, const char *error)
{
    if (row_bool(r->v, "ok"))
        return row_fail(r, "refused: %s", error);
    return row_has(str_of(error), row_text(r->v, "error_has")) || row_fail(r, "error: %s", error);
}

static bool same_rules(struct row *r, const struct rules *rules, const struct json *expected)
{
    const struct json *e = expected ? json_first(expected) : NULL;
    for (unsigned i = 0; i < rules->n; i++, e = e ? json_next(e) : NULL) {
        const struct rule *rule = &rules->at[i];
        struct str action = rule->allow ? STR("allow") : STR("deny");
        if (!e)
            return row_fail(r, "more rules than expected");
        bool object = json_type(e) == JSON_OBJECT;
        if (!row_same(r, "target", rule->target.text,
                      object ? row_text(e, "target") : json_string(e)))
            return false;
        if (object && !row_same(r, "action", action, row_text(e, "action")))
            return false;
    }
    return !e || row_fail(r, "fewer rules than expected");
}

static bool parse(struct row *r, enum rulefile file, const char *path, const char *expected)
{
    char error[RULEFILE_ERROR_BYTES];
    const struct rules *rules;
    if (!rulefile_parse(file, path, row_body(r, "text"), &rules, error))
        return is_error(r, error);
    bool good = row_bool(r->v, "ok") ? same_rules(r, rules, row_member(r->v, expected))
                                     : row_fail(r, "taken");
    rules_unref(rules);
    return good;
}

/* A list of targets as a list of rules. */
static const struct rules *rules_of(struct row *r, const struct json *list, bool allow)
{
    struct rules *rules = rules_new();
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (rules_add(rules, allow, json_string(v)) != TARGET_OK)
            row_fail(r, "the row's targets are not to be read");
    return rules;
}

static bool run_same(struct row *r)
{
    const struct json *a = row_member(r->v, "a"), *b = row_member(r->v, "b");
    bool same = true;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "allow" : "deny";
        const struct rules *x = rules_of(r, row_member(a, name), i),
                           *y = rules_of(r, row_member(b, name), i);
        same &= rules_same(x, y);
        rules_unref(x);
        rules_unref(y);
    }
    return row_same_int(r, "same", same, row_bool(r->v, "same"));
}

bool run_always_rules(struct row *r)
{
    if (row_is(r->v, "kind", "reload"))
        return run_always_reload(r);
    if (row_is(r->v, "kind", "same"))
        return run_same(r);
    return parse(r, row_is(r->v, "file", "allow.always") ? RULEFILE_ALLOW : RULEFILE_DENY, "FILE",
                 "rules");
}

bool run_log_skip(struct row *r)
{
    if (!row_is(r->v, "kind", "match"))
        return parse(r, RULEFILE_LOG_SKIP, "log_skip.always", "patterns");
    const struct rules *rules = rules_of(r, row_member(r->v, "patterns"), false);
    struct patterns *names = rulefile_patterns(rules);
    bool match = patterns_first(names, row_text(r->v, "name")) != PATTERNS_NONE;
    patterns_free(names);
    rules_unref(rules);
    return row_same_int(r, "match", match, row_bool(r->v, "match"));
}
