/* fake_redis.c — reads commands as clients send them (lists of bulk strings), and nothing else:
 * what is none fails the test. */
#include "harness/fake_redis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"

/* ---- where it stands */

static void open_socket(struct fake_redis *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    unlink(f->path);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", f->path);
    f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void open_port(struct fake_redis *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(f->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int one = 1;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(f->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(f->fd, (struct sockaddr *)&a, &n), 0);
    f->port = ntohs(a.sin_port);
}

void fake_redis_open(struct fake_redis *f)
{
    if (f->path[0])
        open_socket(f);
    else
        open_port(f);
    assert_int_equal(listen(f->fd, FAKE_REDIS_CALLS), 0);
}

void fake_redis_start(struct fake_redis *f, const char *path, SSL_CTX *ctx)
{
    *f = (struct fake_redis){.ctx = ctx};
    snprintf(f->path, sizeof f->path, "%s", path ? path : "");
    fake_redis_forget(f);
    fake_redis_open(f);
}

void fake_redis_close(struct fake_redis *f)
{
    fake_redis_cut(f);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* ---- its connections */

static void end_call(struct redis_call *c)
{
    if (c->fd >= 0 && c->tls)
        tls_peer_done(&c->peer);
    else if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void fake_redis_cut(struct fake_redis *f)
{
    for (unsigned i = 0; i < f->n; i++) {
        end_call(f->calls[i]);
        free(f->calls[i]->in);
        free(f->calls[i]);
    }
    f->n = 0;
    f->last = NULL;
    f->nheld = 0;
}

static void take_new(struct fake_redis *f)
{
    int fd;
    while (f->fd >= 0 && (fd = accept4(f->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        assert_true(f->n < FAKE_REDIS_CALLS);
        struct redis_call *c = f->calls[f->n++] = calloc(1, sizeof *c);
        c->fd = fd;
        c->tls = f->ctx != NULL;
        c->room = 4 << 20;
        c->in = malloc(c->room);
        if (c->tls)
            tls_peer_init(&c->peer, f->ctx, fd, true);
    }
}

static void hear(struct redis_call *c)
{
    size_t room = c->room - c->n;
    if (c->tls)
        tls_peer_turn(&c->peer);
    ssize_t n =
        c->tls ? tls_peer_hear(&c->peer, c->in + c->n, room) : recv(c->fd, c->in + c->n, room, 0);
    if (n > 0)
        c->n += (size_t)n;
    if (c->tls ? n < 0 || c->peer.eof || c->peer.lost : n == 0)
        end_call(c);
}

static void say_bytes(struct redis_call *c, const char *p, size_t n)
{
    if (c->fd < 0 || n == 0)
        return;
    if (c->tls) {
        tls_peer_say(&c->peer, p, n);
        tls_peer_turn(&c->peer);
        return;
    }
    assert_int_equal(send(c->fd, p, n, MSG_NOSIGNAL), n);
}

void fake_redis_say(struct redis_call *c, const char *text)
{
    say_bytes(c, text, strlen(text));
}

/* ---- commands */

/* "*3\r\n": 3; false: not whole. */
static bool take_number(struct str *rest, char type, uint64_t *ret)
{
    ptrdiff_t cr = str_chr(*rest, '\r');
    if (cr < 0 || (size_t)cr + 2 > rest->n)
        return false;
    assert_int_equal(rest->p[0], type);
    assert_int_equal(rest->p[cr + 1], '\n');
    assert_true(text_u64(str_skip(str_head(*rest, (size_t)cr), 1), 1 << 24, ret));
    *rest = str_skip(*rest, (size_t)cr + 2);
    return true;
}

static bool take_command(struct str *rest, struct str *args, unsigned *ret_n)
{
    struct str at = *rest;
    uint64_t n, len;
    if (!take_number(&at, '*', &n))
        return false;
    assert_true(n > 0 && n <= FAKE_REDIS_ARGS);
    for (uint64_t i = 0; i < n; i++) {
        if (!take_number(&at, '$', &len) || len + 2 > at.n)
            return false;
        args[i] = str_head(at, len);
        assert_memory_equal(at.p + len, "\r\n", 2);
        at = str_skip(at, len + 2);
    }
    *ret_n = (unsigned)n;
    *rest = at;
    return true;
}

static void note(struct fake_redis *f, const struct str *args, unsigned n)
{
    size_t more = 2;
    for (unsigned i = 0; i < n; i++)
        more += args[i].n + 1;
    f->log = realloc(f->log, f->nlog + more);
    for (unsigned i = 0; i < n; i++) {
        memcpy(f->log + f->nlog, args[i].p, args[i].n);
        f->nlog += args[i].n;
        f->log[f->nlog++] = i + 1 < n ? ' ' : '|';
    }
    f->log[f->nlog] = 0;
}

static const char *good_answer(struct str verb)
{
    static const struct {
        const char *verb, *answer;
    } rows[] = {{"LPUSH", ":1\r\n"},
                {"EVALSHA", ":1\r\n"},
                {"PING", "+PONG\r\n"},
                {"SCRIPT", "$40\r\n0123456789012345678901234567890123456789\r\n"},
                {"HELLO",
                 "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n"
                 "*1\r\n%1\r\n+name\r\n_\r\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_eq(verb, str_of(rows[i].verb)))
            return rows[i].answer;
    return "+OK\r\n";
}

static void answer(struct fake_redis *f, struct redis_call *c, const char *text)
{
    size_t n = strlen(text);
    if (!f->hold) {
        say_bytes(c, text, n);
        return;
    }
    f->last = c;
    f->held = realloc(f->held, f->nheld + n + 1);
    memcpy(f->held + f->nheld, text, n);
    f->nheld += n;
}

static void read_commands(struct fake_redis *f, struct redis_call *c)
{
    struct str rest = {c->in, c->n}, args[FAKE_REDIS_ARGS];
    unsigned n;
    while (c->fd >= 0 && rest.n > 0 && take_command(&rest, args, &n)) {
        f->commands++;
        if (!f->forgetful)
            note(f, args, n);
        const char *text = f->on ? f->on(f->user, c, args, n) : NULL;
        answer(f, c, text ? text : good_answer(args[0]));
    }
    if (f->forgetful && rest.n == 0)
        memset(c->in, 0, c->n);
    memmove(c->in, rest.p, rest.n);
    c->n = rest.n;
}

void fake_redis_step(struct fake_redis *f)
{
    take_new(f);
    if (!f->hold && f->nheld > 0) {
        say_bytes(f->last, f->held, f->nheld);
        f->nheld = 0;
    }
    for (unsigned i = 0; i < f->n && !f->deaf; i++) {
        if (f->calls[i]->fd >= 0)
            hear(f->calls[i]);
        if (f->calls[i]->fd >= 0)
            read_commands(f, f->calls[i]);
    }
}

unsigned fake_redis_count(const struct fake_redis *f, const char *text)
{
    unsigned n = 0;
    for (const char *at = f->log; (at = strstr(at, text)); at++)
        n++;
    return n;
}

void fake_redis_forget(struct fake_redis *f)
{
    f->log = realloc(f->log, 1);
    f->log[f->nlog = 0] = 0;
}

void fake_redis_stop(struct fake_redis *f)
{
    fake_redis_close(f);
    if (f->path[0])
        unlink(f->path);
    free(f->held);
    free(f->log);
}
