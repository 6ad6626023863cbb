/* origin_dial.c — connections in the making, and who waits for them.  An HTTP/1.1 connection is
 * made for one request.  HTTP/2 ones are made for a line: the first request dials, those that come
 * meanwhile wait with it, and only when an origin has said how many streams it takes are as many
 * dialled as it takes to serve the rest.  Who waits has a deadline of his own, and takes whatever
 * has room first, a new connection or an old one. */
#include <assert.h>

#include "proxy/origin_impl.h"

enum { GIVE_WAY = 16 };

struct origin_dial {
    struct list link; /* in line->waiting */
    struct origins *o;
    struct line *line; /* it waits here, */
    struct oconn *c;   /* or for this one, HTTP/1.1 */
    struct timer timer;
    uint64_t until_ms;
    enum origin_need need;
    bool anew;
    const struct origin_asker *asker;
    void *user;
};

static const struct session_events session_events;
static void connect_now(struct oconn *c);
static void on_timer(struct timer *t);

/* ---- connections */

static uint64_t left_ms(const struct origins *o, uint64_t until_ms)
{
    uint64_t now = worker_now(o->w);
    return until_ms > now ? until_ms - now : 1;
}

static struct oconn *oconn_new(struct origins *o, struct origin_pool *p, const struct dial_to *to,
                               uint64_t until_ms)
{
    struct oconn *c = mem_new(sizeof *c + to->host.n);
    memcpy(c->host, to->host.p, to->host.n);
    c->to = *to;
    c->to.host.p = c->host;
    c->o = o;
    c->era = o->era;
    c->pool = p;
    c->until_ms = until_ms;
    p->nconns++;
    o->open++;
    list_init(&c->link);
    list_init(&c->age);
    timer_init(&c->timer, on_timer);
    return c;
}

/* An HTTP/1.1 connection for d alone. */
static void dial_alone(struct origin_dial *d, struct origin_pool *p, const struct dial_to *to)
{
    d->c = oconn_new(d->o, p, to, d->until_ms);
    d->c->asker = d;
    connect_now(d->c);
}

/* ---- waiting */

static void stop_waiting(struct origin_dial *d)
{
    if (!d->line)
        return;
    list_del(&d->link);
    timer_clear(d->o->w, &d->timer);
    d->line->nwaiting--;
    d->line = NULL;
}

static void finish(struct origin_dial *d, const struct origin_got *got, enum why why)
{
    stop_waiting(d);
    d->asker->done(d->user, got, why);
    worker_bury(d->o->w, mem_free, d);
}

/* ---- lines */

static struct line *line_find(struct origin_pool *p, const struct dial_to *to)
{
    list_each(it, &p->lines)
    {
        struct line *l = container_of(it, struct line, link);
        if (dial_to_same(&l->to, to))
            return l;
    }
    return NULL;
}

static struct line *line_get(struct origin_pool *p, const struct dial_to *to)
{
    struct line *l = line_find(p, to);
    if (l)
        return l;
    l = mem_new(sizeof *l + to->host.n);
    memcpy(l->host, to->host.p, to->host.n);
    l->to = *to;
    l->to.host.p = l->host;
    l->pool = p;
    list_init(&l->waiting);
    list_init(&l->coming);
    list_push(&p->lines, &l->link);
    return l;
}

/* Nobody waits any more: what is on its way is not wanted.  How many connects that were. */
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

