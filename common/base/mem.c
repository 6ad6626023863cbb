/* mem.c — text slices, allocation that ends the process rather than fail, and arenas.  An arena
 * only ever moves a mark forward: what a request needs lives exactly as long as the request, so
 * there is nothing to free one by one. */
#include "base/mem.h"

#include <assert.h>
#include <malloc.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- text slices ---- */

static bool same_letters(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ascii_lower(a[i]) != ascii_lower(b[i]))
            return false;
    return true;
}

bool str_ieq(struct str a, struct str b)
{
    return a.n == b.n && same_letters(a.p, b.p, a.n);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq(str_head(s, prefix.n), prefix);
}

bool str_istarts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && same_letters(s.p, prefix.p, prefix.n);
}

bool str_iends(struct str s, struct str suffix)
{
    if (s.n < suffix.n || suffix.n == 0)
        return suffix.n == 0;
    return same_letters(s.p + (s.n - suffix.n), suffix.p, suffix.n);
}

ptrdiff_t str_chr(struct str s, char c)
{
    const char *at = s.n ? memchr(s.p, c, s.n) : NULL;
    return at ? at - s.p : -1;
}

ptrdiff_t str_rchr(struct str s, char c)
{
    const char *at = s.n ? memrchr(s.p, c, s.n) : NULL;
    return at ? at - s.p : -1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct str str_trim(struct str s)
{
    while (s.n && is_blank(s.p[0]))
        s = str_skip(s, 1);
    while (s.n && is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

bool str_next(struct str *rest, char sep, struct str *ret_piece)
{
    if (!rest->p)
        return false;
    ptrdiff_t at = str_chr(*rest, sep);
    if (at < 0) {
        *ret_piece = *rest;
        *rest = STR_NONE;
        return true;
    }
    *ret_piece = str_head(*rest, (size_t)at);
    *rest = str_skip(*rest, (size_t)at + 1);
    return true;
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    if (order != 0)
        return order;
    return (a.n > b.n) - (a.n < b.n);
}

struct str str_put(char **at, struct str s)
{
    struct str copy = {*at, s.n};
    if (s.n)
        memcpy(*at, s.p, s.n);
    *at += s.n;
    return copy;
}

/* ---- the heap ---- */

static void *some(void *p)
{
    static const char text[] = "out of memory\n";
    if (p)
        return p;
    /* nothing that could allocate may be called here */
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        abort();
    abort();
}

/* calloc() has the pages of a large block zeroed by the kernel, but does not look into the thread's
 * cache of small ones. */
void *mem_new(size_t n)
{
    enum { SMALL = 1024 };
    if (n > SMALL)
        return some(calloc(1, n));
    return memset(some(malloc(n ? n : 1)), 0, n);
}

void *mem_renew(void *p, size_t n)
{
    return some(realloc(p, n ? n : 1));
}

void mem_free(void *p)
{
    free(p);
}

/* The C library's own, by its other name. */
extern void *__libc_realloc(void *p, size_t n) __attribute__((weak));

/* glibc cuts in place whatever is no mapping of its own.  An allocator that was put before it
 * (sanitizers, LD_PRELOAD) may move the block, and there is no way back from that. */
void mem_cut(void *p, size_t n)
{
    if (realloc != __libc_realloc)
        return;
    void *cut = __libc_realloc(p, n);
    assert(cut == p);
}

/* Not digest_wipe(): the supervisor has mem.c and no libcrypto. */
void mem_wipe(void *p, size_t n)
{
    if (n)
        explicit_bzero(p, n);
}

void mem_free_wiped(void *p)
{
    mem_wipe(p, malloc_usable_size(p));
    free(p);
}

void *mem_renew_wiped(void *p, size_t n)
{
    size_t old = malloc_usable_size(p);
    void *renewed = mem_renew(NULL, n);
    if (old)
        memcpy(renewed, p, old < n ? old : n);
    mem_free_wiped(p);
    return renewed;
}

char *mem_strdup(struct str s)
{
    char *z = some(malloc(s.n + 1));
    if (s.n)
        memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    return z;
}

/* Said outright, the threshold does not rise with the largest block that was freed. */
void mem_thrift(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_TRIM_THRESHOLD,
            2 * 1024 * 1024); /* TLS takes and gives back buffers with each record */
}

void mem_trim(void)
{
    malloc_trim(0);
}

/* ---- arenas ---- */

enum { BLOCK_MIN = 2048, BLOCK_MAX = 65536, ALIGN = alignof(max_align_t) };

struct arena_block {
    struct arena_block *before;
    size_t bytes; /* header included */
};

enum { BLOCK_HEAD = (sizeof(struct arena_block) + ALIGN - 1) / ALIGN * ALIGN };

void arena_init(struct arena *a, void *first, size_t n)
{
    *a = (struct arena){
        .at = first, .end = first ? (char *)first + n : NULL, .first = first, .first_bytes = n};
}

void arena_init_private(struct arena *a, void *first, size_t n)
{
    arena_init(a, first, n);
    a->private = true;
}

static struct arena_block *block_new(struct arena *a, size_t bytes)
{
    struct arena_block *block = some(malloc(bytes));
    block->bytes = bytes;
    block->before = NULL;
    a->extra += bytes;
    return block;
}

/* A wish no ordinary block can hold: its block is put behind the current one, whose rest stays in
 * use. */
static void *get_large(struct arena *a, size_t n)
{
    struct arena_block *block = block_new(a, BLOCK_HEAD + n);
    if (a->last) {
        block->before = a->last->before;
        a->last->before = block;
    } else {
        a->last = block;
    }
    return (char *)block + BLOCK_HEAD;
}

static size_t next_block_bytes(const struct arena *a)
{
    if (!a->last)
        return BLOCK_MIN;
    size_t bytes = a->last->bytes * 2;
    if (bytes < BLOCK_MIN) /* it was sealed */
        return BLOCK_MIN;
    return bytes < BLOCK_MAX ? bytes : BLOCK_MAX;
}

static void *get_slow(struct arena *a, size_t n)
{
    assert(n < SIZE_MAX / 2);
    if (n > BLOCK_MAX / 2)
        return get_large(a, n);
    size_t bytes = next_block_bytes(a);
    while (bytes < BLOCK_HEAD + n)
        bytes *= 2;
    struct arena_block *block = block_new(a, bytes);
    block->before = a->last;
    a->last = block;
    char *p = (char *)block + BLOCK_HEAD;
    a->at = p + n;
    a->end = (char *)block + bytes;
    return p;
}

void *arena_get(struct arena *a, size_t n)
{
    size_t room = (size_t)(a->end - a->at);
    size_t gap = -(uintptr_t)a->at % ALIGN;
    if (room < gap || room - gap < n || !a->at)
        return get_slow(a, n);
    char *p = a->at + gap;
    a->at = p + n;
    return p;
}

void *arena_zero(struct arena *a, size_t n)
{
    return memset(arena_get(a, n), 0, n);
}

struct str arena_str(struct arena *a, struct str s)
{
    char *p = arena_get(a, s.n);
    if (s.n)
        memcpy(p, s.p, s.n);
    return (struct str){p, s.n};
}

struct str arena_cat(struct arena *a, struct str x, struct str y)
{
    char *p = arena_get(a, x.n + y.n);
    if (x.n)
        memcpy(p, x.p, x.n);
    if (y.n)
        memcpy(p + x.n, y.p, y.n);
    return (struct str){p, x.n + y.n};
}

struct str arena_vprintf(struct arena *a, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t room = (size_t)(a->end - a->at);
    int n = vsnprintf(a->at, room, format, args);
    assert(n >= 0);
    char *p = a->at;
    if ((size_t)n < room) {
        a->at += n + 1;
    } else {
        p = arena_get(a, (size_t)n + 1);
        vsnprintf(p, (size_t)n + 1, format, again);
    }
    va_end(again);
    return (struct str){p, (size_t)n};
}

struct str arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct str s = arena_vprintf(a, format, args);
    va_end(args);
    return s;
}

static bool lies_in(const char *at, const void *block, size_t n)
{
    uintptr_t p = (uintptr_t)at, from = (uintptr_t)block;
    return p >= from && p <= from + n;
}

/* A block may be smaller than a wish that it was too small for: then the mark is still in the one
 * before it, or the owner's. */
size_t arena_seal(struct arena *a)
{
    struct arena_block *last = a->last;
    if (a->private)
        mem_wipe(a->at, (size_t)(a->end - a->at));
    a->end = a->at;
    if (last && lies_in(a->at, last, last->bytes)) {
        size_t used = (size_t)(a->at - (char *)last);
        a->extra -= last->bytes - used;
        last->bytes = used;
        mem_cut(last, used);
    }
    if (a->at && lies_in(a->at, a->first, a->first_bytes))
        a->first_bytes = (size_t)(a->at - a->first);
    return a->first_bytes;
}

void arena_done(struct arena *a)
{
    for (struct arena_block *block = a->last, *before; block; block = before) {
        before = block->before;
        if (a->private)
            mem_wipe(block, block->bytes);
        free(block);
    }
    if (a->private)
        mem_wipe(a->first, a->first_bytes);
    *a = (struct arena){0};
}
