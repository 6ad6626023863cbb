/* metrics_test.c — buckets, sums and the text of the exposition format. */
#include <setjmp.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/metrics.h"

static void assert_out(const struct metrics_out *o, const char *expected)
{
    if (o->n != strlen(expected) || memcmp(o->p, expected, o->n) != 0)
        fail_msg("got:\n%.*s\nexpected:\n%s", (int)o->n, o->p, expected);
}

static void counter_counts(void **state)
{
    (void)state;
    struct counter c = {0};
    counter_add(&c, 1);
    counter_add(&c, 41);
    assert_int_equal(counter_get(&c), 42);
}

static void bounds_belong_to_the_bucket_below(void **state)
{
    (void)state;
    static const struct {
        uint64_t us;
        size_t bucket;
    } rows[] = {
        {0, 0},      {1, 1},      {5000, 1},      {5001, 2},      {10000, 2},
        {250000, 7}, {250001, 8}, {10000000, 14}, {10000001, 15}, {UINT64_MAX / 2, 15},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct histogram h = {0};
        histogram_add(&h, rows[i].us);
        for (size_t k = 0; k < METRIC_BUCKETS; k++)
            assert_int_equal(h.bucket[k], k == rows[i].bucket);
        assert_int_equal(h.count, 1);
        assert_int_equal(h.sum_us, rows[i].us);
    }
}

static void sum_adds_all_of_the_other(void **state)
{
    (void)state;
    struct histogram a = {0}, b = {0};
    histogram_add(&a, 3000);
    histogram_add(&b, 3000);
    histogram_add(&b, 20000000);
    histogram_sum(&a, &b);
    assert_int_equal(a.bucket[1], 2);
    assert_int_equal(a.bucket[15], 1);
    assert_int_equal(a.count, 3);
    assert_int_equal(a.sum_us, 20006000);
    assert_int_equal(b.count, 2);
}

static void text_has_families_and_samples(void **state)
{
    (void)state;
    struct metrics_out o;
    metrics_out_init(&o);
    metrics_family(&o, "ingress.http.request.count", "counter", "Requests\nby \\ status.");
    metrics_value(&o, "ingress.http.request.count", "http_method=\"GET\",why=\"a.b\"", 3);
    metrics_value(&o, "ingress.park.active", NULL, 0);
    assert_out(&o, "# HELP ingress_http_request_count Requests\\nby \\\\ status.\n"
                   "# TYPE ingress_http_request_count counter\n"
                   "ingress_http_request_count{http_method=\"GET\",why=\"a.b\"} 3\n"
                   "ingress_park_active 0\n");
    metrics_out_done(&o);
    assert_null(o.p);
}

static void numbers_are_short_and_exact(void **state)
{
    (void)state;
    struct metrics_out o;
    metrics_out_init(&o);
    metrics_value(&o, "x", NULL, 0.2);
    metrics_value(&o, "x", NULL, 9007199254740991.0);
    metrics_value(&o, "x", NULL, 1.0 / 3);
    metrics_value(&o, "x", NULL, -1.5);
    metrics_value(&o, "x", NULL, INFINITY);
    metrics_value(&o, "x", NULL, -INFINITY);
    metrics_value(&o, "x", NULL, NAN);
    assert_out(&o,
               "x 0.2\nx 9007199254740991\nx 0.33333333333333331\nx -1.5\nx +Inf\nx -Inf\nx NaN\n");
    metrics_out_done(&o);
}

static void histogram_text_is_cumulative(void **state)
{
    (void)state;
    struct histogram h = {0};
    struct metrics_out o;
    histogram_add(&h, 4000);
    histogram_add(&h, 7500);
    histogram_add(&h, 7500);
    histogram_add(&h, 11000000);
    metrics_out_init(&o);
    metrics_histogram(&o, "a.b", "r=\"x\"", &h);
    assert_out(&o, "a_b_bucket{r=\"x\",le=\"0\"} 0\n"
                   "a_b_bucket{r=\"x\",le=\"5\"} 1\n"
                   "a_b_bucket{r=\"x\",le=\"10\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"25\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"50\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"75\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"100\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"250\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"500\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"750\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"1000\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"2500\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"5000\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"7500\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"10000\"} 3\n"
                   "a_b_bucket{r=\"x\",le=\"+Inf\"} 4\n"
                   "a_b_sum{r=\"x\"} 11019\n"
                   "a_b_count{r=\"x\"} 4\n");
    metrics_out_done(&o);
    metrics_out_init(&o);
    metrics_histogram(&o, "c", NULL, &h);
    assert_memory_equal(o.p, "c_bucket{le=\"0\"} 0\n", 19);
    metrics_out_done(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_counts),
        cmocka_unit_test(bounds_belong_to_the_bucket_below),
        cmocka_unit_test(sum_adds_all_of_the_other),
        cmocka_unit_test(text_has_families_and_samples),
        cmocka_unit_test(numbers_are_short_and_exact),
        cmocka_unit_test(histogram_text_is_cumulative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
