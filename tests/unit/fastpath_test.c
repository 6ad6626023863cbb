/* fastpath_test.c — the resolver of Fast Sandbox against a server on loopback: what is asked, what
 * it comes to, how long it is kept, and when the start fails. */
#include "ingress/fastpath/fastpath.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>

#include "base/map.h"
#include "base/text.h"
#include "harness/grpc_server.h"
#include "harness/name_list.h"
#include "harness/until.h"
#include "ingress/settings.h"
#include "net/worker_impl.h"

enum { MINUTE_MS = 60000, ENTRIES_MAX = 16384 };

/* The loop's clock, moved by hand on top of the real one. */
static uint64_t ahead_ms;
uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + ahead_ms;
}

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct grpc_server server;
    char endpoint[64];
    struct ingress_settings settings;
    void *self;
    struct map *known; /* key → record */
    unsigned ready, failed, puts, gones, sames;
    char error[512], last_gone[64], last_same[64];
    bool stops; /* within change() */
    /* what the server says */
    enum grpc_code code;
    const char *url, *credential, *uid;
    int64_t expires;
};

/* ---- the server */

static size_t put_varint(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        p[n++] = (uint8_t)(v | 0x80);
    p[n++] = (uint8_t)v;
    return n;
}

static size_t put_text(uint8_t *p, unsigned field, const char *text, size_t n)
{
    size_t at = put_varint(p, field << 3 | 2);
    at += put_varint(p + at, n);
    memcpy(p + at, text, n);
    return at + n;
}

static size_t answer(const struct rig *r, uint8_t *p)
{
    uint8_t header[512];
    size_t n = put_text(p, 1, r->uid, strlen(r->uid));
    n += put_text(p + n, 3, r->url, strlen(r->url));
    size_t len = put_text(header, 1, "X-Fast-Sandbox-Route-Credential", 31);
    len += put_text(header + len, 2, r->credential, strlen(r->credential));
    n += put_text(p + n, 4, (const char *)header, len);
    p[n++] = 6 << 3;
    return n + put_varint(p + n, (uint64_t)r->expires);
}

static void say(struct rig *r, struct grpc_ask *a)
{
    uint8_t message[1024];
    if (r->code == GRPC_OK)
        grpc_server_say(a, message, answer(r, message), 0, NULL);
    else
        grpc_server_say(a, NULL, 0, r->code, "as you like");
}

static void on_ask(void *user, struct grpc_ask *a)
{
    say(user, a);
}

/* ---- what is told */

static void on_ready(void *user)
{
    struct rig *r = user;
    r->ready++;
}

static void forget(struct rig *r, struct str key)
{
    struct sandbox *s = map_del(r->known, key);
    if (!s)
        fail_msg("%.*s is gone and never was there", STR_ARG(key));
    sandbox_unref(s);
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    struct rig *r = user;
    r->puts += (unsigned)nput;
    r->gones += (unsigned)ngone;
    for (size_t i = 0; i < ngone; i++) {
        snprintf(r->last_gone, sizeof r->last_gone, "%.*s", STR_ARG(gone[i]));
        forget(r, gone[i]);
    }
    for (size_t i = 0; i < nput; i++) {
        const struct sandbox *s = sandbox_ref(put[i]);
        sandbox_unref(map_put(r->known, s->key, (void *)(uintptr_t)s));
    }
    if (!r->stops)
        return;
    r->stops = false;
    fastpath_resolver.stop(r->self);
    r->self = NULL;
}

static void on_same(void *user, struct str key)
{
    struct rig *r = user;
    r->sames++;
    snprintf(r->last_same, sizeof r->last_same, "%.*s", STR_ARG(key));
}

static void on_failed(void *user, struct str error)
{
    struct rig *r = user;
    r->failed++;
    snprintf(r->error, sizeof r->error, "%.*s", STR_ARG(error));
}

static const struct resolver_events events = {on_ready, on_change, on_same, on_failed};

/* ---- the rig */

static void turn(struct rig *r)
{
    worker_turn(r->w);
    poll(NULL, 0, 1);
}

