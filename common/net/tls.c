/* tls.c — the settings of servers and clients.  Built once and shared: what differs between
 * connections (certificate, scope of tickets, name of the peer) is set on the connection's own SSL,
 * because a context for each name would cost a hundred times as much. */
#include "net/tls.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/ip.h"
#include "net/tls_impl.h"

enum { NAME_BYTES = 253, SECURITY_LEVEL = 2 };

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

static struct tls_ctx *ctx_new(bool server)
{
    struct tls_ctx *ctx = mem_new(sizeof *ctx);
    atomic_init(&ctx->count, 1);
    ctx->server = server;
    ctx->wire = tls_wire_method();
    ctx->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    assert(ctx->wire && ctx->ssl);
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
    SSL_CTX_free(ctx->ssl);
    BIO_meth_free(ctx->wire);
    mem_free(ctx);
}

/* Not whole: whoever asked for it is told why. */
static struct tls_ctx *refuse(struct tls_ctx *ctx, const char *why, struct arena *a,
                              struct str *ret_error)
{
    ERR_clear_error();
    ctx->names.drop = NULL;
    tls_ctx_unref(ctx);
    *ret_error = arena_str(a, str_of(why));
    return NULL;
}

/* Every certificate of the text becomes an anchor, an intermediate one too: whoever names it means
 * it. */
static bool add_authorities(SSL_CTX *ssl, struct str pem, bool tell)
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

/* ---- server: the first message decides */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Labels of letters, digits, hyphens (and underscores, which are not host names but exist); a dot
 * at the end is taken off. */
static bool read_name(struct str raw, char to[NAME_BYTES + 1], struct str *ret)
{
    size_t label = 0;
    if (raw.n > 0 && raw.p[raw.n - 1] == '.')
        raw.n--;
    if (raw.n == 0 || raw.n > NAME_BYTES)
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

/* server_name (RFC 6066 section 3): a list of exactly one host name; none at all is fine too.  0 or
 * the alert. */
static int read_sni(SSL *ssl, char to[NAME_BYTES + 1], struct str *ret)
{
    enum { HEAD = 5, HOST_NAME = 0 };
    const uint8_t *p;
    size_t n;
    *ret = STR_NONE;
    if (!SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n))
        return 0;
    if (n < HEAD || ((size_t)p[0] << 8 | p[1]) != n - 2 || p[2] != HOST_NAME ||
        ((size_t)p[3] << 8 | p[4]) != n - HEAD)
        return SSL_AD_DECODE_ERROR;
    struct str raw = {(const char *)p + HEAD, n - HEAD};
    return read_name(raw, to, ret) ? 0 : SSL_AD_UNRECOGNIZED_NAME;
}

/* A ticket is good for the same name and the same authorities of clients, and for nothing else. */
static bool set_scope(const struct tls_ctx *ctx, SSL *ssl, struct str sni)
{
    uint8_t scope[SHA256_BYTES];
    struct str pieces[] = {{(const char *)ctx->scope, sizeof ctx->scope}, sni};
    digest_sha256(scope, pieces, 2);
    return SSL_set_session_id_context(ssl, scope, sizeof scope) == 1;
}

static int on_hello(SSL *ssl, int *alert, void *arg)
{
    const struct tls_ctx *ctx = arg;
    char **name = SSL_get_app_data(ssl), bytes[NAME_BYTES + 1];
    struct str sni;
    *alert = read_sni(ssl, bytes, &sni);
    if (*alert)
        return SSL_CLIENT_HELLO_ERROR;
    struct tls_leaf *leaf = ctx->names.leaf(ctx->names.user, sni);
    *alert = leaf ? SSL_AD_INTERNAL_ERROR : SSL_AD_UNRECOGNIZED_NAME;
    if (!leaf || !set_scope(ctx, ssl, sni) || !tls_leaf_use(leaf, ssl))
        return SSL_CLIENT_HELLO_ERROR;
    mem_free(*name); /* a second hello, after ours for another group */
    *name = mem_strdup(sni);
    return SSL_CLIENT_HELLO_SUCCESS;
}

/* The name was dealt with; that it is said back is what RFC 6066 asks for. */
static int on_name(SSL *ssl, int *alert, void *arg)
{
    (void)alert;
    (void)arg;
    return SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name) ? SSL_TLSEXT_ERR_OK
                                                              : SSL_TLSEXT_ERR_NOACK;
}

static bool offers(const uint8_t *list, unsigned n, struct str protocol, const uint8_t **ret)
{
    for (unsigned at = 0; at < n; at += 1u + list[at]) {
        struct str one = {(const char *)list + at + 1, list[at]};
        if (at + 1u + list[at] > n)
            return false;
        *ret = list + at + 1;
        if (str_eq(one, protocol))
            return true;
    }
    return false;
}

