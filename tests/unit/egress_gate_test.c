/* egress_gate_test.c — what the sidecar's gate says: facts in, verdict out.  Leases: ok.test and
 * also.test at 203.0.113.20, no.test at 198.51.100.66, each where the policy allows it. */
#include "egress/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "egress/caller.h"
#include "egress/dns/leases.h"
#include "egress/events/events.h"
#include "egress/gate_impl.h"
#include "egress/state/view.h"
#include "harness/hello_bytes.h"
#include "harness/short_policy.h"

enum { NOW = 1000000 };

static struct {
    struct arena a;
    struct egress_settings set;
    struct sidecar s;
    struct snapshot *snap;
    struct caller *caller;
    struct conn_info client;
    union addr peer, origin;
    struct verdict v;
    struct facts f;
    char told[512]; /* the last event */
    unsigned ntold;
} t;

/* In the place of the real one. */
void events_connection(struct events *e, const struct event_connection *c)
{
    char ip[IP_TEXT_BYTES];
    size_t n = c->ip ? ip_text(c->ip, ip) : 0;
    (void)e;
    snprintf(t.told, sizeof t.told, "%s %.*s %.*s %u %.*s", c->allow ? "allow" : why_text(c->why),
             STR_ARG(c->host), (int)n, ip, c->port, STR_ARG(c->rule));
    t.ntold++;
}

void events_credential(struct events *e, const struct event_credential *c)
{
    (void)e;
    (void)c;
}

static struct ip ip_of(struct str text)
{
    struct ip ip;
    if (!ip_parse(text, &ip))
        fail_msg("no address: %.*s", STR_ARG(text));
    return ip;
}

static void on_leased(void *arg, bool ok)
{
    (void)arg;
    assert_true(ok);
}

static void lease(const char *name, const char *ip)
{
    struct gate_learned l = {.n = 1, .at = {{ip_of(str_of(ip)), 300}}};
    leases_take(t.s.leases, str_of(name), LEASE_USER, &l, true, NOW, on_leased, NULL);
    assert_true(leases_covers(t.s.leases, str_of(name), &l.at[0].ip, NOW));
}

/* As after a change of the policy; whoever is still allowed asks again. */
static void lease_anew(const struct policy *p)
{
    static const struct {
        const char *name, *ip;
    } rows[] = {
        {"ok.test", "203.0.113.20"}, {"also.test", "203.0.113.20"}, {"no.test", "198.51.100.66"}};
    struct gate_rules rules = {.policy = p};
    leases_adopt(t.s.leases, &rules, NULL, NOW);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (policy_name(p, str_of(rows[i].name)).allow)
            lease(rows[i].name, rows[i].ip);
}

static void policy(const char *text)
{
    struct document d = short_policy(text);
    struct always_lists none = {NULL, NULL, NULL};
    struct egress_view *v = view_new(&d, &none, 1);
    snapshot_unref(t.snap);
    t.snap = view_snapshot(&t.set.core, v);
    t.f.snap = t.snap;
    lease_anew(v->policy);
    view_unref(v);
    document_done(&d);
}

static int setup(void **state)
{
    static const struct leases_limits limits = {64, 1024};
    (void)state;
    memset(&t, 0, sizeof t);
    arena_init(&t.a, NULL, 0);
    t.set.mode = EGRESS_DNS_NFT;
    t.set.first_bytes_timeout = 10 * INT64_C(1000000000);
    t.s = (struct sidecar){.set = &t.set, .ports = {18080, 18081, 3128}, .nports = 3};
    t.s.events = (struct events *)&t;
    t.s.leases = leases_new(&limits, NULL);
    t.f = (struct facts){.tables = &t.s, .client = &t.client, .now_ms = NOW};
    policy("+ok.test");
    return 0;
}

static void drop_caller(void)
{
    if (t.caller && t.caller->first) {
        first_done(t.caller->first);
        mem_free(t.caller->first);
    }
    mem_free(t.caller);
    t.caller = NULL;
}

static int teardown(void **state)
{
    (void)state;
    drop_caller();
    leases_free(t.s.leases);
    snapshot_unref(t.snap);
    arena_done(&t.a);
    return 0;
}

/* ---- who asks: "asked", "stranger", "in HOST:PORT", "http ADDR:PORT", "raw ADDR:PORT",
 * "tls ADDR:PORT NAME" */

static void redirected(struct str word, enum identity_kind kind)
{
    struct str at, name = word;
    union addr to;
    str_next(&name, ' ', &at);
    if (!addr_parse(at, &to))
        fail_msg("no address: %.*s", STR_ARG(at));
    t.caller->c.kind = kind;
    addr_ip(&to.sa, &t.caller->c.to);
    t.caller->c.port = addr_port(&to.sa);
    if (name.p)
        assert_true(caller_set_sni(t.caller, name));
}

