/* intercept.h — a client's TLS connection that is read: the origin first where its choice of
 * protocol counts, then a leaf of ours for the client, then the proxy's (contract egress-vault 8.1,
 * 15).  All of it on one worker. */
#ifndef INTERCEPT_INTERCEPT_H
#define INTERCEPT_INTERCEPT_H

#include "base/metrics.h"
#include "egress/caller.h"
#include "egress/relay/hello.h"
#include "egress/sidecar.h"

struct intercept;
struct proxy;
struct mint;

struct intercept_setup {
    struct worker *w;
    const struct sidecar *sidecar;
    struct proxy *proxy;
    struct mint *mint;
    struct tls_ctx *server; /* towards clients; counted */
    uint64_t handshake_ms;
};

struct intercept_counters {
    struct counter begun;
    struct counter failed;  /* the client's handshake: most often a client that does not trust us */
    struct counter foreign; /* ALPN without h2 and http/1.1: alert 120 */
    struct counter refused; /* opened only to be refused */
};

struct intercept *intercept_new(const struct intercept_setup *setup);
/* conn is accepted, looked at and has all its bytes untaken; its note is `p`, with kind, to, port,
 * sni (and target).  refused: each request will be refused, so that nothing is dialled.  Must
 * conn_attach().  `h` is lent. */
void intercept_begin(struct intercept *i, struct conn *conn, struct caller *p,
                     const struct hello *h, bool refused);
/* Leaves come from this one from now on; those before it are not asked any more. */
void intercept_mint(struct intercept *i, struct mint *mint);
/* Nothing new; what shakes hands is closed when its deadline comes. */
void intercept_drain(struct intercept *i);
void intercept_free(struct intercept *i); /* NULL is fine; closes what shakes hands */
const struct intercept_counters *intercept_counters(const struct intercept *i);

#endif
