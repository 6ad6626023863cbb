/* run_policy.c — reading what rows about policies have in common. */
#include "vectors/run_policy.h"

#include "base/text.h"
#include "policies/rulefile.h"

static void put_scalar(struct json_out *o, const struct row *r, const struct json *v)
{
    int64_t number = 0;
    switch (json_type(v)) {
    case JSON_STRING:
        json_put_str(o, json_string(v));
        return;
    case JSON_NUMBER:
        if (json_int(r->doc, v, &number))
            json_put_int(o, number);
        else
            json_put_raw(o, arena_printf(r->a, "%.17g", json_double(v)));
        return;
    case JSON_BOOL:
        json_put_bool(o, json_bool(v));
        return;
    default:
        json_put_raw(o, STR("null"));
    }
}

/* Rows are our own files and nested a few levels. */
void row_put(struct json_out *o, const struct row *r, const struct json *v)
{
    bool object = json_type(v) == JSON_OBJECT;
    if (!object && json_type(v) != JSON_ARRAY) {
        put_scalar(o, r, v);
        return;
    }
    json_open(o, object ? '{' : '[');
    for (const struct json *child = json_first(v); child; child = json_next(child)) {
        if (object)
            json_key(o, arena_printf(r->a, "%.*s", STR_ARG(json_name(child))).p);
        row_put(o, r, child);
    }
    json_close(o, object ? '}' : ']');
}

static struct str as_text(struct row *r, const struct json *v)
{
    struct json_out o;
    json_out_init(&o);
    row_put(&o, r, v);
    struct str text = arena_str(r->a, (struct str){o.p, o.n});
    json_out_done(&o);
    return text;
}

bool row_document(struct row *r, const struct json *v, struct document *ret)
{
    struct json_fault fault;
    if (!v) {
        *ret = document_deny();
        return true;
    }
    if (!document_parse(as_text(r, v), ret, &fault))
        return row_fail(r, "the row's policy is not to be read: %s", fault.text);
    return true;
}

static const struct rules *rules_of(struct row *r, enum rulefile file, const char *name)
{
    char error[RULEFILE_ERROR_BYTES];
    const struct rules *rules = NULL;
    if (!rulefile_parse(file, name, row_text(r->v, name), &rules, error))
        row_fail(r, "%s", error);
    return rules;
}

struct policy *row_policy(struct row *r)
{
    struct document user;
    if (!row_document(r, row_member(r->v, "policy"), &user))
        return NULL;
    const struct rules *deny = rules_of(r, RULEFILE_DENY, "deny_always"),
                       *allow = rules_of(r, RULEFILE_ALLOW, "allow_always");
    struct policy *p = policy_new(deny, allow, &user);
    rules_unref(deny);
    rules_unref(allow);
    document_done(&user);
    return p;
}

bool row_same_document(struct row *r, const struct document *got, const struct json *expected)
{
    struct document d;
    struct json_out a, b;
    if (!row_document(r, expected, &d))
        return false;
    json_out_init(&a);
    json_out_init(&b);
    document_put(&a, got);
    document_put(&b, &d);
    bool same = row_same(r, "policy", arena_str(r->a, (struct str){a.p, a.n}),
                         arena_str(r->a, (struct str){b.p, b.n}));
    json_out_done(&a);
    json_out_done(&b);
    document_done(&d);
    return same;
}

/* [[text, times]…], joined. */
static struct str join_parts(struct row *r, const struct json *parts)
{
    size_t n = 0;
    char *out = NULL;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (const struct json *part = json_first(parts); part; part = json_next(part)) {
            struct str text = json_string(json_first(part));
            int64_t times = 0;
            json_int(r->doc, json_next(json_first(part)), &times);
            for (int64_t i = 0; i < times; i++, n += text.n)
                if (out)
                    memcpy(out + n, text.p, text.n);
        }
        out = out ? out : arena_get(r->a, n + 1);
    }
    return (struct str){out, n};
}

struct str row_body(struct row *r, const char *name)
{
    const struct json *parts = row_member(r->v, arena_printf(r->a, "%s_parts", name).p);
    struct str base64 = row_text(r->v, arena_printf(r->a, "%s_b64", name).p);
    if (parts)
        return join_parts(r, parts);
    if (base64.n == 0)
        return row_text(r->v, name);
    uint8_t *bytes = arena_get(r->a, base64.n);
    size_t n = 0;
    if (!text_base64(base64, bytes, &n))
        row_fail(r, "%s_b64 is not to be read", name);
    return (struct str){(char *)bytes, n};
}

struct str row_env(struct row *r, const char *name)
{
    return row_text(row_member(r->v, "env"), arena_printf(r->a, "OPENSANDBOX_EGRESS_%s", name).p);
}

bool row_has(struct str text, struct str piece)
{
    for (size_t i = 0; i + piece.n <= text.n; i++)
        if (memcmp(text.p + i, piece.p, piece.n) == 0)
            return true;
    return piece.n == 0;
}
