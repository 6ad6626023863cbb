/* meter.c — a stream around a stream.  What passes is counted and compared with the laws, then
 * handed on as it is. */
#include "harness/meter.h"

#include <assert.h>

#include "base/list.h"
#include "net/worker.h"

struct metered_session {
    struct session pub;
    struct session *real;
    const struct session_events *ev;
    void *user;
    unsigned alive; /* streams */
    struct metered *last;
    void (*released)(void *arg, struct conn *conn);
    void *released_arg;
};

/* One direction of a stream. */
struct course {
    bool final, end;
    int64_t left; /* of the promised length, -1: none was promised */
};

struct metered {
    struct http_stream pub, *real;
    struct metered_session *session;
    const struct http_head *request; /* client role: what was asked */
    struct course in, out;
    bool fault, tunnel, over;
    uint64_t received, credited, given, sent;
};

/* Programs with a meter have one thread, and what they measure is the whole program. */
static struct meter counts;
static int in_operation;

void meter_reset(void)
{
    assert(in_operation == 0);
    counts = (struct meter){0};
}

const struct meter *meter(void)
{
    return &counts;
}

static int side(const struct metered *t)
{
    return t->session->pub.server ? 0 : 1;
}

static bool is_framing(struct str name)
{
    static const char *const names[] = {"connection", "keep-alive",        "proxy-connection",
                                        "te",         "transfer-encoding", "upgrade",
                                        "host",       "content-length",    "trailer"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_ieq(name, str_of(names[i])))
            return true;
    return false;
}

static void check_fields(const struct http_head *h)
{
    for (unsigned i = 0; h && i < h->nfields; i++)
        assert(!is_framing(h->fields[i].name));
}

static bool bodyless(const struct metered *t, const struct http_head *response)
{
    return response->status == 204 || response->status == 304 ||
           (t->request && str_eq(t->request->method, STR("HEAD")));
}

static void begin(struct metered *t, struct course *c, const struct http_head *h, bool end)
{
    bool request = h->status == 0;
    assert(!c->final && !c->end && c->left == -1);
    check_fields(h);
    if (!request && h->status < 200 && h->protocol.n == 0) {
        assert(!end && h->status != 101);
        return;
    }
    c->final = true;
    c->end = end;
    if (h->length >= 0 && !(!request && bodyless(t, h)) && h->protocol.n == 0)
        c->left = h->length;
    if (h->protocol.n > 0 && !request) { /* both directions begin anew */
        t->tunnel = true;
        t->in = t->out = (struct course){.final = true, .left = -1};
    }
}

static void pass(struct course *c, size_t n)
{
    assert(n > 0 && c->final && !c->end);
    if (c->left < 0)
        return;
    assert((uint64_t)c->left >= n);
    c->left -= (int64_t)n;
}

static void finish(struct course *c)
{
    assert(c->final && !c->end && c->left <= 0);
    c->end = true;
}

/* ---- operations: of the user, on the wire */

static struct metered *of(struct http_stream *s)
{
    struct metered *t = container_of(s, struct metered, pub);
    assert(!t->over);
    t->real->mem = s->mem;
    assert(s->mem && s->ev);
    return t;
}

static void op_head(struct http_stream *s, const struct http_head *h, bool end)
{
    struct metered *t = of(s);
    assert((h->status > 0) == t->session->pub.server);
    if (h->status == 0)
        t->request = h;
    begin(t, &t->out, h, end);
    in_operation++;
    t->real->ops->head(t->real, h, end);
    in_operation--;
}

static void op_data(struct http_stream *s, struct buf *b)
{
    struct metered *t = of(s);
    size_t n = b->len;
    pass(&t->out, n);
    t->given += n;
    counts.given[side(t)] += n;
    in_operation++;
    t->real->ops->data(t->real, b);
    in_operation--;
    assert(b->len == 0);
}

static void op_end(struct http_stream *s, const struct http_head *trailers)
{
    struct metered *t = of(s);
    finish(&t->out);
    check_fields(trailers);
    in_operation++;
    t->real->ops->end(t->real, trailers);
    in_operation--;
}

static void op_credit(struct http_stream *s, size_t n)
{
    struct metered *t = of(s);
    assert(t->received - t->credited >= n);
    t->credited += n;
    counts.credited[side(t)] += n;
    in_operation++;
    t->real->ops->credit(t->real, n);
    in_operation--;
}

/* What the user may look at of a session, as it is now. */
static void mirror(struct metered_session *m)
{
    m->pub.exchanges = m->real->exchanges;
    m->pub.running = m->real->running;
    m->pub.many = m->real->many;
    m->pub.bytes = m->real->bytes;
    m->pub.extended = m->real->extended;
}

