/* conn_tls_test.c — TLS over loopback: the laws of conn.h hold as they do without, what is not
 * whole never looks whole, and nobody gets in or is believed who should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "harness/copies.h"
#include "harness/pki.h"
#include "harness/tls_peer.h"
#include "harness/until.h"
#include "net/conn_impl.h"
#include "net/tls.h"

/* ---- one end of ours */

struct end {
    struct conn *c;
    size_t take;
    char *got;
    size_t got_n, got_room;
    struct buf out;
    unsigned readies, eofs, closeds;
    enum why why;
    bool in_op, drop, secure_at_bytes, close_when_said;
    struct tls_ctx *ctx;
    const struct tls_to *to;
    char alpn[16], sni[256], verified[256];
};

static void keep(char *to, size_t room, struct str s)
{
    assert_true(s.n < room);
    memcpy(to, s.n ? s.p : "", s.n);
    to[s.n] = '\0';
}

static void on_ready(void *user)
{
    struct end *e = user;
    assert_false(e->in_op || e->eofs || e->closeds || e->got_n);
    const struct conn_info *i = conn_info(e->c);
    if (!i->tls) { /* connected */
        conn_secure(e->c, e->ctx, e->to);
        return;
    }
    assert_int_equal(e->readies, 0);
    e->readies++;
    keep(e->alpn, sizeof e->alpn, i->alpn);
    keep(e->sni, sizeof e->sni, i->sni);
    keep(e->verified, sizeof e->verified, i->verified);
}

static void on_bytes(void *user, struct buf *in)
{
    struct end *e = user;
    assert_false(e->in_op || e->eofs || e->closeds);
    assert_true(in->len > 0);
    if (e->secure_at_bytes) { /* what lies there is cipher text */
        e->secure_at_bytes = false;
        conn_secure(e->c, e->ctx, NULL);
        return;
    }
    assert_int_equal(e->readies, 1);
    size_t n = in->len < e->take ? in->len : e->take;
    if (!e->drop) {
        if (e->got_n + n > e->got_room)
            e->got = mem_renew(e->got, e->got_room = 2 * (e->got_n + n));
        buf_peek(in, e->got + e->got_n, n);
    }
    buf_drop(in, n);
    e->got_n += n;
}

static void on_eof(void *user)
{
    struct end *e = user;
    assert_false(e->in_op || e->eofs || e->closeds);
    e->eofs++;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct end *e = user;
    assert_false(e->in_op || e->closeds);
    assert_int_equal(e->readies, 1);
    assert_int_equal(out->len, 0);
    assert_int_equal(conn_unsent(e->c), 0); /* one batch at a time */
    if (e->out.len == 0 && e->close_when_said)
        conn_close(e->c, WHY_OK);
    buf_move(out, &e->out, e->out.len < max ? e->out.len : max);
}

static void on_closed(void *user, enum why why)
{
    struct end *e = user;
    assert_false(e->in_op);
    e->closeds++;
    e->why = why;
}

static const struct conn_events events = {on_ready, on_bytes, on_eof, on_fill, on_closed};

/* ---- certificates of the whole program; made once, since keys take time */

static struct {
    struct pki_cert *root, *other_root, *client, *stranger;
    struct pki_cert *a, *b, *expired, *wild, *partial, *address;
} pki;

static int make_pki(void **state)
{
    (void)state;
    pki.root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    pki.other_root = pki_new(&(struct pki_wish){.cn = "other", .authority = true}, NULL);
    pki.client = pki_new(&(struct pki_wish){.cn = "client"}, pki.root);
    pki.stranger = pki_new(&(struct pki_wish){.cn = "stranger"}, pki.other_root);
    pki.a = pki_new(&(struct pki_wish){.cn = "a", .names = "DNS:a.test"}, pki.root);
    pki.b =
        pki_new(&(struct pki_wish){.cn = "b", .names = "DNS:b.test", .key = PKI_RSA2048}, pki.root);
    pki.expired = pki_new(
        &(struct pki_wish){.cn = "x", .names = "DNS:a.test", .from_s = -7200, .to_s = -3600},
        pki.root);
    pki.wild = pki_new(&(struct pki_wish){.cn = "w", .names = "DNS:*.w.test"}, pki.root);
    pki.partial = pki_new(&(struct pki_wish){.cn = "p", .names = "DNS:x*.w.test"}, pki.root);
    pki.address = pki_new(&(struct pki_wish){.cn = "i", .names = "IP:127.0.0.1,IP:::1"}, pki.root);
    return 0;
}

static int free_pki(void **state)
{
    (void)state;
    struct pki_cert *all[] = {pki.root, pki.other_root, pki.client, pki.stranger, pki.a,
                              pki.b,    pki.expired,    pki.wild,   pki.partial,  pki.address};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pki_free(all[i]);
    return 0;
}

/* ---- contexts */

/* b.test has a certificate of its own, no.test has none, all others get the first. */
struct names {
    struct tls_leaf *first, *b;
    unsigned drops;
};

static struct tls_leaf *leaf_of(const struct pki_cert *c)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_leaf *l = tls_leaf_new(str_of(c->pem), str_of(c->key_pem), &a, &error);
    assert_non_null(l);
    arena_done(&a);
    return l;
}

static struct tls_leaf *find_leaf(void *user, struct str sni)
{
    struct names *n = user;
    for (size_t i = 0; i < sni.n; i++)
        assert_true(sni.p[i] == ascii_lower(sni.p[i]) && sni.p[i] != '\0');
    if (str_eq(sni, STR("no.test")))
        return NULL;
    return str_eq(sni, STR("b.test")) ? n->b : n->first;
}

static void drop_names(void *user)
{
    struct names *n = user;
    tls_leaf_unref(n->first);
    tls_leaf_unref(n->b);
    mem_free(n);
}

struct wish {
    const struct pki_cert *leaf; /* NULL: a */
    const struct pki_cert *client_ca;
    struct tls_tickets *tickets;
    bool no_h2, wipe;
};

static struct tls_ctx *server_ctx(const struct wish *w)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct names *n = mem_new(sizeof *n);
    n->first = leaf_of(w->leaf ? w->leaf : pki.a);
    n->b = leaf_of(pki.b);
    struct tls_server_rules rules = {.names = {find_leaf, drop_names, n},
                                     .tickets = w->tickets,
                                     .h2 = !w->no_h2,
                                     .wipe = w->wipe,
                                     .client_ca_pem =
                                         str_of(w->client_ca ? w->client_ca->pem : NULL)};
    struct tls_ctx *ctx = tls_server_new(&rules, &a, &error);
    assert_non_null(ctx);
    arena_done(&a);
    return ctx;
}

static struct tls_ctx *client_that(const struct pki_cert *root, bool wipes)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_client_rules rules = {.insecure = !root, .wipe = wipes};
    if (root)
        rules.roots_pem = str_of(root->pem);
    struct tls_ctx *ctx = tls_client_new(&rules, &a, &error);
    assert_non_null(ctx);
    arena_done(&a);
    return ctx;
}

static struct tls_ctx *client_ctx(const struct pki_cert *root)
{
    return client_that(root, false);
}

