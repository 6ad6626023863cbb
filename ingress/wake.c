/* wake.c — flights: one per sandbox that is being woken, on the owner's loop.
 * A flight is a little machine that makes one call at a time: probe, then
 * resume until that is taken, then poll.  Nobody who waits can end it; its
 * budget can. */
#include "ingress/wake.h"

#include <assert.h>

#include "base/digest.h"
#include "base/log.h"
#include "base/map.h"
#include "base/text.h"
#include "ingress/wake_impl.h"
#include "net/worker.h"

enum stage_of { PROBE, RESUME, POLL };

struct flight {
    struct wake *k;
    struct str key, ns, id;
    struct str checkpoint;
    char *checkpoint_text;
    uint64_t number, deadline_ms;
    enum stage_of next; /* the call that is under way, or comes after the wait */
    unsigned attempts;  /* to resume */
    unsigned waits;     /* backed off so often */
    bool resumed;       /* a resume was asked for */
    struct grpc *call;
    struct timer pause, budget;
    struct arena mem;
};

static void free_flight(void *p)
{
    struct flight *f = p;
    mem_free(f->checkpoint_text);
    arena_done(&f->mem);
    mem_free(f);
}

static void take_off_map(struct flight *f)
{
    map_del(f->k->flights, f->key);
    timer_clear(f->k->owner, &f->pause);
    timer_clear(f->k->owner, &f->budget);
    worker_bury(f->k->owner, free_flight, f);
}

/* ---- the end */

static void land(struct flight *f, enum fault_id fault, struct str value)
{
    struct wake *k = f->k;
    struct wake_end end = {fault, value, worker_now(k->owner)};
    assert(!f->call);
    if (fault == FAULT_ROUTE_MISSING)
        counter_add(f->resumed ? &k->triggered : &k->none, 1);
    else
        counter_add(&k->triggered, f->resumed);
    take_off_map(f);
    if (fault == FAULT_ROUTE_MISSING && f->resumed && k->ev.woken)
        k->ev.woken(k->user, f->ns, f->id);
    k->ev.landed(k->user, f->key, &end);
}

static void on_budget(struct timer *t)
{
    struct flight *f = container_of(t, struct flight, budget);
    if (f->call)
        grpc_cancel(f->call);
    f->call = NULL;
    land(f, FAULT_WAKE_EXHAUSTED, STR_NONE);
}

static void land_by_code(struct flight *f, enum wake_step step, enum grpc_code code,
                         struct str detail)
{
    char *id = mem_strdup(f->id), *text = mem_strdup(detail);
    log_note_rarely(LOG_WARN, "ingress: wake failed", "sandbox_id", id, "code",
                    grpc_code_text(code), "error", text, NULL);
    mem_free(id);
    mem_free(text);
    if (step == WAKE_END_NOT_FOUND)
        land(f, FAULT_FASTPATH_NOT_FOUND, STR_NONE);
    else if (step == WAKE_END_REJECTED)
        land(f, FAULT_WAKE_REJECTED, str_of(grpc_code_text(code)));
    else if (step == WAKE_END_CANCELED)
        land(f, FAULT_FASTPATH_CANCELED, STR_NONE);
    else
        land(f, FAULT_FASTPATH_UNAVAILABLE, STR_NONE);
}

static void land_by_phase(struct flight *f, enum wake_phase phase, enum pb_runtime runtime)
{
    if (phase == WAKE_READY)
        land(f, FAULT_ROUTE_MISSING, STR_NONE);
    else if (phase == WAKE_TERMINAL)
        land(f, f->resumed ? FAULT_WAKE_TERMINAL : FAULT_WAKE_STOPPED, STR_NONE);
    else
        land(f, FAULT_WAKE_NOT_READY, str_of(pb_runtime_text(runtime)));
}

/* ---- calls */

static void go(struct flight *f);

static uint64_t left_ms(const struct flight *f)
{
    uint64_t now = worker_now(f->k->owner);
    return f->deadline_ms > now ? f->deadline_ms - now : 1;
}

/* The next call comes after a while; the budget may end sooner. */
static void back_off(struct flight *f, enum stage_of next)
{
    const struct wake_rules *r = &f->k->rules;
    uint32_t random;
    digest_random(&random, sizeof random);
    uint64_t us = wake_backoff_us(r->interval_ms, r->factor, r->jitter, f->waits++,
                                  (double)random / 4294967296.0);
    f->next = next;
    timer_set(f->k->owner, &f->pause, (us + 999) / 1000);
}

static void on_pause(struct timer *t)
{
    go(container_of(t, struct flight, pause));
}

static void keep_checkpoint(struct flight *f, struct str checkpoint)
{
    mem_free(f->checkpoint_text);
    f->checkpoint_text = mem_strdup(checkpoint);
    f->checkpoint = (struct str){f->checkpoint_text, checkpoint.n};
}

static void on_probed(struct flight *f, const struct pb_sandbox *s)
{
    enum wake_phase phase = wake_probe(s->runtime, s->plane);
    if (phase != WAKE_WAKEABLE) {
        land_by_phase(f, phase, s->runtime);
        return;
    }
    keep_checkpoint(f, s->checkpoint);
    if (f->attempts > 0) {
        back_off(f, RESUME);
        return;
    }
    f->next = RESUME;
    go(f);
}

/* While it comes up it may be anything but gone. */
static void on_polled(struct flight *f, const struct pb_sandbox *s)
{
    enum wake_phase phase = wake_probe(s->runtime, s->plane);
    if (phase == WAKE_READY || phase == WAKE_TERMINAL)
        land_by_phase(f, phase, s->runtime);
    else
        back_off(f, POLL);
}

