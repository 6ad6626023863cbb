/* activity.c — the time of each sandbox's last request, in Redis.  A script moves it forward only,
 * since replicas and retries write in any order; a server that has lost the script (it was
 * restarted, or another took its place) is given it again, and the batch is repeated as a whole,
 * which the script bears. */
#include "ingress/redis/activity.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "ingress/redis/outbox.h"
#include "net/worker.h"

enum { GATHER_MS = 50 };

/* "inf" is a number to Lua, and would never be passed. */
const char activity_script[] = "local now = tonumber(ARGV[1])\n"
                               "local old = tonumber((redis.pcall('GET', KEYS[1])))\n"
                               "if old and old >= now and old < math.huge then return 0 end\n"
                               "redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])\n"
                               "return 1\n";

struct activity {
    struct outbox *outbox;
    struct worker *owner;
    int64_t ttl_seconds;
    char sha[RESP_TEXT_BYTES];
    unsigned nsha; /* 0: the script was not loaded yet */
    struct outbox_item *const *batch;
    unsigned nbatch;
    bool reloaded; /* for this batch */
    uint64_t deadline_ms;
};

struct resp_command activity_command(struct str sha, struct str id, uint64_t unix_ms,
                                     int64_t ttl_seconds, struct arena *a)
{
    struct str key = arena_cat(a, STR("opensandbox:activity:"), id);
    char *time = arena_get(a, 20), *life = arena_get(a, 20);
    struct str t = {time, text_put_u64(time, unix_ms)};
    struct str l = {life, text_put_u64(life, (uint64_t)ttl_seconds)};
    return (struct resp_command){{STR("EVALSHA"), sha, STR("1"), key, t, l}, 6};
}

/* ---- a batch */

static uint64_t left_ms(const struct activity *v)
{
    uint64_t now = worker_now(v->owner);
    return v->deadline_ms > now ? v->deadline_ms - now : 0;
}

/* The batch as a whole. */
static void fail(struct activity *v, const struct resp_reply *reply)
{
    char error[RESP_TEXT_BYTES + 1];
    struct str text = reply && reply->type == RESP_ERROR
                          ? resp_text(reply)
                          : str_of(redis_trouble(outbox_redis(v->outbox)));
    snprintf(error, sizeof error, "%.*s", STR_ARG(text));
    for (unsigned i = 0; i < v->nbatch; i++)
        v->batch[i]->failed = true;
    outbox_sent(v->outbox, error);
}

static void load(struct activity *v);

static void on_written(void *user, const struct resp_reply *replies, unsigned n)
{
    struct activity *v = user;
    const struct resp_reply *refused = NULL;
    char error[RESP_TEXT_BYTES + 1] = "";
    for (unsigned i = 0; i < n; i++)
        if (!v->reloaded && resp_is_error(&replies[i], "NOSCRIPT")) {
            v->reloaded = true;
            load(v);
            return;
        }
    if (!replies) {
        fail(v, NULL);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        v->batch[i]->failed = replies[i].type != RESP_NUMBER;
        refused = v->batch[i]->failed ? &replies[i] : refused;
    }
    if (refused)
        snprintf(error, sizeof error, "%.*s", (int)refused->n, refused->text);
    outbox_sent(v->outbox, error);
}

static void write_batch(struct activity *v)
{
    struct resp_command commands[OUTBOX_BATCH];
    struct arena a;
    arena_init(&a, NULL, 0);
    for (unsigned i = 0; i < v->nbatch; i++)
        commands[i] = activity_command((struct str){v->sha, v->nsha}, v->batch[i]->id,
                                       v->batch[i]->number, v->ttl_seconds, &a);
    redis_send(outbox_redis(v->outbox), commands, v->nbatch, left_ms(v), on_written, v);
    arena_done(&a);
}

static void on_loaded(void *user, const struct resp_reply *replies, unsigned n)
{
    struct activity *v = user;
    if (n == 0 || replies[0].type != RESP_TEXT || replies[0].n == 0) {
        fail(v, n ? replies : NULL);
        return;
    }
    memcpy(v->sha, replies[0].text, replies[0].n);
    v->nsha = replies[0].n;
    write_batch(v);
}

static void load(struct activity *v)
{
    struct resp_command c = {{STR("SCRIPT"), STR("LOAD"), str_of(activity_script)}, 3};
    redis_send(outbox_redis(v->outbox), &c, 1, left_ms(v), on_loaded, v);
}

static void on_send(void *user, struct outbox_item *const *items, unsigned n)
{
    struct activity *v = user;
    v->batch = items;
    v->nbatch = n;
    v->deadline_ms = worker_now(v->owner) + OUTBOX_LIMIT_MS;
    v->reloaded = v->nsha == 0;
    if (v->nsha == 0)
        load(v);
    else
        write_batch(v);
}

static void on_dropped(void *user, const struct outbox_item *item, const char *error, uint64_t lost)
{
    struct log_line l;
    (void)user;
    log_begin(&l, LOG_WARN, "activity: writes dropped");
    log_str(&l, "sandbox_id", item->id);
    log_str(&l, "error", str_of(error));
    log_int(&l, "dropped", (int64_t)lost);
    log_end(&l);
}

/* ---- life */

struct activity *activity_new(struct worker *owner, const struct ingress_settings *s,
                              struct arena *a, struct str *ret_error)
{
    struct activity *v = mem_new(sizeof *v);
    struct outbox_rules rules = {
        .owner = owner,
        .dsn = s->activity_redis_dsn,
        .interval_ms = settings_ms(s->activity_min_interval),
        .gather_ms = GATHER_MS,
        .name = "activity",
        .send = on_send,
        .dropped = on_dropped,
        .user = v,
    };
    v->owner = owner;
    v->ttl_seconds = s->activity_ttl_seconds;
    v->outbox = outbox_new(&rules, a, ret_error);
    if (v->outbox)
        return v;
    *ret_error = arena_printf(a, "activity-redis-dsn: %.*s", STR_ARG(*ret_error));
    activity_free(v);
    return NULL;
}

void activity_note(struct activity *v, struct str ns, struct str id, uint64_t now_ms,
                   uint64_t unix_ms)
{
    struct outbox_item item = {.ns = ns, .id = id, .number = unix_ms};
    if (outbox_due(v->outbox, ns, id, now_ms))
        outbox_put(v->outbox, &item, now_ms);
}

void activity_flush(struct activity *v, void (*done)(void *user), void *user)
{
    outbox_flush(v->outbox, done, user);
}

void activity_free(struct activity *v)
{
    if (!v)
        return;
    outbox_free(v->outbox);
    mem_free(v);
}

void activity_metrics(const struct activity *v, struct metrics_out *o)
{
    double dropped = 0;
    for (int i = 0; i < OUTBOX_DROPS; i++)
        dropped += (double)outbox_dropped(v->outbox, (enum outbox_drop)i);
    metrics_single(o, "ingress.activity.writes", "counter", "Times written to Redis",
                   (double)outbox_written(v->outbox));
    metrics_single(o, "ingress.activity.writes_dropped", "counter", "Times that were lost",
                   dropped);
    metrics_single(o, "ingress.activity.queue.length", "gauge", "Times that wait",
                   outbox_waiting(v->outbox));
    metrics_single(o, "ingress.activity.redis.connected", "gauge", "1: the connection is up",
                   outbox_connected(v->outbox));
}