/* ---- the loop: one end of ours and a peer of OpenSSL's, or two ends of ours */

struct bench {
    struct worker *w;
    struct end s, c;   /* server, client */
    struct tls_peer p; /* in place of one of them */
    SSL_CTX *peer_ctx;
    size_t most; /* bytes in chunks at any time */
};

static int listening(union addr *ret)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof *ret;
    memset(ret, 0, sizeof *ret);
    ret->sa.sa_family = AF_INET;
    ret->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, &ret->sa, sizeof ret->v4), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, &ret->sa, &n), 0);
    return fd;
}

static void turn(struct bench *b)
{
    worker_turn(b->w);
    if (b->p.ssl)
        tls_peer_turn(&b->p);
    size_t used = chunk_pool_used(worker_pool(b->w));
    b->most = used > b->most ? used : b->most;
    poll(NULL, 0, 1);
}

static void some_turns(struct bench *b)
{
    for (int i = 0; i < 20; i++)
        turn(b);
}

static void start(struct bench *b)
{
    *b = (struct bench){.w = worker_new(0)};
    struct end *ends[] = {&b->s, &b->c};
    for (int i = 0; i < 2; i++) {
        ends[i]->take = SIZE_MAX;
        buf_init(&ends[i]->out, worker_pool(b->w));
    }
}

static void attach_server(struct bench *b, int fd, const union addr *from, struct tls_ctx *ctx)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    b->s.c = conn_accept(b->w, fd, &from->sa, 443, NULL, false);
    assert_non_null(b->s.c);
    conn_attach(b->s.c, &events, &b->s);
    conn_secure(b->s.c, ctx, NULL);
}

/* Ours is the server. */
static void with_client(struct bench *b, struct tls_ctx *ctx)
{
    union addr at;
    int l = listening(&at), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &at.sa, sizeof at.v4), 0);
    attach_server(b, accept4(l, NULL, NULL, SOCK_CLOEXEC), &at, ctx);
    close(l);
    if (!b->peer_ctx)
        b->peer_ctx = SSL_CTX_new(TLS_client_method());
    tls_peer_init(&b->p, b->peer_ctx, fd, false);
}

static void connect_client(struct bench *b, const union addr *at, struct tls_ctx *ctx,
                           const struct tls_to *to)
{
    int err = 0;
    b->c.ctx = ctx;
    b->c.to = to;
    b->c.c = conn_connect(b->w, &at->sa, &events, &b->c, &err);
    assert_non_null(b->c.c);
}

/* Ours is the client. */
static void with_server(struct bench *b, struct tls_ctx *ctx, const struct tls_to *to,
                        SSL_CTX *peer_ctx)
{
    union addr at;
    int l = listening(&at);
    b->peer_ctx = peer_ctx;
    connect_client(b, &at, ctx, to);
    int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    close(l);
    tls_peer_init(&b->p, peer_ctx, fd, true);
}

/* Both are ours. */
static void with_ours(struct bench *b, struct tls_ctx *server, struct tls_ctx *client,
                      const struct tls_to *to)
{
    union addr at;
    int l = listening(&at);
    connect_client(b, &at, client, to);
    attach_server(b, accept4(l, NULL, NULL, SOCK_CLOEXEC), &at, server);
    close(l);
}

static void finish_end(struct bench *b, struct end *e)
{
    if (e->c && !e->closeds)
        conn_close(e->c, WHY_DRAIN);
    until(b, !e->c || e->closeds > 0);
    for (int i = 0; i < 3; i++)
        worker_turn(b->w);
    assert_int_equal(e->closeds, e->c ? 1 : 0);
    buf_clear(&e->out);
    mem_free(e->got);
}

static void finish(struct bench *b)
{
    finish_end(b, &b->s);
    finish_end(b, &b->c);
    if (b->p.ssl)
        tls_peer_done(&b->p);
    SSL_CTX_free(b->peer_ctx);
    worker_free(b->w);
}

static void say(struct end *e, const void *p, size_t n)
{
    buf_write(&e->out, p, n);
    e->in_op = true;
    conn_wake(e->c);
    e->in_op = false;
}

static bool heard(struct end *e, const char *text)
{
    return e->got_n == strlen(text) && (e->got_n == 0 || memcmp(e->got, text, e->got_n) == 0);
}

static const struct tls_to to_a = {.name = {"a.test", 6}, .alpn = {"h2", "http/1.1"}};

/* ---- handshakes */

static void both_roles_shake_hands_and_talk(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *server = server_ctx(&(struct wish){0}), *client = client_ctx(pki.root);
    start(&b);
    buf_write(&b.c.out, "early", 5); /* waits until TLS is up */
    with_ours(&b, server, client, &to_a);
    until(&b, b.s.readies && b.c.readies);
    tls_ctx_unref(server); /* the connections hold them */
    tls_ctx_unref(client);
    assert_string_equal(b.s.alpn, "h2");
    assert_string_equal(b.c.alpn, "h2");
    assert_string_equal(b.s.sni, "a.test");
    assert_string_equal(b.s.verified, "");
    assert_string_equal(b.c.verified, "a.test");
    assert_true(conn_info(b.s.c)->tls && conn_info(b.c.c)->tls);
    until(&b, heard(&b.s, "early"));
    say(&b.s, "there", 5);
    until(&b, heard(&b.c, "there"));
    conn_close(b.c.c, WHY_OK);
    until(&b, b.s.eofs == 1);
    finish(&b);
}