static void tunnel(struct str target)
{
    struct caller *p = t.caller;
    uint16_t port;
    assert_true(authority_read(target, &p->target, &port));
    p->c = (struct identity_conn){.kind = IDENTITY_HTTP,
                                  .target = &p->target,
                                  .unresolved = p->target.kind == HOST_NAME,
                                  .to = p->target.ip,
                                  .port = port};
}

static void who(const char *text)
{
    struct str rest = str_of(text), word;
    drop_caller();
    str_next(&rest, ' ', &word);
    bool asked = str_eq(word, STR("asked")) || str_eq(word, STR("stranger"));
    t.caller = caller_new(asked                     ? WAY_EXPLICIT
                          : str_eq(word, STR("in")) ? WAY_TUNNEL
                                                    : WAY_TRANSPARENT,
                          NULL);
    t.caller->served = str_eq(word, STR("asked"));
    t.client = (struct conn_info){.peer = &t.peer.sa, .note = t.caller};
    if (str_eq(word, STR("in")))
        tunnel(rest);
    else if (!asked)
        redirected(rest, str_eq(word, STR("tls"))    ? IDENTITY_TLS
                         : str_eq(word, STR("http")) ? IDENTITY_HTTP
                                                     : IDENTITY_RAW);
}

/* ---- what is asked */

/* "METHOD TARGET", and Host or "-" for HTTP/1.0 without it. */
static void ask(const char *request, const char *host)
{
    struct field *fields = arena_zero(&t.a, 4 * sizeof *fields);
    struct http_head *head = arena_zero(&t.a, sizeof *head);
    struct str rest = arena_str(&t.a, str_of(request)), method;
    struct framing framing;
    struct http_fault fault;
    str_next(&rest, ' ', &method);
    bool has_host = strcmp(host, "-") != 0;
    fields[0] = (struct field){STR("Host"), arena_str(&t.a, str_of(host))};
    struct http_raw raw = {.method = method,
                           .target = rest,
                           .minor = has_host,
                           .fields = fields + !has_host,
                           .nfields = has_host};
    if (rules_request(&raw, STR("http"), head, &framing, &fault) != WHY_OK)
        fail_msg("%s: %s", request, fault.text);
    t.f.head = head;
    t.told[0] = 0;
    egress_gate.decide(&t.f, &t.a, &t.v);
    egress_gate.judged(NULL, &t.f, &t.v, 0);
}

static const char *said(void)
{
    static char text[600];
    const struct verdict *v = &t.v;
    if (v->act == ACT_FORWARD)
        snprintf(text, sizeof text, "to %.*s %u%s%s", STR_ARG(v->to.host), v->to.port,
                 v->raw ? " raw" : "", v->look ? " look" : "");
    else
        snprintf(text, sizeof text, "%d %.*s", v->status, STR_ARG(v->body));
    return text;
}

#define DENIED "host denied by egress policy: "
#define AT_ODDS "421 request authority does not match the intercepted destination"
#define MALFORMED "400 request authority is missing or malformed\n"
#define IS_PROXY "400 this is a proxy: ask for a whole URL, or by CONNECT\n"

