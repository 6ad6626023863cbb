/* gate.c — decide(): route → closed port → sandbox → reading of a signed path →
 * access → forward, in the order of contract ingress 6.1.  Pure over head, view
 * and table; what has to be counted is counted afterwards, in judged() and
 * dialled(). */
#include "base/text.h"
#include "http/path.h"
#include "ingress/gate_impl.h"
#include "policies/scope.h"

enum { REPLAY_BYTES = 1 << 20 }; /* 12.4 */

const struct ingress_view *gate_view(const struct facts *f)
{
    return f->snap->view;
}

const struct gateway_worker *gate_worker(const struct facts *f)
{
    return f->tables;
}

struct gateway_note *gate_note(const struct verdict *v)
{
    return (struct gateway_note *)(uintptr_t)v->note;
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
    struct gateway_note *note = gate_note(v);
    v->act = ACT_REPLY;
    v->why = fault_why(fault->id);
    v->status = fault_status(fault->id);
    v->code = fault_code(fault->id);
    v->message = fault_message(fault, a);
    v->retry = fault_retry(fault->id);
    v->extra = fault->id == FAULT_ROUTE_STALE ? &forward_powered_by : NULL; /* 8.5 */
    if (note)
        note->fault = fault->id;
}

void gate_refuse_id(struct verdict *v, enum fault_id id, struct str value, struct arena *a)
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
        readiness_read(gate_worker(f)->all->readiness, (uint64_t)f->unix_s * 1000);
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
    int64_t limit = gate_view(f)->set->signature_failure_limit;
    if (limit <= 0 || !r->by || given || s->token.n == 0)
        return false;
    return failures_recent(gate_worker(f)->all->by_sandbox, s->id, f->now_ms / 1000) >= limit;
}

static bool admit(const struct facts *f, const struct sandbox *s, struct gateway_note *note,
                  struct arena *a, struct verdict *v)
{
    const struct route *r = &note->route;
    const struct str *given = head_get(f->head, STR("opensandbox-secure-access"));
    struct signed_route sr = {.id = r->id, .port = r->port};
    if (r->by) {
        sr.exp36 = r->by->exp36;
        sr.signature = r->by->signature;
    }
    note->access = access_check(s->token, given, r->by ? &sr : NULL, gate_view(f)->keys,
                                blocked(f, s, r, given), f->unix_s);
    if (access_allows(note->access))
        return true;
    gate_refuse_id(v, access_fault(note->access), STR_NONE, a);
    return false;
}

/* The two readings of a path that looks signed (3.6); false: refused. */
static bool read_path(const struct sandbox *s, struct route *r, struct arena *a, struct verdict *v)
{
    if (s->token.n == 0 || !r->by)
        return true;
    if (r->by->climbs) {
        gate_refuse_id(v, FAULT_PATH_ESCAPES, STR_NONE, a);
        return false;
    }
    r->forward = r->by->forward;
    return true;
}

/* What is put in front of the path is the sandbox's share of that host, as the prefix of a path
 * form is of ours (3.7); false: refused. */
