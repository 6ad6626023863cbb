/* origin.c — the pools.  A connection is in exactly one place: dialling, idle in its pool's list
 * and in the list of all idle ones by age, or busy with a stream.  A pool lives as long as it has
 * any of these. */
#include "proxy/origin.h"

#include <assert.h>

#include "base/map.h"
#include "net/worker.h"

struct origin_pool {
    struct str name;
    struct list idle; /* youngest first */
    struct list users;
    unsigned nidle, nconns; /* nconns: idle, busy and dialling */
    bool over;              /* purged: what is busy is not kept */
    char text[];
};

struct oconn {
    struct session *session; /* NULL while dialling */
    struct origin_pool *pool;
    struct origins *o;
    struct list link; /* in pool->idle while idle */
    struct list age;  /* in o->by_age while idle */
    struct timer timer;
    struct dial_to to;
    bool idle;
    char host[];
};

struct origin_dial {
    struct oconn *c;
    struct dial *dial;
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void (*done)(void *user, struct http_stream *s, enum why why, int error);
    void *user;
};

struct origins {
    struct worker *w;
    struct origin_rules rules;
    struct map *pools;
    struct origin_pool *last; /* looked up last, while it is in the map: an exchange asks twice */
    struct list by_age;       /* idle ones, oldest first */
    unsigned idle, open;
};

struct origins *origins_new(struct worker *w, const struct origin_rules *rules)
{
    struct origins *o = mem_new(sizeof *o);
    o->w = w;
    o->rules = *rules;
    o->pools = map_new();
    list_init(&o->by_age);
    return o;
}

static struct origin_pool *pool_find(struct origins *o, struct str name)
{
    if (!o->last || !str_eq(o->last->name, name))
        o->last = map_get(o->pools, name);
    return o->last;
}

static struct origin_pool *pool_get(struct origins *o, struct str name)
{
    struct origin_pool *p = pool_find(o, name);
    if (p)
        return p;
    p = mem_new(sizeof *p + name.n);
    memcpy(p->text, name.p, name.n);
    p->name = (struct str){p->text, name.n};
    list_init(&p->idle);
    list_init(&p->users);
    map_put(o->pools, p->name, p);
    o->last = p;
    return p;
}

static void pool_forget(struct origins *o, struct origin_pool *p)
{
    if (o->last == p)
        o->last = NULL;
    map_del(o->pools, p->name);
}

static void pool_settle(struct origins *o, struct origin_pool *p)
{
    if (p->nconns > 0 || !list_empty(&p->users))
        return;
    if (pool_find(o, p->name) == p) /* a purged one has left the map */
        pool_forget(o, p);
    mem_free(p);
}

void origin_join(struct origins *o, struct str name, struct origin_user *u)
{
    u->pool = pool_get(o, name);
    list_push(&u->pool->users, &u->link);
}

void origin_leave(struct origins *o, struct origin_user *u)
{
    struct origin_pool *p = u->pool;
    if (!p)
        return;
    u->pool = NULL;
    list_del(&u->link);
    pool_settle(o, p);
}

static void unidle(struct oconn *c)
{
    if (!c->idle)
        return;
    c->idle = false;
    list_del(&c->link);
    list_del(&c->age);
    timer_clear(c->o->w, &c->timer);
    c->pool->nidle--;
    c->o->idle--;
}

static void close_idle(struct oconn *c)
{
    unidle(c);
    c->session->ops->close(c->session, WHY_OK);
}

static void on_idle_timer(struct timer *t)
{
    close_idle(container_of(t, struct oconn, timer));
}

static void free_oconn(struct oconn *c)
{
    struct origin_pool *p = c->pool;
    struct origins *o = c->o;
    p->nconns--;
    o->open--;
    worker_bury(o->w, mem_free, c);
    pool_settle(o, p);
}

void origin_trim(struct origins *o, unsigned n)
{
    for (; n > 0 && !list_empty(&o->by_age); n--) {
        struct oconn *c = container_of(list_first(&o->by_age), struct oconn, age);
        close_idle(c);
    }
}

/* The exchange is over and the connection is clean: keep it, within the limits. */
static void on_session_idle(void *user, struct session *s)
{
    struct oconn *c = user;
    struct origins *o = c->o;
    if (c->pool->over || o->rules.idle_max == 0) {
        s->ops->close(s, WHY_OK);
        return;
    }
    c->idle = true;
    list_push_front(&c->pool->idle, &c->link);
    list_push(&o->by_age, &c->age);
    c->pool->nidle++;
    o->idle++;
    timer_set(o->w, &c->timer, o->rules.idle_ms);
    if (c->pool->nidle > o->rules.idle_max) {
        struct oconn *old = container_of(c->pool->idle.prev, struct oconn, link);
        close_idle(old);
    }
    if (o->idle > o->rules.idle_cap)
        origin_trim(o, 1);
}

