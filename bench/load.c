/* load.c — a closed-loop client for bench/run.sh: each connection sends its next request when the
 * answer to the last one is whole.  It is a user of http_stream in the client role, so it speaks
 * whatever the codecs speak, and it sees what a client sees: latency, errors, bytes.  With --ws it
 * opens that many WebSocket tunnels and holds them. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "flags.h"
#include "histogram.h"
#include "http/session.h"
#include "net/addr.h"
#include "net/dial.h"
#include "net/resolve.h"
#include "net/worker.h"

enum { DIAL_MS = 10000, PAUSE_MS = 20, MAX_FIELDS = 12, FIRST_BYTES = 2048 };

struct options {
    uint64_t connections, seconds, requests, ws;
    struct str to, path, host;
    bool close, json;
};

struct load {
    struct worker *w;
    struct options o;
    struct dial_to to;
    struct http_head head; /* of every request */
    struct field fields[MAX_FIELDS];
    struct lane *lanes;
    uint64_t nlanes;
    struct timer deadline;
    struct latencies latencies;
    uint64_t started_us, ended_us;
    uint64_t begun, done, errors, refused, bytes; /* refused: a final status that is no 2xx */
    uint64_t open;                                /* tunnels */
    uint64_t alive;                               /* lanes with a dial or a session */
    bool stopping;
};

/* One connection, or in --ws one tunnel. */
struct lane {
    struct load *l;
    struct dial *dial;
    struct session *s;
    struct http_stream *up; /* of the request under way */
    struct timer pause;
    uint64_t begun_us;
    int status;
    bool whole;
    struct arena mem;
    char first[FIRST_BYTES];
};

static const struct http_limits limits = {.max_head_bytes = 65536, .window = 256 * 1024};

static void lane_next(struct lane *n);

/* ---- the end */

static void stop(struct load *l)
{
    if (l->stopping)
        return;
    l->stopping = true;
    l->ended_us = worker_now_us(l->w);
    timer_clear(l->w, &l->deadline);
    for (uint64_t i = 0; i < l->nlanes; i++) {
        struct lane *n = &l->lanes[i];
        timer_clear(l->w, &n->pause);
        if (n->s)
            n->s->ops->close(n->s, WHY_DRAIN);
        if (n->dial) {
            dial_cancel(n->dial);
            n->dial = NULL;
            l->alive--;
        }
    }
    if (l->alive == 0)
        worker_stop(l->w);
}

static void lane_gone(struct lane *n)
{
    struct load *l = n->l;
    l->alive--;
    if (l->stopping && l->alive == 0)
        worker_stop(l->w);
}

static void on_deadline(struct timer *t)
{
    stop(container_of(t, struct load, deadline));
}

/* ---- one request */

static bool is_final(const struct http_head *head)
{
    return head->status >= 200 || head->protocol.n > 0;
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct lane *n = user;
    struct load *l = n->l;
    if (!is_final(head))
        return;
    n->status = head->status;
    n->whole = end;
    if (head->protocol.n == 0)
        return;
    latencies_add(&l->latencies, worker_now_us(l->w) - n->begun_us);
    if (++l->open == l->o.ws) {
        printf("holding %" PRIu64 " tunnels\n", l->open);
        fflush(stdout);
    }
    if (l->begun < l->nlanes)
        lane_next(&l->lanes[l->begun]);
}

static void on_data(void *user, struct buf *b)
{
    struct lane *n = user;
    size_t bytes = b->len;
    n->l->bytes += bytes;
    buf_clear(b);
    n->up->ops->credit(n->up, bytes);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct lane *n = user;
    (void)trailers;
    n->whole = true;
}

static void on_sent(void *user, size_t bytes)
{
    (void)user;
    (void)bytes;
}

static void on_fault(void *user, const struct http_fault *fault)
{
    (void)user;
    (void)fault; /* server role only */
}

static void on_closed(void *user, enum why why)
{
    struct lane *n = user;
    struct load *l = n->l;
    n->up = NULL;
    if (n->status == 101)
        l->open--;
    if (l->stopping)
        return;
    if (why != WHY_OK || !n->whole || n->status == 101) {
        l->errors++;
        return;
    }
    latencies_add(&l->latencies, worker_now_us(l->w) - n->begun_us);
    l->done++;
    l->refused += n->status > 299;
    if (l->o.requests > 0 && l->done == l->o.requests)
        stop(l);
}

static const struct http_events events = {on_head, on_data, on_end, on_sent, on_fault, on_closed};

static void send_request(struct lane *n)
{
    struct load *l = n->l;
    arena_done(&n->mem);
    arena_init(&n->mem, n->first, sizeof n->first);
    n->status = 0;
    n->whole = false;
    n->up->ev = &events;
    n->up->user = n;
    n->up->mem = &n->mem;
    n->up->ops->head(n->up, &l->head, true);
}

/* ---- connections */

static void on_idle(void *user, struct session *s)
{
    struct lane *n = user;
    if (n->l->stopping || !s->ops->open(s, &n->up))
        return;
    n->begun_us = worker_now_us(n->l->w);
    send_request(n);
}

