/* tls_peer.h — the other end of a TLS connection: OpenSSL by itself over a plain socket that does
 * not block, so that a test can see records, cut bytes anywhere and end it as it likes. */
#ifndef HARNESS_TLS_PEER_H
#define HARNESS_TLS_PEER_H

#include <openssl/ssl.h>

#include "base/mem.h"

struct tls_peer {
    SSL *ssl;
    BIO *from_us, *to_us; /* cipher text between SSL and socket */
    int fd;
    size_t trickle; /* most bytes of a send(); 0: any number */
    bool up;        /* the handshake is done */
    int error;      /* of SSL_get_error(), when it failed */
    unsigned long reason;
    unsigned records;        /* of application data that came */
    size_t longest;          /* of them */
    bool eof, lost;          /* of the socket: FIN, error */
    bool hold;               /* does not read the socket */
    struct tls_peer *around; /* carries this one, in place of a socket */
};

/* Takes the socket over. */
void tls_peer_init(struct tls_peer *p, SSL_CTX *ctx, int fd, bool server);
/* Inside another one, which is turned with this one. */
void tls_peer_inside(struct tls_peer *p, SSL_CTX *ctx, struct tls_peer *around, bool server);
/* One step: what can be moved without waiting, and the handshake. */
void tls_peer_turn(struct tls_peer *p);
/* Encrypts; leaves with the next turns. */
void tls_peer_say(struct tls_peer *p, const void *bytes, size_t n);
/* What has come, at most n bytes; 0: nothing now; -1: close_notify; -2: it failed. */
int tls_peer_hear(struct tls_peer *p, void *to, size_t n);
void tls_peer_done(struct tls_peer *p);

#endif
