/* worker.h — one thread, one loop, and everything the loop touches.  Nothing here is shared between
 * workers.
 *
 * Four promises of the whole program hang on it: what died in a turn is freed when the turn ends
 * (worker_bury); a worker is told things by others only through its mailbox (worker_post); calls
 * that block run elsewhere, in order (worker_call); a request sees one configuration all its life
 * (pin). */
#ifndef NET_WORKER_H
#define NET_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/wheel.h"

struct worker;
struct snapshot;

/* ---- life.  index: 0.. for serving workers; the main thread has one too, which serves nothing. */
struct worker *worker_new(unsigned index);
/* Runs the loop on the calling thread until worker_stop(). */
void worker_run(struct worker *w);
/* Runs it on a thread of its own; worker_join() waits for the end. */
void worker_start(struct worker *w);
void worker_join(struct worker *w);
/* From any thread: the loop ends after the current turn. */
void worker_stop(struct worker *w);
/* When it no longer runs and its users are gone.  Handles still open are closed. */
void worker_free(struct worker *w);
/* One turn without waiting; for tests that drive the loop themselves. */
void worker_turn(struct worker *w);

/* Cores this process may use: how many workers to run. */
unsigned worker_cores(void);
unsigned worker_index(const struct worker *w);
struct chunk_pool *worker_pool(struct worker *w);
/* ms on the monotonic clock, cached per turn. */
uint64_t worker_now(const struct worker *w);
/* µs on the monotonic clock, exact; for durations. */
uint64_t worker_now_us(const struct worker *w);
/* Wall clock, s and ms. */
int64_t worker_unix_s(const struct worker *w);
uint64_t worker_unix_ms(const struct worker *w);

/* What upper layers keep per worker: a slot each, theirs to free. */
enum worker_slot { SLOT_NET, SLOT_NAMES, SLOT_PROXY, SLOT_PRODUCT, SLOT_APP, WORKER_SLOTS };
void *worker_get(const struct worker *w, enum worker_slot slot);
void worker_set(struct worker *w, enum worker_slot slot, void *p);

/* ---- time */
/* (Re-)arms a timer (timer_init() first) to fire in ms; O(1). */
void timer_set(struct worker *w, struct timer *t, uint64_t ms);
void timer_clear(struct worker *w, struct timer *t);

/* ---- memory */
/* free_fn(p) as this turn ends, when no event is on the stack. */
void worker_bury(struct worker *w, void (*free_fn)(void *), void *p);

/* What passes through this worker may be secret: chunks of its pool are wiped when they are given
 * back, and so are arenas of worker_arena(), what its codecs keep of heads, and what they allocate
 * through nghttp2.  Before it serves. */
void worker_private(struct worker *w);
bool worker_is_private(const struct worker *w);
/* arena_init(), or on a private worker arena_init_private(). */
void worker_arena(const struct worker *w, struct arena *a, void *first, size_t n);

/* Bytes on the heap that peers made us hold outside of chunks: heads in pieces, arenas.  delta may
 * be negative. */
void worker_hold(struct worker *w, ptrdiff_t delta);
/* All that peers make this worker hold, chunks in use included: what the memory cap looks at (B7).
 */
size_t worker_held(const struct worker *w);

/* ---- other threads */
struct post {
    struct post *next;
    void (*run)(struct worker *w, struct post *p);
};
/* From any thread: run() on w's loop, in the order of posting; the post is the caller's until then.
 */
void worker_post(struct worker *w, struct post *p);
/* work() on a pool thread, then done() on this loop; jobs of one worker run one after the other, in
 * order. */
void worker_call(struct worker *w, void (*work)(void *), void (*done)(void *), void *user);

/* ---- configuration */
struct pin {
    const struct snapshot *snap;
    unsigned users;
    bool current;
};
/* On w's own thread: the snapshot is in force here from now on; takes a reference. */
void worker_adopt(struct worker *w, const struct snapshot *snap);
/* The current configuration, held until pin_put(). */
struct pin *pin_get(struct worker *w);
void pin_put(struct worker *w, struct pin *p);
/* ---- signals: on the main thread's worker only */
/* on(user, signum) for SIGTERM, SIGINT and SIGHUP, on the loop. */
void worker_signals(struct worker *w, void (*on)(void *user, int signum), void *user);

#endif
