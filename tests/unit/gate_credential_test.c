/* gate_credential_test.c — requests to hosts that a vault binds, as the sidecar's gate sees them:
 * what goes on, what is refused and why, what is left of the answer, and that nothing of it stays.
 */
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
#include "egress/vault/lost.h"
#include "harness/short_policy.h"
#include "net/worker.h"

enum { NOW = 1000000 };
#define SECRET "CANARY-7f3a91"

static struct {
    struct arena a;
    struct egress_settings set;
    struct sidecar s;
    struct worker *w;
    struct snapshot *snap;
    struct caller caller;
    struct conn_info client, origin;
    union addr to;
    struct http_head head;
    struct field fields[8];
    struct facts f;
    struct verdict v;
    struct event_credential told; /* the last one */
    unsigned ntold;
    char binding[64], pattern[64];
} t;

/* In the place of the real ones. */
void events_connection(struct events *e, const struct event_connection *c)
{
    (void)e;
    (void)c;
}

void events_credential(struct events *e, const struct event_credential *c)
{
    (void)e;
    t.told = *c;
    t.ntold++;
    snprintf(t.binding, sizeof t.binding, "%.*s", STR_ARG(c->binding));
    snprintf(t.pattern, sizeof t.pattern, "%.*s", STR_ARG(c->pattern));
}

/* ---- a vault */

static struct str any_host(void *user, const struct binding *b, struct str host, struct arena *a)
{
    (void)user;
    (void)b;
    (void)host;
    (void)a;
    return STR("");
}

static struct vault *vault_of(const char *json)
{
    static const struct vault_rules rules = {.body_min = 6};
    static const struct vault_cover cover = {any_host, NULL};
    struct vault_fault fault;
    struct vault_create *c = vault_create_read(str_of(json), &rules, &t.a, &fault);
    struct vault *v = c ? vault_new(c, &rules, &cover, &t.a, &fault) : NULL;
    vault_create_free(c);
    if (!v)
        fail_msg("no vault: %.*s", STR_ARG(fault.text));
    return v;
}

static void on_leased(void *arg, bool ok)
{
    (void)arg;
    assert_true(ok);
}

static void lease(const struct policy *p)
{
    struct gate_learned l = {.n = 1, .at = {{.ttl = 300}}};
    struct gate_rules rules = {.policy = p};
    assert_true(ip_parse(STR("203.0.113.20"), &l.at[0].ip));
    leases_adopt(t.s.leases, &rules, NULL, NOW);
    leases_take(t.s.leases, STR("ok.test"), LEASE_USER, &l, true, NOW, on_leased, NULL);
}

static void view(const char *vault_json, const char *lost_text)
{
    struct document d = short_policy("+ok.test +also.test");
    struct always_lists none = {NULL, NULL, NULL};
    struct egress_view *plain = view_new(&d, &none, 1);
    struct vault *vault = vault_json ? vault_of(vault_json) : NULL;
    struct lost *lost = lost_read(str_of(lost_text));
    struct egress_view *bound = view_with_vault(plain, vault), *all = view_with_lost(bound, lost);
    snapshot_unref(t.snap);
    t.f.snap = t.snap = view_snapshot(&t.set.core, all);
    lease(all->policy);
    view_unref(all);
    view_unref(bound);
    view_unref(plain);
    vault_unref(vault);
    lost_unref(lost);
    document_done(&d);
}

#define CREDENTIALS "\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":\"" SECRET "\"}}]"
#define MATCH "\"match\":{\"hosts\":[\"ok.test\"],\"paths\":[\"/v1/*\"]}"
#define BEARER                                                                                \
    "{" CREDENTIALS ",\"bindings\":[{\"name\":\"b\"," MATCH ",\"auth\":{\"type\":\"bearer\"," \
    "\"credential\":\"k\"}}]}"
#define FILLED                                                                                 \
    "{" CREDENTIALS ",\"bindings\":[{\"name\":\"b\"," MATCH ",\"auth\":{\"type\":"             \
    "\"passthrough\",\"substitutions\":[{\"credential\":\"k\",\"placeholder\":\"PH\",\"in\":[" \
    "\"path\",\"header\",\"body\"]}]}}]}"

