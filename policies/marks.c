/* marks.c — bits by words: marks of long texts cost a sixty-fourth of their length. */
#include "policies/marks.h"

void marks_set(uint64_t *bits, size_t from, size_t to)
{
    if (from >= to)
        return;
    size_t first = from / 64, last = (to - 1) / 64;
    uint64_t head = UINT64_MAX << from % 64, tail = UINT64_MAX >> (63 - (to - 1) % 64);
    if (first == last) {
        bits[first] |= head & tail;
        return;
    }
    bits[first] |= head;
    for (size_t i = first + 1; i < last; i++)
        bits[i] = UINT64_MAX;
    bits[last] |= tail;
}

size_t marks_next(const uint64_t *bits, size_t n, size_t from, bool so)
{
    uint64_t flip = so ? 0 : UINT64_MAX, head = UINT64_MAX << from % 64;
    for (size_t word = from / 64; word * 64 < n; word++, head = UINT64_MAX) {
        uint64_t found = (bits[word] ^ flip) & head;
        size_t at = word * 64 + (found ? (size_t)__builtin_ctzll(found) : 64);
        if (found)
            return at < n ? at : n;
    }
    return n;
}
