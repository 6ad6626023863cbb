/* events_impl.h — the events object, for the files of egress/events. */
#ifndef EVENTS_EVENTS_IMPL_H
#define EVENTS_EVENTS_IMPL_H

#include "egress/events/events.h"
#include "egress/events/figures.h"
#include "egress/events/share.h"

/* Numbers that only the worker can read, as it last did (measure.c). */
struct gauges {
    struct counter dns_waiting, leases, lease_names, lease_addresses;
    struct counter relay_open, relay_open_asked, api_open, webhook_waiting;
    struct counter enforced, rules, applied, learned, removed;
    struct counter apply_failed, learn_failed, remove_failed;
    struct counter repaired, cut, cut_failed, drops_lost, lacks, unguarded;
    struct counter learned_user, learned_always, learned_bound, learned_parent;
    struct counter refused, forged, wrong_mark, frames; /* packets */
};

static inline void gauge_set(struct counter *c, uint64_t v)
{
    atomic_store_explicit(&c->v, v, memory_order_relaxed);
}

struct events {
    struct events_setup s;
    const struct egress_view *view; /* a reference, or NULL */
    struct webhook *webhook;        /* NULL: none is wanted */
    struct event_counters counters;
    struct gauges gauges;
    struct cpu_ticks ticks; /* of the admin pages' thread */
    struct share denied, refused, dropped, withheld;
};

#endif
