/* match_impl.h — what match_build.c makes and match.c reads: one block in the memory of secrets. */
#ifndef POLICIES_MATCH_IMPL_H
#define POLICIES_MATCH_IMPL_H

#include "base/secret.h"
#include "policies/match.h"
#include "policies/pairs.h"

/* A string is looked for by one of its pairs of bytes, `at` bytes from its beginning. */
struct anchor {
    uint16_t pair;
    uint32_t at, string;
};

struct matcher {
    const struct matcher *base; /* lent */
    struct secret *memory;      /* where all of this lies */
    size_t longest;
    const struct str *strings; /* in the order of str_cmp() */
    unsigned nstrings;
    const struct anchor *anchors; /* by pair; one of each string of two bytes and more */
    unsigned nanchors;
    const uint8_t *singles; /* 256, which strings of one byte there are; NULL: none */
    struct pairs middles;   /* those of the anchors */
    struct pairs heads;     /* with which the strings begin */
};

#endif
