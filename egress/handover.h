/* handover.h — what a worker of the sidecar takes over from its predecessor and leaves to its
 * successor, by way of the supervisor: sockets that listen, marks, the list of name servers, the
 * user's policy (contract egress-policy 7.3).  Without a supervisor every start is a fresh one.
 *
 * All of it blocks, for KEEP_WAIT_MS a call at most. */
#ifndef EGRESS_HANDOVER_H
#define EGRESS_HANDOVER_H

#include "egress/supervisor/keep.h"
#include "net/addr.h"
#include "policies/document.h"

/* Random, different, not 0 (E10). */
struct marks {
    uint32_t own;           /* of our sockets; has RULESET_OURS_BIT */
    uint32_t pass;          /* of a packet between the verdict and the device */
    uint32_t group;         /* the same for multicast and broadcast */
    uint32_t pass_priority; /* the second half of `pass` */
};

struct handover;

/* Asks the supervisor for what there is.  What is found lies in `a`. */
struct handover *handover_open(struct arena *a);
/* Closes what nobody took. */
void handover_close(struct handover *h);
/* Is there somebody who keeps things? */
bool handover_kept(const struct handover *h);
/* Has a worker run before this one, under the same supervisor? */
bool handover_succeeds(const struct handover *h);

/* The predecessor's, or new ones. */
struct marks handover_marks(struct handover *h);
/* A socket of that name: the predecessor's, else a new one, which is left for the successor.  It is
 * the caller's.  -1, errno and *ret_error as of listen_bind_alone() and udp_bind(). */
int handover_listen(struct handover *h, const char *name, const union addr *at, struct arena *a,
                    struct str *ret_error);
int handover_udp(struct handover *h, const char *name, const union addr *at, struct arena *a,
                 struct str *ret_error);
/* Any other descriptor; -1: what was left under that name is dropped. */
void handover_leave(struct handover *h, const char *name, int fd);
/* All whose names begin so, at most HANDOVER_GUARDS; fds are the caller's. */
enum { HANDOVER_GUARDS = 128 };
struct enforce_guard;
unsigned handover_guards(struct handover *h, const char *prefix, struct enforce_guard *ret);
/* What the predecessor left under that name; false: nothing.  In the arena of handover_open(). */
bool handover_text(struct handover *h, const char *name, struct str *ret);
/* Leaves it; false: it could not be, which has been logged. */
bool handover_leave_text(struct handover *h, const char *name, struct str text);
/* For the user's policy, where no file keeps it.  From a thread of the pool. */
bool handover_leave_policy(struct handover *h, const struct document *d);

#define HANDOVER_POLICY "policy"
#define HANDOVER_UPSTREAMS "upstreams"

#endif
