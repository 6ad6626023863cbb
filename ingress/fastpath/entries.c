/* entries.c — an entry per key, in the order in which they were wanted last.  One whose time is
 * over stays until the next sweep: who wants it meanwhile asks anew and, where the answer is the
 * same, keeps its record and so its connections.  Where something may run it stays for longer, so
 * that what FastPath says next decides about that: a credential ends without its sandbox. */
#include <assert.h>

#include "ingress/fastpath/fastpath_impl.h"

enum { ENTRIES_MAX = 16384, REASON_BYTES = 256, RAN_IDLE_MS = 600000 };
#define FAR_S (INT64_C(10) * 365 * 86400)

/* ---- entries */

static struct entry *entry_new(struct fastpath *f, const struct want *want)
{
    struct entry *e = mem_new(sizeof *e + want->key.n + want->ns.n + want->id.n);
    char *at = e->text;
    e->f = f;
    e->key = str_put(&at, want->key);
    e->ns = str_put(&at, want->ns);
    e->id = str_put(&at, want->id);
    e->wanted_ms = worker_now(f->w);
    list_push(&f->by_want, &e->link);
    map_put(f->entries, e->key, e);
    return e;
}

/* Out of the map and the list; its key is still good. */
static void entry_take_out(struct entry *e)
{
    assert(!e->flight);
    list_del(&e->link);
    map_del(e->f->entries, e->key);
}

static void entry_free(struct entry *e)
{
    sandbox_unref(e->record);
    mem_free(e);
}

/* Last thing in an event: who is told may stop us. */
static void entry_gone(struct entry *e)
{
    struct fastpath *f = e->f;
    bool known = e->record != NULL;
    entry_take_out(e);
    if (known) /* what runs on it goes on: it is only forgotten */
        sandbox_let_go(e->record);
    if (known)
        f->ev.change(f->user, NULL, 0, &e->key, 1);
    entry_free(e);
}

static bool is_full(const struct fastpath *f)
{
    return map_size(f->entries) >= ENTRIES_MAX;
}

/* Who was wanted least recently and can go, or NULL: all of them wait for an answer. */
static struct entry *oldest(struct fastpath *f)
{
    list_each(l, &f->by_want)
    {
        struct entry *e = container_of(l, struct entry, link);
        if (!e->flight)
            return e;
    }
    return NULL;
}

/* ---- answers */

/* The moment when a credential is near its end, ms of the monotonic clock. */
static uint64_t fresh_ms(struct worker *w, int64_t expires_unix_s)
{
    int64_t now_s = worker_unix_s(w);
    if (expires_unix_s - now_s > FAR_S)
        expires_unix_s = now_s + FAR_S;
    int64_t left = (expires_unix_s - FAST_NEAR_EXPIRY_S) * 1000 - (int64_t)worker_unix_ms(w);
    return worker_now(w) + (left > 0 ? (uint64_t)left : 0);
}

/* The same but for the credential and its end. */
static bool is_same_way(const struct sandbox *old, const struct sandbox *said)
{
    const struct sandbox *ran = sandbox_ran(old);
    if (!ran || said->state != SANDBOX_RUNNING)
        return false;
    struct sandbox other = *said;
    struct endpoint end = said->ends[0];
    struct endpoint_url url = *end.url;
    url.add = ran->ends[0].url->add;
    url.nadd = ran->ends[0].url->nadd;
    end.url = &url;
    other.ends = &end;
    return sandbox_prolonged(old, &other);
}

/* In place of the one that is there, or NULL.  All faults but one say nothing of what runs. */
static struct sandbox *next_record(const struct sandbox *old, const struct sandbox *said)
{
    if (said->fault && said->fault != FAULT_FASTPATH_NOT_FOUND)
        return sandbox_doubt(said, old);
    return old && is_same_way(old, said) ? sandbox_renew(said, old) : sandbox_new(said);
}

/* Tells of e what `said` says; the record that is there stays if it says the same. */
static void learn(struct entry *e, const struct sandbox *said)
{
    struct fastpath *f = e->f;
    struct sandbox *old = e->record;
    if (old && sandbox_same(old, said)) {
        atomic_store_explicit(&old->learned_ms, said->learned_ms, memory_order_relaxed);
        atomic_store_explicit(&old->fresh_ms, said->fresh_ms, memory_order_relaxed);
        f->ev.same(f->user, e->key);
        return;
    }
    e->record = next_record(old, said);
    const struct sandbox *record = e->record;
    sandbox_ref(record);
    f->ev.change(f->user, &record, 1, NULL, 0);
    sandbox_unref(record);
    sandbox_unref(old);
}

static struct sandbox blank(const struct entry *e, enum fault_id fault)
{
    bool not_ready = fault == FAULT_FASTPATH_UNAVAILABLE;
    return (struct sandbox){.key = e->key,
                            .ns = e->ns,
                            .id = e->id,
                            .token = STR(""),
                            .state = !fault      ? SANDBOX_RUNNING
                                     : not_ready ? SANDBOX_NOT_READY
                                                 : SANDBOX_FAILED,
                            .fault = fault,
                            .fault_value = STR(""),
                            .reason = STR(""),
                            .until_unix_s = INT64_MAX,
                            .learned_ms = e->asked_ms,
                            .fresh_ms = e->asked_ms};
}

static void learn_code(struct entry *e, enum grpc_code code, struct str detail, struct arena *a)
{
    struct sandbox said = blank(e, fast_fault(code));
    e->expires_unix_s = 0;
    if (said.fault == FAULT_FASTPATH_FAILED)
        said.fault_value = str_of(grpc_code_text(code));
    detail = str_head(detail, detail.n < REASON_BYTES ? detail.n : REASON_BYTES);
    said.reason = arena_printf(a, "%s%s%.*s", grpc_code_text(code), detail.n > 0 ? ": " : "",
                               STR_ARG(detail));
    learn(e, &said);
}

