/* coding_test.c — codings of other people's coders are read whatever they are cut into, ours are
 * read by theirs as soon as they are out, and what is broken or too large is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "egress/vault/coding_impl.h"
#include "harness/coders.h"

static const enum coding codings[] = {CODING_GZIP, CODING_BR, CODING_ZSTD};
enum { NCODINGS = sizeof codings / sizeof *codings, LARGE = 300000 };

static int setup(void **state)
{
    *state = chunk_pool_new();
    return 0;
}

static int teardown(void **state)
{
    struct chunk_pool *pool = *state;
    size_t used = chunk_pool_used(pool);
    chunk_pool_free(pool);
    return used == 0 ? 0 : -1;
}

/* ---- Content-Encoding */

static void content_encoding_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *lines[3];
        enum coding coding;
    } rows[] = {
        {{NULL}, CODING_NONE},
        {{""}, CODING_NONE},
        {{"identity"}, CODING_NONE},
        {{"gzip"}, CODING_GZIP},
        {{"GZip"}, CODING_GZIP},
        {{"x-gzip"}, CODING_GZIP},
        {{"br"}, CODING_BR},
        {{"zstd"}, CODING_ZSTD},
        {{" zstd\t"}, CODING_ZSTD},
        {{"identity, br"}, CODING_BR},
        {{"br,"}, CODING_BR},
        {{"", "br"}, CODING_BR},
        {{"gzip, br"}, CODING_UNKNOWN},
        {{"gzip", "gzip"}, CODING_UNKNOWN},
        {{"gzip", "identity", "br"}, CODING_UNKNOWN},
        {{"deflate"}, CODING_UNKNOWN},
        {{"deflate", "gzip"}, CODING_UNKNOWN},
        {{"gzip;q=1"}, CODING_UNKNOWN},
        {{"gzip br"}, CODING_UNKNOWN},
        {{"compress"}, CODING_UNKNOWN},
        {{"*"}, CODING_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct field fields[4] = {{STR("X-Content-Encoding"), STR("deflate")}};
        unsigned n = 1;
        for (; n <= 3 && rows[i].lines[n - 1]; n++)
            fields[n] = (struct field){STR("Content-ENCODING"), str_of(rows[i].lines[n - 1])};
        assert_int_equal(coding_read(fields, n), rows[i].coding);
    }
}

/* ---- decoding */

/* Text that a coder can and cannot make shorter. */
static struct str some_text(size_t n)
{
    char *p = malloc(n + 1);
    srand(5);
    for (size_t i = 0; i < n; i++)
        p[i] = i / 4096 % 2 ? (char)rand() : (char)("abcde fghij "[i % 12] + (rand() % 7 == 0));
    return (struct str){p, n};
}

struct outcome {
    enum why why;
    struct buf out;
};

/* In pieces of `cut`, each on a chunk of its own bytes, with room for `room` a time. */
static void decode(struct chunk_pool *pool, enum coding c, const uint8_t *p, size_t n, size_t cut,
                   size_t room, struct outcome *o)
{
    struct decoder *d = decoder_new(c);
    struct buf in;
    assert_non_null(d);
    buf_init(&in, pool);
    buf_init(&o->out, pool);
    size_t at = 0;
    bool more = false;
    o->why = WHY_OK;
    do {
        size_t part = n - at < cut ? n - at : cut;
        if (!more)
            buf_write(&in, p + at, part);
        at += more ? 0 : part;
        size_t before = o->out.len;
        o->why = decoder_push(d, &in, at == n, room, &o->out, &more);
        assert_true(o->out.len - before <= room);
    } while (o->why == WHY_OK && (at < n || more));
    assert_true(o->why != WHY_OK || in.len == 0);
    buf_clear(&in);
    decoder_free(d);
}

static void assert_text(const struct buf *b, struct str text)
{
    char *copy = malloc(b->len + 1);
    buf_peek(b, copy, b->len);
    assert_int_equal(b->len, text.n);
    assert_memory_equal(copy, text.p, text.n);
    free(copy);
}

static void decode_whole(struct chunk_pool *pool, enum coding c, const uint8_t *p, size_t n,
                         struct str text)
{
    static const struct {
        size_t cut, room;
    } ways[] = {{SIZE_MAX, SIZE_MAX}, {1, SIZE_MAX}, {7, 5}, {4096, 1000}, {SIZE_MAX, 16384}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct outcome o;
        decode(pool, c, p, n, ways[i].cut, ways[i].room, &o);
        assert_int_equal(o.why, WHY_OK);
        assert_text(&o.out, text);
        buf_clear(&o.out);
    }
}

