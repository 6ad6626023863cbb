/* service.c — the course of a query: read, judged by its name, then the cache, a look-up that is
 * under way, or a new one; the answer is filtered, leased and sent.  The straight way, an answer
 * that is kept with leases that run, needs no memory of its own; whatever has to wait is an asker.
 * Everything is judged by the rules of the moment in which it is answered. */
#include "egress/dns/service.h"

#include <assert.h>

#include "dns/answer.h"
#include "egress/dns/service_impl.h"

enum {
    KEPT_BYTES = 2048, /* longest answer that is kept */
    KEPT_LONGEST_S = 3600,
    STAMP_BYTES = 8,
    KEY_BYTES = 8 + DNS_NAME_MAX
};

/* A question under way to the upstreams. */
struct lookup {
    struct dns_service *s;
    struct ns_ask *ask;
    struct list askers;
    struct dns_question question;
    uint32_t kind;
    bool keep;
    size_t key_bytes;
    char key[KEY_BYTES];
};

/* A query that waits, for a look-up or for the kernel. */
struct asker {
    struct list link; /* in lookup.askers, or in service.waiting */
    struct dns_service *s;
    struct dns_origin from; /* all NULL: gone */
    struct gate_query q;
    struct timer timer; /* while the kernel is asked */
    uint64_t began_us;
    uint8_t *reply;
    size_t n;
    struct gate_learned *learned;
};

/* ---- replies ---- */

struct answering {
    struct dns_service *s;
    const struct dns_origin *from;
    const struct gate_query *q;
    struct str name;
    struct policy_answer judged;
    uint64_t began_us;
    bool waited; /* it is an asker's */
};

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

static void send_error(const struct answering *a, enum dns_rcode rcode, enum why why)
{
    uint8_t out[DNS_WRITE_MIN];
    struct gate_query q = *a->q;
    q.room = DNS_WRITE_MIN;
    size_t n = gate_error(&q, rcode, out);
    send_reply(a, out, n);
    tell(a, out, why, NULL);
}

static void deny(const struct answering *a)
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

/* ---- askers ---- */

/* NULL: too many wait. */
static struct asker *asker_new(const struct answering *a)
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

static void asker_free(struct asker *k)
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
        send_error(a, DNS_SERVFAIL, why);
    else
        deny(a);
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
    asker_free(k);
}

static void on_kernel_late(struct timer *t)
{
    struct asker *k = container_of(t, struct asker, timer);
    char text[GATE_NAME_BYTES];
    leases_forget(k->s->s.leases, k);
    struct answering a = answering_of(k, text);
    lease_failed(&a, WHY_DEADLINE);
    asker_free(k);
}

static void full(const struct answering *a)
{
    counter_add(&a->s->counters.lease_full, 1);
    send_error(a, DNS_SERVFAIL, WHY_LIMIT);
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
    asker_free(k);
}

/* Answers from the upstream's reply.  `k` is the asker, if the query has waited; true: it is used
 * up. */
static bool answer(const struct answering *a, struct str upstream, uint32_t age_s, bool exact,
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
    struct asker *waits = k ? k : asker_new(a);
    if (waits)
        wait_for_leases(waits, n, kinds, exact);
    else
        send_error(a, DNS_SERVFAIL, WHY_OVERLOAD);
    return k != NULL;
}

/* ---- the cache ---- */

/* What makes two questions the same, beside the name. */
static uint32_t kind_of(const struct gate_query *q)
{
    return (uint32_t)(q->question.type | (q->dnssec_ok ? 1u << 16 : 0) |
                      (q->flags & DNS_CD ? 1u << 17 : 0) | (q->flags & DNS_AD ? 1u << 18 : 0) |
                      (q->flags & DNS_RD ? 0 : 1u << 19));
}

static bool may_keep(const struct dns_service *s, const struct gate_query *q)
{
    return s->cache && q->question.class == DNS_IN && q->flags & DNS_RD;
}

static bool answer_from_cache(const struct answering *a)
{
    struct dns_service *s = a->s;
    struct str kept;
    bool fresh;
    uint64_t stamp, now = worker_now(s->s.w);
    if (!may_keep(s, a->q) ||
        !dns_cache_get(s->cache, &a->q->question.name, kind_of(a->q), now, &kept, &fresh) || !fresh)
        return false;
    memcpy(&stamp, kept.p, STAMP_BYTES);
    counter_add(&s->counters.cached, 1);
    answer(a, str_skip(kept, STAMP_BYTES), (uint32_t)((now - stamp) / 1000), false, NULL);
    return true;
}

