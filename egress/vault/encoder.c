/* encoder.c — the three codings without any compression: some bytes in front of each piece say how
 * long it is, the piece itself is moved.  The reader is in the same namespace, so there is nothing
 * to save on the way. */
#include "egress/vault/coding.h"
#include "egress/vault/coding_impl.h"

enum {
    DEFLATE_MAX = 65535,  /* bytes of a stored block (RFC 1951 section 3.2.4) */
    BR_MAX = 65536,       /* of a meta-block whose length has four nibbles (RFC 7932 section 9.2) */
    ZSTD_MAX = 128 * 1024 /* of a block (RFC 8878 section 3.1.1.2), as the window of our frames */
};

void encoder_init(struct encoder *e, enum coding c)
{
    *e = (struct encoder){.coding = c};
}

static void put_le(struct buf *out, uint64_t v, unsigned n)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (uint8_t)(v >> 8 * i);
    buf_write(out, bytes, n);
}

/* ---- gzip */

static void gzip_begin(struct buf *out)
{
    static const uint8_t head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
    buf_write(out, head, sizeof head);
}

static void gzip_block(struct buf *out, size_t n, bool last)
{
    put_le(out, last, 1);
    put_le(out, n, 2);
    put_le(out, ~(uint64_t)n, 2);
}

static void gzip_count(struct encoder *e, const struct buf *in, size_t n)
{
    e->total += n;
    for (const struct slice *s = in->head; n > 0; s = s->next) {
        size_t part = n < s->n ? n : s->n;
        e->crc = coding_crc32(e->crc, s->p, part);
        n -= part;
    }
}

static void gzip_end(const struct encoder *e, struct buf *out)
{
    gzip_block(out, 0, true);
    put_le(out, e->crc, 4);
    put_le(out, e->total, 4);
}

/* ---- br: bits fill each byte from its low end */

/* The first header also says the window: one bit 0, which is 64 KiB. */
static void br_block(struct buf *out, size_t n, bool first)
{
    enum { ISUNCOMPRESSED = 1 << 19, LENGTH_AT = 3 };
    uint64_t bits = (uint64_t)(n - 1) << LENGTH_AT | ISUNCOMPRESSED;
    put_le(out, first ? bits << 1 : bits, 3);
}

static void br_end(struct buf *out, bool first)
{
    enum { ISLAST_ISEMPTY = 3 };
    put_le(out, first ? ISLAST_ISEMPTY << 1 : ISLAST_ISEMPTY, 1);
}

/* ---- zstd */

static void zstd_begin(struct buf *out)
{
    static const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3}; /* a window of 128 KiB */
    buf_write(out, head, sizeof head);
}

static void zstd_block(struct buf *out, size_t n, bool last)
{
    put_le(out, (uint64_t)n << 3 | last, 3);
}

/* ---- all of them */

static size_t block_max(enum coding c)
{
    return c == CODING_GZIP ? DEFLATE_MAX : c == CODING_BR ? BR_MAX : ZSTD_MAX;
}

static void begin(struct encoder *e, struct buf *out)
{
    if (e->begun)
        return;
    if (e->coding == CODING_GZIP)
        gzip_begin(out);
    if (e->coding == CODING_ZSTD)
        zstd_begin(out);
}

static void put_block(struct encoder *e, struct buf *in, size_t n, struct buf *out)
{
    begin(e, out);
    if (e->coding == CODING_GZIP) {
        gzip_block(out, n, false);
        gzip_count(e, in, n);
    } else if (e->coding == CODING_BR) {
        br_block(out, n, !e->begun);
    } else {
        zstd_block(out, n, false);
    }
    e->begun = true;
    buf_move(out, in, n);
}

static void put_end(struct encoder *e, struct buf *out)
{
    begin(e, out);
    if (e->coding == CODING_GZIP)
        gzip_end(e, out);
    else if (e->coding == CODING_BR)
        br_end(out, !e->begun);
    else
        zstd_block(out, 0, true);
    e->begun = true;
}

void encoder_push(struct encoder *e, struct buf *in, bool end, struct buf *out)
{
    size_t max = block_max(e->coding);
    while (in->len > 0)
        put_block(e, in, in->len < max ? in->len : max, out);
    if (end)
        put_end(e, out);
}
