/* client.c — dial, TLS, one exchange, the end.  It tells its user as soon as the outcome is known
 * and stays until its connection has closed, since until then both sides point to it. */
#include "http/client.h"

#include <assert.h>

#include "http/session.h"
#include "net/tls.h"
#include "net/worker.h"

enum { HEAD_BYTES = 65536, WINDOW_BYTES = 65536 };

enum client_state { DIALLING, SHAKING, ASKING, OVER };

struct client {
    struct worker *w;
    enum client_state state;
    struct arena mem; /* the exchange's */
    struct timer timer;
    uint64_t deadline;
    struct url url;
    struct http_head ask;
    struct str body;
    struct tls_ctx *tls;
    size_t max_bytes;
    struct dial *dial;
    struct conn *conn; /* while SHAKING */
    struct session *session;
    struct http_stream *stream;
    const struct http_head *head; /* of the final answer */
    struct buf got;
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void (*done)(void *user, const struct client_answer *answer);
    void *user;
};

static const struct http_limits limits = {
    .max_head_bytes = HEAD_BYTES, .window = WINDOW_BYTES, .window_max = WINDOW_BYTES};

static void free_client(void *p)
{
    struct client *c = p;
    tls_ctx_unref(c->tls);
    arena_done(&c->mem);
    mem_free(c);
}

static void bury(struct client *c)
{
    buf_clear(&c->got);
    worker_bury(c->w, free_client, c);
}

static struct str whole_body(struct client *c)
{
    char *text = arena_get(&c->mem, c->got.len);
    buf_peek(&c->got, text, c->got.len);
    return (struct str){text, c->got.len};
}

/* The one place where the user hears of it.  Closes nothing. */
static void tell(struct client *c, enum why why)
{
    struct client_answer a = {.why = why};
    assert(c->state != OVER);
    c->state = OVER;
    timer_clear(c->w, &c->timer);
    if (c->head) {
        a.head = c->head;
        a.status = c->head->status;
    }
    if (why == WHY_OK)
        a.body = whole_body(c);
    c->done(c->user, &a);
}

/* The outcome is known while the session still stands. */
static void end(struct client *c, enum why why)
{
    tell(c, why);
    c->session->ops->close(c->session, why);
}

/* ---- the exchange */

static void on_head(void *user, struct http_head *head, bool is_end)
{
    struct client *c = user;
    if (c->state == OVER || head->status < 200)
        return;
    c->head = head;
    if (is_end)
        end(c, WHY_OK);
}

static void on_data(void *user, struct buf *b)
{
    struct client *c = user;
    size_t n = b->len;
    if (c->state == OVER) {
        buf_clear(b);
        return;
    }
    if (n > c->max_bytes - c->got.len) {
        buf_clear(b);
        end(c, WHY_LIMIT);
        return;
    }
    buf_queue(&c->got, b);
    c->stream->ops->credit(c->stream, n);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct client *c = user;
    (void)trailers;
    if (c->state != OVER)
        end(c, WHY_OK);
}

static void on_sent(void *user, size_t n)
{
    (void)user;
    (void)n;
}

static void on_stream_closed(void *user, enum why why)
{
    struct client *c = user;
    if (c->state != OVER)
        tell(c, why == WHY_OK ? WHY_ORIGIN_GONE : why);
}

static const struct http_events stream_events = {on_head, on_data, on_end,
                                                 on_sent, NULL,    on_stream_closed};

static void on_idle(void *user, struct session *s)
{
    (void)user;
    s->ops->close(s, WHY_OK);
}

static void on_session_closed(void *user, struct session *s)
{
    struct client *c = user;
    (void)s;
    if (c->state != OVER)
        tell(c, WHY_ORIGIN_GONE);
    bury(c);
}

static const struct session_events session_events = {NULL, on_idle, NULL, on_session_closed};

static void say(struct client *c)
{
    struct buf b;
    bool has_body = c->body.n > 0;
    c->stream->ops->head(c->stream, &c->ask, !has_body);
    if (!has_body)
        return;
    buf_init(&b, worker_pool(c->w));
    buf_str(&b, c->body);
    c->stream->ops->data(c->stream, &b);
    c->stream->ops->end(c->stream, NULL);
}

