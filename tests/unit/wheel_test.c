/* wheel_test.c — the timer wheel, turned by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/wheel.h"

/* A timer that writes down when it fired, in which order, and may do something more. */
struct probe {
    struct timer timer;
    unsigned fired;
    uint64_t fired_at;
    size_t order;
    void (*then)(struct probe *p);
    struct probe *other;
};

/* One wheel and one count for all tests of this program, since a callback is told its timer only.
 */
static struct wheel wheel;
static uint64_t now;
static size_t fired;

static void on_fire(struct timer *t)
{
    struct probe *p = container_of(t, struct probe, timer);
    assert_false(timer_is_set(t));
    p->fired++;
    p->fired_at = now;
    p->order = fired++;
    if (p->then)
        p->then(p);
}

static void probe_init(struct probe *p)
{
    *p = (struct probe){0};
    timer_init(&p->timer, on_fire);
}

static void start(uint64_t ms)
{
    now = ms;
    fired = 0;
    wheel_init(&wheel, ms);
}

static void turn(uint64_t ms)
{
    now = ms;
    wheel_turn(&wheel, ms);
}

static void fires_never_early_and_at_most_a_slot_late(void **state)
{
    (void)state;
    for (uint64_t base = 1000; base < 1000 + 130; base += 13) {
        for (uint64_t delay = 0; delay < 400; delay += 7) {
            struct probe p;
            start(base);
            probe_init(&p);
            wheel_set(&wheel, &p.timer, base + delay);
            for (uint64_t ms = base; ms < base + delay + 200; ms++)
                turn(ms);
            assert_int_equal(p.fired, 1);
            assert_in_range(p.fired_at, base + delay, base + delay + WHEEL_SLOT_MS - 1);
            assert_int_equal(wheel.count, 0);
        }
    }
}

static void long_timers_wait_for_their_round(void **state)
{
    (void)state;
    enum { ROUND = WHEEL_SLOTS * WHEEL_SLOT_MS };
    struct probe p[4];
    start(12345);
    for (size_t i = 0; i < 4; i++) {
        probe_init(&p[i]);
        wheel_set(&wheel, &p[i].timer, 12345 + 1000 + i * ROUND);
    }
    for (uint64_t ms = 12345; ms < 12345 + 4 * ROUND; ms += 50)
        turn(ms);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(p[i].fired, 1);
        assert_in_range(p[i].fired_at, p[i].timer.due, p[i].timer.due + WHEEL_SLOT_MS + 50);
    }
}

static void past_due_fires_in_the_next_turn(void **state)
{
    (void)state;
    struct probe p[3];
    start(64000);
    for (size_t i = 0; i < 3; i++) {
        probe_init(&p[i]);
        wheel_set(&wheel, &p[i].timer, 60000 + i);
    }
    assert_int_equal(wheel_wait(&wheel, 64000), 0);
    turn(64000); /* no time has passed */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(p[i].fired, 1);
        assert_int_equal(p[i].order, i);
    }
}

static void clear_and_set_again_move_a_timer(void **state)
{
    (void)state;
    struct probe p;
    start(0);
    probe_init(&p);
    wheel_clear(&wheel, &p.timer);
    assert_false(timer_is_set(&p.timer));
    wheel_set(&wheel, &p.timer, 1000);
    assert_true(timer_is_set(&p.timer));
    wheel_set(&wheel, &p.timer, 5000);
    assert_int_equal(wheel.count, 1);
    turn(3000);
    assert_int_equal(p.fired, 0);
    wheel_clear(&wheel, &p.timer);
    wheel_clear(&wheel, &p.timer);
    assert_int_equal(wheel.count, 0);
    turn(10000);
    assert_int_equal(p.fired, 0);
}

static void long_pause_is_caught_up_in_one_turn_oldest_first(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct probe *p = calloc(N, sizeof *p);
    unsigned seed = 3;
    start(500);
    for (size_t i = 0; i < N; i++) {
        probe_init(&p[i]);
        wheel_set(&wheel, &p[i].timer, 500 + (uint64_t)rand_r(&seed) % 3600000);
    }
    turn(500 + 3600000 + WHEEL_SLOT_MS);
    assert_int_equal(fired, N);
    assert_int_equal(wheel.count, 0);
    uint64_t *slot_by_order = calloc(N, sizeof *slot_by_order);
    for (size_t i = 0; i < N; i++)
        slot_by_order[p[i].order] = (p[i].timer.due + WHEEL_SLOT_MS - 1) / WHEEL_SLOT_MS;
    for (size_t i = 1; i < N; i++)
        assert_true(slot_by_order[i - 1] <= slot_by_order[i]);
    free(slot_by_order);
    free(p);
}

static void set_self_again(struct probe *p)
{
    wheel_set(&wheel, &p->timer, now - 10);
}

