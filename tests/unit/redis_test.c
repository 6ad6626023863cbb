/* redis_test.c — the connection to Redis over loopback: its greeting, one pipeline at a time, and a
 * server that is away, slow, broken or hostile.  Time passes when the test says so. */
#include "ingress/redis/redis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <unistd.h>

#include "harness/copies.h"
#include "harness/fake_redis.h"
#include "harness/pki.h"
#include "harness/until.h"
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
    struct redis *r;
    const char *answer; /* to `to`, in place of a good one */
    const char *to;
    unsigned times; /* so often; 0: always */
    unsigned ups, downs, dones, replies;
    struct resp_reply got[8];
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
    struct rig *r = user;
    (void)c;
    (void)n;
    if (!r->to || !str_eq(args[0], str_of(r->to)))
        return NULL;
    if (r->times > 0 && --r->times == 0)
        r->to = NULL;
    return r->answer;
}

static void on_changed(void *user, bool up)
{
    struct rig *r = user;
    r->ups += up;
    r->downs += !up;
}

static void on_done(void *user, const struct resp_reply *replies, unsigned n)
{
    struct rig *r = user;
    r->dones++;
    r->replies = n;
    for (unsigned i = 0; i < n && i < 8; i++)
        r->got[i] = replies[i];
}

static void rig_init(struct rig *r, const char *path, SSL_CTX *ctx)
{
    *r = (struct rig){.w = worker_new(0)};
    arena_init(&r->mem, NULL, 0);
    fake_redis_start(&r->server, path, ctx);
    r->server.on = on_command;
    r->server.user = r;
}

/* before, "127.0.0.1:port" or path, after */
static void connects(struct rig *r, const char *before, const char *after)
{
    struct dsn dsn;
    const char *fault = "";
    struct str error;
    struct str text =
        r->server.path[0]
            ? arena_printf(&r->mem, "%s%s%s", before, r->server.path, after)
            : arena_printf(&r->mem, "%s127.0.0.1:%u%s", before, r->server.port, after);
    assert_true(dsn_parse(text, &r->mem, &dsn, &fault));
    struct redis_rules rules = {.dsn = &dsn, .changed = on_changed, .user = r};
    r->r = redis_new(r->w, &rules, &r->mem, &error);
    assert_non_null(r->r);
}

static void rig_up(struct rig *r)
{
    rig_init(r, NULL, NULL);
    connects(r, "redis://", "");
    until(r, redis_up(r->r));
    fake_redis_forget(&r->server);
}

static void rig_done(struct rig *r)
{
    redis_free(r->r);
    for (int i = 0; i < 3; i++)
        turn(r);
    fake_redis_stop(&r->server);
    arena_done(&r->mem);
    worker_free(r->w);
}

static void sends(struct rig *r, uint64_t limit_ms)
{
    static const struct resp_command commands[] = {
        {{{"LPUSH", 5}, {"k", 1}, {"v", 1}}, 3}, {{{"LTRIM", 5}, {"k", 1}, {"0", 1}, {"9", 1}}, 4}};
    redis_send(r->r, commands, 2, limit_ms, on_done, r);
}

enum { LONG_MS = 60000 };

/* ---- the greeting */

static void greets_as_the_dsn_says(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after, *log;
    } rows[] = {
        {"redis://", "", "PING|"},
        {"redis://", "/0", "PING|"},
        {"redis://:p%20w@", "", "AUTH p w|PING|"},
        {"redis://me:pw@", "/3", "AUTH me pw|SELECT 3|PING|"},
        {"redis://me@", "", "PING|"},
        {"redis://", "?client_name=gw&protocol=2", "CLIENT SETNAME gw|PING|"},
        {"redis://me:pw@", "/1?protocol=3&client_name=gw&db=7",
         "AUTH me pw|HELLO 3|CLIENT SETNAME gw|SELECT 7|PING|"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, NULL);
        connects(&r, rows[i].before, rows[i].after);
        until(&r, redis_up(r.r));
        assert_string_equal(r.server.log, rows[i].log);
        sends(&r, LONG_MS);
        until(&r, r.dones == 1);
        assert_int_equal(r.replies, 2);
        assert_int_equal(r.ups, 1);
        rig_done(&r);
    }
}

