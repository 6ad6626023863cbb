/* origin.h — connections to origins, kept for the next request of the same pool and address.
 *
 * A pool is a name the gate gives: connections, idle or busy, are shared inside it and nowhere
 * else, and ending it ends them all.  Idle connections keep reading, so that a FIN is noticed at
 * once; they live for a time, so many per pool, and under a cap over all. */
#ifndef PROXY_ORIGIN_H
#define PROXY_ORIGIN_H

#include "base/list.h"
#include "http/session.h"
#include "net/dial.h"

struct origins;
struct origin_dial;

struct origin_rules {
    const struct http_limits *limits;
    uint64_t idle_ms;  /* life of an idle connection */
    unsigned idle_max; /* per pool */
    unsigned idle_cap; /* over all pools of this worker */
};

/* What an exchange puts into its pool while it uses it, so that the end of the pool reaches it. */
struct origin_user {
    struct list link;
    struct origin_pool *pool;
    void (*ended)(struct origin_user *u); /* the pool is over: WHY_REVOKED */
};

struct origins *origins_new(struct worker *w, const struct origin_rules *rules);
/* Closes what is idle; nothing may be busy. */
void origins_free(struct origins *o);
/* Puts u into the pool; origin_leave() takes it out (harmless when it is in none). */
void origin_join(struct origins *o, struct str pool, struct origin_user *u);
void origin_leave(struct origins *o, struct origin_user *u);
/* An idle connection's stream, or NULL.  The youngest one: the others may be nearer to their end.
 */
struct http_stream *origin_reuse(struct origins *o, struct str pool, const struct dial_to *to);
/* A stream on a new connection.  done(user, stream, why, error) once, never before this returns;
 * `pool` and `to` are copied. */
struct origin_dial *
origin_dial(struct origins *o, struct str pool, const struct dial_to *to, uint64_t timeout_ms,
            enum why (*allow)(void *user, const struct sockaddr *addr),
            void (*done)(void *user, struct http_stream *s, enum why why, int error), void *user);
void origin_dial_cancel(struct origin_dial *d);
/* The pool is over: idle connections go now, its users are told. */
void origin_purge(struct origins *o, struct str pool);
/* Closes up to n idle connections, the oldest first: descriptors are needed. */
void origin_trim(struct origins *o, unsigned n);
/* Closes all idle ones. */
void origin_drain(struct origins *o);
unsigned origin_idle(const struct origins *o);
unsigned origin_open(const struct origins *o);
/* Walks the pools: name, idle connections, users; for /debug. */
void origin_each(const struct origins *o,
                 void (*each)(void *arg, struct str pool, unsigned idle, unsigned users),
                 void *arg);

#endif
