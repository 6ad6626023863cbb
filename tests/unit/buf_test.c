/* buf_test.c — chunks and queues of slices, and a long run of random operations against a plain
 * copy of the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "harness/copies.h"

/* What nobody else in this process says: the bytes with 0x55 over them. */
#define MASKED "\x3e\x30\x2c\x78\x3a\x33\x78\x38\x2c\x78\x33\x27\x3c\x30\x3b\x31"

static size_t slice_count(const struct buf *b)
{
    size_t n = 0;
    for (const struct slice *s = b->head; s; s = s->next)
        n++;
    return n;
}

static void assert_bytes(const struct buf *b, const void *expected, size_t n)
{
    assert_int_equal(b->len, n);
    uint8_t *copy = mem_new(n);
    buf_peek(b, copy, n);
    assert_memory_equal(copy, expected, n);
    mem_free(copy);
}

static int setup(void **state)
{
    *state = chunk_pool_new();
    return 0;
}

enum { SLICE = sizeof(struct slice) };

/* Every test must have given back everything. */
static int teardown(void **state)
{
    struct chunk_pool *pool = *state;
    size_t used = chunk_pool_used(pool);
    chunk_pool_free(pool);
    return used == 0 ? 0 : -1;
}

static void small_writes_make_one_slice(void **state)
{
    struct buf b;
    buf_init(&b, *state);
    assert_int_equal(chunk_pool_used(*state), 0);
    buf_str(&b, STR("HTTP/1.1 "));
    buf_str(&b, STR("200 "));
    buf_str(&b, STR_NONE);
    buf_write(&b, "OK", 2);
    assert_int_equal(slice_count(&b), 1);
    assert_bytes(&b, "HTTP/1.1 200 OK", 15);
    assert_int_equal(chunk_pool_used(*state), 16384 + SLICE);
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_null(b.head);
    assert_int_equal(chunk_pool_used(*state), 0);
}

static void bufs_share_the_current_chunk(void **state)
{
    struct buf a, b;
    buf_init(&a, *state);
    buf_init(&b, *state);
    buf_str(&a, STR("one"));
    buf_str(&b, STR("two"));
    buf_str(&a, STR("three"));
    assert_ptr_equal(a.head->chunk, b.head->chunk);
    assert_int_equal(slice_count(&a), 2);
    assert_bytes(&a, "onethree", 8);
    assert_bytes(&b, "two", 3);
    assert_int_equal(chunk_pool_used(*state), 16384 + 3 * SLICE);
    buf_clear(&a);
    assert_int_equal(chunk_pool_used(*state), 16384 + SLICE);
    buf_clear(&b);
}

static void large_write_spans_chunks(void **state)
{
    enum { N = 100000 };
    struct buf b;
    uint8_t *bytes = mem_new(N);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (uint8_t)(i * 7 >> 3);
    buf_init(&b, *state);
    buf_write(&b, bytes, N);
    assert_bytes(&b, bytes, N);
    assert_int_equal(slice_count(&b), (N + CHUNK_BYTES - 1) / CHUNK_BYTES);
    buf_drop(&b, 50000);
    assert_bytes(&b, bytes + 50000, N - 50000);
    buf_clear(&b);
    mem_free(bytes);
}

static void chunk_whose_bytes_are_gone_is_filled_again_from_the_front(void **state)
{
    struct buf b;
    buf_init(&b, *state);
    buf_str(&b, STR("first"));
    uint8_t *p = b.head->p;
    buf_clear(&b);
    for (int i = 0; i < 100000; i++) {
        buf_str(&b, STR("again"));
        assert_ptr_equal(b.head->p, p);
        buf_drop(&b, b.len);
    }
}

static void move_copies_no_payload(void **state)
{
    struct buf a, b;
    buf_init(&a, *state);
    buf_init(&b, *state);
    buf_str(&a, STR("0123456789"));
    uint8_t *p = a.head->p;
    buf_move(&b, &a, 4);
    assert_ptr_equal(b.head->p, p);
    assert_ptr_equal(a.head->p, p + 4);
    assert_bytes(&b, "0123", 4);
    assert_bytes(&a, "456789", 6);
    buf_move_all(&b, &a);
    assert_int_equal(slice_count(&b), 1); /* the pieces lie side by side: one again */
    assert_bytes(&b, "0123456789", 10);
    assert_int_equal(a.len, 0);
    buf_str(&a, STR("x")); /* an emptied buf is usable */
    buf_move_all(&a, &b);
    assert_bytes(&a, "x0123456789", 11);
    buf_clear(&a);
}

