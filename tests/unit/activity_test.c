/* activity_test.c — times of activity: batches, the script that a server may lose, and what the
 * script makes of them in a real Redis (the rows of kind "store" among the vectors). */
#include "ingress/redis/activity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "harness/fake_redis.h"
#include "harness/until.h"
#include "ingress/redis/redis.h"
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
    struct activity *v;
    unsigned noscript;   /* so many EVALSHA are answered by it */
    const char *refused; /* an EVALSHA of this key is answered by OOM */
    unsigned flushed;
};

static void turn(struct rig *r)
{
    worker_turn(r->w);
    if (r->server.log)
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
    struct rig *r = user;
    (void)c;
    if (!str_eq(args[0], STR("EVALSHA")) || n != 6)
        return NULL;
    if (r->noscript > 0) {
        r->noscript--;
        return "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    }
    return r->refused && str_eq(args[3], str_of(r->refused)) ? "-OOM no\r\n" : NULL;
}

static void rig_init(struct rig *r)
{
    struct str error;
    *r = (struct rig){.w = worker_new(0)};
    arena_init(&r->mem, NULL, 0);
    fake_redis_start(&r->server, NULL, NULL);
    r->server.on = on_command;
    r->server.user = r;
    r->set.activity_redis_dsn = arena_printf(&r->mem, "redis://127.0.0.1:%u", r->server.port);
    r->set.activity_min_interval = 5000000000;
    r->set.activity_ttl_seconds = 1800;
    r->v = activity_new(r->w, &r->set, &r->mem, &error);
    assert_non_null(r->v);
}

static void rig_done(struct rig *r)
{
    activity_free(r->v);
    for (int i = 0; i < 3; i++)
        turn(r);
    fake_redis_stop(&r->server);
    arena_done(&r->mem);
    worker_free(r->w);
}

static unsigned figure(const struct rig *r, const char *line)
{
    struct metrics_out o;
    unsigned value = 0;
    metrics_out_init(&o);
    activity_metrics(r->v, &o);
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
    return figure(r, "\ningress_activity_writes ");
}

static unsigned dropped(const struct rig *r)
{
    return figure(r, "\ningress_activity_writes_dropped ");
}

static void notes(struct rig *r, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%u", i);
        activity_note(r->v, STR_NONE, str_of(id), worker_now(r->w), 1790000000123);
    }
}

/* ---- */

static void the_script_is_loaded_once(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    notes(&r, 0, 2);
    notes(&r, 0, 2); /* within the interval */
    until(&r, written(&r) == 2);
    assert_int_equal(fake_redis_count(&r.server, "SCRIPT LOAD local now"), 1);
    assert_int_equal(fake_redis_count(&r.server,
                                      "EVALSHA 0123456789012345678901234567890123456789 1 "
                                      "opensandbox:activity:s0 1790000000123 1800|"),
                     1);
    pass(&r, 5000);
    notes(&r, 0, 1);
    until(&r, written(&r) == 3);
    assert_int_equal(fake_redis_count(&r.server, "SCRIPT LOAD"), 1);
    rig_done(&r);
}

static void one_pipeline_carries_64_at_most(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    notes(&r, 1000, 1001);
    until(&r, written(&r) == 1);
    fake_redis_forget(&r.server);
    r.server.hold = true;
    notes(&r, 0, 150);
    static const unsigned counts[] = {64, 128, 150};
    for (unsigned i = 0; i < 3; i++) {
        until(&r, fake_redis_count(&r.server, "EVALSHA") >= counts[i]);
        for (int k = 0; k < 20; k++)
            turn(&r);
        assert_int_equal(fake_redis_count(&r.server, "EVALSHA"), counts[i]);
        r.server.hold = false;
        fake_redis_step(&r.server);
        r.server.hold = i < 2;
    }
    until(&r, written(&r) == 151);
    rig_done(&r);
}

static void few_wait_for_more(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    notes(&r, 1000, 1001);
    until(&r, written(&r) == 1);
    r.server.hold = true; /* so that a batch can be told from the next one */
    notes(&r, 0, 1);
    worker_turn(r.w);
    notes(&r, 1, 3);
    until(&r, fake_redis_count(&r.server, "EVALSHA") > 1);
    for (int k = 0; k < 20; k++)
        turn(&r);
    assert_int_equal(fake_redis_count(&r.server, "EVALSHA"), 4);
    r.server.hold = false;
    until(&r, written(&r) == 4);
    rig_done(&r);
}

