/* product.c — puts the gateway together: settings, gate, tables, resolver,
 * metrics. */
#include "ingress/product.h"

#include "app/admin.h"
#include "app/pages.h"
#include "base/log.h"
#include "ingress/certwatch.h"
#include "ingress/gateway.h"
#include "ingress/pages.h"
#include "ingress/parts.h"
#include "ingress/routes_api.h"
#include "ingress/sign.h"
#include "ingress/view.h"
#include "net/worker.h"

enum { FAILURE_KEYS = 16384 };

static const struct ingress_settings *set_of(struct app *app)
{
    return (const struct ingress_settings *)app_settings(app);
}

/* ---- command line */

static bool check(void *settings, struct arena *a, struct str *ret_error)
{
    return ingress_settings_check(settings, a, ret_error);
}

static struct str warnings(const void *settings, struct arena *a)
{
    return ingress_settings_warnings(settings, a);
}

/* --check looks at the files a start would read. */
static bool check_files(const void *settings, struct arena *a, struct str *ret_error)
{
    const struct ingress_settings *s = settings;
    void *view = ingress_view_maker.make(&s->core, NULL, a, ret_error);
    if (!view)
        return false;
    ingress_view_maker.drop(view);
    const struct resolver *r = parts_resolver(s);
    return !r || !r->check || r->check(s, a, ret_error);
}

static void all_addresses(union addr *ret, int64_t port)
{
    struct ip any = {{0}};
    memset(ret, 0, sizeof *ret);
    addr_make(ret, &any, (uint16_t)port); /* `::` takes IPv4 too */
}

static unsigned listeners(const void *settings, union addr *ret, const char **ret_setting)
{
    const struct ingress_settings *s = settings;
    all_addresses(&ret[0], s->port);
    ret_setting[0] = "port";
    if (!s->tls_port)
        return 1;
    all_addresses(&ret[1], s->tls_port);
    ret_setting[1] = "tls-port";
    return 2;
}

/* tls-port is never left to the kernel. */
static void bound(void *settings, const union addr *at, const union addr *admin, struct arena *a)
{
    struct ingress_settings *s = settings;
    char text[ADDR_TEXT_BYTES];
    s->port = addr_port(&at[0].sa);
    s->core.admin_addr = arena_str(a, (struct str){text, addr_text(&admin->sa, text)});
}

/* ---- workers */

static void on_gone(struct worker *w, const struct sandbox *s, const struct sandbox *next)
{
    struct proxy *p = proxy_of(w);
    if (!p || sandbox_is_let_go(s))
        return;
    if (sandbox_moved(s, next))
        proxy_move(p, s->pool, next->pool);
    else
        proxy_purge(p, s->pool);
}

/* Of resolvers that are asked: whoever waits for it has its answer. */
static void on_put(struct worker *w, const struct sandbox *s)
{
    const struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    struct proxy *p = proxy_of(w);
    if (p && gw->all->asks)
        proxy_resume(p, s->key, NULL, NULL);
}

static struct gateway *gateway_of(struct app *app)
{
    struct gateway *g = app_product(app);
    if (g)
        return g;
    const struct ingress_settings *s = set_of(app);
    g = mem_new(sizeof *g);
    g->app = app;
    g->by_sandbox = failures_new(FAILURE_KEYS);
    g->by_client = failures_new(FAILURE_KEYS);
    g->readiness = readiness_new(
        &(struct readiness_rules){.window_ms = settings_ms(s->readiness_window),
                                  .max_targets = (size_t)s->readiness_max_targets,
                                  .min_attempts = (uint64_t)s->readiness_min_attempts,
                                  .min_targets = (size_t)s->readiness_min_targets,
                                  .min_signal_targets = (size_t)s->readiness_min_signal_targets,
                                  .failure_ratio = s->readiness_failure_ratio});
    g->limits =
        limits_new(&(struct limits_rules){.max_running = (unsigned)s->max_connections_per_sandbox,
                                          .per_second = (unsigned)s->rate_limit_per_sandbox});
    g->tables = mem_new(app_nworkers(app) * sizeof *g->tables);
    app_set_product(app, g);
    return g;
}

static void worker_init(struct app *app, struct worker *w)
{
    struct gateway_worker *gw = mem_new(sizeof *gw);
    gw->all = gateway_of(app);
    gw->table = table_new(w, on_gone, on_put);
    gw->all->tables[worker_index(w)] = gw->table;
    worker_set(w, SLOT_PRODUCT, gw);
}

static void worker_done(struct worker *w)
{
    struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    table_free(gw->table);
    mem_free(gw);
}

/* ---- certificates */

