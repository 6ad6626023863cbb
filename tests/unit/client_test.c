/* client_test.c — one request of our own against a server on loopback that says what the test tells
 * it to: what goes out, what counts as an answer, and every way in which there is none. */
#include "http/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/name_list.h"
#include "harness/pki.h"
#include "harness/replier.h"
#include "harness/until.h"
#include "net/tls.h"
#include "net/worker.h"

enum { LONG_MS = 60000 };

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct replier server;
    const char *answer;
    bool hang_up;
    char url[128];
    struct client_request ask;
    struct client *client;
    bool told, denies;
    enum why why;
    int status;
    char body[512], location[64];
    size_t body_n;
};

static void on_call(void *user, struct call_in *c)
{
    struct rig *r = user;
    if (r->answer)
        replier_say(c, r->answer);
    if (r->hang_up)
        replier_hang_up(c);
}

static void rig_init(struct rig *r, SSL_CTX *ctx, const char *host)
{
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "hook.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    replier_start(&r->server, ctx, on_call, r);
    snprintf(r->url, sizeof r->url, "%s://%s:%u/in?a=b", ctx ? "https" : "http", host,
             r->server.port);
    assert_true(url_parse(str_of(r->url), &r->ask.url));
    r->ask.method = STR("POST");
    r->ask.body = STR("{}");
    r->ask.names = r->names;
    r->ask.timeout_ms = LONG_MS;
    r->ask.max_bytes = 64;
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->server);
    poll(NULL, 0, 1);
}

static void rig_done(struct rig *r)
{
    for (int i = 0; i < 5; i++)
        turn(r);
    replier_stop(&r->server);
    names_free(r->names);
    worker_free(r->w);
}

static void on_done(void *user, const struct client_answer *a)
{
    struct rig *r = user;
    assert_false(r->told);
    assert_int_equal(a->status != 0, a->head != NULL);
    r->told = true;
    r->why = a->why;
    r->status = a->status;
    r->body_n = a->body.n;
    snprintf(r->body, sizeof r->body, "%.*s", STR_ARG(a->body));
    const struct str *location = a->head ? head_get(a->head, STR("location")) : NULL;
    if (location)
        snprintf(r->location, sizeof r->location, "%.*s", STR_ARG(*location));
}

static void start(struct rig *r)
{
    r->client = client_start(r->w, &r->ask, on_done, r);
    assert_false(r->told);
}

static void the_request_is_what_was_asked_for(void **state)
{
    static const struct field fields[] = {{{"content-type", 12}, {"application/json", 16}},
                                          {{"x-a", 3}, {"1", 1}}};
    struct rig r;
    char want[512];
    (void)state;
    rig_init(&r, NULL, "me:hush@hook.test");
    r.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    r.ask.fields = fields;
    r.ask.nfields = 2;
    start(&r);
    until(&r, r.told);
    snprintf(want, sizeof want,
             "POST /in?a=b HTTP/1.1\r\nhost: hook.test:%u\r\ncontent-type: application/json\r\n"
             "x-a: 1\r\nauthorization: Basic bWU6aHVzaA==\r\nconnection: close\r\n"
             "content-length: 2\r\n\r\n{}",
             r.server.port);
    assert_string_equal(r.server.calls[0]->text, want);
    assert_string_equal(r.list.asked, "hook.test ");
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "ok");
    until(&r, r.server.calls[0]->closed); /* nothing is kept */
    rig_done(&r);
}

static void without_a_body_none_is_announced(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL, "127.0.0.1");
    r.answer = "HTTP/1.1 204 No Content\r\n\r\n";
    r.ask.method = STR("GET");
    r.ask.body = STR_NONE;
    start(&r);
    until(&r, r.told);
    assert_null(strstr(r.server.calls[0]->text, "ength"));
    assert_int_equal(r.status, 204);
    assert_int_equal(r.why, WHY_OK);
    rig_done(&r);
}

static void an_answer_is_an_answer_in_any_framing_and_of_any_status(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        int status;
        const char *body;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
         false, 200, "abc"},
        {"HTTP/1.1 200 OK\r\n\r\nto the end", true, 200, "to the end"},
        {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, 200, ""},
        {"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: "
         "1\r\n\r\nx",
         false, 202, "x"},
        {"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", false, 503, "busy"},
        {"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", false, 404, "no"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, "127.0.0.1");
        r.answer = rows[i].answer;
        r.hang_up = rows[i].hang_up;
        start(&r);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_OK);
        assert_int_equal(r.status, rows[i].status);
        assert_string_equal(r.body, rows[i].body);
        rig_done(&r);
    }
}