static void rig_init(struct rig *r)
{
    ahead_ms = 0;
    *r = (struct rig){.w = worker_new(0),
                      .known = map_new(),
                      .url = "http://10.0.0.7:5780/v1/uid/ports/44772/?k=1",
                      .credential = "issued",
                      .uid = "uid"};
    r->list = (struct name_list){.w = r->w, .name = "fast.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    worker_set(r->w, SLOT_NAMES, r->names);
    grpc_server_start(&r->server, r->w, on_ask, r);
    snprintf(r->endpoint, sizeof r->endpoint, "fast.test:%u", r->server.port);
    r->settings.fastpath_endpoint = str_of(r->endpoint);
    r->settings.fastpath_wait_timeout_millis = 60000;
    r->expires = worker_unix_s(r->w) + 3600;
}

static void start(struct rig *r)
{
    struct arena a;
    struct str error = STR("");
    arena_init(&a, NULL, 0);
    r->self = fastpath_resolver.start(r->w, &r->settings, &events, r, &a, &error);
    assert_non_null(r->self);
    assert_int_equal(r->ready + r->failed, 0);
    arena_done(&a);
}

static void begin(struct rig *r)
{
    rig_init(r);
    start(r);
    until(r, r->ready);
}

static void rig_done(struct rig *r)
{
    size_t at = 0;
    if (r->self)
        fastpath_resolver.stop(r->self);
    grpc_server_stop(&r->server);
    until(r, r->server.open == 0);
    grpc_server_done(&r->server);
    for (struct sandbox *s; (s = map_next(r->known, &at));)
        sandbox_unref(s);
    map_free(r->known);
    names_free(r->names);
    worker_free(r->w);
}

static struct str key_of(const char *id, char out[64])
{
    int n = snprintf(out, 64, "tenant-a\n%s\n44772", id);
    return (struct str){out, (size_t)n};
}

static void want(struct rig *r, const char *id)
{
    char key[64];
    fastpath_resolver.want(r->self, &(struct want){.key = key_of(id, key),
                                                   .ns = STR("tenant-a"),
                                                   .id = str_of(id),
                                                   .port = 44772});
}

static const struct sandbox *known(const struct rig *r, const char *id)
{
    char key[64];
    return map_get(r->known, key_of(id, key));
}

static void learn(struct rig *r, const char *id)
{
    unsigned before = r->puts + r->sames;
    want(r, id);
    until(r, r->puts + r->sames > before);
}

/* ---- tests */

static void a_want_is_answered_with_a_record(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    uint64_t before = worker_now(r.w);
    learn(&r, "sandbox-123");
    const struct sandbox *s = known(&r, "sandbox-123");
    assert_non_null(s);
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_true(str_eq(s->ns, STR("tenant-a")) && str_eq(s->id, STR("sandbox-123")));
    assert_int_equal(s->token.n, 0);
    const struct endpoint *e = sandbox_endpoint(s, 44772);
    assert_true(str_eq(e->host, STR("10.0.0.7")));
    assert_int_equal(e->to, 5780);
    assert_false(e->tls);
    assert_true(str_eq(e->url->authority, STR("10.0.0.7:5780")));
    assert_true(str_eq(e->url->path, STR("/v1/uid/ports/44772")));
    assert_true(str_eq(e->url->query, STR("k=1")));
    assert_int_equal(e->url->nadd, 1);
    assert_true(str_eq(e->url->add[0].name, STR("x-fast-sandbox-route-credential")));
    assert_true(str_eq(e->url->add[0].value, STR("issued")));
    assert_true(s->until_unix_s == INT64_MAX);
    assert_true(s->learned_ms >= before);
    assert_true(s->fresh_ms > before + 3500 * 1000 && s->fresh_ms <= worker_now(r.w) + 3595 * 1000);
    rig_done(&r);
}

static void what_is_asked_is_the_contract(void **state)
{
    static const struct {
        int mode;
        const char *end;
    } rows[] = {{0, "1801"}, {1, ""}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig r;
        char hex[256], wanted[256];
        rig_init(&r);
        r.settings.fastpath_access_mode = rows[i].mode;
        r.settings.fastpath_wait_timeout_millis = 12345;
        start(&r);
        until(&r, r.ready);
        assert_int_equal(r.server.n, 0); /* to be ready costs no call */
        learn(&r, "sandbox-123");
        const struct grpc_ask *a = r.server.asks[0];
        text_put_hex(hex, a->body + 5, a->n - 5);
        hex[2 * (a->n - 5)] = '\0';
        snprintf(wanted, sizeof wanted,
                 "0a1912170a0874656e616e742d61120b73616e64626f782d313233120410e4dd02%s",
                 rows[i].end);
        assert_string_equal(hex, wanted);
        assert_true(str_eq(a->head->path, STR("/fastpath.v2.FastPathService/ResolveEndpoint")));
        assert_true(str_eq(*head_get(a->head, STR("grpc-timeout")), STR("12345m")));
        assert_int_equal(r.server.connections, 1);
        rig_done(&r);
    }
}

static void one_key_is_asked_for_once_at_a_time(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.server.on = NULL;
    want(&r, "a");
    want(&r, "a");
    want(&r, "b");
    until(&r, r.server.n == 2 && r.server.asks[1]->whole);
    want(&r, "a");
    for (int i = 0; i < 20; i++)
        turn(&r);
    assert_int_equal(r.server.n, 2);
    say(&r, r.server.asks[0]);
    say(&r, r.server.asks[1]);
    until(&r, r.puts == 2);
    rig_done(&r);
}

static void an_answer_that_says_the_same_keeps_the_record(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    learn(&r, "a");
    const struct sandbox *s = known(&r, "a");
    uint64_t generation = s->generation, fresh = s->fresh_ms;
    r.expires += 100;
    learn(&r, "a");
    assert_int_equal(r.sames, 1);
    assert_string_equal(r.last_same, "tenant-a\na\n44772");
    assert_ptr_equal(known(&r, "a"), s);
    assert_true(s->fresh_ms > fresh + 50 * 1000);
    assert_int_equal(s->generation, generation);
    r.credential = "another"; /* what runs need not know */
    sandbox_ref(s);
    learn(&r, "a");
    assert_int_equal(r.puts, 2);
    assert_int_equal(known(&r, "a")->generation, generation);
    assert_true(str_eq(known(&r, "a")->ends[0].url->add[0].value, STR("another")));
    assert_true(sandbox_is_let_go(s));
    sandbox_unref(s);
    rig_done(&r);
}

static void say_of(struct rig *r, enum grpc_code code, const char *url, const char *uid)
{
    r->code = code;
    r->url = url;
    r->uid = uid;
}

/* After a fault (OK: none) that says nothing of it. */
static void what_ran_is_measured_by_what_is_learned_next(void **state)
{
    static const char here[] = "http://10.0.0.7:1/u/1", there[] = "http://10.0.0.8:1/u/1";
    static const enum grpc_code doubts[] = {GRPC_OK, GRPC_UNAVAILABLE, GRPC_FAILED_PRECONDITION,
                                            GRPC_INTERNAL};
    static const struct {
        enum grpc_code code;
        const char *url, *uid;
        bool stays, moved;
    } rows[] = {
        {GRPC_OK, here, "1", true, true},
        {GRPC_OK, there, "1", false, true},
        {GRPC_OK, "http://10.0.0.7:1/u/2", "1", false, true},
        {GRPC_OK, here, "2", false, false},
        {GRPC_NOT_FOUND, here, "1", false, false},
    };
    struct rig r;
    (void)state;
    begin(&r);
    for (size_t i = 0; i < 4 * sizeof rows / sizeof *rows; i++) {
        enum grpc_code doubt = doubts[i % 4];
        say_of(&r, GRPC_OK, here, "1");
        learn(&r, "a");
        uint64_t generation = known(&r, "a")->generation;
        say_of(&r, doubt, here, "1");
        learn(&r, "a");
        const struct sandbox *old = sandbox_ref(known(&r, "a"));
        assert_true(old->generation == generation && !sandbox_is_let_go(old));
        say_of(&r, rows[i / 4].code, rows[i / 4].url, rows[i / 4].uid);
        r.credential = i % 2 ? "odd" : "even";
        learn(&r, "a");
        const struct sandbox *s = known(&r, "a");
        if ((s->generation == generation) != rows[i / 4].stays ||
            (s != old && sandbox_is_let_go(old) != rows[i / 4].stays) ||
            sandbox_moved(old, s) != rows[i / 4].moved)
            fail_msg("row %zu after %d", i / 4, (int)doubt);
        sandbox_unref(old);
        say_of(&r, GRPC_NOT_FOUND, here, "1");
        learn(&r, "a");
    }
    rig_done(&r);
}

static void what_is_no_route_is_a_record_for_those_who_asked(void **state)
{
    static const struct {
        enum grpc_code code;
        enum sandbox_state state;
        enum fault_id fault;
        const char *value;
    } rows[] = {
        {GRPC_NOT_FOUND, SANDBOX_FAILED, FAULT_FASTPATH_NOT_FOUND, ""},
        {GRPC_UNAVAILABLE, SANDBOX_NOT_READY, FAULT_FASTPATH_UNAVAILABLE, ""},
        {GRPC_FAILED_PRECONDITION, SANDBOX_NOT_READY, FAULT_FASTPATH_UNAVAILABLE, ""},
        {GRPC_CANCELED, SANDBOX_FAILED, FAULT_FASTPATH_CANCELED, ""},
        {GRPC_PERMISSION_DENIED, SANDBOX_FAILED, FAULT_FASTPATH_FAILED, "PermissionDenied"},
    };
    struct rig r;
    (void)state;
    begin(&r);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        r.code = rows[i].code;
        learn(&r, "a");
        const struct sandbox *s = known(&r, "a");
        assert_int_equal(s->state, rows[i].state);
        assert_int_equal(s->fault, rows[i].fault);
        assert_string_equal(arena_printf(&r.server.asks[0]->mem, "%.*s", STR_ARG(s->fault_value)).p,
                            rows[i].value);
        assert_true(str_iends(s->reason, STR(": as you like")));
        assert_true(s->learned_ms == s->fresh_ms);
    }
    r.code = GRPC_OK;
    r.url = "ftp://x/";
    learn(&r, "a");
    assert_int_equal(known(&r, "a")->fault, FAULT_FASTPATH_SCHEME);
    r.url = "http://x/";
    r.expires = 5;
    learn(&r, "a");
    assert_int_equal(known(&r, "a")->fault, FAULT_FASTPATH_EXPIRED);
    assert_int_equal(r.gones, 0);
    rig_done(&r);
}

