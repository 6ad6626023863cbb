/* origin_line.c — who waits for a connection that can speak HTTP/2.  The first request dials, those
 * that come meanwhile wait with it, and only when an origin has said how many streams it takes are
 * as many dialled as it takes to serve the rest; one that has chosen HTTP/1.1 takes one.  Who waits
 * has a deadline of his own, and takes whatever has room first, a new connection or an old one. */
#include <assert.h>

#include "proxy/origin_impl.h"

void line_leave(struct origin_dial *d)
{
    if (!d->line)
        return;
    list_del(&d->link);
    timer_clear(d->o->w, &d->timer);
    d->line->nwaiting--;
    d->line = NULL;
}

void origin_dial_done(struct origin_dial *d, const struct origin_got *got, enum why why)
{
    line_leave(d);
    d->asker->done(d->user, got, why);
    worker_bury(d->o->w, mem_free, d);
}

struct line *line_find(struct origin_pool *p, const struct dial_to *to, bool any)
{
    list_each(it, &p->lines)
    {
        struct line *l = container_of(it, struct line, link);
        if (l->any == any && dial_to_same(&l->to, to))
            return l;
    }
    return NULL;
}

/* Where the origin is known to choose HTTP/1.1, nobody waits for another's connection. */
struct line *line_get(struct origins *o, struct origin_pool *p, const struct origin_want *want)
{
    const struct dial_to *to = &want->to;
    bool any = want->need == ORIGIN_ANY;
    struct line *l = line_find(p, to, any);
    if (l)
        return l;
    l = mem_new(sizeof *l + dial_to_bytes(to));
    l->to = dial_to_keep(to, l->text);
    l->pool = p;
    l->any = any;
    l->takes = any && origin_speaks(o, want) == ORIGIN_SPEAKS_H1;
    list_init(&l->waiting);
    list_init(&l->coming);
    list_push(&p->lines, &l->link);
    return l;
}

static unsigned give_up(struct line *l)
{
    unsigned n = 0;
    list_each(it, &l->coming)
    {
        struct oconn *c = container_of(it, struct oconn, link);
        if (c->state == OCONN_GREETING) {
            oconn_close(c, WHY_OK);
            continue;
        }
        dial_cancel(c->dial);
        oconn_free(c);
        n++;
    }
    return n;
}

unsigned line_settle(struct origins *o, struct line *l)
{
    assert(l->nwaiting == 0 || l->ncoming > 0);
    if (l->nwaiting > 0)
        return 0;
    unsigned n = give_up(l);
    list_del(&l->link);
    dial_to_drop(&l->to);
    worker_bury(o->w, mem_free, l);
    pool_settle(o, l->pool);
    return n;
}

static bool enough_coming(const struct line *l)
{
    if (l->nwaiting == 0 || l->ncoming == 0)
        return l->nwaiting == 0;
    return l->takes == 0 || l->ncoming >= (l->nwaiting - 1) / l->takes + 1;
}

void line_want(struct origins *o, struct line *l)
{
    while (!enough_coming(l)) {
        struct oconn *c = oconn_new(o, l->pool, &l->to, worker_now(o->w) + l->timeout_ms);
        c->any = l->any;
        c->h2 = !l->any;
        c->line = l;
        l->ncoming++;
        o->open_h2 += c->h2;
        list_push(&l->coming, &c->link);
        oconn_connect(c);
    }
}

void line_failed(struct origins *o, struct line *l, enum why why, struct str fault)
{
    uint64_t now = worker_now(o->w);
    bool all = why != WHY_DEADLINE && l->ncoming == 0;
    list_each(it, &l->waiting)
    {
        struct origin_dial *d = container_of(it, struct origin_dial, link);
        if (!all && (why != WHY_DEADLINE || now < d->until_ms))
            continue;
        d->fault = fault;
        origin_dial_done(d, NULL, why);
    }
    line_want(o, l);
    line_settle(o, l);
}

/* False: c has no room for d. */
static bool serve(struct origin_dial *d, struct oconn *c)
{
    struct origin_got got = {NULL, c->h2, c->info};
    enum why why = d->prepare ? WHY_OK : oconn_may(c, d->asker, d->user);
    if (why == WHY_OK && !d->prepare && !oconn_open(c, &got))
        return false;
    origin_dial_done(d, why == WHY_OK ? &got : NULL, why);
    return true;
}

/* Who wants no stream stands in front, and is served whatever room there is. */
void line_serve(struct origins *o, struct line *l, struct oconn *c, bool fresh)
{
    list_each(it, &l->waiting)
    {
        struct origin_dial *d = container_of(it, struct origin_dial, link);
        if (d->anew && !fresh)
            continue;
        if (d->need == ORIGIN_H2_TUNNEL && !c->session->extended) {
            line_leave(d);
            oconn_dial_alone(d, l->pool, &l->to);
            continue;
        }
        if (!serve(d, c)) {
            l->takes = c->session->running;
            break;
        }
    }
    line_want(o, l);
    line_settle(o, l);
}