static void a_lost_script_is_loaded_and_the_whole_batch_repeated(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    notes(&r, 1000, 1001);
    until(&r, written(&r) == 1);
    fake_redis_forget(&r.server);
    r.noscript = 3; /* of five */
    notes(&r, 0, 5);
    until(&r, written(&r) == 6);
    assert_int_equal(fake_redis_count(&r.server, "SCRIPT LOAD"), 1);
    assert_int_equal(fake_redis_count(&r.server, "EVALSHA"), 10);
    assert_int_equal(dropped(&r), 0);
    rig_done(&r);
}

static void a_script_that_does_not_stay_loaded_is_not_loaded_for_ever(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    r.noscript = 1000;
    notes(&r, 0, 5);
    until(&r, dropped(&r) == 5);
    assert_int_equal(fake_redis_count(&r.server, "SCRIPT LOAD"), 1);
    assert_int_equal(fake_redis_count(&r.server, "EVALSHA"), 5);
    r.noscript = 0;
    notes(&r, 0, 5); /* their interval was given back */
    until(&r, written(&r) == 5);
    rig_done(&r);
}

static void only_what_was_refused_is_lost(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    r.refused = "opensandbox:activity:s1";
    notes(&r, 0, 3);
    until(&r, dropped(&r) == 1);
    assert_int_equal(written(&r), 2);
    rig_done(&r);
}

static void an_absent_server_costs_what_waits(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    fake_redis_close(&r.server);
    notes(&r, 0, 100);
    pass(&r, 8000);
    assert_int_equal(dropped(&r), 100);
    fake_redis_open(&r.server);
    notes(&r, 0, 100);
    pass(&r, 4000);
    until(&r, written(&r) == 100);
    rig_done(&r);
}

static void on_flushed(void *user)
{
    struct rig *r = user;
    r->flushed++;
}

static void a_flush_does_not_wait_for_more(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    until(&r, fake_redis_count(&r.server, "PING") == 1);
    notes(&r, 0, 1);
    activity_flush(r.v, on_flushed, &r);
    until(&r, r.flushed == 1);
    assert_int_equal(written(&r), 1);
    rig_done(&r);
}

/* ---- a real Redis, on a socket of its own */

struct real {
    struct rig rig;
    pid_t pid;
    char path[64];
    struct redis *r;
    unsigned dones;
    struct resp_reply reply;
};

static pid_t spawn_redis(const char *path)
{
    char *argv[] = {"redis-server",
                    "--port",
                    "0",
                    "--unixsocket",
                    (char *)(uintptr_t)path,
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--dir",
                    "/tmp",
                    "--loglevel",
                    "warning",
                    NULL};
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen("/dev/null", "w", stdout))
        _exit(127);
    execvp(argv[0], argv);
    _exit(127);
}

static void on_reply(void *user, const struct resp_reply *replies, unsigned n)
{
    struct real *q = user;
    assert_int_equal(n, 1);
    q->reply = replies[0];
    q->dones++;
}

/* The answer to one command. */
static const struct resp_reply *asks(struct real *q, const struct resp_command *c)
{
    unsigned before = q->dones;
    redis_send(q->r, c, 1, 600000, on_reply, q);
    until(&q->rig, q->dones > before);
    return &q->reply;
}

static const struct resp_reply *says(struct real *q, const char *a, const char *b, const char *c)
{
    struct resp_command cmd = {{str_of(a), str_of(b), str_of(c)}, 1 + (b != NULL) + (c != NULL)};
    return asks(q, &cmd);
}

/* False: there is none on this machine. */
static bool real_start(struct real *q)
{
    struct dsn dsn;
    const char *fault = "";
    struct str error;
    *q = (struct real){.rig = {.w = worker_new(0)}};
    arena_init(&q->rig.mem, NULL, 0);
    snprintf(q->path, sizeof q->path, "/tmp/activity_test.%d", (int)getpid());
    q->pid = spawn_redis(q->path);
    assert_true(
        dsn_parse(arena_printf(&q->rig.mem, "unix://%s", q->path), &q->rig.mem, &dsn, &fault));
    q->r = redis_new(q->rig.w, &(struct redis_rules){.dsn = &dsn}, &q->rig.mem, &error);
    for (int i = 0; i < 20000 && !redis_up(q->r); i++) {
        turn(&q->rig);
        if (waitpid(q->pid, NULL, WNOHANG) == q->pid) {
            q->pid = 0;
            return false;
        }
    }
    assert_true(redis_up(q->r));
    return true;
}

