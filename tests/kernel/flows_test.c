/* flows_test.c — flows that lost their permission end at once and for good; all others live on
 * undisturbed. */
#include "egress/kernel/flows.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernel/fixture.h"

#define LOST "198.51.100.10"
#define KEPT "198.51.100.20"

static struct netns ns;
static struct flows *flows;

static int permitted(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    fixture_apply(&ns, &r);
    fixture_nft(&ns, "add element inet opensandbox learned4 { " LOST ", " KEPT " }; "
                     "add element inet opensandbox learned6 { 2001:db8::10, 2001:db8::20 }");
    return 0;
}

/* ---- helpers */

/* A flow, both its ends, and for TCP the listener. */
struct pair {
    int listener, near, far;
};

static struct pair open_tcp(const char *ip, uint16_t port)
{
    struct pair p = {.listener = netns_listen(ns.outside, SOCK_STREAM, ip, port)};
    p.near = fixture_connect(&ns, SOCK_STREAM, ip, port);
    assert_true(p.near >= 0 && netns_readable(p.listener, 500));
    p.far = accept4(p.listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(p.far >= 0);
    return p;
}

/* A UDP flow that is established: a word each way. */
static struct pair open_udp(const char *ip, uint16_t port)
{
    struct pair p = {-1, -1, netns_listen(ns.outside, SOCK_DGRAM, ip, port)};
    union addr from;
    socklen_t len = sizeof from;
    char byte;
    p.near = fixture_connect(&ns, SOCK_DGRAM, ip, port);
    assert_int_equal(send(p.near, "a", 1, 0), 1);
    assert_true(netns_readable(p.far, 500));
    assert_int_equal(recvfrom(p.far, &byte, 1, 0, &from.sa, &len), 1);
    assert_int_equal(connect(p.far, &from.sa, len), 0);
    assert_int_equal(send(p.far, "b", 1, 0), 1);
    assert_true(netns_readable(p.near, 500));
    assert_int_equal(recv(p.near, &byte, 1, 0), 1);
    return p;
}

static void close_pair(const struct pair *p)
{
    close(p->near);
    close(p->far);
    if (p->listener >= 0)
        close(p->listener);
}

static bool says(int from, int at)
{
    char got[8];
    return send(from, "word", 4, MSG_NOSIGNAL) == 4 && netns_readable(at, 300) &&
           recv(at, got, sizeof got, 0) == 4;
}

static int error_of(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int error = 0;
    socklen_t len = sizeof error;
    poll(&p, 1, ms);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    return error;
}

static bool keep_all_but_lost(void *user, const struct flow *flow)
{
    struct ip v4, v6;
    unsigned *asked = user;
    ++*asked;
    return ip_parse(STR(LOST), &v4) && ip_parse(STR("2001:db8::10"), &v6) &&
           !ip_eq(&flow->dst, &v4) && !ip_eq(&flow->dst, &v6);
}

/* What a change does: the permission goes, then the flows. */
static unsigned withdraw(void)
{
    unsigned cut, asked = 0;
    fixture_nft(&ns, "delete element inet opensandbox learned4 { " LOST " }; "
                     "delete element inet opensandbox learned6 { 2001:db8::10 }");
    netns_enter(ns.inside);
    int error = flows_cut(flows, keep_all_but_lost, &asked, &cut);
    netns_enter(ns.home);
    assert_int_equal(error, 0);
    return cut;
}

static uint16_t port_of(int fd)
{
    union addr a;
    socklen_t len = sizeof a;
    assert_int_equal(getsockname(fd, &a.sa, &len), 0);
    return addr_port(&a.sa);
}

/* ---- what ends */

static void a_tcp_flow_ends_on_both_sides(void **state)
{
    struct pair v4 = open_tcp(LOST, 7000), v6 = open_tcp("2001:db8::10", 7000);
    (void)state;
    assert_int_equal(withdraw(), 2);
    assert_int_equal(error_of(v4.near, 100), ECONNABORTED);
    assert_int_equal(error_of(v6.near, 100), ECONNABORTED);
    assert_int_equal(error_of(v4.far, 100), ECONNRESET);
    assert_int_equal(error_of(v6.far, 100), ECONNRESET);
    close_pair(&v4);
    close_pair(&v6);
}

static void a_flow_that_only_receives_ends_too(void **state)
{
    struct pair p = open_tcp(LOST, 7001);
    char data[4096] = {0};
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        assert_true(send(p.far, data, sizeof data, MSG_NOSIGNAL) > 0);
    assert_int_equal(withdraw(), 1);
    assert_int_equal(error_of(p.far, 200), ECONNRESET);
    close_pair(&p);
}

static void a_connected_udp_flow_ends(void **state)
{
    struct pair p = open_udp(LOST, 7002), v6 = open_udp("2001:db8::10", 7002);
    char what[160];
    (void)state;
    assert_int_equal(withdraw(), 2);
    assert_int_equal(error_of(p.near, 100), ECONNABORTED);
    assert_int_equal(error_of(v6.near, 100), ECONNABORTED);
    netns_tap_forget(&ns);
    assert_true(send(p.near, "x", 1, 0) < 0);
    assert_int_equal(netns_tap_count(&ns, 15, what), 0);
    close_pair(&p);
    close_pair(&v6);
}

/* A socket that talks to many keeps its other peers; the lost one is held by the mark. */
static void an_unconnected_udp_socket_loses_one_peer_only(void **state)
{
    int near = netns_listen(ns.inside, SOCK_DGRAM, INSIDE4, 7003);
    int lost = netns_listen(ns.outside, SOCK_DGRAM, LOST, 7003);
    int kept = netns_listen(ns.outside, SOCK_DGRAM, KEPT, 7003);
    union addr to_lost = netns_addr(LOST, 7003), to_kept = netns_addr(KEPT, 7003),
               me = netns_addr(INSIDE4, 7003);
    char byte;
    (void)state;
    sendto(near, "x", 1, 0, &to_lost.sa, sizeof to_lost.v4);
    sendto(near, "x", 1, 0, &to_kept.sa, sizeof to_kept.v4);
    assert_true(netns_readable(lost, 300) && netns_readable(kept, 300));
    assert_int_equal(sendto(lost, "y", 1, 0, &me.sa, sizeof me.v4), 1);
    assert_int_equal(sendto(kept, "y", 1, 0, &me.sa, sizeof me.v4), 1);
    assert_true(netns_readable(near, 300));
    assert_true(recv(near, &byte, 1, 0) == 1 && recv(near, &byte, 1, 0) == 1);
    assert_int_equal(recv(lost, &byte, 1, 0), 1);
    assert_int_equal(withdraw(), 1);
    assert_true(sendto(near, "x", 1, 0, &to_lost.sa, sizeof to_lost.v4) < 0);
    assert_int_equal(sendto(lost, "y", 1, 0, &me.sa, sizeof me.v4), 1);
    assert_false(netns_readable(lost, 30) || netns_readable(near, 30));
    assert_int_equal(sendto(near, "x", 1, 0, &to_kept.sa, sizeof to_kept.v4), 1);
    assert_int_equal(sendto(kept, "y", 1, 0, &me.sa, sizeof me.v4), 1);
    assert_true(netns_readable(near, 300));
    close(near);
    close(lost);
    close(kept);
}

static void an_open_ping_ends(void **state)
{
    struct attempt ping = {"ping", try_ping, LOST, 0, AS_USER, 0, 0};
    (void)state;
    assert_int_equal(attempt_as(&ns, &ping, AS_USER), REACHED);
    assert_int_equal(withdraw(), 1);
    assert_int_equal(attempt_as(&ns, &ping, AS_USER), ANSWERED);
}

/* With the same numbers, and the rights to write them. */
static int forge(const struct pair *p, bool tcp)
{
    uint16_t port = port_of(p->near);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        netns_enter(ns.inside);
        become(AS_RAW);
        if (tcp) {
            send_forged_tcp(INSIDE4, port, LOST, 7004, TH_ACK | TH_PUSH, 12345);
            send_forged_tcp(INSIDE4, port, LOST, 7004, TH_RST, 12345);
            send_forged_tcp(INSIDE4, port, LOST, 7004, TH_SYN, 12345);
        } else
            send_forged_udp(INSIDE4, port, LOST, 7004, "still here");
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid;
}

static void raw_sockets_cannot_go_on_with_a_cut_flow(void **state)
{
    char what[160];
    (void)state;
    for (unsigned tcp = 0; tcp < 2; tcp++) {
        permitted(NULL);
        struct pair p = tcp ? open_tcp(LOST, 7004) : open_udp(LOST, 7004);
        forge(&p, tcp);
        assert_true(netns_tap_count(&ns, 15, what) > 0);
        /* A second flow, so that the first is not the one on which we tried. */
        close_pair(&p);
        p = tcp ? open_tcp(LOST, 7004) : open_udp(LOST, 7004);
        assert_true(withdraw() >= 1);
        netns_tap_count(&ns, 15, what);
        forge(&p, tcp);
        if (netns_tap_count(&ns, 15, what) != 0)
            fail_msg("%s", what);
        close_pair(&p);
    }
}

static bool forget_all_entries(void)
{
    struct {
        struct nlmsghdr head;
        struct nfgenmsg netfilter;
    } m = {.head = {.nlmsg_len = sizeof m,
                    .nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE,
                    .nlmsg_flags = NLM_F_REQUEST}};
    netns_enter(ns.inside);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    bool sent = send(fd, &m, sizeof m, 0) == sizeof m;
    close(fd);
    netns_enter(ns.home);
    return sent;
}

/* The reason why entries are marked and never deleted: the next packet of the peer makes a new one.
 */
static void a_peer_cannot_revive_a_flow_whose_entry_is_gone(void **state)
{
    struct pair p = open_tcp(LOST, 7005);
    unsigned asked = 0, cut;
    char what[160];
    (void)state;
    fixture_nft(&ns, "delete element inet opensandbox learned4 { " LOST " }");
    assert_true(forget_all_entries());
    assert_int_equal(send(p.far, "more", 4, MSG_NOSIGNAL), 4);
    assert_true(netns_readable(p.near, 300));
    netns_tap_forget(&ns);
    (void)!send(p.near, "answer", 6, MSG_NOSIGNAL);
    netns_tap_count(&ns, 30, what);
    assert_false(netns_readable(p.far, 50));
    netns_enter(ns.inside);
    assert_int_equal(flows_cut(flows, keep_all_but_lost, &asked, &cut), 0);
    netns_enter(ns.home);
    close_pair(&p);
}

/* ---- what lives on */

static void flows_whose_permission_stands_are_not_disturbed(void **state)
{
    struct pair tcp = open_tcp(KEPT, 7006), udp = open_udp("2001:db8::20", 7006);
    struct pair lost = open_tcp(LOST, 7006);
    (void)state;
    assert_int_equal(withdraw(), 1);
    assert_true(says(tcp.near, tcp.far) && says(tcp.far, tcp.near));
    assert_true(says(udp.near, udp.far) && says(udp.far, udp.near));
    close_pair(&tcp);
    close_pair(&udp);
    close_pair(&lost);
}

static bool keep_none(void *user, const struct flow *flow)
{
    unsigned *asked = user;
    (void)flow;
    ++*asked;
    return false;
}

static unsigned cut_all(void)
{
    unsigned asked = 0, cut;
    netns_enter(ns.inside);
    int error = flows_cut(flows, keep_none, &asked, &cut);
    netns_enter(ns.home);
    assert_int_equal(error, 0);
    return cut;
}

static void some_flows_are_never_cut(void **state)
{
    (void)state;
    cut_all();
    int api = netns_listen(ns.inside, SOCK_STREAM, INSIDE4, 18080);
    int client = fixture_connect_from(ns.outside, SOCK_STREAM, INSIDE4, 18080);
    int relay = netns_listen(ns.inside, SOCK_STREAM, "127.0.0.1", 18081);
    int browser = fixture_connect(&ns, SOCK_STREAM, "198.51.100.3", 443);
    int local = netns_listen(ns.inside, SOCK_STREAM, INSIDE4, 8080);
    int caller = fixture_connect(&ns, SOCK_STREAM, INSIDE4, 8080);
    int web = netns_listen(ns.outside, SOCK_STREAM, "198.51.100.3", 443);
    int own = fixture_own(&ns, SOCK_STREAM, "198.51.100.3", 443);
    assert_true(client >= 0 && browser >= 0 && caller >= 0 && own >= 0);
    assert_int_equal(cut_all(), 0);
    int fds[] = {client, browser, caller, own, api, relay, local, web};
    for (unsigned i = 0; i < 8; i++) {
        if (i < 4)
            assert_int_equal(error_of(fds[i], 0), 0);
        close(fds[i]);
    }
}

static void a_flow_may_be_opened_again_when_it_is_permitted_again(void **state)
{
    struct pair p = open_tcp(LOST, 7007);
    (void)state;
    assert_int_equal(withdraw(), 1);
    close_pair(&p);
    fixture_nft(&ns, "add element inet opensandbox learned4 { " LOST " }");
    p = open_tcp(LOST, 7007);
    assert_true(says(p.near, p.far) && says(p.far, p.near));
    close_pair(&p);
}

/* ---- in use */

static void note_far_port(void *user, const struct flow *flow)
{
    struct ip lost;
    unsigned *seen = user;
    if (ip_parse(STR(LOST), &lost) && ip_eq(&flow->dst, &lost) && flow->protocol == IPPROTO_TCP)
        *seen += flow->dst_port;
}

static void open_sockets_are_found_and_closed_ones_not(void **state)
{
    struct pair p = open_tcp(LOST, 7008), v6 = open_tcp("2001:db8::10", 7008);
    unsigned seen = 0;
    (void)state;
    netns_enter(ns.inside);
    assert_int_equal(flows_in_use(flows, note_far_port, &seen), 0);
    assert_int_equal(seen, 7008);
    netns_enter(ns.home);
    close(p.far);
    close(p.near);
    usleep(20000);
    seen = 0;
    netns_enter(ns.inside);
    assert_int_equal(flows_in_use(flows, note_far_port, &seen), 0);
    netns_enter(ns.home);
    assert_int_equal(seen, 0);
    close(p.listener);
    close_pair(&v6);
}

struct seen {
    unsigned n, lost, kept, ping;
};

static void note_flow(void *user, const struct flow *flow)
{
    struct seen *s = user;
    struct ip lost = {{0}}, kept = {{0}};
    assert_true(ip_parse(STR(LOST), &lost) && ip_parse(STR(KEPT), &kept));
    s->n++;
    s->lost += ip_eq(&flow->dst, &lost) && flow->protocol == IPPROTO_UDP;
    s->kept += ip_eq(&flow->dst, &kept) && flow->protocol == IPPROTO_UDP;
    s->ping += ip_eq(&flow->dst, &kept) && flow->protocol == IPPROTO_ICMP;
}

static struct seen in_use(void)
{
    struct seen s = {0, 0, 0, 0};
    netns_enter(ns.inside);
    assert_int_equal(flows_in_use(flows, note_flow, &s), 0);
    netns_enter(ns.home);
    return s;
}

static void datagrams_are_use_once_they_are_answered(void **state)
{
    (void)state;
    cut_all();
    assert_true(forget_all_entries());
    assert_int_equal(in_use().n, 0);
    struct pair p = open_udp(LOST, 7010);
    int silent = netns_listen(ns.outside, SOCK_DGRAM, KEPT, 7010);
    int asks = fixture_connect(&ns, SOCK_DGRAM, KEPT, 7010);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(send(asks, "?", 1, 0), 1);
    assert_true(netns_readable(silent, 1000));
    struct seen s = in_use();
    assert_true(s.n == 1 && s.lost == 1);
    struct attempt ping = {"ping", try_ping, KEPT, 0, AS_USER, 0, 0};
    assert_int_equal(attempt_as(&ns, &ping, AS_USER), REACHED);
    s = in_use();
    assert_true(s.n == 2 && s.ping == 1);
    withdraw();
    s = in_use();
    assert_true(s.lost == 0 && s.kept == 0);
    close_pair(&p);
    close(silent);
    close(asks);
}

/* What others opened is not the workload's, nor is what we did, or what goes to the host itself. */
static void datagrams_that_the_workload_did_not_send_first_are_no_use(void **state)
{
    char byte;
    union addr from;
    socklen_t len = sizeof from;
    (void)state;
    cut_all();
    assert_true(forget_all_entries());
    int server = netns_listen(ns.inside, SOCK_DGRAM, INSIDE4, 7011);
    int clients[] = {fixture_connect_from(ns.outside, SOCK_DGRAM, INSIDE4, 7011),
                     fixture_connect(&ns, SOCK_DGRAM, INSIDE4, 7011)};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(send(clients[i], "a", 1, 0), 1);
        assert_true(netns_readable(server, 1000));
        assert_int_equal(recvfrom(server, &byte, 1, 0, &from.sa, &len), 1);
        assert_int_equal(sendto(server, "b", 1, 0, &from.sa, len), 1);
        assert_true(netns_readable(clients[i], 1000));
        close(clients[i]);
    }
    assert_int_equal(in_use().n, 0);
    close(server);
}

