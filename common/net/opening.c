/* opening.c — takes a connection from its first byte to the one that belongs to a session.  Of the
 * PROXY header it takes no byte too many, so that what follows is still there for TLS and for the
 * codec; one deadline lies over both steps, since each alone could be drawn out. */
#include "net/opening.h"

#include <assert.h>

#include "net/proxyhead.h"
#include "net/tls.h"
#include "net/worker.h"

enum step { STEP_HEADER, STEP_TLS };

struct opening {
    struct worker *w;
    struct conn *conn;
    struct tls_ctx *tls; /* a reference, or NULL */
    enum step step;
    struct buf head; /* the header so far, taken so that the end of the connection is told */
    struct timer timer;
    void (*done)(void *user, struct conn *conn, enum why why); /* NULL: nobody asks any more */
    void *user;
};

static void destroy(struct opening *o)
{
    timer_clear(o->w, &o->timer);
    tls_ctx_unref(o->tls);
    buf_clear(&o->head);
    worker_bury(o->w, mem_free, o);
}

static void pass_on(struct opening *o)
{
    o->done(o->user, o->conn, WHY_OK);
    destroy(o);
}

static void next_step(struct opening *o)
{
    if (!o->tls) {
        pass_on(o);
        return;
    }
    o->step = STEP_TLS;
    conn_secure(o->conn, o->tls, NULL);
}

/* As much of the header as has come and of what follows as fits. */
static size_t look(const struct opening *o, const struct buf *in, uint8_t head[PROXYHEAD_MAX])
{
    size_t room = PROXYHEAD_MAX - o->head.len, n = in->len < room ? in->len : room;
    buf_peek(&o->head, head, o->head.len);
    buf_peek(in, head + o->head.len, n);
    return o->head.len + n;
}

static void on_header(struct opening *o, struct buf *in)
{
    uint8_t head[PROXYHEAD_MAX];
    size_t n = look(o, in, head), used;
    bool has;
    union addr source;
    switch (proxyhead_read(head, n, &used, &has, &source)) {
    case PROXYHEAD_MORE: /* so all of it is header */
        buf_queue(&o->head, in);
        return;
    case PROXYHEAD_BAD:
        conn_close(o->conn, WHY_CLIENT_PROTOCOL);
        return;
    case PROXYHEAD_DONE:
        break;
    }
    buf_drop(in, used - o->head.len);
    buf_clear(&o->head);
    if (has)
        conn_set_peer(o->conn, &source.sa);
    next_step(o);
}

static void on_bytes(void *user, struct buf *in)
{
    struct opening *o = user;
    if (o->step == STEP_HEADER)
        on_header(o, in);
}

static void on_ready(void *user)
{
    pass_on(user);
}

static void on_eof(void *user)
{
    struct opening *o = user;
    conn_close(o->conn, WHY_CLIENT_GONE);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    (void)user;
    (void)out;
    (void)max;
}

static void on_closed(void *user, enum why why)
{
    struct opening *o = user;
    if (o->done)
        o->done(o->user, NULL, why);
    destroy(o);
}

static const struct conn_events events = {on_ready, on_bytes, on_eof, on_fill, on_closed};

static void on_deadline(struct timer *t)
{
    struct opening *o = container_of(t, struct opening, timer);
    conn_close(o->conn, WHY_DEADLINE);
}

struct opening *opening_start(struct worker *w, struct conn *conn,
                              const struct opening_rules *rules,
                              void (*done)(void *user, struct conn *conn, enum why why), void *user)
{
    assert(rules->proxy_header || rules->tls);
    struct opening *o = mem_new(sizeof *o);
    o->w = w;
    o->conn = conn;
    o->tls = rules->tls ? tls_ctx_ref(rules->tls) : NULL;
    o->done = done;
    o->user = user;
    buf_init(&o->head, worker_pool(w));
    timer_init(&o->timer, on_deadline);
    timer_set(w, &o->timer, rules->timeout_ms);
    conn_attach(conn, &events, o);
    if (!rules->proxy_header)
        next_step(o);
    return o;
}

void opening_cancel(struct opening *o)
{
    o->done = NULL;
    timer_clear(o->w, &o->timer);
    conn_close(o->conn, WHY_DRAIN);
}
