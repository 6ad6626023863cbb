/* outbox.c — the way of a note: mark, queue, batch, Redis.  The mark is set before the queue, so
 * that a busy sandbox takes one place and leaves the others to those that are new; a note that
 * comes to nothing gives its mark back, so that the next request of its sandbox tries again.  While
 * Redis is away the queue holds what is seconds old, not what nobody could use any more. */
#include "ingress/redis/outbox.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/log.h"
#include "ingress/redis/throttle.h"
#include "net/worker.h"

enum { MARKS = 1 << 17, LINE_EVERY_MS = 30000 };

struct outbox {
    struct outbox_rules rules;
    struct redis *redis;
    struct throttle *throttle;
    struct queue *queue;
    struct outbox_item *batch[OUTBOX_BATCH];
    unsigned nbatch; /* 0: none is on its way */
    bool due;        /* a batch that is not full has waited long enough */
    struct timer gather;
    struct timer flush; /* set while somebody waits for done() */
    uint64_t flush_end_ms;
    bool flushing;
    bool hurried; /* there was a flush: nothing waits for more any longer */
    void (*flushed)(void *user);
    void *flush_user;
    _Atomic uint64_t written, dropped[OUTBOX_DROPS];
    _Atomic uint64_t unsaid, next_line_ms; /* drops since the last line */
};

/* ---- drops */

static void say(struct outbox *o, const struct outbox_item *item, const char *error)
{
    uint64_t now = worker_now_us(o->rules.owner) / 1000;
    uint64_t next = atomic_load(&o->next_line_ms);
    atomic_fetch_add(&o->unsaid, 1);
    if (now < next || !atomic_compare_exchange_strong(&o->next_line_ms, &next, now + LINE_EVERY_MS))
        return;
    o->rules.dropped(o->rules.user, item, error, atomic_exchange(&o->unsaid, 0));
}

/* error NULL: the reason says it all. */
static void drop(struct outbox *o, struct outbox_item *item, enum outbox_drop reason,
                 const char *error)
{
    if (!error)
        error = outbox_drop_text(reason);
    atomic_fetch_add_explicit(&o->dropped[reason], 1, memory_order_relaxed);
    throttle_give_back(o->throttle, item->ns, item->id, item->queued.now_ms);
    say(o, item, error);
    mem_free(item);
}

static void drop_all(struct outbox *o, uint64_t cutoff_ms, enum outbox_drop reason,
                     const char *error)
{
    for (struct queue_item *q; (q = queue_take(o->queue, cutoff_ms));)
        drop(o, (struct outbox_item *)q, reason, error);
}

/* ---- batches */

static void take_batch(struct outbox *o)
{
    struct queue_item *q;
    while (o->nbatch < OUTBOX_BATCH && (q = queue_take(o->queue, 0)))
        o->batch[o->nbatch++] = (struct outbox_item *)q;
}

static void flush_done(struct outbox *o)
{
    o->flushing = false;
    timer_clear(o->rules.owner, &o->flush);
    o->flushed(o->flush_user);
}

static void pump(struct outbox *o)
{
    unsigned n = queue_length(o->queue);
    if (o->nbatch > 0 || n == 0)
        return;
    if (n < OUTBOX_BATCH && o->rules.gather_ms > 0 && !o->due && !o->hurried) {
        if (!timer_is_set(&o->gather))
            timer_set(o->rules.owner, &o->gather, o->rules.gather_ms);
        return;
    }
    o->due = false;
    timer_clear(o->rules.owner, &o->gather);
    take_batch(o);
    o->rules.send(o->rules.user, o->batch, o->nbatch);
}

static void on_rang(void *user)
{
    pump(user);
}

static void on_gathered(struct timer *t)
{
    struct outbox *o = container_of(t, struct outbox, gather);
    o->due = true;
    pump(o);
}

static void end_batch(struct outbox *o, bool lost, enum outbox_drop reason, const char *error)
{
    for (unsigned i = 0; i < o->nbatch; i++) {
        struct outbox_item *item = o->batch[i];
        if (lost || item->failed) {
            drop(o, item, reason, error);
        } else {
            atomic_fetch_add_explicit(&o->written, 1, memory_order_relaxed);
            mem_free(item);
        }
    }
    o->nbatch = 0;
}

void outbox_sent(struct outbox *o, const char *error)
{
    uint64_t now = worker_now(o->rules.owner);
    assert(o->nbatch > 0);
    end_batch(o, false, OUTBOX_REDIS_FAULT, error);
    if (!redis_up(o->redis) && now > OUTBOX_LIMIT_MS)
        drop_all(o, now - OUTBOX_LIMIT_MS, OUTBOX_REDIS_FAULT, redis_trouble(o->redis));
    pump(o);
    if (o->flushing && o->nbatch == 0 && queue_length(o->queue) == 0)
        flush_done(o);
}

/* ---- flush */

