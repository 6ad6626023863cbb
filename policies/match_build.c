/* match_build.c — sorts the strings of a matcher and chooses for each the pair of bytes it is
 * looked for by: one that others have already, so that the sieve has few, else the one that answers
 * hold least often.  A request may bring strings of its own, so this must be quick for a few. */
#include <assert.h>
#include <stdlib.h>

#include "policies/match_impl.h"

enum {
    LOOKED_AT = 256, /* of a string, for a pair */
    SHARED_MAX = 8,  /* strings that one pair stands for, while there are others */
    MANY = 64,       /* strings */
    PAIRS = 65536,
    PAIR_BITS = PAIRS / 64,
    ALIGN = 16,
};

/* Bytes of answers (JSON, markup, base64, text), those met most often first. */
static const char common[] =
    " etaoinsrlhdcup\"mgf,:.-/0b12_=3v45w\n6798yk{}<>;xTSACjEIqzRDMPLNBOFHUGWVJKYQXZ"
    "()[]'\\&%+#!?*|@$\r\t";

struct build {
    struct str *strings;
    unsigned nstrings;
    struct anchor *anchors;
    unsigned nanchors;
    uint16_t *middles, *heads;
    unsigned nmiddles, nheads;
    bool singles;
    size_t bytes; /* of all strings */
    unsigned cost[256];
    uint64_t used[PAIR_BITS];
    unsigned *users; /* of each pair, where there are many strings; else NULL */
};

