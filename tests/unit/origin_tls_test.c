/* origin_tls_test.c — the pools over real TLS on loopback: what the origin chooses is known before
 * a request goes there, a prepared connection carries the first one, and who has not proved its
 * name gets nothing. */
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
#include "proxy/origin.h"

enum { LONG_MS = 60000 };

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct replier origin;
    struct origins *o;
    struct tls_ctx *tls;
    struct origin_dial *dial;
    struct origin_want want;
    bool h2;
    bool insists, forces; /* on HTTP/2: refuses all else, or chooses it without being asked */
    /* what came of it */
    bool told, got, got_h2, closed, refuses;
    enum why why;
    char fault[80], verified[32];
    struct http_stream *stream;
    struct arena mem;
    int status;
};

static struct pki_cert *root, *leaf;

static int make_pki(void **state)
{
    (void)state;
    root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    leaf = pki_new(&(struct pki_wish){.cn = "o", .names = "DNS:origin.test"}, root);
    return 0;
}

static int free_pki(void **state)
{
    (void)state;
    pki_free(root);
    pki_free(leaf);
    return 0;
}

/* ---- the origin */

static int choose(SSL *ssl, const uint8_t **ret, uint8_t *n, const uint8_t *list, unsigned len,
                  void *user)
{
    const struct rig *r = user;
    uint8_t *to;
    (void)ssl;
    if (r->forces) {
        *ret = (const uint8_t *)"h2";
        *n = 2;
        return SSL_TLSEXT_ERR_OK;
    }
    const char *wish = r->h2 ? "\2h2\10http/1.1" : "\10http/1.1";
    if (SSL_select_next_proto(&to, n, (const uint8_t *)wish, (unsigned)strlen(wish), list, len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    if (r->insists && *n != 2)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = to;
    return SSL_TLSEXT_ERR_OK;
}

/* The preface of HTTP/2 looks like a head, too. */
static void on_call(void *user, struct call_in *c)
{
    static const char settings[9] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    const struct rig *r = user;
    if (r->h2)
        tls_peer_say(&c->peer, settings, sizeof settings);
    else
        replier_say(c, "HTTP/1.1 204 No Content\r\n\r\n");
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->origin);
    poll(NULL, 0, 1);
}

/* ---- who asks */

static enum why on_peer(void *user, const struct conn_info *info)
{
    struct rig *r = user;
    snprintf(r->verified, sizeof r->verified, "%.*s", STR_ARG(info->verified));
    return r->refuses ? WHY_IDENTITY : WHY_OK;
}

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    (void)user;
    (void)addr;
    return WHY_OK;
}

static void on_dialled(void *user, enum why why, int error, uint64_t took_us)
{
    (void)user;
    (void)why;
    (void)error;
    (void)took_us;
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct rig *r = user;
    assert_true(end);
    r->status = head->status;
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    assert_int_equal(why, WHY_OK);
    r->closed = true;
}

static const struct http_events events = {on_head, NULL, NULL, NULL, NULL, on_closed};

static void take(struct rig *r, const struct origin_got *got)
{
    r->got = got != NULL;
    if (!got)
        return;
    r->got_h2 = got->h2;
    r->stream = got->stream;
    if (!r->stream)
        return;
    r->stream->ev = &events;
    r->stream->user = r;
    r->stream->mem = &r->mem;
}

static void on_done(void *user, const struct origin_got *got, enum why why)
{
    struct rig *r = user;
    struct str fault = origin_dial_fault(r->dial);
    snprintf(r->fault, sizeof r->fault, "%.*s", STR_ARG(fault));
    r->dial = NULL;
    r->told = true;
    r->why = why;
    take(r, got);
}

static const struct origin_asker asker = {on_peer, on_allow, on_dialled, on_done};

static void asks(struct rig *r)
{
    static const struct http_head head = {.method = {"GET", 3},
                                          .scheme = {"https", 5},
                                          .authority = {"origin.test", 11},
                                          .path = {"/", 1},
                                          .length = -1};
    r->stream->ops->head(r->stream, &head, true);
}

/* ---- the stage */

