/* bindings_impl.h — what the files that read a binding share, and the check of a whole set. */
#ifndef POLICIES_BINDINGS_IMPL_H
#define POLICIES_BINDINGS_IMPL_H

#include "base/map.h"
#include "policies/bindings.h"

struct reading {
    const struct binding_draft *draft;
    struct arena *a;
    struct binding *b;
    bool scoped;
    struct str error;
};

/* Remembers the error, with the binding's name in front; always false. */
bool reading_fail(struct reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* bindings_auth.c: type, headers, substitutions. */
bool reading_auth(struct reading *r);

/* Texts, each once, in the order in which they came. */
struct text_set {
    struct str *at; /* room is the owner's */
    unsigned n;
    struct map *index; /* from FEW_TEXTS on */
};
enum { FEW_TEXTS = 16 };
/* False: it is there already.  The text is lent. */
bool text_set_add(struct text_set *s, struct str text);
void text_set_done(struct text_set *s); /* at stays */

/* ---- sets */

/* Bits of a binding's schemes. */
enum { SCHEME_HTTPS = 1, SCHEME_HTTP = 2 };
unsigned schemes_of(const struct binding *b);

/* bindings_conflict.c: the first pair, by place, that can match one request. */
bool bindings_conflict(const struct bindings *s, unsigned *ret_i, unsigned *ret_k);

#endif
