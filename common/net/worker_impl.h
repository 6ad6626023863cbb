/* worker_impl.h — the inside of a worker, for the files of net/ only. */
#ifndef NET_WORKER_IMPL_H
#define NET_WORKER_IMPL_H

#include <pthread.h>
#include <uv.h>

#include "base/list.h"
#include "net/prepare.h"
#include "net/worker.h"

struct grave {
    void (*free_fn)(void *);
    void *p;
};

struct job {
    struct list link;
    struct worker *w;
    uv_work_t work;
    void (*run)(void *);
    void (*done)(void *);
    void *user;
};

struct worker {
    uv_loop_t loop;
    uv_prepare_t prepare; /* output is made here, just before the loop sleeps */
    uv_idle_t idle; /* active while something is left to do, so that the poll does not wait (U21) */
    uv_async_t bell;  /* the mailbox has something, or stop */
    uv_timer_t tick;  /* drives the wheel */
    uint64_t tick_at; /* when tick fires, UINT64_MAX: not set */
    struct wheel wheel;
    struct chunk_pool *pool;
    bool private;
    size_t held;
    unsigned index;

    struct list dirty;   /* conns with output to make or input to offer */
    struct list written; /* conns by the time of their last write; see vanish.c */
    struct list stopped; /* conns that do not read, because nobody takes */
    struct list dials;   /* under way */
    struct timer sweep, look;
    struct prepare prepare_dial; /* what dials do to their sockets */
    struct pipe_pair *pipes;     /* empty ones, kept for the next splice */
    unsigned npipes, nsplices;

    struct grave *graves;
    size_t ngraves, graves_room;

    pthread_mutex_t lock; /* mailbox and stopping */
    struct post *mail, **mail_tail;
    bool stopping;

    struct list jobs; /* the first one runs */
    struct pin *pin;
    void *slot[WORKER_SLOTS];

    pthread_t thread;
    bool threaded;
    uv_signal_t signals[3];
    unsigned nsignals;
    void (*on_signal)(void *user, int signum);
    void *signal_user;
};

static inline uv_loop_t *worker_loop(struct worker *w)
{
    return &w->loop;
}

/* conn.c: makes output and offers input; true: it wants another go in the next turn. */
struct conn;
void conn_flush_all(struct worker *w);

#endif
