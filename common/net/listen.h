/* listen.h — SO_REUSEPORT listeners, one socket per worker, and the limit of client connections.
 *
 * All workers' sockets of one address are bound before any listens, so a taken port is found at the
 * start.  Closing a socket accepts first what waits in its queue (DESIGN 18.1 U20). */
#ifndef NET_LISTEN_H
#define NET_LISTEN_H

#include <stdatomic.h>

#include "net/conn.h"

struct listener;

/* Counts client connections of all workers against the limits; shared. */
struct accept_gate {
    _Atomic int64_t open;
    int64_t max;     /* up to here they are served ... */
    int64_t surplus; /* ... so many more are accepted marked `surplus`, the rest closed at once */
    _Atomic uint64_t refused;
};
void accept_gate_init(struct accept_gate *g, int64_t max, int64_t surplus);

/* A socket bound to `addr` with SO_REUSEPORT, not listening; -1, errno and *ret_error on a fault.
 * With port 0 the kernel chooses; *ret_bound tells. */
int listen_bind(const struct sockaddr *addr, union addr *ret_bound, struct arena *a,
                struct str *ret_error);
/* The same without SO_REUSEPORT: nobody else can have a share of it, and it is listening, so that
 * who comes waits.  For sockets that outlive their process. */
int listen_bind_alone(const struct sockaddr *addr, union addr *ret_bound, struct arena *a,
                      struct str *ret_error);
/* On w's thread (or before it runs): listens on fd, which now belongs to the listener. accept(user,
 * conn) for each connection: the user must conn_attach() before it returns.  gate may be NULL
 * (admin). */
struct listener *listener_start(struct worker *w, int fd, struct accept_gate *gate,
                                void (*accept)(void *user, struct conn *c), void *user);
/* From now on no connection begins; those that have begun are still accepted.  listener_stop()
 * follows when they have had the time. */
void listener_ebb(struct listener *l);
/* Accepts what is queued, then closes. */
void listener_stop(struct listener *l);

#endif
