/* h1.c — an HTTP/1 session: one exchange after the other on one connection, in either role.  Here
 * is its life; the message that is read is in h1_in.c, the one that is written in h1_out.c. */
#include <assert.h>

#include "http/h1_impl.h"

static void arm(struct h1 *h, uint64_t ms)
{
    if (ms > 0)
        timer_set(h->s.w, &h->timer, ms);
}

bool h1_request_unsent(const struct h1 *h)
{
    return !h->s.server && (h->out == OUT_WAIT || h->heads.len > 0);
}

void h1_stream_over(struct h1 *h, enum why why)
{
    if (!h->has_stream)
        return;
    if (why == WHY_ORIGIN_GONE && h1_request_unsent(h))
        why = WHY_REFUSED;
    h->has_stream = false;
    h->s.running = 0;
    h->request = h->response = h->trailers = NULL;
    h->stream.ev->closed(h->stream.user, why);
}

/* Is the end of the connection the end of a body that has not left yet?  Then only a reset says
 * that it is not whole. */
static bool would_look_whole(const struct h1 *h)
{
    if (!h->s.server || h->out_coding != CODING_EOF)
        return false;
    return h->out == OUT_BODY || h->out == OUT_LAST || h->out == OUT_CUT ||
           (h->out == OUT_DONE && conn_unsent(h->s.conn) > 0);
}

void h1_close_conn(struct h1 *h, enum why why)
{
    if (h->closing)
        return;
    h->closing = true;
    timer_clear(h->s.w, &h->timer);
    if (would_look_whole(h))
        conn_reset(h->s.conn, why);
    else
        conn_close(h->s.conn, why);
}

void h1_close(struct h1 *h, enum why why)
{
    h1_close_conn(h, why);
    h1_stream_over(h, why);
}

void h1_linger(struct h1 *h)
{
    h->in = IN_DISCARD;
    h->out = OUT_DONE;
    conn_finish(h->s.conn);
    conn_read(h->s.conn, true);
    arm(h, h->s.limits->linger_ms ? h->s.limits->linger_ms : 1);
    if (h->peer_eof) /* was told already, and is not told again */
        h1_settle(h);
}

static bool input_complete(const struct h1 *h)
{
    return h->in == IN_DONE || h->in == IN_ENDED;
}

/* Ready for the next exchange. */
static void to_idle(struct h1 *h)
{
    h1_reset_in(h);
    h->out = OUT_IDLE;
    if (h->s.server) {
        if (h->draining && h->s.limits->drain_idle_ms == 0) {
            h1_close_conn(h, WHY_DRAIN);
            return;
        }
        arm(h, h->draining ? h->s.limits->drain_idle_ms : h->s.limits->keep_alive_ms);
        if (conn_untaken(h->s.conn) > 0)
            conn_read(h->s.conn, true); /* a pipelined request */
        return;
    }
    h->s.ev->idle(h->s.user, &h->s);
}

/* The answer has left; the request may still be coming. */
static void after_response(struct h1 *h, bool keep)
{
    h1_stream_over(h, WHY_OK);
    if (h->closing)
        return;
    if (!input_complete(h) && !h->peer_eof) {
        h1_linger(h);
        return;
    }
    if (keep) {
        to_idle(h);
        return;
    }
    /* the rest of a pipeline is not answered; a close with bytes unread would reset what the client
     * has yet to read */
    if (conn_untaken(h->s.conn) > 0 || h->waits_tunnel)
        h1_linger(h);
    else
        h1_close(h, WHY_OK);
}

static bool reusable(const struct h1 *h)
{
    bool server = h->s.server;
    struct h1_end end = {
        .request_done = server ? input_complete(h) : conn_unsent(h->s.conn) == 0,
        .response_done = true,
        .peer_keeps = h->in_framing.keep_alive && !h->peer_eof && h->in != IN_ENDED,
        /* a server that drains keeps for a moment what the answer promised: a request may come */
        .we_keep = h->we_keep && (server || !h->draining) && h->out_coding != CODING_RAW,
        .until_eof = server ? h->out_coding == CODING_EOF : h->in_framing.body == BODY_EOF,
        .unread = server ? 0 : conn_untaken(h->s.conn),
    };
    return h1_reusable(&end);
}

