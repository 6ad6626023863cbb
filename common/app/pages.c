/* pages.c — one row a page. */
#include "app/pages.h"

#include "base/log.h"
#include "conf/sources.h"
#include "net/worker.h"

static struct str healthz(struct app *app, int *status, struct arena *a)
{
    (void)app;
    (void)status;
    (void)a;
    return STR("ok\n");
}

static struct str starting(struct app *app, struct arena *a)
{
    const struct product *product = app_product_of(app);
    struct str said = product->unready ? product->unready(app, a) : STR("");
    if (said.n > 0)
        return arena_cat(a, STR("starting: "), said);
    return arena_printf(a, "starting: %s\n", product->not_ready);
}

static struct str serving(struct app *app, int *status, struct arena *a)
{
    const struct product *product = app_product_of(app);
    struct str no = product->unready ? product->unready(app, a) : STR("");
    *status = no.n ? 503 : 200;
    if (no.n)
        return no;
    return arena_cat(a, STR("ready\n"),
                     product->ready_text ? product->ready_text(app, a) : STR(""));
}

static struct str readyz(struct app *app, int *status, struct arena *a)
{
    *status = 503;
    if (app_phase(app) == APP_STARTING)
        return starting(app, a);
    return app_phase(app) == APP_DRAINING ? STR("draining\n") : serving(app, status, a);
}

static struct str config(struct app *app, int *status, struct arena *a)
{
    (void)status;
    return conf_print(app_product_of(app)->command.schema, app_settings(app), a);
}

/* ---- /metrics */

static void numbers_part(struct worker *w, void *arg)
{
    struct part *p = arg;
    const struct proxy *x = proxy_of(w);
    for (int i = 0; i < XSTATES; i++)
        p->exchanges[i] = proxy_count(x, (enum xstate)i);
    p->clients = proxy_clients(x);
    p->origins = origin_open(proxy_origins(x));
    p->origins_idle = origin_idle(proxy_origins(x));
    p->origins_h2 = origin_open_h2(proxy_origins(x));
    p->memory = worker_held(w);
}

static const struct proxy_metrics *of(struct app *app, unsigned i)
{
    return proxy_metrics(proxy_of(app_worker(app, i)));
}

static void gauges(struct app *app, struct part *parts, struct metrics_out *o)
{
    char label[64];
    metrics_family(o, "sallyport_exchanges", "gauge", "Requests in progress by state");
    for (int s = 0; s < XSTATES; s++) {
        double sum = 0;
        for (unsigned i = 0; i < app_nworkers(app); i++)
            sum += parts[i].exchanges[s];
        snprintf(label, sizeof label, "state=\"%s\"", xstate_text((enum xstate)s));
        metrics_value(o, "sallyport_exchanges", label, sum);
    }
    metrics_family(o, "sallyport_client_connections", "gauge", "Client connections by worker");
    for (unsigned i = 0; i < app_nworkers(app); i++) {
        snprintf(label, sizeof label, "worker=\"%u\"", i);
        metrics_value(o, "sallyport_client_connections", label, parts[i].clients);
    }
    metrics_family(o, "sallyport_backend_connections", "gauge",
                   "Connections to sandboxes, idle ones included, by worker");
    for (unsigned i = 0; i < app_nworkers(app); i++) {
        snprintf(label, sizeof label, "worker=\"%u\"", i);
        metrics_value(o, "sallyport_backend_connections", label, parts[i].origins);
    }
    metrics_family(o, "sallyport_backend_connections_idle", "gauge",
                   "Pooled connections to sandboxes by worker");
    for (unsigned i = 0; i < app_nworkers(app); i++) {
        snprintf(label, sizeof label, "worker=\"%u\"", i);
        metrics_value(o, "sallyport_backend_connections_idle", label, parts[i].origins_idle);
    }
    metrics_family(o, "sallyport_backend_connections_h2", "gauge",
                   "Connections to sandboxes in HTTP/2 by worker");
    for (unsigned i = 0; i < app_nworkers(app); i++) {
        snprintf(label, sizeof label, "worker=\"%u\"", i);
        metrics_value(o, "sallyport_backend_connections_h2", label, parts[i].origins_h2);
    }
    metrics_family(o, "sallyport_memory_held_bytes", "gauge", "Heads and bodies held, by worker");
    for (unsigned i = 0; i < app_nworkers(app); i++) {
        snprintf(label, sizeof label, "worker=\"%u\"", i);
        metrics_value(o, "sallyport_memory_held_bytes", label, (double)parts[i].memory);
    }
}