static void timer_that_rearms_in_the_past_fires_once_a_turn(void **state)
{
    (void)state;
    struct probe p;
    start(0);
    probe_init(&p);
    p.then = set_self_again;
    wheel_set(&wheel, &p.timer, 100);
    turn(128);
    assert_int_equal(p.fired, 1);
    turn(128);
    assert_int_equal(p.fired, 2);
    turn(1000000);
    assert_int_equal(p.fired, 3);
    turn(1000001);
    assert_int_equal(p.fired, 4);
    assert_int_equal(wheel.count, 1);
    wheel_clear(&wheel, &p.timer);
}

static void clear_other(struct probe *p)
{
    wheel_clear(&wheel, &p->other->timer);
}

static void set_other_later(struct probe *p)
{
    wheel_set(&wheel, &p->other->timer, now + 1000);
}

static void callback_may_clear_one_that_is_due_too(void **state)
{
    (void)state;
    struct probe a, b;
    start(0);
    probe_init(&a);
    probe_init(&b);
    a.then = clear_other;
    a.other = &b;
    wheel_set(&wheel, &a.timer, 100);
    wheel_set(&wheel, &b.timer, 101);
    turn(200);
    assert_int_equal(a.fired, 1);
    assert_int_equal(b.fired, 0);
    assert_int_equal(wheel.count, 0);
}

static void callback_may_put_off_one_that_is_due_too(void **state)
{
    (void)state;
    struct probe a, b;
    start(0);
    probe_init(&a);
    probe_init(&b);
    a.then = set_other_later;
    a.other = &b;
    wheel_set(&wheel, &a.timer, 100);
    wheel_set(&wheel, &b.timer, 101);
    turn(200);
    assert_int_equal(b.fired, 0);
    assert_int_equal(wheel.count, 1);
    turn(1300);
    assert_int_equal(b.fired, 1);
    assert_int_equal(wheel.count, 0);
}

static void wait_says_when_to_turn(void **state)
{
    (void)state;
    struct probe p;
    start(1000);
    probe_init(&p);
    assert_true(wheel_wait(&wheel, 1000) == UINT64_MAX);
    wheel_set(&wheel, &p.timer, 3000);
    uint64_t ms = 1000;
    turn(ms + wheel_wait(&wheel, ms) - 1);
    assert_int_equal(p.fired, 0);
    ms = now + wheel_wait(&wheel, now);
    assert_in_range(ms, 3000, 3000 + WHEEL_SLOT_MS - 1);
    turn(ms);
    assert_int_equal(p.fired, 1);
    assert_true(wheel_wait(&wheel, ms) == UINT64_MAX);
    wheel_set(&wheel, &p.timer, now + 100);
    assert_int_equal(wheel_wait(&wheel, now + 5000), 0);
    wheel_clear(&wheel, &p.timer);
}

static void waiting_as_told_reaches_far_timers_in_few_turns(void **state)
{
    (void)state;
    struct probe p;
    size_t turns = 0;
    start(77);
    probe_init(&p);
    wheel_set(&wheel, &p.timer, 77 + 3600000);
    for (; !p.fired && turns < 1000; turns++)
        turn(now + wheel_wait(&wheel, now));
    assert_int_equal(p.fired, 1);
    assert_in_range(now, p.timer.due, p.timer.due + WHEEL_SLOT_MS - 1);
    assert_true(turns <= 3600000 / (WHEEL_SLOTS * WHEEL_SLOT_MS) + 2);
}

static void time_that_stands_or_goes_back_fires_nothing(void **state)
{
    (void)state;
    struct probe p;
    start(100000);
    probe_init(&p);
    wheel_set(&wheel, &p.timer, 100500);
    turn(50000);
    turn(100000);
    assert_int_equal(p.fired, 0);
    turn(100600);
    assert_int_equal(p.fired, 1);
}

static void never_is_a_time_too(void **state)
{
    (void)state;
    struct probe p;
    start(0);
    probe_init(&p);
    wheel_set(&wheel, &p.timer, UINT64_MAX);
    turn(UINT64_C(1) << 50);
    assert_int_equal(p.fired, 0);
    wheel_clear(&wheel, &p.timer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fires_never_early_and_at_most_a_slot_late),
        cmocka_unit_test(long_timers_wait_for_their_round),
        cmocka_unit_test(past_due_fires_in_the_next_turn),
        cmocka_unit_test(clear_and_set_again_move_a_timer),
        cmocka_unit_test(long_pause_is_caught_up_in_one_turn_oldest_first),
        cmocka_unit_test(timer_that_rearms_in_the_past_fires_once_a_turn),
        cmocka_unit_test(callback_may_clear_one_that_is_due_too),
        cmocka_unit_test(callback_may_put_off_one_that_is_due_too),
        cmocka_unit_test(wait_says_when_to_turn),
        cmocka_unit_test(waiting_as_told_reaches_far_timers_in_few_turns),
        cmocka_unit_test(time_that_stands_or_goes_back_fires_nothing),
        cmocka_unit_test(never_is_a_time_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
