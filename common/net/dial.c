/* dial.c — one connection to a host and port.  The addresses are tried in order, each with its
 * share of what is left of the deadline; the caller's allow() sees every one, and the connection
 * goes to the very address that was judged.  Through a parent only the way to the parent is ours:
 * the first of its addresses that connects is asked, and what it answers is the end of it.  TLS is
 * a part of the way where it is wished: who cannot prove to be the host was not reached. */
#include "net/dial.h"

#include <errno.h>

#include "net/conn_impl.h"
#include "net/dial_impl.h"
#include "net/resolve.h"
#include "net/tls.h"

enum { DIAL_ADDRESSES = 16, COMES_BACK_MAX = 16 };

struct dial {
    struct list link; /* in worker->dials */
    struct worker *w;
    struct resolve *resolving;
    struct conn *conn;
    struct dial_to to;
    struct parent_ask *asking; /* the parent */
    struct timer timer;        /* this attempt's share */
    uint64_t deadline;
    struct ip ips[DIAL_ADDRESSES];
    unsigned nips, at;
    uint16_t port, own_port; /* own: of this attempt's socket */
    int err, status;
    struct str fault;
    bool through; /* the parent has said yes */
    bool tried;   /* an address was allowed */
    bool back;    /* this attempt has led to ourselves */
    unsigned backs;
    enum why why; /* of the last attempt */
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void (*done)(void *user, struct conn *c, enum why why);
    void *user;
    char names[]; /* of `to`: host and tls_name */
};

static void on_ready(void *user);
static void on_closed(void *user, enum why why);
static void on_secure(void *user);
static void on_insecure(void *user, enum why why);

/* A peer that speaks first: its bytes wait for the next owner. */
static const struct conn_events attempt_events = {.ready = on_ready, .closed = on_closed};
static const struct conn_events shake_events = {.ready = on_secure, .closed = on_insecure};
static const struct conn_events nobody = {NULL};

/* A conn whose closing nobody waits for. */
static void drop_conn(struct dial *d)
{
    struct conn *c = d->conn;
    d->conn = NULL;
    if (!c)
        return;
    conn_close(c, WHY_DIAL);
    c->ev = &nobody;
}

static void bury(struct dial *d)
{
    list_del(&d->link);
    timer_clear(d->w, &d->timer);
    tls_ctx_unref(d->to.tls);
    d->to.tls = NULL;
    worker_bury(d->w, mem_free, d);
}

static void finish(struct dial *d, struct conn *c, enum why why)
{
    if (!c && d->to.parent && !d->through && d->fault.n == 0)
        d->fault = STR("upstream proxy: cannot be reached");
    timer_clear(d->w, &d->timer);
    d->done(d->user, c, why);
    bury(d);
}

static enum why why_of(int err)
{
    if (err == EMFILE || err == ENFILE || err == ENOMEM || err == EADDRNOTAVAIL)
        return WHY_OVERLOAD;
    return err == ETIMEDOUT ? WHY_DEADLINE : WHY_DIAL;
}

static void next(struct dial *d);

static bool own_address(const struct conn *c, union addr *ret)
{
    socklen_t n = sizeof *ret;
    return getsockname(c->fd, &ret->sa, &n) == 0;
}

/* True: an attempt is under way. */
static bool attempt(struct dial *d)
{
    union addr to, own;
    addr_make(&to, &d->ips[d->at++], d->port);
    enum why why = d->to.parent ? WHY_OK : d->allow(d->user, &to.sa);
    if (why != WHY_OK) {
        if (!d->tried)
            d->why = why;
        return false;
    }
    d->tried = true;
    d->err = 0;
    d->fault = STR_NONE;
    d->conn = conn_connect_prepared(d->w, &to.sa, &d->w->prepare_dial, &attempt_events, d, &d->err);
    d->own_port = d->conn && own_address(d->conn, &own) ? addr_port(&own.sa) : 0;
    if (d->conn)
        return true;
    d->why = why_of(d->err);
    return false;
}

static void next(struct dial *d)
{
    uint64_t now = worker_now(d->w);
    d->at -= d->back;
    d->back = false;
    while (d->at < d->nips) {
        if (now >= d->deadline) {
            d->why = WHY_DEADLINE;
            break;
        }
        if (attempt(d)) {
            timer_set(d->w, &d->timer, (d->deadline - now) / (d->nips - d->at + 1));
            return;
        }
    }
    finish(d, NULL, d->why);
}

/* The end of the way for bytes; TLS goes on from here. */
static void on_arrived(struct dial *d, struct conn *c)
{
    static const char *const alpn[] = {"h2", "http/1.1", NULL};
    const struct dial_to *to = &d->to;
    if (!to->tls) {
        finish(d, c, WHY_OK);
        return;
    }
    struct tls_to peer = {.name = to->tls_name};
    memcpy(peer.alpn, to->tls_h2 ? alpn : alpn + 1, (to->tls_h2 ? 2 : 1) * sizeof *alpn);
    d->conn = c;
    conn_attach(c, &shake_events, d);
    conn_secure(c, to->tls, &peer);
}

static void on_secure(void *user)
{
    struct dial *d = user;
    struct conn *c = d->conn;
    d->conn = NULL;
    finish(d, c, WHY_OK);
}

/* What has a wrong certificate is the wrong place, and so will be its other addresses; what hangs
 * up may be out of order. */
