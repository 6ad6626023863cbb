/* redis_impl.h — what redis.c and redis_link.c share. */
#ifndef INGRESS_REDIS_REDIS_IMPL_H
#define INGRESS_REDIS_REDIS_IMPL_H

#include "base/why.h"
#include "ingress/redis/redis.h"
#include "net/worker.h"

/* redis_link.c: one connection, from dialling to its end.  It greets (AUTH, HELLO, CLIENT SETNAME,
 * SELECT, PING), then tells up(); from then on it carries bytes. */
struct redis_link;
struct redis_link_events {
    void (*up)(void *user);
    void (*fill)(void *user, struct buf *out, size_t max);
    /* A reply, after up().  False: nothing is owed. */
    bool (*reply)(void *user, const struct resp_reply *reply);
    /* Once, unless link_drop(); the link is gone. */
    void (*down)(void *user, const char *trouble);
};
struct redis_link_rules {
    struct worker *w;
    const struct dsn *dsn;
    struct tls_ctx *tls; /* NULL: plain */
    struct names *names;
    struct secret *password; /* NULL: none */
    const struct redis_link_events *events;
    void *user;
};

/* No event comes before this returns. */
struct redis_link *link_new(const struct redis_link_rules *rules);
/* There is something to send. */
void link_wake(struct redis_link *l);
/* Bytes of fill() that the kernel has not taken. */
size_t link_unsent(const struct redis_link *l);
/* No event comes any more, fine within an event.  NULL is fine. */
void link_drop(struct redis_link *l);

#endif
