/* tls_impl.h — what the files of TLS know of each other.  The only header that shows OpenSSL. */
#ifndef NET_TLS_IMPL_H
#define NET_TLS_IMPL_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "net/tls.h"

/* ---- tls_wire.c: OpenSSL's two ends of the wire are two bufs.  Calls that take an SSL stand
 * between begin and end. */
struct tls_wire {
    struct buf in;  /* cipher text that came */
    struct buf out; /* cipher text to be sent */
    const struct slice *at;
    size_t skip, taken; /* of *at; of in, to be dropped at the end */
    uint8_t *late;      /* what was written while a chunk was reserved */
    size_t late_n;
    bool reserved;
};
void tls_wire_init(struct tls_wire *w, struct chunk_pool *pool);
/* reserved: between buf_reserve() and buf_commit(), where no buf may be touched. */
void tls_wire_begin(struct tls_wire *w, bool reserved);
void tls_wire_end(struct tls_wire *w);
void tls_wire_done(struct tls_wire *w);
/* The method of such BIOs; their data is the wire. */
BIO_METHOD *tls_wire_method(void);

/* ---- tls.c */
struct tls_ctx {
    atomic_uint count;
    SSL_CTX *ssl;
    BIO_METHOD *wire;
    bool server, verify, h2;
    struct tls_names names;
    struct tls_tickets *tickets;
    uint8_t scope[32]; /* of the clients' authorities: a ticket is good for the same ones only */
};

/* One connection's SSL over the wire.  Server role: during the handshake *name becomes the name the
 * client asked for, on the heap.  Client role: *name becomes that of `to`.  NULL: `to` cannot be
 * anybody's name. */
SSL *tls_ssl_new(struct tls_ctx *ctx, struct tls_wire *wire, const struct tls_to *to, char **name);
/* After the handshake: is the peer who it must be?  Asked again because a resumed session has
 * skipped the question. */
bool tls_ssl_proved(const struct tls_ctx *ctx, const SSL *ssl);

/* ---- tls_leaf.c */
/* Gives the connection this certificate; false: OpenSSL refuses it. */
bool tls_leaf_use(const struct tls_leaf *l, SSL *ssl);
/* All certificates of a text, in their order; NULL: none, or one is broken. */
STACK_OF(X509) * tls_read_chain(struct str pem);

/* ---- tls_tickets.c */
/* As OpenSSL's callback for the keys of tickets.  1: done; 2: done, by a key that is no longer the
 * first; 0: there is no such key; -1: failed. */
int tls_tickets_key(struct tls_tickets *t, uint8_t name[16], uint8_t *iv, EVP_CIPHER_CTX *cipher,
                    EVP_MAC_CTX *mac, bool encrypt);

#endif
