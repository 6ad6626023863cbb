/* dial_test.c — a real worker dials over loopback: whom it asks for names, what is done to its
 * sockets, and the way through a parent proxy, whose every answer but a clean yes is a no. */
#include "net/dial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/name_list.h"
#include "harness/pki.h"
#include "harness/replier.h"
#include "harness/until.h"
#include "net/conn_impl.h"
#include "net/tls.h"

enum { LONG_MS = 60000 };

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct replier parent;
    const char *answer; /* of the parent; NULL: none */
    bool hang_up;
    SSL_CTX *inner_ctx; /* not NULL: the parent answers and the target speaks TLS */
    struct tls_peer inner;
    struct call_in *taken; /* the call it goes through */
    /* what came of it */
    struct dial *dial;
    struct conn *conn;
    bool told, closed, denies;
    enum why why;
    int status, error;
    unsigned allowed;
    char fault[80], verified[32], alpn[16];
    char got[256];
    struct buf out;
};

static void on_call(void *user, struct call_in *c)
{
    struct rig *rig = user;
    if (rig->answer)
        replier_say(c, rig->answer);
    if (rig->hang_up)
        replier_hang_up(c);
    if (!rig->inner_ctx)
        return;
    if (c->tls)
        tls_peer_inside(&rig->inner, rig->inner_ctx, &c->peer, true);
    else
        tls_peer_init(&rig->inner, rig->inner_ctx, c->fd, true);
    rig->taken = c;
    c->fd = -1; /* is not the replier's any more */
}

static void rig_init(struct rig *r, SSL_CTX *ctx)
{
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "origin.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    buf_init(&r->out, worker_pool(r->w));
    replier_start(&r->parent, ctx, on_call, r);
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->parent);
    if (r->inner.ssl)
        tls_peer_turn(&r->inner);
    poll(NULL, 0, 1);
}

static void rig_done(struct rig *r)
{
    if (r->conn && !r->closed)
        conn_close(r->conn, WHY_DRAIN);
    for (int i = 0; i < 5; i++)
        turn(r);
    buf_clear(&r->out);
    if (r->inner.ssl)
        tls_peer_done(&r->inner);
    if (r->taken && r->taken->tls)
        tls_peer_done(&r->taken->peer);
    replier_stop(&r->parent);
    names_free(r->names);
    worker_free(r->w);
}

/* ---- the connection's next owner */

static void on_ready(void *user)
{
    (void)user;
}

static void on_bytes(void *user, struct buf *in)
{
    struct rig *r = user;
    size_t at = strlen(r->got), n = in->len;
    assert_true(at + n < sizeof r->got);
    buf_peek(in, r->got + at, n);
    buf_drop(in, n);
}

static void on_eof(void *user)
{
    (void)user;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct rig *r = user;
    (void)max;
    buf_move_all(out, &r->out);
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    (void)why;
    r->closed = true;
}

static const struct conn_events owner = {on_ready, on_bytes, on_eof, on_fill, on_closed};

static enum why allow(void *user, const struct sockaddr *addr)
{
    struct rig *r = user;
    (void)addr;
    r->allowed++;
    return r->denies ? WHY_DENIED : WHY_OK;
}

static void done(void *user, struct conn *c, enum why why)
{
    struct rig *r = user;
    assert_false(r->told);
    assert_int_equal(c != NULL, why == WHY_OK);
    r->told = true;
    r->why = why;
    r->conn = c;
    r->status = dial_status(r->dial);
    r->error = dial_errno(r->dial);
    snprintf(r->fault, sizeof r->fault, "%.*s", STR_ARG(dial_fault(r->dial)));
    if (c) {
        snprintf(r->verified, sizeof r->verified, "%.*s", STR_ARG(conn_info(c)->verified));
        snprintf(r->alpn, sizeof r->alpn, "%.*s", STR_ARG(conn_info(c)->alpn));
    }
    if (c)
        conn_attach(c, &owner, r);
}

static void dial(struct rig *r, const struct dial_to *to)
{
    r->dial = dial_start(r->w, to, LONG_MS, allow, done, r);
    assert_false(r->told);
}

/* ---- names and sockets */

static void the_host_is_asked_of_the_names_that_are_given(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL);
    dial(&r,
         &(struct dial_to){.host = STR("origin.test"), .port = r.parent.port, .names = r.names});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_string_equal(r.list.asked, "origin.test ");
    assert_int_equal(r.allowed, 1);
    rig_done(&r);
}

