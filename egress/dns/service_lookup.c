/* service_lookup.c — the course of a query: read, judged by its name, then the cache, a look-up
 * that is under way, or a new one.  The straight way, an answer that is kept with leases that run,
 * ends in the call; a look-up has a list of those who wait for it. */
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
    dns_answer_from(a, str_skip(kept, STAMP_BYTES), (uint32_t)((now - stamp) / 1000), false, NULL);
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
        dns_settle(container_of(it, struct asker, link), reply, why);
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
        dns_error(a, DNS_SERVFAIL, WHY_LIMIT);
        return;
    }
    struct asker *k = dns_asker_new(a);
    if (!k) {
        dns_error(a, DNS_SERVFAIL, WHY_OVERLOAD);
        return;
    }
    if (l)
        counter_add(&s->counters.joined, 1);
    else
        l = lookup_start(a, key, n);
    list_push(&l->askers, &k->link);
}

/* ---- queries ---- */

void dns_ask(struct dns_service *s, const struct dns_origin *from, const struct gate_query *q)
{
    char text[GATE_NAME_BYTES];
    struct answering a = {.s = s, .from = from, .q = q, .began_us = worker_now_us(s->s.w)};
    a.name = gate_name(q, text);
    a.judged = policy_name(s->s.rules->policy, a.name);
    if (!a.judged.allow)
        dns_deny(&a);
    else if (!gate_has_answer(q))
        dns_error(&a, DNS_REFUSED, WHY_REFUSED);
    else if (!answer_from_cache(&a))
        ask_upstream(&a);
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
        dns_malformed(s, from, &q);
}

/* ---- the end ---- */

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
        dns_asker_free(container_of(it, struct asker, link));
    lookup_free(l);
}

void dns_lookups_free(struct dns_service *s)
{
    size_t at = 0;
    for (struct lookup *l; (l = map_next(s->lookups, &at));)
        lookup_cancel(l);
    map_free(s->lookups);
}
