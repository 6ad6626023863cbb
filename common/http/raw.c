/* raw.c — bytes as one stream, both ways: what a tunnel is from its first byte on.  In the server
 * role it says one head, CONNECT, so that the gate sees relayed connections and requests alike; in
 * the client role it is the far side of such a tunnel. */
#include <assert.h>

#include "http/session.h"
#include "net/worker.h"

struct raw {
    struct session s;
    struct http_stream stream;
    struct buf out;
    size_t flown; /* given to the conn at the last fill: not told yet */
    size_t unread;
    struct str authority;
    bool has_stream, closing, opened;
    bool in_ended;                                  /* the peer's direction is over */
    bool out_ended;                                 /* end() was said */
    void (*released)(void *arg, struct conn *conn); /* NULL: nobody wants the connection */
    void *released_arg;
};

static struct raw *of(struct http_stream *s)
{
    return container_of(s, struct raw, stream);
}

static void stream_over(struct raw *r, enum why why)
{
    if (!r->has_stream)
        return;
    r->has_stream = false;
    r->s.running = 0;
    r->stream.ev->closed(r->stream.user, why);
}

static void close_conn(struct raw *r, enum why why)
{
    if (r->closing)
        return;
    r->closing = true;
    conn_close(r->s.conn, why);
}

static void raw_close(struct raw *r, enum why why)
{
    close_conn(r, why);
    stream_over(r, why);
}

static void accept_stream(struct raw *r)
{
    r->opened = r->has_stream = true;
    r->s.running = 1;
    r->s.exchanges++;
    r->s.ev->accept(r->s.user, &r->s, &r->stream);
    struct http_head *head = arena_zero(r->stream.mem, sizeof *head);
    head->method = STR("CONNECT");
    head->protocol = STR("connect");
    head->authority = arena_str(r->stream.mem, r->authority);
    head->length = -1;
    r->stream.ev->head(r->stream.user, head, false);
}

static void on_bytes(void *user, struct buf *in)
{
    struct raw *r = user;
    struct buf b;
    if (r->s.server && !r->opened)
        accept_stream(r);
    if (!r->has_stream || r->released)
        return;
    size_t n = r->s.limits->window > r->unread ? r->s.limits->window - r->unread : 0;
    if (n > in->len)
        n = in->len;
    if (n == 0)
        return;
    buf_init(&b, worker_pool(r->s.w));
    buf_move(&b, in, n);
    r->unread += n;
    r->stream.ev->data(r->stream.user, &b);
    buf_clear(&b);
}

static void settle(struct raw *r)
{
    if (r->in_ended && r->out_ended && r->out.len == 0 && conn_unsent(r->s.conn) == 0)
        raw_close(r, WHY_OK);
}

static void on_eof(void *user)
{
    struct raw *r = user;
    r->in_ended = true;
    if (r->released)
        return; /* the next owner is told */
    if (!r->has_stream) {
        raw_close(r, WHY_OK);
        return;
    }
    r->stream.ev->end(r->stream.user, NULL);
    settle(r);
}

static void tell_sent(struct raw *r)
{
    size_t n = r->flown;
    r->flown = 0;
    if (n > 0 && r->has_stream)
        r->stream.ev->sent(r->stream.user, n);
}

static void free_raw(void *p)
{
    struct raw *r = p;
    buf_clear(&r->out);
    mem_free((char *)(uintptr_t)r->authority.p);
    mem_free(r);
}

static void give_away(struct raw *r)
{
    r->closing = true;
    r->has_stream = false;
    r->s.running = 0;
    worker_bury(r->s.w, free_raw, r);
    r->released(r->released_arg, r->s.conn);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct raw *r = user;
    if (r->s.server && !r->opened)
        accept_stream(r); /* nobody has spoken: the origin may want to be first */
    tell_sent(r);         /* the last batch has left, or we would not be asked */
    if (r->closing)
        return;
    if (r->released && r->out.len + out->len == 0 && conn_unsent(r->s.conn) == 0) {
        give_away(r);
        return;
    }
    r->flown = r->out.len < max ? r->out.len : max;
    buf_move(out, &r->out, r->flown);
    if (out->len == 0)
        settle(r);
}

