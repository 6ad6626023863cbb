/* gate_test.c — what the gate says of a connection before its first request, and in which version a
 * request goes on (contract ingress 2, 8.1); whole requests are judged by the tables of vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "conf/sources.h"
#include "harness/pems.h"
#include "http/h2head.h"
#include "ingress/gateway.h"
#include "ingress/view.h"
#include "net/worker.h"

static struct {
    struct arena a;
    struct ingress_settings s;
    struct snapshot *snap;
    struct worker *w;
    struct gateway_worker gw;
    struct gateway gateway;
    union addr peer;
    struct conn_info client;
    char dir[64];
} t;

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static void write_file(const char *name, const char *text)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", t.dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    arena_init(&t.a, NULL, 0);
    snprintf(t.dir, sizeof t.dir, "/tmp/gate_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    write_file("a.crt", PEM_ONE_CRT);
    write_file("a.key", PEM_ONE_KEY);
    t.w = worker_new(0);
    t.gw.table = table_new(t.w, NULL, NULL);
    t.gateway.resolver = &static_resolver;
    t.gw.all = &t.gateway;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    table_free(t.gw.table);
    worker_free(t.w);
    snapshot_unref(t.snap);
    arena_done(&t.a);
    snprintf(command, sizeof command, "rm -r %s", t.dir);
    return system(command);
}

/* Words separated by blanks; DIR stands for the folder of pairs. */
static void settings(const char *words)
{
    char *argv[8];
    int argc = 0;
    struct str rest = str_of(words), error;
    for (struct str word; rest.n && str_next(&rest, ' ', &word);) {
        bool dir = str_iends(word, STR("=DIR"));
        struct str z = arena_printf(&t.a, "%.*s%s", dir ? (int)word.n - 3 : (int)word.n, word.p,
                                    dir ? t.dir : "");
        argv[argc++] = (char *)(uintptr_t)z.p;
    }
    struct conf_input in = {argc, argv, no_variables, false};
    enum conf_action action;
    t.s = (struct ingress_settings){0};
    snapshot_unref(t.snap);
    t.snap = NULL;
    if (conf_load(&ingress_schema, &in, &t.a, &t.s, &action, &error) &&
        ingress_settings_check(&t.s, &t.a, &error))
        t.snap = snapshot_build(&t.s.core, &ingress_view_maker, &t.a, &error);
    if (!t.snap)
        fail_msg("%s: %.*s", words, STR_ARG(error));
}

static void client(const char *peer, uint16_t listener)
{
    struct ip ip;
    assert_true(ip_parse(str_of(peer), &ip));
    addr_make(&t.peer, &ip, 1000);
    t.client = (struct conn_info){.peer = &t.peer.sa, .listener = listener};
}

/* ---- begin */

static void expect_begin(const char *peer, uint16_t listener, bool header, bool tls)
{
    client(peer, listener);
    struct begin b = ingress_gate.begin(t.snap, &t.client);
    if (b.proxy_header != header || (b.tls != NULL) != tls)
        fail_msg("%s at %u: header %d, TLS %d", peer, listener, b.proxy_header, b.tls != NULL);
}

static void tls_begins_on_its_port_only(void **state)
{
    (void)state;
    settings("--routes=r --tls-port=8443 --tls-cert-dir=DIR --trusted-proxies=10.0.0.0/8");
    expect_begin("192.0.2.1", 28888, false, false);
    expect_begin("192.0.2.1", 8443, false, true);
    expect_begin("10.0.0.1", 8443, false, true);
    settings("--routes=r");
    expect_begin("192.0.2.1", 28888, false, false);
}

static void a_header_is_awaited_from_trusted_proxies_on_both_ports(void **state)
{
    (void)state;
    settings("--routes=r --tls-port=8443 --tls-cert-dir=DIR --proxy-protocol "
             "--trusted-proxies=10.0.0.0/8,fd00::/8");
    for (int tls = 0; tls < 2; tls++) {
        uint16_t port = tls ? 8443 : 28888;
        expect_begin("10.1.2.3", port, true, tls);
        expect_begin("fd00::1", port, true, tls);
        expect_begin("11.1.2.3", port, false, tls);
        expect_begin("::1", port, false, tls);
    }
}

/* ---- in which version */

static void publish(enum wire wire)
{
    struct endpoint end = {.host = STR("192.0.2.9"), .wire = wire};
    struct sandbox from = {.id = STR("sb"),
                           .state = SANDBOX_RUNNING,
                           .ends = &end,
                           .nends = 1,
                           .until_unix_s = INT64_MAX};
    const struct sandbox *s = sandbox_new(&from);
    table_publish(&t.gw.table, 1, &s, 1, NULL, 0, true, NULL, NULL, NULL);
    for (int i = 0; i < 20; i++)
        worker_turn(t.w);
    sandbox_unref(s);
}