static const struct ingress_view *view_of(void *user)
{
    return app_snapshot(user)->view;
}

static void on_files(void *user)
{
    app_renew(user);
}

static const struct certwatch_events certwatch_events = {on_files, view_of};

static bool start(struct app *app, struct arena *a, struct str *ret_error)
{
    struct gateway *g = gateway_of(app);
    if (set_of(app)->tls_port)
        g->certwatch = certwatch_start(app_main(app), set_of(app), &certwatch_events, app);
    return parts_start(g, set_of(app), a, ret_error);
}

static void reload(struct app *app)
{
    parts_reload(gateway_of(app));
}

static void drain(struct app *app)
{
    parts_flush(gateway_of(app));
}

static void stop(struct app *app)
{
    struct gateway *g = gateway_of(app);
    parts_stop(g);
    certwatch_stop(g->certwatch);
    failures_free(g->by_sandbox);
    failures_free(g->by_client);
    readiness_free(g->readiness);
    limits_free(g->limits);
    mem_free(g->tables);
    mem_free(g);
    app_set_product(app, NULL);
}

static struct str unready(struct app *app, struct arena *a)
{
    return parts_unready(gateway_of(app), a);
}

static struct str ready_text(struct app *app, struct arena *a)
{
    return parts_age(gateway_of(app), a);
}

/* The notes have intervals of their own: it is enough to be told as often as
 * the shorter one. */
static uint64_t moved_ms(const void *settings)
{
    enum { UNTHROTTLED_MS = 60000 }; /* contract 10.1 */
    const struct ingress_settings *s = settings;
    uint64_t renew = s->renew_intent_min_interval > 0
                         ? (uint64_t)s->renew_intent_min_interval * 1000
                         : UNTHROTTLED_MS;
    uint64_t activity =
        s->activity_min_interval > 0 ? settings_ms(s->activity_min_interval) : UNTHROTTLED_MS;
    if (!s->renew_on_traffic || (!s->renew_intent_enabled && !s->activity_enabled))
        return 0;
    if (!s->activity_enabled || !s->renew_intent_enabled)
        return s->activity_enabled ? activity : renew;
    return renew < activity ? renew : activity;
}

static uint64_t move_ms(const void *settings)
{
    return settings_ms(((const struct ingress_settings *)settings)->move_timeout);
}

static void remarks(struct app *app, const struct snapshot *s)
{
    const struct ingress_view *v = s->view;
    certwatch_warn(v->certs, worker_unix_s(app_main(app)));
    if (v->keys_twice)
        log_note(LOG_WARN, "secure-access-keys: a key id is given twice, the last one counts",
                 "key_ids", v->warn_ids, NULL);
}

/* ---- metrics (contract 14.3) */

static struct gateway_metrics *metrics_of(struct app *app, unsigned i)
{
    struct gateway_worker *gw = worker_get(app_worker(app, i), SLOT_PRODUCT);
    return &gw->metrics;
}

static void routing_metrics(struct app *app, struct metrics_out *o)
{
    char label[64];
    metrics_family(o, "ingress.routing.resolutions.count", "counter", "Routes resolved, by result");
    for (int r = 0; r < ROUTINGS; r++) {
        double sum = 0;
        for (unsigned i = 0; i < app_nworkers(app); i++)
            sum += (double)counter_get(&metrics_of(app, i)->routing[r]);
        snprintf(label, sizeof label, "routing_result=\"%s\"", routing_text((enum routing)r));
        metrics_value(o, "ingress.routing.resolutions.count", label, sum);
    }
    metrics_family(o, "ingress.routing.resolution.duration", "histogram",
                   "Parse, lookup and access, ms");
    for (int r = 0; r < ROUTINGS; r++) {
        struct histogram sum = {0};
        for (unsigned i = 0; i < app_nworkers(app); i++)
            histogram_sum(&sum, &metrics_of(app, i)->routing_took[r]);
        snprintf(label, sizeof label, "routing_result=\"%s\"", routing_text((enum routing)r));
        metrics_histogram(o, "ingress.routing.resolution.duration", label, &sum);
    }
}

static void connect_family(struct app *app, struct metrics_out *o, bool durations)
{
    static const char *const kinds[] = {"http", "websocket"};
    char label[96];
    for (int c = 0; c < DIAL_CLASSES; c++)
        for (int k = 0; k < 2; k++) {
            double count = 0;
            struct histogram took = {0};
            for (unsigned i = 0; i < app_nworkers(app); i++) {
                count += (double)counter_get(&metrics_of(app, i)->connect[c][k]);
                histogram_sum(&took, &metrics_of(app, i)->connect_took[c][k]);
            }
            if (count == 0)
                continue;
            snprintf(label, sizeof label, "connect_result=\"%s\",proxy_type=\"%s\"",
                     dial_class_text((enum dial_class)c), kinds[k]);
            if (durations)
                metrics_histogram(o, "ingress.upstream.connect.duration", label, &took);
            else
                metrics_value(o, "ingress.upstream.connect.count", label, count);
        }
}

