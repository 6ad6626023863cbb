/* grpc_test.c — unary calls against a server on loopback: what goes out, what counts as an answer,
 * and the code that everything else comes to. */
#include "ingress/fastpath/grpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>

#include "harness/grpc_server.h"
#include "harness/name_list.h"
#include "harness/until.h"
#include "net/worker.h"

enum { LONG_MS = 60000 };

struct rig;
struct asked {
    struct rig *rig;
    unsigned at;
};

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct grpc_server server;
    char authority[64];
    struct caller *caller;
    struct grpc *call;
    unsigned told;
    enum grpc_code code;
    char message[256], detail[512];
    size_t n;
    struct asked asked[16];
    struct grpc *others[16];
    unsigned n_asked;
    bool frees; /* the others and the caller, within done() */
    void (*answer)(struct grpc_ask *a);
};

static void on_ask(void *user, struct grpc_ask *a)
{
    struct rig *r = user;
    if (r->answer)
        r->answer(a);
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    poll(NULL, 0, 1);
}

static void rig_init(struct rig *r)
{
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "fast.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    grpc_server_start(&r->server, r->w, on_ask, r);
    snprintf(r->authority, sizeof r->authority, "fast.test:%u", r->server.port);
    struct caller_rules rules = {
        .h2 = true, .names = r->names, .idle_max = 1, .idle_ms = LONG_MS, .connect_ms = LONG_MS};
    rules.url.authority = str_of(r->authority);
    rules.url.host = STR("fast.test");
    rules.url.port = r->server.port;
    r->caller = caller_start(r->w, &rules);
}

static void rig_done(struct rig *r)
{
    caller_free(r->caller);
    grpc_server_stop(&r->server);
    until(r, r->server.open == 0);
    grpc_server_done(&r->server);
    names_free(r->names);
    worker_free(r->w);
}

static void on_done(void *user, enum grpc_code code, struct str message, struct str detail)
{
    const struct asked *asked = user;
    struct rig *r = asked->rig;
    r->told++;
    r->code = code;
    r->others[asked->at] = NULL;
    r->n = message.n;
    snprintf(r->message, sizeof r->message, "%.*s", STR_ARG(message));
    snprintf(r->detail, sizeof r->detail, "%.*s", STR_ARG(detail));
    if (!r->frees)
        return;
    for (unsigned i = 0; i < r->n_asked; i++)
        if (r->others[i])
            grpc_cancel(r->others[i]);
    caller_free(r->caller);
    r->caller = NULL;
}

static void ask_for(struct rig *r, uint64_t ms)
{
    unsigned before = r->told;
    struct asked *asked = &r->asked[r->n_asked];
    *asked = (struct asked){r, r->n_asked};
    r->call = r->others[r->n_asked++] =
        grpc_call(r->caller, STR("a.B"), STR("Get"), STR("hello"), ms, on_done, asked);
    assert_int_equal(r->told, before);
}

static void say_world(struct grpc_ask *a)
{
    grpc_server_say(a, "world", 5, 0, NULL);
}

static const char *field(const struct grpc_ask *a, const char *name)
{
    const struct str *v = head_get(a->head, str_of(name));
    static char text[256];
    snprintf(text, sizeof text, "%.*s", v ? (int)v->n : 6, v ? v->p : "(none)");
    return text;
}

static void a_call_is_one_message_each_way(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    r.answer = say_world;
    ask_for(&r, 2000);
    until(&r, r.told);
    const struct grpc_ask *a = r.server.asks[0];
    assert_int_equal(r.code, GRPC_OK);
    assert_string_equal(r.message, "world");
    assert_true(str_eq(a->head->method, STR("POST")));
    assert_true(str_eq(a->head->path, STR("/a.B/Get")));
    assert_true(str_eq(a->head->authority, str_of(r.authority)));
    assert_true(a->head->te_trailers);
    assert_string_equal(field(a, "content-type"), "application/grpc");
    assert_string_equal(field(a, "grpc-timeout"), "2000m");
    assert_true(str_starts(str_of(field(a, "user-agent")), STR("opensandbox-ingress/")));
    assert_int_equal(a->n, 10);
    assert_memory_equal(a->body, "\0\0\0\0\5hello", 10);
    rig_done(&r);
}

