/* gate_ask.c — decide(): who asks → what is asked for → may it be → where to.  A refusal is decided
 * before anything is dialled or looked up, and says what was refused and by which rule: whoever
 * reads it should not take policy for a fault (E20). */
#include "egress/forward.h"
#include "egress/gate_impl.h"
#include "egress/relay/explicit_target.h"
#include "net/dial.h"

/* ---- refusals */

/* The client's own fault; text without a line's end. */
static void refuse_form(struct verdict *v, const char *text, struct arena *a)
{
    gate_answer(v, 400, WHY_CLIENT_PROTOCOL, arena_printf(a, "%s\n", text));
}

static void refuse(struct verdict *v, const struct errand *e, struct arena *a)
{
    enum identity fault = e->opinion.fault;
    struct str text = identity_text(fault), line;
    bool names_rule = e->opinion.rule[0];
    if (fault == IDENTITY_FORM)
        line = arena_printf(a, "%.*s\n", STR_ARG(text));
    else if (names_rule)
        line = arena_printf(a, "%.*s: %.*s (rule %s)\n", STR_ARG(text), STR_ARG(e->asked),
                            e->opinion.rule);
    else
        line = arena_printf(a, "%.*s: %.*s\n", STR_ARG(text), STR_ARG(e->asked));
    gate_answer(v, identity_status(fault), identity_why(fault), line);
}

/* ---- where to */

static struct host address_of(const struct identity_conn *c)
{
    return (struct host){.kind = HOST_ADDRESS, .ip = c->to};
}

static void forward(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    const struct sidecar *s = gate_sidecar(f);
    if (s->parent && !gate_has_name(e)) {
        gate_answer(v, 403, WHY_DENIED,
                    arena_printf(a,
                                 "host denied by egress policy: %.*s: the upstream proxy is "
                                 "asked for names only\n",
                                 STR_ARG(e->asked)));
        return;
    }
    if (reach_is_parent(s, &e->c, &e->host)) {
        gate_answer(v, 403, WHY_DENIED,
                    arena_printf(a,
                                 "host denied by egress policy: %.*s: it is the upstream proxy\n",
                                 STR_ARG(e->asked)));
        return;
    }
    bool h2 = e->read && f->client && str_eq(f->client->alpn, STR("h2"));
    struct reach r = reach_to(s, &e->c, &e->host, e->read, h2, a);
    v->act = ACT_FORWARD;
    v->to = r.to;
    v->pool = r.pool;
    v->any = h2;
    v->head = f->head;
}

/* ---- requests */

/* False: refused.  Every name that the request carries is asked about, whatever the tunnel was
 * opened for. */
static bool admit_request(const struct facts *f, struct errand *e, struct arena *a,
                          struct verdict *v)
{
    const struct http_head *h = f->head;
    struct identity_request q = {.names = {h->authority, h->host}, .may_lack = true};
    struct judge j;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    if (e->c.target)
        q.names[2] = e->asked;
    e->question = ERRAND_REQUEST;
    e->opinion = judge_request(&j, &e->c, &q, &e->host);
    if (e->opinion.fault != IDENTITY_OK) {
        uint16_t port;
        if (h->authority.p && authority_read(h->authority, &e->host, &port))
            e->asked = host_text(&e->host, a);
        credential_look(f, e);
        credential_denied(e, e->opinion.fault);
        refuse(v, e, a);
        return false;
    }
    e->asked = host_text(&e->host, a);
    credential_look(f, e);
    return true;
}

static void ask_request(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    if (str_eq(f->head->method, STR("CONNECT"))) {
        refuse_form(v, "CONNECT is for a proxy, and this is none", a);
        return;
    }
    if (!admit_request(f, e, a, v))
        return;
    forward(f, e, a, v);
    if (v->act != ACT_FORWARD)
        return;
    struct str authority = arena_printf(a, "%.*s:%u", STR_ARG(e->asked), e->c.port);
    struct http_head *h = forward_head(f->head, authority, e->read, a);
    if (e->credential.bound && !str_ieq(h->protocol, STR("websocket")))
        h->protocol = STR(""); /* in another one the answer could come past the scrubber */
    v->head = h;
    credential_apply(f, e, a, v);
}

/* ---- the explicit proxy */

