/* wake_lot.c — the parking lot: how many requests may wait for a wake, whoever
 * serves them, and the numbers about it. */
#include "ingress/wake_impl.h"

bool wake_park(struct wake *k)
{
    unsigned n = atomic_load_explicit(&k->parked, memory_order_relaxed);
    do {
        if (n >= k->rules.park_max) {
            atomic_fetch_add_explicit(&k->shed, 1, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&k->parked, &n, n + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    atomic_fetch_add_explicit(&k->all_parked, 1, memory_order_relaxed);
    return true;
}

void wake_leave(struct wake *k, enum wake_left how, uint64_t waited_ms)
{
    atomic_fetch_sub_explicit(&k->parked, 1, memory_order_relaxed);
    pthread_mutex_lock(&k->lock);
    histogram_add(&k->waited[how], waited_ms * 1000);
    pthread_mutex_unlock(&k->lock);
}

static uint64_t joined(const struct wake *k, uint64_t opened)
{
    uint64_t all = atomic_load_explicit(&k->all_parked, memory_order_relaxed);
    return all > opened ? all - opened : 0;
}

void wake_metrics(const struct wake *k, struct metrics_out *o)
{
    static const char *const lefts[] = {"outcome=\"served\"", "outcome=\"budget_exhausted\"",
                                        "outcome=\"canceled\"", "outcome=\"error\""};
    double triggered = (double)counter_get(&k->triggered), none = (double)counter_get(&k->none);
    metrics_family(o, "ingress.wake.flights", "counter",
                   "Wakes: resumed, joined by a request, nothing to do");
    metrics_value(o, "ingress.wake.flights", "outcome=\"triggered\"", triggered);
    metrics_value(o, "ingress.wake.flights", "outcome=\"joined\"",
                  (double)joined(k, k->last_flight));
    metrics_value(o, "ingress.wake.flights", "outcome=\"none\"", none);
    metrics_family(o, "ingress.park.active", "gauge", "Requests that wait for a wake");
    metrics_value(o, "ingress.park.active", NULL,
                  (double)atomic_load_explicit(&k->parked, memory_order_relaxed));
    metrics_family(o, "ingress.park.shed", "counter", "Requests that found the lot full");
    metrics_value(o, "ingress.park.shed", NULL,
                  (double)atomic_load_explicit(&k->shed, memory_order_relaxed));
    metrics_family(o, "ingress.park.wait.duration", "histogram", "How long requests waited, s");
    for (int i = 0; i < WAKE_LEFTS; i++)
        metrics_histogram_s(o, "ingress.park.wait.duration", lefts[i], &k->waited[i]);
}
