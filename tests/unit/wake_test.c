/* wake_test.c — flights against a FastPath that follows a script: which calls are made, with what,
 * and how it ends; and the parking lot. */
#include "ingress/wake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "base/text.h"
#include "harness/grpc_server.h"
#include "harness/name_list.h"
#include "harness/until.h"
#include "net/worker_impl.h"

enum { BUDGET_MS = 100000, CALL_MS = 60000 };

/* The loop's clock, moved by hand on top of the real one. */
static uint64_t ahead_ms;
uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + ahead_ms;
}

/* What one call is answered; the last one of a script stays. */
struct says {
    enum grpc_code code;
    enum pb_runtime runtime;
    const char *checkpoint;
};

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct grpc_server server;
    struct caller *caller;
    struct wake *k;
    const struct says *script; /* NULL: nobody answers */
    unsigned at;
    char calls[256]; /* "G" GetSandbox, "R" ResumeSandbox with "(checkpoint)" */
    char last_id[256];
    unsigned landed, woken;
    enum fault_id fault;
    char value[64], key[64];
    uint64_t at_ms;
};

/* ---- FastPath */

static size_t put_text(uint8_t *p, unsigned field, const void *text, size_t n)
{
    assert_true(n < 128);
    p[0] = (uint8_t)(field << 3 | 2);
    p[1] = (uint8_t)n;
    memcpy(p + 2, text, n);
    return n + 2;
}

static size_t put_state(uint8_t *p, const struct says *s)
{
    uint8_t info[128], checkpoint[64];
    const uint8_t runtime[] = {1 << 3, (uint8_t)s->runtime}, plane[] = {1 << 3, PB_PLANE_READY};
    size_t n = put_text(info, 3, runtime, sizeof runtime);
    n += put_text(info + n, 4, plane, sizeof plane);
    if (s->checkpoint) {
        size_t len = put_text(checkpoint, 1, s->checkpoint, strlen(s->checkpoint));
        n += put_text(info + n, 9, checkpoint, len);
    }
    return put_text(p, 1, info, n);
}

static void note(struct rig *r, const char *text, struct str more)
{
    size_t n = strlen(r->calls);
    snprintf(r->calls + n, sizeof r->calls - n, "%s%.*s", text, STR_ARG(more));
}

/* Field 4 of ResumeSandbox is its last: "checkpoint" behind its length. */
static void note_resume(struct rig *r, const struct grpc_ask *a)
{
    const char *p = (const char *)a->body + 5;
    size_t n = a->n - 5, id = (uint8_t)p[1], at = 2 + id;
    assert_int_equal(p[0], 1 << 3 | 2);
    snprintf(r->last_id, sizeof r->last_id, "%.*s", (int)id, p + 2);
    at += 2 + (uint8_t)p[at + 1];
    note(r, "R(", at < n ? (struct str){p + at + 2, n - at - 2} : STR(""));
    note(r, ")", STR(""));
}

static void on_ask(void *user, struct grpc_ask *a)
{
    struct rig *r = user;
    uint8_t message[160];
    if (str_eq(a->head->path, STR("/fastpath.v2.FastPathService/GetSandbox")))
        note(r, "G", STR(""));
    else
        note_resume(r, a);
    if (!r->script)
        return;
    const struct says *s = &r->script[r->at++];
    if (s->code == GRPC_OK)
        grpc_server_say(a, message, put_state(message, s), 0, NULL);
    else
        grpc_server_say(a, NULL, 0, s->code, "as the script says");
}

/* ---- the rig */

static void on_landed(void *user, struct str key, const struct wake_end *end)
{
    struct rig *r = user;
    r->landed++;
    r->fault = end->fault;
    r->at_ms = end->at_ms;
    snprintf(r->value, sizeof r->value, "%.*s", STR_ARG(end->value));
    snprintf(r->key, sizeof r->key, "%.*s", STR_ARG(key));
}

static void on_woken(void *user, struct str ns, struct str id)
{
    struct rig *r = user;
    assert_true(ns.n > 0 && id.n > 0);
    assert_int_equal(r->landed, 0); /* the record is there before who waited goes on */
    r->woken++;
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    poll(NULL, 0, 1);
}

