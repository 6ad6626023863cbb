/* forward.h — the head that goes on to an origin (contract egress-vault 8.2 step 6, 15).  Pure.
 *
 * Nothing is added and nothing rewritten; what is said to a proxy is ours and goes no further. */
#ifndef EGRESS_FORWARD_H
#define EGRESS_FORWARD_H

#include "http/head.h"

/* In the arena; fields that stay are not copied.  `authority`: Host where the client sent none. */
struct http_head *forward_request(const struct http_head *h, struct str authority, struct arena *a);

#endif