static void an_answer_that_cannot_be_read_is_an_internal_fault(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.server.on = NULL;
    want(&r, "a");
    until(&r, r.server.n == 1 && r.server.asks[0]->whole);
    grpc_server_say(r.server.asks[0], "\x1a\x7f", 2, 0, NULL);
    until(&r, r.puts);
    assert_int_equal(known(&r, "a")->fault, FAULT_FASTPATH_FAILED);
    assert_true(str_eq(known(&r, "a")->fault_value, STR("Internal")));
    rig_done(&r);
}

static void a_server_that_is_gone_or_late_is_unavailable(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.settings.fastpath_wait_timeout_millis = 200;
    start(&r);
    until(&r, r.ready);
    r.server.on = NULL;
    learn(&r, "a");
    assert_int_equal(known(&r, "a")->fault, FAULT_FASTPATH_UNAVAILABLE);
    assert_true(str_starts(known(&r, "a")->reason, STR("DeadlineExceeded")));
    r.list.ip = "127.0.0.2";
    grpc_server_hang_up(&r.server);
    until(&r, r.server.open == 0);
    learn(&r, "b");
    assert_int_equal(known(&r, "b")->state, SANDBOX_NOT_READY);
    r.list.ip = "127.0.0.1"; /* and it is found again */
    r.server.on = on_ask;
    learn(&r, "b");
    assert_int_equal(known(&r, "b")->state, SANDBOX_RUNNING);
    rig_done(&r);
}