void h1_settle(struct h1 *h)
{
    if (h->closing || h->out != OUT_DONE)
        return;
    if (!h->has_stream) { /* lingering: over when neither side has anything to say */
        if (h->peer_eof && conn_unsent(h->s.conn) == 0)
            h1_close_conn(h, WHY_OK);
        return;
    }
    if (!input_complete(h) && (!h->s.server || h->in == IN_TUNNEL))
        return;
    /* a close would lose what the kernel has not taken: fill() will be asked again.  Only a request
     * whose answer is complete is not waited for */
    if (conn_unsent(h->s.conn) > 0 && (h->s.server || h->in == IN_ENDED))
        return;
    h1_tell_sent(h);
    if (h->closing || !h->has_stream)
        return;
    bool keep = reusable(h);
    if (h->s.server) {
        after_response(h, keep);
        return;
    }
    if (!keep) {
        h1_close(h, WHY_OK);
        return;
    }
    h1_stream_over(h, WHY_OK);
    if (!h->closing)
        to_idle(h);
}

static void on_timer(struct timer *t)
{
    struct h1 *h = container_of(t, struct h1, timer);
    if (h->out == OUT_CUT)
        h1_break_off(h);
    else
        h1_close(h, h->in == IN_IDLE ? WHY_OK : WHY_DEADLINE);
}

static void free_h1(void *p)
{
    struct h1 *h = p;
    buf_clear(&h->heads);
    buf_clear(&h->body);
    h1_drop_scratch(h);
    mem_free(h);
}

static void on_closed(void *user, enum why why)
{
    struct h1 *h = user;
    h->closing = true;
    timer_clear(h->s.w, &h->timer);
    h1_stream_over(h, why);
    h->s.ev->closed(h->s.user, &h->s);
    worker_bury(h->s.w, free_h1, h);
}

void h1_give_away(struct h1 *h)
{
    h->closing = true;
    h->has_stream = false;
    h->s.running = 0;
    timer_clear(h->s.w, &h->timer);
    worker_bury(h->s.w, free_h1, h);
    h->released(h->released_arg, h->s.conn);
}

static const struct conn_events events = {NULL, h1_on_bytes, h1_on_eof, h1_on_fill, on_closed};

/* ---- session operations */

static bool op_open(struct session *s, struct http_stream **ret)
{
    struct h1 *h = (struct h1 *)s;
    if (h->s.server || h->closing || h->draining || h->peer_eof || h->in != IN_IDLE ||
        h->out != OUT_IDLE)
        return false;
    h->in = IN_HEAD;
    h->out = OUT_WAIT;
    h->has_stream = true;
    h->stream.spoke = false;
    h->s.running = 1;
    h->s.exchanges++;
    *ret = &h->stream;
    return true;
}

static void op_drain(struct session *s)
{
    struct h1 *h = (struct h1 *)s;
    if (h->draining || h->closing)
        return;
    h->draining = true;
    if (h->has_stream || h->in != IN_IDLE)
        return;
    if (h->s.server && h->s.limits->drain_idle_ms > 0)
        arm(h, h->s.limits->drain_idle_ms); /* a request may be on its way */
    else
        h1_close_conn(h, WHY_DRAIN);
}

/* Down is quiet: the stream hears of it when the conn has closed. */
static void op_close(struct session *s, enum why why)
{
    h1_close_conn((struct h1 *)s, why);
}

static void op_release(struct session *s, void (*done)(void *arg, struct conn *conn), void *arg)
{
    struct h1 *h = (struct h1 *)s;
    assert(h->s.server && h->out == OUT_TUNNEL && h->has_stream);
    h->released = done;
    h->released_arg = arg;
    conn_wake(h->s.conn);
}

static const struct session_ops ops = {op_open, op_drain, op_close, op_release};

struct session *h1_start(struct worker *w, struct conn *conn, bool server,
                         const struct http_limits *limits, const struct session_events *ev,
                         void *user)
{
    struct h1 *h = mem_new(sizeof *h);
    h->s = (struct session){&ops, ev, user, conn, w, limits, server, 0, 0, false, false, false};
    h->stream.ops = &h1_ops;
    buf_init(&h->heads, worker_pool(w));
    buf_init(&h->body, worker_pool(w));
    timer_init(&h->timer, on_timer);
    h1_reset_in(h);
    conn_attach(conn, &events, h);
    if (server)
        arm(h, limits->keep_alive_ms);
    return &h->s;
}
