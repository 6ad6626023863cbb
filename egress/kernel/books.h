/* books.h — what the kernel has been told of learned addresses: in which sets each is, for which
 * name, until when.  So that sets somebody else has emptied can be filled again, and flows can be
 * judged without asking the kernel.  Time is an argument, in ms. */
#ifndef KERNEL_BOOKS_H
#define KERNEL_BOOKS_H

#include "egress/kernel/sets.h"
#include "policies/policy.h"

struct books;

struct books *books_new(void);
void books_free(struct books *b);

/* The kernel has learned this: each address with its name, seconds from now, kinds. */
void books_learn(struct books *b, const struct sets_address *list, size_t n, uint64_t now_ms);
/* Out of the sets of their kinds. */
void books_forget(struct books *b, const struct sets_address *list, size_t n);
enum { BOOKS_LATE_MS = 45000 };

/* What has run out is counted no more; it is known for BOOKS_LATE_MS, so that a flow that is open
 * to it can be found in use (LEASES_POLL_MS), and then dropped. */
void books_sweep(struct books *b, uint64_t now_ms);

/* All that runs for another second at least, one entry for each address and kind, in `a`; names
 * too.  Sorted by books_order(). */
size_t books_list(const struct books *b, uint64_t now_ms, struct arena *a,
                  struct sets_address **ret);
/* By address, then kind; for qsort. */
int books_order(const void *a, const void *b);
/* When an address leaves the set of this kind, in ms, which may be past; 0: it is not in it. */
uint64_t books_until(const struct books *b, const struct ip *ip, unsigned kind);
/* Addresses in the set of this kind. */
unsigned books_count(const struct books *b, unsigned kind);

/* An address, and which sets it is in. */
struct books_entry {
    struct ip ip;
    unsigned kinds;
};
/* Each address once, sorted; on the heap, the caller's.  One that has run out is there for
 * BOOKS_LATE_MS, as what the policy allows its name for; NULL: it is not. */
size_t books_copy(const struct books *b, uint64_t now_ms, const struct policy *late,
                  struct books_entry **ret);
/* Is an address that has run out, and may still be in use, worth less by the second policy? */
bool books_late_lose(const struct books *b, uint64_t now_ms, const struct policy *old,
                     const struct policy *fresh);
/* Kinds of an address in such a copy. */
unsigned books_kinds(const struct books_entry *list, size_t n, const struct ip *ip);
/* What kinds come to in a policy. */
enum learned books_learned(unsigned kinds);

/* What to do so that the sets hold what is wanted: both lists sorted by books_order().  Ends that
 * are a few seconds apart are the same.  The results lie in `a`. */
struct books_diff {
    struct sets_address *forget, *learn;
    size_t nforget, nlearn;
};
void books_compare(const struct sets_address *there, size_t nthere,
                   const struct sets_address *wanted, size_t nwanted, struct arena *a,
                   struct books_diff *ret);

#endif
