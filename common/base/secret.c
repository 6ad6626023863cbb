/* secret.c — secrets share regions of 64 KiB, all in one range of addresses that is reserved once.
 * So "is this a secret?" is one comparison, what lies behind a region cannot be read, and the range
 * is kept out of core dumps as a whole.  Inside a region secrets take runs of granules, first fit:
 * where only 64 KiB may be locked, one region serves all sizes.  What is free is always zero. */
#include "base/secret.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/digest.h"
#include "base/poison.h"

enum {
    UNIT = 65536,    /* bytes of a region; larger secrets have several units to themselves */
    UNITS = 65536,   /* of the range: 4 GiB of addresses */
    UNITS_MIN = 256, /* where not so many addresses are to be had */
    GRANULE = 64,
    GRANULES = UNIT / GRANULE,
    SHARED_MAX = UNIT / 4, /* a larger secret is alone */
};

struct secret {
    atomic_uint count;
    uint32_t granules; /* 0: alone in its units */
    size_t n;
    char bytes[];
};

/* At the start of its memory; the granules it lies in count as used. */
struct region {
    struct region *next, *before; /* of those that are shared */
    uint32_t units, left;         /* left: free granules */
    uint64_t used[GRANULES / 64];
};
enum { HEAD_GRANULES = (sizeof(struct region) + GRANULE - 1) / GRANULE };

/* A process has one such range, for all of its threads: secrets cross from one to another. */
static struct {
    pthread_mutex_t lock;
    atomic_uintptr_t base; /* 0: not reserved yet */
    atomic_size_t bytes;
    uint64_t used[UNITS / 64];
    struct region *shared;
    unsigned empty; /* of those that are shared */
    atomic_bool unlocked;
    atomic_size_t held;
} range = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void out_of_memory(void)
{
    fputs("out of memory\n", stderr);
    abort();
}

/* ---- units ---- */

static void *reserve(void *at, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    void *p = mmap(at, bytes, PROT_NONE, flags, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)!madvise(p, bytes, MADV_DONTDUMP);
    return p;
}

static void reserve_range(void)
{
    size_t units = UNITS;
    char *p = reserve(NULL, (units + 1) * UNIT);
    while (!p && units > UNITS_MIN)
        p = reserve(NULL, ((units /= 2) + 1) * UNIT);
    if (!p)
        out_of_memory();
    atomic_store(&range.bytes, units * UNIT);
    atomic_store(&range.base, ((uintptr_t)p + UNIT - 1) / UNIT * UNIT);
}

