/* micro.c — what single pieces of a request's way cost, in ns: a table to look at before and after
 * a change.  Everything is warm here, so these are lower bounds; bench/run.sh measures the whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/map.h"
#include "base/text.h"
#include "conf/sources.h"
#include "http/h1head.h"
#include "ingress/gateway.h"
#include "ingress/view.h"
#include "net/worker.h"
#include "proxy/reply.h"

enum { SAMPLES = 9, SAMPLE_NS = 20000000, MAP_KEYS = 100000, TIMERS = 10000 };

/* What all pieces work on. */
struct bench {
    struct worker *w;
    struct snapshot *snap;
    struct gateway_worker gw;
    struct gateway gateway;
    struct conn_info client;
    union addr peer;
    struct str plain, marked, refused; /* heads: unsigned, signed, no route */
    struct http_head plain_head, marked_head, refused_head;
    struct signed_route route;
    int64_t now;
    struct map *map;
    struct str keys[MAP_KEYS];
    struct wheel wheel;
    struct timer timers[TIMERS];
    unsigned at;
    struct arena lasting, mem; /* mem: of one operation */
    char first[4096];
};

static const char browser[] =
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/118.0.0.0 Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8\r\n"
    "Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en-US,en;q=0.9\r\n"
    "Connection: keep-alive\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\r\n";

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- the pieces */

static struct arena *fresh(struct bench *b)
{
    arena_done(&b->mem);
    arena_init(&b->mem, b->first, sizeof b->first);
    return &b->mem;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s went wrong\n", what);
    _Exit(1);
}

static void read_head(struct arena *a, struct str text, struct http_head *ret)
{
    struct http_raw raw;
    struct http_fault fault;
    struct framing framing;
    struct h1_scan scan = {0};
    size_t used;
    struct str block = arena_str(a, text); /* it may be edited */
    if (h1_scan(&scan, block.p, block.n, 65536, &used) != H1_SCAN_DONE ||
        h1head_request(block, scan.lines - 1, a, &raw, &fault) != WHY_OK ||
        rules_request(&raw, STR("http"), ret, &framing, &fault) != WHY_OK)
        fail("reading a head");
}

static void run_head(struct bench *b)
{
    struct http_head head;
    read_head(fresh(b), b->plain, &head);
}

static void run_route(struct bench *b)
{
    struct route r;
    struct fault fault;
    const struct ingress_view *v = b->snap->view;
    if (!route_parse(&v->route, &b->marked_head, fresh(b), &r, &fault))
        fail("parsing a route");
}

static void decide(struct bench *b, const struct http_head *head, enum act want)
{
    struct verdict v;
    struct facts f = {.snap = b->snap,
                      .tables = &b->gw,
                      .client = &b->client,
                      .head = head,
                      .request_id = STR("0123456789abcdef0123456789abcdef"),
                      .unix_s = b->now};
    ingress_gate.decide(&f, fresh(b), &v);
    if (v.act != want)
        fail("a decision");
}

static void run_decide(struct bench *b)
{
    decide(b, &b->plain_head, ACT_FORWARD);
}

static void run_decide_signed(struct bench *b)
{
    decide(b, &b->marked_head, ACT_FORWARD);
}

static void run_refuse(struct bench *b)
{
    decide(b, &b->refused_head, ACT_REPLY);
}

static void run_verify(struct bench *b)
{
    const struct ingress_view *v = b->snap->view;
    if (signature_verify(v->keys, &b->route, b->now) != SIGNATURE_OK)
        fail("a signature");
}

static void run_reply(struct bench *b)
{
    struct http_head head;
    struct str body;
    struct reply r = {.status = 404,
                      .brand = ingress_gate.brand,
                      .code = STR("sandbox_not_found"),
                      .message = STR("sandbox \"nobody\" not found"),
                      .request_id = STR("0123456789abcdef0123456789abcdef")};
    reply_make(&r, &b->plain_head, STR("Mon, 02 Feb 2026 10:00:00 GMT"), fresh(b), &head, &body);
}

/* A read, passed on as a slice, written and forgotten. */
static void run_buf(struct bench *b)
{
    struct buf in, out;
    size_t room;
    buf_init(&in, worker_pool(b->w));
    buf_init(&out, worker_pool(b->w));
    buf_reserve(worker_pool(b->w), false, &room);
    buf_commit(&in, 1024);
    buf_move_all(&out, &in);
    buf_drop(&out, 1024);
}

static void ignore(struct timer *t)
{
    (void)t;
}

static void run_wheel(struct bench *b)
{
    struct timer *t = &b->timers[b->at++ % TIMERS];
    wheel_set(&b->wheel, t, 1000 + b->at % 30000);
    wheel_clear(&b->wheel, t);
}

static void run_map(struct bench *b)
{
    if (!map_get(b->map, b->keys[b->at++ * 7919 % MAP_KEYS]))
        fail("a look into the map");
}

static const struct piece {
    const char *name;
    void (*run)(struct bench *b);
} pieces[] = {
    {"head: scan, parse and rules", run_head},
    {"route: signed path", run_route},
    {"decide: open sandbox", run_decide},
    {"decide: signed route", run_decide_signed},
    {"decide: no such sandbox", run_refuse},
    {"signature: verify", run_verify},
    {"reply: make", run_reply},
    {"buf: commit, move, drop", run_buf},
    {"wheel: set and clear", run_wheel},
    {"map: get, of 100,000", run_map},
};

/* ---- setting up */

