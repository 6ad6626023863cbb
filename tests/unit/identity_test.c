/* identity_test.c — one opinion over name, address, target, authority and certificate, on every
 * path.  `api.test` is bound for https and `web.test` for http, `lost.test` was bound by a vault
 * that is gone; leases are as in the table below. */
#include "policies/identity.h"
#include "harness/short_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define API_IP "203.0.113.10"
#define OK_IP "203.0.113.20"
#define WEB_IP "203.0.113.30"
#define OTHER_IP "198.51.100.66"

static const struct {
    const char *name, *ip;
} leases[] = {
    {"api.test", API_IP},          {"ok.test", OK_IP},    {"web.test", WEB_IP},
    {"lost.test", "203.0.113.40"}, {"no.test", OTHER_IP}, {"api.test", "2001:db8::10"},
};

static struct ip ip_of(const char *text)
{
    struct ip ip;
    if (!ip_parse(str_of(text), &ip))
        fail_msg("no address: %s", text);
    return ip;
}

static enum bound is_bound(void *user, struct str name, bool tls)
{
    (void)user;
    if (str_eq(name, STR("lost.test")))
        return BOUND_LOST;
    return str_eq(name, tls ? STR("api.test") : STR("web.test")) ? BOUND_HELD : BOUND_NOT;
}

static bool is_passed(void *user, struct str sni, const struct ip *to, uint16_t port)
{
    (void)user;
    (void)to;
    (void)port;
    return str_eq(sni, STR("API.test"));
}

static bool is_leased(void *user, struct str name, const struct ip *to)
{
    (void)user;
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct ip ip = ip_of(leases[i].ip);
        if (str_eq(name, str_of(leases[i].name)) && ip_eq(&ip, to))
            return true;
    }
    return false;
}

/* As leases_learned() does it, denied names left out. */
static enum learned learned_for(void *user, const struct ip *to)
{
    const struct identity_rules *r = user;
    enum learned best = LEARNED_NOT;
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct ip ip = ip_of(leases[i].ip);
        enum learned l = policy_learns(r->policy, str_of(leases[i].name));
        if (ip_eq(&ip, to) && l > best)
            best = l;
    }
    return best;
}

static struct policy *policy_of(const char *text)
{
    struct document d = short_policy(text);
    struct policy *p = policy_new(NULL, NULL, &d);
    document_done(&d);
    return p;
}

/* A test's rules; user is the rules themselves. */
static struct identity_rules *rules_of_text(const char *policy)
{
    struct identity_rules *r = mem_new(sizeof *r);
    *r = (struct identity_rules){.policy = policy_of(policy),
                                 .bound = is_bound,
                                 .passed = is_passed,
                                 .leased = is_leased,
                                 .learned = learned_for,
                                 .user = r};
    return r;
}

static void rules_done(struct identity_rules *r)
{
    policy_free((struct policy *)(uintptr_t)r->policy);
    mem_free(r);
}

static const char *const usual = "+api.test +ok.test +web.test +lost.test +evil.test";

static const char *fault_word(enum identity i)
{
    static const char *const words[] = {
#define X(id, why, status, text) #id,
        IDENTITY_MAP(X)
#undef X
    };
    return words[i];
}

static const struct host *target_of(const char *text, struct host *h)
{
    if (!text)
        return NULL;
    if (!host_read(str_of(text), h))
        fail_msg("no target: %s", text);
    return h;
}

/* ---- connections */

enum { ALL = 1, INSECURE = 2, PRIVATE = 4, HTTP_ANY = 8 };

static void set_switches(struct identity_rules *r, unsigned switches)
{
    r->scope_all = switches & ALL;
    r->insecure = switches & INSECURE;
    r->private_deny = switches & PRIVATE;
    r->http_any = switches & HTTP_ANY;
}

struct first_row {
    const char *what, *policy; /* NULL: usual */
    enum identity_kind kind;
    const char *sni, *target, *to;
    uint16_t port;
    enum passage passage;
    enum identity fault;
    unsigned switches;
};

