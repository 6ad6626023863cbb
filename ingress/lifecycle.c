/* lifecycle.c — the resolver that asks the lifecycle server.  A sandbox has a state, each port of
 * it an endpoint; both are asked for when somebody wants the port, and what is learned becomes the
 * record of that port.
 *
 * What a sandbox is up to nobody tells us.  So a record whose end has come is looked at again
 * without being wanted: it may have been prolonged.  And so is one that serves although the server
 * could not be asked. */
#include <assert.h>

#include "base/map.h"
#include "ingress/lifecycle_impl.h"
#include "ingress/settings.h"
#include "net/worker.h"

enum { SWEEP_MS = 1000, GONE_MAX = 4096, IDLE_MS = 60000, RUNNING_IDLE_MS = 600000 };

/* ---- answers about a port */

/* No good answer: ABSENT is not for here. */
static void tell_bad(struct port *p, enum lifecycle_verdict v, const struct lifecycle_reply *r,
                     struct str reason)
{
    enum fault_id fault = r->why == WHY_OVERLOAD ? FAULT_OVERLOADED : FAULT_RESOLVER_FAILED;
    if (v == LIFECYCLE_TROUBLE)
        port_tell_trouble(p, fault, reason);
    else
        port_tell_failed(p, FAULT_RESOLVER_FAILED, reason);
}

static void learn_endpoint(struct port *p, const struct lifecycle_endpoint *e)
{
    struct lifecycle *l = p->s->l;
    if (e->gateway) {
        lifecycle_note_gateway(p->s->id);
        port_tell_failed(p, FAULT_RESOLVER_FAILED, STR("the server points at a gateway"));
        return;
    }
    p->good_ms = p->ask.began_ms;
    p->end_fresh_ms = p->ask.began_ms + l->cache_ms;
    port_tell_running(p, &e->end, e->token, p->end_fresh_ms);
}

void lifecycle_on_endpoint(struct lifecycle_ask *ask, const struct lifecycle_reply *r)
{
    struct port *p = container_of(ask, struct port, ask);
    struct lifecycle *l = p->s->l;
    struct lifecycle_endpoint e;
    struct arena a;
    const char *fault = "";
    arena_init_private(&a, NULL, 0);
    enum lifecycle_verdict v = r->why == WHY_OK ? lifecycle_judge(r->status) : LIFECYCLE_TROUBLE;
    if (v == LIFECYCLE_GOOD && !lifecycle_read_endpoint(r->body, &a, &e, &fault))
        v = LIFECYCLE_TROUBLE;
    lifecycle_note(l, LIFECYCLE_ENDPOINT, p->s->id, v, r, fault);
    if (v == LIFECYCLE_GOOD) {
        learn_endpoint(p, &e);
    } else if (v == LIFECYCLE_ABSENT) {
        p->s->fresh_ms = 0; /* it may have gone since */
        port_tell_closed(p, SANDBOX_NOT_READY, STR("it has no address yet"),
                         ask->began_ms + l->not_ready_ms);
    } else {
        tell_bad(p, v, r, lifecycle_reason(v, r, fault));
    }
    arena_done(&a);
}

static void ask_endpoint(struct port *p)
{
    static const struct lifecycle_reply full = {.why = WHY_OVERLOAD};
    struct lifecycle *l = p->s->l;
    if (lifecycle_ask_start(l->calls, &p->ask, p->target, p->request_id))
        return;
    l->overflows++;
    tell_bad(p, LIFECYCLE_TROUBLE, &full, STR("too many lookups"));
}

/* ---- answers about a sandbox */

/* What is known of the sandbox is known; now the port. */
static void with_state(struct port *p)
{
    struct subject *s = p->s;
    if (s->known.state != SANDBOX_RUNNING)
        port_tell_closed(p, s->known.state, s->known.name, s->fresh_ms);
    else if (p->record && p->record->state == SANDBOX_RUNNING &&
             lifecycle_now(s->l) < p->end_fresh_ms)
        port_tell_running(p, &p->record->ends[0], p->record->token, p->end_fresh_ms);
    else
        ask_endpoint(p);
}

