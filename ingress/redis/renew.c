/* renew.c — renew intents into a list in Redis.  An intent is made when it is noted, since it tells
 * the time of the request; each is pushed by a command of its own, so that its answer says whether
 * it arrived, and the list is cut once behind them. */
#include "ingress/redis/renew.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "ingress/redis/outbox.h"

struct renew {
    struct outbox *outbox;
    struct str key;
    int64_t max_len;
    struct arena texts;
    struct outbox_item *const *batch;
    unsigned nbatch;
};

unsigned renew_commands(struct str key, int64_t max_len, const struct str *payloads, unsigned n,
                        struct arena *a, struct resp_command *ret)
{
    for (unsigned i = 0; i < n; i++)
        ret[i] = (struct resp_command){{STR("LPUSH"), key, payloads[i]}, 3};
    if (max_len <= 0)
        return n;
    char *last = arena_get(a, 20);
    struct str end = {last, text_put_u64(last, (uint64_t)max_len - 1)};
    ret[n] = (struct resp_command){{STR("LTRIM"), key, STR("0"), end}, 4};
    return n + 1;
}

static void on_written(void *user, const struct resp_reply *replies, unsigned n)
{
    struct renew *r = user;
    const char *error = redis_trouble(outbox_redis(r->outbox));
    char code[RESP_TEXT_BYTES + 1];
    (void)n;
    for (unsigned i = 0; i < r->nbatch; i++) {
        bool refused = replies && replies[i].type != RESP_NUMBER;
        r->batch[i]->failed = !replies || refused;
        if (!refused)
            continue;
        memcpy(code, replies[i].text, replies[i].n);
        code[replies[i].n] = 0;
        error = code;
    }
    outbox_sent(r->outbox, error);
}

static void on_send(void *user, struct outbox_item *const *items, unsigned n)
{
    struct renew *r = user;
    struct str payloads[OUTBOX_BATCH];
    struct resp_command commands[OUTBOX_BATCH + 1];
    struct arena a;
    arena_init(&a, NULL, 0);
    r->batch = items;
    r->nbatch = n;
    for (unsigned i = 0; i < n; i++)
        payloads[i] = items[i]->text;
    unsigned ncommands = renew_commands(r->key, r->max_len, payloads, n, &a, commands);
    redis_send(outbox_redis(r->outbox), commands, ncommands, OUTBOX_LIMIT_MS, on_written, r);
    arena_done(&a);
}

static void on_dropped(void *user, const struct outbox_item *item, const char *error, uint64_t lost)
{
    const struct renew *r = user;
    struct log_line l;
    log_begin(&l, LOG_ERROR, "renewintent: redis publish failed");
    log_str(&l, "sandbox_id", item->id);
    log_str(&l, "queue_key", r->key);
    log_str(&l, "error", str_of(error));
    log_str(&l, "namespace", item->ns);
    log_int(&l, "dropped", (int64_t)lost);
    log_end(&l);
}

struct renew *renew_new(struct worker *owner, const struct ingress_settings *s, struct arena *a,
                        struct str *ret_error)
{
    struct renew *r = mem_new(sizeof *r);
    int64_t interval_s = s->renew_intent_min_interval;
    struct outbox_rules rules = {
        .owner = owner,
        .dsn = s->renew_intent_redis_dsn,
        .interval_ms = interval_s > 0 ? (uint64_t)interval_s * 1000 : 0,
        .name = "renew intents",
        .send = on_send,
        .dropped = on_dropped,
        .user = r,
    };
    arena_init(&r->texts, NULL, 0);
    r->key = arena_str(&r->texts, s->renew_intent_queue_key);
    r->max_len = s->renew_intent_queue_max_len;
    r->outbox = outbox_new(&rules, a, ret_error);
    if (r->outbox)
        return r;
    *ret_error = arena_printf(a, "renew-intent-redis-dsn: %.*s", STR_ARG(*ret_error));
    renew_free(r);
    return NULL;
}

void renew_note(struct renew *r, const struct renew_note *n, uint64_t now_ms, uint64_t unix_ns)
{
    char room[1024];
    struct arena a;
    if (!outbox_due(r->outbox, n->ns, n->id, now_ms))
        return;
    arena_init(&a, room, sizeof room);
    struct outbox_item item = {.ns = n->ns, .id = n->id, .text = renew_payload(n, unix_ns, &a)};
    outbox_put(r->outbox, &item, now_ms);
    arena_done(&a);
}

void renew_flush(struct renew *r, void (*done)(void *user), void *user)
{
    outbox_flush(r->outbox, done, user);
}

void renew_free(struct renew *r)
{
    if (!r)
        return;
    outbox_free(r->outbox);
    arena_done(&r->texts);
    mem_free(r);
}

void renew_metrics(const struct renew *r, struct metrics_out *o)
{
    metrics_single(o, "ingress.renew.intents.written", "counter", "Renew intents in Redis",
                   (double)outbox_written(r->outbox));
    metrics_family(o, "ingress.renew.intents.dropped", "counter", "Renew intents lost, by reason");
    for (int i = 0; i < OUTBOX_DROPS; i++) {
        char label[64];
        snprintf(label, sizeof label, "reason=\"%s\"", outbox_drop_text((enum outbox_drop)i));
        metrics_value(o, "ingress.renew.intents.dropped", label,
                      (double)outbox_dropped(r->outbox, (enum outbox_drop)i));
    }
    metrics_single(o, "ingress.renew.queue.length", "gauge", "Renew intents that wait",
                   outbox_waiting(r->outbox));
    metrics_single(o, "ingress.renew.redis.connected", "gauge", "1: the connection is up",
                   outbox_connected(r->outbox));
}
