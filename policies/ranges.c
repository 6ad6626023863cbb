/* ranges.c — ordered address rules as disjoint ranges.  Networks are nested or apart, never across
 * each other: sorted by their first address, wider ones first, they are walked once with a stack of
 * those that are open.  A network inside one that comes earlier in the list decides nothing and is
 * left out, so the innermost open one is always the one that decides. */
#include "policies/ranges.h"

#include <assert.h>
#include <stdlib.h>

enum { NESTED_MAX = 130 }; /* one network of each width, and one to spare */

struct net {
    struct ip lo, hi;
    uint32_t order; /* place in the list, 0 first */
    uint8_t prefix;
};

static int compare_ips(const struct ip *a, const struct ip *b)
{
    return memcmp(a->b, b->b, sizeof a->b);
}

static int compare_nets(const void *x, const void *y)
{
    const struct net *a = x, *b = y;
    int order = compare_ips(&a->lo, &b->lo);
    if (order != 0)
        return order;
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* The next address; all zeros behind the last. */
static struct ip after(struct ip ip)
{
    for (unsigned i = sizeof ip.b; i-- > 0 && ++ip.b[i] == 0;)
        ;
    return ip;
}

/* The one before; not for all zeros. */
static struct ip before(struct ip ip)
{
    for (unsigned i = sizeof ip.b; i-- > 0 && ip.b[i]-- == 0;)
        ;
    return ip;
}

/* ---- compiling */

struct walk {
    const struct range_rule *rules;
    struct range *out; /* numbered by place in the list */
    size_t n;
    const struct net *open[NESTED_MAX]; /* the innermost last */
    unsigned depth;
    struct ip at; /* where the next range begins */
    bool at_end;  /* the last address of all is decided */
};

static void emit(struct walk *w, struct ip hi)
{
    static const struct ip zero;
    uint32_t order = w->open[w->depth - 1]->order;
    w->out[w->n++] = (struct range){w->at, hi, order, w->rules[order].allow};
    w->at = after(hi);
    w->at_end = ip_eq(&w->at, &zero);
}

/* Ends the open networks that lie before `lo`; NULL: all of them. */
static void close_before(struct walk *w, const struct ip *lo)
{
    while (w->depth > 0) {
        const struct net *top = w->open[w->depth - 1];
        if (lo && compare_ips(&top->hi, lo) >= 0)
            return;
        /* nothing is left of one whose last part was decided inside it */
        if (!w->at_end && compare_ips(&w->at, &top->hi) <= 0)
            emit(w, top->hi);
        w->depth--;
    }
}

static void open_net(struct walk *w, const struct net *net)
{
    close_before(w, &net->lo);
    if (w->depth > 0) {
        if (w->open[w->depth - 1]->order < net->order)
            return;
        if (compare_ips(&w->at, &net->lo) < 0)
            emit(w, before(net->lo));
    }
    assert(w->depth < NESTED_MAX);
    w->open[w->depth++] = net;
    w->at = net->lo;
}

static struct range_list walk_nets(const struct range_rule *rules, const struct net *nets, size_t n,
                                   struct arena *a)
{
    struct walk w = {.rules = rules, .out = arena_get(a, (2 * n + 1) * sizeof(struct range))};
    for (size_t i = 0; i < n; i++)
        open_net(&w, &nets[i]);
    close_before(&w, NULL);
    return (struct range_list){w.out, w.n};
}

static const struct range *find_in(const struct range_list *list, const struct ip *ip)
{
    size_t lo = 0, hi = list->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare_ips(&list->at[mid].hi, ip) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < list->n && compare_ips(&list->at[lo].lo, ip) <= 0 ? &list->at[lo] : NULL;
}

/* The single addresses that are decided by their own rules and not by an earlier range. */
static struct range_list pick_singles(const struct range_rule *rules, const struct net *nets,
                                      size_t n, const struct range_list *wide, struct arena *a)
{
    struct range *out = arena_get(a, (n + 1) * sizeof *out);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct net *net = &nets[i];
        if (i > 0 && ip_eq(&nets[i - 1].lo, &net->lo))
            continue;
        const struct range *around = find_in(wide, &net->lo);
        if (!around || around->number > net->order)
            out[count++] = (struct range){net->lo, net->hi, net->order, rules[net->order].allow};
    }
    return (struct range_list){out, count};
}

