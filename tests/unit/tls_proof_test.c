/* tls_proof_test.c — whom a client of ours believes and what it says when it does not, as whom a
 * server of ours answers, and TLS inside TLS.  The other end is OpenSSL by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/pki.h"
#include "harness/tls_peer.h"
#include "harness/until.h"
#include "net/conn_impl.h"
#include "net/tls.h"

enum { LAYERS = 2, GOT = 2 << 20 };

struct rig {
    struct worker *w;
    struct conn *c;
    struct tls_peer peer[LAYERS]; /* from outside to inside */
    unsigned layers, begun;
    struct tls_ctx *ctx[LAYERS];
    struct tls_to to[LAYERS];
    struct buf out;
    bool ready, eof, closed;
    enum why why;
    char alpn[16], sni[64], verified[64], outer_verified[64];
    struct str fault;
    char *got;
    size_t n;
};

static struct {
    struct pki_cert *root, *other, *own, *between, *good, *b;
} pki;

static int make_pki(void **state)
{
    (void)state;
    pki.root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    pki.other = pki_new(&(struct pki_wish){.cn = "other", .authority = true}, NULL);
    pki.own = pki_new(&(struct pki_wish){.cn = "own", .authority = true}, NULL);
    pki.between = pki_new(&(struct pki_wish){.cn = "between", .authority = true}, pki.root);
    pki.good = pki_new(&(struct pki_wish){.cn = "a", .names = "DNS:a.test"}, pki.root);
    pki.b = pki_new(&(struct pki_wish){.cn = "b", .names = "DNS:b.test"}, pki.root);
    return 0;
}

static int free_pki(void **state)
{
    (void)state;
    struct pki_cert *all[] = {pki.root, pki.other, pki.own, pki.between, pki.good, pki.b};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pki_free(all[i]);
    return 0;
}

/* ---- our end */

static void keep(char *to, size_t room, struct str s)
{
    assert_true(s.n < room);
    memcpy(to, s.n ? s.p : "", s.n);
    to[s.n] = '\0';
}

static void on_ready(void *user)
{
    struct rig *r = user;
    const struct conn_info *i = conn_info(r->c);
    assert_false(r->ready);
    if (r->begun == 1)
        keep(r->outer_verified, sizeof r->outer_verified, i->verified);
    if (r->begun < r->layers) {
        unsigned n = r->begun++;
        conn_secure(r->c, r->ctx[n], &r->to[n]);
        assert_int_equal(conn_info(r->c)->verified.n, 0); /* of the one that is not proved yet */
        return;
    }
    r->ready = true;
    keep(r->alpn, sizeof r->alpn, i->alpn);
    keep(r->sni, sizeof r->sni, i->sni);
    keep(r->verified, sizeof r->verified, i->verified);
}

static void on_bytes(void *user, struct buf *in)
{
    struct rig *r = user;
    assert_true(r->ready && r->n + in->len <= GOT);
    buf_peek(in, r->got + r->n, in->len);
    r->n += in->len;
    buf_drop(in, in->len);
}

static void on_eof(void *user)
{
    struct rig *r = user;
    assert_false(r->eof);
    r->eof = true;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct rig *r = user;
    assert_true(r->ready);
    buf_move(out, &r->out, r->out.len < max ? r->out.len : max);
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    assert_false(r->closed);
    r->closed = true;
    r->why = why;
    r->fault = conn_info(r->c)->fault;
}

static const struct conn_events events = {on_ready, on_bytes, on_eof, on_fill, on_closed};

static void turn(struct rig *r)
{
    worker_turn(r->w);
    for (unsigned i = LAYERS; i-- > 0;)
        if (r->peer[i].ssl)
            tls_peer_turn(&r->peer[i]);
    poll(NULL, 0, 1);
}

static struct tls_peer *innermost(struct rig *r)
{
    return &r->peer[r->peer[1].ssl ? 1 : 0];
}

static void rig_init(struct rig *r)
{
    *r = (struct rig){.w = worker_new(0), .got = mem_new(GOT)};
    buf_init(&r->out, worker_pool(r->w));
}

static int sockets(union addr *at, int *ret_listening)
{
    socklen_t n = sizeof *at;
    *at = (union addr){.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    *ret_listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*ret_listening, &at->sa, sizeof at->v4), 0);
    assert_int_equal(listen(*ret_listening, 1), 0);
    assert_int_equal(getsockname(*ret_listening, &at->sa, &n), 0);
    return *ret_listening;
}

