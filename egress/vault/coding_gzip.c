/* coding_gzip.c — gzip (RFC 1952) by zlib, one member after the other; no other wrapper of deflate.
 */
#include <zlib.h>

#include "egress/vault/coding_impl.h"

enum { GZIP_ONLY = 16 }; /* added to the bits of the window */

static void *get(void *user, uInt items, uInt size)
{
    (void)user;
    return coding_alloc((size_t)items * size);
}

static void put_back(void *user, void *p)
{
    (void)user;
    coding_free(p);
}

static void *make(void)
{
    z_stream *z = coding_alloc(sizeof *z);
    if (!z)
        return NULL;
    *z = (z_stream){.zalloc = get, .zfree = put_back};
    if (inflateInit2(z, MAX_WBITS + GZIP_ONLY) == Z_OK)
        return z;
    coding_free(z);
    return NULL;
}

static enum step step(void *state, struct coded *c)
{
    z_stream *z = state;
    z->next_in = (uint8_t *)(uintptr_t)c->from;
    z->avail_in = (uInt)c->nfrom;
    z->next_out = c->to;
    z->avail_out = (uInt)c->nto;
    int got = inflate(z, Z_NO_FLUSH);
    c->used = c->nfrom - z->avail_in;
    c->made = c->nto - z->avail_out;
    if (got == Z_STREAM_END)
        return inflateReset(z) == Z_OK ? STEP_END : STEP_BAD;
    if (got == Z_OK || got == Z_BUF_ERROR)
        return STEP_ON;
    return got == Z_MEM_ERROR ? STEP_MEMORY : STEP_BAD;
}

static void end(void *state)
{
    inflateEnd(state);
    coding_free(state);
}

const struct decoder_ops coding_gzip = {make, step, end, true};

uint32_t coding_crc32(uint32_t crc, const void *p, size_t n)
{
    return (uint32_t)crc32_z(crc, p, n);
}