static void a_redirect_is_an_answer_and_nobody_follows_it(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL, "127.0.0.1");
    r.answer = "HTTP/1.1 307 There\r\nLocation: http://hook.test/\r\nContent-Length: 0\r\n\r\n";
    start(&r);
    until(&r, r.told);
    assert_int_equal(r.status, 307);
    assert_string_equal(r.location, "http://hook.test/");
    until(&r, r.server.calls[0]->closed);
    assert_int_equal(r.server.n, 1);
    assert_string_equal(r.list.asked, "");
    rig_done(&r);
}

static void an_early_answer_counts(void **state)
{
    static char big[400000];
    struct rig r;
    (void)state;
    memset(big, 'x', sizeof big);
    rig_init(&r, NULL, "127.0.0.1");
    r.ask.body = (struct str){big, sizeof big};
    start(&r);
    until(&r, r.server.n == 1 && r.server.calls[0]->n > 100);
    replier_say(r.server.calls[0], "HTTP/1.1 413 Big\r\nContent-Length: 0\r\n\r\n");
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.status, 413);
    rig_done(&r);
}

static void what_is_not_whole_is_told_as_such(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        enum why why;
        int status;
    } rows[] = {
        {NULL, true, WHY_ORIGIN_GONE, 0},
        {"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", true, WHY_ORIGIN_GONE, 0},
        {"HTTP/1.1 200 OK\r\n", true, WHY_ORIGIN_GONE, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", true, WHY_ORIGIN_GONE, 200},
        {"nonsense\r\n\r\n", false, WHY_ORIGIN_PROTOCOL, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n"
         "0123456789012345678901234567890123456789012345678901234567890123x",
         false, WHY_LIMIT, 200},
        {"HTTP/1.1 200 OK\r\n\r\n"
         "0123456789012345678901234567890123456789012345678901234567890123x",
         false, WHY_LIMIT, 200},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, "127.0.0.1");
        r.answer = rows[i].answer;
        r.hang_up = rows[i].hang_up;
        start(&r);
        until(&r, r.told);
        if (r.why != rows[i].why || r.status != rows[i].status)
            fail_msg("row %zu: %s, %d", i, why_text(r.why), r.status);
        assert_string_equal(r.body, "");
        rig_done(&r);
    }
}

static void the_cap_itself_fits(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL, "127.0.0.1");
    r.answer = "HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n"
               "0123456789012345678901234567890123456789012345678901234567890123";
    start(&r);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(strlen(r.body), 64);
    rig_done(&r);
}

static void a_long_answer_comes_whole(void **state)
{
    enum { PIECES = 50, PIECE = 4000 };
    struct rig r;
    char piece[PIECE + 1], head[64];
    (void)state;
    memset(piece, 'x', PIECE);
    piece[PIECE] = '\0';
    rig_init(&r, NULL, "127.0.0.1");
    r.ask.max_bytes = PIECES * PIECE;
    start(&r);
    until(&r, r.server.n == 1 && r.server.calls[0]->whole);
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", PIECES * PIECE);
    replier_say(r.server.calls[0], head);
    for (int i = 0; i < PIECES; i++) {
        replier_say(r.server.calls[0], piece);
        for (int k = 0; k < 3; k++)
            turn(&r);
    }
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.body_n, PIECES * PIECE);
    rig_done(&r);
}

static void the_deadline_lies_over_all_of_it(void **state)
{
    static const struct {
        const char *answer;
        int status;
    } rows[] = {
        {NULL, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", 200},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, "127.0.0.1");
        r.answer = rows[i].answer;
        r.ask.timeout_ms = 300;
        start(&r);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_DEADLINE);
        /* a slow machine may not have come so far as the head */
        assert_true(r.status == rows[i].status || r.status == 0);
        rig_done(&r);
    }
}

static enum why allow(void *user, const struct sockaddr *addr)
{
    struct rig *r = user;
    (void)addr;
    return r->denies ? WHY_DENIED : WHY_OK;
}

