/* run_identity.c — identity: what becomes of a connection, and of a request on it.  The gate itself
 * decides, over a real view with a real vault, real leases and a real pass list; nothing is
 * dialled, so the certificate of the origin is what the row says. */
#include "egress/dns/leases.h"
#include "egress/gate.h"
#include "egress/gate_impl.h"
#include "egress/intercept/passlist.h"
#include "egress/relay/first.h"
#include "egress/state/view.h"
#include "egress/vault/lost.h"
#include "harness/hello_bytes.h"
#include "http/h1head.h"
#include "vectors/row_vault.h"

enum { NOW = 1000000, LEASE_S = 300 };

struct judging {
    struct row *r;
    const struct json *conn, *request, *expect;
    struct egress_settings set;
    struct sidecar s;
    struct snapshot *snap;
    struct passlist *passlist;
    struct caller caller;
    struct conn_info client, origin;
    union addr to;
    struct facts f;
    struct verdict v;
};

/* ---- the view */

static struct rules *rules_of(struct row *r, const char *name, bool allow)
{
    struct rules *rules = rules_new();
    const struct json *list = row_member(row_member(r->v, "always"), name);
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (rules_add(rules, allow, json_string(v)) != TARGET_OK)
            row_fail(r, "a rule is not to be read");
    return rules;
}

static struct egress_view *policy_view(struct row *r)
{
    struct document user;
    if (!row_document(r, row_member(r->v, "policy"), &user))
        return NULL;
    struct always_lists always = {rules_of(r, "deny", false), rules_of(r, "allow", true), NULL};
    struct egress_view *v = view_new(&user, &always, 1);
    always_lists_done(&always);
    document_done(&user);
    return v;
}

static struct vault *vault_of(struct row *r)
{
    const struct json *list = row_member(r->v, "bindings");
    struct json_out o;
    if (!list || !json_first(list))
        return NULL;
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "bindings");
    row_put(&o, r, list);
    json_close(&o, '}');
    return row_vault(r, &o);
}

static struct lost *lost_of(struct row *r)
{
    const struct json *list = row_member(r->v, "lost_hosts");
    struct str text = STR("");
    if (row_is(row_member(r->v, "settings"), "vault_lost", "forward"))
        return NULL; /* not even read at the start */
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        text = arena_printf(r->a, "%.*shttp %.*s\nhttps %.*s\n", STR_ARG(text),
                            STR_ARG(json_string(v)), STR_ARG(json_string(v)));
    return lost_read(text);
}

static bool make_view(struct judging *j)
{
    struct egress_view *policy = policy_view(j->r);
    if (!policy)
        return false;
    struct vault *vault = vault_of(j->r);
    struct lost *lost = lost_of(j->r);
    struct egress_view *bound = view_with_vault(policy, vault);
    struct egress_view *all = view_with_lost(bound, lost);
    j->snap = view_snapshot(&j->set.core, all);
    view_unref(all);
    view_unref(bound);
    view_unref(policy);
    vault_unref(vault);
    lost_unref(lost);
    return j->r->trouble.n == 0;
}

/* ---- the sidecar */

static void on_leased(void *arg, bool ok)
{
    (void)arg;
    (void)ok;
}

static void lease(struct judging *j, const struct gate_rules *rules, const struct json *name)
{
    unsigned kinds = leases_kinds(rules, json_name(name));
    for (const struct json *v = json_first(name); v && kinds; v = json_next(v)) {
        struct gate_learned l = {.n = 1, .at = {{.ttl = LEASE_S}}};
        if (ip_parse(json_string(v), &l.at[0].ip))
            leases_take(j->s.leases, json_name(name), kinds, &l, true, NOW, on_leased, NULL);
    }
}

static void make_leases(struct judging *j)
{
    static const struct leases_limits limits = {64, 1024};
    const struct json *list = row_member(j->r->v, "leases");
    struct gate_rules rules = {.policy = view_of(j->snap)->policy};
    j->s.leases = leases_new(&limits, NULL);
    leases_adopt(j->s.leases, &rules, NULL, NOW);
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        lease(j, &rules, v);
}

