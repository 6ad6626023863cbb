/* recheck.c — what the gate is asked besides the decision and the answer; above all, what was
 * decided under an older snapshot, asked once more.  Only a product that has recheck() wants that;
 * to the others an exchange is one decision under one configuration. */
#include "proxy/exchange.h"

struct facts exchange_facts(const struct exchange *x, const struct snapshot *snap)
{
    struct facts f = x->facts;
    f.snap = snap;
    f.unix_s = worker_unix_s(x->p->w);
    f.now_ms = worker_now(x->p->w);
    f.draining = x->p->draining;
    return f;
}

enum why exchange_recheck(const struct exchange *x)
{
    const struct gate *gate = x->p->rules.gate;
    if (!gate->recheck)
        return WHY_OK;
    struct pin *pin = pin_get(x->p->w);
    struct facts f = exchange_facts(x, pin->snap);
    enum why why = gate->recheck(&f, &x->verdict);
    pin_put(x->p->w, pin);
    return why;
}

enum why exchange_peer(const struct exchange *x, const struct conn_info *info)
{
    const struct gate *gate = x->p->rules.gate;
    if (!gate->peer)
        return WHY_OK;
    struct facts f = exchange_facts(x, x->facts.snap);
    f.origin = info->peer;
    f.origin_info = info;
    return gate->peer(&f, &x->verdict, info);
}

const struct http_head *exchange_trailers(struct exchange *x, const struct http_head *trailers,
                                          bool request)
{
    const struct gate *gate = x->p->rules.gate;
    if (!trailers || !gate->trailers)
        return trailers;
    return gate->trailers(&x->facts, &x->verdict, trailers, request, &x->mem);
}

enum why exchange_allow(const struct exchange *x, const struct sockaddr *addr)
{
    const struct gate *gate = x->p->rules.gate;
    if (!gate->recheck)
        return gate->allow_addr(&x->facts, &x->verdict, addr);
    struct pin *pin = pin_get(x->p->w);
    struct facts f = exchange_facts(x, pin->snap);
    enum why why = gate->allow_addr(&f, &x->verdict, addr);
    pin_put(x->p->w, pin);
    return why;
}

/* Forwarded and not over; an answer of ours may leave, and what is about to be taken is judged by
 * whoever takes it, as what it is by then. */
static bool is_on_its_way(const struct exchange *x)
{
    return x->request && x->verdict.act == ACT_FORWARD && !x->deaf && !x->dead &&
           x->look != LOOK_TAKEN;
}

static void recheck(struct exchange *x)
{
    enum why why = is_on_its_way(x) ? exchange_recheck(x) : WHY_OK;
    if (why != WHY_OK)
        exchange_fail(x, why, NULL);
}

/* Operations tell nobody anything, so of a list only the one that is asked about can leave. */
void proxy_recheck(struct proxy *p)
{
    for (int i = 0; i < XSTATES; i++)
        list_each(l, &p->state[i]) recheck(container_of(l, struct exchange, link));
    origin_renew(p->origins);
}
