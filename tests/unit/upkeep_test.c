/* upkeep_test.c — the table of names that are looked up again. */
#include "egress/dns/upkeep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

struct rig {
    struct upkeep_table t;
    struct leases *l;
    uint64_t now;
};

static void rig_open(struct rig *rig)
{
    upkeep_table_init(&rig->t);
    rig->l = leases_new(&(struct leases_limits){100, 1000}, NULL);
    rig->now = 1000000;
}

static void rig_close(struct rig *rig)
{
    upkeep_table_done(&rig->t);
    leases_free(rig->l);
}

/* A client was told an address of the name, which has a lease now. */
static void tell(struct rig *rig, const char *name, uint32_t ttl)
{
    struct gate_learned learned = {
        .n = 1,
        .at[0] = {.ip = {.b = {[0] = (uint8_t)name[0], [1] = (uint8_t)name[1]}}, .ttl = ttl}};
    struct dns_name wire;
    assert_true(dns_name_parse(str_of(name), &wire));
    leases_take(rig->l, str_of(name), LEASE_USER, &learned, true, rig->now, NULL, NULL);
    upkeep_observe(&rig->t, str_of(name), &wire, &learned);
}

static void the_name_whose_lease_ends_first_is_due_first(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tell(&rig, "late.test", 60);
    tell(&rig, "soon.test", 30);
    assert_null(upkeep_due(&rig.t, rig.l, rig.now));
    rig.now += 61000;
    struct upkeep_name *n = upkeep_due(&rig.t, rig.l, rig.now);
    assert_true(str_eq(n->text, STR("soon.test")));
    n->busy = true;
    n = upkeep_due(&rig.t, rig.l, rig.now);
    assert_true(str_eq(n->text, STR("late.test")));
    rig_close(&rig);
}

static void after_a_failure_it_is_due_later(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tell(&rig, "a.test", 60);
    rig.now += 70000;
    struct upkeep_name *n = upkeep_due(&rig.t, rig.l, rig.now);
    upkeep_failed(n, rig.l, rig.now);
    rig.now += 29000;
    assert_null(upkeep_due(&rig.t, rig.l, rig.now));
    rig.now += 1000;
    assert_ptr_equal(upkeep_due(&rig.t, rig.l, rig.now), n);
    rig_close(&rig);
}

static void the_name_not_asked_for_longest_goes(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < UPKEEP_NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.test", i);
        tell(&rig, name, 60);
    }
    tell(&rig, "n0.test", 60);
    tell(&rig, "new.test", 60);
    assert_non_null(upkeep_find(&rig.t, STR("n0.test")));
    assert_null(upkeep_find(&rig.t, STR("n1.test")));
    rig_close(&rig);
}

static void one_answer_without_the_other_is_a_failure(void **state)
{
    (void)state;
    struct gate_learned learned = {.n = 0};
    assert_int_equal(upkeep_settle(UPKEEP_ANSWER, UPKEEP_NO_NAME, NULL, 0, &learned), UPKEEP_AGAIN);
    assert_int_equal(upkeep_settle(UPKEEP_ANSWER, UPKEEP_FAILED, NULL, 0, &learned), UPKEEP_AGAIN);
    assert_int_equal(upkeep_settle(UPKEEP_NO_NAME, UPKEEP_NO_NAME, NULL, 0, &learned), UPKEEP_DROP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_name_whose_lease_ends_first_is_due_first),
        cmocka_unit_test(after_a_failure_it_is_due_later),
        cmocka_unit_test(the_name_not_asked_for_longest_goes),
        cmocka_unit_test(one_answer_without_the_other_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
