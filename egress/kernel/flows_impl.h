/* flows_impl.h — the two halves of a flow: its conntrack entry and its socket. */
#ifndef KERNEL_FLOWS_IMPL_H
#define KERNEL_FLOWS_IMPL_H

#include "egress/kernel/flows.h"
#include "egress/kernel/netlink_impl.h"

enum { TUPLE_BYTES = 160 };

/* An entry as conntrack wants it back. */
struct tracked {
    struct flow flow;
    uint8_t family;
    uint16_t zone;
    bool redirected, answered;
    uint32_t mark;
    uint16_t tuple_len;
    uint8_t tuple[TUPLE_BYTES]; /* payload of the attribute */
};

/* Tells each() of all entries that carry none of our marks. */
must_check int conntrack_dump(struct netlink *nl, void (*each)(void *, const struct tracked *),
                              void *user);
/* The entry of a flow, in whichever direction it was opened. -ENOENT: there is none. */
must_check int conntrack_find(struct netlink *nl, const struct flow *flow, struct tracked *ret);
/* Sets the cut mark; no error if the entry has gone. */
must_check int conntrack_cut(struct netlink *nl, const struct tracked *t);

/* Ends the socket of a flow, if there is one and it is connected; no error if the kernel cannot. */
must_check int sockets_destroy(struct netlink *nl, const struct flow *flow);
/* Tells each() of the open sockets of a protocol, TCP or UDP, that have a far side. */
must_check int sockets_open(struct netlink *nl, uint8_t protocol,
                            void (*each)(void *, const struct flow *), void *user);

#endif
