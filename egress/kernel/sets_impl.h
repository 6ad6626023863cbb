/* sets_impl.h — the names of our sets, shared by who writes them and who reads them. */
#ifndef KERNEL_SETS_IMPL_H
#define KERNEL_SETS_IMPL_H

#include "egress/kernel/netlink_impl.h"
#include "egress/kernel/sets.h"

struct sets {
    struct netlink nl;
};

/* Maps of a layer by kind of range; RULESET texts name them. */
extern const char *const sets_maps[2][RANGE_KINDS];
#define SETS_FALLBACK "fallback"

/* Sets of addresses: IPv4, IPv6. */
struct sets_name {
    unsigned kind;
    const char *name[2];
};
enum { SETS_NAMES = 4 };
extern const struct sets_name sets_names[SETS_NAMES];

#endif