static void calls_share_one_connection(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    for (int i = 0; i < 5; i++)
        ask_for(&r, LONG_MS);
    until(&r, r.server.n == 5 && r.server.asks[4]->whole);
    for (int i = 4; i >= 0; i--)
        say_world(r.server.asks[i]);
    until(&r, r.told == 5);
    ask_for(&r, LONG_MS);
    until(&r, r.server.n == 6 && r.server.asks[5]->whole);
    say_world(r.server.asks[5]);
    until(&r, r.told == 6);
    assert_int_equal(r.server.connections, 1);
    rig_done(&r);
}

static void an_empty_message_is_one_too(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    ask_for(&r, LONG_MS);
    until(&r, r.server.n == 1 && r.server.asks[0]->whole);
    grpc_server_say(r.server.asks[0], "", 0, 0, NULL);
    until(&r, r.told);
    assert_int_equal(r.code, GRPC_OK);
    assert_int_equal(r.n, 0);
    rig_done(&r);
}

/* ---- what else an answer can be */

static void status_in_trailers(struct grpc_ask *a)
{
    grpc_server_say(a, NULL, 0, 9, "not%20now%0a");
}

static void status_in_the_head(struct grpc_ask *a)
{
    grpc_server_say_head(a, 200, "application/grpc", "5");
}

static void status_behind_a_message(struct grpc_ask *a)
{
    grpc_server_say(a, "world", 5, 14, "x");
}

static void status_unknown(struct grpc_ask *a)
{
    grpc_server_say_head(a, 200, "application/grpc", "17");
}

static void status_nonsense(struct grpc_ask *a)
{
    grpc_server_say_head(a, 200, "application/grpc", "-1");
}

static void status_counts_more_than_http(struct grpc_ask *a)
{
    grpc_server_say_head(a, 503, "application/grpc", "7");
}

static void no_trailers(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0\0\0\5world", 10);
    grpc_server_end(a, NULL, NULL);
}

static void trailers_without_status(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0\0\0\5world", 10);
    grpc_server_end(a, NULL, "hm");
}

static void no_message(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_end(a, "0", NULL);
}

static void half_a_message(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0\0\0\5wor", 8);
    grpc_server_end(a, "0", NULL);
}

static void half_a_prefix(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0", 2);
    grpc_server_end(a, "0", NULL);
}

static void two_messages(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0\0\0\1x\0\0\0\0\1y", 12);
}

static void compressed(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\1\0\0\0\1x", 6);
}

static void too_long(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0\1\0\1x", 6);
}

static void endless(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\377\377\377\377x", 6);
}

static void of_another_type(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "text/html");
}

static void of_a_type_that_begins_alike(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpcx");
}

static void http_404(struct grpc_ask *a)
{
    grpc_server_say_head(a, 404, "text/plain", NULL);
}

static void http_503(struct grpc_ask *a)
{
    grpc_server_head(a, 503, NULL);
}

static void http_500(struct grpc_ask *a)
{
    grpc_server_say_head(a, 500, "application/grpc", NULL);
}

static void reset(struct grpc_ask *a)
{
    grpc_server_reset(a);
}

static void hang_up(struct grpc_ask *a)
{
    grpc_server_hang_up(a->server);
}

static void hang_up_within(struct grpc_ask *a)
{
    grpc_server_head(a, 200, "application/grpc");
    grpc_server_bytes(a, "\0\0\0\0\5wor", 8);
    grpc_server_hang_up(a->server);
}

