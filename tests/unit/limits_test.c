/* limits_test.c — counts of the last minute, their bound, and several threads. */
#include "policies/limits.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void a_failure_counts_for_sixty_seconds(void **state)
{
    (void)state;
    struct failures *f = failures_new(16);
    failures_add(f, STR("sb"), 100);
    failures_add(f, STR("sb"), 130);
    assert_int_equal(failures_recent(f, STR("sb"), 130), 2);
    assert_int_equal(failures_recent(f, STR("sb"), 159), 2);
    assert_int_equal(failures_recent(f, STR("sb"), 160), 1);
    assert_int_equal(failures_recent(f, STR("sb"), 189), 1);
    assert_int_equal(failures_recent(f, STR("sb"), 190), 0);
    assert_int_equal(failures_recent(f, STR("sb"), 1000000), 0);
    failures_free(f);
}

static void the_window_slides_while_failures_go_on(void **state)
{
    (void)state;
    struct failures *f = failures_new(16);
    for (uint64_t s = 0; s < 1000; s++) {
        failures_add(f, STR("sb"), s);
        failures_add(f, STR("sb"), s);
        assert_int_equal(failures_recent(f, STR("sb"), s), s < 60 ? 2 * (s + 1) : 120);
    }
    failures_free(f);
}

static void a_long_silence_forgets_everything(void **state)
{
    (void)state;
    struct failures *f = failures_new(16);
    failures_add(f, STR("sb"), 5);
    failures_add(f, STR("sb"), 65);
    assert_int_equal(failures_recent(f, STR("sb"), 65), 1);
    failures_add(f, STR("sb"), 65 + 60 * 1000);
    assert_int_equal(failures_recent(f, STR("sb"), 65 + 60 * 1000), 1);
    failures_free(f);
}

static void keys_do_not_touch_each_other(void **state)
{
    (void)state;
    struct failures *f = failures_new(64);
    failures_add(f, STR("a"), 1);
    failures_add(f, STR("a"), 1);
    failures_add(f, STR("b"), 1);
    assert_int_equal(failures_recent(f, STR("a"), 1), 2);
    assert_int_equal(failures_recent(f, STR("b"), 1), 1);
    assert_int_equal(failures_recent(f, STR("c"), 1), 0);
    assert_int_equal(failures_recent(f, STR(""), 1), 0);
    failures_free(f);
}

static void a_clock_that_lags_behind_loses_nothing(void **state)
{
    (void)state;
    struct failures *f = failures_new(16);
    failures_add(f, STR("sb"), 10);
    failures_add(f, STR("sb"), 9);
    assert_int_equal(failures_recent(f, STR("sb"), 9), 2);
    assert_int_equal(failures_recent(f, STR("sb"), 69), 2);
    assert_int_equal(failures_recent(f, STR("sb"), 70), 0);
    failures_free(f);
}

static void a_full_table_forgets_the_quietest(void **state)
{
    (void)state;
    struct failures *f = failures_new(1); /* one set of eight */
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    for (unsigned i = 0; i < 8; i++)
        failures_add(f, str_of(names[i]), 100 + i);
    failures_add(f, STR("0"), 110);
    failures_recent(f, STR("1"), 111); /* asking is no failure */
    failures_add(f, STR("new"), 112);
    assert_int_equal(failures_recent(f, STR("1"), 112), 0);
    assert_int_equal(failures_recent(f, STR("0"), 112), 2);
    assert_int_equal(failures_recent(f, STR("2"), 112), 1);
    assert_int_equal(failures_recent(f, STR("new"), 112), 1);
    failures_free(f);
}

static void counts_of_one_second_do_not_overflow(void **state)
{
    (void)state;
    struct failures *f = failures_new(1);
    for (unsigned i = 0; i < 70000; i++)
        failures_add(f, STR("sb"), 3);
    assert_in_range(failures_recent(f, STR("sb"), 3), 65535, 70000);
    assert_int_equal(failures_recent(f, STR("sb"), 63), 0);
    failures_free(f);
}

enum { THREADS = 8, ROUNDS = 4000 };

static void *add_many(void *arg)
{
    struct failures *f = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        failures_add(f, STR("shared"), 50 + i % 2);
        failures_recent(f, STR("other"), 50);
    }
    return NULL;
}

static void several_threads_count_together(void **state)
{
    (void)state;
    struct failures *f = failures_new(1024);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, f), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures_recent(f, STR("shared"), 51), THREADS * ROUNDS);
    failures_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_counts_for_sixty_seconds),
        cmocka_unit_test(the_window_slides_while_failures_go_on),
        cmocka_unit_test(a_long_silence_forgets_everything),
        cmocka_unit_test(keys_do_not_touch_each_other),
        cmocka_unit_test(a_clock_that_lags_behind_loses_nothing),
        cmocka_unit_test(a_full_table_forgets_the_quietest),
        cmocka_unit_test(counts_of_one_second_do_not_overflow),
        cmocka_unit_test(several_threads_count_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