static void what_is_dropped_is_asked_for_again_and_keeps_what_runs(void **state)
{
    char key[64];
    struct rig r;
    (void)state;
    begin(&r);
    learn(&r, "a");
    uint64_t generation = known(&r, "a")->generation;
    fastpath_resolver.drop(r.self, key_of("b", key), generation);
    fastpath_resolver.drop(r.self, key_of("a", key), generation + 1);
    const struct sandbox *s = known(&r, "a");
    assert_true(s->fresh_ms > 0 && s->learned_ms > 0);
    fastpath_resolver.drop(r.self, key_of("a", key), generation);
    assert_true(s->fresh_ms == 0 && s->learned_ms == 0); /* nobody goes by it */
    learn(&r, "a");
    assert_ptr_equal(known(&r, "a"), s);
    assert_true(s->fresh_ms > 0 && s->learned_ms > 0);
    r.server.on = NULL; /* while it is asked for, too */
    want(&r, "a");
    until(&r, r.server.n == 3 && r.server.asks[2]->whole);
    fastpath_resolver.drop(r.self, key_of("a", key), generation);
    assert_true(s->fresh_ms == 0 && s->learned_ms == 0);
    r.code = GRPC_NOT_FOUND;
    sandbox_ref(s);
    say(&r, r.server.asks[2]);
    until(&r, r.puts == 2);
    assert_false(sandbox_is_let_go(s)); /* it goes with what runs */
    sandbox_unref(s);
    assert_int_equal(r.gones, 0);
    rig_done(&r);
}