static void on_closed(void *user, enum why why)
{
    struct raw *r = user;
    r->closing = true;
    stream_over(r, why);
    r->s.ev->closed(r->s.user, &r->s);
    worker_bury(r->s.w, free_raw, r);
}

static const struct conn_events events = {NULL, on_bytes, on_eof, on_fill, on_closed};

static void op_head(struct http_stream *s, const struct http_head *head, bool end)
{
    (void)s;
    (void)head; /* bytes have no heads: the answer to CONNECT is that they flow */
    (void)end;
}

static void op_data(struct http_stream *s, struct buf *b)
{
    struct raw *r = of(s);
    buf_queue(&r->out, b);
    conn_wake(r->s.conn);
}

static void op_end(struct http_stream *s, const struct http_head *trailers)
{
    struct raw *r = of(s);
    (void)trailers;
    r->out_ended = true;
    conn_finish(r->s.conn);
}

static void op_credit(struct http_stream *s, size_t n)
{
    struct raw *r = of(s);
    assert(n <= r->unread);
    r->unread -= n;
    if (conn_untaken(r->s.conn) > 0)
        conn_read(r->s.conn, true);
}

static void op_cancel(struct http_stream *s, enum why why)
{
    struct raw *r = of(s);
    r->has_stream = false;
    r->released = NULL;
    r->s.running = 0;
    raw_close(r, why);
}

static struct conn *op_lend(struct http_stream *s, bool in, int64_t *ret_n)
{
    struct raw *r = of(s);
    bool free_in = !r->in_ended && r->unread == 0,
         free_out = !r->out_ended && r->out.len == 0 && r->flown == 0;
    *ret_n = -1;
    if (r->closing || !r->has_stream || conn_info(r->s.conn)->tls)
        return NULL;
    return (in ? free_in : free_out) ? r->s.conn : NULL;
}

/* Bytes that went past are no longer of any interest. */
static void op_back(struct http_stream *s, bool in, int64_t moved)
{
    (void)s;
    (void)in;
    (void)moved;
}

/* It has no end before the tunnel's. */
static enum http_left op_left(const struct http_stream *s)
{
    (void)s;
    return HTTP_LEFT_PART;
}

static const struct http_ops stream_ops = {op_head,   op_data, op_end,  op_credit,
                                           op_cancel, op_lend, op_back, op_left};

static bool op_open(struct session *s, struct http_stream **ret)
{
    struct raw *r = (struct raw *)s;
    if (r->s.server || r->opened || r->closing)
        return false;
    r->opened = r->has_stream = true;
    r->s.running = 1;
    r->s.exchanges++;
    *ret = &r->stream;
    conn_read(r->s.conn, true);
    return true;
}

static void op_drain(struct session *s)
{
    struct raw *r = (struct raw *)s;
    if (!r->has_stream)
        raw_close(r, WHY_DRAIN);
}

/* Down is quiet: the stream hears of it when the conn has closed. */
static void op_close(struct session *s, enum why why)
{
    close_conn((struct raw *)s, why);
}

static void op_release(struct session *s, void (*done)(void *arg, struct conn *conn), void *arg)
{
    struct raw *r = (struct raw *)s;
    assert(r->s.server && r->has_stream);
    r->released = done;
    r->released_arg = arg;
    conn_wake(r->s.conn);
}

static const struct session_ops ops = {op_open, op_drain, op_close, op_release};

struct session *raw_start(struct worker *w, struct conn *conn, bool server, struct str authority,
                          const struct http_limits *limits, const struct session_events *ev,
                          void *user)
{
    struct raw *r = mem_new(sizeof *r);
    r->s = (struct session){&ops, ev, user, conn, w, limits, server, 0, 0, false, true, false};
    r->stream.ops = &stream_ops;
    r->authority = (struct str){mem_strdup(authority), authority.n};
    buf_init(&r->out, worker_pool(w));
    conn_attach(conn, &events, r);
    if (server)
        conn_wake(conn);
    return &r->s;
}
