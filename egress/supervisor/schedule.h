/* schedule.h — when a worker is started again, and when no more (contract egress-policy
 * 7.4).  Pure: time and chance are arguments; times are of one clock that does not jump, in ms. */
#ifndef SUPERVISOR_SCHEDULE_H
#define SUPERVISOR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { SCHEDULE_BURST_MAX = 1000 };

struct schedule_rules {
    uint64_t backoff_min_ms, backoff_max_ms, stable_after_ms, burst_window_ms;
    double jitter;      /* 0 to 1: so much of a pause, more or less */
    unsigned burst_max; /* at most SCHEDULE_BURST_MAX; 0: no budget */
};

struct schedule {
    struct schedule_rules rules;
    uint64_t next_ms; /* the next pause, before chance */
    bool paused;      /* there has been a pause since the start, or since the last stable run */
    uint64_t starts;  /* ever */
    uint64_t at[SCHEDULE_BURST_MAX]; /* the last burst_max of them, a ring */
};

struct schedule_verdict {
    bool stable; /* after earlier trouble the worker has run long enough */
    bool burst;  /* the crash budget is spent */
    uint64_t sleep_ms;
};

void schedule_init(struct schedule *s, const struct schedule_rules *rules);
void schedule_started(struct schedule *s, uint64_t now_ms);
/* The start has come to its end after up_ms of running (0 if there was none); chance is -1 to 1. */
struct schedule_verdict schedule_ended(struct schedule *s, uint64_t now_ms, uint64_t up_ms,
                                       double chance);

#endif