static void each_request_is_judged_by_all_that_it_names(void **state)
{
    static const struct {
        const char *policy, *who, *request, *host, *said;
    } rows[] = {
        /* asked of the explicit proxy */
        {"+ok.test", "asked", "GET http://ok.test/x", "ok.test", "to ok.test 80"},
        {"+ok.test", "asked", "GET http://OK.test.:8080/x", "ok.test:8080", "to ok.test 8080"},
        {"+ok.test", "asked", "GET http://no.test/", "no.test",
         "403 " DENIED "no.test (rule default)\n"},
        {"*-no.test", "asked", "GET http://no.test/", "no.test",
         "403 " DENIED "no.test (rule user:0)\n"},
        {"+ok.test", "asked", "GET http://ok.test/", "no.test", AT_ODDS ": ok.test\n"},
        {"+ok.test", "asked", "GET http://ok.test/", "ok.test:81", AT_ODDS ": ok.test\n"},
        {"+ok.test", "asked", "GET http://ok.test/", "", MALFORMED},
        {"+ok.test", "asked", "GET http://ok.test/", "-", "to ok.test 80"},
        {"+ok.test", "asked", "GET https://ok.test/", "ok.test",
         "400 this proxy is asked for https by CONNECT\n"},
        {"+ok.test", "asked", "GET /x", "ok.test", IS_PROXY},
        {"+ok.test", "asked", "OPTIONS *", "ok.test", IS_PROXY},
        {"+203.0.113.9", "asked", "GET http://203.0.113.9/", "203.0.113.9", "to 203.0.113.9 80"},
        {"+ok.test", "asked", "GET http://203.0.113.99/", "203.0.113.99",
         "403 " DENIED "203.0.113.99 (rule default)\n"},
        {"+ok.test", "asked", "GET http://203.0.113.20/", "203.0.113.20", "to 203.0.113.20 80"},
        {"*", "asked", "GET http://127.0.0.1/", "127.0.0.1",
         "403 " DENIED "address of a reserved range: 127.0.0.1\n"},
        {"*", "asked", "GET http://[::ffff:a9fe:a9fe]/", "[::ffff:a9fe:a9fe]",
         "403 " DENIED "address of a reserved range: 169.254.169.254\n"},
        {"*", "asked", "GET http://2852039166/", "2852039166",
         "400 an address is four decimal numbers, or in brackets\n"},
        {"+ok.test", "asked", "CONNECT ok.test:443", "ok.test:443", "to ok.test 443 raw look"},
        {"+ok.test", "asked", "CONNECT ok.test:443", "ok.test", "to ok.test 443 raw look"},
        {"+ok.test", "asked", "CONNECT ok.test:443", "-", "to ok.test 443 raw look"},
        {"+ok.test", "asked", "CONNECT ok.test:443", "also.test:443", AT_ODDS ": ok.test\n"},
        {"+ok.test", "asked", "CONNECT no.test:443", "no.test:443",
         "403 " DENIED "no.test (rule default)\n"},
        {"+127.0.0.0/8", "asked", "CONNECT 127.0.0.1:18080", "127.0.0.1:18080",
         "403 " DENIED "127.0.0.1 (rule own)\n"},
        {"+127.0.0.0/8", "asked", "CONNECT 127.0.0.1:80", "-", "to 127.0.0.1 80 raw look"},
        {"+127.0.0.0/8", "asked", "GET http://127.7.7.7:3128/", "127.7.7.7:3128",
         "403 " DENIED "127.7.7.7 (rule own)\n"},
        {"+127.0.0.0/8", "http 127.0.0.1:18081", "GET /", "127.0.0.1",
         "403 " DENIED "127.0.0.1 (rule own)\n"},
        {"*", "asked", "CONNECT 0251.0376.0251.0376:80", "x",
         "400 an address is four decimal numbers, or in brackets\n"},
        {"*", "asked", "CONNECT 0xA9FEA9FE:80", "x",
         "400 an address is four decimal numbers, or in brackets\n"},
        {"*", "asked", "CONNECT 127.0.0.1.:80", "x", "400 an address has no final dot\n"},
        {"+[2001:db8::1]", "asked", "CONNECT [2001:db8::9]:443", "-",
         "403 " DENIED "[2001:db8::9] (rule default)\n"},
        {"+2001:db8::9", "asked", "CONNECT [2001:db8::9]:443", "-",
         "to [2001:db8::9] 443 raw look"},
        {"*", "asked", "CONNECT ok.test:853", "-", "403 " DENIED "ok.test (rule port853)\n"},
        {"*", "asked", "CONNECT 8.8.8.8:53", "-", "403 " DENIED "8.8.8.8 (rule dns53)\n"},
        {"*", "stranger", "CONNECT ok.test:443", "ok.test:443",
         "403 denied by policy: this proxy does not serve you\n"},
        {"*", "stranger", "GET http://ok.test/", "ok.test",
         "403 denied by policy: this proxy does not serve you\n"},
        {"*", "stranger", "GET /", "ok.test",
         "403 denied by policy: this proxy does not serve you\n"},
        /* inside of a tunnel */
        {"+ok.test", "in ok.test:80", "GET /", "ok.test", "to ok.test 80"},
        {"+ok.test", "in ok.test:80", "GET /", "ok.test:80", "to ok.test 80"},
        {"+ok.test", "in ok.test:80", "GET /", "ok.test:8443", AT_ODDS ": ok.test\n"},
        {"+ok.test +also.test", "in ok.test:80", "GET /", "also.test", AT_ODDS ": also.test\n"},
        {"+ok.test", "in ok.test:80", "GET http://no.test/", "ok.test", AT_ODDS ": no.test\n"},
        {"+ok.test", "in ok.test:80", "GET http://ok.test/", "no.test", AT_ODDS ": ok.test\n"},
        {"+ok.test", "in ok.test:80", "GET /", "-", "to ok.test 80"},
        {"+ok.test", "in ok.test:80", "GET /", "a..b", MALFORMED},
        {"+no.test", "in ok.test:80", "GET /", "ok.test", "403 " DENIED "ok.test (rule default)\n"},
        {"+ok.test", "in ok.test:80", "CONNECT ok.test:80", "ok.test:80",
         "400 CONNECT is for a proxy, and this is none\n"},
        {"+203.0.113.9", "in 203.0.113.9:80", "GET /", "203.0.113.9", "to 203.0.113.9 80"},
        {"*", "in 203.0.113.9:80", "GET /", "ok.test", AT_ODDS ": ok.test\n"},
        /* redirected: the address is the client's choice, and must be the name's */
        {"+ok.test", "http 203.0.113.20:80", "GET /", "ok.test", "to 203.0.113.20 80"},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "OK.TEST.", "to 203.0.113.20 80"},
        {"+ok.test", "http 203.0.113.20:80", "GET http://ok.test/", "ok.test",
         "to 203.0.113.20 80"},
        {"+ok.test", "http 203.0.113.20:80", "GET http://ok.test/", "no.test",
         AT_ODDS ": ok.test\n"},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "no.test",
         "403 " DENIED "no.test (rule default)\n"},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "also.test",
         "403 " DENIED "also.test (rule default)\n"},
        {"+ok.test", "http 203.0.113.99:80", "GET /", "ok.test", AT_ODDS ": ok.test\n"},
        {"+ok.test +203.0.113.99", "http 203.0.113.99:80", "GET /", "ok.test",
         "to 203.0.113.99 80"},
        {"+ok.test -203.0.113.0/24", "http 203.0.113.20:80", "GET /", "ok.test",
         "403 " DENIED "ok.test (rule user:1)\n"},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "203.0.113.20", "to 203.0.113.20 80"},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "203.0.113.21", AT_ODDS ": 203.0.113.21\n"},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "-", "to 203.0.113.20 80"},
        {"+ok.test", "http 203.0.113.20:8080", "GET /", "ok.test", "to 203.0.113.20 8080"},
        {"+ok.test", "http 203.0.113.20:8080", "GET /", "ok.test:80", AT_ODDS ": ok.test\n"},
        {"+ok.test", "http 203.0.113.20:80", "CONNECT ok.test:80", "ok.test:80",
         "400 CONNECT is for a proxy, and this is none\n"},
        {"+ok.test", "http 203.0.113.20:853", "GET /", "ok.test",
         "403 " DENIED "ok.test (rule port853)\n"},
        /* redirected, passed unread */
        {"+ok.test", "raw 203.0.113.20:80", "CONNECT x:80", "-", "to 203.0.113.20 80 raw"},
        {"+no.test", "raw 203.0.113.20:80", "CONNECT x:80", "-",
         "403 " DENIED "203.0.113.20 (rule default)\n"},
        {"+ok.test", "tls 203.0.113.20:443 ok.test", "CONNECT ok.test:443", "-",
         "to 203.0.113.20 443 raw"},
        {"+ok.test", "tls 203.0.113.20:443 also.test", "CONNECT also.test:443", "-",
         "403 " DENIED "also.test (rule default)\n"},
        {"+ok.test", "tls 203.0.113.20:443", "CONNECT x:443", "-", "to 203.0.113.20 443 raw"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        policy(rows[i].policy);
        who(rows[i].who);
        ask(rows[i].request, rows[i].host);
        if (strcmp(said(), rows[i].said) != 0)
            fail_msg("%s: %s, %s, Host %s:\n  %s\nnot\n  %s", rows[i].policy, rows[i].who,
                     rows[i].request, rows[i].host, said(), rows[i].said);
    }
}

