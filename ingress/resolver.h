/* resolver.h — what finds sandboxes, and the record it finds.
 *
 * A resolver is one struct of functions that runs on one owner worker and reports puts and
 * removals; table.c carries them to every worker.  A sandbox is one immutable counted record that
 * all tables share (DESIGN 14). */
#ifndef INGRESS_RESOLVER_H
#define INGRESS_RESOLVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/why.h"

struct worker;

enum sandbox_state { SANDBOX_RUNNING, SANDBOX_NOT_READY, SANDBOX_TERMINATED, SANDBOX_AMBIGUOUS };
enum wire { WIRE_DEFAULT, WIRE_AUTO, WIRE_H1, WIRE_H2C };

/* Where a port leads. */
struct endpoint {
    uint16_t port;   /* asked for; 0: any */
    uint16_t to;     /* dialled; 0: the one asked for */
    struct str host; /* address without brackets, or name */
    enum wire wire;
};

struct sandbox {
    _Atomic unsigned refs;
    struct str id, token; /* token: trimmed; empty: open */
    enum sandbox_state state;
    struct str reason;           /* why it is not ready, for the log */
    const struct endpoint *ends; /* by port; the last one is for all others */
    unsigned nends;
    int64_t until_unix_s; /* from this second on it is gone; INT64_MAX: never */
    uint64_t generation;  /* unique per record: pools are keyed by it (I6) */
    struct str pool;      /* text of id and generation, key of its backend connections */
};

/* A record whose texts are copies, with one reference; generation and pool are made here. */
struct sandbox *sandbox_new(const struct sandbox *from);
const struct sandbox *sandbox_ref(const struct sandbox *s);
void sandbox_unref(const struct sandbox *s);
/* Equal in everything but generation and count: then the record that is there stays. */
bool sandbox_same(const struct sandbox *a, const struct sandbox *b);
/* The endpoint for a port; never NULL for a running sandbox. */
const struct endpoint *sandbox_endpoint(const struct sandbox *s, uint16_t port);

struct resolver_events {
    void (*ready)(void *user); /* the first complete list is in */
    void (*change)(void *user, const struct sandbox *const *put, size_t nput,
                   const struct str *gone, size_t ngone);
};

#endif
