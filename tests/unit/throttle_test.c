/* throttle_test.c — one per interval and sandbox, whoever asks.  (The contract's rows of it are
 * among the vectors.) */
#include "ingress/redis/throttle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, SANDBOXES = 500, ROUNDS = 20 };

static bool takes(struct throttle *t, const char *ns, const char *id, uint64_t now)
{
    return throttle_take(t, str_of(ns), str_of(id), now);
}

static void a_namespace_and_an_id_are_no_other_pair(void **state)
{
    (void)state;
    struct throttle *t = throttle_new(1000, 100);
    assert_true(takes(t, "", "ab", 5));
    assert_true(takes(t, "a", "b", 5));
    assert_true(takes(t, "ab", "", 5));
    assert_true(takes(t, "b", "a", 5));
    assert_true(takes(t, "a", "a", 5));
    assert_false(takes(t, "a", "b", 1004));
    throttle_free(t);
}

static void a_clock_that_is_behind_does_not_count(void **state)
{
    (void)state;
    struct throttle *t = throttle_new(1000, 100);
    assert_true(takes(t, "", "a", 5000));
    assert_false(takes(t, "", "a", 4990));
    assert_true(takes(t, "", "a", 6000));
    throttle_free(t);
}

static void only_the_mark_that_failed_is_given_back(void **state)
{
    (void)state;
    struct throttle *t = throttle_new(1000, 100);
    assert_true(takes(t, "", "a", 0));
    assert_true(takes(t, "", "a", 1000));
    throttle_give_back(t, STR_NONE, STR("a"), 0); /* an old one */
    assert_false(takes(t, "", "a", 1001));
    throttle_give_back(t, STR_NONE, STR("b"), 1000); /* another sandbox */
    assert_false(takes(t, "", "a", 1002));
    throttle_give_back(t, STR_NONE, STR("a"), 1000);
    assert_true(takes(t, "", "a", 1003));
    throttle_free(t);
}

static void without_interval_nothing_is_throttled(void **state)
{
    (void)state;
    assert_null(throttle_new(0, 100));
    assert_true(takes(NULL, "", "a", 0));
    assert_true(takes(NULL, "", "a", 0));
    throttle_give_back(NULL, STR_NONE, STR("a"), 0);
    throttle_free(NULL);
}

/* Eight marks are one set: the ninth takes the place of the oldest. */
static void with_too_many_sandboxes_the_oldest_mark_goes(void **state)
{
    (void)state;
    struct throttle *t = throttle_new(1000, 8);
    char id[8];
    for (unsigned i = 0; i < 9; i++) {
        snprintf(id, sizeof id, "s%u", i);
        assert_true(takes(t, "", id, i));
    }
    for (unsigned i = 8; i > 0; i--) {
        snprintf(id, sizeof id, "s%u", i);
        assert_false(takes(t, "", id, 100));
    }
    assert_true(takes(t, "", "s0", 100));
    throttle_free(t);
}

struct crowd {
    struct throttle *t;
    _Atomic unsigned taken;
};

static void *asks(void *user)
{
    struct crowd *c = user;
    for (unsigned i = 0; i < SANDBOXES * ROUNDS; i++) {
        char id[8];
        snprintf(id, sizeof id, "s%u", i % SANDBOXES);
        if (takes(c->t, "n", id, i / SANDBOXES))
            atomic_fetch_add(&c->taken, 1);
    }
    return NULL;
}

static void workers_count_once_together(void **state)
{
    (void)state;
    struct crowd c = {.t = throttle_new(1000, 1 << 14)};
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, asks, &c), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(c.taken, SANDBOXES);
    throttle_free(c.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_namespace_and_an_id_are_no_other_pair),
        cmocka_unit_test(a_clock_that_is_behind_does_not_count),
        cmocka_unit_test(only_the_mark_that_failed_is_given_back),
        cmocka_unit_test(without_interval_nothing_is_throttled),
        cmocka_unit_test(with_too_many_sandboxes_the_oldest_mark_goes),
        cmocka_unit_test(workers_count_once_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
