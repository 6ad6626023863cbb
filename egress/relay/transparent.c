/* transparent.c — a redirected connection until it can be told what it carries.  Its bytes are
 * collected here and given back, so that who goes on with it finds all of them; nothing is dialled
 * and nothing looked up before it was judged.  Whoever is refused is told so: TLS by its own alert,
 * the rest by a reset (E20). */
#include "egress/events/events.h"
#include "egress/gate.h"
#include "egress/intercept/intercept.h"
#include "egress/judge.h"
#include "egress/relay/relay_impl.h"
#include "net/dial.h"
#include "proxy/proxy.h"

enum { PART_MS = 2000 };

enum look_state {
    LOOKING,
    PARTING /* refused: until the peer has read why */
};

struct look {
    struct list link; /* in relay.looking */
    struct relay *r;  /* NULL: it is gone */
    struct worker *w;
    struct conn *conn;
    struct caller *caller; /* the conn's */
    enum look_state state;
    struct first first;
    struct buf bytes;     /* all that has come */
    struct timer silence; /* then the server speaks first */
    struct timer limit;
    bool told; /* PARTING: the alert is on its way */
};

/* ---- the end */

/* The conn is another's, or closing. */
static void leave(struct look *l)
{
    timer_clear(l->w, &l->silence);
    timer_clear(l->w, &l->limit);
    list_del(&l->link);
    buf_clear(&l->bytes);
    first_done(&l->first);
    l->r = NULL;
}

static void end(struct look *l)
{
    if (l->r)
        leave(l);
    worker_bury(l->w, mem_free, l);
}

static void count(const struct look *l, size_t counter)
{
    struct counter *c = (struct counter *)(void *)((char *)&l->r->counters + counter);
    counter_add(c, 1);
}

#define COUNT(l, name) count(l, offsetof(struct relay_counters, name))

/* ---- refused */

static void tell(const struct look *l, const struct opinion *o)
{
    const struct identity_conn *c = &l->caller->c;
    const struct sidecar *s = l->r->s.sidecar;
    struct host host;
    struct event_connection e = {
        .ip = &c->to, .port = c->port, .rule = str_of(o->rule), .why = identity_why(o->fault)};
    if (c->sni.p && host_read(c->sni, &host))
        e.host = host_name(&host);
    if (s->events)
        events_connection(s->events, &e);
}

static void refuse(struct look *l, const struct opinion *o)
{
    COUNT(l, refused);
    tell(l, o);
    if (l->caller->c.kind != IDENTITY_TLS) {
        conn_reset(l->conn, identity_why(o->fault));
        return;
    }
    l->state = PARTING;
    buf_clear(&l->bytes);
    timer_clear(l->w, &l->silence);
    timer_set(l->w, &l->limit, PART_MS);
    conn_wake(l->conn);
}

/* ---- let through */

static struct str authority_of(const struct identity_conn *c, struct arena *a)
{
    char text[ADDR_TEXT_BYTES];
    struct host host;
    union addr to;
    if (c->sni.p && host_read(c->sni, &host) && host.kind == HOST_NAME)
        return arena_printf(a, "%.*s:%u", STR_ARG(host_name(&host)), c->port);
    addr_make(&to, &c->to, c->port);
    return arena_str(a, (struct str){text, addr_text(&to.sa, text)});
}

static void hand_over(struct look *l, enum proxy_taken as)
{
    char text[NAME_BYTES_MAX + ADDR_TEXT_BYTES];
    struct proxy *proxy = l->r->s.proxy;
    struct arena a;
    arena_init(&a, text, sizeof text);
    struct str authority = as == PROXY_RAW ? authority_of(&l->caller->c, &a) : STR_NONE;
    if (l->bytes.len > 0)
        conn_untake(l->conn, &l->bytes);
    proxy_take(proxy, l->conn, as, authority);
    arena_done(&a);
    end(l);
}

/* Its lease may end before the first request comes (E5). */
static void hold_name(const struct judge *j, struct caller *p)
{
    struct host host;
    if (p->c.sni.p && host_read(p->c.sni, &host) && judge_holds(j, &p->c, &host))
        p->held = host;
}

/* Opened although it is refused: then each request is told why. */
static void read_on(struct look *l, bool refused)
{
    struct caller *p = l->caller;
    p->read = true;
    COUNT(l, read);
    conn_untake(l->conn, &l->bytes);
    intercept_begin(l->r->s.sidecar->intercept, l->conn, p, &l->first.hello.hello, refused);
    end(l);
}

static void judge(struct look *l)
{
    struct judge j;
    enum passage passage;
    struct pin *pin = pin_get(l->w);
    judge_init(&j, pin->snap, l->r->s.sidecar, worker_now(l->w));
    struct opinion o = judge_first(&j, &l->caller->c, &passage);
    if (o.fault == IDENTITY_OK)
        hold_name(&j, l->caller);
    pin_put(l->w, pin);
    if (passage == PASSAGE_PASS)
        hand_over(l, PROXY_RAW);
    else if (passage == PASSAGE_INTERCEPT && l->r->s.sidecar->intercept)
        read_on(l, o.fault != IDENTITY_OK);
    else
        refuse(l, &o);
}