static bool stays_below(const struct sandbox *s, const struct route *r, struct arena *a,
                        struct verdict *v)
{
    const struct endpoint *e = sandbox_endpoint(s, r->port);
    ptrdiff_t mark = str_chr(r->forward, '?');
    struct str path = mark < 0 ? r->forward : str_head(r->forward, (size_t)mark);
    if (!e->url || e->url->path.n == 0 || !path_climbs(path))
        return true;
    gate_refuse_id(v, FAULT_PATH_ESCAPES, STR_NONE, a);
    return false;
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

static struct dial_to dial_of(const struct facts *f, const struct endpoint *e,
                              const struct gateway_note *note, struct arena *a)
{
    struct dial_to to = {.host = arena_str(a, e->host), .port = e->to ? e->to : note->route.port};
    if (e->tls)
        to.tls = gate_view(f)->origin_tls;
    return to;
}

/* The record may go while the request goes on. */
static const struct endpoint_url *url_of(const struct endpoint *e, struct arena *a)
{
    if (!e->url)
        return NULL;
    struct endpoint_url *url = arena_zero(a, sizeof *url);
    struct field *add = arena_get(a, e->url->nadd * sizeof *add);
    for (unsigned i = 0; i < e->url->nadd; i++)
        add[i] =
            (struct field){arena_str(a, e->url->add[i].name), arena_str(a, e->url->add[i].value)};
    *url = (struct endpoint_url){.authority = arena_str(a, e->url->authority),
                                 .path = arena_str(a, e->url->path),
                                 .query = arena_str(a, e->url->query),
                                 .add = add,
                                 .nadd = e->url->nadd};
    return url;
}

static void forward(const struct facts *f, const struct sandbox *s, struct gateway_note *note,
                    struct arena *a, struct verdict *v)
{
    const struct endpoint *e = sandbox_endpoint(s, note->route.port);
    v->act = ACT_FORWARD;
    v->h2 = speaks_h2(gate_view(f)->set, e->wire, f->head);
    v->to = dial_of(f, e, note, a);
    v->pool = arena_str(a, s->pool);
    v->keep = gate_worker(f)->all->wake && note->route.form == FORM_SCOPE ? REPLAY_BYTES : 0;
    note->target = target_text(v->to.host, v->to.port, a);
    struct forward_facts ff = {.local_port = f->client->listener,
                               .tls = f->client->tls,
                               .target = note->target,
                               .url = url_of(e, a),
                               .to_tls = e->tls,
                               .path = note->route.forward,
                               .prefix = note->route.prefix,
                               .request_id = f->request_id};
    addr_ip(f->client->peer, &ff.peer);
    v->head = forward_request(&gate_view(f)->forward, &ff, f->head, a);
}

static struct str client_text(const struct facts *f, struct arena *a)
{
    struct ip peer;
    addr_ip(f->client->peer, &peer);
    struct ip ip = forward_client_ip(&gate_view(f)->forward.trusted, &peer, f->head);
    char text[IP_TEXT_BYTES];
    return arena_str(a, (struct str){text, ip_text(&ip, text)});
}

static enum fault_id scope_fault(enum scope_verdict v)
{
    static const enum fault_id ids[] = {
        [SCOPE_NO_VERIFIER] = FAULT_SCOPE_NO_VERIFIER,
        [SCOPE_MALFORMED] = FAULT_SCOPE_MALFORMED,
        [SCOPE_BAD_NAMESPACE] = FAULT_SCOPE_NAMESPACE,
        [SCOPE_BAD_ID] = FAULT_SCOPE_ID,
        [SCOPE_BAD_PORT] = FAULT_SCOPE_PORT,
        [SCOPE_BAD_KEY_ID] = FAULT_SCOPE_KEY_ID,
        [SCOPE_BAD_MAC_FORM] = FAULT_SCOPE_MAC_FORM,
        [SCOPE_KEY_UNKNOWN] = FAULT_SCOPE_KEY_UNKNOWN,
        [SCOPE_MAC_MISMATCH] = FAULT_SCOPE_MAC,
    };
    return ids[v];
}

static void name_scope(struct gateway_note *note, const struct scope *s, struct arena *a)
{
    note->key = sandbox_key(s->ns, s->id, s->port, a);
    note->ns = str_head(note->key, s->ns.n);
    note->route.id = str_head(str_skip(note->key, s->ns.n + 1), s->id.n);
    note->route.port = s->port;
}

/* The token stands for namespace, id and port; false: refused. */
static bool take_scope(const struct facts *f, struct gateway_note *note, struct arena *a,
                       struct verdict *v)
{
    struct scope scope;
    struct arena names; /* until they lie in the key */
    char first[512];
    const struct keyring *keys = gate_worker(f)->all->fast ? gate_view(f)->keys : NULL;
    arena_init(&names, first, sizeof first);
    enum scope_verdict verdict = scope_verify(note->route.token, keys, &names, &scope);
    if (verdict == SCOPE_OK)
        name_scope(note, &scope, a);
    else
        gate_refuse_id(v, scope_fault(verdict), STR_NONE, a);
    arena_done(&names);
    return verdict == SCOPE_OK;
}

/* Parses the route and closes ports; false: refused. */
static bool route(const struct facts *f, struct gateway_note *note, struct arena *a,
                  struct verdict *v)
{
    enum { EGRESS_PORT = 18080 };
    struct fault fault;
    const struct ingress_view *view = gate_view(f);
    if (!route_parse(&view->route, f->head, a, &note->route, &fault)) {
        refuse(v, &fault, a);
        return false;
    }
    bool is_scope = note->route.form == FORM_SCOPE;
    if (is_scope && !take_scope(f, note, a, v))
        return false;
    note->routed = true;
    if (port_set_has(&view->deny_ports, note->route.port))
        refuse(v, &(struct fault){.id = FAULT_PORT_DENIED, .port = note->route.port}, a);
    else if (!is_scope && !gate_worker(f)->all->resolver)
        gate_refuse_id(v, FAULT_SCOPE_REQUIRED, STR_NONE, a);
    else if (is_scope && note->route.port == EGRESS_PORT)
        gate_refuse_id(v, FAULT_TARGET_UNSUPPORTED, STR_NONE, a);
    else
        return true;
    return false;
}

/* What was found out before it waited stays. */
static struct gateway_note *begin_note(const struct facts *f, struct gateway_note *was,
                                       struct arena *a, struct verdict *v)
{
    struct gateway_note *note = was ? was : arena_zero(a, sizeof *note);
    note->fault = FAULTS;
    v->note = note;
    if (was)
        return note;
    note->client = client_text(f, a);
    return route(f, note, a, v) ? note : NULL;
}

static void decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    struct str own = route_local(f->head);
    struct gateway_note *note = f->turn > 0 ? gate_note(v) : NULL;
    memset(v, 0, sizeof *v);
    if (own.n > 0) {
        local(f, own, v);
        return;
    }
    note = begin_note(f, note, a, v);
    const struct sandbox *s = note ? lookup(f, note, a, v) : NULL;
    if (!s)
        return;
    note->counted = str_eq(s->id, note->route.id) ? note->route.id : arena_str(a, s->id);
    if (!read_path(s, &note->route, a, v) || !admit(f, s, note, a, v) ||
        !stays_below(s, &note->route, a, v))
        return;
    forward(f, s, note, a, v);
}

