/* sandbox.c — the record of a sandbox: one block of memory that holds the struct, its endpoints and
 * all its texts.  It never changes after it was made, so workers share it without a lock; what
 * changes is who counts on it, and a new generation is a new record. */
#include <assert.h>

#include "base/digest.h"
#include "base/text.h"
#include "ingress/resolver.h"

/* Process-wide on purpose: pools of all workers are keyed by generations, which therefore must not
 * repeat. */
static _Atomic uint64_t generations;

enum { GENERATION_BYTES = 20 };

static void *writable(const void *p)
{
    return (void *)(uintptr_t)p;
}

/* Most ports of a sandbox lead to its own address, which then is stored once. */
static bool shares_host(const struct sandbox *s, unsigned i)
{
    return i + 1 < s->nends && s->ends[i].host.p == s->ends[s->nends - 1].host.p &&
           s->ends[i].host.n == s->ends[s->nends - 1].host.n;
}

static size_t url_text_bytes(const struct endpoint_url *url)
{
    size_t n = url->authority.n + url->path.n + url->query.n;
    for (unsigned i = 0; i < url->nadd; i++)
        n += url->add[i].name.n + url->add[i].value.n;
    return n;
}

/* Structs that follow the endpoints; all of them are as aligned as those. */
static size_t url_bytes_of(const struct sandbox *s)
{
    size_t n = 0;
    for (unsigned i = 0; i < s->nends; i++)
        if (s->ends[i].url)
            n += sizeof(struct endpoint_url) + s->ends[i].url->nadd * sizeof(struct field);
    return n;
}

static bool key_is_id(const struct sandbox *s)
{
    return s->key.n == 0 || str_eq(s->key, s->id);
}

static size_t text_bytes_of(const struct sandbox *s, uint64_t generation)
{
    char digits[GENERATION_BYTES];
    size_t n = s->ns.n + s->token.n + s->reason.n + s->fault_value.n + s->id.n + 1 +
               text_put_u64(digits, generation) + (key_is_id(s) ? 0 : s->key.n);
    for (unsigned i = 0; i < s->nends; i++) {
        n += shares_host(s, i) ? 0 : s->ends[i].host.n;
        n += s->ends[i].url ? url_text_bytes(s->ends[i].url) : 0;
    }
    return n;
}

/* '#' and the generation come last, so no id can imitate the pool of another.  The id itself is the
 * head of that text. */
static struct str put_pool(char **at, struct str id, uint64_t generation)
{
    char digits[GENERATION_BYTES], *p = *at;
    str_put(at, id);
    *(*at)++ = '#';
    str_put(at, (struct str){digits, text_put_u64(digits, generation)});
    return (struct str){p, (size_t)(*at - p)};
}

static const struct endpoint_url *put_url(const struct endpoint_url *from, char **structs,
                                          char **at)
{
    struct endpoint_url *url = (struct endpoint_url *)*structs;
    struct field *add = (struct field *)(url + 1);
    *structs = (char *)(add + from->nadd);
    url->authority = str_put(at, from->authority);
    url->path = str_put(at, from->path);
    url->query = str_put(at, from->query);
    for (unsigned i = 0; i < from->nadd; i++)
        add[i] = (struct field){str_put(at, from->add[i].name), str_put(at, from->add[i].value)};
    url->add = add;
    url->nadd = from->nadd;
    return url;
}

static void put_ends(struct endpoint *ends, const struct sandbox *from, char **at)
{
    char *structs = (char *)(ends + from->nends);
    for (unsigned i = from->nends; i-- > 0;) {
        assert(i == 0 || i + 1 == from->nends || from->ends[i - 1].port < from->ends[i].port);
        ends[i] = from->ends[i];
        ends[i].host =
            shares_host(from, i) ? ends[from->nends - 1].host : str_put(at, from->ends[i].host);
        if (ends[i].url)
            ends[i].url = put_url(from->ends[i].url, &structs, at);
    }
}

static void put_texts(struct sandbox *s, const struct sandbox *from, char *at)
{
    s->pool = put_pool(&at, from->id, s->generation);
    s->id = str_head(s->pool, from->id.n);
    s->key = key_is_id(from) ? s->id : str_put(&at, from->key);
    s->ns = str_put(&at, from->ns);
    s->token = str_put(&at, from->token);
    s->reason = str_put(&at, from->reason);
    s->fault_value = str_put(&at, from->fault_value);
    put_ends((struct endpoint *)(s + 1), from, &at);
}

static uint64_t next_generation(void)
{
    return atomic_fetch_add_explicit(&generations, 1, memory_order_relaxed) + 1;
}

static struct sandbox *make(const struct sandbox *from, uint64_t generation)
{
    assert(from->state != SANDBOX_RUNNING || from->nends > 0);
    size_t structs = from->nends * sizeof(struct endpoint) + url_bytes_of(from);
    struct sandbox *s = mem_new(sizeof *s + structs + text_bytes_of(from, generation));
    atomic_init(&s->refs, 1);
    atomic_init(&s->learned_ms, atomic_load_explicit(&from->learned_ms, memory_order_relaxed));
    atomic_init(&s->fresh_ms, atomic_load_explicit(&from->fresh_ms, memory_order_relaxed));
    s->ends = (struct endpoint *)(s + 1);
    s->nends = from->nends;
    s->state = from->state;
    s->fault = from->fault;
    s->until_unix_s = from->until_unix_s;
    s->generation = generation;
    s->instance = from->instance;
    put_texts(s, from, (char *)(s + 1) + structs);
    return s;
}

