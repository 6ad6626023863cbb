/* load.c — a closed-loop client for bench/run.sh: each place for a request sends its next one when
 * the answer to the last one is whole.  Over h1 a connection has one place, over h2 as many as
 * --streams says.  It sees what a client sees: latency, errors, bytes.  With --ws it opens that
 * many WebSocket tunnels and holds them, with --idle that many connections after one request. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "flags.h"
#include "load.h"
#include "net/addr.h"
#include "net/resolve.h"
#include "net/tls.h"

enum { WINDOW_BYTES = 1024 * 1024, SLOW_WINDOW_BYTES = 65535, NO_LIMIT = INT32_MAX };

/* ---- the end */

void load_stop(struct load *l)
{
    if (l->stopping)
        return;
    l->stopping = true;
    l->ended_us = worker_now_us(l->w);
    timer_clear(l->w, &l->deadline);
    for (uint64_t i = 0; i < l->nlanes; i++)
        lane_stop(&l->lanes[i]);
    if (l->alive == 0)
        worker_stop(l->w);
}

static void on_deadline(struct timer *t)
{
    load_stop(container_of(t, struct load, deadline));
}

static void on_signal(void *user, int signum)
{
    (void)signum;
    load_stop(user);
}

/* ---- the beginning */

void load_hold(struct load *l)
{
    if (++l->held < l->nlanes)
        return;
    printf("holding %" PRIu64 "\n", l->held);
    fflush(stdout);
}

static void make_head(struct load *l)
{
    struct http_head *h = &l->head;
    h->method = l->o.grpc ? STR("POST") : STR("GET");
    h->scheme = l->o.tls ? STR("https") : STR("http");
    h->path = l->o.path;
    h->authority = l->o.host.n > 0 ? l->o.host : l->o.to;
    h->length = -1;
    h->idempotent = true;
    h->fields = l->fields;
    head_add(h, STR("User-Agent"), STR("bench-load"));
    head_add(h, STR("Accept"), STR("*/*"));
    if (l->o.ws > 0) {
        h->protocol = STR("websocket");
        head_add(h, STR("Sec-WebSocket-Key"), STR("dGhlIHNhbXBsZSBub25jZQ=="));
        head_add(h, STR("Sec-WebSocket-Version"), STR("13"));
    }
    if (l->o.grpc) {
        h->te_trailers = true;
        head_add(h, STR("Content-Type"), STR("application/grpc"));
    }
    if (l->o.close)
        head_add(h, STR("Connection"), STR("close")); /* the codec passes on what its user says */
}

/* A slow reader's own window must not hide what the proxy holds for it. */
static void make_limits(struct load *l)
{
    size_t window = l->o.rate > 0 ? SLOW_WINDOW_BYTES : WINDOW_BYTES;
    l->limits = (struct http_limits){.max_head_bytes = 65536,
                                     .window = window,
                                     .window_max = window,
                                     .max_streams = NO_LIMIT,
                                     .max_resets = NO_LIMIT,
                                     .max_control = NO_LIMIT};
}

static bool make_tls(struct load *l)
{
    const struct tls_client_rules rules = {.insecure = true};
    struct arena a;
    struct str error;
    if (!l->o.tls)
        return true;
    arena_init(&a, NULL, 0);
    l->tls = tls_client_new(&rules, &a, &error);
    if (!l->tls)
        fprintf(stderr, "%.*s\n", STR_ARG(error));
    arena_done(&a);
    return l->tls != NULL;
}

/* Tunnels and idle connections come one after the other in each of --connections rows. */
static void begin(struct load *l)
{
    uint64_t held = l->o.ws > 0 ? l->o.ws : l->o.idle;
    make_head(l);
    make_limits(l);
    l->nlanes = held > 0 ? held : l->o.connections;
    l->lanes = mem_new(l->nlanes * sizeof *l->lanes);
    for (uint64_t i = 0; i < l->nlanes; i++)
        lane_init(&l->lanes[i], l);
    timer_init(&l->deadline, on_deadline);
    if (l->o.seconds > 0)
        timer_set(l->w, &l->deadline, l->o.seconds * 1000);
    l->started_us = worker_now_us(l->w);
    for (uint64_t i = 0; i < l->o.connections; i++)
        lane_start_next(l);
}

