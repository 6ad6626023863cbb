/* free_names.h — names outside of the policy, for whom the operator wants to be reached: the
 * webhook, the upstream proxy, the collector (contract egress-policy 6.1, 10.3).  The workload is
 * told nothing of them and nothing is learned. */
#ifndef DNS_FREE_NAMES_H
#define DNS_FREE_NAMES_H

#include "net/nameserver.h"
#include "net/resolve.h"

struct free_names {
    struct worker *w;
    struct nameservers *servers;
};

/* Asks these servers; `names` and they outlive it (names_free()). */
struct names *free_names_new(struct free_names *names);

#endif
