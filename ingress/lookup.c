/* lookup.c — the sandbox of a route.  Where a resolver watches, the table knows
 * or nobody does. Where one has to be asked, a record that is too old, or none,
 * makes the request wait; a sandbox that sleeps makes it wait for its wake.
 * What a request has waited for is good enough for it, so that it comes to an
 * end even where nothing is ever kept. */
#include <assert.h>

#include "ingress/asking.h"
#include "ingress/gate_impl.h"
#include "net/worker.h"

/* Its own deadline ends a flight first; this one is for a flight that never
 * tells. */
enum { WAKE_MARGIN_MS = 5000 };

static bool is_fast(const struct gateway_note *note)
{
    return note->route.form == FORM_SCOPE;
}

static const struct resolver *resolver_of(const struct gateway *g, const struct gateway_note *note)
{
    return is_fast(note) ? g->fast : g->resolver;
}

/* Once made it stays, so that a request that waits again takes nothing more. */
static struct str key_of(struct gateway_note *note, struct arena *a)
{
    if (note->key.n == 0)
        note->key = sandbox_key(note->ns, note->route.id, note->route.port, a);
    return note->key;
}

/* ---- waiting */

static void wait_for(struct gateway_note *note, enum waiting what, struct str key,
                     struct verdict *v)
{
    note->waiting = what;
    v->act = ACT_WAIT;
    v->key = key;
}

static void wait_for_wake(const struct facts *f, struct gateway_note *note, struct arena *a,
                          struct verdict *v)
{
    wait_for(note, WAITING_WAKE, wake_key_of(key_of(note, a)), v);
    v->wait_ms = settings_ms(gate_view(f)->set->wake_park_budget) + WAKE_MARGIN_MS;
}

bool lookup_wait(struct worker *w, const struct facts *f, bool first, struct arena *a,
                 struct verdict *v)
{
    struct gateway *g = gate_worker(f)->all;
    struct gateway_note *note = gate_note(v);
    if (note->waiting == WAITING_ANSWER) {
        struct want want = {v->key, note->ns, note->route.id, note->route.port, f->request_id};
        if (first)
            asking_want(g, is_fast(note), &want);
        return true;
    }
    if (!wake_park(g->wake)) {
        gate_refuse_id(v, FAULT_WAKE_LOT_FULL, STR_NONE, a);
        return false;
    }
    note->parked_ms = worker_now(w);
    if (first)
        wake_join(g->wake, note->ns, note->route.id, note->parked_ms);
    return true;
}

static enum wake_left how_it_ended(const struct facts *f, enum why why)
{
    const struct wake_end *end = f->told;
    if (why != WHY_OK)
        return why == WHY_DEADLINE ? WAKE_EXHAUSTED : WAKE_CANCELED;
    assert(end);
    if (end->fault == FAULT_ROUTE_MISSING)
        return WAKE_SERVED;
    return end->fault == FAULT_WAKE_EXHAUSTED ? WAKE_EXHAUSTED : WAKE_FAILED;
}

void lookup_waited(struct worker *w, const struct facts *f, const struct verdict *v, enum why why)
{
    struct gateway_note *note = gate_note(v);
    if (note->waiting == WAITING_WAKE)
        wake_leave(gate_worker(f)->all->wake, how_it_ended(f, why),
                   worker_now(w) - note->parked_ms);
}

/* ---- records */

/* What it has waited for counts whatever its age, but for what is known to be
 * wrong. */
static bool good_enough(const struct facts *f, const struct gateway_note *note,
                        const struct sandbox *s)
{
    uint64_t learned = atomic_load_explicit(&s->learned_ms, memory_order_relaxed);
    uint64_t fresh = atomic_load_explicit(&s->fresh_ms, memory_order_relaxed);
    if (learned < note->after_ms)
        return false;
    if (f->turn > 0 && note->waiting == WAITING_ANSWER)
        return true;
    return f->now_ms < fresh && f->unix_s < s->until_unix_s;
}

static const struct sandbox *find_asked(const struct facts *f, struct gateway_note *note,
                                        struct arena *a, struct verdict *v)
{
    struct str key = key_of(note, a);
    const struct sandbox *s = table_get(gate_worker(f)->table, key);
    if (!s || !good_enough(f, note, s)) {
        wait_for(note, WAITING_ANSWER, key, v);
        return NULL;
    }
    note->generation = s->generation;
    return s;
}

static const struct sandbox *find_watched(const struct facts *f, struct gateway_note *note,
                                          struct arena *a, struct verdict *v)
{
    const struct table *table = gate_worker(f)->table;
    struct str names[3] = {note->route.id};
    unsigned n = gate_worker(f)->all->agent_names ? agent_names(note->route.id, a, names) : 1;
    for (unsigned i = 0; i < n; i++) {
        const struct sandbox *s = table_get(table, names[i]);
        if (s)
            return s;
    }
    gate_refuse_id(v, table_ready(table) ? FAULT_SANDBOX_NOT_FOUND : FAULT_SANDBOX_NOT_READY,
                   note->route.id, a);
    return NULL;
}

