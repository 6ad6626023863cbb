/* gate_tunnel.c — what becomes of a tunnel after its CONNECT was granted: what the client says
 * first has to agree with what it asked for, and HTTP in it, or in TLS that is to be read, is
 * judged request by request, as if it had been redirected here.  And everything that runs, asked
 * again under another policy. */
#include "egress/gate_impl.h"
#include "egress/intercept/intercept.h"
#include "net/worker.h"
#include "proxy/proxy.h"

/* ---- looking */

/* A beginning that is not finished has as long as one that was redirected (first_bytes_timeout). */
static enum glance wait(const struct facts *f, struct errand *e, bool late)
{
    uint64_t most = settings_ms(gate_sidecar(f)->set->first_bytes_timeout);
    if (!late)
        return GLANCE_MORE;
    return (uint64_t)++e->lates * GATE_SILENCE_MS < most ? GLANCE_MORE : GLANCE_REFUSE;
}

/* `name` as the client sent it, p NULL: none; longer than any name: that is none. */
static bool keep_sni(struct errand *e, struct str name)
{
    if (!name.p)
        return true;
    if (name.n > sizeof e->sni)
        return false;
    memcpy(e->sni, name.p, name.n);
    e->c.sni = (struct str){e->sni, name.n};
    return true;
}

static enum glance judge_tunnel(const struct facts *f, struct errand *e, enum identity_kind kind,
                                struct str name)
{
    struct judge j;
    enum passage passage;
    if (!keep_sni(e, name))
        return GLANCE_REFUSE;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    e->question = ERRAND_FIRST;
    e->c.kind = kind;
    struct identity_conn c = gate_conn(f, e);
    e->opinion = judge_first(&j, &c, &passage);
    bool reads = passage == PASSAGE_INTERCEPT && gate_sidecar(f)->intercept;
    e->refused = e->opinion.fault != IDENTITY_OK;
    if (passage != PASSAGE_PASS && !reads) {
        gate_tell(gate_sidecar(f), e, identity_why(e->opinion.fault));
        return GLANCE_REFUSE;
    }
    if (e->refused)
        return GLANCE_TAKE;
    struct host named;
    if (name.p && host_read(name, &named) && named.kind == HOST_NAME)
        e->host = named; /* it was let through for that one, whose lease may end (E5) */
    e->c.held = judge_holds(&j, &c, &e->host) ? &e->host : NULL;
    return reads ? GLANCE_TAKE : GLANCE_PASS;
}

/* The errand's own: over HTTP/2 a connection has several. */
static struct first *looked_at(struct caller *p, const struct errand *e)
{
    if (p->first && p->first_of == e->number)
        return p->first;
    if (p->first)
        first_done(p->first);
    else
        p->first = mem_new(sizeof *p->first);
    first_init(p->first);
    p->first_of = e->number;
    return p->first;
}

enum glance gate_look(const struct facts *f, const struct verdict *v, const struct buf *bytes,
                      bool late, struct arena *a)
{
    struct errand *e = errand_of(v);
    struct caller *p = caller_of(f->client);
    (void)a;
    if (!p)
        return GLANCE_REFUSE;
    struct first *first = looked_at(p, e);
    switch (first_look(first, bytes)) {
    case FIRST_STEP_MORE:
        return wait(f, e, late && bytes->len > 0);
    case FIRST_STEP_TLS:
        return judge_tunnel(f, e, IDENTITY_TLS, first->hello.hello.name);
    case FIRST_STEP_HTTP:
        return GLANCE_TAKE;
    case FIRST_STEP_OTHER:
        return judge_tunnel(f, e, IDENTITY_RAW, STR_NONE);
    default:
        return GLANCE_REFUSE;
    }
}

/* The conn is p's; what it asked for stays as it was judged. */
static void read_on(const struct facts *f, struct errand *e, struct caller *p, struct conn *conn)
{
    p->c.kind = IDENTITY_TLS;
    p->read = true;
    p->c.sni = STR_NONE;
    if (e->c.sni.p)
        caller_set_sni(p, e->c.sni); /* the same bytes were let in before */
    if (p->way == WAY_TRANSPARENT && e->c.held)
        p->held = e->host;
    intercept_begin(gate_sidecar(f)->intercept, conn, p, &p->first->hello.hello, e->refused);
    first_done(p->first);
    mem_free(p->first);
    p->first = NULL;
}

static void enter_tunnel(struct caller *p, const struct errand *e)
{
    p->way = WAY_TUNNEL;
    p->target = e->target;
    p->c = (struct identity_conn){.kind = IDENTITY_HTTP,
                                  .target = &p->target,
                                  .unresolved = e->target.kind == HOST_NAME,
                                  .to = e->target.ip,
                                  .port = e->c.port};
}

void gate_take(struct worker *w, const struct facts *f, const struct verdict *v, struct conn *conn)
{
    struct caller *p = caller_of(conn_info(conn));
    struct errand *e = errand_of(v);
    if (p->way == WAY_TRANSPARENT)
        p->c.kind = IDENTITY_HTTP;
    else
        enter_tunnel(p, e);
    if (e->c.kind == IDENTITY_TLS) {
        read_on(f, e, p, conn);
        return;
    }
    proxy_take(proxy_of(w), conn, PROXY_HTTP, STR_NONE);
}

/* ---- under another policy */

/* What is passed on unread, and would be read now, ends (E14). */
static enum why ask_first_again(const struct judge *j, const struct identity_conn *c)
{
    enum passage passage;
    struct opinion o = judge_first(j, c, &passage);
    if (o.fault == IDENTITY_OK && passage != PASSAGE_PASS)
        return WHY_REVOKED;
    return identity_why(o.fault);
}

static enum why ask_again(const struct judge *j, const struct errand *e,
                          const struct identity_conn *c)
{
    struct identity_request q = {.names = {e->asked}};
    struct host host;
    switch (e->question) {
    case ERRAND_TARGET:
        return identity_why(judge_target(j, c).fault);
    case ERRAND_FIRST:
        return ask_first_again(j, c);
    default:
        return identity_why(judge_request(j, c, &q, &host).fault);
    }
}

enum why gate_recheck(const struct facts *f, const struct verdict *v)
{
    const struct errand *e = errand_of(v);
    struct identity_conn c = gate_conn(f, e);
    struct judge j;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    return ask_again(&j, e, &c);
}