static void every_other_answer_is_a_code(void **state)
{
    static const struct {
        void (*answer)(struct grpc_ask *a);
        enum grpc_code code;
        const char *detail;
    } rows[] = {
        {status_in_trailers, GRPC_FAILED_PRECONDITION, "not now\n"},
        {status_in_the_head, GRPC_NOT_FOUND, ""},
        {status_behind_a_message, GRPC_UNAVAILABLE, "x"},
        {status_unknown, GRPC_UNKNOWN, ""},
        {status_nonsense, GRPC_UNKNOWN, ""},
        {status_counts_more_than_http, GRPC_PERMISSION_DENIED, ""},
        {no_trailers, GRPC_INTERNAL, "no status"},
        {trailers_without_status, GRPC_UNKNOWN, "no status"},
        {no_message, GRPC_INTERNAL, "no whole answer"},
        {half_a_message, GRPC_INTERNAL, "no whole answer"},
        {half_a_prefix, GRPC_INTERNAL, "no whole answer"},
        {two_messages, GRPC_INTERNAL, "more than one answer"},
        {compressed, GRPC_INTERNAL, "the answer is compressed"},
        {too_long, GRPC_RESOURCE_EXHAUSTED, "the answer is too long"},
        {endless, GRPC_RESOURCE_EXHAUSTED, "the answer is too long"},
        {of_another_type, GRPC_UNKNOWN, "HTTP 200, not gRPC"},
        {of_a_type_that_begins_alike, GRPC_UNKNOWN, "HTTP 200, not gRPC"},
        {http_404, GRPC_UNIMPLEMENTED, "HTTP 404, not gRPC"},
        {http_503, GRPC_UNAVAILABLE, "HTTP 503, not gRPC"},
        {http_500, GRPC_UNKNOWN, "HTTP 500, not gRPC"},
        {reset, GRPC_UNAVAILABLE, "origin-gone"},
        {hang_up, GRPC_UNAVAILABLE, "origin-gone"},
        {hang_up_within, GRPC_UNAVAILABLE, "origin-gone"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r);
        r.answer = rows[i].answer;
        ask_for(&r, LONG_MS);
        until(&r, r.told);
        if (r.code != rows[i].code || strcmp(r.detail, rows[i].detail) != 0)
            fail_msg("row %zu: %s, \"%s\"", i, grpc_code_text(r.code), r.detail);
        assert_int_equal(r.n, 0);
        rig_done(&r);
        assert_int_equal(r.told, 1);
    }
}

static void the_longest_message_comes_whole(void **state)
{
    static char big[GRPC_MESSAGE_MAX];
    struct rig r;
    (void)state;
    memset(big, 'x', sizeof big);
    rig_init(&r);
    ask_for(&r, LONG_MS);
    until(&r, r.server.n == 1 && r.server.asks[0]->whole);
    grpc_server_say(r.server.asks[0], big, sizeof big, 0, NULL);
    until(&r, r.told);
    assert_int_equal(r.code, GRPC_OK);
    assert_int_equal(r.n, sizeof big);
    rig_done(&r);
}

static void a_long_text_of_a_status_is_cut(void **state)
{
    static char text[2000];
    struct rig r;
    (void)state;
    memset(text, 'x', sizeof text - 1);
    rig_init(&r);
    ask_for(&r, LONG_MS);
    until(&r, r.server.n == 1 && r.server.asks[0]->whole);
    grpc_server_say(r.server.asks[0], NULL, 0, 14, text);
    until(&r, r.told);
    assert_int_equal(strlen(r.detail), 256);
    rig_done(&r);
}

static void who_is_late_or_not_there_is_told_apart(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    ask_for(&r, 200);
    until(&r, r.told);
    assert_int_equal(r.code, GRPC_DEADLINE_EXCEEDED);
    until(&r, r.server.n == 0 || r.server.asks[0]->gone); /* it is told not to go on */
    rig_done(&r);

    rig_init(&r);
    r.server.mute = true; /* no SETTINGS */
    ask_for(&r, 200);
    until(&r, r.told);
    assert_int_equal(r.code, GRPC_DEADLINE_EXCEEDED);
    rig_done(&r);

    rig_init(&r);
    r.list.ip = "127.0.0.2"; /* nobody listens there */
    ask_for(&r, LONG_MS);
    until(&r, r.told);
    assert_int_equal(r.code, GRPC_UNAVAILABLE);
    rig_done(&r);

    rig_init(&r);
    r.list.name = "other.test";
    ask_for(&r, LONG_MS);
    until(&r, r.told);
    assert_int_equal(r.code, GRPC_UNAVAILABLE);
    assert_string_equal(r.detail, "dns");
    rig_done(&r);
}

