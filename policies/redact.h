/* redact.h — what must not come back to the workload: the secrets of a vault in all their
 * spellings, and how fields and bodies lose them (contract egress-vault 14.1, 14.2). */
#ifndef POLICIES_REDACT_H
#define POLICIES_REDACT_H

#include "policies/match.h"

/* One use of a credential. */
struct redact_use {
    struct str value;
    bool bearer, basic; /* rendered so by a binding */
};
struct redact_list {
    const struct redact_use *uses;
    unsigned nuses;
    const struct str *placeholders; /* searched in field values only */
    unsigned nplaceholders;
    size_t body_min; /* shorter strings are not searched in bodies (E_SCRUB_BODY_MIN) */
};

struct redaction; /* counted, atomic; immutable */
/* NULL: there is nothing to search for. */
struct redaction *redaction_new(const struct redact_list *list);
/* The same and some more strings, of one exchange; base NULL: those alone. */
struct redaction *redaction_with(struct redaction *base, const struct str *more, unsigned n,
                                 size_t body_min);
struct redaction *redaction_ref(struct redaction *r);
void redaction_unref(struct redaction *r); /* NULL is fine */
/* NULL where nothing is searched in bodies. */
const struct matcher *redaction_body(const struct redaction *r);

/* The value with each mark as [REDACTED]; the same text if there is none.  r NULL: the same. */
struct str redact_value(const struct redaction *r, struct str value, struct arena *a);
/* Values of all fields but those of contract 14.2; in place, new texts in the arena.  How many
 * changed. */
unsigned redact_fields(const struct redaction *r, struct field *fields, unsigned n,
                       struct arena *a);

#endif
