/* filtering.c — an answer's body on its way through a filter of the gate's.  What the filter takes
 * is credited to the origin at once, and it is offered something only while less than a window of
 * what it made waits for the client: so both what is not taken and what was made are bounded.  That
 * window grows while the client takes quickly, as those of connections do.  The end goes down when
 * the filter is done; what cannot be read is cut after what was made before. */
#include <assert.h>

#include "proxy/exchange.h"

void filtering_begin(struct exchange *x, struct filter *f)
{
    assert(!x->filtering);
    x->filtering = arena_zero(&x->mem, sizeof *x->filtering);
    x->filtering->filter = f;
    buf_init(&x->filtering->in, worker_pool(x->p->w));
    exchange_hold(x);
    window_init(&x->filtering->window, x->p->rules.client.window, worker_now(x->p->w));
}

void filtering_empty(struct exchange *x)
{
    if (x->filtering)
        buf_clear(&x->filtering->in);
}

void filtering_drop(struct exchange *x)
{
    if (!x->filtering)
        return;
    struct filter *f = x->filtering->filter;
    x->filtering->filter = NULL;
    if (f)
        f->ops->free(f);
}

static void credit_origin(struct exchange *x, size_t n)
{
    if (n > 0 && x->up)
        x->up->ops->credit(x->up, n);
}

static void done(struct exchange *x)
{
    struct filtering *f = x->filtering;
    size_t rest = f->in.len;
    filtering_drop(x);
    buf_clear(&f->in);
    credit_origin(x, rest);
    x->down->ops->end(x->down, f->trailers);
}

/* A part of a window is worth a push: a trickle would be coded byte by byte. */
static size_t room_of(const struct exchange *x)
{
    size_t window = x->filtering->window.size;
    return x->unsent <= window / 4 * 3 ? window - x->unsent : 0;
}

/* How many bytes it took and made: none, and it stands still. */
static size_t push(struct exchange *x, size_t room, enum why *ret_why, bool *ret_done)
{
    struct filtering *f = x->filtering;
    struct buf out;
    size_t before = f->in.len;
    buf_init(&out, worker_pool(x->p->w));
    *ret_why = f->filter->ops->push(f->filter, &f->in, x->up_end, room, &out, ret_done);
    size_t taken = before - f->in.len, made = out.len;
    f->again = f->in.len > 0 || made >= room || x->up_end;
    credit_origin(x, taken);
    if (made > 0) {
        x->unsent += made;
        f->unsent = x->unsent;
        x->down->ops->data(x->down, &out);
    }
    return taken + made;
}

static void pump(struct exchange *x)
{
    struct filtering *f = x->filtering;
    bool is_done = false;
    enum why why = WHY_OK;
    size_t room, moved = 1;
    if (!f->filter || !x->down)
        return;
    f->again = true;
    while ((room = room_of(x)) > 0 && f->again && moved > 0 && why == WHY_OK && !is_done)
        moved = push(x, room, &why, &is_done);
    is_done &= x->up_end;
    if (why == WHY_OK && !is_done && f->again && moved == 0 && x->unsent == 0)
        why = WHY_ORIGIN_PROTOCOL; /* nobody would come back to it */
    if (why == WHY_OK && !is_done && !f->again)
        why = f->cut;
    if (why != WHY_OK)
        exchange_abort(x, why);
    else if (is_done)
        done(x);
}

void filtering_data(struct exchange *x, struct buf *b)
{
    if (x->filtering->in.len == 0)
        buf_move_all(&x->filtering->in, b); /* mostly it is taken at once */
    else
        buf_queue(&x->filtering->in, b);
    pump(x);
}

void filtering_end(struct exchange *x, const struct http_head *trailers)
{
    x->filtering->trailers = trailers;
    pump(x);
}

static void note_sent(struct exchange *x)
{
    struct filtering *f = x->filtering;
    const struct http_limits *l = &x->p->rules.client;
    size_t n = f->unsent > x->unsent ? f->unsent - x->unsent : 0;
    f->window.size = window_next(&f->window, n, worker_now(x->p->w), l->window, l->window_max);
    f->unsent = x->unsent;
}

void filtering_sent(struct exchange *x)
{
    note_sent(x);
    if (x->filtering->again)
        pump(x);
}

bool filtering_lost(struct exchange *x, enum why why)
{
    struct filtering *f = x->filtering;
    if (!f || !f->filter || !f->again || !x->down)
        return false;
    f->cut = why;
    return true;
}