static void real_stop(struct real *q)
{
    redis_free(q->r);
    worker_turn(q->rig.w);
    if (q->pid > 0) {
        kill(q->pid, SIGKILL);
        waitpid(q->pid, NULL, 0);
    }
    unlink(q->path);
    arena_done(&q->rig.mem);
    worker_free(q->rig.w);
}

static const struct json *json_get(const struct json *object, const char *name)
{
    return json_member(object, str_of(name));
}

static void run_store(struct real *q, struct str sha, const struct json_doc *doc)
{
    const struct json *row = json_root(doc), *expect = json_get(row, "expect");
    const struct json *stored = json_get(row, "stored");
    const struct json *result = json_first(json_get(expect, "results"));
    const char *key = "opensandbox:activity:sb";
    says(q, "DEL", key, NULL);
    if (json_type(stored) == JSON_STRING)
        says(q, "SET", key, arena_printf(&q->rig.mem, "%.*s", STR_ARG(json_string(stored))).p);
    for (const struct json *w = json_first(json_get(row, "writes")); w; w = json_next(w)) {
        int64_t t, wanted;
        assert_true(json_int(doc, w, &t) && json_int(doc, result, &wanted));
        struct resp_command c = activity_command(sha, STR("sb"), (uint64_t)t, 1800, &q->rig.mem);
        const struct resp_reply *got = asks(q, &c);
        assert_int_equal(got->type, RESP_NUMBER);
        assert_int_equal(got->number, wanted);
        result = json_next(result);
    }
    assert_true(
        str_eq(resp_text(says(q, "GET", key, NULL)), json_string(json_get(expect, "value"))));
    int64_t life = says(q, "TTL", key, NULL)->number;
    bool written_once = json_type(stored) != JSON_STRING || str_eq(json_string(stored), STR("x"));
    assert_true(!written_once || (life > 0 && life <= 1800));
}

/* What is no vector: lists, numbers that are none. */
static void run_odd(struct real *q, struct str sha)
{
    static const char *const values[] = {"inf", "nan", "-1", "", "5x"};
    struct resp_command c = activity_command(sha, STR("odd"), 7, 1800, &q->rig.mem);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        says(q, "SET", "opensandbox:activity:odd", values[i]);
        assert_int_equal(asks(q, &c)->number, 1);
        assert_true(str_eq(resp_text(says(q, "GET", "opensandbox:activity:odd", NULL)), STR("7")));
    }
    says(q, "DEL", "opensandbox:activity:odd", NULL);
    says(q, "LPUSH", "opensandbox:activity:odd", "x");
    assert_int_equal(asks(q, &c)->number, 1);
    assert_true(str_eq(resp_text(says(q, "GET", "opensandbox:activity:odd", NULL)), STR("7")));
}

static void the_script_moves_time_forward_only(void **state)
{
    (void)state;
    struct real q;
    if (!real_start(&q)) {
        real_stop(&q);
        skip();
    }
    char line[4096], sha[64];
    unsigned rows = 0;
    const struct resp_reply *loaded = says(&q, "SCRIPT", "LOAD", activity_script);
    assert_int_equal(loaded->type, RESP_TEXT);
    struct str name = {sha, loaded->n};
    memcpy(sha, loaded->text, loaded->n);
    FILE *f = fopen(SOURCE_DIR "/tests/vectors/ingress/activity.jsonl", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        struct json_fault fault;
        struct json_doc *doc = json_parse(str_of(line), 0, 64, &fault);
        assert_non_null(doc);
        if (str_eq(json_string(json_get(json_root(doc), "kind")), STR("store"))) {
            run_store(&q, name, doc);
            rows++;
        }
        json_free(doc);
    }
    fclose(f);
    assert_int_equal(rows, 5);
    run_odd(&q, name);
    real_stop(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_script_is_loaded_once),
        cmocka_unit_test(one_pipeline_carries_64_at_most),
        cmocka_unit_test(few_wait_for_more),
        cmocka_unit_test(a_lost_script_is_loaded_and_the_whole_batch_repeated),
        cmocka_unit_test(a_script_that_does_not_stay_loaded_is_not_loaded_for_ever),
        cmocka_unit_test(only_what_was_refused_is_lost),
        cmocka_unit_test(an_absent_server_costs_what_waits),
        cmocka_unit_test(a_flush_does_not_wait_for_more),
        cmocka_unit_test(the_script_moves_time_forward_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
