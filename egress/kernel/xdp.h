/* xdp.h — guards against AF_XDP, whose frames pass no hook of the kernel (K15; contract
 * egress-policy 4.8): one socket may be bound to a device's queue, so ours is.
 *
 * Not for two threads at a time. */
#ifndef KERNEL_XDP_H
#define KERNEL_XDP_H

#include "base/mem.h"

enum { XDP_GUARDS_MAX = 160, XDP_NAME_BYTES = 48, XDP_GONE_MAX = 32 };

struct xdp_guard {
    char name[XDP_NAME_BYTES]; /* "xdp:DEVICE:NUMBER:QUEUE" */
    int fd;
    bool fresh; /* made by xdp_hold(); the caller clears it */
};

struct xdp {
    struct xdp_guard at[XDP_GUARDS_MAX];
    unsigned n;
    char gone[XDP_GONE_MAX][XDP_NAME_BYTES]; /* names that hold nothing any more, some of them */
    unsigned ngone;
    unsigned unguarded; /* queues that could not be taken */
    bool unknown;       /* the kernel has no AF_XDP: there is nothing to guard against */
};

void xdp_init(struct xdp *x);
void xdp_done(struct xdp *x);
/* A guard of a predecessor's, by its name.  False: it is no such socket; fd stays the caller's. */
bool xdp_take(struct xdp *x, struct str name, int fd);
/* Takes what is free of all queues of these devices. */
void xdp_hold(struct xdp *x, const struct str *devices, unsigned n);

#endif