/* Ours is the client, through as many layers as there are servers; r->ctx and r->to are set. */
static void call(struct rig *r, SSL_CTX *const *servers, unsigned layers)
{
    union addr at;
    int err = 0, l;
    sockets(&at, &l);
    r->layers = layers;
    r->c = conn_connect(r->w, &at.sa, &events, r, &err);
    assert_non_null(r->c);
    tls_peer_init(&r->peer[0], servers[0], accept4(l, NULL, NULL, SOCK_CLOEXEC), true);
    if (layers > 1)
        tls_peer_inside(&r->peer[1], servers[1], &r->peer[0], true);
    close(l);
}

/* Ours is the server; the peer is not told to begin. */
static void be_called(struct rig *r, SSL_CTX *client, struct tls_ctx *ctx, const struct tls_as *as)
{
    union addr at;
    int l, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets(&at, &l);
    assert_int_equal(connect(fd, &at.sa, sizeof at.v4), 0);
    int in = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    r->c = conn_accept(r->w, in, &at.sa, 443, NULL, false);
    conn_attach(r->c, &events, r);
    conn_secure_as(r->c, ctx, as);
    tls_peer_init(&r->peer[0], client, fd, false);
    close(l);
}

static void rig_done(struct rig *r)
{
    if (!r->closed)
        conn_close(r->c, WHY_DRAIN);
    until(r, r->closed);
    buf_clear(&r->out);
    for (unsigned i = LAYERS; i-- > 0;)
        if (r->peer[i].ssl)
            tls_peer_done(&r->peer[i]);
    worker_free(r->w);
    mem_free(r->got);
}

static void say(struct rig *r, struct str text)
{
    buf_str(&r->out, text);
    conn_wake(r->c);
}

static bool heard(const struct rig *r, const char *text)
{
    return r->n == strlen(text) && memcmp(r->got, text, r->n) == 0;
}

static void both_ways_work(struct rig *r)
{
    char x[8];
    int n = 0;
    until(r, innermost(r)->up);
    tls_peer_say(innermost(r), "hello", 5);
    until(r, heard(r, "hello"));
    say(r, STR("there"));
    until(r, (n = tls_peer_hear(innermost(r), x, sizeof x)) != 0);
    assert_int_equal(n, 5);
    assert_memory_equal(x, "there", 5);
}

/* ---- contexts */

static struct tls_ctx *client_ctx(const struct tls_client_rules *rules)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_ctx *ctx = tls_client_new(rules, &a, &error);
    assert_non_null(ctx);
    arena_done(&a);
    return ctx;
}

static struct tls_ctx *believes(const struct pki_cert *root)
{
    return client_ctx(&(struct tls_client_rules){.roots_pem = str_of(root->pem)});
}

/* A server that minds nothing. */
static SSL_CTX *server(const struct pki_cert *leaf, const struct pki_cert *with, int version)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_security_level(ctx, 0);
    SSL_CTX_set_max_proto_version(ctx, version);
    assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
    if (with)
        SSL_CTX_add1_chain_cert(ctx, with->cert);
    return ctx;
}

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

/* ---- certificates of origins */

