/* session.c — which codec a client's connection gets.  TLS has negotiated it; in cleartext the
 * first bytes tell, and almost always the first one: only HTTP/2 begins with all of its preface.
 * Until then a small session stands in for the codec, which is then given bytes nobody has taken.
 */
#include "base/wheel.h"
#include "http/session.h"
#include "net/worker.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

/* A session of which nothing is known yet. */
struct waiting {
    struct session s;
    struct timer timer;
    size_t seen; /* bytes of the preface */
    bool draining, over;
};

static void arm(struct waiting *x, uint64_t ms)
{
    if (ms > 0)
        timer_set(x->s.w, &x->timer, ms);
}

static void waiting_close(struct waiting *x, enum why why)
{
    if (x->over)
        return;
    x->over = true;
    timer_clear(x->s.w, &x->timer);
    conn_close(x->s.conn, why);
}

static void become(struct waiting *x, bool h2)
{
    const struct session *s = &x->s;
    timer_clear(s->w, &x->timer);
    x->over = true;
    struct session *codec = h2 ? h2_start(s->w, s->conn, true, s->limits, s->ev, s->user)
                               : h1_start(s->w, s->conn, true, s->limits, s->ev, s->user);
    if (s->ev->became)
        s->ev->became(s->user, codec);
    if (x->draining)
        codec->ops->drain(codec);
    worker_bury(s->w, mem_free, x);
}

/* How many bytes of `in` are those of the preface, up to all of it. */
static size_t preface_bytes(const struct buf *in)
{
    size_t n = 0;
    for (const struct slice *s = in->head; s; s = s->next)
        for (size_t i = 0; i < s->n; i++, n++)
            if (n == sizeof PREFACE - 1 || (char)s->p[i] != PREFACE[n])
                return n;
    return n;
}

static void on_bytes(void *user, struct buf *in)
{
    struct waiting *x = user;
    size_t n = preface_bytes(in);
    bool h2 = n == sizeof PREFACE - 1;
    /* the same bytes once more say that no others will come: their end is for HTTP/1 to judge */
    if (h2 || n < in->len || n == x->seen)
        become(x, h2);
    else if (x->seen == 0)
        arm(x, x->s.limits->head_ms);
    x->seen = n;
}

static void on_eof(void *user)
{
    waiting_close(user, WHY_OK);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    (void)user;
    (void)out;
    (void)max;
}

static void on_closed(void *user, enum why why)
{
    struct waiting *x = user;
    (void)why;
    x->over = true;
    timer_clear(x->s.w, &x->timer);
    x->s.ev->closed(x->s.user, &x->s);
    worker_bury(x->s.w, mem_free, x);
}

static void on_timer(struct timer *t)
{
    struct waiting *x = container_of(t, struct waiting, timer);
    waiting_close(x, x->seen > 0 ? WHY_DEADLINE : WHY_OK);
}

static const struct conn_events events = {NULL, on_bytes, on_eof, on_fill, on_closed};

static bool op_open(struct session *s, struct http_stream **ret)
{
    (void)s;
    (void)ret;
    return false;
}

static void op_drain(struct session *s)
{
    struct waiting *x = (struct waiting *)s;
    if (x->draining || x->over)
        return;
    x->draining = true;
    if (s->limits->drain_idle_ms > 0)
        arm(x, s->limits->drain_idle_ms); /* a request may be on its way */
    else
        waiting_close(x, WHY_DRAIN);
}

static void op_close(struct session *s, enum why why)
{
    waiting_close((struct waiting *)s, why);
}

static const struct session_ops ops = {op_open, op_drain, op_close, NULL};

struct session *session_start(struct worker *w, struct conn *conn, const struct http_limits *limits,
                              const struct session_events *ev, void *user)
{
    const struct conn_info *info = conn_info(conn);
    if (info->tls && str_eq(info->alpn, STR("h2")))
        return h2_start(w, conn, true, limits, ev, user);
    if (info->tls)
        return h1_start(w, conn, true, limits, ev, user);
    struct waiting *x = mem_new(sizeof *x);
    x->s = (struct session){&ops, ev, user, conn, w, limits, true, 0, 0, false, false, false};
    timer_init(&x->timer, on_timer);
    conn_attach(conn, &events, x);
    arm(x, limits->keep_alive_ms);
    return &x->s;
}