static void nobody_is_called_whose_address_is_refused_or_unknown(void **state)
{
    static const struct {
        const char *host;
        bool denies;
        enum why why;
    } rows[] = {
        {"127.0.0.1", true, WHY_DENIED},
        {"other.test", false, WHY_DNS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, NULL, rows[i].host);
        r.denies = rows[i].denies;
        r.ask.allow = allow;
        start(&r);
        until(&r, r.told);
        assert_int_equal(r.why, rows[i].why);
        assert_int_equal(r.status, 0);
        for (int k = 0; k < 5; k++)
            turn(&r);
        assert_int_equal(r.server.n, 0);
        rig_done(&r);
    }
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
    p->leaf = pki_new(&(struct pki_wish){.cn = "h", .names = "DNS:hook.test"}, p->root);
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
        const char *host;
        const struct pki_cert *root;
        enum why why;
    } rows[] = {
        {"hook.test", pki.root, WHY_OK},
        {"hook.test", pki.other, WHY_TLS},
        {"127.0.0.1", pki.root, WHY_TLS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r, pki.ctx, rows[i].host);
        r.ask.tls = client_ctx(rows[i].root);
        r.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        start(&r);
        tls_ctx_unref(r.ask.tls); /* counted */
        until(&r, r.told);
        assert_int_equal(r.why, rows[i].why);
        assert_string_equal(r.body, rows[i].why == WHY_OK ? "ok" : "");
        assert_int_equal(r.server.calls[0]->n > 0, rows[i].why == WHY_OK);
        rig_done(&r);
    }
    pki_stop(&pki);
}

static void a_handshake_that_never_ends_ends_with_the_deadline(void **state)
{
    struct pki pki;
    struct rig r;
    (void)state;
    pki_start(&pki);
    rig_init(&r, pki.ctx, "hook.test");
    SSL_CTX *ctx = r.server.ctx;
    r.server.ctx = NULL; /* it hears and says nothing */
    r.ask.tls = client_ctx(pki.root);
    r.ask.timeout_ms = 300;
    start(&r);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DEADLINE);
    r.server.ctx = ctx;
    rig_done(&r);
    tls_ctx_unref(r.ask.tls);
    pki_stop(&pki);
}

/* ---- cancel */

static void cancelled_it_says_nothing_wherever_it_was(void **state)
{
    struct pki pki;
    (void)state;
    pki_start(&pki);
    for (int stage = 0; stage < 4; stage++) {
        struct rig r;
        rig_init(&r, stage == 2 ? pki.ctx : NULL, "hook.test");
        r.ask.tls = client_ctx(pki.root);
        r.list.silent = stage == 0;
        r.server.ctx = NULL;
        start(&r);
        if (stage == 1)
            until(&r, r.server.n == 1); /* connected, or nearly */
        if (stage == 2)
            until(&r, r.server.n == 1 && r.server.calls[0]->n > 0); /* ClientHello */
        if (stage == 3)
            until(&r, r.server.n == 1 && r.server.calls[0]->whole);
        client_cancel(r.client);
        if (r.server.n > 0)
            until(&r, r.server.calls[0]->closed);
        rig_done(&r);
        assert_false(r.told);
        tls_ctx_unref(r.ask.tls);
    }
    pki_stop(&pki);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_is_what_was_asked_for),
        cmocka_unit_test(without_a_body_none_is_announced),
        cmocka_unit_test(an_answer_is_an_answer_in_any_framing_and_of_any_status),
        cmocka_unit_test(a_redirect_is_an_answer_and_nobody_follows_it),
        cmocka_unit_test(an_early_answer_counts),
        cmocka_unit_test(what_is_not_whole_is_told_as_such),
        cmocka_unit_test(the_cap_itself_fits),
        cmocka_unit_test(a_long_answer_comes_whole),
        cmocka_unit_test(the_deadline_lies_over_all_of_it),
        cmocka_unit_test(nobody_is_called_whose_address_is_refused_or_unknown),
        cmocka_unit_test(over_tls_only_who_is_proved_gets_the_request),
        cmocka_unit_test(a_handshake_that_never_ends_ends_with_the_deadline),
        cmocka_unit_test(cancelled_it_says_nothing_wherever_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