/* ---- figures */

static double clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A process that says when the peer hears of the end. */
static int watch(int fd)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    if (fork() == 0) {
        double when = error_of(fd, 2000) == ECONNRESET ? clock_ms(CLOCK_MONOTONIC) : 0;
        _exit(write(pipes[1], &when, sizeof when) != sizeof when);
    }
    close(pipes[1]);
    return pipes[0];
}

static void the_cost_of_a_cut(void **state)
{
    enum { OTHERS = 500 };
    struct pair lost = open_tcp(LOST, 7009);
    int listener = netns_listen(ns.outside, SOCK_STREAM, KEPT, 7009), others[OTHERS];
    unsigned asked = 0, cut;
    double heard = 0;
    (void)state;
    for (unsigned i = 0; i < OTHERS; i++) {
        others[i] = fixture_connect(&ns, SOCK_STREAM, KEPT, 7009);
        assert_true(netns_readable(listener, 500));
        close(accept(listener, NULL, NULL));
    }
    int watcher = watch(lost.far);
    usleep(20000);
    netns_enter(ns.inside);
    double start = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    assert_int_equal(flows_cut(flows, keep_all_but_lost, &asked, &cut), 0);
    double end = clock_ms(CLOCK_MONOTONIC), spent = clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    netns_enter(ns.home);
    assert_int_equal(read(watcher, &heard, sizeof heard), sizeof heard);
    printf("figure: one flow of 501 cut: peer knows after %.2f ms, all looked through after %.2f "
           "ms (%.2f ms of CPU)\n",
           heard - start, end - start, spent);
    assert_true(heard > 0);
    for (unsigned i = 0; i < OTHERS; i++)
        close(others[i]);
    close(watcher);
    close(listener);
    close_pair(&lost);
}