static void without_names_of_its_own_the_workers_are_asked(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL);
    worker_set(r.w, SLOT_NAMES, r.names);
    dial(&r, &(struct dial_to){.host = STR("nowhere.test"), .port = 80});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DNS);
    assert_string_equal(r.list.asked, "nowhere.test ");
    rig_done(&r);
}

static void an_address_that_is_not_allowed_is_not_called(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL);
    r.denies = true;
    dial(&r,
         &(struct dial_to){.host = STR("origin.test"), .port = r.parent.port, .names = r.names});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DENIED);
    for (int i = 0; i < 5; i++)
        turn(&r);
    assert_int_equal(r.parent.n, 0);
    rig_done(&r);
}

struct prepared {
    unsigned n;
    int result;
};

static int on_prepare(void *user, int fd, const struct sockaddr *to)
{
    struct prepared *p = user;
    socklen_t n = sizeof(int);
    int type;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n), 0);
    assert_int_equal(type, SOCK_STREAM);
    assert_int_equal(to->sa_family, AF_INET);
    p->n++;
    return p->result;
}

static void each_socket_is_prepared_and_without_that_there_is_no_connection(void **state)
{
    static const int results[] = {0, -EPERM};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct prepared p = {.result = results[i]};
        struct rig r;
        rig_init(&r, NULL);
        dial_prepare(r.w, &(struct prepare){on_prepare, &p});
        dial(&r,
             &(struct dial_to){.host = STR("127.0.0.1"), .port = r.parent.port, .names = r.names});
        until(&r, r.told);
        assert_int_equal(r.why, i ? WHY_DIAL : WHY_OK);
        assert_int_equal(r.error, -results[i]);
        assert_int_equal(p.n, 1);
        for (int k = 0; k < 5; k++)
            turn(&r);
        assert_int_equal(r.parent.n, i ? 0 : 1);
        rig_done(&r);
    }
}

/* ---- through a parent */

static void dial_through(struct rig *r, struct str host, uint16_t port, struct dial_parent *p)
{
    if (!p->host.p)
        p->host = STR("127.0.0.1");
    if (!p->port)
        p->port = r->parent.port;
    p->names = r->names;
    dial(r, &(struct dial_to){.host = host, .port = port, .parent = p});
}

static void a_parent_is_asked_for_the_host_as_it_stands(void **state)
{
    static const struct {
        const char *host;
        uint16_t port;
        const char *secret, *request;
    } rows[] = {
        {"name.test", 443, "", "CONNECT name.test:443 HTTP/1.1\r\nHost: name.test:443\r\n\r\n"},
        {"192.0.2.7", 80, "Basic eDp5",
         "CONNECT 192.0.2.7:80 HTTP/1.1\r\nHost: 192.0.2.7:80\r\n"
         "Proxy-Authorization: Basic eDp5\r\n\r\n"},
        {"2001:DB8:0::1", 65535, "",
         "CONNECT [2001:db8::1]:65535 HTTP/1.1\r\nHost: [2001:db8::1]:65535\r\n\r\n"},
        {"[2001:db8::2]", 1, "",
         "CONNECT [2001:db8::2]:1 HTTP/1.1\r\nHost: [2001:db8::2]:1\r\n\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {.authorization = str_of(rows[i].secret)};
        rig_init(&r, NULL);
        r.answer = "HTTP/1.1 200 OK\r\n\r\n";
        dial_through(&r, str_of(rows[i].host), rows[i].port, &p);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_OK);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.parent.calls[0]->text, rows[i].request);
        assert_string_equal(r.list.asked, ""); /* the target's name is the parent's matter */
        assert_int_equal(r.allowed, 0);
        rig_done(&r);
    }
}

static void the_parents_name_is_asked_of_its_own_names(void **state)
{
    struct rig r;
    struct dial_parent p = {.host = STR("origin.test")};
    (void)state;
    rig_init(&r, NULL);
    r.answer = "HTTP/1.1 200 OK\r\n\r\n";
    dial_through(&r, STR("name.test"), 443, &p);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_string_equal(r.list.asked, "origin.test ");
    rig_done(&r);
}

