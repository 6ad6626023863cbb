/* hold.c — a request whose body the gate wants to see before anything of it leaves.  It is credited
 * as it comes, since nothing else would let it come, so that what is held is bounded by the verdict
 * and not by the window; the worker's memory cap counts it like all that lies in chunks.  A body
 * that turns out too long goes on as if it had never been held. */
#include <assert.h>

#include "proxy/exchange.h"

/* Of all exchanges together: a client can have many that it never ends. */
enum { AHEAD_MOST = 64 << 20 };

void hold_ahead(struct exchange *x, size_t n)
{
    x->p->ahead = x->p->ahead - x->recredit + n;
    x->recredit = n;
}

bool hold_wanted(const struct exchange *x)
{
    const struct verdict *v = &x->verdict; /* whose head may ask for less than the client's */
    bool body = !x->request_end || x->pending.len > 0; /* it may have come while it waited */
    return v->hold > 0 && !v->raw && body && v->head->protocol.n == 0;
}

static void ask(struct exchange *x, bool whole)
{
    const struct verdict *v = &x->verdict;
    assert(x->p->rules.gate->held);
    x->holding = false;
    void *place = v->place;
    x->p->rules.gate->held(&x->facts, &x->verdict, &x->pending, whole, &x->mem);
    x->verdict.place = place;
    exchange_hold(x);
    hold_ahead(x, x->pending.len);
    if (v->act != ACT_FORWARD) {
        exchange_reply(x, v);
        return;
    }
    assert(!whole || v->head->length < 0 || (uint64_t)v->head->length == x->pending.len);
    upstream_begin(x);
}

/* What is pending may have come at any time before. */
static void look_at_all(struct exchange *x)
{
    size_t n = x->pending.len - x->recredit;
    hold_ahead(x, x->pending.len);
    if (n > 0)
        x->down->ops->credit(x->down, n);
    if (proxy_overloaded(x->p, false) || x->p->ahead > AHEAD_MOST)
        exchange_fail(x, WHY_OVERLOAD, NULL);
    else if (x->pending.len > x->verdict.hold)
        ask(x, false);
    else if (x->request_end)
        ask(x, true);
}

void hold_begin(struct exchange *x)
{
    int64_t length = x->request->length;
    if (length >= 0 && (uint64_t)length > x->verdict.hold) {
        ask(x, false);
        return;
    }
    x->holding = true;
    exchange_enter(x, X_WAIT); /* with the deadline of an upload */
    if (x->request->expect_continue && !x->request_end)
        exchange_continue(x);
    if (x->pending.len > 0)
        look_at_all(x);
}

void hold_data(struct exchange *x, struct buf *b)
{
    buf_queue(&x->pending, b);
    look_at_all(x);
}

void hold_end(struct exchange *x)
{
    ask(x, true);
}
