/* measure.c — the numbers that only the worker may read, copied for whoever shows them. */
#include "egress/api/api.h"
#include "egress/dns/service.h"
#include "egress/events/events_impl.h"
#include "egress/events/metrics.h"
#include "egress/events/webhook.h"
#include "egress/kernel/enforce.h"
#include "egress/relay/relay.h"

static void measure_kernel(struct gauges *g, const struct enforce *e)
{
    struct enforce_counts c = {0};
    enforce_counts(e, &c);
    gauge_set(&g->enforced, enforce_fault(e) == NULL);
    gauge_set(&g->rules, c.rules);
    gauge_set(&g->applied, c.applied);
    gauge_set(&g->learned, c.learned);
    gauge_set(&g->removed, c.removed);
    gauge_set(&g->apply_failed, c.apply_failed);
    gauge_set(&g->learn_failed, c.learn_failed);
    gauge_set(&g->remove_failed, c.remove_failed);
    gauge_set(&g->repaired, c.repaired);
    gauge_set(&g->cut, c.cut);
    gauge_set(&g->cut_failed, c.cut_failed);
    gauge_set(&g->drops_lost, c.drops_lost);
    gauge_set(&g->learned_user, c.elements[0]);
    gauge_set(&g->learned_always, c.elements[1]);
    gauge_set(&g->learned_bound, c.elements[2]);
    gauge_set(&g->learned_parent, c.elements[3]);
    gauge_set(&g->lacks, (unsigned)__builtin_popcount(c.lacks));
    gauge_set(&g->unguarded, c.unguarded);
    gauge_set(&g->refused, c.packets.refused);
    gauge_set(&g->forged, c.packets.forged);
    gauge_set(&g->wrong_mark, c.packets.wrong_mark);
    gauge_set(&g->frames, c.packets.frames);
}

static void measure_dns(struct gauges *g, const struct sidecar *s)
{
    struct leases_counts c = leases_counts(s->leases);
    gauge_set(&g->leases, c.leases);
    gauge_set(&g->lease_names, c.names);
    gauge_set(&g->lease_addresses, c.addresses);
    gauge_set(&g->dns_waiting, dns_service_waiting(s->dns));
}

void egress_measure(const struct sidecar *s)
{
    struct gauges *g = &s->events->gauges;
    if (s->dns && s->leases)
        measure_dns(g, s);
    if (s->enforce)
        measure_kernel(g, s->enforce);
    if (s->relay) {
        gauge_set(&g->relay_open, relay_open(s->relay));
        gauge_set(&g->relay_open_asked, relay_open_asked(s->relay));
    }
    if (s->api)
        gauge_set(&g->api_open, api_open(s->api));
    if (s->events->webhook)
        gauge_set(&g->webhook_waiting, webhook_waiting(s->events->webhook));
}
