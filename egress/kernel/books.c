/* books.c — a map from address to what was told of it.  An address is in up to four sets, each with
 * a name and an end of its own, as in the kernel. */
#include "egress/kernel/books.h"

#include <stdlib.h>

#include "base/map.h"
#include "egress/kernel/elements_impl.h"

enum { KINDS = 4, LEAST_MS = 1000, SAME_S = 5, ENDING_S = 2 };

struct book {
    struct ip ip;
    uint64_t until[KINDS]; /* 0: not in this set */
    bool late[KINDS];      /* swept, and kept for a while */
    char *name[KINDS];
};

struct books {
    struct map *map;
    unsigned count[KINDS];
};

static struct str key_of(const struct ip *ip)
{
    return (struct str){(const char *)ip->b, sizeof ip->b};
}

struct books *books_new(void)
{
    struct books *b = mem_new(sizeof *b);
    b->map = map_new();
    return b;
}

static void book_free(struct book *k)
{
    for (unsigned i = 0; i < KINDS; i++)
        mem_free(k->name[i]);
    mem_free(k);
}

void books_free(struct books *b)
{
    size_t at = 0;
    if (!b)
        return;
    for (struct book *k; (k = map_next(b->map, &at));)
        book_free(k);
    map_free(b->map);
    mem_free(b);
}

/* ---- what is told */

static struct book *book_of(struct books *b, const struct ip *ip)
{
    struct book *k = map_get(b->map, key_of(ip));
    if (k)
        return k;
    k = mem_new(sizeof *k);
    k->ip = *ip;
    map_put(b->map, key_of(&k->ip), k);
    return k;
}

/* A name that is too long for the kernel is not there. */
static void set_name(struct book *k, unsigned i, struct str name)
{
    if (name.n > ELEMENT_COMMENT_MAX)
        name = STR_NONE;
    if (k->name[i] && str_eq(str_of(k->name[i]), name))
        return;
    mem_free(k->name[i]);
    k->name[i] = mem_strdup(name);
}

void books_learn(struct books *b, const struct sets_address *list, size_t n, uint64_t now_ms)
{
    for (size_t i = 0; i < n; i++) {
        struct book *k = book_of(b, &list[i].ip);
        for (unsigned s = 0; s < KINDS; s++) {
            if (!(list[i].kinds & 1u << s))
                continue;
            b->count[s] += k->until[s] == 0 || k->late[s];
            k->late[s] = false;
            k->until[s] = now_ms + 1000ull * list[i].seconds + 1;
            set_name(k, s, list[i].name);
        }
    }
}

static void leave(struct books *b, struct book *k, unsigned s)
{
    b->count[s] -= k->until[s] != 0 && !k->late[s];
    k->until[s] = 0;
    k->late[s] = false;
    mem_free(k->name[s]);
    k->name[s] = NULL;
}

static bool is_empty(const struct book *k)
{
    uint64_t any = 0;
    for (unsigned s = 0; s < KINDS; s++)
        any |= k->until[s];
    return any == 0;
}

static void drop_if_empty(struct books *b, struct book *k)
{
    if (!is_empty(k))
        return;
    map_del(b->map, key_of(&k->ip));
    book_free(k);
}

void books_forget(struct books *b, const struct sets_address *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct book *k = map_get(b->map, key_of(&list[i].ip));
        for (unsigned s = 0; k && s < KINDS; s++)
            if (list[i].kinds & 1u << s)
                leave(b, k, s);
        if (k)
            drop_if_empty(b, k);
    }
}

static void sweep(struct books *b, struct book *k, unsigned s, uint64_t now_ms)
{
    if (k->until[s] + BOOKS_LATE_MS <= now_ms)
        leave(b, k, s);
    else if (k->until[s] <= now_ms && !k->late[s]) {
        b->count[s]--;
        k->late[s] = true;
    }
}

void books_sweep(struct books *b, uint64_t now_ms)
{
    size_t at = 0;
    for (struct book *k; (k = map_next(b->map, &at));) {
        for (unsigned s = 0; s < KINDS; s++)
            if (k->until[s])
                sweep(b, k, s, now_ms);
        drop_if_empty(b, k);
    }
}

/* ---- what is asked */

uint64_t books_until(const struct books *b, const struct ip *ip, unsigned kind)
{
    const struct book *k = map_get(b->map, key_of(ip));
    for (unsigned s = 0; k && s < KINDS; s++) {
        if (kind == 1u << s)
            return k->until[s];
    }
    return 0;
}

unsigned books_count(const struct books *b, unsigned kind)
{
    for (unsigned s = 0; s < KINDS; s++) {
        if (kind == 1u << s)
            return b->count[s];
    }
    return 0;
}

int books_order(const void *a, const void *b)
{
    const struct sets_address *x = a, *y = b;
    int order = memcmp(x->ip.b, y->ip.b, sizeof x->ip.b);
    return order ? order : (int)x->kinds - (int)y->kinds;
}

