/* tunnel.c — what becomes of a CONNECT that may go on: a connection of bytes made for it alone, a
 * 200, and then the pump of exchange.c like any upgrade.  Where the gate wants to look first, what
 * the client says waits in `pending` until the gate has decided whose tunnel this is; until then
 * not a byte of it leaves, and credit is not given.  A late one is dialled only after that. */
#include <assert.h>

#include "proxy/exchange.h"

/* ---- the gate's decision */

static void pass(struct exchange *x)
{
    x->look = LOOK_NONE;
    timer_clear(x->p->w, &x->cont);
    if (!x->up) {
        upstream_connect(x);
        return;
    }
    if (x->pending.len > 0) {
        x->owed += x->pending.len;
        x->up->ops->data(x->up, &x->pending);
    }
    if (!x->request_end)
        return;
    x->request_passed = true;
    x->up->ops->end(x->up, NULL);
}

static void on_released(void *user, struct conn *conn)
{
    static const struct conn_events nobody = {NULL}; /* until the gate has the connection */
    struct exchange *x = user;
    struct proxy *p = x->p;
    struct client *c = x->client;
    struct pin *pin = pin_get(p->w);
    x->bytes_in -= x->pending.len; /* they are counted where they go */
    conn_attach(conn, &nobody, NULL);
    conn_untake(conn, &x->pending);
    exchange_part(x);
    proxy_client_gone(c);
    struct facts f = exchange_facts(x, pin->snap);
    f.client = conn_info(conn);
    p->rules.gate->take(p->w, &f, &x->verdict, conn);
    exchange_check_over(x);
    pin_put(p->w, pin);
}

/* The origin is not for what the client speaks.  Its bytes are kept: they go back to where they
 * came from. */
static void take(struct exchange *x)
{
    struct session *s = x->client->session;
    struct buf kept;
    if (!s->ops->release || x->up_end || !x->p->rules.gate->take) {
        exchange_abort(x, WHY_IDENTITY);
        return;
    }
    buf_init(&kept, worker_pool(x->p->w));
    buf_move_all(&kept, &x->pending);
    upstream_drop(x, WHY_OK);
    buf_move_all(&x->pending, &kept);
    x->look = LOOK_TAKEN;
    s->ops->release(s, on_released, x);
}

/* ---- looking */

static enum glance ask(struct exchange *x, bool late)
{
    struct arena scratch; /* one byte at a time it would grow without end in the exchange's own */
    char first[1024];
    assert(x->p->rules.gate->look);
    struct pin *pin = pin_get(x->p->w);
    struct facts f = exchange_facts(x, pin->snap);
    arena_init(&scratch, first, sizeof first);
    enum glance g = x->p->rules.gate->look(&f, &x->verdict, &x->pending, late, &scratch);
    arena_done(&scratch);
    pin_put(x->p->w, pin);
    return g;
}

/* From its first byte on a beginning has as long as a request's head. */
static bool is_overdue(struct exchange *x)
{
    uint64_t ms = x->p->rules.timeout_ms[X_HEAD], now = worker_now(x->p->w);
    if (x->pending.len == 0 || ms == 0)
        return false;
    if (x->look_until_ms == 0)
        x->look_until_ms = now + ms;
    return now >= x->look_until_ms;
}

/* Why no more is waited for; WHY_OK: it is. */
static enum why enough(const struct exchange *x, bool overdue)
{
    if (x->request_end)
        return WHY_IDENTITY;
    if (x->pending.len >= x->p->rules.client.window / 2)
        return WHY_LIMIT; /* what a tunnel may hold: nothing more will come */
    return overdue ? WHY_DEADLINE : WHY_OK;
}

void tunnel_look(struct exchange *x, bool late)
{
    bool overdue = is_overdue(x);
    enum glance g = ask(x, late || overdue || x->request_end);
    if (g == GLANCE_PASS) {
        pass(x);
        return;
    }
    if (g == GLANCE_TAKE) {
        take(x);
        return;
    }
    enum why why = g == GLANCE_MORE ? enough(x, overdue) : WHY_IDENTITY;
    if (why != WHY_OK)
        exchange_abort(x, why);
    else if (x->p->rules.look_ms > 0)
        timer_set(x->p->w, &x->cont, x->p->rules.look_ms);
}

static void on_silence(struct timer *t)
{
    struct exchange *x = container_of(t, struct exchange, cont);
    if (x->look == LOOK_ASKED)
        tunnel_look(x, true);
}

/* ---- up */

static struct http_head *grant_head(struct exchange *x)
{
    struct http_head *h = arena_zero(&x->mem, sizeof *h);
    h->status = 200;
    h->length = -1;
    h->protocol = STR("connect");
    exchange_hold(x);
    return h;
}

bool tunnel_allowed(struct exchange *x)
{
    bool bodyless = x->down_bytes || x->request_end;
    assert(str_eq(x->request->method, STR("CONNECT")));
    if (!bodyless) /* who says where it ends: its length, or the 200? (RFC 9110 section 9.3.6) */
        exchange_fail(x, WHY_CLIENT_PROTOCOL, &(struct http_fault){400, "CONNECT with a body"});
    return bodyless;
}

static void grant(struct exchange *x)
{
    x->t_answer = worker_now_us(x->p->w);
    x->status = 200;
    x->tunnel = true;
    if (!x->down_bytes)
        x->request_end = false; /* said with the head; now both directions are open */
    exchange_enter(x, X_TUNNEL);
    x->down->ops->head(x->down, grant_head(x), false);
}

static void begin_look(struct exchange *x)
{
    x->look = LOOK_ASKED;
    timer_init(&x->cont, on_silence); /* nobody waits for a 100 here */
    if (x->pending.len > 0 || x->request_end)
        tunnel_look(x, false);
    else if (x->p->rules.look_ms > 0)
        timer_set(x->p->w, &x->cont, x->p->rules.look_ms);
}

void tunnel_grant(struct exchange *x)
{
    assert(x->verdict.look);
    grant(x);
    begin_look(x);
}

void tunnel_begin(struct exchange *x)
{
    x->t_sent = worker_now_us(x->p->w);
    x->up->ops->head(x->up, x->verdict.head, false);
    if (x->tunnel)
        exchange_enter(x, X_TUNNEL); /* granted before it was dialled */
    else
        grant(x);
    if (!x->verdict.look || x->verdict.late)
        pass(x);
    else
        begin_look(x);
}
