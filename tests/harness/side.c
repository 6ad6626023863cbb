/* side.c — the frame around a codec under test.  What the session, the stream and the connection
 * say goes into one text, in order. */
#include "harness/side.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

const struct http_limits side_limits = {.max_head_bytes = 8192,
                                        .window = 1024,
                                        .keep_alive_ms = 60000,
                                        .head_ms = 20000,
                                        .linger_ms = 5000,
                                        .drain_idle_ms = 2000};
const struct http_limits side_h2_limits = {.max_head_bytes = 8192,
                                           .window = 65536,
                                           .window_max = 262144,
                                           .max_streams = 50,
                                           .max_resets = 20,
                                           .max_control = 100,
                                           .keep_alive_ms = 60000,
                                           .linger_ms = 5000,
                                           .drain_idle_ms = 2000};

static unsigned taps(const struct side *x)
{
    return x->n < SIDE_STREAMS ? x->n : SIDE_STREAMS;
}

static bool many(const struct side *x)
{
    return x->kind == H2_SERVER || x->kind == H2_CLIENT;
}

static struct tap *begin(struct side *x, struct http_stream *s, bool server)
{
    struct tap *t = &x->taps[x->n % SIDE_STREAMS];
    if (x->n >= SIDE_STREAMS) {
        assert(t->over || t->cancelled);
        tap_done(t);
    }
    x->n++;
    size_t window = x->limits.window;
    if (x->limits.window_max > window)
        window = x->limits.window_max;
    tap_init(t, &x->trace, x->w, s, window, x->user, x->context);
    if (many(x)) {
        char *prefix = x->prefixes[x->n % SIDE_STREAMS];
        snprintf(prefix, sizeof x->prefixes[0], "%u ", x->n);
        t->prefix = prefix;
    }
    t->server = server;
    t->hold = x->hold;
    t->got_final = x->kind == RAW_CLIENT; /* the far side of a tunnel has no head */
    return t;
}

static void on_accept(void *user, struct session *s, struct http_stream *stream)
{
    struct side *x = user;
    assert(x->s == s || !x->s);
    assert(many(x) || x->n == 0 || side_tap(x)->over || side_tap(x)->cancelled);
    trace_line(&x->trace, many(x) ? "%u accept" : "accept", x->n + 1);
    begin(x, stream, true);
}

static void on_idle(void *user, struct session *s)
{
    struct side *x = user;
    assert(x->s == s);
    x->idles++;
    trace_line(&x->trace, "idle");
    if (x->on_idle)
        x->on_idle(x);
}

static void on_closed(void *user, struct session *s)
{
    struct side *x = user;
    assert(x->s == s);
    for (unsigned i = 0; i < taps(x); i++)
        assert(x->taps[i].over || x->taps[i].cancelled); /* one closed per accept */
    trace_line(&x->trace, "session closed");
    x->s = NULL;
}

static const struct session_events events = {on_accept, on_idle, NULL, on_closed};

static void on_end(void *user, enum fake_end end, enum why why)
{
    static const char *const names[] = {"up", "fin", "close", "reset"};
    struct side *x = user;
    for (unsigned i = 0; i < taps(x); i++)
        tap_flush(&x->taps[i]);
    bool all = (x->kind != H1_CLIENT && x->kind != H2_CLIENT) || (x->n > 0 && side_tap(x)->tunnel);
    assert(why != WHY_OK || !all || fake_lost(x->c) == 0); /* a good end loses nothing */
    if (end == FAKE_FIN)
        trace_line(&x->trace, "conn fin");
    else
        trace_line(&x->trace, "conn %s %s", names[end], why_text(why));
}

void side_init(struct side *x, struct worker *w, enum side_kind kind,
               const struct http_limits *limits, const struct tap_user *user, void *context)
{
    bool server = kind == H1_SERVER || kind == RAW_SERVER || kind == H2_SERVER;
    bool h2 = kind == H2_SERVER || kind == H2_CLIENT;
    *x = (struct side){.kind = kind,
                       .w = w,
                       .limits = limits ? *limits
                                 : h2   ? side_h2_limits
                                        : side_limits,
                       .user = user,
                       .context = context};
    trace_init(&x->trace);
    x->c = fake_new(w, server);
    fake_watch(x->c, on_end, x);
    if (kind == H1_SERVER || kind == H1_CLIENT)
        x->s = h1_start(w, x->c, server, &x->limits, &events, x);
    else if (h2)
        x->s = h2_start(w, x->c, server, &x->limits, &events, x);
    else
        x->s = raw_start(w, x->c, server, STR("10.0.0.1:443"), &x->limits, &events, x);
}