static void on_pause_over(struct timer *t)
{
    lane_next(container_of(t, struct lane, pause));
}

static void on_session_closed(void *user, struct session *s)
{
    struct lane *n = user;
    (void)s;
    n->s = NULL;
    lane_gone(n);
    if (n->l->stopping || n->l->o.ws > 0)
        return;
    if (n->status == 0) /* not even an answer: no hurry to try again */
        timer_set(n->l->w, &n->pause, PAUSE_MS);
    else
        lane_next(n);
}

static const struct session_events session_events = {NULL, on_idle, on_session_closed};

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    (void)user;
    (void)addr;
    return WHY_OK;
}

static void on_dialled(void *user, struct conn *c, enum why why)
{
    struct lane *n = user;
    (void)why;
    n->dial = NULL;
    if (!c) {
        n->l->errors++;
        lane_gone(n);
        if (!n->l->stopping)
            timer_set(n->l->w, &n->pause, PAUSE_MS);
        return;
    }
    n->s = h1_start(n->l->w, c, false, &limits, &session_events, n);
    if (n->s->ops->open(n->s, &n->up))
        send_request(n);
}

/* A new connection, and a request on it. */
static void lane_next(struct lane *n)
{
    struct load *l = n->l;
    l->begun++;
    l->alive++;
    n->status = 0;
    n->begun_us = worker_now_us(l->w);
    n->dial = dial_start(l->w, &l->to, DIAL_MS, on_allow, on_dialled, n);
}

static void make_head(struct load *l)
{
    struct http_head *h = &l->head;
    h->method = STR("GET");
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
    } else if (l->o.close) {
        head_add(h, STR("Connection"), STR("close")); /* the codec passes on what its user says */
    }
}

static void begin(struct load *l)
{
    uint64_t together = l->o.connections;
    make_head(l);
    l->nlanes = l->o.ws > 0 ? l->o.ws : l->o.connections;
    l->lanes = mem_new(l->nlanes * sizeof *l->lanes);
    for (uint64_t i = 0; i < l->nlanes; i++) {
        struct lane *n = &l->lanes[i];
        n->l = l;
        timer_init(&n->pause, on_pause_over);
        arena_init(&n->mem, n->first, sizeof n->first);
    }
    timer_init(&l->deadline, on_deadline);
    if (l->o.seconds > 0)
        timer_set(l->w, &l->deadline, l->o.seconds * 1000);
    l->started_us = worker_now_us(l->w);
    for (uint64_t i = 0; i < together && i < l->nlanes; i++)
        lane_next(&l->lanes[i]);
}

static void report(const struct load *l)
{
    double seconds = (double)(l->ended_us - l->started_us) / 1e6;
    double rate = seconds > 0 ? (double)l->done / seconds : 0;
    uint64_t p50 = latencies_at(&l->latencies, 0.5), p90 = latencies_at(&l->latencies, 0.9);
    uint64_t p99 = latencies_at(&l->latencies, 0.99), max = l->latencies.max_us;
    if (!l->o.json) {
        printf("%" PRIu64 " requests, %" PRIu64 " errors, %" PRIu64 " not 2xx, %.3f s, %.1f/s, ",
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

static void on_signal(void *user, int signum)
{
    (void)signum;
    stop(user);
}

static bool read_options(struct options *o, int argc, char **argv, struct dial_to *ret_to)
{
    const struct flag flags[] = {
        {"--to", FLAG_TEXT, &o->to, "host:port to connect to"},
        {"--path", FLAG_TEXT, &o->path, "target of the requests (default /)"},
        {"--host", FLAG_TEXT, &o->host, "Host field (default: --to)"},
        {"--connections", FLAG_NUMBER, &o->connections, "how many at once (default 16)"},
        {"--seconds", FLAG_NUMBER, &o->seconds,
         "how long (default: until --requests, or a signal)"},
        {"--requests", FLAG_NUMBER, &o->requests,
         "how many in all (default: until --seconds, or a signal)"},
        {"--close", FLAG_SWITCH, &o->close, "a new connection for each request"},
        {"--ws", FLAG_NUMBER, &o->ws, "open so many WebSocket tunnels and hold them"},
        {"--json", FLAG_SWITCH, &o->json, "the result as JSON"},
        {NULL, FLAG_SWITCH, NULL, NULL},
    };
    *o = (struct options){.connections = 16, .path = STR("/")};
    if (!flags_read(flags, argc, argv))
        return false;
    if (o->connections > 0 && addr_split(o->to, &ret_to->host, &ret_to->port))
        return true;
    fprintf(stderr, "--to host:port is needed, and at least one connection\n");
    return false;
}

int main(int argc, char **argv)
{
    struct load *l = mem_new(sizeof *l);
    if (!read_options(&l->o, argc, argv, &l->to))
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
    mem_free(l->lanes);
    mem_free(l);
    return good ? 0 : 1;
}
