/* kube.c — the cluster as a resolver: who we are, and a feed of the kind of object that the
 * provider is about. */
#include <stdio.h>

#include "base/log.h"
#include "ingress/kube/feed.h"
#include "ingress/settings.h"

struct kube {
    struct kubeapi *api;
    struct kube_feed *feed;
};

static bool check(const struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    (void)s;
    return kubeapi_check(a, ret_error);
}

static void note_start(const struct kube *k)
{
    struct log_line line;
    log_begin(&line, LOG_INFO, "kubernetes: access found");
    log_str(&line, "server", kubeapi_server(k->api));
    log_str(&line, "source", kubeapi_source(k->api));
    log_str(&line, "resource", kube_feed_state(k->feed).resource);
    log_end(&line);
}

static void *start(struct worker *w, const struct ingress_settings *s,
                   const struct resolver_events *ev, void *user, struct arena *a,
                   struct str *ret_error)
{
    struct kubeapi *api = kubeapi_new(w, a, ret_error);
    if (!api)
        return NULL;
    struct kube *k = mem_new(sizeof *k);
    bool agents = s->provider_type == PROVIDER_AGENT_SANDBOX;
    k->api = api;
    k->feed = kube_feed_start(
        w,
        &(struct kube_feed_rules){.kind = agents ? KUBE_AGENT_SANDBOX : KUBE_BATCHSANDBOX,
                                  .api = api,
                                  .times = kube_times},
        ev, user);
    note_start(k);
    return k;
}

static void reload(void *self)
{
    struct kube *k = self;
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    if (!kubeapi_renew(k->api, &a, &error)) {
        struct log_line line;
        log_begin(&line, LOG_ERROR, "kubernetes: access is not usable, nothing changed");
        log_str(&line, "reason", error);
        log_end(&line);
    }
    arena_done(&a);
    kube_feed_nudge(k->feed);
}

static void stop(void *self)
{
    struct kube *k = self;
    kube_feed_stop(k->feed);
    kubeapi_free(k->api);
    mem_free(k);
}

static void fault_metrics(const struct kube_feed_state *s, struct metrics_out *o)
{
    char label[48];
    metrics_family(o, "ingress.kube.faults", "counter",
                   "Requests to the API server that were no good, by kind");
    for (unsigned i = 0; i < KUBE_FAULT_KINDS; i++) {
        snprintf(label, sizeof label, "kind=\"%s\"", kube_fault_text((enum kube_fault)i));
        metrics_value(o, "ingress.kube.faults", label, (double)s->faults[i]);
    }
}

static void metrics(void *self, struct metrics_out *o)
{
    const struct kube *k = self;
    struct kube_feed_state s = kube_feed_state(k->feed);
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"ingress.kube.objects", "gauge", "Sandbox objects of the cluster", (double)s.objects},
        {"ingress.kube.ambiguous", "gauge", "Names that several of them have", (double)s.ambiguous},
        {"ingress.kube.news.age.seconds", "gauge",
         "Seconds since the API server last said something", (double)s.news_age_ms / 1000},
        {"ingress.kube.watching", "gauge", "1: a watch is open", s.watching},
        {"ingress.kube.lists", "counter", "Complete lists", (double)s.lists},
        {"ingress.kube.watches", "counter", "Watches begun", (double)s.watches},
        {"ingress.kube.events", "counter", "Events of watches", (double)s.events},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metrics_single(o, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    fault_metrics(&s, o);
}

static struct str unready(void *self, struct arena *a)
{
    const struct kube *k = self;
    struct kube_feed_state s = kube_feed_state(k->feed);
    if (s.ready)
        return STR("");
    return arena_printf(a, "no complete list of %.*s yet%s%.*s", STR_ARG(s.resource),
                        s.fault.n ? ": " : "", STR_ARG(s.fault));
}

static uint64_t age_ms(void *self)
{
    const struct kube *k = self;
    return kube_feed_state(k->feed).news_age_ms;
}

const struct resolver kube_resolver = {.name = "kubernetes",
                                       .check = check,
                                       .start = start,
                                       .reload = reload,
                                       .stop = stop,
                                       .metrics = metrics,
                                       .unready = unready,
                                       .age_ms = age_ms};
