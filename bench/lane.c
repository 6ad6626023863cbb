/* lane.c — one connection of the load after the other: dial, handshake, session, and as many
 * requests at a time as it may have.  A connection that ends is followed by a new one. */
#include "load.h"
#include "net/tls.h"

enum { DIAL_MS = 10000, PAUSE_MS = 20 };

static void on_pause_over(struct timer *t)
{
    lane_start(container_of(t, struct lane, pause));
}

void lane_init(struct lane *n, struct load *l)
{
    n->l = l;
    n->ncalls = l->o.h2 && l->o.ws == 0 ? (unsigned)l->o.streams : 1;
    n->calls = mem_new(n->ncalls * sizeof *n->calls);
    timer_init(&n->pause, on_pause_over);
    for (unsigned i = 0; i < n->ncalls; i++)
        call_init(&n->calls[i], n);
}

void lane_done(struct lane *n)
{
    for (unsigned i = 0; i < n->ncalls; i++)
        call_done(&n->calls[i]);
    mem_free(n->calls);
}

static void gone(struct lane *n)
{
    struct load *l = n->l;
    l->alive--;
    if (l->stopping && l->alive == 0)
        worker_stop(l->w);
}

static void failed(struct lane *n)
{
    n->l->errors++;
    gone(n);
    if (!n->l->stopping)
        timer_set(n->l->w, &n->pause, PAUSE_MS);
}

void lane_stop(struct lane *n)
{
    timer_clear(n->l->w, &n->pause);
    for (unsigned i = 0; i < n->ncalls; i++)
        call_stop(&n->calls[i]);
    if (n->s)
        n->s->ops->close(n->s, WHY_DRAIN);
    if (n->opening)
        conn_close(n->opening, WHY_DRAIN);
    if (!n->dial)
        return;
    dial_cancel(n->dial);
    n->dial = NULL;
    gone(n);
}

/* ---- sessions */

void lane_fill(struct lane *n)
{
    for (unsigned i = 0; i < n->ncalls && !n->l->stopping; i++) {
        struct call *c = &n->calls[i];
        if (c->up)
            continue;
        if (!n->s->ops->open(n->s, &c->up)) {
            c->up = NULL;
            return;
        }
        call_send(c);
    }
}

static void on_idle(void *user, struct session *s)
{
    struct lane *n = user;
    struct load *l = n->l;
    (void)s;
    if (l->stopping)
        return;
    if (l->o.idle == 0 || !n->answered) {
        lane_fill(n);
        return;
    }
    load_hold(l);
    lane_start_next(l);
}

static void on_session_closed(void *user, struct session *s)
{
    struct lane *n = user;
    struct load *l = n->l;
    (void)s;
    n->s = NULL;
    gone(n);
    if (l->stopping)
        return;
    if (l->o.idle > 0)
        l->errors++;
    if (l->o.ws > 0 || l->o.idle > 0)
        return;
    if (!n->answered) /* no hurry to try again */
        timer_set(l->w, &n->pause, PAUSE_MS);
    else
        lane_start(n);
}

static const struct session_events session_events = {NULL, on_idle, NULL, on_session_closed};

static void begin_session(struct lane *n, struct conn *c)
{
    struct load *l = n->l;
    n->s = l->o.h2 ? h2_start(l->w, c, false, &l->limits, &session_events, n)
                   : h1_start(l->w, c, false, &l->limits, &session_events, n);
    lane_fill(n);
}

/* ---- TLS */

static void on_ready(void *user)
{
    struct lane *n = user;
    struct conn *c = n->opening;
    if (n->l->o.h2 && !str_eq(conn_info(c)->alpn, STR("h2"))) {
        conn_close(c, WHY_TLS);
        return;
    }
    n->opening = NULL;
    begin_session(n, c);
}

static void on_bytes(void *user, struct buf *in)
{
    (void)user;
    (void)in; /* the session's */
}

static void on_eof(void *user)
{
    struct lane *n = user;
    conn_close(n->opening, WHY_TLS);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    (void)user;
    (void)out;
    (void)max;
}

static void on_conn_closed(void *user, enum why why)
{
    struct lane *n = user;
    (void)why;
    n->opening = NULL;
    if (n->l->stopping)
        gone(n);
    else
        failed(n);
}

static const struct conn_events tls_events = {on_ready, on_bytes, on_eof, on_fill, on_conn_closed};

static void begin_tls(struct lane *n, struct conn *c)
{
    struct tls_to to = {.name = STR("bench.test"), .alpn = {n->l->o.h2 ? "h2" : "http/1.1", NULL}};
    n->opening = c;
    conn_attach(c, &tls_events, n);
    conn_secure(c, n->l->tls, &to);
}

/* ---- dialling */

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    (void)user;
    (void)addr;
    return WHY_OK;
}

static void on_dialled(void *user, struct conn *c, enum why why)
{
    struct lane *n = user;
    (void)why;
    n->dial = NULL;
    if (!c)
        failed(n);
    else if (n->l->tls)
        begin_tls(n, c);
    else
        begin_session(n, c);
}

void lane_start(struct lane *n)
{
    struct load *l = n->l;
    l->alive++;
    n->answered = false;
    n->begun_us = worker_now_us(l->w);
    n->dial = dial_start(l->w, &l->to, DIAL_MS, on_allow, on_dialled, n);
}

void lane_start_next(struct load *l)
{
    if (l->begun < l->nlanes)
        lane_start(&l->lanes[l->begun++]);
}
