/* passage_test.c — what the rules let through and where it goes, and what they give away.
 *
 * A rule set that lets nothing out is easy: here stand the flows that must work, the redirects, and
 * the attacks on flows that are open already. */
#include "kernel/fixture.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif

static struct netns ns;

static int rules(const struct ruleset *r)
{
    fixture_apply(&ns, r);
    return 0;
}

static int full(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    rules(&r);
    fixture_nft(&ns, "add element inet opensandbox learned4 { 198.51.100.10 }; "
                     "add element inet opensandbox learned6 { 2001:db8::10 }");
    return 0;
}

static int closed(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    r.shape = RULESET_CLOSED;
    return rules(&r);
}

static int dns_only(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    r.shape = RULESET_DNS;
    return rules(&r);
}

/* ---- helpers */

static bool says(int from, const char *text, int at)
{
    char got[64] = "";
    if (send(from, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
        return false;
    return netns_readable(at, 300) && recv(at, got, sizeof got - 1, 0) == (ssize_t)strlen(text) &&
           strcmp(got, text) == 0;
}

static int accepted(int listener)
{
    return netns_readable(listener, 500) ? accept4(listener, NULL, NULL, SOCK_NONBLOCK) : -1;
}

/* A TCP connection from inside arrives and carries bytes both ways. */
static void assert_talks(const char *ip, uint16_t port)
{
    int server = netns_listen(ns.outside, SOCK_STREAM, ip, port);
    int client = fixture_connect(&ns, SOCK_STREAM, ip, port);
    if (client < 0)
        fail_msg("%s:%u: %s", ip, port, strerror(errno));
    int peer = accepted(server);
    assert_true(peer >= 0);
    assert_true(says(client, "ping", peer));
    assert_true(says(peer, "pong", client));
    close(peer);
    close(client);
    close(server);
}

/* Refused here: a closed port far away would say the same. */
static void assert_refused(int type, const char *ip, uint16_t port)
{
    char what[160];
    netns_tap_count(&ns, 5, what);
    int fd = fixture_connect(&ns, type, ip, port);
    bool told = errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == EACCES;
    if (fd >= 0) {
        told = type == SOCK_DGRAM && send(fd, "x", 1, 0) < 0;
        close(fd);
    }
    unsigned out = netns_tap_count(&ns, 10, what);
    if (!told || out > 0)
        fail_msg("%s:%u: %s %s", ip, port, told ? "told" : "not told", what);
}

/* Runs fn in a process inside with NET_RAW and nothing else; its result, 0 to 255. */
static int as_raw(int (*fn)(void *), void *user)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        netns_enter(ns.inside);
        become(AS_RAW);
        _exit(fn(user));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static uint16_t port_of(int fd)
{
    union addr a;
    socklen_t len = sizeof a;
    assert_int_equal(getsockname(fd, &a.sa, &len), 0);
    return addr_port(&a.sa);
}

/* ---- what passes */

static void a_learned_address_is_open_on_any_port(void **state)
{
    (void)state;
    assert_talks("198.51.100.10", 8443);
    assert_talks("2001:db8::10", 22);
}

static void rules_decide_in_the_order_of_the_contract(void **state)
{
    static const struct {
        const char *element;
        bool open;
    } rows[] = {
        {"always4_ranges { 198.51.100.0/24 : goto refuse }", false},
        {"always4_ranges { 198.51.100.0/24 : goto pass }", true},
        {"learned_always4 { 198.51.100.9 }; add element inet opensandbox user4 { 198.51.100.9 : "
         "goto refuse }",
         true},
        {"user4 { 198.51.100.9 : goto pass }", true},
        {"user4_ranges { 198.51.100.8-198.51.100.9 : goto pass }", true},
        {"learned4 { 198.51.100.9 }; add element inet opensandbox user4_ranges { 198.51.100.0/28 "
         ": goto refuse }",
         false},
        {"learned4 { 198.51.100.9 }; add element inet opensandbox always4 { 198.51.100.9 : goto "
         "refuse }",
         false},
        {"fallback { ipv4 : goto pass }", true},
        {"fallback { ipv4 : goto pass }; add element inet opensandbox user4 { 198.51.100.9 : goto "
         "refuse }",
         false},
        {"fallback { ipv6 : goto pass }", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[256];
        full(NULL);
        snprintf(line, sizeof line, "add element inet opensandbox %s", rows[i].element);
        fixture_nft(&ns, line);
        if (rows[i].open)
            assert_talks("198.51.100.9", 7000);
        else
            assert_refused(SOCK_STREAM, "198.51.100.9", 7000);
    }
}

static void loopback_is_open_and_needs_no_rule(void **state)
{
    static const char *const ips[] = {"127.0.0.1", "127.10.0.1", "::1", INSIDE4, INSIDE6};
    (void)state;
    fixture_nft(&ns, "add element inet opensandbox always4_ranges { 127.0.0.0/8 : goto refuse }; "
                     "add element inet opensandbox always6 { ::1 : goto refuse }");
    for (size_t i = 0; i < sizeof ips / sizeof *ips; i++) {
        int server = netns_listen(ns.inside, SOCK_STREAM, ips[i], 8080);
        int client = fixture_connect(&ns, SOCK_STREAM, ips[i], 8080);
        if (client < 0)
            fail_msg("%s", ips[i]);
        close(client);
        close(server);
    }
}

static void who_connects_from_outside_is_answered(void **state)
{
    int server = netns_listen(ns.inside, SOCK_STREAM, INSIDE4, 18080);
    int client = fixture_connect_from(ns.outside, SOCK_STREAM, INSIDE4, 18080);
    int datagrams = netns_listen(ns.inside, SOCK_DGRAM, INSIDE6, 7001);
    int sender = fixture_connect_from(ns.outside, SOCK_DGRAM, INSIDE6, 7001);
    union addr from;
    socklen_t len = sizeof from;
    char byte;
    (void)state;
    assert_true(client >= 0);
    int peer = accepted(server);
    assert_true(says(client, "hello", peer) && says(peer, "welcome", client));
    assert_int_equal(send(sender, "x", 1, 0), 1);
    assert_true(netns_readable(datagrams, 300));
    assert_int_equal(recvfrom(datagrams, &byte, 1, 0, &from.sa, &len), 1);
    assert_int_equal(sendto(datagrams, "y", 1, 0, &from.sa, len), 1);
    assert_true(netns_readable(sender, 300));
    /* The flow is open, the peer is not. */
    assert_refused(SOCK_STREAM, OUTSIDE4, port_of(client));
    close(peer);
    close(server);
    close(client);
    close(datagrams);
    close(sender);
}

static void a_closed_port_answers_who_is_outside(void **state)
{
    (void)state;
    assert_int_equal(fixture_connect_from(ns.outside, SOCK_STREAM, INSIDE4, 7777), -1);
    assert_int_equal(errno, ECONNREFUSED);
}

static void an_open_flow_outlives_its_permission(void **state)
{
    int server = netns_listen(ns.outside, SOCK_STREAM, "198.51.100.10", 7002);
    int client = fixture_connect(&ns, SOCK_STREAM, "198.51.100.10", 7002);
    int peer = accepted(server);
    (void)state;
    fixture_nft(&ns, "delete element inet opensandbox learned4 { 198.51.100.10 }");
    assert_true(says(client, "still", peer) && says(peer, "here", client));
    assert_refused(SOCK_STREAM, "198.51.100.10", 7002);
    close(peer);
    close(client);
    close(server);
}

static void our_own_traffic_passes(void **state)
{
    int dns = netns_listen(ns.outside, SOCK_DGRAM, "198.51.100.53", 53);
    int web = netns_listen(ns.outside, SOCK_STREAM, "198.51.100.3", 443);
    int query = fixture_own(&ns, SOCK_DGRAM, "198.51.100.53", 53);
    int call = fixture_own(&ns, SOCK_STREAM, "198.51.100.3", 443);
    union addr from;
    socklen_t len = sizeof from;
    char p[8];
    (void)state;
    assert_true(call >= 0);
    assert_int_equal(send(query, "q", 1, 0), 1);
    assert_true(netns_readable(dns, 300));
    assert_int_equal(recvfrom(dns, p, sizeof p, 0, &from.sa, &len), 1);
    assert_int_equal(sendto(dns, "a", 1, 0, &from.sa, len), 1);
    assert_true(netns_readable(query, 300));
    close(query);
    close(call);
    close(dns);
    close(web);
}

static void an_exempt_nameserver_is_asked_without_us(void **state)
{
    int dns = netns_listen(ns.outside, SOCK_DGRAM, "198.51.100.44", 53);
    int query = fixture_connect(&ns, SOCK_DGRAM, "198.51.100.44", 53);
    (void)state;
    assert_true(says(query, "q", dns));
    close(query);
    assert_refused(SOCK_DGRAM, "198.51.100.44", 54);
    fixture_nft(&ns, "add element inet opensandbox user4 { 198.51.100.44 : goto refuse }");
    assert_refused(SOCK_DGRAM, "198.51.100.44", 53);
    close(dns);
}

/* ---- redirects */

static void assert_comes_to_us(int type, const char *ip, uint16_t port, const char *here,
                               uint16_t ours)
{
    int listener = netns_listen(ns.inside, type, here, ours);
    char what[160];
    netns_tap_forget(&ns);
    int fd = fixture_connect(&ns, type, ip, port);
    if (fd < 0)
        fail_msg("%s:%u: %s", ip, port, strerror(errno));
    if (type == SOCK_STREAM) {
        int peer = accepted(listener);
        assert_true(peer >= 0);
        assert_true(says(fd, "query", peer) && says(peer, "answer", fd));
        close(peer);
    } else {
        union addr from;
        socklen_t len = sizeof from;
        char byte;
        assert_int_equal(send(fd, "q", 1, 0), 1);
        assert_true(netns_readable(listener, 300));
        assert_int_equal(recvfrom(listener, &byte, 1, 0, &from.sa, &len), 1);
        assert_int_equal(sendto(listener, "a", 1, 0, &from.sa, len), 1);
        assert_true(netns_readable(fd, 300));
    }
    assert_int_equal(netns_tap_count(&ns, 15, what), 0);
    close(fd);
    close(listener);
}

static void every_question_comes_to_our_dns(void **state)
{
    static const int types[] = {SOCK_DGRAM, SOCK_STREAM};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_comes_to_us(types[i], "198.51.100.2", 53, "127.0.0.1", 15353);
        assert_comes_to_us(types[i], "198.51.100.10", 53, "127.0.0.1", 15353);
        assert_comes_to_us(types[i], "2001:db8::2", 53, "::1", 15353);
        assert_comes_to_us(types[i], "127.0.0.53", 53, "127.0.0.1", 15353);
        assert_comes_to_us(types[i], "::1", 53, "::1", 15353);
        assert_comes_to_us(types[i], "127.0.0.11", 34567, "127.0.0.1", 15353);
        assert_comes_to_us(types[i], OUTSIDE4, 53, "127.0.0.1", 15353);
    }
}

static void http_and_https_come_to_our_relay(void **state)
{
    (void)state;
    assert_comes_to_us(SOCK_STREAM, "198.51.100.2", 443, "127.0.0.1", 18081);
    assert_comes_to_us(SOCK_STREAM, "198.51.100.10", 80, "127.0.0.1", 18081);
    assert_comes_to_us(SOCK_STREAM, "2001:db8::2", 443, "::1", 18081);
}

static void without_our_listener_a_redirected_client_hears_so_at_once(void **state)
{
    (void)state;
    assert_refused(SOCK_STREAM, "198.51.100.2", 443);
    assert_refused(SOCK_STREAM, "198.51.100.2", 53);
}

static void a_local_web_server_is_not_redirected(void **state)
{
    (void)state;
    assert_comes_to_us(SOCK_STREAM, "127.0.0.1", 80, "127.0.0.1", 80);
    assert_comes_to_us(SOCK_STREAM, INSIDE4, 80, INSIDE4, 80);
}

/* ---- shapes */

static void doh_is_blocked_where_it_is_asked_for(void **state)
{
    struct ruleset r = fixture_settings();
    struct cidr nets[2];
    (void)state;
    assert_true(cidr_parse(STR("198.51.100.64/26"), &nets[0]));
    assert_true(cidr_parse(STR("2001:db8:1::/48"), &nets[1]));
    r.relay_port = 0;
    r.block_doh = true;
    r.doh = (struct cidr_set){nets, 2};
    rules(&r);
    fixture_nft(&ns,
                "add element inet opensandbox fallback { ipv4 : goto pass, ipv6 : goto pass }");
    assert_refused(SOCK_STREAM, "198.51.100.70", 443);
    assert_refused(SOCK_STREAM, "2001:db8:1::1", 443);
    assert_talks("198.51.100.70", 80);
    assert_talks("198.51.100.6", 443);
    r.doh.n = 0;
    rules(&r);
    fixture_nft(&ns,
                "add element inet opensandbox fallback { ipv4 : goto pass, ipv6 : goto pass }");
    assert_refused(SOCK_STREAM, "198.51.100.6", 443);
    assert_talks("198.51.100.6", 80);
}

static void the_upstream_proxy_is_for_us_alone(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    r.parent_port = 3128;
    rules(&r);
    fixture_nft(&ns, "add element inet opensandbox fallback { ipv4 : goto pass }; "
                     "add element inet opensandbox parent4 { 198.51.100.8 }");
    assert_refused(SOCK_STREAM, "198.51.100.8", 3128);
    assert_talks("198.51.100.8", 3129);
    int proxy = netns_listen(ns.outside, SOCK_STREAM, "198.51.100.8", 3128);
    int fd = fixture_own(&ns, SOCK_STREAM, "198.51.100.8", 3128);
    assert_true(fd >= 0);
    close(fd);
    close(proxy);
}

static void closed_rules_let_out_replies_and_our_own(void **state)
{
    int dns = netns_listen(ns.outside, SOCK_DGRAM, "198.51.100.53", 53);
    int query = fixture_own(&ns, SOCK_DGRAM, "198.51.100.53", 53);
    (void)state;
    assert_true(says(query, "q", dns));
    close(query);
    close(dns);
    who_connects_from_outside_is_answered(NULL);
    assert_comes_to_us(SOCK_STREAM, "127.0.0.1", 8080, "127.0.0.1", 8080);
    assert_refused(SOCK_STREAM, "198.51.100.10", 443);
    assert_refused(SOCK_DGRAM, "198.51.100.10", 53);
    assert_refused(SOCK_STREAM, "2001:db8::10", 8080);
}

static void in_mode_dns_only_names_are_held(void **state)
{
    (void)state;
    assert_comes_to_us(SOCK_DGRAM, "198.51.100.2", 53, "127.0.0.1", 15353);
    assert_comes_to_us(SOCK_STREAM, "2001:db8::2", 53, "::1", 15353);
    assert_comes_to_us(SOCK_DGRAM, "127.0.0.11", 34567, "127.0.0.1", 15353);
    assert_talks("198.51.100.9", 8080);
    assert_talks("198.51.100.9", 853);
}

static void the_program_closes_and_removes(void **state)
{
    (void)state;
    assert_true(netns_run(&ns, RULES_PROGRAM " close"));
    assert_refused(SOCK_STREAM, "198.51.100.9", 8080);
    who_connects_from_outside_is_answered(NULL);
    assert_true(netns_run(&ns, RULES_PROGRAM " remove"));
    assert_talks("198.51.100.9", 8080);
    assert_true(netns_run(&ns, RULES_PROGRAM " remove"));
    assert_false(netns_run(&ns, RULES_PROGRAM " 2>/dev/null"));
    assert_false(netns_feed(&ns, RULES_PROGRAM " apply 2>/dev/null", STR("add nonsense\n")));
    assert_false(netns_run(&ns, RULES_PROGRAM " apply 2>/dev/null </dev/null"));
}

static void a_faulty_text_changes_nothing(void **state)
{
    (void)state;
    assert_false(
        netns_feed(&ns, RULES_PROGRAM " apply 2>/dev/null",
                   STR("delete table inet opensandbox\nadd rule inet none none accept\n")));
    assert_refused(SOCK_STREAM, "198.51.100.9", 8080);
}

/* ---- attacks on what is open */

static int forge_udp(void *user)
{
    const uint16_t *ports = user;
    return send_forged_udp(INSIDE4, ports[0], "198.51.100.53", 53, "tunnel");
}

static void a_raw_socket_cannot_use_a_flow_of_ours(void **state)
{
    int dns = netns_listen(ns.outside, SOCK_DGRAM, "198.51.100.53", 53);
    int query = fixture_own(&ns, SOCK_DGRAM, "198.51.100.53", 53);
    union addr from;
    socklen_t len = sizeof from;
    char p[16];
    uint16_t port = port_of(query);
    (void)state;
    assert_true(says(query, "q", dns));
    as_raw(forge_udp, &port);
    assert_false(netns_readable(dns, 50));
    /* Nor once it is established. */
    assert_int_equal(send(query, "q", 1, 0), 1);
    assert_true(netns_readable(dns, 300));
    assert_int_equal(recvfrom(dns, p, sizeof p, 0, &from.sa, &len), 1);
    assert_int_equal(sendto(dns, "a", 1, 0, &from.sa, len), 1);
    assert_true(netns_readable(query, 300));
    as_raw(forge_udp, &port);
    assert_false(netns_readable(dns, 50));
    assert_true(says(query, "again", dns));
    close(query);
    close(dns);
}

static int forge_answer(void *user)
{
    const uint16_t *port = user;
    return send_forged_udp("198.51.100.53", 53, INSIDE4, *port, "poison");
}

/* Writes the packet as a frame on lo: no output hook sees it. */
static int frame_answer(void *user)
{
    const uint16_t *port = user;
    uint8_t p[64] = {0x45, 0, 0, 34, 0, 0, 0, 0, 64, 17};
    union addr from = netns_addr("198.51.100.53", 0), to = netns_addr(INSIDE4, 0);
    struct sockaddr_ll lo = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_IP),
                             .sll_ifindex = (int)if_nametoindex("lo"),
                             .sll_halen = 6};
    uint32_t sum = 0;
    memcpy(p + 12, &from.v4.sin_addr, 4);
    memcpy(p + 16, &to.v4.sin_addr, 4);
    for (unsigned i = 0; i < 20; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    p[10] = (uint8_t)(~sum >> 8);
    p[11] = (uint8_t)~sum;
    p[21] = 53;
    p[22] = (uint8_t)(*port >> 8);
    p[23] = (uint8_t)*port;
    p[25] = 14;
    memcpy(p + 28, "poison", 6);
    int fd = socket(AF_PACKET, SOCK_DGRAM, 0);
    return sendto(fd, p, 34, 0, (struct sockaddr *)&lo, sizeof lo) == 34;
}

static void answers_for_us_cannot_be_forged_over_lo(void **state)
{
    int query = fixture_own(&ns, SOCK_DGRAM, "198.51.100.53", 53);
    uint16_t port = port_of(query);
    (void)state;
    /* Without rules it works, or the test means nothing. */
    assert_true(netns_run(&ns, RULES_PROGRAM " remove"));
    assert_true(netns_run(&ns, "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; "
                               "echo 0 > /proc/sys/net/ipv4/conf/lo/rp_filter"));
    as_raw(forge_answer, &port);
    assert_true(netns_readable(query, 100));
    full(NULL);
    char p[16];
    while (recv(query, p, sizeof p, 0) >= 0)
        ;
    assert_int_equal(send(query, "q", 1, 0), 1);
    as_raw(forge_answer, &port);
    as_raw(frame_answer, &port);
    assert_false(netns_readable(query, 50));
    close(query);
}

/* A packet to a group from outside opens no flow: its reply would carry the group's address as
 * source, and only a raw socket can write that. */
static int forge_group_reply(void *user)
{
    const uint16_t *port = user;
    return send_forged_udp("239.1.2.3", 7010, "198.51.100.66", *port, "reply");
}

static void a_packet_to_a_group_opens_nothing(void **state)
{
    int member = netns_listen(ns.inside, SOCK_DGRAM, "0.0.0.0", 7010);
    int peer = netns_listen(ns.outside, SOCK_DGRAM, "198.51.100.66", 0);
    union addr group = netns_addr("239.1.2.3", 7010);
    struct ip_mreqn to = {.imr_multiaddr = group.v4.sin_addr};
    uint16_t port = port_of(peer);
    char what[160];
    (void)state;
    netns_enter(ns.inside);
    to.imr_ifindex = (int)if_nametoindex("e0");
    assert_int_equal(setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &to, sizeof to), 0);
    netns_enter(ns.outside);
    to.imr_ifindex = (int)if_nametoindex("o0");
    assert_int_equal(setsockopt(peer, IPPROTO_IP, IP_MULTICAST_IF, &to, sizeof to), 0);
    netns_enter(ns.home);
    assert_int_equal(sendto(peer, "x", 1, 0, &group.sa, sizeof group.v4), 1);
    assert_true(netns_readable(member, 300));
    netns_tap_count(&ns, 15, what);
    as_raw(forge_group_reply, &port);
    if (netns_tap_count(&ns, 15, what) != 0)
        fail_msg("%s", what);
    close(member);
    close(peer);
}