/* As give_up() where nobody waits; then the line goes too. */
static unsigned line_settle(struct origins *o, struct line *l)
{
    assert(l->nwaiting == 0 || l->ncoming > 0);
    if (l->nwaiting > 0)
        return 0;
    unsigned n = give_up(l);
    list_del(&l->link);
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

static void line_want(struct origins *o, struct line *l)
{
    while (!enough_coming(l)) {
        struct oconn *c = oconn_new(o, l->pool, &l->to, worker_now(o->w) + l->timeout_ms);
        c->h2 = true;
        c->line = l;
        l->ncoming++;
        o->open_h2++;
        list_push(&l->coming, &c->link);
        connect_now(c);
    }
}

/* One that was coming came to nothing.  Whoever waits goes with it when no other is on its way; a
 * deadline is only theirs who have waited as long. */
static void line_failed(struct origins *o, struct line *l, enum why why)
{
    uint64_t now = worker_now(o->w);
    bool all = why != WHY_DEADLINE && l->ncoming == 0;
    list_each(it, &l->waiting)
    {
        struct origin_dial *d = container_of(it, struct origin_dial, link);
        if (all || (why == WHY_DEADLINE && now >= d->until_ms))
            finish(d, NULL, why);
    }
    line_want(o, l);
    line_settle(o, l);
}

/* c is up, just now (fresh) or for a while, and may have room. */
static void line_serve(struct origins *o, struct line *l, struct oconn *c, bool fresh)
{
    struct origin_got got;
    list_each(it, &l->waiting)
    {
        struct origin_dial *d = container_of(it, struct origin_dial, link);
        if (d->anew && !fresh)
            continue;
        if (d->need == ORIGIN_H2_TUNNEL && !c->session->extended) {
            stop_waiting(d);
            dial_alone(d, l->pool, &l->to);
            continue;
        }
        if (!oconn_open(c, &got)) {
            l->takes = c->session->running;
            break;
        }
        finish(d, &got, WHY_OK);
    }
    line_want(o, l);
    line_settle(o, l);
}

static void on_wait_timer(struct timer *t)
{
    struct origin_dial *d = container_of(t, struct origin_dial, timer);
    struct line *l = d->line;
    stop_waiting(d);
    for (unsigned n = line_settle(d->o, l); n > 0; n--)
        d->asker->dialled(d->user, WHY_DEADLINE, 0, 0);
    finish(d, NULL, WHY_DEADLINE);
}

/* ---- dialling */

/* Who is asked and told about this connect. */
static struct origin_dial *asker_of(struct oconn *c)
{
    if (c->asker)
        return c->asker;
    return container_of(list_first(&c->line->waiting), struct origin_dial, link);
}

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    struct origin_dial *d = asker_of(user);
    return d->asker->allow(d->user, addr);
}

static void up_alone(struct oconn *c, struct conn *conn, enum why why)
{
    struct origin_dial *d = c->asker;
    struct origin_got got;
    c->asker = NULL;
    if (!conn) {
        oconn_free(c);
        finish(d, NULL, why);
        return;
    }
    struct worker *w = c->o->w;
    const struct http_limits *limits = c->o->rules.limits;
    c->session = d->need == ORIGIN_RAW
                     ? raw_start(w, conn, false, STR(""), limits, &session_events, c)
                     : h1_start(w, conn, false, limits, &session_events, c);
    bool ok = oconn_open(c, &got);
    assert(ok);
    finish(d, &got, WHY_OK);
}

static void up_in_line(struct oconn *c, struct conn *conn, enum why why)
{
    struct origins *o = c->o;
    struct line *l = c->line;
    if (!conn) {
        oconn_free(c);
        line_failed(o, l, why);
        return;
    }
    c->session = h2_start(o->w, conn, false, o->rules.limits, &session_events, c);
    oconn_enter(c, OCONN_GREETING);
    timer_set(o->w, &c->timer, left_ms(o, c->until_ms));
}

static void on_dialled(void *user, struct conn *conn, enum why why)
{
    struct oconn *c = user;
    struct origins *o = c->o;
    int error = dial_errno(c->dial);
    c->dial = NULL;
    if (why == WHY_OVERLOAD && !c->again && o->idle > 0) { /* descriptors: idle ones give way */
        c->again = true;
        origin_trim(o, GIVE_WAY);
        connect_now(c);
        return;
    }
    struct origin_dial *d = asker_of(c);
    d->asker->dialled(d->user, why, error, worker_now_us(o->w) - c->t_dial);
    if (c->h2)
        up_in_line(c, conn, why);
    else
        up_alone(c, conn, why);
}