static void rig_init(struct rig *r, unsigned park_max)
{
    static const struct wake_events events = {on_landed, on_woken};
    const struct wake_rules rules = {BUDGET_MS, CALL_MS, 1, 1.3, 0.1, park_max};
    ahead_ms = 0;
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "fast.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    grpc_server_start(&r->server, r->w, on_ask, r);
    struct caller_rules to = {
        .h2 = true, .names = r->names, .idle_max = 1, .idle_ms = CALL_MS, .connect_ms = CALL_MS};
    to.url.host = to.url.authority = STR("fast.test");
    to.url.port = r->server.port;
    r->caller = caller_start(r->w, &to);
    r->k = wake_new(r->w, r->caller, &rules, &events, r);
}

static void rig_done(struct rig *r)
{
    wake_free(r->k);
    caller_free(r->caller);
    grpc_server_stop(&r->server);
    until(r, r->server.open == 0);
    grpc_server_done(&r->server);
    names_free(r->names);
    worker_free(r->w);
}

static void join(struct rig *r, const char *id)
{
    wake_join(r->k, STR("ns"), str_of(id), worker_now(r->w));
}

static void idle(struct rig *r)
{
    for (int i = 0; i < 50; i++)
        turn(r);
}

/* ---- flights */

#define IS(state)                         \
    {                                     \
        GRPC_OK, PB_RUNTIME_##state, NULL \
    }
#define HAS(state, checkpoint)                  \
    {                                           \
        GRPC_OK, PB_RUNTIME_##state, checkpoint \
    }
#define FAILS(code)          \
    {                        \
        GRPC_##code, 0, NULL \
    }

static void a_flight_takes_the_steps_of_the_contract(void **state)
{
    static const struct {
        struct says script[10];
        const char *calls;
        enum fault_id fault; /* ROUTE_MISSING: it is up */
        const char *value;
        unsigned woken;
    } rows[] = {
        {{IS(READY)}, "G", FAULT_ROUTE_MISSING, "", 0},
        {{HAS(PAUSED, "c"), IS(RESUMING), IS(RESUMING), IS(PENDING), IS(READY)},
         "GR(c)GGG",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{IS(PAUSING), IS(RESUMING), IS(READY)}, "GR()G", FAULT_ROUTE_MISSING, "", 1},
        {{IS(STOPPED)}, "G", FAULT_WAKE_STOPPED, "", 0},
        {{IS(CREATING)}, "G", FAULT_WAKE_NOT_READY, "CREATING", 0},
        {{FAILS(NOT_FOUND)}, "G", FAULT_FASTPATH_NOT_FOUND, "", 0},
        {{FAILS(UNAVAILABLE)}, "G", FAULT_FASTPATH_UNAVAILABLE, "", 0},
        {{FAILS(CANCELED)}, "G", FAULT_FASTPATH_CANCELED, "", 0},
        {{FAILS(UNIMPLEMENTED)}, "G", FAULT_WAKE_REJECTED, "Unimplemented", 0},
        {{HAS(PAUSED, "c"), FAILS(PERMISSION_DENIED)},
         "GR(c)",
         FAULT_WAKE_REJECTED,
         "PermissionDenied",
         0},
        {{HAS(PAUSED, "c"), FAILS(NOT_FOUND)}, "GR(c)", FAULT_FASTPATH_NOT_FOUND, "", 0},
        {{HAS(PAUSED, "c"), FAILS(FAILED_PRECONDITION), IS(READY)},
         "GR(c)G",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{IS(PAUSED), FAILS(FAILED_PRECONDITION), HAS(PAUSED, "d"), IS(RESUMING), IS(READY)},
         "GR()GR(d)G",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{HAS(PAUSED, "c"), FAILS(ABORTED), HAS(PAUSED, "d"), IS(RESUMING), IS(READY)},
         "GR(c)GR(d)G",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{HAS(PAUSED, "c"), FAILS(ABORTED), FAILS(UNAVAILABLE), FAILS(ABORTED), HAS(PAUSED, "e"),
          IS(RESUMING), IS(READY)},
         "GR(c)GR(c)GR(e)G",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{HAS(PAUSED, "c"), FAILS(ABORTED), IS(FAILED)},
         "GR(c)G",
         FAULT_WAKE_NOT_READY,
         "FAILED",
         0},
        {{HAS(PAUSED, "c"), FAILS(UNKNOWN), FAILS(DATA_LOSS), IS(RESUMING), IS(READY)},
         "GR(c)R(c)R(c)G",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{HAS(PAUSED, "c"), IS(RESUMING), FAILS(UNAVAILABLE), IS(FAILED), IS(READY)},
         "GR(c)GGG",
         FAULT_ROUTE_MISSING,
         "",
         1},
        {{HAS(PAUSED, "c"), IS(RESUMING), IS(STOPPING)}, "GR(c)G", FAULT_WAKE_TERMINAL, "", 0},
        {{HAS(PAUSED, "c"), IS(RESUMING), FAILS(UNAUTHENTICATED)},
         "GR(c)G",
         FAULT_WAKE_REJECTED,
         "Unauthenticated",
         0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, 1);
        r.script = rows[i].script;
        join(&r, "sb1");
        until(&r, r.landed);
        idle(&r);
        assert_string_equal(r.calls, rows[i].calls);
        assert_int_equal(r.landed, 1);
        assert_int_equal(r.fault, rows[i].fault);
        assert_string_equal(r.value, rows[i].value);
        assert_string_equal(r.key, "ns\nsb1\n");
        assert_int_equal(r.woken, rows[i].woken);
        rig_done(&r);
    }
}

