/* buf.c — chunks, slices and the queues of slices.  A chunk counts the slices that lie in it; the
 * pool's current chunk of each size is filled from its used mark on, by whoever writes or reads
 * next, and starts again from the front when its last slice is gone.  So a worker that keeps up
 * lives in one warm chunk, and nothing here calls malloc once the pool has seen its load. */
#include "base/buf.h"

#include <assert.h>

#include "base/poison.h"

enum {
    CHUNK_HEAD = 64,
    READ_ROOM = 2048,       /* less than this is not worth a read */
    BULK_READ_ROOM = 16384, /* and for bulk */
    THIN_PART = 8,          /* a slice of less than this part of its chunk should not pin it */
    FREE_BYTES =
        512 * 1024, /* in free chunks: enough for a turn, and little to keep after a peak */
    FREE_SLICES = 1024,
};
enum kind { ORDINARY, BULK, SEALED, KINDS };

struct chunk {
    struct chunk *next; /* in a free list */
    uint32_t slices, used, size;
    enum kind kind;
};
_Static_assert(sizeof(struct chunk) <= CHUNK_HEAD, "the head of a chunk has 64 bytes");

struct chunk_pool {
    struct chunk *current[KINDS], *reserved;
    struct chunk *free_chunks[KINDS];
    struct slice *free_slices;
    size_t free_bytes, free_slice_count;
    size_t used;
    bool private;
};

static const uint32_t sizes[KINDS] = {CHUNK_BYTES, CHUNK_BULK_BYTES, CHUNK_SEALED_BYTES};

static uint8_t *chunk_bytes(struct chunk *c)
{
    return (uint8_t *)c + CHUNK_HEAD;
}

/* ---- the pool ---- */

struct chunk_pool *chunk_pool_new(void)
{
    return mem_new(sizeof(struct chunk_pool));
}

void chunk_pool_private(struct chunk_pool *pool)
{
    pool->private = true;
}

static struct chunk *chunk_get(struct chunk_pool *pool, enum kind kind)
{
    struct chunk *c = pool->free_chunks[kind];
    if (c) {
        pool->free_chunks[kind] = c->next;
        pool->free_bytes -= c->size;
        ASAN_UNPOISON_MEMORY_REGION(chunk_bytes(c), c->size);
    } else {
        c = mem_renew(NULL, CHUNK_HEAD + sizes[kind]);
    }
    *c = (struct chunk){.kind = kind, .size = sizes[kind]};
    return c;
}

/* Gives back a chunk in which no slice lies. */
static void chunk_put(struct chunk_pool *pool, struct chunk *c)
{
    if (pool->free_bytes + c->size > FREE_BYTES) {
        mem_free(c);
        return;
    }
    ASAN_POISON_MEMORY_REGION(chunk_bytes(c), c->size);
    c->next = pool->free_chunks[c->kind];
    pool->free_chunks[c->kind] = c;
    pool->free_bytes += c->size;
}

static void chunk_hold(struct chunk_pool *pool, struct chunk *c)
{
    if (c->slices++ == 0)
        pool->used += CHUNK_HEAD + c->size;
}

static void chunk_let_go(struct chunk_pool *pool, struct chunk *c)
{
    assert(c->slices > 0);
    if (--c->slices > 0)
        return;
    pool->used -= CHUNK_HEAD + c->size;
    if (pool->private && c->kind != SEALED) /* nothing was ever written behind the used mark */
        mem_wipe(chunk_bytes(c), c->used);
    if (c == pool->current[c->kind])
        c->used = 0;
    else
        chunk_put(pool, c);
}

/* The current chunk, or a new one in its place when it has less than `least` bytes left. */
static struct chunk *current_chunk(struct chunk_pool *pool, enum kind kind, uint32_t least)
{
    struct chunk *c = pool->current[kind];
    if (c && c->size - c->used >= least)
        return c;
    pool->current[kind] = chunk_get(pool, kind);
    if (c && c->slices == 0)
        chunk_put(pool, c);
    return pool->current[kind];
}

static struct slice *slice_get(struct chunk_pool *pool)
{
    struct slice *s = pool->free_slices;
    pool->used += sizeof *s; /* many slices of a byte each hold more than their chunk */
    if (!s)
        return mem_new(sizeof *s);
    pool->free_slices = s->next;
    pool->free_slice_count--;
    return s;
}

static void slice_put(struct chunk_pool *pool, struct slice *s)
{
    assert(!pool->reserved);
    chunk_let_go(pool, s->chunk);
    pool->used -= sizeof *s;
    if (pool->free_slice_count >= FREE_SLICES) {
        mem_free(s);
        return;
    }
    *s = (struct slice){.next = pool->free_slices};
    pool->free_slices = s;
    pool->free_slice_count++;
}

