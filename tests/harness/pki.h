/* pki.h — certificates for tests, made on the spot. */
#ifndef HARNESS_PKI_H
#define HARNESS_PKI_H

#include <openssl/x509.h>

#include "base/mem.h"

struct pki_cert;
enum pki_key { PKI_P256, PKI_P384, PKI_RSA2048, PKI_RSA1024, PKI_ED25519 };

struct pki_wish {
    const char *cn, *names; /* names: "DNS:a.test,IP:127.0.0.1", or NULL */
    enum pki_key key;
    long from_s, to_s; /* from now on; both 0: an hour ago to tomorrow */
    bool authority;
    const char *purpose;           /* extended key usage, e.g. "clientAuth"; NULL: any */
    bool sha1;                     /* signed with SHA-1 */
    const struct pki_cert *key_of; /* the key of that one, in place of one of its own */
};
struct pki_cert {
    X509 *cert;
    EVP_PKEY *key;
    char *pem, *key_pem;
};

/* Signed by issuer, or by itself (NULL). */
struct pki_cert *pki_new(const struct pki_wish *wish, const struct pki_cert *issuer);
void pki_free(struct pki_cert *c);

#endif