static void on_pattern(void *user, struct str pattern, struct str why)
{
    (void)why;
    row_fail(user, "a pattern is not to be read: %.*s", STR_ARG(pattern));
}

static void make_passlist(struct judging *j)
{
    enum { PATTERNS = 8 };
    const struct json *list = row_member(row_member(j->r->v, "settings"), "ignore_hosts");
    struct str patterns[PATTERNS];
    unsigned n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v && n < PATTERNS; v = json_next(v))
        patterns[n++] = json_string(v);
    j->s.passlist = j->passlist = passlist_new(patterns, n, on_pattern, j->r);
}

static bool begin(struct judging *j)
{
    const struct json *settings = row_member(j->r->v, "settings");
    j->set = (struct egress_settings){
        .mode = EGRESS_DNS_NFT,
        .mitm_scope = row_is(settings, "mitm_scope", "all") ? EGRESS_SCOPE_ALL : EGRESS_SCOPE_BOUND,
        .http_binding =
            row_is(settings, "http_binding_address", "any") ? EGRESS_HTTP_ANY : EGRESS_HTTP_LEASE,
        .ssl_insecure = row_bool(settings, "ssl_insecure"),
        .scrub_bodies = true,
        .scrub_body_min = 6,
    };
    j->s = (struct sidecar){.set = &j->set};
    if (!make_view(j))
        return false;
    make_leases(j);
    make_passlist(j);
    return j->r->trouble.n == 0;
}

static void end(struct judging *j)
{
    leases_free(j->s.leases);
    passlist_free(j->passlist);
    snapshot_unref(j->snap);
}

/* ---- the connection */

static bool read_conn(struct judging *j)
{
    struct caller *p = &j->caller;
    uint16_t port;
    bool tls = row_bool(j->conn, "tls");
    struct str target = row_text(j->conn, "connect_host");
    *p = (struct caller){.way = WAY_TRANSPARENT, .served = true};
    p->c = (struct identity_conn){.kind = tls                        ? IDENTITY_TLS
                                          : row_bool(j->conn, "raw") ? IDENTITY_RAW
                                                                     : IDENTITY_HTTP,
                                  .port = (uint16_t)row_int(j->r, j->conn, "port", 0)};
    if (row_member(j->conn, "sni") && !caller_set_sni(p, row_text(j->conn, "sni")))
        return row_fail(j->r, "a name is too long");
    if (!ip_parse(row_text(j->conn, "dst"), &p->c.to))
        return row_fail(j->r, "the address is not to be read");
    addr_make(&j->to, &p->c.to, p->c.port);
    if (row_is(j->conn, "via", "absolute"))
        p->way = WAY_EXPLICIT;
    if (target.n == 0)
        return true;
    p->way = WAY_TUNNEL;
    p->c.target = &p->target;
    return authority_read(target, &p->target, &port) ||
           row_fail(j->r, "the target is not to be read");
}

static struct identity_first look(struct judging *j)
{
    struct identity_conn c = caller_conn(&j->caller);
    struct identity_first first = {.passage = PASSAGE_INTERCEPT};
    struct judge judge;
    if (j->caller.way == WAY_EXPLICIT)
        return first;
    judge_init(&judge, j->snap, &j->s, NOW);
    first.answer.fault = judge_first(&judge, &c, &first.passage).fault;
    return first;
}

/* ---- the request */

/* Versions that no row has words for are read as bytes. */
static enum why read_line(struct judging *j, struct http_fault *ret_fault)
{
    struct http_raw raw;
    struct str text = arena_printf(
        j->r->a, "%.*s %.*s HTTP/%.*s\r\n\r\n", STR_ARG(row_text(j->request, "method")),
        STR_ARG(row_text(j->request, "target")), STR_ARG(row_text(j->request, "version")));
    return h1head_request(text, 1, j->r->a, &raw, ret_fault);
}