static void the_sweep_takes_what_is_over(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    learn(&r, "good");
    r.code = GRPC_NOT_FOUND;
    learn(&r, "bad");
    learn(&r, "worse");
    assert_int_equal(r.gones, 0);
    ahead_ms += MINUTE_MS + 1000;
    until(&r, r.gones == 2);
    assert_non_null(known(&r, "good"));
    assert_null(known(&r, "bad"));
    r.code = GRPC_OK;
    learn(&r, "bad");
    assert_int_equal(known(&r, "bad")->state, SANDBOX_RUNNING);
    rig_done(&r);
}

/* A credential that ends, a drop and a fault end nothing; after a while nobody remembers. */
static void what_ran_is_remembered_while_somebody_asks(void **state)
{
    static const char *const ids[] = {"ended", "dropped", "failed"};
    char key[64];
    struct rig r;
    (void)state;
    begin(&r);
    r.expires = worker_unix_s(r.w) + 9;
    learn(&r, "ended");
    r.expires += 3600;
    learn(&r, "dropped");
    learn(&r, "failed");
    fastpath_resolver.drop(r.self, key_of("dropped", key), known(&r, "dropped")->generation);
    r.code = GRPC_UNAVAILABLE;
    learn(&r, "failed");
    learn(&r, "never");
    const struct sandbox *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = sandbox_ref(known(&r, ids[i]));
    ahead_ms += MINUTE_MS + 1000;
    until(&r, r.gones == 1);
    assert_string_equal(r.last_gone, "tenant-a\nnever\n44772");
    poll(NULL, 0, 4100); /* the credential's time is the world's */
    ahead_ms += 8 * MINUTE_MS;
    learn(&r, "failed");
    ahead_ms += 2 * MINUTE_MS;
    until(&r, r.gones == 3);
    assert_true(known(&r, "failed") == s[2]);
    ahead_ms += 10 * MINUTE_MS;
    until(&r, r.gones == 4);
    for (int i = 0; i < 3; i++) {
        assert_true(sandbox_is_let_go(s[i]));
        sandbox_unref(s[i]);
    }
    rig_done(&r);
}

static void who_was_not_wanted_for_longest_makes_room(void **state)
{
    char id[16];
    struct rig r;
    (void)state;
    begin(&r);
    r.list.ip = "127.0.0.2";
    grpc_server_hang_up(&r.server);
    until(&r, r.server.open == 0);
    for (unsigned i = 0; i < ENTRIES_MAX; i++) {
        snprintf(id, sizeof id, "s-%u", i);
        want(&r, id);
    }
    until(&r, r.puts == ENTRIES_MAX);
    learn(&r, "s-0"); /* is wanted again */
    assert_int_equal(r.gones, 0);
    learn(&r, "more");
    assert_int_equal(r.gones, 1);
    assert_string_equal(r.last_gone, "tenant-a\ns-1\n44772");
    rig_done(&r);
}

static void when_all_wait_for_answers_the_next_is_refused(void **state)
{
    char id[16];
    struct rig r;
    (void)state;
    begin(&r);
    r.list.silent = true;
    grpc_server_hang_up(&r.server);
    until(&r, r.server.open == 0);
    for (unsigned i = 0; i < ENTRIES_MAX; i++) {
        snprintf(id, sizeof id, "s-%u", i);
        want(&r, id);
    }
    assert_int_equal(r.puts, 0);
    want(&r, "more");
    assert_int_equal(r.puts, 1);
    assert_int_equal(r.gones, 1);
    assert_string_equal(r.last_gone, "tenant-a\nmore\n44772");
    rig_done(&r); /* with all of them on their way */
}

