/* talk.c — blocking calls with a patience, so that a test that hangs says so. */
#include "harness/talk.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "harness/plain_origin.h"
#include "harness/wire.h"

enum { PATIENCE_MS = 10000, BYTES = 2 * ORIGIN_BODY_BYTES };

struct talk talk_call(uint16_t port)
{
    struct sockaddr_in to = loopback(port);
    struct talk t = {.fd = socket(AF_INET, SOCK_STREAM, 0), .bytes = malloc(BYTES)};
    if (connect(t.fd, (struct sockaddr *)&to, sizeof to) != 0)
        t.over = true;
    return t;
}

/* A socket with a timeout may be interrupted by less than a signal (work that the kernel does for
 * the thread), and is not taken up again by itself. */
static bool again(const struct talk *t, int n)
{
    return n <= 0 && errno == EINTR && SSL_get_error(t->ssl, n) == SSL_ERROR_WANT_READ;
}

struct talk talk_call_tls(uint16_t port, SSL_CTX *ctx)
{
    struct talk t = talk_call(port);
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(t.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    t.ssl = SSL_new(ctx);
    SSL_set_fd(t.ssl, t.fd);
    int n;
    do
        n = SSL_connect(t.ssl);
    while (again(&t, n));
    if (n == 1)
        return t;
    t.over = true;
    t.silent = errno == EAGAIN;
    return t;
}

void talk_done(struct talk *t)
{
    SSL_free(t->ssl);
    close(t->fd);
    free(t->bytes);
}

static bool hear_tls(struct talk *t)
{
    int n;
    do {
        errno = 0;
        n = t->over ? 0 : SSL_read(t->ssl, t->bytes + t->n, BYTES - (int)t->n);
    } while (again(t, n));
    t->silent |= n <= 0 && errno == EAGAIN;
    t->over = n <= 0;
    t->n += n > 0 ? (size_t)n : 0;
    return !t->over;
}

bool talk_hear(struct talk *t)
{
    if (t->ssl)
        return hear_tls(t);
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    if (t->over)
        return false;
    int ready = poll(&p, 1, PATIENCE_MS);
    t->silent = ready == 0;
    ssize_t n = ready > 0 ? read(t->fd, t->bytes + t->n, (size_t)BYTES - t->n) : 0;
    t->reset = n < 0;
    t->over = n <= 0;
    t->n += n > 0 ? (size_t)n : 0;
    return !t->over;
}

enum got talk_silence(const struct talk *t)
{
    return t->silent ? GOT_SILENCE : GOT_ERROR;
}

enum got talk_answer(struct talk *t, const char *body, size_t n)
{
    struct arena a;
    struct wire_message m;
    enum wire w;
    arena_init(&a, NULL, 0);
    do {
        struct str rest = {t->bytes + t->at, t->n - t->at};
        w = wire_response(&rest, false, t->over, &a, &m);
        if (w == WIRE_WHOLE)
            t->at = t->n - rest.n;
    } while (w != WIRE_WHOLE && w != WIRE_BAD && talk_hear(t));
    bool whole = w == WIRE_WHOLE && m.status == 200;
    bool right = whole && m.body.n == n && memcmp(m.body.p, body, n) == 0;
    int status = w == WIRE_WHOLE ? m.status : 0;
    arena_done(&a);
    if (w == WIRE_BAD || (whole && !right))
        return GOT_WRONG;
    return right ? GOT_ALL : status != 0 ? GOT_ERROR : talk_silence(t);
}

void talk_say(const struct talk *t, const char *p, size_t n)
{
    if (t->ssl && !t->over)
        SSL_write(t->ssl, p, (int)n);
    else if (!t->ssl)
        send_all(t->fd, p, n);
}