static int setup(void **state)
{
    static const struct leases_limits limits = {64, 1024};
    (void)state;
    memset(&t, 0, sizeof t);
    arena_init(&t.a, NULL, 0);
    t.set = (struct egress_settings){
        .mode = EGRESS_DNS_NFT, .scrub_bodies = true, .scrub_body_min = 6, .body_max = 32};
    t.w = worker_new(0);
    t.s = (struct sidecar){.set = &t.set, .w = t.w, .events = (struct events *)&t};
    t.s.leases = leases_new(&limits, NULL);
    t.f = (struct facts){.tables = &t.s,
                         .client = &t.client,
                         .head = &t.head,
                         .request_id = STR("r1"),
                         .now_ms = NOW};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    leases_free(t.s.leases);
    snapshot_unref(t.snap);
    worker_free(t.w);
    arena_done(&t.a);
    return 0;
}

/* ---- a request on a connection that is read */

static void came_for(const char *sni)
{
    t.caller = (struct caller){.way = WAY_TRANSPARENT, .read = true};
    t.caller.c = (struct identity_conn){.kind = IDENTITY_TLS, .port = 443};
    assert_true(ip_parse(STR("203.0.113.20"), &t.caller.c.to));
    assert_true(caller_set_sni(&t.caller, str_of(sni)));
    addr_make(&t.to, &t.caller.c.to, 443);
    t.client = (struct conn_info){.note = &t.caller, .tls = true, .alpn = STR("h2")};
    t.origin = (struct conn_info){.peer = &t.to.sa, .tls = true, .verified = str_of(sni)};
}

static void field(const char *name, const char *value)
{
    t.fields[t.head.nfields++] = (struct field){str_of(name), str_of(value)};
}

static void request(const char *method, const char *path, const char *host)
{
    t.head = (struct http_head){.method = str_of(method),
                                .path = str_of(path),
                                .authority = str_of(host),
                                .length = -1,
                                .fields = t.fields};
}

static void decide(void)
{
    egress_gate.decide(&t.f, &t.a, &t.v);
    egress_gate.judged(t.w, &t.f, &t.v, 0);
}

static void go_out(void)
{
    assert_int_equal(egress_gate.peer(&t.f, &t.v, &t.origin), WHY_OK);
}

static void over(int status)
{
    t.f.client = NULL;
    egress_gate.over(t.w, &t.f, &t.v, WHY_OK, status);
    t.f.client = &t.client;
}

static struct str sent(const char *name)
{
    const struct str *v = head_get(t.v.head, str_of(name));
    return v ? *v : STR("(none)");
}

static void expect_text(struct str got, const char *want)
{
    if (!str_eq(got, str_of(want)))
        fail_msg("\"%.*s\", not \"%s\"", STR_ARG(got), want);
}

static void usual(const char *method, const char *path)
{
    came_for("ok.test");
    request(method, path, "ok.test");
    field("Authorization", "Bearer fake");
    field("Accept-Encoding", "deflate, gzip");
}

/* ---- what goes on */

static void a_request_gets_the_field_of_its_binding_in_place_of_its_own(void **state)
{
    (void)state;
    view(BEARER, "");
    usual("GET", "/v1/x");
    decide();
    assert_int_equal(t.v.act, ACT_FORWARD);
    expect_text(sent("authorization"), "Bearer " SECRET);
    assert_true(secret_covers(sent("authorization").p));
    expect_text(sent("accept-encoding"), "gzip");
    expect_text(t.v.head->scheme, "https");
    expect_text(t.v.to.tls_name, "ok.test");
    assert_true(t.v.any && t.v.to.tls_h2 && t.v.hold == 0);
    go_out();
    over(200);
    assert_int_equal(t.told.decision, CREDENTIAL_INJECTED);
    assert_string_equal(t.binding, "b");
    assert_string_equal(t.pattern, "/v1/*");
}

static void a_request_outside_of_every_binding_goes_as_it_is(void **state)
{
    (void)state;
    view(BEARER, "");
    usual("GET", "/v2/../x");
    decide();
    expect_text(sent("authorization"), "Bearer fake");
    expect_text(sent("accept-encoding"), "gzip");
    over(200);
    assert_int_equal(t.told.decision, CREDENTIAL_NO_MATCH);
    view("{" CREDENTIALS "}", "");
    usual("GET", "/v1/x");
    decide();
    expect_text(sent("authorization"), "Bearer fake");
    expect_text(sent("accept-encoding"), "deflate, gzip");
    over(200);
    assert_int_equal(t.ntold, 1); /* of hosts that are not bound nothing is told */
}

