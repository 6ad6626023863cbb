/* metrics.c — the numbers as text.  Families are rows: a name, and the samples behind it; every
 * sample carries the operator's attributes besides its own label. */
#include "egress/events/metrics.h"

#include <stdio.h>

#include "egress/api/api.h"
#include "egress/dns/service.h"
#include "egress/events/events_impl.h"
#include "egress/events/labels.h"
#include "egress/intercept/intercept.h"
#include "egress/relay/relay.h"

struct page {
    struct metrics_out *out;
    struct arena mem;
    struct str labels; /* of every sample */
};

struct sample {
    const char *label, *value; /* NULL: none of its own */
    uint64_t n;
};

/* The text between the braces, or NULL. */
static const char *labels_of(struct page *p, const char *label, const char *value)
{
    if (!label)
        return p->labels.n ? p->labels.p : NULL;
    return arena_printf(&p->mem, "%.*s%s%s=\"%s\"", STR_ARG(p->labels), p->labels.n ? "," : "",
                        label, value)
        .p;
}

static void family(struct page *p, const char *name, const char *type, const char *help,
                   const struct sample *samples, size_t n)
{
    metrics_family(p->out, name, type, help);
    for (size_t i = 0; i < n; i++)
        metrics_value(p->out, name, labels_of(p, samples[i].label, samples[i].value),
                      (double)samples[i].n);
}

#define FAMILY(p, name, type, help, ...)                              \
    family(p, name, type, help, (const struct sample[]){__VA_ARGS__}, \
           sizeof((const struct sample[]){__VA_ARGS__}) / sizeof(struct sample))

static void gauge(struct page *p, const char *name, const char *help, double v)
{
    metrics_family(p->out, name, "gauge", help);
    metrics_value(p->out, name, labels_of(p, NULL, NULL), v);
}

static void count(struct page *p, const char *name, const char *help, uint64_t n)
{
    FAMILY(p, name, "counter", help, {NULL, NULL, n});
}

/* ---- queries ---- */

static void durations(struct page *p, const struct event_counters *c)
{
    static const char name[] = "egress.dns.query.duration_seconds";
    static const uint32_t bounds_us[EVENTS_BUCKETS - 1] = EVENTS_BOUNDS_US;
    char bound[24];
    uint64_t sum = 0;
    metrics_family(p->out, name, "histogram", "From a question to its answer, of whatever kind");
    for (size_t i = 0; i < EVENTS_BUCKETS; i++) {
        sum += counter_get(&c->took[i]);
        if (i < EVENTS_BUCKETS - 1)
            snprintf(bound, sizeof bound, "%g", bounds_us[i] / 1e6);
        else
            snprintf(bound, sizeof bound, "+Inf");
        metrics_value(p->out, "egress.dns.query.duration_seconds_bucket", labels_of(p, "le", bound),
                      (double)sum);
    }
    const char *labels = labels_of(p, NULL, NULL);
    metrics_value(p->out, "egress.dns.query.duration_seconds_sum", labels,
                  (double)counter_get(&c->took_us) / 1e6);
    metrics_value(p->out, "egress.dns.query.duration_seconds_count", labels, (double)sum);
}

/* O's families about DNS; of the reasons and stages that we do not have, 0. */
static void queries(struct page *p, const struct event_counters *c, const struct dns_counters *d)
{
    uint64_t failed = counter_get(&c->upstream_error), denied = counter_get(&c->denied);
    durations(p, c);
    FAMILY(p, "egress.dns.query.failed_total", "counter", "Questions without an upstream's answer",
           {"reason", "no_upstreams", 0}, {"reason", "upstream_error", failed},
           {"reason", "empty_response", 0}, {"reason", "rcode", counter_get(&c->rcode)});
    FAMILY(p, "egress.dns.reply.failed_total", "counter", "Questions that got no address",
           {"stage", "malformed", d ? counter_get(&d->malformed) : 0},
           {"stage", "unknown_source", 0}, {"stage", "deny", denied},
           {"stage", "upstream_error", failed}, {"stage", "answer", counter_get(&c->not_told)});
    count(p, "egress.policy.denied_total", "Questions that the policy denied", denied);
}

