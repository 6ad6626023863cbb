/* call_test.c — requests of our own over kept connections, against a server on loopback that says
 * what the test tells it to: what goes out, what comes back as it comes, when a connection carries
 * a second request, when a request goes twice, and every deadline and limit. */
#include "proxy/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>

#include "harness/name_list.h"
#include "harness/pki.h"
#include "harness/replier.h"
#include "harness/until.h"
#include "net/tls.h"
#include "net/worker.h"

enum { LONG_MS = 60000 };

enum moment { NEVER, AT_HEAD, AT_DATA };

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct replier server;
    const char *answer;
    char url[128];
    struct caller_rules rules;
    struct caller *caller;
    struct call_request ask;
    struct call *call;
    enum moment cancels, frees;
    bool denies;
    /* what was told */
    unsigned heads, datas, dones;
    int status;
    enum why why;
    char body[512], fault[128];
    size_t n;
};

static void on_call(void *user, struct call_in *c)
{
    const struct rig *r = user;
    if (r->answer)
        replier_say(c, r->answer);
}

static void rig_init(struct rig *r, SSL_CTX *ctx, struct tls_ctx *tls, const char *host,
                     const char *path)
{
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "api.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    replier_start(&r->server, ctx, on_call, r);
    snprintf(r->url, sizeof r->url, "%s://%s:%u%s", ctx ? "https" : "http", host, r->server.port,
             path);
    assert_true(url_parse(str_of(r->url), &r->rules.url));
    r->rules.tls = tls;
    r->rules.names = r->names;
    r->rules.idle_max = 2;
    r->rules.idle_ms = LONG_MS;
    r->rules.connect_ms = LONG_MS;
    r->ask.method = STR("GET");
    r->ask.target = STR("/pods?watch=1");
    r->ask.head_ms = LONG_MS;
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->server);
    poll(NULL, 0, 1);
}

static void turns(struct rig *r, int n)
{
    for (int i = 0; i < n; i++)
        turn(r);
}

static void begin(struct rig *r)
{
    rig_init(r, NULL, NULL, "api.test", "");
    r->caller = caller_start(r->w, &r->rules);
}

static void rig_done(struct rig *r)
{
    caller_free(r->caller);
    turns(r, 5);
    replier_stop(&r->server);
    names_free(r->names);
    worker_free(r->w);
}

static void end_here(struct rig *r, enum moment m)
{
    if (r->cancels == m)
        call_cancel(r->call);
    if (r->frees != m)
        return;
    caller_free(r->caller);
    r->caller = NULL;
}

static void on_head(void *user, const struct http_head *head)
{
    struct rig *r = user;
    r->heads++;
    r->status = head->status;
    end_here(r, AT_HEAD);
}

static void on_data(void *user, struct buf *b)
{
    struct rig *r = user;
    size_t n = b->len < sizeof r->body - 1 ? b->len : sizeof r->body - 1;
    r->datas++;
    buf_peek(b, r->body, n); /* the last piece, cut */
    r->body[n] = '\0';
    r->n += b->len;
    end_here(r, AT_DATA);
}

static void on_done(void *user, enum why why, const struct http_head *trailers, struct str fault)
{
    struct rig *r = user;
    (void)trailers;
    r->dones++;
    r->why = why;
    snprintf(r->fault, sizeof r->fault, "%.*s", STR_ARG(fault));
}

static const struct call_events events = {on_head, on_data, on_done};

static void start(struct rig *r)
{
    unsigned told = r->heads + r->datas + r->dones;
    r->call = call_start(r->caller, &r->ask, &events, r);
    assert_int_equal(r->heads + r->datas + r->dones, told);
}

static void finish(struct rig *r)
{
    unsigned before = r->dones;
    start(r);
    until(r, r->dones > before);
}

/* The server forgets what was asked on this connection, so that it sees the next request. */
static void again(struct call_in *c)
{
    c->n = 0;
    memset(c->text, 0, sizeof c->text);
    c->whole = false;
}

#define OK2 "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* ---- what goes out and comes back */

static void the_request_is_what_was_asked_for(void **state)
{
    static const struct field fields[] = {{{"authorization", 13}, {"Bearer x", 8}}};
    struct rig r;
    char wanted[256];
    (void)state;
    rig_init(&r, NULL, NULL, "api.test", "/base/");
    r.caller = caller_start(r.w, &r.rules);
    r.answer = OK2;
    r.ask.method = STR("POST");
    r.ask.fields = fields;
    r.ask.nfields = 1;
    r.ask.body = STR("{}");
    finish(&r);
    snprintf(wanted, sizeof wanted,
             "POST /base/pods?watch=1 HTTP/1.1\r\nhost: api.test:%u\r\nauthorization: Bearer x\r\n"
             "content-length: 2\r\n\r\n{}",
             r.server.port);
    assert_string_equal(r.server.calls[0]->text, wanted);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "ok");
    rig_done(&r);
}

