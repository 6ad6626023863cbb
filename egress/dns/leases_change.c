/* leases_change.c — leases under another policy, and leases of addresses in use.  Each name is
 * judged once; then each address is looked at with what its names are worth now. */
#include "egress/dns/leases_impl.h"

/* ---- another policy */

struct building {
    struct arena *a;
    struct lease_gone *gone;
    struct lease_fresh *fresh;
    size_t ngone, nfresh;
};

static void judge_names(struct leases *l, const struct gate_rules *rules)
{
    size_t at = 0;
    for (struct lease_name *n; (n = map_next(l->names, &at));)
        n->next = leases_kinds(rules, (struct str){n->text, n->len});
}

/* Until when the address is wanted in the set of this kind, and for which name. */
static uint64_t wanted(struct lease_ip *ip, unsigned kind, const struct lease_name **ret_name)
{
    uint64_t until = 0;
    list_each(it, &ip->leases)
    {
        const struct lease *lease = container_of(it, struct lease, in_ip);
        if (!(lease->name->next & kind) || lease->until <= until)
            continue;
        until = lease->until;
        *ret_name = lease->name;
    }
    return until;
}

/* Is a lease that does not run yet meant for this kind's set now, and will it stay so? */
static bool is_pending(struct lease_ip *ip, unsigned kind, bool stays)
{
    list_each(it, &ip->leases)
    {
        const struct lease *lease = container_of(it, struct lease, in_ip);
        if (lease->until == 0 && lease->name->kinds & kind &&
            ((lease->name->next & kind) != 0) == stays)
            return true;
    }
    return false;
}

/* What is over may be in use: the next poll will tell.  Unless the kernel keeps the address for
 * another lease, it runs out there by itself. */
static bool runs_or_is_late(const struct lease_ip *ip, unsigned k, uint64_t until, uint64_t now_ms)
{
    return until > now_ms ||
           (until && until + LEASE_LATE_MS > now_ms && ip->asked[k] < until + LEASE_SLACK_MS);
}

static void judge_ip(struct building *b, struct lease_ip *ip, uint64_t now_ms)
{
    struct lease_gone gone = {.ip = ip->ip};
    bool reachable = false;
    for (unsigned k = 0; k < LEASE_KINDS; k++) {
        const struct lease_name *name = NULL;
        uint64_t until = wanted(ip, 1u << k, &name);
        bool stays = runs_or_is_late(ip, k, until, now_ms) || is_pending(ip, 1u << k, true);
        reachable |= stays && 1u << k != LEASE_BOUND;
        if (!stays && (ip->asked[k] + LEASE_SLACK_MS > now_ms || is_pending(ip, 1u << k, false)))
            gone.kinds |= 1u << k;
        if (until <= now_ms || until <= ip->until[k])
            continue;
        if (until < ip->asked[k])
            until = ip->asked[k];
        b->fresh[b->nfresh++] = (struct lease_fresh){
            {name->text, name->len}, {ip->ip, (unsigned)((until - now_ms + 999) / 1000)}, 1u << k};
    }
    gone.lost = !reachable;
    if (gone.kinds)
        b->gone[b->ngone++] = gone;
}

void leases_judge(struct leases *l, const struct gate_rules *rules, uint64_t now_ms,
                  struct arena *a, struct lease_change *ret)
{
    size_t n = map_size(l->ips), at = 0;
    struct building b = {.a = a,
                         .gone = arena_get(a, (n + 1) * sizeof *b.gone),
                         .fresh = arena_get(a, (LEASE_KINDS * n + 1) * sizeof *b.fresh)};
    judge_names(l, rules);
    for (struct lease_ip *ip; (ip = map_next(l->ips, &at));)
        judge_ip(&b, ip, now_ms);
    *ret = (struct lease_change){b.gone, b.fresh, b.ngone, b.nfresh};
}

