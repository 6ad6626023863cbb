/* forward.h — the head that goes on to an origin, and where to (contract egress-vault 8.2 step 6,
 * 15).  Pure.
 *
 * Nothing is added and nothing rewritten; what is said to a proxy is ours and goes no further. */
#ifndef EGRESS_FORWARD_H
#define EGRESS_FORWARD_H

#include "egress/sidecar.h"
#include "http/head.h"
#include "net/dial.h"
#include "policies/identity.h"

/* In the arena; fields that stay are not copied.  `authority`: Host where the client sent none.
 * tls: it goes to an origin that is spoken with over TLS. */
struct http_head *forward_head(const struct http_head *h, struct str authority, bool tls,
                               struct arena *a);

/* "name" or an address, an IPv6 one in brackets. */
struct str host_text(const struct host *h, struct arena *a);

/* Where requests for one host on one way lead. */
struct reach {
    struct dial_to to;
    struct str pool; /* nothing is shared across hosts, nor between those who chose the address and
                        those who did not, nor between TLS and clear text */
};
/* c: redirected, or asked of the explicit proxy; host: the name that was judged for it, or the
 * address.  read: the TLS of its client ends here, so that TLS to the origin is ours; h2: which may
 * then choose HTTP/2.  In the arena. */
struct reach reach_to(const struct sidecar *s, const struct identity_conn *c,
                      const struct host *host, bool read, bool h2, struct arena *a);
/* Nobody asks the parent for itself: what is asked of it inside such a tunnel is judged by none. */
bool reach_is_parent(const struct sidecar *s, const struct identity_conn *c,
                     const struct host *host);

#endif
