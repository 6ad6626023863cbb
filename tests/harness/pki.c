/* pki.c — certificates for tests.  Made anew in each run, so that none is ever out of date and no
 * key lies in the repository. */
#include "harness/pki.h"

#include <assert.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <time.h>

static EVP_PKEY *make_key(enum pki_key kind)
{
    switch (kind) {
    case PKI_P384:
        return EVP_EC_gen("P-384");
    case PKI_RSA2048:
        return EVP_RSA_gen(2048);
    case PKI_RSA1024:
        return EVP_RSA_gen(1024);
    case PKI_ED25519:
        return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    default:
        return EVP_EC_gen("P-256");
    }
}

static void add_extension(X509 *x, X509 *issuer, int what, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx(&v3, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &v3, what, value);
    assert(e);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
}

static void set_subject(X509 *x, const char *cn)
{
    X509_NAME *name = X509_NAME_new();
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const uint8_t *)cn, -1, -1, 0);
    X509_set_subject_name(x, name);
    X509_NAME_free(name);
}

static char *text_of(BIO *b)
{
    char *p;
    long n = BIO_get_mem_data(b, &p);
    char *z = mem_strdup((struct str){p, (size_t)n});
    BIO_free(b);
    return z;
}

struct pki_cert *pki_new(const struct pki_wish *wish, const struct pki_cert *issuer)
{
    struct pki_cert *c = mem_new(sizeof *c);
    c->key = wish->key_of ? wish->key_of->key : make_key(wish->key);
    if (wish->key_of)
        EVP_PKEY_up_ref(c->key);
    X509 *x = c->cert = X509_new();
    X509 *by = issuer ? issuer->cert : x;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    bool usual = wish->from_s == 0 && wish->to_s == 0;
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set_int64(X509_get_serialNumber(x), now.tv_sec * 1000 + now.tv_nsec / 1000000);
    X509_gmtime_adj(X509_getm_notBefore(x), usual ? -3600 : wish->from_s);
    X509_gmtime_adj(X509_getm_notAfter(x), usual ? 86400 : wish->to_s);
    set_subject(x, wish->cn);
    X509_set_issuer_name(x, X509_get_subject_name(by));
    X509_set_pubkey(x, c->key);
    add_extension(x, by, NID_basic_constraints, wish->authority ? "critical,CA:TRUE" : "CA:FALSE");
    if (wish->names)
        add_extension(x, by, NID_subject_alt_name, wish->names);
    if (wish->purpose)
        add_extension(x, by, NID_ext_key_usage, wish->purpose);
    EVP_PKEY *with = issuer ? issuer->key : c->key;
    const EVP_MD *md = wish->sha1 ? EVP_sha1() : EVP_sha256();
    int n = X509_sign(x, with, EVP_PKEY_is_a(with, "ED25519") ? NULL : md);
    assert(n > 0);
    BIO *b = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(b, x);
    c->pem = text_of(b);
    b = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(b, c->key, NULL, NULL, 0, NULL, NULL);
    c->key_pem = text_of(b);
    return c;
}

void pki_free(struct pki_cert *c)
{
    X509_free(c->cert);
    EVP_PKEY_free(c->key);
    mem_free(c->pem);
    mem_free(c->key_pem);
    mem_free(c);
}
