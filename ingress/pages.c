/* pages.c — rows of limits.c as text.  Ids are what users chose, so labels are escaped; and only a
 * fixed number of them becomes labels, since each is a series for ever in whatever reads us. */
#include "ingress/pages.h"

#include "base/json.h"

static void put_number(struct json_out *o, const char *name, uint64_t v)
{
    json_key(o, name);
    json_put_int(o, (int64_t)v);
}

static void put_row(struct json_out *o, const struct limits_row *r, uint64_t now_ms)
{
    json_open(o, '{');
    json_key(o, "id");
    json_put_str(o, r->id);
    if (r->ns.n) {
        json_key(o, "namespace");
        json_put_str(o, r->ns);
    }
    put_number(o, "requests", r->requests);
    put_number(o, "running", r->running);
    put_number(o, "refused", r->refused);
    put_number(o, "failed", r->failed);
    put_number(o, "bytes_in", r->bytes_in);
    put_number(o, "bytes_out", r->bytes_out);
    put_number(o, "last_request_ms_ago", now_ms > r->last_ms ? now_ms - r->last_ms : 0);
    json_close(o, '}');
}

struct str pages_sandboxes(struct limits *l, uint64_t now_ms, struct arena *a)
{
    const struct limits_row *rows;
    struct json_out o;
    size_t n = limits_top(l, 0, a, &rows);
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "sandboxes");
    json_open(&o, '[');
    for (size_t i = 0; i < n; i++)
        put_row(&o, &rows[i], now_ms);
    json_close(&o, ']');
    put_number(&o, "uncounted", limits_uncounted(l));
    json_close(&o, '}');
    struct str s = arena_cat(a, (struct str){o.p, o.n}, STR("\n"));
    json_out_done(&o);
    return s;
}

/* ---- /metrics ---- */

/* A label's value escapes what ends it, and the line. */
static struct str escaped(struct str s, struct arena *a)
{
    char *p = arena_get(a, 2 * s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\\' || s.p[i] == '"' || s.p[i] == '\n')
            p[n++] = '\\';
        p[n++] = s.p[i] == '\n' ? 'n' : s.p[i];
    }
    return (struct str){p, n};
}

static const char *labels_of(const struct limits_row *r, struct arena *a)
{
    struct str id = escaped(r->id, a), ns = escaped(r->ns, a);
    struct str one = arena_printf(a, "sandbox=\"%.*s\"", STR_ARG(id));
    if (ns.n)
        one = arena_printf(a, "namespace=\"%.*s\",%.*s", STR_ARG(ns), STR_ARG(one));
    return one.p;
}

static uint64_t number_of(const struct limits_row *r, size_t offset)
{
    return *(const uint64_t *)(const void *)((const char *)r + offset);
}

void pages_sandbox_metrics(struct limits *l, struct metrics_out *o)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
    } families[] = {
        {"ingress.sandbox.requests", "counter", "Requests of the busiest sandboxes",
         offsetof(struct limits_row, requests)},
        {"ingress.sandbox.running", "gauge", "Their requests and tunnels in progress",
         offsetof(struct limits_row, running)},
        {"ingress.sandbox.refused", "counter", "Their requests over a limit",
         offsetof(struct limits_row, refused)},
        {"ingress.sandbox.failed", "counter", "Their requests answered 5xx or not at all",
         offsetof(struct limits_row, failed)},
        {"ingress.sandbox.bytes.in", "counter", "Body and tunnel bytes to them",
         offsetof(struct limits_row, bytes_in)},
        {"ingress.sandbox.bytes.out", "counter", "Body and tunnel bytes from them",
         offsetof(struct limits_row, bytes_out)},
    };
    const struct limits_row *rows;
    const char *labels[PAGES_TOP_SANDBOXES];
    struct arena a;
    arena_init(&a, NULL, 0);
    size_t n = limits_top(l, PAGES_TOP_SANDBOXES, &a, &rows);
    for (size_t i = 0; i < n; i++)
        labels[i] = labels_of(&rows[i], &a);
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        metrics_family(o, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; i < n; i++)
            metrics_value(o, families[f].name, labels[i],
                          (double)number_of(&rows[i], families[f].offset));
    }
    metrics_single(o, "ingress.sandboxes.uncounted", "counter",
                   "Requests not counted by sandbox: too many sandboxes at once",
                   (double)limits_uncounted(l));
    arena_done(&a);
}
