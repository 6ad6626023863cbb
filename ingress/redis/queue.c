/* queue.c — a list under a lock, and one post as the doorbell: however much is put in before the
 * owner comes, it is rung for once. */
#include "ingress/redis/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net/worker.h"

struct queue {
    struct post bell; /* first: on_bell() */
    struct queue_rules rules;
    pthread_mutex_t lock;
    struct queue_item *first, **last;
    _Atomic unsigned n;
    size_t bytes;
    bool rung; /* the bell is on its way */
    bool dead; /* it goes when the bell has arrived */
};

static void destroy(struct queue *q)
{
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

static void on_bell(struct worker *w, struct post *p)
{
    struct queue *q = (struct queue *)p;
    (void)w;
    pthread_mutex_lock(&q->lock);
    q->rung = false;
    bool dead = q->dead;
    pthread_mutex_unlock(&q->lock);
    if (dead)
        destroy(q);
    else
        q->rules.rang(q->rules.user);
}

struct queue *queue_new(const struct queue_rules *rules)
{
    struct queue *q = mem_new(sizeof *q);
    q->rules = *rules;
    q->bell.run = on_bell;
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    return q;
}

void queue_free(struct queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    assert(!q->first);
    bool rung = q->rung;
    q->dead = true;
    pthread_mutex_unlock(&q->lock);
    if (!rung)
        destroy(q);
}

bool queue_put(struct queue *q, struct queue_item *item)
{
    pthread_mutex_lock(&q->lock);
    unsigned n = atomic_load_explicit(&q->n, memory_order_relaxed);
    bool fits = n < q->rules.max && item->bytes <= q->rules.max_bytes - q->bytes, ring = false;
    if (fits) {
        item->next = NULL;
        *q->last = item;
        q->last = &item->next;
        q->bytes += item->bytes;
        atomic_store_explicit(&q->n, n + 1, memory_order_relaxed);
        ring = !q->rung;
        q->rung = true;
    }
    pthread_mutex_unlock(&q->lock);
    if (ring)
        worker_post(q->rules.owner, &q->bell);
    return fits;
}

struct queue_item *queue_take(struct queue *q, uint64_t cutoff_ms)
{
    pthread_mutex_lock(&q->lock);
    struct queue_item *item = q->first;
    if (item && cutoff_ms && item->now_ms >= cutoff_ms)
        item = NULL;
    if (item) {
        q->first = item->next;
        if (!q->first)
            q->last = &q->first;
        q->bytes -= item->bytes;
        atomic_fetch_sub_explicit(&q->n, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

unsigned queue_length(const struct queue *q)
{
    return atomic_load_explicit(&((struct queue *)(uintptr_t)q)->n, memory_order_relaxed);
}