static void data_is_told_as_it_comes(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.answer = "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    start(&r);
    until(&r, r.heads == 1);
    replier_say(r.server.calls[0], "3\r\none\r\n");
    until(&r, r.datas == 1);
    assert_string_equal(r.body, "one");
    replier_say(r.server.calls[0], "3\r\ntwo\r\n");
    until(&r, r.datas == 2);
    assert_string_equal(r.body, "two");
    assert_int_equal(r.dones, 0);
    replier_say(r.server.calls[0], "0\r\n\r\n");
    until(&r, r.dones);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.heads, 1);
    rig_done(&r);
}

static void a_long_answer_comes_whole(void **state)
{
    enum { PIECES = 200, PIECE = 8000 };
    static char piece[PIECE + 1];
    struct rig r;
    char head[64];
    (void)state;
    memset(piece, 'x', PIECE);
    begin(&r);
    start(&r);
    until(&r, r.server.n == 1 && r.server.calls[0]->whole);
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", PIECES * PIECE);
    replier_say(r.server.calls[0], head);
    for (int i = 0; i < PIECES; i++) {
        replier_say(r.server.calls[0], piece);
        turns(&r, 2);
    }
    until(&r, r.dones);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.n, PIECES * PIECE);
    rig_done(&r);
}

static void every_end_has_its_reason(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        enum why why;
        int status;
    } rows[] = {
        {"HTTP/1.1 204 No Content\r\n\r\n", false, WHY_OK, 204},
        {"HTTP/1.1 200 OK\r\n\r\nto the end", true, WHY_OK, 200},
        {"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", false, WHY_OK, 503},
        {NULL, true, WHY_ORIGIN_GONE, 0},
        {"HTTP/1.1 200 OK\r\n", true, WHY_ORIGIN_GONE, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", true, WHY_ORIGIN_GONE, 200},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", true, WHY_ORIGIN_GONE,
         200},
        {"nonsense\r\n\r\n", false, WHY_ORIGIN_PROTOCOL, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789", false, WHY_LIMIT, 200},
        {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678", false, WHY_OK, 200},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r);
        r.ask.max_bytes = strlen("to the end");
        if (i >= 8)
            r.ask.max_bytes = 8;
        start(&r);
        until(&r, r.server.n == 1 && r.server.calls[0]->whole);
        if (rows[i].answer)
            replier_say(r.server.calls[0], rows[i].answer);
        if (rows[i].hang_up)
            replier_hang_up(r.server.calls[0]);
        until(&r, r.dones);
        if (r.why != rows[i].why || r.status != rows[i].status)
            fail_msg("row %zu: %s, %d", i, why_text(r.why), r.status);
        assert_int_equal(r.server.n, 1);
        rig_done(&r);
        assert_int_equal(r.dones, 1);
    }
}

/* ---- connections */

static void a_connection_is_kept_for_the_next_call(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.answer = OK2;
    for (int i = 0; i < 3; i++) {
        finish(&r);
        assert_int_equal(r.why, WHY_OK);
        again(r.server.calls[0]);
    }
    assert_int_equal(r.server.n, 1);
    r.answer = NULL;
    start(&r);
    start(&r); /* two at a time need two */
    until(&r, r.server.n == 2 && r.server.calls[1]->whole);
    assert_true(r.server.calls[0]->whole);
    rig_done(&r);
}

static void without_room_for_idle_ones_none_is_kept(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL, NULL, "api.test", "");
    r.rules.idle_max = 0;
    r.caller = caller_start(r.w, &r.rules);
    r.answer = OK2;
    finish(&r);
    until(&r, r.server.calls[0]->closed);
    rig_done(&r);
}

static void a_connection_whose_answer_was_not_whole_is_not_kept(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
    start(&r);
    until(&r, r.datas);
    call_cancel(r.call);
    until(&r, r.server.calls[0]->closed);
    r.answer = OK2;
    finish(&r);
    assert_int_equal(r.server.n, 2);
    rig_done(&r);
    assert_int_equal(r.dones, 1);
}

/* Hangs up on what comes second on a connection. */
static void on_second(void *user, struct call_in *c)
{
    struct rig *r = user;
    if (c == r->server.calls[0] && r->dones > 0)
        replier_hang_up(c);
    else
        replier_say(c, OK2);
}