static void on_insecure(void *user, enum why why)
{
    struct dial *d = user;
    d->fault = conn_info(d->conn)->fault;
    d->conn = NULL;
    d->why = WHY_TLS;
    if (why == WHY_TLS || d->through)
        finish(d, NULL, WHY_TLS);
    else
        next(d);
}

static void on_asked(void *user, struct conn *c, const struct parent_answer *answer)
{
    struct dial *d = user;
    d->asking = NULL;
    d->status = answer->status;
    d->fault = answer->fault;
    d->through = c != NULL;
    if (c)
        on_arrived(d, c);
    else
        finish(d, NULL, answer->why);
}

static void on_ready(void *user)
{
    struct dial *d = user;
    struct conn *c = d->conn;
    if (d->back) {
        drop_conn(d);
        next(d);
        return;
    }
    d->conn = NULL;
    if (!d->to.parent) {
        on_arrived(d, c);
        return;
    }
    uint64_t now = worker_now(d->w);
    timer_set(d->w, &d->timer, d->deadline > now ? d->deadline - now : 0);
    d->asking = parent_ask(d->w, c, &d->to, on_asked, d);
}

static void on_closed(void *user, enum why why)
{
    struct dial *d = user;
    d->err = conn_errno(d->conn);
    d->conn = NULL;
    d->why = why == WHY_DEADLINE ? why : d->err ? why_of(d->err) : WHY_DIAL;
    next(d);
}

static void on_timer(struct timer *t)
{
    struct dial *d = container_of(t, struct dial, timer);
    if (d->resolving)
        return; /* its own deadline is the same and will tell */
    d->err = ETIMEDOUT;
    d->why = WHY_DEADLINE;
    if (d->asking) {
        parent_cancel(d->asking);
        finish(d, NULL, WHY_DEADLINE);
        return;
    }
    drop_conn(d);
    if (d->through)
        finish(d, NULL, WHY_DEADLINE);
    else
        next(d);
}

static void on_resolved(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct dial *d = user;
    d->resolving = NULL;
    d->why = why;
    d->nips = n < DIAL_ADDRESSES ? n : DIAL_ADDRESSES;
    for (unsigned i = 0; i < d->nips; i++)
        d->ips[i] = ips[i];
    if (d->to.parent && !parent_can_ask(&d->to)) {
        d->fault = STR("no proxy can be asked for this host");
        finish(d, NULL, WHY_DIAL);
        return;
    }
    next(d);
}

static void set_to(struct dial *d, const struct dial_to *to)
{
    struct str name = to->tls_name.n > 0 ? to->tls_name : to->host;
    memcpy(d->names, to->host.p, to->host.n);
    memcpy(d->names + to->host.n, name.p, name.n);
    d->to = *to;
    d->to.host.p = d->names;
    d->to.tls_name = (struct str){d->names + to->host.n, name.n};
    d->to.tls = to->tls ? tls_ctx_ref(to->tls) : NULL;
    d->port = to->parent ? to->parent->port : to->port;
}

struct dial *dial_start(struct worker *w, const struct dial_to *to, uint64_t timeout_ms,
                        enum why (*allow)(void *user, const struct sockaddr *addr),
                        void (*done)(void *user, struct conn *c, enum why why), void *user)
{
    const struct dial_parent *p = to->parent;
    struct dial *d = mem_new(sizeof *d + 2 * to->host.n + to->tls_name.n);
    struct names *names = p ? p->names : to->names;
    d->w = w;
    d->deadline = worker_now(w) + timeout_ms;
    d->why = WHY_DIAL;
    d->allow = allow;
    d->done = done;
    d->user = user;
    timer_init(&d->timer, on_timer);
    list_push(&w->dials, &d->link);
    set_to(d, to);
    d->resolving = resolve_start(names ? names : worker_get(w, SLOT_NAMES), p ? p->host : to->host,
                                 timeout_ms, on_resolved, d);
    return d;
}

void dial_cancel(struct dial *d)
{
    if (d->resolving)
        resolve_cancel(d->resolving);
    if (d->asking)
        parent_cancel(d->asking);
    drop_conn(d);
    bury(d);
}

static bool is_from(const struct dial *d, const struct sockaddr *from)
{
    union addr own;
    struct ip a, b;
    if (d->own_port != addr_port(from) || !own_address(d->conn, &own))
        return false;
    addr_ip(&own.sa, &a);
    addr_ip(from, &b);
    return ip_eq(&a, &b);
}

static bool leads_to(const struct dial *d, const struct sockaddr *to)
{
    struct ip ip;
    addr_ip(to, &ip);
    return d->conn && d->at > 0 && d->port == addr_port(to) && ip_eq(&d->ips[d->at - 1], &ip);
}

/* One that has handed its connection on is not found: what it carries goes through us twice. */
bool dial_came_back(struct worker *w, const struct sockaddr *from, const struct sockaddr *to)
{
    list_each(it, &w->dials)
    {
        struct dial *d = container_of(it, struct dial, link);
        if (!leads_to(d, to) || !is_from(d, from))
            continue;
        d->back = d->backs++ < COMES_BACK_MAX;
        return true;
    }
    return false;
}

int dial_errno(const struct dial *d)
{
    return d->err;
}

int dial_status(const struct dial *d)
{
    return d->status;
}

struct str dial_fault(const struct dial *d)
{
    return d->fault;
}

void dial_prepare(struct worker *w, const struct prepare *p)
{
    w->prepare_dial = *p;
}