static void ask(struct client *c, struct conn *conn)
{
    c->state = ASKING;
    c->conn = NULL;
    c->session = h1_start(c->w, conn, false, &limits, &session_events, c);
    bool ok = c->session->ops->open(c->session, &c->stream);
    assert(ok);
    c->stream->ev = &stream_events;
    c->stream->user = c;
    c->stream->mem = &c->mem;
    say(c);
}

/* ---- the way there */

static void on_ready(void *user)
{
    struct client *c = user;
    if (c->state == SHAKING)
        ask(c, c->conn);
}

static void on_eof(void *user)
{
    struct client *c = user;
    conn_close(c->conn, WHY_TLS);
}

static void on_closed(void *user, enum why why)
{
    struct client *c = user;
    if (c->state != OVER)
        tell(c, why);
    bury(c);
}

static const struct conn_events shaking_events = {
    .ready = on_ready, .eof = on_eof, .closed = on_closed};

static void shake(struct client *c, struct conn *conn)
{
    c->state = SHAKING;
    c->conn = conn;
    conn_attach(conn, &shaking_events, c);
    conn_secure(conn, c->tls, &(struct tls_to){.name = c->url.host, .alpn = {"http/1.1"}});
}

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    struct client *c = user;
    return c->allow ? c->allow(c->user, addr) : WHY_OK;
}

static void on_dialled(void *user, struct conn *conn, enum why why)
{
    struct client *c = user;
    uint64_t now = worker_now(c->w);
    c->dial = NULL;
    if (!conn) {
        tell(c, why);
        bury(c);
        return;
    }
    timer_set(c->w, &c->timer, c->deadline > now ? c->deadline - now : 0);
    if (c->url.tls)
        shake(c, conn);
    else
        ask(c, conn);
}

static void on_deadline(struct timer *t)
{
    struct client *c = container_of(t, struct client, timer);
    if (c->state == SHAKING)
        conn_close(c->conn, WHY_DEADLINE);
    else
        end(c, WHY_DEADLINE);
}

/* ---- from outside */

static struct str copy(struct client *c, struct str s)
{
    return arena_str(&c->mem, s);
}

static void make_head(struct client *c, const struct client_request *r)
{
    struct http_head *h = &c->ask;
    struct str basic = url_basic(&r->url, &c->mem);
    h->method = copy(c, r->method);
    h->authority = copy(c, r->url.authority);
    h->path = url_target(&r->url, &c->mem);
    h->length = r->body.n > 0 ? (int64_t)r->body.n : -1;
    h->fields = arena_get(&c->mem, (r->nfields + 2) * sizeof *h->fields);
    for (unsigned i = 0; i < r->nfields; i++)
        head_add(h, copy(c, r->fields[i].name), copy(c, r->fields[i].value));
    if (basic.n > 0 && !head_get(h, STR("authorization")))
        head_add(h, STR("authorization"), basic);
    head_add(h, STR("connection"), STR("close"));
}

struct client *client_start(struct worker *w, const struct client_request *r,
                            void (*done)(void *user, const struct client_answer *answer),
                            void *user)
{
    struct client *c = mem_new(sizeof *c);
    assert(!r->url.tls || r->tls);
    c->w = w;
    arena_init(&c->mem, NULL, 0);
    buf_init(&c->got, worker_pool(w));
    timer_init(&c->timer, on_deadline);
    c->deadline = worker_now(w) + r->timeout_ms;
    c->tls = r->url.tls ? tls_ctx_ref(r->tls) : NULL;
    c->url.tls = r->url.tls;
    c->url.host = copy(c, r->url.host);
    c->body = copy(c, r->body);
    c->max_bytes = r->max_bytes;
    c->allow = r->allow;
    c->done = done;
    c->user = user;
    make_head(c, r);
    struct dial_to to = {.host = c->url.host, .port = r->url.port, .names = r->names};
    c->dial = dial_start(w, &to, r->timeout_ms, on_allow, on_dialled, c);
    return c;
}

void client_cancel(struct client *c)
{
    enum client_state was = c->state;
    assert(was != OVER);
    c->state = OVER;
    timer_clear(c->w, &c->timer);
    if (was == DIALLING) {
        dial_cancel(c->dial);
        bury(c);
    } else if (was == SHAKING) {
        conn_close(c->conn, WHY_DRAIN);
    } else {
        c->session->ops->close(c->session, WHY_DRAIN);
    }
}
