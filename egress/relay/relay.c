/* relay.c — the listeners of the relay: who is let in, who is too many, who may ask the explicit
 * proxy.  Peers that may not are answered too, out of a share of their own, so that they take
 * nobody's place. */
#include "egress/relay/relay.h"

#include <assert.h>

#include "egress/intercept/intercept.h"
#include "egress/judge.h"
#include "egress/relay/relay_impl.h"
#include "proxy/proxy.h"

enum { EBB_MS = 100, STRANGERS = 64 };

void relay_discard(struct conn *conn, enum why why)
{
    static const struct conn_events nobody = {NULL};
    conn_attach(conn, &nobody, NULL);
    conn_close(conn, why);
}

/* ---- the explicit proxy */

static bool is_served(const struct relay *r, const struct conn *conn)
{
    struct ip peer;
    addr_ip(conn_info(conn)->peer, &peer);
    return cidr_set_has(&r->s.sidecar->set->proxy_clients, &peer) || judge_is_local(&peer);
}

static void explicit_accept(void *user, struct conn *conn)
{
    struct relay *r = user;
    bool served = is_served(r, conn);
    struct caller *p = caller_new(WAY_EXPLICIT, served ? r->asked : r->strangers);
    counter_add(&r->counters.asked, 1);
    if (!p) {
        counter_add(&r->counters.full, 1);
        relay_discard(conn, WHY_LIMIT);
        return;
    }
    p->served = served;
    caller_give(conn, p);
    proxy_accept(r->s.proxy, conn);
}

/* ---- life */

static void stop_listening(struct relay *r)
{
    timer_clear(r->s.w, &r->ebb);
    for (unsigned i = 0; i < r->nlisteners; i++)
        listener_stop(r->listeners[i]);
    r->nlisteners = 0;
    transparent_close(r);
}

static void on_ebb(struct timer *t)
{
    stop_listening(container_of(t, struct relay, ebb));
}

struct relay *relay_new(const struct relay_setup *setup)
{
    struct relay *r = mem_new(sizeof *r);
    unsigned max = (unsigned)setup->sidecar->set->relay_max_connections;
    r->s = *setup;
    r->redirected = tally_new(max);
    r->asked = tally_new(max);
    r->strangers = tally_new(STRANGERS);
    list_init(&r->looking);
    timer_init(&r->ebb, on_ebb);
    return r;
}

static void listen_on(struct relay *r, int fd, void (*accept)(void *user, struct conn *c))
{
    assert(r->nlisteners < RELAY_LISTENERS);
    r->listeners[r->nlisteners++] = listener_start(r->s.w, fd, NULL, accept, r);
}

void relay_transparent(struct relay *r, int fd)
{
    listen_on(r, fd, transparent_accept);
}

void relay_explicit(struct relay *r, int fd)
{
    listen_on(r, fd, explicit_accept);
}

/* Is it read although it would not be now? */
static bool is_read_in_vain(void *user, const struct conn_info *info)
{
    const struct judge *j = user;
    const struct caller *p = caller_of(info);
    enum passage passage;
    if (!p || !p->read)
        return false;
    struct identity_conn c = caller_conn(p);
    judge_first(j, &c, &passage);
    return passage != PASSAGE_INTERCEPT;
}

void relay_recheck(struct relay *r)
{
    struct judge j;
    struct pin *pin = pin_get(r->s.w);
    proxy_recheck(r->s.proxy);
    judge_init(&j, pin->snap, r->s.sidecar, worker_now(r->s.w));
    proxy_drain_clients(r->s.proxy, is_read_in_vain, &j);
    pin_put(r->s.w, pin);
}

void relay_drain(struct relay *r)
{
    if (r->s.sidecar->intercept)
        intercept_drain(r->s.sidecar->intercept);
    for (unsigned i = 0; i < r->nlisteners; i++)
        listener_ebb(r->listeners[i]);
    timer_set(r->s.w, &r->ebb, EBB_MS);
}

void relay_free(struct relay *r)
{
    if (!r)
        return;
    stop_listening(r);
    tally_end(r->redirected);
    tally_end(r->asked);
    tally_end(r->strangers);
    mem_free(r);
}

/* ---- numbers */

const struct relay_counters *relay_counters(const struct relay *r)
{
    return &r->counters;
}

unsigned relay_open(const struct relay *r)
{
    return r->redirected->open;
}

unsigned relay_open_asked(const struct relay *r)
{
    return r->asked->open + r->strangers->open;
}
