/* coding_zstd.c — zstd (RFC 8878), one frame after the other, windows of 8 MiB at most.  The
 * library also reads its formats from before the RFC, by code that heeds no limit: what does not
 * begin as the RFC says never gets there.
 *
 * Its own allocator is set by a call that the library does not promise for ever, but has had since
 * 1.0: without it nothing could wipe a window. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#include "egress/vault/coding_impl.h"

enum { MAGIC_BYTES = 4, WINDOW_LOG_MAX = 23 };

struct zstd {
    ZSTD_DCtx *d;
    size_t seen; /* of the magic number of this frame */
    bool skips;  /* a skippable one */
};

static void *get(void *user, size_t n)
{
    (void)user;
    return coding_alloc(n);
}

static void put_back(void *user, void *p)
{
    (void)user;
    coding_free(p);
}

static void end(void *state)
{
    struct zstd *z = state;
    ZSTD_freeDCtx(z->d);
    coding_free(z);
}

static void *make(void)
{
    struct zstd *z = coding_alloc(sizeof *z);
    if (!z)
        return NULL;
    *z = (struct zstd){.d = ZSTD_createDCtx_advanced((ZSTD_customMem){get, put_back, NULL})};
    if (z->d && !ZSTD_isError(ZSTD_DCtx_setParameter(z->d, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
        return z;
    end(z);
    return NULL;
}

/* The next byte of a frame's magic number (RFC 8878 sections 3.1.1 and 3.1.2). */
static bool begins_so(struct zstd *z, uint8_t byte)
{
    static const uint8_t frame[MAGIC_BYTES] = {0x28, 0xb5, 0x2f, 0xfd},
                         skippable[MAGIC_BYTES] = {0x50, 0x2a, 0x4d, 0x18};
    if (z->seen == 0) {
        z->skips = (byte & 0xf0) == skippable[0];
        return z->skips || byte == frame[0];
    }
    return byte == (z->skips ? skippable : frame)[z->seen];
}

static bool begins_well(struct zstd *z, const struct coded *c)
{
    for (size_t i = 0; i < c->nfrom && z->seen < MAGIC_BYTES; i++, z->seen++)
        if (!begins_so(z, c->from[i]))
            return false;
    return true;
}

static enum step step(void *state, struct coded *c)
{
    struct zstd *z = state;
    if (!begins_well(z, c))
        return STEP_BAD;
    ZSTD_inBuffer in = {c->from, c->nfrom, 0};
    ZSTD_outBuffer out = {c->to, c->nto, 0};
    size_t got = ZSTD_decompressStream(z->d, &out, &in);
    c->used = in.pos;
    c->made = out.pos;
    if (ZSTD_isError(got))
        return ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation ? STEP_MEMORY : STEP_BAD;
    if (got > 0)
        return STEP_ON;
    z->seen = 0;
    return STEP_END;
}

const struct decoder_ops coding_zstd = {make, step, end, true};
