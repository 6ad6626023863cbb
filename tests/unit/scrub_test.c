/* scrub_test.c — a secret at every place, over every cut, in every coding and spelling, never comes
 * out; and nothing else is held back, changed or lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "egress/vault/scrub.h"
#include "harness/coders.h"
#include "harness/scrub_model.h"
#include "policies/spell.h"

enum { BODY_MAX = 4096, STRINGS_MAX = 64 };

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

/* ---- a filter and the two ends of it */

struct rig {
    struct filter *f;
    struct buf in, out;
    uint64_t hits;
    bool done;
};

static void rig_open(struct rig *g, struct redaction *r, enum coding c, struct chunk_pool *pool)
{
    *g = (struct rig){0};
    g->f = scrub_new(r, c, pool, &g->hits);
    assert_non_null(g->f);
    buf_init(&g->in, pool);
    buf_init(&g->out, pool);
}

static void rig_close(struct rig *g)
{
    g->f->ops->free(g->f);
    buf_clear(&g->in);
    buf_clear(&g->out);
}

/* Takes all of it, `room` a time. */
static enum why feed(struct rig *g, const void *p, size_t n, bool end, size_t room)
{
    enum why why;
    size_t before;
    buf_write(&g->in, p, n);
    do {
        before = g->out.len;
        why = g->f->ops->push(g->f, &g->in, end, room, &g->out, &g->done);
    } while (why == WHY_OK && !g->done && (g->in.len > 0 || end || g->out.len > before));
    return why;
}

static struct str out_of(const struct rig *g, char *to)
{
    buf_peek(&g->out, to, g->out.len);
    return (struct str){to, g->out.len};
}

static void assert_str(struct str got, struct str want)
{
    assert_int_equal(got.n, want.n);
    if (want.n)
        assert_memory_equal(got.p, want.p, want.n);
}

/* ---- plain bodies against the model */

struct world {
    struct str s[STRINGS_MAX];
    unsigned n;
    char bytes[STRINGS_MAX][40];
    char text[BODY_MAX], want[BODY_MAX], got[BODY_MAX];
};

static void random_world(struct world *w, unsigned letters, unsigned max, size_t longest)
{
    w->n = 1 + (unsigned)rand() % max;
    for (unsigned i = 0; i < w->n; i++) {
        size_t n = 1 + (size_t)rand() % longest;
        for (size_t k = 0; k < n; k++)
            w->bytes[i][k] = (char)('a' + (unsigned)rand() % letters);
        w->s[i] = (struct str){w->bytes[i], n};
    }
}

static struct str random_body(struct world *w, unsigned letters)
{
    size_t n = (size_t)rand() % 300;
    for (size_t i = 0; i < n; i++)
        w->text[i] = (char)('a' + (unsigned)rand() % (letters + 1));
    for (unsigned k = 0; n && k < 8; k++) {
        struct str s = w->s[(unsigned)rand() % w->n];
        size_t at = (size_t)rand() % n;
        memcpy(w->text + at, s.p, s.n < n - at ? s.n : n - at);
    }
    return (struct str){w->text, n};
}

/* The copy of the text must outlive what is masked in place. */
static void run_random(struct world *w, struct chunk_pool *pool, struct redaction *r,
                       struct str text)
{
    struct rig g;
    rig_open(&g, r, CODING_NONE, pool);
    scrub_model(w->s, w->n, text, w->want);
    unsigned most = 1 + (unsigned)rand() % 60;
    for (size_t at = 0; at < text.n;) {
        size_t part = 1 + (size_t)rand() % most;
        part = part < text.n - at ? part : text.n - at;
        assert_int_equal(feed(&g, text.p + at, part, false, SIZE_MAX), WHY_OK);
        at += part;
        assert_int_equal(g.out.len, at - scrub_model_held(w->s, w->n, str_head(text, at)));
    }
    assert_int_equal(feed(&g, "", 0, true, SIZE_MAX), WHY_OK);
    assert_true(g.done);
    assert_str(out_of(&g, w->got), (struct str){w->want, text.n});
    rig_close(&g);
}

static void any_strings_in_any_pieces_are_masked_and_only_they_wait(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    static const struct {
        unsigned letters, strings;
        size_t longest;
    } kinds[] = {{2, 3, 6}, {3, 8, 12}, {2, 2, 30}, {6, STRINGS_MAX, 10}, {20, 5, 39}};
    srand(11);
    for (unsigned round = 0; round < 1500; round++) {
        unsigned k = round % (sizeof kinds / sizeof *kinds);
        random_world(w, kinds[k].letters, kinds[k].strings, kinds[k].longest);
        struct redaction *r = redaction_with(NULL, w->s, w->n, 1);
        for (unsigned i = 0; i < 4; i++)
            run_random(w, *state, r, random_body(w, kinds[k].letters));
        redaction_unref(r);
    }
    free(w);
}

