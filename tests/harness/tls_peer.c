/* tls_peer.c — a TLS endpoint of OpenSSL's own making, with memory between it and the socket.  It
 * shares no code with conn_tls.c but the library, so that the two can disagree. */
#include "harness/tls_peer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_message(int ours, int version, int type, const void *p, size_t n, SSL *ssl,
                       void *arg)
{
    struct tls_peer *peer = arg;
    const uint8_t *head = p;
    (void)version;
    (void)ssl;
    if (ours || type != SSL3_RT_HEADER || n < 5 || head[0] != SSL3_RT_APPLICATION_DATA)
        return;
    size_t length = (size_t)head[3] << 8 | head[4];
    if (!peer->up)
        return;
    peer->records++;
    if (length > peer->longest)
        peer->longest = length;
}

static void begin(struct tls_peer *p, SSL_CTX *ctx, bool server)
{
    p->ssl = SSL_new(ctx);
    p->from_us = BIO_new(BIO_s_mem());
    p->to_us = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(p->from_us, -1);
    SSL_set_bio(p->ssl, p->from_us, p->to_us);
    SSL_set_msg_callback(p->ssl, on_message);
    SSL_set_msg_callback_arg(p->ssl, p);
    if (server)
        SSL_set_accept_state(p->ssl);
    else
        SSL_set_connect_state(p->ssl);
}

void tls_peer_init(struct tls_peer *p, SSL_CTX *ctx, int fd, bool server)
{
    *p = (struct tls_peer){.fd = fd};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    begin(p, ctx, server);
}

void tls_peer_inside(struct tls_peer *p, SSL_CTX *ctx, struct tls_peer *around, bool server)
{
    *p = (struct tls_peer){.fd = -1, .around = around};
    begin(p, ctx, server);
}

/* True: done; a failure is noted. */
static bool went_well(struct tls_peer *p, int result)
{
    if (result > 0)
        return true;
    int error = SSL_get_error(p->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return false;
    if (!p->error) {
        p->error = error;
        p->reason = (unsigned long)ERR_GET_REASON(ERR_peek_error());
    }
    return false;
}

static void send_some(struct tls_peer *p)
{
    char *bytes;
    long n = BIO_get_mem_data(p->to_us, &bytes);
    if (n <= 0)
        return;
    if (p->trickle && (size_t)n > p->trickle)
        n = (long)p->trickle;
    ssize_t sent = n;
    if (!p->around)
        sent = send(p->fd, bytes, (size_t)n, MSG_NOSIGNAL);
    else if (p->around->up)
        tls_peer_say(p->around, bytes, (size_t)n);
    else
        return;
    if (sent < 0 && errno != EAGAIN)
        p->lost = true;
    char sink[4096];
    while (sent > 0) {
        int k = BIO_read(p->to_us, sink, sent > 4096 ? 4096 : (int)sent);
        assert(k > 0);
        sent -= k;
    }
}

static void receive_some(struct tls_peer *p)
{
    char bytes[16384];
    if (p->hold)
        return;
    if (p->around) {
        int got = tls_peer_hear(p->around, bytes, sizeof bytes);
        if (got > 0)
            BIO_write(p->from_us, bytes, got);
        p->eof |= got < 0;
        return;
    }
    ssize_t n = recv(p->fd, bytes, sizeof bytes, 0);
    if (n > 0)
        BIO_write(p->from_us, bytes, (int)n);
    else if (n == 0)
        p->eof = true;
    else if (errno != EAGAIN)
        p->lost = true;
}

void tls_peer_turn(struct tls_peer *p)
{
    if (p->around)
        tls_peer_turn(p->around);
    receive_some(p);
    ERR_clear_error();
    if (!p->up && !p->error && went_well(p, SSL_do_handshake(p->ssl)))
        p->up = true;
    send_some(p);
}

void tls_peer_say(struct tls_peer *p, const void *bytes, size_t n)
{
    int done = SSL_write(p->ssl, bytes, (int)n);
    assert(done == (int)n);
}

int tls_peer_hear(struct tls_peer *p, void *to, size_t n)
{
    if (!p->up)
        return p->error ? -2 : 0;
    ERR_clear_error();
    int got = SSL_read(p->ssl, to, (int)n);
    if (went_well(p, got))
        return got;
    if (SSL_get_shutdown(p->ssl) & SSL_RECEIVED_SHUTDOWN && p->error == SSL_ERROR_ZERO_RETURN)
        return -1;
    return p->error ? -2 : 0;
}

void tls_peer_done(struct tls_peer *p)
{
    SSL_free(p->ssl);
    if (p->fd >= 0)
        close(p->fd);
}