static void alpn_chooses_h2_then_http_1_1_or_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *offer; /* wire form */
        bool no_h2;
        const char *chosen; /* NULL: refused */
    } rows[] = {
        {"\x02h2\x08http/1.1", false, "h2"},
        {"\x08http/1.1\x02h2", false, "h2"},
        {"\x08http/1.1", false, "http/1.1"},
        {"\x02h2", false, "h2"},
        {"", false, ""},
        {"\x03"
         "foo",
         false, NULL},
        {"\x02h3\x03h2c", false, NULL},
        {"\x02h2\x08http/1.1", true, "http/1.1"},
        {"\x02h2", true, NULL},
        {"\x03"
         "foo\x08http/1.1",
         true, "http/1.1"},
        {"", true, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        struct tls_ctx *ctx = server_ctx(&(struct wish){.no_h2 = rows[i].no_h2});
        start(&b);
        with_client(&b, ctx);
        SSL_set_alpn_protos(b.p.ssl, (const uint8_t *)rows[i].offer,
                            (unsigned)strlen(rows[i].offer));
        if (rows[i].chosen) {
            until(&b, b.s.readies && b.p.up);
            assert_string_equal(b.s.alpn, rows[i].chosen);
        } else {
            until(&b, b.s.closeds && b.p.error);
            assert_int_equal(b.s.why, WHY_TLS);
            assert_int_equal(b.p.reason, SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
        }
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void the_certificate_follows_the_name(void **state)
{
    (void)state;
    static const struct {
        const char *ask, *sni, *cn; /* cn NULL: refused */
    } rows[] = {
        {"a.test", "a.test", "a"},  {"B.TeSt", "b.test", "b"},         {NULL, "", "a"},
        {"b.test.", "b.test", "b"}, {"x_1-2.test", "x_1-2.test", "a"}, {"no.test", NULL, NULL},
        {"a b.test", NULL, NULL},   {"a..test", NULL, NULL},           {".test", NULL, NULL},
        {"a.test:443", NULL, NULL}, {"\xc3\xa9.test", NULL, NULL},     {"*.test", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct bench b;
            char cn[16];
            struct tls_ctx *ctx = server_ctx(&(struct wish){0});
            start(&b);
            with_client(&b, ctx);
            SSL_set_max_proto_version(b.p.ssl, version);
            if (rows[i].ask)
                SSL_set_tlsext_host_name(b.p.ssl, rows[i].ask);
            if (rows[i].cn) {
                until(&b, b.s.readies && b.p.up);
                assert_string_equal(b.s.sni, rows[i].sni);
                X509_NAME_get_text_by_NID(X509_get_subject_name(SSL_get0_peer_certificate(b.p.ssl)),
                                          NID_commonName, cn, sizeof cn);
                assert_string_equal(cn, rows[i].cn);
            } else {
                until(&b, b.s.closeds && b.p.error);
                assert_int_equal(b.s.why, WHY_TLS);
                assert_int_equal(b.p.reason, SSL_R_TLSV1_UNRECOGNIZED_NAME);
            }
            finish(&b);
            tls_ctx_unref(ctx);
        }
}

/* The peer's hello, with one text in it replaced. */
static void send_changed_hello(struct bench *b, const char *from, const char *to, size_t n)
{
    char *bytes;
    SSL_do_handshake(b->p.ssl);
    long len = BIO_get_mem_data(b->p.to_us, &bytes);
    char *at = memmem(bytes, (size_t)len, from, n);
    assert_non_null(at);
    memcpy(at, to, n);
}

static void a_name_with_a_zero_byte_is_refused(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx = server_ctx(&(struct wish){0});
    start(&b);
    with_client(&b, ctx);
    SSL_set_tlsext_host_name(b.p.ssl, "a.test-b.test");
    send_changed_hello(&b, "a.test-b.test", "a.test\0b.test", 13);
    until(&b, b.s.closeds && b.p.error);
    assert_int_equal(b.s.why, WHY_TLS);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void a_broken_list_of_names_is_refused(void **state)
{
    (void)state;
    static const char whole[] = "\0\0\0\x0b\0\x09\0\0\x06"
                                "a.test";
    static const char *const broken[] = {
        "\0\0\0\x0b\0\x08\0\0\x06"
        "a.test", /* the list is longer than it says */
        "\0\0\0\x0b\0\x0a\0\0\x06"
        "a.test", /* and shorter */
        "\0\0\0\x0b\0\x09\1\0\x06"
        "a.test", /* no host name */
        "\0\0\0\x0b\0\x09\0\0\x05"
        "a.test", /* something behind the name */
        "\0\0\0\x0b\0\x09\0\0\x07"
        "a.test",
        "\0\0\0\x0b\0\x09\0\xff\xff"
        "a.test",
        "\0\0\0\x0b\0\x09\0\0\0"
        "a.test",
        "\0\0\0\x0b\0\x09\0\0\1"
        "a\0\0\1b?", /* a second name */
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct bench b;
        struct tls_ctx *ctx = server_ctx(&(struct wish){0});
        start(&b);
        with_client(&b, ctx);
        SSL_set_tlsext_host_name(b.p.ssl, "a.test");
        send_changed_hello(&b, whole, broken[i], sizeof whole - 1);
        until(&b, b.s.closeds && b.p.error);
        assert_int_equal(b.s.why, WHY_TLS);
        assert_int_equal(b.p.reason, SSL_R_TLSV1_ALERT_DECODE_ERROR);
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void a_hello_in_pieces_is_a_hello(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 6; piece += 2) {
        struct bench b;
        struct tls_ctx *ctx = server_ctx(&(struct wish){0});
        start(&b);
        with_client(&b, ctx);
        b.p.trickle = piece;
        until(&b, b.s.readies && b.p.up);
        b.p.trickle = 0;
        tls_peer_say(&b.p, "hello", 5);
        until(&b, heard(&b.s, "hello"));
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void bytes_read_before_are_cipher_text(void **state)
{
    (void)state;
    struct bench b;
    union addr at;
    struct tls_ctx *ctx = server_ctx(&(struct wish){0});
    start(&b);
    int l = listening(&at), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &at.sa, sizeof at.v4), 0);
    int ours = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    close(l);
    b.s.c = conn_accept(b.w, ours, &at.sa, 443, NULL, false);
    b.s.secure_at_bytes = true;
    b.s.ctx = ctx;
    conn_attach(b.s.c, &events, &b.s);
    b.peer_ctx = SSL_CTX_new(TLS_client_method());
    tls_peer_init(&b.p, b.peer_ctx, fd, false);
    until(&b, b.s.readies && b.p.up);
    tls_peer_say(&b.p, "hello", 5);
    until(&b, heard(&b.s, "hello"));
    finish(&b);
    tls_ctx_unref(ctx);
}

static void what_is_no_handshake_is_closed_as_such(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
        {"GET / HTTP/1.1\r\nhost: a\r\n\r\n", 27},
        {"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10},
        {"\x16\x03\x01\xff\xff\x01\x00\x00\x01\x00", 10},
        {"\x17\x03\x03\x00\x01\x00", 6},
        {"\x15\x03\x01\x00\x02\x02\x28", 7}, /* an alert: the peer gives up */
        {"\x80\x0b\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00", 13}, /* SSL 2 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        struct tls_ctx *ctx = server_ctx(&(struct wish){0});
        start(&b);
        with_client(&b, ctx);
        b.p.error = 1; /* says nothing by itself */
        assert_int_equal(send(b.p.fd, rows[i].bytes, rows[i].n, 0), rows[i].n);
        if (i == 1)
            shutdown(b.p.fd, SHUT_WR);
        until(&b, b.s.closeds);
        assert_true(b.s.why == WHY_TLS || (i == 1 && b.s.why == WHY_CLIENT_GONE));
        assert_int_equal(b.s.readies, 0);
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void a_peer_that_leaves_in_the_handshake_is_gone(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx = server_ctx(&(struct wish){0});
    start(&b);
    with_client(&b, ctx);
    b.p.error = 1;
    shutdown(b.p.fd, SHUT_WR);
    until(&b, b.s.closeds);
    assert_int_equal(b.s.why, WHY_CLIENT_GONE);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void old_versions_and_weak_ciphers_are_refused(void **state)
{
    (void)state;
    static const struct {
        int version;
        const char *ciphers;
        bool good;
    } rows[] = {
        {TLS1_1_VERSION, "ALL@SECLEVEL=0", false},
        {TLS1_2_VERSION, "AES128-SHA", false},
        {TLS1_2_VERSION, "AES128-GCM-SHA256", false},         /* no forward secrecy */
        {TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA256", false}, /* no AEAD */
        {TLS1_2_VERSION, "ECDHE-ECDSA-AES128-GCM-SHA256", true},
        {TLS1_2_VERSION, "ECDHE-ECDSA-CHACHA20-POLY1305", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        struct tls_ctx *ctx = server_ctx(&(struct wish){0});
        start(&b);
        b.peer_ctx = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_min_proto_version(b.peer_ctx, 0);
        SSL_CTX_set_max_proto_version(b.peer_ctx, rows[i].version);
        assert_int_equal(SSL_CTX_set_cipher_list(b.peer_ctx, rows[i].ciphers), 1);
        with_client(&b, ctx);
        until(&b, rows[i].good ? b.s.readies : b.s.closeds);
        assert_int_equal(b.s.readies, rows[i].good);
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

/* ---- who the peer is */

static void a_client_believes_only_who_is_proved(void **state)
{
    (void)state;
    const struct {
        const struct pki_cert *leaf, *root; /* root NULL: no verification */
        const char *name;
        const char *verified; /* NULL: refused */
    } rows[] = {
        {pki.a, pki.root, "a.test", "a.test"},
        {pki.a, pki.root, "A.test.", "a.test"},
        {pki.a, pki.other_root, "a.test", NULL},
        {pki.expired, pki.root, "a.test", NULL},
        {pki.a, pki.root, "c.test", NULL},
        {pki.a, pki.root, "127.0.0.1", NULL},
        {pki.wild, pki.root, "x.w.test", "x.w.test"},
        {pki.wild, pki.root, "w.test", NULL},
        {pki.wild, pki.root, "x.y.w.test", NULL},
        {pki.partial, pki.root, "xyz.w.test", NULL},
        {pki.address, pki.root, "127.0.0.1", "127.0.0.1"},
        {pki.address, pki.root, "[::1]", "::1"},
        {pki.address, pki.root, "127.0.0.2", NULL},
        {pki.address, pki.root, "i", NULL},
        {pki.a, pki.root, "a.test\0", "a.test"},
        {pki.a, pki.root, "", NULL},
        {pki.expired, NULL, "other.test", ""},
        {pki.a, NULL, "", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        struct tls_ctx *server = server_ctx(&(struct wish){.leaf = rows[i].leaf});
        struct tls_ctx *client = client_ctx(rows[i].root);
        start(&b);
        struct tls_to to = {.name = str_of(rows[i].name), .alpn = {"http/1.1"}};
        with_ours(&b, server, client, &to);
        until(&b, rows[i].verified ? b.c.readies : b.c.closeds);
        assert_int_equal(b.c.readies, rows[i].verified != NULL);
        if (rows[i].verified) {
            assert_string_equal(b.c.verified, rows[i].verified);
            assert_string_equal(b.c.alpn, "http/1.1");
        } else {
            assert_int_equal(b.c.why, WHY_TLS);
            until(&b, b.s.closeds || b.s.readies); /* hears of it */
        }
        finish(&b);
        tls_ctx_unref(server);
        tls_ctx_unref(client);
    }
}

static void a_name_with_a_zero_byte_is_nobody(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *server = server_ctx(&(struct wish){0}), *client = client_ctx(pki.root);
    start(&b);
    struct tls_to to = {.name = {"a.test\0.evil.test", 17}};
    with_ours(&b, server, client, &to);
    until(&b, b.c.closeds && b.s.closeds);
    assert_int_equal(b.c.why, WHY_TLS);
    finish(&b);
    tls_ctx_unref(server);
    tls_ctx_unref(client);
}

static void use_cert(SSL_CTX *ctx, const struct pki_cert *c)
{
    assert_int_equal(SSL_CTX_use_cert_and_key(ctx, c->cert, c->key, NULL, 1), 1);
}

static void clients_without_a_certificate_of_ours_stay_outside(void **state)
{
    (void)state;
    const struct {
        const struct pki_cert *cert;
        bool good;
    } rows[] = {{NULL, false}, {pki.stranger, false}, {pki.client, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct bench b;
            struct tls_ctx *ctx = server_ctx(&(struct wish){.client_ca = pki.root});
            start(&b);
            b.peer_ctx = SSL_CTX_new(TLS_client_method());
            SSL_CTX_set_max_proto_version(b.peer_ctx, version);
            if (rows[i].cert)
                use_cert(b.peer_ctx, rows[i].cert);
            with_client(&b, ctx);
            until(&b, rows[i].good ? b.s.readies : b.s.closeds);
            assert_int_equal(b.s.readies, rows[i].good);
            if (!rows[i].good) {
                char x[4];
                assert_int_equal(b.s.why, WHY_TLS);
                until(&b, tls_peer_hear(&b.p, x, sizeof x) == -2); /* the alert came */
                assert_int_equal(b.p.error, SSL_ERROR_SSL);
            }
            finish(&b);
            tls_ctx_unref(ctx);
        }
}

static void a_server_that_asks_is_shown_our_certificate(void **state)
{
    (void)state;
    const struct {
        const struct pki_cert *own;
        bool good;
    } rows[] = {{NULL, false}, {pki.stranger, false}, {pki.client, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        struct arena a;
        struct str error;
        arena_init(&a, NULL, 0);
        struct tls_ctx *server = server_ctx(&(struct wish){.client_ca = pki.root});
        struct tls_client_rules rules = {.roots_pem = str_of(pki.root->pem)};
        rules.cert_pem = str_of(rows[i].own ? rows[i].own->pem : NULL);
        rules.key_pem = str_of(rows[i].own ? rows[i].own->key_pem : NULL);
        struct tls_ctx *client = tls_client_new(&rules, &a, &error);
        assert_non_null(client);
        start(&b);
        with_ours(&b, server, client, &to_a);
        until(&b, rows[i].good ? b.s.readies && b.c.readies : b.s.closeds && b.c.closeds);
        assert_int_equal(b.s.readies, rows[i].good);
        finish(&b);
        tls_ctx_unref(server);
        tls_ctx_unref(client);
        arena_done(&a);
    }
}

/* ---- resumption */

struct visit {
    struct tls_ctx *ctx;
    const char *name;
    const struct pki_cert *cert;
    int version;
};

/* One connection with *session, if there is one; the new session takes its place.  True: resumed.
 */
static bool visit(const struct visit *v, SSL_SESSION **session)
{
    struct bench b;
    char x[4];
    start(&b);
    b.peer_ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(b.peer_ctx, v->version);
    if (v->cert)
        use_cert(b.peer_ctx, v->cert);
    with_client(&b, v->ctx);
    SSL_set_tlsext_host_name(b.p.ssl, v->name);
    if (*session)
        assert_int_equal(SSL_set_session(b.p.ssl, *session), 1);
    until(&b, b.s.readies && b.p.up);
    say(&b.s, "hi", 2);
    int n = 0;
    until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
    assert_int_equal(n, 2);
    bool resumed = SSL_session_reused(b.p.ssl);
    SSL_SESSION_free(*session);
    *session = SSL_get1_session(b.p.ssl);
    SSL_set_shutdown(b.p.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    finish(&b);
    return resumed;
}

static struct tls_tickets *tickets_of(uint8_t seed)
{
    uint8_t bytes[80];
    char text[120];
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(seed + i);
    size_t n = text_put_base64(text, bytes, sizeof bytes);
    struct tls_tickets *t = tls_tickets_parse((struct str){text, n}, &a, &error);
    assert_non_null(t);
    arena_done(&a);
    return t;
}

static void a_ticket_is_good_where_it_should_be_and_nowhere_else(void **state)
{
    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct tls_tickets *x = tickets_of(1), *same = tickets_of(1), *other = tickets_of(2);
        struct tls_ctx *first = server_ctx(&(struct wish){.tickets = x});
        struct tls_ctx *reloaded = server_ctx(&(struct wish){.tickets = x, .leaf = pki.wild});
        struct tls_ctx *replica = server_ctx(&(struct wish){.tickets = same});
        struct tls_ctx *stranger = server_ctx(&(struct wish){.tickets = other});
        struct tls_ctx *strict = server_ctx(&(struct wish){.tickets = x, .client_ca = pki.root});
        struct tls_ctx *other_ca =
            server_ctx(&(struct wish){.tickets = x, .client_ca = pki.other_root});
        struct tls_ctx *none = server_ctx(&(struct wish){0});
        const struct {
            struct tls_ctx *from;
            const char *from_name;
            struct tls_ctx *to;
            const char *to_name;
            bool good;
        } rows[] = {
            {first, "a.test", first, "a.test", true},
            {first, "a.test", reloaded, "a.test", true},
            {first, "a.test", replica, "a.test", true},
            {first, "A.test", replica, "a.TEST", true},
            {first, "a.test", stranger, "a.test", false},
            {first, "a.test", first, "b.test", false},
            {first, "b.test", first, "a.test", false},
            {first, "a.test", strict, "a.test", false},
            {strict, "a.test", strict, "a.test", true},
            {strict, "a.test", first, "a.test", false},
            {none, "a.test", none, "a.test", false},
            {first, "a.test", none, "a.test", false},
        };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            SSL_SESSION *s = NULL;
            struct visit v = {rows[i].from, rows[i].from_name, pki.client, version};
            assert_false(visit(&v, &s));
            v.ctx = rows[i].to;
            v.name = rows[i].to_name;
            assert_int_equal(SSL_SESSION_has_ticket(s), rows[i].from != none);
            assert_int_equal(visit(&v, &s), rows[i].good);
            SSL_SESSION_free(s);
        }
        struct tls_ctx *all[] = {first, reloaded, replica, stranger, strict, other_ca, none};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            tls_ctx_unref(all[i]);
        tls_tickets_unref(x);
        tls_tickets_unref(same);
        tls_tickets_unref(other);
    }
}

static void a_ticket_outlives_two_turns_of_the_keys_and_is_renewed(void **state)
{
    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct tls_tickets *t = tls_tickets_new();
        struct tls_ctx *ctx = server_ctx(&(struct wish){.tickets = t});
        struct visit v = {ctx, "a.test", NULL, version};
        SSL_SESSION *s = NULL, *old;
        assert_false(visit(&v, &s));
        old = SSL_SESSION_dup(s);
        for (int i = 0; i < 4; i++) { /* each visit renews it */
            tls_tickets_turn(t);
            assert_true(visit(&v, &s));
        }
        assert_false(visit(&v, &old)); /* this one was not */
        SSL_SESSION_free(s);
        SSL_SESSION_free(old);
        tls_ctx_unref(ctx);
        tls_tickets_unref(t);
    }
}

/* RFC 8446 appendix C.4: a client uses it once. */
static void a_client_of_1_3_that_has_used_its_ticket_gets_another(void **state)
{
    (void)state;
    struct tls_tickets *t = tls_tickets_new();
    struct tls_ctx *ctx = server_ctx(&(struct wish){.tickets = t});
    struct visit v = {ctx, "a.test", NULL, TLS1_3_VERSION};
    SSL_SESSION *s = NULL;
    uint8_t first[1024];
    const uint8_t *ticket;
    size_t n, first_n;
    assert_false(visit(&v, &s));
    SSL_SESSION_get0_ticket(s, &ticket, &first_n);
    assert_true(first_n <= sizeof first);
    memcpy(first, ticket, first_n);
    assert_true(visit(&v, &s));
    SSL_SESSION_get0_ticket(s, &ticket, &n);
    assert_true(n != first_n || memcmp(ticket, first, n) != 0);
    assert_true(visit(&v, &s));
    SSL_SESSION_free(s);
    tls_ctx_unref(ctx);
    tls_tickets_unref(t);
}

/* A client that writes its last message and its request apart waits in between for a packet of ours
 * (Nagle): for as long as our kernel delays acknowledgements, if we had nothing to say. */
static void the_ticket_leaves_with_the_handshake(void **state)
{
    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct bench b;
        struct tls_tickets *t = tls_tickets_new();
        struct tls_ctx *ctx = server_ctx(&(struct wish){.tickets = t});
        char x[4];
        start(&b);
        with_client(&b, ctx);
        SSL_set_max_proto_version(b.p.ssl, version);
        until(&b, b.s.readies && b.p.up);
        until(&b, tls_peer_hear(&b.p, x, sizeof x) == 0 &&
                      SSL_SESSION_has_ticket(SSL_get0_session(b.p.ssl)));
        assert_true(b.p.records <= 1); /* one, of 1.3 */
        finish(&b);
        tls_ctx_unref(ctx);
        tls_tickets_unref(t);
    }
}

/* ---- ends */

static void connected(struct bench *b, struct tls_ctx **ret_ctx)
{
    *ret_ctx = server_ctx(&(struct wish){0});
    start(b);
    with_client(b, *ret_ctx);
    until(b, b->s.readies && b->p.up);
}

/* With tickets, which OpenSSL reads between records of data. */
static void who_wipes_talks_as_well(void **state)
{
    (void)state;
    struct bench b;
    struct tls_tickets *tickets = tickets_of(1);
    struct tls_ctx *server = server_ctx(&(struct wish){.wipe = true, .tickets = tickets});
    struct tls_ctx *client = client_that(pki.root, true);
    start(&b);
    with_ours(&b, server, client, &to_a);
    until(&b, b.s.readies && b.c.readies);
    for (size_t n = 5; n <= 15; n += 5) {
        say(&b.c, "hello", 5);
        until(&b, b.s.got_n == n);
        say(&b.s, "there", 5);
        until(&b, b.c.got_n == n);
    }
    assert_true(heard(&b.s, "hellohellohello"));
    assert_true(heard(&b.c, "theretherethere"));
    finish(&b);
    tls_ctx_unref(server);
    tls_ctx_unref(client);
    tls_tickets_unref(tickets);
}

static void say_often(struct end *e, struct str text, size_t n)
{
    enum { EACH = 1000 };
    char *block = mem_new(n);
    for (size_t at = 0; at + text.n <= n; at += EACH)
        memcpy(block + at, text.p, text.n);
    say(e, block, n);
    mem_free_wiped(block);
}

/* OpenSSL's buffers are wiped once a batch: nothing of it is left in them either, whether it was
 * taken or not. */
static void of_bulk_that_is_wiped_nothing_is_left(void **state)
{
    (void)state;
    enum { TIMES = 8, EACH = 190000 /* one batch */ };
    struct bench b;
    struct tls_ctx *server = server_ctx(&(struct wish){.wipe = true});
    struct tls_ctx *client = client_that(pki.root, true);
    struct secret *text = copies_unmask(STR("\x3f\x31\x2d\x79\x3b\x32\x79\x39\x2d\x79\x32\x26"));
    start(&b);
    worker_private(b.w);
    with_ours(&b, server, client, &to_a);
    until(&b, b.s.readies && b.c.readies);
    conn_bulk(b.c.c, true);
    b.c.drop = true;
    for (size_t n = 1; n <= TIMES; n++) {
        say_often(&b.s, secret_bytes(text), EACH);
        until(&b, b.c.got_n == n * EACH);
        some_turns(&b);
        assert_int_equal(copies_count(text), 0);
    }
    b.c.take = 0;
    say_often(&b.s, secret_bytes(text), EACH);
    until(&b, conn_untaken(b.c.c) >= CHUNK_BULK_BYTES);
    assert_true(copies_count(text) > 0);
    conn_close(b.c.c, WHY_DRAIN);
    until(&b, b.c.closeds > 0);
    assert_int_equal(copies_count(text), 0);
    finish(&b);
    secret_unref(text);
    tls_ctx_unref(server);
    tls_ctx_unref(client);
}

static void half_close_works_both_ways(void **state)
{
    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++)
        for (int first = 0; first < 2; first++) {
            struct bench b;
            char x[8];
            struct tls_ctx *ctx = server_ctx(&(struct wish){0});
            start(&b);
            with_client(&b, ctx);
            SSL_set_max_proto_version(b.p.ssl, version);
            until(&b, b.s.readies && b.p.up);
            if (first == 0) { /* the peer ends first, we go on */
                tls_peer_say(&b.p, "hello", 5);
                SSL_shutdown(b.p.ssl);
                until(&b, b.s.eofs == 1);
                assert_true(heard(&b.s, "hello"));
                say(&b.s, "bye", 3);
                int n = 0;
                until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
                assert_int_equal(n, 3);
                assert_int_equal(b.s.closeds, 0);
            } else { /* we end first, the peer goes on */
                buf_write(&b.s.out, "bye", 3);
                conn_finish(b.s.c);
                int n = 0;
                until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
                assert_int_equal(n, 3);
                until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
                assert_int_equal(n, -1);
                until(&b, b.p.eof);
                tls_peer_say(&b.p, "hello", 5);
                until(&b, heard(&b.s, "hello"));
                SSL_shutdown(b.p.ssl);
                until(&b, b.s.eofs == 1);
            }
            finish(&b);
            tls_ctx_unref(ctx);
        }
}

static void a_fin_without_close_notify_is_a_loss(void **state)
{
    (void)state;
    for (int bytes = 0; bytes < 2; bytes++) {
        struct bench b;
        struct tls_ctx *ctx;
        connected(&b, &ctx);
        if (bytes)
            tls_peer_say(&b.p, "hello", 5);
        tls_peer_turn(&b.p);
        shutdown(b.p.fd, SHUT_WR);
        until(&b, b.s.closeds);
        assert_int_equal(b.s.why, WHY_CLIENT_GONE);
        assert_int_equal(b.s.eofs, 0);
        assert_true(heard(&b.s, bytes ? "hello" : "")); /* what was whole came */
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static SSL_CTX *plain_server(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    use_cert(ctx, pki.a);
    return ctx;
}

static void a_client_holds_its_server_to_the_same(void **state)
{
    (void)state;
    for (int notify = 0; notify < 2; notify++) {
        struct bench b;
        struct tls_ctx *ctx = client_ctx(pki.root);
        start(&b);
        with_server(&b, ctx, &to_a, plain_server());
        until(&b, b.c.readies && b.p.up);
        assert_string_equal(b.c.alpn, "");
        tls_peer_say(&b.p, "hello", 5);
        if (notify)
            SSL_shutdown(b.p.ssl);
        tls_peer_turn(&b.p);
        shutdown(b.p.fd, SHUT_WR);
        until(&b, notify ? b.c.eofs : b.c.closeds);
        assert_true(heard(&b.c, "hello"));
        if (!notify)
            assert_int_equal(b.c.why, WHY_ORIGIN_GONE);
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void a_server_that_speaks_no_tls_is_no_server(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx = client_ctx(pki.root);
    start(&b);
    with_server(&b, ctx, &to_a, plain_server());
    b.p.error = 1;
    assert_int_equal(send(b.p.fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, 0), 28);
    until(&b, b.c.closeds);
    assert_int_equal(b.c.why, WHY_TLS);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void half_a_record_never_counts(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    char *bytes;
    connected(&b, &ctx);
    tls_peer_say(&b.p, "hello", 5);
    long n = BIO_get_mem_data(b.p.to_us, &bytes);
    assert_int_equal(send(b.p.fd, bytes, (size_t)n - 1, 0), n - 1);
    BIO_reset(b.p.to_us);
    some_turns(&b);
    shutdown(b.p.fd, SHUT_WR);
    until(&b, b.s.closeds);
    assert_int_equal(b.s.got_n, 0);
    assert_int_equal(b.s.eofs, 0);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void a_changed_byte_ends_the_connection(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    char *bytes, x[4];
    connected(&b, &ctx);
    tls_peer_say(&b.p, "hello", 5);
    long n = BIO_get_mem_data(b.p.to_us, &bytes);
    bytes[n - 1] ^= 1;
    until(&b, b.s.closeds);
    assert_int_equal(b.s.why, WHY_CLIENT_GONE);
    assert_int_equal(b.s.got_n, 0);
    until(&b, tls_peer_hear(&b.p, x, sizeof x) == -2); /* it is told, by an alert */
    assert_int_equal(b.p.error, SSL_ERROR_SSL);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void nothing_counts_after_close_notify(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    connected(&b, &ctx);
    tls_peer_say(&b.p, "hello", 5);
    SSL_shutdown(b.p.ssl);
    BIO_write(b.p.to_us, "junk junk junk", 14);
    until(&b, b.s.eofs == 1);
    assert_int_equal(send(b.p.fd, "more of it", 10, 0), 10);
    some_turns(&b);
    assert_true(heard(&b.s, "hello"));
    assert_int_equal(b.s.closeds, 0);
    say(&b.s, "bye", 3);
    char x[4];
    int n = 0;
    until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
    assert_int_equal(n, 3);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void only_a_good_end_says_close_notify(void **state)
{
    (void)state;
    static const enum why whys[] = {WHY_OK, WHY_ORIGIN_GONE, WHY_DEADLINE, WHY_DRAIN};
    for (size_t i = 0; i < sizeof whys / sizeof *whys; i++)
        for (int reset = 0; reset < 2; reset++) {
            struct bench b;
            struct tls_ctx *ctx;
            char x[8];
            int n = 0;
            connected(&b, &ctx);
            say(&b.s, "bye", 3);
            until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
            if (reset)
                conn_reset(b.s.c, whys[i]);
            else
                conn_close(b.s.c, whys[i]);
            until(&b, b.s.closeds);
            until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0 || b.p.eof || b.p.lost);
            assert_int_equal(n, whys[i] == WHY_OK && !reset ? -1 : 0);
            finish(&b);
            tls_ctx_unref(ctx);
        }
}

static void a_close_from_fill_says_close_notify_behind_everything(void **state)
{
    (void)state;
    for (int finished = 0; finished < 2; finished++) {
        struct bench b;
        struct tls_ctx *ctx;
        char x[8];
        int n = 0;
        connected(&b, &ctx);
        b.s.close_when_said = true;
        say(&b.s, "bye", 3);
        if (finished)
            conn_finish(b.s.c);
        until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
        assert_int_equal(n, 3);
        until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
        assert_int_equal(n, -1);
        until(&b, b.p.eof);
        assert_int_equal(b.s.why, WHY_OK);
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void finish_in_the_handshake_waits_for_its_end(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx = server_ctx(&(struct wish){0});
    char x[4];
    int n = 0;
    start(&b);
    with_client(&b, ctx);
    conn_finish(b.s.c);
    until(&b, b.s.readies && b.p.up);
    until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
    assert_int_equal(n, -1);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void closing_in_every_state_is_told_once(void **state)
{
    (void)state;
    for (int turns = 0; turns < 12; turns++)
        for (int how = 0; how < 3; how++) {
            struct bench b;
            struct tls_ctx *ctx = server_ctx(&(struct wish){0});
            start(&b);
            with_client(&b, ctx);
            b.p.trickle = 100;
            for (int i = 0; i < turns; i++)
                turn(&b);
            b.s.in_op = true;
            if (how == 2)
                conn_reset(b.s.c, WHY_OK);
            else
                conn_close(b.s.c, how ? WHY_REFUSED : WHY_OK);
            conn_close(b.s.c, WHY_OK);
            conn_read(b.s.c, true);
            conn_wake(b.s.c);
            conn_finish(b.s.c);
            b.s.in_op = false;
            finish(&b);
            tls_ctx_unref(ctx);
        }
}

/* ---- bulk */

static char pattern(size_t at)
{
    return (char)((at >> 9) ^ (at * 7));
}

static void put_pattern(struct buf *to, size_t *at, size_t n)
{
    char block[4096];
    while (n > 0) {
        size_t part = n < sizeof block ? n : sizeof block;
        for (size_t i = 0; i < part; i++)
            block[i] = pattern((*at)++);
        buf_write(to, block, part);
        n -= part;
    }
}

static void much_output_reaches_a_slow_reader_in_bounded_memory(void **state)
{
    (void)state;
    enum { TOTAL = 24 << 20, AHEAD = 65536 };
    struct bench b;
    struct tls_ctx *ctx;
    static char block[50000];
    size_t said = 0, at = 0;
    connected(&b, &ctx);
    b.p.hold = true;
    for (int quiet = 0; quiet < 50; quiet++) { /* until the kernel takes no more */
        if (b.s.out.len < AHEAD && said < TOTAL) {
            quiet = 0;
            put_pattern(&b.s.out, &said, AHEAD);
            conn_wake(b.s.c);
        }
        turn(&b);
    }
    assert_true(said < TOTAL); /* pulled only as the kernel takes it */
    assert_true(b.most < 512 * 1024);
    b.p.hold = false;
    while (at < TOTAL) {
        if (b.s.out.len < AHEAD && said < TOTAL)
            put_pattern(&b.s.out, &said, AHEAD);
        if (said == TOTAL)
            conn_finish(b.s.c);
        conn_wake(b.s.c);
        worker_turn(b.w);
        tls_peer_turn(&b.p);
        for (int n; (n = tls_peer_hear(&b.p, block, sizeof block)) > 0;)
            for (int i = 0; i < n; i++, at++)
                if (block[i] != pattern(at))
                    fail_msg("byte %zu", at);
    }
    assert_true(b.most < 512 * 1024);
    assert_true(b.p.longest > 16000); /* full records */
    until(&b, tls_peer_hear(&b.p, block, sizeof block) == -1);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void much_input_is_read_only_as_it_is_taken(void **state)
{
    (void)state;
    enum { TOTAL = 8 << 20, BLOCK = 40000 };
    for (int bulk = 0; bulk < 2; bulk++) {
        struct bench b;
        struct tls_ctx *ctx;
        static char block[BLOCK];
        size_t said = 0;
        connected(&b, &ctx);
        b.s.take = 0;
        conn_bulk(b.s.c, bulk);
        for (int quiet = 0; quiet < 50;) {
            char *p;
            long waiting = BIO_get_mem_data(b.p.to_us, &p);
            if (waiting < BLOCK && said < TOTAL) {
                for (size_t i = 0; i < BLOCK; i++)
                    block[i] = pattern(said++);
                tls_peer_say(&b.p, block, BLOCK);
            }
            turn(&b);
            quiet = BIO_get_mem_data(b.p.to_us, &p) == waiting ? quiet + 1 : 0;
        }
        size_t bound = bulk ? CHUNK_BULK_BYTES : CHUNK_BYTES;
        assert_true(conn_untaken(b.s.c) >= bound && conn_untaken(b.s.c) <= 2 * bound);
        assert_true(b.most < 6 * bound);
        assert_true(said < TOTAL);
        b.s.take = 7000; /* in pieces, and asked again each time */
        while (b.s.got_n < said) {
            b.s.in_op = true;
            conn_read(b.s.c, true);
            b.s.in_op = false;
            worker_turn(b.w);
            tls_peer_turn(&b.p);
        }
        some_turns(&b);
        assert_int_equal(b.s.got_n, said);
        for (size_t i = 0; i < said; i++)
            if (b.s.got[i] != pattern(i))
                fail_msg("byte %zu", i);
        assert_true(b.most < 6 * bound);
        finish(&b);
        tls_ctx_unref(ctx);
    }
}

static void what_is_not_taken_comes_again_and_the_end_waits_for_it(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    connected(&b, &ctx);
    b.s.take = 2;
    tls_peer_say(&b.p, "hello", 5);
    SSL_shutdown(b.p.ssl);
    until(&b, b.s.got_n == 2);
    some_turns(&b);
    assert_int_equal(b.s.got_n, 2);
    assert_int_equal(conn_untaken(b.s.c), 3);
    shutdown(b.p.fd, SHUT_WR);
    some_turns(&b);
    assert_int_equal(b.s.eofs, 0);
    conn_read(b.s.c, true);
    until(&b, b.s.got_n == 4);
    assert_int_equal(b.s.eofs, 0);
    conn_read(b.s.c, true);
    until(&b, b.s.eofs == 1);
    assert_true(heard(&b.s, "hello"));
    finish(&b);
    tls_ctx_unref(ctx);
}

static void paused_reading_still_shakes_hands(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx = server_ctx(&(struct wish){0});
    start(&b);
    with_client(&b, ctx);
    conn_read(b.s.c, false);
    until(&b, b.s.readies && b.p.up);
    tls_peer_say(&b.p, "hello", 5);
    some_turns(&b);
    assert_int_equal(b.s.got_n, 0);
    conn_read(b.s.c, true);
    until(&b, heard(&b.s, "hello"));
    finish(&b);
    tls_ctx_unref(ctx);
}

static void small_slices_of_a_batch_share_a_record(void **state)
{
    (void)state;
    enum { SLICES = 500 };
    struct bench b;
    struct tls_ctx *ctx;
    struct buf apart;
    char text[SLICES + 1];
    size_t at = 0;
    connected(&b, &ctx);
    b.p.records = 0;
    buf_init(&apart, worker_pool(b.w));
    for (int i = 0; i < SLICES; i++) { /* a byte between two slices keeps them apart */
        buf_write(&b.s.out, "x", 1);
        buf_write(&apart, "-", 1);
    }
    conn_wake(b.s.c);
    while (at < SLICES) {
        int n = 0;
        until(&b, (n = tls_peer_hear(&b.p, text + at, sizeof text - at)) != 0);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_int_equal(b.p.records, 1);
    buf_clear(&apart);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void the_first_records_of_a_burst_are_short(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    static char text[65536];
    size_t at = 0;
    connected(&b, &ctx);
    put_pattern(&b.s.out, &at, 30000);
    conn_wake(b.s.c);
    for (at = 0; at < 30000;) {
        int n = 0;
        until(&b, (n = tls_peer_hear(&b.p, text, sizeof text)) != 0);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_true(b.p.longest <= 4096 + 17);
    finish(&b);
    tls_ctx_unref(ctx);
}

/* ---- control messages */

static void keys_may_be_updated_in_both_directions(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    char x[8];
    connected(&b, &ctx);
    for (int i = 0; i < 5; i++) {
        int n = 0;
        b.s.got_n = 0;
        assert_int_equal(SSL_key_update(b.p.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        tls_peer_say(&b.p, "hello", 5);
        until(&b, heard(&b.s, "hello"));
        say(&b.s, "there", 5);
        until(&b, (n = tls_peer_hear(&b.p, x, sizeof x)) != 0);
        assert_int_equal(n, 5);
        assert_memory_equal(x, "there", 5);
    }
    finish(&b);
    tls_ctx_unref(ctx);
}

static void a_flood_of_key_updates_ends_it(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    connected(&b, &ctx);
    b.p.hold = true;
    int small = 1;
    setsockopt(b.p.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 500000 && !b.s.closeds; i++) {
        SSL_key_update(b.p.ssl, SSL_KEY_UPDATE_REQUESTED);
        tls_peer_say(&b.p, "x", 1);
        if (i % 100 == 0) {
            worker_turn(b.w);
            tls_peer_turn(&b.p);
        }
        assert_true(chunk_pool_used(worker_pool(b.w)) < 1 << 20);
        if (b.p.lost)
            break;
    }
    until(&b, b.s.closeds);
    assert_int_equal(b.s.why, WHY_CLIENT_GONE);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void renegotiation_is_refused(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx = server_ctx(&(struct wish){0});
    start(&b);
    with_client(&b, ctx);
    SSL_set_max_proto_version(b.p.ssl, TLS1_2_VERSION);
    until(&b, b.s.readies && b.p.up);
    SSL_renegotiate(b.p.ssl);
    SSL_do_handshake(b.p.ssl);
    char x[4];
    for (int i = 0; i < 50 && !b.s.closeds; i++) {
        turn(&b);
        tls_peer_hear(&b.p, x, sizeof x);
    }
    assert_int_equal(b.s.readies, 1);
    assert_int_equal(b.p.error, SSL_ERROR_SSL);
    finish(&b);
    tls_ctx_unref(ctx);
}

static void another_peer_may_be_named(void **state)
{
    (void)state;
    struct bench b;
    struct tls_ctx *ctx;
    union addr named;
    connected(&b, &ctx);
    assert_true(addr_parse(STR("[2001:db8::1]:99"), &named));
    conn_set_peer(b.s.c, &named.sa);
    assert_true(addr_eq(conn_info(b.s.c)->peer, &named.sa));
    finish(&b);
    tls_ctx_unref(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_roles_shake_hands_and_talk),
        cmocka_unit_test(alpn_chooses_h2_then_http_1_1_or_refuses),
        cmocka_unit_test(the_certificate_follows_the_name),
        cmocka_unit_test(a_name_with_a_zero_byte_is_refused),
        cmocka_unit_test(a_broken_list_of_names_is_refused),
        cmocka_unit_test(a_hello_in_pieces_is_a_hello),
        cmocka_unit_test(bytes_read_before_are_cipher_text),
        cmocka_unit_test(what_is_no_handshake_is_closed_as_such),
        cmocka_unit_test(a_peer_that_leaves_in_the_handshake_is_gone),
        cmocka_unit_test(old_versions_and_weak_ciphers_are_refused),
        cmocka_unit_test(a_client_believes_only_who_is_proved),
        cmocka_unit_test(a_name_with_a_zero_byte_is_nobody),
        cmocka_unit_test(clients_without_a_certificate_of_ours_stay_outside),
        cmocka_unit_test(a_server_that_asks_is_shown_our_certificate),
        cmocka_unit_test(a_ticket_is_good_where_it_should_be_and_nowhere_else),
        cmocka_unit_test(a_ticket_outlives_two_turns_of_the_keys_and_is_renewed),
        cmocka_unit_test(a_client_of_1_3_that_has_used_its_ticket_gets_another),
        cmocka_unit_test(the_ticket_leaves_with_the_handshake),
        cmocka_unit_test(who_wipes_talks_as_well),
        cmocka_unit_test(of_bulk_that_is_wiped_nothing_is_left),
        cmocka_unit_test(half_close_works_both_ways),
        cmocka_unit_test(a_fin_without_close_notify_is_a_loss),
        cmocka_unit_test(a_client_holds_its_server_to_the_same),
        cmocka_unit_test(a_server_that_speaks_no_tls_is_no_server),
        cmocka_unit_test(half_a_record_never_counts),
        cmocka_unit_test(a_changed_byte_ends_the_connection),
        cmocka_unit_test(nothing_counts_after_close_notify),
        cmocka_unit_test(only_a_good_end_says_close_notify),
        cmocka_unit_test(a_close_from_fill_says_close_notify_behind_everything),
        cmocka_unit_test(finish_in_the_handshake_waits_for_its_end),
        cmocka_unit_test(closing_in_every_state_is_told_once),
        cmocka_unit_test(much_output_reaches_a_slow_reader_in_bounded_memory),
        cmocka_unit_test(much_input_is_read_only_as_it_is_taken),
        cmocka_unit_test(what_is_not_taken_comes_again_and_the_end_waits_for_it),
        cmocka_unit_test(paused_reading_still_shakes_hands),
        cmocka_unit_test(small_slices_of_a_batch_share_a_record),
        cmocka_unit_test(the_first_records_of_a_burst_are_short),
        cmocka_unit_test(keys_may_be_updated_in_both_directions),
        cmocka_unit_test(a_flood_of_key_updates_ends_it),
        cmocka_unit_test(renegotiation_is_refused),
        cmocka_unit_test(another_peer_may_be_named),
    };
    signal(SIGPIPE, SIG_IGN); /* as app_run() does (U6) */
    return cmocka_run_group_tests(tests, make_pki, free_pki);
}