/* A server that refuses what only decorates is good enough; one that does not let us in is not. */
static void a_refusal_ends_it_where_it_matters(void **state)
{
    (void)state;
    static const struct {
        const char *to, *answer, *trouble; /* trouble NULL: goes on */
    } rows[] = {
        {"HELLO", "-ERR unknown command 'HELLO'\r\n", NULL},
        {"HELLO", "-NOPROTO unsupported protocol version\r\n", NULL},
        {"CLIENT", "-NOPERM no permissions\r\n", NULL},
        {"PING", "-NOPERM no permissions\r\n", NULL},
        {"AUTH", "-WRONGPASS invalid username-password pair\r\n", "AUTH refused: WRONGPASS"},
        {"AUTH", "-ERR with args beginning with: 'pw'\r\n", "AUTH refused: ERR"},
        {"SELECT", "-ERR DB index is out of range\r\n", "SELECT refused: ERR"},
        {"PING", "-NOAUTH Authentication required.\r\n", "PING refused: NOAUTH"},
        {"PING", "-LOADING Redis is loading the dataset in memory\r\n", "PING refused: LOADING"},
        {"PING", "*1\r\n+PONG\r\n", "an answer that is not Redis'"},
        {"HELLO", "HTTP/1.1 400 Bad Request\r\n", "an answer that is not Redis'"},
        {"HELLO", "+OK\r\n+OK\r\n", "an answer that is not Redis'"},
        {"AUTH", "+OK\r\n+OK\r\n", "an answer that is not Redis'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, NULL);
        r.to = rows[i].to;
        r.answer = rows[i].answer;
        connects(&r, "redis://me:pw@", "/1?protocol=3&client_name=gw");
        until(&r, r.ups + r.downs > 0);
        assert_int_equal(redis_up(r.r), rows[i].trouble == NULL);
        if (rows[i].trouble)
            assert_string_equal(redis_trouble(r.r), rows[i].trouble);
        rig_done(&r);
    }
}

static void goes_on_trying_and_tells_once(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    fake_redis_close(&r.server);
    connects(&r, "redis://", "");
    until(&r, r.downs == 1);
    assert_string_equal(redis_trouble(r.r), "dial");
    pass(&r, 30000);
    assert_int_equal(r.downs, 1);
    fake_redis_open(&r.server);
    pass(&r, 6000); /* more than the longest back-off */
    until(&r, redis_up(r.r));
    fake_redis_close(&r.server);
    until(&r, r.downs == 2);
    fake_redis_open(&r.server);
    pass(&r, 6000);
    until(&r, r.ups == 2);
    rig_done(&r);
}

static void a_server_that_says_nothing_is_given_up_in_time(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    r.server.deaf = true;
    connects(&r, "redis://", "?dial_timeout=2s");
    until(&r, r.server.n == 1);
    pass(&r, 3000);
    until(&r, r.downs == 1);
    assert_string_equal(redis_trouble(r.r), "deadline");
    rig_done(&r);
}

static void without_a_dial_timeout_it_is_given_up_all_the_same(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    r.server.deaf = true;
    connects(&r, "redis://", "?dial_timeout=0");
    until(&r, r.server.n == 1);
    pass(&r, 31000);
    until(&r, r.downs == 1);
    rig_done(&r);
}

static void speaks_over_a_unix_socket(void **state)
{
    (void)state;
    struct rig r;
    char path[64];
    snprintf(path, sizeof path, "/tmp/redis_test.%d", (int)getpid());
    rig_init(&r, path, NULL);
    connects(&r, "unix://:pw@", "?db=2");
    until(&r, redis_up(r.r));
    assert_string_equal(r.server.log, "AUTH pw|SELECT 2|PING|");
    sends(&r, LONG_MS);
    until(&r, r.dones == 1);
    assert_int_equal(r.replies, 2);
    fake_redis_close(&r.server);
    unlink(path);
    until(&r, r.downs == 1);
    pass(&r, 1000);
    assert_string_equal(redis_trouble(r.r), "no such socket");
    fake_redis_open(&r.server);
    pass(&r, 6000);
    until(&r, r.ups == 2);
    rig_done(&r);
}

static SSL_CTX *server_ctx(void)
{
    struct pki_cert *leaf = pki_new(&(struct pki_wish){.cn = "x", .names = "IP:127.0.0.1"}, NULL);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
    pki_free(leaf);
    return ctx;
}

static void with_rediss_the_server_must_prove_itself(void **state)
{
    (void)state;
    SSL_CTX *ctx = server_ctx();
    for (int skip = 0; skip < 2; skip++) {
        struct rig r;
        rig_init(&r, NULL, ctx);
        connects(&r, "rediss://:pw@", skip ? "?skip_verify=true" : "");
        until(&r, r.ups + r.downs > 0);
        assert_int_equal(redis_up(r.r), skip);
        assert_int_equal(fake_redis_count(&r.server, "AUTH"), skip);
        if (skip)
            sends(&r, LONG_MS);
        else
            assert_non_null(strstr(redis_trouble(r.r), "certificate"));
        until(&r, !skip || r.dones == 1);
        rig_done(&r);
    }
    SSL_CTX_free(ctx);
}

/* "correct-horse-1": with 0x55 over it. */
#define MASKED "\x36\x3a\x27\x27\x30\x36\x21\x78\x3d\x3a\x27\x26\x30\x78\x64"

static unsigned copies_of_the_password(bool wiped)
{
    struct rig r;
    struct dsn dsn;
    const char *fault;
    struct str error;
    struct secret *secret = copies_unmask(STR(MASKED));
    rig_init(&r, NULL, NULL);
    r.server.forgetful = wiped;
    struct str text = arena_printf(&r.mem, "redis://127.0.0.1:%u", r.server.port);
    assert_true(dsn_parse(text, &r.mem, &dsn, &fault));
    dsn.password = secret_bytes(secret);
    struct redis_rules rules = {.dsn = &dsn, .changed = on_changed, .user = &r};
    r.r = redis_new(r.w, &rules, &r.mem, &error);
    until(&r, redis_up(r.r));
    sends(&r, LONG_MS);
    until(&r, r.dones == 1);
    unsigned n = copies_count(secret);
    assert_int_equal(fake_redis_count(&r.server, "AUTH "), !wiped);
    rig_done(&r);
    secret_unref(secret);
    return n;
}

static void no_copy_of_the_password_is_left(void **state)
{
    (void)state;
    assert_int_equal(copies_of_the_password(true), 0);
    assert_true(copies_of_the_password(false) > 0); /* the server's own are found */
}

/* ---- pipelines */

static void a_pipeline_is_answered_in_order(void **state)
{
    (void)state;
    struct rig r;
    rig_up(&r);
    r.to = "LTRIM";
    r.answer = "-OOM command not allowed\r\n";
    sends(&r, LONG_MS);
    assert_true(redis_busy(r.r));
    until(&r, r.dones == 1);
    assert_false(redis_busy(r.r));
    assert_string_equal(r.server.log, "LPUSH k v|LTRIM k 0 9|");
    assert_int_equal(r.replies, 2);
    assert_int_equal(r.got[0].number, 1);
    assert_true(resp_is_error(&r.got[1], "OOM"));
    assert_int_equal(r.downs, 0);
    rig_done(&r);
}

static void a_pipeline_waits_for_a_connection(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    connects(&r, "redis://", "");
    sends(&r, LONG_MS);
    until(&r, r.dones == 1);
    assert_int_equal(r.replies, 2);
    rig_done(&r);
}

static void a_pipeline_has_its_time_where_nobody_answers(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    fake_redis_close(&r.server);
    connects(&r, "redis://", "");
    sends(&r, 5000);
    pass(&r, 4000);
    assert_int_equal(r.dones, 0);
    pass(&r, 1500);
    assert_int_equal(r.dones, 1);
    assert_int_equal(r.replies, 0);
    rig_done(&r);
}

/* Its answers must not be taken for those of the next one. */
static void a_pipeline_that_is_late_takes_its_connection_with_it(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    connects(&r, "redis://", "?read_timeout=0");
    until(&r, redis_up(r.r));
    r.server.hold = true;
    sends(&r, 5000);
    until(&r, fake_redis_count(&r.server, "LTRIM") == 1);
    pass(&r, 6000);
    assert_int_equal(r.dones, 1);
    assert_int_equal(r.replies, 0);
    r.server.nheld = 0;
    r.server.hold = false;
    sends(&r, LONG_MS);
    pass(&r, 6000);
    until(&r, r.dones == 2);
    assert_int_equal(r.replies, 2);
    assert_int_equal(fake_redis_count(&r.server, "LTRIM"), 2);
    assert_int_equal(r.server.n, 2);
    rig_done(&r);
}

static void silence_costs_a_connection_and_not_the_pipeline(void **state)
{
    (void)state;
    struct rig r;
    rig_up(&r);
    r.to = "LPUSH";
    r.answer = "";
    r.times = 1;
    sends(&r, LONG_MS);
    until(&r, fake_redis_count(&r.server, "LPUSH") == 1);
    pass(&r, 4000); /* read_timeout: 3 s */
    until(&r, r.dones == 1);
    assert_int_equal(r.replies, 2);
    assert_int_equal(fake_redis_count(&r.server, "LPUSH"), 2);
    assert_int_equal(r.downs, 1);
    rig_done(&r);
}

static void a_connection_that_breaks_is_tried_again_so_often(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, NULL, NULL);
    connects(&r, "redis://", "?max_retries=2");
    until(&r, redis_up(r.r));
    sends(&r, LONG_MS);
    for (unsigned i = 1; i <= 3; i++) {
        r.to = "LPUSH";
        r.answer = "";
        until(&r, fake_redis_count(&r.server, "LPUSH") == i);
        assert_int_equal(r.dones, 0);
        fake_redis_cut(&r.server);
        turn(&r);
        pass(&r, 6000);
    }
    assert_int_equal(r.dones, 1);
    assert_int_equal(r.replies, 0);
    rig_done(&r);
}