size_t books_list(const struct books *b, uint64_t now_ms, struct arena *a,
                  struct sets_address **ret)
{
    size_t n = 0, at = 0;
    struct sets_address *list = arena_get(a, (map_size(b->map) * KINDS + 1) * sizeof *list);
    for (struct book *k; (k = map_next(b->map, &at));) {
        for (unsigned s = 0; s < KINDS; s++) {
            if (k->until[s] < now_ms + LEAST_MS)
                continue;
            unsigned seconds = (unsigned)((k->until[s] - now_ms) / 1000);
            list[n++] =
                (struct sets_address){k->ip, 1u << s, seconds, arena_str(a, str_of(k->name[s]))};
        }
    }
    qsort(list, n, sizeof *list, books_order);
    *ret = list;
    return n;
}

static int by_ip(const void *a, const void *b)
{
    return memcmp(((const struct books_entry *)a)->ip.b, ((const struct books_entry *)b)->ip.b, 16);
}

/* Being bound only takes away, so that stays without asking. */
static unsigned kinds_late(const struct book *k, unsigned s, const struct policy *p)
{
    static const unsigned kinds[] = {
        [LEARNED_USER] = SETS_LEARNED, [LEARNED_ALWAYS] = SETS_LEARNED_ALWAYS};
    if (1u << s == SETS_BOUND)
        return SETS_BOUND;
    enum learned by = k->name[s][0] ? policy_learns(p, str_of(k->name[s])) : LEARNED_NOT;
    return by == LEARNED_NOT ? 0 : kinds[by];
}

static unsigned kinds_now(const struct book *k, uint64_t now_ms, const struct policy *late)
{
    unsigned kinds = 0;
    for (unsigned s = 0; s < KINDS; s++) {
        if (k->until[s] > now_ms)
            kinds |= 1u << s;
        else if (late && k->until[s] && k->until[s] + BOOKS_LATE_MS > now_ms)
            kinds |= kinds_late(k, s, late);
    }
    return kinds;
}

bool books_late_lose(const struct books *b, uint64_t now_ms, const struct policy *old,
                     const struct policy *fresh)
{
    size_t at = 0;
    for (const struct book *k; (k = map_next(b->map, &at));) {
        enum learned was = books_learned(kinds_now(k, now_ms, old));
        if (books_learned(kinds_now(k, now_ms, fresh)) < was)
            return true;
    }
    return false;
}

size_t books_copy(const struct books *b, uint64_t now_ms, const struct policy *late,
                  struct books_entry **ret)
{
    size_t n = 0, at = 0;
    struct books_entry *list = mem_new((map_size(b->map) + 1) * sizeof *list);
    for (const struct book *k; (k = map_next(b->map, &at));) {
        unsigned kinds = kinds_now(k, now_ms, late);
        if (kinds)
            list[n++] = (struct books_entry){k->ip, kinds};
    }
    qsort(list, n, sizeof *list, by_ip);
    *ret = list;
    return n;
}

unsigned books_kinds(const struct books_entry *list, size_t n, const struct ip *ip)
{
    struct books_entry wanted = {.ip = *ip};
    const struct books_entry *e = bsearch(&wanted, list, n, sizeof *list, by_ip);
    return e ? e->kinds : 0;
}

enum learned books_learned(unsigned kinds)
{
    if (kinds & SETS_LEARNED_ALWAYS)
        return LEARNED_ALWAYS;
    return kinds & SETS_LEARNED ? LEARNED_USER : LEARNED_NOT;
}

/* ---- what is there against what should be */

static bool differs(const struct sets_address *x, const struct sets_address *y)
{
    return x->seconds > y->seconds + SAME_S || y->seconds > x->seconds + SAME_S ||
           !str_eq(x->name, y->name);
}

void books_compare(const struct sets_address *there, size_t nthere,
                   const struct sets_address *wanted, size_t nwanted, struct arena *a,
                   struct books_diff *ret)
{
    struct books_diff d = {arena_get(a, (nthere + 1) * sizeof *d.forget),
                           arena_get(a, (nwanted + 1) * sizeof *d.learn), 0, 0};
    size_t t = 0, w = 0;
    while (t < nthere || w < nwanted) {
        int order = t == nthere ? 1 : w == nwanted ? -1 : books_order(&there[t], &wanted[w]);
        if (order == 0 && differs(&there[t], &wanted[w]))
            d.learn[d.nlearn++] = wanted[w];
        if (order < 0 && there[t].seconds > ENDING_S)
            d.forget[d.nforget++] = there[t];
        if (order > 0 && wanted[w].seconds > ENDING_S)
            d.learn[d.nlearn++] = wanted[w];
        t += order <= 0;
        w += order >= 0;
    }
    *ret = d;
}
