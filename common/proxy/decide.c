/* decide.c — what becomes of a request: the gate is asked about its head, once or, where somebody
 * else had to be asked first or the first try came to nothing, several times; and what it says is
 * set going.  Only the last of its decisions is admitted and judged. */
#include "proxy/exchange.h"
#include "proxy/requestid.h"

void exchange_name(struct exchange *x)
{
    uint8_t random[16];
    proxy_random(x->p, random);
    x->facts.request_id = request_id(x->request, random, &x->mem);
}

static void make_facts(struct exchange *x, const struct http_head *head)
{
    struct worker *w = x->p->w;
    x->request = head;
    x->pin = pin_get(w);
    x->facts = (struct facts){.snap = x->pin->snap,
                              .tables = worker_get(w, SLOT_PRODUCT),
                              .client = conn_info(x->client->session->conn),
                              .head = head,
                              .unix_s = worker_unix_s(w),
                              .now_ms = worker_now(w),
                              .draining = x->p->draining};
    exchange_name(x);
}

/* True: this request is one too many (B7).  The product's own pages are answered all the same. */
static bool too_many(struct exchange *x)
{
    struct session *s = x->client->session;
    bool surplus = x->facts.client->surplus;
    if (!surplus && !proxy_overloaded(x->p, !x->client->known))
        return false;
    counter_add(&x->p->metrics->overload, 1);
    if (surplus || !s->many)
        s->ops->drain(s); /* the connection ends with this answer */
    return true;
}

/* Once, when nobody is to be asked any more; false: it was refused for want of room. */
static bool judge(struct exchange *x)
{
    const struct proxy_rules *r = &x->p->rules;
    const struct gate *gate = r->gate;
    bool forward = x->verdict.act == ACT_FORWARD;
    x->judged = true;
    if (forward && gate->admit) {
        gate->admit(x->p->w, &x->facts, &x->mem, &x->verdict);
        exchange_hold(x);
    }
    if (forward && gate->moved && r->moved_ms > 0)
        x->moved_due_ms = worker_now(x->p->w) + r->moved_ms;
    gate->judged(x->p->w, &x->facts, &x->verdict, x->t_decided - x->t_head);
    if (x->facts.turn > 0 || x->verdict.act == ACT_LOCAL || !too_many(x))
        return true;
    exchange_fail(x, WHY_OVERLOAD, NULL);
    return false;
}

void exchange_judge(struct exchange *x)
{
    if (!x->judged && !judge(x))
        return;
    x->client->known = true;
    if (x->verdict.act != ACT_FORWARD)
        exchange_reply(x, &x->verdict);
    else if (hold_wanted(x))
        hold_begin(x);
    else
        upstream_begin(x);
}

static void decide(struct exchange *x)
{
    void *place = x->verdict.place;
    x->p->rules.gate->decide(&x->facts, &x->mem, &x->verdict);
    x->verdict.place = place;
    x->facts.told = NULL;
    exchange_hold(x);
    x->t_decided = worker_now_us(x->p->w);
    if (x->verdict.act != ACT_WAIT) {
        exchange_judge(x);
        return;
    }
    if (x->facts.turn == 0 && too_many(x)) {
        exchange_fail(x, WHY_OVERLOAD, NULL);
        return;
    }
    x->client->known = true;
    wait_begin(x);
}

void exchange_asks(struct exchange *x, const struct http_head *head)
{
    make_facts(x, head);
    decide(x);
}

void exchange_decide(struct exchange *x, const void *told)
{
    x->facts = exchange_facts(x, x->facts.snap);
    x->facts.turn++;
    x->facts.told = told;
    decide(x);
}
