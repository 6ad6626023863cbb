/* lifecycle_ports.c — what the lifecycle resolver keeps of sandboxes and their ports, and what it
 * tells the tables of them.  A record is replaced only by what changes the way to the sandbox: what
 * runs there outlives a later end, our forgetting it, and a server that is in trouble, which only
 * makes a doubt of it until something is learned again. */
#include "base/map.h"
#include "ingress/lifecycle_impl.h"
#include "net/worker.h"

enum { PORTS_MAX = 65536, PORT_BYTES = 1024, STALE_MS = 1000 };
#define HELD_MAX ((size_t)128 << 20)

uint64_t lifecycle_now(const struct lifecycle *l)
{
    return worker_now_us(l->w) / 1000;
}

/* ---- what is kept */

static struct subject *subject_of(struct lifecycle *l, struct str id)
{
    char mem[1024];
    struct arena a;
    struct subject *s = map_get(l->subjects, id);
    if (s)
        return s;
    arena_init(&a, mem, sizeof mem);
    struct str target = STR_NONE;
    bool askable = lifecycle_target(id, &a, &target);
    s = mem_new(sizeof *s + id.n + target.n);
    char *at = s->text;
    s->l = l;
    s->id = str_put(&at, id);
    s->target = str_put(&at, target);
    s->askable = askable;
    list_init(&s->waiting);
    lifecycle_ask_init(&s->ask, lifecycle_on_state);
    map_put(l->subjects, s->id, s);
    arena_done(&a);
    return s;
}

static void subject_drop(struct subject *s)
{
    if (--s->nports > 0)
        return;
    lifecycle_ask_cancel(&s->ask);
    map_del(s->l->subjects, s->id);
    mem_free(s);
}

struct port *port_new(struct lifecycle *l, const struct want *want)
{
    struct subject *s = subject_of(l, want->id);
    struct arena a;
    arena_init(&a, NULL, 0);
    struct str target = arena_printf(&a, "%.*s/endpoints/%u", STR_ARG(s->target), want->port);
    struct port *p = mem_new(sizeof *p + want->key.n + target.n);
    char *at = p->text;
    p->s = s;
    s->nports++;
    p->key = str_put(&at, want->key);
    p->target = str_put(&at, target);
    p->cost = PORT_BYTES + 4 * want->key.n;
    list_init(&p->link);
    list_init(&p->wait);
    lifecycle_ask_init(&p->ask, lifecycle_on_endpoint);
    map_put(l->ports, p->key, p);
    l->held += p->cost;
    arena_done(&a);
    return p;
}

void port_free(struct port *p)
{
    struct lifecycle *l = p->s->l;
    lifecycle_ask_cancel(&p->ask);
    list_del(&p->link);
    list_del(&p->wait);
    map_del(l->ports, p->key);
    l->held -= p->cost + p->record_cost;
    sandbox_unref(p->record);
    subject_drop(p->s);
    mem_free(p);
}

/* ---- forgetting */

/* Those whose memory is wanted for others; what runs there goes on. */
void ports_forget(struct lifecycle *l, struct port **ports, size_t n)
{
    struct str *keys = mem_new((n + 1) * sizeof *keys);
    size_t ngone = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ports[i]->record)
            continue;
        sandbox_let_go(ports[i]->record);
        keys[ngone++] = ports[i]->key;
    }
    if (ngone > 0)
        l->ev.change(l->user, NULL, 0, keys, ngone);
    for (size_t i = 0; i < n; i++)
        port_free(ports[i]);
    mem_free(keys);
}

/* The one that nobody has wanted for the longest time.  Few of them are being asked about, so one
 * of the first will do. */
bool ports_evict(struct lifecycle *l)
{
    list_each(it, &l->by_want)
    {
        struct port *p = container_of(it, struct port, link);
        if (p->busy)
            continue;
        ports_forget(l, &p, 1);
        return true;
    }
    return false;
}

bool ports_full(const struct lifecycle *l)
{
    return map_size(l->ports) >= PORTS_MAX || l->held > HELD_MAX;
}

bool port_is_over(const struct port *p)
{
    const struct sandbox *ran = p->record ? sandbox_ran(p->record) : NULL;
    return ran && worker_unix_s(p->s->l->w) >= ran->until_unix_s;
}

/* ---- telling */

static size_t cost_of(const struct sandbox *s)
{
    const struct endpoint_url *url = s->nends ? s->ends[0].url : NULL;
    size_t n = s->token.n + s->reason.n + (url ? url->path.n + url->authority.n : 0);
    for (unsigned i = 0; url && i < url->nadd; i++)
        n += sizeof url->add[i] + url->add[i].name.n + url->add[i].value.n;
    return s->ran ? n + PORT_BYTES + cost_of(s->ran) : n; /* itself it has none */
}