void side_done(struct side *x)
{
    if (x->s)
        x->s->ops->close(x->s, WHY_DRAIN);
    fake_settle(x->w);
    assert(!x->s);
    for (unsigned i = 0; i < taps(x); i++)
        tap_done(&x->taps[i]);
    fake_free(x->c);
    assert(worker_get(x->w, SLOT_NET) ||
           worker_held(x->w) == 0); /* the last one leaves nothing behind */
    trace_done(&x->trace);
}

struct tap *side_tap(struct side *x)
{
    assert(x->n > 0);
    return &x->taps[(x->n - 1) % SIDE_STREAMS];
}

struct tap *side_stream(struct side *x, unsigned n)
{
    assert(n > 0 && n <= x->n && x->n - n < SIDE_STREAMS);
    return &x->taps[(n - 1) % SIDE_STREAMS];
}

struct tap *side_open(struct side *x)
{
    struct http_stream *s;
    if (!x->s || !x->s->ops->open(x->s, &s))
        return NULL;
    return begin(x, s, false);
}

void side_feed(struct side *x, struct str input, const struct cuts *cuts)
{
    size_t at = 0, i = 0;
    while (at < input.n) {
        size_t end = input.n;
        while (cuts->at && i < cuts->n && cuts->at[i] <= at)
            i++;
        if (cuts->at && i < cuts->n && cuts->at[i] < end)
            end = cuts->at[i];
        if (cuts->every > 0 && at + cuts->every < end)
            end = at + cuts->every;
        fake_feed(x->c, input.p + at, end - at);
        if (!cuts->together)
            fake_settle(x->w);
        at = end;
    }
    fake_settle(x->w);
}

/* ---- cutting */

static void outcome_init(struct outcome *o)
{
    trace_init(&o->events);
    trace_init(&o->output);
}

void outcome_done(struct outcome *o)
{
    trace_done(&o->events);
    trace_done(&o->output);
}

static void print_cuts(const struct cuts *cuts)
{
    fprintf(stderr, "cut every %zu, together %d, at:", cuts->every, cuts->together);
    for (size_t i = 0; cuts->at && i < cuts->n; i++)
        fprintf(stderr, " %zu", cuts->at[i]);
}

static void compare(scenario *run, void *arg, const struct cuts *cuts,
                    const struct outcome *expected)
{
    struct outcome o;
    outcome_init(&o);
    run(cuts, arg, &o);
    bool same = strcmp(trace_text(&o.events), trace_text(&expected->events)) == 0 &&
                strcmp(trace_text(&o.output), trace_text(&expected->output)) == 0;
    if (!same) {
        print_cuts(cuts);
        fprintf(stderr, "\n--- whole\n%s%s\n--- cut\n%s%s\n", trace_text(&expected->events),
                trace_text(&expected->output), trace_text(&o.events), trace_text(&o.output));
        abort();
    }
    outcome_done(&o);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void random_cuts(scenario *run, void *arg, size_t n, uint32_t seed,
                        const struct outcome *expected)
{
    size_t at[16], count = 0, last = 0;
    for (size_t left = 2 + next_random(&seed) % 14; left > 0 && last + 1 < n; left--) {
        size_t step = 1 + next_random(&seed) % (2 * (n - last) / (left + 1) + 1);
        if (last + step >= n)
            break;
        at[count++] = last += step;
    }
    compare(run, arg, &(struct cuts){.at = at, .n = count, .together = seed & 0x1000}, expected);
}

void same_however_cut(scenario *run, void *arg, size_t input_n, struct outcome *ret)
{
    enum { SINGLE_CUTS = 2000, RANDOM_CUTS = 60 };
    outcome_init(ret);
    run(&(struct cuts){0}, arg, ret);
    compare(run, arg, &(struct cuts){.every = 1}, ret);
    compare(run, arg, &(struct cuts){.every = 1, .together = true}, ret);
    compare(run, arg, &(struct cuts){.every = 7}, ret);
    size_t step = input_n / SINGLE_CUTS + 1;
    for (size_t at = 1; at < input_n; at += step)
        compare(run, arg, &(struct cuts){.at = &at, .n = 1}, ret);
    for (uint32_t seed = 1; seed <= RANDOM_CUTS; seed++)
        random_cuts(run, arg, input_n, seed * 7919, ret);
}
