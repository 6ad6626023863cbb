/* run_identity.c — identity: what becomes of a connection, and of a request on it.  Bindings are
 * looked at as far as these rows need it: hosts, schemes, one path pattern, methods. */
#include "policies/identity.h"

#include <regex.h>
#include <stdio.h>

#include "vectors/run_policy.h"

static bool is_among(const struct json *list, struct str text)
{
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (str_ieq(json_string(v), text))
            return true;
    return false;
}

/* ---- the policy, with always rules as lists */

static struct rules *rules_of(struct row *r, const char *name, bool allow)
{
    struct rules *rules = rules_new();
    const struct json *list = row_member(row_member(r->v, "always"), name);
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (rules_add(rules, allow, json_string(v)) != TARGET_OK)
            row_fail(r, "a rule is not to be read");
    return rules;
}

static struct policy *policy_of(struct row *r)
{
    struct document user;
    if (!row_document(r, row_member(r->v, "policy"), &user))
        return NULL;
    struct rules *deny = rules_of(r, "deny", false), *allow = rules_of(r, "allow", true);
    struct policy *p = policy_new(deny, allow, &user);
    rules_unref(deny);
    rules_unref(allow);
    document_done(&user);
    return p;
}

/* ---- what identity.h asks for */

static bool covers(struct str pattern, struct str name)
{
    if (!str_starts(pattern, STR("*.")))
        return str_eq(pattern, name);
    return name.n > pattern.n - 1 && str_iends(name, str_skip(pattern, 1));
}

static bool binds(const struct json *binding, struct str name, bool tls)
{
    const struct json *match = row_member(binding, "match"), *hosts = row_member(match, "hosts"),
                      *schemes = row_member(match, "schemes");
    if (schemes ? !is_among(schemes, tls ? STR("https") : STR("http")) : !tls)
        return false;
    for (const struct json *v = hosts ? json_first(hosts) : NULL; v; v = json_next(v))
        if (covers(json_string(v), name))
            return true;
    return false;
}

static enum bound bound(void *user, struct str name, bool tls)
{
    const struct row *r = user;
    const struct json *list = row_member(r->v, "bindings");
    bool forward = row_is(row_member(r->v, "settings"), "vault_lost", "forward");
    if (is_among(row_member(r->v, "lost_hosts"), name) && !forward)
        return BOUND_LOST;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (binds(v, name, tls))
            return BOUND_HELD;
    return BOUND_NOT;
}

static bool fits(struct row *r, struct str pattern, struct str text)
{
    regex_t re;
    char *p = mem_strdup(pattern), *t = mem_strdup(text);
    bool good = false;
    if (regcomp(&re, p, REG_EXTENDED | REG_NOSUB) == 0) {
        good = regexec(&re, t, 0, NULL, 0) == 0;
        regfree(&re);
    } else {
        row_fail(r, "an expression is not to be read");
    }
    mem_free(p);
    mem_free(t);
    return good;
}

static bool passed(void *user, struct str sni, const struct ip *to, uint16_t port)
{
    struct row *r = user;
    char ip[IP_TEXT_BYTES];
    int n = (int)ip_text(to, ip);
    const struct json *list = row_member(row_member(r->v, "settings"), "ignore_hosts");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        struct str re = json_string(v);
        if (fits(r, re, sni) || fits(r, re, arena_printf(r->a, "%.*s:%u", STR_ARG(sni), port)) ||
            fits(r, re, arena_printf(r->a, "%.*s:%u", n, ip, port)))
            return true;
    }
    return false;
}

static bool leased(void *user, struct str name, const struct ip *to)
{
    const struct row *r = user;
    const struct json *list = row_member(r->v, "leases"),
                      *addresses = list ? json_member(list, name) : NULL;
    struct ip ip;
    for (const struct json *v = addresses ? json_first(addresses) : NULL; v; v = json_next(v))
        if (ip_parse(json_string(v), &ip) && ip_eq(&ip, to))
            return true;
    return false;
}

struct judging {
    struct row *r;
    struct identity_rules rules;
    struct identity_conn conn;
    struct host target;
};

static enum learned learned(void *user, const struct ip *to)
{
    struct row *r = user;
    const struct json *list = row_member(r->v, "leases");
    enum learned best = LEARNED_NOT;
    struct policy *p = policy_of(r);
    for (const struct json *v = list && p ? json_first(list) : NULL; v; v = json_next(v)) {
        enum learned l = policy_learns(p, json_name(v));
        best = leased(r, json_name(v), to) && l > best ? l : best;
    }
    policy_free(p);
    return best;
}

/* ---- the connection */

/* The authority of an absolute target, or none. */
static struct str absolute_authority(struct str target)
{
    for (size_t i = 0; i + 3 <= target.n; i++) {
        if (memcmp(target.p + i, "://", 3) != 0)
            continue;
        struct str rest = str_skip(target, i + 3);
        ptrdiff_t slash = str_chr(rest, '/');
        return slash < 0 ? rest : str_head(rest, (size_t)slash);
    }
    return STR_NONE;
}

static bool read_target(struct judging *j, const struct json *conn)
{
    uint16_t port;
    struct str text = row_text(conn, "connect_host");
    if (row_is(conn, "via", "absolute"))
        text = absolute_authority(row_text(row_member(j->r->v, "request"), "target"));
    if (text.n == 0)
        return true;
    j->conn.target = &j->target;
    return authority_read(text, &j->target, &port);
}