static void over(struct metered *t)
{
    t->over = true;
    t->session->alive--;
    mirror(t->session);
    counts.streams_over[side(t)]++;
    worker_bury(t->session->pub.w, mem_free, t);
}

static void op_cancel(struct http_stream *s, enum why why)
{
    struct metered *t = of(s);
    over(t);
    in_operation++;
    t->real->ops->cancel(t->real, why);
    in_operation--;
}

static enum http_left op_left(const struct http_stream *s)
{
    const struct metered *t = of((struct http_stream *)(uintptr_t)s);
    return t->real->ops->left(t->real);
}

static const struct http_ops metered_ops = {op_head,   op_data, op_end, op_credit,
                                            op_cancel, NULL,    NULL,   op_left};

/* ---- events: of the wire, to the user */

static struct metered *told(void *user)
{
    struct metered *t = user;
    assert(in_operation == 0 && !t->over);
    assert(t->pub.ev && t->pub.mem);
    t->pub.spoke = t->real->spoke;
    return t;
}

static void on_head(void *user, struct http_head *h, bool end)
{
    struct metered *t = told(user);
    assert((h->status == 0) == t->session->pub.server && !t->fault);
    if (h->status == 0)
        t->request = h;
    begin(t, &t->in, h, end);
    t->pub.ev->head(t->pub.user, h, end);
}

/* It may have grown. */
static size_t window_of(const struct metered *t)
{
    const struct http_limits *l = t->session->pub.limits;
    return l->window_max > l->window ? l->window_max : l->window;
}

static void on_data(void *user, struct buf *b)
{
    struct metered *t = told(user);
    size_t held = (size_t)(t->received - t->credited) + b->len;
    pass(&t->in, b->len);
    t->received += b->len;
    counts.received[side(t)] += b->len;
    assert(!t->fault && held <= window_of(t));
    if (held > counts.most_held[side(t)])
        counts.most_held[side(t)] = held;
    t->pub.ev->data(t->pub.user, b);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct metered *t = told(user);
    assert(!t->fault);
    finish(&t->in);
    check_fields(trailers);
    t->pub.ev->end(t->pub.user, trailers);
}

static void on_sent(void *user, size_t n)
{
    struct metered *t = told(user);
    t->sent += n;
    counts.sent[side(t)] += n;
    assert(n > 0 && t->sent <= t->given);
    t->pub.ev->sent(t->pub.user, n);
}

static void on_fault(void *user, const struct http_fault *fault)
{
    struct metered *t = told(user);
    assert(t->session->pub.server && !t->fault && !t->in.end);
    t->fault = true;
    t->pub.ev->fault(t->pub.user, fault);
}

static void on_closed(void *user, enum why why)
{
    struct metered *t = told(user);
    assert((unsigned)why < WHYS);
    /* an origin that has answered may do without the rest (RFC 9113 section 8.1) */
    bool early = !t->session->pub.server && t->session->pub.many && t->in.end;
    assert(why != WHY_OK || early || (t->out.end && t->sent == t->given));
    assert(why != WHY_OK || t->session->pub.server || t->in.end);
    over(t);
    t->pub.ev->closed(t->pub.user, why);
}

static const struct http_events metered_events = {on_head, on_data,  on_end,
                                                  on_sent, on_fault, on_closed};

static struct metered *wrap(struct metered_session *m, struct http_stream *real)
{
    struct metered *t = mem_new(sizeof *t);
    t->pub.ops = &metered_ops;
    t->real = real;
    t->session = m;
    t->in.left = t->out.left = -1;
    t->in.final = m->real->bytes && !m->real->server; /* the far side of a tunnel has no head */
    m->last = t;
    m->alive++;
    counts.streams[side(t)]++;
    real->ev = &metered_events;
    real->user = t;
    return t;
}

/* ---- sessions */

static struct metered_session *session_of(struct session *s)
{
    return container_of(s, struct metered_session, pub);
}

static bool session_open(struct session *s, struct http_stream **ret)
{
    struct metered_session *m = session_of(s);
    struct http_stream *real;
    in_operation++;
    bool ok = m->real->ops->open(m->real, &real);
    in_operation--;
    mirror(m);
    assert(!ok || m->alive == 0 || m->pub.many);
    if (ok)
        *ret = &wrap(m, real)->pub;
    return ok;
}

static void session_drain(struct session *s)
{
    struct metered_session *m = session_of(s);
    in_operation++;
    m->real->ops->drain(m->real);
    in_operation--;
}

