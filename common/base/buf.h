/* buf.h — bytes in transit.
 *
 * A chunk is 16 KiB (64 KiB for bulk, 124 for cipher text), counted, and never leaves its worker.
 * A buf is a queue of slices of chunks; moving slices from one buf to another copies no payload.
 * Small writes of many bufs share the pool's current chunk.  The pool counts all chunks that are
 * out, which is what the memory cap looks at (DESIGN 7, worker cap). */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum { CHUNK_BYTES = 16384 - 64, CHUNK_BULK_BYTES = 65536, CHUNK_SEALED_BYTES = 124 * 1024 - 64 };

struct chunk_pool;
struct chunk;

struct slice {
    struct slice *next;
    struct chunk *chunk;
    uint8_t *p;
    size_t n;
};

struct buf {
    struct slice *head, **tail;
    size_t len;
    struct chunk_pool *pool;
};

/* A pool of chunks for one thread; owned by its worker. */
struct chunk_pool *chunk_pool_new(void);
/* From now on bytes are wiped when the last buf lets go of their chunk, also where the pool itself
 * keeps it; but not sealed ones. */
void chunk_pool_private(struct chunk_pool *pool);
/* Every buf of the pool must be empty by now. */
void chunk_pool_free(struct chunk_pool *pool);
/* Bytes in chunks and slices that are in use, free ones not counted. */
size_t chunk_pool_used(const struct chunk_pool *pool);
/* Gives free chunks and slices back to the system; for an idle worker. */
void chunk_pool_trim(struct chunk_pool *pool);

void buf_init(struct buf *b, struct chunk_pool *pool);
/* Copies n bytes in at the end. */
void buf_write(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, struct str s);
/* The same as buf_write() for many bytes that are no secret, because they are encrypted: they lie
 * in large chunks, which are not wiped. */
void buf_write_sealed(struct buf *b, const void *p, size_t n);
/* Moves the first n bytes (n <= src->len) of src to the end of dst, both of one pool; no payload is
 * copied. */
void buf_move(struct buf *dst, struct buf *src, size_t n);
/* Moves everything. */
void buf_move_all(struct buf *dst, struct buf *src);
/* Moves everything to the end of dst, to wait there.  Neighbours that are a small part of their
 * chunks are copied into one, so that what waits holds a bounded multiple of its own bytes whatever
 * pieces it came in.  Nothing may point to the bytes of dst. */
void buf_queue(struct buf *dst, struct buf *src);
/* The same, but src keeps them too. */
void buf_share(struct buf *dst, const struct buf *src);
/* Adds n bytes at p, which lie in chunk, to the end of b: the chunk is counted once more. */
void buf_ref(struct buf *b, struct chunk *chunk, uint8_t *p, size_t n);
/* Forgets the first n bytes (n <= b->len). */
void buf_drop(struct buf *b, size_t n);
/* Forgets everything. */
void buf_clear(struct buf *b);
/* Copies the first n bytes (n <= b->len) to `to` and leaves them in. */
void buf_peek(const struct buf *b, void *to, size_t n);
/* The n bytes behind the first `at` ones (at + n <= b->len). */
void buf_peek_at(const struct buf *b, size_t at, void *to, size_t n);

/* Room for one read: the free tail of the pool's current chunk, at least 2 KiB, or a new chunk;
 * `bulk`: a 64 KiB one.  Nothing is taken until buf_commit() with the same pool, which must follow
 * before any other call for this pool. */
uint8_t *buf_reserve(struct chunk_pool *pool, bool bulk, size_t *ret_room);
/* The same for a large read of what is encrypted: at least 16 KiB of a chunk that is not wiped. */
uint8_t *buf_reserve_sealed(struct chunk_pool *pool, size_t *ret_room);
/* Adds the n bytes just read into the reserved room to the end of b. */
void buf_commit(struct buf *b, size_t n);

#endif