static void what_follows_the_answer_is_the_next_owners_and_both_ways_work(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    r.answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n220 ready\r\n";
    dial_through(&r, STR("name.test"), 25, &p);
    until(&r, r.told && strcmp(r.got, "220 ready\r\n") == 0);
    r.parent.calls[0]->n = 0;
    buf_str(&r.out, STR("EHLO\r\n"));
    conn_wake(r.conn);
    until(&r, r.parent.calls[0]->n == 6);
    assert_memory_equal(r.parent.calls[0]->text, "EHLO\r\n", 6);
    rig_done(&r);
}

static void an_answer_in_pieces_is_an_answer(void **state)
{
    static const char answer[] = "HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 201 x\r\nA: b\r\n\r\nhello";
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    dial_through(&r, STR("name.test"), 25, &p);
    until(&r, r.parent.n == 1 && r.parent.calls[0]->whole);
    for (size_t i = 0; i < sizeof answer - 1; i++) {
        replier_say(r.parent.calls[0], (char[]){answer[i], '\0'});
        turn(&r);
    }
    until(&r, strcmp(r.got, "hello") == 0);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.status, 201);
    rig_done(&r);
}

static void whatever_is_no_clean_yes_is_a_no(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        int status;
    } rows[] = {
        {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", false, 407},
        {"HTTP/1.1 502 Bad Gateway\r\n\r\n", true, 502},
        {"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", false, 302},
        {"HTTP/1.1 101 Switching\r\n\r\n", false, 0},
        {"HTTP/1.1 200 OK\n\n", false, 0},
        {"HTTP/1.1 200 OK\r\n bad\r\n\r\n", false, 0},
        {"SSH-2.0-x\r\n", false, 0},
        {"HTTP/1.1 200 OK\r\nA: b\r\n", true, 0},
        {NULL, true, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {0};
        rig_init(&r, NULL);
        r.answer = rows[i].answer;
        r.hang_up = rows[i].hang_up;
        dial_through(&r, STR("name.test"), 443, &p);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_DIAL);
        assert_int_equal(r.status, rows[i].status);
        until(&r, rows[i].hang_up || r.parent.calls[0]->closed);
        rig_done(&r);
    }
}

static void no_host_and_no_secret_smuggles_a_line_into_the_request(void **state)
{
    static const struct {
        const char *host, *secret;
        uint16_t port;
    } rows[] = {
        {"a.test HTTP/1.1\r\nX: y", "", 443},
        {"a.test:80", "", 443},
        {"a b", "", 443},
        {"", "", 443},
        {"127.1", "", 443},
        {"0x7f.1", "", 443},
        {"a.test/", "", 443},
        {"u@a.test", "", 443},
        {"a.test", "x\r\nY: z", 443},
        {"a.test", "x\n", 443},
        {"a.test", "", 0},
        {"[a.test]", "", 443},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {.authorization = str_of(rows[i].secret)};
        rig_init(&r, NULL);
        dial_through(&r, str_of(rows[i].host), rows[i].port, &p);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_DIAL);
        for (int k = 0; k < 5; k++)
            turn(&r);
        assert_int_equal(r.parent.n, 0);
        rig_done(&r);
    }
}

static void a_silent_parent_is_waited_for_to_the_deadline(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    p = (struct dial_parent){.host = STR("127.0.0.1"), .port = r.parent.port, .names = r.names};
    r.dial = dial_start(r.w, &(struct dial_to){.host = STR("a.test"), .port = 1, .parent = &p}, 300,
                        allow, done, &r);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DEADLINE);
    assert_int_equal(r.parent.n, 1);
    until(&r, r.parent.calls[0]->closed);
    rig_done(&r);
}

static void a_cancelled_dial_says_nothing_and_hangs_up(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    dial_through(&r, STR("name.test"), 443, &p);
    until(&r, r.parent.n == 1 && r.parent.calls[0]->whole);
    dial_cancel(r.dial);
    until(&r, r.parent.calls[0]->closed);
    assert_false(r.told);
    rig_done(&r);
}

static void a_parent_that_is_not_there_is_told_as_such(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    close(r.parent.fd);
    r.parent.fd = -1;
    p.port = r.parent.port;
    dial(&r, &(struct dial_to){.host = STR("a.test"),
                               .port = 1,
                               .parent = &(struct dial_parent){
                                   .host = STR("127.0.0.1"), .port = p.port, .names = r.names}});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DIAL);
    assert_int_equal(r.error, ECONNREFUSED);
    assert_int_equal(r.status, 0);
    rig_done(&r);
}