static void a_bad_certificate_is_refused_with_the_reason(void **state)
{
    static const struct pki_wish a = {.cn = "a", .names = "DNS:a.test"};
    struct pki_wish expired = a, early = a, other = a, sha1 = a, weak = a, purpose = a, named = a;
    expired.from_s = -7200, expired.to_s = -3600;
    early.from_s = 3600, early.to_s = 7200;
    other.names = "DNS:b.test";
    sha1.sha1 = true;
    weak.key = PKI_RSA1024;
    purpose.purpose = "clientAuth";
    named.cn = "a.test", named.names = NULL; /* in the subject only */
    const struct pki_wish cross = {.cn = "root", .authority = true, .key_of = pki.root};
    const struct pki_wish own_cross = {.cn = "own", .authority = true, .key_of = pki.own};
    const struct {
        const struct pki_wish *leaf;
        const struct pki_cert *issuer; /* NULL: itself */
        const struct pki_wish *with;   /* another certificate the server sends */
        const struct pki_cert *with_by;
        const char *fault; /* NULL: none */
    } rows[] = {
        {&a, pki.root, NULL, NULL, NULL},
        {&a, pki.root, &cross, pki.other, NULL},
        {&expired, pki.root, NULL, NULL, "certificate has expired"},
        {&early, pki.root, NULL, NULL, "certificate is not valid yet"},
        {&other, pki.root, NULL, NULL, "certificate is for another host"},
        {&named, pki.root, NULL, NULL, "certificate is for another host"},
        {&a, NULL, NULL, NULL, "certificate is self-signed"},
        {&a, pki.other, NULL, NULL, "issuer of the certificate is not known"},
        {&a, pki.between, NULL, NULL, "issuer of the certificate is not known"},
        {&sha1, pki.root, NULL, NULL, "certificate is too weak"},
        {&weak, pki.root, NULL, NULL, "certificate is too weak"},
        {&purpose, pki.root, NULL, NULL, "not a server certificate"},
        {&a, pki.own, NULL, NULL, "certificate was issued by our own authority"},
        {&a, pki.own, &own_cross, pki.root, "certificate was issued by our own authority"},
    };
    char roots[8192];
    (void)state;
    snprintf(roots, sizeof roots, "%s%s", pki.root->pem, pki.own->pem);
    struct tls_ctx *client = client_ctx(&(struct tls_client_rules){
        .roots_pem = str_of(roots), .never_pem = str_of(pki.own->pem), .sessions = 4});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 2; k++) {
            struct rig r;
            struct pki_cert *leaf = pki_new(rows[i].leaf, rows[i].issuer);
            struct pki_cert *with = rows[i].with ? pki_new(rows[i].with, rows[i].with_by) : NULL;
            SSL_CTX *s = server(leaf, with, versions[k]);
            rig_init(&r);
            r.ctx[0] = client;
            r.to[0] = (struct tls_to){.name = STR("a.test"), .alpn = {"http/1.1"}};
            call(&r, &s, 1);
            until(&r, r.ready || r.closed);
            assert_int_equal(r.ready, rows[i].fault == NULL);
            assert_string_equal(r.verified, rows[i].fault ? "" : "a.test");
            if (rows[i].fault) {
                assert_int_equal(r.why, WHY_TLS);
                assert_string_equal(r.fault.p, rows[i].fault);
            } else {
                both_ways_work(&r);
            }
            rig_done(&r);
            SSL_CTX_free(s);
            pki_free(leaf);
            if (with)
                pki_free(with);
        }
    tls_ctx_unref(client);
}

static void a_chain_that_is_whole_is_believed(void **state)
{
    struct rig r;
    struct pki_cert *leaf =
        pki_new(&(struct pki_wish){.cn = "a", .names = "DNS:a.test"}, pki.between);
    SSL_CTX *s = server(leaf, pki.between, 0);
    (void)state;
    rig_init(&r);
    r.ctx[0] = believes(pki.root);
    r.to[0] = (struct tls_to){.name = STR("a.test")};
    call(&r, &s, 1);
    until(&r, r.ready);
    rig_done(&r);
    tls_ctx_unref(r.ctx[0]);
    SSL_CTX_free(s);
    pki_free(leaf);
}

static void put_into(const char *folder, const struct pki_cert *c)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%08lx.0", folder, X509_subject_name_hash(c->cert));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(c->pem, f);
    fclose(f);
}

static void empty_folder(const char *folder, const struct pki_cert *c)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%08lx.0", folder, X509_subject_name_hash(c->cert));
    unlink(path);
}

static void a_folder_and_a_text_of_authorities_add_up_without_our_own(void **state)
{
    char folder[] = "/tmp/tls_proof_XXXXXX";
    struct pki_cert *before =
        pki_new(&(struct pki_wish){.cn = "own before", .authority = true}, NULL);
    struct pki_cert *issuers[] = {pki.root, pki.other, pki.own, before};
    char never[8192], also[8192];
    (void)state;
    assert_non_null(mkdtemp(folder));
    put_into(folder, pki.root);
    put_into(folder, pki.own);
    snprintf(never, sizeof never, "%s%s", before->pem, pki.own->pem);
    snprintf(also, sizeof also, "%s%s", pki.other->pem, before->pem);
    struct tls_ctx *client = client_ctx(&(struct tls_client_rules){
        .roots_dir = str_of(folder), .roots_pem = str_of(also), .never_pem = str_of(never)});
    for (int i = 0; i < 4; i++) {
        struct rig r;
        struct pki_cert *leaf =
            pki_new(&(struct pki_wish){.cn = "a", .names = "DNS:a.test"}, issuers[i]);
        SSL_CTX *s = server(leaf, NULL, 0);
        rig_init(&r);
        r.ctx[0] = client;
        r.to[0] = (struct tls_to){.name = STR("a.test")};
        call(&r, &s, 1);
        until(&r, r.ready || r.closed);
        assert_int_equal(r.ready, i < 2);
        if (!r.ready)
            assert_string_equal(r.fault.p, "certificate was issued by our own authority");
        rig_done(&r);
        SSL_CTX_free(s);
        pki_free(leaf);
    }
    tls_ctx_unref(client);
    pki_free(before);
    empty_folder(folder, pki.root);
    empty_folder(folder, pki.own);
    rmdir(folder);
}