struct sandbox *sandbox_new(const struct sandbox *from)
{
    return make(from, next_generation());
}

struct sandbox *sandbox_renew(const struct sandbox *from, const struct sandbox *old)
{
    assert(str_eq(from->id, old->id)); /* its pool names it */
    struct sandbox *s = make(from, old->generation);
    sandbox_let_go(old);
    return s;
}

struct sandbox *sandbox_doubt(const struct sandbox *from, const struct sandbox *old)
{
    assert(from->state != SANDBOX_RUNNING);
    if (!old)
        return sandbox_new(from);
    struct sandbox *s = sandbox_renew(from, old);
    const struct sandbox *ran = sandbox_ran(old);
    s->ran = ran ? sandbox_ref(ran) : NULL;
    return s;
}

const struct sandbox *sandbox_ran(const struct sandbox *s)
{
    return s->state == SANDBOX_RUNNING ? s : s->ran;
}

void sandbox_let_go(const struct sandbox *s)
{
    struct sandbox *own = writable(s);
    atomic_store_explicit(&own->quiet, true, memory_order_release);
}

bool sandbox_is_let_go(const struct sandbox *s)
{
    return atomic_load_explicit(&((struct sandbox *)writable(s))->quiet, memory_order_acquire);
}

struct str sandbox_key(struct str ns, struct str id, uint16_t port, struct arena *a)
{
    return arena_printf(a, "%.*s\n%.*s\n%u", STR_ARG(ns), STR_ARG(id), port);
}

const struct sandbox *sandbox_ref(const struct sandbox *s)
{
    struct sandbox *own = writable(s);
    atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
    return s;
}

static void wipe(const struct sandbox *s)
{
    digest_wipe(writable(s->token.p), s->token.n);
    for (unsigned i = 0; i < s->nends; i++)
        for (unsigned k = 0; s->ends[i].url && k < s->ends[i].url->nadd; k++)
            digest_wipe(writable(s->ends[i].url->add[k].value.p), s->ends[i].url->add[k].value.n);
}

void sandbox_unref(const struct sandbox *s)
{
    if (!s)
        return;
    struct sandbox *own = writable(s);
    unsigned before = atomic_fetch_sub_explicit(&own->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    wipe(s);
    sandbox_unref(s->ran); /* itself it has none */
    mem_free(own);
}

static bool same_url(const struct endpoint_url *a, const struct endpoint_url *b)
{
    if (!a || !b)
        return a == b;
    if (!str_eq(a->authority, b->authority) || !str_eq(a->path, b->path) ||
        !str_eq(a->query, b->query) || a->nadd != b->nadd)
        return false;
    for (unsigned i = 0; i < a->nadd; i++)
        if (!str_eq(a->add[i].name, b->add[i].name) || !str_eq(a->add[i].value, b->add[i].value))
            return false;
    return true;
}

static bool same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
    return a->port == b->port && a->to == b->to && a->wire == b->wire && a->tls == b->tls &&
           str_eq(a->host, b->host) && same_url(a->url, b->url);
}

static bool same_texts(const struct sandbox *a, const struct sandbox *b)
{
    struct str ka = a->key.n ? a->key : a->id, kb = b->key.n ? b->key : b->id;
    return str_eq(ka, kb) && str_eq(a->ns, b->ns) && str_eq(a->id, b->id) &&
           str_eq(a->token, b->token) && str_eq(a->reason, b->reason) &&
           str_eq(a->fault_value, b->fault_value);
}

bool sandbox_same(const struct sandbox *a, const struct sandbox *b)
{
    if (a->state != b->state || a->fault != b->fault || a->until_unix_s != b->until_unix_s ||
        a->instance != b->instance || a->nends != b->nends || !same_texts(a, b))
        return false;
    for (unsigned i = 0; i < a->nends; i++)
        if (!same_endpoint(&a->ends[i], &b->ends[i]))
            return false;
    return true;
}

bool sandbox_prolonged(const struct sandbox *old, const struct sandbox *said)
{
    const struct sandbox *ran = sandbox_ran(old);
    struct sandbox other = *said;
    other.until_unix_s = ran ? ran->until_unix_s : 0;
    return ran && sandbox_same(ran, &other);
}

bool sandbox_moved(const struct sandbox *from, const struct sandbox *to)
{
    const struct sandbox *ran = sandbox_ran(from);
    return to && ran && to->state == SANDBOX_RUNNING && ran->instance == to->instance &&
           str_eq(ran->ns, to->ns) && str_eq(ran->id, to->id) && str_eq(ran->token, to->token);
}

const struct endpoint *sandbox_endpoint(const struct sandbox *s, uint16_t port)
{
    if (s->nends == 0)
        return NULL;
    unsigned from = 0,
             to = s->nends -
                  1; /* the last one is not for a port of its own, unless there is no other */
    while (from < to) {
        unsigned middle = from + (to - from) / 2;
        if (s->ends[middle].port == port)
            return &s->ends[middle];
        if (s->ends[middle].port < port)
            from = middle + 1;
        else
            to = middle;
    }
    const struct endpoint *last = &s->ends[s->nends - 1];
    return last->port == 0 || last->port == port ? last : NULL;
}
