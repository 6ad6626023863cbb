/* gate.c — the addresses of what was decided (gate_ask.c), how it fails, and what is told of it. */
#include "egress/events/events.h"
#include "egress/gate_impl.h"
#include "net/worker.h"

/* ---- texts */

struct str gate_host_text(const struct host *h, struct arena *a)
{
    char text[IP_TEXT_BYTES];
    if (h->kind != HOST_ADDRESS)
        return arena_str(a, host_name(h));
    struct str ip = {text, ip_text(&h->ip, text)};
    return arena_printf(a, ip_is_v4(&h->ip) ? "%.*s" : "[%.*s]", STR_ARG(ip));
}

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

static struct http_head *answer(const struct facts *f, const struct verdict *v,
                                const struct http_head *head, struct arena *a)
{
    (void)f;
    (void)v;
    return head_copy(head, 0, a);
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

static void failed(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret)
{
    enum { SHOWN = NAME_BYTES_MAX + 8 };
    if (fault) {
        gate_answer(ret, fault->status, why, arena_printf(a, "%s\n", fault->text));
        return;
    }
    struct failure failure = failure_of(why, stage);
    struct str host = f->head ? f->head->authority : STR("");
    host = str_head(host, host.n < SHOWN ? host.n : SHOWN);
    gate_answer(ret, failure.status, why,
                host.n ? arena_printf(a, "%s: %.*s\n", failure.text, STR_ARG(host))
                       : arena_printf(a, "%s\n", failure.text));
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
        return; /* nothing was asked for that could be judged */
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
    .answer = answer,
    .failed = failed,
    .describe = describe,
    .look = gate_look,
    .take = gate_take,
    .recheck = gate_recheck,
    .judged = judged,
    .dialled = dialled,
    .brand = {"OpenSandbox Egress", 18},
    .access_msg = "egress relayed",
};
