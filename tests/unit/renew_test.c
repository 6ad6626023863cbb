/* renew_test.c — renew intents from workers to a Redis of the test's own: throttled, bounded,
 * counted when they are lost.  (Payloads, the throttle's rows and commands are among the vectors.)
 */
#include "ingress/redis/renew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>

#include "harness/fake_redis.h"
#include "harness/until.h"
#include "ingress/redis/outbox.h"
#include "net/worker_impl.h"

static uint64_t ahead_ms;
uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + ahead_ms;
}

struct rig {
    struct worker *w;
    struct arena mem;
    struct fake_redis server;
    struct ingress_settings set;
    struct renew *r;
    const char *refused; /* an LPUSH with this in its payload is answered by OOM */
    unsigned flushed;
};

static void turn(struct rig *r)
{
    worker_turn(r->w);
    fake_redis_step(&r->server);
    poll(NULL, 0, 1);
}

static void pass(struct rig *r, uint64_t ms)
{
    for (uint64_t step; ms > 0; ms -= step) {
        step = ms < 500 ? ms : 500;
        ahead_ms += step;
        wheel_turn(&r->w->wheel, worker_now(r->w));
        turn(r);
    }
}

static const char *on_command(void *user, struct redis_call *c, const struct str *args, unsigned n)
{
    const struct rig *r = user;
    (void)c;
    bool refuses =
        r->refused && n == 3 && memmem(args[2].p, args[2].n, r->refused, strlen(r->refused));
    return refuses ? "-OOM command not allowed when used memory > 'maxmemory'.\r\n" : NULL;
}

static void rig_init(struct rig *r, int64_t interval_s, int64_t max_len)
{
    struct str error;
    *r = (struct rig){.w = worker_new(0)};
    arena_init(&r->mem, NULL, 0);
    fake_redis_start(&r->server, NULL, NULL);
    r->server.on = on_command;
    r->server.user = r;
    r->set.renew_intent_redis_dsn = arena_printf(&r->mem, "redis://127.0.0.1:%u", r->server.port);
    r->set.renew_intent_queue_key = STR("list");
    r->set.renew_intent_min_interval = interval_s;
    r->set.renew_intent_queue_max_len = max_len;
    r->r = renew_new(r->w, &r->set, &r->mem, &error);
    assert_non_null(r->r);
}

static void rig_done(struct rig *r)
{
    renew_free(r->r);
    for (int i = 0; i < 3; i++)
        turn(r);
    fake_redis_stop(&r->server);
    arena_done(&r->mem);
    worker_free(r->w);
}

/* What the metrics page says. */
static unsigned figure(const struct rig *r, const char *line)
{
    struct metrics_out o;
    unsigned value = 0;
    metrics_out_init(&o);
    renew_metrics(r->r, &o);
    char *text = mem_strdup((struct str){o.p, o.n}), *at = strstr(text, line);
    assert_non_null(at);
    for (at += strlen(line); *at >= '0' && *at <= '9'; at++)
        value = 10 * value + (unsigned)(*at - '0');
    mem_free(text);
    metrics_out_done(&o);
    return value;
}

static unsigned written(const struct rig *r)
{
    return figure(r, "\ningress_renew_intents_written ");
}

static unsigned dropped(const struct rig *r, const char *reason)
{
    char line[96];
    snprintf(line, sizeof line, "\ningress_renew_intents_dropped{reason=\"%s\"} ", reason);
    return figure(r, line);
}

static unsigned waiting(const struct rig *r)
{
    return figure(r, "\ningress_renew_queue_length ");
}

static void notes(struct rig *r, const char *id)
{
    struct renew_note n = {.id = str_of(id), .port = 80};
    renew_note(r->r, &n, worker_now(r->w), 1790000000000000000);
}

/* ---- */

static void a_sandbox_is_told_of_once_in_an_interval(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    for (int i = 0; i < 3; i++) {
        notes(&r, "a");
        notes(&r, "b");
    }
    until(&r, written(&r) == 2);
    assert_string_equal(
        r.server.log,
        "PING|"
        "LPUSH list {\"sandbox_id\":\"a\",\"observed_at\":\"2026-09-21T14:13:20Z\",\"port\":80}|"
        "LPUSH list {\"sandbox_id\":\"b\",\"observed_at\":\"2026-09-21T14:13:20Z\",\"port\":80}|");
    pass(&r, 60000);
    notes(&r, "a");
    until(&r, written(&r) == 3);
    rig_done(&r);
}

static void a_capped_list_is_cut_once_behind_a_batch(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 0, 100);
    for (int i = 0; i < 70; i++)
        notes(&r, "a");
    until(&r, written(&r) == 70);
    assert_int_equal(fake_redis_count(&r.server, "LPUSH list "), 70);
    assert_int_equal(fake_redis_count(&r.server, "LTRIM list 0 99|"), 2); /* 64 and 6 */
    rig_done(&r);
}

