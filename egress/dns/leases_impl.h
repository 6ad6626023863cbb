/* leases_impl.h — what leases.c and leases_change.c share. */
#ifndef DNS_LEASES_IMPL_H
#define DNS_LEASES_IMPL_H

#include "base/list.h"
#include "base/map.h"
#include "egress/dns/leases.h"

enum {
    LEASE_KINDS = 3,
    LEASE_LONGEST_S = 360,
    /* The kernel counts whole seconds from when it got to an order: so much longer may it keep an
     * address than our books say. */
    LEASE_SLACK_MS = 15000,
    /* A lease that is over for less may be in use: the next poll will tell. */
    LEASE_LATE_MS = LEASES_POLL_MS + LEASE_SLACK_MS
};

struct lease_name {
    struct list leases;
    unsigned n, kinds;
    unsigned next; /* kinds by the rules that leases_change.c looks at */
    size_t len;
    char text[];
};

struct lease_ip {
    struct ip ip;
    struct list leases;
    uint64_t until[LEASE_KINDS]; /* ms: what the kernel has acknowledged, for each kind */
    uint64_t asked[LEASE_KINDS]; /* ms: the longest time it was asked for; it may have that */
    unsigned n;
    bool active; /* in use at the last poll */
};

struct lease {
    struct list in_name, in_ip;
    struct lease_name *name;
    struct lease_ip *ip;
    uint64_t until; /* ms; 0: the kernel has not acknowledged it yet */
    uint64_t asked; /* ms: when it was last wanted */
};

/* Which leases an order is for: the name's own, all of its addresses, or none, for it only brings
 * addresses into sets in which their leases want them too. */
enum order_for { ORDER_FOR_NAME, ORDER_FOR_ALL, ORDER_FOR_SETS };

/* What the kernel was asked and has not acknowledged. */
struct lease_order {
    struct list link;
    struct leases *leases;
    uint64_t at;
    unsigned kinds;
    unsigned policy; /* as leases.policy was */
    enum order_for what;
    void (*done)(void *arg, bool ok);
    void *arg;
    struct str name;
    size_t n;
    struct lease_address address[];
};

struct leases {
    struct map *names, *ips;
    struct list orders;
    unsigned n;
    unsigned policy; /* counts the changes */
    struct leases_limits limits;
    struct leases_kernel kernel;
    bool told; /* there is a kernel */
    uint64_t swept, full, failed;
};

static inline struct str lease_ip_key(const struct ip *ip)
{
    return (struct str){(const char *)ip->b, sizeof ip->b};
}

/* When a lease can be forgotten, ms: the kernel may keep its address for longer than it runs. */
static inline uint64_t lease_end(const struct lease *lease)
{
    uint64_t end = lease->until;
    for (unsigned k = 0; k < LEASE_KINDS; k++)
        if (lease->ip->asked[k] > end)
            end = lease->ip->asked[k];
    return end;
}

/* Takes a lease out, and its name and address with the last one. */
void lease_drop(struct leases *l, struct lease *lease);
/* Takes all those out that are over(). */
void lease_drop_if(struct leases *l, bool (*over)(const struct lease *lease, uint64_t now_ms),
                   uint64_t now_ms);
/* Notes in a lease's address that the kernel keeps it for these kinds until then. */
void lease_ip_raise(struct lease_ip *ip, unsigned kinds, uint64_t until);
/* Asks the kernel for one address; nobody is told. */
void lease_ask_address(struct leases *l, enum order_for what, struct str name, unsigned kinds,
                       const struct lease_address *address, uint64_t now_ms);
/* Asks the kernel for addresses of a name; done(arg, ok) when their leases run. */
void lease_ask(struct leases *l, struct str name, unsigned kinds, const struct lease_address *list,
               size_t n, uint64_t now_ms, void (*done)(void *arg, bool ok), void *arg);

#endif