/* Another may stand behind the name by now. */
static void a_server_that_cannot_write_is_left(void **state)
{
    (void)state;
    struct rig r;
    rig_up(&r);
    r.to = "LPUSH";
    r.answer = "-READONLY You can't write against a read only replica.\r\n";
    r.times = 1;
    sends(&r, LONG_MS);
    until(&r, r.dones == 1);
    assert_true(resp_is_error(&r.got[0], "READONLY"));
    assert_false(redis_up(r.r));
    assert_string_equal(redis_trouble(r.r), "READONLY");
    sends(&r, LONG_MS);
    pass(&r, 1000);
    until(&r, r.dones == 2);
    assert_int_equal(r.got[0].number, 1);
    assert_int_equal(r.server.n, 2);
    rig_done(&r);
}

static void what_was_not_asked_for_is_believed_by_nobody(void **state)
{
    (void)state;
    static const char *const answers[] = {
        ":1\r\n:1\r\n:1\r\n", /* three for two */
        "*1\r\n:1\r\n",       "*2147483647\r\n", "%1\r\n", "HTTP/1.1 200 OK\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct rig r;
        rig_up(&r);
        r.to = "LPUSH";
        r.answer = answers[i];
        r.times = 1;
        sends(&r, LONG_MS);
        until(&r, r.downs == 1);
        pass(&r, 6000);
        until(&r, redis_up(r.r) && r.dones == 1);
        rig_done(&r);
    }
}

