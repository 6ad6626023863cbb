/* rules.h — an ordered list of rules, immutable once it is shared (contract egress-policy 3). */
#ifndef POLICIES_RULES_H
#define POLICIES_RULES_H

#include "policies/target.h"

struct rule {
    struct target target;
    bool allow;
};

/* A list is filled by the one who made it, then only read.  Its count of references is atomic. */
struct rules {
    const struct rule *at; /* in list order */
    unsigned n;
};

/* An empty list with one reference. */
struct rules *rules_new(void);
const struct rules *rules_ref(const struct rules *r);
void rules_unref(const struct rules *r);
/* Appends a rule read from its text; on a fault the list is as before. */
must_check enum target_fault rules_add(struct rules *r, bool allow, struct str target);
/* Appends a copy of a rule that was read before. */
void rules_copy(struct rules *r, const struct rule *rule);
/* Have two lists the same rules, whatever their order and however often (3.6)?  NULL is an empty
 * list. */
bool rules_same(const struct rules *a, const struct rules *b);
/* What a person should know about these rules (2.3): wildcards over a whole public suffix, targets
 * that can never match, and, unless addresses are enforced, address rules.  One line, "" if there
 * is nothing; each kind names a few targets and counts the rest.  Lies in `a`. */
struct str rules_warnings(const struct rules *r, bool addresses_enforced, struct arena *a);

#endif