static void a_kept_connection_that_dies_costs_an_idempotent_call_nothing(void **state)
{
    static const struct {
        const char *method;
        enum why why;
        unsigned connections;
    } rows[] = {{"GET", WHY_OK, 2}, {"PUT", WHY_OK, 2}, {"POST", WHY_ORIGIN_GONE, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r);
        r.server.on = on_second;
        r.ask.method = str_of(rows[i].method);
        r.ask.body = STR("body");
        finish(&r);
        again(r.server.calls[0]);
        finish(&r);
        assert_int_equal(r.why, rows[i].why);
        assert_int_equal(r.server.n, rows[i].connections);
        if (rows[i].connections == 2)
            assert_non_null(strstr(r.server.calls[1]->text, "\r\n\r\nbody"));
        rig_done(&r);
    }
}

static void on_any(void *user, struct call_in *c)
{
    struct rig *r = user;
    if (r->dones == 0)
        replier_say(c, OK2);
    else
        replier_hang_up(c);
}

static void a_call_goes_twice_and_no_more(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.server.on = on_any;
    finish(&r);
    again(r.server.calls[0]);
    finish(&r);
    assert_int_equal(r.why, WHY_ORIGIN_GONE);
    assert_int_equal(r.server.n, 2);
    rig_done(&r);
}

static void a_connection_that_has_ended_meanwhile_is_not_used(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.answer = OK2;
    r.ask.method = STR("POST");
    finish(&r);
    replier_hang_up(r.server.calls[0]);
    turns(&r, 20);
    finish(&r);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.server.n, 2);
    rig_done(&r);
}

/* ---- deadlines */