static void connect_now(struct oconn *c)
{
    struct origins *o = c->o;
    c->t_dial = worker_now_us(o->w);
    c->dial = dial_start(o->w, &c->to, left_ms(o, c->until_ms), on_allow, on_dialled, c);
}

/* ---- events of a connection */

/* There is room on it, and for HTTP/1.1 nothing else. */
static void on_session_idle(void *user, struct session *s)
{
    struct oconn *c = user;
    struct origins *o = c->o;
    if (!c->h2 || c->pool->over) {
        oconn_rest(c);
        return;
    }
    struct line *l = line_find(c->pool, &c->to);
    bool fresh = c->state == OCONN_GREETING;
    if (c->state == OCONN_IDLE && !l)
        return; /* saying so again prolongs nothing */
    oconn_enter(c, OCONN_SHARED);
    if (l && (fresh || c->era == o->era))
        line_serve(o, l, c, fresh);
    if (s->running == 0)
        oconn_rest(c);
}

static void on_session_closed(void *user, struct session *s)
{
    struct oconn *c = user;
    struct origins *o = c->o;
    struct line *l = c->line;
    (void)s;
    c->session = NULL;
    oconn_free(c);
    if (l)
        line_failed(o, l, WHY_ORIGIN_PROTOCOL); /* no SETTINGS: whatever it was, it was no HTTP/2 */
}

static const struct session_events session_events = {NULL, on_session_idle, NULL,
                                                     on_session_closed};

static void on_timer(struct timer *t)
{
    struct oconn *c = container_of(t, struct oconn, timer);
    struct origins *o = c->o;
    struct line *l = c->line;
    oconn_close(c, l ? WHY_DEADLINE : WHY_OK);
    if (l)
        line_failed(o, l, WHY_DEADLINE);
}

/* ---- asking */

/* A connection to there is up, and takes no extended CONNECT. */
static bool known_plain(struct origin_pool *p, const struct dial_to *to)
{
    struct list *const lists[] = {&p->idle, &p->shared, &p->busy};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_each(it, lists[i])
        {
            struct oconn *c = container_of(it, struct oconn, link);
            if (c->h2 && dial_to_same(&c->to, to) && !c->session->extended)
                return true;
        }
    return false;
}

struct origin_dial *origin_dial(struct origins *o, const struct origin_want *want,
                                uint64_t timeout_ms, const struct origin_asker *asker, void *user)
{
    struct origin_pool *p = pool_get(o, want->pool);
    struct origin_dial *d = mem_new(sizeof *d);
    *d = (struct origin_dial){.o = o,
                              .need = want->need,
                              .anew = want->anew,
                              .until_ms = worker_now(o->w) + timeout_ms,
                              .asker = asker,
                              .user = user};
    list_init(&d->link);
    timer_init(&d->timer, on_wait_timer);
    if (want->need != ORIGIN_H2 && (want->need != ORIGIN_H2_TUNNEL || known_plain(p, &want->to))) {
        dial_alone(d, p, &want->to);
        return d;
    }
    d->line = line_get(p, &want->to);
    d->line->timeout_ms = timeout_ms;
    d->line->nwaiting++;
    list_push(&d->line->waiting, &d->link);
    timer_set(o->w, &d->timer, timeout_ms);
    line_want(o, d->line);
    return d;
}

unsigned origin_dial_cancel(struct origin_dial *d)
{
    struct origins *o = d->o;
    struct line *l = d->line;
    unsigned n = 1;
    stop_waiting(d);
    if (l) {
        n = line_settle(o, l);
    } else {
        dial_cancel(d->c->dial);
        oconn_free(d->c);
    }
    worker_bury(o->w, mem_free, d);
    return n;
}
