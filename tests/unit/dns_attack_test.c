/* dns_attack_test.c — floods, loops and clients that mean harm: what they get is bounded, and
 * others are served meanwhile. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_rig.h"
#include "net/udp.h"
#include "net/worker.h"

enum { FLOOD = 1000, BURST = 50 };

/* Asks for so many names below a domain, in bursts that no socket's buffer is too small for, and
 * counts the replies by their code. */
static void flood(struct dns_rig *rig, unsigned n, const char *domain, unsigned rcodes[16])
{
    int fd = dns_rig_client(rig, false);
    for (unsigned i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "n%u.%s", i, domain);
        dns_rig_ask(fd, (uint16_t)i, name);
        if (i % BURST < BURST - 1 && i + 1 < n)
            continue;
        dns_rig_settle(rig);
        for (struct dns_got got; (got = dns_rig_hear(fd)).rcode >= 0;)
            rcodes[got.rcode]++;
    }
    close(fd);
}

static void a_flood_of_denied_names_reaches_nobody(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    unsigned rcodes[16] = {0};
    flood(rig, FLOOD, "evil.test", rcodes);
    assert_int_equal(rcodes[DNS_NXDOMAIN], FLOOD);
    assert_int_equal(rig->denied, FLOOD);
    assert_int_equal(rig->asked, 0);
    assert_int_equal(leases_counts(rig->leases).names, 0);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    dns_rig_free(rig);
}

static void a_flood_at_a_silent_upstream_holds_no_more_than_may_wait(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    unsigned rcodes[16] = {0};
    rig->silent = true;
    flood(rig, FLOOD, "ok.test", rcodes);
    assert_int_equal(dns_service_waiting(rig->dns), dns_rig_limits.in_flight);
    assert_int_equal(rig->asked, dns_rig_limits.in_flight);
    assert_int_equal(rcodes[DNS_SERVFAIL], FLOOD - dns_rig_limits.in_flight);
    rig->silent = false;
    dns_rig_pass(rig, 5200);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    dns_rig_free(rig);
}

/* The table of leases is full after 128; who has one keeps it. */
static void a_flood_of_new_names_leaves_old_ones_alone(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    unsigned rcodes[16] = {0};
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    flood(rig, FLOOD, "ok.test", rcodes);
    assert_int_equal(rcodes[DNS_NOERROR], 127);
    assert_int_equal(rcodes[DNS_SERVFAIL], FLOOD - 127);
    assert_int_equal(leases_counts(rig->leases).leases, 128);
    assert_int_equal(rig->withdrawn, 0);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    dns_rig_free(rig);
}

/* Two servers that answer each other's answers would never stop. */
static void what_is_no_query_is_never_answered(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    uint8_t p[DNS_WRITE_MIN];
    int fd = dns_rig_client(rig, false);
    for (unsigned low = 0; low < 256; low++) {
        size_t n = dns_rig_query(p, 1, low % 2 ? "ok.test" : "evil.test", DNS_A);
        p[2] = 0x80 | (low & 0x7f);
        p[3] = (uint8_t)(low * 7);
        assert_int_equal(send(fd, p, low % 3 ? n : low % 12, 0), low % 3 ? n : low % 12);
        dns_rig_settle(rig);
        assert_int_equal(dns_rig_hear(fd).rcode, -1);
    }
    assert_int_equal(rig->asked, 0);
    assert_int_equal(rig->told, 0);
    close(fd);
    dns_rig_free(rig);
}

/* An upstream list that leads back to us, as a resolv.conf written by the sandbox would. */
static void an_upstream_that_is_ourselves_ends_in_servfail(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct arena a;
    struct str error;
    struct nameserver_list list = {.n = 1, .rounds = 2, .try_ms = 1000};
    arena_init(&a, NULL, 0);
    union addr any = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = udp_bind(&any.sa, &list.addr[0], &a, &error);
    assert_true(fd >= 0);
    struct nameservers *ns = nameservers_new(rig->w, &list);
    struct dns_service *s = dns_service_new(&(struct dns_setup){.w = rig->w,
                                                                .servers = ns,
                                                                .leases = rig->leases,
                                                                .rules = &rig->rules,
                                                                .limits = dns_rig_limits});
    dns_service_udp(s, fd);
    int client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, &list.addr[0].sa, addr_len(&list.addr[0].sa)), 0);
    dns_rig_ask(client, 1, "ok.test");
    dns_rig_pass(rig, 5500);
    assert_int_equal(dns_rig_hear(client).rcode, DNS_SERVFAIL);
    assert_int_equal(dns_service_waiting(s), 0);
    assert_true(counter_get(&dns_service_counters(s)->queries) <= 3); /* its own and two tries */
    close(client);
    dns_service_free(s);
    nameservers_free(ns);
    arena_done(&a);
    dns_rig_free(rig);
}

static bool is_closed(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* It asks for much and reads nothing: it is read no further, and ends. */
static void a_tcp_client_that_reads_nothing_is_held_back_and_cut(void **state)
{
    (void)state;
    struct dns_limits limits = dns_rig_limits;
    limits.tcp_queries = 1000000;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &limits);
    uint8_t p[2 + DNS_WRITE_MIN];
    size_t n = dns_rig_query(p + 2, 7, "evil.test", DNS_A), sent = 0, before;
    int fd = dns_rig_client(rig, true), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    p[0] = 0;
    p[1] = (uint8_t)n;
    do { /* until nothing goes any more */
        before = sent;
        for (ssize_t k = 1; k > 0; sent += k > 0 ? (size_t)k : 0)
            k = send(fd, p + sent % (n + 2), n + 2 - sent % (n + 2), MSG_DONTWAIT);
        dns_rig_settle(rig);
    } while (sent > before && sent < 256u << 20);
    assert_true(sent < 256u << 20);
    assert_true(worker_held(rig->w) < 1u << 20);
    dns_rig_pass(rig, limits.tcp_idle_ms + 1000);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    char rest[65536];
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
    dns_rig_settle(rig);
    assert_true(is_closed(fd));
    close(fd);
    dns_rig_free(rig);
}

/* Connections that say nothing take the places of others for no longer than the first query may
 * take; UDP does not depend on them. */
static void silent_tcp_clients_are_ended(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    int fd[4];
    for (int i = 0; i < 4; i++)
        fd[i] = dns_rig_client(rig, true);
    dns_rig_settle(rig);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    dns_rig_pass(rig, dns_rig_limits.tcp_first_ms + 200);
    for (int i = 0; i < 4; i++) {
        assert_true(is_closed(fd[i]));
        close(fd[i]);
    }
    int late = dns_rig_client(rig, true);
    dns_rig_settle(rig);
    assert_false(is_closed(late));
    close(late);
    dns_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flood_of_denied_names_reaches_nobody),
        cmocka_unit_test(a_flood_at_a_silent_upstream_holds_no_more_than_may_wait),
        cmocka_unit_test(a_flood_of_new_names_leaves_old_ones_alone),
        cmocka_unit_test(what_is_no_query_is_never_answered),
        cmocka_unit_test(an_upstream_that_is_ourselves_ends_in_servfail),
        cmocka_unit_test(a_tcp_client_that_reads_nothing_is_held_back_and_cut),
        cmocka_unit_test(silent_tcp_clients_are_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
