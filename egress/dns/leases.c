/* leases.c — leases by name and by address.  A lease is in the table from the moment it
 * is asked for, so that a change of policy finds it, and runs from the moment the kernel has it, so
 * that nobody is told an address that does not work.  An order to the kernel keeps texts, not
 * pointers: whatever goes meanwhile is simply not found when the answer comes. */
#include "egress/dns/leases.h"

#include <assert.h>

#include "egress/dns/leases_impl.h"

enum { PENDING_MS = 60000, SWEEP_MS = 1000, SHORTEST_S = 60, LONGEST_TTL_S = 300 };

unsigned lease_seconds(uint32_t ttl)
{
    return ttl < LEASE_LONGEST_S - SHORTEST_S ? ttl + SHORTEST_S : LEASE_LONGEST_S;
}

struct leases *leases_new(const struct leases_limits *limits, const struct leases_kernel *kernel)
{
    struct leases *l = mem_new(sizeof *l);
    l->names = map_new();
    l->ips = map_new();
    l->limits = *limits;
    list_init(&l->orders);
    if (kernel) {
        l->kernel = *kernel;
        l->told = true;
    }
    return l;
}

/* ---- the table */

/* In whichever list is shorter: the name's is at most as long as the limit. */
static struct lease *find(const struct leases *l, const struct lease_name *name,
                          const struct ip *ip)
{
    struct lease_ip *i = map_get(l->ips, lease_ip_key(ip));
    if (!i)
        return NULL;
    bool by_name = name->n < i->n;
    list_each(it, by_name ? &name->leases : &i->leases)
    {
        struct lease *lease = by_name ? container_of(it, struct lease, in_name)
                                      : container_of(it, struct lease, in_ip);
        if (lease->name == name && lease->ip == i)
            return lease;
    }
    return NULL;
}

static struct lease_name *name_of(struct leases *l, struct str text)
{
    struct lease_name *name = map_get(l->names, text);
    if (name)
        return name;
    name = mem_new(sizeof *name + text.n);
    list_init(&name->leases);
    name->len = text.n;
    memcpy(name->text, text.p, text.n);
    map_put(l->names, (struct str){name->text, name->len}, name);
    return name;
}

static struct lease_ip *ip_of(struct leases *l, const struct ip *ip)
{
    struct lease_ip *i = map_get(l->ips, lease_ip_key(ip));
    if (i)
        return i;
    i = mem_new(sizeof *i);
    i->ip = *ip;
    list_init(&i->leases);
    map_put(l->ips, lease_ip_key(&i->ip), i);
    return i;
}

static struct lease *lease_of(struct leases *l, struct lease_name *name, const struct ip *ip)
{
    struct lease *lease = find(l, name, ip);
    if (lease)
        return lease;
    lease = mem_new(sizeof *lease);
    lease->name = name;
    lease->ip = ip_of(l, ip);
    list_push(&name->leases, &lease->in_name);
    list_push(&lease->ip->leases, &lease->in_ip);
    name->n++;
    lease->ip->n++;
    l->n++;
    return lease;
}

static void drop_name_if_empty(struct leases *l, struct lease_name *name)
{
    if (!list_empty(&name->leases))
        return;
    map_del(l->names, (struct str){name->text, name->len});
    mem_free(name);
}

static void drop_ip_if_empty(struct leases *l, struct lease_ip *ip)
{
    if (!list_empty(&ip->leases))
        return;
    map_del(l->ips, lease_ip_key(&ip->ip));
    mem_free(ip);
}

void lease_drop(struct leases *l, struct lease *lease)
{
    list_del(&lease->in_name);
    list_del(&lease->in_ip);
    lease->name->n--;
    lease->ip->n--;
    l->n--;
    drop_name_if_empty(l, lease->name);
    drop_ip_if_empty(l, lease->ip);
    mem_free(lease);
}

/* The end of a list lies in an address that goes with its last lease: it is only compared. */
void lease_drop_if(struct leases *l, bool (*over)(const struct lease *lease, uint64_t now_ms),
                   uint64_t now_ms)
{
    size_t at = 0;
    for (struct lease_ip *ip; (ip = map_next(l->ips, &at));) {
        const struct list *end = &ip->leases;
        for (struct list *it = end->next, *next; it != end; it = next) {
            struct lease *lease = container_of(it, struct lease, in_ip);
            next = it->next;
            if (over(lease, now_ms))
                lease_drop(l, lease);
        }
    }
}

static bool always(const struct lease *lease, uint64_t now_ms)
{
    (void)lease;
    (void)now_ms;
    return true;
}

void leases_free(struct leases *l)
{
    if (!l)
        return;
    lease_drop_if(l, always, 0);
    for (struct list *o; (o = list_pop(&l->orders));)
        mem_free(container_of(o, struct lease_order, link));
    map_free(l->names);
    map_free(l->ips);
    mem_free(l);
}

