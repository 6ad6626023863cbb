/* secret.c — each secret has pages of its own, the count in front of the bytes.  Pages of their
 * own can be locked, kept out of core dumps and given back wiped, none of which the heap can
 * promise. */
#include "base/secret.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/digest.h"

struct secret {
    atomic_uint count;
    size_t n, mapped; /* bytes of the secret, of its pages */
    char bytes[];
};

static struct secret *map_pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fputs("out of memory\n", stderr);
        abort();
    }
    /* Containers often may lock only 64 KiB: what cannot be locked is still kept out of dumps. */
    (void)!mlock(p, bytes);
    (void)!madvise(p, bytes, MADV_DONTDUMP);
    return p;
}

struct secret *secret_new(const void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert(n < SIZE_MAX / 2);
    size_t mapped = (sizeof(struct secret) + n + page - 1) / page * page;
    struct secret *s = map_pages(mapped);
    atomic_init(&s->count, 1);
    s->n = n;
    s->mapped = mapped;
    if (n)
        memcpy(s->bytes, p, n);
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
    size_t mapped = s->mapped;
    digest_wipe(s->bytes, s->n);
    munmap(s, mapped);
}

struct str secret_bytes(const struct secret *s)
{
    return (struct str){s->bytes, s->n};
}
