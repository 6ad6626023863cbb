/* edit.c — changes of the user's policy.  Rules are the same when their keys are: a patched rule
 * goes to the front and takes the place of every older rule with its key, since the first match
 * decides. */
#include "policies/edit.h"

#include <stdio.h>

#include "base/map.h"

struct edit {
    const struct document *base;
    unsigned max_rules;
    struct document *ret;
    char *text; /* EDIT_TEXT_BYTES */
};

static enum edit_result wrong(const struct edit *e, const char *prefix, const char *text)
{
    snprintf(e->text, EDIT_TEXT_BYTES, "%s%s", prefix, text);
    return EDIT_WRONG;
}

/* The last step of an edit; takes the reference to `rules`. */
static enum edit_result finish(const struct edit *e, const struct rules *rules, bool allow)
{
    if (e->max_rules == 0 || rules->n <= e->max_rules) {
        *e->ret = (struct document){rules, allow};
        return EDIT_DONE;
    }
    snprintf(e->text, EDIT_TEXT_BYTES, "egress rule total count %u exceeds limit %u", rules->n,
             e->max_rules);
    rules_unref(rules);
    return EDIT_TOO_MANY;
}

static enum edit_result replace(const struct edit *e, struct str body)
{
    struct json_fault fault;
    struct document d;
    if (target_trim(body).n == 0) {
        *e->ret = document_deny();
        return EDIT_RESET;
    }
    if (!document_parse(body, &d, &fault))
        return wrong(e, "invalid policy: ", fault.text);
    return finish(e, d.rules, d.allow);
}

/* Appends the rules whose keys are new. */
static void merge(struct rules *into, const struct rules *from, struct map *seen)
{
    for (unsigned i = 0; i < from->n; i++)
        if (!map_put(seen, from->at[i].target.key, (void *)&from->at[i]))
            rules_copy(into, &from->at[i]);
}

static struct rules *patched(const struct rules *base, const struct rules *patch)
{
    struct rules *rules = rules_new();
    struct map *seen = map_new();
    merge(rules, patch, seen);
    merge(rules, base, seen);
    map_free(seen);
    return rules;
}

static bool is_empty(const struct json *root)
{
    return json_type(root) == JSON_NULL || (json_type(root) == JSON_ARRAY && !json_first(root));
}

static enum edit_result patch_by(const struct edit *e, const struct json_doc *d)
{
    const struct json *root = json_root(d);
    struct json_fault fault;
    if (is_empty(root))
        return wrong(e, "invalid patch rules: ", "empty array");
    if (!document_rules_shape(d, root, &fault))
        return wrong(e, "invalid patch rules: ", fault.text);
    struct rules *rules = rules_new();
    enum edit_result result = document_rules_read(d, root, rules, &fault)
                                  ? finish(e, patched(e->base->rules, rules), e->base->allow)
                                  : wrong(e, "invalid merged policy: ", fault.text);
    rules_unref(rules);
    return result;
}

static bool are_strings(const struct json_doc *d, const struct json *root, struct json_fault *fault)
{
    const struct json *v = json_type(root) == JSON_ARRAY ? json_first(root) : root;
    while (v && v != root && json_type(v) == JSON_STRING)
        v = json_next(v);
    if (!v)
        return true;
    json_fault_at(d, v, fault, v == root ? "not an array but %s" : "not a string but %s",
                  json_type_name(json_type(v)));
    return false;
}

/* The base without the rules whose keys are in `gone`; NULL: all are still there. */
static struct rules *remaining(const struct rules *base, const struct map *gone)
{
    struct rules *rules = rules_new();
    for (unsigned i = 0; i < base->n; i++)
        if (!map_get(gone, base->at[i].target.key))
            rules_copy(rules, &base->at[i]);
    if (rules->n < base->n)
        return rules;
    rules_unref(rules);
    return NULL;
}

static enum edit_result delete_by(const struct edit *e, const struct json_doc *d)
{
    const struct json *root = json_root(d);
    struct json_fault fault;
    if (is_empty(root))
        return wrong(e, "invalid delete targets: ", "empty array");
    if (!are_strings(d, root, &fault))
        return wrong(e, "invalid delete targets: ", fault.text);
    struct map *gone = map_new();
    struct arena a;
    arena_init(&a, NULL, 0);
    for (const struct json *v = json_first(root); v; v = json_next(v)) {
        struct target t;
        /* what is no target is the target of no rule */
        if (target_parse(json_string(v), &a, &t) == TARGET_OK)
            map_put(gone, t.key, (void *)v);
    }
    struct rules *rules = remaining(e->base->rules, gone);
    map_free(gone);
    arena_done(&a);
    return rules ? finish(e, rules, e->base->allow) : EDIT_NOTHING;
}

static enum edit_result edit_by_list(const struct edit *e, enum edit_kind kind, struct str body)
{
    struct json_fault fault;
    if (target_trim(body).n == 0)
        return wrong(e, "empty body", "");
    struct json_doc *d = document_json(body, &fault);
    if (!d)
        return wrong(e, kind == EDIT_PATCH ? "invalid patch rules: " : "invalid delete targets: ",
                     fault.text);
    enum edit_result result = kind == EDIT_PATCH ? patch_by(e, d) : delete_by(e, d);
    json_free(d);
    return result;
}

enum edit_result edit_apply(enum edit_kind kind, const struct document *base, struct str body,
                            unsigned max_rules, struct document *ret, char text[EDIT_TEXT_BYTES])
{
    struct edit e = {base, kind == EDIT_DELETE ? 0 : max_rules, ret, text};
    return kind == EDIT_REPLACE ? replace(&e, body) : edit_by_list(&e, kind, body);
}
