/* scrub_fuzz.c — any strings, any body, any cut: what comes out is what a search through the whole
 * body leaves, and no byte waits that could have gone on.
 *
 * Input: how many strings, each with its length in front; a seed for the cuts; the body. */
#include <assert.h>
#include <stdlib.h>

#include "egress/vault/scrub.h"
#include "harness/scrub_model.h"

enum { STRINGS_MAX = 31, BODY_MAX = 4096 };

struct input {
    struct str strings[STRINGS_MAX];
    unsigned n;
    uint32_t seed;
    struct str body;
};

static struct str take(struct str *rest, size_t n)
{
    struct str s = str_head(*rest, n < rest->n ? n : rest->n);
    *rest = str_skip(*rest, s.n);
    return s;
}

static unsigned byte(struct str *rest)
{
    struct str s = take(rest, 1);
    return s.n ? (uint8_t)s.p[0] : 0;
}

static void read_input(struct str rest, struct input *in)
{
    *in = (struct input){.n = byte(&rest) % STRINGS_MAX};
    for (unsigned i = 0; i < in->n; i++)
        in->strings[i] = take(&rest, byte(&rest));
    in->seed = byte(&rest);
    in->body = str_head(rest, rest.n < BODY_MAX ? rest.n : BODY_MAX);
}

static size_t next_cut(struct input *in, size_t left)
{
    size_t most = in->seed & 1 ? 3 : 64;
    in->seed = in->seed * 1664525u + 1013904223u;
    size_t n = 1 + (in->seed >> 8) % most;
    return n < left ? n : left;
}

static void run(struct input *in, struct redaction *r, struct chunk_pool *pool)
{
    static char want[BODY_MAX], got[BODY_MAX];
    struct filter *f = scrub_new(r, CODING_NONE, pool, NULL);
    struct buf from, to;
    bool done = false;
    buf_init(&from, pool);
    buf_init(&to, pool);
    for (size_t at = 0; at < in->body.n;) {
        size_t n = next_cut(in, in->body.n - at);
        buf_write(&from, in->body.p + at, n);
        at += n;
        enum why why = f->ops->push(f, &from, false, SIZE_MAX, &to, &done);
        assert(why == WHY_OK && !done && from.len == 0);
        struct str seen = str_head(in->body, at);
        assert(to.len == at - scrub_model_held(in->strings, in->n, seen));
    }
    enum why why = f->ops->push(f, &from, true, SIZE_MAX, &to, &done);
    assert(why == WHY_OK && done && to.len == in->body.n);
    scrub_model(in->strings, in->n, in->body, want);
    buf_peek(&to, got, to.len);
    assert(memcmp(got, want, to.len) == 0);
    buf_clear(&to);
    f->ops->free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in;
    struct arena a;
    read_input((struct str){(const char *)data, size}, &in);
    struct redaction *r = redaction_with(NULL, in.strings, in.n, 1);
    if (!r)
        return 0;
    arena_init(&a, NULL, 0);
    struct str value = redact_value(r, in.body, &a);
    struct chunk_pool *pool = chunk_pool_new();
    assert(value.p == in.body.p || value.n > 0);
    run(&in, r, pool);
    assert(chunk_pool_used(pool) == 0);
    chunk_pool_free(pool);
    redaction_unref(r);
    arena_done(&a);
    return 0;
}