/* ---- certificates of clients */

static void a_server_that_insists_on_a_certificate_of_ours_is_named_as_such(void **state)
{
    (void)state;
    for (int required = 0; required < 2; required++)
        for (int k = 0; k < 2; k++) {
            struct rig r;
            SSL_CTX *s = server(pki.good, NULL, versions[k]);
            SSL_CTX_set_verify(
                s, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
            rig_init(&r);
            r.ctx[0] = believes(pki.root);
            r.to[0] = (struct tls_to){.name = STR("a.test")};
            buf_str(&r.out, STR("request"));
            call(&r, &s, 1);
            if (required) {
                until(&r, r.closed);
                assert_int_equal(r.why, WHY_TLS);
                assert_string_equal(r.fault.p, "asks for a client certificate");
                assert_int_equal(r.ready, k == 1);
            } else {
                char x[8];
                until(&r, tls_peer_hear(&r.peer[0], x, sizeof x) == 7);
                tls_peer_say(&r.peer[0], "hello", 5);
                until(&r, heard(&r, "hello"));
            }
            rig_done(&r);
            tls_ctx_unref(r.ctx[0]);
            SSL_CTX_free(s);
        }
}

/* It arrives before the reset, but our next bytes may be on their way by then. */
static void the_refusal_is_read_even_where_writing_fails_first(void **state)
{
    struct rig r;
    SSL_CTX *s = server(pki.good, NULL, TLS1_3_VERSION);
    (void)state;
    SSL_CTX_set_verify(s, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    rig_init(&r);
    r.ctx[0] = believes(pki.root);
    r.to[0] = (struct tls_to){.name = STR("a.test")};
    call(&r, &s, 1);
    while (!r.ready) {
        tls_peer_turn(&r.peer[0]);
        worker_turn(r.w);
    }
    while (!r.peer[0].error) {
        worker_turn(r.w); /* our last message leaves; the alert is not read yet */
        tls_peer_turn(&r.peer[0]);
    }
    setsockopt(r.peer[0].fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
               sizeof(struct linger));
    close(r.peer[0].fd);
    r.peer[0].fd = -1;
    say(&r, STR("request"));
    worker_turn(r.w);
    tls_peer_done(&r.peer[0]);
    r.peer[0].ssl = NULL;
    until(&r, r.closed);
    assert_int_equal(r.why, WHY_TLS);
    assert_string_equal(r.fault.p, "asks for a client certificate");
    rig_done(&r);
    tls_ctx_unref(r.ctx[0]);
    SSL_CTX_free(s);
}

static void what_goes_wrong_after_an_answer_is_no_handshake(void **state)
{
    struct rig r;
    SSL_CTX *s = server(pki.good, NULL, 0);
    (void)state;
    SSL_CTX_set_verify(s, SSL_VERIFY_PEER, NULL);
    rig_init(&r);
    r.ctx[0] = believes(pki.root);
    r.to[0] = (struct tls_to){.name = STR("a.test")};
    call(&r, &s, 1);
    until(&r, r.ready && r.peer[0].up);
    tls_peer_say(&r.peer[0], "hello", 5);
    until(&r, heard(&r, "hello"));
    shutdown(r.peer[0].fd, SHUT_WR);
    until(&r, r.closed);
    assert_int_equal(r.why, WHY_ORIGIN_GONE);
    assert_int_equal(r.fault.n, 0);
    rig_done(&r);
    tls_ctx_unref(r.ctx[0]);
    SSL_CTX_free(s);
}

static void who_hangs_up_in_the_handshake_is_told_apart(void **state)
{
    struct rig r;
    SSL_CTX *s = server(pki.good, NULL, 0);
    (void)state;
    rig_init(&r);
    r.ctx[0] = believes(pki.root);
    r.to[0] = (struct tls_to){.name = STR("a.test")};
    call(&r, &s, 1);
    shutdown(r.peer[0].fd, SHUT_WR);
    until(&r, r.closed);
    assert_int_equal(r.why, WHY_ORIGIN_GONE);
    assert_string_equal(r.fault.p, "connection was closed in the handshake");
    rig_done(&r);
    tls_ctx_unref(r.ctx[0]);
    SSL_CTX_free(s);
}

/* ---- sessions */

/* True: it was resumed. */
static bool visit(struct tls_ctx *client, SSL_CTX *s, struct str name, bool expect_ready)
{
    struct rig r;
    rig_init(&r);
    r.ctx[0] = client;
    r.to[0] = (struct tls_to){.name = name};
    call(&r, &s, 1);
    until(&r, expect_ready ? r.ready && r.peer[0].up : r.closed);
    bool resumed = false;
    if (expect_ready) {
        assert_string_equal(r.verified, name.p);
        both_ways_work(&r);
        resumed = SSL_session_reused(r.peer[0].ssl);
        SSL_set_shutdown(r.peer[0].ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    }
    rig_done(&r);
    return resumed;
}

static void a_session_is_resumed_with_the_name_that_was_proved_and_no_other(void **state)
{
    struct pki_cert *both =
        pki_new(&(struct pki_wish){.cn = "ab", .names = "DNS:a.test,DNS:b.test"}, pki.root);
    (void)state;
    for (int k = 0; k < 2; k++) {
        SSL_CTX *s = server(both, NULL, versions[k]);
        struct tls_ctx *kept = client_ctx(
            &(struct tls_client_rules){.roots_pem = str_of(pki.root->pem), .sessions = 2});
        struct tls_ctx *not_kept = believes(pki.root);
        SSL_CTX_set_session_id_context(s, (const uint8_t *)"x", 1);
        assert_false(visit(kept, s, STR("a.test"), true));
        assert_true(visit(kept, s, STR("a.test"), true));
        assert_true(visit(kept, s, STR("a.test"), true));
        assert_false(visit(kept, s, STR("b.test"), true));
        assert_true(visit(kept, s, STR("b.test"), true));
        assert_false(visit(not_kept, s, STR("a.test"), true));
        assert_false(visit(not_kept, s, STR("a.test"), true));
        tls_ctx_unref(kept);
        tls_ctx_unref(not_kept);
        SSL_CTX_free(s);
    }
    pki_free(both);
}

static void a_session_that_would_keep_much_is_not_kept(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        SSL_CTX *s = server(pki.good, NULL, versions[k]);
        struct tls_ctx *kept = client_ctx(
            &(struct tls_client_rules){.roots_pem = str_of(pki.root->pem), .sessions = 2});
        SSL_CTX_set_session_id_context(s, (const uint8_t *)"x", 1);
        for (int i = 0; i < 60; i++)
            SSL_CTX_add1_chain_cert(s, pki.other->cert);
        assert_false(visit(kept, s, STR("a.test"), true));
        assert_false(visit(kept, s, STR("a.test"), true));
        tls_ctx_unref(kept);
        SSL_CTX_free(s);
    }
}

static void an_offered_session_is_no_proof_for_somebody_else(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        SSL_CTX *good = server(pki.good, NULL, versions[k]),
                *bad = server(pki.b, NULL, versions[k]);
        struct tls_ctx *kept = client_ctx(
            &(struct tls_client_rules){.roots_pem = str_of(pki.root->pem), .sessions = 2});
        SSL_CTX_set_session_id_context(good, (const uint8_t *)"x", 1);
        assert_false(visit(kept, good, STR("a.test"), true));
        visit(kept, bad, STR("a.test"), false);
        assert_false(visit(kept, good, STR("a.test"), true)); /* not offered again */
        assert_true(visit(kept, good, STR("a.test"), true));
        tls_ctx_unref(kept);
        SSL_CTX_free(good);
        SSL_CTX_free(bad);
    }
}

/* ---- memory */

/* Blocks of OpenSSL's that a record fits into. */
static int record_buffers;

struct block {
    size_t n;
    max_align_t rest;
};

static void count(const struct block *b, int by)
{
    if (b->n >= 16384 && b->n < 20000)
        record_buffers += by;
}

static void *take(size_t n, const char *file, int line)
{
    struct block *b = malloc(sizeof *b + n);
    (void)file;
    (void)line;
    assert_non_null(b);
    b->n = n;
    count(b, 1);
    return b + 1;
}

static void give(void *p, const char *file, int line)
{
    struct block *b = p ? (struct block *)p - 1 : NULL;
    (void)file;
    (void)line;
    if (b)
        count(b, -1);
    free(b);
}

static void *retake(void *p, size_t n, const char *file, int line)
{
    struct block *b = p ? (struct block *)p - 1 : NULL;
    void *to = take(n, file, line);
    if (b)
        memcpy(to, p, b->n < n ? b->n : n);
    give(p, file, line);
    return to;
}

static void an_idle_connection_holds_no_record_whatever_came_last(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int ticket_alone = 0; ticket_alone < 2; ticket_alone++) {
            struct rig r;
            SSL_CTX *s = server(pki.good, NULL, versions[k]);
            int before = record_buffers;
            rig_init(&r);
            r.ctx[0] = believes(pki.root);
            r.to[0] = (struct tls_to){.name = STR("a.test")};
            call(&r, &s, 1);
            until(&r, r.ready && r.peer[0].up);
            both_ways_work(&r);
            r.n = 0;
            if (k == 1) { /* with the data, or before it */
                SSL_new_session_ticket(r.peer[0].ssl);
                if (ticket_alone)
                    SSL_do_handshake(r.peer[0].ssl);
            }
            if (!ticket_alone)
                tls_peer_say(&r.peer[0], "hello", 5);
            until(&r, ticket_alone || heard(&r, "hello"));
            for (int i = 0; i < 20; i++)
                turn(&r);
            SSL_free_buffers(r.peer[0].ssl);
            assert_int_equal(record_buffers, before);
            rig_done(&r);
            tls_ctx_unref(r.ctx[0]);
            SSL_CTX_free(s);
        }
}

