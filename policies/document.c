/* document.c — reads and writes the user's policy.  Reading is strict and in two passes: first the
 * shape (members, types), then the meaning (actions, targets), because edits answer the two kinds
 * of fault with different words. */
#include "policies/document.h"

#include "base/text.h"

struct document document_deny(void)
{
    return (struct document){rules_new(), false};
}

struct document document_copy(const struct document *d)
{
    return (struct document){rules_ref(d->rules), d->allow};
}

void document_done(struct document *d)
{
    rules_unref(d->rules);
    d->rules = NULL;
}

/* ---- reading */

/* A value costs far more memory than the two bytes it needs in the text.  Counts what stands before
 * each but the first, so that names are counted too. */
static bool few_values(struct str text)
{
    unsigned n = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\';
        else
            n += c == ',' || c == '[' || c == '{' || c == ':';
    }
    return n <= DOCUMENT_VALUES_MAX;
}

struct json_doc *document_json(struct str text, struct json_fault *ret_fault)
{
    if (few_values(text))
        return json_parse(text, 0, DOCUMENT_DEPTH_MAX, ret_fault);
    *ret_fault = (struct json_fault){1, 1, "too many values"};
    return NULL;
}

static bool is_type(const struct json_doc *d, const struct json *v, enum json_type type,
                    const char *what, struct json_fault *ret_fault)
{
    if (json_type(v) == type)
        return true;
    json_fault_at(d, v, ret_fault, "%s must be %s %s, not %s", what,
                  type == JSON_ARRAY || type == JSON_OBJECT ? "an" : "a", json_type_name(type),
                  json_type_name(json_type(v)));
    return false;
}

static bool unknown_member(const struct json_doc *d, const struct json *v,
                           struct json_fault *ret_fault)
{
    char name[64];
    size_t n = text_put_json(name, sizeof name, json_name(v));
    json_fault_at(d, v, ret_fault, "unknown field \"%.*s\"", (int)n, name);
    return false;
}

static bool rule_shape(const struct json_doc *d, const struct json *rule,
                       struct json_fault *ret_fault)
{
    if (!is_type(d, rule, JSON_OBJECT, "a rule", ret_fault))
        return false;
    for (const struct json *v = json_first(rule); v; v = json_next(v)) {
        bool action = str_eq(json_name(v), STR("action"));
        if (!action && !str_eq(json_name(v), STR("target")))
            return unknown_member(d, v, ret_fault);
        if (json_type(v) != JSON_NULL &&
            !is_type(d, v, JSON_STRING, action ? "action" : "target", ret_fault))
            return false;
    }
    return true;
}

bool document_rules_shape(const struct json_doc *d, const struct json *array,
                          struct json_fault *ret_fault)
{
    if (!is_type(d, array, JSON_ARRAY, "the list of rules", ret_fault))
        return false;
    for (const struct json *rule = json_first(array); rule; rule = json_next(rule))
        if (!rule_shape(d, rule, ret_fault))
            return false;
    return true;
}

/* Absent, null and blank are deny. */
static bool read_action(const struct json_doc *d, const struct json *v, const char *what,
                        bool *ret_allow, struct json_fault *ret_fault)
{
    struct str text = json_type(v) == JSON_NULL ? STR("") : target_trim(json_string(v));
    char shown[64];
    if (text.n == 0 || str_ieq(text, STR("allow")) || str_ieq(text, STR("deny"))) {
        *ret_allow = text.n == 5;
        return true;
    }
    size_t n = text_put_json(shown, sizeof shown, text);
    for (size_t i = 0; i < n; i++)
        shown[i] = ascii_lower(shown[i]);
    json_fault_at(d, v, ret_fault, "unsupported %s \"%.*s\"", what, (int)n, shown);
    return false;
}

static void target_fault_at(const struct json_doc *d, const struct json *v, enum target_fault fault,
                            struct str target, struct json_fault *ret_fault)
{
    char shown[80];
    struct str text = target_fault_text(fault);
    if (fault == TARGET_EMPTY) {
        json_fault_at(d, v, ret_fault, "%.*s", STR_ARG(text));
        return;
    }
    size_t n = text_put_json(shown, sizeof shown, target);
    json_fault_at(d, v, ret_fault, "%.*s: \"%.*s\"", STR_ARG(text), (int)n, shown);
}

static bool read_rule(const struct json_doc *d, const struct json *rule, struct rules *ret,
                      struct json_fault *ret_fault)
{
    bool allow = false;
    const struct json *place = rule;
    struct str target = STR("");
    for (const struct json *v = json_first(rule); v; v = json_next(v)) {
        if (str_eq(json_name(v), STR("action"))) {
            if (!read_action(d, v, "action", &allow, ret_fault))
                return false;
        } else if (json_type(v) == JSON_STRING) {
            target = json_string(v);
            place = v;
        }
    }
    enum target_fault fault = rules_add(ret, allow, target);
    if (fault != TARGET_OK)
        target_fault_at(d, place, fault, target, ret_fault);
    return fault == TARGET_OK;
}