/* A connection that says nothing may be dead: who comes later does not wait there. */
static void after_a_deadline_another_connection_is_made(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    ask_for(&r, LONG_MS); /* stays */
    until(&r, r.server.n == 1 && r.server.asks[0]->whole);
    ask_for(&r, 200);
    until(&r, r.told == 1);
    assert_int_equal(r.code, GRPC_DEADLINE_EXCEEDED);
    r.answer = say_world;
    ask_for(&r, LONG_MS);
    until(&r, r.told == 2);
    assert_int_equal(r.code, GRPC_OK);
    assert_int_equal(r.server.connections, 2);
    say_world(r.server.asks[0]);
    until(&r, r.told == 3);
    assert_int_equal(r.code, GRPC_OK);
    until(&r, r.server.open == 1);
    rig_done(&r);
}

static void cancelled_it_says_nothing(void **state)
{
    (void)state;
    for (int stage = 0; stage < 3; stage++) {
        struct rig r;
        rig_init(&r);
        r.list.silent = stage == 0;
        ask_for(&r, LONG_MS);
        if (stage > 0)
            until(&r, r.server.n == 1 && r.server.asks[0]->whole);
        if (stage == 2) {
            grpc_server_head(r.server.asks[0], 200, "application/grpc");
            for (int i = 0; i < 5; i++)
                turn(&r);
        }
        grpc_cancel(r.call);
        if (stage > 0)
            until(&r, r.server.asks[0]->gone);
        rig_done(&r);
        assert_int_equal(r.told, 0);
    }
}

/* Who hears of a failure may be the one who ends it all, while others wait in the same line. */
static void a_caller_may_end_within_the_answer(void **state)
{
    static void (*const answers[])(struct grpc_ask *) = {say_world, two_messages, reset, hang_up};
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct rig r;
        rig_init(&r);
        r.frees = true;
        for (int k = 0; k < 3; k++)
            ask_for(&r, LONG_MS);
        until(&r, r.server.n == 3 && r.server.asks[2]->whole);
        answers[i](r.server.asks[1]);
        until(&r, r.told);
        until(&r, r.server.open == 0);
        rig_done(&r);
        assert_int_equal(r.told, 1);
    }
    struct rig r;
    rig_init(&r);
    r.list.ip = "127.0.0.2";
    r.frees = true;
    for (int k = 0; k < 3; k++)
        ask_for(&r, LONG_MS);
    until(&r, r.told);
    rig_done(&r);
    assert_int_equal(r.told, 1);
}

static void codes_have_the_names_of_the_contract(void **state)
{
    (void)state;
    assert_string_equal(grpc_code_text(GRPC_NOT_FOUND), "NotFound");
    assert_string_equal(grpc_code_text(GRPC_UNAUTHENTICATED), "Unauthenticated");
    assert_string_equal(grpc_code_text((enum grpc_code)17), "Unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_one_message_each_way),
        cmocka_unit_test(calls_share_one_connection),
        cmocka_unit_test(an_empty_message_is_one_too),
        cmocka_unit_test(every_other_answer_is_a_code),
        cmocka_unit_test(the_longest_message_comes_whole),
        cmocka_unit_test(a_long_text_of_a_status_is_cut),
        cmocka_unit_test(who_is_late_or_not_there_is_told_apart),
        cmocka_unit_test(after_a_deadline_another_connection_is_made),
        cmocka_unit_test(cancelled_it_says_nothing),
        cmocka_unit_test(a_caller_may_end_within_the_answer),
        cmocka_unit_test(codes_have_the_names_of_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