/* ---- as whom a server answers */

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

static void a_server_answers_as_the_one_it_is_given_and_with_the_protocol_it_is_given(void **state)
{
    static const struct {
        const char *sni, *offer; /* wire form */
        const char *alpn, *chosen, *fault;
    } rows[] = {
        {"a.test", "\2h2\10http/1.1", "h2", "h2", NULL},
        {"a.test", "\2h2\10http/1.1", "http/1.1", "http/1.1", NULL},
        {"a.test", "\2h2", "h2", "h2", NULL},
        {"a.test", "\2h2", "http/1.1", NULL, "no application protocol in common"},
        {"a.test", "\10http/1.1", "h2", NULL, "no application protocol in common"},
        {"a.test", "\12acme-tls/1", "http/1.1", NULL, "no application protocol in common"},
        {"a.test", "\3foo", "h2", NULL, "no application protocol in common"},
        {"a.test", "\2h2", NULL, "", NULL},
        {"a.test", "", "h2", "", NULL},
        {"no.such", "", "http/1.1", "", NULL},
        {"a b", "", "http/1.1", "", NULL}, /* the caller has judged it */
        {NULL, "\10http/1.1", "http/1.1", "http/1.1", NULL},
    };
    struct arena a;
    struct str error;
    struct tls_leaf *leaf = leaf_of(pki.b);
    (void)state;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 2; k++) {
            struct rig r;
            struct tls_tickets *t = tls_tickets_new();
            struct tls_ctx *ctx =
                tls_server_new(&(struct tls_server_rules){.tickets = t}, &a, &error);
            SSL_CTX *client = SSL_CTX_new(TLS_client_method());
            SSL_CTX_set_max_proto_version(client, versions[k]);
            SSL_CTX_set_alpn_protos(client, (const uint8_t *)rows[i].offer,
                                    (unsigned)strlen(rows[i].offer));
            rig_init(&r);
            be_called(&r, client, ctx, &(struct tls_as){leaf, rows[i].alpn});
            if (rows[i].sni)
                SSL_set_tlsext_host_name(r.peer[0].ssl, rows[i].sni);
            until(&r, rows[i].fault ? r.closed : r.ready && r.peer[0].up);
            if (rows[i].fault) {
                assert_int_equal(r.why, WHY_TLS);
                assert_string_equal(r.fault.p, rows[i].fault);
                until(&r, r.peer[0].error);
                assert_int_equal(r.peer[0].reason, SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
            } else {
                const uint8_t *p;
                unsigned n;
                assert_string_equal(r.alpn, rows[i].chosen);
                SSL_get0_alpn_selected(r.peer[0].ssl, &p, &n);
                assert_int_equal(n, strlen(rows[i].chosen));
                assert_int_equal(X509_cmp(SSL_get0_peer_certificate(r.peer[0].ssl), pki.b->cert),
                                 0);
                both_ways_work(&r);
            }
            rig_done(&r);
            SSL_CTX_free(client);
            tls_ctx_unref(ctx);
            tls_tickets_unref(t);
        }
    tls_leaf_unref(leaf);
    arena_done(&a);
}

