/* call.c — one request after the other in one place of a connection: what a client sees of each,
 * and how it reads.  It is a user of http_stream in the client role, so it knows no version of
 * HTTP. */
#include "load.h"

enum { PACE_MS = 20 };

static bool is_final(const struct http_head *head)
{
    return head->status >= 200 || head->protocol.n > 0;
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct call *c = user;
    struct load *l = c->n->l;
    if (!is_final(head))
        return;
    c->n->answered = true;
    c->status = head->status;
    c->whole = end;
    c->good = head->status < 300 && !l->o.grpc;
    if (head->protocol.n == 0)
        return;
    latencies_add(&l->latencies, worker_now_us(l->w) - c->begun_us);
    load_hold(l);
    lane_start_next(l);
}

/* ---- reading */

static void credit(struct call *c, size_t n)
{
    c->owed -= n;
    c->up->ops->credit(c->up, n);
}

static void on_pace(struct timer *t)
{
    struct call *c = container_of(t, struct call, pace);
    struct load *l = c->n->l;
    uint64_t now_us = worker_now_us(l->w), most = l->o.rate * (now_us - c->paced_us) / 1000000;
    c->paced_us = now_us;
    credit(c, c->owed < most ? c->owed : (size_t)most);
    if (c->owed > 0)
        timer_set(l->w, &c->pace, PACE_MS);
}

static void on_data(void *user, struct buf *b)
{
    struct call *c = user;
    struct load *l = c->n->l;
    size_t before = c->owed;
    l->bytes += b->len;
    c->owed += b->len;
    buf_clear(b);
    if (l->o.rate == 0) {
        credit(c, c->owed);
    } else if (before == 0) {
        c->paced_us = worker_now_us(l->w);
        timer_set(l->w, &c->pace, PACE_MS);
    }
}

static void on_end(void *user, struct http_head *trailers)
{
    struct call *c = user;
    const struct str *status = trailers ? head_get(trailers, STR("grpc-status")) : NULL;
    c->whole = true;
    if (status && c->n->l->o.grpc)
        c->good = str_eq(*status, STR("0"));
}

static void on_sent(void *user, size_t bytes)
{
    (void)user;
    (void)bytes;
}

static void on_fault(void *user, const struct http_fault *fault)
{
    (void)user;
    (void)fault; /* server role only */
}

/* ---- the end of one */

static void count(struct call *c)
{
    struct load *l = c->n->l;
    latencies_add(&l->latencies, worker_now_us(l->w) - c->begun_us);
    l->done++;
    l->refused += !c->good;
    if (l->o.requests > 0 && l->done == l->o.requests)
        load_stop(l);
}

static void on_closed(void *user, enum why why)
{
    struct call *c = user;
    struct load *l = c->n->l;
    bool tunnel = c->status == 101;
    c->up = NULL;
    timer_clear(l->w, &c->pace);
    if (tunnel)
        l->held--;
    if (l->stopping)
        return;
    if (why == WHY_OK && c->whole && !tunnel)
        count(c);
    else
        l->errors++;
    /* A session of one exchange says idle() when it takes the next one; one of many takes it now.
     */
    if (!l->stopping && l->o.idle == 0 && c->n->s && c->n->s->many)
        lane_fill(c->n);
}

static const struct http_events events = {on_head, on_data, on_end, on_sent, on_fault, on_closed};

/* ---- the beginning */

/* A message as gRPC frames it: not compressed, its length in four bytes, the message. */
static void send_message(struct call *c)
{
    static const uint8_t message[5 + 64] = {[4] = 64};
    struct buf b;
    buf_init(&b, worker_pool(c->n->l->w));
    buf_write(&b, message, sizeof message);
    c->up->ops->data(c->up, &b);
    c->up->ops->end(c->up, NULL);
}

void call_send(struct call *c)
{
    struct load *l = c->n->l;
    arena_done(&c->mem);
    arena_init(&c->mem, c->first, sizeof c->first);
    c->status = 0;
    c->owed = 0;
    c->whole = c->good = false;
    c->begun_us = c->n->answered ? worker_now_us(l->w) : c->n->begun_us;
    c->up->ev = &events;
    c->up->user = c;
    c->up->mem = &c->mem;
    c->up->ops->head(c->up, &l->head, !l->o.grpc);
    if (l->o.grpc)
        send_message(c);
}

void call_init(struct call *c, struct lane *n)
{
    c->n = n;
    timer_init(&c->pace, on_pace);
    arena_init(&c->mem, c->first, sizeof c->first);
}

void call_stop(struct call *c)
{
    timer_clear(c->n->l->w, &c->pace);
}

void call_done(struct call *c)
{
    arena_done(&c->mem);
}