/* ---- TLS to the parent */

static void a_parent_over_tls_must_prove_itself(void **state)
{
    static const struct {
        const char *host;
        bool trusted;
        enum why why;
    } rows[] = {
        {"origin.test", true, WHY_OK},
        {"origin.test", false, WHY_TLS}, /* signed by somebody */
        {"127.0.0.1", true, WHY_TLS},    /* is somebody else */
    };
    struct pki_cert *root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    struct pki_cert *other = pki_new(&(struct pki_wish){.cn = "other", .authority = true}, NULL);
    struct pki_cert *leaf =
        pki_new(&(struct pki_wish){.cn = "p", .names = "DNS:origin.test"}, root);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    (void)state;
    assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct arena a;
        struct str error;
        arena_init(&a, NULL, 0);
        struct tls_ctx *tls = tls_client_new(
            &(struct tls_client_rules){.roots_pem =
                                           str_of(rows[i].trusted ? root->pem : other->pem)},
            &a, &error);
        struct dial_parent p = {.host = str_of(rows[i].host), .tls = tls};
        rig_init(&r, ctx);
        r.answer = "HTTP/1.1 200 OK\r\n\r\nhello";
        dial_through(&r, STR("name.test"), 443, &p);
        until(&r, r.told);
        assert_int_equal(r.why, rows[i].why);
        if (r.why == WHY_OK) {
            until(&r, strcmp(r.got, "hello") == 0);
            assert_true(conn_info(r.conn)->tls);
            assert_string_equal(r.parent.calls[0]->text,
                                "CONNECT name.test:443 HTTP/1.1\r\nHost: name.test:443\r\n\r\n");
        } else {
            assert_int_equal(r.parent.calls[0]->n, 0);
        }
        rig_done(&r);
        tls_ctx_unref(tls);
        arena_done(&a);
    }
    SSL_CTX_free(ctx);
    pki_free(leaf);
    pki_free(other);
    pki_free(root);
}

/* ---- TLS to the target */

static struct {
    struct pki_cert *root, *a, *b;
} pki;

static int make_pki(void **state)
{
    (void)state;
    pki.root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    pki.a = pki_new(&(struct pki_wish){.cn = "a", .names = "DNS:a.test,IP:127.0.0.1"}, pki.root);
    pki.b = pki_new(&(struct pki_wish){.cn = "b", .names = "DNS:origin.test"}, pki.root);
    return 0;
}

static int free_pki(void **state)
{
    (void)state;
    pki_free(pki.a);
    pki_free(pki.b);
    pki_free(pki.root);
    return 0;
}

static int choose_h2(SSL *ssl, const uint8_t **ret, uint8_t *n, const uint8_t *list, unsigned len,
                     void *user)
{
    static const uint8_t wish[] = "\2h2\10http/1.1";
    (void)ssl;
    (void)user;
    return SSL_select_next_proto((uint8_t **)(uintptr_t)ret, n, wish, sizeof wish - 1, list, len) ==
                   OPENSSL_NPN_NEGOTIATED
               ? SSL_TLSEXT_ERR_OK
               : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *server(const struct pki_cert *leaf)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_alpn_select_cb(ctx, choose_h2, NULL);
    assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
    return ctx;
}

static struct tls_ctx *client(void)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_ctx *tls =
        tls_client_new(&(struct tls_client_rules){.roots_pem = str_of(pki.root->pem)}, &a, &error);
    arena_done(&a);
    return tls;
}

