/* pairs_test.c — the sieve stops at each pair, wherever it lies and however many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "policies/pairs.h"

enum { MANY = 3 * PAIRS_QUICK, TEXT = 100 };

static void make_pairs(struct pairs *s, unsigned n, struct pairs_table *table)
{
    uint16_t list[MANY];
    for (unsigned i = 0; i < n; i++)
        list[i] = (uint16_t)(('A' + i) << 8 | ('a' + i % 26));
    memset(table, 0, sizeof *table);
    pairs_init(s, list, n, table);
}

/* The copy ends where the text does, so that a look beyond is seen. */
static void look(const struct pairs *s, size_t n, size_t from, size_t at, unsigned which)
{
    char *text = malloc(n);
    memset(text, '.', n);
    text[at] = (char)('A' + which);
    text[at + 1] = (char)('a' + which % 26);
    size_t expected = at >= from ? at : n;
    assert_int_equal(pairs_next(s, text, n, from), expected);
    free(text);
}

static void a_pair_is_found_at_every_place_from_every_place(void **state)
{
    (void)state;
    static const unsigned counts[] = {1, 3, PAIRS_QUICK, PAIRS_QUICK + 1, MANY};
    struct pairs_table table;
    struct pairs s;
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        make_pairs(&s, counts[i], &table);
        for (size_t n = 2; n < TEXT; n++)
            for (size_t at = 0; at + 1 < n; at++)
                look(&s, n, at % 7 * n / 7, at, (unsigned)at % counts[i]);
    }
}

static void half_a_pair_at_the_end_is_none(void **state)
{
    (void)state;
    struct pairs_table table;
    struct pairs s;
    for (unsigned n = 1; n <= PAIRS_QUICK + 1; n += PAIRS_QUICK) {
        make_pairs(&s, n, &table);
        assert_int_equal(pairs_next(&s, "....A", 5, 0), 5);
        assert_int_equal(pairs_next(&s, "A", 1, 0), 1);
        assert_int_equal(pairs_next(&s, "", 0, 0), 0);
        assert_int_equal(pairs_next(&s, "Aa", 2, 2), 2);
    }
}

static void a_pair_of_zeros_does_not_lie_behind_the_end(void **state)
{
    (void)state;
    struct pairs s;
    pairs_init(&s, (uint16_t[]){0}, 1, NULL);
    for (size_t n = 0; n < 40; n++) {
        char *text = malloc(n + 1);
        memset(text, 'x', n);
        assert_int_equal(pairs_next(&s, text, n, 0), n);
        free(text);
    }
}

static void none_is_found_of_none(void **state)
{
    (void)state;
    struct pairs s;
    pairs_init(&s, NULL, 0, NULL);
    assert_int_equal(pairs_next(&s, "abc", 3, 0), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_is_found_at_every_place_from_every_place),
        cmocka_unit_test(half_a_pair_at_the_end_is_none),
        cmocka_unit_test(a_pair_of_zeros_does_not_lie_behind_the_end),
        cmocka_unit_test(none_is_found_of_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
