/* netlink_impl.h — what the netlink modules of this folder share: a socket, requests, dumps,
 * batches.
 *
 * All calls are synchronous and short: the kernel has done the work when send() returns, and its
 * answers are queued by then.  Results are 0 or a negative errno. */
#ifndef KERNEL_NETLINK_IMPL_H
#define KERNEL_NETLINK_IMPL_H

#include <libmnl/libmnl.h>

#include "base/mem.h"
#include "base/why.h"

enum { NETLINK_DUMP_TRIES = 8 };

struct netlink {
    struct mnl_socket *socket;
    uint32_t seq;
};

/* protocol: NETLINK_NETFILTER or NETLINK_SOCK_DIAG, in the namespace of the calling thread. */
must_check int netlink_open(struct netlink *nl, int protocol);
void netlink_close(struct netlink *nl);
/* The head of a message at p, which has MNL_SOCKET_BUFFER_SIZE bytes; its sequence number is the
 * next one. */
struct nlmsghdr *netlink_begin(struct netlink *nl, void *p, uint16_t type, uint16_t flags);
/* Sends a request and waits for its acknowledgement (the flag is set here). */
must_check int netlink_ask(struct netlink *nl, struct nlmsghdr *request);
/* Sends a request and tells each() of every message that comes back; each() returns 0, or a
 * negative errno, which is the result then.  -EINTR: what was dumped changed meanwhile. */
must_check int netlink_dump(struct netlink *nl, struct nlmsghdr *request,
                            int (*each)(const struct nlmsghdr *, void *), void *user);
/* Sends a batch whose last message has the sequence number and asks for an acknowledgement: all of
 * it is in force (0), or nothing (-errno, the first fault). -ENOBUFS: cannot be told. */
must_check int netlink_send_batch(struct netlink *nl, const void *p, size_t n, uint32_t last_seq);

/* The attribute of that type directly inside a nest; NULL: none, or no nest. */
const struct nlattr *netlink_inside(const struct nlattr *nest, uint16_t type);

#endif
