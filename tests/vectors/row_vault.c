/* row_vault.c — see row_vault.h.  The rows are about traffic, so that the policy has no say. */
#include "vectors/row_vault.h"

static struct str any_host(void *user, const struct binding *b, struct str host, struct arena *a)
{
    (void)user;
    (void)b;
    (void)host;
    (void)a;
    return STR("");
}

struct vault *row_vault(struct row *r, struct json_out *body)
{
    static const struct vault_rules rules = {.body_min = 6};
    static const struct vault_cover cover = {any_host, NULL};
    struct vault_fault fault = {0};
    struct vault_create *c =
        vault_create_read((struct str){body->p, body->n}, &rules, r->a, &fault);
    struct vault *v = c ? vault_new(c, &rules, &cover, r->a, &fault) : NULL;
    vault_create_free(c);
    json_out_done(body);
    if (!v)
        row_fail(r, "no vault: %.*s", STR_ARG(fault.text));
    return v;
}