static void who_comes_while_it_is_under_way_joins_it(void **state)
{
    static const struct says script[] = {HAS(PAUSED, "c"), IS(RESUMING), IS(READY), IS(READY)};
    struct rig r;
    (void)state;
    rig_init(&r, 9);
    r.script = script;
    for (int i = 0; i < 5; i++)
        join(&r, "sb1");
    until(&r, r.landed);
    idle(&r);
    assert_string_equal(r.calls, "GR(c)G");
    assert_int_equal(r.landed, 1);
    join(&r, "sb1"); /* this one is too late */
    until(&r, r.landed == 2);
    assert_string_equal(r.calls, "GR(c)GG");
    rig_done(&r);
}

static void every_resume_has_a_name_of_its_own(void **state)
{
    static const struct says script[] = {HAS(PAUSED, "c"), IS(RESUMING),   IS(READY),
                                         HAS(PAUSED, "c"), FAILS(ABORTED), HAS(PAUSED, "c"),
                                         IS(RESUMING),     IS(READY)};
    struct rig r;
    char first[256];
    (void)state;
    rig_init(&r, 1);
    r.script = script;
    join(&r, "sb1");
    until(&r, r.landed);
    snprintf(first, sizeof first, "%s", r.last_id);
    size_t n = strlen("wake-ns-sb1-") + 16;
    assert_int_equal(strncmp(first, "wake-ns-sb1-", 12), 0);
    assert_string_equal(first + n, "-1-1");
    r.landed = 0;
    join(&r, "sb2");
    until(&r, r.landed);
    assert_string_equal(r.last_id + n, "-2-2");
    assert_memory_equal(r.last_id + 12, first + 12, 16); /* the process's */
    rig_done(&r);
}

/* Its last call hangs, or fails again and again. */
static void the_budget_ends_a_flight_whatever_it_does(void **state)
{
    static const struct says paused[20] = {HAS(PAUSED, "c"), IS(RESUMING)}; /* then nonsense */
    (void)state;
    for (unsigned answered = 1; answered < 4; answered++) {
        struct rig r;
        rig_init(&r, 1);
        r.script = paused;
        join(&r, "sb1");
        until(&r, r.at >= answered);
        r.script = NULL;
        assert_int_equal(r.landed, 0);
        ahead_ms = BUDGET_MS + 1000;
        until(&r, r.landed);
        idle(&r);
        assert_int_equal(r.landed, 1);
        assert_int_equal(r.fault, FAULT_WAKE_EXHAUSTED);
        assert_int_equal(r.woken, 0);
        rig_done(&r);
    }
}

/* ... but for the first one, which has a deadline of its own. */
static void a_probe_that_hangs_is_told_at_once(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, 1);
    join(&r, "sb1");
    until(&r, r.server.n == 1 && r.server.asks[0]->whole);
    ahead_ms = CALL_MS + 1000;
    until(&r, r.landed);
    assert_int_equal(r.fault, FAULT_FASTPATH_UNAVAILABLE);
    rig_done(&r);
}

