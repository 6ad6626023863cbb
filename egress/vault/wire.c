/* wire.c — the bodies of writes (contract egress-vault 3.6, 4).  Shape first: what is no such
 * object is refused here, with the prefix of the request.  What an object says is normalised here
 * as well, but its faults only wait in the item; whether they count is known when the write has its
 * turn.
 *
 * Values go from the tree into the memory of secrets; the tree and the body are wiped by their
 * owners. */
#include "egress/vault/vault_impl.h"
#include "policies/target.h"

enum { DEPTH_MAX = 64 };

struct reader {
    const struct json_doc *doc;
    const struct vault_rules *rules;
    struct arena *mem; /* of the request */
    struct json_fault fault;
};

/* ---- shapes */

struct member {
    const char *name;
    enum json_type type;
    const struct json **ret; /* stays NULL if it is absent or null */
};

static bool wrong(struct reader *r, const struct json *v, const char *what, enum json_type wanted)
{
    json_fault_at(r->doc, v, &r->fault, "%s: expected %s, found %s", what, json_type_name(wanted),
                  json_type_name(json_type(v)));
    return false;
}

static bool is_type(struct reader *r, const struct json *v, const char *what, enum json_type wanted)
{
    return json_type(v) == wanted || wrong(r, v, what, wanted);
}

static const struct member *find_member(const struct member *m, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(name, str_of(m[i].name)))
            return &m[i];
    return NULL;
}

static bool unknown(struct reader *r, const struct json *v)
{
    struct str shown = json_name(v);
    shown.n = shown.n > 64 ? 64 : shown.n;
    json_fault_at(r->doc, v, &r->fault, "unknown field %.*s",
                  STR_ARG(binding_quoted(shown, r->mem)));
    return false;
}

/* v as an object that has these members at most. */
static bool read_object(struct reader *r, const struct json *v, const char *what,
                        const struct member *members, size_t n)
{
    if (!is_type(r, v, what, JSON_OBJECT))
        return false;
    for (const struct json *m = json_first(v); m; m = json_next(m)) {
        const struct member *known = find_member(members, n, json_name(m));
        if (!known)
            return unknown(r, m);
        if (json_type(m) == JSON_NULL)
            continue;
        if (!is_type(r, m, known->name, known->type))
            return false;
        *known->ret = m;
    }
    return true;
}
#define READ_OBJECT(r, v, what, members) \
    read_object(r, v, what, members, sizeof(members) / sizeof *(members))

static struct str text_of(const struct json *v)
{
    return v ? json_string(v) : STR("");
}

static size_t count_of(const struct json *list)
{
    return list ? json_count(list) : 0;
}

static const struct json *first_of(const struct json *list)
{
    return list ? json_first(list) : NULL;
}

static bool read_texts(struct reader *r, const struct json *list, struct str_list *ret)
{
    struct str *at = arena_get(r->mem, (count_of(list) + 1) * sizeof *at);
    unsigned n = 0;
    for (const struct json *v = first_of(list); v; v = json_next(v)) {
        if (!is_type(r, v, "list", JSON_STRING))
            return false;
        at[n++] = json_string(v);
    }
    *ret = (struct str_list){at, n};
    return true;
}

/* Each object of a list by itself. */
static bool read_items(struct reader *r, const struct json *list, struct items *ret,
                       bool (*one)(struct reader *r, const struct json *v, struct item *ret))
{
    ret->at = arena_zero(r->mem, (count_of(list) + 1) * sizeof *ret->at);
    for (const struct json *v = first_of(list); v; v = json_next(v))
        if (!one(r, v, &ret->at[ret->n++])) /* counted, so that its secret is given back */
            return false;
    return true;
}

/* ---- credentials */

static void fault_of(struct reader *r, struct item *i, const char *text, struct str more)
{
    struct str name = binding_quoted(i->name, r->mem);
    i->fault = arena_printf(r->mem, "credential %.*s: %s%.*s", STR_ARG(name), text, STR_ARG(more));
}

static void take_value(struct reader *r, struct str value, struct item *ret)
{
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] == '\r' || value.p[i] == '\n' || value.p[i] == '\0') {
            fault_of(r, ret, "inline credential value must not contain CR, LF or NUL", STR(""));
            return;
        }
    if (value.n == 0)
        fault_of(r, ret, "inline credential value cannot be empty", STR(""));
    else
        ret->value = secret_new(value.p, value.n);
}

/* The type is judged before the other members are looked at. */
static bool read_source(struct reader *r, const struct json *source, struct item *ret)
{
    const struct json *type = json_member(source, STR("type")), *value = NULL;
    const struct member members[] = {{"type", JSON_STRING, &type}, {"value", JSON_STRING, &value}};
    if (type && json_type(type) == JSON_NULL)
        type = NULL;
    if (type && !is_type(r, type, "type", JSON_STRING))
        return false;
    struct str text = text_of(type);
    if (text.n > 0 && !str_eq(text, STR("inline"))) {
        fault_of(r, ret, "unsupported credential source type ", binding_quoted(text, r->mem));
        return true;
    }
    if (!READ_OBJECT(r, source, "source", members))
        return false;
    take_value(r, text_of(value), ret);
    return true;
}

