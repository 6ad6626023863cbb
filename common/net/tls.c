/* tls.c — what servers and clients have in common.  A context is built once and shared: what
 * differs between connections (certificate, scope of tickets, name of the peer) is set on the
 * connection's own SSL, because a context for each name would cost a hundred times as much. */
#include "net/tls.h"

#include <assert.h>
#include <openssl/err.h>

#include "base/digest.h"
#include "net/tls_impl.h"

enum { SECURITY_LEVEL = 2 };

/* AES-128 first: as strong as anything else in the handshake, and the cheapest.  Clients that put
 * ChaCha20 first, because they have no AES in hardware, get that. */
static const char ciphers_12[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
static const char ciphers_13[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/* ---- what both roles have in common */

static bool set_common(SSL_CTX *ssl, bool server)
{
    SSL_CTX_set_security_level(ssl, SECURITY_LEVEL);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ssl, 0) == 1 &&
           SSL_CTX_set_cipher_list(ssl, ciphers_12) == 1 &&
           SSL_CTX_set_ciphersuites(ssl, ciphers_13) == 1 &&
           SSL_CTX_set1_groups_list(ssl, server ? "X25519:P-256" : "X25519:P-256:P-384:P-521") == 1;
}

struct tls_ctx *tls_ctx_new(bool server, bool wipe)
{
    struct tls_ctx *ctx = mem_new(sizeof *ctx);
    digest_begin();
    atomic_init(&ctx->count, 1);
    ctx->server = server;
    ctx->wire = tls_wire_method();
    ctx->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    assert(ctx->wire && ctx->ssl);
    SSL_CTX_set_app_data(ctx->ssl, ctx);
    ctx->wipe = wipe;
    if (wipe)
        SSL_CTX_set_options(ctx->ssl, SSL_OP_CLEANSE_PLAINTEXT);
    bool set = set_common(ctx->ssl, server);
    assert(set);
    return ctx;
}

struct tls_ctx *tls_ctx_ref(struct tls_ctx *ctx)
{
    unsigned before = atomic_fetch_add_explicit(&ctx->count, 1, memory_order_relaxed);
    assert(before > 0);
    return ctx;
}

void tls_ctx_unref(struct tls_ctx *ctx)
{
    if (!ctx)
        return;
    unsigned before = atomic_fetch_sub_explicit(&ctx->count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    if (ctx->names.drop)
        ctx->names.drop(ctx->names.user);
    tls_tickets_unref(ctx->tickets);
    tls_sessions_free(ctx->sessions);
    sk_X509_pop_free(ctx->never, X509_free);
    SSL_CTX_free(ctx->ssl);
    BIO_meth_free(ctx->wire);
    mem_free(ctx);
}

struct tls_ctx *tls_ctx_refuse(struct tls_ctx *ctx, const char *why, struct arena *a,
                               struct str *ret_error)
{
    ERR_clear_error();
    ctx->names.drop = NULL;
    tls_ctx_unref(ctx);
    *ret_error = arena_str(a, str_of(why));
    return NULL;
}

bool tls_ctx_trust(SSL_CTX *ssl, struct str pem, bool tell)
{
    STACK_OF(X509) *list = tls_read_chain(pem);
    if (!list)
        return false;
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    bool good = X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) == 1;
    for (int i = 0; i < sk_X509_num(list) && good; i++) {
        X509 *x = sk_X509_value(list, i);
        good = X509_STORE_add_cert(store, x) == 1 && (!tell || SSL_CTX_add_client_CA(ssl, x) == 1);
    }
    sk_X509_pop_free(list, X509_free);
    return good;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Labels of letters, digits, hyphens (and underscores, which are not host names but exist); a dot
 * at the end is taken off. */
bool tls_read_name(struct str raw, char to[TLS_NAME_BYTES + 1], struct str *ret)
{
    size_t label = 0;
    if (raw.n > 0 && raw.p[raw.n - 1] == '.')
        raw.n--;
    if (raw.n == 0 || raw.n > TLS_NAME_BYTES)
        return false;
    for (size_t i = 0; i < raw.n; i++) {
        char c = to[i] = ascii_lower(raw.p[i]);
        bool dot = c == '.';
        if (dot ? label == 0 : !is_name_char(c))
            return false;
        label = dot ? 0 : label + 1;
        if (label > 63)
            return false;
    }
    *ret = (struct str){to, raw.n};
    return label > 0;
}

/* ---- one connection */

SSL *tls_ssl_new(struct tls_side *side, struct tls_wire *wire, const struct tls_to *to)
{
    const struct tls_ctx *ctx = side->ctx;
    SSL *ssl = SSL_new(ctx->ssl);
    BIO *bio = BIO_new(ctx->wire);
    assert(ssl && bio && ctx->server == !to);
    BIO_set_data(bio, wire);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, side);
    if (!to)
        SSL_set_accept_state(ssl);
    if (!to || tls_client_begin(side, ssl, to))
        return ssl;
    SSL_free(ssl);
    return NULL;
}

void tls_side_forget(const struct tls_side *side)
{
    if (side->ctx->sessions && side->name)
        tls_sessions_drop(side->ctx->sessions, side->name);
}

void tls_side_done(struct tls_side *side)
{
    tls_leaf_unref(side->as.leaf);
    mem_free(side->name);
    tls_ctx_unref(side->ctx);
}

bool tls_ssl_proved(const struct tls_ctx *ctx, const SSL *ssl)
{
    if (!ctx->verify)
        return true;
    const X509 *peer = SSL_get0_peer_certificate(ssl);
    return peer && SSL_get_verify_result(ssl) == X509_V_OK &&
           (!SSL_session_reused(ssl) || X509_cmp_current_time(X509_get0_notAfter(peer)) > 0);
}
