/* marks.h — one bit for each byte of a text.  Pure. */
#ifndef POLICIES_MARKS_H
#define POLICIES_MARKS_H

#include "base/mem.h"

/* Words that n bytes need. */
static inline size_t marks_words(size_t n)
{
    return n / 64 + 1;
}

/* Sets the bits of [from, to). */
void marks_set(uint64_t *bits, size_t from, size_t to);
/* The first place in [from, n) whose bit is so; n: there is none. */
size_t marks_next(const uint64_t *bits, size_t n, size_t from, bool so);

#endif