static bool read_credential(struct reader *r, const struct json *v, struct item *ret)
{
    const struct json *name = NULL, *source = NULL;
    const struct member members[] = {{"name", JSON_STRING, &name},
                                     {"source", JSON_OBJECT, &source}};
    if (!READ_OBJECT(r, v, "credential", members))
        return false;
    ret->name = arena_str(r->mem, target_trim(text_of(name)));
    if (source && !read_source(r, source, ret))
        return false;
    if (!source)
        fault_of(r, ret, "parse inline credential source: it is missing", STR(""));
    if (ret->name.n == 0)
        ret->fault = STR("credential name cannot be blank");
    return true;
}

/* ---- bindings */

static bool read_ports(struct reader *r, const struct json *list, struct binding_draft *d)
{
    int64_t *at = arena_get(r->mem, (count_of(list) + 1) * sizeof *at);
    for (const struct json *v = first_of(list); v; v = json_next(v)) {
        if (!is_type(r, v, "ports", JSON_NUMBER))
            return false;
        if (!json_int(r->doc, v, &at[d->nports++])) {
            json_fault_at(r->doc, v, &r->fault, "ports: expected an integer");
            return false;
        }
    }
    d->ports = at;
    return true;
}

static bool read_match(struct reader *r, const struct json *v, struct binding_draft *d)
{
    const struct json *schemes = NULL, *ports = NULL, *hosts = NULL, *methods = NULL, *paths = NULL;
    const struct member members[] = {{"schemes", JSON_ARRAY, &schemes},
                                     {"ports", JSON_ARRAY, &ports},
                                     {"hosts", JSON_ARRAY, &hosts},
                                     {"methods", JSON_ARRAY, &methods},
                                     {"paths", JSON_ARRAY, &paths}};
    return READ_OBJECT(r, v, "match", members) && read_texts(r, schemes, &d->schemes) &&
           read_ports(r, ports, d) && read_texts(r, hosts, &d->hosts) &&
           read_texts(r, methods, &d->methods) && read_texts(r, paths, &d->paths);
}

static bool read_headers(struct reader *r, const struct json *list, struct binding_draft *d)
{
    struct auth_header *at = arena_zero(r->mem, (count_of(list) + 1) * sizeof *at);
    for (const struct json *v = first_of(list); v; v = json_next(v)) {
        const struct json *name = NULL, *credential = NULL;
        const struct member members[] = {{"name", JSON_STRING, &name},
                                         {"credential", JSON_STRING, &credential}};
        if (!READ_OBJECT(r, v, "header", members))
            return false;
        at[d->nheaders++] = (struct auth_header){text_of(name), text_of(credential)};
    }
    d->headers = at;
    return true;
}

static bool read_substitutions(struct reader *r, const struct json *list, struct binding_draft *d)
{
    struct substitution_draft *at = arena_zero(r->mem, (count_of(list) + 1) * sizeof *at);
    for (const struct json *v = first_of(list); v; v = json_next(v)) {
        const struct json *credential = NULL, *placeholder = NULL, *in = NULL;
        const struct member members[] = {{"credential", JSON_STRING, &credential},
                                         {"placeholder", JSON_STRING, &placeholder},
                                         {"in", JSON_ARRAY, &in}};
        struct substitution_draft *s = &at[d->nsubstitutions++];
        if (!READ_OBJECT(r, v, "substitution", members) || !read_texts(r, in, &s->in))
            return false;
        s->credential = text_of(credential);
        s->placeholder = text_of(placeholder);
    }
    d->substitutions = at;
    return true;
}

static bool read_auth(struct reader *r, const struct json *v, struct binding_draft *d)
{
    const struct json *type = NULL, *credential = NULL, *name = NULL, *headers = NULL,
                      *substitutions = NULL;
    const struct member members[] = {{"type", JSON_STRING, &type},
                                     {"credential", JSON_STRING, &credential},
                                     {"name", JSON_STRING, &name},
                                     {"headers", JSON_ARRAY, &headers},
                                     {"substitutions", JSON_ARRAY, &substitutions}};
    if (!READ_OBJECT(r, v, "auth", members) || !read_headers(r, headers, d) ||
        !read_substitutions(r, substitutions, d))
        return false;
    d->type = text_of(type);
    d->credential = text_of(credential);
    d->header_name = text_of(name);
    return true;
}

static bool read_binding(struct reader *r, const struct json *v, struct item *ret)
{
    const struct json *name = NULL, *match = NULL, *auth = NULL;
    const struct member members[] = {
        {"name", JSON_STRING, &name}, {"match", JSON_OBJECT, &match}, {"auth", JSON_OBJECT, &auth}};
    struct binding_draft d = {0};
    if (!READ_OBJECT(r, v, "binding", members) || (match && !read_match(r, match, &d)) ||
        (auth && !read_auth(r, auth, &d)))
        return false;
    d.name = text_of(name);
    struct binding *b = arena_zero(r->mem, sizeof *b);
    ret->name = arena_str(r->mem, target_trim(d.name));
    ret->binding = b;
    if (binding_read(&d, r->rules->scoped, r->mem, b, &ret->fault))
        ret->fault = STR("");
    return true;
}

