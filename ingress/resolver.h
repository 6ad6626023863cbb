/* resolver.h — what finds sandboxes, and the record it finds.
 *
 * A resolver is one struct of functions that runs on one owner worker and reports puts and
 * removals; table.c carries them to every worker.  A sandbox is one counted record that all tables
 * share (DESIGN 14).
 *
 * Two kinds.  One that *watches* (static file, Kubernetes) reports what there is, and a key that no
 * table has is unknown.  One that *asks* (lifecycle API, FastPath) is told what is wanted, and
 * answers with a record under that key, also for what is not there or could not be learned; the
 * record says how long it may be used, and is reported gone when nobody has wanted it for a while.
 */
#ifndef INGRESS_RESOLVER_H
#define INGRESS_RESOLVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "base/why.h"
#include "ingress/faults.h"

struct worker;
struct ingress_settings;
struct tls_ctx;

/* RUNNING has an endpoint.  TERMINATED is answered as not found, NOT_READY and AMBIGUOUS with the
 * fault of that name, FAILED with sandbox.fault.  (Packed: there may be 100,000 records.) */
enum __attribute__((packed)) sandbox_state {
    SANDBOX_RUNNING,
    SANDBOX_NOT_READY,
    SANDBOX_TERMINATED,
    SANDBOX_AMBIGUOUS,
    SANDBOX_FAILED
};
enum __attribute__((packed)) wire { WIRE_DEFAULT, WIRE_AUTO, WIRE_H1, WIRE_H2C };

/* What an endpoint that was given as a URL has beyond its host and port. */
struct endpoint_url {
    struct str authority; /* what Host says; empty: host and port that are dialled */
    struct str path;  /* without trailing slashes; in front of the request's own (contract 8.1) */
    struct str query; /* without '?'; in front of the request's own */
    const struct field *add; /* set on each request in place of the client's lines of that name;
                                names in lower case.  May be secret: wiped with the record */
    unsigned nadd;
};

/* Where a port leads. */
struct endpoint {
    struct str host; /* address without brackets, or name */
    uint16_t port;   /* asked for; 0: any */
    uint16_t to;     /* dialled; 0: the one asked for */
    enum wire wire;
    bool tls;                       /* the host must prove itself (system roots) */
    const struct endpoint_url *url; /* NULL: nothing of all that */
};

struct sandbox {
    _Atomic unsigned refs;
    unsigned nends;
    struct str key;       /* what tables know it by: of watching resolvers the id, of asking ones
                             sandbox_key() */
    struct str ns;        /* namespace; empty where the id alone counts */
    struct str id, token; /* token: trimmed; empty: open */
    enum sandbox_state state;
    _Atomic bool quiet;          /* sandbox_let_go() */
    enum fault_id fault;         /* FAILED, NOT_READY: what the client is told; ROUTE_MISSING (0):
                                    the usual of that state */
    struct str fault_value;      /* its %v */
    struct str reason;           /* why it is not ready, for the log */
    const struct endpoint *ends; /* nends of them, by port; the last one is for all others */
    int64_t until_unix_s;        /* from this second on it is gone; INT64_MAX: never */
    uint64_t generation;         /* unique per record: pools are keyed by it (I6) */
    uint64_t instance;           /* of what goes by this id, where that may be made anew under it */
    struct str pool;             /* text of id and generation, key of its backend connections */
    const struct sandbox *ran;   /* of a doubt: sandbox_ran() of the one before, counted; of it no
                                    client is told anything */
    /* Of asking resolvers, ms of worker_now(): when the call began that taught it last, and until
     * when nobody needs to ask again.  The resolver alone moves both on, when it learns that the
     * rest still holds.  UINT64_MAX: always. */
    _Atomic uint64_t learned_ms, fresh_ms;
};

/* A record whose texts are copies, with one reference; generation and pool are made here, and key
 * is the id where `from` has none. */
struct sandbox *sandbox_new(const struct sandbox *from);
/* The same with the generation and the pool of `old`, which is let go: what runs goes on under the
 * new record.  For what changed without the way there having changed: a later end, another
 * credential. */
