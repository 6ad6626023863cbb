/* coders.c — zlib, brotli and zstd as other programs use them. */
#include "harness/coders.h"

#include <assert.h>
#include <brotli/decode.h>
#include <brotli/encode.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

enum { GZIP = 16, ROOM = 1 << 16 };

struct bytes {
    uint8_t *p;
    size_t n, room;
};

/* Room for ROOM more. */
static uint8_t *more(struct bytes *b)
{
    if (b->room - b->n < ROOM)
        b->p = mem_renew(b->p, b->room = 2 * b->room + ROOM);
    return b->p + b->n;
}

/* ---- coding */

static void gzip_piece(z_stream *z, struct str piece, bool last, struct bytes *out)
{
    z->next_in = (uint8_t *)(uintptr_t)piece.p;
    z->avail_in = (uInt)piece.n;
    do {
        z->next_out = more(out);
        z->avail_out = ROOM;
        int got = deflate(z, last ? Z_FINISH : Z_SYNC_FLUSH);
        assert(got == Z_OK || got == Z_STREAM_END || got == Z_BUF_ERROR);
        out->n += ROOM - z->avail_out;
    } while (z->avail_out == 0);
}

static void br_piece(BrotliEncoderState *e, struct str piece, bool last, struct bytes *out)
{
    const uint8_t *from = (const uint8_t *)piece.p;
    size_t n = piece.n;
    do {
        uint8_t *to = more(out);
        size_t room = ROOM;
        bool good =
            BrotliEncoderCompressStream(e, last ? BROTLI_OPERATION_FINISH : BROTLI_OPERATION_FLUSH,
                                        &n, &from, &room, &to, NULL);
        assert(good);
        out->n += ROOM - room;
    } while (n > 0 || BrotliEncoderHasMoreOutput(e));
}

static void zstd_piece(ZSTD_CStream *z, struct str piece, bool last, struct bytes *out)
{
    ZSTD_inBuffer in = {piece.p, piece.n, 0};
    size_t left;
    do {
        ZSTD_outBuffer to = {more(out), ROOM, 0};
        left = ZSTD_compressStream2(z, &to, &in, last ? ZSTD_e_end : ZSTD_e_flush);
        assert(!ZSTD_isError(left));
        out->n += to.pos;
    } while (left > 0);
}

uint8_t *coder_make(enum coding c, struct str text, size_t flush_every, size_t *ret_n)
{
    struct bytes out = {0};
    z_stream z = {0};
    BrotliEncoderState *br = BrotliEncoderCreateInstance(NULL, NULL, NULL);
    BrotliEncoderSetParameter(br, BROTLI_PARAM_QUALITY, 5);
    ZSTD_CStream *zstd = ZSTD_createCStream();
    deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + GZIP, 8, Z_DEFAULT_STRATEGY);
    bool last;
    do {
        size_t n = flush_every && flush_every < text.n ? flush_every : text.n;
        struct str piece = str_head(text, n);
        text = str_skip(text, n);
        last = text.n == 0;
        if (c == CODING_GZIP)
            gzip_piece(&z, piece, last, &out);
        else if (c == CODING_BR)
            br_piece(br, piece, last, &out);
        else
            zstd_piece(zstd, piece, last, &out);
    } while (!last);
    deflateEnd(&z);
    BrotliEncoderDestroyInstance(br);
    ZSTD_freeCStream(zstd);
    *ret_n = out.n;
    return out.p;
}

/* ---- reading */

struct coder_reader {
    enum coding coding;
    z_stream z;
    BrotliDecoderState *br;
    ZSTD_DStream *zstd;
    struct bytes text;
    bool ended;
};

struct coder_reader *coder_reader_new(enum coding c)
{
    struct coder_reader *r = mem_new(sizeof *r);
    r->coding = c;
    r->br = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    r->zstd = ZSTD_createDStream();
    inflateInit2(&r->z, MAX_WBITS + GZIP);
    return r;
}

void coder_reader_free(struct coder_reader *r)
{
    inflateEnd(&r->z);
    BrotliDecoderDestroyInstance(r->br);
    ZSTD_freeDStream(r->zstd);
    mem_free(r->text.p);
    mem_free(r);
}

static bool read_gzip(struct coder_reader *r, const uint8_t *p, size_t n)
{
    r->z.next_in = (uint8_t *)(uintptr_t)p;
    r->z.avail_in = (uInt)n;
    do {
        r->z.next_out = more(&r->text);
        r->z.avail_out = ROOM;
        int got = inflate(&r->z, Z_SYNC_FLUSH);
        r->text.n += ROOM - r->z.avail_out;
        r->ended = got == Z_STREAM_END;
        if (got != Z_OK && got != Z_STREAM_END && got != Z_BUF_ERROR)
            return false;
    } while (r->z.avail_out == 0);
    return r->z.avail_in == 0;
}

static bool read_br(struct coder_reader *r, const uint8_t *p, size_t n)
{
    BrotliDecoderResult got;
    do {
        uint8_t *to = more(&r->text);
        size_t room = ROOM;
        got = BrotliDecoderDecompressStream(r->br, &n, &p, &room, &to, NULL);
        r->text.n += ROOM - room;
    } while (got == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT);
    r->ended = got == BROTLI_DECODER_RESULT_SUCCESS;
    return got != BROTLI_DECODER_RESULT_ERROR && n == 0;
}

static bool read_zstd(struct coder_reader *r, const uint8_t *p, size_t n)
{
    ZSTD_inBuffer in = {p, n, 0};
    size_t got, made;
    do {
        ZSTD_outBuffer to = {more(&r->text), ROOM, 0};
        got = ZSTD_decompressStream(r->zstd, &to, &in);
        if (ZSTD_isError(got))
            return false;
        made = to.pos;
        r->text.n += made;
    } while (in.pos < in.size || made == ROOM);
    r->ended = got == 0;
    return true;
}

bool coder_read(struct coder_reader *r, const void *p, size_t n)
{
    if (n == 0)
        return true;
    if (r->ended)
        return false;
    if (r->coding == CODING_GZIP)
        return read_gzip(r, p, n);
    return r->coding == CODING_BR ? read_br(r, p, n) : read_zstd(r, p, n);
}

struct str coder_text(const struct coder_reader *r)
{
    return (struct str){(const char *)r->text.p, r->text.n};
}

bool coder_ended(const struct coder_reader *r)
{
    return r->ended;
}