static void process(struct app *app, struct metrics_out *o)
{
    struct app_times t = app_times(app);
    const struct accept_gate *g = app_accept_gate(app);
    metrics_family(o, "sallyport_uptime_seconds", "gauge", "Seconds since the start");
    metrics_value(o, "sallyport_uptime_seconds", NULL, (double)t.uptime_s);
    metrics_family(o, "sallyport_config_revision", "gauge",
                   "Revision of the configuration in force");
    metrics_value(o, "sallyport_config_revision", NULL, (double)t.revision);
    metrics_family(o, "sallyport_config_age_seconds", "gauge", "Seconds since it came into force");
    metrics_value(o, "sallyport_config_age_seconds", NULL, (double)t.snapshot_age_s);
    metrics_family(o, "sallyport_reload_faults_total", "counter",
                   "Reloads that changed nothing because a file was bad");
    metrics_value(o, "sallyport_reload_faults_total", NULL, (double)t.reload_faults);
    metrics_family(o, "sallyport_connections_refused_total", "counter",
                   "Client connections closed at once: over the limit");
    metrics_value(o, "sallyport_connections_refused_total", NULL,
                  (double)atomic_load(&((struct accept_gate *)(uintptr_t)g)->refused));
    metrics_family(o, "sallyport_log_lines_lost_total", "counter",
                   "Log lines dropped because the sink was slow");
    metrics_value(o, "sallyport_log_lines_lost_total", NULL, (double)log_lost());
}

struct sum_row {
    const char *name, *help;
    size_t offset;
};

static const struct sum_row sums[] = {
    {"sallyport_connections_total", "Client connections accepted",
     offsetof(struct proxy_metrics, connections)},
    {"sallyport_connections_unopened_total",
     "Client connections that failed in their PROXY header or TLS handshake",
     offsetof(struct proxy_metrics, unopened)},
    {"sallyport_requests_h2_total", "Requests of clients over HTTP/2",
     offsetof(struct proxy_metrics, h2)},
    {"sallyport_backend_dials_total", "Connects to sandboxes",
     offsetof(struct proxy_metrics, dials)},
    {"sallyport_backend_reused_total", "Requests on a pooled connection",
     offsetof(struct proxy_metrics, reused)},
    {"sallyport_retries_total", "Requests sent again after a pooled connection died",
     offsetof(struct proxy_metrics, retries)},
    {"sallyport_bytes_in_total", "Body and tunnel bytes from clients",
     offsetof(struct proxy_metrics, bytes_in)},
    {"sallyport_bytes_out_total", "Body and tunnel bytes to clients",
     offsetof(struct proxy_metrics, bytes_out)},
    {"sallyport_overload_total", "Requests refused for memory or connections",
     offsetof(struct proxy_metrics, overload)},
};

static void counters(struct app *app, struct metrics_out *o)
{
    for (size_t r = 0; r < sizeof sums / sizeof *sums; r++) {
        double sum = 0;
        for (unsigned i = 0; i < app_nworkers(app); i++)
            sum += (double)counter_get(
                (const struct counter *)(const void *)((const char *)of(app, i) + sums[r].offset));
        metrics_family(o, sums[r].name, "counter", sums[r].help);
        metrics_value(o, sums[r].name, NULL, sum);
    }
    metrics_family(o, "sallyport_exchanges_ended_total", "counter",
                   "Exchanges by reason of their end");
    for (int why = 0; why < WHYS; why++) {
        char label[64];
        double sum = 0;
        for (unsigned i = 0; i < app_nworkers(app); i++)
            sum += (double)counter_get(&of(app, i)->ended[why]);
        snprintf(label, sizeof label, "why=\"%s\"", why_text((enum why)why));
        metrics_value(o, "sallyport_exchanges_ended_total", label, sum);
    }
}

/* Calls each for every combination of labels that was ever counted. */
static void requests(struct app *app, struct metrics_out *o, const char *name, bool durations)
{
    static const char *const kinds[METRIC_KINDS] = {"http", "websocket"};
    for (int m = 0; m < METRIC_METHODS; m++)
        for (int s = 0; s < METRIC_STATUSES; s++)
            for (int k = 0; k < METRIC_KINDS; k++) {
                uint64_t sum = 0;
                struct histogram total = {0};
                for (unsigned i = 0; i < app_nworkers(app); i++) {
                    const struct request_metrics *r = &of(app, i)->requests;
                    sum += counter_get(&r->count[m][s][k]);
                    const struct histogram *h = atomic_load_explicit(
                        &((struct request_metrics *)(uintptr_t)r)->duration[m][s][k],
                        memory_order_acquire);
                    if (h)
                        histogram_sum(&total, h);
                }
                if (sum == 0)
                    continue;
                char label[128];
                snprintf(label, sizeof label,
                         "http_method=\"%s\",http_status_code=\"%d\",proxy_type=\"%s\"",
                         metric_method((unsigned)m), s + 100, kinds[k]);
                if (durations)
                    metrics_histogram(o, name, label, &total);
                else
                    metrics_value(o, name, label, (double)sum);
            }
}

