/* tls_server.c — the settings of servers.  The client's first message decides: by the name in it,
 * or by who answers for this connection, the SSL gets its certificate and the scope of its tickets.
 */
#include "base/digest.h"
#include "net/tls_impl.h"

enum { RENEW = 2 /* of tls_tickets_key() */ };

/* server_name (RFC 6066 section 3): a list of exactly one host name; none at all is fine too.  0 or
 * the alert. */
static int read_sni(SSL *ssl, char to[TLS_NAME_BYTES + 1], struct str *ret)
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
    return tls_read_name(raw, to, ret) ? 0 : SSL_AD_UNRECOGNIZED_NAME;
}

/* A ticket is good for the same name and the same authorities of clients, and for nothing else. */
static bool set_scope(const struct tls_ctx *ctx, SSL *ssl, struct str sni)
{
    uint8_t scope[SHA256_BYTES];
    struct str pieces[] = {{(const char *)ctx->scope, sizeof ctx->scope}, sni};
    digest_sha256(scope, pieces, 2);
    return SSL_set_session_id_context(ssl, scope, sizeof scope) == 1;
}

static const struct tls_leaf *leaf_for(const struct tls_side *side, struct str sni)
{
    const struct tls_names *names = &side->ctx->names;
    if (side->as.leaf)
        return side->as.leaf;
    return names->leaf ? names->leaf(names->user, sni) : NULL;
}

static int on_hello(SSL *ssl, int *alert, void *arg)
{
    const struct tls_ctx *ctx = arg;
    struct tls_side *side = SSL_get_app_data(ssl);
    char bytes[TLS_NAME_BYTES + 1];
    struct str sni;
    *alert = read_sni(ssl, bytes, &sni);
    if (*alert == SSL_AD_UNRECOGNIZED_NAME && side->as.leaf)
        *alert = 0; /* whoever gave the leaf has judged it */
    if (*alert)
        return SSL_CLIENT_HELLO_ERROR;
    const struct tls_leaf *leaf = leaf_for(side, sni);
    *alert = leaf ? SSL_AD_INTERNAL_ERROR : SSL_AD_UNRECOGNIZED_NAME;
    if (!leaf || !set_scope(ctx, ssl, sni) || !tls_leaf_use(leaf, ssl))
        return SSL_CLIENT_HELLO_ERROR;
    mem_free(side->name); /* a second hello, after ours for another group */
    side->name = mem_strdup(sni);
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
    const struct tls_as *as = &((const struct tls_side *)SSL_get_app_data(ssl))->as;
    if (as->leaf && !as->alpn)
        return SSL_TLSEXT_ERR_NOACK;
    if (as->leaf) {
        *ret_n = (uint8_t)strlen(as->alpn);
        return offers(list, n, str_of(as->alpn), ret) ? SSL_TLSEXT_ERR_OK
                                                      : SSL_TLSEXT_ERR_ALERT_FATAL;
    }
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

/* In 1.3 a client uses a ticket once (RFC 8446 appendix C.4), so that it gets another one. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int encrypt)
{
    const struct tls_ctx *ctx = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    int done = tls_tickets_key(ctx->tickets, name, iv, cipher, mac, encrypt == 1);
    return done == 1 && !encrypt && SSL_version(ssl) == TLS1_3_VERSION ? RENEW : done;
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
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx->ssl, on_ticket);
}

struct tls_ctx *tls_server_new(const struct tls_server_rules *rules, struct arena *a,
                               struct str *ret_error)
{
    struct tls_ctx *ctx = tls_ctx_new(true, rules->wipe);
    ctx->h2 = rules->h2;
    ctx->verify = rules->client_ca_pem.n > 0;
    if (ctx->verify && !tls_ctx_trust(ctx->ssl, rules->client_ca_pem, true))
        return tls_ctx_refuse(ctx, "there is no certificate of an authority, or a broken one", a,
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
