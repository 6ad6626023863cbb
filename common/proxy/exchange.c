/* exchange.c — the client's side of an exchange, its states and its deadlines.  The pump is the
 * table of DESIGN 6: an event here is an operation there. */
#include "proxy/exchange.h"

/* ---- states */

/* The request's body has not left in full. */
static bool uploads(const struct exchange *x)
{
    return x->state == X_WAIT && (!x->request_end || x->owed > 0);
}

static uint64_t deadline_ms(const struct exchange *x)
{
    const struct proxy_rules *r = &x->p->rules;
    if (x->state == X_DECIDE && x->verdict.act == ACT_WAIT && x->verdict.wait_ms > 0)
        return x->verdict.wait_ms;
    if (x->state == X_DIAL)
        return 0; /* the dial has the same deadline, and tells what it was waiting for */
    if (x->state == X_TUNNEL && (x->request_end || x->up_end))
        return r->half_close_ms;
    if (x->state == X_WAIT && x->request->protocol.n > 0 && r->timeout_ms[X_WAIT] > HANDSHAKE_MS)
        return HANDSHAKE_MS;
    uint64_t ms = r->timeout_ms[x->state], idle = r->timeout_ms[X_BODY];
    if (uploads(x) && idle > 0 && (ms == 0 || idle < ms))
        return idle; /* a body that stands still, whoever holds it up */
    return ms;
}

/* ms: until the state's own deadline, 0: it has none. */
static void arm_for(struct exchange *x, uint64_t ms)
{
    uint64_t now = worker_now(x->p->w), leave = x->leave_ms > now ? x->leave_ms - now : 1;
    if (x->leave_ms > 0 && x->up && (ms == 0 || leave < ms))
        ms = leave;
    if (ms == 0)
        timer_clear(x->p->w, &x->timer);
    else
        timer_set(x->p->w, &x->timer, ms);
}

static void arm(struct exchange *x)
{
    arm_for(x, deadline_ms(x));
}

void exchange_leaves(struct exchange *x)
{
    if (x->leave_ms == 0)
        x->leave_ms = worker_now(x->p->w) + x->p->rules.move_ms;
    arm(x);
}

void exchange_enter(struct exchange *x, enum xstate state)
{
    list_del(&x->link);
    x->p->count[x->state]--;
    x->state = state;
    list_push(&x->p->state[state], &x->link);
    x->p->count[state]++;
    x->since_ms = worker_now(x->p->w);
    arm(x);
}

static void tell_moved(struct exchange *x)
{
    const struct proxy_rules *r = &x->p->rules;
    if (x->verdict.act != ACT_FORWARD || x->deaf)
        return;
    x->moved_due_ms = x->since_ms + r->moved_ms;
    struct facts f = exchange_facts(x, x->facts.snap);
    r->gate->moved(x->p->w, &f, &x->verdict);
}

/* Lazy: a timer that fires early is armed for the rest. */
void exchange_progress(struct exchange *x)
{
    x->since_ms = worker_now(x->p->w);
    if (x->since_ms >= x->moved_due_ms)
        tell_moved(x);
}

/* What a client says meanwhile does not put off the end of a wait. */
static uint64_t began_ms(const struct exchange *x)
{
    return x->state == X_DECIDE ? x->facts.asked_ms : x->since_ms;
}

static void on_deadline(struct timer *t)
{
    struct exchange *x = container_of(t, struct exchange, timer);
    uint64_t ms = deadline_ms(x), now = worker_now(x->p->w), due = began_ms(x) + ms;
    if (x->leave_ms > 0 && x->up && now >= x->leave_ms) {
        exchange_fail(x, WHY_REVOKED, NULL);
        return;
    }
    if (ms == 0 || now < due) {
        arm_for(x, ms == 0 ? 0 : due - now);
        return;
    }
    if (x->state == X_HEAD) {
        exchange_fail(x, WHY_DEADLINE,
                      &(struct http_fault){408, "request head not complete in time"});
        return;
    }
    if (uploads(x) && x->owed == 0 && !bulk_held_up(&x->bulk_up)) {
        exchange_fail(x, WHY_DEADLINE,
                      &(struct http_fault){408, "request body not complete in time"});
        return;
    }
    if (x->state == X_CLOSING || x->status != 0)
        exchange_abort(x, WHY_DEADLINE);
    else
        exchange_fail(x, WHY_DEADLINE, NULL);
}

/* The origin kept silent: we ask for the body ourselves (RFC 9110 section 10.1.1, H4). */
static void on_continue(struct timer *t)
{
    struct exchange *x = container_of(t, struct exchange, cont);
    if (x->down && x->status == 0 && x->bytes_in == 0 && !x->cont_sent && !x->request_end)
        exchange_continue(x);
}

/* Many may wait for long: what has not been needed so far is given back, where that can be done. */
void exchange_park(struct exchange *x)
{
    size_t used = arena_seal(&x->mem);
    mem_cut(x, offsetof(struct exchange, first) + used);
    exchange_hold(x);
}

void exchange_hold(struct exchange *x)
{
    worker_hold(x->p->w, (ptrdiff_t)(x->mem.extra - x->held));
    x->held = x->mem.extra;
}

/* ---- the end */

static void free_exchange(void *p)
{
    struct exchange *x = p;
    buf_clear(&x->pending);
    buf_clear(&x->replay);
    filtering_empty(x);
    arena_done(&x->mem);
    mem_free(x);
}