/* Is it over for longer than a poll takes to see whether it is in use? */
static bool is_long_over(const struct lease *lease, uint64_t now_ms)
{
    return !lease->ip->active && now_ms > lease_end(lease) + LEASES_POLL_MS &&
           now_ms > lease->asked + PENDING_MS;
}

static void sweep(struct leases *l, uint64_t now_ms)
{
    if (l->swept && now_ms < l->swept + SWEEP_MS)
        return;
    l->swept = now_ms;
    lease_drop_if(l, is_long_over, now_ms);
}

/* ---- orders */

static void raise(uint64_t *until, uint64_t to)
{
    if (*until < to)
        *until = to;
}

void lease_ip_raise(struct lease_ip *ip, unsigned kinds, uint64_t until)
{
    for (unsigned k = 0; k < LEASE_KINDS; k++)
        if (kinds & 1u << k) {
            raise(&ip->until[k], until);
            raise(&ip->asked[k], until);
        }
}

static struct lease *ordered(struct leases *l, const struct lease_order *o, size_t i)
{
    struct lease_name *name = map_get(l->names, o->name);
    return name ? find(l, name, &o->address[i].ip) : NULL;
}

/* The kernel keeps the address of an order until then: so do its leases, but for those that came
 * meanwhile and want it in other sets too. */
static void start_all(struct lease_ip *ip, unsigned kinds, uint64_t until)
{
    list_each(it, &ip->leases)
    {
        struct lease *lease = container_of(it, struct lease, in_ip);
        if (lease->until && (lease->name->kinds & ~kinds) == 0)
            raise(&lease->until, until);
    }
}

static void drop_unstarted(struct leases *l, const struct lease_order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct lease *lease = ordered(l, o, i);
        if (lease && lease->until == 0)
            lease_drop(l, lease);
    }
}

static unsigned kinds_of(struct leases *l, const struct ip *ip)
{
    struct lease_ip *i = map_get(l->ips, lease_ip_key(ip));
    unsigned kinds = 0;
    if (!i)
        return 0;
    list_each(it, &i->leases) kinds |= container_of(it, struct lease, in_ip)->name->kinds;
    return kinds;
}

/* What an order opened and nobody wants there any more is closed again. */
static void take_back(struct leases *l, const struct lease_order *o, const struct ip *ip)
{
    unsigned kinds = kinds_of(l, ip), surplus = o->kinds & ~kinds;
    struct lease_gone gone = {*ip, surplus, (kinds & (LEASE_ALWAYS | LEASE_USER)) == 0};
    if (l->told && surplus)
        l->kernel.withdraw(l->kernel.user, &gone, 1);
}

/* The kernel has an address of an order.  False: the order's own lease has gone meanwhile. */
static bool carried_out(struct leases *l, const struct lease_order *o, size_t i)
{
    const struct lease_address *a = &o->address[i];
    uint64_t until = o->at + 1000ull * a->seconds;
    struct lease_ip *ip = map_get(l->ips, lease_ip_key(&a->ip));
    struct lease *lease = ordered(l, o, i);
    unsigned kinds = o->kinds;
    if (!lease) { /* otherwise all its kinds are wanted: the policy is the same */
        take_back(l, o, &a->ip);
        kinds &= kinds_of(l, &a->ip);
    }
    if (ip)
        lease_ip_raise(ip, kinds, until);
    if (ip && o->what == ORDER_FOR_ALL)
        start_all(ip, o->kinds, until);
    if (lease && o->what == ORDER_FOR_NAME)
        raise(&lease->until, until);
    return lease != NULL;
}

static bool all_wanted(struct leases *l, const struct lease_order *o)
{
    for (size_t i = 0; i < o->n; i++)
        if (!ordered(l, o, i))
            return false;
    return true;
}

/* An order from before a change of the policy: of what it opened the change may have closed some
 * again or not, so all that is still wanted is asked for anew.  True: done() will come of it. */
static bool ask_anew(struct leases *l, const struct lease_order *o)
{
    const struct lease_name *name = map_get(l->names, o->name);
    for (size_t i = 0; i < o->n; i++)
        take_back(l, o, &o->address[i].ip);
    if (o->what == ORDER_FOR_NAME && name && all_wanted(l, o)) {
        lease_ask(l, o->name, name->kinds, o->address, o->n, o->at, o->done, o->arg);
        return true;
    }
    for (size_t i = 0; i < o->n; i++) {
        unsigned kinds = kinds_of(l, &o->address[i].ip);
        if (kinds)
            lease_ask_address(l, ORDER_FOR_SETS, o->name, kinds, &o->address[i], o->at);
    }
    return false;
}