size_t chunk_pool_used(const struct chunk_pool *pool)
{
    return pool->used;
}

static void chunk_free(struct chunk *c)
{
    ASAN_UNPOISON_MEMORY_REGION(chunk_bytes(c), c->size);
    mem_free(c);
}

void chunk_pool_trim(struct chunk_pool *pool)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        for (struct chunk *c = pool->free_chunks[kind], *next; c; c = next) {
            next = c->next;
            chunk_free(c);
        }
        pool->free_chunks[kind] = NULL;
        struct chunk *current = pool->current[kind];
        if (current && current->slices == 0 && current != pool->reserved) {
            chunk_free(current);
            pool->current[kind] = NULL;
        }
    }
    for (struct slice *s = pool->free_slices, *next; s; s = next) {
        next = s->next;
        mem_free(s);
    }
    pool->free_slices = NULL;
    pool->free_bytes = pool->free_slice_count = 0;
}

void chunk_pool_free(struct chunk_pool *pool)
{
    if (!pool)
        return;
    assert(pool->used == 0);
    pool->reserved = NULL;
    chunk_pool_trim(pool);
    mem_free(pool);
}

/* ---- queues of slices ---- */

void buf_init(struct buf *b, struct chunk_pool *pool)
{
    *b = (struct buf){.tail = &b->head, .pool = pool};
}

static struct slice *last_slice(const struct buf *b)
{
    if (!b->head)
        return NULL;
    return (struct slice *)(void *)((char *)b->tail - offsetof(struct slice, next));
}

/* Is p, in chunk c, just what follows the last slice of b? */
static bool follows_last(const struct buf *b, const struct chunk *c, const uint8_t *p)
{
    const struct slice *last = last_slice(b);
    return last && last->chunk == c && last->p + last->n == p;
}

static void link_last(struct buf *b, struct slice *s)
{
    s->next = NULL;
    *b->tail = s;
    b->tail = &s->next;
    b->len += s->n;
}

static struct slice *unlink_first(struct buf *b)
{
    struct slice *s = b->head;
    b->head = s->next;
    if (!b->head)
        b->tail = &b->head;
    b->len -= s->n;
    return s;
}

static void grow_last(struct buf *b, size_t n)
{
    last_slice(b)->n += n;
    b->len += n;
}

void buf_ref(struct buf *b, struct chunk *chunk, uint8_t *p, size_t n)
{
    assert(p >= chunk_bytes(chunk) && p + n <= chunk_bytes(chunk) + chunk->size);
    if (n == 0)
        return;
    if (follows_last(b, chunk, p)) {
        grow_last(b, n);
        return;
    }
    struct slice *s = slice_get(b->pool);
    *s = (struct slice){.chunk = chunk, .p = p, .n = n};
    chunk_hold(b->pool, chunk);
    link_last(b, s);
}

/* Adds the n bytes at the used mark of c, which have just been written there. */
static void take_used(struct buf *b, struct chunk *c, size_t n)
{
    uint8_t *p = chunk_bytes(c) + c->used;
    c->used += (uint32_t)n;
    buf_ref(b, c, p, n);
}

/* The usual case of a write: b ends where the current chunk is filled up to, and there is room. */
static bool append(struct buf *b, const void *p, size_t n)
{
    struct chunk *c = b->pool->current[ORDINARY];
    struct slice *last = last_slice(b);
    if (!last || last->chunk != c || c->size - c->used < n)
        return false;
    uint8_t *at = chunk_bytes(c) + c->used;
    if (last->p + last->n != at)
        return false;
    memcpy(at, p, n);
    c->used += (uint32_t)n;
    grow_last(b, n);
    return true;
}

static void write_into(struct buf *b, enum kind kind, const uint8_t *from, size_t n)
{
    while (n > 0) {
        struct chunk *c = current_chunk(b->pool, kind, 1);
        size_t room = c->size - c->used, part = n < room ? n : room;
        memcpy(chunk_bytes(c) + c->used, from, part);
        take_used(b, c, part);
        from += part;
        n -= part;
    }
}

void buf_write(struct buf *b, const void *p, size_t n)
{
    assert(!b->pool->reserved);
    if (n > 0 && !append(b, p, n))
        write_into(b, ORDINARY, p, n);
}

void buf_write_sealed(struct buf *b, const void *p, size_t n)
{
    assert(!b->pool->reserved);
    write_into(b, SEALED, p, n);
}

void buf_str(struct buf *b, struct str s)
{
    buf_write(b, s.p, s.n);
}

