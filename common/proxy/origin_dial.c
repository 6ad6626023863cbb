/* origin_dial.c — connections in the making, and who asks for them.  One that can only speak
 * HTTP/1.1 is made for one request; those that can speak HTTP/2 are made for a line, where requests
 * wait for whatever has room (origin_line.c). */
#include <assert.h>

#include "proxy/origin_impl.h"

enum { GIVE_WAY = 16 };

static const struct session_events session_events;
static void on_timer(struct timer *t);

/* ---- connections */

static uint64_t left_ms(const struct origins *o, uint64_t until_ms)
{
    uint64_t now = worker_now(o->w);
    return until_ms > now ? until_ms - now : 1;
}

struct oconn *oconn_new(struct origins *o, struct origin_pool *p, const struct dial_to *to,
                        uint64_t until_ms)
{
    struct oconn *c = mem_new(sizeof *c + dial_to_bytes(to));
    c->to = dial_to_keep(to, c->text);
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

void oconn_dial_alone(struct origin_dial *d, struct origin_pool *p, const struct dial_to *to)
{
    d->c = oconn_new(d->o, p, to, d->until_ms);
    d->c->asker = d;
    oconn_connect(d->c);
}

/* ---- waiting */

static void on_wait_timer(struct timer *t)
{
    struct origin_dial *d = container_of(t, struct origin_dial, timer);
    struct line *l = d->line;
    line_leave(d);
    for (unsigned n = line_settle(d->o, l); n > 0; n--)
        d->asker->dialled(d->user, WHY_DEADLINE, 0, 0);
    origin_dial_done(d, NULL, WHY_DEADLINE);
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

/* It is up, and d may not use it. */
static void keep_from(struct origin_dial *d, struct oconn *c, enum why why)
{
    if (d->need == ORIGIN_H1)
        oconn_rest(c);
    else
        oconn_close(c, WHY_OK);
    origin_dial_done(d, NULL, why);
}

static void up_alone(struct oconn *c, struct conn *conn, enum why why)
{
    struct origin_dial *d = c->asker;
    struct origin_got got;
    c->asker = NULL;
    if (!conn) {
        oconn_free(c);
        origin_dial_done(d, NULL, why);
        return;
    }
    struct worker *w = c->o->w;
    const struct http_limits *limits = c->o->rules.limits;
    c->info = conn_info(conn);
    c->session = d->need == ORIGIN_RAW
                     ? raw_start(w, conn, false, STR(""), limits, &session_events, c)
                     : h1_start(w, conn, false, limits, &session_events, c);
    why = oconn_may(c, d->asker, d->user);
    if (why != WHY_OK) {
        keep_from(d, c, why);
        return;
    }
    bool ok = oconn_open(c, &got);
    assert(ok);
    origin_dial_done(d, &got, WHY_OK);
}

/* What was opened on it since is `exchanges` more than there were. */
static void rest_unless_used(struct oconn *c, unsigned exchanges)
{
    if (c->session->exchanges == exchanges)
        oconn_rest(c);
}

static void up_in_line(struct oconn *c, struct conn *conn, enum why why, struct str fault)
{
    struct origins *o = c->o;
    struct line *l = c->line;
    const struct http_limits *limits = o->rules.limits;
    if (!conn) {
        oconn_free(c);
        line_failed(o, l, why, fault);
        return;
    }
    c->info = conn_info(conn);
    if (c->any && !str_eq(c->info->alpn, STR("h2"))) {
        c->session = h1_start(o->w, conn, false, limits, &session_events, c);
        oconn_enter(c, OCONN_BUSY);
        line_serve(o, l, c, true);
        rest_unless_used(c, 0);
        return;
    }
    o->open_h2 += !c->h2;
    c->h2 = true;
    c->session = h2_start(o->w, conn, false, limits, &session_events, c);
    oconn_enter(c, OCONN_GREETING);
    timer_set(o->w, &c->timer, left_ms(o, c->until_ms));
}

static void on_dialled(void *user, struct conn *conn, enum why why)
{
    struct oconn *c = user;
    struct origins *o = c->o;
    int error = dial_errno(c->dial);
    struct str fault = dial_fault(c->dial);
    c->dial = NULL;
    if (why == WHY_OVERLOAD && !c->again && o->idle > 0) { /* descriptors: idle ones give way */
        c->again = true;
        origin_trim(o, GIVE_WAY);
        oconn_connect(c);
        return;
    }
    struct origin_dial *d = asker_of(c);
    d->fault = fault;
    d->asker->dialled(d->user, why, error, worker_now_us(o->w) - c->t_dial);
    if (c->line)
        up_in_line(c, conn, why, fault);
    else
        up_alone(c, conn, why);
}

void oconn_connect(struct oconn *c)
{
    struct origins *o = c->o;
    c->t_dial = worker_now_us(o->w);
    c->dial = dial_start(o->w, &c->to, left_ms(o, c->until_ms), on_allow, on_dialled, c);
}

/* ---- events of a connection */

/* Its pool is over; who still waits in the line is none of the pool's users.  Of one that has moved
 * other streams may run on. */
static void leave_line(struct oconn *c)
{
    struct line *l = c->line;
    if (!c->h2 || c->session->running == 0)
        oconn_rest(c);
    if (l)
        line_failed(c->o, l, WHY_REVOKED, STR_NONE);
}

static void h1_idle(struct oconn *c)
{
    struct line *l = c->any && c->era == c->o->era ? line_find(c->pool, &c->to, c->any) : NULL;
    unsigned before = c->session->exchanges;
    if (l)
        line_serve(c->o, l, c, false);
    rest_unless_used(c, before);
}

/* There is room on it, and for HTTP/1.1 nothing else. */
static void on_session_idle(void *user, struct session *s)
{
    struct oconn *c = user;
    struct origins *o = c->o;
    if (c->pool->over) {
        leave_line(c);
        return;
    }
    if (!c->h2) {
        h1_idle(c);
        return;
    }
    struct line *l = line_find(c->pool, &c->to, c->any);
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
    struct str fault = c->info->fault;
    (void)s;
    c->session = NULL;
    oconn_free(c);
    if (l) /* no SETTINGS: whatever it was, it was no HTTP/2 */
        line_failed(o, l, fault.n > 0 ? WHY_TLS : WHY_ORIGIN_PROTOCOL, fault);
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
        line_failed(o, l, WHY_DEADLINE, STR_NONE);
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

static struct origin_dial *ask(struct origins *o, const struct origin_want *want,
                               uint64_t timeout_ms, const struct origin_asker *asker, void *user)
{
    struct origin_dial *d = mem_new(sizeof *d);
    *d = (struct origin_dial){.o = o,
                              .need = want->need,
                              .anew = want->anew,
                              .until_ms = worker_now(o->w) + timeout_ms,
                              .asker = asker,
                              .user = user};
    list_init(&d->link);
    timer_init(&d->timer, on_wait_timer);
    return d;
}

static void stand_in_line(struct origin_dial *d, struct origin_pool *p,
                          const struct origin_want *want, uint64_t timeout_ms)
{
    struct line *l = d->line = line_get(d->o, p, want);
    l->timeout_ms = timeout_ms;
    l->nwaiting++;
    if (d->prepare)
        list_push_front(&l->waiting, &d->link);
    else
        list_push(&l->waiting, &d->link);
    timer_set(d->o->w, &d->timer, timeout_ms);
    line_want(d->o, l);
}

static bool waits_in_line(struct origin_pool *p, const struct origin_want *want)
{
    if (want->need == ORIGIN_H2_TUNNEL)
        return !known_plain(p, &want->to);
    return want->need == ORIGIN_H2 || want->need == ORIGIN_ANY;
}

struct origin_dial *origin_dial(struct origins *o, const struct origin_want *want,
                                uint64_t timeout_ms, const struct origin_asker *asker, void *user)
{
    struct origin_pool *p = pool_get(o, want->pool);
    struct origin_dial *d = ask(o, want, timeout_ms, asker, user);
    if (waits_in_line(p, want))
        stand_in_line(d, p, want, timeout_ms);
    else
        oconn_dial_alone(d, p, &want->to);
    return d;
}

struct origin_dial *origin_prepare(struct origins *o, const struct origin_want *want,
                                   uint64_t timeout_ms, const struct origin_asker *asker,
                                   void *user)
{
    struct origin_dial *d = ask(o, want, timeout_ms, asker, user);
    assert(want->need == ORIGIN_ANY);
    d->prepare = true;
    stand_in_line(d, pool_get(o, want->pool), want, timeout_ms);
    return d;
}

struct str origin_dial_fault(const struct origin_dial *d)
{
    return d->fault;
}

unsigned origin_dial_cancel(struct origin_dial *d)
{
    struct origins *o = d->o;
    struct line *l = d->line;
    unsigned n = 1;
    line_leave(d);
    if (l) {
        n = line_settle(o, l);
    } else {
        dial_cancel(d->c->dial);
        oconn_free(d->c);
    }
    worker_bury(o->w, mem_free, d);
    return n;
}