/* ---- wakes (contract 12) */

static bool wakes(const struct facts *f, const struct gateway_note *note)
{
    return gate_worker(f)->all->wake && is_fast(note) && !note->woken && !note->again;
}

/* The flight has landed; false: there is nothing to go on with. */
static bool is_awake(const struct facts *f, struct gateway_note *note, struct arena *a,
                     struct verdict *v)
{
    const struct wake_end *end = f->told;
    if (note->waiting != WAITING_WAKE || note->woken)
        return true;
    assert(end);
    note->woken = true;
    note->waiting = WAITING_NOTHING;
    note->after_ms = end->at_ms; /* what was learned while it slept is over */
    if (end->fault == FAULT_ROUTE_MISSING)
        return true;
    gate_refuse_id(v, end->fault, end->value, a);
    return false;
}

/* ---- states */

static void refuse_state(const struct facts *f, const struct sandbox *s, struct gateway_note *note,
                         struct arena *a, struct verdict *v)
{
    static const enum fault_id usual[] = {[SANDBOX_RUNNING] = FAULT_SANDBOX_NOT_FOUND,
                                          [SANDBOX_NOT_READY] = FAULT_SANDBOX_NOT_READY,
                                          [SANDBOX_TERMINATED] = FAULT_SANDBOX_NOT_FOUND,
                                          [SANDBOX_AMBIGUOUS] = FAULT_SANDBOX_AMBIGUOUS,
                                          [SANDBOX_FAILED] = FAULT_RESOLVER_FAILED};
    bool ended = f->unix_s >= s->until_unix_s;
    bool own = !ended && s->fault != FAULT_ROUTE_MISSING;
    note->reason = arena_str(a, s->reason);
    if (own)
        gate_refuse_id(v, s->fault, s->fault_value, a);
    else
        gate_refuse_id(v, ended ? FAULT_SANDBOX_NOT_FOUND : usual[s->state], note->route.id, a);
}

const struct sandbox *lookup(const struct facts *f, struct gateway_note *note, struct arena *a,
                             struct verdict *v)
{
    const struct resolver *r = resolver_of(gate_worker(f)->all, note);
    if (!is_awake(f, note, a, v))
        return NULL;
    if (note->stale && !note->woken) {
        wait_for_wake(f, note, a, v);
        return NULL;
    }
    const struct sandbox *s = r->asks ? find_asked(f, note, a, v) : find_watched(f, note, a, v);
    if (!s || (s->state == SANDBOX_RUNNING && f->unix_s < s->until_unix_s))
        return s;
    if (s->state == SANDBOX_NOT_READY && wakes(f, note))
        wait_for_wake(f, note, a, v);
    else
        refuse_state(f, s, note, a, v);
    return NULL;
}

/* ---- what has proved wrong */

/* The word to the resolver takes a turn or two of other loops; meanwhile nobody
 * is to go by it, whoever serves him. */
static void make_old(const struct table *t, struct str key, uint64_t generation)
{
    const struct sandbox *s = table_get(t, key);
    if (s && s->generation == generation)
        atomic_store_explicit(&((struct sandbox *)(uintptr_t)s)->fresh_ms, 0, memory_order_relaxed);
}

void lookup_drop(struct worker *w, const struct gateway_note *note)
{
    const struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    const struct resolver *r = resolver_of(gw->all, note);
    if (!r || !r->asks || note->generation == 0)
        return;
    make_old(gw->table, note->key, note->generation);
    asking_drop(gw->all, is_fast(note), note->key, note->generation);
}

bool lookup_is_stale(const struct verdict *v, const struct http_head *answer)
{
    static const struct str words[] = {{"stale_route", 11},
                                       {"credential_rejected", 19},
                                       {"route_unavailable", 17},
                                       {"upstream_unavailable", 20}};
    const struct str *said = head_get(answer, STR("x-fast-sandbox-proxy-error"));
    if (!said || answer->status < 400 || !is_fast(gate_note(v)))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (str_eq(*said, words[i]))
            return true;
    return false;
}

/* A stale answer goes again after a wake, and only where there are wakes
 * (8.5, 12.4); a sandbox that cannot be connected to may have moved, and the
 * lifecycle API knows (integration 8.4). */
bool lookup_again(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                  enum stage stage)
{
    struct gateway_note *note = gate_note(v);
    const struct gateway *g = gate_worker(f)->all;
    bool stale = why == WHY_STALE && g->wake && f->head->protocol.n == 0;
    bool moved = stage == STAGE_DIAL && !is_fast(note) && g->resolver->asks &&
                 (why == WHY_DIAL || why == WHY_DNS || why == WHY_DEADLINE);
    if (why == WHY_REVOKED) { /* the table knows where it is now, or that it is gone */
        note->waiting = WAITING_NOTHING;
        return true;
    }
    if (note->again || !(stale || moved))
        return false;
    lookup_drop(w, note);
    note->again = true;
    note->stale = stale;
    note->woken = false;
    note->waiting = WAITING_NOTHING;
    note->after_ms = worker_now(w);
    return true;
}
