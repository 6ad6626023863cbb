/* metrics.c — histograms and the text in which counters are shown.  Buckets are kept apart and
 * summed up only when somebody reads, because a request should pay for one of them. */
#include "base/metrics.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

static const uint16_t bounds_ms[METRIC_BUCKETS - 1] = METRIC_BOUNDS_MS;

/* A single writer: a plain load and store will do (see counter_add). */
static void add(_Atomic uint64_t *v, uint64_t n)
{
    atomic_store_explicit(v, atomic_load_explicit(v, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *v)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)v, memory_order_relaxed);
}

void histogram_add(struct histogram *h, uint64_t us)
{
    size_t i = 0;
    while (i < METRIC_BUCKETS - 1 && us > (uint64_t)bounds_ms[i] * 1000)
        i++;
    add(&h->bucket[i], 1);
    add(&h->count, 1);
    add(&h->sum_us, us);
}

void histogram_sum(struct histogram *a, const struct histogram *b)
{
    for (size_t i = 0; i < METRIC_BUCKETS; i++)
        add(&a->bucket[i], get(&b->bucket[i]));
    add(&a->count, get(&b->count));
    add(&a->sum_us, get(&b->sum_us));
}

/* ---- text ---- */

void metrics_out_init(struct metrics_out *o)
{
    *o = (struct metrics_out){0};
}

void metrics_out_done(struct metrics_out *o)
{
    mem_free(o->p);
    metrics_out_init(o);
}

static void put(struct metrics_out *o, struct str s)
{
    if (o->room - o->n < s.n) {
        size_t room = o->room ? o->room : 1024;
        while (room - o->n < s.n)
            room *= 2;
        o->p = mem_renew(o->p, room);
        o->room = room;
    }
    if (s.n)
        memcpy(o->p + o->n, s.p, s.n);
    o->n += s.n;
}

static void put_name(struct metrics_out *o, const char *name)
{
    size_t from = o->n;
    put(o, str_of(name));
    for (size_t i = from; i < o->n; i++)
        if (o->p[i] == '.')
            o->p[i] = '_';
}

/* Help may hold anything but a line feed and a lone backslash. */
static void put_help(struct metrics_out *o, const char *help)
{
    for (; *help; help++) {
        if (*help == '\\')
            put(o, STR("\\\\"));
        else if (*help == '\n')
            put(o, STR("\\n"));
        else
            put(o, (struct str){help, 1});
    }
}

void metrics_family(struct metrics_out *o, const char *name, const char *type, const char *help)
{
    put(o, STR("# HELP "));
    put_name(o, name);
    put(o, STR(" "));
    put_help(o, help);
    put(o, STR("\n# TYPE "));
    put_name(o, name);
    put(o, STR(" "));
    put(o, str_of(type));
    put(o, STR("\n"));
}

static void put_number(struct metrics_out *o, double v)
{
    char text[40];
    if (isnan(v)) {
        put(o, STR("NaN"));
        return;
    }
    if (isinf(v)) {
        put(o, v > 0 ? STR("+Inf") : STR("-Inf"));
        return;
    }
    /* 17 digits hold every double, 15 look better and mostly do too */
    snprintf(text, sizeof text, "%.15g", v);
    double again;
    if (!text_double(str_of(text), &again) || again != v)
        snprintf(text, sizeof text, "%.17g", v);
    put(o, str_of(text));
}

static void put_u64(struct metrics_out *o, uint64_t v)
{
    char digits[20];
    put(o, (struct str){digits, text_put_u64(digits, v)});
}

static void put_labels(struct metrics_out *o, const char *labels)
{
    if (!labels)
        return;
    put(o, STR("{"));
    put(o, str_of(labels));
    put(o, STR("}"));
}

void metrics_value(struct metrics_out *o, const char *name, const char *labels, double value)
{
    put_name(o, name);
    put_labels(o, labels);
    put(o, STR(" "));
    put_number(o, value);
    put(o, STR("\n"));
}

void metrics_single(struct metrics_out *o, const char *name, const char *type, const char *help,
                    double value)
{
    metrics_family(o, name, type, help);
    metrics_value(o, name, NULL, value);
}

/* name_bucket{labels,le="bound"} */
static void put_bucket(struct metrics_out *o, const char *name, const char *labels, size_t bucket,
                       unsigned per_ms, uint64_t v)
{
    put_name(o, name);
    put(o, STR("_bucket{"));
    if (labels) {
        put(o, str_of(labels));
        put(o, STR(","));
    }
    put(o, STR("le=\""));
    if (bucket < METRIC_BUCKETS - 1)
        put_number(o, (double)bounds_ms[bucket] / per_ms);
    else
        put(o, STR("+Inf"));
    put(o, STR("\"} "));
    put_u64(o, v);
    put(o, STR("\n"));
}

/* In units of so many ms. */
static void put_histogram(struct metrics_out *o, const char *name, const char *labels,
                          const struct histogram *h, unsigned per_ms)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        sum += get(&h->bucket[i]);
        put_bucket(o, name, labels, i, per_ms, sum);
    }
    put_name(o, name);
    put(o, STR("_sum"));
    put_labels(o, labels);
    put(o, STR(" "));
    put_number(o, (double)get(&h->sum_us) / 1000 / per_ms);
    put(o, STR("\n"));
    put_name(o, name);
    put(o, STR("_count"));
    put_labels(o, labels);
    put(o, STR(" "));
    put_u64(o, sum); /* not h->count, which may be one ahead of the buckets just read */
    put(o, STR("\n"));
}

void metrics_histogram(struct metrics_out *o, const char *name, const char *labels,
                       const struct histogram *h)
{
    put_histogram(o, name, labels, h, 1);
}

void metrics_histogram_s(struct metrics_out *o, const char *name, const char *labels,
                         const struct histogram *h)
{
    put_histogram(o, name, labels, h, 1000);
}