/* The kernel has been told this: our books say so too. */
static void note_told(struct leases *l, const struct lease_change *c, uint64_t now_ms)
{
    for (size_t i = 0; i < c->ngone; i++) {
        struct lease_ip *ip = map_get(l->ips, lease_ip_key(&c->gone[i].ip));
        for (unsigned k = 0; ip && k < LEASE_KINDS; k++)
            if (c->gone[i].kinds & 1u << k)
                ip->until[k] = ip->asked[k] = 0;
    }
    for (size_t i = 0; i < c->nfresh; i++) {
        const struct lease_address *a = &c->fresh[i].address;
        struct lease_ip *ip = map_get(l->ips, lease_ip_key(&a->ip));
        if (ip)
            lease_ip_raise(ip, c->fresh[i].kinds, now_ms + 1000ull * a->seconds);
    }
}

static bool is_denied(const struct lease *lease, uint64_t now_ms)
{
    (void)now_ms;
    return lease->name->next == 0;
}

static void drop_denied(struct leases *l)
{
    size_t at = 0;
    lease_drop_if(l, is_denied, 0);
    for (struct lease_name *n; (n = map_next(l->names, &at));)
        n->kinds = n->next;
}

void leases_adopt(struct leases *l, const struct gate_rules *rules, const struct lease_change *told,
                  uint64_t now_ms)
{
    struct arena a;
    struct lease_change c;
    arena_init(&a, NULL, 0);
    l->policy++;
    if (told)
        note_told(l, told, now_ms);
    leases_judge(l, rules, now_ms, &a, &c);
    note_told(l, &(struct lease_change){.gone = c.gone, .ngone = c.ngone}, now_ms);
    drop_denied(l);
    if (l->told && c.ngone)
        l->kernel.withdraw(l->kernel.user, c.gone, c.ngone);
    for (size_t i = 0; i < c.nfresh; i++)
        lease_ask_address(l, ORDER_FOR_SETS, c.fresh[i].name, c.fresh[i].kinds, &c.fresh[i].address,
                          now_ms);
    arena_done(&a);
}

/* ---- addresses in use */

static void renew(struct leases *l, struct lease_ip *ip, uint64_t now_ms)
{
    struct lease_address a = {ip->ip, LEASE_LONGEST_S};
    const struct lease_name *name = NULL;
    unsigned kinds = 0;
    list_each(it, &ip->leases)
    {
        const struct lease *lease = container_of(it, struct lease, in_ip);
        if (lease->until == 0)
            continue;
        name = lease->name;
        kinds |= name->kinds;
    }
    if (name)
        lease_ask_address(l, ORDER_FOR_ALL, (struct str){name->text, name->len}, kinds, &a, now_ms);
}

static void mark_in_use(struct leases *l, const struct ip *in_use, size_t n, struct lease_ip **seen,
                        size_t *nseen)
{
    for (size_t i = 0; i < n; i++) {
        struct lease_ip *ip = map_get(l->ips, lease_ip_key(&in_use[i]));
        if (!ip || ip->active)
            continue;
        ip->active = true;
        seen[(*nseen)++] = ip;
    }
}

/* Those active at the last poll, whose flag is taken away. */
static size_t take_active(struct leases *l, struct lease_ip **list)
{
    size_t n = 0, at = 0;
    for (struct lease_ip *ip; (ip = map_next(l->ips, &at));) {
        if (ip->active)
            list[n++] = ip;
        ip->active = false;
    }
    return n;
}

static bool is_over(const struct lease *lease, uint64_t now_ms)
{
    return lease->until && lease_end(lease) + LEASE_SLACK_MS <= now_ms && !lease->ip->active;
}

void leases_poll(struct leases *l, bool readable, const struct ip *in_use, size_t n,
                 uint64_t now_ms)
{
    size_t room = map_size(l->ips), nwas, nnow = 0;
    struct lease_ip **was = mem_new((room + 1) * sizeof(void *)),
                    **now = mem_new((room + 1) * sizeof(void *));
    nwas = take_active(l, was);
    if (readable)
        mark_in_use(l, in_use, n, now, &nnow);
    for (size_t i = 0; i < nnow; i++)
        renew(l, now[i], now_ms);
    for (size_t i = 0; readable && i < nwas; i++)
        if (!was[i]->active)
            renew(l, was[i], now_ms);
    if (readable)
        lease_drop_if(l, is_over, now_ms);
    mem_free(was);
    mem_free(now);
}
