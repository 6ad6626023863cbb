/* coding_memory.c — the windows of all decoders share one bound, so that answers cannot make us
 * take more, whatever window each of them asks for. */
#include <stdatomic.h>

#include "egress/vault/coding_impl.h"

enum {
    HEAD = 16, /* the size, and what follows aligned for anything */
    TOTAL_MAX = 192 * 1024 * 1024,
};

/* Of the whole process: workers share its memory. */
static atomic_size_t total;

void *coding_alloc(size_t n)
{
    if (n > TOTAL_MAX - HEAD)
        return NULL;
    size_t bytes = HEAD + n, before = atomic_fetch_add(&total, bytes);
    if (before > TOTAL_MAX - bytes) {
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