static enum why read_h1(struct judging *j, struct http_head *ret, struct http_fault *ret_fault)
{
    struct row *r = j->r;
    const struct json *hosts = row_member(j->request, "host");
    struct framing framing;
    if (!row_is(j->request, "version", "1.0") && !row_is(j->request, "version", "1.1"))
        return read_line(j, ret_fault);
    struct http_raw raw = {.method = arena_str(r->a, row_text(j->request, "method")),
                           .target = arena_str(r->a, row_text(j->request, "target")),
                           .minor = row_is(j->request, "version", "1.0") ? 0 : 1};
    raw.fields = arena_get(r->a, 8 * sizeof *raw.fields);
    for (const struct json *v = hosts ? json_first(hosts) : NULL; v; v = json_next(v))
        raw.fields[raw.nfields++] = (struct field){STR("Host"), arena_str(r->a, json_string(v))};
    return rules_request(&raw, row_bool(j->conn, "tls") ? STR("https") : STR("http"), ret, &framing,
                         ret_fault);
}

/* Both names as the gate would see them; what the codec refuses by itself is not its matter. */
static enum why read_h2(struct judging *j, struct http_head *ret)
{
    const struct json *hosts = row_member(j->request, "host");
    *ret = (struct http_head){.method = row_text(j->request, "method"),
                              .authority = STR(""),
                              .path = row_text(j->request, "target"),
                              .protocol = STR(""),
                              .length = -1};
    if (hosts && json_first(hosts))
        ret->authority = ret->host = json_string(json_first(hosts));
    if (row_member(j->request, "authority"))
        ret->authority = row_text(j->request, "authority");
    return WHY_OK;
}

/* As a verifier would: one wildcard label at most. */
static struct str verified(const struct judging *j, struct str host)
{
    const struct json *cert = row_member(j->r->v, "origin_cert"),
                      *names = row_member(cert, "names");
    if (!cert)
        return host;
    if (!row_bool(cert, "trusted") || row_bool(cert, "expired"))
        return STR_NONE;
    ptrdiff_t dot = str_chr(host, '.');
    struct str below = str_skip(host, dot < 0 ? host.n : (size_t)dot);
    for (const struct json *v = json_first(names); v; v = json_next(v)) {
        struct str name = json_string(v);
        bool wild = str_starts(name, STR("*."));
        if (wild ? str_eq(str_skip(name, 1), below) : str_eq(name, host))
            return host;
    }
    return STR_NONE;
}

static bool is_h2(const struct judging *j)
{
    return row_is(j->request, "version", "2");
}

static void decide(struct judging *j, const struct http_head *head)
{
    j->caller.read = j->caller.c.kind == IDENTITY_TLS;
    j->client = (struct conn_info){.note = &j->caller, .tls = j->caller.read};
    j->client.alpn = is_h2(j) ? STR("h2") : STR("");
    j->f = (struct facts){.snap = j->snap,
                          .tables = &j->s,
                          .client = &j->client,
                          .head = head,
                          .request_id = STR("r1"),
                          .now_ms = NOW};
    egress_gate.decide(&j->f, j->r->a, &j->v);
}

/* What happens before a byte leaves: the address of a name that was asked for, then the peer. */
static enum why go_out(struct judging *j)
{
    struct errand *e = errand_of(&j->v);
    j->f.origin = &j->to.sa;
    enum why why = egress_gate.allow_addr(&j->f, &j->v, &j->to.sa);
    bool tls = j->v.to.tls_name.n > 0;
    j->origin = (struct conn_info){.peer = &j->to.sa, .tls = tls};
    if (tls)
        j->origin.verified = verified(j, e->asked);
    return why != WHY_OK ? why : egress_gate.peer(&j->f, &j->v, &j->origin);
}

static void refused(struct judging *j, enum why why)
{
    egress_gate.failed(&j->f, why, STAGE_DIAL, NULL, j->r->a, &j->v);
}

