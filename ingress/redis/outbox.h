/* outbox.h — what renew intents and activity have in common: a note of any worker is throttled,
 * queued, and written in batches by the owner; or dropped and counted, never in a request's way
 * (contract ingress 10.3, 11). */
#ifndef INGRESS_REDIS_OUTBOX_H
#define INGRESS_REDIS_OUTBOX_H

#include "base/metrics.h"
#include "ingress/redis/queue.h"
#include "ingress/redis/redis.h"

enum {
    OUTBOX_BATCH = 64,
    OUTBOX_QUEUE = 8192,
    OUTBOX_QUEUE_BYTES = 16 << 20,
    OUTBOX_LIMIT_MS =
        5000, /* of a batch; what has waited so long for a server that is away is lost */
    OUTBOX_FLUSH_MS = 2000,
    OUTBOX_NAME_BYTES = 1024 /* of namespace and id together */
};

#define OUTBOX_DROP_MAP(X)        \
    X(QUEUE_FULL, "queue_full")   \
    X(REDIS_FAULT, "redis_fault") \
    X(STOPPED, "stopped")
enum outbox_drop {
#define X(id, text) OUTBOX_##id,
    OUTBOX_DROP_MAP(X)
#undef X
        OUTBOX_DROPS
};

struct outbox;
struct worker;

/* One note; what the user makes of it lies behind.  Its own allocation. */
struct outbox_item {
    struct queue_item queued; /* first */
    struct str ns, id, text;  /* texts lie in the same block */
    uint64_t number;          /* text and number are the user's */
    bool failed;              /* set by the user before outbox_sent() */
};

struct outbox_rules {
    struct worker *owner;
    struct str dsn;       /* its text, checked with the settings */
    uint64_t interval_ms; /* of one sandbox; 0: each counts */
    uint64_t gather_ms;   /* a batch that is not full waits so long for more; 0: leaves at once */
    const char *name;     /* of log lines about the connection */
    /* On the owner: writes up to OUTBOX_BATCH items, which are lent until outbox_sent(). */
    void (*send)(void *user, struct outbox_item *const *items, unsigned n);
    /* From any worker, at most once in 30 s: `lost` were lost since the last time, this one among
     * them, because of `error`. */
    void (*dropped)(void *user, const struct outbox_item *item, const char *error, uint64_t lost);
    void *user;
};

/* On the owner.  NULL: *ret_error is one line without a secret: the DSN cannot be used. */
struct outbox *outbox_new(const struct outbox_rules *rules, struct arena *a, struct str *ret_error);
/* Nobody notes any more.  What is queued is lost. */
void outbox_free(struct outbox *o);

/* From any worker: is a note of this sandbox due?  Then outbox_put() must follow. */
bool outbox_due(struct outbox *o, struct str ns, struct str id, uint64_t now_ms);
/* Copies the texts. */
void outbox_put(struct outbox *o, const struct outbox_item *note, uint64_t now_ms);

/* On the owner, for send(): the connection, which is free. */
struct redis *outbox_redis(struct outbox *o);
/* The batch is over, for better or (item.failed) worse: then `error` says why.  Not within send().
 */
void outbox_sent(struct outbox *o, const char *error);

/* On the owner: what is queued leaves; done(user) then, or after OUTBOX_FLUSH_MS with the rest
 * lost. Once, never before this returns. */
void outbox_flush(struct outbox *o, void (*done)(void *user), void *user);

/* From any thread. */
uint64_t outbox_written(const struct outbox *o);
uint64_t outbox_dropped(const struct outbox *o, enum outbox_drop reason);
unsigned outbox_waiting(const struct outbox *o);
const char *outbox_drop_text(enum outbox_drop reason);
/* On the owner. */
bool outbox_connected(const struct outbox *o);

#endif
