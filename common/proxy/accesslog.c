/* accesslog.c — one line and the counters per ended exchange.  Fields are chosen from a list of
 * ours, never copied from what came in (OPS-04); the product adds its own. */
#include "proxy/exchange.h"

static const char *const methods[METRIC_METHODS] = {
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "other"};

const char *metric_method(unsigned i)
{
    return methods[i];
}

static unsigned method_index(struct str method)
{
    unsigned i = 0;
    while (i < METRIC_METHODS - 1 && !str_eq(method, str_of(methods[i])))
        i++;
    return i;
}

static void count(struct exchange *x, uint64_t took_us)
{
    struct proxy_metrics *m = x->p->metrics;
    counter_add(&m->ended[x->why], 1);
    counter_add(&m->h2, x->down_h2);
    counter_add(&m->bytes_in, x->bytes_in);
    counter_add(&m->bytes_out, x->bytes_out);
    if (!x->request || x->verdict.act == ACT_LOCAL || x->status < 100 || x->status >= 600)
        return;
    unsigned i = method_index(x->request->method), j = (unsigned)x->status - 100,
             k = x->request->protocol.n > 0 && !x->verdict.raw;
    struct histogram *h =
        atomic_load_explicit(&m->requests.duration[i][j][k], memory_order_relaxed);
    if (!h) {
        h = mem_new(sizeof *h);
        atomic_store_explicit(&m->requests.duration[i][j][k], h, memory_order_release);
    }
    counter_add(&m->requests.count[i][j][k], 1);
    histogram_add(h, took_us);
}

static uint64_t between(uint64_t a, uint64_t b)
{
    return a != 0 && b > a ? b - a : 0;
}

static struct str protocol(bool h2)
{
    return h2 ? STR("HTTP/2.0") : STR("HTTP/1.1");
}

static void line(struct exchange *x, uint64_t now)
{
    struct log_line l;
    log_begin(&l, LOG_INFO, x->p->rules.gate->access_msg);
    if (x->request)
        x->p->rules.gate->describe(&x->facts, &x->verdict, &l);
    log_int(&l, "status", x->status);
    log_str(&l, "why", str_of(why_text(x->why)));
    log_str(&l, "state", str_of(xstate_text(x->state)));
    log_str(&l, "request_id", x->facts.request_id);
    log_str(&l, "protocol", x->down_bytes ? STR("raw") : protocol(x->down_h2));
    if (x->t_sent != 0 && !x->verdict.raw)
        log_str(&l, "origin_protocol", protocol(x->up_h2));
    if (x->grpc_status >= 0)
        log_int(&l, "grpc_status", x->grpc_status);
    log_int(&l, "bytes_in", (int64_t)x->bytes_in);
    log_int(&l, "bytes_out", (int64_t)x->bytes_out);
    log_ms(&l, "duration_ms", now - x->t_start);
    log_ms(&l, "head_ms", between(x->t_start, x->t_head));
    if (x->facts.turn > 0 || x->verdict.act == ACT_WAIT)
        log_ms(&l, "decide_ms", between(x->t_head, x->t_decided));
    log_ms(&l, "dial_ms", between(x->t_decided, x->t_sent));
    log_ms(&l, "wait_ms", between(x->t_sent, x->t_answer));
    if (x->retried)
        log_bool(&l, "retried", true);
    log_end(&l);
}

void accesslog_end(struct exchange *x)
{
    uint64_t now = worker_now_us(x->p->w);
    count(x, now - x->t_start);
    if ((x->request || x->status != 0) && x->verdict.act != ACT_LOCAL && log_on(LOG_INFO))
        line(x, now);
}
