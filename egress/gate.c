/* gate.c — the addresses of what was decided (gate_ask.c), how it fails, and what is told of it. */
#include "egress/events/events.h"
#include "egress/gate_impl.h"
#include "net/worker.h"

void gate_answer(struct verdict *v, int status, enum why why, struct str line)
{
    v->act = ACT_LOCAL;
    v->status = status;
    v->why = why;
    v->content_type = STR("text/plain; charset=utf-8");
    v->no_store = true;
    v->body = line;
}

/* ---- the address */

static bool is_name_asked(const struct errand *e)
{
    return e->c.target && e->target.kind == HOST_NAME;
}

/* A parent's address is nobody's target. */
struct identity_conn gate_conn(const struct facts *f, const struct errand *e)
{
    struct identity_conn c = e->c;
    if (!f->origin || gate_sidecar(f)->parent || !is_name_asked(e))
        return c;
    c.unresolved = false;
    addr_ip(f->origin, &c.to);
    return c;
}

/* The very one that was judged; of a name each by itself.  What decided is kept for the event. */
static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    struct errand *e = errand_of(v);
    struct identity_conn c = e->c;
    struct judge j;
    addr_ip(addr, &c.to);
    if (addr_port(addr) != c.port)
        return WHY_DENIED;
    if (!is_name_asked(e))
        return ip_eq(&c.to, &e->c.to) ? WHY_OK : WHY_DENIED;
    c.unresolved = false;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    struct opinion o = judge_target(&j, &c);
    if (o.fault == IDENTITY_OK)
        return WHY_OK;
    e->opinion = o;
    return WHY_DENIED;
}

/* ---- failures */

struct failure {
    int status;
    const char *text;
};

static struct failure failure_of(enum why why, enum stage stage)
{
    switch (why) {
    case WHY_DENIED:
    case WHY_IDENTITY:
        return (struct failure){403,
                                "host denied by egress policy (the name, or all of its addresses)"};
    case WHY_VAULT:
        return stage == STAGE_ANSWER ? (struct failure){502, "response encoding cannot be scrubbed"}
                                     : (struct failure){503, "credential proxy unavailable"};
    case WHY_TLS:
        return (struct failure){502, "certificate of the origin was not verified for the host"};
    case WHY_DNS:
        return (struct failure){502, "no address was found"};
    case WHY_DEADLINE:
        return stage == STAGE_DIAL ? (struct failure){504, "no connection in time"}
                                   : (struct failure){504, "no answer in time"};
    case WHY_ORIGIN_GONE:
        return (struct failure){502, "the connection was lost"};
    case WHY_ORIGIN_PROTOCOL:
        return (struct failure){502, "the answer is malformed"};
    case WHY_OVERLOAD:
    case WHY_LIMIT:
        return (struct failure){503, "too much is going on"};
    case WHY_DRAIN:
        return (struct failure){503, "going down"};
    default:
        return (struct failure){502, "cannot connect"};
    }
}

/* What the connection has said, in the place of what is known without it. */
static struct str failure_text(const struct facts *f, const struct failure *failure, enum why why,
                               struct arena *a)
{
    static const struct str mutual = {"asks for a client certificate", 29};
    if (f->fault.n == 0 || why == WHY_VAULT || why == WHY_DENIED || why == WHY_IDENTITY)
        return str_of(failure->text);
    if (str_starts(f->fault, STR("upstream proxy")))
        return f->fault;
    if (str_eq(f->fault, mutual))
        return STR("certificate of the client: the origin asks for one; name the host under "
                   "ignore_hosts in config.yaml, and its TLS is passed on as it is");
    return arena_printf(a, "TLS with the origin: %.*s", STR_ARG(f->fault));
}

static void failed(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret)
{
    enum { SHOWN = NAME_BYTES_MAX + 8 };
    if (fault) {
        gate_answer(ret, fault->status, why, arena_printf(a, "%s\n", fault->text));
        return;
    }
    struct failure failure = failure_of(why, stage);
    struct str text = failure_text(f, &failure, why, a);
    struct str host = f->head ? f->head->authority : STR("");
    host = str_head(host, host.n < SHOWN ? host.n : SHOWN);
    gate_answer(ret, failure.status, why,
                host.n ? arena_printf(a, "%.*s: %.*s\n", STR_ARG(text), STR_ARG(host))
                       : arena_printf(a, "%.*s\n", STR_ARG(text)));
}

/* ---- what came of it */

void gate_tell(const struct sidecar *s, const struct errand *e, enum why why)
{
    struct event_connection c = {.host = gate_has_name(e) ? host_name(&e->host) : STR(""),
                                 .ip = e->c.unresolved || e->c.port == 0 ? NULL : &e->c.to,
                                 .port = e->c.port,
                                 .allow = why == WHY_OK,
                                 .rule = str_of(e->opinion.rule),
                                 .why = why};
    if (s->events)
        events_connection(s->events, &c);
}

static void judged(struct worker *w, const struct facts *f, const struct verdict *v,
                   uint64_t took_us)
{
    struct errand *e = errand_of(v);
    struct caller *p = caller_of(f->client);
    (void)w;
    (void)took_us;
    if (p)
        e->number = ++p->errands;
    if (e->c.port == 0)
        return;              /* nothing was asked for that could be judged */
    if (v->why != WHY_VAULT) /* told at its end */
        gate_tell(gate_sidecar(f), e, v->act == ACT_FORWARD ? WHY_OK : v->why);
    if (v->act == ACT_FORWARD && p && p->way == WAY_TRANSPARENT && e->c.held)
        p->held = e->host;
}

static void dialled(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                    uint64_t took_us)
{
    (void)error;
    (void)tunnel;
    (void)took_us;
    if (why == WHY_DENIED)
        gate_tell(sidecar_of(w), errand_of(v), why);
}

static void over(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                 int status)
{
    struct errand *e = errand_of(v);
    if (e)
        credential_over(w, f, e, why, status);
}

static void describe(const struct facts *f, const struct verdict *v, struct log_line *l)
{
    const struct errand *e = errand_of(v);
    char text[IP_TEXT_BYTES];
    (void)f;
    if (!e)
        return;
    log_str(l, "target.host", e->asked);
    if (!e->c.unresolved)
        log_str(l, "target.ip", (struct str){text, ip_text(&e->c.to, text)});
    log_int(l, "target.port", e->c.port);
    log_str(l, "rule", str_of(e->opinion.rule));
}

const struct gate egress_gate = {
    .decide = gate_decide,
    .allow_addr = allow_addr,
    .peer = gate_peer,
    .held = gate_held,
    .answer = gate_answered,
    .trailers = gate_trailers,
    .failed = failed,
    .describe = describe,
    .look = gate_look,
    .take = gate_take,
    .recheck = gate_recheck,
    .judged = judged,
    .dialled = dialled,
    .over = over,
    .brand = {"OpenSandbox Egress", 18},
    .access_msg = "egress relayed",
};