static void words_between_pipelines_end_the_connection(void **state)
{
    (void)state;
    struct rig r;
    rig_up(&r);
    fake_redis_say(r.server.calls[0], "+hello\r\n");
    until(&r, r.downs == 1);
    pass(&r, 1000);
    until(&r, r.ups == 2);
    rig_done(&r);
}

/* It is longer than what the kernel takes at once. */
static void a_long_pipeline_arrives_whole(void **state)
{
    (void)state;
    enum { N = 65, BYTES = 40000 };
    struct rig r;
    rig_up(&r);
    char *text = calloc(1, BYTES);
    struct resp_command commands[N];
    memset(text, 'x', BYTES);
    for (unsigned i = 0; i < N; i++)
        commands[i] = (struct resp_command){{STR("LPUSH"), STR("k"), {text, BYTES}}, 3};
    redis_send(r.r, commands, N, LONG_MS, on_done, &r);
    until(&r, r.dones == 1);
    assert_int_equal(r.replies, N);
    assert_int_equal(r.server.commands, N + 1);
    free(text);
    rig_done(&r);
}

static void what_was_forgotten_is_not_told(void **state)
{
    (void)state;
    struct rig r;
    rig_up(&r);
    r.server.hold = true;
    sends(&r, LONG_MS);
    until(&r, fake_redis_count(&r.server, "LTRIM") == 1);
    redis_forget(r.r);
    assert_false(redis_busy(r.r));
    r.server.hold = false;
    r.server.nheld = 0;
    sends(&r, LONG_MS);
    pass(&r, 6000);
    until(&r, r.dones == 1);
    assert_int_equal(r.replies, 2);
    rig_done(&r);
}