/* ---- every spelling, place, cut and coding */

static const char secret[] = "q\"t/ +\\<\xc3\xa9&\xf0\x9f\x98\x80-0001";

static struct redaction *redaction_of_secret(void)
{
    struct redact_use use = {{secret, sizeof secret - 1}, true, false};
    return redaction_new(&(struct redact_list){&use, 1, NULL, 0, 6});
}

/* Once in two pieces, the second with the end. */
static void run_cut(struct chunk_pool *pool, struct redaction *r, struct str body, size_t cut,
                    struct str want)
{
    struct rig g;
    char got[BODY_MAX];
    rig_open(&g, r, CODING_NONE, pool);
    assert_int_equal(feed(&g, body.p, cut, false, SIZE_MAX), WHY_OK);
    assert_int_equal(feed(&g, body.p + cut, body.n - cut, true, SIZE_MAX), WHY_OK);
    assert_str(out_of(&g, got), want);
    assert_int_equal(g.hits, 1);
    rig_close(&g);
}

static void a_secret_never_comes_out_whatever_its_spelling_place_and_cut(void **state)
{
    struct redaction *r = redaction_of_secret();
    char spelled[200], body[BODY_MAX], want[BODY_MAX];
    for (enum spelling how = 0; how <= SPELLINGS; how++) {
        struct str value = {secret, sizeof secret - 1};
        size_t n = how < SPELLINGS ? spell(how, value, spelled) : value.n;
        const char *text = how < SPELLINGS ? spelled : secret;
        for (size_t at = 0; at < 40; at++) {
            memset(body, '.', at + n + 40);
            memcpy(want, body, at + n + 40);
            memcpy(body + at, text, n);
            memset(want + at, '*', n);
            for (size_t cut = 0; cut <= at + n; cut++)
                run_cut(*state, r, (struct str){body, at + n + 40 - at % 41}, cut,
                        (struct str){want, at + n + 40 - at % 41});
        }
    }
    redaction_unref(r);
}

/* What the client reads is what it must be; the coding ends as it must. */
static void run_coded(struct chunk_pool *pool, struct redaction *r, enum coding c, struct str body,
                      size_t flush, size_t cut, size_t room, struct str want)
{
    struct rig g;
    size_t n;
    uint8_t *p = coder_make(c, body, flush, &n);
    struct coder_reader *reader = coder_reader_new(c);
    rig_open(&g, r, c, pool);
    for (size_t at = 0; at < n; at += cut)
        assert_int_equal(feed(&g, p + at, n - at < cut ? n - at : cut, false, room), WHY_OK);
    assert_int_equal(feed(&g, "", 0, true, room), WHY_OK);
    assert_true(g.done);
    for (; g.out.len > 0; buf_drop(&g.out, g.out.head->n))
        assert_true(coder_read(reader, g.out.head->p, g.out.head->n));
    assert_true(coder_ended(reader));
    assert_str(coder_text(reader), want);
    coder_reader_free(reader);
    rig_close(&g);
    mem_free(p);
}

static void nor_in_any_coding_however_it_is_flushed_and_cut(void **state)
{
    static const enum coding codings[] = {CODING_GZIP, CODING_BR, CODING_ZSTD};
    static const size_t flushes[] = {0, 1, 5, 13}, cuts[] = {1, 3, 10, SIZE_MAX / 2};
    struct redaction *r = redaction_of_secret();
    char body[200], want[200];
    for (unsigned i = 0; i < 3 * 4 * 4; i++) {
        size_t at = i % 23;
        memset(body, '.', sizeof body);
        memset(want, '.', sizeof want);
        memcpy(body + at, secret, sizeof secret - 1);
        memset(want + at, '*', sizeof secret - 1);
        run_coded(*state, r, codings[i % 3], (struct str){body, sizeof body}, flushes[i / 3 % 4],
                  cuts[i / 12], i % 2 ? 7 : SIZE_MAX, (struct str){want, sizeof want});
    }
    redaction_unref(r);
}