static void expect_first(const struct first_row *row)
{
    struct host target;
    struct identity_rules *r = rules_of_text(row->policy ? row->policy : usual);
    set_switches(r, row->switches);
    struct identity_conn c = {.kind = row->kind,
                              .sni = str_of(row->sni),
                              .target = target_of(row->target, &target),
                              .to = ip_of(row->to ? row->to : "::"),
                              .unresolved = !row->to,
                              .port = row->port ? row->port : 443};
    struct identity_first got = identity_first(r, &c);
    if (got.passage != row->passage || got.answer.fault != row->fault)
        fail_msg("%s: passage %d, %s; expected %d, %s", row->what, got.passage,
                 fault_word(got.answer.fault), row->passage, fault_word(row->fault));
    rules_done(r);
}

#define PASS PASSAGE_PASS, IDENTITY_OK
#define INTERCEPT PASSAGE_INTERCEPT, IDENTITY_OK
#define REFUSE(fault) PASSAGE_REFUSE, IDENTITY_##fault
#define OPEN_FOR(fault) PASSAGE_INTERCEPT, IDENTITY_##fault
#define TLS IDENTITY_TLS
#define RAW IDENTITY_RAW
#define HTTP IDENTITY_HTTP

static void a_transparent_connection_needs_its_name_and_its_address(void **state)
{
    static const struct first_row rows[] = {
        {"bound", NULL, TLS, "api.test", NULL, API_IP, 0, INTERCEPT, 0},
        {"bound, IPv6", NULL, TLS, "api.test", NULL, "2001:db8::10", 0, INTERCEPT, 0},
        {"bound, other spelling", NULL, TLS, "api.TEST.", NULL, API_IP, 0, INTERCEPT, 0},
        {"bound, nobody handed it out", NULL, TLS, "api.test", NULL, OTHER_IP, 0, REFUSE(NAMES), 0},
        {"bound, another port", NULL, TLS, "api.test", NULL, API_IP, 8443, PASS, 0},
        {"bound for http only", NULL, TLS, "web.test", NULL, WEB_IP, 0, PASS, 0},
        {"bound and denied", "+ok.test", TLS, "api.test", NULL, API_IP, 0, OPEN_FOR(DENIED), 0},
        {"bound and denied, any address", "+ok.test", TLS, "api.test", NULL, OTHER_IP, 0,
         OPEN_FOR(DENIED), 0},
        {"lost", NULL, TLS, "lost.test", NULL, "203.0.113.40", 0, OPEN_FOR(LOST), 0},
        {"lost, any address", NULL, TLS, "lost.test", NULL, OTHER_IP, 0, OPEN_FOR(LOST), 0},
        {"lost and denied", "+ok.test", TLS, "lost.test", NULL, OTHER_IP, 0, OPEN_FOR(DENIED), 0},
        {"passed by configuration", NULL, TLS, "API.test", NULL, API_IP, 0, PASS, 0},
        {"passed, no lease", NULL, TLS, "API.test", NULL, OTHER_IP, 0, REFUSE(NAMES), 0},
        {"allowed", NULL, TLS, "ok.test", NULL, OK_IP, 0, PASS, 0},
        {"allowed, all are read", NULL, TLS, "ok.test", NULL, OK_IP, 0, INTERCEPT, ALL},
        {"allowed, address of another", NULL, TLS, "ok.test", NULL, API_IP, 0, REFUSE(NAMES), 0},
        {"all are read, no lease", NULL, TLS, "ok.test", NULL, API_IP, 0, REFUSE(NAMES), ALL},
        {"allowed, address by rule", "+ok.test +198.51.100.0/24", TLS, "ok.test", NULL, OTHER_IP, 0,
         PASS, 0},
        {"allowed, address denied", "+ok.test -203.0.113.0/24", TLS, "ok.test", NULL, OK_IP, 0,
         REFUSE(DENIED), 0},
        {"denied", NULL, TLS, "no.test", NULL, OTHER_IP, 0, REFUSE(DENIED), 0},
        {"denied, all are read", NULL, TLS, "no.test", NULL, OTHER_IP, 0, REFUSE(DENIED), ALL},
        {"default allow needs no lease", "*-no.test", TLS, "x.test", NULL, OTHER_IP, 0, PASS, 0},
        {"default allow, name denied", "*-no.test", TLS, "no.test", NULL, OTHER_IP, 0,
         REFUSE(DENIED), 0},
        {"default allow, address denied", "*-198.51.100.0/24", TLS, "x.test", NULL, OTHER_IP, 0,
         REFUSE(DENIED), 0},
        {"not a name", NULL, TLS, "api..test", NULL, API_IP, 0, REFUSE(FORM), 0},
        {"not a name either", NULL, TLS, "api.test:443", NULL, API_IP, 0, REFUSE(FORM), 0},
        {"nor this", NULL, TLS, "[::1]", NULL, API_IP, 0, REFUSE(FORM), 0},
        {"no name, learned for some", NULL, TLS, NULL, NULL, API_IP, 0, PASS, 0},
        {"no name, learned for none", NULL, TLS, NULL, NULL, "198.51.100.1", 0, REFUSE(DENIED), 0},
        {"no name, learned for a denied one", NULL, TLS, NULL, NULL, OTHER_IP, 0, REFUSE(DENIED),
         0},
        {"an address is no name", NULL, TLS, API_IP, NULL, API_IP, 0, PASS, 0},
        {"no name, all are read", NULL, TLS, NULL, NULL, API_IP, 0, PASS, ALL},
        {"no name, all are read unverified", NULL, TLS, NULL, NULL, API_IP, 0, INTERCEPT,
         ALL | INSECURE},
        {"neither TLS nor HTTP", NULL, RAW, NULL, NULL, API_IP, 0, PASS, 0},
        {"the same, no lease", NULL, RAW, NULL, NULL, "198.51.100.1", 0, REFUSE(DENIED), 0},
        {"HTTP is read", NULL, HTTP, NULL, NULL, "198.51.100.1", 80, INTERCEPT, 0},
        {"HTTP is read on any port", NULL, HTTP, NULL, NULL, "198.51.100.1", 443, INTERCEPT, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_first(&rows[i]);
}

static void what_connect_named_is_what_the_hello_names(void **state)
{
    static const struct first_row rows[] = {
        {"bound, no lease needed", NULL, TLS, "api.test", "api.test", OTHER_IP, 0, INTERCEPT, 0},
        {"other spelling", NULL, TLS, "api.test", "API.Test.", OTHER_IP, 0, INTERCEPT, 0},
        {"not resolved yet", NULL, TLS, "api.test", "api.test", NULL, 0, INTERCEPT, 0},
        {"another name, bound", NULL, TLS, "api.test", "evil.test", OTHER_IP, 0, OPEN_FOR(NAMES),
         0},
        {"another name, lost", NULL, TLS, "lost.test", "evil.test", NULL, 0, OPEN_FOR(NAMES), 0},
        {"another name", NULL, TLS, "ok.test", "api.test", API_IP, 0, REFUSE(NAMES), 0},
        {"another name, denied", NULL, TLS, "no.test", "ok.test", OK_IP, 0, REFUSE(NAMES), 0},
        {"the same name", NULL, TLS, "ok.test", "ok.test", OK_IP, 0, PASS, 0},
        {"no name in it", NULL, TLS, NULL, "api.test", API_IP, 0, PASS, 0},
        {"an address, the name leased", NULL, TLS, "api.test", API_IP, API_IP, 0, INTERCEPT, 0},
        {"an address, the name not", NULL, TLS, "api.test", OTHER_IP, OTHER_IP, 0, REFUSE(NAMES),
         0},
        {"resolved to loopback", NULL, TLS, "ok.test", "ok.test", "127.0.0.1", 0, REFUSE(FILTERED),
         0},
        {"something else", NULL, RAW, NULL, "ok.test", OTHER_IP, 0, PASS, 0},
        {"something else, lost", NULL, TLS, "lost.test", "lost.test", NULL, 0, OPEN_FOR(LOST), 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_first(&rows[i]);
}

static void the_explicit_proxy_dials_what_the_policy_and_the_filter_permit(void **state)
{
    static const struct {
        const char *policy, *target, *to; /* to NULL: not resolved yet */
        enum identity fault;
        unsigned switches;
    } rows[] = {
        {NULL, "ok.test", NULL, IDENTITY_OK, 0},
        {NULL, "ok.test", OTHER_IP, IDENTITY_OK, 0},
        {NULL, "no.test", NULL, IDENTITY_DENIED, 0},
        {NULL, "no.test", OTHER_IP, IDENTITY_DENIED, 0},
        {NULL, "ok.test", "169.254.169.254", IDENTITY_FILTERED, 0},
        {NULL, "ok.test", "64:ff9b::a9fe:a9fe", IDENTITY_FILTERED, 0},
        {NULL, "ok.test", "10.7.0.1", IDENTITY_OK, 0},
        {NULL, "ok.test", "10.7.0.1", IDENTITY_FILTERED, PRIVATE},
        {"+ok.test +10.7.0.0/16", "ok.test", "10.7.0.1", IDENTITY_OK, PRIVATE},
        {"+ok.test -10.7.0.0/16", "ok.test", "10.7.0.1", IDENTITY_DENIED, 0},
        {NULL, OTHER_IP, OTHER_IP, IDENTITY_DENIED, 0},
        {NULL, API_IP, API_IP, IDENTITY_OK, 0}, /* learned */
        {"+198.51.100.66", OTHER_IP, OTHER_IP, IDENTITY_OK, 0},
        {"*", OTHER_IP, OTHER_IP, IDENTITY_OK, 0},
        {"*", "169.254.169.254", "169.254.169.254", IDENTITY_FILTERED, 0},
        {"*", "::1", "::1", IDENTITY_FILTERED, 0},
        {"*", "fe80::1", "fe80::1", IDENTITY_FILTERED, 0},
        {"*", "ff02::1", "ff02::1", IDENTITY_FILTERED, 0},
        {"*", "::ffff:a9fe:a9fe", "169.254.169.254", IDENTITY_FILTERED, 0},
        {"*+169.254.169.254", "169.254.169.254", "169.254.169.254", IDENTITY_OK, 0},
        {"*+169.254.169.254", "x.test", "169.254.169.254", IDENTITY_OK, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct host target;
        struct identity_rules *r = rules_of_text(rows[i].policy ? rows[i].policy : usual);
        set_switches(r, rows[i].switches);
        struct identity_conn c = {.target = target_of(rows[i].target, &target),
                                  .unresolved = !rows[i].to,
                                  .to = ip_of(rows[i].to ? rows[i].to : "::"),
                                  .port = 443};
        struct identity_answer got = identity_target(r, &c);
        if (got.fault != rows[i].fault)
            fail_msg("%s, %s to %s: %s, expected %s", rows[i].policy ? rows[i].policy : usual,
                     rows[i].target, rows[i].to, fault_word(got.fault), fault_word(rows[i].fault));
        rules_done(r);
    }
}

/* ---- requests */

struct request_row {
    const char *what, *policy; /* NULL: usual */
    const char *sni;           /* NULL: in clear */
    const char *target, *to;
    uint16_t port;
    const char *names[IDENTITY_NAMES_MAX];
    enum identity fault;
    unsigned switches;
};

static void expect_request(const struct request_row *row)
{
    struct host target, host = {.kind = HOST_NONE};
    struct identity_rules *r = rules_of_text(row->policy ? row->policy : usual);
    set_switches(r, row->switches);
    struct identity_conn c = {.kind = row->sni ? IDENTITY_TLS : IDENTITY_HTTP,
                              .sni = str_of(row->sni),
                              .target = target_of(row->target, &target),
                              .to = ip_of(row->to),
                              .port = row->port  ? row->port
                                      : row->sni ? 443
                                                 : 80};
    struct identity_request q = {.may_lack = strstr(row->what, "HTTP/1.0") != NULL};
    for (unsigned i = 0; i < IDENTITY_NAMES_MAX; i++)
        q.names[i] = str_of(row->names[i]);
    struct identity_answer got = identity_request(r, &c, &q, &host);
    if (got.fault != row->fault)
        fail_msg("%s: %s, expected %s", row->what, fault_word(got.fault), fault_word(row->fault));
    assert_int_equal(host.kind == HOST_NONE, got.fault != IDENTITY_OK);
    rules_done(r);
}

static void every_request_names_the_host_of_its_connection(void **state)
{
    static const struct request_row rows[] = {
        {"same", NULL, "api.test", NULL, API_IP, 0, {"api.test"}, IDENTITY_OK, 0},
        {"with its port", NULL, "api.test", NULL, API_IP, 0, {"api.test:443"}, IDENTITY_OK, 0},
        {"spelling", NULL, "api.Test.", NULL, API_IP, 0, {"API.test.:443"}, IDENTITY_OK, 0},
        {"other port", NULL, "api.test", NULL, API_IP, 0, {"api.test:8443"}, IDENTITY_NAMES, 0},
        {"port 80", NULL, "api.test", NULL, API_IP, 0, {"api.test:80"}, IDENTITY_NAMES, 0},
        {"another", NULL, "api.test", NULL, API_IP, 0, {"ok.test"}, IDENTITY_NAMES, 0},
        {"below it", NULL, "api.test", NULL, API_IP, 0, {"x.api.test"}, IDENTITY_NAMES, 0},
        {"its address", NULL, "api.test", NULL, API_IP, 0, {API_IP}, IDENTITY_NAMES, 0},
        {"two agree",
         NULL,
         "api.test",
         NULL,
         API_IP,
         0,
         {"api.test", "api.test:443"},
         IDENTITY_OK,
         0},
        {"two differ",
         NULL,
         "api.test",
         NULL,
         API_IP,
         0,
         {"api.test", "ok.test"},
         IDENTITY_NAMES,
         0},
        {"third differs",
         NULL,
         "api.test",
         NULL,
         API_IP,
         0,
         {"api.test", NULL, "ok.test"},
         IDENTITY_NAMES,
         0},
        {"malformed beats different",
         NULL,
         "api.test",
         NULL,
         API_IP,
         0,
         {"ok.test", "a..b"},
         IDENTITY_FORM,
         0},
        {"none", NULL, "api.test", NULL, API_IP, 0, {NULL}, IDENTITY_FORM, 0},
        {"HTTP/1.0 over TLS", NULL, "api.test", NULL, API_IP, 0, {NULL}, IDENTITY_FORM, 0},
        {"empty", NULL, "api.test", NULL, API_IP, 0, {""}, IDENTITY_FORM, 0},
        {"brackets", NULL, "ok.test", NULL, OK_IP, 0, {"[ok.test]"}, IDENTITY_FORM, 0},
        {"names before policy", NULL, "api.test", NULL, API_IP, 0, {"no.test"}, IDENTITY_NAMES, 0},
        {"denied meanwhile",
         "+ok.test",
         "api.test",
         NULL,
         API_IP,
         0,
         {"api.test"},
         IDENTITY_DENIED,
         0},
        {"address denied meanwhile",
         "+api.test -203.0.113.0/24",
         "api.test",
         NULL,
         API_IP,
         0,
         {"api.test"},
         IDENTITY_DENIED,
         0},
        {"lost", NULL, "lost.test", NULL, OTHER_IP, 0, {"lost.test"}, IDENTITY_LOST, 0},
        {"lost, names first", NULL, "lost.test", NULL, OTHER_IP, 0, {"ok.test"}, IDENTITY_NAMES, 0},
        {"CONNECT to another",
         NULL,
         "api.test",
         "evil.test",
         OTHER_IP,
         0,
         {"api.test"},
         IDENTITY_NAMES,
         0},
        {"CONNECT to it", NULL, "api.test", "api.test", OTHER_IP, 0, {"api.test"}, IDENTITY_OK, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_request(&rows[i]);
}

static void a_request_in_clear_needs_a_destination_of_its_host(void **state)
{
    static const struct request_row rows[] = {
        {"leased", NULL, NULL, NULL, OK_IP, 0, {"ok.test"}, IDENTITY_OK, 0},
        {"leased, IPv6", NULL, NULL, NULL, "2001:db8::10", 0, {"api.test"}, IDENTITY_OK, 0},
        {"leased to another", NULL, NULL, NULL, API_IP, 0, {"ok.test"}, IDENTITY_NAMES, 0},
        {"bound and leased", NULL, NULL, NULL, WEB_IP, 0, {"web.test:80"}, IDENTITY_OK, 0},
        {"bound, leased to another",
         NULL,
         NULL,
         NULL,
         API_IP,
         0,
         {"web.test"},
         IDENTITY_ENDPOINT,
         0},
        {"the switch opens no address",
         NULL,
         NULL,
         NULL,
         API_IP,
         0,
         {"web.test"},
         IDENTITY_NAMES,
         HTTP_ANY},
        {"bound for https only", NULL, NULL, NULL, OK_IP, 0, {"api.test"}, IDENTITY_NAMES, 0},
        {"bound, other port", NULL, NULL, NULL, API_IP, 8080, {"web.test:8080"}, IDENTITY_NAMES, 0},
        {"lost", NULL, NULL, NULL, OTHER_IP, 0, {"lost.test"}, IDENTITY_LOST, 0},
        {"lost, other port",
         NULL,
         NULL,
         NULL,
         "203.0.113.40",
         8080,
         {"lost.test:8080"},
         IDENTITY_OK,
         0},
        {"denied", NULL, NULL, NULL, OTHER_IP, 0, {"no.test"}, IDENTITY_DENIED, 0},
        {"address denied",
         "+web.test -203.0.113.0/24",
         NULL,
         NULL,
         WEB_IP,
         0,
         {"web.test"},
         IDENTITY_DENIED,
         0},
        {"default allow", "*-no.test", NULL, NULL, OTHER_IP, 0, {"x.test"}, IDENTITY_OK, 0},
        {"default allow, denied",
         "*-no.test",
         NULL,
         NULL,
         OTHER_IP,
         0,
         {"no.test"},
         IDENTITY_DENIED,
         0},
        {"address literal, learned", NULL, NULL, NULL, OK_IP, 0, {OK_IP}, IDENTITY_OK, 0},
        {"address literal, not permitted",
         NULL,
         NULL,
         NULL,
         "198.51.100.1",
         0,
         {"198.51.100.1"},
         IDENTITY_DENIED,
         0},
        {"address literal of elsewhere", "*", NULL, NULL, OK_IP, 0, {API_IP}, IDENTITY_NAMES, 0},
        {"address literal, IPv6",
         "*",
         NULL,
         NULL,
         "2001:db8::10",
         0,
         {"[2001:db8:0::10]:80"},
         IDENTITY_OK,
         0},
        {"HTTP/1.0 without a name", "*", NULL, NULL, OTHER_IP, 0, {NULL}, IDENTITY_OK, 0},
        {"HTTP/1.0 without a name, not permitted",
         NULL,
         NULL,
         NULL,
         OTHER_IP,
         0,
         {NULL},
         IDENTITY_DENIED,
         0},
        {"HTTP/1.1 without a name", "*", NULL, NULL, OTHER_IP, 0, {NULL}, IDENTITY_FORM, 0},
        {"absolute, by the proxy",
         NULL,
         NULL,
         "web.test",
         OTHER_IP,
         0,
         {"web.test", "web.test"},
         IDENTITY_OK,
         0},
        {"absolute, Host differs",
         NULL,
         NULL,
         "web.test",
         OTHER_IP,
         0,
         {"ok.test", "web.test"},
         IDENTITY_NAMES,
         0},
        {"absolute, to loopback",
         NULL,
         NULL,
         "web.test",
         "127.0.0.1",
         0,
         {"web.test", "web.test"},
         IDENTITY_FILTERED,
         0},
        {"HTTP/1.0 through CONNECT", NULL, NULL, "ok.test", OK_IP, 0, {NULL}, IDENTITY_NAMES, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_request(&rows[i]);
}

static void a_connection_outlives_the_lease_of_the_name_it_was_let_through_for(void **state)
{
    struct host held, host;
    struct identity_rules *r = rules_of_text(usual);
    struct identity_conn c = {.kind = IDENTITY_HTTP,
                              .to = ip_of("198.51.100.1"), /* whose lease for ok.test is over */
                              .port = 80,
                              .held = target_of("ok.test", &held)};
    struct identity_request ok = {.names = {STR("ok.test")}}, web = {.names = {STR("web.test")}};
    (void)state;
    assert_int_equal(identity_request(r, &c, &ok, &host).fault, IDENTITY_OK);
    assert_int_equal(identity_request(r, &c, &web, &host).fault, IDENTITY_ENDPOINT);
    c.held = target_of("web.test", &held);
    assert_int_equal(identity_request(r, &c, &web, &host).fault, IDENTITY_OK);
    assert_int_equal(identity_peer(r, &c, &host, STR_NONE, false), IDENTITY_OK);
    assert_int_equal(identity_peer(r, &c, &host, STR_NONE, true), IDENTITY_ENDPOINT);
    rules_done(r);
}

/* ---- peers */

static void a_credential_goes_to_the_proven_host_alone(void **state)
{
    static const struct {
        const char *what, *sni, *host, *to;
        uint16_t port;
        const char *verified;
        bool credential;
        enum identity fault;
        unsigned switches;
    } rows[] = {
        {"verified", "api.test", "api.test", API_IP, 443, "api.test", true, IDENTITY_OK, 0},
        {"spelling", "api.test", "api.test", API_IP, 443, "API.test", true, IDENTITY_OK, 0},
        {"another", "api.test", "api.test", API_IP, 443, "evil.test", true, IDENTITY_UNPROVEN, 0},
        {"not verified", "api.test", "api.test", API_IP, 443, NULL, true, IDENTITY_UNPROVEN, 0},
        {"no credential", "api.test", "api.test", API_IP, 443, NULL, false, IDENTITY_UNPROVEN, 0},
        {"insecure", "api.test", "api.test", API_IP, 443, NULL, false, IDENTITY_OK, INSECURE},
        {"insecure, credential", "api.test", "api.test", API_IP, 443, NULL, true, IDENTITY_UNPROVEN,
         INSECURE},
        {"another port", "api.test", "api.test", API_IP, 8443, "api.test", true, IDENTITY_ENDPOINT,
         0},
        {"clear, leased", NULL, "web.test", WEB_IP, 80, NULL, true, IDENTITY_OK, 0},
        {"clear, not leased", NULL, "web.test", OTHER_IP, 80, NULL, true, IDENTITY_ENDPOINT, 0},
        {"clear, not leased, none", NULL, "web.test", OTHER_IP, 80, NULL, false, IDENTITY_OK, 0},
        {"clear, any", NULL, "web.test", OTHER_IP, 80, NULL, true, IDENTITY_OK, HTTP_ANY},
        {"clear, another port", NULL, "web.test", WEB_IP, 8080, NULL, true, IDENTITY_ENDPOINT, 0},
        {"clear, an address", NULL, WEB_IP, WEB_IP, 80, NULL, true, IDENTITY_ENDPOINT, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct host host;
        struct identity_rules *r = rules_of_text(usual);
        set_switches(r, rows[i].switches);
        struct identity_conn c = {.kind = rows[i].sni ? IDENTITY_TLS : IDENTITY_HTTP,
                                  .sni = str_of(rows[i].sni),
                                  .to = ip_of(rows[i].to),
                                  .port = rows[i].port};
        enum identity got = identity_peer(r, &c, target_of(rows[i].host, &host),
                                          str_of(rows[i].verified), rows[i].credential);
        if (got != rows[i].fault)
            fail_msg("%s: %s, expected %s", rows[i].what, fault_word(got),
                     fault_word(rows[i].fault));
        rules_done(r);
    }
}

static void a_refusal_says_what_decided(void **state)
{
    char text[POLICY_RULE_BYTES];
    struct identity_rules *r = rules_of_text("+ok.test -no.test -203.0.113.0/24");
    struct identity_conn c = {.kind = IDENTITY_TLS, .sni = STR("no.test"), .to = ip_of(OK_IP)};
    (void)state;
    struct identity_answer got = identity_first(r, &c).answer;
    assert_memory_equal(text, "user:1", policy_rule_text(got.by, text));
    c.sni = STR("ok.test");
    got = identity_first(r, &c).answer;
    assert_memory_equal(text, "user:2", policy_rule_text(got.by, text));
    assert_int_equal(identity_why(got.fault), WHY_DENIED);
    assert_int_equal(identity_status(got.fault), 403);
    assert_true(str_starts(identity_text(got.fault), STR("host denied by egress policy")));
    assert_int_equal(identity_status(IDENTITY_NAMES), 421);
    assert_int_equal(identity_why(IDENTITY_ENDPOINT), WHY_IDENTITY);
    rules_done(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transparent_connection_needs_its_name_and_its_address),
        cmocka_unit_test(what_connect_named_is_what_the_hello_names),
        cmocka_unit_test(the_explicit_proxy_dials_what_the_policy_and_the_filter_permit),
        cmocka_unit_test(every_request_names_the_host_of_its_connection),
        cmocka_unit_test(a_request_in_clear_needs_a_destination_of_its_host),
        cmocka_unit_test(a_connection_outlives_the_lease_of_the_name_it_was_let_through_for),
        cmocka_unit_test(a_credential_goes_to_the_proven_host_alone),
        cmocka_unit_test(a_refusal_says_what_decided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