static void every_deadline_ends_a_call(void **state)
{
    static const char part[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
    static const struct {
        const char *answer;
        uint64_t head_ms, silence_ms, whole_ms;
        int status;
    } rows[] = {
        {NULL, 300, 0, 0, 0},         {"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", 300, 0, 0, 0},
        {part, LONG_MS, 300, 0, 200}, {part, LONG_MS, 0, 300, 200},
        {NULL, LONG_MS, 0, 300, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r);
        r.answer = rows[i].answer;
        r.ask.head_ms = rows[i].head_ms;
        r.ask.silence_ms = rows[i].silence_ms;
        r.ask.whole_ms = rows[i].whole_ms;
        finish(&r);
        assert_int_equal(r.why, WHY_DEADLINE);
        assert_true(r.status == rows[i].status || (rows[i].whole_ms > 0 && r.status == 0));
        if (r.server.n > 0)
            until(&r, r.server.calls[0]->closed);
        rig_done(&r);
    }
}

static void who_goes_on_talking_is_not_silent(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    r.ask.head_ms = LONG_MS;
    r.ask.silence_ms = LONG_MS;
    start(&r);
    until(&r, r.heads);
    turns(&r, 100); /* the deadline of the head has no meaning any more */
    replier_say(r.server.calls[0], "1\r\nx\r\n0\r\n\r\n");
    until(&r, r.dones);
    assert_int_equal(r.why, WHY_OK);
    rig_done(&r);
}

/* ---- ways that lead nowhere */

static enum why allow(void *user, const struct sockaddr *addr)
{
    const struct rig *r = user;
    (void)addr;
    return r->denies ? WHY_DENIED : WHY_OK;
}

static void nobody_is_called_whose_address_is_refused_or_unknown(void **state)
{
    static const struct {
        const char *host, *ip;
        bool denies;
        enum why why;
    } rows[] = {
        {"api.test", "127.0.0.1", true, WHY_DENIED},
        {"other.test", "127.0.0.1", false, WHY_DNS},
        {"api.test", "127.0.0.2", false, WHY_DIAL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, NULL, rows[i].host, "");
        r.list.ip = rows[i].ip;
        r.denies = rows[i].denies;
        r.rules.allow = allow;
        r.rules.user = &r;
        r.caller = caller_start(r.w, &r.rules);
        finish(&r);
        assert_int_equal(r.why, rows[i].why);
        assert_int_equal(r.server.n, 0);
        rig_done(&r);
    }
}

static void a_server_can_be_reached_without_a_request(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.call = call_reach(r.caller, LONG_MS, &events, &r);
    until(&r, r.dones);
    assert_int_equal(r.why, WHY_OK);
    turns(&r, 5);
    assert_int_equal(r.server.n, 1);
    assert_int_equal(r.server.calls[0]->n, 0);
    r.list.ip = "127.0.0.2";
    r.call = call_reach(r.caller, LONG_MS, &events, &r);
    until(&r, r.dones == 2);
    assert_int_equal(r.why, WHY_DIAL);
    rig_done(&r);
}

/* ---- cancel */

static void cancelled_it_says_nothing_wherever_it_was(void **state)
{
    (void)state;
    for (int stage = 0; stage < 6; stage++) {
        struct rig r;
        begin(&r);
        r.list.silent = stage == 0;
        r.answer = stage >= 3 ? "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab" : NULL;
        r.cancels = stage == 4 ? AT_HEAD : stage == 5 ? AT_DATA : NEVER;
        start(&r);
        if (stage == 1)
            until(&r, r.server.n == 1);
        if (stage == 2)
            until(&r, r.server.n == 1 && r.server.calls[0]->whole);
        if (stage == 3 || stage == 5)
            until(&r, r.datas);
        if (stage == 4)
            until(&r, r.heads);
        if (stage < 4)
            call_cancel(r.call);
        if (r.server.n > 0)
            until(&r, r.server.calls[0]->closed);
        rig_done(&r);
        assert_int_equal(r.dones, 0);
        assert_int_equal(r.datas, stage == 3 || stage == 5);
    }
}

static void a_caller_ends_with_all_its_calls(void **state)
{
    (void)state;
    for (int stage = 0; stage < 5; stage++) {
        struct rig r;
        begin(&r);
        r.list.silent = stage == 0;
        r.answer = stage >= 3 ? "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab" : NULL;
        r.frees = stage == 3 ? AT_HEAD : stage == 4 ? AT_DATA : NEVER;
        start(&r);
        start(&r);
        if (stage == 1)
            until(&r, r.server.n == 2);
        if (stage == 2)
            until(&r, r.server.n == 2 && r.server.calls[1]->whole);
        if (stage >= 3)
            until(&r, !r.caller);
        if (stage < 3) {
            caller_free(r.caller);
            r.caller = NULL;
        }
        for (unsigned i = 0; i < r.server.n; i++)
            until(&r, r.server.calls[i]->closed);
        rig_done(&r);
        assert_int_equal(r.dones, 0);
    }
}

/* The loop has stopped: what is left goes with the worker. */
static void a_caller_may_be_freed_right_before_its_worker(void **state)
{
    struct rig r;
    (void)state;
    begin(&r);
    r.answer = OK2;
    finish(&r); /* one idle, one busy */
    r.answer = NULL;
    again(r.server.calls[0]);
    start(&r);
    start(&r);
    until(&r, r.server.n == 2);
    caller_free(r.caller);
    names_free(r.names);
    worker_free(r.w);
    replier_stop(&r.server);
}

/* ---- TLS */

struct pki {
    struct pki_cert *root, *other, *leaf;
    SSL_CTX *ctx;
};

static void pki_start(struct pki *p)
{
    p->root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    p->other = pki_new(&(struct pki_wish){.cn = "other", .authority = true}, NULL);
    p->leaf = pki_new(&(struct pki_wish){.cn = "h", .names = "DNS:api.test"}, p->root);
    p->ctx = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(p->ctx, p->leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(p->ctx, p->leaf->key), 1);
}

static void pki_stop(struct pki *p)
{
    SSL_CTX_free(p->ctx);
    pki_free(p->leaf);
    pki_free(p->other);
    pki_free(p->root);
}

static struct tls_ctx *client_ctx(const struct pki_cert *root)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_ctx *ctx =
        tls_client_new(&(struct tls_client_rules){.roots_pem = str_of(root->pem)}, &a, &error);
    assert_non_null(ctx);
    arena_done(&a);
    return ctx;
}

