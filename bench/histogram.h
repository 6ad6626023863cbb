/* histogram.h — latencies in µs, to about three per cent, from one to an hour. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

enum { LATENCY_STEPS = 32, LATENCY_BUCKETS = 32 * LATENCY_STEPS };

struct latencies {
    uint64_t bucket[LATENCY_BUCKETS];
    uint64_t count, max_us;
};

void latencies_add(struct latencies *l, uint64_t us);
/* The value that `share` (0..1) of all stay at or under; 0 when there are none. */
uint64_t latencies_at(const struct latencies *l, double share);

#endif
