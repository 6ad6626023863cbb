/* relay.h — connections that the kernel redirects to us, and the listeners of the explicit proxy
 * (contracts egress-policy 4.6, 4.7, egress-vault 8.1, 15).
 *
 * A redirected connection is looked at before a byte of it goes anywhere; then it is the proxy's,
 * under the sidecar's gate, as a stream of bytes or as HTTP.  All of it lives on one worker. */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include "base/metrics.h"
#include "egress/sidecar.h"

struct relay;
struct proxy;

struct relay_setup {
    struct worker *w;
    const struct sidecar *sidecar; /* settings and events; SLOT_PRODUCT of w */
    struct proxy *proxy;           /* of w, with egress_gate */
};

/* Redirected connections, unless it says otherwise. */
struct relay_counters {
    struct counter accepted, asked; /* asked: to the explicit proxy */
    struct counter full;            /* closed at once: relay_max_connections, of either kind */
    struct counter loops;           /* came straight to us */
    struct counter tls, http, raw;  /* what they were */
    struct counter read;            /* of tls: not passed on as it is */
    struct counter refused;         /* by policy */
    struct counter malformed;       /* TLS that is none */
    struct counter unfinished;      /* ended, or out of time, before they could be told */
};

/* Copies the setup. */
struct relay *relay_new(const struct relay_setup *setup);
/* Listens on a bound socket, which belongs to the relay now: one that connections are redirected
 * to, one of the explicit proxy.  At most RELAY_LISTENERS in all. */
enum { RELAY_LISTENERS = 8 };
void relay_transparent(struct relay *r, int fd);
void relay_explicit(struct relay *r, int fd);
/* A new snapshot is in force on the worker: proxy_recheck(); connections whose TLS is read and
 * would not be any more end after what runs.  What is still looked at is judged by the snapshot of
 * the moment it can be told. */
void relay_recheck(struct relay *r);
/* No connection begins; what was accepted and could not be told yet is closed a moment later. */
void relay_drain(struct relay *r);
/* Closes listeners and what is still looked at. */
void relay_free(struct relay *r);

const struct relay_counters *relay_counters(const struct relay *r);
/* Connections open: redirected ones, to the explicit proxy.  From any thread, like the counters. */
unsigned relay_open(const struct relay *r);
unsigned relay_open_asked(const struct relay *r);

#endif
