/* ending.c — how an exchange ends before its time: with an answer of ours if none has begun, else
 * by cutting the client off, so that what is not whole never looks whole. */
#include "proxy/exchange.h"

#include "proxy/reply.h"

static enum stage stage_of(const struct exchange *x)
{
    if (x->answering)
        return STAGE_ANSWER;
    if (x->state == X_DECIDE)
        return STAGE_DECIDE;
    if (x->state == X_DIAL)
        return STAGE_DIAL;
    return x->state == X_WAIT && !x->holding ? STAGE_WAIT : STAGE_REQUEST;
}

void exchange_continue(struct exchange *x)
{
    struct http_head *h = arena_zero(&x->mem, sizeof *h);
    h->status = 100;
    h->length = -1;
    x->cont_sent = true;
    x->down->ops->head(x->down, h, false);
}

static struct http_head *local_head(struct exchange *x, const struct verdict *v)
{
    struct http_head *h = arena_zero(&x->mem, sizeof *h);
    h->status = v->status;
    h->length = (int64_t)v->body.n;
    h->fields = arena_get(&x->mem, 4 * sizeof *h->fields);
    head_add(h, STR("Content-Type"), v->content_type);
    if (v->no_store)
        head_add(h, STR("Cache-Control"), STR("no-store"));
    head_add(h, STR("X-Request-Id"), x->facts.request_id);
    head_add(h, STR("Date"), arena_str(&x->mem, proxy_http_date(x->p)));
    return h;
}

static struct http_head *refusal_head(struct exchange *x, const struct verdict *v,
                                      struct str *ret_body)
{
    struct reply r = {.status = v->status,
                      .brand = x->p->rules.gate->brand,
                      .code = v->code,
                      .message = v->message,
                      .request_id = x->facts.request_id,
                      .retry = v->retry,
                      .extra = v->extra};
    struct http_head *h = arena_zero(&x->mem, sizeof *h);
    reply_make(&r, x->request, arena_str(&x->mem, proxy_http_date(x->p)), &x->mem, h, ret_body);
    return h;
}

void exchange_reply(struct exchange *x, const struct verdict *v)
{
    struct str body = v->body;
    struct http_head *h = v->act == ACT_LOCAL ? local_head(x, v) : refusal_head(x, v, &body);
    if (x->down_bytes) { /* a text of ours would be taken for the origin's */
        x->status = v->status;
        exchange_abort(x, v->why);
        return;
    }
    bool bodyless = body.n == 0 || (x->request && str_eq(x->request->method, STR("HEAD")));
    x->deaf = true;
    x->status = v->status;
    if (x->why == WHY_OK)
        x->why = v->why;
    timer_clear(x->p->w, &x->cont);
    upstream_drop(x, v->why);
    exchange_enter(x, X_CLOSING);
    x->down->ops->head(x->down, h, bodyless);
    if (bodyless)
        return;
    struct buf b;
    buf_init(&b, worker_pool(x->p->w));
    buf_str(&b, body);
    x->unsent += b.len;
    x->down->ops->data(x->down, &b);
    x->down->ops->end(x->down, NULL);
}

void exchange_abort(struct exchange *x, enum why why)
{
    struct http_stream *down = exchange_part(x);
    if (x->why == WHY_OK)
        x->why = why;
    if (down)
        down->ops->cancel(down, why);
    upstream_drop(x, why);
    exchange_check_over(x);
}

static bool half_made_switch(const struct exchange *x, enum why why)
{
    return why == WHY_ORIGIN_PROTOCOL && x->state == X_WAIT && x->request->protocol.n > 0;
}

/* What the client has said behind its request was meant for the tunnel. */
static bool failed_tunnel(const struct exchange *x)
{
    return x->verdict.raw && !x->down_bytes;
}

void exchange_fail(struct exchange *x, enum why why, const struct http_fault *fault)
{
    if (!x->down || x->status != 0) {
        exchange_abort(x, why);
        return;
    }
    struct verdict v = {.act = ACT_REPLY, .why = why, .note = x->verdict.note};
    if ((half_made_switch(x, why) || failed_tunnel(x)) &&
        !x->down_h2) /* both sides close (9.2); of h2 the stream ends */
        x->client->session->ops->drain(x->client->session);
    if (x->facts.request_id.n ==
        0) /* the head never came: nothing to judge, but an answer is owed */
        exchange_name(x);
    enum stage stage = stage_of(x);
    wait_end(x, why);
    x->p->rules.gate->failed(&x->facts, why, stage, fault, &x->mem, &v);
    exchange_reply(x, &v);
}