static bool goes_in_h2(const char *content_type)
{
    struct field field = {STR("Content-Type"), str_of(content_type)};
    struct http_head head = {.method = STR("POST"),
                             .scheme = STR("http"),
                             .authority = STR("gw"),
                             .path = STR("/sandboxes/sb/port/80/x"),
                             .length = -1,
                             .fields = &field,
                             .nfields = content_type != NULL};
    struct facts f = {.snap = t.snap, .tables = &t.gw, .client = &t.client, .head = &head};
    struct verdict v;
    client("192.0.2.1", 28888);
    ingress_gate.decide(&f, &t.a, &v);
    assert_int_equal(v.act, ACT_FORWARD);
    return v.h2;
}

static void grpc_goes_in_h2_by_its_content_type(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        bool grpc;
    } cases[] = {
        {"application/grpc", true},
        {"application/grpc+proto", true},
        {"Application/GRPC+JSON", true},
        {"application/grpc;charset=utf-8", true},
        {"application/grpc ; x=1", true},
        {"application/grpc+proto; x=1", true},
        {"application/grpc+", false},
        {"application/grpc-web", false},
        {"application/grpc-web+proto", false},
        {"application/grpcx", false},
        {"application/grp", false},
        {"application/json; x=application/grpc", false},
        {"text/plain", false},
        {"", false},
        {NULL, false},
    };
    settings("--routes=r");
    publish(WIRE_DEFAULT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (goes_in_h2(cases[i].type) != cases[i].grpc)
            fail_msg("%s", cases[i].type ? cases[i].type : "without a type");
}

static void the_route_goes_before_the_setting(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        enum wire wire;
        bool grpc, other;
    } cases[] = {
        {"auto", WIRE_DEFAULT, true, false}, {"auto", WIRE_AUTO, true, false},
        {"auto", WIRE_H1, false, false},     {"auto", WIRE_H2C, true, true},
        {"h1", WIRE_DEFAULT, false, false},  {"h1", WIRE_AUTO, true, false},
        {"h1", WIRE_H1, false, false},       {"h1", WIRE_H2C, true, true},
        {"h2c", WIRE_DEFAULT, true, true},   {"h2c", WIRE_AUTO, true, false},
        {"h2c", WIRE_H1, false, false},      {"h2c", WIRE_H2C, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[64];
        snprintf(words, sizeof words, "--routes=r --backend-protocol=%s", cases[i].setting);
        settings(words);
        publish(cases[i].wire);
        if (goes_in_h2("application/grpc") != cases[i].grpc || goes_in_h2(NULL) != cases[i].other)
            fail_msg("%s, route %d", cases[i].setting, (int)cases[i].wire);
    }
}

/* ---- faults of a head */

static void an_extended_connect_that_nobody_serves_is_named_as_such(void **state)
{
    (void)state;
    struct field fields[] = {{STR(":method"), STR("CONNECT")},
                             {STR(":protocol"), STR("connect-udp")},
                             {STR(":scheme"), STR("http")},
                             {STR(":authority"), STR("gw")},
                             {STR(":path"), STR("/")}};
    struct h2_list list = {fields, 5};
    struct http_head head;
    struct http_fault fault;
    struct facts f = {0};
    struct verdict v = {0};
    assert_int_equal(h2head_request(&list, false, STR("http"), &t.a, &head, &fault),
                     WHY_CLIENT_PROTOCOL);
    ingress_gate.failed(&f, WHY_CLIENT_PROTOCOL, STAGE_REQUEST, &fault, &t.a, &v);
    assert_int_equal(v.status, 501);
    assert_true(str_eq(v.code, STR("protocol_unsupported")));
    assert_true(str_eq(v.message, STR("protocol not supported")));
    fault = (struct http_fault){501, "unknown transfer coding"};
    ingress_gate.failed(&f, WHY_CLIENT_PROTOCOL, STAGE_REQUEST, &fault, &t.a, &v);
    assert_true(str_eq(v.code, STR("bad_request")));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(tls_begins_on_its_port_only),
        T(a_header_is_awaited_from_trusted_proxies_on_both_ports),
        T(grpc_goes_in_h2_by_its_content_type),
        T(the_route_goes_before_the_setting),
        T(an_extended_connect_that_nobody_serves_is_named_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
