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
/* in begins with a record, and another one that is at least as long has come whole behind it: the
 * length of the first.  Else 0. */
size_t tls_wire_covered(const struct tls_wire *w);
/* The method of such BIOs; their data is the wire. */
BIO_METHOD *tls_wire_method(void);

/* ---- tls.c */
struct tls_sessions;
struct tls_ctx {
    atomic_uint count;
    SSL_CTX *ssl;
    BIO_METHOD *wire;
    bool server, verify, h2, wipe;
    struct tls_names names;
    struct tls_tickets *tickets;
    struct tls_sessions *sessions; /* client role; NULL: none are kept */
    STACK_OF(X509) * never;        /* their keys prove nobody; NULL: there are none */
    uint8_t scope[32]; /* of the clients' authorities: a ticket is good for the same ones only */
};

/* TLS 1.2 and up, with the ciphers, groups and options of DESIGN 8. */
struct tls_ctx *tls_ctx_new(bool server, bool wipe);
/* Not whole: frees it, names.drop() is not called; whoever asked for it is told why.  NULL. */
struct tls_ctx *tls_ctx_refuse(struct tls_ctx *ctx, const char *why, struct arena *a,
                               struct str *ret_error);
/* Every certificate of the text becomes an anchor, an intermediate one too: whoever names it means
 * it.  tell: a server names it to its clients.  False: there is none, or a broken one. */
bool tls_ctx_trust(SSL_CTX *ssl, struct str pem, bool tell);
enum { TLS_NAME_BYTES = 253 };
/* A host name in lower case, without a dot at the end; *ret is in `to`.  False: it is none. */
bool tls_read_name(struct str raw, char to[TLS_NAME_BYTES + 1], struct str *ret);

/* One connection's own part, known to the SSL as its app data. */
struct tls_side {
    struct tls_ctx *ctx;
    char *name; /* server role: what the client asked for; client role: whom the peer must prove
                   to be; on the heap, NULL: nobody */
    struct tls_as as; /* server role: leaf counted, or NULL: names are asked */
    bool asked;       /* client role: the server wants a certificate, and we have none */
    bool proxy;       /* faults are those of the upstream proxy */
};

/* Client role: to that one, *side is empty but for ctx.  Server role (`to` NULL): `as` may be set
 * too.  NULL: `to` cannot be anybody's name. */
SSL *tls_ssl_new(struct tls_side *side, struct tls_wire *wire, const struct tls_to *to);
/* After the handshake: is the peer who it must be?  Asked again because a resumed session has
 * skipped the question. */
bool tls_ssl_proved(const struct tls_ctx *ctx, const SSL *ssl);
/* tls_client.c: the client's part of tls_ssl_new(). */
bool tls_client_begin(struct tls_side *side, SSL *ssl, const struct tls_to *to);
/* The handshake failed: a session that was offered is not offered again. */
void tls_side_forget(const struct tls_side *side);
/* What the connection owns. */
void tls_side_done(struct tls_side *side);

/* ---- tls_fault.c: static texts */
/* Of an operation that failed and has left its errors on the thread's list. */
struct str tls_fault(const struct tls_side *side, const SSL *ssl);
/* The peer hung up: in the handshake, or before it said anything.  Empty: nothing is known. */
struct str tls_fault_lost(const struct tls_side *side, bool shaking);
/* There is no certificate for such a name. */
struct str tls_fault_name(const struct tls_side *side);
/* Is this the refusal of a client without a certificate? */
bool tls_fault_is_no_client(struct str fault);

/* ---- tls_sessions.c: the last session of some names, for one context.  From any thread. */
struct tls_sessions *tls_sessions_new(unsigned max);
void tls_sessions_free(struct tls_sessions *s); /* NULL is fine */
/* The peer's session, with a reference for the caller; NULL: none that may still be offered. */
SSL_SESSION *tls_sessions_get(struct tls_sessions *s, const char *name, int64_t now_s);
/* A session whose peer has proved this name; counted.  resumed: it was not asked to prove it again,
 * so that the session lives no longer than the one before. */
void tls_sessions_put(struct tls_sessions *s, const char *name, SSL_SESSION *session, bool resumed,
                      int64_t now_s);
void tls_sessions_drop(struct tls_sessions *s, const char *name);

/* ---- tls_leaf.c */
/* Gives the connection this certificate; false: OpenSSL refuses it. */
bool tls_leaf_use(const struct tls_leaf *l, SSL *ssl);
/* On all connections of a context that has not made any. */
bool tls_leaf_use_always(const struct tls_leaf *l, SSL_CTX *ssl);
/* All certificates of a text, in their order; NULL: none, or one is broken. */
STACK_OF(X509) * tls_read_chain(struct str pem);

/* ---- tls_tickets.c */
/* As OpenSSL's callback for the keys of tickets.  1: done; 2: done, by a key that is no longer the
 * first; 0: there is no such key; -1: failed. */
int tls_tickets_key(struct tls_tickets *t, uint8_t name[16], uint8_t *iv, EVP_CIPHER_CTX *cipher,
                    EVP_MAC_CTX *mac, bool encrypt);

#endif