static void a_refused_write_gives_the_interval_back(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    r.refused = "\"bad\"";
    notes(&r, "good");
    notes(&r, "bad");
    until(&r, dropped(&r, "redis_fault") == 1);
    assert_int_equal(written(&r), 1);
    r.refused = NULL;
    notes(&r, "good");
    notes(&r, "bad");
    until(&r, written(&r) == 2);
    assert_int_equal(fake_redis_count(&r.server, "\"good\""), 1);
    assert_int_equal(fake_redis_count(&r.server, "\"bad\""), 2);
    rig_done(&r);
}

static void what_waits_for_an_absent_server_is_lost_after_five_seconds(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    fake_redis_close(&r.server);
    for (unsigned i = 0; i < 300; i++) { /* some batches' worth */
        char id[16];
        snprintf(id, sizeof id, "s%u", i);
        notes(&r, id);
    }
    pass(&r, 4000);
    assert_int_equal(dropped(&r, "redis_fault"), 0);
    pass(&r, 4000);
    assert_int_equal(dropped(&r, "redis_fault"), 300);
    assert_int_equal(waiting(&r), 0);
    fake_redis_open(&r.server);
    notes(&r, "s7"); /* its interval was given back */
    pass(&r, 4000);
    until(&r, written(&r) == 1);
    rig_done(&r);
}

static void a_server_that_comes_in_time_gets_everything(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    fake_redis_close(&r.server);
    for (unsigned i = 0; i < 300; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%u", i);
        notes(&r, id);
    }
    pass(&r, 1000);
    fake_redis_open(&r.server);
    pass(&r, 2000);
    until(&r, written(&r) == 300);
    assert_int_equal(dropped(&r, "redis_fault"), 0);
    rig_done(&r);
}

static void a_full_queue_keeps_what_it_has(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    r.server.deaf = true;
    for (unsigned i = 0; i < 9000; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%u", i);
        notes(&r, id);
    }
    assert_int_equal(waiting(&r), OUTBOX_QUEUE);
    assert_int_equal(dropped(&r, "queue_full"), 9000 - OUTBOX_QUEUE);
    r.server.deaf = false;
    until(&r, written(&r) == OUTBOX_QUEUE);
    assert_int_equal(fake_redis_count(&r.server, "\"s0\""), 1);
    assert_int_equal(fake_redis_count(&r.server, "\"s8999\""), 0);
    notes(&r, "s8999"); /* as if it had never been noted */
    until(&r, written(&r) == OUTBOX_QUEUE + 1);
    rig_done(&r);
}

static void a_hot_sandbox_takes_one_place(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    r.server.deaf = true;
    for (unsigned i = 0; i < 20000; i++)
        notes(&r, "hot");
    notes(&r, "first");
    assert_int_equal(waiting(&r), 2);
    rig_done(&r);
}

static void long_paths_and_names_cost_bounded_memory(void **state)
{
    (void)state;
    struct rig r;
    char *path = calloc(1, RENEW_FORWARD_BYTES + 2);
    rig_init(&r, 0, 0);
    r.server.deaf = true;
    memset(path, '<', RENEW_FORWARD_BYTES + 1);
    struct renew_note n = {.id = STR("a"), .forward = {path, RENEW_FORWARD_BYTES + 1}};
    struct str payload = renew_payload(&n, 0, &r.mem);
    assert_true(
        str_eq(payload, STR("{\"sandbox_id\":\"a\",\"observed_at\":\"1970-01-01T00:00:00Z\"}")));
    n.forward.n = RENEW_FORWARD_BYTES;
    for (unsigned i = 0; i < 1000; i++)
        renew_note(r.r, &n, 0, 0);
    assert_true(waiting(&r) > 100 && waiting(&r) < OUTBOX_QUEUE_BYTES / (6 * RENEW_FORWARD_BYTES));
    assert_int_equal(dropped(&r, "queue_full"), 1000 - waiting(&r));
    n.id = (struct str){path, OUTBOX_NAME_BYTES + 1};
    n.forward = STR_NONE;
    unsigned before = dropped(&r, "queue_full");
    renew_note(r.r, &n, 0, 0);
    assert_int_equal(dropped(&r, "queue_full"), before + 1);
    free(path);
    rig_done(&r);
}

