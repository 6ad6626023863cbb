/* queue.h — from many workers to one owner, bounded in number and bytes.  What does not fit stays
 * with who brought it; a full queue keeps what it has, so the newest is what is lost. */
#ifndef INGRESS_REDIS_QUEUE_H
#define INGRESS_REDIS_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue;
struct worker;

/* Intrusive: first in whatever is queued. */
struct queue_item {
    struct queue_item *next;
    size_t bytes;    /* what it counts for */
    uint64_t now_ms; /* when it was put in */
};

struct queue_rules {
    struct worker *owner;
    unsigned max;
    size_t max_bytes;
    void (*rang)(void *user); /* on the owner: something was put in since the last time */
    void *user;
};

struct queue *queue_new(const struct queue_rules *rules);
/* On the owner, when nobody puts anything in any more and it is empty. */
void queue_free(struct queue *q);
/* From any thread.  False: it does not fit. */
bool queue_put(struct queue *q, struct queue_item *item);
/* On the owner: the oldest, or NULL.  What is older than cutoff_ms only, where that is not 0. */
struct queue_item *queue_take(struct queue *q, uint64_t cutoff_ms);
/* From any thread. */
unsigned queue_length(const struct queue *q);

#endif