static void on_ordered(void *arg, bool ok)
{
    struct lease_order *o = arg;
    struct leases *l = o->leases;
    bool stale = o->policy != l->policy, all = ok && !stale, again = false;
    list_del(&o->link);
    for (size_t i = 0; ok && !stale && i < o->n; i++)
        all &= carried_out(l, o, i);
    if (!ok) {
        l->failed++;
        drop_unstarted(l, o);
    }
    if (ok && stale)
        again = ask_anew(l, o);
    if (!again && o->done)
        o->done(o->arg, all);
    mem_free(o);
}

static void place(struct leases *l, struct lease_order *o)
{
    list_push(&l->orders, &o->link);
    if (l->told)
        l->kernel.learn(l->kernel.user, o->name, o->address, o->n, o->kinds, on_ordered, o);
    else
        on_ordered(o, true);
}

/* A set's time for an address is made anew by each order, so none may ask for less than another
 * did. */
static void ask_for_longest(struct leases *l, struct lease_order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct lease_ip *ip = map_get(l->ips, lease_ip_key(&o->address[i].ip));
        uint64_t until = o->at + 1000ull * o->address[i].seconds;
        for (unsigned k = 0; ip && k < LEASE_KINDS; k++)
            if (o->kinds & 1u << k)
                raise(&until, ip->asked[k]);
        o->address[i].seconds = (unsigned)((until - o->at + 999) / 1000);
        for (unsigned k = 0; ip && k < LEASE_KINDS; k++)
            if (o->kinds & 1u << k)
                raise(&ip->asked[k], o->at + 1000ull * o->address[i].seconds);
    }
}

static struct lease_order *order_new(struct leases *l, struct str name, unsigned kinds,
                                     const struct lease_address *list, size_t n, uint64_t now_ms)
{
    struct lease_order *o = mem_new(sizeof *o + n * sizeof *list + name.n);
    *o = (struct lease_order){
        .leases = l, .at = now_ms, .kinds = kinds, .policy = l->policy, .n = n};
    memcpy(o->address, list, n * sizeof *list);
    memcpy((char *)(o->address + n), name.p, name.n);
    o->name = (struct str){(char *)(o->address + n), name.n};
    ask_for_longest(l, o);
    return o;
}

void lease_ask(struct leases *l, struct str name, unsigned kinds, const struct lease_address *list,
               size_t n, uint64_t now_ms, void (*done)(void *arg, bool ok), void *arg)
{
    struct lease_order *o = order_new(l, name, kinds, list, n, now_ms);
    o->done = done;
    o->arg = arg;
    place(l, o);
}

void lease_ask_address(struct leases *l, enum order_for what, struct str name, unsigned kinds,
                       const struct lease_address *address, uint64_t now_ms)
{
    struct lease_order *o = order_new(l, name, kinds, address, 1, now_ms);
    o->what = what;
    place(l, o);
}

void leases_forget(struct leases *l, void *arg)
{
    list_each(it, &l->orders)
    {
        struct lease_order *o = container_of(it, struct lease_order, link);
        if (o->arg == arg)
            o->done = NULL;
    }
}

/* ---- handing out */

unsigned leases_kinds_of(const struct gate_rules *rules, struct str name,
                         const struct policy_answer *judged)
{
    if (!judged->allow)
        return 0;
    unsigned kind = judged->layer == LAYER_ALLOW ? LEASE_ALWAYS : LEASE_USER;
    return kind | (gate_is_bound(rules, name) ? LEASE_BOUND : 0u);
}

unsigned leases_kinds(const struct gate_rules *rules, struct str name)
{
    struct policy_answer judged = policy_name(rules->policy, name);
    return leases_kinds_of(rules, name, &judged);
}

/* Does the kernel keep the address for all these kinds until then? */
static bool kept_until(const struct lease_ip *ip, unsigned kinds, uint64_t until)
{
    for (unsigned k = 0; k < LEASE_KINDS; k++)
        if (kinds & 1u << k && ip->until[k] < until)
            return false;
    return true;
}

/* How long a lease must run for this answer, if it may stay as it is. */
static unsigned seconds_needed(uint32_t ttl, bool exact)
{
    if (exact)
        return lease_seconds(ttl);
    return ttl < SHORTEST_S ? SHORTEST_S : ttl < LONGEST_TTL_S ? ttl : LONGEST_TTL_S;
}

bool leases_held(const struct leases *l, struct str name, unsigned kinds,
                 const struct gate_learned *learned, bool exact, uint64_t now_ms)
{
    const struct lease_name *entry = map_get(l->names, name);
    if (!entry)
        return learned->n == 0;
    for (unsigned i = 0; i < learned->n; i++) {
        const struct lease *lease = find(l, entry, &learned->at[i].ip);
        uint64_t need = now_ms + 1000ull * seconds_needed(learned->at[i].ttl, exact);
        if (!lease || lease->until < need || !kept_until(lease->ip, kinds, need))
            return false;
    }
    return true;
}

