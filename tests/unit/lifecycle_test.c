/* lifecycle_test.c — the lifecycle resolver against a server on loopback that says what the test
 * wants it to: what becomes of answers, who is asked how often, and what outlives trouble. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/replier.h"
#include "harness/until.h"
#include "base/text.h"
#include "ingress/resolver.h"
#include "ingress/settings.h"
#include "net/resolve.h"
#include "net/worker.h"

#define MS INT64_C(1000000)
enum { LONG_MS = 60000 };

struct rig {
    struct worker *w;
    struct replier server;
    struct arena mem;
    struct ingress_settings set;
    char url[64];
    void *self;
    /* Status and body; NULL body: no answer. */
    int state_status, end_status;
    const char *state, *end;
    const char *location;
    bool hold; /* nobody is answered */
    unsigned states, ends;
    bool ready;
    unsigned changes, sames, ngone;
    const struct sandbox *record; /* put last */
    bool left_quiet;              /* the record that was replaced or gone last was let go */
};

/* ---- server */

static void answer(struct rig *r, struct call_in *c, int status, const char *body)
{
    char head[300];
    snprintf(head, sizeof head,
             "HTTP/1.1 %d X\r\nConnection: close\r\n%s%s%sContent-Length: %zu\r\n\r\n", status,
             r->location ? "Location: " : "", r->location ? r->location : "",
             r->location ? "\r\n" : "", strlen(body));
    replier_say(c, head);
    replier_say(c, body);
}

static void on_call(void *user, struct call_in *c)
{
    struct rig *r = user;
    bool end = strstr(c->text, "/endpoints/") != NULL;
    const char *body = end ? r->end : r->state;
    r->states += !end;
    r->ends += end;
    if (r->hold || !body)
        return;
    answer(r, c, end ? r->end_status : r->state_status, body);
    replier_hang_up(c);
}

/* ---- events */

static void on_ready(void *user)
{
    ((struct rig *)user)->ready = true;
}

static void let_go_of(struct rig *r)
{
    if (!r->record)
        return;
    r->left_quiet = sandbox_is_let_go(r->record);
    sandbox_unref(r->record);
    r->record = NULL;
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    struct rig *r = user;
    (void)gone;
    assert_true(nput + ngone > 0 && nput <= 1);
    r->changes++;
    r->ngone += (unsigned)ngone;
    let_go_of(r);
    if (nput)
        r->record = sandbox_ref(put[0]);
}

static void on_same(void *user, struct str key)
{
    struct rig *r = user;
    assert_true(r->record && str_eq(r->record->key, key));
    r->sames++;
}

static const struct resolver_events events = {
    .ready = on_ready, .change = on_change, .same = on_same};

/* ---- rig */

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->server);
    poll(NULL, 0, 1);
}

static void some_turns(struct rig *r)
{
    for (int i = 0; i < 30; i++)
        turn(r);
}

static void rig_init(struct rig *r)
{
    *r = (struct rig){.w = worker_new(0), .state_status = 200, .end_status = 200};
    static const struct names_files files = {0};
    arena_init(&r->mem, NULL, 0);
    worker_set(r->w, SLOT_NAMES, names_new(r->w, &files));
    replier_start(&r->server, NULL, on_call, r);
    snprintf(r->url, sizeof r->url, "http://127.0.0.1:%u/base/", r->server.port);
    r->set.lifecycle_url = str_of(r->url);
    r->set.lifecycle_api_key = STR(" k3y ");
    r->set.lifecycle_stale_max = LONG_MS * MS;
    r->set.lifecycle_max_calls = 32;
    r->set.lifecycle_connect_timeout = r->set.lifecycle_timeout = LONG_MS * MS;
    r->state = "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"}}";
    r->end = "{\"endpoint\":\"10.0.0.1:40001/proxy/80\"}";
}

