/* gate.c — decide(): route → closed port → sandbox → reading of a signed path → access → forward,
 * in the order of contract ingress 6.1.  Pure over head, view and table; what has to be counted is
 * counted afterwards, in judged() and dialled(). */
#include <errno.h>

#include "base/text.h"
#include "ingress/gateway.h"
#include "ingress/view.h"
#include "net/worker.h"
#include "policies/access.h"

struct gateway_note {
    struct route route;
    bool routed;         /* the route parsed */
    enum fault_id fault; /* FAULTS: none */
    enum access access;
    struct str client; /* address, for logs and counts */
    struct str target; /* "address:port" */
    struct str reason; /* for the log only */
};

static const struct ingress_view *view_of(const struct facts *f)
{
    return f->snap->view;
}

static const struct gateway_worker *worker_of(const struct facts *f)
{
    return f->tables;
}

/* ---- how a connection begins (2) */

static struct begin begin(const struct snapshot *snap, const struct conn_info *client)
{
    const struct ingress_view *v = snap->view;
    const struct ingress_settings *set = v->set;
    struct begin ret = {.tls = client->listener == set->tls_port ? v->tls : NULL};
    struct ip peer;
    addr_ip(client->peer, &peer);
    ret.proxy_header = set->proxy_protocol && cidr_set_has(&v->forward.trusted, &peer);
    return ret;
}

/* ---- refusals */

static void refuse(struct verdict *v, const struct fault *fault, struct arena *a)
{
    struct gateway_note *note = (struct gateway_note *)(uintptr_t)v->note;
    v->act = ACT_REPLY;
    v->why = fault_why(fault->id);
    v->status = fault_status(fault->id);
    v->code = fault_code(fault->id);
    v->message = fault_message(fault, a);
    v->retry = fault_retry(fault->id);
    if (note)
        note->fault = fault->id;
}

static void refuse_id(struct verdict *v, enum fault_id id, struct str value, struct arena *a)
{
    refuse(v, &(struct fault){.id = id, .value = value}, a);
}

/* ---- pages of our own (3.8, 14.1) */

static void status_page(const struct facts *f, struct verdict *v)
{
    v->act = ACT_LOCAL;
    v->status = f->draining ? 503 : 200;
    v->content_type = STR("text/plain; charset=utf-8");
    v->body = f->draining ? STR("DRAINING") : STR("OK");
}

static void readiness_page(const struct facts *f, struct verdict *v)
{
    struct readiness_view r =
        readiness_read(worker_of(f)->all->readiness, (uint64_t)f->unix_s * 1000);
    v->act = ACT_LOCAL;
    v->status = 200;
    v->content_type = STR("text/plain; charset=utf-8");
    v->body = readiness_body(&r);
    v->no_store = true;
}

static void local(const struct facts *f, struct str path, struct verdict *v)
{
    if (str_eq(path, STR("/status.ok")))
        status_page(f, v);
    else if (str_eq(path, STR("*")))
        *v = (struct verdict){.act = ACT_LOCAL,
                              .status = 200,
                              .content_type = STR("text/plain; charset=utf-8"),
                              .body = STR("")};
    else
        readiness_page(f, v);
}

/* ---- sandbox */

/* NULL: refused. */
static const struct sandbox *find(const struct facts *f, const struct route *r,
                                  struct gateway_note *note, struct arena *a, struct verdict *v)
{
    const struct table *table = worker_of(f)->table;
    const struct sandbox *s = table_get(table, r->id);
    if (!s && !table_ready(table)) {
        refuse_id(v, FAULT_SANDBOX_NOT_READY, r->id, a);
        return NULL;
    }
    if (!s || s->state == SANDBOX_TERMINATED || f->unix_s >= s->until_unix_s) {
        refuse_id(v, FAULT_SANDBOX_NOT_FOUND, r->id, a);
        return NULL;
    }
    if (s->state == SANDBOX_AMBIGUOUS) {
        refuse_id(v, FAULT_SANDBOX_AMBIGUOUS, r->id, a);
        return NULL;
    }
    if (s->state == SANDBOX_NOT_READY) {
        note->reason = arena_str(a, s->reason);
        refuse_id(v, FAULT_SANDBOX_NOT_READY, r->id, a);
        return NULL;
    }
    return s;
}

/* ---- access */

