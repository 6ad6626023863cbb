/* ca.c — the authority itself: read from a text or made.  What a strict client would refuse later,
 * in the sandbox, where nobody can tell why, is refused here and now. */
#include "egress/intercept/ca_impl.h"

#include <assert.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "base/digest.h"
#include "base/text.h"

enum { YEARS_10_DAYS = 3652, EARLY_DAYS = 2, RSA_BITS = 2048, SECURITY_BITS = 112, TAG_BYTES = 4 };

/* ---- reading */

/* A key with a passphrase is refused, not asked for. */
static int no_passphrase(char *to, int n, int writing, void *user)
{
    (void)to;
    (void)n;
    (void)writing;
    (void)user;
    return -1;
}

static EVP_PKEY *read_key(struct str pem)
{
    BIO *b = BIO_new_mem_buf(pem.n ? pem.p : "", (int)pem.n);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL);
    BIO_free(b);
    return key;
}

static X509 *read_cert(struct str pem)
{
    BIO *b = BIO_new_mem_buf(pem.n ? pem.p : "", (int)pem.n);
    X509 *x = PEM_read_bio_X509(b, NULL, no_passphrase, NULL);
    BIO_free(b);
    return x;
}

static bool is_usual(const EVP_PKEY *key)
{
    return (EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_is_a(key, "EC")) &&
           EVP_PKEY_get_security_bits(key) >= SECURITY_BITS;
}

/* Stated, not only to be guessed from an old form. */
static bool is_authority(X509 *x)
{
    return X509_check_ca(x) == 1 && (X509_get_key_usage(x) & KU_KEY_CERT_SIGN);
}

static const char *fault_of(const struct ca *ca, int64_t now_s)
{
    if (!ca->key)
        return "there is no private key, or a broken one, or one with a passphrase";
    if (!ca->cert)
        return "there is no certificate, or a broken one";
    if (!X509_check_private_key(ca->cert, ca->key))
        return "the key does not belong to the certificate";
    if (!is_authority(ca->cert))
        return "the certificate is not that of an authority";
    if (!is_usual(ca->key))
        return "the key must be EC or RSA, of 2048 bits or more";
    if (ca->not_after <= now_s)
        return "the certificate has expired";
    return ca_time(X509_get0_notBefore(ca->cert)) > now_s ? "the certificate is not valid yet"
                                                          : NULL;
}

static char *text_of(BIO *b, size_t *ret_n)
{
    char *p;
    long n = BIO_get_mem_data(b, &p);
    char *z = mem_strdup((struct str){p, (size_t)n});
    *ret_n = (size_t)n;
    BIO_free(b); /* wipes its own */
    return z;
}

static char *cert_pem(X509 *x)
{
    size_t n;
    BIO *b = BIO_new(BIO_s_mem());
    int good = b && PEM_write_bio_X509(b, x);
    assert(good);
    return text_of(b, &n);
}

struct ca *ca_read(struct str pem, int64_t now_s, const char **ret_fault)
{
    assert(pem.n <= INT32_MAX);
    struct ca *ca = mem_new(sizeof *ca);
    digest_begin();
    ERR_clear_error();
    ca->key = read_key(pem);
    ca->cert = read_cert(pem);
    if (ca->cert)
        ca->not_after = ca_time(X509_get0_notAfter(ca->cert));
    const char *fault = fault_of(ca, now_s);
    ERR_clear_error();
    if (!fault) {
        ca->pem = cert_pem(ca->cert);
        return ca;
    }
    *ret_fault = fault;
    ca_free(ca);
    return NULL;
}

/* ---- making */

/* Each has a name of its own: a store that holds an older one too takes neither for the other. */
static void put_subject(X509 *x)
{
    uint8_t tag[TAG_BYTES];
    char name[64] = "Sallyport interception CA ";
    size_t n = strlen(name);
    digest_random(tag, sizeof tag);
    text_put_hex(name + n, tag, sizeof tag);
    X509_NAME *subject = X509_NAME_new();
    assert(subject);
    ca_put_name(subject, "O", STR("Sallyport"));
    ca_put_name(subject, "CN", (struct str){name, n + 2 * sizeof tag});
    int good = X509_set_subject_name(x, subject) && X509_set_issuer_name(x, subject);
    assert(good);
    X509_NAME_free(subject);
}

/* Critical: an authority, and none below it. */
static X509_EXTENSION *basic_constraints(void)
{
    BASIC_CONSTRAINTS *bc = BASIC_CONSTRAINTS_new();
    assert(bc);
    bc->ca = 0xff;
    bc->pathlen = ASN1_INTEGER_new();
    int good = bc->pathlen && ASN1_INTEGER_set(bc->pathlen, 0);
    assert(good);
    X509_EXTENSION *e = ca_extension(NID_basic_constraints, true, bc);
    BASIC_CONSTRAINTS_free(bc);
    return e;
}

static void put_extensions(X509 *x, EVP_PKEY *key)
{
    ASN1_OCTET_STRING *id = ca_key_id(key);
    ca_put(x, basic_constraints());
    ca_put(x, ca_key_usage(KU_KEY_CERT_SIGN | KU_CRL_SIGN));
    ca_put(x, ca_extension(NID_subject_key_identifier, false, id));
    ASN1_OCTET_STRING_free(id);
}

struct ca *ca_make(enum ca_key kind, int64_t now_s)
{
    struct ca *ca = mem_new(sizeof *ca);
    digest_begin();
    ca->key = kind == CA_KEY_RSA2048 ? EVP_RSA_gen(RSA_BITS) : EVP_EC_gen("P-256");
    ca->cert = X509_new();
    assert(ca->key && ca->cert);
    ca->not_after = now_s + YEARS_10_DAYS * (int64_t)CA_DAY_S;
    X509_set_version(ca->cert, X509_VERSION_3);
    ca_set_serial(ca->cert);
    ca_set_times(ca->cert, now_s - EARLY_DAYS * CA_DAY_S, ca->not_after);
    put_subject(ca->cert);
    X509_set_pubkey(ca->cert, ca->key);
    put_extensions(ca->cert, ca->key);
    int n = X509_sign(ca->cert, ca->key, EVP_sha256());
    assert(n > 0);
    ca->pem = cert_pem(ca->cert);
    return ca;
}

char *ca_whole_pem(const struct ca *ca, size_t *ret_n)
{
    BIO *b = BIO_new(BIO_s_mem());
    int good = b && PEM_write_bio_PrivateKey(b, ca->key, NULL, NULL, 0, NULL, NULL) &&
               PEM_write_bio_X509(b, ca->cert);
    assert(good);
    return text_of(b, ret_n);
}

struct str ca_pem(const struct ca *ca)
{
    return str_of(ca->pem);
}

void ca_free(struct ca *ca)
{
    if (!ca)
        return;
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    mem_free(ca->pem);
    mem_free(ca);
}