static void malformed(struct look *l)
{
    COUNT(l, malformed);
    conn_close(l->conn, WHY_CLIENT_PROTOCOL);
}

static void go_on(struct look *l, enum first_step step)
{
    struct caller *p = l->caller;
    const struct str *name = &l->first.hello.hello.name;
    switch (step) {
    case FIRST_STEP_MORE:
        return;
    case FIRST_STEP_HTTP:
        COUNT(l, http);
        p->c.kind = IDENTITY_HTTP;
        hand_over(l, PROXY_HTTP);
        return;
    case FIRST_STEP_OTHER:
        COUNT(l, raw);
        p->c.kind = IDENTITY_RAW;
        judge(l);
        return;
    case FIRST_STEP_TLS:
        p->c.kind = IDENTITY_TLS;
        if (name->p && !caller_set_sni(p, *name)) {
            malformed(l);
            return;
        }
        COUNT(l, tls);
        judge(l);
        return;
    default:
        malformed(l);
    }
}

/* ---- events */

static void on_bytes(void *user, struct buf *in)
{
    struct look *l = user;
    if (!l->r || l->state == PARTING) {
        buf_clear(in);
        return;
    }
    buf_move_all(&l->bytes, in);
    go_on(l, first_look(&l->first, &l->bytes));
}

static void on_eof(void *user)
{
    struct look *l = user;
    if (l->r && l->state == LOOKING)
        COUNT(l, unfinished);
    conn_close(l->conn, WHY_CLIENT_GONE);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    static const uint8_t alert[] = {21, 3, 3, 0,
                                    2,  2, 49}; /* fatal, access_denied (RFC 8446 6.2) */
    struct look *l = user;
    (void)max;
    if (l->state != PARTING || l->told)
        return;
    l->told = true;
    buf_write(out, alert, sizeof alert);
    conn_finish(l->conn);
}

static void on_closed(void *user, enum why why)
{
    (void)why;
    end(user);
}

static const struct conn_events look_events = {NULL, on_bytes, on_eof, on_fill, on_closed};

static void on_silence(struct timer *t)
{
    struct look *l = container_of(t, struct look, silence);
    if (l->bytes.len > 0)
        return;
    l->caller->silent = true; /* the gate looks on */
    go_on(l, FIRST_STEP_OTHER);
}

/* What has begun and does not go on could still become a request: relayed as it is, its Host would
 * be read by nobody. */
static void on_limit(struct timer *t)
{
    struct look *l = container_of(t, struct look, limit);
    if (l->state == LOOKING)
        COUNT(l, unfinished);
    conn_close(l->conn, WHY_DEADLINE);
}

/* ---- accepting */

/* False: it was not redirected, or it is unknown where it was on its way to (K7).  What is on its
 * way to this host itself is not redirected either. */
static bool original(const struct relay *r, const struct conn *conn, union addr *ret)
{
    struct ip ip;
    if (conn_original(conn, ret) < 0)
        return false;
    addr_ip(&ret->sa, &ip);
    return !judge_is_loopback(&ip) && !judge_is_ours(r->s.sidecar, &ip, addr_port(&ret->sa));
}

static void begin(struct relay *r, struct conn *conn, struct caller *p)
{
    struct look *l = mem_new(sizeof *l);
    l->r = r;
    l->w = r->s.w;
    l->conn = conn;
    l->caller = p;
    first_init(&l->first);
    buf_init(&l->bytes, worker_pool(l->w));
    timer_init(&l->silence, on_silence);
    timer_init(&l->limit, on_limit);
    list_push(&r->looking, &l->link);
    timer_set(l->w, &l->silence, GATE_SILENCE_MS);
    timer_set(l->w, &l->limit, settings_ms(r->s.sidecar->set->first_bytes_timeout));
    conn_attach(conn, &look_events, l);
}

void transparent_accept(void *relay, struct conn *conn)
{
    struct relay *r = relay;
    union addr to;
    counter_add(&r->counters.accepted, 1);
    if (!original(r, conn, &to) || dial_came_back(r->s.w, conn_info(conn)->peer, &to.sa)) {
        counter_add(&r->counters.loops, 1);
        relay_discard(conn, WHY_CLIENT_PROTOCOL);
        return;
    }
    struct caller *p = caller_new(WAY_TRANSPARENT, r->redirected);
    if (!p) {
        counter_add(&r->counters.full, 1);
        relay_discard(conn, WHY_LIMIT);
        return;
    }
    addr_ip(&to.sa, &p->c.to);
    p->c.port = addr_port(&to.sa);
    conn_set_target(conn, &to.sa);
    caller_give(conn, p);
    begin(r, conn, p);
}

void transparent_close(struct relay *r)
{
    for (struct list *it; (it = list_first(&r->looking));) {
        struct look *l = container_of(it, struct look, link);
        conn_close(l->conn, WHY_DRAIN);
        leave(l);
    }
}
