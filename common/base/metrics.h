/* metrics.h — counters and histograms: one struct of relaxed atomics per worker, each with a single
 * writer; readers sum.
 *
 * Counter families with a label (why, status, result …) are flat arrays; labels come only from
 * bounded sets.  Gauges are not kept: whoever asks reads the length of a list. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* Upper bounds in ms (contract ingress 14.3); one bucket more for all above. */
#define METRIC_BOUNDS_MS                                                        \
    {                                                                           \
        0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000 \
    }
enum { METRIC_BUCKETS = 16 };

struct counter {
    _Atomic uint64_t v;
};
struct histogram {
    _Atomic uint64_t bucket[METRIC_BUCKETS];
    _Atomic uint64_t count, sum_us;
};

static inline void counter_add(struct counter *c, uint64_t n)
{
    /* a single writer: no locked instruction is needed */
    atomic_store_explicit(&c->v, atomic_load_explicit(&c->v, memory_order_relaxed) + n,
                          memory_order_relaxed);
}
static inline uint64_t counter_get(const struct counter *c)
{
    return atomic_load_explicit(&((struct counter *)(uintptr_t)c)->v, memory_order_relaxed);
}
void histogram_add(struct histogram *h, uint64_t us);
/* Adds b's numbers to a; a is the reader's own. */
void histogram_sum(struct histogram *a, const struct histogram *b);

/* Prometheus text (exposition format 0.0.4), appended to a growing text.  Dots in names become
 * underscores. */
struct metrics_out {
    char *p;
    size_t n, room;
};
void metrics_out_init(struct metrics_out *o);
void metrics_out_done(struct metrics_out *o);
/* # HELP and # TYPE. */
void metrics_family(struct metrics_out *o, const char *name, const char *type, const char *help);
/* One sample; labels is NULL or the text between the braces. */
void metrics_value(struct metrics_out *o, const char *name, const char *labels, double value);
/* A family of one sample without labels. */
void metrics_single(struct metrics_out *o, const char *name, const char *type, const char *help,
                    double value);
/* Bounds and sum in ms, or in s. */
void metrics_histogram(struct metrics_out *o, const char *name, const char *labels,
                       const struct histogram *h);
void metrics_histogram_s(struct metrics_out *o, const char *name, const char *labels,
                         const struct histogram *h);

#endif