static void know(struct subject *s, const struct lifecycle_state *state)
{
    struct lifecycle *l = s->l;
    uint64_t ms[] = {[SANDBOX_RUNNING] = l->cache_ms,
                     [SANDBOX_NOT_READY] = l->not_ready_ms,
                     [SANDBOX_TERMINATED] = l->negative_ms};
    s->known = *state;
    if (state->until_unix_s <= worker_unix_s(l->w)) /* the server will notice */
        s->known.state = SANDBOX_TERMINATED;
    size_t n = state->name.n < sizeof s->name ? state->name.n : sizeof s->name;
    memcpy(s->name, n ? state->name.p : "", n);
    s->known.name = (struct str){s->name, n};
    uint64_t fresh = s->ask.began_ms + ms[s->known.state];
    bool ends = s->known.state == SANDBOX_RUNNING;
    s->fresh_ms = ends ? lifecycle_capped(l, fresh, s->known.until_unix_s) : fresh;
}

/* Takes who waits now; none comes meanwhile. */
static void tell_waiting(struct subject *s, enum lifecycle_verdict v,
                         const struct lifecycle_reply *r, struct str reason)
{
    for (struct list *it; (it = list_pop(&s->waiting));) {
        struct port *p = container_of(it, struct port, wait);
        if (v == LIFECYCLE_GOOD)
            with_state(p);
        else
            tell_bad(p, v, r, reason);
    }
}

void lifecycle_on_state(struct lifecycle_ask *ask, const struct lifecycle_reply *r)
{
    static const struct lifecycle_state absent = {SANDBOX_TERMINATED, {"", 0}, INT64_MAX};
    struct subject *s = container_of(ask, struct subject, ask);
    struct lifecycle_state state = absent;
    struct arena a;
    const char *fault = "";
    arena_init_private(&a, NULL, 0);
    enum lifecycle_verdict v = r->why == WHY_OK ? lifecycle_judge(r->status) : LIFECYCLE_TROUBLE;
    if (v == LIFECYCLE_GOOD && !lifecycle_read_state(r->body, s->id, &a, &state, &fault))
        v = LIFECYCLE_TROUBLE;
    lifecycle_note(s->l, LIFECYCLE_STATE, s->id, v, r, fault);
    if (v == LIFECYCLE_GOOD || v == LIFECYCLE_ABSENT) {
        know(s, &state);
        v = LIFECYCLE_GOOD;
    }
    tell_waiting(s, v, r, lifecycle_reason(v, r, fault));
    arena_done(&a);
}

/* ---- wants */

static void begin(struct port *p)
{
    static const struct lifecycle_reply full = {.why = WHY_OVERLOAD};
    struct subject *s = p->s;
    struct lifecycle *l = s->l;
    p->busy = true;
    if (!s->askable) {
        port_tell_closed(p, SANDBOX_TERMINATED, STR("no id that could be one"),
                         lifecycle_now(l) + l->negative_ms);
        return;
    }
    if (lifecycle_now(l) < s->fresh_ms) {
        with_state(p);
        return;
    }
    list_push(&s->waiting, &p->wait);
    if (s->ask.state != ASK_IDLE ||
        lifecycle_ask_start(l->calls, &s->ask, s->target, p->request_id))
        return;
    l->overflows++;
    tell_waiting(s, LIFECYCLE_TROUBLE, &full, STR("too many lookups"));
}

static void keep_request_id(struct port *p, struct str id)
{
    size_t n = id.n < sizeof p->request_id_text ? id.n : sizeof p->request_id_text;
    memcpy(p->request_id_text, n ? id.p : "", n);
    p->request_id = (struct str){p->request_id_text, n};
}

static void want(void *self, const struct want *want)
{
    struct lifecycle *l = self;
    struct port *p = map_get(l->ports, want->key);
    while (!p && ports_full(l) && ports_evict(l))
        ;
    if (!p)
        p = port_new(l, want);
    list_del(&p->link);
    list_push(&l->by_want, &p->link);
    p->wanted_ms = p->asked_ms = lifecycle_now(l); /* who joins a call gets its answer (8.4) */
    if (p->busy)
        return;
    if (p->record &&
        p->asked_ms < atomic_load_explicit(&p->record->fresh_ms, memory_order_relaxed)) {
        l->ev.same(l->user, p->key);
        return;
    }
    keep_request_id(p, want->request_id);
    begin(p);
}

