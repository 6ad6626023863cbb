/* histogram.c — each power of two is cut into 32 equal steps, so a bucket is found with a shift and
 * its width is a fixed share of its value. */
#include "histogram.h"

static unsigned bucket_of(uint64_t us)
{
    if (us < LATENCY_STEPS)
        return (unsigned)us;
    unsigned shift = 63u - (unsigned)__builtin_clzll(us) - 5;
    unsigned at = (shift + 1) * LATENCY_STEPS + (unsigned)(us >> shift) - LATENCY_STEPS;
    return at < LATENCY_BUCKETS ? at : LATENCY_BUCKETS - 1;
}

/* The largest value that falls into a bucket. */
static uint64_t top_of(unsigned at)
{
    if (at < LATENCY_STEPS)
        return at;
    unsigned shift = at / LATENCY_STEPS - 1;
    return ((uint64_t)(at % LATENCY_STEPS + LATENCY_STEPS + 1) << shift) - 1;
}

void latencies_add(struct latencies *l, uint64_t us)
{
    l->bucket[bucket_of(us)]++;
    l->count++;
    if (us > l->max_us)
        l->max_us = us;
}

uint64_t latencies_at(const struct latencies *l, double share)
{
    double sum = 0, want = share * (double)l->count;
    for (unsigned i = 0; i < LATENCY_BUCKETS && l->count > 0; i++) {
        sum += (double)l->bucket[i];
        if (sum >= want)
            return top_of(i) < l->max_us ? top_of(i) : l->max_us;
    }
    return l->max_us;
}