static bool compare(struct judging *j)
{
    struct row *r = j->r;
    const struct binding *b = errand_of(&j->v)->credential.binding;
    struct str decision = j->v.act != ACT_FORWARD ? STR("refuse")
                          : b                     ? STR("inject")
                                                  : STR("forward");
    if (!row_same(r, "decision", decision, row_text(j->expect, "decision")))
        return false;
    if (j->v.act == ACT_FORWARD)
        return !b || row_same(r, "binding", b->name, row_text(j->expect, "binding"));
    struct str text = row_text(j->expect, "text");
    return row_same_int(r, "status", j->v.status, row_int(r, j->expect, "status", 0)) &&
           (str_starts(j->v.body, text) || row_same(r, "text", j->v.body, text));
}

static void give_back(struct judging *j)
{
    struct errand *e = errand_of(&j->v);
    redaction_unref(e->credential.own);
    secret_bag_done(&e->credential.bag);
}

static bool expect_request(struct judging *j)
{
    struct http_head head;
    struct http_fault fault;
    enum why why = is_h2(j) ? read_h2(j, &head) : read_h1(j, &head, &fault);
    if (why != WHY_OK)
        return row_same(j->r, "decision", STR("refuse"), row_text(j->expect, "decision")) &&
               row_same_int(j->r, "status", fault.status, row_int(j->r, j->expect, "status", 0));
    decide(j, &head);
    struct verdict decided = j->v;
    why = j->v.act == ACT_FORWARD ? go_out(j) : WHY_OK;
    if (why != WHY_OK) {
        refused(j, why);
        j->v.note = decided.note;
    }
    bool good = compare(j);
    give_back(j);
    return good;
}

static bool judge(struct judging *j)
{
    static const struct str words[] = {[PASSAGE_PASS] = {"relay", 5},
                                       [PASSAGE_INTERCEPT] = {"intercept", 9},
                                       [PASSAGE_REFUSE] = {"close", 5}};
    struct identity_first first = look(j);
    if (j->request && first.passage == PASSAGE_INTERCEPT)
        return expect_request(j);
    return row_same(j->r, "decision", words[first.passage], row_text(j->expect, "decision"));
}

/* ---- a fault of our own */

static bool cannot_render; /* while such a row runs */

const struct armed *__real_vault_armed(const struct vault *v, const struct binding *b);
const struct armed *__wrap_vault_armed(const struct vault *v, const struct binding *b);

const struct armed *__wrap_vault_armed(const struct vault *v, const struct binding *b)
{
    return cannot_render ? NULL : __real_vault_armed(v, b);
}

/* Its first extension says that it is longer than it is. */
static bool close_malformed(struct row *r, const struct json *conn, const struct json *expect)
{
    enum { LENGTH_AT = 5 + 4 + 2 + 32 + 7 + 2 + 2 + 1 }; /* as hello_bytes() puts it */
    char bytes[HELLO_TEST_BYTES];
    struct str hello = hello_bytes(row_text(conn, "sni"), HELLO_TEST_BYTES, bytes);
    struct chunk_pool *pool = chunk_pool_new();
    struct first first;
    struct buf b;
    first_init(&first);
    buf_init(&b, pool);
    buf_str(&b, hello);
    bool whole = first_look(&first, &b) == FIRST_STEP_TLS;
    first_done(&first);
    buf_clear(&b);
    first_init(&first);
    bytes[LENGTH_AT]++;
    buf_str(&b, hello);
    bool closed = first_look(&first, &b) == FIRST_STEP_BAD;
    first_done(&first);
    buf_clear(&b);
    chunk_pool_free(pool);
    return row_same_int(r, "whole", whole, 1) && row_same_int(r, "malformed", closed, 1) &&
           row_same(r, "decision", STR("close"), row_text(expect, "decision"));
}

bool run_identity(struct row *r)
{
    struct judging j = {.r = r,
                        .conn = row_member(r->v, "conn"),
                        .request = row_member(r->v, "request"),
                        .expect = row_member(r->v, "expect")};
    if (row_is(j.conn, "hello", "malformed"))
        return close_malformed(r, j.conn, j.expect);
    cannot_render = row_is(r->v, "fault", "render");
    bool good = begin(&j) && read_conn(&j) && judge(&j);
    cannot_render = false;
    end(&j);
    return good;
}
