/* tls_fault.c — why TLS failed, in a few words for whoever has to set it right.  Interception takes
 * the client's own check away, so that ours has to be seen; nothing the peer has sent is repeated.
 */
#include <openssl/err.h>

#include "net/tls_impl.h"

#define FAULTS(X)                                                \
    X(EXPIRED, "certificate has expired")                        \
    X(EARLY, "certificate is not valid yet")                     \
    X(OTHER, "certificate is for another host")                  \
    X(SELF_SIGNED, "certificate is self-signed")                 \
    X(ISSUER, "issuer of the certificate is not known")          \
    X(NO_AUTHORITY, "issuer of the certificate is no authority") \
    X(WEAK, "certificate is too weak")                           \
    X(PURPOSE, "not a server certificate")                       \
    X(OWN, "certificate was issued by our own authority")        \
    X(INVALID, "certificate is not valid")                       \
    X(NO_CLIENT, "asks for a client certificate")                \
    X(UNTRUSTED, "our certificate is not trusted")               \
    X(REFUSED, "handshake was refused")                          \
    X(VERSION, "no version of TLS in common")                    \
    X(CIPHER, "no cipher in common")                             \
    X(ALPN, "no application protocol in common")                 \
    X(NAME, "name is not known there")                           \
    X(NO_NAME, "no certificate can name this host")              \
    X(NOT_TLS, "what came is not TLS")                           \
    X(LOST, "connection was closed in the handshake")            \
    X(FAILED, "TLS failed")

enum fault {
#define X(id, text) id,
    FAULTS(X)
#undef X
};

/* Of the target, and of the upstream proxy on the way to it. */
static const struct {
    const char *text[2];
} texts[] = {
#define X(id, text) [id] = {{text, "upstream proxy: " text}},
    FAULTS(X)
#undef X
};

struct row {
    int code;
    enum fault fault;
};

static const struct row verdicts[] = {
    {X509_V_ERR_CERT_HAS_EXPIRED, EXPIRED},
    {X509_V_ERR_CERT_NOT_YET_VALID, EARLY},
    {X509_V_ERR_HOSTNAME_MISMATCH, OTHER},
    {X509_V_ERR_IP_ADDRESS_MISMATCH, OTHER},
    {X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED},
    {X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, ISSUER},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, ISSUER},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, ISSUER},
    {X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, ISSUER},
    {X509_V_ERR_CERT_UNTRUSTED, ISSUER},
    {X509_V_ERR_INVALID_CA, NO_AUTHORITY},
    {X509_V_ERR_KEYUSAGE_NO_CERTSIGN, NO_AUTHORITY},
    {X509_V_ERR_EE_KEY_TOO_SMALL, WEAK},
    {X509_V_ERR_CA_KEY_TOO_SMALL, WEAK},
    {X509_V_ERR_CA_MD_TOO_WEAK, WEAK},
    {X509_V_ERR_INVALID_PURPOSE, PURPOSE},
    {X509_V_ERR_CERT_REJECTED, OWN},
};

/* What OpenSSL noted, alerts of the peer among it. */
static const struct row reasons[] = {
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, NO_CLIENT},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, UNTRUSTED},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, UNTRUSTED},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, UNTRUSTED},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, UNTRUSTED},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, UNTRUSTED},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, REFUSED},
    {SSL_R_TLSV1_ALERT_ACCESS_DENIED, REFUSED},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, VERSION},
    {SSL_R_UNSUPPORTED_PROTOCOL, VERSION},
    {SSL_R_UNKNOWN_PROTOCOL, VERSION},
    {SSL_R_VERSION_TOO_LOW, VERSION},
    {SSL_R_NO_SHARED_CIPHER, CIPHER},
    {SSL_R_TLSV1_ALERT_INSUFFICIENT_SECURITY, CIPHER},
    {SSL_R_NO_APPLICATION_PROTOCOL, ALPN},
    {SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL, ALPN},
    {SSL_R_TLSV1_UNRECOGNIZED_NAME, NAME},
    {SSL_R_WRONG_VERSION_NUMBER, NOT_TLS},
    {SSL_R_HTTP_REQUEST, NOT_TLS},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, LOST},
};

/* Servers that want a client certificate and see none say so in many ways. */
static const int no_client_alerts[] = {
    SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
    SSL_R_SSLV3_ALERT_NO_CERTIFICATE,    SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
    SSL_R_TLSV1_ALERT_UNKNOWN_CA,        SSL_R_TLSV1_ALERT_ACCESS_DENIED,
};

static struct str say(const struct tls_side *side, enum fault f)
{
    return str_of(texts[f].text[side->proxy]);
}

static enum fault look_up(const struct row *rows, size_t n, int code, enum fault other)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].code == code)
            return rows[i].fault;
    return other;
}

static bool refuses_us(int reason)
{
    for (size_t i = 0; i < sizeof no_client_alerts / sizeof *no_client_alerts; i++)
        if (no_client_alerts[i] == reason)
            return true;
    return false;
}

struct str tls_fault(const struct tls_side *side, const SSL *ssl)
{
    const struct tls_ctx *ctx = side->ctx;
    long verdict = SSL_get_verify_result(ssl);
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    if (!ctx->server && ctx->verify && verdict != X509_V_OK)
        return say(side,
                   look_up(verdicts, sizeof verdicts / sizeof *verdicts, (int)verdict, INVALID));
    if (side->asked && refuses_us(reason))
        return say(side, NO_CLIENT);
    if (SSL_session_reused(ssl) && !tls_ssl_proved(ctx, ssl))
        return say(side, EXPIRED);
    return say(side, look_up(reasons, sizeof reasons / sizeof *reasons, reason, FAILED));
}

struct str tls_fault_lost(const struct tls_side *side, bool shaking)
{
    if (side->asked)
        return say(side, NO_CLIENT);
    return shaking ? say(side, LOST) : STR_NONE;
}

struct str tls_fault_name(const struct tls_side *side)
{
    return say(side, NO_NAME);
}

bool tls_fault_is_no_client(struct str fault)
{
    return fault.p == texts[NO_CLIENT].text[0] || fault.p == texts[NO_CLIENT].text[1];
}

bool tls_fault_is_alpn(struct str fault)
{
    return str_eq(fault, str_of(texts[ALPN].text[0]));
}