static struct str head_text(struct bench *b, struct str target)
{
    return arena_printf(&b->lasting, "GET %.*s HTTP/1.1\r\nHost: gateway.test\r\n%s",
                        STR_ARG(target), browser);
}

static void make_heads(struct bench *b)
{
    const struct ingress_view *v = b->snap->view;
    char exp[13], *signature = arena_get(&b->lasting, 9);
    struct str exp36 =
        arena_str(&b->lasting, (struct str){exp, text_put_base36(exp, (uint64_t)b->now + 3600)});
    signature_make(keyring_key(v->keys, 'a'), 'a', STR("locked"), 8000, exp36, signature);
    b->route = (struct signed_route){STR("locked"), exp36, {signature, 9}, 8000};
    b->plain = head_text(b, STR("/sandboxes/open/port/8000/some/page?of=it"));
    b->refused = head_text(b, STR("/sandboxes/nobody/port/8000/some/page"));
    b->marked =
        head_text(b, arena_printf(&b->lasting, "/sandboxes/locked/port/8000/%.*s/%.9s/some/page",
                                  STR_ARG(exp36), signature));
    read_head(&b->lasting, b->plain, &b->plain_head);
    read_head(&b->lasting, b->marked, &b->marked_head);
    read_head(&b->lasting, b->refused, &b->refused_head);
}

static void make_snapshot(struct bench *b)
{
    static char *argv[] = {"--routes", "/dev/null", "--secure-access-keys",
                           "a=MDEyMzQ1Njc4OWFiY2RlZg=="};
    struct conf_input in = {.argc = sizeof argv / sizeof *argv, .argv = argv};
    struct ingress_settings *s = arena_zero(&b->lasting, sizeof *s);
    enum conf_action action;
    struct str error;
    if (!conf_load(&ingress_schema, &in, &b->lasting, s, &action, &error) ||
        !ingress_settings_check(s, &b->lasting, &error))
        fail("the settings");
    b->snap = snapshot_build(&s->core, &ingress_view_maker, &b->lasting, &error);
    if (!b->snap)
        fail("the snapshot");
}

static void make_table(struct bench *b)
{
    static const struct endpoint end = {.host = {"10.0.0.5", 8}};
    const struct sandbox open = {
        .id = STR("open"), .ends = &end, .nends = 1, .until_unix_s = INT64_MAX};
    const struct sandbox locked = {.id = STR("locked"),
                                   .token = STR("a token"),
                                   .ends = &end,
                                   .nends = 1,
                                   .until_unix_s = INT64_MAX};
    struct sandbox *records[] = {sandbox_new(&open), sandbox_new(&locked)};
    b->gw.all = &b->gateway;
    b->gw.table = table_new(b->w, NULL, NULL);
    b->gateway.by_sandbox = failures_new(16);
    b->gateway.resolver = &static_resolver;
    b->gateway.limits = limits_new(&(struct limits_rules){.max_keys = 16});
    table_publish(&b->gw.table, 1, (const struct sandbox *const *)records, 2, NULL, 0, true, NULL,
                  NULL, NULL);
    while (!table_ready(b->gw.table))
        worker_turn(b->w);
    sandbox_unref(records[0]);
    sandbox_unref(records[1]);
}

static void make_rest(struct bench *b)
{
    struct ip ip;
    ip_parse(STR("192.0.2.7"), &ip);
    addr_make(&b->peer, &ip, 40000);
    b->client = (struct conn_info){.peer = &b->peer.sa, .listener = 28888};
    b->map = map_new();
    for (unsigned i = 0; i < MAP_KEYS; i++) {
        b->keys[i] = arena_printf(&b->lasting, "sandbox-%06u", i);
        map_put(b->map, b->keys[i], b);
    }
    wheel_init(&b->wheel, 0);
    for (unsigned i = 0; i < TIMERS; i++)
        timer_init(&b->timers[i], ignore);
}

static void tear_down(struct bench *b)
{
    map_free(b->map);
    table_free(b->gw.table);
    failures_free(b->gateway.by_sandbox);
    limits_free(b->gateway.limits);
    snapshot_unref(b->snap);
    worker_free(b->w);
    arena_done(&b->mem);
    arena_done(&b->lasting);
    mem_free(b);
}

/* ---- measuring */

static double sample(struct bench *b, const struct piece *p, uint64_t times)
{
    uint64_t from = now_ns();
    for (uint64_t i = 0; i < times; i++)
        p->run(b);
    return (double)(now_ns() - from) / (double)times;
}

static void measure(struct bench *b, const struct piece *p)
{
    double ns[SAMPLES];
    uint64_t times = 1000;
    times = (uint64_t)(SAMPLE_NS / (sample(b, p, times) + 1)) + 1;
    for (unsigned i = 0; i < SAMPLES; i++) {
        double one = sample(b, p, times);
        unsigned at = i;
        for (; at > 0 && ns[at - 1] > one; at--)
            ns[at] = ns[at - 1];
        ns[at] = one;
    }
    printf("%-30s %10.1f %10.1f\n", p->name, ns[SAMPLES / 2], ns[0]);
}

int main(void)
{
    struct bench *b = mem_new(sizeof *b);
    arena_init(&b->lasting, NULL, 0);
    arena_init(&b->mem, b->first, sizeof b->first);
    b->w = worker_new(0);
    b->now = worker_unix_s(b->w);
    make_snapshot(b);
    make_table(b);
    make_heads(b);
    make_rest(b);
    printf("%-30s %10s %10s\n", "ns of CPU per operation", "median", "least");
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        measure(b, &pieces[i]);
    tear_down(b);
    return 0;
}
