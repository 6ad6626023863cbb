/* upstream.c — the origin's side of an exchange: a pooled or a new connection, the request on it,
 * and the events of the answer. */
#include "proxy/exchange.h"

#include <assert.h>

#include "net/tls.h"

static const struct http_events up_events;

/* ---- sending the request */

void upstream_wait(struct exchange *x)
{
    exchange_enter(x, X_WAIT);
    if (x->request->expect_continue && !x->cont_sent && !x->request_end)
        timer_set(x->p->w, &x->cont, CONTINUE_MS);
}

void upstream_send(struct exchange *x, struct buf *b)
{
    replay_keep(x, b);
    x->owed += b->len;
    x->up->ops->data(x->up, b);
}

static void attach(struct exchange *x, const struct origin_got *got)
{
    struct http_stream *s = x->up = got->stream;
    x->facts.origin_info = got->info;
    x->facts.origin = got->info->peer;
    x->facts.fault = STR_NONE;
    x->up_h2 = got->h2;
    s->ev = &up_events;
    s->user = x;
    s->mem = &x->mem;
}

static void detach(struct exchange *x)
{
    bulk_stop(x);
    x->up = NULL;
    x->facts.origin = NULL;
    x->facts.origin_info = NULL;
    x->look = LOOK_NONE;
}

/* Everything the client has said so far goes out in one go. */
static void send_request(struct exchange *x, bool reused)
{
    struct http_stream *s = x->up;
    x->reused = reused;
    replay_begin(x);
    x->t_sent = reused ? x->t_decided : worker_now_us(x->p->w);
    const struct http_head *trailers = exchange_trailers(x, x->trailers, true);
    bool whole = x->request_end && x->pending.len == 0 && !trailers;
    bool bodyless = whole && x->request->length <= 0 && x->bytes_in == 0;
    s->ops->head(s, x->verdict.head, bodyless);
    if (x->pending.len > 0)
        upstream_send(x, &x->pending);
    if (x->request_end) {
        x->request_passed = true;
        if (!bodyless)
            s->ops->end(s, trailers);
    }
    upstream_wait(x);
}

static void on_dialled(void *user, enum why why, int error, uint64_t took_us)
{
    struct exchange *x = user;
    counter_add(&x->p->metrics->dials, 1);
    x->p->rules.gate->dialled(x->p->w, &x->verdict, why, error,
                              x->request->protocol.n > 0 || x->verdict.raw, took_us);
}

static enum origin_need need_of(const struct exchange *x);

/* It speaks HTTP/2 and nothing else: offered that too, it serves a client of HTTP/1.1 as well. */
static bool offer_h2(struct exchange *x, enum why why)
{
    if (why != WHY_TLS || need_of(x) != ORIGIN_H1 || !x->verdict.to.tls ||
        !tls_fault_is_alpn(x->facts.fault))
        return false;
    x->verdict.any = true;
    upstream_connect(x);
    return true;
}

static void on_origin(void *user, const struct origin_got *got, enum why why)
{
    struct exchange *x = user;
    x->facts.fault = origin_dial_fault(x->dial);
    x->dial = NULL;
    if (!got && (offer_h2(x, why) || replay_again(x, why, STAGE_DIAL)))
        return;
    if (got) {
        attach(x, got);
        why = exchange_recheck(x); /* it took a while, and now there is an address */
    }
    if (why != WHY_OK)
        exchange_fail(x, why, NULL);
    else if (x->verdict.raw)
        tunnel_begin(x);
    else
        send_request(x, false);
}

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    struct exchange *x = user;
    return exchange_allow(x, addr);
}

static enum why on_peer(void *user, const struct conn_info *info)
{
    return exchange_peer(user, info);
}

static const struct origin_asker asker = {on_peer, on_allow, on_dialled, on_origin};

/* An extended CONNECT stands for the bodyless GET of a WebSocket and for nothing else (RFC 8441
 * section 5). */
static enum origin_need need_of(const struct exchange *x)
{
    if (x->verdict.raw)
        return ORIGIN_RAW;
    bool h2 = x->verdict.h2, whole = x->request_end && x->bytes_in == 0;
    bool any = x->verdict.any && x->verdict.to.tls;
    struct str protocol = x->verdict.head->protocol; /* the gate may have taken the client's out */
    if (protocol.n == 0 && any)
        return ORIGIN_ANY;
    if (protocol.n == 0)
        return h2 ? ORIGIN_H2 : ORIGIN_H1;
    if (any || !whole || !str_ieq(protocol, STR("websocket")))
        return ORIGIN_FRESH;
    return h2 ? ORIGIN_H2_TUNNEL : ORIGIN_TUNNEL;
}

static void upstream_dial(struct exchange *x, const struct origin_want *want)
{
    x->t_dial = worker_now_us(x->p->w);
    exchange_enter(x, X_DIAL);
    x->dial = origin_dial(x->p->origins, want, x->p->rules.timeout_ms[X_DIAL], &asker, x);
}

static struct origin_want want_of(const struct exchange *x)
{
    struct origin_want want = {x->verdict.pool, x->verdict.to, need_of(x), false};
    want.to.tls_h2 = want.to.tls && (want.need == ORIGIN_ANY || want.need == ORIGIN_H2);
    return want;
}

void upstream_redial(struct exchange *x)
{
    struct origin_want want = want_of(x);
    want.anew = true;
    upstream_dial(x, &want);
}

/* untouched: the origin has not begun with it, so that it is as if there were no connection yet. */
static bool goes_elsewhere(struct exchange *x, bool untouched)
{
    bool at_hand = x->bytes_in == 0 || x->keep_replay;
    return replay_again(x, WHY_REVOKED,
                        x->dial || (untouched && at_hand) ? STAGE_DIAL : STAGE_WAIT);
}