static void session_close(struct session *s, enum why why)
{
    struct metered_session *m = session_of(s);
    in_operation++;
    m->real->ops->close(m->real, why);
    in_operation--;
}

/* The bytes that were not credited go back to the connection. */
static void on_released(void *user, struct conn *conn)
{
    struct metered_session *m = user;
    struct metered *t = m->last;
    assert(in_operation == 0 && m->alive == 1 && !t->over && t->tunnel && t->sent == t->given);
    counts.credited[0] += t->received - t->credited;
    over(t);
    counts.sessions_over[0]++;
    worker_bury(m->pub.w, mem_free, m);
    m->released(m->released_arg, conn);
}

static void session_release(struct session *s, void (*done)(void *arg, struct conn *conn),
                            void *arg)
{
    struct metered_session *m = session_of(s);
    assert(m->pub.server && !m->released && m->alive == 1);
    m->released = done;
    m->released_arg = arg;
    in_operation++;
    m->real->ops->release(m->real, on_released, m);
    in_operation--;
}

static const struct session_ops metered_session_ops = {session_open, session_drain, session_close,
                                                       session_release};
static const struct session_ops metered_many_ops = {session_open, session_drain, session_close,
                                                    NULL};

static void on_accept(void *user, struct session *s, struct http_stream *real)
{
    struct metered_session *m = user;
    (void)s;
    mirror(m);
    assert(in_operation == 0 && (m->alive == 0 || m->pub.many));
    struct metered *t = wrap(m, real);
    m->ev->accept(m->user, &m->pub, &t->pub);
    real->mem = t->pub.mem;
    assert(t->pub.ev && real->mem);
}

static void on_idle(void *user, struct session *s)
{
    struct metered_session *m = user;
    (void)s;
    mirror(m);
    assert(in_operation == 0 && (m->alive == 0 || m->pub.many) && !m->pub.server);
    m->ev->idle(m->user, &m->pub);
}

static void on_session_closed(void *user, struct session *s)
{
    struct metered_session *m = user;
    (void)s;
    assert(in_operation == 0 && m->alive == 0);
    counts.sessions_over[m->pub.server ? 0 : 1]++;
    m->ev->closed(m->user, &m->pub);
    worker_bury(m->pub.w, mem_free, m);
}

static const struct session_events metered_session_events = {on_accept, on_idle, NULL,
                                                             on_session_closed};

typedef struct session *start(struct worker *w, struct conn *conn, bool server,
                              const struct http_limits *limits, const struct session_events *ev,
                              void *user);
typedef struct session *start_raw(struct worker *w, struct conn *conn, bool server,
                                  struct str authority, const struct http_limits *limits,
                                  const struct session_events *ev, void *user);

static struct metered_session *metered_new(bool server, const struct session_events *ev, void *user)
{
    struct metered_session *m = mem_new(sizeof *m);
    m->ev = ev;
    m->user = user;
    counts.sessions[server ? 0 : 1]++;
    in_operation++;
    return m;
}

static struct session *metered(struct metered_session *m, struct session *real)
{
    in_operation--;
    m->real = real;
    m->pub = (struct session){.ops = real->ops->release ? &metered_session_ops : &metered_many_ops,
                              .ev = m->ev,
                              .user = m->user,
                              .conn = real->conn,
                              .w = real->w,
                              .limits = real->limits,
                              .server = real->server};
    mirror(m);
    return &m->pub;
}

static struct session *metered_start(start *real, struct worker *w, struct conn *conn, bool server,
                                     const struct http_limits *limits,
                                     const struct session_events *ev, void *user)
{
    struct metered_session *m = metered_new(server, ev, user);
    return metered(m, real(w, conn, server, limits, &metered_session_events, m));
}

start_raw __real_raw_start, __wrap_raw_start;

struct session *__wrap_raw_start(struct worker *w, struct conn *conn, bool server,
                                 struct str authority, const struct http_limits *limits,
                                 const struct session_events *ev, void *user)
{
    struct metered_session *m = metered_new(server, ev, user);
    return metered(
        m, __real_raw_start(w, conn, server, authority, limits, &metered_session_events, m));
}

start __real_h1_start, __wrap_h1_start, __real_h2_start, __wrap_h2_start;

struct session *__wrap_h1_start(struct worker *w, struct conn *conn, bool server,
                                const struct http_limits *limits, const struct session_events *ev,
                                void *user)
{
    return metered_start(__real_h1_start, w, conn, server, limits, ev, user);
}

struct session *__wrap_h2_start(struct worker *w, struct conn *conn, bool server,
                                const struct http_limits *limits, const struct session_events *ev,
                                void *user)
{
    return metered_start(__real_h2_start, w, conn, server, limits, ev, user);
}
