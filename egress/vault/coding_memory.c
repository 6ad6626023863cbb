/* coding_memory.c — the windows of all decoders share one bound, so that answers cannot make us
 * take more, whatever window each of them asks for. */
#include <stdatomic.h>

#include "egress/vault/coding_impl.h"

enum {
    HEAD = 16, /* the size, and what follows aligned for anything */
    MAX_DEFAULT = 64 * 1024 * 1024,
};

/* Of the whole process: workers share its memory. */
static atomic_size_t total, most = MAX_DEFAULT;

void coding_limit(size_t bytes)
{
    atomic_store(&most, bytes);
}

void *coding_alloc(size_t n)
{
    size_t max = atomic_load(&most);
    if (n > max - HEAD)
        return NULL;
    size_t bytes = HEAD + n, before = atomic_fetch_add(&total, bytes);
    if (before > max - bytes) {
        atomic_fetch_sub(&total, bytes);
        return NULL;
    }
    char *p = mem_renew(NULL, bytes);
    memcpy(p, &bytes, sizeof bytes);
    return p + HEAD;
}

void coding_free(void *p)
{
    size_t bytes;
    if (!p)
        return;
    char *block = (char *)p - HEAD;
    memcpy(&bytes, block, sizeof bytes);
    mem_wipe(block, bytes);
    mem_free(block);
    atomic_fetch_sub(&total, bytes);
}