static void what_others_code_is_decoded_however_it_is_cut(void **state)
{
    static const size_t lengths[] = {0, 1, 100, 70000}, flushes[] = {0, 10, 5000};
    for (size_t i = 0; i < NCODINGS * 12; i++) {
        struct str text = some_text(lengths[i / 3 % 4]);
        size_t n;
        uint8_t *p = coder_make(codings[i % 3], text, flushes[i / 12], &n);
        decode_whole(*state, codings[i % 3], p, n, text);
        mem_free(p);
        free((char *)(uintptr_t)text.p);
    }
}

static void no_bytes_at_all_are_an_empty_body(void **state)
{
    for (size_t i = 0; i < NCODINGS; i++)
        decode_whole(*state, codings[i], (const uint8_t *)"", 0, STR(""));
}

/* Each piece is out as soon as what the other side flushed is in. */
static void flushed_pieces_come_out_at_once(void **state)
{
    for (size_t i = 0; i < NCODINGS; i++) {
        struct str text = STR("data: one\n\ndata: two\n\ndata: six\n\n");
        size_t n, seen = 0;
        uint8_t *p = coder_make(codings[i], text, 11, &n);
        struct decoder *d = decoder_new(codings[i]);
        struct buf in, out;
        buf_init(&in, *state);
        buf_init(&out, *state);
        for (size_t at = 0; at < n; at++) {
            bool more;
            size_t before = out.len;
            buf_write(&in, p + at, 1);
            assert_int_equal(decoder_push(d, &in, false, SIZE_MAX, &out, &more), WHY_OK);
            seen += before < out.len;
        }
        assert_true(seen >= 3);
        assert_text(&out, text);
        buf_clear(&out);
        decoder_free(d);
        mem_free(p);
    }
}

/* ---- several of them */

static uint8_t *joined(const uint8_t *a, size_t na, const uint8_t *b, size_t nb)
{
    uint8_t *p = mem_new(na + nb);
    memcpy(p, a, na);
    memcpy(p + na, b, nb);
    return p;
}

static void members_and_frames_are_one_body(void **state)
{
    static const enum coding several[] = {CODING_GZIP, CODING_ZSTD};
    for (unsigned i = 0; i < 2; i++) {
        size_t na, nb;
        uint8_t *a = coder_make(several[i], STR("hello "), 0, &na),
                *b = coder_make(several[i], STR("world"), 0, &nb), *p = joined(a, na, b, nb);
        decode_whole(*state, several[i], p, na + nb, STR("hello world"));
        mem_free(a);
        mem_free(b);
        mem_free(p);
    }
}