static void a_client_that_does_not_believe_us_is_told_apart(void **state)
{
    struct rig r;
    struct arena a;
    struct str error;
    struct tls_leaf *leaf = leaf_of(pki.b);
    SSL_CTX *client = SSL_CTX_new(TLS_client_method());
    (void)state;
    arena_init(&a, NULL, 0);
    struct tls_ctx *ctx = tls_server_new(&(struct tls_server_rules){0}, &a, &error);
    SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
    rig_init(&r);
    be_called(&r, client, ctx, &(struct tls_as){leaf, NULL});
    until(&r, r.closed);
    assert_int_equal(r.why, WHY_TLS);
    assert_string_equal(r.fault.p, "our certificate is not trusted");
    rig_done(&r);
    SSL_CTX_free(client);
    tls_ctx_unref(ctx);
    tls_leaf_unref(leaf);
    arena_done(&a);
}

/* ---- TLS inside TLS */

struct two {
    struct rig r;
    SSL_CTX *servers[LAYERS];
};

/* The outer one is a.test, the inner one b.test. */
static void two_begin(struct two *t, const struct pki_cert *outer, const struct pki_cert *inner,
                      int version)
{
    rig_init(&t->r);
    t->servers[0] = server(outer, NULL, version);
    t->servers[1] = server(inner, NULL, version);
    for (int i = 0; i < LAYERS; i++)
        t->r.ctx[i] = believes(pki.root);
    t->r.to[0] = (struct tls_to){.name = STR("a.test"), .alpn = {"http/1.1"}, .proxy = true};
    t->r.to[1] = (struct tls_to){.name = STR("b.test"), .alpn = {"h2", "http/1.1"}};
    call(&t->r, t->servers, LAYERS);
}

