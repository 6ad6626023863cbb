/* fastpath.h — the resolver that asks FastPath (contract ingress 7.5), and what it shares with
 * wake.h.
 *
 * The resolver: `fastpath_resolver` of ingress/resolver.h; asks, key of sandbox_key().  A record is
 * RUNNING with one endpoint (port 0, the URL's parts, the credential to add), fresh until 5 s
 * before the credential ends (until_unix_s is "never", so that a credential that is given out again
 * keeps its record); or NOT_READY (a 503) or FAILED with the fault of 7.5, learned for this asking
 * only (fresh_ms = learned_ms).  Every fault but "not found" is a doubt.  What is over is
 * reported gone within a minute; where something ran when there was no doubt, when nobody has
 * wanted it for ten. */
#ifndef INGRESS_FASTPATH_FASTPATH_H
#define INGRESS_FASTPATH_FASTPATH_H

#include "ingress/fastpath/grpc.h"
#include "ingress/fastpath/pb.h"
#include "ingress/resolver.h"

/* What an answer of ResolveEndpoint comes to, pure: RUNNING, or the fault.  Texts in the arena.
 * now_s: Unix time. */
struct fast_route {
    enum fault_id fault; /* ROUTE_MISSING (0): none */
    struct str fault_value, reason;
    struct endpoint end;
    struct endpoint_url url; /* end.url points here */
    struct field add;
    int64_t expires_unix_s;
};
void fast_route_read(const struct pb_resolved *r, int64_t now_s, struct arena *a,
                     struct fast_route *ret);
/* The fault of a code; OK is none. */
enum fault_id fast_fault(enum grpc_code code);
enum { FAST_NEAR_EXPIRY_S = 5 };
/* May a credential that ends then still be used? */
bool fast_fresh(int64_t expires_unix_s, int64_t now_s);

/* ready() comes when there is a connection to --fastpath-endpoint and the server has said its
 * SETTINGS; failed() when there is none after 5 s. */
extern const struct resolver fastpath_resolver;
/* The connection of a started resolver, for other calls of the service; lent. */
struct caller *fastpath_caller(void *self);
extern const char fastpath_service[]; /* "fastpath.v2.FastPathService" */

#endif
