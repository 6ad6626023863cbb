/* parts.c — starts what the settings ask for, in the order of contract
 * ingress 1.5, carries what resolvers say to the tables, and ends it all. */
#include "ingress/parts.h"

#include "app/app.h"
#include "ingress/asking.h"
#include "ingress/routes_api.h"
#include "net/resolve.h"
#include "net/worker.h"

const struct resolver *parts_resolver(const struct ingress_settings *s)
{
    static const struct resolver *const resolvers[] = {[PROVIDER_BATCHSANDBOX] = &kube_resolver,
                                                       [PROVIDER_AGENT_SANDBOX] = &kube_resolver,
                                                       [PROVIDER_FAST_SANDBOX] = NULL,
                                                       [PROVIDER_STATIC] = &static_resolver,
                                                       [PROVIDER_LIFECYCLE] = &lifecycle_resolver};
    return resolvers[s->provider_type];
}

/* ---- what resolvers say */

static void on_first(void *user)
{
    app_ready(user);
}

static void on_ready(void *user)
{
    struct gateway *g = user;
    if (--g->unready > 0)
        return;
    table_publish(g->tables, app_nworkers(g->app), NULL, 0, NULL, 0, true, app_main(g->app),
                  on_first, g->app);
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    struct gateway *g = user;
    table_publish(g->tables, app_nworkers(g->app), put, nput, gone, ngone, false, NULL, NULL, NULL);
}

static void on_same(void *user, struct str key)
{
    asking_tell(user, key, NULL);
}

static void on_failed(void *user, struct str error)
{
    struct gateway *g = user;
    app_fail(g->app, error);
}

static const struct resolver_events events = {on_ready, on_change, on_same, on_failed};

static bool start_one(struct gateway *g, const struct resolver *r, void **ret,
                      const struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    g->asks |= r->asks;
    *ret = r->start(app_main(g->app), s, &events, g, a, ret_error);
    return *ret != NULL;
}

static bool start_resolvers(struct gateway *g, const struct ingress_settings *s, struct arena *a,
                            struct str *ret_error)
{
    g->resolver = parts_resolver(s);
    g->fast = s->fastpath_endpoint.n ? &fastpath_resolver : NULL;
    g->agent_names = s->provider_type == PROVIDER_AGENT_SANDBOX;
    g->unready = (g->resolver != NULL) + (g->fast != NULL);
    return (!g->resolver || start_one(g, g->resolver, &g->resolving, s, a, ret_error)) &&
           (!g->fast || start_one(g, g->fast, &g->fasting, s, a, ret_error));
}

/* ---- wakes */

static void on_landed(void *user, struct str key, const struct wake_end *end)
{
    asking_tell(user, key, end);
}

static void on_woken(void *user, struct str ns, struct str id)
{
    struct gateway *g = user;
    struct worker *w = app_main(g->app);
    if (g->activity)
        activity_note(g->activity, ns, id, worker_now(w), worker_unix_ms(w));
}

static void start_wake(struct gateway *g, const struct ingress_settings *s)
{
    static const struct wake_events wake_events = {on_landed, on_woken};
    const struct wake_rules rules = {.budget_ms = settings_ms(s->wake_park_budget),
                                     .call_ms = (uint64_t)s->fastpath_wait_timeout_millis,
                                     .interval_ms = (double)s->wake_retry_interval / 1e6,
                                     .factor = s->wake_retry_factor,
                                     .jitter = s->wake_retry_jitter,
                                     .park_max = (unsigned)s->wake_park_max};
    g->wake = wake_new(app_main(g->app), fastpath_caller(g->fasting), &rules, &wake_events, g);
}

/* ---- all of them */

static bool start_redis(struct gateway *g, const struct ingress_settings *s, struct arena *a,
                        struct str *ret_error)
{
    struct worker *w = app_main(g->app);
    if (s->renew_intent_enabled && !(g->renew = renew_new(w, s, a, ret_error)))
        return false;
    return !s->activity_enabled || (g->activity = activity_new(w, s, a, ret_error));
}

static bool start_api(struct gateway *g, const struct ingress_settings *s, struct arena *a,
                      struct str *ret_error)
{
    const struct routes_api_host host = {.app = g->app,
                                         .routes = g->resolving,
                                         .tables = g->tables,
                                         .ntables = app_nworkers(g->app),
                                         .token_file = s->admin_token_file};
    return !s->admin_token_file.n || (g->api = routes_api_start(&host, a, ret_error));
}

bool parts_start(struct gateway *g, const struct ingress_settings *s, struct arena *a,
                 struct str *ret_error)
{
    struct worker *w = app_main(g->app);
    struct names_files files = {0};
    g->names = names_new(w, &files);
    worker_set(w, SLOT_NAMES, g->names);
    if (!start_redis(g, s, a, ret_error) || !start_resolvers(g, s, a, ret_error) ||
        !start_api(g, s, a, ret_error))
        return false;
    if (s->wake_enabled)
        start_wake(g, s);
    return true;
}

void parts_reload(struct gateway *g)
{
    if (g->resolving && g->resolver->reload)
        g->resolver->reload(g->resolving);
    if (g->fasting && g->fast->reload)
        g->fast->reload(g->fasting);
    if (g->api)
        routes_api_reload(g->api);
}

static void on_flushed(void *user)
{
    app_unhold(user);
}

void parts_flush(struct gateway *g)
{
    if (g->renew) {
        app_hold(g->app);
        renew_flush(g->renew, on_flushed, g->app);
    }
    if (g->activity) {
        app_hold(g->app);
        activity_flush(g->activity, on_flushed, g->app);
    }
}

void parts_stop(struct gateway *g)
{
    worker_turn(
        app_main(g->app)); /* what workers have asked for last, while there is who hears it */
    routes_api_stop(g->api);
    wake_free(g->wake);
    if (g->fasting)
        g->fast->stop(g->fasting);
    if (g->resolving)
        g->resolver->stop(g->resolving);
    renew_free(g->renew);
    activity_free(g->activity);
    worker_set(app_main(g->app), SLOT_NAMES, NULL);
    names_free(g->names);
}

void parts_metrics(struct gateway *g, struct metrics_out *o)
{
    if (g->resolving && g->resolver->metrics)
        g->resolver->metrics(g->resolving, o);
    if (g->fasting && g->fast->metrics)
        g->fast->metrics(g->fasting, o);
    if (g->wake)
        wake_metrics(g->wake, o);
    if (g->renew)
        renew_metrics(g->renew, o);
    if (g->activity)
        activity_metrics(g->activity, o);
}

struct str parts_unready(struct gateway *g, struct arena *a)
{
    struct str said = STR_NONE;
    if (g->resolving && g->resolver->unready)
        said = g->resolver->unready(g->resolving, a);
    if (said.n == 0 && g->fasting && g->fast->unready)
        said = g->fast->unready(g->fasting, a);
    return said.n > 0 ? arena_cat(a, said, STR("\n")) : STR("");
}

struct str parts_age(struct gateway *g, struct arena *a)
{
    if (!g->resolving || !g->resolver->age_ms)
        return STR("");
    return arena_printf(a, "last news of sandboxes %llu s ago\n",
                        (unsigned long long)g->resolver->age_ms(g->resolving) / 1000);
}
