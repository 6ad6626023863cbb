/* proxy.c — what exchanges of one worker share: clients, pools, limits, drain. */
#include <assert.h>
#include <stdlib.h>

#include "base/digest.h"
#include "base/text.h"
#include "net/opening.h"
#include "proxy/exchange.h"

enum { VIEW_METHOD_BYTES = 32, EBB_MS = 100 };

static const char *const state_texts[] = {
#define X(id, text, timeout) text,
    XSTATE_MAP(X)
#undef X
};

const char *xstate_text(enum xstate s)
{
    return state_texts[s];
}

/* ---- clients */

void proxy_client_gone(struct client *c)
{
    list_del(&c->link);
    c->p->nclients--;
    worker_bury(c->p->w, mem_free, c);
    proxy_check_drained(c->p);
}

static void on_became(void *user, struct session *s)
{
    struct client *c = user;
    c->session = s;
}

static void on_session_closed(void *user, struct session *s)
{
    (void)s;
    proxy_client_gone(user);
}

static const struct session_events session_events = {exchange_accept, NULL, on_became,
                                                     on_session_closed};

static void begin_session(struct client *c, struct conn *conn)
{
    struct proxy *p = c->p;
    list_push(&p->clients, &c->link);
    c->session = session_start(p->w, conn, &p->rules.client, &session_events, c);
    if (p->draining) /* it waited in the queue while we closed the listener: served once, then
                        closed */
        c->session->ops->drain(c->session);
}

static void on_opened(void *user, struct conn *conn, enum why why)
{
    struct client *c = user;
    c->opening = NULL;
    list_del(&c->link);
    if (conn) {
        begin_session(c, conn);
        return;
    }
    counter_add(&c->p->metrics->unopened, why != WHY_CLIENT_GONE);
    proxy_client_gone(c);
}

static void begin_opening(struct client *c, struct conn *conn, const struct begin *begin)
{
    struct proxy *p = c->p;
    struct opening_rules rules = {begin->proxy_header, begin->tls, p->rules.timeout_ms[X_HEAD]};
    list_push(&p->openings, &c->link);
    c->opening = opening_start(p->w, conn, &rules, on_opened, c);
}

static struct client *client_new(struct proxy *p)
{
    struct client *c = mem_new(sizeof *c);
    counter_add(&p->metrics->connections, 1);
    c->p = p;
    p->nclients++;
    return c;
}

void proxy_accept(void *user, struct conn *conn)
{
    struct proxy *p = user;
    const struct gate *gate = p->rules.gate;
    struct client *c = client_new(p);
    struct pin *pin = pin_get(p->w);
    struct begin begin = {0};
    if (gate->begin)
        begin = gate->begin(pin->snap, conn_info(conn));
    if (begin.proxy_header || begin.tls)
        begin_opening(c, conn, &begin);
    else
        begin_session(c, conn);
    pin_put(p->w, pin);
}

void proxy_take(struct proxy *p, struct conn *conn, enum proxy_taken as, struct str authority)
{
    struct client *c = client_new(p);
    if (as == PROXY_HTTP) {
        begin_session(c, conn);
        return;
    }
    list_push(&p->clients, &c->link);
    c->session = raw_start(p->w, conn, true, authority, &p->rules.client, &session_events, c);
}

bool proxy_crowded(const struct proxy *p)
{
    return p->rules.max_memory > 0 && worker_held(p->w) > p->rules.max_memory / 8 * 7;
}

/* Listeners go on accepting: who waits in a queue is not refused, and a health page that is not
 * answered ends the process. */
bool proxy_overloaded(struct proxy *p, bool fresh)
{
    size_t now = worker_held(p->w);
    if (!proxy_crowded(p))
        return false;
    origin_trim(p->origins, origin_idle(p->origins));
    return fresh || now > p->rules.max_memory;
}

/* ---- small things exchanges need */

struct str proxy_http_date(struct proxy *p)
{
    int64_t now = worker_unix_s(p->w);
    if (now != p->http_date_s) {
        text_put_http_date(p->http_date, now);
        p->http_date_s = now;
    }
    return (struct str){p->http_date, sizeof p->http_date};
}

void proxy_random(struct proxy *p, uint8_t out[16])
{
    if (p->random_left < 16) { /* one system call for many ids */
        digest_random(p->random, sizeof p->random);
        p->random_left = sizeof p->random;
    }
    p->random_left -= 16;
    memcpy(out, p->random + p->random_left, 16);
}

static void on_ebb(struct timer *t);
static void on_late(struct timer *t);

/* ---- life */

struct proxy *proxy_new(struct worker *w, const struct proxy_rules *rules)
{
    struct proxy *p = mem_new(sizeof *p);
    p->w = w;
    p->rules = *rules;
    p->rules.origin.max_memory = rules->max_memory;
    p->rules.pools.limits = &p->rules.origin;
    p->origins = origins_new(w, &p->rules.pools);
    p->waits = waits_new(p);
    p->metrics = mem_new(sizeof *p->metrics);
    list_init(&p->openings);
    list_init(&p->clients);
    for (int i = 0; i < XSTATES; i++)
        list_init(&p->state[i]);
    timer_init(&p->ebb, on_ebb);
    timer_init(&p->late, on_late);
    worker_set(w, SLOT_PROXY, p);
    return p;
}

