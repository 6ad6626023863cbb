/* table.c — deltas on their way to the tables of all workers, and one worker's table.  A delta is
 * made once and shared; each table has an inbox of what it still has to apply and one post that is
 * under way as long as the inbox is not empty, so order is kept and every slice is a turn of its
 * own. */
#include "ingress/table.h"

#include <assert.h>
#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "net/worker.h"

struct delivery {
    struct list link; /* in the table's inbox */
    struct delta *delta;
    size_t at; /* items applied: first those gone, then those put */
};

/* The publisher took one reference to each record for every table, and each table makes its own of
 * them as it applies: so nobody has to walk the list once more to give references back. */
struct delta {
    _Atomic unsigned left; /* deliveries not done */
    _Atomic bool broken;   /* a table went before it had applied it */
    struct arena mem;      /* of the arrays */
    const struct sandbox **put;
    struct str *gone;
    size_t nput, ngone;
    bool first;
    struct worker *owner;
    void (*applied)(void *user);
    void *user;
    struct post post;
    struct delivery deliveries[];
};

struct table {
    struct worker *w;
    void (*gone)(struct worker *w, const struct sandbox *s, const struct sandbox *next);
    void (*put)(struct worker *w, const struct sandbox *s);
    struct map *map;
    bool ready, closed;
    struct post post;
    pthread_mutex_t lock; /* inbox, posted */
    struct list inbox;
    bool posted;
};

/* ---- deltas ---- */

static void delta_free(struct delta *d)
{
    arena_done(&d->mem);
    mem_free(d);
}

static void on_applied(struct worker *w, struct post *p)
{
    struct delta *d = container_of(p, struct delta, post);
    (void)w;
    d->applied(d->user);
    delta_free(d);
}

static void delivery_done(struct delivery *v)
{
    struct delta *d = v->delta;
    if (atomic_fetch_sub_explicit(&d->left, 1, memory_order_acq_rel) > 1)
        return;
    if (!d->applied || atomic_load_explicit(&d->broken, memory_order_relaxed)) {
        delta_free(d);
        return;
    }
    d->post.run = on_applied;
    worker_post(d->owner, &d->post);
}

/* The table goes: what it would have kept is given back. */
static void delivery_drop(struct delivery *v)
{
    struct delta *d = v->delta;
    for (size_t i = v->at > d->ngone ? v->at - d->ngone : 0; i < d->nput; i++)
        sandbox_unref(d->put[i]);
    atomic_store_explicit(&d->broken, true, memory_order_relaxed);
    delivery_done(v);
}

/* ---- a table ---- */

