/* sandbox_limits_test.c — requests per sandbox: places, buckets, sums, and how few rows there are.
 */
#include "ingress/limits.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <cmocka.h>

#include "ingress/pages.h"

static struct {
    struct limits *l;
    struct arena a;
} t;

static int set_up(void **state)
{
    (void)state;
    arena_init(&t.a, NULL, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    limits_free(t.l);
    t.l = NULL;
    arena_done(&t.a);
    return 0;
}

static void with(size_t max_keys, unsigned max_running, unsigned per_second)
{
    t.l = limits_new(&(struct limits_rules){max_keys, max_running, per_second});
}

static enum limits_verdict enter(const char *id, uint64_t now_ms, struct limits_place **ret)
{
    return limits_enter(t.l, STR_NONE, str_of(id), now_ms, ret);
}

/* A whole request. */
static enum limits_verdict visit(const char *id, uint64_t now_ms)
{
    struct limits_place *p;
    enum limits_verdict v = enter(id, now_ms, &p);
    limits_leave(t.l, p, 200, 1, 2);
    return v;
}

static const struct limits_row *row(const char *ns, const char *id)
{
    const struct limits_row *rows;
    size_t n = limits_top(t.l, 0, &t.a, &rows);
    for (size_t i = 0; i < n; i++)
        if (str_eq(rows[i].id, str_of(id)) && str_eq(rows[i].ns, str_of(ns)))
            return &rows[i];
    return NULL;
}

static size_t known(void)
{
    const struct limits_row *rows;
    return limits_top(t.l, 0, &t.a, &rows);
}

/* ---- requests in progress ---- */

static void so_many_may_run_and_not_one_more(void **state)
{
    struct limits_place *a, *b, *c, *other;
    (void)state;
    with(16, 2, 0);
    assert_int_equal(enter("x", 1, &a), LIMITS_OK);
    assert_int_equal(enter("x", 1, &b), LIMITS_OK);
    assert_int_equal(enter("x", 1, &c), LIMITS_BUSY);
    assert_null(c);
    assert_int_equal(enter("y", 1, &other), LIMITS_OK);
    limits_leave(t.l, a, 200, 0, 0);
    assert_int_equal(enter("x", 1, &a), LIMITS_OK);
    assert_int_equal(enter("x", 1, &c), LIMITS_BUSY);
    assert_int_equal(row("", "x")->running, 2);
    assert_int_equal(row("", "x")->refused, 2);
    limits_leave(t.l, a, 200, 0, 0);
    limits_leave(t.l, b, 200, 0, 0);
    limits_leave(t.l, other, 200, 0, 0);
    assert_int_equal(row("", "x")->running, 0);
}

static void without_a_limit_any_number_runs(void **state)
{
    static struct limits_place *places[1000];
    (void)state;
    with(16, 0, 0);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(enter("x", 1, &places[i]), LIMITS_OK);
    for (size_t i = 0; i < 1000; i++)
        limits_leave(t.l, places[i], 200, 0, 0);
}

static void a_namespace_makes_another_sandbox(void **state)
{
    struct limits_place *a, *b, *c;
    (void)state;
    with(16, 1, 0);
    assert_int_equal(limits_enter(t.l, STR("n1"), STR("x"), 1, &a), LIMITS_OK);
    assert_int_equal(limits_enter(t.l, STR("n2"), STR("x"), 1, &b), LIMITS_OK);
    assert_int_equal(limits_enter(t.l, STR("n1"), STR("x"), 1, &c), LIMITS_BUSY);
    assert_int_equal(row("n1", "x")->refused, 1);
    assert_int_equal(row("n2", "x")->refused, 0);
    limits_leave(t.l, a, 200, 0, 0);
    limits_leave(t.l, b, 200, 0, 0);
}

/* ---- requests a second ---- */

static void a_second_brings_as_many_as_it_says(void **state)
{
    (void)state;
    with(16, 0, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(visit("x", 1000), LIMITS_OK);
    assert_int_equal(visit("x", 1000), LIMITS_RATE);
    assert_int_equal(visit("x", 1199), LIMITS_RATE);
    assert_int_equal(visit("x", 1200), LIMITS_OK);
    assert_int_equal(visit("x", 1200), LIMITS_RATE);
    assert_int_equal(visit("y", 1200), LIMITS_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(visit("x", 100000), LIMITS_OK);
    assert_int_equal(visit("x", 100000), LIMITS_RATE);
}

static void a_clock_that_goes_back_brings_nothing(void **state)
{
    (void)state;
    with(16, 0, 1);
    assert_int_equal(visit("x", 5000), LIMITS_OK);
    assert_int_equal(visit("x", 4000), LIMITS_RATE);
    assert_int_equal(visit("x", 5999), LIMITS_RATE);
    assert_int_equal(visit("x", 6000), LIMITS_OK);
}

static void the_largest_rate_does_not_overflow(void **state)
{
    (void)state;
    with(16, 0, UINT32_MAX);
    assert_int_equal(visit("x", 1), LIMITS_OK);
    assert_int_equal(visit("x", UINT64_MAX), LIMITS_OK);
}

static void who_is_refused_for_places_uses_no_token(void **state)
{
    struct limits_place *a, *b;
    (void)state;
    with(16, 1, 2);
    assert_int_equal(enter("x", 1, &a), LIMITS_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(enter("x", 1, &b), LIMITS_BUSY);
    limits_leave(t.l, a, 200, 0, 0);
    assert_int_equal(visit("x", 1), LIMITS_OK);
    assert_int_equal(visit("x", 1), LIMITS_RATE);
}

/* ---- sums ---- */

static void a_row_sums_what_its_requests_were(void **state)
{
    struct limits_place *p;
    (void)state;
    with(16, 0, 0);
    static const int statuses[] = {200, 404, 499, 500, 503, 0};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        assert_int_equal(enter("x", 10 + i, &p), LIMITS_OK);
        limits_leave(t.l, p, statuses[i], 100, 1000);
    }
    const struct limits_row *r = row("", "x");
    assert_int_equal(r->requests, 6);
    assert_int_equal(r->failed, 3);
    assert_int_equal(r->bytes_in, 600);
    assert_int_equal(r->bytes_out, 6000);
    assert_int_equal(r->last_ms, 15);
    limits_leave(t.l, NULL, 200, 1, 1);
}

static void the_top_is_by_requests_and_cut(void **state)
{
    const struct limits_row *rows;
    (void)state;
    with(64, 0, 0);
    for (int i = 0; i < 20; i++) {
        char id[24];
        snprintf(id, sizeof id, "s%02d", i);
        for (int k = 0; k <= i % 10; k++)
            visit(id, 1);
    }
    assert_int_equal(limits_top(t.l, 3, &t.a, &rows), 3);
    assert_true(str_eq(rows[0].id, STR("s09")) && rows[0].requests == 10);
    assert_true(str_eq(rows[1].id, STR("s19")) && rows[1].requests == 10);
    assert_true(str_eq(rows[2].id, STR("s08")) && rows[2].requests == 9);
    assert_int_equal(limits_top(t.l, 0, &t.a, &rows), 20);
    assert_int_equal(limits_top(t.l, 100, &t.a, &rows), 20);
}

/* ---- room ---- */

static void who_was_quiet_longest_makes_room(void **state)
{
    (void)state;
    with(3, 0, 0);
    visit("a", 1);
    visit("b", 2);
    visit("c", 3);
    visit("a", 4);
    visit("d", 5);
    assert_non_null(row("", "a"));
    assert_null(row("", "b"));
    assert_non_null(row("", "c"));
    assert_non_null(row("", "d"));
    assert_int_equal(limits_uncounted(t.l), 0);
}

static void whoever_runs_keeps_its_row(void **state)
{
    struct limits_place *a, *b, *none;
    (void)state;
    with(2, 1, 0);
    assert_int_equal(enter("a", 1, &a), LIMITS_OK);
    visit("b", 2);
    visit("c", 3);
    assert_non_null(row("", "a"));
    assert_null(row("", "b"));
    assert_int_equal(enter("c", 4, &b), LIMITS_OK);
    assert_int_equal(enter("d", 5, &none), LIMITS_OK); /* all run: not counted, not limited */
    assert_null(none);
    assert_int_equal(enter("d", 5, &none), LIMITS_OK);
    assert_int_equal(limits_uncounted(t.l), 2);
    assert_int_equal(enter("a", 6, &none), LIMITS_BUSY);
    limits_leave(t.l, a, 200, 0, 0);
    assert_int_equal(visit("d", 7), LIMITS_OK);
    assert_null(row("", "a"));
    limits_leave(t.l, b, 200, 0, 0);
}

static void there_are_never_more_rows_than_it_says(void **state)
{
    static const size_t sizes[] = {1, 100, 2000};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        with(sizes[k], 0, 0);
        for (size_t i = 0; i < 3 * sizes[k] + 10; i++) {
            char id[24];
            snprintf(id, sizeof id, "s%zu", i);
            visit(id, i);
        }
        assert_int_equal(known(), sizes[k]);
        assert_int_equal(limits_uncounted(t.l), 0);
        limits_free(t.l);
        t.l = NULL;
    }
}

static void all_of_them_may_run_at_once(void **state)
{
    static struct limits_place *places[2000];
    struct limits_place *none;
    (void)state;
    with(2000, 0, 0);
    for (size_t i = 0; i < 2000; i++) {
        char id[24];
        snprintf(id, sizeof id, "s%zu", i);
        enter(id, 1, &places[i]);
        assert_non_null(places[i]);
    }
    assert_int_equal(enter("more", 1, &none), LIMITS_OK);
    assert_null(none);
    assert_int_equal(limits_uncounted(t.l), 1);
    for (size_t i = 0; i < 2000; i++)
        limits_leave(t.l, places[i], 200, 0, 0);
}

/* ---- threads ---- */

enum { THREADS = 8, ROUNDS = 5000, AT_ONCE = 3 };

static _Atomic int inside, most, entered;

static void *come_and_go(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct limits_place *p;
        char other[16];
        snprintf(other, sizeof other, "o%d", i % 50);
        visit(other, (uint64_t)i);
        if (enter("x", (uint64_t)i, &p) != LIMITS_OK)
            continue;
        int n = atomic_fetch_add(&inside, 1) + 1, seen = atomic_load(&most);
        while (n > seen && !atomic_compare_exchange_weak(&most, &seen, n))
            ;
        atomic_fetch_add(&entered, 1);
        atomic_fetch_sub(&inside, 1);
        limits_leave(t.l, p, 200, 1, 1);
    }
    return NULL;
}

static void the_count_is_exact_over_threads(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    inside = most = entered = 0;
    with(20, AT_ONCE, 0); /* too few rows for all, so they come and go */
    struct limits_place *hold;
    assert_int_equal(enter("x", 0, &hold), LIMITS_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(most <= AT_ONCE - 1);
    const struct limits_row *r = row("", "x");
    assert_int_equal(r->running, 1);
    assert_int_equal(r->requests, entered + 1);
    assert_int_equal(r->requests + r->refused, THREADS * ROUNDS + 1);
    assert_true(known() <= 20);
    limits_leave(t.l, hold, 200, 0, 0);
}

/* ---- as text ---- */

static bool has(struct str text, const char *part)
{
    return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

static void ten_sandboxes_become_labels_and_no_more(void **state)
{
    struct metrics_out o;
    (void)state;
    with(64, 0, 0);
    for (int i = 0; i < 30; i++) {
        char id[24];
        snprintf(id, sizeof id, "s%02d", i);
        for (int k = 0; k <= i; k++)
            visit(id, 1);
    }
    metrics_out_init(&o);
    pages_sandbox_metrics(t.l, &o);
    struct str text = {o.p, o.n};
    assert_true(has(text, "ingress_sandbox_requests{sandbox=\"s29\"} 30\n"));
    assert_true(has(text, "ingress_sandbox_bytes_out{sandbox=\"s20\"} 42\n"));
    assert_false(has(text, "s19"));
    assert_true(has(text, "ingress_sandboxes_uncounted 0\n"));
    metrics_out_done(&o);
}

static void a_label_cannot_be_left(void **state)
{
    struct limits_place *p;
    struct metrics_out o;
    (void)state;
    with(64, 0, 0);
    limits_enter(t.l, STR("n"), STR("a\"} 1\\\nb"), 1, &p);
    limits_leave(t.l, p, 200, 0, 0);
    metrics_out_init(&o);
    pages_sandbox_metrics(t.l, &o);
    assert_true(has((struct str){o.p, o.n},
                    "ingress_sandbox_requests{namespace=\"n\",sandbox=\"a\\\"} 1\\\\\\nb\"} 1\n"));
    metrics_out_done(&o);
}

static void the_page_shows_all_of_them(void **state)
{
    struct limits_place *p;
    (void)state;
    with(64, 0, 0);
    visit("b", 1000);
    visit("b", 2000);
    limits_enter(t.l, STR("ns"), STR("a"), 2500, &p);
    struct str text = pages_sandboxes(t.l, 3000, &t.a);
    static const char expected[] =
        "{\"sandboxes\":["
        "{\"id\":\"b\",\"requests\":2,\"running\":0,\"refused\":0,\"failed\":0,\"bytes_in\":2,"
        "\"bytes_out\":4,\"last_request_ms_ago\":1000},"
        "{\"id\":\"a\",\"namespace\":\"ns\",\"requests\":1,\"running\":1,\"refused\":0,"
        "\"failed\":0,\"bytes_in\":0,\"bytes_out\":0,\"last_request_ms_ago\":500}],"
        "\"uncounted\":0}\n";
    assert_int_equal(text.n, strlen(expected));
    assert_memory_equal(text.p, expected, text.n);
    limits_leave(t.l, p, 200, 0, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(so_many_may_run_and_not_one_more),
        TEST(without_a_limit_any_number_runs),
        TEST(a_namespace_makes_another_sandbox),
        TEST(a_second_brings_as_many_as_it_says),
        TEST(a_clock_that_goes_back_brings_nothing),
        TEST(the_largest_rate_does_not_overflow),
        TEST(who_is_refused_for_places_uses_no_token),
        TEST(a_row_sums_what_its_requests_were),
        TEST(the_top_is_by_requests_and_cut),
        TEST(who_was_quiet_longest_makes_room),
        TEST(whoever_runs_keeps_its_row),
        TEST(there_are_never_more_rows_than_it_says),
        TEST(all_of_them_may_run_at_once),
        TEST(the_count_is_exact_over_threads),
        TEST(ten_sandboxes_become_labels_and_no_more),
        TEST(a_label_cannot_be_left),
        TEST(the_page_shows_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