static void connect_metrics(struct app *app, struct metrics_out *o)
{
    metrics_family(o, "ingress.upstream.connect.count", "counter",
                   "Connects to sandboxes by result");
    connect_family(app, o, false);
    metrics_family(o, "ingress.upstream.connect.duration", "histogram", "Duration of connects, ms");
    connect_family(app, o, true);
}

static void shadow_metrics(struct app *app, struct metrics_out *o)
{
    struct readiness_view v =
        readiness_read(gateway_of(app)->readiness, worker_unix_ms(app_main(app)));
    const struct {
        const char *name, *help;
        double value;
    } rows[] = {
        {"ingress.network.shadow.attempts", "Connects of the last whole window",
         (double)v.attempts},
        {"ingress.network.shadow.signal_failures", "Timeouts and unreachable hosts among them",
         (double)v.signal_failures},
        {"ingress.network.shadow.distinct_targets", "Hosts", (double)v.targets},
        {"ingress.network.shadow.distinct_signal_targets", "Hosts with such a failure",
         (double)v.signal_targets},
        {"ingress.network.shadow.qualified", "1: enough to judge by", v.qualified},
        {"ingress.network.shadow.degraded", "1: the page says DEGRADED", v.degraded},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        metrics_family(o, rows[i].name, "gauge", rows[i].help);
        metrics_value(o, rows[i].name, NULL, rows[i].value);
    }
}

static void signature_metrics(struct app *app, struct metrics_out *o)
{
    double failed = 0;
    for (unsigned i = 0; i < app_nworkers(app); i++)
        failed += (double)counter_get(&metrics_of(app, i)->signature_failures);
    metrics_family(o, "ingress.signature.failures", "counter", "Wrong hashes and unknown key ids");
    metrics_value(o, "ingress.signature.failures", NULL, failed);
}

static void metrics(struct app *app, struct metrics_out *o)
{
    pages_requests(app, o, "ingress.http.request.count", "ingress.http.request.duration");
    routing_metrics(app, o);
    connect_metrics(app, o);
    shadow_metrics(app, o);
    signature_metrics(app, o);
    parts_metrics(gateway_of(app), o);
    pages_sandbox_metrics(gateway_of(app)->limits, o);
    certwatch_metrics(view_of(app)->certs, worker_unix_s(app_main(app)), o);
}

/* ---- the admin listener */

static struct str sandboxes_page(struct app *app, int *status, struct arena *a)
{
    (void)status;
    return pages_sandboxes(gateway_of(app)->limits, worker_now(app_main(app)), a);
}

static const struct page pages[] = {
    {.path = "/debug/sandboxes", .type = "application/json", .simple = sandboxes_page},
    {.path = NULL}};

static bool admit_visit(struct app *app, struct admin_visit *v)
{
    return routes_api_admit(gateway_of(app)->api, v);
}

static void serve_visit(struct app *app, struct admin_visit *v)
{
    routes_api_serve(gateway_of(app)->api, v);
}

static void refuse_visit(struct app *app, struct admin_visit *v, int status, struct str why)
{
    (void)app;
    routes_api_refuse(v, status, why);
}

static const struct admin_api api = {"/routes", ROUTES_API_BODY_BYTES, admit_visit, serve_visit,
                                     refuse_visit};

static const struct command_verb verbs[] = {{"sign", ingress_sign}, {NULL, NULL}};

const struct product ingress_product = {
    .title = "OpenSandbox Ingress",
    .logger = "opensandbox.ingress",
    .command = {.schema = &ingress_schema,
                .verbs = verbs,
                .check = check,
                .check_files = check_files,
                .warnings = warnings},
    .view = &ingress_view_maker,
    .gate = &ingress_gate,
    .not_ready = "no complete list of sandboxes yet",
    .listeners = listeners,
    .bound = bound,
    .worker_init = worker_init,
    .worker_done = worker_done,
    .start = start,
    .reload = reload,
    .drain = drain,
    .stop = stop,
    .remarks = remarks,
    .unready = unready,
    .ready_text = ready_text,
    .moved_ms = moved_ms,
    .move_ms = move_ms,
    .metrics = metrics,
    .pages = pages,
    .api = &api,
};