static void service(struct page *p, const struct dns_counters *d, const struct gauges *g)
{
    if (!d)
        return;
    FAMILY(p, "sallyport_dns_queries_total", "counter", "DNS messages that were questions",
           {NULL, NULL, counter_get(&d->queries)});
    FAMILY(p, "sallyport_dns_answers_total", "counter", "Answers by where they came from",
           {"result", "all", counter_get(&d->answered)},
           {"result", "cached", counter_get(&d->cached)},
           {"result", "joined", counter_get(&d->joined)});
    FAMILY(p, "sallyport_dns_refused_total", "counter", "Questions turned away at a limit",
           {"reason", "in_flight", counter_get(&d->overload)},
           {"reason", "rate", counter_get(&d->rate_limited)},
           {"reason", "leases_full", counter_get(&d->lease_full)},
           {"reason", "kernel", counter_get(&d->lease_failed)});
    gauge(p, "sallyport_dns_waiting", "Questions that wait", (double)counter_get(&g->dns_waiting));
    gauge(p, "sallyport_leases", "Learned addresses, for each name",
          (double)counter_get(&g->leases));
    gauge(p, "sallyport_lease_names", "Names with leases", (double)counter_get(&g->lease_names));
    gauge(p, "sallyport_lease_addresses", "Addresses with leases",
          (double)counter_get(&g->lease_addresses));
}

/* ---- the kernel ---- */

static void kernel(struct page *p, const struct gauges *g)
{
    gauge(p, "sallyport_enforced", "1: the rules are in force and proven",
          (double)counter_get(&g->enforced));
    gauge(p, "egress.nftables.rules.count", "Rules and static elements of the policy in force",
          (double)counter_get(&g->rules));
    count(p, "egress.nftables.updates.count_total", "Changes of rules and learned addresses",
          counter_get(&g->applied) + counter_get(&g->learned));
    FAMILY(p, "egress.nftables.updates.failed_total", "counter", "Changes that the kernel refused",
           {"operation", "static_apply", counter_get(&g->apply_failed)},
           {"operation", "dynamic_add", counter_get(&g->learn_failed)},
           {"operation", "remove", counter_get(&g->remove_failed)});
    FAMILY(p, "sallyport_kernel_elements", "gauge", "Learned addresses in the kernel",
           {"set", "user", counter_get(&g->learned_user)},
           {"set", "always", counter_get(&g->learned_always)},
           {"set", "bound", counter_get(&g->learned_bound)},
           {"set", "parent", counter_get(&g->learned_parent)});
    FAMILY(p, "sallyport_kernel_packets_total", "counter", "Packets that the rules stopped",
           {"reason", "policy", counter_get(&g->refused)},
           {"reason", "forged", counter_get(&g->forged)},
           {"reason", "wrong_mark", counter_get(&g->wrong_mark)},
           {"reason", "past_rules", counter_get(&g->frames)});
    count(p, "sallyport_kernel_removals_total", "Removals of learned addresses",
          counter_get(&g->removed));
    count(p, "sallyport_kernel_repairs_total", "Times that somebody else had changed our rules",
          counter_get(&g->repaired));
    count(p, "sallyport_kernel_flows_cut_total", "Connections ended when their permission was",
          counter_get(&g->cut));
    count(p, "sallyport_kernel_cuts_failed_total", "Attempts of that which failed",
          counter_get(&g->cut_failed));
    gauge(p, "sallyport_kernel_lacks", "Parts of the rules that this kernel cannot do",
          (double)counter_get(&g->lacks));
    gauge(p, "sallyport_kernel_unguarded_queues", "Device queues open to AF_XDP",
          (double)counter_get(&g->unguarded));
}

/* ---- connections ---- */

