/* service_answer.c — what is said to who asked: a denial, an error, or the upstream's answer,
 * filtered and leased.  An answer whose leases run needs no memory of its own; whatever has to wait
 * is an asker.  Everything is judged by the rules of the moment in which it is answered. */
#include "egress/dns/service_impl.h"

/* ---- replies ---- */

static void send_reply(const struct answering *a, const uint8_t *p, size_t n)
{
    if (a->from->udp)
        udp_send(a->from->udp, &a->from->from.sa, p, n);
    else if (a->from->client)
        dns_client_reply(a->from->client, p, n, a->waited);
}

static void tell(const struct answering *a, const uint8_t *p, enum why why,
                 const struct gate_learned *learned)
{
    static const struct gate_learned nothing;
    struct dns_service *s = a->s;
    struct dns_half *half = a->from->half;
    if (s->s.told && !(half && why == WHY_DENIED))
        s->s.told(s->s.user, &(struct dns_told){.name = a->name,
                                                .type = a->q->question.type,
                                                .judged = a->judged,
                                                .rcode = p[3] & DNS_RCODE_MASK,
                                                .ips = learned ? learned : &nothing,
                                                .why = why,
                                                .took_us = worker_now_us(s->s.w) - a->began_us,
                                                .client = half ? NULL : &a->from->from.sa});
    if (half)
        dns_half_told(half, why, learned);
}

void dns_error(const struct answering *a, enum dns_rcode rcode, enum why why)
{
    uint8_t out[DNS_WRITE_MIN];
    struct gate_query q = *a->q;
    q.room = DNS_WRITE_MIN;
    size_t n = gate_error(&q, rcode, out);
    send_reply(a, out, n);
    tell(a, out, why, NULL);
}

void dns_deny(const struct answering *a)
{
    uint8_t out[DNS_WRITE_MIN];
    struct gate_query q = *a->q;
    q.room = DNS_WRITE_MIN;
    size_t n = gate_denial(&q, out);
    counter_add(&a->s->counters.denied, 1);
    send_reply(a, out, n);
    tell(a, out, WHY_DENIED, NULL);
}

static void send_answer(const struct answering *a, const uint8_t *p, size_t n,
                        const struct gate_learned *learned)
{
    counter_add(&a->s->counters.answered, 1);
    if (a->s->s.upkeep)
        upkeep_told(a->s->s.upkeep, a->name, &a->q->question.name, learned);
    send_reply(a, p, n);
    tell(a, p, WHY_OK, learned);
}

void dns_malformed(struct dns_service *s, const struct dns_origin *from, struct gate_query *q)
{
    uint8_t out[DNS_WRITE_MIN];
    struct answering a = {.s = s, .from = from, .q = q};
    q->room = DNS_WRITE_MIN;
    counter_add(&s->counters.malformed, 1);
    send_reply(&a, out, gate_error(q, q->fault, out));
}

/* ---- askers ---- */

struct asker *dns_asker_new(const struct answering *a)
{
    struct dns_service *s = a->s;
    if (s->in_flight >= s->s.limits.in_flight) {
        counter_add(&s->counters.overload, 1);
        return NULL;
    }
    struct asker *k = mem_new(sizeof *k);
    k->s = s;
    k->from = *a->from;
    k->q = *a->q;
    k->began_us = a->began_us;
    list_init(&k->link);
    s->in_flight++;
    if (k->from.client)
        dns_client_waits(k->from.client);
    return k;
}

void dns_asker_free(struct asker *k)
{
    k->s->in_flight--;
    list_del(&k->link);
    mem_free(k->reply);
    mem_free(k->learned);
    mem_free(k);
}

/* What answering is for an asker, by the rules of now. */
static struct answering answering_of(const struct asker *k, char text[GATE_NAME_BYTES])
{
    struct str name = gate_name(&k->q, text);
    return (struct answering){.s = k->s,
                              .from = &k->from,
                              .q = &k->q,
                              .name = name,
                              .judged = policy_name(k->s->s.rules->policy, name),
                              .began_us = k->began_us,
                              .waited = true};
}

/* ---- leases ---- */