static void a_client_that_nobody_knows_is_refused(void **state)
{
    (void)state;
    policy("*");
    who("asked");
    t.client.note = NULL;
    ask("GET http://ok.test/", "ok.test");
    assert_int_equal(t.v.status, 403);
}

static void hosts_that_share_an_address_share_no_connection(void **state)
{
    (void)state;
    policy("+ok.test +also.test");
    who("http 203.0.113.20:80");
    ask("GET /", "ok.test");
    struct str first = t.v.pool;
    ask("GET /", "also.test");
    assert_false(str_eq(first, t.v.pool));
    ask("GET /", "ok.test");
    assert_true(str_eq(first, t.v.pool));
    who("in ok.test:80");
    ask("GET /", "ok.test");
    assert_false(str_eq(first, t.v.pool));
}

static void what_is_forwarded_keeps_its_host_and_loses_what_was_said_to_a_proxy(void **state)
{
    struct field fields[] = {{STR("Accept"), STR("a")},
                             {STR("Proxy-Authorization"), STR("secret")},
                             {STR("X-A"), STR("1")},
                             {STR("PROXY-Anything"), STR("2")},
                             {STR("x-a"), STR("3")}};
    struct http_head head = {.method = STR("GET"),
                             .authority = STR("OK.test:80"),
                             .host = STR("OK.test:80"),
                             .path = STR("/a%2fb"),
                             .fields = fields,
                             .nfields = 5};
    (void)state;
    who("http 203.0.113.20:80");
    t.f.head = &head;
    egress_gate.decide(&t.f, &t.a, &t.v);
    assert_int_equal(t.v.act, ACT_FORWARD);
    const struct http_head *out = t.v.head;
    assert_true(str_eq(out->authority, STR("OK.test:80")));
    assert_true(str_eq(out->path, STR("/a%2fb")));
    assert_int_equal(out->nfields, 3);
    assert_true(str_eq(out->fields[0].name, STR("Accept")));
    assert_true(str_eq(out->fields[1].name, STR("X-A")));
    assert_true(str_eq(out->fields[2].value, STR("3")));
}

static void a_request_without_a_host_gets_the_address(void **state)
{
    (void)state;
    who("http 203.0.113.20:80");
    ask("GET /", "-");
    assert_true(str_eq(t.v.head->authority, STR("203.0.113.20:80")));
}