static void writing_after_a_move_does_not_touch_the_moved(void **state)
{
    struct buf a, b;
    buf_init(&a, *state);
    buf_init(&b, *state);
    buf_str(&a, STR("abcdef"));
    buf_move(&b, &a, 3);
    buf_str(&b, STR("XY"));
    buf_str(&a, STR("gh"));
    assert_bytes(&b, "abcXY", 5);
    assert_bytes(&a, "defgh", 5);
    buf_clear(&a);
    buf_clear(&b);
}

static void ref_counts_the_chunk_once_more(void **state)
{
    struct buf a, b;
    buf_init(&a, *state);
    buf_init(&b, *state);
    buf_str(&a, STR("header body"));
    buf_ref(&b, a.head->chunk, a.head->p + 7, 4);
    buf_ref(&b, a.head->chunk, a.head->p, 0);
    buf_clear(&a);
    buf_str(&a, STR("overwritten?"));
    assert_bytes(&b, "body", 4);
    assert_int_equal(chunk_pool_used(*state), 16384 + 2 * SLICE);
    buf_clear(&a);
    buf_clear(&b);
}

static void drop_and_peek_cross_slices(void **state)
{
    struct buf a, b;
    buf_init(&a, *state);
    buf_init(&b, *state);
    for (int i = 0; i < 5; i++) {
        buf_str(&a, STR("abc"));
        buf_str(&b, STR("-"));
    }
    assert_int_equal(slice_count(&a), 5);
    char text[8];
    buf_drop(&a, 4);
    buf_peek(&a, text, 7);
    assert_memory_equal(text, "bcabcab", 7);
    buf_drop(&a, 2);
    assert_bytes(&a, "abcabcabc", 9);
    buf_drop(&a, 0);
    buf_clear(&a);
    buf_clear(&b);
}

static void reserve_takes_nothing_until_commit(void **state)
{
    struct buf b;
    size_t room;
    buf_init(&b, *state);
    uint8_t *p = buf_reserve(*state, false, &room);
    assert_int_equal(room, CHUNK_BYTES);
    assert_int_equal(chunk_pool_used(*state), 0);
    memcpy(p, "hello", 5);
    buf_commit(&b, 5);
    assert_bytes(&b, "hello", 5);
    uint8_t *q = buf_reserve(*state, false, &room);
    assert_ptr_equal(q, p + 5);
    assert_int_equal(room, CHUNK_BYTES - 5);
    buf_commit(&b, 0);
    q = buf_reserve(*state, false, &room);
    assert_ptr_equal(q, p + 5);
    memcpy(q, " you", 4);
    buf_commit(&b, 4);
    assert_int_equal(slice_count(&b), 1);
    assert_bytes(&b, "hello you", 9);
    buf_clear(&b);
}

static void reserve_has_at_least_2_kib(void **state)
{
    struct buf b;
    size_t room;
    buf_init(&b, *state);
    for (int i = 0; i < 1000; i++) {
        uint8_t *p = buf_reserve(*state, false, &room);
        assert_in_range(room, 2048, CHUNK_BYTES);
        memset(p, i, 700);
        buf_commit(&b, 700);
    }
    assert_int_equal(b.len, 700 * 1000);
    buf_clear(&b);
}

static void bulk_reserve_is_64_kib(void **state)
{
    struct buf b;
    size_t room;
    buf_init(&b, *state);
    uint8_t *p = buf_reserve(*state, true, &room);
    assert_int_equal(room, CHUNK_BULK_BYTES);
    memset(p, 'z', room);
    buf_commit(&b, room);
    assert_int_equal(slice_count(&b), 1);
    assert_int_equal(chunk_pool_used(*state), CHUNK_BULK_BYTES + 64 + SLICE);
    buf_str(&b, STR("small")); /* goes to the ordinary chunk */
    assert_int_equal(chunk_pool_used(*state), CHUNK_BULK_BYTES + 64 + 16384 + 2 * SLICE);
    buf_clear(&b);
}

