/* pairs.h — where in a text one of some pairs of bytes stands: the sieve in front of match.h. Pure.
 */
#ifndef POLICIES_PAIRS_H
#define POLICIES_PAIRS_H

#include "base/mem.h"

/* Up to so many pairs are looked for side by side, 16 bytes at a time; more by tables, which also
 * stop at some pairs that are none of them. */
enum { PAIRS_QUICK = 12 };

typedef uint8_t pairs_block __attribute__((vector_size(16)));

/* For each byte the groups of pairs that have it first, or second. */
struct pairs_table {
    uint32_t first[256], second[256];
};

struct pairs {
    unsigned n;
    pairs_block first[PAIRS_QUICK], second[PAIRS_QUICK]; /* each byte 16 times */
    struct pairs_table *table;                           /* n > PAIRS_QUICK */
};

static inline uint16_t pair_at(const char *p)
{
    return (uint16_t)((uint8_t)p[0] << 8 | (uint8_t)p[1]);
}

/* n different pairs in rising order; table: where n > PAIRS_QUICK, all zero, lent. */
void pairs_init(struct pairs *s, const uint16_t *list, unsigned n, struct pairs_table *table);
/* The first place from `from` on where one of the pairs begins and ends within [p, p + n); n: there
 * is none. */
size_t pairs_next(const struct pairs *s, const char *p, size_t n, size_t from);

#endif