/* Opens what shows marks, says so, and returns the first of ours that it sees, as 1. */
struct peek {
    int ready[2];
    bool group; /* send to a group ourselves */
};

static bool is_ours(const struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR((struct msghdr *)m, c)) {
        uint32_t seen = 0;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_MARK)
            continue;
        memcpy(&seen, CMSG_DATA(c), sizeof seen);
        if (seen == OWN_MARK || seen == PASS_MARK)
            return true;
    }
    return false;
}

static bool shows_mark(int fd, int flags)
{
    char data[2048], control[512];
    struct iovec iov = {data, sizeof data};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    while (recvmsg(fd, &m, flags | MSG_DONTWAIT) >= 0) {
        if (is_ours(&m))
            return true;
        m.msg_controllen = sizeof control;
    }
    return false;
}

static void talk_to_group6(int fd)
{
    union addr group = netns_addr("ff05::1:7", 7003);
    struct ipv6_mreq join = {.ipv6mr_interface = if_nametoindex("e0")};
    memcpy(&join.ipv6mr_multiaddr, &group.v6.sin6_addr, 16);
    setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join);
    setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &join.ipv6mr_interface, sizeof(int));
    sendto(fd, "g", 1, 0, &group.sa, sizeof group.v6);
}

static void talk_to_group(int fd)
{
    union addr group = netns_addr("239.1.2.3", 7003), all = netns_addr("255.255.255.255", 7003);
    struct ip_mreqn join = {.imr_ifindex = (int)if_nametoindex("e0")};
    int one = 1;
    memcpy(&join.imr_multiaddr, &group.v4.sin_addr, 4);
    setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join);
    setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &join, sizeof join);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
    sendto(fd, "g", 1, 0, &group.sa, sizeof group.v4);
    sendto(fd, "b", 1, 0, &all.sa, sizeof all.v4);
}