static enum fault_id access_fault(enum access access)
{
    static const enum fault_id ids[] = {
        [ACCESS_TOKEN_MISMATCH] = FAULT_ACCESS_TOKEN_MISMATCH,
        [ACCESS_REQUIRED] = FAULT_SIGNATURE_REQUIRED,
        [ACCESS_NO_VERIFIER] = FAULT_VERIFIER_MISSING,
        [ACCESS_EXPIRED] = FAULT_SIGNATURE_EXPIRED,
        [ACCESS_KEY_UNKNOWN] = FAULT_SIGNATURE_KEY_UNKNOWN,
        [ACCESS_MISMATCH] = FAULT_SIGNATURE_MISMATCH,
        [ACCESS_TOO_MANY] = FAULT_SIGNATURE_FAILURES,
    };
    return ids[access];
}

/* Only a request that relies on a signature asks for the count. */
static bool blocked(const struct facts *f, const struct sandbox *s, const struct route *r,
                    const struct str *given)
{
    int64_t limit = view_of(f)->set->signature_failure_limit;
    if (limit <= 0 || !r->is_signed || given || s->token.n == 0)
        return false;
    return failures_recent(worker_of(f)->all->by_sandbox, s->id, f->now_ms / 1000) >= limit;
}

static bool admit(const struct facts *f, const struct sandbox *s, struct gateway_note *note,
                  struct arena *a, struct verdict *v)
{
    const struct route *r = &note->route;
    const struct str *given = head_get(f->head, STR("opensandbox-secure-access"));
    struct signed_route sr = {r->id, r->exp36, r->signature, r->port};
    note->access = access_check(s->token, given, r->is_signed ? &sr : NULL, view_of(f)->keys,
                                blocked(f, s, r, given), f->unix_s);
    if (access_allows(note->access))
        return true;
    refuse_id(v, access_fault(note->access), STR_NONE, a);
    return false;
}

/* The two readings of a path that looks signed (3.6); false: refused. */
static bool read_path(const struct sandbox *s, struct route *r, struct arena *a, struct verdict *v)
{
    if (s->token.n == 0 || !r->is_signed)
        return true;
    if (r->signed_climbs) {
        refuse_id(v, FAULT_PATH_ESCAPES, STR_NONE, a);
        return false;
    }
    r->forward = r->forward_signed;
    return true;
}

/* ---- forward */

static struct str target_text(struct str host, uint16_t port, struct arena *a)
{
    char *p = arena_get(a, host.n + 10);
    bool v6 = str_chr(host, ':') >= 0;
    size_t n = 0;
    if (v6)
        p[n++] = '[';
    memcpy(p + n, host.p, host.n);
    n += host.n;
    if (v6)
        p[n++] = ']';
    p[n++] = ':';
    n += text_put_u64(p + n, port);
    return (struct str){p, n};
}

/* "application/grpc", "application/grpc+proto", with or without parameters. */
static bool is_grpc(const struct http_head *h)
{
    static const struct str grpc = {"application/grpc", 16};
    const struct str *value = head_get(h, STR("content-type"));
    if (!value || !str_istarts(*value, grpc))
        return false;
    struct str rest = str_skip(*value, grpc.n);
    ptrdiff_t parameters = str_chr(rest, ';');
    rest = str_trim(parameters < 0 ? rest : str_head(rest, (size_t)parameters));
    return rest.n == 0 || (rest.p[0] == '+' && rest.n > 1);
}

/* What the route says, else the setting (8.1). */
static bool speaks_h2(const struct ingress_settings *set, enum wire wire, const struct http_head *h)
{
    static const enum wire wires[] = {
        [BACKEND_AUTO] = WIRE_AUTO, [BACKEND_H1] = WIRE_H1, [BACKEND_H2C] = WIRE_H2C};
    if (wire == WIRE_DEFAULT)
        wire = wires[set->backend_protocol];
    return wire == WIRE_H2C || (wire == WIRE_AUTO && is_grpc(h));
}