/* Notes the wanted leases, and of these the ones to ask for in `list`; returns their number. */
static size_t note(struct leases *l, struct lease_name *name, unsigned kinds,
                   const struct gate_learned *learned, bool exact, uint64_t now_ms,
                   struct lease_address *list)
{
    size_t n = 0;
    for (unsigned i = 0; i < learned->n; i++) {
        const struct gate_address *a = &learned->at[i];
        struct lease *lease = lease_of(l, name, &a->ip);
        uint64_t need = now_ms + 1000ull * seconds_needed(a->ttl, exact);
        lease->asked = now_ms;
        if (lease->until >= need && kept_until(lease->ip, kinds, need))
            continue;
        list[n++] = (struct lease_address){a->ip, lease_seconds(a->ttl)};
    }
    return n;
}

static unsigned count_new(const struct leases *l, struct str text,
                          const struct gate_learned *learned, unsigned *ret_name_has)
{
    const struct lease_name *name = map_get(l->names, text);
    unsigned n = 0;
    *ret_name_has = name ? name->n : 0;
    for (unsigned i = 0; i < learned->n; i++)
        n += !name || !find(l, name, &learned->at[i].ip);
    return n;
}

static bool fits(struct leases *l, struct str name, const struct gate_learned *learned,
                 uint64_t now_ms)
{
    for (int swept = 0; swept < 2; swept++) {
        unsigned has, more = count_new(l, name, learned, &has);
        if (more == 0 || (has + more <= l->limits.per_name && l->n + more <= l->limits.total))
            return true;
        if (swept == 0)
            sweep(l, now_ms);
    }
    l->full++;
    return false;
}

enum lease_answer leases_take(struct leases *l, struct str name, unsigned kinds,
                              const struct gate_learned *learned, bool exact, uint64_t now_ms,
                              void (*done)(void *arg, bool ok), void *arg)
{
    struct lease_address list[GATE_ADDRESSES];
    assert(kinds & (LEASE_ALWAYS | LEASE_USER) && learned->n <= GATE_ADDRESSES);
    if (learned->n == 0)
        return LEASES_HELD;
    if (!fits(l, name, learned, now_ms))
        return LEASES_FULL;
    struct lease_name *entry = name_of(l, name);
    entry->kinds = kinds;
    size_t n = note(l, entry, kinds, learned, exact, now_ms, list);
    if (n == 0)
        return LEASES_HELD;
    lease_ask(l, name, kinds, list, n, now_ms, done, arg);
    return LEASES_ASKED;
}

void leases_restore(struct leases *l, const struct lease_fresh *found, uint64_t now_ms)
{
    const struct lease_address *a = &found->address;
    if (l->n >= l->limits.total)
        return;
    struct lease_name *name = name_of(l, found->name);
    struct lease *lease = lease_of(l, name, &a->ip);
    name->kinds |= found->kinds;
    raise(&lease->until, now_ms + 1000ull * a->seconds);
    lease_ip_raise(lease->ip, found->kinds, lease->until);
}

/* ---- questions */

uint64_t leases_until(const struct leases *l, struct str name, const struct ip *ip)
{
    const struct lease_name *entry = map_get(l->names, name);
    const struct lease *lease = entry ? find(l, entry, ip) : NULL;
    return lease ? lease->until : 0;
}

bool leases_covers(const struct leases *l, struct str name, const struct ip *ip, uint64_t now_ms)
{
    return leases_until(l, name, ip) > now_ms;
}

enum learned leases_learned(const struct leases *l, const struct ip *ip, uint64_t now_ms,
                            bool *ret_bound)
{
    struct lease_ip *i = map_get(l->ips, lease_ip_key(ip));
    enum learned best = LEARNED_NOT;
    *ret_bound = false;
    if (!i)
        return best;
    list_each(it, &i->leases)
    {
        const struct lease *lease = container_of(it, struct lease, in_ip);
        if (lease->until <= now_ms)
            continue;
        *ret_bound |= (lease->name->kinds & LEASE_BOUND) != 0;
        if (lease->name->kinds & LEASE_ALWAYS)
            best = LEARNED_ALWAYS;
        else if (best == LEARNED_NOT)
            best = LEARNED_USER;
    }
    return best;
}

struct leases_counts leases_counts(const struct leases *l)
{
    return (struct leases_counts){.leases = l->n,
                                  .names = (unsigned)map_size(l->names),
                                  .addresses = (unsigned)map_size(l->ips),
                                  .full = l->full,
                                  .failed = l->failed};
}