void exchange_check_over(struct exchange *x)
{
    if (x->down || x->up || x->dial || x->dead)
        return;
    struct proxy *p = x->p;
    x->dead = true;
    filtering_drop(x);
    hold_ahead(x, 0);
    accesslog_end(x);
    x->facts.bytes_in = x->bytes_in;
    x->facts.bytes_out = x->bytes_out;
    if (x->judged && p->rules.gate->over)
        p->rules.gate->over(p->w, &x->facts, &x->verdict, x->why, x->status);
    list_del(&x->link);
    p->count[x->state]--;
    timer_clear(p->w, &x->timer);
    timer_clear(p->w, &x->cont);
    origin_leave(p->origins, &x->pool);
    worker_hold(p->w, -(ptrdiff_t)x->held);
    if (x->pin)
        pin_put(p->w, x->pin);
    worker_bury(p->w, free_exchange, x);
    proxy_check_drained(p);
}

/* ---- events of the client's side */

struct http_stream *exchange_part(struct exchange *x)
{
    struct http_stream *down = x->down;
    bulk_stop(x);
    filtering_empty(x);
    x->down = NULL;
    x->client = NULL; /* its connection may go first */
    x->facts.client = NULL;
    return down;
}

static void down_head(void *user, struct http_head *head, bool end)
{
    struct exchange *x = user;
    x->request_end = end;
    if (x->deaf)
        return; /* too late: the 408 is on its way */
    /* mostly it came whole: then another look at the clock tells nothing */
    x->t_head = worker_now(x->p->w) == x->since_ms ? x->t_start : worker_now_us(x->p->w);
    exchange_asks(x, head);
}

/* Bytes nobody wants: dropped and credited, so that nothing stalls. */
static void swallow(struct exchange *x, struct buf *b)
{
    size_t n = b->len;
    buf_clear(b);
    if (x->down)
        x->down->ops->credit(x->down, n);
}

static void down_data(void *user, struct buf *b)
{
    struct exchange *x = user;
    x->bytes_in += b->len;
    if (!x->deaf) /* what is thrown away does not put off the end */
        exchange_progress(x);
    if (x->holding) {
        hold_data(x, b);
        return;
    }
    if (x->look == LOOK_ASKED) {
        buf_queue(&x->pending, b);
        tunnel_look(x, false);
        return;
    }
    if (x->deaf || (!x->up && !x->dial && x->state != X_DECIDE)) {
        swallow(x, b);
        if (x->tunnel && x->deaf && x->unsent == 0)
            exchange_abort(x, WHY_ORIGIN_GONE); /* it goes nowhere, and all there was has left */
        return;
    }
    if (!x->up) {
        buf_queue(&x->pending, b);
        return;
    }
    upstream_send(x, b);
}

static void down_end(void *user, struct http_head *trailers)
{
    struct exchange *x = user;
    x->request_end = true;
    if (!x->deaf)
        x->trailers = trailers;
    exchange_hold(x);
    exchange_progress(x);
    if (x->state == X_TUNNEL)
        arm(x);
    if (x->holding) {
        hold_end(x);
        return;
    }
    if (x->look == LOOK_ASKED) {
        tunnel_look(x, true);
        return;
    }
    if (x->up && !x->deaf) {
        x->request_passed = true;
        x->up->ops->end(x->up, exchange_trailers(x, trailers, true));
        exchange_hold(x);
    }
}

static void down_sent(void *user, size_t n)
{
    struct exchange *x = user;
    x->bytes_out += n;
    x->unsent -= n;
    exchange_progress(x);
    if (x->filtering) {
        filtering_sent(x);
        return;
    }
    if (x->up && !x->deaf)
        x->up->ops->credit(x->up, n);
    bulk_try(x, &x->bulk_down, n);
}

static void down_fault(void *user, const struct http_fault *fault)
{
    struct exchange *x = user;
    bool memory = fault->status == 503;
    counter_add(&x->p->metrics->overload, memory);
    exchange_fail(x, memory ? WHY_OVERLOAD : WHY_CLIENT_PROTOCOL, fault);
}

static void down_closed(void *user, enum why why)
{
    struct exchange *x = user;
    exchange_part(x);
    if (x->why == WHY_OK)
        x->why = why;
    if (why == WHY_OK && x->up && x->up_end &&
        x->request_passed) { /* the rest of the request leaves */
        if (!x->tunnel)
            exchange_enter(x, X_CLOSING);
        return;
    }
    upstream_drop(x, why == WHY_OK ? WHY_CLIENT_GONE : why);
    exchange_check_over(x);
}

static const struct http_events down_events = {down_head, down_data,  down_end,
                                               down_sent, down_fault, down_closed};

void exchange_accept(void *user, struct session *s, struct http_stream *down)
{
    struct client *c = user;
    struct proxy *p = c->p;
    struct exchange *x = mem_renew(NULL, sizeof *x);
    memset(x, 0, offsetof(struct exchange, first)); /* the arena's block need not be zero */
    x->p = p;
    x->client = c;
    x->down = down;
    x->down_h2 = s->many;
    x->down_bytes = s->bytes;
    x->grpc_status = -1;
    x->moved_due_ms = UINT64_MAX;
    x->t_start = worker_now_us(p->w);
    worker_arena(p->w, &x->mem, x->first, sizeof x->first);
    buf_init(&x->pending, worker_pool(p->w));
    buf_init(&x->replay, worker_pool(p->w));
    timer_init(&x->timer, on_deadline);
    timer_init(&x->cont, on_continue);
    list_init(&x->link);
    p->count[x->state]++;
    exchange_enter(x, X_HEAD);
    down->ev = &down_events;
    down->user = x;
    down->mem = &x->mem;
}
