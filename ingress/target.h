/* target.h — which addresses may be dialled (contract ingress 7.1, I7).  Pure. */
#ifndef INGRESS_TARGET_H
#define INGRESS_TARGET_H

#include "base/ip.h"
#include "policies/cidr.h"

/* One of our own listeners; any: bound to all addresses, so every address of the machine at that
 * port is ours. */
struct own_listener {
    struct ip ip;
    bool any;
    uint16_t port;
};

struct target_rules {
    struct cidr_set allow; /* --allow-target-cidr */
    bool loopback;         /* the static resolver names its targets itself */
    const struct own_listener *own;
    unsigned nown;
    const struct ip *local; /* addresses of this machine, for listeners on all addresses */
    unsigned nlocal;
};

bool target_allowed(const struct target_rules *rules, const struct ip *ip, uint16_t port);

/* --deny-ports: "22,8000-8010"; sorted, disjoint. */
struct port_range {
    uint16_t from, to;
};
struct port_set {
    const struct port_range *ranges;
    unsigned n;
};
bool port_set_parse(struct str list, struct arena *a, struct port_set *ret, struct str *ret_bad);
bool port_set_has(const struct port_set *s, uint16_t port);

#endif
