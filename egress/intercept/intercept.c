/* intercept.c — see intercept.h.  The client is offered what the origin has chosen out of its list,
 * so the origin's handshake comes first where that makes a difference; its connection is then kept
 * for the first request.  What is refused, and what the origin cannot be asked about, is opened
 * with the client's own preference: who asks is answered, not cut off. */
#include "egress/intercept/intercept.h"

#include "base/log.h"
#include "base/map.h"
#include "egress/forward.h"
#include "egress/intercept/ca.h"
#include "egress/judge.h"
#include "net/tls.h"
#include "net/worker.h"
#include "proxy/proxy.h"

enum { PART_MS = 2000, NAMES_TOLD = 64 };

struct intercept {
    struct intercept_setup s;
    struct list shakes;
    struct intercept_counters counters;
    bool draining;
    uint64_t told[NAMES_TOLD]; /* whose clients have rejected a leaf: hashes of names */
    unsigned ntold;
};

enum shake_state {
    SHAKE_ASKING, /* the origin */
    SHAKE_OPENING,
    SHAKE_PARTING /* refused: until the peer has read the alert */
};

struct shake {
    struct list link;    /* in intercept.shakes */
    struct intercept *i; /* NULL: it is gone, or the conn is another's */
    struct worker *w;
    struct conn *conn;
    struct caller *caller; /* the conn's */
    enum shake_state state;
    bool h2_only, told;
    const char *preferred; /* the client's, of those we speak; NULL: it offers no protocol */
    struct origin_dial *asking;
    struct timer limit;
};

/* ---- the end */

/* The conn is another's, or closing. */
static void leave(struct shake *s)
{
    timer_clear(s->w, &s->limit);
    if (s->asking)
        origin_dial_cancel(s->asking);
    s->asking = NULL;
    list_del(&s->link);
    s->i = NULL;
}

static void end(struct shake *s)
{
    if (s->i)
        leave(s);
    worker_bury(s->w, mem_free, s);
}

/* From here on nobody else may use the conn, whose closed() is still to come. */
static void give_up(struct shake *s, enum why why)
{
    if (s->i && s->state == SHAKE_OPENING)
        counter_add(&s->i->counters.failed, 1);
    if (s->i)
        leave(s);
    conn_close(s->conn, why);
}

static void on_limit(struct timer *t)
{
    give_up(container_of(t, struct shake, limit), WHY_DEADLINE);
}

/* ---- who it is for */

static struct str name_of(const struct caller *p, struct arena *a)
{
    struct host h;
    if (!p->c.sni.p || !host_read(p->c.sni, &h))
        h = (struct host){.kind = HOST_ADDRESS, .ip = p->c.to};
    if (h.kind == HOST_NAME)
        return arena_str(a, host_name(&h));
    char text[IP_TEXT_BYTES];
    return arena_str(a, (struct str){text, ip_text(&h.ip, text)});
}

/* ---- a client that does not want us */

/* The first time for this name, as far as is remembered.  A collision, even one that was looked
 * for, costs a line of the log, so that no key is needed. */
static bool is_news(struct intercept *i, struct str name)
{
    static const uint8_t key[16];
    uint64_t h = map_hash(key, name.p, name.n);
    for (unsigned k = 0; k < NAMES_TOLD && k < i->ntold; k++)
        if (i->told[k] == h)
            return false;
    i->told[i->ntold++ % NAMES_TOLD] = h;
    return true;
}

static void tell_rejected(struct shake *s, enum why why)
{
    char text[NAME_BYTES_MAX + IP_TEXT_BYTES];
    struct str fault = conn_info(s->conn)->fault;
    struct arena a;
    struct log_line l;
    arena_init(&a, text, sizeof text);
    struct str name = name_of(s->caller, &a);
    bool rejected = str_eq(fault, STR("our certificate is not trusted"));
    bool news = rejected && is_news(s->i, name);
    enum log_level level = news ? LOG_INFO : LOG_DEBUG;
    if (log_on(level)) {
        log_begin(&l, level,
                  news ? "client does not trust the interception authority"
                       : "client has given up the handshake");
        log_str(&l, "target.host", name);
        log_int(&l, "target.port", s->caller->c.port);
        log_str(&l, "why", str_of(why_text(why)));
        if (fault.n)
            log_str(&l, "error", fault);
        log_end(&l);
    }
    arena_done(&a);
}

