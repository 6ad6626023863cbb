/* upkeep.c — which names are looked up again, and when.  A lease ends 60 s after its last use could
 * begin; a name is looked up in those 60 s, so that only addresses that are still given out are
 * renewed. */
#include "egress/dns/upkeep.h"

enum { AHEAD_S = 60, LAST_CALL_S = 5, PAUSE_S = 30, PAUSE_LONGEST_S = 600, DOUBLINGS = 5 };

uint64_t upkeep_next_s(uint64_t lease_left_s, unsigned failures)
{
    if (failures == 0)
        return lease_left_s > AHEAD_S ? lease_left_s - AHEAD_S : 0;
    uint64_t pause = (uint64_t)PAUSE_S << (failures - 1 < DOUBLINGS ? failures - 1 : DOUBLINGS);
    uint64_t last = lease_left_s > LAST_CALL_S ? lease_left_s - LAST_CALL_S : 0;
    if (pause > PAUSE_LONGEST_S)
        pause = PAUSE_LONGEST_S;
    return pause < last ? pause : last;
}

static bool is_among(const struct ip *list, unsigned n, const struct ip *ip)
{
    for (unsigned i = 0; i < n; i++)
        if (ip_eq(&list[i], ip))
            return true;
    return false;
}

enum upkeep_verdict upkeep_settle(enum upkeep_found a, enum upkeep_found aaaa,
                                  const struct ip *observed, unsigned n,
                                  struct gate_learned *learned)
{
    unsigned kept = 0;
    if (a == UPKEEP_FAILED || aaaa == UPKEEP_FAILED || a != aaaa)
        return UPKEEP_AGAIN;
    if (a == UPKEEP_NO_NAME)
        return UPKEEP_DROP;
    for (unsigned i = 0; i < learned->n; i++)
        if (is_among(observed, n, &learned->at[i].ip))
            learned->at[kept++] = learned->at[i];
    learned->n = kept;
    return kept ? UPKEEP_RENEW : UPKEEP_DROP;
}

/* ---- names */

void upkeep_table_init(struct upkeep_table *t)
{
    list_init(&t->by_use);
    t->names = map_new();
}

void upkeep_drop(struct upkeep_table *t, struct upkeep_name *n)
{
    map_del(t->names, n->text);
    list_del(&n->link);
    mem_free(n->ip);
    mem_free(n);
}

void upkeep_table_done(struct upkeep_table *t)
{
    for (struct list *l; (l = list_first(&t->by_use));)
        upkeep_drop(t, container_of(l, struct upkeep_name, link));
    map_free(t->names);
}

struct upkeep_name *upkeep_find(const struct upkeep_table *t, struct str text)
{
    return map_get(t->names, text);
}

static struct upkeep_name *name_new(struct upkeep_table *t, struct str text,
                                    const struct dns_name *name)
{
    if (map_size(t->names) == UPKEEP_NAMES)
        upkeep_drop(t, container_of(list_first(&t->by_use), struct upkeep_name, link));
    struct upkeep_name *n = mem_new(sizeof *n + text.n);
    memcpy(n + 1, text.p, text.n);
    n->text = (struct str){(char *)(n + 1), text.n};
    n->name = *name;
    list_init(&n->link);
    map_put(t->names, n->text, n);
    return n;
}

static void add_ip(struct upkeep_name *n, const struct ip *ip)
{
    if (n->n == UPKEEP_ADDRESSES || is_among(n->ip, n->n, ip))
        return;
    if ((n->n & (n->n - 1)) == 0) /* a power of two: full */
        n->ip = mem_renew(n->ip, (n->n ? 2 * n->n : 1) * sizeof *n->ip);
    n->ip[n->n++] = *ip;
}

void upkeep_observe(struct upkeep_table *t, struct str text, const struct dns_name *name,
                    const struct gate_learned *learned)
{
    struct upkeep_name *n = map_get(t->names, text);
    if (!n)
        n = name_new(t, text, name);
    list_del(&n->link);
    list_push(&t->by_use, &n->link);
    for (unsigned i = 0; i < learned->n; i++)
        add_ip(n, &learned->at[i].ip);
}

/* ---- time */

/* Of the leases of its addresses the one that ends first; 0: there is none. */
static uint64_t earliest_end(const struct upkeep_name *n, const struct leases *leases)
{
    uint64_t end = 0;
    for (unsigned i = 0; i < n->n; i++) {
        uint64_t until = leases_until(leases, n->text, &n->ip[i]);
        if (until && (end == 0 || until < end))
            end = until;
    }
    return end;
}

static uint64_t left_s(uint64_t end, uint64_t now_ms)
{
    return end > now_ms ? (end - now_ms) / 1000 : 0;
}

struct upkeep_name *upkeep_due(struct upkeep_table *t, const struct leases *leases, uint64_t now_ms)
{
    struct upkeep_name *first = NULL;
    uint64_t first_end = 0;
    list_each(it, &t->by_use)
    {
        struct upkeep_name *n = container_of(it, struct upkeep_name, link);
        uint64_t end = earliest_end(n, leases);
        if (n->busy)
            continue;
        if (end == 0) {
            upkeep_drop(t, n);
            continue;
        }
        bool due = n->failures ? now_ms >= n->next_ms : upkeep_next_s(left_s(end, now_ms), 0) == 0;
        if (!due || (first && end >= first_end))
            continue;
        first = n;
        first_end = end;
    }
    return first;
}

void upkeep_failed(struct upkeep_name *n, const struct leases *leases, uint64_t now_ms)
{
    n->failures++;
    n->next_ms =
        now_ms + 1000 * upkeep_next_s(left_s(earliest_end(n, leases), now_ms), n->failures);
}
