/* origin_impl.h — the inside of the pools, for origin.c (what is kept), origin_dial.c (what is in
 * the making) and origin_line.c (who waits).
 *
 * A connection is in one state and so in one list.  Connections to one address of a pool that can
 * speak HTTP/2 have a line: who waits for a stream, and what is on its way for them. */
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
    bool any;            /* the origin chooses by ALPN; else HTTP/2 by prior knowledge */
    struct list waiting; /* struct origin_dial, who came first in front */
    struct list coming;  /* struct oconn */
    unsigned nwaiting, ncoming;
    unsigned takes; /* streams that were too many for a connection of this line; 0: none yet */
    uint64_t timeout_ms;
    char text[]; /* of `to` */
};

struct oconn {
    struct list link;
    struct list age;
    enum oconn_state state;
    bool any; /* it was offered both: h2 is known when it is up */
    bool h2;
    bool again;   /* dialled once more, after others gave way */
    unsigned era; /* origins.era when it was made */
    struct origins *o;
    struct origin_pool *pool;
    struct session *session;      /* NULL while dialling */
    const struct conn_info *info; /* of its connection, as long as there is a session */
    struct dial *dial;            /* else NULL */
    struct line *line;            /* in the making for those in it, */
    struct origin_dial *asker;    /* or for this one */
    struct timer timer;           /* idle, or greeting */
    uint64_t t_dial;              /* µs */
    uint64_t until_ms;            /* the deadline of its making */
    struct dial_to to;
    char text[]; /* of `to` */
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

/* Who asks. */
struct origin_dial {
    struct list link; /* in line->waiting */
    struct origins *o;
    struct line *line; /* it waits here, */
    struct oconn *c;   /* or for this one */
    struct timer timer;
    uint64_t until_ms;
    enum origin_need need;
    bool anew;
    bool prepare; /* no stream is wanted */
    struct str fault;
    const struct origin_asker *asker;
    void *user;
};

/* Do both lead to the same place, and must the same be proved there? */
bool dial_to_same(const struct dial_to *a, const struct dial_to *b);
/* A copy whose texts lie in `text`, of dial_to_bytes(); its context is counted. */
size_t dial_to_bytes(const struct dial_to *to);
struct dial_to dial_to_keep(const struct dial_to *to, char *text);
void dial_to_drop(struct dial_to *to);

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
/* asker->peer() about c, which is up. */
must_check enum why oconn_may(const struct oconn *c, const struct origin_asker *asker, void *user);
/* A stream on c, which is up; false: no room. */
bool oconn_open(struct oconn *c, struct origin_got *ret);

/* origin_dial.c */
/* In no state yet; counted. */
struct oconn *oconn_new(struct origins *o, struct origin_pool *p, const struct dial_to *to,
                        uint64_t until_ms);
void oconn_connect(struct oconn *c);
/* A connection for d alone. */
void oconn_dial_alone(struct origin_dial *d, struct origin_pool *p, const struct dial_to *to);

/* origin_line.c */
/* d is told, and over. */
void origin_dial_done(struct origin_dial *d, const struct origin_got *got, enum why why);
/* The line to there, or NULL. */
struct line *line_find(struct origin_pool *p, const struct dial_to *to, bool any);
struct line *line_get(struct origins *o, struct origin_pool *p, const struct origin_want *want);
/* d waits no more; fine where it does not. */
void line_leave(struct origin_dial *d);
/* Dials as many as it takes. */
void line_want(struct origins *o, struct line *l);
/* Where nobody waits any more, what is on its way is given up and the line goes.  How many connects
 * that were. */
unsigned line_settle(struct origins *o, struct line *l);
/* One that was coming came to nothing.  Whoever waits goes with it when no other is on its way; a
 * deadline is only theirs who have waited as long. */
void line_failed(struct origins *o, struct line *l, enum why why, struct str fault);
/* c is up, just now (fresh) or for a while, and may have room. */
void line_serve(struct origins *o, struct line *l, struct oconn *c, bool fresh);

#endif