struct table *table_new(struct worker *w,
                        void (*gone)(struct worker *w, const struct sandbox *s,
                                     const struct sandbox *next),
                        void (*put)(struct worker *w, const struct sandbox *s))
{
    struct table *t = mem_new(sizeof *t);
    t->w = w;
    t->gone = gone;
    t->put = put;
    t->map = map_new();
    list_init(&t->inbox);
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

static void forget_all(struct table *t)
{
    size_t at = 0;
    for (struct sandbox *s; (s = map_next(t->map, &at));)
        sandbox_unref(s);
    map_free(t->map);
    t->map = NULL;
}

static void destroy(struct table *t)
{
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

void table_free(struct table *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    for (struct list *l; (l = list_pop(&t->inbox));)
        delivery_drop(container_of(l, struct delivery, link));
    bool posted = t->posted;
    t->closed = true;
    pthread_mutex_unlock(&t->lock);
    forget_all(t);
    if (!posted) /* else the post, when it comes home */
        destroy(t);
}

const struct sandbox *table_get(const struct table *t, struct str key)
{
    return map_get(t->map, key);
}

size_t table_size(const struct table *t)
{
    return map_size(t->map);
}

bool table_ready(const struct table *t)
{
    return t->ready;
}

/* ---- applying ---- */

static void unref(void *p)
{
    sandbox_unref(p);
}

/* A record may be lent to somebody further up the stack: it lives until the turn ends. */
static void part_with(struct table *t, struct sandbox *s, const struct sandbox *next)
{
    if (t->gone)
        t->gone(t->w, s, next);
    worker_bury(t->w, unref, s);
}

static void apply_gone(struct table *t, struct str key)
{
    struct sandbox *s = map_del(t->map, key);
    if (s)
        part_with(t, s, NULL);
}

static void apply_put(struct table *t, const struct sandbox *s)
{
    struct sandbox *old = map_put(t->map, s->key, (void *)(uintptr_t)s);
    if (old == s)
        sandbox_unref(s); /* it was there: one of two references */
    else if (old)
        part_with(t, old, s);
    if (t->put)
        t->put(t->w, s);
}

/* At most *budget items; true: nothing is left of it. */
static bool apply_slice(struct table *t, struct delivery *v, size_t *budget)
{
    const struct delta *d = v->delta;
    size_t all = d->ngone + d->nput, end = all - v->at > *budget ? v->at + *budget : all;
    *budget -= end - v->at;
    for (; v->at < end; v->at++) {
        if (v->at < d->ngone)
            apply_gone(t, d->gone[v->at]);
        else
            apply_put(t, d->put[v->at - d->ngone]);
    }
    if (v->at == all && d->first)
        t->ready = true;
    return v->at == all;
}

static struct delivery *next_delivery(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    struct list *l = list_first(&t->inbox);
    pthread_mutex_unlock(&t->lock);
    return l ? container_of(l, struct delivery, link) : NULL;
}

static void finish(struct table *t, struct delivery *v)
{
    pthread_mutex_lock(&t->lock);
    list_del(&v->link);
    pthread_mutex_unlock(&t->lock);
    delivery_done(v);
}

static void on_post(struct worker *w, struct post *p);

/* The lock is held. */
static void post_again(struct table *t)
{
    t->posted = !list_empty(&t->inbox);
    t->post.run = on_post;
    if (t->posted)
        worker_post(t->w, &t->post);
}

static void on_post(struct worker *w, struct post *p)
{
    struct table *t = container_of(p, struct table, post);
    (void)w;
    if (t->closed) {
        destroy(t);
        return;
    }
    size_t budget = TABLE_SLICE;
    for (struct delivery *v; budget > 0 && (v = next_delivery(t)) && apply_slice(t, v, &budget);)
        finish(t, v);
    pthread_mutex_lock(&t->lock);
    post_again(t);
    pthread_mutex_unlock(&t->lock);
}

/* ---- publishing ---- */

static void table_deliver(struct table *t, struct delivery *v)
{
    pthread_mutex_lock(&t->lock);
    list_push(&t->inbox, &v->link);
    if (!t->posted)
        post_again(t);
    pthread_mutex_unlock(&t->lock);
}

static struct delta *delta_new(unsigned tables, const struct sandbox *const *put, size_t nput,
                               const struct str *gone, size_t ngone)
{
    struct delta *d = mem_new(sizeof *d + tables * sizeof d->deliveries[0]);
    atomic_init(&d->left, tables);
    atomic_init(&d->broken, false);
    arena_init(&d->mem, NULL, 0);
    d->put = arena_get(&d->mem, nput * sizeof *d->put);
    d->gone = arena_get(&d->mem, ngone * sizeof *d->gone);
    d->nput = nput;
    d->ngone = ngone;
    for (size_t i = 0; i < nput; i++) {
        struct sandbox *s = (struct sandbox *)(uintptr_t)put[i];
        atomic_fetch_add_explicit(&s->refs, tables, memory_order_relaxed);
        d->put[i] = s;
    }
    for (size_t i = 0; i < ngone; i++)
        d->gone[i] = arena_str(&d->mem, gone[i]);
    return d;
}

void table_publish(struct table *const *tables, unsigned n, const struct sandbox *const *put,
                   size_t nput, const struct str *gone, size_t ngone, bool first,
                   struct worker *owner, void (*applied)(void *user), void *user)
{
    assert(n > 0);
    struct delta *d = delta_new(n, put, nput, gone, ngone);
    d->first = first;
    d->owner = owner;
    d->applied = applied;
    d->user = user;
    for (unsigned i = 0; i < n; i++) {
        d->deliveries[i].delta = d;
        list_init(&d->deliveries[i].link);
    }
    for (unsigned i = 0; i < n; i++) /* with the last one d may be gone already */
        table_deliver(tables[i], &d->deliveries[i]);
}