static void over_tls_only_who_is_proved_gets_the_request(void **state)
{
    struct pki pki;
    (void)state;
    pki_start(&pki);
    const struct {
        const char *host, *name;
        const struct pki_cert *root;
        enum why why;
    } rows[] = {
        {"api.test", "", pki.root, WHY_OK},
        {"api.test", "", pki.other, WHY_TLS},
        {"127.0.0.1", "", pki.root, WHY_TLS},
        {"127.0.0.1", "api.test", pki.root, WHY_OK},
        {"api.test", "other.test", pki.root, WHY_TLS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct tls_ctx *tls = client_ctx(rows[i].root);
        rig_init(&r, pki.ctx, tls, rows[i].host, "");
        r.rules.tls_name = str_of(rows[i].name);
        r.caller = caller_start(r.w, &r.rules);
        tls_ctx_unref(tls); /* counted */
        r.answer = OK2;
        finish(&r);
        if (r.why != rows[i].why)
            fail_msg("row %zu: %s, %s", i, why_text(r.why), r.fault);
        assert_int_equal(r.fault[0] != '\0', rows[i].why == WHY_TLS);
        assert_int_equal(r.server.calls[0]->n > 0, rows[i].why == WHY_OK);
        rig_done(&r);
    }
    pki_stop(&pki);
}

static void with_another_context_another_connection_is_made(void **state)
{
    struct pki pki;
    struct rig r;
    (void)state;
    pki_start(&pki);
    struct tls_ctx *first = client_ctx(pki.root), *second = client_ctx(pki.other);
    rig_init(&r, pki.ctx, first, "api.test", "");
    r.caller = caller_start(r.w, &r.rules);
    r.answer = OK2;
    finish(&r);
    assert_int_equal(r.why, WHY_OK);
    caller_set_tls(r.caller, second);
    tls_ctx_unref(second);
    until(&r, r.server.calls[0]->closed);
    finish(&r);
    assert_int_equal(r.why, WHY_TLS);
    caller_set_tls(r.caller, first);
    tls_ctx_unref(first);
    finish(&r);
    assert_int_equal(r.why, WHY_OK);
    rig_done(&r);
    pki_stop(&pki);
}

static void connecting_has_a_deadline_of_its_own(void **state)
{
    struct pki pki;
    struct rig r;
    (void)state;
    pki_start(&pki);
    struct tls_ctx *tls = client_ctx(pki.root);
    rig_init(&r, pki.ctx, tls, "api.test", "");
    r.server.ctx = NULL; /* it hears and says nothing */
    r.rules.connect_ms = 300;
    r.caller = caller_start(r.w, &r.rules);
    tls_ctx_unref(tls);
    finish(&r);
    assert_int_equal(r.why, WHY_DEADLINE);
    rig_done(&r);
    pki_stop(&pki);
}

/* Offered HTTP/2, it chooses HTTP/1.1: calls wait for each other's connections then, and share
 * none. */
static void a_server_that_chooses_http_1_is_spoken_to_in_it(void **state)
{
    struct pki pki;
    struct rig r;
    (void)state;
    pki_start(&pki);
    struct tls_ctx *tls = client_ctx(pki.root);
    rig_init(&r, pki.ctx, tls, "api.test", "");
    r.rules.h2 = true;
    r.caller = caller_start(r.w, &r.rules);
    tls_ctx_unref(tls);
    start(&r);
    start(&r);
    until(&r, r.server.n == 2 && r.server.calls[0]->whole && r.server.calls[1]->whole);
    replier_say(r.server.calls[0], OK2);
    replier_say(r.server.calls[1], OK2);
    until(&r, r.dones == 2);
    assert_int_equal(r.why, WHY_OK);
    again(r.server.calls[0]);
    again(r.server.calls[1]);
    r.answer = OK2;
    finish(&r);
    assert_int_equal(r.server.n, 2);
    rig_done(&r);
    pki_stop(&pki);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_is_what_was_asked_for),
        cmocka_unit_test(data_is_told_as_it_comes),
        cmocka_unit_test(a_long_answer_comes_whole),
        cmocka_unit_test(every_end_has_its_reason),
        cmocka_unit_test(a_connection_is_kept_for_the_next_call),
        cmocka_unit_test(without_room_for_idle_ones_none_is_kept),
        cmocka_unit_test(a_connection_whose_answer_was_not_whole_is_not_kept),
        cmocka_unit_test(a_kept_connection_that_dies_costs_an_idempotent_call_nothing),
        cmocka_unit_test(a_call_goes_twice_and_no_more),
        cmocka_unit_test(a_connection_that_has_ended_meanwhile_is_not_used),
        cmocka_unit_test(every_deadline_ends_a_call),
        cmocka_unit_test(who_goes_on_talking_is_not_silent),
        cmocka_unit_test(nobody_is_called_whose_address_is_refused_or_unknown),
        cmocka_unit_test(a_server_can_be_reached_without_a_request),
        cmocka_unit_test(cancelled_it_says_nothing_wherever_it_was),
        cmocka_unit_test(a_caller_ends_with_all_its_calls),
        cmocka_unit_test(a_caller_may_be_freed_right_before_its_worker),
        cmocka_unit_test(connecting_has_a_deadline_of_its_own),
        cmocka_unit_test(over_tls_only_who_is_proved_gets_the_request),
        cmocka_unit_test(a_server_that_chooses_http_1_is_spoken_to_in_it),
        cmocka_unit_test(with_another_context_another_connection_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