static void skippable_frames_are_skipped(void **state)
{
    static const uint8_t skipped[] = {0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'},
                         nothing[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
    size_t n;
    uint8_t *a = coder_make(CODING_ZSTD, STR("hello"), 0, &n),
            *b = joined(skipped, sizeof skipped, a, n),
            *c = joined(b, sizeof skipped + n, nothing, sizeof nothing);
    decode_whole(*state, CODING_ZSTD, c, sizeof skipped + n + sizeof nothing, STR("hello"));
    decode_whole(*state, CODING_ZSTD, nothing, sizeof nothing, STR(""));
    mem_free(a);
    mem_free(b);
    mem_free(c);
}

static void nothing_may_follow_br(void **state)
{
    size_t n;
    struct outcome o;
    uint8_t *a = coder_make(CODING_BR, STR("hello"), 0, &n), *p = joined(a, n, a, n);
    for (size_t cut = 1; cut <= 2 * n; cut += 2 * n - 1) {
        decode(*state, CODING_BR, p, 2 * n, cut, SIZE_MAX, &o);
        assert_int_equal(o.why, WHY_ORIGIN_PROTOCOL);
        assert_text(&o.out, STR("hello"));
        buf_clear(&o.out);
    }
    mem_free(a);
    mem_free(p);
}

static void what_follows_must_be_a_member_or_a_frame(void **state)
{
    static const enum coding several[] = {CODING_GZIP, CODING_ZSTD};
    for (unsigned i = 0; i < 2; i++) {
        size_t n;
        struct outcome o;
        uint8_t *a = coder_make(several[i], STR("hello"), 0, &n),
                *p = joined(a, n, (const uint8_t *)"\0junk", 5);
        decode(*state, several[i], p, n + 5, SIZE_MAX, SIZE_MAX, &o);
        assert_int_equal(o.why, WHY_ORIGIN_PROTOCOL);
        assert_text(&o.out, STR("hello"));
        buf_clear(&o.out);
        mem_free(a);
        mem_free(p);
    }
}

/* ---- what is broken, or too large */

static void a_body_that_ends_early_is_refused_after_what_came(void **state)
{
    struct str text = some_text(2000);
    for (size_t i = 0; i < NCODINGS; i++) {
        size_t n;
        uint8_t *p = coder_make(codings[i], text, 100, &n);
        for (size_t cut = 1; cut < n; cut++) {
            struct outcome o;
            decode(*state, codings[i], p, cut, 100, SIZE_MAX, &o);
            assert_int_equal(o.why, WHY_ORIGIN_PROTOCOL);
            assert_true(o.out.len <= text.n);
            assert_text(&o.out, str_head(text, o.out.len));
            buf_clear(&o.out);
        }
        mem_free(p);
    }
    free((char *)(uintptr_t)text.p);
}

/* Any bit: what comes out is bounded, and it ends. */
static void changed_bits_do_no_harm(void **state)
{
    struct str text = some_text(500);
    for (size_t i = 0; i < NCODINGS; i++) {
        size_t n;
        unsigned refused = 0;
        uint8_t *p = coder_make(codings[i], text, 0, &n);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            struct outcome o;
            p[bit / 8] ^= (uint8_t)(1u << bit % 8);
            decode(*state, codings[i], p, n, 64, 4096, &o);
            refused += o.why == WHY_ORIGIN_PROTOCOL;
            buf_clear(&o.out);
            p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_true(refused > 0);
        mem_free(p);
    }
    free((char *)(uintptr_t)text.p);
}

static void strangers_are_refused(void **state)
{
    static const struct {
        enum coding coding;
        struct str bytes;
    } rows[] = {
        {CODING_GZIP, STR("plain text")},
        {CODING_GZIP, STR("\x78\x9c\x4b\x04\x00\x00\x62\x00\x62")}, /* zlib's own wrapper */
        {CODING_GZIP, STR("\x4b\x04\x00")},                         /* deflate without one */
        {CODING_BR, STR("\x11\x1a\x03")},                           /* a large window */
        {CODING_ZSTD, STR("plain text")},
        {CODING_ZSTD, STR("\x25\xb5\x2f\xfd\x00\x00\x00\x00\x00")}, /* zstd 0.5 */
        {CODING_ZSTD, STR("\x27\xb5\x2f\xfd\x00\x00\x00\x00\x00")}, /* zstd 0.7 */
        {CODING_ZSTD, STR("\xfd\x2f\xb5\x1e\x00\x00\x00\x00\x00")}, /* zstd 0.1 */
        /* windows of 16 MiB: by the descriptor, and by the length of a single segment */
        {CODING_ZSTD, STR("\x28\xb5\x2f\xfd\x00\x70\x01\x00\x00")},
        {CODING_ZSTD, STR("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x01\x01\x00\x00")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t cut = 1; cut < 20; cut += 18) {
            struct outcome o;
            decode(*state, rows[i].coding, (const uint8_t *)rows[i].bytes.p, rows[i].bytes.n, cut,
                   SIZE_MAX, &o);
            assert_int_equal(o.why, WHY_ORIGIN_PROTOCOL);
            assert_int_equal(o.out.len, 0);
        }
}

/* The library's formats from before the RFC never reach it, at the second frame either. */
static void each_frame_must_begin_as_the_rfc_says(void **state)
{
    size_t n;
    bool more;
    struct buf in, out;
    uint8_t *a = coder_make(CODING_ZSTD, STR("hello"), 0, &n);
    struct decoder *d = decoder_new(CODING_ZSTD);
    buf_init(&in, *state);
    buf_init(&out, *state);
    buf_write(&in, a, n);
    assert_int_equal(decoder_push(d, &in, false, SIZE_MAX, &out, &more), WHY_OK);
    buf_write(&in, "\x27\xb5\x2f\xfd\0\0\0\0\0", 9); /* zstd 0.7 */
    assert_int_equal(decoder_push(d, &in, false, SIZE_MAX, &out, &more), WHY_ORIGIN_PROTOCOL);
    assert_text(&out, STR("hello"));
    decoder_free(d);
    buf_clear(&in);
    buf_clear(&out);
    mem_free(a);
}

static void a_window_of_8_mib_is_fine(void **state)
{
    static const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68, 0x09, 0x00, 0x00, 'x'};
    decode_whole(*state, CODING_ZSTD, frame, sizeof frame, STR("x"));
}

static void the_memory_of_all_windows_is_bounded(void **state)
{
    (void)state;
    enum { MANY = 4096, EACH = 1 << 20 };
    void **blocks = calloc(MANY, sizeof *blocks);
    unsigned n = 0;
    while (n < MANY && (blocks[n] = coding_alloc(EACH)))
        n++;
    assert_in_range(n, 16, MANY - 1);
    unsigned opened = 0;
    struct decoder **d = calloc(MANY, sizeof *d);
    while (opened < MANY && (d[opened] = decoder_new(CODING_ZSTD)))
        opened++;
    assert_true(opened < MANY);
    assert_null(coding_alloc(SIZE_MAX));
    while (opened > 0)
        decoder_free(d[--opened]);
    while (n > 0)
        coding_free(blocks[--n]);
    struct decoder *again = decoder_new(CODING_ZSTD);
    assert_non_null(again);
    decoder_free(again);
    free(d);
    free(blocks);
}

/* ---- coding */

/* In pieces; each is read to its end before the next. */
static void code(struct chunk_pool *pool, enum coding c, struct str text, size_t cut)
{
    struct encoder e;
    struct buf in, out;
    struct coder_reader *r = coder_reader_new(c);
    encoder_init(&e, c);
    buf_init(&in, pool);
    buf_init(&out, pool);
    for (size_t at = 0; at < text.n;) {
        size_t part = text.n - at < cut ? text.n - at : cut;
        buf_write(&in, text.p + at, part);
        at += part;
        bool last = at == text.n && cut % 2 == 0;
        encoder_push(&e, &in, last, &out);
        assert_int_equal(in.len, 0);
        for (; out.len > 0; buf_drop(&out, out.head->n))
            assert_true(coder_read(r, out.head->p, out.head->n));
        assert_int_equal(coder_text(r).n, at);
    }
    if (cut % 2 != 0 || text.n == 0)
        encoder_push(&e, &in, true, &out);
    for (; out.len > 0; buf_drop(&out, out.head->n))
        assert_true(coder_read(r, out.head->p, out.head->n));
    assert_true(coder_ended(r));
    assert_int_equal(coder_text(r).n, text.n);
    if (text.n)
        assert_memory_equal(coder_text(r).p, text.p, text.n);
    coder_reader_free(r);
}

static void others_read_what_we_code_as_soon_as_it_is_out(void **state)
{
    struct str text = some_text(LARGE);
    static const size_t cuts[] = {1, 2, 65535, 65536, 65537, 131072, 131073, LARGE, LARGE + 1};
    for (size_t i = 0; i < NCODINGS; i++) {
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++)
            code(*state, codings[i], str_head(text, cuts[k] < 3 ? 300 : text.n), cuts[k]);
        code(*state, codings[i], STR(""), 1);
    }
    free((char *)(uintptr_t)text.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(content_encoding_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_others_code_is_decoded_however_it_is_cut, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_bytes_at_all_are_an_empty_body, setup, teardown),
        cmocka_unit_test_setup_teardown(flushed_pieces_come_out_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(members_and_frames_are_one_body, setup, teardown),
        cmocka_unit_test_setup_teardown(skippable_frames_are_skipped, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_may_follow_br, setup, teardown),
        cmocka_unit_test_setup_teardown(what_follows_must_be_a_member_or_a_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(a_body_that_ends_early_is_refused_after_what_came, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(changed_bits_do_no_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(strangers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(each_frame_must_begin_as_the_rfc_says, setup, teardown),
        cmocka_unit_test_setup_teardown(a_window_of_8_mib_is_fine, setup, teardown),
        cmocka_unit_test_setup_teardown(the_memory_of_all_windows_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(others_read_what_we_code_as_soon_as_it_is_out, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
