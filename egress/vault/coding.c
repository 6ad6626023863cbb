/* coding.c — which coding a body has, and its decoder as a stream of chunks: what is read, what is
 * written, and whether a body may end here are the same for all three. */
#include "egress/vault/coding.h"

#include <assert.h>

#include "egress/vault/coding_impl.h"

/* ---- Content-Encoding (RFC 9110 section 8.4) */

static enum coding coding_of(struct str name)
{
    if (str_ieq(name, STR("gzip")) || str_ieq(name, STR("x-gzip")))
        return CODING_GZIP;
    if (str_ieq(name, STR("br")))
        return CODING_BR;
    if (str_ieq(name, STR("zstd")))
        return CODING_ZSTD;
    return name.n == 0 || str_ieq(name, STR("identity")) ? CODING_NONE : CODING_UNKNOWN;
}

/* One more of a list: two that do something are more than we undo. */
static enum coding and_coding(enum coding so_far, enum coding next)
{
    if (so_far == CODING_NONE || next == CODING_NONE)
        return so_far == CODING_NONE ? next : so_far;
    return CODING_UNKNOWN;
}

enum coding coding_read(const struct field *fields, unsigned nfields)
{
    enum coding c = CODING_NONE;
    for (unsigned i = 0; i < nfields; i++) {
        struct str rest = fields[i].value, name;
        if (!str_ieq(fields[i].name, STR("content-encoding")))
            continue;
        while (str_next(&rest, ',', &name))
            c = and_coding(c, coding_of(str_trim(name)));
    }
    return c;
}

/* ---- decoding */

struct decoder {
    const struct decoder_ops *ops;
    void *state;
    bool inside; /* a member or frame has begun and not ended */
    bool ended;  /* and nothing may follow */
    bool full;   /* all room was used: there may be more to come out */
};

struct decoder *decoder_new(enum coding c)
{
    static const struct decoder_ops *const ops[] = {
        [CODING_GZIP] = &coding_gzip, [CODING_BR] = &coding_br, [CODING_ZSTD] = &coding_zstd};
    assert(c > CODING_NONE && c < CODING_UNKNOWN);
    void *state = ops[c]->make();
    if (!state)
        return NULL;
    struct decoder *d = mem_new(sizeof *d);
    *d = (struct decoder){.ops = ops[c], .state = state};
    return d;
}

void decoder_free(struct decoder *d)
{
    if (!d)
        return;
    d->ops->free(d->state);
    mem_free(d);
}

/* One call, from the first slice of `in` into room of the pool. */
static enum why decode_some(struct decoder *d, struct buf *in, size_t room, struct buf *out)
{
    struct coded c = {.from = in->len ? in->head->p : (const uint8_t *)"",
                      .nfrom = in->len ? in->head->n : 0};
    if (d->ended)
        return WHY_ORIGIN_PROTOCOL;
    c.to = buf_reserve(out->pool, false, &c.nto);
    c.nto = c.nto < room ? c.nto : room;
    enum step got = d->ops->step(d->state, &c);
    buf_commit(out, c.made);
    buf_drop(in, c.used);
    d->full = got == STEP_ON && c.made == c.nto;
    d->inside = got == STEP_ON;
    d->ended = got == STEP_END && !d->ops->several;
    if (got == STEP_MEMORY)
        return WHY_OVERLOAD;
    bool stuck = got == STEP_ON && c.made == 0 && c.used == 0 && c.nfrom > 0;
    return got == STEP_BAD || stuck ? WHY_ORIGIN_PROTOCOL : WHY_OK;
}

enum why decoder_push(struct decoder *d, struct buf *in, bool end, size_t room, struct buf *out,
                      bool *ret_more)
{
    size_t before = out->len;
    enum why why = WHY_OK;
    while (why == WHY_OK && (in->len > 0 || d->full) && out->len - before < room)
        why = decode_some(d, in, room - (out->len - before), out);
    *ret_more = why == WHY_OK && (in->len > 0 || d->full);
    if (why == WHY_OK && end && !*ret_more && d->inside)
        return WHY_ORIGIN_PROTOCOL;
    return why;
}
