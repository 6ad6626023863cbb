/* origin.c — the pools: what is kept, for how long, and for whom.  A connection is in exactly one
 * state and in the list that goes with it; a pool lives as long as it has connections, users or
 * somebody waiting. */
#include <assert.h>

#include "base/map.h"
#include "net/tls.h"
#include "proxy/origin_impl.h"

struct origins *origins_new(struct worker *w, const struct origin_rules *rules)
{
    struct origins *o = mem_new(sizeof *o);
    o->w = w;
    o->rules = *rules;
    o->pools = map_new();
    list_init(&o->by_age);
    return o;
}

void origins_free(struct origins *o)
{
    if (!o)
        return;
    assert(o->open == 0);
    map_free(o->pools);
    mem_free(o);
}

/* ---- pools */

static struct origin_pool *pool_find(struct origins *o, struct str name)
{
    if (!o->last || !str_eq(o->last->name, name))
        o->last = map_get(o->pools, name);
    return o->last;
}

struct origin_pool *pool_get(struct origins *o, struct str name)
{
    struct origin_pool *p = pool_find(o, name);
    if (p)
        return p;
    p = mem_new(sizeof *p + name.n);
    memcpy(p->text, name.p, name.n);
    p->name = (struct str){p->text, name.n};
    list_init(&p->idle);
    list_init(&p->shared);
    list_init(&p->busy);
    list_init(&p->lines);
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

void pool_settle(struct origins *o, struct origin_pool *p)
{
    if (p->nconns > 0 || !list_empty(&p->users) || !list_empty(&p->lines))
        return;
    if (!p->over) /* a purged one has left the map */
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

/* ---- connections */

bool dial_to_same(const struct dial_to *a, const struct dial_to *b)
{
    return a->port == b->port && a->names == b->names && a->parent == b->parent &&
           a->tls == b->tls && str_eq(a->host, b->host) && str_eq(a->tls_name, b->tls_name);
}

size_t dial_to_bytes(const struct dial_to *to)
{
    return to->host.n + to->tls_name.n;
}

/* A context that is gone could have its address taken by another: it stays as long as it is
 * compared. */
struct dial_to dial_to_keep(const struct dial_to *to, char *text)
{
    struct dial_to ret = *to;
    if (to->host.n > 0)
        memcpy(text, to->host.p, to->host.n);
    if (to->tls_name.n > 0)
        memcpy(text + to->host.n, to->tls_name.p, to->tls_name.n);
    ret.host.p = text;
    ret.tls_name.p = text + to->host.n;
    if (ret.tls)
        tls_ctx_ref(ret.tls);
    return ret;
}

void dial_to_drop(struct dial_to *to)
{
    if (to->tls)
        tls_ctx_unref(to->tls);
    to->tls = NULL;
}

static void leave_state(struct oconn *c)
{
    list_del(&c->link);
    timer_clear(c->o->w, &c->timer);
    if (c->line)
        c->line->ncoming--;
    c->line = NULL;
    if (c->state != OCONN_IDLE)
        return;
    list_del(&c->age);
    c->pool->nidle--;
    c->o->idle--;
}

static void enter_idle(struct oconn *c)
{
    list_push_front(&c->pool->idle, &c->link);
    list_push(&c->o->by_age, &c->age);
    timer_set(c->o->w, &c->timer, c->o->rules.idle_ms);
    c->pool->nidle++;
    c->o->idle++;
}

void oconn_enter(struct oconn *c, enum oconn_state state)
{
    struct line *line = c->line;
    leave_state(c);
    c->state = state;
    switch (state) {
    case OCONN_DIALLING:
        assert(false); /* a connection begins with it */
        break;
    case OCONN_GREETING:
        c->line = line;
        line->ncoming++;
        list_push(&line->coming, &c->link);
        break;
    case OCONN_IDLE:
        enter_idle(c);
        break;
    case OCONN_SHARED:
        list_push(&c->pool->shared, &c->link);
        break;
    case OCONN_BUSY:
        list_push(&c->pool->busy, &c->link);
        break;
    }
}

void oconn_close(struct oconn *c, enum why why)
{
    oconn_enter(c, OCONN_BUSY);
    c->session->ops->close(c->session, why);
}

void oconn_rest(struct oconn *c)
{
    struct origins *o = c->o;
    if (c->pool->over || o->draining || c->era != o->era || o->rules.idle_max == 0) {
        oconn_close(c, WHY_OK);
        return;
    }
    oconn_enter(c, OCONN_IDLE);
    if (c->pool->nidle > o->rules.idle_max)
        oconn_close(container_of(c->pool->idle.prev, struct oconn, link), WHY_OK);
    if (o->idle > o->rules.idle_cap)
        origin_trim(o, 1);
}

void oconn_free(struct oconn *c)
{
    struct origin_pool *p = c->pool;
    struct origins *o = c->o;
    leave_state(c);
    p->nconns--;
    o->open--;
    o->open_h2 -= c->h2;
    dial_to_drop(&c->to);
    worker_bury(o->w, mem_free, c);
    pool_settle(o, p);
}

enum why oconn_may(const struct oconn *c, const struct origin_asker *asker, void *user)
{
    return asker && asker->peer ? asker->peer(user, c->info) : WHY_OK;
}

bool oconn_open(struct oconn *c, struct origin_got *ret)
{
    struct http_stream *s;
    if (!c->session->ops->open(c->session, &s)) {
        if (c->h2 && c->state == OCONN_SHARED)
            oconn_enter(c, OCONN_BUSY); /* idle() tells when there is room again */
        return false;
    }
    *ret = (struct origin_got){s, c->h2, c->info};
    if (c->h2 && c->state != OCONN_SHARED)
        oconn_enter(c, OCONN_SHARED);
    if (!c->h2)
        oconn_enter(c, OCONN_BUSY);
    return true;
}

/* ---- reuse */

static bool suits(const struct oconn *c, const struct origin_want *want)
{
    if (c->era != c->o->era || !dial_to_same(&c->to, &want->to))
        return false;
    switch (want->need) {
    case ORIGIN_ANY: /* one that was not offered HTTP/2 says nothing of the origin's choice */
        return c->h2 || c->any;
    case ORIGIN_H1:
        return !c->h2;
    case ORIGIN_H2:
        return c->h2;
    default:
        return c->h2 && c->session->extended;
    }
}

/* Not WHY_OK: one of them would have had room, and may not be used. */
static enum why reuse_from(struct list *conns, const struct origin_want *want,
                           const struct origin_asker *asker, void *user, struct origin_got *ret)
{
    list_each(l, conns)
    {
        struct oconn *c = container_of(l, struct oconn, link);
        if (!suits(c, want))
            continue;
        enum why why = oconn_may(c, asker, user);
        if (why != WHY_OK || oconn_open(c, ret))
            return why;
    }
    return WHY_OK;
}

enum why origin_reuse(struct origins *o, const struct origin_want *want,
                      const struct origin_asker *asker, void *user, struct origin_got *ret)
{
    bool alone = want->need == ORIGIN_FRESH || want->need == ORIGIN_RAW;
    struct origin_pool *p = alone ? NULL : pool_find(o, want->pool);
    ret->stream = NULL;
    if (!p)
        return WHY_OK;
    enum why why = reuse_from(&p->shared, want, asker, user, ret);
    return why != WHY_OK || ret->stream ? why : reuse_from(&p->idle, want, asker, user, ret);
}

/* ---- what is known */

static enum origin_speaks chosen(const struct list *conns, const struct dial_to *to)
{
    for (const struct list *l = conns->next; l != conns; l = l->next) {
        const struct oconn *c = container_of((struct list *)(uintptr_t)l, struct oconn, link);
        if (c->any && dial_to_same(&c->to, to))
            return c->h2 ? ORIGIN_SPEAKS_H2 : ORIGIN_SPEAKS_H1;
    }
    return ORIGIN_SPEAKS_UNKNOWN;
}

enum origin_speaks origin_speaks(const struct origins *o, const struct origin_want *want)
{
    const struct origin_pool *p = map_get(o->pools, want->pool);
    if (!p)
        return ORIGIN_SPEAKS_UNKNOWN;
    const struct list *const lists[] = {&p->shared, &p->idle, &p->busy};
    enum origin_speaks ret = ORIGIN_SPEAKS_UNKNOWN;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !ret; i++)
        ret = chosen(lists[i], &want->to);
    return ret;
}

/* ---- less */

void origin_trim(struct origins *o, unsigned n)
{
    for (; n > 0 && !list_empty(&o->by_age); n--)
        oconn_close(container_of(list_first(&o->by_age), struct oconn, age), WHY_OK);
}

void origin_renew(struct origins *o)
{
    o->era++;
    origin_trim(o, o->idle);
}

void origin_drain(struct origins *o)
{
    o->draining = true;
    origin_trim(o, o->idle);
}

static void close_list(struct list *conns)
{
    list_each(l, conns)
    {
        struct oconn *c = container_of(l, struct oconn, link);
        c->session->ops->close(c->session, WHY_REVOKED);
    }
}

/* to: NULL, or who takes those that run on. */
static void end_users(struct origins *o, struct origin_pool *p, const struct str *to)
{
    for (struct list *l; (l = list_first(&p->users));) {
        struct origin_user *u = container_of(l, struct origin_user, link);
        list_del(&u->link);
        u->pool = NULL;
        if (u->ended(u, to != NULL) && to)
            origin_join(o, *to, u);
    }
}

static void end_pool(struct origins *o, struct str name, const struct str *to)
{
    struct origin_pool *p = pool_find(o, name);
    if (!p)
        return;
    pool_forget(o, p); /* whoever comes by this name later gets a pool of his own */
    p->over = true;
    p->nconns++; /* stays while we walk it */
    end_users(o, p, to);
    close_list(&p->idle);
    if (!to) {
        close_list(&p->shared);
        close_list(&p->busy);
    }
    p->nconns--;
    pool_settle(o, p);
}

void origin_purge(struct origins *o, struct str pool)
{
    end_pool(o, pool, NULL);
}

void origin_move(struct origins *o, struct str pool, struct str to)
{
    end_pool(o, pool, &to);
}

/* ---- to look at */

unsigned origin_idle(const struct origins *o)
{
    return o->idle;
}

unsigned origin_open(const struct origins *o)
{
    return o->open;
}

unsigned origin_open_h2(const struct origins *o)
{
    return o->open_h2;
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
