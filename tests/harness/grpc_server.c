/* grpc_server.c — our own codec in the server's role: what it cannot do, it cannot be asked for
 * here. */
#include "harness/grpc_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "net/addr.h"
#include "net/listen.h"
#include "net/worker.h"

static const struct http_limits limits = {.max_head_bytes = 16384,
                                          .max_fields = 100,
                                          .window = 65536,
                                          .window_max = 65536,
                                          .max_streams = 200,
                                          .keep_alive_ms = 600000,
                                          .head_ms = 600000,
                                          .linger_ms = 1000};

struct link {
    struct list link;
    struct grpc_server *server;
    struct session *session;
    struct conn *conn; /* mute */
};

/* ---- streams */

static void on_head(void *user, struct http_head *head, bool end)
{
    struct grpc_ask *a = user;
    a->head = head;
    if (!end)
        return;
    a->whole = true;
    if (a->server->on)
        a->server->on(a->server->user, a);
}

static void on_data(void *user, struct buf *b)
{
    struct grpc_ask *a = user;
    size_t n = b->len;
    assert_true(n <= sizeof a->body - a->n);
    buf_peek(b, a->body + a->n, n);
    a->n += n;
    buf_clear(b);
    a->stream->ops->credit(a->stream, n);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct grpc_ask *a = user;
    (void)trailers;
    a->whole = true;
    if (a->server->on)
        a->server->on(a->server->user, a);
}

static void on_sent(void *user, size_t n)
{
    (void)user;
    (void)n;
}

static void on_fault(void *user, const struct http_fault *fault)
{
    (void)user;
    fail_msg("the request is broken: %d", fault->status);
}

static void on_closed(void *user, enum why why)
{
    struct grpc_ask *a = user;
    a->gone = why != WHY_OK;
    a->stream = NULL;
}

static const struct http_events stream_events = {on_head, on_data,  on_end,
                                                 on_sent, on_fault, on_closed};

/* ---- connections */

static void on_accept_stream(void *user, struct session *s, struct http_stream *stream)
{
    struct link *l = user;
    struct grpc_server *g = l->server;
    assert_true(g->n < GRPC_ASKS);
    struct grpc_ask *a = g->asks[g->n++] = calloc(1, sizeof *a);
    arena_init(&a->mem, NULL, 0);
    a->server = g;
    a->session = s;
    a->stream = stream;
    stream->ev = &stream_events;
    stream->user = a;
    stream->mem = &a->mem;
}

static void unlink_it(struct link *l)
{
    l->server->open--;
    list_del(&l->link);
    free(l);
}

static void on_session_closed(void *user, struct session *s)
{
    struct link *l = user;
    for (unsigned i = 0; i < l->server->n; i++)
        if (l->server->asks[i]->session == s)
            l->server->asks[i]->session = NULL;
    unlink_it(l);
}

static const struct session_events session_events = {on_accept_stream, NULL, NULL,
                                                     on_session_closed};

static void on_mute_closed(void *user, enum why why)
{
    (void)why;
    unlink_it(user);
}

static void on_mute_eof(void *user)
{
    struct link *l = user;
    conn_close(l->conn, WHY_OK);
}

static const struct conn_events mute_events = {.eof = on_mute_eof, .closed = on_mute_closed};

static void on_accept(void *user, struct conn *c)
{
    struct grpc_server *s = user;
    struct link *l = calloc(1, sizeof *l);
    l->server = s;
    list_push(&s->sessions, &l->link);
    s->connections++;
    s->open++;
    if (s->mute) {
        l->conn = c;
        conn_attach(c, &mute_events, l);
        return;
    }
    l->session = h2_start(s->w, c, true, &limits, &session_events, l);
}

void grpc_server_start(struct grpc_server *s, struct worker *w,
                       void (*on)(void *user, struct grpc_ask *ask), void *user)
{
    union addr want, bound;
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    *s = (struct grpc_server){.w = w, .on = on, .user = user};
    list_init(&s->sessions);
    assert_true(addr_parse(STR("127.0.0.1:0"), &want));
    int fd = listen_bind(&want.sa, &bound, &a, &error);
    assert_true(fd >= 0);
    s->port = addr_port(&bound.sa);
    s->listener = listener_start(w, fd, NULL, on_accept, s);
    arena_done(&a);
}

void grpc_server_hang_up(struct grpc_server *s)
{
    list_each(it, &s->sessions)
    {
        struct link *l = container_of(it, struct link, link);
        if (l->conn)
            conn_close(l->conn, WHY_OK);
        else
            l->session->ops->close(l->session, WHY_OK);
    }
}

void grpc_server_stop(struct grpc_server *s)
{
    listener_stop(s->listener);
    grpc_server_hang_up(s);
}

void grpc_server_done(struct grpc_server *s)
{
    assert_int_equal(s->open, 0);
    for (unsigned i = 0; i < s->n; i++) {
        arena_done(&s->asks[i]->mem);
        free(s->asks[i]);
    }
}

/* ---- answers */

static struct http_head *head_of(struct grpc_ask *a, int status)
{
    struct http_head *h = arena_zero(&a->mem, sizeof *h);
    h->status = status;
    h->length = -1;
    h->protocol = STR("");
    h->fields = arena_get(&a->mem, 4 * sizeof *h->fields);
    return h;
}

static void add(struct http_head *h, const char *name, const char *value)
{
    if (value)
        head_add(h, str_of(name), str_of(value));
}

void grpc_server_head(struct grpc_ask *a, int status, const char *type)
{
    struct http_head *h = head_of(a, status);
    add(h, "content-type", type);
    a->stream->ops->head(a->stream, h, false);
}

void grpc_server_say_head(struct grpc_ask *a, int status, const char *type, const char *code)
{
    struct http_head *h = head_of(a, status);
    add(h, "content-type", type);
    add(h, "grpc-status", code);
    a->stream->ops->head(a->stream, h, true);
}

void grpc_server_bytes(struct grpc_ask *a, const void *p, size_t n)
{
    struct buf b;
    buf_init(&b, worker_pool(a->server->w));
    buf_write(&b, p, n);
    a->stream->ops->data(a->stream, &b);
}

void grpc_server_end(struct grpc_ask *a, const char *code, const char *message)
{
    struct http_head *h = head_of(a, 0);
    add(h, "grpc-status", code);
    add(h, "grpc-message", message);
    a->stream->ops->end(a->stream, h->nfields > 0 ? h : NULL);
}

void grpc_server_say(struct grpc_ask *a, const void *pb, size_t n, unsigned code,
                     const char *message)
{
    const uint8_t prefix[5] = {0, 0, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    struct str text = arena_printf(&a->mem, "%u", code);
    if (!pb && code != 0 && !message) {
        grpc_server_say_head(a, 200, "application/grpc", text.p);
        return;
    }
    grpc_server_head(a, 200, "application/grpc");
    if (pb) {
        grpc_server_bytes(a, prefix, sizeof prefix);
        grpc_server_bytes(a, pb, n);
    }
    grpc_server_end(a, text.p, message);
}

void grpc_server_reset(struct grpc_ask *a)
{
    struct http_stream *s = a->stream;
    a->stream = NULL;
    s->ops->cancel(s, WHY_OVERLOAD);
}