static void forward(const struct facts *f, const struct sandbox *s, struct gateway_note *note,
                    struct arena *a, struct verdict *v)
{
    const struct endpoint *e = sandbox_endpoint(s, note->route.port);
    v->act = ACT_FORWARD;
    v->h2 = speaks_h2(view_of(f)->set, e->wire, f->head);
    v->to =
        (struct dial_to){.host = arena_str(a, e->host), .port = e->to ? e->to : note->route.port};
    v->pool = arena_str(a, s->pool);
    note->target = target_text(v->to.host, v->to.port, a);
    struct forward_facts ff = {.local_port = f->client->listener,
                               .tls = f->client->tls,
                               .target = note->target,
                               .path = note->route.forward,
                               .prefix = note->route.prefix,
                               .request_id = f->request_id};
    addr_ip(f->client->peer, &ff.peer);
    v->head = forward_request(&view_of(f)->forward, &ff, f->head, a);
}

static struct str client_text(const struct facts *f, struct arena *a)
{
    struct ip peer;
    addr_ip(f->client->peer, &peer);
    struct ip ip = forward_client_ip(&view_of(f)->forward.trusted, &peer, f->head);
    char *text = arena_get(a, IP_TEXT_BYTES);
    return (struct str){text, ip_text(&ip, text)};
}

/* Parses the route and closes ports; false: refused. */
static bool route(const struct facts *f, struct gateway_note *note, struct arena *a,
                  struct verdict *v)
{
    struct fault fault;
    const struct ingress_view *view = view_of(f);
    if (!route_parse(&view->route, f->head, a, &note->route, &fault)) {
        refuse(v, &fault, a);
        return false;
    }
    note->routed = true;
    if (note->route.form == FORM_SCOPE) { /* reserved for Fast Sandbox: no verifier here (5) */
        note->routed = false;
        refuse_id(v, FAULT_SCOPE_NO_VERIFIER, STR_NONE, a);
        return false;
    }
    if (port_set_has(&view->deny_ports, note->route.port)) {
        refuse(v, &(struct fault){.id = FAULT_PORT_DENIED, .port = note->route.port}, a);
        return false;
    }
    return true;
}

static void decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    struct str own = route_local(f->head);
    memset(v, 0, sizeof *v);
    if (own.n > 0) {
        local(f, own, v);
        return;
    }
    struct gateway_note *note = arena_zero(a, sizeof *note);
    note->fault = FAULTS;
    note->client = client_text(f, a);
    v->note = note;
    if (!route(f, note, a, v))
        return;
    const struct sandbox *s = find(f, &note->route, note, a, v);
    if (!s || !read_path(s, &note->route, a, v) || !admit(f, s, note, a, v))
        return;
    forward(f, s, note, a, v);
}

static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    struct ip ip;
    (void)v;
    addr_ip(addr, &ip);
    return target_allowed(&view_of(f)->target, &ip, addr_port(addr)) ? WHY_OK : WHY_DENIED;
}

/* Interim heads pass as they are. */
static enum why answer(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret)
{
    (void)v;
    (void)end;
    bool interim = head->status < 200 && head->protocol.n == 0;
    ret->head = interim ? head : forward_response(head, f->request_id, f->http_date, a);
    return WHY_OK;
}

/* ---- failures */

/* Two faults are 501: h2head.c and rules.c say which in their texts. */
static enum fault_id of_501(const struct http_fault *fault)
{
    bool protocol = str_eq(str_of(fault->text), STR("unknown protocol"));
    return protocol ? FAULT_PROTOCOL_UNSUPPORTED : FAULT_CODING_UNSUPPORTED;
}

static enum fault_id of_http_fault(const struct http_fault *fault)
{
    switch (fault->status) {
    case 408:
        return FAULT_HEAD_TIMEOUT;
    case 431:
        return FAULT_HEAD_TOO_LARGE;
    case 501:
        return of_501(fault);
    case 503:
        return FAULT_OVERLOADED;
    case 505:
        return FAULT_VERSION_UNSUPPORTED;
    default:
        return FAULT_BAD_REQUEST;
    }
}

static enum fault_id of_why(enum why why, enum stage stage)
{
    switch (why) {
    case WHY_DENIED:
        return FAULT_TARGET_FORBIDDEN;
    case WHY_DEADLINE:
        return stage == STAGE_DIAL ? FAULT_UPSTREAM_TIMEOUT : FAULT_UPSTREAM_SILENT;
    case WHY_ORIGIN_GONE:
    case WHY_REVOKED: /* the sandbox went while it was asked */
        return FAULT_UPSTREAM_FAILED;
    case WHY_ORIGIN_PROTOCOL:
        return FAULT_UPSTREAM_INVALID;
    case WHY_OVERLOAD:
        return FAULT_OVERLOADED;
    case WHY_DRAIN:
        return FAULT_DRAINING;
    default:
        return FAULT_UPSTREAM_UNREACHABLE;
    }
}