struct sandbox *sandbox_renew(const struct sandbox *from, const struct sandbox *old);
/* The same for what could not be learned (`from` does not run): the new record remembers what ran,
 * so that what is learned next decides about it.  old: NULL where nothing was known. */
struct sandbox *sandbox_doubt(const struct sandbox *from, const struct sandbox *old);
/* What runs in its pool as far as anybody knows: itself, or what a doubt is about; NULL: nothing.
 */
const struct sandbox *sandbox_ran(const struct sandbox *s);
/* From now on its removal or replacement ends nothing that runs: another record has its pool, or it
 * is only forgotten, for want of room or of somebody who asks.  (What runs on one that is forgotten
 * is nobody's: it ends by itself.)  The resolver says so before it reports that; who is told that
 * it is gone asks. */
void sandbox_let_go(const struct sandbox *s);
bool sandbox_is_let_go(const struct sandbox *s);
const struct sandbox *sandbox_ref(const struct sandbox *s);
void sandbox_unref(const struct sandbox *s);
/* Equal in everything but generation, count, times and what ran: then the record that is there
 * stays. */
bool sandbox_same(const struct sandbox *a, const struct sandbox *b);
/* The way there is the same as that to sandbox_ran(old), it only ends at another time: see
 * sandbox_renew(). */
bool sandbox_prolonged(const struct sandbox *old, const struct sandbox *said);
/* Is `to` (or NULL) the sandbox that ran, running, open to the same clients, at another place? */
bool sandbox_moved(const struct sandbox *from, const struct sandbox *to);
/* The endpoint for a port; never NULL for a running sandbox. */
const struct endpoint *sandbox_endpoint(const struct sandbox *s, uint16_t port);
/* Key of a port of a sandbox at an asking resolver: namespace, id and port, told apart by a byte
 * that none of them has (LF). */
struct str sandbox_key(struct str ns, struct str id, uint16_t port, struct arena *a);

struct resolver_events {
    void (*ready)(void *user); /* the first complete list is in, or the server can be asked */
    void (*change)(void *user, const struct sandbox *const *put, size_t nput,
                   const struct str *gone, size_t ngone);
    /* Asking: the record under this key says the same as before and was learned anew. */
    void (*same)(void *user, struct str key);
    /* It will never be ready: one line, the start ends with exit 2.  Not after ready(). */
    void (*failed)(void *user, struct str error);
};

/* What a request wants to know. */
struct want {
    struct str key, ns, id;
    uint16_t port;
    struct str request_id; /* of the request that asks */
};

/* Everything on the owner's loop. */
struct resolver {
    const char *name;
    bool asks;
    /* --check: the line a start would end with, if there is one.  NULL: nothing to look at. */
    bool (*check)(const struct ingress_settings *s, struct arena *a, struct str *ret_error);
    /* NULL and one line on a fault; then no event comes. */
    void *(*start)(struct worker *w, const struct ingress_settings *s,
                   const struct resolver_events *ev, void *user, struct arena *a,
                   struct str *ret_error);
    /* Asking: single flight per key; change() or same() under that key follows, whatever happens,
     * within the resolver's own deadline. */
    void (*want)(void *self, const struct want *want);
    /* Asking: what is known of this key has proved wrong (a connect failed, the route is stale): if
     * it is still the record of that generation, nobody uses it before it has been asked about
     * anew.  It stays in the tables, so that the next answer decides about what runs there. */
    void (*drop)(void *self, struct str key, uint64_t generation);
    /* SIGHUP: files again. */
    void (*reload)(void *self);
    void (*stop)(void *self);
    /* Its families; and a line for /readyz while ready() has not come, or "": what is missing. Both
     * may be NULL. */
    void (*metrics)(void *self, struct metrics_out *o);
    struct str (*unready)(void *self, struct arena *a);
    /* ms since whoever it asks last said something; NULL: of no meaning. */
    uint64_t (*age_ms)(void *self);
};

extern const struct resolver static_resolver, lifecycle_resolver, kube_resolver, fastpath_resolver;

#endif