static void keep(struct lookup *l, struct str reply)
{
    struct dns_service *s = l->s;
    char value[STAMP_BYTES + KEPT_BYTES];
    uint64_t now = worker_now(s->s.w);
    uint32_t ttl = dns_reply_ttl(reply.p, reply.n, l->question.type);
    if (!l->keep || ttl == 0 || reply.n > KEPT_BYTES)
        return;
    memcpy(value, &now, STAMP_BYTES);
    memcpy(value + STAMP_BYTES, reply.p, reply.n);
    dns_cache_put(s->cache, &l->question.name, l->kind, (struct str){value, STAMP_BYTES + reply.n},
                  1000ull * (ttl < KEPT_LONGEST_S ? ttl : KEPT_LONGEST_S), now);
}

/* ---- look-ups ---- */

static void lookup_free(struct lookup *l)
{
    map_del(l->s->lookups, (struct str){l->key, l->key_bytes});
    mem_free(l);
}

static void settle(struct asker *k, struct str reply, enum why why)
{
    char text[GATE_NAME_BYTES];
    struct answering a = answering_of(k, text);
    bool used_up = false;
    if (!a.judged.allow)
        deny(&a);
    else if (why != WHY_OK)
        send_error(&a, DNS_SERVFAIL, why);
    else
        used_up = answer(&a, reply, 0, true, k);
    if (!used_up)
        asker_free(k);
}

static void on_reply(void *user, struct str reply, enum why why)
{
    struct lookup *l = user;
    struct list askers;
    if (why == WHY_OK)
        keep(l, reply);
    else
        counter_add(&l->s->counters.upstream_failed, 1);
    list_init(&askers);
    for (struct list *it; (it = list_pop(&l->askers));)
        list_push(&askers, it);
    lookup_free(l);
    for (struct list *it; (it = list_pop(&askers));)
        settle(container_of(it, struct asker, link), reply, why);
}

static size_t make_key(const struct gate_query *q, char key[KEY_BYTES])
{
    uint32_t kind = kind_of(q);
    struct dns_name name = q->question.name;
    dns_name_lower(&name);
    memcpy(key, &kind, 4);
    memcpy(key + 4, &q->question.class, 2);
    memset(key + 6, 0, 2);
    memcpy(key + 8, name.b, name.n);
    return 8u + name.n;
}

static struct lookup *lookup_start(const struct answering *a, const char *key, size_t key_bytes)
{
    struct dns_service *s = a->s;
    struct lookup *l = mem_new(sizeof *l);
    l->s = s;
    l->question = a->q->question;
    l->kind = kind_of(a->q);
    l->keep = may_keep(s, a->q);
    l->key_bytes = key_bytes;
    memcpy(l->key, key, key_bytes);
    list_init(&l->askers);
    map_put(s->lookups, (struct str){l->key, key_bytes}, l);
    struct ns_wish wish = {
        .question = l->question, .flags = a->q->flags, .dnssec_ok = a->q->dnssec_ok};
    l->ask = nameserver_wish(s->s.servers, &wish, s->s.limits.upstream_ms, on_reply, l);
    return l;
}

static void ask_upstream(const struct answering *a)
{
    struct dns_service *s = a->s;
    char key[KEY_BYTES];
    size_t n = make_key(a->q, key);
    struct lookup *l = map_get(s->lookups, (struct str){key, n});
    if (!l && !rates_take(s->rates, a->name, worker_now(s->s.w))) {
        counter_add(&s->counters.rate_limited, 1);
        send_error(a, DNS_SERVFAIL, WHY_LIMIT);
        return;
    }
    struct asker *k = asker_new(a);
    if (!k) {
        send_error(a, DNS_SERVFAIL, WHY_OVERLOAD);
        return;
    }
    if (l)
        counter_add(&s->counters.joined, 1);
    else
        l = lookup_start(a, key, n);
    list_push(&l->askers, &k->link);
}

void dns_ask(struct dns_service *s, const struct dns_origin *from, const struct gate_query *q)
{
    char text[GATE_NAME_BYTES];
    struct answering a = {.s = s, .from = from, .q = q, .began_us = worker_now_us(s->s.w)};
    a.name = gate_name(q, text);
    a.judged = policy_name(s->s.rules->policy, a.name);
    if (!a.judged.allow)
        deny(&a);
    else if (!gate_has_answer(q))
        send_error(&a, DNS_REFUSED, WHY_REFUSED);
    else if (!answer_from_cache(&a))
        ask_upstream(&a);
}