static int peek_marks(void *user)
{
    const struct peek *k = user;
    int one = 1, stamps = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE;
    int tap = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    int udp = socket(AF_INET, SOCK_DGRAM, 0), udp6 = socket(AF_INET6, SOCK_DGRAM, 0);
    union addr to = netns_addr("198.51.100.10", 7004), dns = netns_addr("198.51.100.2", 53);
    union addr any = netns_addr("0.0.0.0", 7003), any6 = netns_addr("::", 7003);
    setsockopt(udp6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    setsockopt(udp6, SOL_SOCKET, SO_RCVMARK, &one, sizeof one);
    if (bind(udp, &any.sa, sizeof any.v4) != 0 || bind(udp6, &any6.sa, sizeof any6.v6) != 0)
        return 3;
    setsockopt(tap, SOL_SOCKET, SO_RCVMARK, &one, sizeof one);
    setsockopt(udp, SOL_SOCKET, SO_RCVMARK, &one, sizeof one);
    setsockopt(udp, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps);
    if (write(k->ready[1], "r", 1) != 1)
        return 2;
    sendto(udp, "x", 1, 0, &to.sa, sizeof to.v4);
    /* What is redirected to us has passed as well, and is seen on lo. */
    sendto(udp, "q", 1, 0, &dns.sa, sizeof dns.v4);
    if (k->group) {
        talk_to_group(udp);
        talk_to_group6(udp6);
    }
    usleep(150000);
    if (k->group && !(netns_readable(udp, 0) && netns_readable(udp6, 0)))
        return 4;
    return shows_mark(tap, 0) || shows_mark(udp, MSG_ERRQUEUE) || shows_mark(udp, 0) ||
           shows_mark(udp6, 0);
}

static int peeked(bool group)
{
    struct peek k = {.group = group};
    char byte;
    int status;
    assert_int_equal(pipe(k.ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        netns_enter(ns.inside);
        become(AS_RAW);
        _exit(peek_marks(&k));
    }
    assert_int_equal(read(k.ready[0], &byte, 1), 1);
    int lo = netns_listen(ns.inside, SOCK_DGRAM, "127.0.0.1", 7005);
    int query = fixture_own(&ns, SOCK_DGRAM, "198.51.100.53", 53);
    int call = fixture_own(&ns, SOCK_DGRAM, "127.0.0.1", 7005);
    send(query, "q", 1, 0);
    send(call, "q", 1, 0);
    assert_true(waitpid(pid, &status, 0) == pid);
    close(query);
    close(call);
    close(lo);
    close(k.ready[0]);
    close(k.ready[1]);
    return WEXITSTATUS(status);
}

static void our_marks_cannot_be_read_off_a_packet(void **state)
{
    (void)state;
    assert_int_equal(peeked(false), 0);
    fixture_nft(&ns,
                "add element inet opensandbox fallback { ipv4 : goto pass, ipv6 : goto pass }");
    assert_int_equal(peeked(true), 0);
    dns_only(NULL);
    assert_int_equal(peeked(true), 0);
    /* The same eyes see them where no rule takes them off. */
    assert_true(netns_run(&ns, RULES_PROGRAM " remove"));
    assert_int_equal(peeked(false), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_learned_address_is_open_on_any_port, full),
        cmocka_unit_test_setup(rules_decide_in_the_order_of_the_contract, full),
        cmocka_unit_test_setup(loopback_is_open_and_needs_no_rule, full),
        cmocka_unit_test_setup(who_connects_from_outside_is_answered, full),
        cmocka_unit_test_setup(a_closed_port_answers_who_is_outside, full),
        cmocka_unit_test_setup(an_open_flow_outlives_its_permission, full),
        cmocka_unit_test_setup(our_own_traffic_passes, full),
        cmocka_unit_test_setup(an_exempt_nameserver_is_asked_without_us, full),
        cmocka_unit_test_setup(every_question_comes_to_our_dns, full),
        cmocka_unit_test_setup(http_and_https_come_to_our_relay, full),
        cmocka_unit_test_setup(without_our_listener_a_redirected_client_hears_so_at_once, full),
        cmocka_unit_test_setup(a_local_web_server_is_not_redirected, full),
        cmocka_unit_test_setup(doh_is_blocked_where_it_is_asked_for, full),
        cmocka_unit_test_setup(the_upstream_proxy_is_for_us_alone, full),
        cmocka_unit_test_setup(closed_rules_let_out_replies_and_our_own, closed),
        cmocka_unit_test_setup(in_mode_dns_only_names_are_held, dns_only),
        cmocka_unit_test_setup(the_program_closes_and_removes, full),
        cmocka_unit_test_setup(a_faulty_text_changes_nothing, full),
        cmocka_unit_test_setup(a_raw_socket_cannot_use_a_flow_of_ours, full),
        cmocka_unit_test_setup(answers_for_us_cannot_be_forged_over_lo, full),
        cmocka_unit_test_setup(a_packet_to_a_group_opens_nothing, full),
        cmocka_unit_test_setup(our_marks_cannot_be_read_off_a_packet, full),
    };
    if (!netns_start(&ns))
        return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    netns_stop(&ns);
    return failed;
}