static void report(const struct load *l)
{
    double seconds = (double)(l->ended_us - l->started_us) / 1e6;
    double rate = seconds > 0 ? (double)l->done / seconds : 0;
    uint64_t p50 = latencies_at(&l->latencies, 0.5), p90 = latencies_at(&l->latencies, 0.9);
    uint64_t p99 = latencies_at(&l->latencies, 0.99), max = l->latencies.max_us;
    if (!l->o.json) {
        printf("%" PRIu64 " requests, %" PRIu64 " errors, %" PRIu64 " refused, %.3f s, %.1f/s, ",
               l->done, l->errors, l->refused, seconds, rate);
        printf("%" PRIu64 " bytes, p50 %" PRIu64 " p90 %" PRIu64 " p99 %" PRIu64 " max %" PRIu64
               " us\n",
               l->bytes, p50, p90, p99, max);
        return;
    }
    printf("{\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"refused\":%" PRIu64
           ",\"seconds\":%.3f,",
           l->done, l->errors, l->refused, seconds);
    printf("\"rate\":%.1f,\"bytes\":%" PRIu64 ",\"p50_us\":%" PRIu64 ",\"p90_us\":%" PRIu64
           ",\"p99_us\":%" PRIu64 ",\"max_us\":%" PRIu64 "}\n",
           rate, l->bytes, p50, p90, p99, max);
}

static bool read_options(struct options *o, int argc, char **argv, struct dial_to *ret_to)
{
    const struct flag flags[] = {
        {"--to", FLAG_TEXT, &o->to, "host:port to connect to"},
        {"--path", FLAG_TEXT, &o->path, "target of the requests (default /)"},
        {"--host", FLAG_TEXT, &o->host, "Host field (default: --to)"},
        {"--tls", FLAG_SWITCH, &o->tls, "over TLS; no certificate is verified"},
        {"--h2", FLAG_SWITCH, &o->h2, "HTTP/2: by ALPN, without TLS by prior knowledge"},
        {"--connections", FLAG_NUMBER, &o->connections, "how many at once (default 16)"},
        {"--streams", FLAG_NUMBER, &o->streams, "with --h2: requests at once on each (default 1)"},
        {"--seconds", FLAG_NUMBER, &o->seconds,
         "how long (default: until --requests, or a signal)"},
        {"--requests", FLAG_NUMBER, &o->requests,
         "how many in all (default: until --seconds, or a signal)"},
        {"--close", FLAG_SWITCH, &o->close, "a new connection for each request; h1"},
        {"--grpc", FLAG_SWITCH, &o->grpc, "calls: one message each way, and a grpc-status"},
        {"--rate", FLAG_NUMBER, &o->rate, "each reads so many bytes a second (default: all)"},
        {"--ws", FLAG_NUMBER, &o->ws, "open so many WebSocket tunnels and hold them"},
        {"--idle", FLAG_NUMBER, &o->idle, "open so many connections and hold them"},
        {"--json", FLAG_SWITCH, &o->json, "the result as JSON"},
        {NULL, FLAG_SWITCH, NULL, NULL},
    };
    *o = (struct options){.connections = 16, .streams = 1, .path = STR("/")};
    if (!flags_read(flags, argc, argv))
        return false;
    if (o->connections > 0 && o->streams > 0 && o->streams <= INT16_MAX &&
        addr_split(o->to, &ret_to->host, &ret_to->port))
        return true;
    fprintf(stderr, "--to host:port is needed, and at least one connection and stream\n");
    return false;
}

static void load_free(struct load *l)
{
    for (uint64_t i = 0; i < l->nlanes; i++)
        lane_done(&l->lanes[i]);
    tls_ctx_unref(l->tls);
    mem_free(l->lanes);
    mem_free(l);
}

int main(int argc, char **argv)
{
    struct load *l = mem_new(sizeof *l);
    if (!read_options(&l->o, argc, argv, &l->to) || !make_tls(l))
        return 2;
    flags_raise_descriptors();
    l->w = worker_new(0);
    struct names *names = names_new(l->w, NULL);
    worker_set(l->w, SLOT_NAMES, names);
    worker_signals(l->w, on_signal, l);
    begin(l);
    worker_run(l->w);
    report(l);
    bool good = l->errors == 0 && l->refused == 0;
    names_free(names);
    worker_free(l->w);
    load_free(l);
    return good ? 0 : 1;
}
