/* bulk.c — long bodies past the codecs: where both sides can lend their connections for a
 * direction, a kernel pipe moves the bytes, and the pump has nothing to do but to count them.
 * Everything that ends or changes an exchange stops that first. */
#include "net/splice.h"
#include "proxy/exchange.h"

enum {
    AFTER_BYTES = 256 * 1024, /* so many went the ordinary way */
    PIECE_BYTES = 16384       /* and they come in large pieces */
};

/* From the origin to the client. */
static bool is_down(const struct exchange *x, const struct bulk *b)
{
    return b == &x->bulk_down;
}

static struct http_stream *source(const struct exchange *x, const struct bulk *b)
{
    return is_down(x, b) ? x->up : x->down;
}

static struct http_stream *sink(const struct exchange *x, const struct bulk *b)
{
    return is_down(x, b) ? x->down : x->up;
}

static void up_moved(void *user, size_t n)
{
    struct exchange *x = user;
    x->bytes_in += n;
    exchange_progress(x);
}

static void down_moved(void *user, size_t n)
{
    struct exchange *x = user;
    x->bytes_out += n;
    exchange_progress(x);
}

static void give_back(struct exchange *x, struct bulk *b, int64_t moved)
{
    struct http_stream *from = source(x, b), *to = sink(x, b);
    from->ops->back(from, true, moved);
    to->ops->back(to, false, moved);
}

static void done(struct exchange *x, struct bulk *b, int64_t moved)
{
    b->splice = NULL;
    give_back(x, b, moved);
}

static void up_done(void *user, int64_t moved)
{
    struct exchange *x = user;
    done(x, &x->bulk_up, moved);
}

static void down_done(void *user, int64_t moved)
{
    struct exchange *x = user;
    done(x, &x->bulk_down, moved);
}

static const struct splice_events up_events = {up_moved, up_done};
static const struct splice_events down_events = {down_moved, down_done};

/* What was passed on has left, and nothing is kept that could be sent again. */
static bool is_clear(const struct exchange *x, const struct bulk *b)
{
    if (is_down(x, b))
        return x->unsent == 0 && x->bytes_out > AFTER_BYTES;
    return x->owed == 0 && !x->keep_replay && x->bytes_in > AFTER_BYTES;
}

void bulk_try(struct exchange *x, struct bulk *b, size_t sent)
{
    int64_t n, any;
    if (sent < PIECE_BYTES || b->splice || x->look != LOOK_NONE || x->deaf || !x->up || !x->down ||
        !is_clear(x, b))
        return;
    struct http_stream *from = source(x, b), *to = sink(x, b);
    if (!from->ops->lend || !to->ops->lend)
        return;
    struct conn *near = from->ops->lend(from, true, &n);
    struct conn *far = near ? to->ops->lend(to, false, &any) : NULL;
    if (!far) {
        if (near)
            from->ops->back(from, true, 0);
        return;
    }
    b->splice = splice_start(near, far, n, is_down(x, b) ? &down_events : &up_events, x);
    if (!b->splice)
        give_back(x, b, 0);
}

bool bulk_held_up(const struct bulk *b)
{
    return b->splice && splice_full(b->splice);
}

static void stop(struct bulk *b)
{
    if (b->splice)
        splice_stop(b->splice);
    b->splice = NULL;
}

void bulk_stop(struct exchange *x)
{
    stop(&x->bulk_up);
    stop(&x->bulk_down);
}