/* ---- opening */

static void on_ready(void *user)
{
    struct shake *s = user;
    if (!s->i)
        return;
    struct proxy *proxy = s->i->s.proxy;
    struct conn *conn = s->conn;
    end(s);
    proxy_take(proxy, conn, PROXY_HTTP, STR_NONE);
}

static void on_eof(void *user)
{
    give_up(user, WHY_CLIENT_GONE);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    static const uint8_t alert[] = {21, 3, 3,  0,
                                    2,  2, 120}; /* fatal, no_application_protocol (RFC 7301 3.2) */
    struct shake *s = user;
    (void)max;
    if (s->state != SHAKE_PARTING || s->told)
        return;
    s->told = true;
    buf_write(out, alert, sizeof alert);
    conn_finish(s->conn);
}

static void on_closed(void *user, enum why why)
{
    struct shake *s = user;
    if (s->i && s->state == SHAKE_OPENING) {
        counter_add(&s->i->counters.failed, 1);
        tell_rejected(s, why);
    }
    end(s);
}

/* Nothing is taken before TLS is up, but of what is refused. */
static void on_parting_bytes(void *user, struct buf *in)
{
    (void)user;
    buf_clear(in);
}

static const struct conn_events shake_events = {on_ready, NULL, on_eof, on_fill, on_closed};
static const struct conn_events parting_events = {NULL, on_parting_bytes, on_eof, on_fill,
                                                  on_closed};

static void open_as(struct shake *s, const char *alpn)
{
    char text[NAME_BYTES_MAX + IP_TEXT_BYTES];
    struct arena a;
    arena_init(&a, text, sizeof text);
    struct tls_leaf *leaf = mint_leaf(s->i->s.mint, name_of(s->caller, &a), worker_unix_s(s->w));
    arena_done(&a);
    s->state = SHAKE_OPENING;
    if (!leaf) {
        give_up(s, WHY_TLS);
        return;
    }
    timer_set(s->w, &s->limit, s->i->s.handshake_ms);
    conn_secure_as(s->conn, s->i->s.server, &(struct tls_as){leaf, alpn});
}

static void refuse_protocols(struct shake *s)
{
    counter_add(&s->i->counters.foreign, 1);
    s->state = SHAKE_PARTING;
    timer_set(s->w, &s->limit, PART_MS);
    conn_attach(s->conn, &parting_events, s);
    conn_wake(s->conn);
}

/* ---- the question to the origin */

static struct origins *origins_of(const struct intercept *i)
{
    return (struct origins *)(uintptr_t)proxy_origins(i->s.proxy);
}

/* As gate->allow_addr() does it, for what is not a request yet. */
static enum why on_allow(void *user, const struct sockaddr *addr)
{
    const struct shake *s = user;
    struct identity_conn c = caller_conn(s->caller);
    struct judge j;
    enum passage passage;
    struct ip to;
    addr_ip(addr, &to);
    if (addr_port(addr) != c.port || (!c.unresolved && !ip_eq(&to, &c.to)))
        return WHY_DENIED;
    c.unresolved = false;
    c.to = to;
    struct pin *pin = pin_get(s->w);
    judge_init(&j, pin->snap, s->i->s.sidecar, worker_now(s->w));
    struct opinion o = judge_first(&j, &c, &passage);
    pin_put(s->w, pin);
    return o.fault == IDENTITY_OK ? WHY_OK : WHY_DENIED;
}

static void on_dialled(void *user, enum why why, int error, uint64_t took_us)
{
    (void)user;
    (void)why;
    (void)error;
    (void)took_us;
}

static void on_known(void *user, const struct origin_got *got, enum why why)
{
    struct shake *s = user;
    (void)why;
    s->asking = NULL;
    open_as(s, !got ? s->preferred : got->h2 ? "h2" : "http/1.1");
}

static void ask_origin(struct shake *s, const struct origin_want *want)
{
    static const struct origin_asker asker = {
        .allow = on_allow, .dialled = on_dialled, .done = on_known};
    const struct intercept *i = s->i;
    s->state = SHAKE_ASKING;
    s->asking = origin_prepare(origins_of(i), want, i->s.handshake_ms, &asker, s);
}