static void a_target_over_tls_proves_its_name_before_the_dial_is_done(void **state)
{
    static const struct {
        const char *host, *name;
        bool h2;
        const char *verified, *alpn, *fault;
    } rows[] = {
        {"origin.test", "", false, "origin.test", "http/1.1", ""},
        {"origin.test", "", true, "origin.test", "h2", ""},
        {"127.0.0.1", "origin.test", true, "origin.test", "h2", ""},
        {"127.0.0.1", "ORIGIN.test.", true, "origin.test", "h2", ""},
        {"127.0.0.1", "", true, NULL, NULL, "certificate is for another host"},
        {"127.0.0.1", "a.test", true, NULL, NULL, "certificate is for another host"},
        {"127.0.0.1", "a b", true, NULL, NULL, "no certificate can name this host"},
    };
    SSL_CTX *ctx = server(pki.b);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct tls_ctx *tls = client();
        rig_init(&r, ctx);
        dial(&r, &(struct dial_to){.host = str_of(rows[i].host),
                                   .port = r.parent.port,
                                   .names = r.names,
                                   .tls = tls,
                                   .tls_name = str_of(rows[i].name),
                                   .tls_h2 = rows[i].h2});
        tls_ctx_unref(tls); /* counted */
        until(&r, r.told);
        assert_int_equal(r.why, rows[i].verified ? WHY_OK : WHY_TLS);
        assert_string_equal(r.fault, rows[i].fault);
        if (rows[i].verified) {
            assert_string_equal(r.verified, rows[i].verified);
            assert_string_equal(r.alpn, rows[i].alpn);
            buf_str(&r.out, STR("GET\r\n\r\n"));
            conn_wake(r.conn);
            until(&r, r.parent.calls[0]->whole);
            replier_say(r.parent.calls[0], "hello");
            until(&r, strcmp(r.got, "hello") == 0);
        }
        rig_done(&r);
    }
    SSL_CTX_free(ctx);
}

static void what_is_no_tls_is_told_as_such(void **state)
{
    struct rig r;
    struct tls_ctx *tls = client();
    (void)state;
    rig_init(&r, NULL);
    dial(&r, &(struct dial_to){
                 .host = STR("origin.test"), .port = r.parent.port, .names = r.names, .tls = tls});
    until(&r, r.parent.n == 1);
    replier_say(r.parent.calls[0], "220 ready\r\n");
    until(&r, r.told);
    assert_int_equal(r.why, WHY_TLS);
    assert_string_equal(r.fault, "what came is not TLS");
    rig_done(&r);
    tls_ctx_unref(tls);
}

static void who_hangs_up_in_the_handshake_ends_the_dial(void **state)
{
    struct rig r;
    struct tls_ctx *tls = client();
    (void)state;
    rig_init(&r, NULL);
    dial(&r, &(struct dial_to){
                 .host = STR("origin.test"), .port = r.parent.port, .names = r.names, .tls = tls});
    until(&r, r.parent.n == 1);
    replier_hang_up(r.parent.calls[0]);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_TLS);
    assert_string_equal(r.fault, "connection was closed in the handshake");
    rig_done(&r);
    tls_ctx_unref(tls);
}

static void a_handshake_has_the_dials_deadline_and_can_be_cancelled(void **state)
{
    (void)state;
    for (int cancel = 0; cancel < 2; cancel++) {
        struct rig r;
        struct tls_ctx *tls = client();
        rig_init(&r, NULL);
        r.dial = dial_start(
            r.w,
            &(struct dial_to){
                .host = STR("127.0.0.1"), .port = r.parent.port, .names = r.names, .tls = tls},
            cancel ? LONG_MS : 300, allow, done, &r);
        tls_ctx_unref(tls);
        until(&r, r.parent.n == 1 && r.parent.calls[0]->n > 0); /* our hello */
        if (cancel)
            dial_cancel(r.dial);
        else
            until(&r, r.told);
        assert_int_equal(r.told, !cancel);
        if (!cancel)
            assert_int_equal(r.why, WHY_DEADLINE);
        until(&r, r.parent.calls[0]->closed);
        rig_done(&r);
    }
}

