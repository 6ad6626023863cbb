/* domains.h — names in policies: their canonical form, and which rule covers a name first (contract
 * egress-policy 3.2, 3.3, 3.8).  Pure.
 *
 * A canonical name is in A-labels (UTS 46, non-transitional), lower case, without its final dot. */
#ifndef POLICIES_DOMAINS_H
#define POLICIES_DOMAINS_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/why.h"

enum { NAME_BYTES_MAX = 253, LABEL_BYTES_MAX = 63 };

/* The canonical form of a name or pattern as a person wrote it; ASCII labels are not looked into.
 * The result lies in `a`.  False: a zero byte, no UTF-8, or Unicode that has no A-label form. */
must_check bool name_canonical(struct str text, struct arena *a, struct str *ret);
/* Can a query be for this canonical name (no "*." in front)?  Not if it has an empty or overlong
 * label, is an address literal, or holds what only URLs, ports, wildcards and notes hold. */
bool name_can_match(struct str canonical);
/* Is this canonical name a public suffix: a whole registry, by the ICANN part of the list, or a
 * top-level name the list does not know? */
bool name_is_public_suffix(struct str canonical);
/* The stricter form of contract 3.8: a host name, or "*." and one.  *ret is canonical, "*."
 * included, and lies in `a`. */
must_check bool host_pattern(struct str text, struct arena *a, struct str *ret);

/* ---- many patterns, each with its place in an order */

enum { PATTERNS_NONE = -1 };

struct patterns;

/* An empty index. */
struct patterns *patterns_new(void);
void patterns_free(struct patterns *n);
/* Adds a pattern: the name itself, or with `below` every name below it at any depth.  `canonical`
 * without "*." is copied.  Of equal patterns the lowest place counts. */
void patterns_add(struct patterns *n, struct str canonical, bool below, int place);
/* The lowest place among the patterns that cover `name`, or PATTERNS_NONE.  `name` as a query has
 * it: any letter case, with or without a final dot, unprintable bytes and dots within labels as
 * \DDD. It is not turned into A-labels: whoever takes Unicode from a person calls name_canonical()
 * first. The root and "" match nothing. */
int patterns_first(const struct patterns *n, struct str name);

#endif
