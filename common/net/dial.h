/* dial.h — to a host and port: resolve, ask the caller about each address, connect, with one
 * deadline over all. */
#ifndef NET_DIAL_H
#define NET_DIAL_H

#include "net/conn.h"

struct dial;
struct worker;

struct dial_to {
    struct str host; /* address (IPv6 with or without brackets) or name */
    uint16_t port;
};

/* allow(user, address): WHY_OK, or the address is passed over with that reason.  done(user, conn,
 * WHY_OK) with a connected conn the user must conn_attach() before it returns; or (user, NULL,
 * why): DNS, DENIED (no address was allowed), DIAL (refused, unreachable), DEADLINE, OVERLOAD (out
 * of descriptors).  Once, never before this returns.  `to` is copied. */
struct dial *dial_start(struct worker *w, const struct dial_to *to, uint64_t timeout_ms,
                        enum why (*allow)(void *user, const struct sockaddr *addr),
                        void (*done)(void *user, struct conn *c, enum why why), void *user);
/* done() will not be called; an attempt under way is given up. */
void dial_cancel(struct dial *d);
/* Of the attempt that just ended, within done(): errno of the last connect, 0 if there was none;
 * and the address tried. */
int dial_errno(const struct dial *d);

#endif