static void on_session_closed(void *user, struct session *s)
{
    (void)s;
    struct oconn *c = user;
    unidle(c);
    c->session = NULL;
    free_oconn(c);
}

static const struct session_events session_events = {NULL, on_session_idle, on_session_closed};

static bool same_to(const struct dial_to *a, const struct dial_to *b)
{
    return a->port == b->port && str_eq(a->host, b->host);
}

struct http_stream *origin_reuse(struct origins *o, struct str pool, const struct dial_to *to)
{
    struct origin_pool *p = pool_find(o, pool);
    struct http_stream *s;
    if (!p)
        return NULL;
    list_each(l, &p->idle)
    {
        struct oconn *c = container_of(l, struct oconn, link);
        if (!same_to(&c->to, to))
            continue;
        if (!c->session->ops->open(c->session, &s))
            continue;
        unidle(c);
        return s;
    }
    return NULL;
}

static void on_dialled(void *user, struct conn *conn, enum why why)
{
    struct origin_dial *d = user;
    struct oconn *c = d->c;
    struct origins *o = c->o;
    int error = dial_errno(d->dial);
    struct http_stream *s = NULL;
    if (conn) {
        c->session = h1_start(o->w, conn, false, o->rules.limits, &session_events, c);
        bool ok = c->session->ops->open(c->session, &s);
        assert(ok);
    } else {
        free_oconn(c);
    }
    d->done(d->user, s, why, error);
    worker_bury(o->w, mem_free, d);
}

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    struct origin_dial *d = user;
    return d->allow(d->user, addr);
}

static struct oconn *oconn_new(struct origins *o, struct str pool, const struct dial_to *to)
{
    struct oconn *c = mem_new(sizeof *c + to->host.n);
    memcpy(c->host, to->host.p, to->host.n);
    c->to = (struct dial_to){{c->host, to->host.n}, to->port};
    c->o = o;
    c->pool = pool_get(o, pool);
    c->pool->nconns++;
    o->open++;
    list_init(&c->link);
    list_init(&c->age);
    timer_init(&c->timer, on_idle_timer);
    return c;
}

struct origin_dial *
origin_dial(struct origins *o, struct str pool, const struct dial_to *to, uint64_t timeout_ms,
            enum why (*allow)(void *user, const struct sockaddr *addr),
            void (*done)(void *user, struct http_stream *s, enum why why, int error), void *user)
{
    struct origin_dial *d = mem_new(sizeof *d);
    d->c = oconn_new(o, pool, to);
    d->allow = allow;
    d->done = done;
    d->user = user;
    d->dial = dial_start(o->w, &d->c->to, timeout_ms, on_allow, on_dialled, d);
    return d;
}

void origin_dial_cancel(struct origin_dial *d)
{
    struct origins *o = d->c->o;
    dial_cancel(d->dial);
    free_oconn(d->c);
    worker_bury(o->w, mem_free, d);
}

static void close_all_idle(struct origin_pool *p)
{
    list_each(l, &p->idle)
    {
        struct oconn *c = container_of(l, struct oconn, link);
        close_idle(c);
    }
}

void origin_purge(struct origins *o, struct str name)
{
    struct origin_pool *p = pool_find(o, name);
    if (!p)
        return;
    pool_forget(o, p); /* whoever comes by this name later gets a pool of his own */
    p->over = true;
    p->nconns++; /* stays while we walk it */
    close_all_idle(p);
    for (struct list *l; (l = list_first(&p->users));) {
        struct origin_user *u = container_of(l, struct origin_user, link);
        list_del(&u->link);
        u->pool = NULL;
        u->ended(u);
    }
    p->nconns--;
    pool_settle(o, p);
}

void origin_drain(struct origins *o)
{
    origin_trim(o, o->idle);
}

void origins_free(struct origins *o)
{
    if (!o)
        return;
    assert(o->open == 0);
    map_free(o->pools);
    mem_free(o);
}

unsigned origin_idle(const struct origins *o)
{
    return o->idle;
}

unsigned origin_open(const struct origins *o)
{
    return o->open;
}

static unsigned count(struct list *head)
{
    unsigned n = 0;
    list_each(l, head) n++;
    return n;
}

void origin_each(const struct origins *o,
                 void (*each)(void *arg, struct str pool, unsigned idle, unsigned users), void *arg)
{
    size_t at = 0;
    for (struct origin_pool *p; (p = map_next(o->pools, &at));)
        each(arg, p->name, p->nidle, count(&p->users));
}