/* The client takes both: what does the origin? */
static void choose(struct shake *s, const struct host *host)
{
    char text[1024];
    struct arena a;
    const struct intercept *i = s->i;
    struct identity_conn c = caller_conn(s->caller);
    arena_init(&a, text, sizeof text);
    struct reach r = reach_to(i->s.sidecar, &c, host, true, true, &a);
    struct origin_want want = {.pool = r.pool, .to = r.to, .need = ORIGIN_ANY};
    switch (origin_speaks(origins_of(i), &want)) {
    case ORIGIN_SPEAKS_H2:
        open_as(s, "h2");
        break;
    case ORIGIN_SPEAKS_H1:
        open_as(s, "http/1.1");
        break;
    default:
        ask_origin(s, &want);
    }
    arena_done(&a);
}

/* ---- beginning */

/* False: the client offers protocols, and none that we speak. */
static bool read_protocols(struct shake *s, const struct hello *h)
{
    struct str rest = h->protocols, one;
    bool h1 = false, h2 = false;
    if (!h->protocols.p)
        return true;
    while (hello_next_protocol(&rest, &one)) {
        bool is_h2 = str_eq(one, STR("h2")), is_h1 = str_eq(one, STR("http/1.1"));
        if (!s->preferred && (is_h1 || is_h2))
            s->preferred = is_h2 ? "h2" : "http/1.1";
        h1 |= is_h1;
        h2 |= is_h2;
    }
    s->h2_only = h2 && !h1;
    return h1 || h2;
}

static struct shake *shake_new(struct intercept *i, struct conn *conn, struct caller *p)
{
    struct shake *s = mem_new(sizeof *s);
    s->i = i;
    s->w = i->s.w;
    s->conn = conn;
    s->caller = p;
    timer_init(&s->limit, on_limit);
    list_push(&i->shakes, &s->link);
    return s;
}

/* Is there a choice that only the origin can make? */
static bool has_question(const struct shake *s, const struct hello *h, struct host *ret_host)
{
    bool both = !s->h2_only && h->protocols.p && hello_offers_protocol(h, STR("h2"));
    struct identity_conn c = caller_conn(s->caller);
    if (!both)
        return false;
    if (!c.sni.p || !host_read(c.sni, ret_host) || ret_host->kind != HOST_NAME)
        *ret_host = (struct host){.kind = HOST_ADDRESS, .ip = c.to};
    bool nameless = s->i->s.sidecar->parent && ret_host->kind != HOST_NAME;
    return !nameless && !reach_is_parent(s->i->s.sidecar, &c, ret_host);
}

void intercept_begin(struct intercept *i, struct conn *conn, struct caller *p,
                     const struct hello *h, bool refused)
{
    struct shake *s = shake_new(i, conn, p);
    struct host host;
    counter_add(&i->counters.begun, 1);
    if (refused)
        counter_add(&i->counters.refused, 1);
    conn_attach(conn, &shake_events, s);
    if (i->draining)
        give_up(s, WHY_DRAIN);
    else if (!read_protocols(s, h))
        refuse_protocols(s);
    else if (!refused && has_question(s, h, &host))
        choose(s, &host);
    else
        open_as(s, s->preferred);
}

/* ---- life */

struct intercept *intercept_new(const struct intercept_setup *setup)
{
    struct intercept *i = mem_new(sizeof *i);
    i->s = *setup;
    i->s.server = tls_ctx_ref(setup->server);
    list_init(&i->shakes);
    return i;
}

void intercept_mint(struct intercept *i, struct mint *mint)
{
    i->s.mint = mint;
}

void intercept_drain(struct intercept *i)
{
    i->draining = true;
}

void intercept_free(struct intercept *i)
{
    if (!i)
        return;
    for (struct list *it; (it = list_first(&i->shakes));) {
        struct shake *s = container_of(it, struct shake, link);
        conn_close(s->conn, WHY_DRAIN);
        leave(s);
    }
    tls_ctx_unref(i->s.server);
    mem_free(i);
}

const struct intercept_counters *intercept_counters(const struct intercept *i)
{
    return &i->counters;
}
