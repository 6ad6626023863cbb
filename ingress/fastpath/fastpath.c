/* fastpath.c — the resolver of Fast Sandbox: it is ready with the first connection, and every
 * connection after that is made by the call that wants one. */
#include <stdio.h>

#include "ingress/fastpath/fastpath_impl.h"
#include "ingress/settings.h"
#include "net/addr.h"

enum { START_MS = 5000, AGAIN_MS = 200, SWEEP_MS = 60000, IDLE_MS = 300000 };

const char fastpath_service[] = "fastpath.v2.FastPathService";

/* ---- the start */

static void reach(struct fastpath *f);

static void on_sweep(struct timer *t)
{
    struct fastpath *f = container_of(t, struct fastpath, timer);
    timer_set(f->w, &f->timer, SWEEP_MS);
    entries_sweep(f);
}

static void on_again(struct timer *t)
{
    reach(container_of(t, struct fastpath, timer));
}

static uint64_t left_ms(const struct fastpath *f)
{
    uint64_t end = f->start_ms + START_MS, now = worker_now(f->w);
    return end > now ? end - now : 0;
}

static void give_up(struct fastpath *f)
{
    f->state = FAST_FAILED;
    struct str error =
        arena_printf(&f->mem, "--fastpath-endpoint: %.*s was not reached within %d s: %s%s%.*s",
                     STR_ARG(f->endpoint), START_MS / 1000, why_text(f->why),
                     f->fault.n > 0 ? ", " : "", STR_ARG(f->fault));
    f->ev.failed(f->user, error);
}

/* The last try may be cut short: what the one before it has met says more. */
static void note_failure(struct fastpath *f, enum why why, struct str fault)
{
    if (why == WHY_DEADLINE && f->why != WHY_OK)
        return;
    f->why = why;
    f->fault = fault;
}

static void on_reached(void *user, enum why why, const struct http_head *trailers, struct str fault)
{
    struct fastpath *f = user;
    (void)trailers;
    f->reach = NULL;
    if (why == WHY_OK) {
        f->state = FAST_READY;
        timer_init(&f->timer, on_sweep);
        timer_set(f->w, &f->timer, SWEEP_MS);
        f->ev.ready(f->user);
        return;
    }
    note_failure(f, why, fault);
    if (left_ms(f) <= AGAIN_MS)
        give_up(f);
    else
        timer_set(f->w, &f->timer, AGAIN_MS);
}

static const struct call_events reach_events = {NULL, NULL, on_reached};

static void reach(struct fastpath *f)
{
    uint64_t left = left_ms(f);
    f->reach = call_reach(f->caller, left > 0 ? left : 1, &reach_events, f);
}

static struct caller *make_caller(struct fastpath *f)
{
    struct caller_rules rules = {
        .h2 = true, .idle_max = 1, .idle_ms = IDLE_MS, .connect_ms = START_MS};
    rules.url.authority = f->endpoint;
    if (!addr_split(f->endpoint, &rules.url.host, &rules.url.port))
        return NULL;
    return caller_start(f->w, &rules);
}

static void free_fastpath(void *p)
{
    struct fastpath *f = p;
    map_free(f->entries);
    arena_done(&f->mem);
    mem_free(f);
}

static void *start(struct worker *w, const struct ingress_settings *s,
                   const struct resolver_events *ev, void *user, struct arena *a,
                   struct str *ret_error)
{
    struct fastpath *f = mem_new(sizeof *f);
    arena_init(&f->mem, NULL, 0);
    f->w = w;
    f->ev = *ev;
    f->user = user;
    f->endpoint = arena_str(&f->mem, s->fastpath_endpoint);
    f->access = s->fastpath_access_mode == 0 ? PB_DIRECT_FASTLET_PROXY : PB_CENTRAL_PROXY;
    f->call_ms = (uint64_t)s->fastpath_wait_timeout_millis;
    f->start_ms = worker_now(w);
    f->entries = map_new();
    list_init(&f->by_want);
    timer_init(&f->timer, on_again);
    f->caller = make_caller(f);
    if (!f->caller) {
        *ret_error =
            arena_printf(a, "--fastpath-endpoint: \"%.*s\" is not host:port", STR_ARG(f->endpoint));
        free_fastpath(f);
        return NULL;
    }
    reach(f);
    return f;
}

static void stop(void *self)
{
    struct fastpath *f = self;
    timer_clear(f->w, &f->timer);
    if (f->reach)
        call_cancel(f->reach);
    entries_end(f);
    caller_free(f->caller);
    worker_bury(f->w, free_fastpath, f);
}

struct caller *fastpath_caller(void *self)
{
    struct fastpath *f = self;
    return f->caller;
}

static void metrics(void *self, struct metrics_out *o)
{
    const struct fastpath *f = self;
    metrics_family(o, "ingress.fastpath.resolutions", "counter",
                   "Calls of ResolveEndpoint by their end");
    for (unsigned i = 0; i < GRPC_CODES; i++) {
        char label[64];
        if (f->calls[i] == 0)
            continue;
        snprintf(label, sizeof label, "code=\"%s\"", grpc_code_text((enum grpc_code)i));
        metrics_value(o, "ingress.fastpath.resolutions", label, (double)f->calls[i]);
    }
    metrics_single(o, "ingress.fastpath.routes", "gauge", "Answers of FastPath that are kept",
                   (double)map_size(f->entries));
    metrics_single(o, "ingress.fastpath.overflows", "counter",
                   "Refused because too many other routes were being asked for",
                   (double)f->overflows);
}

static struct str unready(void *self, struct arena *a)
{
    const struct fastpath *f = self;
    (void)a;
    return f->state == FAST_READY ? STR("") : STR("FastPath has not been reached yet");
}

const struct resolver fastpath_resolver = {.name = "fast-sandbox",
                                           .asks = true,
                                           .start = start,
                                           .want = entries_want,
                                           .drop = entries_drop,
                                           .stop = stop,
                                           .metrics = metrics,
                                           .unready = unready};
