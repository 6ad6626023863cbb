/* upkeep_rounds.c — rounds of look-ups, a few at once, A before AAAA, by the way that clients'
 * questions go.  What belongs to an earlier policy is cancelled, so no result comes too late. */
#include "base/digest.h"
#include "egress/dns/upkeep.h"
#include "net/worker.h"

enum {
    AT_ONCE = 4,
    LOOKUP_MS = 5000,
    ROUND_MS = 20000,
    PAUSE_SHORTEST_MS = 15000,
    PAUSE_SPREAD_MS = 30000
};

/* One name, A and then AAAA. */
struct lookup {
    struct upkeep *u;
    struct ns_ask *ask; /* NULL: idle */
    struct str text;
    char text_bytes[GATE_NAME_BYTES];
    struct gate_query query;
    enum upkeep_found a;
    uint64_t deadline;
    struct gate_learned learned;
};

struct upkeep {
    struct upkeep_setup s;
    struct upkeep_table table;
    struct timer round, poll;
    uint64_t round_end;
    bool polling;
    struct lookup lookup[AT_ONCE];
};

static void ask(struct lookup *l, uint16_t type);
static void start_due(struct upkeep *u);

/* ---- what came of a look-up */

static void settle(struct lookup *l, enum upkeep_found aaaa)
{
    struct upkeep *u = l->u;
    uint64_t now = worker_now(u->s.w);
    struct upkeep_name *n = upkeep_find(&u->table, l->text);
    l->ask = NULL;
    if (!n)
        return;
    n->busy = false;
    unsigned kinds = leases_kinds(u->s.rules, l->text);
    switch (kinds ? upkeep_settle(l->a, aaaa, n->ip, n->n, &l->learned) : UPKEEP_DROP) {
    case UPKEEP_RENEW:
        n->failures = 0;
        if (leases_take(u->s.leases, l->text, kinds, &l->learned, true, now, NULL, NULL) ==
            LEASES_FULL)
            upkeep_failed(n, u->s.leases, now);
        break;
    case UPKEEP_AGAIN:
        upkeep_failed(n, u->s.leases, now);
        break;
    case UPKEEP_DROP:
        upkeep_drop(&u->table, n);
        break;
    }
}

/* Adds the addresses of a reply to those found. */
static enum upkeep_found collect(struct lookup *l, struct str reply)
{
    struct gate_learned more;
    uint8_t *out = mem_new(DNS_MESSAGE_MAX);
    gate_reply(l->u->s.rules, &l->query, reply, 0, out, &more);
    bool no_name = (out[3] & DNS_RCODE_MASK) == DNS_NXDOMAIN;
    mem_free(out);
    for (unsigned i = 0; i < more.n && l->learned.n < GATE_ADDRESSES; i++)
        l->learned.at[l->learned.n++] = more.at[i];
    return no_name ? UPKEEP_NO_NAME : UPKEEP_ANSWER;
}

static void on_reply(void *user, struct str reply, enum why why)
{
    struct lookup *l = user;
    enum upkeep_found found = why == WHY_OK ? collect(l, reply) : UPKEEP_FAILED;
    bool again = l->query.question.type == DNS_A && found != UPKEEP_FAILED &&
                 worker_now(l->u->s.w) < l->deadline;
    l->ask = NULL;
    if (again) {
        l->a = found;
        ask(l, DNS_AAAA);
        return;
    }
    l->a = l->query.question.type == DNS_A ? UPKEEP_FAILED : l->a;
    settle(l, found);
    start_due(l->u);
}

/* ---- rounds */

static void ask(struct lookup *l, uint16_t type)
{
    uint64_t now = worker_now(l->u->s.w);
    l->query.question.type = type;
    l->ask = nameserver_ask(l->u->s.servers, &l->query.question.name, type, l->deadline - now,
                            on_reply, l);
}

static void start(struct lookup *l, struct upkeep_name *n)
{
    l->text = (struct str){l->text_bytes, n->text.n};
    memcpy(l->text_bytes, n->text.p, n->text.n);
    l->query = (struct gate_query){
        .question = {.name = n->name, .class = DNS_IN}, .room = DNS_MESSAGE_MAX, .asked = true};
    l->learned.n = 0;
    l->deadline = worker_now(l->u->s.w) + LOOKUP_MS;
    n->busy = true;
    ask(l, DNS_A);
}

static void start_due(struct upkeep *u)
{
    uint64_t now = worker_now(u->s.w);
    for (int i = 0; i < AT_ONCE && now < u->round_end; i++) {
        struct upkeep_name *n = u->lookup[i].ask ? NULL : upkeep_due(&u->table, u->s.leases, now);
        if (n)
            start(&u->lookup[i], n);
    }
}

static uint64_t pause_ms(void)
{
    uint16_t v;
    digest_random(&v, sizeof v);
    return PAUSE_SHORTEST_MS + v % PAUSE_SPREAD_MS;
}

static void on_round(struct timer *t)
{
    struct upkeep *u = container_of(t, struct upkeep, round);
    u->round_end = worker_now(u->s.w) + ROUND_MS;
    start_due(u);
    timer_set(u->s.w, &u->round, pause_ms());
}

/* ---- addresses in use */

static void on_in_use(void *arg, bool readable, const struct ip *list, size_t n)
{
    struct upkeep *u = arg;
    u->polling = false;
    leases_poll(u->s.leases, readable, list, n, worker_now(u->s.w));
}

static void on_poll(struct timer *t)
{
    struct upkeep *u = container_of(t, struct upkeep, poll);
    timer_set(u->s.w, &u->poll, LEASES_POLL_MS);
    if (u->polling)
        return;
    u->polling = true;
    if (u->s.in_use)
        u->s.in_use(u->s.user, on_in_use, u);
    else
        on_in_use(u, true, NULL, 0);
}

/* ---- life */

struct upkeep *upkeep_new(const struct upkeep_setup *setup)
{
    struct upkeep *u = mem_new(sizeof *u);
    u->s = *setup;
    upkeep_table_init(&u->table);
    for (int i = 0; i < AT_ONCE; i++)
        u->lookup[i].u = u;
    timer_init(&u->round, on_round);
    timer_init(&u->poll, on_poll);
    timer_set(u->s.w, &u->round, pause_ms());
    timer_set(u->s.w, &u->poll, LEASES_POLL_MS);
    return u;
}

static void forget_all(struct upkeep *u)
{
    for (int i = 0; i < AT_ONCE; i++) {
        if (u->lookup[i].ask)
            nameserver_cancel(u->lookup[i].ask);
        u->lookup[i].ask = NULL;
    }
    upkeep_table_done(&u->table);
}

void upkeep_free(struct upkeep *u)
{
    if (!u)
        return;
    forget_all(u);
    timer_clear(u->s.w, &u->round);
    timer_clear(u->s.w, &u->poll);
    mem_free(u);
}

void upkeep_told(struct upkeep *u, struct str text, const struct dns_name *name,
                 const struct gate_learned *learned)
{
    if (learned->n && !policy_default(u->s.rules->policy))
        upkeep_observe(&u->table, text, name, learned);
}

void upkeep_adopt(struct upkeep *u, const struct gate_rules *rules)
{
    forget_all(u);
    upkeep_table_init(&u->table);
    u->s.rules = rules;
}