static bool has_bit(const uint64_t *bits, size_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static void set_bits(uint64_t *bits, size_t at, size_t n, bool on)
{
    for (size_t i = at; i < at + n; i++)
        bits[i / 64] =
            on ? bits[i / 64] | (uint64_t)1 << i % 64 : bits[i / 64] & ~((uint64_t)1 << i % 64);
}

/* Where n clear bits begin among `total`, or total. */
static size_t find_clear(const uint64_t *bits, size_t total, size_t n)
{
    size_t run = 0;
    for (size_t i = 0; i < total; i++) {
        if (i % 64 == 0 && bits[i / 64] == UINT64_MAX) {
            run = 0;
            i += 63;
            continue;
        }
        run = has_bit(bits, i) ? 0 : run + 1;
        if (run == n)
            return i + 1 - n;
    }
    return total;
}

static struct region *region_open(size_t units)
{
    if (!atomic_load(&range.base))
        reserve_range();
    size_t total = atomic_load(&range.bytes) / UNIT, at = find_clear(range.used, total, units);
    if (at == total)
        out_of_memory();
    struct region *r = (struct region *)(atomic_load(&range.base) + at * UNIT);
    if (mprotect(r, units * UNIT, PROT_READ | PROT_WRITE) != 0)
        out_of_memory();
    if (mlock(r, units * UNIT) != 0)
        atomic_store(&range.unlocked, true);
    set_bits(range.used, at, units, true);
    r->units = (uint32_t)units;
    return r;
}

/* Its secrets are wiped already; a fresh reservation in its place gives the pages back. */
static void region_close(struct region *r)
{
    size_t at = ((uintptr_t)r - atomic_load(&range.base)) / UNIT, units = r->units;
    ASAN_UNPOISON_MEMORY_REGION(r, units * UNIT);
    if (!reserve(r, units * UNIT))
        out_of_memory();
    set_bits(range.used, at, units, false);
}

/* ---- granules ---- */

static struct region *region_of(const struct secret *s)
{
    return (struct region *)((uintptr_t)s / UNIT * UNIT);
}

static bool is_empty(const struct region *r)
{
    return r->left == GRANULES - HEAD_GRANULES;
}

static struct region *shared_new(void)
{
    struct region *r = region_open(1);
    r->left = GRANULES - HEAD_GRANULES;
    set_bits(r->used, 0, HEAD_GRANULES, true);
    ASAN_POISON_MEMORY_REGION((char *)r + HEAD_GRANULES * GRANULE, r->left * GRANULE);
    r->before = NULL;
    r->next = range.shared;
    if (r->next)
        r->next->before = r;
    range.shared = r;
    range.empty++;
    return r;
}

static void shared_free(struct region *r)
{
    if (r->before)
        r->before->next = r->next;
    else
        range.shared = r->next;
    if (r->next)
        r->next->before = r->before;
    range.empty--;
    region_close(r);
}

static struct secret *take(struct region *r, size_t at, size_t granules)
{
    struct secret *s = (struct secret *)(void *)((char *)r + at * GRANULE);
    range.empty -= is_empty(r);
    set_bits(r->used, at, granules, true);
    r->left -= (uint32_t)granules;
    ASAN_UNPOISON_MEMORY_REGION(s, granules * GRANULE);
    s->granules = (uint32_t)granules;
    return s;
}

static struct secret *get_shared(size_t bytes)
{
    size_t granules = (bytes + GRANULE - 1) / GRANULE;
    for (struct region *r = range.shared; r; r = r->next) {
        size_t at = r->left < granules ? GRANULES : find_clear(r->used, GRANULES, granules);
        if (at < GRANULES)
            return take(r, at, granules);
    }
    return take(shared_new(), HEAD_GRANULES, granules);
}

static struct secret *get_alone(size_t bytes)
{
    size_t head = HEAD_GRANULES * GRANULE;
    struct region *r = region_open((head + bytes + UNIT - 1) / UNIT);
    return (struct secret *)(void *)((char *)r + head);
}

/* One empty region is kept: what is made and given back by turns shall need no system call. */
static void give_back(struct secret *s)
{
    struct region *r = region_of(s);
    size_t granules = s->granules, at = ((uintptr_t)s - (uintptr_t)r) / GRANULE;
    digest_wipe(s, sizeof *s + s->n);
    if (!granules) {
        region_close(r);
        return;
    }
    ASAN_POISON_MEMORY_REGION(s, granules * GRANULE);
    set_bits(r->used, at, granules, false);
    r->left += (uint32_t)granules;
    if (!is_empty(r))
        return;
    if (++range.empty > 1)
        shared_free(r);
}

/* ---- secrets ---- */

struct secret *secret_make(size_t n, char **ret_bytes)
{
    assert(n < SIZE_MAX / 2);
    size_t bytes = sizeof(struct secret) + n;
    pthread_mutex_lock(&range.lock);
    struct secret *s = bytes > SHARED_MAX ? get_alone(bytes) : get_shared(bytes);
    pthread_mutex_unlock(&range.lock);
    atomic_fetch_add_explicit(&range.held, n, memory_order_relaxed);
    atomic_init(&s->count, 1);
    s->n = n;
    *ret_bytes = s->bytes;
    return s;
}

struct secret *secret_new(const void *p, size_t n)
{
    char *bytes;
    struct secret *s = secret_make(n, &bytes);
    if (n)
        memcpy(bytes, p, n);
    return s;
}

struct secret *secret_ref(struct secret *s)
{
    unsigned before = atomic_fetch_add_explicit(&s->count, 1, memory_order_relaxed);
    assert(before > 0);
    return s;
}

void secret_unref(struct secret *s)
{
    if (!s)
        return;
    unsigned before = atomic_fetch_sub_explicit(&s->count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    atomic_fetch_sub_explicit(&range.held, s->n, memory_order_relaxed);
    pthread_mutex_lock(&range.lock);
    give_back(s);
    pthread_mutex_unlock(&range.lock);
}

struct str secret_bytes(const struct secret *s)
{
    return (struct str){s->bytes, s->n};
}

bool secret_covers(const void *p)
{
    uintptr_t base = atomic_load_explicit(&range.base, memory_order_relaxed);
    return base && (uintptr_t)p - base < atomic_load_explicit(&range.bytes, memory_order_relaxed);
}

bool secret_all_locked(void)
{
    return !atomic_load(&range.unlocked);
}

size_t secret_held(void)
{
    return atomic_load(&range.held);
}

/* ---- bags ---- */

void secret_bag_init(struct secret_bag *b)
{
    *b = (struct secret_bag){0};
}

void secret_bag_put(struct secret_bag *b, struct secret *s)
{
    if (b->n == b->room) {
        b->room = b->room ? 2 * b->room : 8;
        b->at = mem_renew(b->at, b->room * sizeof *b->at);
    }
    b->at[b->n++] = s;
}

char *secret_bag_get(struct secret_bag *b, size_t n)
{
    char *bytes;
    secret_bag_put(b, secret_make(n, &bytes));
    return bytes;
}

struct str secret_bag_str(struct secret_bag *b, struct str s)
{
    char *bytes = secret_bag_get(b, s.n);
    if (s.n)
        memcpy(bytes, s.p, s.n);
    return (struct str){bytes, s.n};
}

void secret_bag_done(struct secret_bag *b)
{
    for (unsigned i = 0; i < b->n; i++)
        secret_unref(b->at[i]);
    mem_free(b->at);
    secret_bag_init(b);
}