static void a_budget_begins_when_the_request_came(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, 1);
    ahead_ms = BUDGET_MS + 5000;
    wake_join(r.k, STR("ns"), STR("sb1"), worker_now(r.w) - BUDGET_MS);
    until(&r, r.landed);
    assert_int_equal(r.fault, FAULT_WAKE_EXHAUSTED);
    assert_true(r.at_ms > BUDGET_MS);
    rig_done(&r);
}

static void it_may_end_with_flights_under_way(void **state)
{
    static const struct says waits[] = {HAS(PAUSED, "c"), IS(RESUMING), IS(RESUMING), IS(RESUMING),
                                        IS(RESUMING),     IS(RESUMING), IS(RESUMING)};
    struct rig r;
    (void)state;
    rig_init(&r, 1);
    r.script = waits;
    join(&r, "sb1");
    until(&r, r.at >= 3);
    r.script = NULL;
    join(&r, "sb2");
    join(&r, "sb3");
    idle(&r);
    assert_int_equal(r.landed, 0);
    rig_done(&r);
    assert_int_equal(r.landed, 0);
}

static void waits_grow_and_stay_a_number(void **state)
{
    (void)state;
    assert_int_equal(wake_backoff_us(50, 1.3, 0.1, 0, 0), 50000);
    assert_int_equal(wake_backoff_us(50, 2, 0.5, 3, 0.5), 500000);
    assert_true(wake_backoff_us(50, 1.3, 0.1, 1000000, 0.9) >= 1000000000);
    assert_true(wake_backoff_us(1e300, 1e300, 1e300, UINT32_MAX, 0.9) <= 1000000000000000);
}

/* ---- the lot */

enum { CARS = 2000 };

/* Who waits cuts it out of what he has asked for before; the owner makes it of two names. */
static void all_ports_of_a_sandbox_wait_for_one_key(void **state)
{
    static const struct {
        const char *ns, *id;
    } rows[] = {{"ns", "sb1"}, {"", "sb1"}, {"n", "s-1.2"}, {"8080", "80"}};
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str ns = str_of(rows[i].ns), id = str_of(rows[i].id), key = wake_key(ns, id, &a);
        for (unsigned port = 1; port <= UINT16_MAX; port += 13106) {
            struct str of_port = sandbox_key(ns, id, (uint16_t)port, &a);
            assert_true(str_eq(wake_key_of(of_port), key));
            assert_false(str_eq(of_port, key));
        }
    }
    arena_done(&a);
}

static void *come_and_go(void *k)
{
    size_t parked = 0;
    for (int i = 0; i < CARS; i++) {
        if (!wake_park(k))
            continue;
        parked++;
        wake_leave(k, WAKE_SERVED, 1);
    }
    return (void *)parked;
}

static void the_lot_has_as_many_places_as_it_has(void **state)
{
    struct rig r;
    pthread_t threads[4];
    (void)state;
    rig_init(&r, 3);
    for (int i = 0; i < 3; i++)
        assert_true(wake_park(r.k));
    assert_false(wake_park(r.k));
    wake_leave(r.k, WAKE_CANCELED, 5);
    assert_true(wake_park(r.k));
    assert_false(wake_park(r.k));
    wake_leave(r.k, WAKE_EXHAUSTED, 5);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, r.k), 0);
    for (int i = 0; i < 4; i++) {
        void *parked;
        pthread_join(threads[i], &parked);
        assert_true((size_t)parked <= CARS);
    }
    assert_true(wake_park(r.k)); /* nothing was lost and nothing was made up */
    assert_false(wake_park(r.k));
    for (int i = 0; i < 3; i++)
        wake_leave(r.k, WAKE_SERVED, 5);
    rig_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flight_takes_the_steps_of_the_contract),
        cmocka_unit_test(who_comes_while_it_is_under_way_joins_it),
        cmocka_unit_test(every_resume_has_a_name_of_its_own),
        cmocka_unit_test(the_budget_ends_a_flight_whatever_it_does),
        cmocka_unit_test(a_probe_that_hangs_is_told_at_once),
        cmocka_unit_test(a_budget_begins_when_the_request_came),
        cmocka_unit_test(it_may_end_with_flights_under_way),
        cmocka_unit_test(waits_grow_and_stay_a_number),
        cmocka_unit_test(all_ports_of_a_sandbox_wait_for_one_key),
        cmocka_unit_test(the_lot_has_as_many_places_as_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
