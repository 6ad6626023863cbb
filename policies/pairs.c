/* pairs.c — a few pairs are compared with 16 places of the text at once; the vectors are the
 * compiler's own, so the same lines are SSE2 and NEON, and plain words where there is neither. Many
 * pairs share 32 groups: a place is looked at where some group has its first byte and its second.
 */
#include "policies/pairs.h"

#include <assert.h>

enum { BLOCK = sizeof(pairs_block), GROUPS = 32 };

static pairs_block load(const char *p)
{
    pairs_block b;
    memcpy(&b, p, sizeof b);
    return b;
}

void pairs_init(struct pairs *s, const uint16_t *list, unsigned n, struct pairs_table *table)
{
    assert(n <= PAIRS_QUICK || table);
    *s = (struct pairs){.n = n, .table = n > PAIRS_QUICK ? table : NULL};
    for (unsigned i = 0; i < n && !s->table; i++) {
        s->first[i] = (pairs_block){0} + (uint8_t)(list[i] >> 8);
        s->second[i] = (pairs_block){0} + (uint8_t)list[i];
    }
    for (unsigned i = 0; i < n && s->table; i++) {
        uint32_t group = UINT32_C(1) << (uint64_t)i * GROUPS / n;
        s->table->first[list[i] >> 8] |= group;
        s->table->second[(uint8_t)list[i]] |= group;
    }
}

/* All bits of the bytes where a pair begins; BLOCK + 1 bytes are read. */
static inline pairs_block places(const struct pairs *s, const char *p)
{
    pairs_block a = load(p), b = load(p + 1), found = {0};
    for (unsigned i = 0; i < s->n; i++)
        found |= (pairs_block)(a == s->first[i]) & (pairs_block)(b == s->second[i]);
    return found;
}

static inline bool is_empty(pairs_block b)
{
    uint64_t words[2];
    memcpy(words, &b, sizeof words);
    return (words[0] | words[1]) == 0;
}

static size_t first_of(pairs_block b)
{
    size_t i = 0;
    while (i < BLOCK && !b[i])
        i++;
    return i;
}

/* Fewer bytes than a block reads. */
static size_t next_in_rest(const struct pairs *s, const char *p, size_t n, size_t from)
{
    char rest[BLOCK + 1] = {0};
    if (n - from < 2)
        return n;
    memcpy(rest, p + from, n - from);
    size_t at = from + first_of(places(s, rest));
    mem_wipe(rest, sizeof rest); /* they may be a secret's */
    return at < n - 1 ? at : n;
}

static size_t next_by_blocks(const struct pairs *s, const char *p, size_t n, size_t from)
{
    for (; n - from > 2 * BLOCK; from += 2 * BLOCK)
        if (!is_empty(places(s, p + from) | places(s, p + from + BLOCK)))
            break;
    for (; n - from > BLOCK; from += BLOCK) {
        pairs_block found = places(s, p + from);
        if (!is_empty(found))
            return from + first_of(found);
    }
    return next_in_rest(s, p, n, from);
}

static size_t next_by_table(const struct pairs *s, const char *p, size_t n, size_t from)
{
    const uint32_t *first = s->table->first, *second = s->table->second;
    for (; from + 1 < n; from++)
        if (first[(uint8_t)p[from]] & second[(uint8_t)p[from + 1]])
            return from;
    return n;
}

size_t pairs_next(const struct pairs *s, const char *p, size_t n, size_t from)
{
    if (from >= n || s->n == 0)
        return n;
    return s->table ? next_by_table(s, p, n, from) : next_by_blocks(s, p, n, from);
}