static void long_bodies_pass_in_bounded_memory(void **state)
{
    static const enum coding codings[] = {CODING_NONE, CODING_GZIP, CODING_BR, CODING_ZSTD};
    enum { LONG = 3 << 20, ROOM = 65536, PIECE = 1000 };
    struct redaction *r = redaction_of_secret();
    char *zeros = calloc(LONG, 1);
    for (unsigned i = 0; i < 4; i++) {
        struct rig g;
        size_t n = LONG, total = 0;
        uint8_t *coded = i ? coder_make(codings[i], (struct str){zeros, LONG}, 0, &n) : NULL;
        const uint8_t *p = i ? coded : (const uint8_t *)zeros;
        rig_open(&g, r, codings[i], *state);
        for (size_t at = 0; at < n || !g.done;) {
            size_t part = g.in.len ? 0 : n - at < PIECE ? n - at : PIECE;
            buf_write(&g.in, p + at, part);
            at += part;
            assert_int_equal(g.f->ops->push(g.f, &g.in, at == n, ROOM, &g.out, &g.done), WHY_OK);
            assert_true(g.out.len < 2 * ROOM);
            total += g.out.len;
            buf_clear(&g.out);
        }
        assert_true(total >= LONG);
        rig_close(&g);
        mem_free(coded);
    }
    free(zeros);
    redaction_unref(r);
}

/* ---- single truths */

static void bytes_go_on_where_they_lie(void **state)
{
    struct rig g;
    struct redaction *r = redaction_of_secret();
    rig_open(&g, r, CODING_NONE, *state);
    buf_str(&g.in, STR("nothing to see here\n"));
    const uint8_t *p = g.in.head->p;
    assert_int_equal(feed(&g, "", 0, false, SIZE_MAX), WHY_OK);
    assert_ptr_equal(g.out.head->p, p);
    rig_close(&g);
    redaction_unref(r);
}

static void what_is_held_goes_when_the_coding_breaks(void **state)
{
    struct redaction *r = redaction_with(NULL, (struct str[]){STR("secret-0001")}, 1, 6);
    size_t n;
    uint8_t *p = coder_make(CODING_GZIP, STR("hello secret-000"), 0, &n);
    struct rig g;
    struct coder_reader *reader = coder_reader_new(CODING_GZIP);
    rig_open(&g, r, CODING_GZIP, *state);
    assert_int_equal(feed(&g, p, n - 1, true, SIZE_MAX), WHY_ORIGIN_PROTOCOL);
    assert_false(g.done);
    for (; g.out.len > 0; buf_drop(&g.out, g.out.head->n))
        assert_true(coder_read(reader, g.out.head->p, g.out.head->n));
    assert_str(coder_text(reader), STR("hello "));
    assert_false(coder_ended(reader));
    coder_reader_free(reader);
    rig_close(&g);
    mem_free(p);
    redaction_unref(r);
}

static void a_match_that_ends_in_what_waits_masks_its_part_of_it(void **state)
{
    struct redaction *r =
        redaction_with(NULL, (struct str[]){STR("ab-test"), STR("test-cd")}, 2, 6);
    static const struct {
        const char *pieces[4], *want;
    } rows[] = {
        {{"1ab-test", "x"}, "1*******x"},
        {{"1ab-test", "-c", "d2"}, "1**********2"},
        {{"1ab-test", "-cx"}, "1*******-cx"},
        {{"1ab-t", "es", "t"}, "1*******"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig g;
        char got[40];
        rig_open(&g, r, CODING_NONE, *state);
        for (unsigned k = 0; k < 4 && rows[i].pieces[k]; k++)
            feed(&g, rows[i].pieces[k], strlen(rows[i].pieces[k]), false, SIZE_MAX);
        assert_int_equal(feed(&g, "", 0, true, SIZE_MAX), WHY_OK);
        assert_str(out_of(&g, got), str_of(rows[i].want));
        rig_close(&g);
    }
    redaction_unref(r);
}

static void matches_are_counted_once(void **state)
{
    struct redaction *r =
        redaction_with(NULL, (struct str[]){STR("abcdef"), STR("abcdefghi")}, 2, 6);
    struct rig g;
    rig_open(&g, r, CODING_NONE, *state);
    feed(&g, "abcdef", 6, false, SIZE_MAX);
    assert_int_equal(g.hits, 0);
    feed(&g, "gh", 2, false, SIZE_MAX);
    feed(&g, "x abcdef", 8, true, SIZE_MAX);
    assert_int_equal(g.hits, 2);
    rig_close(&g);
    redaction_unref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_strings_in_any_pieces_are_masked_and_only_they_wait,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_secret_never_comes_out_whatever_its_spelling_place_and_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(nor_in_any_coding_however_it_is_flushed_and_cut, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(long_bodies_pass_in_bounded_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_go_on_where_they_lie, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_held_goes_when_the_coding_breaks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_match_that_ends_in_what_waits_masks_its_part_of_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(matches_are_counted_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