void buf_move(struct buf *dst, struct buf *src, size_t n)
{
    assert(n <= src->len && dst->pool == src->pool && dst != src);
    while (n > 0) {
        struct slice *s = src->head;
        if (n < s->n) {
            buf_ref(dst, s->chunk, s->p, n);
            s->p += n;
            s->n -= n;
            src->len -= n;
            return;
        }
        n -= s->n;
        unlink_first(src);
        if (follows_last(dst, s->chunk, s->p)) {
            grow_last(dst, s->n);
            slice_put(dst->pool, s);
        } else {
            link_last(dst, s);
        }
    }
}

void buf_move_all(struct buf *dst, struct buf *src)
{
    buf_move(dst, src, src->len);
}

/* ---- what waits ---- */

static bool is_thin(const struct slice *s)
{
    return s->n < s->chunk->size / THIN_PART;
}

/* Would the two pin two chunks for next to nothing?  Where s goes on in the same chunk it costs
 * none of its own. */
static bool is_thin_pair(const struct buf *b, const struct slice *s)
{
    const struct slice *last = last_slice(b);
    return last && is_thin(last) && is_thin(s) && !follows_last(b, s->chunk, s->p) &&
           last->n + s->n <= CHUNK_BYTES;
}

/* Copies the last slice and what follows into the current chunk, so that both let go of theirs. */
static void join_last(struct buf *b, const uint8_t *p, size_t n)
{
    struct slice *last = last_slice(b);
    struct chunk *c = current_chunk(b->pool, ORDINARY, (uint32_t)(last->n + n)), *old = last->chunk;
    uint8_t *to = chunk_bytes(c) + c->used;
    memcpy(to, last->p, last->n);
    memcpy(to + last->n, p, n);
    c->used += (uint32_t)(last->n + n);
    chunk_hold(b->pool, c);
    last->chunk = c;
    last->p = to;
    grow_last(b, n);
    chunk_let_go(b->pool, old);
}

static void queue_thin(struct buf *b, const struct slice *s)
{
    if (!append(b, s->p, s->n))
        join_last(b, s->p, s->n);
}

void buf_queue(struct buf *dst, struct buf *src)
{
    assert(!dst->pool->reserved);
    while (src->len > 0) {
        struct slice *s = src->head;
        size_t n = s->n;
        if (!is_thin_pair(dst, s)) {
            buf_move(dst, src, n);
            continue;
        }
        queue_thin(dst, s);
        buf_drop(src, n);
    }
}

void buf_share(struct buf *dst, const struct buf *src)
{
    assert(!dst->pool->reserved);
    for (const struct slice *s = src->head; s; s = s->next) {
        if (is_thin_pair(dst, s))
            queue_thin(dst, s);
        else
            buf_ref(dst, s->chunk, s->p, s->n);
    }
}

void buf_drop(struct buf *b, size_t n)
{
    assert(n <= b->len);
    while (n > 0) {
        struct slice *s = b->head;
        if (n < s->n) {
            s->p += n;
            s->n -= n;
            b->len -= n;
            return;
        }
        n -= s->n;
        slice_put(b->pool, unlink_first(b));
    }
}

void buf_clear(struct buf *b)
{
    buf_drop(b, b->len);
}

void buf_peek(const struct buf *b, void *to, size_t n)
{
    buf_peek_at(b, 0, to, n);
}

void buf_peek_at(const struct buf *b, size_t at, void *to, size_t n)
{
    assert(at <= b->len && n <= b->len - at);
    const struct slice *s = b->head;
    uint8_t *end = to;
    for (; n > 0 && at >= s->n; s = s->next)
        at -= s->n;
    for (; n > 0; s = s->next, at = 0) {
        size_t part = n < s->n - at ? n : s->n - at;
        memcpy(end, s->p + at, part);
        end += part;
        n -= part;
    }
}

/* ---- reading ---- */

static uint8_t *reserve(struct chunk_pool *pool, enum kind kind, uint32_t least, size_t *ret_room)
{
    assert(!pool->reserved);
    struct chunk *c = current_chunk(pool, kind, least);
    pool->reserved = c;
    *ret_room = c->size - c->used;
    return chunk_bytes(c) + c->used;
}

uint8_t *buf_reserve(struct chunk_pool *pool, bool bulk, size_t *ret_room)
{
    return bulk ? reserve(pool, BULK, BULK_READ_ROOM, ret_room)
                : reserve(pool, ORDINARY, READ_ROOM, ret_room);
}

uint8_t *buf_reserve_sealed(struct chunk_pool *pool, size_t *ret_room)
{
    return reserve(pool, SEALED, BULK_READ_ROOM, ret_room);
}

void buf_commit(struct buf *b, size_t n)
{
    struct chunk *c = b->pool->reserved;
    assert(c && n <= c->size - c->used);
    struct buf fresh;
    b->pool->reserved = NULL;
    buf_init(&fresh, b->pool);
    take_used(&fresh, c, n);
    buf_queue(b, &fresh);
}
