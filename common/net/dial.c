/* dial.c — one connection to a host and port.  The addresses are tried in order, each with its
 * share of what is left of the deadline; the caller's allow() sees every one, and the connection
 * goes to the very address that was judged.  Through a parent only the way to the parent is ours:
 * the first of its addresses that connects is asked, and what it answers is the end of it. */
#include "net/dial.h"

#include <errno.h>

#include "net/conn_impl.h"
#include "net/dial_impl.h"
#include "net/resolve.h"

enum { DIAL_ADDRESSES = 16 };

struct dial {
    struct worker *w;
    struct resolve *resolving;
    struct conn *conn;
    struct dial_to to;         /* with a parent, else empty */
    struct parent_ask *asking; /* the parent */
    struct timer timer;        /* this attempt's share */
    uint64_t deadline;
    struct ip ips[DIAL_ADDRESSES];
    unsigned nips, at;
    uint16_t port;
    int err, status;
    bool tried;   /* an address was allowed */
    enum why why; /* of the last attempt */
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void (*done)(void *user, struct conn *c, enum why why);
    void *user;
    char host[];
};

static void on_ready(void *user);
static void on_closed(void *user, enum why why);

/* A peer that speaks first: its bytes wait for the next owner. */
static const struct conn_events attempt_events = {.ready = on_ready, .closed = on_closed};
static const struct conn_events nobody = {NULL};

/* A conn whose closing nobody waits for. */
static void drop_conn(struct dial *d)
{
    struct conn *c = d->conn;
    d->conn = NULL;
    if (!c)
        return;
    conn_close(c, WHY_DIAL);
    c->ev = &nobody;
}

static void finish(struct dial *d, struct conn *c, enum why why)
{
    timer_clear(d->w, &d->timer);
    d->done(d->user, c, why);
    worker_bury(d->w, mem_free, d);
}

static enum why why_of(int err)
{
    if (err == EMFILE || err == ENFILE || err == ENOMEM || err == EADDRNOTAVAIL)
        return WHY_OVERLOAD;
    return err == ETIMEDOUT ? WHY_DEADLINE : WHY_DIAL;
}

static void next(struct dial *d);

/* True: an attempt is under way. */
static bool attempt(struct dial *d)
{
    union addr to;
    addr_make(&to, &d->ips[d->at++], d->port);
    enum why why = d->to.parent ? WHY_OK : d->allow(d->user, &to.sa);
    if (why != WHY_OK) {
        if (!d->tried)
            d->why = why;
        return false;
    }
    d->tried = true;
    d->err = 0;
    d->conn = conn_connect_prepared(d->w, &to.sa, &d->w->prepare_dial, &attempt_events, d, &d->err);
    if (d->conn)
        return true;
    d->why = why_of(d->err);
    return false;
}

static void next(struct dial *d)
{
    uint64_t now = worker_now(d->w);
    while (d->at < d->nips) {
        if (now >= d->deadline) {
            d->why = WHY_DEADLINE;
            break;
        }
        if (attempt(d)) {
            timer_set(d->w, &d->timer, (d->deadline - now) / (d->nips - d->at + 1));
            return;
        }
    }
    finish(d, NULL, d->why);
}

static void on_asked(void *user, struct conn *c, enum why why, int status)
{
    struct dial *d = user;
    d->asking = NULL;
    d->status = status;
    finish(d, c, why);
}

static void on_ready(void *user)
{
    struct dial *d = user;
    struct conn *c = d->conn;
    d->conn = NULL;
    if (!d->to.parent) {
        finish(d, c, WHY_OK);
        return;
    }
    uint64_t now = worker_now(d->w);
    timer_set(d->w, &d->timer, d->deadline > now ? d->deadline - now : 0);
    d->asking = parent_ask(d->w, c, &d->to, on_asked, d);
}

static void on_closed(void *user, enum why why)
{
    struct dial *d = user;
    d->err = conn_errno(d->conn);
    d->conn = NULL;
    d->why = why == WHY_DEADLINE ? why : d->err ? why_of(d->err) : WHY_DIAL;
    next(d);
}

static void on_timer(struct timer *t)
{
    struct dial *d = container_of(t, struct dial, timer);
    if (d->resolving)
        return; /* its own deadline is the same and will tell */
    d->err = ETIMEDOUT;
    d->why = WHY_DEADLINE;
    if (d->asking) {
        parent_cancel(d->asking);
        finish(d, NULL, WHY_DEADLINE);
        return;
    }
    drop_conn(d);
    next(d);
}

static void on_resolved(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct dial *d = user;
    d->resolving = NULL;
    d->why = why;
    d->nips = n < DIAL_ADDRESSES ? n : DIAL_ADDRESSES;
    for (unsigned i = 0; i < d->nips; i++)
        d->ips[i] = ips[i];
    if (d->to.parent && !parent_can_ask(&d->to)) {
        finish(d, NULL, WHY_DIAL);
        return;
    }
    next(d);
}

static void to_parent(struct dial *d, const struct dial_to *to)
{
    memcpy(d->host, to->host.p, to->host.n);
    d->to = *to;
    d->to.host.p = d->host;
    d->port = to->parent->port;
}

struct dial *dial_start(struct worker *w, const struct dial_to *to, uint64_t timeout_ms,
                        enum why (*allow)(void *user, const struct sockaddr *addr),
                        void (*done)(void *user, struct conn *c, enum why why), void *user)
{
    const struct dial_parent *p = to->parent;
    struct dial *d = mem_new(sizeof *d + (p ? to->host.n : 0));
    struct names *names = p ? p->names : to->names;
    d->w = w;
    d->port = to->port;
    d->deadline = worker_now(w) + timeout_ms;
    d->why = WHY_DIAL;
    d->allow = allow;
    d->done = done;
    d->user = user;
    timer_init(&d->timer, on_timer);
    if (p)
        to_parent(d, to);
    d->resolving = resolve_start(names ? names : worker_get(w, SLOT_NAMES), p ? p->host : to->host,
                                 timeout_ms, on_resolved, d);
    return d;
}

void dial_cancel(struct dial *d)
{
    if (d->resolving)
        resolve_cancel(d->resolving);
    if (d->asking)
        parent_cancel(d->asking);
    timer_clear(d->w, &d->timer);
    drop_conn(d);
    worker_bury(d->w, mem_free, d);
}

int dial_errno(const struct dial *d)
{
    return d->err;
}

int dial_status(const struct dial *d)
{
    return d->status;
}

void dial_prepare(struct worker *w, const struct prepare *p)
{
    w->prepare_dial = *p;
}