static void two_end(struct two *t)
{
    rig_done(&t->r);
    for (int i = 0; i < LAYERS; i++) {
        tls_ctx_unref(t->r.ctx[i]);
        SSL_CTX_free(t->servers[i]);
    }
}

static void each_layer_has_its_own_name(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct two t;
        two_begin(&t, pki.good, pki.b, versions[k]);
        until(&t.r, t.r.ready && t.r.peer[1].up);
        assert_string_equal(t.r.outer_verified, "a.test");
        assert_string_equal(t.r.verified, "b.test");
        assert_string_equal(SSL_get_servername(t.r.peer[0].ssl, 0), "a.test");
        assert_string_equal(SSL_get_servername(t.r.peer[1].ssl, 0), "b.test");
        both_ways_work(&t.r);
        two_end(&t);
    }
}

static void a_bad_certificate_of_either_layer_says_which(void **state)
{
    static const char *const faults[] = {
        "upstream proxy: certificate is for another host",
        "certificate is for another host",
    };
    (void)state;
    for (int bad = 0; bad < LAYERS; bad++)
        for (int k = 0; k < 2; k++) {
            struct two t;
            two_begin(&t, bad == 0 ? pki.b : pki.good, bad == 1 ? pki.good : pki.b, versions[k]);
            until(&t.r, t.r.closed);
            assert_int_equal(t.r.why, WHY_TLS);
            assert_string_equal(t.r.fault.p, faults[bad]);
            assert_false(t.r.ready);
            for (int i = 0; i < 20; i++)
                turn(&t.r);
            assert_int_equal(t.r.peer[bad].error, SSL_ERROR_SSL); /* the alert came */
            two_end(&t);
        }
}

static char pattern(size_t at)
{
    return (char)((at >> 9) ^ (at * 7));
}

static void much_goes_through_both_layers_whole(void **state)
{
    enum { TOTAL = 1 << 20, PIECE = 30000 };
    static char block[TOTAL];
    (void)state;
    for (size_t i = 0; i < TOTAL; i++)
        block[i] = pattern(i);
    for (int bulk = 0; bulk < 2; bulk++) {
        struct two t;
        size_t said = 0, at = 0;
        two_begin(&t, pki.good, pki.b, 0);
        until(&t.r, t.r.ready && t.r.peer[1].up);
        conn_bulk(t.r.c, bulk);
        buf_write(&t.r.out, block, TOTAL);
        conn_wake(t.r.c);
        while (at < TOTAL || t.r.n < TOTAL) {
            static char x[PIECE];
            size_t n = TOTAL - said < PIECE ? TOTAL - said : PIECE;
            if (n > 0)
                tls_peer_say(&t.r.peer[1], block + said, n);
            said += n;
            turn(&t.r);
            for (int got; (got = tls_peer_hear(&t.r.peer[1], x, sizeof x)) > 0; at += (size_t)got)
                assert_memory_equal(x, block + at, (size_t)got);
            assert_false(t.r.closed);
        }
        assert_memory_equal(t.r.got, block, TOTAL);
        two_end(&t);
    }
}