static void on_flush_timer(struct timer *t)
{
    struct outbox *o = container_of(t, struct outbox, flush);
    bool idle = o->nbatch == 0 && queue_length(o->queue) == 0;
    uint64_t now = worker_now(o->rules.owner);
    if (!idle && now < o->flush_end_ms) {
        timer_set(o->rules.owner, t, o->flush_end_ms - now);
        return;
    }
    redis_forget(o->redis);
    end_batch(o, true, OUTBOX_STOPPED, NULL);
    drop_all(o, 0, OUTBOX_STOPPED, NULL);
    flush_done(o);
}

void outbox_flush(struct outbox *o, void (*done)(void *user), void *user)
{
    assert(!o->flushing);
    o->flushing = o->hurried = true;
    o->flushed = done;
    o->flush_user = user;
    o->flush_end_ms = worker_now(o->rules.owner) + OUTBOX_FLUSH_MS;
    timer_set(o->rules.owner, &o->flush, 0);
    pump(o);
}

/* ---- notes */

bool outbox_due(struct outbox *o, struct str ns, struct str id, uint64_t now_ms)
{
    return throttle_take(o->throttle, ns, id, now_ms);
}

void outbox_put(struct outbox *o, const struct outbox_item *note, uint64_t now_ms)
{
    size_t n = sizeof *note + note->ns.n + note->id.n + note->text.n;
    struct outbox_item *item = mem_new(n);
    char *at = (char *)(item + 1);
    *item = *note;
    item->ns = str_put(&at, note->ns);
    item->id = str_put(&at, note->id);
    item->text = str_put(&at, note->text);
    item->failed = false;
    item->queued = (struct queue_item){.bytes = n, .now_ms = now_ms};
    if (note->ns.n + note->id.n > OUTBOX_NAME_BYTES || !queue_put(o->queue, &item->queued))
        drop(o, item, OUTBOX_QUEUE_FULL, NULL);
}

/* ---- life */

static void on_changed(void *user, bool up)
{
    struct outbox *o = user;
    if (up)
        log_note(LOG_INFO, "redis: connected", "for", o->rules.name, NULL);
    else
        log_note(LOG_WARN, "redis: not connected", "for", o->rules.name, "error",
                 redis_trouble(o->redis), NULL);
}

/* The decoded password is in nobody's memory but the connection's. */
static struct redis *connect_to(struct outbox *o, struct str text, struct arena *a,
                                struct str *ret_error)
{
    struct arena own;
    struct dsn dsn;
    struct redis_rules rules = {.dsn = &dsn, .changed = on_changed, .user = o};
    struct redis *ret = NULL;
    const char *error;
    arena_init_private(&own, NULL, 0);
    if (dsn_parse(text, &own, &dsn, &error))
        ret = redis_new(o->rules.owner, &rules, a, ret_error);
    else
        *ret_error = str_of(error);
    arena_done(&own);
    return ret;
}

struct outbox *outbox_new(const struct outbox_rules *rules, struct arena *a, struct str *ret_error)
{
    struct outbox *o = mem_new(sizeof *o);
    o->rules = *rules;
    o->rules.dsn = STR_NONE;
    o->redis = connect_to(o, rules->dsn, a, ret_error);
    if (!o->redis) {
        mem_free(o);
        return NULL;
    }
    struct queue_rules queue = {.owner = rules->owner,
                                .max = OUTBOX_QUEUE,
                                .max_bytes = OUTBOX_QUEUE_BYTES,
                                .rang = on_rang,
                                .user = o};
    o->queue = queue_new(&queue);
    o->throttle = throttle_new(rules->interval_ms, MARKS);
    timer_init(&o->gather, on_gathered);
    timer_init(&o->flush, on_flush_timer);
    return o;
}

void outbox_free(struct outbox *o)
{
    if (!o)
        return;
    timer_clear(o->rules.owner, &o->gather);
    timer_clear(o->rules.owner, &o->flush);
    redis_free(o->redis);
    end_batch(o, true, OUTBOX_STOPPED, NULL);
    drop_all(o, 0, OUTBOX_STOPPED, NULL);
    queue_free(o->queue);
    throttle_free(o->throttle);
    worker_bury(o->rules.owner, mem_free, o);
}

struct redis *outbox_redis(struct outbox *o)
{
    return o->redis;
}

/* ---- figures */

static uint64_t figure(const _Atomic uint64_t *v)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)v, memory_order_relaxed);
}

uint64_t outbox_written(const struct outbox *o)
{
    return figure(&o->written);
}

uint64_t outbox_dropped(const struct outbox *o, enum outbox_drop reason)
{
    return figure(&o->dropped[reason]);
}

unsigned outbox_waiting(const struct outbox *o)
{
    return queue_length(o->queue);
}

bool outbox_connected(const struct outbox *o)
{
    return redis_up(o->redis);
}

const char *outbox_drop_text(enum outbox_drop reason)
{
    static const char *const texts[] = {
#define X(id, text) text,
        OUTBOX_DROP_MAP(X)
#undef X
    };
    return texts[reason];
}