static void doh_is_closed_here_as_in_the_kernel(void **state)
{
    static const struct cidr google = {{{[10] = 0xff, [11] = 0xff, 8, 8, 8, 8}}, 128};
    (void)state;
    policy("*");
    t.set.block_doh = true;
    t.set.doh = (struct cidr_set){&google, 1};
    who("tls 8.8.8.8:443 dns.test");
    ask("CONNECT dns.test:443", "-");
    assert_string_equal(said(), "403 " DENIED "dns.test (rule doh)\n");
    who("tls 8.8.4.4:443 dns.test");
    ask("CONNECT dns.test:443", "-");
    assert_int_equal(t.v.act, ACT_FORWARD);
    t.set.doh = (struct cidr_set){NULL, 0};
    ask("CONNECT dns.test:443", "-");
    assert_string_equal(said(), "403 " DENIED "dns.test (rule doh)\n");
    t.set.mode = EGRESS_DNS;
    ask("CONNECT dns.test:443", "-");
    assert_int_equal(t.v.act, ACT_FORWARD);
}

/* ---- addresses */

static enum why allows(const char *address)
{
    if (!addr_parse(str_of(address), &t.origin))
        fail_msg("no address: %s", address);
    return egress_gate.allow_addr(&t.f, &t.v, &t.origin.sa);
}

static void only_addresses_that_the_policy_permits_are_dialled(void **state)
{
    static const struct {
        const char *policy, *who, *request, *address;
        bool ok;
    } rows[] = {
        {"+ok.test", "asked", "CONNECT ok.test:443", "203.0.113.20:443", true},
        {"+ok.test", "asked", "CONNECT ok.test:443", "203.0.113.77:443", true},
        {"+ok.test", "asked", "CONNECT ok.test:443", "203.0.113.77:80", false},
        {"+ok.test", "asked", "CONNECT ok.test:443", "169.254.169.254:443", false},
        {"+ok.test +169.254.169.254", "asked", "CONNECT ok.test:443", "169.254.169.254:443", true},
        {"+ok.test", "asked", "CONNECT ok.test:443", "127.0.0.1:443", false},
        {"+ok.test", "asked", "CONNECT ok.test:443", "[::1]:443", false},
        {"+ok.test -203.0.113.0/24", "asked", "CONNECT ok.test:443", "203.0.113.20:443", false},
        {"+ok.test +127.0.0.0/8", "asked", "CONNECT ok.test:443", "127.0.0.1:443", true},
        {"+ok.test +127.0.0.0/8", "asked", "CONNECT ok.test:18080", "127.0.0.1:18080", false},
        {"+ok.test +127.0.0.0/8", "asked", "CONNECT ok.test:18080", "127.9.9.9:18080", false},
        {"+ok.test +0.0.0.0/8", "asked", "CONNECT ok.test:3128", "0.0.0.0:3128", false},
        {"+ok.test", "asked", "CONNECT ok.test:18080", "203.0.113.20:18080", true},
        {"+ok.test", "asked", "CONNECT ok.test:53", "203.0.113.20:53", false},
        {"*", "asked", "GET http://ok.test/", "203.0.113.77:80", true},
        {"*", "asked", "GET http://ok.test/", "100.100.100.200:80", false},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "203.0.113.20:80", true},
        {"+ok.test", "http 203.0.113.20:80", "GET /", "203.0.113.21:80", false},
        {"+ok.test", "raw 203.0.113.20:80", "CONNECT x:80", "203.0.113.20:80", true},
        {"+ok.test", "raw 203.0.113.20:80", "CONNECT x:80", "203.0.113.21:80", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        policy(rows[i].policy);
        who(rows[i].who);
        ask(rows[i].request, strncmp(rows[i].request, "CONNECT", 7) == 0 ? "-" : "ok.test");
        if (t.v.act != ACT_FORWARD)
            fail_msg("%s, %s: %s", rows[i].policy, rows[i].request, said());
        if ((allows(rows[i].address) == WHY_OK) != rows[i].ok)
            fail_msg("%s, %s, %s", rows[i].policy, rows[i].request, rows[i].address);
    }
}

static void exempt_name_servers_may_be_asked_where_a_rule_allows_them(void **state)
{
    static const struct ip exempt = {{[10] = 0xff, [11] = 0xff, 9, 9, 9, 9}};
    (void)state;
    policy("*");
    who("asked");
    t.set.exempt = &exempt;
    t.set.nexempt = 1;
    ask("CONNECT 9.9.9.9:53", "-");
    assert_int_equal(t.v.act, ACT_FORWARD);
    ask("CONNECT 8.8.8.8:53", "-");
    assert_int_equal(t.v.status, 403);
}

/* ---- what a tunnel's client says first */

static enum glance look(struct str bytes, bool late)
{
    struct chunk_pool *pool = chunk_pool_new();
    struct arena scratch;
    struct buf b;
    buf_init(&b, pool);
    buf_str(&b, bytes);
    arena_init(&scratch, NULL, 0);
    enum glance g = egress_gate.look(&t.f, &t.v, &b, late, &scratch);
    arena_done(&scratch);
    buf_clear(&b);
    chunk_pool_free(pool);
    return g;
}