static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    struct ip ip;
    (void)v;
    addr_ip(addr, &ip);
    return target_allowed(&gate_view(f)->target, &ip, addr_port(addr)) ? WHY_OK : WHY_DENIED;
}

/* Interim heads pass as they are. */
static enum why answer(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret)
{
    (void)end;
    if (lookup_is_stale(v, head))
        return WHY_STALE;
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

static enum fault_id of_why(const struct gateway_note *note, enum why why, enum stage stage)
{
    switch (why) {
    case WHY_DENIED:
        return FAULT_TARGET_FORBIDDEN;
    case WHY_STALE:
        return FAULT_ROUTE_STALE;
    case WHY_DEADLINE:
        if (stage == STAGE_DECIDE)
            return note && note->waiting == WAITING_WAKE ? FAULT_WAKE_EXHAUSTED
                                                         : FAULT_RESOLVER_FAILED;
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
        gate_refuse_id(ret, of_http_fault(fault), str_of(fault->text), a);
    else
        gate_refuse_id(ret, of_why(gate_note(ret), why, stage), STR_NONE, a);
    ret->why = why;
}

const struct gate ingress_gate = {
    .begin = begin,
    .decide = decide,
    .allow_addr = allow_addr,
    .answer = answer,
    .failed = failed,
    .wait = lookup_wait,
    .waited = lookup_waited,
    .again = lookup_again,
    .admit = told_admit,
    .judged = told_judged,
    .moved = told_moved,
    .dialled = told_dialled,
    .over = told_over,
    .describe = told_describe,
    .brand = {"OpenSandbox Ingress", 19},
    .access_msg = "ingress requested",
};
