/* target.h — what a rule is about: a name, an address or a range, read from its text (contract
 * egress-policy 3.2).  Pure. */
#ifndef POLICIES_TARGET_H
#define POLICIES_TARGET_H

#include "base/why.h"
#include "policies/cidr.h"

enum target_kind { TARGET_NAME, TARGET_ADDRESS, TARGET_RANGE };

struct target {
    struct str text; /* as written, trimmed */
    struct str key;  /* equal for targets that edits take for the same (2.5) */
    struct str name; /* of a name: canonical, without "*." */
    struct cidr net; /* of an address or range */
    enum target_kind kind;
    bool below; /* of a name: "*." stood in front */
    bool inert; /* a name that no query can be for */
};

enum target_fault { TARGET_OK, TARGET_EMPTY, TARGET_CONTROL, TARGET_NO_ALABEL };

/* Reads a target; its texts lie in `a`. */
must_check enum target_fault target_parse(struct str text, struct arena *a, struct target *ret);
/* The same target with its texts in another arena. */
struct target target_copy(const struct target *t, struct arena *a);
/* The text to show for a fault, without a full stop: "egress target cannot be empty" … */
struct str target_fault_text(enum target_fault fault);
/* A wildcard over a whole public suffix, such as "*.com"? */
bool target_is_broad(const struct target *t);
/* `s` without white space at both ends: ASCII's, and Unicode's White_Space. */
struct str target_trim(struct str s);

#endif