static void connect_to(const char *policy_text, const char *target)
{
    char text[100];
    snprintf(text, sizeof text, "CONNECT %s", target);
    policy(policy_text);
    who("asked");
    ask(text, "-");
    if (t.v.act != ACT_FORWARD)
        fail_msg("%s: %s", text, said());
    ip_of(STR("203.0.113.20"));
    assert_true(addr_parse(STR("203.0.113.20:443"), &t.origin));
    t.f.origin = &t.origin.sa;
}

static void a_tunnel_is_for_the_name_it_was_opened_for(void **state)
{
    char out[HELLO_TEST_BYTES];
    const struct {
        const char *policy, *target;
        struct str sni;
        enum glance g;
    } rows[] = {
        {"+ok.test", "ok.test:443", STR("ok.test"), GLANCE_PASS},
        {"+ok.test", "ok.test:443", STR("OK.test"), GLANCE_PASS},
        {"+ok.test +also.test", "ok.test:443", STR("also.test"), GLANCE_REFUSE},
        {"+ok.test", "ok.test:443", STR("no.test"), GLANCE_REFUSE},
        {"*", "ok.test:443", STR("no.test"), GLANCE_REFUSE},
        {"+ok.test", "ok.test:443", STR("bad name"), GLANCE_REFUSE},
        {"+ok.test", "ok.test:443", STR_NONE, GLANCE_PASS},
        {"+203.0.113.20", "203.0.113.20:443", STR_NONE, GLANCE_PASS},
        {"+ok.test +203.0.113.20", "203.0.113.20:443", STR("ok.test"), GLANCE_PASS},
        {"+203.0.113.20", "203.0.113.20:443", STR("no.test"), GLANCE_REFUSE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        connect_to(rows[i].policy, rows[i].target);
        enum glance g = look(hello_bytes(rows[i].sni, 2000, out), false);
        if (g != rows[i].g)
            fail_msg("%s, %s, %.*s: %d", rows[i].policy, rows[i].target, STR_ARG(rows[i].sni), g);
    }
}

static void a_tunnel_is_looked_at_until_it_can_be_told(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct str hello = hello_bytes(STR("ok.test"), 17, out);
    (void)state;
    connect_to("+ok.test", "ok.test:443");
    for (size_t n = 1; n < hello.n; n++)
        assert_int_equal(look(str_head(hello, n), false), GLANCE_MORE);
    assert_int_equal(look(hello, false), GLANCE_PASS);
}

static void http_in_a_tunnel_is_taken_and_the_rest_passes_unread(void **state)
{
    (void)state;
    connect_to("+ok.test", "ok.test:443");
    assert_int_equal(look(STR("GET / HTTP/1.1\r\nHost: no.test\r\n\r\n"), false), GLANCE_TAKE);
    connect_to("+ok.test", "ok.test:443");
    assert_int_equal(look(STR("SSH-2.0-x\r\n"), false), GLANCE_PASS);
    connect_to("+ok.test", "ok.test:443");
    assert_int_equal(look(STR("\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"), false), GLANCE_REFUSE);
}

static void silence_is_no_answer_and_a_beginning_has_a_deadline(void **state)
{
    char out[HELLO_TEST_BYTES];
    unsigned n = 1;
    (void)state;
    connect_to("+ok.test", "ok.test:443");
    for (int i = 0; i < 100; i++)
        assert_int_equal(look(STR(""), true), GLANCE_MORE);
    assert_int_equal(look(hello_bytes(STR("no.test"), 2000, out), false), GLANCE_REFUSE);
    connect_to("+ok.test", "ok.test:443");
    assert_int_equal(look(STR("GE"), false), GLANCE_MORE);
    while (look(STR("GE"), true) == GLANCE_MORE && n < 100)
        n++;
    assert_int_equal(n, 10000 / GATE_SILENCE_MS);
}

/* As over HTTP/2: what another tunnel of the connection has said is not this one's. */
static void each_tunnel_of_a_connection_is_looked_at(void **state)
{
    char out[HELLO_TEST_BYTES];
    (void)state;
    connect_to("+ok.test", "ok.test:443");
    assert_int_equal(look(hello_bytes(STR("ok.test"), 2000, out), false), GLANCE_PASS);
    ask("CONNECT ok.test:443", "-");
    assert_int_equal(look(hello_bytes(STR("no.test"), 2000, out), false), GLANCE_REFUSE);
}

static void a_redirected_client_that_was_silent_is_still_looked_at(void **state)
{
    char out[HELLO_TEST_BYTES];
    (void)state;
    who("raw 203.0.113.20:443");
    t.caller->silent = true;
    ask("CONNECT x:443", "-");
    assert_string_equal(said(), "to 203.0.113.20 443 raw look");
    assert_int_equal(look(STR(""), true), GLANCE_MORE);
    assert_int_equal(look(hello_bytes(STR("no.test"), 2000, out), false), GLANCE_REFUSE);
    ask("CONNECT x:443", "-");
    assert_int_equal(look(hello_bytes(STR("ok.test"), 2000, out), false), GLANCE_PASS);
    ask("CONNECT x:443", "-");
    assert_int_equal(look(STR("GET / HTTP/1.1\r\n"), false), GLANCE_TAKE);
    ask("CONNECT x:443", "-");
    assert_int_equal(look(STR("EHLO there\r\n"), false), GLANCE_PASS);
}

/* ---- another policy */

static void what_runs_is_judged_again_under_another_policy(void **state)
{
    static const struct {
        const char *who, *request, *before, *after;
        bool stays;
    } rows[] = {
        {"asked", "CONNECT ok.test:443", "+ok.test", "+ok.test +also.test", true},
        {"asked", "CONNECT ok.test:443", "+ok.test", "+also.test", false},
        {"asked", "CONNECT ok.test:443", "+ok.test", "-203.0.113.20 +ok.test", false},
        {"asked", "CONNECT ok.test:443", "+ok.test", "-198.51.100.0/24 +ok.test", true},
        {"asked", "CONNECT 203.0.113.99:443", "+203.0.113.99", "+ok.test", false},
        {"asked", "GET http://ok.test/", "+ok.test", "*", true},
        {"asked", "GET http://ok.test/", "+ok.test", "*-ok.test", false},
        {"asked", "GET http://ok.test/", "+ok.test", "*-203.0.113.0/24", false},
        {"in ok.test:80", "GET /", "+ok.test", "+*.test", true},
        {"in ok.test:80", "GET /", "+ok.test", "-*.test", false},
        {"http 203.0.113.20:80", "GET /", "+ok.test", "+ok.test +x.test", true},
        {"http 203.0.113.20:80", "GET /", "+ok.test", "+also.test", false},
        {"http 203.0.113.20:80", "GET /", "+ok.test", "-203.0.113.20 +ok.test", false},
        {"tls 203.0.113.20:443 ok.test", "CONNECT x:1", "+ok.test", "+ok.test", true},
        {"tls 203.0.113.20:443 ok.test", "CONNECT x:1", "+ok.test", "+also.test", false},
        {"raw 203.0.113.20:443", "CONNECT x:1", "+ok.test", "+203.0.113.0/24", true},
        {"raw 203.0.113.20:443", "CONNECT x:1", "+ok.test", "+198.51.100.0/24", false},
    };
    (void)state;
    assert_true(addr_parse(STR("203.0.113.20:443"), &t.origin));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        policy(rows[i].before);
        who(rows[i].who);
        ask(rows[i].request, strncmp(rows[i].request, "CONNECT", 7) == 0 ? "-" : "ok.test");
        if (t.v.act != ACT_FORWARD)
            fail_msg("%s: %s", rows[i].request, said());
        struct facts f = t.f;
        f.origin = &t.origin.sa;
        f.client = NULL;
        policy(rows[i].after);
        f.snap = t.snap;
        if ((egress_gate.recheck(&f, &t.v) == WHY_OK) != rows[i].stays)
            fail_msg("%s, %s: %s, then %s", rows[i].who, rows[i].request, rows[i].before,
                     rows[i].after);
    }
}

