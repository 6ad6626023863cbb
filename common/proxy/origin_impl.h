/* origin_impl.h — the inside of the pools, for origin.c (what is kept) and origin_dial.c (what is
 * in the making).
 *
 * A connection is in one state and so in one list.  HTTP/2 connections to one address of a pool
 * have a line: who waits for a stream, and what is on its way for them. */
#ifndef PROXY_ORIGIN_IMPL_H
#define PROXY_ORIGIN_IMPL_H

#include "base/wheel.h"
#include "net/worker.h"
#include "proxy/origin.h"

enum oconn_state {
    OCONN_DIALLING, /* line: in its `coming` */
    OCONN_GREETING, /* HTTP/2, until the origin's SETTINGS have come: in the line's `coming` */
    OCONN_IDLE,     /* in the pool's `idle` and in by_age */
    OCONN_SHARED,   /* HTTP/2 with streams and room for more, as far as we know: in `shared` */
    OCONN_BUSY      /* no room, or closing: in `busy` */
};

struct origin_pool {
    struct str name;
    struct list idle; /* youngest first */
    struct list shared, busy;
    struct list lines;
    struct list users;
    unsigned nidle, nconns; /* nconns: in whatever state */
    bool over;
    char text[];
};

struct line {
    struct list link; /* in pool->lines */
    struct origin_pool *pool;
    struct dial_to to;
    struct list waiting; /* struct origin_dial, who came first in front */
    struct list coming;  /* struct oconn */
    unsigned nwaiting, ncoming;
    unsigned takes; /* streams that were too many for a connection of this line; 0: none yet */
    uint64_t timeout_ms;
    char host[];
};

struct oconn {
    struct list link;
    struct list age;
    enum oconn_state state;
    bool h2;
    bool again;   /* dialled once more, after others gave way */
    unsigned era; /* origins.era when it was made */
    struct origins *o;
    struct origin_pool *pool;
    struct session *session;   /* NULL while dialling */
    struct dial *dial;         /* else NULL */
    struct line *line;         /* HTTP/2 in the making */
    struct origin_dial *asker; /* HTTP/1.1 in the making */
    struct timer timer;        /* idle, or greeting */
    uint64_t t_dial;           /* µs */
    uint64_t until_ms;         /* the deadline of its making */
    struct dial_to to;
    char host[];
};

struct origins {
    struct worker *w;
    struct origin_rules rules;
    struct map *pools;
    struct origin_pool *last; /* looked up last, while it is in the map: an exchange asks twice */
    struct list by_age;       /* idle ones, oldest first */
    unsigned idle, open, open_h2;
    unsigned era; /* origin_renew() begins another */
    bool draining;
};

bool dial_to_same(const struct dial_to *a, const struct dial_to *b);

/* origin.c */
struct origin_pool *pool_get(struct origins *o, struct str name);
/* Frees it when nothing is in it any more. */
void pool_settle(struct origins *o, struct origin_pool *p);
/* The one that changes the state of a connection. */
void oconn_enter(struct oconn *c, enum oconn_state state);
void oconn_close(struct oconn *c, enum why why);
/* It carries nothing: kept within the limits, or closed. */
void oconn_rest(struct oconn *c);
void oconn_free(struct oconn *c);
/* A stream on c, which is up; false: no room. */
bool oconn_open(struct oconn *c, struct origin_got *ret);

#endif
