/* vault_impl.h — what a write asks for, read but not yet judged, for the files of egress/vault. */
#ifndef VAULT_VAULT_IMPL_H
#define VAULT_VAULT_IMPL_H

#include <stdatomic.h>

#include "base/map.h"
#include "base/secret.h"
#include "egress/vault/vault.h"

/* A credential or a binding of a request.  A fault of its content waits until the request is
 * applied, since what is there already is told first (contract 3.4). */
struct item {
    struct str name;               /* trimmed */
    struct str fault;              /* empty: none */
    struct secret *value;          /* of a credential */
    const struct binding *binding; /* of a binding */
};
struct items {
    struct item *at;
    unsigned n;
};

struct ops {
    struct items add, replace, remove; /* remove: names alone */
};

struct vault_patch {
    struct arena mem;
    bool has_expected;
    int64_t expected;
    struct ops credentials, bindings;
};
struct vault_create {
    struct arena mem;
    struct items credentials, bindings;
};

/* One thing of a state. */
struct entry {
    struct str name;
    int64_t revision; /* of the last write to it */
    struct secret *value;
    const struct binding *binding;
};

/* ---- edit.c: lists are applied to what is there by name */

struct edit {
    const char *kind; /* "credential" or "binding" */
    int64_t revision; /* of what is written now */
    struct arena *a;  /* of the call: entries, texts */
    struct map *now;  /* of struct entry, by name */
    struct str fault;
};
/* Entries are lent. */
void edit_begin(struct edit *e, const char *kind, int64_t revision, struct arena *a);
void edit_keep(struct edit *e, const struct entry *kept);
/* False: e->fault says why. */
bool edit_create(struct edit *e, const struct items *items);
bool edit_apply_ops(struct edit *e, const struct ops *ops);
/* All of them by name; the array lies in the arena. */
struct entry **edit_sorted(const struct edit *e, unsigned *ret_n);
void edit_done(struct edit *e);

/* ---- store.c, for show.c */

struct credential {
    struct str name;
    int64_t revision;
    struct secret *value;
    bool used, bearer, basic; /* by a binding; rendered so */
};

struct vault {
    atomic_uint count;
    int64_t revision;
    struct vault_rules rules;
    struct arena mem;
    struct secret_bag bag;
    struct credential *credentials; /* by name */
    unsigned ncredentials;
    struct bindings *bindings;
    struct armed *armed; /* in the order of the bindings */
    struct redaction *redaction;
};

struct credential *vault_find(const struct vault *v, struct str name); /* NULL: none */

#endif
