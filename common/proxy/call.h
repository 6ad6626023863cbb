/* call.h — requests of our own to servers that are asked again and again: pooled connections,
 * HTTP/1.1 or HTTP/2, answers read as they come, trailers too.  (http/client.h is for one request
 * now and then.)  For Kubernetes, the lifecycle API and FastPath. */
#ifndef PROXY_CALL_H
#define PROXY_CALL_H

#include "http/url.h"
#include "proxy/origin.h"

struct caller; /* one server, on one worker */
struct call;

struct caller_rules {
    struct url url;      /* scheme, host, port; its path is put in front of each target.  Copied */
    struct tls_ctx *tls; /* for https; counted.  NULL with http */
    struct str tls_name; /* whom the server must prove to be; empty: the host.  Copied */
    struct names *names; /* who is asked for the host; NULL: the worker's */
    bool h2;             /* HTTP/2: by prior knowledge, or by ALPN with TLS */
    unsigned idle_max;   /* idle connections kept; with h2 at least one */
    uint64_t idle_ms;    /* how long they are */
    uint64_t connect_ms; /* name, connect and TLS */
    /* Each address before it is connected to; NULL: all may be. */
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void *user;
};

struct caller *caller_start(struct worker *w, const struct caller_rules *rules);
struct worker *caller_worker(const struct caller *c);
/* Another context from now on (certificates or authority were read again); idle connections go. */
void caller_set_tls(struct caller *c, struct tls_ctx *tls);
/* Ends its calls without a word to their users, who have to free by themselves what they keep for
 * them, and its connections; memory goes by the loop, also by that of worker_free(). */
void caller_free(struct caller *c);

struct call_request {
    struct str method, target;  /* target: path and query, without the base of the caller */
    const struct field *fields; /* as a head may hold; without Host, lengths and Connection */
    unsigned nfields;
    struct str body;     /* empty: none */
    bool te_trailers;    /* "te: trailers" (gRPC) */
    uint64_t head_ms;    /* from now until the final head, connecting included; > 0 */
    uint64_t silence_ms; /* after the head: between bytes; 0: no limit */
    uint64_t whole_ms;   /* from now to the last byte; 0: no limit */
    size_t max_bytes;    /* of the body; 0: no limit */
};

struct call_events {
    /* The final head; lent as long as the call.  NULL: nobody asks. */
    void (*head)(void *user, const struct http_head *head);
    /* Body, as it comes; the user takes what it wants of b and leaves nothing: what is left is
     * thrown away.  May call_cancel(). */
    void (*data)(void *user, struct buf *b);
    /* Once, last; the call is dead.  OK: the answer is whole, trailers or NULL.  Else as of
     * net/dial.h and http/stream.h: DNS, DIAL, TLS, DENIED, DEADLINE, LIMIT, ORIGIN_GONE,
     * ORIGIN_PROTOCOL, OVERLOAD.  fault: what the connection said, static text, may be empty. */
    void (*done)(void *user, enum why why, const struct http_head *trailers, struct str fault);
};

/* Everything in `r` is copied.  No event comes before this returns.  A request that was written on
 * a kept connection which turned out dead, without a byte of an answer, is sent once more on a new
 * one if its method is idempotent (RFC 9110 section 9.2.2) or nothing of it had left. */
struct call *call_start(struct caller *c, const struct call_request *r,
                        const struct call_events *ev, void *user);
/* Can it be talked to?  A connection that is there, or a new one, and of HTTP/2 its SETTINGS; with
 * h2 it is kept for the first call.  Of `ev` done() alone is told; call_cancel() works. */
struct call *call_reach(struct caller *c, uint64_t timeout_ms, const struct call_events *ev,
                        void *user);
/* No event comes any more; fine within data() and head(), not within done(). */
void call_cancel(struct call *c);

#endif