static void lease_failed(const struct answering *a, enum why why)
{
    counter_add(&a->s->counters.lease_failed, 1);
    if (a->judged.allow)
        dns_error(a, DNS_SERVFAIL, why);
    else
        dns_deny(a);
}

/* The kernel has what the asker's reply tells of, or will not have it. */
static void on_leased(void *arg, bool ok)
{
    struct asker *k = arg;
    char text[GATE_NAME_BYTES];
    timer_clear(k->s->s.w, &k->timer);
    struct answering a = answering_of(k, text);
    if (ok && a.judged.allow)
        send_answer(&a, k->reply, k->n, k->learned);
    else
        lease_failed(&a, WHY_OVERLOAD);
    dns_asker_free(k);
}

static void on_kernel_late(struct timer *t)
{
    struct asker *k = container_of(t, struct asker, timer);
    char text[GATE_NAME_BYTES];
    leases_forget(k->s->s.leases, k);
    struct answering a = answering_of(k, text);
    lease_failed(&a, WHY_DEADLINE);
    dns_asker_free(k);
}

static void full(const struct answering *a)
{
    counter_add(&a->s->counters.lease_full, 1);
    dns_error(a, DNS_SERVFAIL, WHY_LIMIT);
}

static void keep_reply(struct asker *k, size_t n)
{
    struct dns_service *s = k->s;
    size_t told = offsetof(struct gate_learned, at) + s->learned.n * sizeof s->learned.at[0];
    k->reply = mem_new(n);
    memcpy(k->reply, s->out, n);
    k->n = n;
    k->learned = mem_new(sizeof s->learned);
    memcpy(k->learned, &s->learned, told);
}

/* The kernel is asked for what the reply in s->out tells of; k is used up. */
static void wait_for_leases(struct asker *k, size_t n, unsigned kinds, bool exact)
{
    struct dns_service *s = k->s;
    char text[GATE_NAME_BYTES];
    struct answering a = answering_of(k, text);
    keep_reply(k, n);
    timer_init(&k->timer, on_kernel_late);
    timer_set(s->s.w, &k->timer, s->s.limits.kernel_ms);
    list_push(&s->waiting, &k->link);
    enum lease_answer r = leases_take(s->s.leases, a.name, kinds, k->learned, exact,
                                      worker_now(s->s.w), on_leased, k);
    if (r == LEASES_ASKED)
        return;
    timer_clear(s->s.w, &k->timer);
    if (r == LEASES_FULL)
        full(&a);
    else
        send_answer(&a, k->reply, k->n, k->learned);
    dns_asker_free(k);
}

bool dns_answer_from(const struct answering *a, struct str upstream, uint32_t age_s, bool exact,
                     struct asker *k)
{
    struct dns_service *s = a->s;
    size_t n = gate_reply(s->s.rules, a->q, upstream, age_s, s->out, &s->learned);
    unsigned kinds = leases_kinds_of(s->s.rules, a->name, &a->judged);
    if (s->learned.n == 0 ||
        leases_held(s->s.leases, a->name, kinds, &s->learned, exact, worker_now(s->s.w))) {
        send_answer(a, s->out, n, &s->learned);
        return false;
    }
    struct asker *waits = k ? k : dns_asker_new(a);
    if (waits)
        wait_for_leases(waits, n, kinds, exact);
    else
        dns_error(a, DNS_SERVFAIL, WHY_OVERLOAD);
    return k != NULL;
}

void dns_settle(struct asker *k, struct str reply, enum why why)
{
    char text[GATE_NAME_BYTES];
    struct answering a = answering_of(k, text);
    bool used_up = false;
    if (!a.judged.allow)
        dns_deny(&a);
    else if (why != WHY_OK)
        dns_error(&a, DNS_SERVFAIL, why);
    else
        used_up = dns_answer_from(&a, reply, 0, true, k);
    if (!used_up)
        dns_asker_free(k);
}

void dns_waiting_free(struct dns_service *s)
{
    for (struct list *it; (it = list_first(&s->waiting));) {
        struct asker *k = container_of(it, struct asker, link);
        leases_forget(s->s.leases, k);
        timer_clear(s->s.w, &k->timer);
        dns_asker_free(k);
    }
}