/* A flow lives on past its lease (E5), a new one needs one. */
static void what_was_let_through_outlives_its_lease(void **state)
{
    (void)state;
    who("http 203.0.113.20:80");
    ask("GET /", "ok.test");
    assert_int_equal(t.v.act, ACT_FORWARD);
    t.f.now_ms = NOW + 1000 * 1000;
    struct facts f = t.f;
    assert_int_equal(egress_gate.recheck(&f, &t.v), WHY_OK);
    ask("GET /again", "ok.test");
    assert_int_equal(t.v.act, ACT_FORWARD);
    who("http 203.0.113.20:80");
    ask("GET /", "ok.test");
    assert_int_equal(t.v.status, 421);
}

static void a_name_looked_at_in_a_tunnel_is_asked_about_again(void **state)
{
    char out[HELLO_TEST_BYTES];
    (void)state;
    connect_to("+203.0.113.20 +ok.test", "203.0.113.20:443");
    assert_int_equal(look(hello_bytes(STR("ok.test"), 2000, out), false), GLANCE_PASS);
    assert_int_equal(egress_gate.recheck(&t.f, &t.v), WHY_OK);
    policy("+203.0.113.20");
    assert_int_not_equal(egress_gate.recheck(&t.f, &t.v), WHY_OK);
}

/* ---- an upstream proxy */

