/* admin_rig.c — an app of nothing but its main worker and the admin listener. */
#include "harness/admin_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "net/listen.h"
#include "net/worker.h"

enum { PATIENCE_TURNS = 20000 };

void admin_rig_start(struct admin_rig *r, const struct product *product)
{
    static const struct ip loopback = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
    union addr want, bound;
    struct arena a;
    struct str error;
    memset(r, 0, sizeof *r);
    memset(&want, 0, sizeof want);
    arena_init(&a, NULL, 0);
    addr_make(&want, &loopback, 0);
    int fd = listen_bind(&want.sa, &bound, &a, &error);
    assert_true(fd >= 0);
    arena_done(&a);
    r->port = addr_port(&bound.sa);
    r->app.product = product;
    r->app.phase = APP_SERVING;
    r->app.main = worker_new(APP_WORKERS);
    r->admin = admin_start(&r->app, fd);
}

void admin_rig_stop(struct admin_rig *r)
{
    admin_stop(r->admin);
    r->admin = NULL;
}

void admin_rig_done(struct admin_rig *r)
{
    admin_stop(r->admin);
    worker_turn(r->app.main);
    worker_free(r->app.main);
}

void admin_rig_turn(struct admin_rig *r)
{
    worker_turn(r->app.main);
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

void rig_dial(struct admin_rig *r, struct rig_call *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(r->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->n = 0;
    c->text[0] = '\0';
    c->ended = false;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof to), 0);
}

void rig_say(struct rig_call *c, struct str bytes)
{
    assert_int_equal(send(c->fd, bytes.p, bytes.n, MSG_NOSIGNAL), bytes.n);
}

void rig_hear(struct rig_call *c)
{
    ssize_t n = recv(c->fd, c->text + c->n, RIG_CALL_BYTES - c->n, MSG_DONTWAIT);
    c->ended |= n == 0 && c->n < RIG_CALL_BYTES;
    c->n += n > 0 ? (size_t)n : 0;
    c->text[c->n] = '\0';
}

void rig_hang_up(struct rig_call *c)
{
    close(c->fd);
}

void rig_until_heard(struct admin_rig *r, struct rig_call *c, const char *text)
{
    for (int i = 0; !strstr(c->text, text); i++) {
        if (i == PATIENCE_TURNS)
            fail_msg("never heard %s but %s", text, c->text);
        admin_rig_turn(r);
        rig_hear(c);
    }
}

void rig_until_ended(struct admin_rig *r, struct rig_call *c)
{
    for (int i = 0; !c->ended; i++) {
        if (i == PATIENCE_TURNS)
            fail_msg("still open after %s", c->text);
        admin_rig_turn(r);
        rig_hear(c);
    }
}

int rig_ask(struct admin_rig *r, struct rig_call *c, const char *method, const char *path,
            const char *fields, const char *body)
{
    char head[8192], length[64] = "";
    if (body)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n%s%s\r\n", method, path,
                     fields ? fields : "", length);
    assert_true(n > 0 && (size_t)n < sizeof head);
    rig_dial(r, c);
    rig_say(c, (struct str){head, (size_t)n});
    if (body)
        rig_say(c, str_of(body));
    rig_until_ended(r, c);
    rig_hang_up(c);
    return rig_status(c);
}

int rig_status(const struct rig_call *c)
{
    uint64_t status = 0;
    if (c->n < 12 || !text_u64((struct str){c->text + 9, 3}, 999, &status))
        fail_msg("no answer: %s", c->text);
    return (int)status;
}

const char *rig_field(const struct rig_call *c, const char *name)
{
    static char value[256]; /* of the last call */
    size_t n = strlen(name);
    const char *end = strstr(c->text, "\r\n\r\n");
    for (const char *at = strstr(c->text, "\r\n"); at && at < end; at = strstr(at + 2, "\r\n")) {
        const char *line = at + 2, *stop = strstr(line, "\r\n");
        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
            continue;
        snprintf(value, sizeof value, "%.*s", (int)(stop - line - (ptrdiff_t)n - 2), line + n + 2);
        return value;
    }
    return NULL;
}

const char *rig_body(const struct rig_call *c)
{
    const char *end = strstr(c->text, "\r\n\r\n");
    return end ? end + 4 : "";
}