static void what_is_no_utf8_is_replaced(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct renew_note n = {.id = STR("a\xff\xc3"), .forward = STR("/%ED%A0%80%00%7F%zz?x")};
    assert_true(
        str_eq(renew_payload(&n, 1, &a),
               STR("{\"sandbox_id\":\"a\\ufffd\\ufffd\",\"observed_at\":\"1970-01-01T00:00:00."
                   "000000001Z\",\"request_uri\":\"/%ED%A0%80%00%7F%zz\"}")));
    n.forward = STR("/%ED%A0%80%00%08%7F");
    assert_true(
        str_eq(renew_payload(&n, 1, &a),
               STR("{\"sandbox_id\":\"a\\ufffd\\ufffd\",\"observed_at\":\"1970-01-01T00:00:00."
                   "000000001Z\",\"request_uri\":\"/\\ufffd\\ufffd\\ufffd\\u0000\\u0008\x7f\"}")));
    arena_done(&a);
}

/* ---- threads */

enum { THREADS = 4, SANDBOXES = 200 };

static void *notes_all(void *user)
{
    struct rig *r = user;
    for (unsigned i = 0; i < 10 * SANDBOXES; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%u", i % SANDBOXES);
        struct renew_note n = {.id = str_of(id)};
        renew_note(r->r, &n, 1000, 0);
    }
    return NULL;
}

static void workers_note_together_while_the_owner_writes(void **state)
{
    (void)state;
    struct rig r;
    pthread_t threads[THREADS];
    rig_init(&r, 60, 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, notes_all, &r), 0);
    until(&r, written(&r) == SANDBOXES);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 20; i++)
        turn(&r);
    assert_int_equal(fake_redis_count(&r.server, "LPUSH"), SANDBOXES);
    rig_done(&r);
}

/* ---- the end */

static void on_flushed(void *user)
{
    struct rig *r = user;
    r->flushed++;
}

static void a_flush_waits_for_what_is_queued(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    notes(&r, "a");
    renew_flush(r.r, on_flushed, &r);
    assert_int_equal(r.flushed, 0);
    until(&r, r.flushed == 1);
    assert_int_equal(written(&r), 1);
    rig_done(&r);
}

static void a_flush_of_nothing_is_over_soon(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    renew_flush(r.r, on_flushed, &r);
    assert_int_equal(r.flushed, 0);
    until(&r, r.flushed == 1);
    rig_done(&r);
}

static void a_flush_ends_where_redis_does_not_answer(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 60, 0);
    until(&r, fake_redis_count(&r.server, "PING") == 1);
    for (int i = 0; i < 20; i++)
        turn(&r);
    r.server.deaf = true;
    for (unsigned i = 0; i < 100; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%u", i);
        notes(&r, id);
    }
    renew_flush(r.r, on_flushed, &r);
    pass(&r, 2500);
    assert_int_equal(r.flushed, 1);
    assert_int_equal(dropped(&r, "stopped"), 100);
    rig_done(&r);
}

static void can_be_freed_with_everything_under_way(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 20; turns++) {
        struct rig r;
        rig_init(&r, 0, 10);
        for (int i = 0; i < 100; i++)
            notes(&r, "a");
        ahead_ms += 10;
        for (unsigned i = 0; i < turns; i++) {
            wheel_turn(&r.w->wheel, worker_now(r.w));
            worker_turn(r.w);
            fake_redis_step(&r.server);
        }
        notes(&r, "b"); /* the bell is on its way */
        if (turns % 2)
            renew_flush(r.r, on_flushed, &r);
        rig_done(&r);
    }
}

static void a_bad_dsn_is_told_without_its_secret(void **state)
{
    (void)state;
    struct rig r = {.w = worker_new(0)};
    struct str error = STR_NONE;
    arena_init(&r.mem, NULL, 0);
    r.set.renew_intent_redis_dsn = STR("redis://:s3cret@host:x");
    assert_null(renew_new(r.w, &r.set, &r.mem, &error));
    assert_true(str_starts(error, STR("renew-intent-redis-dsn: ")));
    assert_null(memmem(error.p, error.n, "s3cret", 6));
    arena_done(&r.mem);
    worker_free(r.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_is_told_of_once_in_an_interval),
        cmocka_unit_test(a_capped_list_is_cut_once_behind_a_batch),
        cmocka_unit_test(a_refused_write_gives_the_interval_back),
        cmocka_unit_test(what_waits_for_an_absent_server_is_lost_after_five_seconds),
        cmocka_unit_test(a_server_that_comes_in_time_gets_everything),
        cmocka_unit_test(a_full_queue_keeps_what_it_has),
        cmocka_unit_test(a_hot_sandbox_takes_one_place),
        cmocka_unit_test(long_paths_and_names_cost_bounded_memory),
        cmocka_unit_test(what_is_no_utf8_is_replaced),
        cmocka_unit_test(workers_note_together_while_the_owner_writes),
        cmocka_unit_test(a_flush_waits_for_what_is_queued),
        cmocka_unit_test(a_flush_of_nothing_is_over_soon),
        cmocka_unit_test(a_flush_ends_where_redis_does_not_answer),
        cmocka_unit_test(can_be_freed_with_everything_under_way),
        cmocka_unit_test(a_bad_dsn_is_told_without_its_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