static void sealed_reserve_is_124_kib(void **state)
{
    struct buf b;
    size_t room;
    buf_init(&b, *state);
    uint8_t *p = buf_reserve_sealed(*state, &room);
    assert_int_equal(room, CHUNK_SEALED_BYTES);
    memset(p, 'z', room - 3);
    buf_commit(&b, room - 3);
    buf_write_sealed(&b, "abcde", 5); /* in the rest, and in the next one */
    assert_int_equal(slice_count(&b), 2);
    buf_str(&b, STR("open")); /* never in such a chunk */
    assert_int_equal(slice_count(&b), 3);
    buf_drop(&b, room - 3);
    assert_bytes(&b, "abcdeopen", 9);
    buf_clear(&b);
}

static void peek_at_any_place_crosses_slices(void **state)
{
    enum { LEN = 10 };
    static const char text[LEN + 1] = "abcdefghij";
    struct buf b, other;
    buf_init(&b, *state);
    buf_init(&other, *state);
    for (size_t i = 0; i < LEN; i += 2) {
        buf_write(&b, text + i, 2);
        buf_write(&other, "-", 1); /* so that the next two are a slice of their own */
    }
    assert_int_equal(slice_count(&b), LEN / 2);
    for (size_t at = 0; at <= LEN; at++) {
        for (size_t n = 0; at + n <= LEN; n++) {
            char to[LEN + 1] = {0};
            buf_peek_at(&b, at, to, n);
            assert_memory_equal(to, text + at, n);
            assert_int_equal(to[n], 0);
        }
    }
    buf_clear(&b);
    buf_clear(&other);
}

/* A piece of n bytes at the front of a chunk that nothing else is in, as a peer can arrange it. */
static void piece_of_its_own(struct chunk_pool *pool, struct buf *ret, uint8_t c, size_t n,
                             bool bulk)
{
    struct buf rest;
    size_t room;
    buf_init(ret, pool);
    buf_init(&rest, pool);
    uint8_t *p = buf_reserve(pool, bulk, &room);
    memset(p, c, room);
    buf_commit(ret, room);
    buf_move(&rest, ret, ret->len - n);
    buf_clear(&rest);
}