static void rig_start(struct rig *r)
{
    struct str error = STR_NONE;
    r->self = lifecycle_resolver.start(r->w, &r->set, &events, r, &r->mem, &error);
    if (!r->self)
        fail_msg("%.*s", STR_ARG(error));
    until(r, r->ready);
}

static void rig_done(struct rig *r)
{
    if (r->self)
        lifecycle_resolver.stop(r->self);
    some_turns(r);
    replier_stop(&r->server);
    let_go_of(r);
    names_free(worker_get(r->w, SLOT_NAMES));
    worker_free(r->w);
    arena_done(&r->mem);
}

static void want(struct rig *r, const char *id, uint16_t port)
{
    struct want w = {.key = sandbox_key(STR(""), str_of(id), port, &r->mem),
                     .ns = STR(""),
                     .id = str_of(id),
                     .port = port,
                     .request_id = STR("req-1")};
    lifecycle_resolver.want(r->self, &w);
}

/* Wants it and waits until something is told of it. */
static void learn(struct rig *r, const char *id, uint16_t port)
{
    unsigned before = r->changes + r->sames;
    want(r, id, port);
    until(r, r->changes + r->sames > before);
}

static uint64_t load(const _Atomic uint64_t *at)
{
    return atomic_load(at);
}

static void drop(struct rig *r)
{
    lifecycle_resolver.drop(r->self, r->record->key, r->record->generation);
}

/* ---- tests */

static void a_sandbox_is_asked_for_its_state_then_for_its_endpoint(void **state)
{
    struct rig r;
    char want_text[400];
    (void)state;
    rig_init(&r);
    r.end = "{\"endpoint\":\"box.test:40001/proxy/80\",\"headers\":{"
            "\"OpenSandbox-Secure-Access\":\" tok \",\"OPENSANDBOX-EGRESS-AUTH\":\"egress\","
            "\"X-A\":\"b\"}}";
    rig_start(&r);
    learn(&r, "sb1", 80);
    static const char *const targets[] = {"/base/v1/sandboxes/sb1",
                                          "/base/v1/sandboxes/sb1/endpoints/80"};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(want_text, sizeof want_text,
                 "GET %s HTTP/1.1\r\nhost: 127.0.0.1:%u\r\naccept: application/json\r\n"
                 "open-sandbox-api-key: k3y\r\nx-request-id: req-1\r\n\r\n",
                 targets[i], r.server.port);
        for (char *p = strchr(r.server.calls[i]->text, '\n'); *p; p++)
            *p = ascii_lower(*p);
        assert_string_equal(r.server.calls[i]->text, want_text);
    }
    const struct sandbox *s = r.record;
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_true(str_eq(s->key, sandbox_key(STR(""), STR("sb1"), 80, &r.mem)));
    assert_true(str_eq(s->id, STR("sb1")) && str_eq(s->token, STR("tok")) && s->ns.n == 0);
    const struct endpoint *e = sandbox_endpoint(s, 80);
    assert_true(str_eq(e->host, STR("box.test")) && e->to == 40001 && !e->tls);
    assert_true(str_eq(e->url->path, STR("/proxy/80")));
    assert_true(str_eq(e->url->authority, STR("box.test:40001")));
    assert_int_equal(e->url->nadd, 1);
    assert_true(str_eq(e->url->add[0].name, STR("x-a")));
    rig_done(&r);
}

#define RUNNING "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"}}"
#define IN_STATE(name) "{\"id\":\"sb1\",\"status\":{\"state\":\"" name "\"}}"
#define HERE "{\"endpoint\":\"10.0.0.1:1\"}"

