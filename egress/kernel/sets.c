/* sets.c — writes a policy's addresses into the kernel.  Only differences are sent, so the cost is
 * that of the change, not of the policy, and what stays is not touched: its open flows, its
 * timeouts, its packets in flight. */
#include "egress/kernel/sets_impl.h"

#include <errno.h>
#include <linux/netfilter.h>

#include "egress/kernel/elements_impl.h"

const char *const sets_maps[2][RANGE_KINDS] = {
    {"always4", "always4_ranges", "always6", "always6_ranges"},
    {"user4", "user4_ranges", "user6", "user6_ranges"},
};

const struct sets_name sets_names[SETS_NAMES] = {
    {SETS_LEARNED_ALWAYS, {"learned_always4", "learned_always6"}},
    {SETS_LEARNED, {"learned4", "learned6"}},
    {SETS_BOUND, {"bound4", "bound6"}},
    {SETS_PARENT, {"parent4", "parent6"}},
};

int sets_open(struct sets **ret)
{
    struct sets *s = mem_new(sizeof *s);
    int error = netlink_open(&s->nl, NETLINK_NETFILTER);
    if (error) {
        mem_free(s);
        return error;
    }
    *ret = s;
    return 0;
}

void sets_close(struct sets *s)
{
    if (!s)
        return;
    netlink_close(&s->nl);
    mem_free(s);
}

uint32_t sets_port(const struct sets *s)
{
    return mnl_socket_get_portid(s->nl.socket);
}

/* ---- rules */

/* The address after; false after the last one of its family. */
static bool next_ip(const struct ip *ip, struct ip *ret)
{
    unsigned first = ip_is_v4(ip) ? 12 : 0;
    *ret = *ip;
    for (unsigned i = 16; i-- > first;) {
        if (++ret->b[i] != 0)
            return true;
    }
    return false;
}

/* A range is its first address and, as an end that does not belong to it, the one after its last;
 * what reaches to the last address there is has no end. */
static void put_range(struct elements *e, const struct range *r, bool add, bool single)
{
    struct element one = {.chain = !add ? NULL : r->allow ? "pass" : "refuse"};
    struct ip after;
    one.key = element_key(&r->lo, &one.key_len);
    elements_put(e, &one);
    if (single || !next_ip(&r->hi, &after))
        return;
    struct element end = {.interval_end = true};
    end.key = element_key(&after, &end.key_len);
    elements_put(e, &end);
}

static void put_list(struct elements *e, const struct range_list *list, bool add, bool single,
                     const char *map)
{
    if (list->n == 0)
        return;
    elements_of(e, add, map);
    for (size_t i = 0; i < list->n; i++)
        put_range(e, &list->at[i], add, single);
}

static void put_layer(struct elements *e, const struct ranges *old, const struct ranges *fresh,
                      const char *const maps[RANGE_KINDS], struct arena *a)
{
    struct ranges was = {0}, is = ranges_joined(fresh, a);
    if (old)
        was = ranges_joined(old, a);
    struct ranges_change change = ranges_diff(&was, &is, a);
    for (unsigned k = 0; k < RANGE_KINDS; k++) {
        bool single = k == RANGES_V4_SINGLE || k == RANGES_V6_SINGLE;
        put_list(e, &change.remove[k], false, single, maps[k]);
        put_list(e, &change.add[k], true, single, maps[k]);
    }
}

static void put_default(struct elements *e, bool add)
{
    static const uint8_t families[] = {NFPROTO_IPV4, NFPROTO_IPV6};
    elements_of(e, add, SETS_FALLBACK);
    for (unsigned f = 0; f < 2; f++) {
        struct element one = {.key = &families[f], .key_len = 1, .chain = add ? "pass" : NULL};
        elements_put(e, &one);
    }
}

/* ---- learned addresses */

static bool has(const struct sets_address *a, unsigned kind, bool v4)
{
    return (a->kinds & kind) && ip_is_v4(&a->ip) == v4;
}

static void put_addresses(struct elements *e, bool add, const char *set, const struct ip *ips,
                          size_t n, bool v4, const struct element *like)
{
    elements_of(e, add, set);
    for (size_t i = 0; i < n; i++) {
        struct element one = *like;
        if (ip_is_v4(&ips[i]) != v4)
            continue;
        one.key = element_key(&ips[i], &one.key_len);
        elements_put(e, &one);
    }
}

/* Before 6.12 an element that is there keeps its timeout, whatever is said: so it is made to be
 * there, taken out, and put in. */
static void put_learned(struct elements *e, const char *set, const struct ip *ips, size_t n,
                        bool v4, const struct element *like)
{
    static const struct element bare = {0};
    put_addresses(e, true, set, ips, n, v4, like);
    put_addresses(e, false, set, ips, n, v4, &bare);
    put_addresses(e, true, set, ips, n, v4, like);
}

