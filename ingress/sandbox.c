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

static size_t text_bytes_of(const struct sandbox *s)
{
    size_t n = s->id.n + s->token.n + s->reason.n + s->id.n + 1 + GENERATION_BYTES;
    for (unsigned i = 0; i < s->nends; i++)
        n += shares_host(s, i) ? 0 : s->ends[i].host.n;
    return n;
}

static struct str put_text(char **at, struct str s)
{
    struct str copy = {*at, s.n};
    if (s.n)
        memcpy(*at, s.p, s.n);
    *at += s.n;
    return copy;
}

/* '#' and the generation come last, so no id can imitate the pool of another. */
static struct str put_pool(char *at, struct str id, uint64_t generation)
{
    char digits[GENERATION_BYTES], *p = at;
    put_text(&p, id);
    *p++ = '#';
    put_text(&p, (struct str){digits, text_put_u64(digits, generation)});
    return (struct str){at, (size_t)(p - at)};
}

static void put_ends(struct endpoint *ends, const struct sandbox *from, char **at)
{
    for (unsigned i = from->nends; i-- > 0;) {
        assert(i == 0 || i + 1 == from->nends || from->ends[i - 1].port < from->ends[i].port);
        ends[i] = from->ends[i];
        ends[i].host =
            shares_host(from, i) ? ends[from->nends - 1].host : put_text(at, from->ends[i].host);
    }
}

struct sandbox *sandbox_new(const struct sandbox *from)
{
    assert(from->state != SANDBOX_RUNNING ||
           (from->nends > 0 && from->ends[from->nends - 1].port == 0));
    size_t ends_bytes = from->nends * sizeof(struct endpoint);
    struct sandbox *s = mem_new(sizeof *s + ends_bytes + text_bytes_of(from));
    struct endpoint *ends = (struct endpoint *)(s + 1);
    char *at = (char *)(s + 1) + ends_bytes;
    atomic_init(&s->refs, 1);
    s->id = put_text(&at, from->id);
    s->token = put_text(&at, from->token);
    s->reason = put_text(&at, from->reason);
    put_ends(ends, from, &at);
    s->ends = ends;
    s->nends = from->nends;
    s->state = from->state;
    s->until_unix_s = from->until_unix_s;
    s->generation = atomic_fetch_add_explicit(&generations, 1, memory_order_relaxed) + 1;
    s->pool = put_pool(at, s->id, s->generation);
    return s;
}

const struct sandbox *sandbox_ref(const struct sandbox *s)
{
    struct sandbox *own = writable(s);
    atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
    return s;
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
    if (s->token.n)
        digest_wipe(writable(s->token.p), s->token.n);
    mem_free(own);
}

static bool same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
    return a->port == b->port && a->to == b->to && a->wire == b->wire && str_eq(a->host, b->host);
}

bool sandbox_same(const struct sandbox *a, const struct sandbox *b)
{
    if (a->state != b->state || a->until_unix_s != b->until_unix_s || a->nends != b->nends ||
        !str_eq(a->id, b->id) || !str_eq(a->token, b->token) || !str_eq(a->reason, b->reason))
        return false;
    for (unsigned i = 0; i < a->nends; i++)
        if (!same_endpoint(&a->ends[i], &b->ends[i]))
            return false;
    return true;
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