static void relay(struct page *p, const struct relay_counters *r, const struct gauges *g)
{
    if (!r)
        return;
    FAMILY(p, "sallyport_relay_connections_total", "counter", "Connections by how they came",
           {"result", "redirected", counter_get(&r->accepted)},
           {"result", "asked", counter_get(&r->asked)}, {"result", "full", counter_get(&r->full)},
           {"result", "loop", counter_get(&r->loops)});
    FAMILY(p, "sallyport_relay_told_total", "counter", "Redirected connections by what they were",
           {"result", "tls", counter_get(&r->tls)}, {"result", "read", counter_get(&r->read)},
           {"result", "http", counter_get(&r->http)}, {"result", "raw", counter_get(&r->raw)},
           {"result", "refused", counter_get(&r->refused)},
           {"result", "malformed", counter_get(&r->malformed)},
           {"result", "unfinished", counter_get(&r->unfinished)});
    FAMILY(p, "sallyport_relay_connections", "gauge", "Connections open",
           {"result", "redirected", counter_get(&g->relay_open)},
           {"result", "asked", counter_get(&g->relay_open_asked)});
}

static void events(struct page *p, const struct events *e)
{
    const struct event_counters *c = &e->counters;
    FAMILY(p, "sallyport_connections_judged_total", "counter",
           "Decisions about connections and requests on them",
           {"verdict", "allow", counter_get(&c->connections_allowed)},
           {"verdict", "deny", counter_get(&c->connections_denied)});
    FAMILY(p, "sallyport_drops_told_total", "counter", "Refused packets that the kernel told of",
           {"result", "seen", counter_get(&c->drops)},
           {"result", "lost", counter_get(&e->gauges.drops_lost)});
    FAMILY(p, "sallyport_webhook_events_total", "counter", "Events for the webhook",
           {"result", "delivered", counter_get(&c->webhook_sent)},
           {"result", "dropped", counter_get(&c->webhook_dropped)},
           {"result", "given_up", counter_get(&c->webhook_given_up)});
    gauge(p, "sallyport_webhook_waiting", "Events that wait or are being sent",
          (double)counter_get(&e->gauges.webhook_waiting));
    gauge(p, "sallyport_api_connections", "Connections to the policy API",
          (double)counter_get(&e->gauges.api_open));
    count(p, "sallyport_log_lines_left_out_total", "Lines over their share of a second",
          counter_get(&c->lines_left_out));
}

/* ---- the vault ---- */

static void took(struct page *p, const struct histogram *h)
{
    static const uint32_t bounds_ms[METRIC_BUCKETS - 1] = METRIC_BOUNDS_MS;
    static const char name[] = "opensandbox_credential_proxy_request_duration_seconds";
    char bound[24], sample[sizeof name + 8];
    uint64_t sum = 0;
    metrics_family(p->out, name, "histogram", "From a request to the end of its answer");
    snprintf(sample, sizeof sample, "%s_bucket", name);
    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        sum += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
        if (i < METRIC_BUCKETS - 1)
            snprintf(bound, sizeof bound, "%g", bounds_ms[i] / 1e3);
        else
            snprintf(bound, sizeof bound, "+Inf");
        metrics_value(p->out, sample, labels_of(p, "le", bound), (double)sum);
    }
    snprintf(sample, sizeof sample, "%s_sum", name);
    metrics_value(p->out, sample, labels_of(p, NULL, NULL),
                  (double)atomic_load_explicit(&h->sum_us, memory_order_relaxed) / 1e6);
    snprintf(sample, sizeof sample, "%s_count", name);
    metrics_value(p->out, sample, labels_of(p, NULL, NULL), (double)sum);
}