/* ---- requests */

static bool read_name(struct reader *r, const struct json *v, struct item *ret)
{
    if (!is_type(r, v, "delete", JSON_STRING))
        return false;
    ret->name = arena_str(r->mem, target_trim(json_string(v)));
    return true;
}

typedef bool (*item_reader)(struct reader *r, const struct json *v, struct item *ret);

static bool read_ops(struct reader *r, const struct json *v, struct ops *ret, item_reader one)
{
    const struct json *add = NULL, *replace = NULL, *remove = NULL;
    const struct member members[] = {{"add", JSON_ARRAY, &add},
                                     {"replace", JSON_ARRAY, &replace},
                                     {"delete", JSON_ARRAY, &remove}};
    return !v || (READ_OBJECT(r, v, "operations", members) && read_items(r, add, &ret->add, one) &&
                  read_items(r, replace, &ret->replace, one) &&
                  read_items(r, remove, &ret->remove, read_name));
}

static bool read_create(struct reader *r, void *request)
{
    struct vault_create *c = request;
    const struct json *credentials = NULL, *bindings = NULL;
    const struct member members[] = {{"credentials", JSON_ARRAY, &credentials},
                                     {"bindings", JSON_ARRAY, &bindings}};
    return READ_OBJECT(r, json_root(r->doc), "request", members) &&
           read_items(r, credentials, &c->credentials, read_credential) &&
           read_items(r, bindings, &c->bindings, read_binding);
}

static bool read_expected(struct reader *r, const struct json *v, struct vault_patch *p)
{
    p->has_expected = v != NULL;
    if (!v || json_int(r->doc, v, &p->expected))
        return true;
    json_fault_at(r->doc, v, &r->fault, "expectedRevision: expected a 64-bit integer");
    return false;
}

static bool read_patch(struct reader *r, void *request)
{
    struct vault_patch *p = request;
    const struct json *expected = NULL, *credentials = NULL, *bindings = NULL;
    const struct member members[] = {{"expectedRevision", JSON_NUMBER, &expected},
                                     {"credentials", JSON_OBJECT, &credentials},
                                     {"bindings", JSON_OBJECT, &bindings}};
    return READ_OBJECT(r, json_root(r->doc), "request", members) && read_expected(r, expected, p) &&
           read_ops(r, credentials, &p->credentials, read_credential) &&
           read_ops(r, bindings, &p->bindings, read_binding);
}

/* A zero byte is no fault of form but of meaning; our reader of JSON knows none, so it is said
 * here. */
static const char *hint_of(const struct json_fault *fault)
{
    return strcmp(fault->text, "\\u0000 is not allowed") == 0
               ? ": inline credential value must not contain CR, LF or NUL"
               : "";
}

static bool read_body(struct str body, const char *prefix, struct reader *r,
                      bool (*read)(struct reader *r, void *request), void *request, struct arena *a,
                      struct vault_fault *ret)
{
    struct json_doc *doc = json_parse(body, 0, DEPTH_MAX, &r->fault);
    r->doc = doc;
    bool good = doc && read(r, request);
    if (!good)
        *ret = (struct vault_fault){400, arena_printf(a, "%s%u:%u: %s%s", prefix, r->fault.line,
                                                      r->fault.column, r->fault.text,
                                                      hint_of(&r->fault))};
    json_free(doc);
    return good;
}

struct vault_create *vault_create_read(struct str body, const struct vault_rules *rules,
                                       struct arena *a, struct vault_fault *ret)
{
    struct vault_create *c = mem_new(sizeof *c);
    struct reader r = {.rules = rules, .mem = &c->mem};
    arena_init(&c->mem, NULL, 0);
    if (read_body(body, "invalid credential vault request: ", &r, read_create, c, a, ret))
        return c;
    vault_create_free(c);
    return NULL;
}

struct vault_patch *vault_patch_read(struct str body, const struct vault_rules *rules,
                                     struct arena *a, struct vault_fault *ret)
{
    struct vault_patch *p = mem_new(sizeof *p);
    struct reader r = {.rules = rules, .mem = &p->mem};
    arena_init(&p->mem, NULL, 0);
    if (read_body(body, "invalid credential vault mutation request: ", &r, read_patch, p, a, ret))
        return p;
    vault_patch_free(p);
    return NULL;
}

static void drop(struct items *items)
{
    for (unsigned i = 0; i < items->n; i++)
        secret_unref(items->at[i].value);
}

void vault_create_free(struct vault_create *c)
{
    if (!c)
        return;
    drop(&c->credentials);
    arena_done(&c->mem);
    mem_free(c);
}

void vault_patch_free(struct vault_patch *p)
{
    if (!p)
        return;
    drop(&p->credentials.add);
    drop(&p->credentials.replace);
    arena_done(&p->mem);
    mem_free(p);
}