/* False: refused as malformed. */
static bool read_target(const struct facts *f, struct errand *e, uint16_t default_port,
                        struct arena *a, struct verdict *v)
{
    struct explicit_target t;
    const char *fault;
    if (explicit_target_read(f->head->authority, default_port, &t, &fault) != WHY_OK) {
        refuse_form(v, fault, a);
        return false;
    }
    e->target = e->host = t.host;
    e->asked = host_text(&t.host, a);
    e->c = (struct identity_conn){.kind = IDENTITY_HTTP,
                                  .target = &e->target,
                                  .unresolved = t.host.kind == HOST_NAME,
                                  .to = t.host.ip,
                                  .port = t.port};
    return true;
}

/* Old clients send none with CONNECT, and some leave the port out. */
static bool host_agrees(const struct http_head *h, const struct host *target)
{
    struct host host;
    uint16_t port;
    return h->host.n == 0 || (authority_read(h->host, &host, &port) && host_same(&host, target));
}

static void ask_connect(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    struct judge j;
    if (!read_target(f, e, 0, a, v))
        return;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    e->c.kind = IDENTITY_RAW;
    e->question = ERRAND_TARGET;
    e->opinion = host_agrees(f->head, &e->target) ? judge_target(&j, &e->c)
                                                  : (struct opinion){.fault = IDENTITY_NAMES};
    if (e->opinion.fault != IDENTITY_OK) {
        refuse(v, e, a);
        return;
    }
    forward(f, e, a, v);
    v->raw = v->look = v->act == ACT_FORWARD;
    v->late = v->raw && judge_would_read(&j, &e->c, &e->host);
}

static void ask_absolute(const struct facts *f, struct errand *e, struct arena *a,
                         struct verdict *v)
{
    if (!str_eq(f->head->absolute, STR("http")))
        refuse_form(v, "this proxy is asked for https by CONNECT", a);
    else if (read_target(f, e, 80, a, v))
        ask_request(f, e, a, v);
}

static void ask_explicit(const struct facts *f, bool served, struct errand *e, struct arena *a,
                         struct verdict *v)
{
    if (!served)
        gate_answer(v, 403, WHY_DENIED, STR("denied by policy: this proxy does not serve you\n"));
    else if (str_eq(f->head->method, STR("CONNECT")))
        ask_connect(f, e, a, v);
    else if (f->head->absolute.n > 0)
        ask_absolute(f, e, a, v);
    else
        refuse_form(v, "this is a proxy: ask for a whole URL, or by CONNECT", a);
}

/* ---- redirected connections */

/* What relay/transparent.c has looked at already; here it is one of the proxy's exchanges, under
 * its snapshot. */
static void ask_relay(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    struct judge j;
    enum passage passage;
    struct host to = address_of(&e->c);
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    e->question = ERRAND_FIRST;
    e->opinion = judge_first(&j, &e->c, &passage);
    if (!e->c.sni.p || !host_read(e->c.sni, &e->host) || !gate_has_name(e))
        e->host = to;
    e->asked = host_text(&e->host, a);
    if (passage != PASSAGE_PASS)
        refuse(v, e, a);
    else
        forward(f, e, a, v);
    v->raw = v->act == ACT_FORWARD;
    v->look = v->raw && caller_of(f->client)->silent;
}

static void ask_redirected(const struct facts *f, const struct caller *p, struct errand *e,
                           struct arena *a, struct verdict *v)
{
    struct host held = p->held;
    struct judge j;
    e->c = p->c;
    e->c.sni = p->c.sni.p ? arena_str(a, p->c.sni) : STR_NONE;
    e->read = p->read;
    e->c.held = held.kind == HOST_NONE ? NULL : &held;
    if (p->c.kind == IDENTITY_HTTP || p->read)
        ask_request(f, e, a, v);
    else
        ask_relay(f, e, a, v);
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    e->c.held = judge_holds(&j, &e->c, &e->host) ? &e->host : NULL;
}

static void ask_tunnel(const struct facts *f, const struct caller *p, struct errand *e,
                       struct arena *a, struct verdict *v)
{
    e->target = p->target;
    e->asked = host_text(&e->target, a);
    e->c = p->c;
    e->c.target = &e->target;
    e->c.sni = p->c.sni.p ? arena_str(a, p->c.sni) : STR_NONE;
    e->read = p->read;
    ask_request(f, e, a, v);
}

void gate_decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    const struct caller *p = caller_of(f->client);
    struct errand *e = arena_zero(a, sizeof *e);
    memset(v, 0, sizeof *v);
    secret_bag_init(&e->credential.bag);
    e->began_ms = f->now_ms;
    v->note = e;
    if (!p || p->way == WAY_EXPLICIT)
        ask_explicit(f, p && p->served, e, a, v);
    else if (p->way == WAY_TUNNEL)
        ask_tunnel(f, p, e, a, v);
    else
        ask_redirected(f, p, e, a, v);
}