static void bytes_may_come_one_by_one(void **state)
{
    struct two t;
    (void)state;
    two_begin(&t, pki.good, pki.b, 0);
    t.r.peer[0].trickle = 97;
    until(&t.r, t.r.ready && t.r.peer[1].up);
    both_ways_work(&t.r);
    two_end(&t);
}

static void our_end_is_told_to_both_layers(void **state)
{
    struct two t;
    char x[8];
    int n = 0;
    (void)state;
    two_begin(&t, pki.good, pki.b, 0);
    until(&t.r, t.r.ready && t.r.peer[1].up);
    say(&t.r, STR("bye"));
    conn_finish(t.r.c);
    until(&t.r, (n = tls_peer_hear(&t.r.peer[1], x, sizeof x)) != 0);
    assert_int_equal(n, 3);
    until(&t.r, (n = tls_peer_hear(&t.r.peer[1], x, sizeof x)) != 0);
    assert_int_equal(n, -1);
    until(&t.r, t.r.peer[0].eof && SSL_get_shutdown(t.r.peer[0].ssl) & SSL_RECEIVED_SHUTDOWN);
    tls_peer_say(&t.r.peer[1], "still", 5); /* half of it is still open */
    until(&t.r, heard(&t.r, "still"));
    SSL_shutdown(t.r.peer[1].ssl);
    until(&t.r, t.r.eof);
    two_end(&t);
}

static void the_end_of_the_outer_layer_alone_is_a_loss(void **state)
{
    (void)state;
    for (int fin = 0; fin < 2; fin++) {
        struct two t;
        two_begin(&t, pki.good, pki.b, 0);
        until(&t.r, t.r.ready && t.r.peer[1].up);
        tls_peer_say(&t.r.peer[1], "hello", 5);
        tls_peer_turn(&t.r.peer[1]);
        SSL_shutdown(t.r.peer[0].ssl);
        tls_peer_turn(&t.r.peer[0]);
        if (fin)
            shutdown(t.r.peer[0].fd, SHUT_WR);
        until(&t.r, t.r.closed);
        assert_true(heard(&t.r, "hello"));
        assert_false(t.r.eof);
        assert_int_equal(t.r.why, WHY_ORIGIN_GONE);
        two_end(&t);
    }
}

static void closing_two_layers_in_every_state_is_told_once(void **state)
{
    (void)state;
    for (int turns = 0; turns < 24; turns++) {
        struct two t;
        two_begin(&t, pki.good, pki.b, 0);
        t.r.peer[0].trickle = 300;
        for (int i = 0; i < turns && !t.r.closed; i++)
            turn(&t.r);
        if (turns % 3 == 0)
            conn_reset(t.r.c, WHY_OK);
        else
            conn_close(t.r.c, turns % 3 == 1 ? WHY_OK : WHY_REFUSED);
        two_end(&t);
    }
}

int main(void)
{
    if (CRYPTO_set_mem_functions(take, retake, give) != 1)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_certificate_is_refused_with_the_reason),
        cmocka_unit_test(a_chain_that_is_whole_is_believed),
        cmocka_unit_test(a_folder_and_a_text_of_authorities_add_up_without_our_own),
        cmocka_unit_test(a_server_that_insists_on_a_certificate_of_ours_is_named_as_such),
        cmocka_unit_test(the_refusal_is_read_even_where_writing_fails_first),
        cmocka_unit_test(what_goes_wrong_after_an_answer_is_no_handshake),
        cmocka_unit_test(who_hangs_up_in_the_handshake_is_told_apart),
        cmocka_unit_test(a_session_is_resumed_with_the_name_that_was_proved_and_no_other),
        cmocka_unit_test(a_session_that_would_keep_much_is_not_kept),
        cmocka_unit_test(an_offered_session_is_no_proof_for_somebody_else),
        cmocka_unit_test(an_idle_connection_holds_no_record_whatever_came_last),
        cmocka_unit_test(a_server_answers_as_the_one_it_is_given_and_with_the_protocol_it_is_given),
        cmocka_unit_test(a_client_that_does_not_believe_us_is_told_apart),
        cmocka_unit_test(each_layer_has_its_own_name),
        cmocka_unit_test(a_bad_certificate_of_either_layer_says_which),
        cmocka_unit_test(much_goes_through_both_layers_whole),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(our_end_is_told_to_both_layers),
        cmocka_unit_test(the_end_of_the_outer_layer_alone_is_a_loss),
        cmocka_unit_test(closing_two_layers_in_every_state_is_told_once),
    };
    return cmocka_run_group_tests(tests, make_pki, free_pki);
}