/* The networks of one kind in the order of the walk. */
static struct net *pick_nets(const struct range_rule *rules, size_t n, enum range_kind kind,
                             struct arena *a, size_t *ret_n)
{
    struct net *nets = arena_get(a, (n + 1) * sizeof *nets);
    bool v4 = kind == RANGES_V4 || kind == RANGES_V4_SINGLE;
    bool single = kind == RANGES_V4_SINGLE || kind == RANGES_V6_SINGLE;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cidr *net = &rules[i].net;
        if (cidr_is_v4(net) == v4 && (net->prefix == 128) == single)
            nets[count++] = (struct net){net->ip, cidr_last(net), (uint32_t)i, net->prefix};
    }
    qsort(nets, count, sizeof *nets, compare_nets);
    *ret_n = count;
    return nets;
}

static void compile_family(const struct range_rule *rules, size_t n, enum range_kind singles,
                           enum range_kind wide, struct arena *scratch, struct arena *a,
                           struct ranges *ret)
{
    size_t count;
    struct net *nets = pick_nets(rules, n, wide, scratch, &count);
    ret->list[wide] = walk_nets(rules, nets, count, a);
    nets = pick_nets(rules, n, singles, scratch, &count);
    ret->list[singles] = pick_singles(rules, nets, count, &ret->list[wide], a);
}

struct ranges ranges_compile(const struct range_rule *rules, size_t n, struct arena *a)
{
    struct ranges r;
    struct arena scratch;
    arena_init(&scratch, NULL, 0);
    compile_family(rules, n, RANGES_V4_SINGLE, RANGES_V4, &scratch, a, &r);
    compile_family(rules, n, RANGES_V6_SINGLE, RANGES_V6, &scratch, a, &r);
    arena_done(&scratch);
    for (int kind = 0; kind < RANGE_KINDS; kind++) {
        struct range *at = (struct range *)r.list[kind].at; /* ours until it is handed out */
        for (size_t i = 0; i < r.list[kind].n; i++)
            at[i].number = rules[at[i].number].number;
    }
    return r;
}

const struct range *ranges_find(const struct ranges *r, const struct ip *ip)
{
    bool v4 = ip_is_v4(ip);
    const struct range *single = find_in(&r->list[v4 ? RANGES_V4_SINGLE : RANGES_V6_SINGLE], ip);
    return single ? single : find_in(&r->list[v4 ? RANGES_V4 : RANGES_V6], ip);
}

/* ---- for the kernel */

static struct range_list joined(const struct range_list *list, struct arena *a)
{
    struct range *out = arena_get(a, (list->n + 1) * sizeof *out);
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct range *r = &list->at[i];
        struct ip next = n > 0 ? after(out[n - 1].hi) : r->hi;
        if (n > 0 && out[n - 1].allow == r->allow && ip_eq(&next, &r->lo))
            out[n - 1].hi = r->hi;
        else
            out[n++] = *r;
    }
    return (struct range_list){out, n};
}

struct ranges ranges_joined(const struct ranges *r, struct arena *a)
{
    struct ranges j = *r;
    j.list[RANGES_V4] = joined(&r->list[RANGES_V4], a);
    j.list[RANGES_V6] = joined(&r->list[RANGES_V6], a);
    return j;
}

static int compare_ranges(const struct range *a, const struct range *b)
{
    int order = compare_ips(&a->lo, &b->lo);
    if (order == 0)
        order = compare_ips(&a->hi, &b->hi);
    return order ? order : (int)a->allow - (int)b->allow;
}

/* What is in x and not in y. */
static struct range_list missing(const struct range_list *x, const struct range_list *y,
                                 struct arena *a)
{
    struct range *out = arena_get(a, (x->n + 1) * sizeof *out);
    size_t n = 0;
    for (size_t i = 0, k = 0; i < x->n; i++) {
        while (k < y->n && compare_ranges(&y->at[k], &x->at[i]) < 0)
            k++;
        if (k == y->n || compare_ranges(&y->at[k], &x->at[i]) != 0)
            out[n++] = x->at[i];
    }
    return (struct range_list){out, n};
}

struct ranges_change ranges_diff(const struct ranges *old, const struct ranges *fresh,
                                 struct arena *a)
{
    static const struct ranges nothing;
    struct ranges_change c = {.n = 0};
    if (!old)
        old = &nothing;
    for (int kind = 0; kind < RANGE_KINDS; kind++) {
        c.remove[kind] = missing(&old->list[kind], &fresh->list[kind], a);
        c.add[kind] = missing(&fresh->list[kind], &old->list[kind], a);
        c.n += c.remove[kind].n + c.add[kind].n;
    }
    return c;
}