static void each_refusal_says_why(void **state)
{
    static const struct {
        const char *vault, *lost, *sni, *host, *path;
        int status;
        const char *text;
        enum credential_decision decision;
    } rows[] = {
        {BEARER, "", "ok.test", "ok.test", "/v1/../x", 403,
         "request path contains ambiguous segments\n", CREDENTIAL_DENIED},
        {FILLED, "", "ok.test", "ok.test", "/v1/PH%2fx", 403,
         "request path contains ambiguous substituted segments\n", CREDENTIAL_DENIED},
        {BEARER, "", "ok.test", "also.test", "/v1/x", 421,
         "request authority does not match the intercepted destination: also.test\n",
         CREDENTIAL_MISMATCH},
        {BEARER, "", "ok.test", "", "/v1/x", 400, "request authority is missing or malformed\n",
         CREDENTIAL_MISMATCH},
        {NULL, "https ok.test\n", "ok.test", "ok.test", "/v1/x", 503,
         "credential proxy unavailable: ok.test\n", CREDENTIAL_DENIED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        view(rows[i].vault, rows[i].lost);
        came_for(rows[i].sni);
        request("GET", rows[i].path, rows[i].host);
        decide();
        assert_int_equal(t.v.act, ACT_LOCAL);
        assert_int_equal(t.v.status, rows[i].status);
        expect_text(t.v.body, rows[i].text);
        over(t.v.status);
        assert_int_equal(t.ntold, i + 1);
        assert_int_equal(t.told.decision, rows[i].decision);
        assert_non_null(t.told.cause);
    }
}

static void what_gets_too_long_by_its_placeholders_is_refused(void **state)
{
    enum { MANY = 400000 };
    char *many = arena_get(&t.a, 2 * MANY + 1);
    (void)state;
    for (size_t i = 0; i < MANY; i++)
        memcpy(many + 2 * i, "PH", 2);
    many[2 * MANY] = 0;
    view(FILLED, "");
    usual("GET", "/v1/x");
    field("X-Key", many);
    decide();
    assert_int_equal(t.v.status, 431);
    over(431);
    assert_int_equal(t.told.decision, CREDENTIAL_DENIED);
}

/* What is made for requests is bounded for all of them together; fields that a binding sets are not
 * made for one. */
static void no_more_is_put_together_than_memory_may_hold(void **state)
{
    char *bytes;
    (void)state;
    for (int sets = 0; sets < 2; sets++) {
        view(sets ? BEARER : FILLED, "");
        struct secret *others = secret_make((128 << 20) + 1, &bytes);
        usual("GET", "/v1/x");
        field("X-Key", "PH");
        decide();
        assert_int_equal(t.v.act, sets ? ACT_FORWARD : ACT_LOCAL);
        assert_int_equal(t.v.status, sets ? 0 : 503);
        over(t.v.status);
        secret_unref(others);
        decide();
        assert_int_equal(t.v.act, ACT_FORWARD);
        over(200);
    }
}

static void only_a_peer_that_has_proved_the_host_gets_the_request(void **state)
{
    static const struct {
        const char *verified;
        enum why why;
    } rows[] = {{"ok.test", WHY_OK}, {"OK.test", WHY_OK}, {"also.test", WHY_TLS}, {"", WHY_TLS}};
    (void)state;
    view(BEARER, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        usual("GET", "/v1/x");
        t.origin.verified = str_of(rows[i].verified);
        decide();
        assert_int_equal(egress_gate.peer(&t.f, &t.v, &t.origin), rows[i].why);
        over(0);
        assert_int_equal(t.told.decision, rows[i].why ? CREDENTIAL_MISMATCH : CREDENTIAL_INJECTED);
    }
    usual("GET", "/v1/x");
    t.origin.tls = false;
    decide();
    assert_int_equal(egress_gate.peer(&t.f, &t.v, &t.origin), WHY_TLS);
    over(0);
}

static void what_never_left_was_not_injected(void **state)
{
    (void)state;
    view(BEARER, "");
    usual("GET", "/v1/x");
    decide();
    egress_gate.over(t.w, &t.f, &t.v, WHY_DIAL, 502);
    assert_int_equal(t.told.decision, CREDENTIAL_DENIED);
    assert_string_equal(t.told.cause, "dial");
}

/* ---- bodies of requests */

static void held(const char *text, bool whole)
{
    struct buf body;
    buf_init(&body, worker_pool(t.w));
    buf_str(&body, str_of(text));
    egress_gate.held(&t.f, &t.v, &body, whole, &t.a);
    char *p = arena_get(&t.a, body.len + 1);
    buf_peek(&body, p, body.len);
    p[body.len] = 0;
    buf_clear(&body);
    t.v.message = str_of(p); /* a place that nobody else uses here */
}

static void a_body_is_held_only_where_a_binding_looks_into_it(void **state)
{
    static const struct {
        const char *vault, *type, *coding;
        size_t hold;
    } rows[] = {
        {BEARER, "text/plain", "identity", 0},
        {FILLED, "text/plain", "identity", 32},
        {FILLED, "multipart/form-data; boundary=x", "identity", 1},
        {FILLED, "text/plain", "gzip", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        view(rows[i].vault, "");
        usual("POST", "/v1/x");
        field("Content-Type", rows[i].type);
        field("Content-Encoding", rows[i].coding);
        decide();
        assert_int_equal(t.v.hold, rows[i].hold);
        over(200);
    }
}

static void placeholders_in_a_body_are_filled_in(void **state)
{
    (void)state;
    view(FILLED, "");
    usual("POST", "/v1/x");
    field("Content-Type", "text/plain");
    decide();
    held("a PH b", true);
    expect_text(t.v.message, "a " SECRET " b");
    assert_int_equal(t.v.head->length, strlen(SECRET) + 4);
    go_out();
    over(200);
    assert_int_equal(t.told.surfaces, SURFACE_BODY);
    assert_false(t.told.missed);
}

static void a_body_that_is_too_long_passes_or_is_refused(void **state)
{
    (void)state;
    view(FILLED, "");
    for (int refuse = 0; refuse < 2; refuse++) {
        t.set.body_oversize = refuse ? EGRESS_OVERSIZE_REFUSE : EGRESS_OVERSIZE_PASS;
        usual("POST", "/v1/x");
        decide();
        held("PH", false);
        assert_int_equal(t.v.act, refuse ? ACT_LOCAL : ACT_FORWARD);
        assert_int_equal(t.v.status, refuse ? 413 : 0);
        over(t.v.status);
        assert_true(t.told.skipped);
    }
}

/* ---- answers */

static struct answer answered(int status, const char *coding, bool end, enum why want)
{
    static struct field fields[8];
    struct http_head *h = arena_zero(&t.a, sizeof *h);
    struct answer ret = {NULL, NULL};
    fields[0] = (struct field){STR("X-Echo"), STR("<" SECRET ">")};
    fields[1] = (struct field){STR("Alt-Svc"), STR("h3=\":443\"")};
    fields[2] = (struct field){STR("Content-Encoding"), str_of(coding)};
    fields[3] = (struct field){STR("Digest"), STR("sha-256=x")};
    *h = (struct http_head){.status = status, .length = 9, .fields = fields, .nfields = 4};
    assert_int_equal(egress_gate.answer(&t.f, &t.v, h, end, &t.a, &ret), want);
    return ret;
}

static void drop(struct answer *a)
{
    if (a->filter)
        a->filter->ops->free(a->filter);
    a->filter = NULL;
}

static void answers_of_bound_hosts_lose_secrets_and_hints(void **state)
{
    (void)state;
    view(BEARER, "");
    usual("GET", "/v2"); /* without a credential of its own, too */
    decide();
    struct answer a = answered(200, "", false, WHY_OK);
    expect_text(*head_get(a.head, STR("x-echo")), "<[REDACTED]>");
    assert_null(head_get(a.head, STR("alt-svc")));
    assert_non_null(head_get(a.head, STR("digest")));
    assert_int_equal(a.head->length, 9);
    assert_non_null(a.filter);
    drop(&a);
    a = answered(200, "gzip", false, WHY_OK);
    assert_null(head_get(a.head, STR("digest")));
    assert_int_equal(a.head->length, -1);
    assert_non_null(a.filter);
    drop(&a);
    a = answered(200, "gzip", true, WHY_OK); /* HEAD */
    assert_non_null(head_get(a.head, STR("digest")));
    assert_null(a.filter);
    a = answered(103, "", false, WHY_OK);
    expect_text(*head_get(a.head, STR("x-echo")), "<[REDACTED]>");
    assert_null(a.filter);
    answered(200, "rot13", false, WHY_VAULT);
    over(200);
}

static void a_bound_host_is_not_switched_to_what_cannot_be_scrubbed(void **state)
{
    (void)state;
    view(BEARER, "");
    for (int websocket = 0; websocket < 2; websocket++) {
        usual("GET", "/v1/x");
        t.head.protocol = websocket ? STR("websocket") : STR("h2");
        decide();
        assert_int_equal(t.v.head->protocol.n, websocket ? 9 : 0);
        over(200);
    }
}

static void answers_of_other_hosts_stay(void **state)
{
    (void)state;
    view("{" CREDENTIALS "}", "");
    usual("GET", "/v1/x");
    t.caller.read = false;
    t.caller.c.kind = IDENTITY_HTTP;
    t.caller.c.port = 80;
    t.caller.c.sni = STR_NONE;
    decide();
    struct answer a = answered(200, "rot13", false, WHY_OK);
    assert_int_equal(a.head->nfields, 4);
    assert_null(a.filter);
    over(200);
}

static void trailers_lose_credentials_on_both_ways(void **state)
{
    struct field fields[] = {{STR("Authorization"), STR("mine")}, {STR("X-Late"), STR(SECRET)}};
    struct http_head h = {.fields = fields, .nfields = 2};
    (void)state;
    view(BEARER, "");
    usual("POST", "/v1/x");
    decide();
    const struct http_head *up = egress_gate.trailers(&t.f, &t.v, &h, true, &t.a);
    assert_null(head_get(up, STR("authorization")));
    assert_int_equal(up->nfields, 1);
    const struct http_head *down = egress_gate.trailers(&t.f, &t.v, &h, false, &t.a);
    expect_text(*head_get(down, STR("x-late")), "[REDACTED]");
    over(200);
}

/* ---- the rest */

static void nothing_secret_outlives_its_exchange(void **state)
{
    (void)state;
    view(FILLED, "");
    size_t before = secret_held();
    usual("POST", "/v1/x?PH");
    field("Authorization", "Basic UEg6eA==");
    field("X-Key", "PH");
    decide();
    held("PH", true);
    assert_true(secret_held() > before);
    expect_text(sent("x-key"), SECRET);
    struct answer a = answered(200, "", false, WHY_OK);
    assert_non_null(a.filter);
    drop(&a);
    over(200);
    assert_int_equal(secret_held(), before);
}

static void a_tunnel_that_will_be_read_dials_later(void **state)
{
    static const struct {
        const char *vault, *lost, *target;
        bool late;
    } rows[] = {
        {BEARER, "", "ok.test:443", true},
        {BEARER, "", "ok.test:8443", false},
        {BEARER, "", "also.test:443", false},
        {NULL, "https ok.test\n", "ok.test:443", true},
        {NULL, "http ok.test\n", "ok.test:80", true},
        {NULL, "", "ok.test:443", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        view(rows[i].vault, rows[i].lost);
        t.caller = (struct caller){.way = WAY_EXPLICIT, .served = true};
        t.client = (struct conn_info){.note = &t.caller};
        request("CONNECT", "", rows[i].target);
        decide();
        assert_true(t.v.act == ACT_FORWARD && t.v.raw && t.v.look);
        if (t.v.late != rows[i].late)
            fail_msg("%s: late %d", rows[i].target, t.v.late);
        over(200);
    }
}

static void what_is_passed_on_ends_when_its_host_becomes_bound(void **state)
{
    (void)state;
    view(NULL, "");
    came_for("ok.test");
    t.caller.read = false;
    request("CONNECT", "", "ok.test:443");
    decide();
    assert_true(t.v.raw);
    assert_int_equal(egress_gate.recheck(&t.f, &t.v), WHY_OK);
    view(BEARER, "");
    assert_int_equal(egress_gate.recheck(&t.f, &t.v), WHY_REVOKED);
    over(0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_request_gets_the_field_of_its_binding_in_place_of_its_own),
        TEST(a_request_outside_of_every_binding_goes_as_it_is),
        TEST(each_refusal_says_why),
        TEST(what_gets_too_long_by_its_placeholders_is_refused),
        TEST(no_more_is_put_together_than_memory_may_hold),
        TEST(only_a_peer_that_has_proved_the_host_gets_the_request),
        TEST(what_never_left_was_not_injected),
        TEST(a_body_is_held_only_where_a_binding_looks_into_it),
        TEST(placeholders_in_a_body_are_filled_in),
        TEST(a_body_that_is_too_long_passes_or_is_refused),
        TEST(answers_of_bound_hosts_lose_secrets_and_hints),
        TEST(a_bound_host_is_not_switched_to_what_cannot_be_scrubbed),
        TEST(answers_of_other_hosts_stay),
        TEST(trailers_lose_credentials_on_both_ways),
        TEST(nothing_secret_outlives_its_exchange),
        TEST(a_tunnel_that_will_be_read_dials_later),
        TEST(what_is_passed_on_ends_when_its_host_becomes_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