static void rig_init(struct rig *r, SSL_CTX *ctx, const struct pki_cert *trusted)
{
    static const struct http_limits limits = {
        .max_head_bytes = 8192, .window = 65536, .max_streams = 100, .linger_ms = 1000};
    static const struct origin_rules rules = {&limits, LONG_MS, 4, 8};
    struct str error;
    bool h2 = r->h2;
    *r = (struct rig){.w = worker_new(0), .h2 = h2};
    arena_init(&r->mem, NULL, 0);
    r->list = (struct name_list){.w = r->w, .name = "origin.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    SSL_CTX_set_alpn_select_cb(ctx, choose, r);
    replier_start(&r->origin, ctx, on_call, r);
    r->tls = tls_client_new(&(struct tls_client_rules){.roots_pem = str_of(trusted->pem)}, &r->mem,
                            &error);
    assert_non_null(r->tls);
    r->o = origins_new(r->w, &rules);
    r->want = (struct origin_want){.pool = STR("p"),
                                   .to = {.host = STR("origin.test"),
                                          .port = r->origin.port,
                                          .names = r->names,
                                          .tls = r->tls,
                                          .tls_name = STR("origin.test"),
                                          .tls_h2 = true},
                                   .need = ORIGIN_ANY};
}

static void rig_done(struct rig *r)
{
    origin_drain(r->o);
    until(r, origin_open(r->o) == 0);
    origins_free(r->o);
    replier_stop(&r->origin);
    names_free(r->names);
    tls_ctx_unref(r->tls);
    arena_done(&r->mem);
    worker_free(r->w);
}

static SSL_CTX *server(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
    return ctx;
}

static void a_prepared_connection_tells_and_carries_the_first_request(void **state)
{
    (void)state;
    SSL_CTX *ctx = server();
    struct rig r = {.h2 = false};
    struct origin_got got;
    rig_init(&r, ctx, root);
    assert_int_equal(origin_speaks(r.o, &r.want), ORIGIN_SPEAKS_UNKNOWN);
    r.dial = origin_prepare(r.o, &r.want, LONG_MS, &asker, &r);
    until(&r, r.told);
    assert_true(r.got && !r.got_h2 && !r.stream);
    assert_int_equal(origin_idle(r.o), 1);
    assert_int_equal(origin_speaks(r.o, &r.want), ORIGIN_SPEAKS_H1);
    r.refuses = true;
    assert_int_equal(origin_reuse(r.o, &r.want, &asker, &r, &got), WHY_IDENTITY);
    assert_null(got.stream);
    r.refuses = false;
    assert_int_equal(origin_reuse(r.o, &r.want, &asker, &r, &got), WHY_OK);
    assert_string_equal(r.verified, "origin.test");
    take(&r, &got);
    assert_non_null(r.stream);
    asks(&r);
    until(&r, r.closed);
    assert_int_equal(r.status, 204);
    assert_int_equal(origin_idle(r.o), 1);
    assert_int_equal(r.origin.n, 1);
    rig_done(&r);
    SSL_CTX_free(ctx);
}

static void an_origin_that_chooses_http2_says_so(void **state)
{
    (void)state;
    SSL_CTX *ctx = server();
    struct rig r = {.h2 = true};
    rig_init(&r, ctx, root);
    r.dial = origin_prepare(r.o, &r.want, LONG_MS, &asker, &r);
    until(&r, r.told);
    assert_true(r.got && r.got_h2 && !r.stream);
    assert_int_equal(origin_idle(r.o), 1);
    assert_int_equal(origin_open_h2(r.o), 1);
    assert_int_equal(origin_speaks(r.o, &r.want), ORIGIN_SPEAKS_H2);
    rig_done(&r);
    SSL_CTX_free(ctx);
}

static void who_has_not_proved_its_name_is_no_origin(void **state)
{
    (void)state;
    struct pki_cert *other = pki_new(&(struct pki_wish){.cn = "other", .authority = true}, NULL);
    for (int i = 0; i < 2; i++) {
        SSL_CTX *ctx = server();
        struct rig r = {.h2 = i == 0};
        rig_init(&r, ctx, i == 0 ? other : root);
        if (i == 1)
            r.want.to.tls_name = STR("another.test");
        r.dial = origin_dial(r.o, &r.want, LONG_MS, &asker, &r);
        until(&r, r.told);
        assert_false(r.got);
        assert_int_equal(r.why, WHY_TLS);
        assert_true(r.fault[0] != '\0');
        assert_string_equal(r.verified, "");
        assert_int_equal(origin_open(r.o), 0);
        assert_int_equal(r.origin.calls[0]->n, 0);
        rig_done(&r);
        SSL_CTX_free(ctx);
    }
    pki_free(other);
}

static void who_refuses_http1_says_that_it_is_for_the_protocol(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        SSL_CTX *ctx = server();
        struct rig r = {.h2 = true};
        rig_init(&r, ctx, root);
        SSL_CTX_set_max_proto_version(ctx, versions[i]);
        r.insists = true;
        r.want.need = ORIGIN_H1;
        r.want.to.tls_h2 = false;
        r.dial = origin_dial(r.o, &r.want, LONG_MS, &asker, &r);
        until(&r, r.told);
        assert_false(r.got);
        assert_int_equal(r.why, WHY_TLS);
        assert_true(tls_fault_is_alpn(str_of(r.fault)));
        rig_done(&r);
        SSL_CTX_free(ctx);
    }
    assert_false(tls_fault_is_alpn(STR("upstream proxy: no application protocol in common")));
    assert_false(tls_fault_is_alpn(STR("")));
}

static void http2_that_was_not_offered_is_refused(void **state)
{
    (void)state;
    SSL_CTX *ctx = server();
    struct rig r = {.h2 = true};
    rig_init(&r, ctx, root);
    r.forces = true;
    r.want.need = ORIGIN_H1;
    r.want.to.tls_h2 = false;
    r.dial = origin_dial(r.o, &r.want, LONG_MS, &asker, &r);
    until(&r, r.told);
    assert_false(r.got);
    assert_int_equal(r.why, WHY_TLS);
    assert_false(tls_fault_is_alpn(str_of(r.fault)));
    assert_int_equal(r.origin.calls[0]->n, 0);
    rig_done(&r);
    SSL_CTX_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prepared_connection_tells_and_carries_the_first_request),
        cmocka_unit_test(an_origin_that_chooses_http2_says_so),
        cmocka_unit_test(who_has_not_proved_its_name_is_no_origin),
        cmocka_unit_test(who_refuses_http1_says_that_it_is_for_the_protocol),
        cmocka_unit_test(http2_that_was_not_offered_is_refused),
    };
    return cmocka_run_group_tests(tests, make_pki, free_pki);
}