bool document_rules_read(const struct json_doc *d, const struct json *array, struct rules *ret,
                         struct json_fault *ret_fault)
{
    for (const struct json *rule = json_first(array); rule; rule = json_next(rule))
        if (!read_rule(d, rule, ret, ret_fault))
            return false;
    return true;
}

static bool read_policy(const struct json_doc *d, struct rules *rules, bool *ret_allow,
                        struct json_fault *ret_fault)
{
    const struct json *root = json_root(d), *list = NULL, *action = NULL;
    if (json_type(root) == JSON_NULL)
        return true;
    if (!is_type(d, root, JSON_OBJECT, "a policy", ret_fault))
        return false;
    for (const struct json *v = json_first(root); v; v = json_next(v)) {
        bool is_list = str_eq(json_name(v), STR("egress"));
        if (!is_list && !str_eq(json_name(v), STR("defaultAction")))
            return unknown_member(d, v, ret_fault);
        if (json_type(v) == JSON_NULL)
            continue;
        if (is_list ? !document_rules_shape(d, v, ret_fault)
                    : !is_type(d, v, JSON_STRING, "defaultAction", ret_fault))
            return false;
        *(is_list ? &list : &action) = v;
    }
    return (!action || read_action(d, action, "defaultAction", ret_allow, ret_fault)) &&
           (!list || document_rules_read(d, list, rules, ret_fault));
}

bool document_parse(struct str text, struct document *ret, struct json_fault *ret_fault)
{
    bool allow = false;
    if (target_trim(text).n == 0) {
        *ret = document_deny();
        return true;
    }
    struct json_doc *d = document_json(text, ret_fault);
    if (!d)
        return false;
    struct rules *rules = rules_new();
    bool good = read_policy(d, rules, &allow, ret_fault);
    json_free(d);
    if (good)
        *ret = (struct document){rules, allow};
    else
        rules_unref(rules);
    return good;
}

/* ---- writing */

static struct str action_text(bool allow)
{
    return allow ? STR("allow") : STR("deny");
}

const char *document_mode(const struct document *d)
{
    if (d->rules->n > 0)
        return "enforcing";
    return d->allow ? "allow_all" : "deny_all";
}

void document_put(struct json_out *o, const struct document *d)
{
    json_open(o, '{');
    json_key(o, "egress");
    json_open(o, '[');
    for (unsigned i = 0; i < d->rules->n; i++) {
        json_open(o, '{');
        json_key(o, "action");
        json_put_str(o, action_text(d->rules->at[i].allow));
        json_key(o, "target");
        json_put_str(o, d->rules->at[i].target.text);
        json_close(o, '}');
    }
    json_close(o, ']');
    json_key(o, "defaultAction");
    json_put_str(o, action_text(d->allow));
    json_close(o, '}');
}

static void put_raw(struct json_out *o, struct str s)
{
    o->comma = false;
    json_put_raw(o, s);
}

static void put_line(struct json_out *o, unsigned depth)
{
    put_raw(o, STR("\n"));
    while (depth-- > 0)
        put_raw(o, STR("  "));
}

static bool is_open(char c)
{
    return c == '[' || c == '{';
}

static bool is_close(char c)
{
    return c == ']' || c == '}';
}

/* Compact JSON, written by us, with line breaks and an indent of two. */
static void put_indented(struct json_out *o, struct str json)
{
    unsigned depth = 0;
    bool quoted = false;
    size_t done = 0;
    for (size_t i = 0; i < json.n; i++) {
        char c = json.p[i];
        quoted ^= c == '"';
        if (quoted || (!is_open(c) && !is_close(c) && c != ',' && c != ':')) {
            i += quoted && c == '\\';
            continue;
        }
        if (is_open(c) && is_close(json.p[i + 1])) {
            i++;
            continue;
        }
        size_t end = i + !is_close(c);
        put_raw(o, (struct str){json.p + done, end - done});
        done = end;
        depth += is_open(c);
        depth -= is_close(c);
        if (c == ':')
            put_raw(o, STR(" "));
        else
            put_line(o, depth);
    }
    put_raw(o, str_skip(json, done));
}

void document_put_file(struct json_out *o, const struct document *d)
{
    struct json_out compact;
    json_out_init(&compact);
    document_put(&compact, d);
    put_indented(o, (struct str){compact.p, compact.n});
    put_raw(o, STR("\n"));
    json_out_done(&compact);
}
