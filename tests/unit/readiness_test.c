/* readiness_test.c — classes, hosts and windows of the network readiness tracker. */
#include "ingress/readiness.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const struct readiness_rules rules = {60000, 1024, 4, 2, 2, 0.2};

static void errno_counts_before_dns_before_deadline_before_the_clients_leave(void **state)
{
    (void)state;
    static const struct {
        enum why why;
        int err;
        bool gone;
        enum dial_class c;
    } rows[] = {
        {WHY_OK, 0, false, DIAL_SUCCESS},
        {WHY_OK, ECONNREFUSED, true, DIAL_SUCCESS}, /* of an address before */
        {WHY_DIAL, ETIMEDOUT, false, DIAL_TIMEOUT},
        {WHY_DIAL, EHOSTUNREACH, true, DIAL_UNREACHABLE},
        {WHY_DIAL, ENETUNREACH, false, DIAL_UNREACHABLE},
        {WHY_DIAL, ENETDOWN, false, DIAL_UNREACHABLE},
        {WHY_DIAL, EHOSTDOWN, false, DIAL_UNREACHABLE},
        {WHY_DIAL, ECONNREFUSED, true, DIAL_REFUSED},
        {WHY_DEADLINE, ECONNREFUSED, false, DIAL_REFUSED},
        {WHY_DNS, ECONNREFUSED, false, DIAL_REFUSED},
        {WHY_DNS, 0, true, DIAL_DNS_ERROR},
        {WHY_DEADLINE, 0, true, DIAL_TIMEOUT},
        {WHY_DIAL, ECONNRESET, false, DIAL_OTHER},
        {WHY_DIAL, ECONNRESET, true, DIAL_CANCELED},
        {WHY_CLIENT_GONE, 0, false, DIAL_CANCELED},
        {WHY_OVERLOAD, EMFILE, false, DIAL_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dial_class_of(rows[i].why, rows[i].err, rows[i].gone), rows[i].c);
    assert_string_equal(dial_class_text(DIAL_DNS_ERROR), "dns_error");
    assert_string_equal(dial_class_text(DIAL_OTHER), "other");
}

static void one_host_has_one_key(void **state)
{
    (void)state;
    static const struct {
        const char *target, *key;
    } rows[] = {
        {"10.0.0.1:80", "10.0.0.1"},
        {"10.0.0.1", "10.0.0.1"},
        {"[::1]:80", "::1"},
        {"[0:0::0:1]:80", "::1"},
        {"[FD00::A]", "fd00::a"},
        {"fd00::0:a", "fd00::a"},
        {"[::ffff:10.0.0.1]:1", "10.0.0.1"},
        {"Name.Test:80", "name.test"},
        {"name.test.:80", "name.test"},
        {"name.test.", "name.test"},
        {"", ""},
        {":80", ""},
        {"[", "["},
        {"[x]:1", "x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char key[READINESS_KEY_BYTES];
        size_t n = readiness_key(str_of(rows[i].target), key);
        assert_int_equal(n, strlen(rows[i].key));
        assert_memory_equal(key, rows[i].key, n);
    }
    char longest[400], key[READINESS_KEY_BYTES];
    memset(longest, 'A', sizeof longest);
    assert_int_equal(readiness_key((struct str){longest, sizeof longest}, key),
                     READINESS_KEY_BYTES);
    assert_int_equal(key[READINESS_KEY_BYTES - 1], 'a');
}

static void dial(struct readiness *r, const char *target, enum dial_class c, uint64_t ms)
{
    readiness_record(r, str_of(target), c, ms);
}

static void the_last_whole_window_is_shown(void **state)
{
    (void)state;
    struct readiness *r = readiness_new(&rules);
    dial(r, "a:1", DIAL_SUCCESS, 60000);
    dial(r, "b:1", DIAL_TIMEOUT, 119999);
    dial(r, "b:2", DIAL_UNREACHABLE, 120000);
    assert_int_equal(readiness_read(r, 119999).attempts, 0);
    struct readiness_view v = readiness_read(r, 120000);
    assert_int_equal(v.attempts, 2);
    assert_int_equal(v.signal_failures, 1);
    assert_int_equal(v.targets, 2);
    assert_int_equal(v.signal_targets, 1);
    assert_int_equal(readiness_read(r, 179999).attempts, 2);
    assert_int_equal(readiness_read(r, 180000).attempts, 1);
    assert_int_equal(readiness_read(r, 240000).attempts, 0);
    readiness_free(r);
}

static void a_late_dial_counts_for_the_window_just_over_and_no_older_one(void **state)
{
    (void)state;
    struct readiness *r = readiness_new(&rules);
    dial(r, "a:1", DIAL_SUCCESS, 60000);
    dial(r, "a:1", DIAL_SUCCESS, 120000);
    dial(r, "b:1", DIAL_TIMEOUT, 119000);
    assert_int_equal(readiness_read(r, 120001).attempts, 2);
    dial(r, "c:1", DIAL_SUCCESS, 180000);
    dial(r, "b:1", DIAL_TIMEOUT, 119000);
    assert_int_equal(readiness_read(r, 180001).attempts, 1);
    assert_int_equal(readiness_read(r, 240000).attempts, 1);
    readiness_free(r);
}

static void a_clock_set_back_does_not_blind_it(void **state)
{
    (void)state;
    struct readiness *r = readiness_new(&rules);
    dial(r, "a:1", DIAL_SUCCESS, 100 * 60000);
    dial(r, "a:1", DIAL_SUCCESS, 101 * 60000);
    dial(r, "a:1", DIAL_SUCCESS, 10 * 60000);
    dial(r, "a:1", DIAL_SUCCESS, 11 * 60000);
    assert_int_equal(readiness_read(r, 11 * 60000).attempts, 1);
    assert_int_equal(readiness_read(r, 12 * 60000).attempts, 1);
    readiness_free(r);
}

static void canceled_dials_and_refusals_are_no_signal(void **state)
{
    (void)state;
    struct readiness *r = readiness_new(&rules);
    dial(r, "a:1", DIAL_CANCELED, 0);
    for (unsigned i = 0; i < 4; i++)
        dial(r, i % 2 ? "b:1" : "c:1", i < 2 ? DIAL_REFUSED : DIAL_DNS_ERROR, 0);
    dial(r, "c:1", DIAL_OTHER, 0);
    struct readiness_view v = readiness_read(r, 60000);
    assert_int_equal(v.attempts, 5);
    assert_int_equal(v.targets, 2);
    assert_int_equal(v.signal_failures, 0);
    assert_true(v.qualified);
    assert_false(v.degraded);
    readiness_free(r);
}

static void it_is_degraded_when_all_four_bounds_are_reached(void **state)
{
    (void)state;
    static const struct {
        unsigned good, bad_a, bad_b;
        bool qualified, degraded;
    } rows[] = {
        {8, 1, 1, true, true},   {9, 1, 1, true, false},  {2, 2, 0, true, false},
        {1, 1, 1, false, false}, {0, 4, 0, false, false}, {0, 2, 2, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct readiness *r = readiness_new(&rules);
        for (unsigned k = 0; k < rows[i].good; k++)
            dial(r, "good:1", DIAL_SUCCESS, 1);
        for (unsigned k = 0; k < rows[i].bad_a; k++)
            dial(r, "a:1", DIAL_TIMEOUT, 1);
        for (unsigned k = 0; k < rows[i].bad_b; k++)
            dial(r, "b:1", DIAL_UNREACHABLE, 1);
        struct readiness_view v = readiness_read(r, 60000);
        assert_int_equal(v.qualified, rows[i].qualified);
        assert_int_equal(v.degraded, rows[i].degraded);
        struct str body = readiness_body(&v);
        assert_true(str_eq(body, rows[i].degraded ? STR("DEGRADED") : STR("OK")));
        readiness_free(r);
    }
}

static void hosts_past_the_cap_are_attempts_but_no_targets(void **state)
{
    (void)state;
    struct readiness_rules few = rules;
    few.max_targets = 2;
    struct readiness *r = readiness_new(&few);
    for (unsigned i = 0; i < 8; i++) {
        char target[16];
        snprintf(target, sizeof target, "h%u:1", i);
        dial(r, target, DIAL_TIMEOUT, 1);
    }
    struct readiness_view v = readiness_read(r, 60000);
    assert_int_equal(v.attempts, 8);
    assert_int_equal(v.signal_failures, 8);
    assert_int_equal(v.targets, 2);
    assert_int_equal(v.signal_targets, 2);
    readiness_free(r);
}

enum { THREADS = 4, DIALS = 5000 };

static void *dial_much(void *arg)
{
    struct readiness *r = arg;
    for (unsigned i = 0; i < DIALS; i++) {
        char target[16];
        snprintf(target, sizeof target, "h%u:1", i % 100);
        dial(r, target, i % 2 ? DIAL_TIMEOUT : DIAL_SUCCESS, 1 + (uint64_t)(i % 2) * 60000);
        if (i % 64 == 0)
            readiness_read(r, 60000);
    }
    return NULL;
}

static void all_threads_may_record_at_once(void **state)
{
    (void)state;
    struct readiness *r = readiness_new(&rules);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, dial_much, r), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(readiness_read(r, 60000).attempts, THREADS * DIALS / 2);
    struct readiness_view v = readiness_read(r, 120000);
    assert_int_equal(v.attempts, THREADS * DIALS / 2);
    assert_int_equal(v.signal_targets, 50);
    readiness_free(r);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(errno_counts_before_dns_before_deadline_before_the_clients_leave),
        cmocka_unit_test(one_host_has_one_key),
        cmocka_unit_test(the_last_whole_window_is_shown),
        cmocka_unit_test(a_late_dial_counts_for_the_window_just_over_and_no_older_one),
        cmocka_unit_test(a_clock_set_back_does_not_blind_it),
        cmocka_unit_test(canceled_dials_and_refusals_are_no_signal),
        cmocka_unit_test(it_is_degraded_when_all_four_bounds_are_reached),
        cmocka_unit_test(hosts_past_the_cap_are_attempts_but_no_targets),
        cmocka_unit_test(all_threads_may_record_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
