/* ca_impl.h — what the files of the authority and its leaves know of each other; shows OpenSSL. */
#ifndef INTERCEPT_CA_IMPL_H
#define INTERCEPT_CA_IMPL_H

#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include "egress/intercept/ca.h"

struct ca {
    X509 *cert;
    EVP_PKEY *key;
    char *pem;         /* of the certificate */
    int64_t not_after; /* seconds since 1970 */
};

enum { CA_DAY_S = 86400 };

/* ---- ca.c */

/* An authority from PEM: its key (PKCS#8, PKCS#1 or EC, no passphrase) and the first certificate.
 * NULL: *ret_fault is static text. */
struct ca *ca_read(struct str pem, int64_t now_s, const char **ret_fault);
/* A new one, good for ten years. */
struct ca *ca_make(enum ca_key kind, int64_t now_s);
/* Key and certificate as one text of *ret_n bytes on the heap, to be wiped. */
char *ca_whole_pem(const struct ca *ca, size_t *ret_n);

/* ---- ca_parts.c: fields that all our certificates have.  Nothing in it fails but for memory. */

/* 16 random bytes, positive, none of them to spare (RFC 5280 section 4.1.2.2). */
void ca_set_serial(X509 *x);
void ca_set_times(X509 *x, int64_t from_s, int64_t to_s);
int64_t ca_time(const ASN1_TIME *t);
/* An extension from OpenSSL's structure for it, which stays the caller's. */
X509_EXTENSION *ca_extension(int nid, bool critical, void *value);
/* key usage: the bits of KU_… as OpenSSL names them. */
X509_EXTENSION *ca_key_usage(unsigned bits);
/* SHA-1 over the public key (RFC 5280 section 4.2.1.2, method 1). */
ASN1_OCTET_STRING *ca_key_id(EVP_PKEY *key);
/* Takes the extension. */
void ca_put(X509 *x, X509_EXTENSION *e);
/* value: printable as UTF-8, at most as long as the field may be. */
void ca_put_name(X509_NAME *name, const char *field, struct str value);

#endif