/* Trouble with the first probe is told at once; later it is waited out. */
static void on_no_state(struct flight *f, enum wake_step step, enum grpc_code code,
                        struct str detail)
{
    if (step != WAKE_END_NOT_READY || !f->resumed)
        land_by_code(f, step, code, detail);
    else
        back_off(f, f->next == POLL ? POLL : RESUME);
}

static void on_state(void *user, enum grpc_code code, struct str message, struct str detail)
{
    struct flight *f = user;
    struct pb_sandbox s;
    enum wake_step step = wake_after_get(code);
    f->call = NULL;
    if (step == WAKE_GO_ON && !pb_read_sandbox(message, &s)) {
        code = GRPC_INTERNAL;
        step = f->resumed ? WAKE_END_NOT_READY : WAKE_END_REJECTED;
        detail = STR("the answer is not a GetSandboxResponse");
    }
    if (step != WAKE_GO_ON)
        on_no_state(f, step, code, detail);
    else if (f->next == POLL)
        on_polled(f, &s);
    else
        on_probed(f, &s);
}

static void on_resumed(void *user, enum grpc_code code, struct str message, struct str detail)
{
    struct flight *f = user;
    enum wake_step step = wake_after_resume(code, f->checkpoint.n > 0);
    (void)message;
    f->call = NULL;
    if (step == WAKE_POLL)
        f->next = POLL;
    else if (step == WAKE_PROBE_AGAIN)
        f->next = PROBE;
    if (step == WAKE_RETRY)
        back_off(f, RESUME);
    else if (step == WAKE_POLL || step == WAKE_PROBE_AGAIN)
        go(f);
    else
        land_by_code(f, step, code, detail);
}

static struct str request_id(const struct flight *f, struct arena *a)
{
    return arena_printf(a, "wake-%.*s-%.*s-%s-%llu-%u", STR_ARG(f->ns), STR_ARG(f->id),
                        f->k->random, (unsigned long long)f->number, f->attempts);
}

static void go(struct flight *f)
{
    struct wake *k = f->k;
    struct arena a;
    char first[1024];
    uint64_t ms = left_ms(f) < k->rules.call_ms ? left_ms(f) : k->rules.call_ms;
    bool resume = f->next == RESUME;
    arena_init(&a, first, sizeof first);
    f->attempts += resume;
    f->resumed |= resume;
    struct str message = resume ? pb_resume(request_id(f, &a), f->ns, f->id, f->checkpoint, &a)
                                : pb_get(f->ns, f->id, &a);
    f->call = grpc_call(k->fastpath, str_of(fastpath_service),
                        resume ? STR("ResumeSandbox") : STR("GetSandbox"), message, ms,
                        resume ? on_resumed : on_state, f);
    arena_done(&a);
}

/* ---- from the workers */

struct join {
    struct post post;
    struct wake *k;
    struct str ns, id;
    uint64_t since_ms;
    struct arena mem;
};

struct str wake_key(struct str ns, struct str id, struct arena *a)
{
    return arena_printf(a, "%.*s\n%.*s\n", STR_ARG(ns), STR_ARG(id));
}

struct str wake_key_of(struct str sandbox_key)
{
    return str_head(sandbox_key, (size_t)(str_rchr(sandbox_key, '\n') + 1));
}

static void open_flight(struct wake *k, struct str ns, struct str id, uint64_t since_ms)
{
    struct flight *f = mem_new(sizeof *f);
    uint64_t now = worker_now(k->owner);
    arena_init(&f->mem, NULL, 0);
    f->k = k;
    f->ns = arena_str(&f->mem, ns);
    f->id = arena_str(&f->mem, id);
    f->key = wake_key(ns, id, &f->mem);
    f->number = ++k->last_flight;
    f->deadline_ms = since_ms + k->rules.budget_ms;
    timer_init(&f->pause, on_pause);
    timer_init(&f->budget, on_budget);
    timer_set(k->owner, &f->budget, f->deadline_ms > now ? f->deadline_ms - now : 0);
    map_put(k->flights, f->key, f);
    f->next = PROBE;
    go(f);
}

static void on_join(struct worker *w, struct post *p)
{
    struct join *j = container_of(p, struct join, post);
    (void)w;
    struct str key = wake_key(j->ns, j->id, &j->mem);
    if (!map_get(j->k->flights, key))
        open_flight(j->k, j->ns, j->id, j->since_ms);
    arena_done(&j->mem);
    mem_free(j);
}

void wake_join(struct wake *k, struct str ns, struct str id, uint64_t since_ms)
{
    struct join *j = mem_new(sizeof *j);
    arena_init(&j->mem, NULL, 0);
    j->post.run = on_join;
    j->k = k;
    j->ns = arena_str(&j->mem, ns);
    j->id = arena_str(&j->mem, id);
    j->since_ms = since_ms;
    worker_post(k->owner, &j->post);
}

/* ---- life */

struct wake *wake_new(struct worker *owner, struct caller *fastpath, const struct wake_rules *rules,
                      const struct wake_events *ev, void *user)
{
    struct wake *k = mem_new(sizeof *k);
    uint8_t random[8];
    digest_random(random, sizeof random);
    text_put_hex(k->random, random, sizeof random);
    k->owner = owner;
    k->fastpath = fastpath;
    k->rules = *rules;
    k->ev = *ev;
    k->user = user;
    k->flights = map_new();
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void wake_free(struct wake *k)
{
    size_t at = 0;
    if (!k)
        return;
    for (struct flight *f; (f = map_next(k->flights, &at));) {
        if (f->call)
            grpc_cancel(f->call);
        f->call = NULL;
        take_off_map(f);
    }
    map_free(k->flights);
    pthread_mutex_destroy(&k->lock);
    mem_free(k);
}