static void everything_goes_through_the_upstream_proxy_by_name(void **state)
{
    static const struct dial_parent parent = {.host = {"192.0.2.1", 9}, .port = 3128};
    (void)state;
    t.s.parent = &parent;
    who("http 203.0.113.20:80");
    ask("GET /", "ok.test");
    assert_string_equal(said(), "to ok.test 80");
    assert_ptr_equal(t.v.to.parent, &parent);
    who("tls 203.0.113.20:443 ok.test");
    ask("CONNECT ok.test:443", "-");
    assert_string_equal(said(), "to ok.test 443 raw");
    who("asked");
    ask("CONNECT ok.test:443", "-");
    assert_string_equal(said(), "to ok.test 443 raw look");
    t.origin = (union addr){0};
    assert_true(addr_parse(STR("192.0.2.1:3128"), &t.origin));
    t.f.origin = &t.origin.sa;
    assert_int_equal(egress_gate.recheck(&t.f, &t.v), WHY_OK);
    t.f.origin = NULL;
    ask("CONNECT ok.test:53", "-");
    assert_int_equal(t.v.status, 403);
    who("tls 203.0.113.20:443");
    ask("CONNECT x:443", "-");
    assert_int_equal(t.v.status, 403);
    who("raw 203.0.113.20:80");
    ask("CONNECT x:80", "-");
    assert_int_equal(t.v.status, 403);
}

/* ---- failures and events */

static void a_failure_names_the_host(void **state)
{
    static const struct {
        enum why why;
        enum stage stage;
        const char *said;
    } rows[] = {
        {WHY_DNS, STAGE_DIAL, "502 no address was found: ok.test:443\n"},
        {WHY_DIAL, STAGE_DIAL, "502 cannot connect: ok.test:443\n"},
        {WHY_DEADLINE, STAGE_DIAL, "504 no connection in time: ok.test:443\n"},
        {WHY_DEADLINE, STAGE_WAIT, "504 no answer in time: ok.test:443\n"},
        {WHY_ORIGIN_GONE, STAGE_WAIT, "502 the connection was lost: ok.test:443\n"},
        {WHY_OVERLOAD, STAGE_DIAL, "503 too much is going on: ok.test:443\n"},
        {WHY_DENIED, STAGE_DIAL,
         "403 host denied by egress policy (the name, or all of its addresses): ok.test:443\n"},
    };
    (void)state;
    connect_to("+ok.test", "ok.test:443");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        t.v = (struct verdict){.act = ACT_REPLY};
        egress_gate.failed(&t.f, rows[i].why, rows[i].stage, NULL, &t.a, &t.v);
        assert_string_equal(said(), rows[i].said);
        assert_int_equal(t.v.why, rows[i].why);
    }
    t.f.head = NULL;
    t.f.client = NULL;
    egress_gate.failed(&t.f, WHY_CLIENT_PROTOCOL, STAGE_REQUEST,
                       &(struct http_fault){431, "too large"}, &t.a, &t.v);
    assert_string_equal(said(), "431 too large\n");
}

static void every_decision_is_told_once(void **state)
{
    static const struct {
        const char *who, *request, *host, *told;
    } rows[] = {
        {"asked", "CONNECT ok.test:443", "-", "allow ok.test  443 user:0"},
        {"asked", "CONNECT no.test:443", "-", "denied no.test  443 default"},
        {"http 203.0.113.20:80", "GET /", "ok.test", "allow ok.test 203.0.113.20 80 learned"},
        {"http 203.0.113.20:80", "GET /", "no.test", "denied no.test 203.0.113.20 80 default"},
        {"raw 198.51.100.1:22", "CONNECT x:22", "-", "denied  198.51.100.1 22 default"},
        {"asked", "GET /", "ok.test", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned before = t.ntold;
        who(rows[i].who);
        ask(rows[i].request, rows[i].host);
        assert_string_equal(t.told, rows[i].told);
        assert_int_equal(t.ntold - before, rows[i].told[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(each_request_is_judged_by_all_that_it_names),
        TEST(a_client_that_nobody_knows_is_refused),
        TEST(hosts_that_share_an_address_share_no_connection),
        TEST(what_is_forwarded_keeps_its_host_and_loses_what_was_said_to_a_proxy),
        TEST(a_request_without_a_host_gets_the_address),
        TEST(doh_is_closed_here_as_in_the_kernel),
        TEST(only_addresses_that_the_policy_permits_are_dialled),
        TEST(exempt_name_servers_may_be_asked_where_a_rule_allows_them),
        TEST(a_tunnel_is_for_the_name_it_was_opened_for),
        TEST(a_tunnel_is_looked_at_until_it_can_be_told),
        TEST(http_in_a_tunnel_is_taken_and_the_rest_passes_unread),
        TEST(silence_is_no_answer_and_a_beginning_has_a_deadline),
        TEST(each_tunnel_of_a_connection_is_looked_at),
        TEST(a_redirected_client_that_was_silent_is_still_looked_at),
        TEST(what_runs_is_judged_again_under_another_policy),
        TEST(what_was_let_through_outlives_its_lease),
        TEST(a_name_looked_at_in_a_tunnel_is_asked_about_again),
        TEST(everything_goes_through_the_upstream_proxy_by_name),
        TEST(a_failure_names_the_host),
        TEST(every_decision_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