/* ---- the end, wherever it is */

static void can_be_freed_at_any_moment(void **state)
{
    (void)state;
    SSL_CTX *ctx = server_ctx();
    for (int tls = 0; tls < 2; tls++)
        for (unsigned turns = 0; turns < 40; turns++) {
            struct rig r;
            rig_init(&r, NULL, tls ? ctx : NULL);
            connects(&r, tls ? "rediss://me:pw@" : "redis://me:pw@",
                     tls ? "/1?protocol=3&skip_verify=1" : "/1?protocol=3");
            sends(&r, LONG_MS);
            ahead_ms += 10;
            for (unsigned k = 0; k < turns; k++) {
                worker_turn(r.w);
                wheel_turn(&r.w->wheel, worker_now(r.w));
                fake_redis_step(&r.server);
            }
            rig_done(&r);
        }
    SSL_CTX_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greets_as_the_dsn_says),
        cmocka_unit_test(a_refusal_ends_it_where_it_matters),
        cmocka_unit_test(goes_on_trying_and_tells_once),
        cmocka_unit_test(a_server_that_says_nothing_is_given_up_in_time),
        cmocka_unit_test(without_a_dial_timeout_it_is_given_up_all_the_same),
        cmocka_unit_test(speaks_over_a_unix_socket),
        cmocka_unit_test(with_rediss_the_server_must_prove_itself),
        cmocka_unit_test(no_copy_of_the_password_is_left),
        cmocka_unit_test(a_pipeline_is_answered_in_order),
        cmocka_unit_test(a_pipeline_waits_for_a_connection),
        cmocka_unit_test(a_pipeline_has_its_time_where_nobody_answers),
        cmocka_unit_test(a_pipeline_that_is_late_takes_its_connection_with_it),
        cmocka_unit_test(silence_costs_a_connection_and_not_the_pipeline),
        cmocka_unit_test(a_connection_that_breaks_is_tried_again_so_often),
        cmocka_unit_test(a_server_that_cannot_write_is_left),
        cmocka_unit_test(what_was_not_asked_for_is_believed_by_nobody),
        cmocka_unit_test(words_between_pipelines_end_the_connection),
        cmocka_unit_test(a_long_pipeline_arrives_whole),
        cmocka_unit_test(what_was_forgotten_is_not_told),
        cmocka_unit_test(can_be_freed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