static void refuse_malformed(struct dns_service *s, const struct dns_origin *from,
                             struct gate_query *q)
{
    uint8_t out[DNS_WRITE_MIN];
    struct answering a = {.s = s, .from = from, .q = q};
    q->room = DNS_WRITE_MIN;
    counter_add(&s->counters.malformed, 1);
    send_reply(&a, out, gate_error(q, q->fault, out));
}

void dns_query(struct dns_service *s, const struct dns_origin *from, const void *p, size_t n)
{
    struct gate_query q;
    enum gate_step step = gate_read(p, n, from->client != NULL, &q);
    if (step == GATE_IGNORE)
        return;
    counter_add(&s->counters.queries, 1);
    if (step == GATE_JUDGE)
        dns_ask(s, from, &q);
    else
        refuse_malformed(s, from, &q);
}

/* ---- life ---- */

static void on_datagram(void *user, struct udp *u, struct str datagram, const struct sockaddr *from)
{
    struct dns_origin origin = {.udp = u};
    memcpy(&origin.from, from, addr_len(from));
    dns_query(user, &origin, datagram.p, datagram.n);
}

struct dns_service *dns_service_new(const struct dns_setup *setup)
{
    struct dns_service *s = mem_new(sizeof *s);
    s->s = *setup;
    if (setup->limits.cache_entries > 0)
        s->cache = dns_cache_new(setup->limits.cache_entries, 0);
    s->lookups = map_new();
    s->rates = rates_new(setup->limits.asks, setup->limits.domain_asks);
    list_init(&s->waiting);
    list_init(&s->clients);
    list_init(&s->owns);
    list_init(&s->soon);
    accept_gate_init(&s->gate, setup->limits.tcp_clients, 0);
    return s;
}

void dns_service_udp(struct dns_service *s, int fd)
{
    assert(s->nudp < DNS_SOCKETS);
    s->udp[s->nudp++] = udp_start(s->s.w, fd, on_datagram, s);
}

void dns_service_tcp(struct dns_service *s, int fd)
{
    assert(s->ntcp < DNS_SOCKETS);
    s->tcp[s->ntcp++] = listener_start(s->s.w, fd, &s->gate, dns_client_accept, s);
}

void dns_service_adopt(struct dns_service *s, const struct gate_rules *rules,
                       const struct lease_change *told)
{
    s->s.rules = rules;
    leases_adopt(s->s.leases, rules, told, worker_now(s->s.w));
    if (s->s.upkeep)
        upkeep_adopt(s->s.upkeep, rules);
}

const struct dns_counters *dns_service_counters(const struct dns_service *s)
{
    return &s->counters;
}

unsigned dns_service_waiting(const struct dns_service *s)
{
    return s->in_flight;
}

static void drop_from(struct list *askers, const struct dns_client *client)
{
    list_each(it, askers)
    {
        struct asker *k = container_of(it, struct asker, link);
        if (k->from.client == client)
            k->from.client = NULL;
    }
}

void dns_origin_gone(struct dns_service *s, struct dns_client *client)
{
    size_t at = 0;
    for (struct lookup *l; (l = map_next(s->lookups, &at));)
        drop_from(&l->askers, client);
    drop_from(&s->waiting, client);
}

static void lookup_cancel(struct lookup *l)
{
    nameserver_cancel(l->ask);
    for (struct list *it; (it = list_first(&l->askers));)
        asker_free(container_of(it, struct asker, link));
    lookup_free(l);
}

void dns_service_unused(struct dns_service *s)
{
    if (s->over && s->conns == 0 && !s->posted)
        mem_free(s);
}

void dns_client_closed(struct dns_service *s)
{
    s->conns--;
    dns_service_unused(s);
}

void dns_service_free(struct dns_service *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->nudp; i++)
        udp_close(s->udp[i]);
    for (unsigned i = 0; i < s->ntcp; i++)
        listener_stop(s->tcp[i]);
    dns_clients_close(s);
    size_t at = 0;
    for (struct lookup *l; (l = map_next(s->lookups, &at));)
        lookup_cancel(l);
    for (struct list *it; (it = list_first(&s->waiting));) {
        struct asker *k = container_of(it, struct asker, link);
        leases_forget(s->s.leases, k);
        timer_clear(s->s.w, &k->timer);
        asker_free(k);
    }
    map_free(s->lookups);
    dns_cache_free(s->cache);
    rates_free(s->rates);
    dns_owns_free(s);
    s->over = true;
    dns_service_unused(s);
}
