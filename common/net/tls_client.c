/* tls_client.c — the settings of clients, and who the other side must prove to be.  A chain of
 * certificates that leads to an anchor is not enough: our own authority, which the system trusts
 * for the sake of those whose connections we read, proves nobody to us. */
#include <assert.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <time.h>

#include "base/ip.h"
#include "net/tls_impl.h"

enum { KEPT_CHAIN_BYTES = 16384 };

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static const char *set_roots(SSL_CTX *ssl, const struct tls_client_rules *rules)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    if (rules->roots_pem.n > 0 && !tls_ctx_trust(ssl, rules->roots_pem, false))
        return "there is no certificate of an authority, or a broken one";
    if (rules->roots_dir.n > 0) {
        char *path = mem_strdup(rules->roots_dir);
        bool good = is_folder(path) && X509_STORE_load_path(store, path) == 1;
        mem_free(path);
        return good ? NULL : "the folder of authorities cannot be read";
    }
    if (rules->roots_pem.n == 0 && SSL_CTX_set_default_verify_paths(ssl) != 1)
        return "the system's authorities cannot be read";
    return NULL;
}

static const char *set_never(struct tls_ctx *ctx, struct str pem)
{
    ctx->never = pem.n > 0 ? tls_read_chain(pem) : NULL;
    return pem.n == 0 || ctx->never ? NULL : "there is no certificate of our own, or a broken one";
}

/* A server that asks is then answered without on_asked(). */
static bool set_own(SSL_CTX *ssl, const struct tls_client_rules *rules, struct arena *a,
                    struct str *ret_error)
{
    if (rules->cert_pem.n == 0 && rules->key_pem.n == 0)
        return true;
    struct tls_leaf *leaf = tls_leaf_new(rules->cert_pem, rules->key_pem, a, ret_error);
    bool good = leaf && tls_leaf_use_always(leaf, ssl);
    if (leaf && !good)
        *ret_error = STR("the certificate of our own cannot be used");
    tls_leaf_unref(leaf);
    return good;
}

static bool is_never(const struct tls_ctx *ctx, const X509 *x)
{
    for (int i = 0; i < sk_X509_num(ctx->never); i++)
        if (X509_PUBKEY_eq(X509_get_X509_PUBKEY(x),
                           X509_get_X509_PUBKEY(sk_X509_value(ctx->never, i))) == 1)
            return true;
    return false;
}

/* Asked about each certificate of a chain that leads to an anchor.  The key counts: an authority
 * may have more than one certificate. */
static int on_verify(int good, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    const struct tls_ctx *ctx = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    X509 *x = X509_STORE_CTX_get_current_cert(store);
    if (good != 1 || !x || !is_never(ctx, x))
        return good;
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
    return 0;
}

/* We have none, but whoever reads why it failed must know that one was wanted. */
static int on_asked(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
    struct tls_side *side = SSL_get_app_data(ssl);
    (void)cert;
    (void)key;
    side->asked = true;
    return 0;
}

static int64_t now_s(void)
{
    return time(NULL);
}

/* A session keeps all the peer has sent, needed or not. */
static bool is_small(const SSL *ssl)
{
    const STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
    int n = 0;
    for (int i = 0; i < sk_X509_num(chain); i++)
        n += i2d_X509(sk_X509_value(chain, i), NULL);
    return n <= KEPT_CHAIN_BYTES;
}

/* In 1.3 more than one may come, long after the handshake. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    const struct tls_side *side = SSL_get_app_data(ssl);
    if (side->name && tls_ssl_proved(side->ctx, ssl) && is_small(ssl))
        tls_sessions_put(side->ctx->sessions, side->name, session, SSL_session_reused(ssl),
                         now_s());
    return 0; /* counted by whoever keeps it */
}

static void set_sessions(struct tls_ctx *ctx, unsigned max)
{
    if (max == 0)
        return;
    ctx->sessions = tls_sessions_new(max);
    SSL_CTX_set_session_cache_mode(ctx->ssl,
                                   SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
    SSL_CTX_sess_set_new_cb(ctx->ssl, on_session);
}

struct tls_ctx *tls_client_new(const struct tls_client_rules *rules, struct arena *a,
                               struct str *ret_error)
{
    struct tls_ctx *ctx = tls_ctx_new(false, rules->wipe);
    ctx->verify = !rules->insecure;
    const char *fault = ctx->verify ? set_roots(ctx->ssl, rules) : NULL;
    fault = fault ? fault : set_never(ctx, rules->never_pem);
    if (fault)
        return tls_ctx_refuse(ctx, fault, a, ret_error);
    if (!set_own(ctx->ssl, rules, a, ret_error)) {
        ERR_clear_error();
        tls_ctx_unref(ctx);
        return NULL;
    }
    if (ctx->verify)
        SSL_CTX_set_verify(ctx->ssl, SSL_VERIFY_PEER, on_verify);
    SSL_CTX_set_client_cert_cb(ctx->ssl, on_asked);
    set_sessions(ctx, ctx->verify ? rules->sessions : 0);
    ERR_clear_error();
    return ctx;
}

/* ---- one connection */

static bool set_alpn(SSL *ssl, const char *const alpn[3])
{
    uint8_t list[3 * 64];
    size_t n = 0;
    for (int i = 0; i < 3 && alpn[i]; i++) {
        struct str one = str_of(alpn[i]);
        assert(one.n > 0 && one.n < 64);
        list[n++] = (uint8_t)one.n;
        memcpy(list + n, one.p, one.n);
        n += one.n;
    }
    return n == 0 || SSL_set_alpn_protos(ssl, list, (unsigned)n) == 0;
}

static bool expect_address(SSL *ssl, const struct ip *ip)
{
    enum { V4_AT = 12 };
    bool v4 = ip_is_v4(ip);
    return X509_VERIFY_PARAM_set1_ip(SSL_get0_param(ssl), v4 ? ip->b + V4_AT : ip->b,
                                     v4 ? 4 : 16) == 1;
}

static bool expect_name(SSL *ssl, const char *name)
{
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static bool set_peer(struct tls_side *side, SSL *ssl, const struct tls_to *to)
{
    struct str host = to->name;
    char bytes[TLS_NAME_BYTES + 1];
    struct ip ip;
    if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = (struct str){host.p + 1, host.n - 2};
    bool address = ip_parse(host, &ip);
    if (!address && !tls_read_name(host, bytes, &host))
        return !side->ctx->verify && to->name.n == 0; /* nobody in particular */
    side->name = mem_strdup(host);
    return address ? expect_address(ssl, &ip) : expect_name(ssl, side->name);
}

static bool offer_session(const struct tls_side *side, SSL *ssl)
{
    struct tls_sessions *kept = side->ctx->sessions;
    SSL_SESSION *session = kept && side->name ? tls_sessions_get(kept, side->name, now_s()) : NULL;
    bool good = !session || SSL_set_session(ssl, session) == 1;
    SSL_SESSION_free(session);
    return good;
}

bool tls_client_begin(struct tls_side *side, SSL *ssl, const struct tls_to *to)
{
    SSL_set_connect_state(ssl);
    side->proxy = to->proxy;
    return set_peer(side, ssl, to) && set_alpn(ssl, to->alpn) && offer_session(side, ssl);
}
