/* window_test.c — a window follows how fast its credit comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "http/window.h"

enum { BASE = 1000, MOST = 3500 };

/* A whole window of credit, in two halves, the second at `now`. */
static size_t turn(struct window *w, uint64_t now)
{
    size_t half = w->size / 2, size = w->size;
    assert_int_equal(window_next(w, half, now, BASE, MOST), size); /* not before all of it */
    w->size = window_next(w, size - half, now, BASE, MOST);
    return w->size;
}

static void quick_credit_doubles_it_up_to_the_most(void **state)
{
    struct window w;
    (void)state;
    window_init(&w, BASE, 100);
    assert_int_equal(turn(&w, 105), 2000);
    assert_int_equal(turn(&w, 115), MOST);
    assert_int_equal(turn(&w, 116), MOST);
}

static void unhurried_credit_leaves_it(void **state)
{
    struct window w;
    (void)state;
    window_init(&w, BASE, 0);
    assert_int_equal(turn(&w, WINDOW_QUICK_MS + 1), BASE);
    assert_int_equal(turn(&w, WINDOW_QUICK_MS + 2), 2000);
    assert_int_equal(turn(&w, WINDOW_QUICK_MS + 2 + WINDOW_SLOW_MS - 1), 2000);
}

static void slow_credit_takes_it_back(void **state)
{
    struct window w;
    (void)state;
    window_init(&w, BASE, 0);
    turn(&w, 1);
    turn(&w, 2);
    assert_int_equal(w.size, MOST);
    assert_int_equal(turn(&w, 2 + WINDOW_SLOW_MS), BASE);
}

static void most_below_the_base_is_no_growth(void **state)
{
    struct window w;
    (void)state;
    window_init(&w, BASE, 0);
    assert_int_equal(window_next(&w, BASE, 1, BASE, 0), BASE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quick_credit_doubles_it_up_to_the_most),
        cmocka_unit_test(unhurried_credit_leaves_it),
        cmocka_unit_test(slow_credit_takes_it_back),
        cmocka_unit_test(most_below_the_base_is_no_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
