/* service_own.c — names of our own connections: two queries, for A and AAAA, that take the course
 * of a client's and end here instead of in a datagram.  What comes of them is told from the
 * mailbox, when no query is on the stack; one that is not wanted any more stays until its queries
 * are over, so that none of them has to be looked for. */
#include "egress/dns/service_impl.h"

enum { OTHER_FAMILY_MS = 150 }; /* so long one family waits for the other (RFC 8305 section 3) */

enum own_state { OWN_WAITS, OWN_SOON, OWN_OVER };

struct dns_half {
    struct dns_own *own;
    bool told;
    enum why why;
    unsigned n;
    struct ip ip[RESOLVE_ADDRESSES];
};

struct dns_own {
    struct list link; /* in service.owns */
    struct list soon; /* in service.soon, while OWN_SOON */
    struct dns_service *s;
    enum own_state state;
    enum why why; /* while OWN_SOON */
    struct dns_half v4, v6;
    struct timer timer; /* its deadline, or the end of patience with the other family */
    uint64_t deadline;
    void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why);
    void *arg;
};

static void free_if_over(struct dns_own *o)
{
    if (o->state != OWN_OVER || !o->v4.told || !o->v6.told)
        return;
    list_del(&o->link);
    mem_free(o);
}

static void finish(struct dns_own *o)
{
    timer_clear(o->s->s.w, &o->timer);
    list_del(&o->soon);
    o->state = OWN_OVER;
}

/* ---- the end */

/* What is worth more to know than that there is no address. */
static enum why worse(enum why a, enum why b)
{
    return a == WHY_OK || a == WHY_DNS ? b : a;
}

static enum why why_of(const struct dns_own *o)
{
    if (o->v4.n + o->v6.n > 0)
        return WHY_OK;
    enum why why = worse(o->v4.why, o->v6.why);
    return why == WHY_OK ? WHY_DNS : why;
}

static void tell(struct dns_own *o, enum why why)
{
    struct ip ip[RESOLVE_ADDRESSES];
    unsigned n = 0;
    finish(o);
    for (unsigned i = 0; why == WHY_OK && i < o->v4.n; i++)
        ip[n++] = o->v4.ip[i];
    for (unsigned i = 0; why == WHY_OK && i < o->v6.n && n < RESOLVE_ADDRESSES; i++)
        ip[n++] = o->v6.ip[i];
    void (*done)(void *, const struct ip *, unsigned, enum why) = o->done;
    void *arg = o->arg;
    free_if_over(o);
    done(arg, n ? ip : NULL, n, why);
}

static void post(struct dns_service *s);

/* Those who are told may ask again, and free the service. */
static void on_soon(struct worker *w, struct post *p)
{
    (void)w;
    struct dns_service *s = container_of(p, struct dns_service, post);
    struct list now, *it;
    list_init(&now);
    while ((it = list_pop(&s->soon)))
        list_push(&now, it);
    while ((it = list_first(&now))) {
        struct dns_own *o = container_of(it, struct dns_own, soon);
        tell(o, o->why);
    }
    s->posted = false;
    if (!list_empty(&s->soon))
        post(s);
    dns_service_unused(s);
}

static void post(struct dns_service *s)
{
    if (s->posted)
        return;
    s->posted = true;
    s->post.run = on_soon;
    worker_post(s->s.w, &s->post);
}

static void tell_soon(struct dns_own *o, enum why why)
{
    o->state = OWN_SOON;
    o->why = why;
    list_push(&o->s->soon, &o->soon);
    post(o->s);
}

static void on_timer(struct timer *t)
{
    struct dns_own *o = container_of(t, struct dns_own, timer);
    tell(o, o->v4.n + o->v6.n ? WHY_OK : WHY_DEADLINE);
}

/* ---- the queries */

/* One family is there: the other has a moment. */
static void be_patient(struct dns_own *o)
{
    uint64_t now = worker_now(o->s->s.w), left = o->deadline > now ? o->deadline - now : 0;
    timer_set(o->s->s.w, &o->timer, left < OTHER_FAMILY_MS ? left : OTHER_FAMILY_MS);
}

void dns_half_told(struct dns_half *h, enum why why, const struct gate_learned *learned)
{
    struct dns_own *o = h->own;
    h->told = true;
    h->why = why;
    for (unsigned i = 0; learned && i < learned->n && h->n < RESOLVE_ADDRESSES; i++)
        if (ip_is_v4(&learned->at[i].ip) == (h == &o->v4))
            h->ip[h->n++] = learned->at[i].ip;
    if (o->state == OWN_WAITS && o->v4.told && o->v6.told)
        tell_soon(o, why_of(o));
    else if (o->state == OWN_WAITS && h->n > 0)
        be_patient(o);
    free_if_over(o);
}

static void ask(struct dns_half *h, const struct dns_name *name, uint16_t type)
{
    struct dns_origin from = {.half = h};
    struct gate_query q = {
        .question = {*name, type, DNS_IN}, .flags = DNS_RD, .room = DNS_MESSAGE_MAX, .asked = true};
    dns_ask(h->own->s, &from, &q);
}

struct dns_own *dns_service_resolve(struct dns_service *s, struct str name, uint64_t timeout_ms,
                                    void (*done)(void *arg, const struct ip *ips, unsigned count,
                                                 enum why why),
                                    void *arg)
{
    struct dns_own *o = mem_new(sizeof *o);
    struct dns_name wire;
    o->s = s;
    o->v4.own = o->v6.own = o;
    o->done = done;
    o->arg = arg;
    o->deadline = worker_now(s->s.w) + timeout_ms;
    list_init(&o->soon);
    list_push(&s->owns, &o->link);
    timer_init(&o->timer, on_timer);
    if (!dns_name_parse(name, &wire)) {
        o->v4.told = o->v6.told = true;
        tell_soon(o, WHY_DNS);
        return o;
    }
    timer_set(s->s.w, &o->timer, timeout_ms);
    ask(&o->v4, &wire, DNS_A);
    ask(&o->v6, &wire, DNS_AAAA);
    return o;
}

void dns_service_cancel(struct dns_own *o)
{
    finish(o);
    free_if_over(o);
}

void dns_owns_free(struct dns_service *s)
{
    for (struct list *it; (it = list_pop(&s->owns));) {
        struct dns_own *o = container_of(it, struct dns_own, link);
        finish(o);
        mem_free(o);
    }
}