static void put_gone(struct elements *e, const struct sets_address *addresses, size_t n,
                     unsigned kind, bool v4, bool add)
{
    for (size_t i = 0; i < n; i++) {
        struct element one = {.timeout_ms = add ? 1000 : 0};
        if (!has(&addresses[i], kind, v4))
            continue;
        one.key = element_key(&addresses[i].ip, &one.key_len);
        elements_put(e, &one);
    }
}

/* As put_learned(), each with a name and time of its own. */
static void put_each(struct elements *e, const struct sets_address *list, size_t n, unsigned kind,
                     bool v4, bool add)
{
    for (size_t i = 0; i < n; i++) {
        struct element one = {0};
        if (!has(&list[i], kind, v4))
            continue;
        if (add) {
            one.timeout_ms = 1000u * (uint64_t)list[i].seconds;
            one.comment = list[i].name;
        }
        one.key = element_key(&list[i].ip, &one.key_len);
        elements_put(e, &one);
    }
}

static size_t count_kind(const struct sets_address *list, size_t n, unsigned kind, bool v4)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += has(&list[i], kind, v4);
    return count;
}

static void put_all_learned(struct elements *e, const struct sets_address *list, size_t n)
{
    for (unsigned s = 0; s < 2 * SETS_NAMES; s++) {
        const struct sets_name *set = &sets_names[s / 2];
        bool v4 = s % 2 == 0;
        size_t some = count_kind(list, n, set->kind, v4);
        for (unsigned pass = 0; some > 0 && pass < 3; pass++) {
            elements_of(e, pass != 1, set->name[s % 2]);
            put_each(e, list, n, set->kind, v4, pass != 1);
        }
    }
}

/* Taking out what has just run out would be an error: so here, too, it is made to be there first.
 */
static void put_forgotten(struct elements *e, const struct sets_address *addresses, size_t n)
{
    for (unsigned s = 0; s < 2 * SETS_NAMES; s++) {
        const struct sets_name *set = &sets_names[s / 2];
        size_t some = count_kind(addresses, n, set->kind, s % 2 == 0);
        for (int add = 1; some > 0 && add >= 0; add--) {
            elements_of(e, add, set->name[s % 2]);
            put_gone(e, addresses, n, set->kind, s % 2 == 0, add);
        }
    }
}

static size_t count_family(const struct ip *ips, size_t n, bool v4)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ip_is_v4(&ips[i]) == v4;
    return count;
}

/* ---- calls */

static void put_rules(struct elements *e, const struct sets_rules *old,
                      const struct sets_rules *fresh)
{
    struct arena a;
    arena_init(&a, NULL, 0);
    put_layer(e, old ? &old->always : NULL, &fresh->always, sets_maps[0], &a);
    put_layer(e, old ? &old->user : NULL, &fresh->user, sets_maps[1], &a);
    if ((old && old->allow) != fresh->allow)
        put_default(e, fresh->allow);
    arena_done(&a);
}

int sets_change(struct sets *s, const struct sets_rules *old, const struct sets_rules *fresh,
                const struct sets_address *forget, size_t nforget, const struct sets_address *learn,
                size_t nlearn)
{
    struct elements e;
    elements_begin(&e, &s->nl);
    if (fresh)
        put_rules(&e, old, fresh);
    put_forgotten(&e, forget, nforget);
    put_all_learned(&e, learn, nlearn);
    return elements_commit(&e);
}

int sets_replace(struct sets *s, const struct sets_rules *old, const struct sets_rules *fresh,
                 const struct sets_address *forget, size_t nforget)
{
    return sets_change(s, old, fresh, forget, nforget, NULL, 0);
}

int sets_learn(struct sets *s, struct str name, const struct ip *ips, size_t n, unsigned seconds,
               unsigned kinds)
{
    struct element like = {.timeout_ms = 1000u * (uint64_t)seconds, .comment = name};
    struct elements e;
    elements_begin(&e, &s->nl);
    for (unsigned i = 0; i < 2 * SETS_NAMES; i++) {
        const struct sets_name *set = &sets_names[i / 2];
        bool v4 = i % 2 == 0;
        if ((kinds & set->kind) && count_family(ips, n, v4) > 0)
            put_learned(&e, set->name[i % 2], ips, n, v4, &like);
    }
    return elements_commit(&e);
}

int sets_forget(struct sets *s, const struct sets_address *addresses, size_t n)
{
    struct elements e;
    elements_begin(&e, &s->nl);
    put_forgotten(&e, addresses, n);
    return elements_commit(&e);
}
