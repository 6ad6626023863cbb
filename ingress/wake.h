/* wake.h — paused sandboxes that a request wakes (contract ingress 12): the parking lot and the
 * flights.
 *
 * A request that has to wait takes a lot (wake_park(), any worker) and tells the owner; the owner,
 * the main worker, joins or opens the flight of (namespace, id): probe, resume, poll, one budget
 * per flight, never cancelled.  Its end is told to every worker at once, by landed(). */
#ifndef INGRESS_WAKE_H
#define INGRESS_WAKE_H

#include "base/metrics.h"
#include "ingress/fastpath/fastpath.h"

struct wake;

/* ---- pure (12.2, 12.3) */
enum wake_phase { WAKE_READY, WAKE_WAKEABLE, WAKE_TERMINAL, WAKE_NOT_READY };
enum wake_phase wake_probe(enum pb_runtime runtime, enum pb_data_plane plane);
/* What the code of a call leads to. */
enum wake_step {
    WAKE_GO_ON, /* GetSandbox: OK, read the state */
    WAKE_POLL,
    WAKE_PROBE_AGAIN,
    WAKE_RETRY,
    WAKE_END_NOT_FOUND,
    WAKE_END_REJECTED,
    WAKE_END_NOT_READY,
    WAKE_END_CANCELED
};
enum wake_step wake_after_get(enum grpc_code code);
enum wake_step wake_after_resume(enum grpc_code code, bool has_checkpoint);
/* The wait before step n (from 0), in µs; random in [0,1). */
uint64_t wake_backoff_us(double interval_ms, double factor, double jitter, unsigned n,
                         double random);

/* ---- running */
struct wake_rules {
    uint64_t budget_ms, call_ms;
    double interval_ms, factor, jitter;
    unsigned park_max;
};

/* How a flight ended: what the waiters are told.  fault ROUTE_MISSING (0): it is ready, resolve
 * again. */
struct wake_end {
    enum fault_id fault;
    struct str value;
    uint64_t at_ms; /* when that was, of the owner's clock: what was learned before is over */
};

struct wake_events {
    /* On the owner's loop, once per flight; key as below, both lent. */
    void (*landed)(void *user, struct str key, const struct wake_end *end);
    /* The flight has reached READY after a resume: one record of activity. */
    void (*woken)(void *user, struct str ns, struct str id);
};

struct wake *wake_new(struct worker *owner, struct caller *fastpath, const struct wake_rules *rules,
                      const struct wake_events *ev, void *user);
/* On the owner's loop, when nothing is parked. */
void wake_free(struct wake *k);

/* The key that exchanges wait for: of (namespace, id). */
struct str wake_key(struct str ns, struct str id, struct arena *a);
/* The same text, cut out of the sandbox_key() of any of its ports. */
struct str wake_key_of(struct str sandbox_key);
/* From any worker: takes a lot; false: there is none.  wake_leave() gives it back, once; how says
 * for the metrics how the wait ended, waited_ms how long it was. */
enum wake_left { WAKE_SERVED, WAKE_EXHAUSTED, WAKE_CANCELED, WAKE_FAILED, WAKE_LEFTS };
bool wake_park(struct wake *k);
void wake_leave(struct wake *k, enum wake_left how, uint64_t waited_ms);
/* From any worker, after wake_park(): the flight of that sandbox is joined or opened.  landed()
 * follows, also where there was nothing to wake.  ms of worker_now(): when the request came. */
void wake_join(struct wake *k, struct str ns, struct str id, uint64_t since_ms);
/* ingress.wake.*, ingress.park.* (14.3). */
void wake_metrics(const struct wake *k, struct metrics_out *o);

#endif
