/* ranges.h — an ordered list of address rules, first match wins, as sorted ranges that do not
 * overlap, each with its verdict: what decisions look up, and what the kernel is given (contract
 * egress-policy 3.4).  Pure.
 *
 * Single addresses are apart from ranges, IPv4 from IPv6.  An address that stands among the single
 * ones is decided there, whatever the ranges say. */
#ifndef POLICIES_RANGES_H
#define POLICIES_RANGES_H

#include "policies/cidr.h"

struct range_rule {
    struct cidr net;
    uint32_t number; /* the caller's name for it */
    bool allow;
};

struct range {
    struct ip lo, hi; /* both included; of one family */
    uint32_t number;  /* of the rule that decides */
    bool allow;
};

struct range_list {
    const struct range *at; /* ascending, disjoint */
    size_t n;
};

enum range_kind { RANGES_V4_SINGLE, RANGES_V4, RANGES_V6_SINGLE, RANGES_V6, RANGE_KINDS };

struct ranges {
    struct range_list list[RANGE_KINDS];
};

/* What n rules in list order decide.  The lists lie in `a`. */
struct ranges ranges_compile(const struct range_rule *rules, size_t n, struct arena *a);
/* The range that decides about an address, or NULL: no rule covers it. */
const struct range *ranges_find(const struct ranges *r, const struct ip *ip);
/* The same verdicts in as few ranges as there can be, single addresses untouched; the number of a
 * joined range is that of its first part.  For the kernel.  The lists lie in `a`, or are r's. */
struct ranges ranges_joined(const struct ranges *r, struct arena *a);

/* What to take out of the kernel and what to put in, so that `old` becomes `fresh`: exactly the
 * ranges that one has and the other has not, with bounds and verdict. */
struct ranges_change {
    struct range_list remove[RANGE_KINDS], add[RANGE_KINDS];
    size_t n; /* ranges in all lists */
};
/* old NULL: nothing is there yet.  The lists lie in `a`. */
struct ranges_change ranges_diff(const struct ranges *old, const struct ranges *fresh,
                                 struct arena *a);

#endif