static void what_waits_holds_a_bounded_multiple_of_its_bytes(void **state)
{
    static const struct {
        size_t piece, total;
        bool bulk;
    } rows[] = {{1, 4096, false},     {100, 65536, false},  {1000, 65536, false},
                {2039, 65536, false}, {2040, 65536, false}, {512, 65536, true},
                {8183, 65472, true},  {8184, 65472, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf moved, shared, piece;
        uint8_t *expected = mem_new(rows[i].total);
        size_t n = 0;
        buf_init(&moved, *state);
        buf_init(&shared, *state);
        for (uint8_t c = 0; n + rows[i].piece <= rows[i].total; c++, n += rows[i].piece) {
            piece_of_its_own(*state, &piece, c, rows[i].piece, rows[i].bulk);
            buf_share(&shared, &piece);
            buf_queue(&moved, &piece);
            memset(expected + n, c, rows[i].piece);
            assert_int_equal(piece.len, 0);
        }
        assert_bytes(&moved, expected, n);
        assert_bytes(&shared, expected, n);
        /* each of the two may hold what it shares with nobody */
        assert_true(chunk_pool_used(*state) <= 2 * 20 * n + 4 * 65536);
        buf_clear(&moved);
        assert_bytes(&shared, expected, n);
        buf_clear(&shared);
        mem_free(expected);
    }
}

/* Reads of a byte each, while others fill the chunk in between. */
static void what_is_read_in_small_pieces_pins_no_chunk_for_each(void **state)
{
    struct buf b, other;
    buf_init(&b, *state);
    for (unsigned i = 0; i < 2000; i++) {
        size_t room;
        buf_reserve(*state, false, &room)[0] = (uint8_t)i;
        buf_commit(&b, 1);
        piece_of_its_own(*state, &other, 'x', 1, false);
        buf_clear(&other);
    }
    assert_int_equal(b.len, 2000);
    uint8_t bytes[2000];
    buf_peek(&b, bytes, sizeof bytes);
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(bytes[i], (uint8_t)i);
    assert_true(chunk_pool_used(*state) < 8 * 16384);
    buf_clear(&b);
}

static void queue_goes_on_in_its_slice_without_a_copy(void **state)
{
    struct buf waits, src;
    buf_init(&waits, *state);
    buf_init(&src, *state);
    buf_write(&src, "abcdef", 6);
    const uint8_t *at = src.head->p;
    for (int i = 0; i < 3; i++) {
        struct buf two;
        buf_init(&two, *state);
        buf_move(&two, &src, 2);
        buf_queue(&waits, &two);
    }
    assert_int_equal(slice_count(&waits), 1);
    assert_ptr_equal(waits.head->p, at);
    assert_bytes(&waits, "abcdef", 6);
    buf_clear(&waits);
}

static void trim_keeps_what_is_in_use(void **state)
{
    struct buf a, b;
    uint8_t bytes[5000];
    memset(bytes, 'q', sizeof bytes);
    buf_init(&a, *state);
    buf_init(&b, *state);
    for (int i = 0; i < 1000; i++)
        buf_write(&a, bytes, sizeof bytes);
    buf_str(&b, STR("kept"));
    buf_clear(&a);
    chunk_pool_trim(*state);
    assert_bytes(&b, "kept", 4);
    buf_str(&b, STR(" on"));
    assert_bytes(&b, "kept on", 7);
    buf_clear(&b);
    chunk_pool_trim(*state);
    chunk_pool_trim(*state);
    buf_str(&b, STR("new"));
    buf_clear(&b);
}

/* A plain copy of what a buf must hold. */
struct model {
    struct buf b;
    uint8_t *bytes;
    size_t n;
};

enum { BUFS = 6, MODEL_BYTES = 1 << 18 };

static void random_write(struct model *m, unsigned *seed)
{
    static uint8_t source[40000];
    static uint8_t next;
    size_t n = (size_t)rand_r(seed) % (rand_r(seed) % 8 ? 300 : sizeof source);
    if (m->n + n > MODEL_BYTES)
        return;
    for (size_t i = 0; i < n; i++)
        source[i] = next++;
    if (rand_r(seed) % 2) {
        buf_write(&m->b, source, n);
    } else {
        size_t room;
        uint8_t *p = buf_reserve(m->b.pool, rand_r(seed) % 2, &room);
        n = n < room ? n : room;
        memcpy(p, source, n);
        buf_commit(&m->b, n);
    }
    memcpy(m->bytes + m->n, source, n);
    m->n += n;
}

static void random_drop(struct model *m, unsigned *seed)
{
    size_t n = (size_t)rand_r(seed) % (m->n + 1);
    buf_drop(&m->b, n);
    memmove(m->bytes, m->bytes + n, m->n - n);
    m->n -= n;
}

static void random_move(struct model *to, struct model *from, unsigned *seed)
{
    size_t n = (size_t)rand_r(seed) % (from->n + 1);
    if (to == from || to->n + n > MODEL_BYTES)
        return;
    buf_move(&to->b, &from->b, n);
    memcpy(to->bytes + to->n, from->bytes, n);
    to->n += n;
    memmove(from->bytes, from->bytes + n, from->n - n);
    from->n -= n;
}

static void random_queue(struct model *to, struct model *from)
{
    if (to->n + from->n > MODEL_BYTES || to == from)
        return;
    memcpy(to->bytes + to->n, from->bytes, from->n);
    to->n += from->n;
    from->n = 0;
    buf_queue(&to->b, &from->b);
}

static void random_share(struct model *to, const struct model *from)
{
    if (to->n + from->n > MODEL_BYTES || to == from)
        return;
    memcpy(to->bytes + to->n, from->bytes, from->n);
    to->n += from->n;
    buf_share(&to->b, &from->b);
}

static void random_ref(struct model *to, const struct model *from, unsigned *seed)
{
    const struct slice *s = from->b.head;
    if (!s || to->n + s->n > MODEL_BYTES)
        return;
    size_t at = (size_t)rand_r(seed) % s->n, n = s->n - at;
    memmove(to->bytes + to->n, from->bytes + at, n);
    to->n += n;
    buf_ref(&to->b, s->chunk, s->p + at, n);
}

static void random_operations_keep_every_byte(void **state)
{
    struct model models[BUFS];
    unsigned seed = 42;
    for (size_t i = 0; i < BUFS; i++) {
        buf_init(&models[i].b, *state);
        models[i].bytes = mem_new(MODEL_BYTES);
        models[i].n = 0;
    }
    for (int step = 0; step < 20000; step++) {
        struct model *m = &models[rand_r(&seed) % BUFS], *other = &models[rand_r(&seed) % BUFS];
        switch (rand_r(&seed) % 7) {
        case 0:
        case 1:
            random_write(m, &seed);
            break;
        case 2:
            random_drop(m, &seed);
            break;
        case 3:
            random_move(m, other, &seed);
            break;
        case 4:
            random_queue(m, other);
            break;
        case 5:
            random_share(m, other);
            break;
        default:
            random_ref(m, other, &seed);
        }
        assert_int_equal(m->b.len, m->n);
        if (step % 16 == 0)
            assert_bytes(&m->b, m->bytes, m->n);
        if (step % 1000 == 0)
            chunk_pool_trim(*state);
    }
    for (size_t i = 0; i < BUFS; i++) {
        assert_bytes(&models[i].b, models[i].bytes, models[i].n);
        buf_clear(&models[i].b);
        mem_free(models[i].bytes);
    }
}

/* Fills chunks of both kinds with a text, lets go of them, and counts what is left of it. */
static unsigned copies_in(struct chunk_pool *pool)
{
    struct secret *secret = copies_unmask(STR(MASKED));
    struct str text = secret_bytes(secret);
    struct buf a, b;
    size_t room;
    buf_init(&a, pool);
    buf_init(&b, pool);
    for (int i = 0; i < 3000; i++)
        buf_str(&a, text);
    memcpy(buf_reserve(pool, true, &room), text.p, text.n);
    buf_commit(&b, text.n);
    buf_share(&a, &b);
    buf_move(&b, &a, 1000);
    buf_clear(&a);
    buf_clear(&b);
    unsigned n = copies_count(secret);
    secret_unref(secret);
    return n;
}

static void a_private_pool_wipes_what_nobody_holds(void **state)
{
    struct chunk_pool *pool = chunk_pool_new();
    chunk_pool_private(pool);
    assert_int_equal(copies_in(pool), 0);
    chunk_pool_free(pool);
    assert_true(copies_in(*state) > 0);
}

static void sealed_bytes_are_not_wiped(void **state)
{
    struct chunk_pool *pool = chunk_pool_new();
    (void)state;
    chunk_pool_private(pool);
    struct buf b;
    buf_init(&b, pool);
    buf_write_sealed(&b, "cipher text", 11);
    const uint8_t *at = b.head->p;
    buf_clear(&b);
    buf_write_sealed(&b, "C", 1); /* the same chunk from the front */
    assert_ptr_equal(b.head->p, at);
    assert_memory_equal(at, "Cipher text", 11);
    buf_clear(&b);
    chunk_pool_free(pool);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(small_writes_make_one_slice),
        T(bufs_share_the_current_chunk),
        T(large_write_spans_chunks),
        T(chunk_whose_bytes_are_gone_is_filled_again_from_the_front),
        T(move_copies_no_payload),
        T(writing_after_a_move_does_not_touch_the_moved),
        T(ref_counts_the_chunk_once_more),
        T(drop_and_peek_cross_slices),
        T(reserve_takes_nothing_until_commit),
        T(reserve_has_at_least_2_kib),
        T(bulk_reserve_is_64_kib),
        T(sealed_reserve_is_124_kib),
        T(peek_at_any_place_crosses_slices),
        T(what_waits_holds_a_bounded_multiple_of_its_bytes),
        T(what_is_read_in_small_pieces_pins_no_chunk_for_each),
        T(queue_goes_on_in_its_slice_without_a_copy),
        T(trim_keeps_what_is_in_use),
        T(random_operations_keep_every_byte),
        T(a_private_pool_wipes_what_nobody_holds),
        T(sealed_bytes_are_not_wiped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
