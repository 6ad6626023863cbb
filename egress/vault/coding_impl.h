/* coding_impl.h — what the three decoders are to coding.c. */
#ifndef VAULT_CODING_IMPL_H
#define VAULT_CODING_IMPL_H

#include "egress/vault/coding.h"

/* One call of a decoder: bytes it may read and may write, and how many it did. */
struct coded {
    const uint8_t *from;
    size_t nfrom, used;
    uint8_t *to;
    size_t nto, made;
};

enum step {
    STEP_ON,    /* wants more bytes, or more room where all of it was used */
    STEP_END,   /* a member or frame ended here, all of it is out */
    STEP_BAD,   /* it cannot be read, or wants a window that is too large */
    STEP_MEMORY /* there may be no more windows */
};

struct decoder_ops {
    void *(*make)(void); /* NULL: no memory for it */
    enum step (*step)(void *state, struct coded *c);
    void (*free)(void *state);
    bool several; /* may another member or frame follow? */
};
extern const struct decoder_ops coding_gzip, coding_br, coding_zstd;

/* Memory of decoders, counted and wiped: what was decoded lies in it.  NULL: it would be too much
 * for all of them. */
void *coding_alloc(size_t n);
void coding_free(void *p); /* NULL is fine */

/* zlib's, of gzip's trailer. */
uint32_t coding_crc32(uint32_t crc, const void *p, size_t n);

#endif