/* No secret: FastPath chooses the texts, and a chance of 2^-64 that two are one will do. */
static uint64_t instance_of(struct str uid)
{
    static const uint8_t key[16];
    return uid.n ? map_hash(key, uid.p, uid.n) | 1 : 0;
}

static void learn_route(struct entry *e, const struct pb_resolved *r, struct arena *a)
{
    struct fast_route route;
    struct worker *w = e->f->w;
    fast_route_read(r, worker_unix_s(w), a, &route);
    struct sandbox said = blank(e, route.fault);
    e->expires_unix_s = route.fault ? 0 : route.expires_unix_s;
    said.fault_value = route.fault_value;
    said.reason = route.reason;
    if (!route.fault) {
        said.ends = &route.end;
        said.nends = 1;
        said.instance = instance_of(r->uid);
        said.fresh_ms = fresh_ms(w, route.expires_unix_s);
    }
    learn(e, &said);
}

static void on_answer(void *user, enum grpc_code code, struct str message, struct str detail)
{
    struct entry *e = user;
    struct pb_resolved r;
    struct arena a;
    char first[2048];
    e->flight = NULL;
    arena_init_private(&a, first, sizeof first);
    if (code == GRPC_OK && !pb_read_resolved(message, &a, &r)) {
        code = GRPC_INTERNAL;
        detail = STR("the answer cannot be read");
    }
    e->f->calls[code]++;
    if (code == GRPC_OK)
        learn_route(e, &r, &a);
    else
        learn_code(e, code, detail, &a);
    arena_done(&a);
}

/* ---- asking */

static void ask(struct entry *e, uint16_t port)
{
    struct fastpath *f = e->f;
    struct arena a;
    char first[1024];
    arena_init(&a, first, sizeof first);
    /* The exact clock: what was asked for by another thread in this turn must not look younger. */
    e->asked_ms = worker_now_us(f->w) / 1000;
    e->flight = grpc_call(f->caller, str_of(fastpath_service), STR("ResolveEndpoint"),
                          pb_resolve(e->ns, e->id, port, f->access, &a), f->call_ms, on_answer, e);
    arena_done(&a);
}

/* A record that nobody keeps: those who wait are told, and it is gone. */
static void refuse(struct fastpath *f, const struct want *want)
{
    struct entry e = {.f = f, .key = want->key, .ns = want->ns, .id = want->id};
    e.asked_ms = worker_now_us(f->w) / 1000;
    struct sandbox said = blank(&e, FAULT_FASTPATH_UNAVAILABLE);
    said.reason = STR("too many calls");
    const struct sandbox *record = sandbox_new(&said);
    f->overflows++;
    f->ev.change(f->user, &record, 1, NULL, 0);
    f->ev.change(f->user, NULL, 0, &record->key, 1);
    sandbox_unref(record);
}

static void want_new(struct fastpath *f, const struct want *want)
{
    bool full = is_full(f);
    struct entry *old = full ? oldest(f) : NULL;
    if (full && !old) {
        refuse(f, want);
        return;
    }
    ask(entry_new(f, want), want->port);
    if (old)
        entry_gone(old);
}

void entries_want(void *self, const struct want *want)
{
    struct fastpath *f = self;
    struct entry *e = map_get(f->entries, want->key);
    if (!e) {
        want_new(f, want);
        return;
    }
    list_del(&e->link);
    list_push(&f->by_want, &e->link);
    e->wanted_ms = worker_now(f->w);
    if (!e->flight)
        ask(e, want->port);
}

void entries_drop(void *self, struct str key, uint64_t generation)
{
    struct fastpath *f = self;
    struct entry *e = map_get(f->entries, key);
    if (!e || !e->record || e->record->generation != generation)
        return;
    e->expires_unix_s = 0;
    e->wanted_ms = worker_now(f->w);
    atomic_store_explicit(&e->record->fresh_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&e->record->learned_ms, 0, memory_order_relaxed);
}

/* ---- the sweep */

static bool is_over(const struct entry *e, int64_t now_s)
{
    bool idle = worker_now(e->f->w) - e->wanted_ms >= RAN_IDLE_MS;
    bool ran = e->record && sandbox_ran(e->record);
    return !e->flight && !fast_fresh(e->expires_unix_s, now_s) && (idle || !ran);
}

static size_t take_out_over(struct fastpath *f, struct entry **over, struct str *gone)
{
    int64_t now_s = worker_unix_s(f->w);
    size_t n = 0;
    list_each(l, &f->by_want)
    {
        struct entry *e = container_of(l, struct entry, link);
        if (!is_over(e, now_s))
            continue;
        entry_take_out(e);
        if (e->record) /* what runs on it goes on: it is only forgotten */
            sandbox_let_go(e->record);
        gone[n] = e->key;
        over[n++] = e;
    }
    return n;
}

void entries_sweep(struct fastpath *f)
{
    size_t room = map_size(f->entries);
    struct entry **over = mem_new((room + 1) * sizeof *over);
    struct str *gone = mem_new((room + 1) * sizeof *gone);
    size_t n = take_out_over(f, over, gone);
    if (n > 0)
        f->ev.change(f->user, NULL, 0, gone, n);
    for (size_t i = 0; i < n; i++)
        entry_free(over[i]);
    mem_free(over);
    mem_free(gone);
}

void entries_end(struct fastpath *f)
{
    for (struct list *l; (l = list_pop(&f->by_want));) {
        struct entry *e = container_of(l, struct entry, link);
        if (e->flight)
            grpc_cancel(e->flight);
        entry_free(e);
    }
}
