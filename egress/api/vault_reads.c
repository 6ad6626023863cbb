/* vault_reads.c — /credential-vault: where its paths lead, and what is shown of it (contract
 * egress-vault 3.2, 6). */
#include "base/text.h"
#include "egress/api/api_impl.h"
#include "http/path.h"
#include "policies/target.h"

enum { VAULT_BODY_BYTES = 1 << 20 };

static const struct egress_view *now(const struct visit *v)
{
    return changes_now(visit_host(v)->changes);
}

/* False: it is answered. */
static bool has_vault(struct visit *v)
{
    if (now(v)->vault)
        return true;
    visit_refuse(v, 404, STR("credential vault not found"));
    return false;
}

static void serve_list(struct visit *v, void (*put)(const struct vault *vault, struct json_out *o))
{
    struct json_out o;
    if (!has_vault(v))
        return;
    json_out_init(&o);
    put(now(v)->vault, &o);
    visit_json(v, &o);
}

static void serve_vault(struct visit *v)
{
    if (!str_eq(v->head->method, STR("GET")))
        serve_vault_write(v);
    else
        serve_list(v, vault_put_state);
}

static void serve_credentials(struct visit *v)
{
    serve_list(v, vault_put_credentials);
}

static void serve_bindings(struct visit *v)
{
    serve_list(v, vault_put_bindings);
}

static void serve_item(struct visit *v, struct str missing,
                       bool (*put)(const struct vault *vault, struct str name, struct json_out *o))
{
    struct json_out o;
    if (!has_vault(v))
        return;
    json_out_init(&o);
    if (put(now(v)->vault, v->item, &o)) {
        visit_json(v, &o);
        return;
    }
    json_out_done(&o);
    visit_refuse(v, 404, missing);
}

static void serve_credential(struct visit *v)
{
    serve_item(v, STR("credential not found"), vault_put_credential);
}

static void serve_binding(struct visit *v)
{
    serve_item(v, STR("binding not found"), vault_put_binding);
}

/* What hands out secrets in the original never does here, whoever asks. */
static void serve_active(struct visit *v)
{
    visit_refuse(v, 403, STR("forbidden"));
}

static bool refuse_unknown(struct visit *v)
{
    visit_refuse(v, 404, STR("not found"));
    return false;
}

/* ---- routes */

static const struct route vault = {.methods = "GET, POST, PATCH, DELETE",
                                   .max_body = VAULT_BODY_BYTES,
                                   .admit = vault_admit,
                                   .serve = serve_vault};
static const struct route active = {.methods = "GET", .open = true, .serve = serve_active};
static const struct route unknown = {.admit = refuse_unknown};
static const struct route credentials = {.methods = "GET", .serve = serve_credentials};
static const struct route credential = {.methods = "GET", .serve = serve_credential};
static const struct route bindings = {.methods = "GET", .serve = serve_bindings};
static const struct route binding = {.methods = "GET", .serve = serve_binding};

static bool decode(struct visit *v, struct str text, struct str *ret)
{
    char *out = arena_get(&v->mem, text.n + 1);
    *ret = (struct str){out, 0};
    return text_percent(text, out, &ret->n);
}

/* `rest`: what follows the list's name, from its slash on; empty: the list. */
static const struct route *item_route(struct visit *v, struct str rest, const struct route *list,
                                      const struct route *item)
{
    if (rest.n == 0)
        return list;
    if (!decode(v, str_skip(rest, 1), &v->item))
        return NULL;
    v->item = target_trim(v->item);
    return item;
}

const struct route *vault_route(struct visit *v, struct str path)
{
    struct str segment, name;
    if (!path_segment(&path, &segment) || !decode(v, segment, &name) ||
        !str_eq(name, STR("credential-vault")))
        return NULL;
    if (!path_segment(&path, &segment))
        return &vault;
    if (!decode(v, segment, &name))
        return NULL;
    if (str_eq(name, STR("_active")) && path.n == 0)
        return &active;
    if (str_eq(name, STR("credentials")))
        return item_route(v, path, &credentials, &credential);
    if (str_eq(name, STR("bindings")))
        return item_route(v, path, &bindings, &binding);
    return &unknown;
}
