/* plain_origin.c — blocking calls and a thread for each connection: nothing here can have the
 * faults of what it stands against. */
#include "harness/plain_origin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/wire.h"

enum { ORIGIN_PATIENCE_MS = 10000 };

struct visit {
    struct origin *o;
    int fd;
};

bool send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool send_text(int fd, const char *text)
{
    return send_all(fd, text, strlen(text));
}

void fill_body(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 23);
}

/* A body without a length, broken off by a reset. */
static void break_off(int fd)
{
    struct linger hard = {1, 0};
    send_text(fd, "HTTP/1.1 200 OK\r\n\r\npart");
    usleep(5000);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void echo(int fd)
{
    char bytes[4096];
    send_text(fd, "HTTP/1.1 101 Switching\r\nupgrade: wire\r\nconnection: upgrade\r\n\r\n");
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;)
        if (!send_all(fd, bytes, (size_t)n))
            return;
}

/* False: the connection is over. */
static bool serve(int fd, const struct wire_message *m)
{
    char head[128];
    if (memmem(m->start.p, m->start.n, "/cut", 4)) {
        break_off(fd);
        return false;
    }
    if (memmem(m->start.p, m->start.n, "/wire", 5)) {
        echo(fd);
        return false;
    }
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\n\r\n", m->body.n + 5);
    return send_text(fd, head) && send_all(fd, "hello", 5) &&
           send_all(fd, m->body.p ? m->body.p : "", m->body.n);
}

static void *visit_main(void *arg)
{
    struct visit *v = arg;
    size_t n = 0, room = ORIGIN_BODY_BYTES + 4096;
    char *bytes = malloc(room);
    for (ssize_t k; (k = read(v->fd, bytes + n, room - n)) > 0;) {
        struct arena a;
        struct wire_message m;
        n += (size_t)k;
        struct str rest = {bytes, n};
        arena_init(&a, NULL, 0);
        bool whole = wire_request(&rest, &a, &m) == WIRE_WHOLE, go_on = !whole || serve(v->fd, &m);
        if (whole) {
            memmove(bytes, rest.p, rest.n);
            n = rest.n;
        }
        arena_done(&a);
        if (!go_on)
            break;
    }
    free(bytes);
    close(v->fd);
    v->o->busy--;
    free(v);
    return NULL;
}

static void *origin_main(void *arg)
{
    struct origin *o = arg;
    const int one = 1;
    for (int fd; (fd = accept(o->fd, NULL, NULL)) >= 0;) {
        struct visit *v = malloc(sizeof *v);
        pthread_t t;
        *v = (struct visit){o, fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        o->busy++;
        pthread_create(&t, NULL, visit_main, v);
        pthread_detach(t);
    }
    return NULL;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

void origin_begin(struct origin *o)
{
    struct sockaddr_in a = loopback(0);
    o->busy = 0;
    o->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(o->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(o->fd, 64), 0);
    o->port = port_of(o->fd);
    assert_int_equal(pthread_create(&o->thread, NULL, origin_main, o), 0);
}

void origin_finish(struct origin *o)
{
    shutdown(o->fd, SHUT_RDWR);
    pthread_join(o->thread, NULL);
    close(o->fd);
    for (int i = 0; o->busy > 0 && i < ORIGIN_PATIENCE_MS; i++)
        usleep(1000);
    assert_int_equal(o->busy, 0);
}