static bool read_conn(struct judging *j)
{
    const struct json *conn = row_member(j->r->v, "conn");
    bool tls = row_bool(conn, "tls");
    j->conn = (struct identity_conn){
        .kind = tls                     ? IDENTITY_TLS
                : row_bool(conn, "raw") ? IDENTITY_RAW
                                        : IDENTITY_HTTP,
        .sni = row_member(conn, "sni") ? row_text(conn, "sni") : STR_NONE,
        .port = (uint16_t)row_int(j->r, conn, "port", 0),
    };
    return ip_parse(row_text(conn, "dst"), &j->conn.to) && read_target(j, conn);
}

static void read_rules(struct judging *j)
{
    const struct json *settings = row_member(j->r->v, "settings");
    j->rules = (struct identity_rules){
        .scope_all = row_is(settings, "mitm_scope", "all"),
        .insecure = row_bool(settings, "ssl_insecure"),
        .http_any = row_is(settings, "http_binding_address", "any"),
        .bound = bound,
        .passed = passed,
        .leased = leased,
        .learned = learned,
        .user = j->r,
    };
}

/* ---- the request */

static bool matches(const struct json *binding, const struct json *request)
{
    const struct json *match = row_member(binding, "match"),
                      *methods = row_member(match, "methods"), *paths = row_member(match, "paths");
    struct str method = row_text(request, "method"), target = row_text(request, "target");
    if (methods ? !is_among(methods, method)
                : str_eq(method, STR("HEAD")) || str_eq(method, STR("OPTIONS")))
        return false;
    struct str path = paths ? json_string(json_first(paths)) : STR("*");
    return str_starts(target, str_head(path, path.n - 1));
}

static const struct json *binding_of(const struct judging *j, const struct json *request,
                                     const struct host *h)
{
    const struct json *list = row_member(j->r->v, "bindings");
    if (!identity_takes_credential(&j->conn))
        return NULL;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (binds(v, host_name(h), j->conn.kind == IDENTITY_TLS) && matches(v, request))
            return v;
    return NULL;
}

/* As a verifier would: one wildcard label at most. */
static struct str verified(const struct judging *j, const struct host *h)
{
    const struct json *cert = row_member(j->r->v, "origin_cert"),
                      *names = row_member(cert, "names");
    struct str host = host_name(h), below = host;
    if (!cert)
        return host;
    if (!row_bool(cert, "trusted") || row_bool(cert, "expired"))
        return STR_NONE;
    ptrdiff_t dot = str_chr(host, '.');
    below = str_skip(host, dot < 0 ? host.n : (size_t)dot);
    for (const struct json *v = json_first(names); v; v = json_next(v)) {
        struct str name = json_string(v);
        bool wild = str_starts(name, STR("*."));
        if (wild ? str_eq(str_skip(name, 1), below) : str_eq(name, host))
            return host;
    }
    return STR_NONE;
}

/* Left to codecs, to the vault's paths, and to faults of its own. */
static bool is_for_others(const struct row *r, const struct json *request)
{
    const struct json *hosts = row_member(request, "host");
    return row_is(request, "method", "CONNECT") || row_is(request, "version", "1.9") ||
           (hosts && json_count(hosts) > 1) || row_member(r->v, "fault") ||
           str_starts(row_text(row_member(r->v, "expect"), "text"), STR("request path"));
}

static enum identity judge_request(struct judging *j, const struct json *request,
                                   const struct json **ret_binding)
{
    struct host h;
    const struct json *hosts = row_member(request, "host");
    struct identity_request q = {.may_lack = row_is(request, "version", "1.0")};
    q.names[0] = hosts && json_first(hosts) ? json_string(json_first(hosts)) : STR_NONE;
    q.names[1] = row_member(request, "authority") ? row_text(request, "authority") : STR_NONE;
    q.names[2] = absolute_authority(row_text(request, "target"));
    struct identity_answer answer = identity_request(&j->rules, &j->conn, &q, &h);
    if (answer.fault)
        return answer.fault;
    *ret_binding = binding_of(j, request, &h);
    return identity_peer(&j->rules, &j->conn, &h, verified(j, &h), *ret_binding != NULL);
}

static bool expect_request(struct judging *j, const struct json *request)
{
    const struct json *expect = row_member(j->r->v, "expect"), *binding = NULL;
    if (is_for_others(j->r, request))
        return row_skip(j->r);
    enum identity fault = judge_request(j, request, &binding);
    struct str text = row_text(expect, "text"), decision = binding ? STR("inject") : STR("forward");
    if (fault)
        decision = STR("refuse");
    if (!row_same(j->r, "decision", decision, row_text(expect, "decision")) ||
        !row_same_int(j->r, "status", identity_status(fault), row_int(j->r, expect, "status", 0)))
        return false;
    if (binding && !fault)
        return row_same(j->r, "binding", row_text(binding, "name"), row_text(expect, "binding"));
    return str_starts(identity_text(fault), text) ||
           row_same(j->r, "text", identity_text(fault), text);
}

static bool judge(struct judging *j)
{
    static const struct str words[] = {[PASSAGE_PASS] = {"relay", 5},
                                       [PASSAGE_INTERCEPT] = {"intercept", 9},
                                       [PASSAGE_REFUSE] = {"close", 5}};
    const struct json *request = row_member(j->r->v, "request");
    struct identity_first first = identity_first(&j->rules, &j->conn);
    if (request && first.passage == PASSAGE_INTERCEPT)
        return expect_request(j, request);
    return row_same(j->r, "decision", words[first.passage],
                    row_text(row_member(j->r->v, "expect"), "decision"));
}

bool run_identity(struct row *r)
{
    struct judging j = {.r = r};
    if (row_is(row_member(r->v, "conn"), "hello", "malformed"))
        return row_skip(r);
    read_rules(&j);
    struct policy *p = policy_of(r);
    j.rules.policy = p;
    bool good = p && (read_conn(&j) ? judge(&j) : row_fail(r, "the row is not to be read"));
    policy_free(p);
    return good;
}
