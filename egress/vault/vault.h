/* vault.h — the credential vault of one revision: immutable, counted, part of the view (contract
 * egress-vault 4 to 6).  A write makes a new one beside the old; secrets that both have are shared,
 * and wiped when the last that uses them is gone. */
#ifndef VAULT_VAULT_H
#define VAULT_VAULT_H

#include "base/json.h"
#include "policies/inject.h"
#include "policies/redact.h"

struct vault;

/* What the settings say (contract 3, 4.2, 14). */
struct vault_rules {
    bool scoped;                            /* E_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH */
    size_t body_min;                        /* E_SCRUB_BODY_MIN */
    unsigned max_credentials, max_bindings; /* in all, E_VAULT_MAX_…; 0: no limit */
};

/* A refused write: 400 or 409 and the text, in the arena of the call. */
struct vault_fault {
    int status;
    struct str text;
};

/* ---- requests (wire.c) */

struct vault_create; /* what a POST asks for; its secrets are copied, the body can be wiped */
struct vault_patch;
/* NULL: *ret is 400 with the contract's prefix (3.6). */
struct vault_create *vault_create_read(struct str body, const struct vault_rules *rules,
                                       struct arena *a, struct vault_fault *ret);
void vault_create_free(struct vault_create *c);
struct vault_patch *vault_patch_read(struct str body, const struct vault_rules *rules,
                                     struct arena *a, struct vault_fault *ret);
void vault_patch_free(struct vault_patch *p);

/* ---- states (store.c) */

/* The first revision; NULL: refused.  covers() is asked for each host of each binding, by name
 * order: an empty text, or why the policy does not let it (contract 7), in the arena. */
struct vault_cover {
    struct str (*fault)(void *user, const struct binding *b, struct str host, struct arena *a);
    void *user;
};
struct vault *vault_new(const struct vault_create *c, const struct vault_rules *rules,
                        const struct vault_cover *cover, struct arena *a, struct vault_fault *ret);
/* The next revision. */
struct vault *vault_edit(const struct vault *old, const struct vault_patch *p,
                         const struct vault_rules *rules, const struct vault_cover *cover,
                         struct arena *a, struct vault_fault *ret);
/* Is every host of every binding still let through?  Empty: yes; else the reason (contract 7). */
struct str vault_uncovered(const struct vault *v, const struct vault_cover *cover, struct arena *a);

struct vault *vault_ref(const struct vault *v);
void vault_unref(const struct vault *v); /* NULL is fine */

/* ---- what decisions read; v NULL: as of an empty one */

int64_t vault_revision(const struct vault *v);
struct bindings *vault_bindings(const struct vault *v); /* lent */
/* Of a binding of vault_bindings(). */
const struct armed *vault_armed(const struct vault *v, const struct binding *b);
/* Lent; NULL: nothing is to be searched for. */
struct redaction *vault_redaction(const struct vault *v);

/* ---- what GET shows (contract 6): never a value.  False: there is no such item. */

void vault_put_state(const struct vault *v, struct json_out *o);
void vault_put_credentials(const struct vault *v, struct json_out *o);
void vault_put_bindings(const struct vault *v, struct json_out *o);
bool vault_put_credential(const struct vault *v, struct str name, struct json_out *o);
bool vault_put_binding(const struct vault *v, struct str name, struct json_out *o);

/* ---- warnings at write (contract 4.2, 14.2): one line each, without values; NULL ends them */
struct str vault_warning(const struct vault *v, unsigned i, struct arena *a);

#endif