static bool has_left(const struct exchange *x, enum http_left left)
{
    return x->up && x->up->ops->left(x->up) == left;
}

/* Nothing is sent any more to where it is: somebody else may be there soon.  A tunnel has no end to
 * wait for. */
static bool may_run_on(const struct exchange *x)
{
    return has_left(x, HTTP_LEFT_ALL) && !x->tunnel && x->request->protocol.n == 0 &&
           x->p->rules.move_ms > 0;
}

static bool on_pool_ended(struct origin_user *u, bool moved)
{
    struct exchange *x = container_of(u, struct exchange, pool);
    if (goes_elsewhere(x, has_left(x, HTTP_LEFT_NOTHING)))
        return false;
    if (moved && may_run_on(x)) {
        exchange_leaves(x);
        return true;
    }
    exchange_fail(x, WHY_REVOKED, NULL);
    return false;
}

void upstream_begin(struct exchange *x)
{
    if (x->verdict.raw && !tunnel_allowed(x))
        return;
    x->pool.ended = on_pool_ended;
    list_init(&x->pool.link);
    origin_join(x->p->origins, x->verdict.pool, &x->pool);
    if (x->verdict.late)
        tunnel_grant(x);
    else
        upstream_connect(x);
}

void upstream_connect(struct exchange *x)
{
    struct origin_want want = want_of(x);
    struct origin_got got;
    enum why why = origin_reuse(x->p->origins, &want, &asker, x, &got);
    if (why != WHY_OK) {
        exchange_fail(x, why, NULL);
        return;
    }
    if (!got.stream) {
        upstream_dial(x, &want);
        return;
    }
    counter_add(&x->p->metrics->reused, 1);
    attach(x, &got);
    send_request(x, true);
}

/* ---- events of the origin's side */

static void up_head(void *user, struct http_head *head, bool end)
{
    struct exchange *x = user;
    replay_spoke(x);
    if (!x->down)
        return;
    if (head->status < 200 && head->protocol.n == 0)
        answer_interim(x, head);
    else
        answer_final(x, head, end);
}

static void up_data(void *user, struct buf *b)
{
    struct exchange *x = user;
    exchange_progress(x);
    if (!x->down) {
        size_t n = b->len;
        buf_clear(b);
        x->up->ops->credit(x->up, n);
        return;
    }
    if (x->filtering) {
        filtering_data(x, b);
        return;
    }
    x->unsent += b->len;
    x->down->ops->data(x->down, b);
}

static void up_end(void *user, struct http_head *trailers)
{
    struct exchange *x = user;
    x->up_end = true;
    if (trailers)
        answer_note_grpc(x, trailers);
    const struct http_head *out = x->down ? exchange_trailers(x, trailers, false) : NULL;
    exchange_hold(x);
    exchange_progress(x);
    if (x->filtering)
        filtering_end(x, out);
    else if (x->down)
        x->down->ops->end(x->down, out);
    if (x->state == X_TUNNEL)
        exchange_enter(x, X_TUNNEL);
}

static void credit_client(struct exchange *x, size_t n)
{
    size_t before = n < x->recredit ? n : x->recredit;
    hold_ahead(x, x->recredit - before);
    n -= before;
    if (n > 0 && x->down)
        x->down->ops->credit(x->down, n);
}

static void up_sent(void *user, size_t n)
{
    struct exchange *x = user;
    assert(n <= x->owed);
    x->owed -= n;
    replay_left(x);
    exchange_progress(x);
    credit_client(x, n);
    bulk_try(x, &x->bulk_up, n);
}

static void up_fault(void *user, const struct http_fault *fault)
{
    (void)user;
    (void)fault; /* server role only */
}

/* A tunnel whose origin has ended its direction and is lost now: what it said may still leave. */
static bool half_lost(const struct exchange *x, enum why why)
{
    return why != WHY_OK && x->tunnel && x->up_end && !x->request_passed && x->down;
}

static void up_closed(void *user, enum why why)
{
    struct exchange *x = user;
    x->up_spoke |= x->up->spoke; /* part of a head is an answer too */
    x->facts.fault = x->facts.origin_info->fault;
    detach(x);
    if (replay_retry(x, why) || (x->leave_ms > 0 && why == WHY_REFUSED && goes_elsewhere(x, true)))
        return;
    upstream_drop(x, why);
    if (half_lost(x, why) && x->unsent > 0) {
        x->deaf = true;
        x->why = why;
        exchange_enter(x, X_CLOSING);
        return;
    }
    if (half_lost(x, why)) {
        exchange_abort(x, why);
        return;
    }
    if (why == WHY_OK || x->up_end) {
        exchange_check_over(x);
        return;
    }
    if (!filtering_lost(x, why))
        exchange_fail(x, why == WHY_REFUSED ? WHY_ORIGIN_GONE : why, NULL);
}

static const struct http_events up_events = {up_head, up_data,  up_end,
                                             up_sent, up_fault, up_closed};

void upstream_leave(struct exchange *x, enum why why)
{
    struct http_stream *up = x->up;
    struct origin_dial *dial = x->dial;
    detach(x);
    x->dial = NULL;
    if (up)
        up->ops->cancel(up, why);
    for (unsigned n = dial ? origin_dial_cancel(dial) : 0; n > 0; n--)
        on_dialled(x, WHY_CLIENT_GONE, 0, worker_now_us(x->p->w) - x->t_dial);
    origin_leave(x->p->origins, &x->pool);
}

void upstream_drop(struct exchange *x, enum why why)
{
    wait_end(x, why);
    x->holding = false;
    upstream_leave(x, why);
    size_t held = x->owed + x->pending.len;
    x->owed = 0;
    buf_clear(&x->pending);
    replay_forget(x);
    credit_client(x, held);
}
