/* marks_test.c — ranges of bits, against one byte for each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "policies/marks.h"

enum { N = 200 };

static size_t plain_next(const bool *flags, size_t n, size_t from, bool so)
{
    while (from < n && flags[from] != so)
        from++;
    return from < n ? from : n;
}

static void ranges_are_set_and_found(void **state)
{
    (void)state;
    srand(7);
    for (unsigned round = 0; round < 2000; round++) {
        uint64_t bits[N / 64 + 1] = {0};
        bool flags[N] = {0};
        for (unsigned k = 0; k < round % 5; k++) {
            size_t from = (size_t)rand() % N, to = from + (size_t)rand() % (N - from + 1);
            marks_set(bits, from, to);
            for (size_t i = from; i < to; i++)
                flags[i] = true;
        }
        size_t n = (size_t)rand() % N, from = (size_t)rand() % (n + 1);
        assert_int_equal(marks_next(bits, n, from, true), plain_next(flags, n, from, true));
        assert_int_equal(marks_next(bits, n, from, false), plain_next(flags, n, from, false));
    }
}

static void nothing_is_set_by_an_empty_range(void **state)
{
    (void)state;
    uint64_t bits[2] = {0};
    marks_set(bits, 5, 5);
    marks_set(bits, 64, 64);
    marks_set(bits, 9, 8);
    assert_int_equal(marks_next(bits, 128, 0, true), 128);
}

static void words_hold_all_bytes(void **state)
{
    (void)state;
    assert_int_equal(marks_words(0), 1);
    assert_true(marks_words(64) >= 1);
    assert_int_equal(marks_words(65), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_set_and_found),
        cmocka_unit_test(nothing_is_set_by_an_empty_range),
        cmocka_unit_test(words_hold_all_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