static void it_may_be_stopped_while_it_tells(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    want(&r, "a");
    want(&r, "b");
    r.stops = true;
    until(&r, r.puts);
    assert_null(r.self);
    rig_done(&r);
    assert_int_equal(r.puts, 1);
}

/* ---- the start */

static void the_start_waits_for_the_server(void **state)
{
    struct arena a;
    struct rig r;
    (void)state;
    arena_init(&a, NULL, 0);
    rig_init(&r);
    r.list.ip = "127.0.0.2";
    start(&r);
    for (int i = 0; i < 50; i++)
        turn(&r);
    assert_int_equal(r.ready + r.failed, 0);
    assert_true(fastpath_resolver.unready(r.self, &a).n > 0);
    r.list.ip = "127.0.0.1";
    until(&r, r.ready);
    assert_int_equal(fastpath_resolver.unready(r.self, &a).n, 0);
    rig_done(&r);
    arena_done(&a);
}

static void the_start_fails_where_there_is_none(void **state)
{
    static const struct {
        const char *ip;
        bool mute;
        const char *why;
    } rows[] = {{"127.0.0.2", false, "dial"}, {"127.0.0.1", true, "deadline"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        char wanted[256];
        rig_init(&r);
        r.list.ip = rows[i].ip;
        r.server.mute = rows[i].mute;
        start(&r);
        for (int k = 0; k < 50; k++)
            turn(&r);
        ahead_ms += 4900;
        until(&r, r.failed);
        snprintf(wanted, sizeof wanted, "--fastpath-endpoint: %s was not reached within 5 s: %s",
                 r.endpoint, rows[i].why);
        assert_string_equal(r.error, wanted);
        assert_int_equal(r.ready, 0);
        rig_done(&r);
        assert_int_equal(r.failed, 1);
    }
}

static void it_may_be_stopped_before_it_is_ready(void **state)
{
    (void)state;
    for (int turns = 0; turns < 4; turns++) {
        struct rig r;
        rig_init(&r);
        r.server.mute = true;
        start(&r);
        for (int i = 0; i < turns; i++)
            turn(&r);
        rig_done(&r);
        assert_int_equal(r.ready + r.failed, 0);
    }
}

static void metrics_say_how_calls_ended(void **state)
{
    struct metrics_out o;
    struct rig r;
    (void)state;
    begin(&r);
    learn(&r, "a");
    r.code = GRPC_NOT_FOUND;
    learn(&r, "b");
    metrics_out_init(&o);
    fastpath_resolver.metrics(r.self, &o);
    char *text = mem_strdup((struct str){o.p, o.n});
    assert_non_null(strstr(text, "ingress_fastpath_resolutions{code=\"OK\"} 1"));
    assert_non_null(strstr(text, "ingress_fastpath_resolutions{code=\"NotFound\"} 1"));
    assert_non_null(strstr(text, "ingress_fastpath_routes 2"));
    mem_free(text);
    metrics_out_done(&o);
    rig_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_want_is_answered_with_a_record),
        cmocka_unit_test(what_is_asked_is_the_contract),
        cmocka_unit_test(one_key_is_asked_for_once_at_a_time),
        cmocka_unit_test(an_answer_that_says_the_same_keeps_the_record),
        cmocka_unit_test(what_is_no_route_is_a_record_for_those_who_asked),
        cmocka_unit_test(an_answer_that_cannot_be_read_is_an_internal_fault),
        cmocka_unit_test(a_server_that_is_gone_or_late_is_unavailable),
        cmocka_unit_test(what_is_dropped_is_asked_for_again_and_keeps_what_runs),
        cmocka_unit_test(what_ran_is_measured_by_what_is_learned_next),
        cmocka_unit_test(what_ran_is_remembered_while_somebody_asks),
        cmocka_unit_test(the_sweep_takes_what_is_over),
        cmocka_unit_test(who_was_not_wanted_for_longest_makes_room),
        cmocka_unit_test(when_all_wait_for_answers_the_next_is_refused),
        cmocka_unit_test(it_may_be_stopped_while_it_tells),
        cmocka_unit_test(the_start_waits_for_the_server),
        cmocka_unit_test(the_start_fails_where_there_is_none),
        cmocka_unit_test(it_may_be_stopped_before_it_is_ready),
        cmocka_unit_test(metrics_say_how_calls_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