static void failed(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret)
{
    (void)f;
    if (fault)
        refuse_id(ret, of_http_fault(fault), str_of(fault->text), a);
    else
        refuse_id(ret, of_why(why, stage), STR_NONE, a);
    ret->why = why;
}

/* ---- what came of it */

static void describe(const struct facts *f, const struct verdict *v, struct log_line *l)
{
    static const char *const sources[] = {"header", "host", "path"};
    const struct gateway_note *note = v->note;
    char text[1024];
    struct arena a; /* of this line */
    arena_init(&a, text, sizeof text);
    if (note) {
        log_str(l, "target", note->target);
        log_str(l, "client", note->client);
    }
    log_str(l, "uri", route_masked_uri(f->head, &a));
    log_str(l, "method", f->head->method);
    if (note && note->routed) {
        log_str(l, "sandbox_id", note->route.id);
        log_int(l, "port", note->route.port);
        log_str(l, "route", str_of(sources[note->route.source]));
    }
    if (note && note->reason.n > 0)
        log_str(l, "reason", note->reason);
    arena_done(&a);
}

static enum routing routing_of(const struct verdict *v)
{
    if (v->act == ACT_FORWARD)
        return ROUTING_SUCCESS;
    if (v->status == 404)
        return ROUTING_NOT_FOUND;
    return v->why == WHY_NOT_READY ? ROUTING_NOT_READY : ROUTING_ERROR;
}

const char *routing_text(enum routing r)
{
    static const char *const texts[] = {"success", "not_found", "not_ready", "error"};
    return texts[r];
}

static void count_failure(struct gateway_worker *gw, const struct facts *f,
                          const struct gateway_note *note)
{
    uint64_t now_s = f->now_ms / 1000;
    counter_add(&gw->metrics.signature_failures, 1);
    failures_add(gw->all->by_sandbox, note->route.id, now_s);
    failures_add(gw->all->by_client, note->client, now_s);
    if (failures_recent(gw->all->by_client, note->client, now_s) % 10 ==
        1) { /* a guesser is worth a line, not one a guess */
        char *id = mem_strdup(note->route.id), *client = mem_strdup(note->client);
        log_note_rarely(LOG_WARN, "ingress: failed signatures", "sandbox_id", id, "client", client,
                        NULL);
        mem_free(id);
        mem_free(client);
    }
}

static void judged(struct worker *w, const struct facts *f, const struct verdict *v,
                   uint64_t took_us)
{
    struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    const struct gateway_note *note = v->note;
    if (v->act == ACT_LOCAL)
        return;
    enum routing r = routing_of(v);
    counter_add(&gw->metrics.routing[r], 1);
    histogram_add(&gw->metrics.routing_took[r], took_us);
    if (note && note->routed && access_counts(note->access))
        count_failure(gw, f, note);
}

static void log_dial(const struct gateway_note *note, enum why why, int error)
{
    char *target = mem_strdup(note->target), *id = mem_strdup(note->route.id);
    log_note_rarely(LOG_WARN, "ingress: reverse proxy upstream error", "target", target,
                    "sandbox_id", id, "why", why_text(why), "error",
                    error ? strerrordesc_np(error) : "", NULL);
    mem_free(target);
    mem_free(id);
}

static void dialled(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                    uint64_t took_us)
{
    struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    const struct gateway_note *note = v->note;
    if (why != WHY_OK && why != WHY_CLIENT_GONE)
        log_dial(note, why, error);
    if (why == WHY_DENIED)
        return; /* nothing was dialled */
    enum dial_class c = dial_class_of(why, error, false);
    counter_add(&gw->metrics.connect[c][tunnel], 1);
    histogram_add(&gw->metrics.connect_took[c][tunnel], took_us);
    readiness_record(gw->all->readiness, note->target, c, worker_unix_ms(w));
}

const struct gate ingress_gate = {
    .begin = begin,
    .decide = decide,
    .allow_addr = allow_addr,
    .answer = answer,
    .failed = failed,
    .describe = describe,
    .judged = judged,
    .dialled = dialled,
    .brand = {"OpenSandbox Ingress", 19},
    .access_msg = "ingress requested",
};
