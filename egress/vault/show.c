/* show.c — what anybody may see of a vault: names, matches and types, and one line for what its
 * owner should know.  Values, references, header names and placeholders have no way in here
 * (contract egress-vault 6). */
#include "egress/vault/vault_impl.h"

static void put_text(struct json_out *o, const char *key, struct str text)
{
    json_key(o, key);
    json_put_str(o, text);
}

static void put_revision(struct json_out *o, int64_t revision)
{
    json_key(o, "revision");
    json_put_int(o, revision);
}

static void put_texts(struct json_out *o, const char *key, struct str_list list)
{
    json_key(o, key);
    json_open(o, '[');
    for (unsigned i = 0; i < list.n; i++)
        json_put_str(o, list.at[i]);
    json_close(o, ']');
}

static void put_credential(const struct credential *c, struct json_out *o)
{
    json_open(o, '{');
    put_text(o, "name", c->name);
    put_text(o, "sourceType", STR("inline"));
    put_revision(o, c->revision);
    json_close(o, '}');
}

static void put_binding(const struct vault *v, const struct binding *b, struct json_out *o)
{
    json_open(o, '{');
    put_text(o, "name", b->name);
    put_revision(o, v->revision);
    json_key(o, "match");
    json_open(o, '{');
    put_texts(o, "schemes", b->schemes);
    put_texts(o, "hosts", b->hosts);
    put_texts(o, "methods", b->methods);
    put_texts(o, "paths", b->paths);
    json_close(o, '}');
    json_key(o, "auth");
    json_open(o, '{');
    put_text(o, "type", str_of(auth_type_text(b->type)));
    if (b->type == AUTH_API_KEY)
        put_text(o, "name", b->headers[0].name);
    json_close(o, '}');
    json_close(o, '}');
}

static void put_credential_list(const struct vault *v, struct json_out *o)
{
    json_key(o, "credentials");
    json_open(o, '[');
    for (unsigned i = 0; i < v->ncredentials; i++)
        put_credential(&v->credentials[i], o);
    json_close(o, ']');
}

static void put_binding_list(const struct vault *v, struct json_out *o)
{
    json_key(o, "bindings");
    json_open(o, '[');
    for (unsigned i = 0; i < bindings_count(v->bindings); i++)
        put_binding(v, bindings_at(v->bindings, i), o);
    json_close(o, ']');
}

static void put_object(const struct vault *v, struct json_out *o, bool credentials, bool bindings)
{
    json_open(o, '{');
    put_revision(o, v->revision);
    if (credentials)
        put_credential_list(v, o);
    if (bindings)
        put_binding_list(v, o);
    json_close(o, '}');
}

void vault_put_state(const struct vault *v, struct json_out *o)
{
    put_object(v, o, true, true);
}

void vault_put_credentials(const struct vault *v, struct json_out *o)
{
    put_object(v, o, true, false);
}

void vault_put_bindings(const struct vault *v, struct json_out *o)
{
    put_object(v, o, false, true);
}

bool vault_put_credential(const struct vault *v, struct str name, struct json_out *o)
{
    const struct credential *c = vault_find(v, name);
    if (c)
        put_credential(c, o);
    return c != NULL;
}

bool vault_put_binding(const struct vault *v, struct str name, struct json_out *o)
{
    const struct binding *b = bindings_named(v->bindings, name);
    if (b)
        put_binding(v, b, o);
    return b != NULL;
}

/* ---- warnings */

static bool has_escape(const struct vault *v, unsigned i)
{
    const struct str_list *paths = &bindings_at(v->bindings, i)->paths;
    for (unsigned k = 0; k < paths->n; k++)
        if (str_chr(paths->at[k], '%') >= 0)
            return true;
    return false;
}

static bool is_clear(const struct vault *v, unsigned i)
{
    return binding_has_scheme(bindings_at(v->bindings, i), false);
}

static bool is_short(const struct vault *v, unsigned i)
{
    const struct credential *c = &v->credentials[i];
    return c->used && secret_bytes(c->value).n < v->rules.body_min;
}

static struct str binding_name(const struct vault *v, unsigned i)
{
    return bindings_at(v->bindings, i)->name;
}

static struct str credential_name(const struct vault *v, unsigned i)
{
    return v->credentials[i].name;
}

/* One line for each kind: the first that it is about, and how many there are. */
static const struct {
    bool (*is)(const struct vault *v, unsigned i);
    struct str (*name)(const struct vault *v, unsigned i);
    bool of_credentials;
    const char *text;
} warnings[] = {
    {has_escape, binding_name, false,
     "a path pattern with a percent escape matches no request that means one path; such requests "
     "are refused"},
    {is_clear, binding_name, false, "scheme http sends its credential in clear"},
    {is_short, credential_name, true,
     "a value that short is not searched for in the bodies of answers"},
};

static struct str warn(const struct vault *v, size_t kind, struct arena *a)
{
    bool of_credentials = warnings[kind].of_credentials;
    unsigned n = of_credentials ? v->ncredentials : bindings_count(v->bindings), first = 0, all = 0;
    for (unsigned i = 0; i < n; i++)
        if (warnings[kind].is(v, i) && all++ == 0)
            first = i;
    if (all == 0)
        return STR_NONE;
    struct str name = binding_quoted(warnings[kind].name(v, first), a), more = STR("");
    if (all > 1)
        more = arena_printf(a, " and %u more", all - 1);
    return arena_printf(a, "%s %.*s%.*s: %s", of_credentials ? "credential" : "binding",
                        STR_ARG(name), STR_ARG(more), warnings[kind].text);
}

struct str vault_warning(const struct vault *v, unsigned i, struct arena *a)
{
    for (size_t kind = 0; kind < sizeof warnings / sizeof *warnings; kind++) {
        struct str text = warn(v, kind, a);
        if (text.p && i-- == 0)
            return text;
    }
    return STR_NONE;
}
