/* match.h — many strings at once, anywhere in a text (contract egress-vault 14).  Immutable once
 * built; whoever reads a stream keeps the end that matcher_tail() names and puts it in front of the
 * next piece.
 *
 * A prefilter on rare pairs of bytes passes over what cannot begin a string at several GB/s; only
 * where it stops the strings themselves are compared. */
#ifndef POLICIES_MATCH_H
#define POLICIES_MATCH_H

#include "base/mem.h"

struct matcher;

/* These strings and those of base, which is lent and must live longer; base NULL: these alone.
 * They are copied into the memory of secrets; doubles count once, empty ones not.  NULL: none of
 * these is left. */
struct matcher *matcher_over(const struct matcher *base, const struct str *at, unsigned n);
void matcher_free(struct matcher *m); /* NULL is fine */
size_t matcher_longest(const struct matcher *m);

/* All occurrences of all strings in [p, p + n), overlapping ones too, in no order.  hit() is told
 * each as [at, at + len). */
void matcher_find(const struct matcher *m, const char *p, size_t n,
                  void (*hit)(void *user, size_t at, size_t len), void *user);
/* How many bytes at the end of [p, p + n) could be the beginning of a string that ends behind it:
 * the longest such. */
size_t matcher_tail(const struct matcher *m, const char *p, size_t n);

#endif