static void inside_a_parents_tunnel_each_side_proves_its_own_name(void **state)
{
    static const struct {
        bool parent_tls;
        const char *parent, *target, *fault;
    } rows[] = {
        {false, "127.0.0.1", "origin.test", ""},
        {true, "127.0.0.1", "origin.test", ""},
        {true, "127.0.0.1", "a.test", "certificate is for another host"},
        {false, "127.0.0.1", "a.test", "certificate is for another host"},
        {true, "origin.test", "origin.test", "upstream proxy: certificate is for another host"},
    };
    SSL_CTX *outer = server(pki.a), *inner = server(pki.b);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct tls_ctx *tls = client();
        bool good = rows[i].fault[0] == '\0';
        rig_init(&r, rows[i].parent_tls ? outer : NULL);
        r.answer = "HTTP/1.1 200 OK\r\n\r\n";
        r.inner_ctx = inner;
        struct dial_parent p = {.host = str_of(rows[i].parent),
                                .port = r.parent.port,
                                .names = r.names,
                                .authorization = STR("Basic eDp5"),
                                .tls = rows[i].parent_tls ? tls : NULL};
        dial(&r, &(struct dial_to){.host = str_of(rows[i].target),
                                   .port = 443,
                                   .parent = &p,
                                   .tls = tls,
                                   .tls_h2 = true});
        until(&r, r.told);
        assert_int_equal(r.why, good ? WHY_OK : WHY_TLS);
        assert_string_equal(r.fault, rows[i].fault);
        if (good) {
            char x[64] = "";
            assert_string_equal(r.verified, "origin.test");
            assert_string_equal(r.alpn, "h2");
            assert_string_equal(SSL_get_servername(r.inner.ssl, 0), "origin.test");
            until(&r, r.inner.up);
            tls_peer_say(&r.inner, "hello", 5);
            until(&r, strcmp(r.got, "hello") == 0);
            buf_str(&r.out, STR("secret"));
            conn_wake(r.conn);
            until(&r, tls_peer_hear(&r.inner, x, sizeof x) == 6);
            assert_string_equal(x, "secret");
        }
        rig_done(&r);
        tls_ctx_unref(tls);
    }
    SSL_CTX_free(outer);
    SSL_CTX_free(inner);
}

static void what_the_parent_is_to_blame_for_is_told_as_such(void **state)
{
    static const struct {
        const char *answer, *fault;
    } rows[] = {
        {"HTTP/1.1 407 No\r\n\r\n", "upstream proxy: refuses to connect"},
        {"SSH-2.0-x\r\n", "upstream proxy: did not answer as one"},
        {NULL, "upstream proxy: cannot be reached"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {0};
        struct tls_ctx *tls = client();
        rig_init(&r, NULL);
        r.answer = rows[i].answer;
        if (!r.answer) {
            close(r.parent.fd);
            r.parent.fd = -1;
        }
        p = (struct dial_parent){.host = STR("127.0.0.1"), .port = r.parent.port, .names = r.names};
        dial(&r, &(struct dial_to){.host = STR("a.test"), .port = 443, .parent = &p, .tls = tls});
        until(&r, r.told);
        assert_int_equal(r.why, WHY_DIAL);
        assert_string_equal(r.fault, rows[i].fault);
        rig_done(&r);
        tls_ctx_unref(tls);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_is_asked_of_the_names_that_are_given),
        cmocka_unit_test(without_names_of_its_own_the_workers_are_asked),
        cmocka_unit_test(an_address_that_is_not_allowed_is_not_called),
        cmocka_unit_test(each_socket_is_prepared_and_without_that_there_is_no_connection),
        cmocka_unit_test(a_parent_is_asked_for_the_host_as_it_stands),
        cmocka_unit_test(the_parents_name_is_asked_of_its_own_names),
        cmocka_unit_test(what_follows_the_answer_is_the_next_owners_and_both_ways_work),
        cmocka_unit_test(an_answer_in_pieces_is_an_answer),
        cmocka_unit_test(whatever_is_no_clean_yes_is_a_no),
        cmocka_unit_test(no_host_and_no_secret_smuggles_a_line_into_the_request),
        cmocka_unit_test(a_silent_parent_is_waited_for_to_the_deadline),
        cmocka_unit_test(a_cancelled_dial_says_nothing_and_hangs_up),
        cmocka_unit_test(a_parent_that_is_not_there_is_told_as_such),
        cmocka_unit_test(a_parent_over_tls_must_prove_itself),
        cmocka_unit_test(a_target_over_tls_proves_its_name_before_the_dial_is_done),
        cmocka_unit_test(what_is_no_tls_is_told_as_such),
        cmocka_unit_test(who_hangs_up_in_the_handshake_ends_the_dial),
        cmocka_unit_test(a_handshake_has_the_dials_deadline_and_can_be_cancelled),
        cmocka_unit_test(inside_a_parents_tunnel_each_side_proves_its_own_name),
        cmocka_unit_test(what_the_parent_is_to_blame_for_is_told_as_such),
    };
    return cmocka_run_group_tests(tests, make_pki, free_pki);
}
