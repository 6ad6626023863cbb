/* first.c — the first bytes of a connection.  The hello is read on from where it stood, so that
 * whoever sends it byte by byte makes us read each byte once. */
#include "egress/relay/first.h"

void first_init(struct first *f)
{
    *f = (struct first){.step = FIRST_STEP_MORE};
    hello_init(&f->hello);
}

void first_done(struct first *f)
{
    hello_done(&f->hello);
}

static enum first_step feed(struct first *f, const struct slice *s)
{
    switch (hello_feed(&f->hello, s->p, s->n)) {
    case HELLO_MORE:
        return FIRST_STEP_MORE;
    case HELLO_DONE:
        return FIRST_STEP_TLS;
    default:
        return FIRST_STEP_BAD;
    }
}

/* What has come since. */
static enum first_step look_tls(struct first *f, const struct buf *bytes)
{
    size_t skip = f->seen;
    for (const struct slice *s = bytes->head; s && f->step == FIRST_STEP_MORE; s = s->next) {
        if (skip >= s->n) {
            skip -= s->n;
            continue;
        }
        struct slice rest = {.p = s->p + skip, .n = s->n - skip};
        skip = 0;
        f->seen += rest.n;
        f->step = feed(f, &rest);
    }
    return f->step;
}

static enum firstbytes look(const struct buf *bytes)
{
    uint8_t first[FIRSTBYTES_MAX];
    size_t n = bytes->len < sizeof first ? bytes->len : sizeof first;
    buf_peek(bytes, first, n);
    return firstbytes_look(first, n);
}

enum first_step first_look(struct first *f, const struct buf *bytes)
{
    static const enum first_step steps[] = {
        [FIRST_MORE] = FIRST_STEP_MORE,   [FIRST_TLS] = FIRST_STEP_MORE,
        [FIRST_H1] = FIRST_STEP_HTTP,     [FIRST_H2] = FIRST_STEP_OTHER,
        [FIRST_OTHER] = FIRST_STEP_OTHER,
    };
    if (f->step != FIRST_STEP_MORE)
        return f->step;
    if (!f->tls) {
        enum firstbytes is = look(bytes);
        f->tls = is == FIRST_TLS;
        f->step = steps[is];
    }
    return f->tls ? look_tls(f, bytes) : f->step;
}