static int by_bytes(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static int by_length(const void *a, const void *b)
{
    const struct anchor *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_pair(const void *a, const void *b)
{
    const struct anchor *x = a, *y = b;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

/* In order, each once. */
static void take_strings(struct build *b, const struct str *at, unsigned n)
{
    unsigned taken = 0;
    for (unsigned i = 0; i < n; i++)
        if (at[i].n)
            b->strings[taken++] = at[i];
    qsort(b->strings, taken, sizeof *b->strings, by_bytes);
    for (unsigned i = 0; i < taken; i++) {
        if (b->nstrings && str_eq(b->strings[b->nstrings - 1], b->strings[i]))
            continue;
        b->strings[b->nstrings++] = b->strings[i];
        b->bytes += b->strings[i].n;
    }
}

/* ---- anchors */

static void weigh_bytes(struct build *b)
{
    for (unsigned i = 0; i < sizeof common - 1; i++)
        b->cost[(uint8_t)common[i]] = sizeof common - i;
    b->cost[0] = b->cost[255] = sizeof common / 2; /* of what is no text */
}

/* Counted for few, since a request brings a few of its own and a table would cost more. */
static unsigned users_of(const struct build *b, unsigned before, uint16_t pair)
{
    unsigned n = 0;
    if (b->users)
        return b->users[pair];
    if (b->used[pair / 64] >> pair % 64 & 1)
        for (unsigned i = 0; i < before; i++)
            n += b->anchors[i].pair == pair;
    return n;
}

static unsigned cost_of(const struct build *b, unsigned before, uint16_t pair)
{
    unsigned users = users_of(b, before, pair), bytes = b->cost[pair >> 8] + b->cost[pair & 255];
    if (users == 0)
        return 1 + bytes;
    return users < SHARED_MAX ? 0 : users * sizeof common * 2;
}

/* Anchor `index`; those before it are chosen. */
static void choose(struct build *b, unsigned index)
{
    struct anchor *a = &b->anchors[index];
    struct str s = b->strings[a->string];
    size_t places = s.n - 1 < LOOKED_AT ? s.n - 1 : LOOKED_AT;
    unsigned least = UINT32_MAX;
    for (size_t i = 0; i < places && least > 0; i++) {
        unsigned cost = cost_of(b, index, pair_at(s.p + i));
        if (cost >= least)
            continue;
        least = cost;
        a->at = (uint32_t)i;
        a->pair = pair_at(s.p + i);
    }
    b->used[a->pair / 64] |= UINT64_C(1) << a->pair % 64;
    if (b->users)
        b->users[a->pair]++;
}

/* Short strings first: longer ones often hold them. */
static void choose_all(struct build *b)
{
    for (unsigned i = 0; i < b->nstrings; i++) {
        struct str s = b->strings[i];
        assert(s.n <= UINT32_MAX);
        if (s.n == 1)
            b->singles = true;
        else
            b->anchors[b->nanchors++] = (struct anchor){.at = (uint32_t)s.n, .string = i};
    }
    qsort(b->anchors, b->nanchors, sizeof *b->anchors, by_length);
    if (b->nanchors > MANY)
        b->users = mem_new(PAIRS * sizeof *b->users);
    for (unsigned i = 0; i < b->nanchors; i++)
        choose(b, i);
    if (b->users)
        mem_free_wiped(b->users);
    b->users = NULL;
    qsort(b->anchors, b->nanchors, sizeof *b->anchors, by_pair);
}

static void put_pair(uint16_t *list, unsigned *n, uint16_t pair)
{
    if (*n == 0 || list[*n - 1] != pair)
        list[(*n)++] = pair;
}

static void list_pairs(struct build *b)
{
    for (unsigned i = 0; i < b->nanchors; i++)
        put_pair(b->middles, &b->nmiddles, b->anchors[i].pair);
    for (unsigned i = 0; i < b->nstrings; i++)
        if (b->strings[i].n > 1)
            put_pair(b->heads, &b->nheads, pair_at(b->strings[i].p));
}

/* ---- the block */

/* Gives out parts of it one after the other; at NULL: only counts. */
struct block {
    char *at;
    size_t used;
};

static void *part(struct block *block, size_t n)
{
    void *p = block->at ? block->at + block->used : NULL;
    block->used += (n + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static struct pairs_table *table_part(struct block *block, unsigned n)
{
    return n > PAIRS_QUICK ? part(block, sizeof(struct pairs_table)) : NULL;
}

static void fill_strings(const struct build *b, struct matcher *m, struct str *strings, char *bytes,
                         uint8_t *singles)
{
    for (unsigned i = 0; i < b->nstrings; i++) {
        struct str s = b->strings[i];
        memcpy(bytes, s.p, s.n);
        strings[i] = (struct str){bytes, s.n};
        bytes += s.n;
        if (s.n > m->longest)
            m->longest = s.n;
        if (s.n == 1)
            singles[(uint8_t)s.p[0]] = 1;
    }
    m->strings = strings;
    m->nstrings = b->nstrings;
    m->singles = singles;
}

/* Once with a block of nothing, to see how large it must be. */
static struct matcher *lay_out(const struct build *b, struct block *block)
{
    struct matcher *m = part(block, sizeof *m);
    struct str *strings = part(block, b->nstrings * sizeof *strings);
    struct anchor *anchors = part(block, b->nanchors * sizeof *anchors);
    uint8_t *singles = b->singles ? part(block, 256) : NULL;
    struct pairs_table *middles = table_part(block, b->nmiddles),
                       *heads = table_part(block, b->nheads);
    char *bytes = part(block, b->bytes);
    if (!m)
        return NULL;
    fill_strings(b, m, strings, bytes, singles);
    if (b->nanchors)
        memcpy(anchors, b->anchors, b->nanchors * sizeof *anchors);
    m->anchors = anchors;
    m->nanchors = b->nanchors;
    pairs_init(&m->middles, b->middles, b->nmiddles, middles);
    pairs_init(&m->heads, b->heads, b->nheads, heads);
    return m;
}

static struct matcher *make(struct build *b, const struct matcher *base)
{
    struct block block = {0};
    (void)lay_out(b, &block);
    struct secret *memory = secret_make(block.used, &block.at);
    block.used = 0;
    struct matcher *m = lay_out(b, &block);
    m->memory = memory;
    m->base = base;
    return m;
}

struct matcher *matcher_over(const struct matcher *base, const struct str *at, unsigned n)
{
    struct build *b = mem_new(sizeof *b);
    b->strings = mem_new((n + 1) * sizeof *b->strings);
    b->anchors = mem_new((n + 1) * sizeof *b->anchors);
    b->middles = mem_new((n + 1) * sizeof *b->middles);
    b->heads = mem_new((n + 1) * sizeof *b->heads);
    weigh_bytes(b);
    take_strings(b, at, n);
    choose_all(b);
    list_pairs(b);
    struct matcher *m = b->nstrings ? make(b, base) : NULL;
    mem_free_wiped(b->heads);
    mem_free_wiped(b->middles);
    mem_free_wiped(b->anchors);
    mem_free(b->strings);
    mem_free_wiped(b);
    return m;
}