static void credentials(struct page *p, const struct event_counters *c)
{
    uint64_t injected = counter_get(&c->credential[CREDENTIAL_INJECTED]),
             denied = counter_get(&c->credential[CREDENTIAL_DENIED]),
             ambiguous = counter_get(&c->credential[CREDENTIAL_AMBIGUOUS]),
             mismatch = counter_get(&c->credential[CREDENTIAL_MISMATCH]);
    count(p, "opensandbox_credential_proxy_requests_total", "Requests to hosts that are bound",
          injected + denied + ambiguous + mismatch +
              counter_get(&c->credential[CREDENTIAL_NO_MATCH]));
    count(p, "opensandbox_credential_proxy_injections_total", "... that went out with a credential",
          injected);
    FAMILY(p, "opensandbox_credential_proxy_denials_total", "counter", "... that were refused",
           {"reason", "denied", denied}, {"reason", "ambiguous_match", ambiguous},
           {"reason", "identity_mismatch", mismatch});
    took(p, &c->credential_took);
    count(p, "sallyport_credential_bodies_skipped_total",
          "Request bodies that could not be searched for placeholders",
          counter_get(&c->credential_skipped));
    count(p, "sallyport_credential_scrubbed_total", "Secrets masked in bodies of answers",
          counter_get(&c->credential_masked));
}

static void intercepted(struct page *p, const struct intercept_counters *c)
{
    FAMILY(p, "sallyport_intercepted_connections_total", "counter",
           "Connections whose TLS was to be read", {"result", "begun", counter_get(&c->begun)},
           {"result", "rejected", counter_get(&c->failed)},
           {"result", "foreign_protocol", counter_get(&c->foreign)},
           {"result", "refused", counter_get(&c->refused)});
}

static void vault(struct page *p, const struct vault_counters *v)
{
    FAMILY(p, "opensandbox_credential_vault_mutations_total", "counter",
           "Changes of the credential vault",
           {"operation", "create", counter_get(&v->made[VAULT_CREATE])},
           {"operation", "patch", counter_get(&v->made[VAULT_PATCH])},
           {"operation", "delete", counter_get(&v->made[VAULT_DELETE])});
    FAMILY(p, "opensandbox_credential_vault_mutation_failures_total", "counter",
           "Changes that were refused",
           {"operation", "create", counter_get(&v->failed[VAULT_CREATE])},
           {"operation", "patch", counter_get(&v->failed[VAULT_PATCH])},
           {"operation", "delete", counter_get(&v->failed[VAULT_DELETE])});
    gauge(p, "sallyport_credential_vault_epoch",
          "Grows with each start and each vault that is created", (double)counter_get(&v->epoch));
}

/* ---- the machine ---- */

static void machine(struct page *p, struct cpu_ticks *last)
{
    struct figures f;
    figures_read("", last, &f);
    if (f.has_node_memory)
        gauge(p, "egress.system.memory.usage_bytes", "Memory in use on the node",
              (double)f.node_memory);
    if (f.has_node_cpu)
        gauge(p, "egress.system.cpu.utilization", "Busy share of the node's CPUs, 0 to 1",
              f.node_cpu);
    if (f.has_memory)
        gauge(p, "egress.process.memory.usage_bytes", "Memory of our cgroup", (double)f.memory);
    if (!f.has_cpu)
        return;
    metrics_family(p->out, "egress.process.cpu.time_seconds_total", "counter",
                   "CPU time of our cgroup");
    metrics_value(p->out, "egress.process.cpu.time_seconds_total", labels_of(p, NULL, NULL),
                  f.cpu_s);
}

void egress_metrics(const struct sidecar *s, struct metrics_out *o)
{
    struct events *e = s->events;
    const struct dns_counters *d = s->dns ? dns_service_counters(s->dns) : NULL;
    struct page p = {.out = o};
    arena_init(&p.mem, NULL, 0);
    p.labels = labels_make(s->set, &p.mem);
    queries(&p, &e->counters, d);
    service(&p, d, &e->gauges);
    if (s->enforce)
        kernel(&p, &e->gauges);
    relay(&p, s->relay ? relay_counters(s->relay) : NULL, &e->gauges);
    events(&p, e);
    credentials(&p, &e->counters);
    if (s->intercept)
        intercepted(&p, intercept_counters(s->intercept));
    if (s->api)
        vault(&p, api_vault_counters(s->api));
    machine(&p, &e->ticks);
    arena_done(&p.mem);
}
