/* h2_budget_test.c — debts and what pays them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "http/h2_budget.h"

static void resets_end_within_their_limit(void **state)
{
    (void)state;
    struct h2_budget b = {.max_resets = 3};
    for (int i = 0; i < 3; i++)
        assert_true(h2_budget_reset(&b));
    assert_false(h2_budget_reset(&b));
    h2_budget_ended(&b);
    assert_true(h2_budget_reset(&b));
    assert_false(h2_budget_reset(&b));
}

static void good_ends_are_not_saved_up(void **state)
{
    (void)state;
    struct h2_budget b = {.max_resets = 2};
    for (int i = 0; i < 100; i++)
        h2_budget_ended(&b);
    assert_true(h2_budget_reset(&b) && h2_budget_reset(&b));
    assert_false(h2_budget_reset(&b));
}

static void one_reset_for_each_good_end_may_go_on_for_ever(void **state)
{
    (void)state;
    struct h2_budget b = {.max_resets = 2};
    for (int i = 0; i < 1000; i++) {
        assert_true(h2_budget_reset(&b));
        h2_budget_ended(&b);
    }
}

static void control_frames_are_paid_by_what_carries_something(void **state)
{
    (void)state;
    struct h2_budget b = {.max_control = 2};
    assert_true(h2_budget_control(&b) && h2_budget_control(&b));
    assert_false(h2_budget_control(&b));
    h2_budget_carried(&b);
    assert_true(h2_budget_control(&b));
    h2_budget_sent(&b, 100); /* ours count too */
    assert_true(h2_budget_control(&b));
    h2_budget_sent(&b, 0); /* but not an empty one */
    assert_false(h2_budget_control(&b));
}

static void our_data_call_for_window_updates(void **state)
{
    (void)state;
    struct h2_budget b = {.max_control = 1};
    assert_true(h2_budget_update(&b));
    assert_false(h2_budget_update(&b));
    h2_budget_sent(&b, 5120); /* two for the frame, one for each 512 bytes; pays one debt */
    for (int i = 0; i < 12 + 1; i++)
        assert_true(h2_budget_update(&b));
    assert_false(h2_budget_update(&b));
}

static void what_is_allowed_has_a_bound(void **state)
{
    (void)state;
    struct h2_budget b = {.max_control = 1};
    for (int i = 0; i < 1000; i++)
        h2_budget_sent(&b, SIZE_MAX / 2);
    size_t n = 0;
    while (h2_budget_update(&b))
        n++;
    assert_in_range(n, 1000, 100000);
}

static void nothing_is_no_limit(void **state)
{
    (void)state;
    struct h2_budget b = {.max_control = 0};
    for (int i = 0; i < 100000; i++)
        assert_true(h2_budget_control(&b) && h2_budget_reset(&b) && h2_budget_update(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resets_end_within_their_limit),
        cmocka_unit_test(good_ends_are_not_saved_up),
        cmocka_unit_test(one_reset_for_each_good_end_may_go_on_for_ever),
        cmocka_unit_test(control_frames_are_paid_by_what_carries_something),
        cmocka_unit_test(our_data_call_for_window_updates),
        cmocka_unit_test(what_is_allowed_has_a_bound),
        cmocka_unit_test(nothing_is_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