/* 10,000 entries, each answered. */
static void make_entries(unsigned n)
{
    int server = netns_listen(ns.outside, SOCK_DGRAM, KEPT, 7012);
    union addr to = netns_addr(KEPT, 7012), from;
    char byte;
    for (unsigned i = 0; i < n; i++) {
        socklen_t len = sizeof from;
        int fd = netns_listen(ns.inside, SOCK_DGRAM, INSIDE4, (uint16_t)(20000 + i));
        assert_int_equal(sendto(fd, "a", 1, 0, &to.sa, sizeof to.v4), 1);
        assert_true(netns_readable(server, 1000));
        assert_int_equal(recvfrom(server, &byte, 1, 0, &from.sa, &len), 1);
        assert_int_equal(sendto(server, "b", 1, 0, &from.sa, len), 1);
        assert_true(netns_readable(fd, 1000));
        close(fd);
    }
    close(server);
}

static void the_cost_of_looking_who_is_in_use(void **state)
{
    enum { ENTRIES = 10000 };
    (void)state;
    make_entries(ENTRIES);
    double start = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    struct seen s = in_use();
    printf("figure: %u entries in use of %u looked through in %.2f ms (%.2f ms of CPU)\n", s.kept,
           (unsigned)ENTRIES, clock_ms(CLOCK_MONOTONIC) - start,
           clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu);
    assert_true(s.kept > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, permitted)
    const struct CMUnitTest tests[] = {
        TEST(a_tcp_flow_ends_on_both_sides),
        TEST(a_flow_that_only_receives_ends_too),
        TEST(a_connected_udp_flow_ends),
        TEST(an_unconnected_udp_socket_loses_one_peer_only),
        TEST(an_open_ping_ends),
        TEST(raw_sockets_cannot_go_on_with_a_cut_flow),
        TEST(a_peer_cannot_revive_a_flow_whose_entry_is_gone),
        TEST(flows_whose_permission_stands_are_not_disturbed),
        TEST(some_flows_are_never_cut),
        TEST(a_flow_may_be_opened_again_when_it_is_permitted_again),
        TEST(open_sockets_are_found_and_closed_ones_not),
        TEST(datagrams_are_use_once_they_are_answered),
        TEST(datagrams_that_the_workload_did_not_send_first_are_no_use),
        TEST(the_cost_of_a_cut),
        TEST(the_cost_of_looking_who_is_in_use),
    };
    if (!netns_start(&ns))
        return 0;
    netns_enter(ns.inside);
    if (flows_open(&flows) != 0)
        return 1;
    netns_enter(ns.home);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    flows_close(flows);
    netns_stop(&ns);
    return failed;
}
