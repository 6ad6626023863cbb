/* redis_reply_fuzz.c — any bytes as a server's replies: the same whole and in pieces, within their
 * bounds; and as RESP3 values that are stepped over. */
#include <assert.h>
#include <stdint.h>

#include "ingress/redis/resp.h"

enum { MANY = 512 };

struct heard {
    struct resp_reply replies[MANY];
    unsigned n;
    bool broken;
};

static void hear(const uint8_t *data, size_t size, size_t piece, struct heard *h)
{
    struct resp_reader *r = resp_reader_new();
    *h = (struct heard){.n = 0};
    for (size_t at = 0; at < size && !h->broken; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        h->broken = !resp_feed(r, data + at, n);
        struct resp_reply reply;
        for (int got; !h->broken && (got = resp_next(r, &reply)) != 0;) {
            h->broken = got < 0;
            if (got > 0 && h->n < MANY)
                h->replies[h->n++] = reply;
        }
        assert(resp_lying(r) <= RESP_LYING_BYTES);
    }
    resp_reader_free(r);
}

static void compare(const struct heard *a, const struct heard *b)
{
    assert(a->n == b->n && a->broken == b->broken);
    for (unsigned i = 0; i < a->n; i++) {
        const struct resp_reply *x = &a->replies[i], *y = &b->replies[i];
        assert(x->type == y->type && x->number == y->number);
        assert(x->n <= RESP_TEXT_BYTES && str_eq(resp_text(x), resp_text(y)));
    }
}

static void step_over(struct str s)
{
    while (s.n > 0) {
        ptrdiff_t n = resp3_span(s);
        assert(n >= -1 && n <= (ptrdiff_t)s.n);
        if (n <= 0)
            return;
        assert(resp3_span(str_head(s, (size_t)n - 1)) == 0);
        s = str_skip(s, (size_t)n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct heard whole, pieces; /* too large for a stack */
    if (size == 0 || size > 8192)
        return 0;
    hear(data, size, size, &whole);
    hear(data, size, 1 + data[0] % 7, &pieces);
    compare(&whole, &pieces);
    step_over((struct str){(const char *)data, size});
    return 0;
}
