/* origin.h — connections to origins, kept for the next request of the same pool and address.
 *
 * A pool is a name the gate gives: connections, idle or busy, are shared inside it and nowhere
 * else, and ending it ends them all.  HTTP/1.1 carries one exchange at a time; a connection that
 * speaks HTTP/2 carries as many as the origin takes, and who comes while one is in the making waits
 * for it rather than making another.  The two are never mixed up.  Idle connections keep reading,
 * so that a FIN is noticed at once; they live for a time, so many per pool, and under a cap over
 * all. */
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

/* What a request asks of its connection. */
enum origin_need {
    ORIGIN_H1,    /* HTTP/1.1: an idle one, or a new one */
    ORIGIN_H2,    /* a stream of an HTTP/2 connection, by prior knowledge */
    ORIGIN_ANY,   /* to.tls and to.tls_h2: whichever the origin chooses by ALPN, an idle connection,
                     a stream of one, or a new one.  Those that come while it is not known yet wait
                     for the first to tell */
    ORIGIN_FRESH, /* an upgrade: a new HTTP/1.1 connection, which ends with it */
    ORIGIN_TUNNEL, /* an upgrade: a stream where an HTTP/2 connection that is there takes extended
                      CONNECT (RFC 8441), else as FRESH */
    ORIGIN_H2_TUNNEL, /* the same, after waiting for an HTTP/2 connection where there is none */
    ORIGIN_RAW        /* a new connection of bytes, which ends with it */
};

struct origin_want {
    struct str pool;
    struct dial_to to;
    enum origin_need need;
    bool anew; /* a second try: waits for a connection that is not up yet */
};

struct origin_got {
    struct http_stream *stream;
    bool h2;
    const struct conn_info *info; /* of its connection; lent as long as the stream lives */
};

/* What an exchange puts into its pool while it uses it, so that the end of the pool reaches it. */
struct origin_user {
    struct list link;
    struct origin_pool *pool;
    /* The pool is over (WHY_REVOKED); moved: by origin_move(), and true: it runs on where it is. */
    bool (*ended)(struct origin_user *u, bool moved);
};

struct origins *origins_new(struct worker *w, const struct origin_rules *rules);
/* Nothing may be open. */
void origins_free(struct origins *o);
/* Puts u into the pool; origin_leave() takes it out (harmless when it is in none). */
void origin_join(struct origins *o, struct str pool, struct origin_user *u);
void origin_leave(struct origins *o, struct origin_user *u);
struct origin_asker {
    /* May this connection carry it?  Before a stream of it is opened; anything but WHY_OK ends the
     * asking with it and leaves the connection as it is.  NULL: any may. */
    enum why (*peer)(void *user, const struct conn_info *info);
    enum why (*allow)(void *user, const struct sockaddr *addr);
    /* A connect has ended; told once for each, to one of those who wait for it. */
    void (*dialled)(void *user, enum why why, int error, uint64_t took_us);
    /* A stream; or NULL and why: as of dial.h, ORIGIN_PROTOCOL where the origin does not speak
     * HTTP/2, DEADLINE also where it says nothing. */
    void (*done)(void *user, const struct origin_got *got, enum why why);
};
/* A stream on a connection that is there; ret->stream NULL: none has room.  Of idle ones the
 * youngest: the others may be nearer to their end.  Of `asker` only peer() is asked; NULL: nobody
 * is.  Not WHY_OK: what peer() said, and there is no stream. */
must_check enum why origin_reuse(struct origins *o, const struct origin_want *want,
                                 const struct origin_asker *asker, void *user,
                                 struct origin_got *ret);
/* A stream on a connection that was not there before.  done() once, never before this returns;
 * `want` is copied.  timeout_ms bounds the whole wait. */
struct origin_dial *origin_dial(struct origins *o, const struct origin_want *want,
                                uint64_t timeout_ms, const struct origin_asker *asker, void *user);
/* Within done() without a connection: what it said (dial_fault(), conn_info.fault).  Static text.
 */
struct str origin_dial_fault(const struct origin_dial *d);
/* done() will not be called.  How many connects were given up with it: nobody else wants them. */
unsigned origin_dial_cancel(struct origin_dial *d);
/* What the connections that are there, and were offered HTTP/2, have chosen; want.need is
 * ORIGIN_ANY. */
enum origin_speaks { ORIGIN_SPEAKS_UNKNOWN, ORIGIN_SPEAKS_H1, ORIGIN_SPEAKS_H2 };
enum origin_speaks origin_speaks(const struct origins *o, const struct origin_want *want);
/* As origin_dial(), want.need being ORIGIN_ANY, for a connection and no stream: it is kept as an
 * idle one.  done() tells h2, and info for the call; peer() is not asked. */
struct origin_dial *origin_prepare(struct origins *o, const struct origin_want *want,
                                   uint64_t timeout_ms, const struct origin_asker *asker,
                                   void *user);
/* The pool is over: its connections go now, its users are told. */
void origin_purge(struct origins *o, struct str pool);
/* It has moved: nobody takes a connection of `pool` any more and idle ones go now, but users may
 * run on with what they have.  Those belong to `to` from then on: its end is theirs, too. */
void origin_move(struct origins *o, struct str pool, struct str to);
/* Closes up to n idle connections, the oldest first: descriptors or memory are needed. */
void origin_trim(struct origins *o, unsigned n);
/* What is there now is not shared with who comes later: idle ones go, the others when they get
 * idle. */
void origin_renew(struct origins *o);
/* Closes all idle ones, and from now on each when it gets idle. */
void origin_drain(struct origins *o);
unsigned origin_idle(const struct origins *o);
unsigned origin_open(const struct origins *o);
/* Of the open ones, those that speak HTTP/2. */
unsigned origin_open_h2(const struct origins *o);
/* Walks the pools: name, idle connections, users; for /debug. */
void origin_each(const struct origins *o,
                 void (*each)(void *arg, struct str pool, unsigned idle, unsigned users),
                 void *arg);

#endif