static void every_answer_has_its_record(void **state)
{
    static const struct {
        int status;
        const char *state;
        int end_status;
        const char *end;
        enum sandbox_state want;
        enum fault_id fault;
        unsigned ends;
    } rows[] = {
        {200, RUNNING, 200, HERE, SANDBOX_RUNNING, 0, 1},
        {200, IN_STATE("Pausing"), 200, HERE, SANDBOX_RUNNING, 0, 1},
        {200, IN_STATE("Someday"), 200, HERE, SANDBOX_RUNNING, 0, 1},
        {200, IN_STATE("Paused"), 200, HERE, SANDBOX_NOT_READY, 0, 0},
        {200, IN_STATE("Failed"), 200, HERE, SANDBOX_NOT_READY, 0, 0},
        {200, IN_STATE("Terminated"), 200, HERE, SANDBOX_TERMINATED, 0, 0},
        {200,
         "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"2001-01-01T00:00:"
         "00Z\"}",
         200, HERE, SANDBOX_TERMINATED, 0, 0},
        {404, "{\"code\":\"DOCKER::SANDBOX_NOT_FOUND\"}", 200, HERE, SANDBOX_TERMINATED, 0, 0},
        {404, "", 200, HERE, SANDBOX_TERMINATED, 0, 0},
        {200, RUNNING, 404, "{\"code\":\"KUBERNETES::POD_IP_NOT_AVAILABLE\"}", SANDBOX_NOT_READY, 0,
         1},
        {200, RUNNING, 404, "{\"code\":\"KUBERNETES::SANDBOX_NOT_FOUND\"}", SANDBOX_NOT_READY, 0,
         1},
        {400, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {200, RUNNING, 400, "{}", SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 1},
        {401, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {403, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {200, RUNNING, 401, "{}", SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 1},
        {500, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {503, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {429, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {302, "{}", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {200, "not JSON", 200, HERE, SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 0},
        {200, "{\"id\":\"sb2\",\"status\":{\"state\":\"Running\"}}", 200, HERE, SANDBOX_FAILED,
         FAULT_RESOLVER_FAILED, 0},
        {200, RUNNING, 200, "{\"endpoint\":\"http://10.0.0.1\"}", SANDBOX_FAILED,
         FAULT_RESOLVER_FAILED, 1},
        {200, RUNNING, 500, "{}", SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 1},
        {200, RUNNING, 307, "{}", SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 1},
        {200, RUNNING, 200,
         "{\"endpoint\":\"gw\",\"headers\":{\"OpenSandbox-Ingress-To\":\"sb1-80\"}}",
         SANDBOX_FAILED, FAULT_RESOLVER_FAILED, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        rig_init(&r);
        char location[80];
        snprintf(location, sizeof location, "http://127.0.0.1:%u/elsewhere", r.server.port);
        r.location = rows[i].status / 100 == 3 || rows[i].end_status / 100 == 3 ? location : NULL;
        r.state_status = rows[i].status;
        r.state = rows[i].state;
        r.end_status = rows[i].end_status;
        r.end = rows[i].end;
        rig_start(&r);
        learn(&r, "sb1", 80);
        if (r.record->state != rows[i].want || r.record->fault != rows[i].fault)
            fail_msg("row %zu: state %d, fault %d", i, (int)r.record->state, (int)r.record->fault);
        some_turns(&r);
        assert_int_equal(r.states, 1);
        assert_int_equal(r.ends, rows[i].ends);
        rig_done(&r);
    }
}

static void release(struct rig *r)
{
    r->hold = false;
    for (unsigned i = 0; i < r->server.n; i++) {
        answer(r, r->server.calls[i], r->state_status, r->state);
        replier_hang_up(r->server.calls[i]);
    }
}

static void who_wants_the_same_shares_a_call(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.hold = true;
    rig_start(&r);
    for (int i = 0; i < 5; i++)
        want(&r, "sb1", 80);
    want(&r, "sb1", 81);
    until(&r, r.states == 1);
    some_turns(&r);
    assert_int_equal(r.states, 1);
    release(&r);
    until(&r, r.changes == 2);
    some_turns(&r);
    assert_int_equal(r.states, 1);
    assert_int_equal(r.ends, 2);
    assert_int_equal(r.changes + r.sames, 2);
    rig_done(&r);
}

static void who_joins_a_call_gets_an_answer_that_is_fresh_for_it(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.hold = true;
    rig_start(&r);
    want(&r, "sb1", 80);
    until(&r, r.states == 1);
    some_turns(&r);
    uint64_t joined = worker_now(r.w);
    want(&r, "sb1", 80);
    release(&r);
    until(&r, r.changes == 1);
    assert_true(load(&r.record->learned_ms) >= joined);
    rig_done(&r);
}

static void what_is_fresh_is_not_asked_for(void **state)
{
    static const struct {
        int status;
        const char *state;
        unsigned ends;
    } rows[] = {{200, RUNNING, 1}, {200, IN_STATE("Paused"), 0}, {404, "", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        rig_init(&r);
        r.state_status = rows[i].status;
        r.state = rows[i].state;
        r.set.lifecycle_cache = r.set.lifecycle_negative_cache = r.set.lifecycle_not_ready_cache =
            LONG_MS * MS;
        rig_start(&r);
        learn(&r, "sb1", 80);
        learn(&r, "sb1", 80);
        assert_int_equal(r.sames, 1);
        learn(&r, "sb1", 81); /* the state is known, the endpoint of that port is not */
        assert_int_equal(r.states, 1);
        assert_int_equal(r.ends, 2 * rows[i].ends);
        rig_done(&r);
    }
}

static void a_cache_of_nothing_asks_each_time(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    rig_start(&r);
    learn(&r, "sb1", 80);
    uint64_t generation = r.record->generation, learned = load(&r.record->learned_ms);
    some_turns(&r);
    learn(&r, "sb1", 80);
    assert_int_equal(r.states, 2);
    assert_int_equal(r.ends, 2);
    assert_int_equal(r.sames, 1);
    assert_int_equal(r.record->generation, generation);
    assert_true(load(&r.record->learned_ms) > learned);
    rig_done(&r);
}

static void another_endpoint_is_another_generation_and_a_later_end_is_not(void **state)
{
    static const struct {
        const char *state, *end;
        bool same_generation;
    } rows[] = {
        {RUNNING, "{\"endpoint\":\"10.0.0.2:1\"}", false},
        {RUNNING, "{\"endpoint\":\"10.0.0.1:2\"}", false},
        {RUNNING, "{\"endpoint\":\"10.0.0.1:1/x\"}", false},
        {RUNNING, "{\"endpoint\":\"10.0.0.1:1\",\"headers\":{\"OpenSandbox-Secure-Access\":\"t\"}}",
         false},
        {RUNNING, "{\"endpoint\":\"10.0.0.1:1\",\"headers\":{\"a\":\"b\"}}", false},
        {IN_STATE("Paused"), HERE, false},
        {IN_STATE("Terminated"), HERE, false},
        {"{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"2199-01-01T00:00:"
         "00Z\"}",
         HERE, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        rig_init(&r);
        r.end = HERE;
        rig_start(&r);
        learn(&r, "sb1", 80);
        uint64_t generation = r.record->generation;
        r.state = rows[i].state;
        r.end = rows[i].end;
        learn(&r, "sb1", 80);
        assert_int_equal(r.changes, 2);
        if ((r.record->generation == generation) != rows[i].same_generation ||
            r.left_quiet != rows[i].same_generation)
            fail_msg("row %zu", i);
        rig_done(&r);
    }
}

static void the_last_good_answer_serves_while_the_server_is_in_trouble(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    rig_start(&r);
    learn(&r, "sb1", 80);
    r.state_status = 503;
    uint64_t before = worker_now(r.w);
    learn(&r, "sb1", 80);
    assert_int_equal(r.sames, 1);
    assert_int_equal(r.record->state, SANDBOX_RUNNING);
    assert_true(load(&r.record->learned_ms) >= before);
    r.state_status = 200;
    r.end_status = 500;
    learn(&r, "sb1", 80);
    assert_int_equal(r.sames, 2);
    learn(&r, "sb1", 81); /* of another port nothing is known */
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    rig_done(&r);
}

static void meanwhile_nobody_waits_and_the_server_is_asked_again(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    rig_start(&r);
    learn(&r, "sb1", 80);
    r.state_status = 503;
    learn(&r, "sb1", 80);
    unsigned asked = r.states;
    learn(&r, "sb1", 80); /* told at once */
    assert_int_equal(r.states, asked);
    assert_true(load(&r.record->fresh_ms) > worker_now(r.w) + LONG_MS / 2);
    r.state_status = 404;
    until(&r, r.changes == 2);
    assert_int_equal(r.record->state, SANDBOX_TERMINATED);
    assert_false(r.left_quiet);
    rig_done(&r);
}

static void it_does_not_serve_for_long_and_what_runs_outlives_it(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.set.lifecycle_stale_max = 0;
    rig_start(&r);
    learn(&r, "sb1", 80);
    r.state_status = 503;
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    assert_true(r.left_quiet);
    r.state_status = 200;
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->state, SANDBOX_RUNNING);
    rig_done(&r);
}

/* What is learned after a doubt, or two that differ, is told of what ran before it. */
static void a_doubt_keeps_the_pool_until_something_is_learned(void **state)
{
    static const struct {
        const char *state, *end;
        bool same_generation;
        bool moved;
    } rows[] = {
        {RUNNING, HERE, true, true},
        {"{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"2199-01-01T00:00:"
         "00Z\"}",
         HERE, true, true},
        {RUNNING, "{\"endpoint\":\"10.0.0.2:1\"}", false, true},
        {RUNNING, "{\"endpoint\":\"10.0.0.1:1\",\"headers\":{\"OpenSandbox-Secure-Access\":\"t\"}}",
         false, false},
        {IN_STATE("Paused"), HERE, false, false},
        {IN_STATE("Terminated"), HERE, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        rig_init(&r);
        r.set.lifecycle_stale_max = 0;
        r.end = HERE;
        rig_start(&r);
        learn(&r, "sb1", 80);
        uint64_t generation = r.record->generation;
        for (int k = 0; k < 2; k++) {
            r.state_status = k == 0 ? 503 : 401;
            learn(&r, "sb1", 80);
            assert_int_equal(r.record->state, SANDBOX_FAILED);
            assert_true(r.left_quiet && r.record->generation == generation);
            assert_int_equal(r.record->token.n + r.record->nends, 0);
        }
        const struct sandbox *doubt = sandbox_ref(r.record);
        r.state_status = 200;
        r.state = rows[i].state;
        r.end = rows[i].end;
        learn(&r, "sb1", 80);
        if ((r.record->generation == generation) != rows[i].same_generation ||
            r.left_quiet != rows[i].same_generation ||
            sandbox_moved(doubt, r.record) != rows[i].moved)
            fail_msg("row %zu", i);
        sandbox_unref(doubt);
        rig_done(&r);
    }
}

static void a_wrong_key_is_no_trouble_that_passes(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    rig_start(&r);
    learn(&r, "sb1", 80);
    assert_int_equal(lifecycle_resolver.unready(r.self, &r.mem).n, 0);
    r.state_status = 401;
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    struct str why = lifecycle_resolver.unready(r.self, &r.mem);
    assert_non_null(memmem(why.p, why.n, "401", 3));
    r.state_status = 200;
    learn(&r, "sb1", 80);
    assert_int_equal(lifecycle_resolver.unready(r.self, &r.mem).n, 0);
    rig_done(&r);
}

static void what_proved_wrong_is_asked_for_again(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.set.lifecycle_cache = LONG_MS * MS;
    rig_start(&r);
    learn(&r, "sb1", 80);
    uint64_t generation = r.record->generation;
    lifecycle_resolver.drop(r.self, r.record->key, generation + 1); /* another one */
    learn(&r, "sb1", 80);
    assert_int_equal(r.states, 1);
    drop(&r);
    assert_int_equal(load(&r.record->fresh_ms), 0);
    learn(&r, "sb1", 80);
    assert_int_equal(r.states, 2);
    assert_int_equal(r.ends, 2);
    assert_int_equal(r.record->generation, generation);
    drop(&r);
    r.state_status = 500; /* nothing good is left */
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    rig_done(&r);
}

static void so_many_calls_at_a_time_and_the_others_wait(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.set.lifecycle_max_calls = 2;
    r.hold = true;
    rig_start(&r);
    static const char *const ids[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++)
        want(&r, ids[i], 80);
    until(&r, r.states == 2);
    some_turns(&r);
    assert_int_equal(r.states, 2);
    r.state_status = 404;
    release(&r);
    until(&r, r.changes == 5);
    assert_int_equal(r.states, 5);
    rig_done(&r);
}

static void a_server_that_says_nothing_is_in_trouble_and_so_is_the_line(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.set.lifecycle_max_calls = 1;
    r.set.lifecycle_timeout = 50 * MS;
    r.hold = true;
    rig_start(&r);
    want(&r, "sb1", 80);
    want(&r, "sb2", 80);
    want(&r, "sb3", 80);
    until(&r, r.changes == 3);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    rig_done(&r);
}

static void more_than_the_line_holds_are_told_at_once(void **state)
{
    enum { LINE = 4096 };
    struct rig r;
    char id[16];
    (void)state;
    rig_init(&r);
    r.set.lifecycle_max_calls = 1;
    r.hold = true;
    rig_start(&r);
    for (int i = 0; i < LINE + 1; i++) {
        snprintf(id, sizeof id, "sb%d", i);
        want(&r, id, 80);
    }
    assert_int_equal(r.changes, 0);
    want(&r, "one-more", 80);
    assert_int_equal(r.changes, 1);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    assert_int_equal(r.record->fault, FAULT_OVERLOADED);
    rig_done(&r);
}

static void an_answer_that_is_too_long_is_none(void **state)
{
    struct rig r;
    static char body[70000];
    (void)state;
    memset(body, ' ', sizeof body - 1);
    memcpy(body, RUNNING, sizeof RUNNING - 1);
    rig_init(&r);
    r.state = body;
    rig_start(&r);
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    rig_done(&r);
}

static void an_id_that_could_be_none_is_not_asked_for(void **state)
{
    static char long_id[300];
    static const char *const ids[] = {".", "..", long_id};
    (void)state;
    memset(long_id, 'a', sizeof long_id - 1);
    struct rig r;
    rig_init(&r);
    rig_start(&r);
    for (size_t i = 0; i < 3; i++) {
        learn(&r, ids[i], 80);
        assert_int_equal(r.record->state, SANDBOX_TERMINATED);
    }
    some_turns(&r);
    assert_int_equal(r.states, 0);
    rig_done(&r);
}

static void stopping_ends_calls_without_a_word(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.hold = true;
    r.set.lifecycle_max_calls = 1;
    rig_start(&r);
    want(&r, "a", 80);
    want(&r, "b", 80);
    until(&r, r.states == 1);
    lifecycle_resolver.stop(r.self);
    r.self = NULL;
    some_turns(&r);
    assert_int_equal(r.changes + r.sames, 0);
    rig_done(&r);
}

static void nobody_there_is_trouble(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    replier_stop(&r.server);
    r.server.fd = -1;
    r.server.n = 0;
    rig_start(&r); /* no reason not to start */
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    rig_done(&r);
}

static void the_end_of_a_sandbox_is_looked_at_again_without_being_wanted(void **state)
{
    struct rig r;
    char iso[24], body[300];
    (void)state;
    rig_init(&r);
    int64_t end = worker_unix_s(r.w) + 3;
    text_put_iso8601(iso, (uint64_t)end * 1000);
    snprintf(body, sizeof body,
             "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"%.24s\"}", iso);
    r.state = body;
    r.set.lifecycle_cache = LONG_MS * MS;
    rig_start(&r);
    learn(&r, "sb1", 80);
    assert_int_equal(r.record->until_unix_s, end);
    assert_true(load(&r.record->fresh_ms) <= worker_now(r.w) + 4000);
    uint64_t generation = r.record->generation;
    r.state = RUNNING;
    until(&r, r.changes == 2);
    assert_int_equal(r.record->until_unix_s, INT64_MAX);
    assert_int_equal(r.record->generation, generation);
    assert_true(r.left_quiet);
    assert_null(strstr(r.server.calls[r.server.n - 1]->text, "req-1"));
    rig_done(&r);
}

static void the_end_of_a_sandbox_that_is_in_doubt_ends_what_runs(void **state)
{
    struct rig r;
    char iso[24], body[300];
    (void)state;
    rig_init(&r);
    int64_t end = worker_unix_s(r.w) + 4;
    text_put_iso8601(iso, (uint64_t)end * 1000);
    snprintf(body, sizeof body,
             "{\"id\":\"sb1\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"%.24s\"}", iso);
    r.state = body;
    r.set.lifecycle_stale_max = 0;
    rig_start(&r);
    learn(&r, "sb1", 80);
    uint64_t generation = r.record->generation;
    r.state_status = 500;
    learn(&r, "sb1", 80);
    assert_true(r.left_quiet && r.record->generation == generation);
    until(&r, r.changes == 3); /* it says the same, but of nothing that runs */
    assert_true(worker_unix_s(r.w) >= end && !r.left_quiet);
    assert_int_equal(r.record->state, SANDBOX_FAILED);
    assert_null(sandbox_ran(r.record));
    some_turns(&r);
    assert_int_equal(r.changes, 3);
    rig_done(&r);
}

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool shows_key(struct rig *r, const char *key)
{
    learn(r, "sb1", 80);
    return strstr(r->server.calls[r->server.n - 1]->text, key) != NULL;
}

static void the_key_is_read_again_and_a_bad_file_changes_nothing(void **state)
{
    struct rig r;
    char path[] = "/tmp/lifecycle_key_XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    put_file(path, "first\n");
    rig_init(&r);
    r.set.lifecycle_api_key_file = str_of(path);
    rig_start(&r);
    assert_true(shows_key(&r, ": first\r\n"));
    put_file(path, "second");
    assert_true(shows_key(&r, ": first\r\n"));
    lifecycle_resolver.reload(r.self);
    assert_true(shows_key(&r, ": second\r\n"));
    static const char *const bad[] = {"", " \n", "a b", "a\nX: y", "\xc3\xa9", "a\x01"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_file(path, bad[i]);
        lifecycle_resolver.reload(r.self);
        assert_true(shows_key(&r, ": second\r\n"));
    }
    unlink(path);
    lifecycle_resolver.reload(r.self);
    assert_true(shows_key(&r, ": second\r\n"));
    rig_done(&r);
}

static void a_start_without_server_or_key_says_what_is_missing(void **state)
{
    static const struct {
        const char *url, *key, *file, *part;
    } rows[] = {
        {"", "k", "", "lifecycle-url"},
        {"ftp://x", "k", "", "lifecycle-url"},
        {"http://u:p@x", "k", "", "lifecycle-url"},
        {"http://x", "", "", "LIFECYCLE_API_KEY"},
        {"http://x", "secret key", "", "LIFECYCLE_API_KEY"},
        {"http://x", "k", "/nowhere/at/all", "lifecycle-api-key-file"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        struct str error = STR_NONE;
        rig_init(&r);
        r.set.lifecycle_url = str_of(rows[i].url);
        r.set.lifecycle_api_key = str_of(rows[i].key);
        r.set.lifecycle_api_key_file = str_of(rows[i].file);
        assert_null(lifecycle_resolver.start(r.w, &r.set, &events, &r, &r.mem, &error));
        assert_non_null(memmem(error.p, error.n, rows[i].part, strlen(rows[i].part)));
        assert_null(memmem(error.p, error.n, "secret", 6));
        error = STR_NONE;
        assert_false(lifecycle_resolver.check(&r.set, &r.mem, &error));
        assert_non_null(memmem(error.p, error.n, rows[i].part, strlen(rows[i].part)));
        rig_done(&r);
    }
}

static void calls_are_counted_by_what_came_of_them(void **state)
{
    struct rig r;
    struct metrics_out o;
    (void)state;
    rig_init(&r);
    rig_start(&r);
    learn(&r, "sb1", 80);
    r.state_status = 500;
    learn(&r, "sb1", 80);
    metrics_out_init(&o);
    lifecycle_resolver.metrics(r.self, &o);
    static const char *const lines[] = {
        "ingress_lifecycle_calls{call=\"state\",outcome=\"good\"} 1\n",
        "ingress_lifecycle_calls{call=\"state\",outcome=\"trouble\"} 1\n",
        "ingress_lifecycle_calls{call=\"endpoint\",outcome=\"good\"} 1\n",
        "ingress_lifecycle_stale 1\n", "ingress_lifecycle_ports 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!memmem(o.p, o.n, lines[i], strlen(lines[i])))
            fail_msg("no %s in\n%.*s", lines[i], (int)o.n, o.p);
    metrics_out_done(&o);
    rig_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_is_asked_for_its_state_then_for_its_endpoint),
        cmocka_unit_test(every_answer_has_its_record),
        cmocka_unit_test(who_wants_the_same_shares_a_call),
        cmocka_unit_test(who_joins_a_call_gets_an_answer_that_is_fresh_for_it),
        cmocka_unit_test(what_is_fresh_is_not_asked_for),
        cmocka_unit_test(a_cache_of_nothing_asks_each_time),
        cmocka_unit_test(another_endpoint_is_another_generation_and_a_later_end_is_not),
        cmocka_unit_test(the_last_good_answer_serves_while_the_server_is_in_trouble),
        cmocka_unit_test(meanwhile_nobody_waits_and_the_server_is_asked_again),
        cmocka_unit_test(it_does_not_serve_for_long_and_what_runs_outlives_it),
        cmocka_unit_test(a_doubt_keeps_the_pool_until_something_is_learned),
        cmocka_unit_test(the_end_of_a_sandbox_that_is_in_doubt_ends_what_runs),
        cmocka_unit_test(a_wrong_key_is_no_trouble_that_passes),
        cmocka_unit_test(what_proved_wrong_is_asked_for_again),
        cmocka_unit_test(so_many_calls_at_a_time_and_the_others_wait),
        cmocka_unit_test(a_server_that_says_nothing_is_in_trouble_and_so_is_the_line),
        cmocka_unit_test(more_than_the_line_holds_are_told_at_once),
        cmocka_unit_test(an_answer_that_is_too_long_is_none),
        cmocka_unit_test(an_id_that_could_be_none_is_not_asked_for),
        cmocka_unit_test(stopping_ends_calls_without_a_word),
        cmocka_unit_test(nobody_there_is_trouble),
        cmocka_unit_test(the_end_of_a_sandbox_is_looked_at_again_without_being_wanted),
        cmocka_unit_test(the_key_is_read_again_and_a_bad_file_changes_nothing),
        cmocka_unit_test(a_start_without_server_or_key_says_what_is_missing),
        cmocka_unit_test(calls_are_counted_by_what_came_of_them),
    };
    return cmocka_run_group_tests_name("lifecycle", tests, NULL, NULL);
}