static int on_alpn(SSL *ssl, const uint8_t **ret, uint8_t *ret_n, const uint8_t *list, unsigned n,
                   void *arg)
{
    const struct tls_ctx *ctx = arg;
    (void)ssl;
    if (ctx->h2 && offers(list, n, STR("h2"), ret)) {
        *ret_n = 2;
        return SSL_TLSEXT_ERR_OK;
    }
    if (offers(list, n, STR("http/1.1"), ret)) {
        *ret_n = 8;
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int encrypt)
{
    const struct tls_ctx *ctx = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    return tls_tickets_key(ctx->tickets, name, iv, cipher, mac, encrypt == 1);
}

/* One is enough.  It leaves at once, with the handshake: a client that writes its last message and
 * its request apart would else wait for our acknowledgement in between. */
static void set_tickets(struct tls_ctx *ctx, struct tls_tickets *tickets)
{
    SSL_CTX_set_num_tickets(ctx->ssl, tickets ? 1 : 0);
    if (!tickets) {
        SSL_CTX_set_options(ctx->ssl, SSL_OP_NO_TICKET);
        return;
    }
    ctx->tickets = tls_tickets_ref(tickets);
    SSL_CTX_set_app_data(ctx->ssl, ctx);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx->ssl, on_ticket);
}

struct tls_ctx *tls_server_new(const struct tls_server_rules *rules, struct arena *a,
                               struct str *ret_error)
{
    struct tls_ctx *ctx = ctx_new(true);
    ctx->h2 = rules->h2;
    ctx->verify = rules->client_ca_pem.n > 0;
    if (ctx->verify && !add_authorities(ctx->ssl, rules->client_ca_pem, true))
        return refuse(ctx, "there is no certificate of an authority, or a broken one", a,
                      ret_error);
    if (ctx->verify)
        SSL_CTX_set_verify(ctx->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    digest_sha256(ctx->scope, &rules->client_ca_pem, 1);
    set_tickets(ctx, rules->tickets);
    SSL_CTX_set_client_hello_cb(ctx->ssl, on_hello, ctx);
    SSL_CTX_set_tlsext_servername_callback(ctx->ssl, on_name);
    SSL_CTX_set_alpn_select_cb(ctx->ssl, on_alpn, ctx);
    ctx->names = rules->names;
    return ctx;
}

/* ---- client */

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static const char *set_roots(SSL_CTX *ssl, const struct tls_client_rules *rules)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    if (rules->roots_pem.n > 0 && !add_authorities(ssl, rules->roots_pem, false))
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

struct tls_ctx *tls_client_new(const struct tls_client_rules *rules, struct arena *a,
                               struct str *ret_error)
{
    struct tls_ctx *ctx = ctx_new(false);
    ctx->verify = !rules->insecure;
    const char *fault = ctx->verify ? set_roots(ctx->ssl, rules) : NULL;
    if (fault)
        return refuse(ctx, fault, a, ret_error);
    SSL_CTX_set_verify(ctx->ssl, ctx->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
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

static bool set_peer(const struct tls_ctx *ctx, SSL *ssl, const struct tls_to *to, char **name)
{
    struct str host = to->name;
    char bytes[NAME_BYTES + 1];
    struct ip ip;
    if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = (struct str){host.p + 1, host.n - 2};
    bool address = ip_parse(host, &ip);
    if (!address && !read_name(host, bytes, &host))
        return !ctx->verify && to->name.n == 0; /* nobody in particular */
    *name = mem_strdup(host);
    return address ? expect_address(ssl, &ip) : expect_name(ssl, *name);
}

SSL *tls_ssl_new(struct tls_ctx *ctx, struct tls_wire *wire, const struct tls_to *to, char **name)
{
    SSL *ssl = SSL_new(ctx->ssl);
    BIO *bio = BIO_new(ctx->wire);
    assert(ssl && bio && ctx->server == !to);
    BIO_set_data(bio, wire);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, name);
    if (!to) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_set_connect_state(ssl);
    if (set_peer(ctx, ssl, to, name) && set_alpn(ssl, to->alpn))
        return ssl;
    SSL_free(ssl);
    return NULL;
}

bool tls_ssl_proved(const struct tls_ctx *ctx, const SSL *ssl)
{
    if (!ctx->verify)
        return true;
    const X509 *peer = SSL_get0_peer_certificate(ssl);
    return peer && SSL_get_verify_result(ssl) == X509_V_OK &&
           (!SSL_session_reused(ssl) || X509_cmp_current_time(X509_get0_notAfter(peer)) > 0);
}
