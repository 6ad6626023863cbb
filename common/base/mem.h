/* mem.h — text slices, allocation that does not fail, and arenas.
 *
 * Inside the program text is a `struct str`: not terminated, not owned.  Allocation never returns
 * NULL: what a peer can make us allocate is limited by counts before it gets here, and a process
 * that is out of memory all the same ends at once. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

/* One header field, as it came or as it goes (RFC 9110 section 5). */
struct field {
    struct str name, value;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_NONE ((struct str){NULL, 0})
/* For printf("%.*s", STR_ARG(s)). */
#define STR_ARG(s) (int)(s).n, (s).n ? (s).p : ""

static inline struct str str_of(const char *z)
{
    return (struct str){z, z ? strlen(z) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* s without its first n bytes; n must not be over its length. */
static inline struct str str_skip(struct str s, size_t n)
{
    return (struct str){n ? s.p + n : s.p, s.n - n};
}

/* s, cut to its first n bytes; n must not be over its length. */
static inline struct str str_head(struct str s, size_t n)
{
    return (struct str){s.p, n};
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* Equal when ASCII letters count without case. */
bool str_ieq(struct str a, struct str b);
bool str_starts(struct str s, struct str prefix);
bool str_istarts(struct str s, struct str prefix);
bool str_iends(struct str s, struct str suffix);
/* Position of the first `c`, or -1. */
ptrdiff_t str_chr(struct str s, char c);
/* Position of the last `c`, or -1. */
ptrdiff_t str_rchr(struct str s, char c);
/* Without blanks and tabs at both ends (OWS of RFC 9110 section 5.6.3). */
struct str str_trim(struct str s);
/* Cuts the next piece before `sep` off the front of *rest; false when *rest was used up (its p is
 * NULL then).  The text "a,,b" has three pieces, the empty text one. */
bool str_next(struct str *rest, char sep, struct str *ret_piece);
/* Orders by bytes, like memcmp, shorter first. */
int str_cmp(struct str a, struct str b);
/* A copy of s at *at, which moves on behind it; there is room. */
struct str str_put(char **at, struct str s);

/* Zeroed memory of n bytes; never NULL. */
void *mem_new(size_t n);
/* p grown or shrunk to n bytes, new bytes not zeroed; never NULL. */
void *mem_renew(void *p, size_t n);
void mem_free(void *p);
/* Gives back what p has beyond its first n bytes (n > 0, no more than it has), and p stays where it
 * is; of a block below 64 KiB.  Does nothing where the allocator is not known to be able to. */
void mem_cut(void *p, size_t n);
/* Overwrites n bytes in a way the compiler cannot leave out; then, of a block of the heap, frees it
 * (NULL is fine). */
void mem_wipe(void *p, size_t n);
void mem_free_wiped(void *p);
/* As mem_renew(), but what is left behind is wiped. */
void *mem_renew_wiped(void *p, size_t n);
/* A terminated copy of s on the heap; the caller frees it. */
char *mem_strdup(struct str s);
/* For a program that is to be small rather than quick with several threads: they share one heap,
 * and blocks of 128 KiB and more go back to the kernel when they are freed.  Before any thread. */
void mem_thrift(void);
/* Gives what is free back to the kernel, as far as it is whole pages.  Some 100 µs for each MiB,
 * while other threads that allocate may wait. */
void mem_trim(void);

/* An arena is memory that is given back all at once.  Its first block lies in whatever owns it,
 * later ones come from the heap and double up to 64 KiB; larger wishes get a block of their own. */
struct arena_block;
struct arena {
    struct arena_block *last;
    char *at, *end;
    size_t extra; /* bytes in blocks beyond the first */
    char *first;  /* private: the owner's bytes */
    size_t first_bytes;
    bool private;
};

/* Starts an arena on the owner's n bytes at `first` (may be NULL, 0). */
void arena_init(struct arena *a, void *first, size_t n);
/* The same, but all of its bytes are wiped when they are given back, the owner's too. */
void arena_init_private(struct arena *a, void *first, size_t n);
/* n bytes, aligned for anything, not zeroed; never NULL.  Valid until arena_done(). */
void *arena_get(struct arena *a, size_t n);
/* As arena_get(), zeroed. */
void *arena_zero(struct arena *a, size_t n);
/* A copy of s. */
struct str arena_str(struct arena *a, struct str s);
/* Two texts in a row. */
struct str arena_cat(struct arena *a, struct str x, struct str y);
/* Formatted text, without a terminator counted (there is one). */
struct str arena_printf(struct arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct str arena_vprintf(struct arena *a, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* Nothing more is taken from the blocks there are: what is unused of the last one is given back
 * where that can be done, and comes from new blocks from now on.  Returns how many of the owner's
 * bytes are in use; it may give back those behind them. */
size_t arena_seal(struct arena *a);
/* Frees the later blocks; the arena may be used again after arena_init(). */
void arena_done(struct arena *a);

#endif
