/* fastpath_impl.h — the inside of the resolver: fastpath.c (its life) and entries.c (what is asked
 * and kept). */
#ifndef INGRESS_FASTPATH_FASTPATH_IMPL_H
#define INGRESS_FASTPATH_FASTPATH_IMPL_H

#include "base/list.h"
#include "base/map.h"
#include "ingress/fastpath/fastpath.h"
#include "net/worker.h"

enum fast_state { FAST_REACHING, FAST_READY, FAST_FAILED };

struct fastpath {
    struct worker *w;
    struct resolver_events ev;
    void *user;
    struct arena mem;
    enum fast_state state;
    struct caller *caller;
    struct call *reach; /* REACHING; NULL between two tries */
    struct timer timer; /* REACHING: the next try; READY: the sweep */
    uint64_t start_ms;
    enum why why; /* why it was not reached; OK: no try has failed */
    struct str fault;
    struct str endpoint;
    enum pb_access access;
    uint64_t call_ms;
    struct map *entries;
    struct list by_want; /* wanted last at the end */
    uint64_t calls[GRPC_CODES], overflows;
};

/* What is known of a key. */
struct entry {
    struct list link;
    struct fastpath *f;
    struct grpc *flight;    /* NULL: nobody is asked */
    struct sandbox *record; /* what the tables have; NULL: nothing */
    uint64_t asked_ms;      /* when the flight began, of the monotonic clock */
    uint64_t wanted_ms;     /* when somebody last wanted it, or found it wrong; of worker_now() */
    int64_t expires_unix_s; /* of the record's credential; 0: there is none */
    struct str key, ns, id;
    char text[];
};

/* As struct resolver has them. */
void entries_want(void *fastpath, const struct want *want);
void entries_drop(void *fastpath, struct str key, uint64_t generation);
/* What is over is reported gone. */
void entries_sweep(struct fastpath *f);
/* Nothing is told. */
void entries_end(struct fastpath *f);

#endif
