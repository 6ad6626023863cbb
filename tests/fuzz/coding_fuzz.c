/* coding_fuzz.c — any bytes as any coding: the same comes out whatever they are cut into and
 * however little room there is, and what comes out can be coded and read again.
 *
 * Input: one byte for the coding and the cuts, the rest is the body. */
#include <assert.h>
#include <stdlib.h>

#include "egress/vault/coding.h"

enum { OUT_MAX = 1 << 16 };

struct result {
    enum why why;
    bool stopped; /* it is longer than we care to look at */
    struct buf out;
};

static void decode(enum coding c, struct str body, size_t cut, size_t room, struct chunk_pool *pool,
                   struct result *ret)
{
    struct decoder *d = decoder_new(c);
    struct buf in;
    bool more = false;
    size_t at = 0;
    assert(d);
    *ret = (struct result){.why = WHY_OK};
    buf_init(&in, pool);
    buf_init(&ret->out, pool);
    do {
        size_t n = more ? 0 : body.n - at < cut ? body.n - at : cut, before = ret->out.len;
        char *exact = malloc(n ? n : 1);
        memcpy(exact, body.p + at, n);
        buf_write(&in, exact, n);
        free(exact);
        at += n;
        ret->why = decoder_push(d, &in, at == body.n, room, &ret->out, &more);
        assert(ret->out.len - before <= room);
        assert(more || ret->why != WHY_OK || in.len == 0);
        ret->stopped = ret->out.len > OUT_MAX;
    } while (ret->why == WHY_OK && !ret->stopped && (at < body.n || more));
    buf_clear(&in);
    decoder_free(d);
}

static char *copy_of(const struct buf *b)
{
    char *p = malloc(b->len + 1);
    buf_peek(b, p, b->len);
    return p;
}

static void assert_same(const struct result *a, const struct result *b)
{
    size_t n = a->out.len < b->out.len ? a->out.len : b->out.len;
    char *x = copy_of(&a->out), *y = copy_of(&b->out);
    assert(memcmp(x, y, n) == 0);
    if (!a->stopped && !b->stopped)
        assert(a->why == b->why && (a->why != WHY_OK || a->out.len == b->out.len));
    free(x);
    free(y);
}

static void code_again(enum coding c, const struct result *r, struct chunk_pool *pool)
{
    struct encoder e;
    struct buf in, coded;
    struct result again;
    buf_init(&in, pool);
    buf_init(&coded, pool);
    buf_share(&in, &r->out);
    encoder_init(&e, c);
    encoder_push(&e, &in, true, &coded);
    char *bytes = copy_of(&coded);
    decode(c, (struct str){bytes, coded.len}, 1000, OUT_MAX, pool, &again);
    assert(again.stopped || (again.why == WHY_OK && again.out.len == r->out.len));
    assert_same(&again, &(struct result){.stopped = true, .out = r->out});
    free(bytes);
    buf_clear(&coded);
    buf_clear(&again.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum coding codings[] = {CODING_GZIP, CODING_BR, CODING_ZSTD};
    if (size < 1)
        return 0;
    enum coding c = codings[data[0] % 3];
    size_t cut = 1 + data[0] / 3 % 9;
    struct str body = {(const char *)data + 1, size - 1};
    struct chunk_pool *pool = chunk_pool_new();
    struct result whole, pieces;
    decode(c, body, SIZE_MAX, OUT_MAX, pool, &whole);
    decode(c, body, cut, 1 + data[0] / 27 * 1000, pool, &pieces);
    assert_same(&whole, &pieces);
    code_again(c, &pieces, pool);
    buf_clear(&whole.out);
    buf_clear(&pieces.out);
    assert(chunk_pool_used(pool) == 0);
    chunk_pool_free(pool);
    return 0;
}