struct proxy *proxy_of(const struct worker *w)
{
    return worker_get(w, SLOT_PROXY);
}

static void free_histograms(struct request_metrics *m)
{
    for (int i = 0; i < METRIC_METHODS; i++)
        for (int j = 0; j < METRIC_STATUSES; j++)
            for (int k = 0; k < METRIC_KINDS; k++)
                if (counter_get(&m->count[i][j][k]) > 0)
                    mem_free(atomic_load(&m->duration[i][j][k]));
}

void proxy_free(struct proxy *p)
{
    if (!p)
        return;
    assert(list_empty(&p->clients) && list_empty(&p->openings) && p->ahead == 0);
    timer_clear(p->w, &p->ebb); /* set also where there was no listener */
    timer_clear(p->w, &p->late);
    worker_set(p->w, SLOT_PROXY, NULL);
    waits_free(p->waits);
    origins_free(p->origins);
    free_histograms(&p->metrics->requests);
    mem_free(p->metrics);
    mem_free(p);
}

void proxy_add_listener(struct proxy *p, struct listener *l)
{
    assert(p->nlisteners < sizeof p->listeners / sizeof *p->listeners);
    p->listeners[p->nlisteners++] = l;
}

/* ---- drain */

static unsigned running(const struct proxy *p)
{
    unsigned n = 0;
    for (int i = 0; i < XSTATES; i++)
        n += p->count[i];
    return n;
}

void proxy_check_drained(struct proxy *p)
{
    if (!p->draining || !p->drained || p->nlisteners > 0 || p->nclients > 0 || running(p) > 0)
        return;
    void (*drained)(void *) = p->drained;
    p->drained = NULL;
    origin_drain(p->origins);
    drained(p->drained_user);
}

static void close_listeners(struct proxy *p)
{
    timer_clear(p->w, &p->ebb);
    for (unsigned i = 0; i < p->nlisteners; i++)
        listener_stop(p->listeners[i]);
    p->nlisteners = 0;
}

static void on_ebb(struct timer *t)
{
    struct proxy *p = container_of(t, struct proxy, ebb);
    close_listeners(p);
    proxy_check_drained(p);
}

static void close_openings(struct proxy *p)
{
    list_each(l, &p->openings)
    {
        struct client *c = container_of(l, struct client, link);
        opening_cancel(c->opening);
        proxy_client_gone(c);
    }
}

static void on_late(struct timer *t)
{
    close_openings(container_of(t, struct proxy, late));
}

void proxy_drain(struct proxy *p, void (*drained)(void *user), void *user)
{
    p->draining = true;
    p->drained = drained;
    p->drained_user = user;
    for (unsigned i = 0; i < p->nlisteners; i++)
        listener_ebb(p->listeners[i]);
    timer_set(p->w, &p->ebb, EBB_MS);
    timer_set(p->w, &p->late, EBB_MS + p->rules.client.drain_idle_ms);
    list_each(l, &p->clients)
    {
        struct client *c = container_of(l, struct client, link);
        c->session->ops->drain(c->session);
    }
    proxy_check_drained(p);
}

void proxy_drain_clients(struct proxy *p, bool (*which)(void *user, const struct conn_info *info),
                         void *user)
{
    list_each(l, &p->clients)
    {
        struct client *c = container_of(l, struct client, link);
        if (which(user, conn_info(c->session->conn)))
            c->session->ops->drain(c->session);
    }
}

void proxy_cut(struct proxy *p)
{
    close_listeners(p);
    for (int i = 0; i < XSTATES; i++)
        list_each(l, &p->state[i])
            exchange_abort(container_of(l, struct exchange, link), WHY_DRAIN);
    close_openings(p);
    list_each(l, &p->clients)
    {
        struct client *c = container_of(l, struct client, link);
        c->session->ops->close(c->session, WHY_DRAIN);
    }
    proxy_check_drained(p);
}

void proxy_purge(struct proxy *p, struct str pool)
{
    origin_purge(p->origins, pool);
}

void proxy_move(struct proxy *p, struct str pool, struct str to)
{
    origin_move(p->origins, pool, to);
}

/* ---- to look at */

const struct proxy_metrics *proxy_metrics(const struct proxy *p)
{
    return p->metrics;
}

unsigned proxy_count(const struct proxy *p, enum xstate s)
{
    return p->count[s];
}

unsigned proxy_clients(const struct proxy *p)
{
    return p->nclients;
}

const struct origins *proxy_origins(const struct proxy *p)
{
    return p->origins;
}

void proxy_each(const struct proxy *p, void (*each)(void *arg, const struct exchange_view *x),
                void *arg)
{
    for (int i = 0; i < XSTATES; i++)
        for (const struct list *l = p->state[i].next; l != &p->state[i]; l = l->next) {
            const struct exchange *x = container_of(l, struct exchange, link);
            struct exchange_view v = {.request_id = x->facts.request_id,
                                      .state = x->state,
                                      .age_ms = (worker_now_us(p->w) - x->t_start) / 1000,
                                      .bytes_in = x->bytes_in,
                                      .bytes_out = x->bytes_out,
                                      .pool = x->verdict.pool};
            if (x->request)
                v.method = str_head(x->request->method, x->request->method.n < VIEW_METHOD_BYTES
                                                            ? x->request->method.n
                                                            : VIEW_METHOD_BYTES);
            each(arg, &v);
        }
}
