/* schedule.c — back-off and crash budget.  Pauses double from the least to the greatest
 * and begin anew after a run that was long enough; the budget looks only at when starts were. */
#include "egress/supervisor/schedule.h"

#include <assert.h>
#include <string.h>

void schedule_init(struct schedule *s, const struct schedule_rules *rules)
{
    assert(rules->burst_max <= SCHEDULE_BURST_MAX);
    assert(rules->backoff_min_ms <= rules->backoff_max_ms);
    memset(s, 0, sizeof *s);
    s->rules = *rules;
    s->next_ms = rules->backoff_min_ms;
}

void schedule_started(struct schedule *s, uint64_t now_ms)
{
    if (s->rules.burst_max > 0)
        s->at[s->starts % s->rules.burst_max] = now_ms;
    s->starts++;
}

static bool is_burst(const struct schedule *s, uint64_t now_ms)
{
    unsigned max = s->rules.burst_max;
    if (max == 0 || s->starts < max)
        return false;
    uint64_t oldest_ms = s->at[s->starts % max];
    return now_ms - oldest_ms <= s->rules.burst_window_ms;
}

/* A pause with its share of chance, inside the limits. */
static uint64_t vary(const struct schedule_rules *r, uint64_t ms, double chance)
{
    double varied = (double)ms * (1 + r->jitter * chance);
    if (varied <= (double)r->backoff_min_ms)
        return r->backoff_min_ms;
    return varied >= (double)r->backoff_max_ms ? r->backoff_max_ms : (uint64_t)varied;
}

struct schedule_verdict schedule_ended(struct schedule *s, uint64_t now_ms, uint64_t up_ms,
                                       double chance)
{
    const struct schedule_rules *r = &s->rules;
    struct schedule_verdict v = {.burst = is_burst(s, now_ms)};
    if (up_ms >= r->stable_after_ms) {
        v.stable = s->paused;
        s->next_ms = r->backoff_min_ms;
    }
    v.sleep_ms = vary(r, s->next_ms, chance);
    s->next_ms = s->next_ms > r->backoff_max_ms / 2 ? r->backoff_max_ms : s->next_ms * 2;
    s->paused = true;
    return v;
}
