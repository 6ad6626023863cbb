/* tls_leaf.c — a certificate with its chain and key, read from texts and never changed.  What
 * OpenSSL would refuse in a handshake is refused here, where an operator sees it. */
#include <assert.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <time.h>

#include "base/digest.h"
#include "net/tls_impl.h"

enum { MAX_CHAIN = 16 };

struct tls_leaf {
    atomic_uint count;
    X509 *cert;
    STACK_OF(X509) * chain; /* behind the leaf */
    EVP_PKEY *key;
    char **names;
    unsigned nnames;
    int64_t not_after;
};

/* A key with a passphrase is refused, not asked for. */
static int no_passphrase(char *to, int n, int writing, void *user)
{
    (void)to;
    (void)n;
    (void)writing;
    (void)user;
    return -1;
}

static BIO *reader(struct str pem)
{
    BIO *b = pem.n <= INT32_MAX ? BIO_new_mem_buf(pem.n ? pem.p : "", (int)pem.n) : NULL;
    ERR_clear_error();
    return b;
}

/* Did the last read stop because there was nothing more? */
static bool at_the_end(void)
{
    unsigned long err = ERR_peek_last_error();
    return ERR_GET_LIB(err) == ERR_LIB_PEM && ERR_GET_REASON(err) == PEM_R_NO_START_LINE;
}

STACK_OF(X509) * tls_read_chain(struct str pem)
{
    BIO *b = reader(pem);
    if (!b)
        return NULL;
    STACK_OF(X509) *chain = sk_X509_new_null();
    X509 *x;
    while ((x = PEM_read_bio_X509(b, NULL, no_passphrase, NULL)))
        sk_X509_push(chain, x);
    bool whole = at_the_end() && sk_X509_num(chain) > 0;
    ERR_clear_error();
    BIO_free(b);
    if (whole)
        return chain;
    sk_X509_pop_free(chain, X509_free);
    return NULL;
}

static EVP_PKEY *read_key(struct str pem)
{
    BIO *b = reader(pem);
    EVP_PKEY *key = b ? PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL) : NULL;
    ERR_clear_error();
    BIO_free(b);
    return key;
}

/* ---- names */

static void add_name(struct tls_leaf *l, const ASN1_STRING *s)
{
    struct str name = {(const char *)ASN1_STRING_get0_data(s), (size_t)ASN1_STRING_length(s)};
    if (name.n == 0 || str_chr(name, '\0') >= 0)
        return;
    l->names = mem_renew(l->names, (l->nnames + 1) * sizeof *l->names);
    char *z = l->names[l->nnames++] = mem_strdup(name);
    for (; *z; z++)
        *z = ascii_lower(*z);
}

static void add_alternative_names(struct tls_leaf *l)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(l->cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
        if (n->type == GEN_DNS)
            add_name(l, n->d.dNSName);
    }
    GENERAL_NAMES_free(names);
}

static void add_common_name(struct tls_leaf *l)
{
    const X509_NAME *subject = X509_get_subject_name(l->cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at >= 0)
        add_name(l, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

static void read_leaf(struct tls_leaf *l)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(X509_get0_notAfter(l->cert), &tm))
        l->not_after = timegm(&tm);
    add_alternative_names(l);
    if (l->nnames == 0)
        add_common_name(l);
    ERR_clear_error();
}

/* ---- life */

/* Would a handshake take it?  Keys that are too short, or of a kind that TLS does not know, are
 * found here. */
static bool serves(const struct tls_leaf *l)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    SSL *ssl = ctx ? SSL_new(ctx) : NULL;
    bool good = ssl && tls_leaf_use(l, ssl);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ERR_clear_error();
    return good;
}

static const char *fault_of(struct tls_leaf *l, struct str chain_pem, struct str key_pem)
{
    l->chain = tls_read_chain(chain_pem);
    if (!l->chain)
        return "there is no certificate, or a broken one";
    if (sk_X509_num(l->chain) > MAX_CHAIN)
        return "the chain is too long";
    l->cert = sk_X509_shift(l->chain);
    l->key = read_key(key_pem);
    if (!l->key)
        return "there is no private key, or a broken one, or one with a passphrase";
    if (!X509_check_private_key(l->cert, l->key))
        return "the key does not belong to the certificate";
    return serves(l) ? NULL : "the certificate or its key is too weak for TLS";
}

struct tls_leaf *tls_leaf_new(struct str chain_pem, struct str key_pem, struct arena *a,
                              struct str *ret_error)
{
    struct tls_leaf *l = mem_new(sizeof *l);
    digest_begin();
    atomic_init(&l->count, 1);
    const char *fault = fault_of(l, chain_pem, key_pem);
    if (!fault) {
        read_leaf(l);
        return l;
    }
    ERR_clear_error();
    tls_leaf_unref(l);
    *ret_error = arena_str(a, str_of(fault));
    return NULL;
}

struct tls_leaf *tls_leaf_made(struct x509_st *cert, struct evp_pkey_st *key)
{
    struct tls_leaf *l = mem_new(sizeof *l);
    atomic_init(&l->count, 1);
    X509_up_ref(cert);
    EVP_PKEY_up_ref(key);
    l->cert = cert;
    l->key = key;
    read_leaf(l);
    return l;
}

struct tls_leaf *tls_leaf_ref(struct tls_leaf *l)
{
    unsigned before = atomic_fetch_add_explicit(&l->count, 1, memory_order_relaxed);
    assert(before > 0);
    return l;
}

void tls_leaf_unref(struct tls_leaf *l)
{
    if (!l)
        return;
    unsigned before = atomic_fetch_sub_explicit(&l->count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    X509_free(l->cert);
    sk_X509_pop_free(l->chain, X509_free);
    EVP_PKEY_free(l->key);
    for (unsigned i = 0; i < l->nnames; i++)
        mem_free(l->names[i]);
    mem_free(l->names);
    mem_free(l);
}

struct str tls_leaf_name(const struct tls_leaf *l, unsigned i)
{
    return i < l->nnames ? str_of(l->names[i]) : STR_NONE;
}

int64_t tls_leaf_not_after(const struct tls_leaf *l)
{
    return l->not_after;
}

bool tls_leaf_use(const struct tls_leaf *l, SSL *ssl)
{
    return SSL_use_cert_and_key(ssl, l->cert, l->key, l->chain, 1) == 1;
}

bool tls_leaf_use_always(const struct tls_leaf *l, SSL_CTX *ssl)
{
    return SSL_CTX_use_cert_and_key(ssl, l->cert, l->key, l->chain, 1) == 1;
}