void pages_requests(struct app *app, struct metrics_out *o, const char *count, const char *duration)
{
    metrics_family(o, count, "counter", "Requests by method, status and kind");
    requests(app, o, count, false);
    metrics_family(o, duration, "histogram", "Duration of the whole exchange, ms");
    requests(app, o, duration, true);
}

static struct str metrics(struct app *app, struct part *parts, struct arena *a)
{
    struct metrics_out o;
    metrics_out_init(&o);
    counters(app, &o);
    gauges(app, parts, &o);
    process(app, &o);
    app_product_of(app)->metrics(app, &o);
    struct str s = arena_str(a, (struct str){o.p, o.n});
    metrics_out_done(&o);
    return s;
}

/* ---- /debug */

static void put_exchange(void *arg, const struct exchange_view *x)
{
    struct json_out *o = arg;
    json_open(o, '{');
    json_key(o, "request_id");
    json_put_str(o, x->request_id);
    json_key(o, "method");
    json_put_str(o, x->method);
    json_key(o, "state");
    json_put_str(o, str_of(xstate_text(x->state)));
    json_key(o, "pool");
    json_put_str(o, x->pool);
    json_key(o, "age_ms");
    json_put_int(o, (int64_t)x->age_ms);
    json_key(o, "bytes_in");
    json_put_int(o, (int64_t)x->bytes_in);
    json_key(o, "bytes_out");
    json_put_int(o, (int64_t)x->bytes_out);
    json_close(o, '}');
}

static void exchanges_part(struct worker *w, void *arg)
{
    struct part *p = arg;
    json_out_init(&p->json);
    json_open(&p->json, '[');
    proxy_each(proxy_of(w), put_exchange, &p->json);
    json_close(&p->json, ']');
}

static void put_pool(void *arg, struct str pool, unsigned idle, unsigned users)
{
    struct json_out *o = arg;
    json_open(o, '{');
    json_key(o, "pool");
    json_put_str(o, pool);
    json_key(o, "idle");
    json_put_int(o, idle);
    json_key(o, "exchanges");
    json_put_int(o, users);
    json_close(o, '}');
}

static void pools_part(struct worker *w, void *arg)
{
    struct part *p = arg;
    json_out_init(&p->json);
    json_open(&p->json, '[');
    origin_each(proxy_origins(proxy_of(w)), put_pool, &p->json);
    json_close(&p->json, ']');
}

/* {"workers":[[…],[…]]} */
static struct str workers_json(struct app *app, struct part *parts, struct arena *a)
{
    struct json_out o;
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "workers");
    json_open(&o, '[');
    for (unsigned i = 0; i < app_nworkers(app); i++)
        json_put_raw(&o, (struct str){parts[i].json.p, parts[i].json.n});
    json_close(&o, ']');
    json_close(&o, '}');
    struct str s = arena_cat(a, (struct str){o.p, o.n}, STR("\n"));
    json_out_done(&o);
    return s;
}

static const char json_type_text[] = "application/json", plain[] = "text/plain; charset=utf-8";

static const struct page pages[] = {
    {"/healthz", plain, healthz, NULL, NULL},
    {"/readyz", plain, readyz, NULL, NULL},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", NULL, numbers_part, metrics},
    {"/debug/config", json_type_text, config, NULL, NULL},
    {"/debug/exchanges", json_type_text, NULL, exchanges_part, workers_json},
    {"/debug/pools", json_type_text, NULL, pools_part, workers_json},
    {NULL, NULL, NULL, NULL, NULL},
};

static const struct page *find_in(const struct page *rows, struct str path)
{
    for (; rows && rows->path; rows++)
        if (str_eq(path, str_of(rows->path)))
            return rows;
    return NULL;
}

const struct page *page_find(struct app *app, struct str path)
{
    const struct page *own = find_in(pages, path);
    return own ? own : find_in(app_product_of(app)->pages, path);
}

void pages_free_parts(struct part *parts, unsigned n)
{
    if (!parts)
        return;
    for (unsigned i = 0; i < n; i++)
        if (parts[i].json.p)
            json_out_done(&parts[i].json);
    mem_free(parts);
}
