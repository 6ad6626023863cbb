/* tls.h — TLS contexts, certificates by name, session tickets; OpenSSL's door together with conn.c.
 *
 * A context is built once, shared by all workers and never changed; connections that use it hold
 * it. TLS 1.2 and up, no renegotiation, no compression, no early data (DESIGN 8). */
#ifndef NET_TLS_H
#define NET_TLS_H

#include "base/mem.h"
#include "base/why.h"

struct tls_ctx;     /* a server's or a client's settings; counted, atomic */
struct tls_leaf;    /* a certificate chain with its key; counted, atomic */
struct tls_tickets; /* keys of session tickets; counted, atomic */

/* ---- certificates */

/* Both PEM: the chain from leaf to the last intermediate, and its private key (no passphrase).
 * NULL: *ret_error is one line without a name of a file, e.g. "the key does not belong to the
 * certificate". Never holds a part of the key. */
struct tls_leaf *tls_leaf_new(struct str chain_pem, struct str key_pem, struct arena *a,
                              struct str *ret_error);
/* One of our own making, without a chain: cert and key are OpenSSL's X509 and EVP_PKEY, belong
 * together, and are never changed again.  Takes a reference to each; the pair is not tried. */
struct x509_st;
struct evp_pkey_st;
struct tls_leaf *tls_leaf_made(struct x509_st *cert, struct evp_pkey_st *key);
struct tls_leaf *tls_leaf_ref(struct tls_leaf *l);
void tls_leaf_unref(struct tls_leaf *l);
/* The i-th DNS name of the certificate (subjectAltName, else the common name), lower case, as it
 * stands there ("*.example.test"); empty: no more.  Lives with the leaf. */
struct str tls_leaf_name(const struct tls_leaf *l, unsigned i);
/* Of the leaf: seconds since 1970. */
int64_t tls_leaf_not_after(const struct tls_leaf *l);

/* ---- tickets (RFC 5077; RFC 8446 section 4.6.1) */

/* Keys made at random; tls_tickets_turn() makes a new one the first and keeps the last two for
 * decrypting. */
struct tls_tickets *tls_tickets_new(void);
/* Keys from a text: one a line, base64 of 48 or 80 bytes; the first encrypts, all decrypt, so that
 * replicas with the same file resume each other's sessions.  NULL: *ret_error without a byte of it.
 */
struct tls_tickets *tls_tickets_parse(struct str text, struct arena *a, struct str *ret_error);
/* From any thread; only after tls_tickets_new(): keys from a file turn when the file does. */
void tls_tickets_turn(struct tls_tickets *t);
struct tls_tickets *tls_tickets_ref(struct tls_tickets *t);
void tls_tickets_unref(struct tls_tickets *t);

/* ---- contexts */

/* Certificate by name: asked in the handshake, on any worker's thread.  sni: lower case, empty: the
 * client named none.  The leaf is lent.  NULL: refused with unrecognized_name. */
struct tls_names {
    struct tls_leaf *(*leaf)(void *user, struct str sni); /* NULL: all are refused */
    void (*drop)(void *user); /* with the last reference to the context; NULL: nobody asks */
    void *user;
};
struct tls_server_rules {
    struct tls_names names;
    struct str client_ca_pem; /* not empty: only clients with a certificate of these authorities */
    struct tls_tickets *tickets; /* NULL: no resumption; counted */
    bool h2;                     /* ALPN offers h2 before http/1.1 */
    bool wipe;                   /* OpenSSL's buffers keep no plain text */
};
/* NULL: *ret_error is one line; names.drop() is not called. */
struct tls_ctx *tls_server_new(const struct tls_server_rules *rules, struct arena *a,
                               struct str *ret_error);

struct tls_client_rules {
    struct str roots_pem; /* only these authorities count */
    struct str roots_dir; /* hashed folder, looked up when needed; both empty: the system's */
    /* Both: they add up. */
    struct str never_pem; /* certificates whose keys prove nobody, neither as anchor nor within a
                             chain: our own authority's; empty: none */
    struct str cert_pem;  /* who we are to servers that ask: chain from the leaf on, ... */
    struct str key_pem;   /* ... and its key, as in tls_leaf_new(); both empty: nobody */
    unsigned sessions;    /* of so many names the last session is kept and offered; 0: of none */
    bool wipe;            /* OpenSSL's buffers keep no plain text */
    bool insecure;        /* no verification: load generator and tests only */
};
struct tls_ctx *tls_client_new(const struct tls_client_rules *rules, struct arena *a,
                               struct str *ret_error);
struct tls_ctx *tls_ctx_ref(struct tls_ctx *ctx);
void tls_ctx_unref(struct tls_ctx *ctx);

/* Where a client's handshake goes to. */
struct tls_to {
    struct str name; /* SNI and the name to verify; an address is verified as one, without SNI */
    const char *alpn[3]; /* offered in this order, ended by NULL */
    bool proxy;          /* conn_info.fault then tells of the upstream proxy */
};
/* Is this fault (conn_info.fault, dial_fault()) the target's refusal of all protocols that it was
 * offered (RFC 7301 section 3.2)? */
bool tls_fault_is_alpn(struct str fault);

/* As who a server answers on one connection (conn_secure_as()): names are not asked, the name the
 * client sends may be anything. */
struct tls_as {
    struct tls_leaf *leaf;
    const char *alpn; /* the answer to a client that offers protocols (static): one that does not
                         offer this one is refused (RFC 7301 section 3.2); NULL: no answer */
};

#endif