/* It stays in the tables, so that what is learned next decides about what runs there; but nobody
 * uses it before that. */
static void drop(void *self, struct str key, uint64_t generation)
{
    struct lifecycle *l = self;
    struct port *p = map_get(l->ports, key);
    if (!p || !p->record || p->record->generation != generation)
        return;
    atomic_store_explicit(&p->record->fresh_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&p->record->learned_ms, 0, memory_order_relaxed);
    p->good_ms = p->end_fresh_ms = p->again_ms = 0;
    p->s->fresh_ms = 0;
}

/* ---- time */

static bool is_idle(const struct port *p, uint64_t now)
{
    bool running = p->record && sandbox_ran(p->record);
    return now - p->wanted_ms >= (running ? RUNNING_IDLE_MS : IDLE_MS);
}

/* To be asked about without being wanted; where a line waits for the server, wanted ones go first.
 */
static bool is_due(const struct port *p, uint64_t now)
{
    bool stale = p->again_ms > 0 && now >= p->again_ms;
    return port_is_over(p) || (stale && lifecycle_calls_waiting(p->s->l->calls) == 0);
}

static void sweep(struct lifecycle *l)
{
    struct port **gone = mem_new(GONE_MAX * sizeof *gone);
    uint64_t now = lifecycle_now(l);
    size_t n = 0;
    list_each(it, &l->by_want)
    {
        struct port *p = container_of(it, struct port, link);
        if (p->busy)
            continue;
        if (is_due(p, now)) {
            p->request_id = STR_NONE; /* nobody's */
            begin(p);
        } else if (n < GONE_MAX && is_idle(p, now)) {
            gone[n++] = p;
        }
    }
    if (n > 0)
        ports_forget(l, gone, n);
    mem_free(gone);
}

/* ---- life */

static void on_turn(struct timer *t)
{
    struct lifecycle *l = container_of(t, struct lifecycle, timer);
    if (!l->ready) {
        l->ready = true;
        l->ev.ready(l->user);
    }
    sweep(l);
    timer_set(l->w, &l->timer, SWEEP_MS);
}

static void *start(struct worker *w, const struct ingress_settings *set,
                   const struct resolver_events *ev, void *user, struct arena *a,
                   struct str *ret_error)
{
    struct secret *key = NULL;
    struct lifecycle_calls *calls = lifecycle_connect(w, set, a, ret_error);
    if (!calls)
        return NULL;
    if (!lifecycle_key(set, &key, a, ret_error)) {
        lifecycle_calls_free(calls);
        return NULL;
    }
    lifecycle_calls_key(calls, key);
    struct lifecycle *l = mem_new(sizeof *l);
    l->w = w;
    l->set = set;
    l->ev = *ev;
    l->user = user;
    l->calls = calls;
    l->subjects = map_new();
    l->ports = map_new();
    l->cache_ms = settings_ms(set->lifecycle_cache);
    l->negative_ms = settings_ms(set->lifecycle_negative_cache);
    l->not_ready_ms = settings_ms(set->lifecycle_not_ready_cache);
    l->stale_max_ms = settings_ms(set->lifecycle_stale_max);
    list_init(&l->by_want);
    timer_init(&l->timer, on_turn);
    timer_set(w, &l->timer, 0);
    return l;
}

static void stop(void *self)
{
    struct lifecycle *l = self;
    timer_clear(l->w, &l->timer);
    for (struct list *it; (it = list_first(&l->by_want));)
        port_free(container_of(it, struct port, link));
    assert(map_size(l->ports) == 0 && map_size(l->subjects) == 0);
    map_free(l->ports);
    map_free(l->subjects);
    lifecycle_calls_free(l->calls);
    mem_free(l);
}

const struct resolver lifecycle_resolver = {.name = "lifecycle",
                                            .asks = true,
                                            .check = lifecycle_check,
                                            .start = start,
                                            .want = want,
                                            .drop = drop,
                                            .reload = lifecycle_reload,
                                            .stop = stop,
                                            .metrics = lifecycle_metrics,
                                            .unready = lifecycle_unready};
