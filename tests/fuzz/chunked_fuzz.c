/* chunked_fuzz.c — the chunked coding: any cut of the bytes must give the same body and the same
 * end, and both must be what a second reader finds that sees all bytes at once. */
#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "http/chunked.h"

struct reading {
    enum chunked_event last;
    char *body;
    size_t n;
    size_t used; /* TRAILERS only */
};

static void read_cut(struct reading *r, const char *p, size_t n, uint32_t seed)
{
    struct chunked c = {0};
    *r = (struct reading){.last = CHUNKED_MORE, .body = malloc(n + 1)};
    for (size_t at = 0; at < n && r->last != CHUNKED_BAD && r->last != CHUNKED_TRAILERS;) {
        size_t piece = n - at, used = 0;
        struct str span = STR_NONE;
        seed = seed * 1664525u + 1013904223u;
        if (seed && piece > 1)
            piece = 1 + (seed >> 8) % (seed & 1 && piece > 3 ? 3 : piece);
        char *copy = malloc(piece); /* a look beyond the piece is found */
        memcpy(copy, p + at, piece);
        r->last = chunked_step(&c, copy, piece, &used, &span);
        if (r->last == CHUNKED_DATA) {
            assert(span.n > 0 && span.p >= copy && span.p + span.n == copy + used);
            memcpy(r->body + r->n, span.p, span.n);
            r->n += span.n;
        }
        assert(r->last == CHUNKED_BAD || (used > 0 && used <= piece));
        assert(r->last != CHUNKED_MORE || used == piece);
        free(copy);
        at += used;
        r->used = at;
    }
}

/* Length of the line at p up to its CRLF, or −1: bad, −2: not complete. */
static ptrdiff_t size_line(const char *p, size_t n, uint64_t *ret_size)
{
    size_t digits = 0, len = 0;
    *ret_size = 0;
    while (digits < n && text_hex(p[digits]) >= 0) {
        if (digits == 16 || *ret_size > INT64_MAX / 16)
            return -1;
        *ret_size = *ret_size * 16 + (unsigned)text_hex(p[digits++]);
    }
    if (digits == n)
        return n > CHUNK_LINE_BYTES ? -1 : -2;
    if (digits == 0 || (p[digits] != ';' && p[digits] != '\r'))
        return -1;
    for (len = digits; len < n && p[len] != '\r'; len++)
        if (len >= CHUNK_LINE_BYTES || (p[len] != '\t' && (unsigned char)p[len] < ' ') ||
            p[len] == 127)
            return -1;
    if (len == n)
        return -2;
    if (len >= CHUNK_LINE_BYTES)
        return -1;
    if (len + 1 == n)
        return -2;
    return p[len + 1] == '\n' ? (ptrdiff_t)len : -1;
}

static void read_whole(struct reading *r, const char *p, size_t n)
{
    *r = (struct reading){.last = CHUNKED_MORE, .body = malloc(n + 1)};
    for (size_t at = 0; at < n;) {
        uint64_t size;
        ptrdiff_t line = size_line(p + at, n - at, &size);
        if (line < 0) {
            r->last = line == -1 ? CHUNKED_BAD : CHUNKED_MORE;
            return;
        }
        at += (size_t)line + 2;
        if (size == 0) {
            r->last = CHUNKED_TRAILERS;
            r->used = at;
            return;
        }
        size_t part = size < n - at ? (size_t)size : n - at;
        memcpy(r->body + r->n, p + at, part);
        r->n += part;
        at += part;
        r->last = part > 0 && at == n ? CHUNKED_DATA : CHUNKED_MORE;
        for (const char *crlf = "\r\n"; *crlf && at < n; crlf++) {
            r->last = CHUNKED_MORE;
            if (p[at++] != *crlf) {
                r->last = CHUNKED_BAD;
                return;
            }
        }
    }
}

static void same(const struct reading *a, const struct reading *b)
{
    assert(a->last == b->last);
    assert(a->n == b->n && memcmp(a->body, b->body, a->n) == 0);
    assert(a->last != CHUNKED_TRAILERS || a->used == b->used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *p = (const char *)data + 1;
    struct reading whole, cut, expected;
    read_whole(&expected, p, size - 1);
    read_cut(&whole, p, size - 1, 0);
    read_cut(&cut, p, size - 1, data[0] + 1u);
    same(&expected, &whole);
    same(&expected, &cut);
    free(whole.body);
    free(cut.body);
    free(expected.body);
    return 0;
}
