/* scrub.c — looks through a body piece by piece.  What may yet become a match is kept as a copy and
 * put in front of the next piece; everything else goes on at once, in the chunks it came in.  Marks
 * are collected first and put over the bytes afterwards, for matches may overlap. */
#include "egress/vault/scrub.h"

#include "policies/marks.h"

enum { PIECE_MAX = 32768 };

struct scrub {
    struct filter filter;
    struct redaction *r;
    const struct matcher *m;
    size_t longest;
    uint64_t *hits;
    char *held; /* the beginning of a string, perhaps */
    size_t nheld, held_room;
    size_t marked; /* so many of the next bytes belong to a match that began before them */
    uint64_t *bits;
    size_t words;
    struct decoder *d; /* NULL: the body has no coding */
    struct encoder e;
    struct buf plain, clean;
};

/* ---- marks */

struct look {
    struct scrub *s;
    size_t cut; /* what goes on; matches that begin behind it will be found again */
    size_t beyond;
    bool any;
};

static void need_bits(struct scrub *s, size_t n)
{
    size_t words = marks_words(n);
    if (words > s->words) {
        s->bits = mem_renew(s->bits, words * sizeof *s->bits);
        s->words = words;
    }
    memset(s->bits, 0, words * sizeof *s->bits);
}

static void on_hit(void *user, size_t at, size_t len)
{
    struct look *l = user;
    if (at >= l->cut)
        return;
    if (!l->any)
        need_bits(l->s, l->cut);
    l->any = true;
    size_t end = at + len < l->cut ? at + len : l->cut;
    marks_set(l->s->bits, at, end);
    if (at + len - end > l->beyond)
        l->beyond = at + len - end;
    if (l->s->hits)
        ++*l->s->hits;
}

static void put_stars(const struct scrub *s, char *p, size_t n)
{
    size_t from = marks_next(s->bits, n, 0, true), to;
    for (; from < n; from = marks_next(s->bits, n, to, true)) {
        to = marks_next(s->bits, n, from, false);
        memset(p + from, '*', to - from);
    }
}

/* Masks the first `cut` of n bytes, by all matches in these n. */
static void mask(struct scrub *s, char *p, size_t n, size_t cut)
{
    size_t before = s->marked < cut ? s->marked : cut;
    struct look l = {.s = s, .cut = cut, .beyond = s->marked - before};
    matcher_find(s->m, p, n, on_hit, &l);
    if (l.any)
        put_stars(s, p, cut);
    memset(p, '*', before);
    s->marked = l.beyond;
}

/* ---- pieces */

static void hold(struct scrub *s, const char *p, size_t n)
{
    if (n == 0)
        return;
    if (s->nheld + n > s->held_room) {
        size_t room = 2 * (s->nheld + n);
        char *grown = mem_new(room);
        if (s->nheld)
            memcpy(grown, s->held, s->nheld);
        mem_free_wiped(s->held);
        s->held = grown;
        s->held_room = room;
    }
    memcpy(s->held + s->nheld, p, n);
    s->nheld += n;
}

/* The first `cut` of n bytes, which begin with the held ones. */
static void release(struct scrub *s, size_t n, size_t cut, struct buf *out)
{
    mask(s, s->held, n, cut);
    buf_write(out, s->held, cut);
    memmove(s->held, s->held + cut, n - cut);
    s->nheld = n - cut;
}

/* Nothing is held: n bytes where they lie. */
static void look_in_place(struct scrub *s, struct buf *in, size_t n, struct buf *out)
{
    char *p = (char *)in->head->p;
    size_t tail = matcher_tail(s->m, p, n), cut = n - tail;
    mask(s, p, n, cut);
    hold(s, p + cut, tail);
    buf_move(out, in, cut);
    buf_drop(in, tail);
}

/* A piece that is shorter than a string joins what is held. */
static void look_joined(struct scrub *s, struct buf *in, size_t n, struct buf *out)
{
    hold(s, (const char *)in->head->p, n);
    buf_drop(in, n);
    release(s, s->nheld, s->nheld - matcher_tail(s->m, s->held, s->nheld), out);
}

/* Of a longer one only as much joins as a match that begins in the held bytes can need. */
static void look_across(struct scrub *s, const struct buf *in, struct buf *out)
{
    size_t held = s->nheld;
    hold(s, (const char *)in->head->p, s->longest - 1);
    release(s, s->nheld, held, out);
    s->nheld = 0;
}

static void look_on(struct scrub *s, struct buf *in, struct buf *out)
{
    size_t n = in->head->n < PIECE_MAX ? in->head->n : PIECE_MAX;
    if (s->nheld > 0 && n < s->longest) {
        look_joined(s, in, n, out);
        return;
    }
    if (s->nheld > 0)
        look_across(s, in, out);
    look_in_place(s, in, n, out);
}

static void let_all_go(struct scrub *s, struct buf *out)
{
    release(s, s->nheld, s->nheld, out);
}

/* ---- the filter */

static enum why push_plain(struct scrub *s, struct buf *in, bool end, size_t room, struct buf *out,
                           bool *ret_done)
{
    size_t before = out->len;
    while (in->len > 0 && out->len - before < room)
        look_on(s, in, out);
    *ret_done = end && in->len == 0;
    if (*ret_done && s->nheld > 0)
        let_all_go(s, out);
    return WHY_OK;
}

static enum why push_coded(struct scrub *s, struct buf *in, bool end, size_t room, struct buf *out,
                           bool *ret_done)
{
    size_t before = out->len;
    bool more = true, plain_done;
    enum why why = WHY_OK;
    *ret_done = false;
    while (why == WHY_OK && more && out->len - before < room) {
        why = decoder_push(s->d, in, end, room - (out->len - before), &s->plain, &more);
        *ret_done = why == WHY_OK && end && !more;
        (void)!push_plain(s, &s->plain, *ret_done, SIZE_MAX, &s->clean, &plain_done);
        encoder_push(&s->e, &s->clean, *ret_done, out);
    }
    return why;
}

static enum why push(struct filter *f, struct buf *in, bool end, size_t room, struct buf *out,
                     bool *ret_done)
{
    struct scrub *s = (struct scrub *)(void *)f;
    if (s->d)
        return push_coded(s, in, end, room, out, ret_done);
    return push_plain(s, in, end, room, out, ret_done);
}

static void scrub_free(struct filter *f)
{
    struct scrub *s = (struct scrub *)(void *)f;
    decoder_free(s->d);
    buf_clear(&s->plain);
    buf_clear(&s->clean);
    mem_free_wiped(s->held);
    mem_free(s->bits);
    redaction_unref(s->r);
    mem_free(s);
}

struct filter *scrub_new(struct redaction *r, enum coding c, struct chunk_pool *pool,
                         uint64_t *hits)
{
    static const struct filter_ops ops = {push, scrub_free};
    struct decoder *d = c == CODING_NONE ? NULL : decoder_new(c);
    if (c != CODING_NONE && !d)
        return NULL;
    struct scrub *s = mem_new(sizeof *s);
    *s = (struct scrub){.filter = {&ops}, .r = redaction_ref(r), .hits = hits, .d = d};
    s->m = redaction_body(r);
    s->longest = matcher_longest(s->m);
    encoder_init(&s->e, c);
    buf_init(&s->plain, pool);
    buf_init(&s->clean, pool);
    return &s->filter;
}
