/* ca_parts.c — the fields of a certificate, made from structures rather than from texts: no parser
 * of OpenSSL's little language sees a name that a workload chose. */
#include "egress/intercept/ca_impl.h"

#include <assert.h>

#include "base/digest.h"

enum { SERIAL_BYTES = 16, KEY_ID_BYTES = SHA1_BYTES };

void ca_set_serial(X509 *x)
{
    uint8_t b[SERIAL_BYTES];
    digest_random(b, sizeof b);
    b[0] = (b[0] & 0x7f) | 0x40; /* positive, and of one length */
    int good = ASN1_STRING_set(X509_get_serialNumber(x), b, sizeof b);
    assert(good);
}

void ca_set_times(X509 *x, int64_t from_s, int64_t to_s)
{
    bool good = ASN1_TIME_set(X509_getm_notBefore(x), (time_t)from_s) &&
                ASN1_TIME_set(X509_getm_notAfter(x), (time_t)to_s);
    assert(good);
}

int64_t ca_time(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) ? timegm(&tm) : 0;
}

X509_EXTENSION *ca_extension(int nid, bool critical, void *value)
{
    X509_EXTENSION *e = X509V3_EXT_i2d(nid, critical, value);
    assert(e);
    return e;
}

X509_EXTENSION *ca_key_usage(unsigned bits)
{
    ASN1_BIT_STRING *s = ASN1_BIT_STRING_new();
    assert(s && bits <= 0xff); /* bit 0 of the usage is the highest one of KU_… */
    for (int i = 0; i < 8; i++)
        if (bits & (0x80u >> i))
            ASN1_BIT_STRING_set_bit(s, i, 1);
    X509_EXTENSION *e = ca_extension(NID_key_usage, true, s);
    ASN1_BIT_STRING_free(s);
    return e;
}

ASN1_OCTET_STRING *ca_key_id(EVP_PKEY *key)
{
    X509_PUBKEY *pub = NULL;
    const uint8_t *bytes;
    int n;
    uint8_t id[KEY_ID_BYTES];
    bool good =
        X509_PUBKEY_set(&pub, key) == 1 && X509_PUBKEY_get0_param(NULL, &bytes, &n, NULL, pub) == 1;
    assert(good);
    digest_sha1(id, &(struct str){(const char *)bytes, (size_t)n}, 1);
    X509_PUBKEY_free(pub);
    ASN1_OCTET_STRING *s = ASN1_OCTET_STRING_new();
    good = s && ASN1_OCTET_STRING_set(s, id, sizeof id);
    assert(good);
    return s;
}

void ca_put(X509 *x, X509_EXTENSION *e)
{
    int good = X509_add_ext(x, e, -1);
    assert(good);
    X509_EXTENSION_free(e);
}

void ca_put_name(X509_NAME *name, const char *field, struct str value)
{
    int good = X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, (const uint8_t *)value.p,
                                          (int)value.n, -1, 0);
    assert(good);
}