/* That we could not ask says nothing of what runs, but that its time is over does. */
static bool is_doubt(const struct port *p, const struct sandbox *said)
{
    return said->state == SANDBOX_FAILED && !port_is_over(p);
}

/* In place of the record that is there. */
static struct sandbox *next_record(const struct port *p, const struct sandbox *said)
{
    const struct sandbox *old = p->record;
    if (is_doubt(p, said))
        return sandbox_doubt(said, old);
    return old && sandbox_prolonged(old, said) ? sandbox_renew(said, old) : sandbox_new(said);
}

static void replace(struct port *p, const struct sandbox *said)
{
    struct lifecycle *l = p->s->l;
    struct sandbox *old = p->record;
    p->record = next_record(p, said);
    l->held -= p->record_cost;
    p->record_cost = cost_of(p->record);
    l->held += p->record_cost;
    const struct sandbox *record = p->record;
    l->ev.change(l->user, &record, 1, NULL, 0);
    sandbox_unref(old);
}

static void move_on(struct port *p, uint64_t fresh_ms)
{
    atomic_store_explicit(&p->record->learned_ms, p->asked_ms, memory_order_relaxed);
    atomic_store_explicit(&p->record->fresh_ms, fresh_ms, memory_order_relaxed);
}

uint64_t lifecycle_capped(const struct lifecycle *l, uint64_t fresh_ms, int64_t until_unix_s)
{
    int64_t now_s = worker_unix_s(l->w);
    if (until_unix_s - now_s > INT32_MAX)
        return fresh_ms;
    int64_t left_ms = until_unix_s * 1000 - (int64_t)worker_unix_ms(l->w);
    uint64_t end = lifecycle_now(l) + (left_ms > 0 ? (uint64_t)left_ms : 0);
    return end < fresh_ms ? end : fresh_ms;
}

static void tell(struct port *p, struct sandbox *said, uint64_t fresh_ms)
{
    struct lifecycle *l = p->s->l;
    said->key = p->key;
    said->id = p->s->id;
    said->ns = said->fault_value = STR("");
    atomic_init(&said->learned_ms, p->asked_ms);
    atomic_init(&said->fresh_ms, fresh_ms);
    p->busy = false;
    p->again_ms = 0;
    if (p->record && sandbox_same(p->record, said) &&
        (said->state != SANDBOX_FAILED || is_doubt(p, said))) {
        move_on(p, fresh_ms);
        l->ev.same(l->user, p->key);
        return;
    }
    replace(p, said);
}

void port_tell_running(struct port *p, const struct endpoint *end, struct str token,
                       uint64_t fresh_ms)
{
    struct subject *s = p->s;
    struct sandbox said = {.token = token,
                           .reason = STR(""),
                           .state = SANDBOX_RUNNING,
                           .ends = end,
                           .nends = 1,
                           .until_unix_s = s->known.until_unix_s};
    if (s->fresh_ms < fresh_ms)
        fresh_ms = s->fresh_ms;
    tell(p, &said, lifecycle_capped(s->l, fresh_ms, said.until_unix_s));
}

void port_tell_closed(struct port *p, enum sandbox_state state, struct str reason,
                      uint64_t fresh_ms)
{
    struct sandbox said = {
        .token = STR(""), .reason = reason, .state = state, .until_unix_s = INT64_MAX};
    p->end_fresh_ms = 0;
    tell(p, &said, fresh_ms);
}

void port_tell_failed(struct port *p, enum fault_id fault, struct str reason)
{
    struct lifecycle *l = p->s->l;
    struct sandbox said = {.token = STR(""),
                           .reason = reason,
                           .state = SANDBOX_FAILED,
                           .fault = fault,
                           .until_unix_s = INT64_MAX};
    p->end_fresh_ms = 0;
    tell(p, &said, lifecycle_now(l) + l->not_ready_ms);
}

/* The last good answer serves for as long as it may; meanwhile the server is asked again without a
 * request waiting for it, since one that says nothing would make each of them late. */
void port_tell_trouble(struct port *p, enum fault_id fault, struct str reason)
{
    struct lifecycle *l = p->s->l;
    uint64_t now = lifecycle_now(l), end = p->good_ms + l->stale_max_ms;
    bool good = p->record && p->record->state == SANDBOX_RUNNING && p->good_ms > 0 && now < end;
    if (!good || port_is_over(p)) {
        port_tell_failed(p, fault, reason);
        return;
    }
    l->stale++;
    p->busy = false;
    p->again_ms = now + (l->not_ready_ms > STALE_MS ? l->not_ready_ms : STALE_MS);
    move_on(p, lifecycle_capped(l, end, p->record->until_unix_s));
    l->ev.same(l->user, p->key);
}
