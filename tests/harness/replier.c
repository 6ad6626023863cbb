/* replier.c — plain calls that never wait, and no parser: what is asked is judged by the test. */
#include "harness/replier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

void replier_start(struct replier *r, SSL_CTX *ctx, void (*on)(void *user, struct call_in *c),
                   void *user)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *r = (struct replier){.ctx = ctx, .on = on, .user = user};
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(r->fd, REPLIER_CALLS), 0);
    assert_int_equal(getsockname(r->fd, (struct sockaddr *)&a, &n), 0);
    r->port = ntohs(a.sin_port);
}

static void take_new(struct replier *r)
{
    int fd;
    while ((fd = accept4(r->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        assert_true(r->n < REPLIER_CALLS);
        struct call_in *c = r->calls[r->n++] = calloc(1, sizeof *c);
        c->r = r;
        c->fd = fd;
        c->tls = r->ctx != NULL;
        if (c->tls)
            tls_peer_init(&c->peer, r->ctx, fd, true);
    }
}

static void hear(struct call_in *c)
{
    size_t room = sizeof c->text - 1 - c->n;
    int n = c->tls ? tls_peer_hear(&c->peer, c->text + c->n, room)
                   : (int)recv(c->fd, c->text + c->n, room, 0);
    if (n > 0)
        c->n += (size_t)n;
    c->closed |= c->tls ? n < 0 || c->peer.eof || c->peer.lost : n == 0;
}

static bool is_whole(const struct call_in *c)
{
    const char *head_end = strstr(c->text, "\r\n\r\n");
    if (!head_end)
        return false;
    const char *length = strcasestr(c->text, "\r\ncontent-length:");
    size_t body = 0;
    for (const char *p = length ? length + 17 : ""; *p == ' ' || (*p >= '0' && *p <= '9'); p++)
        body = *p == ' ' ? body : 10 * body + (size_t)(*p - '0');
    return c->n >= (size_t)(head_end + 4 - c->text) + body;
}

void replier_step(struct replier *r)
{
    take_new(r);
    for (unsigned i = 0; i < r->n; i++) {
        struct call_in *c = r->calls[i];
        if (c->fd < 0)
            continue;
        if (c->tls)
            tls_peer_turn(&c->peer);
        hear(c);
        if (c->whole || !is_whole(c))
            continue;
        c->whole = true;
        if (r->on)
            r->on(r->user, c);
    }
}

void replier_say(struct call_in *c, const char *text)
{
    if (c->tls) {
        tls_peer_say(&c->peer, text, strlen(text));
        tls_peer_turn(&c->peer);
        return;
    }
    assert_int_equal(send(c->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void let_go(struct call_in *c)
{
    if (c->fd >= 0 && c->tls)
        tls_peer_done(&c->peer);
    else if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void replier_hang_up(struct call_in *c)
{
    if (c->tls) {
        SSL_shutdown(c->peer.ssl);
        tls_peer_turn(&c->peer);
    }
    let_go(c);
}

void replier_stop(struct replier *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        let_go(r->calls[i]);
        free(r->calls[i]);
    }
    if (r->fd >= 0)
        close(r->fd);
}
