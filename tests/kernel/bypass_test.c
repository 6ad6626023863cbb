/* bypass_test.c — ways out of a sandbox, each tried twice: with no rules, where it must get out (an
 * attempt that never could proves nothing), and with ours, where nothing may.
 *
 * What is refused is answered: unless the row says that nobody could, the one who tries must hear
 * of it at once. */
#include "kernel/fixture.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

/* The test's own world: made once, since each takes 50 ms. */
static struct netns ns;

enum { QUIET_MS = 12, FRAME = NO_ANSWER | ANY_POLICY };

/* Addresses of the policy in force: .10 and ::10 are learned, .20 is learned for a bound host, all
 * else is denied; .30 to .39 is a denied range, ever. */
static const struct attempt attempts[] = {
    {"tcp to an address nobody allowed", try_tcp, "198.51.100.1", 8080, AS_ANYONE, 0, 0},
    {"tcp to port 22", try_tcp, "198.51.100.1", 22, AS_USER, 0, 0},
    {"tcp, IPv6", try_tcp, "2001:db8::1", 8080, AS_ANYONE, 0, 0},
    {"tcp to a range denied for ever", try_tcp, "198.51.100.31", 8080, AS_USER, ANY_POLICY, 0},
    {"tcp to the gateway", try_tcp, OUTSIDE4, 8080, AS_USER, 0, 0},
    {"udp", try_udp, "198.51.100.1", 9999, AS_ANYONE, 0, 0},
    {"udp, ntp", try_udp, "198.51.100.1", 123, AS_USER, 0, 0},
    {"udp, IPv6", try_udp, "2001:db8::1", 9999, AS_ANYONE, 0, 0},
    {"udp, multicast", try_udp, "239.1.2.3", 5353, AS_USER, 0, 0},
    {"udp, broadcast", try_udp, "255.255.255.255", 9999, AS_USER, 0, 0},
    {"udp, broadcast of the network", try_udp, "10.99.0.255", 9999, AS_USER, 0, 0},
    {"ping", try_ping, "198.51.100.1", 0, AS_ANYONE, 0, 0},
    {"ping, IPv6", try_ping, "2001:db8::1", 0, AS_ANYONE, 0, 0},
    {"DNS over TLS to a permitted address", try_tcp, "198.51.100.10", 853, AS_ANYONE, ANY_POLICY,
     0},
    {"DNS over QUIC to a permitted address", try_udp, "198.51.100.10", 853, AS_USER, ANY_POLICY, 0},
    {"DNS over TLS, IPv6", try_tcp, "2001:db8::10", 853, AS_USER, ANY_POLICY, 0},
    {"QUIC to a bound host", try_udp, "198.51.100.20", 443, AS_ANYONE, ANY_POLICY, 0},
    {"QUIC to a bound host, IPv6", try_udp, "2001:db8::20", 443, AS_USER, ANY_POLICY, 0},
    {"mark 1", try_tcp, "198.51.100.1", 8080, AS_ROOTS, 0, 1},
    {"all bits of the mark", try_udp, "198.51.100.1", 9999, AS_ROOTS, 0, 0xffffffff},
    {"our mark with another uid", try_tcp, "198.51.100.1", 8080, AS_RAW, 0, OWN_MARK},
    {"our mark to an UDP port that we never ask", try_udp, "198.51.100.1", 9999, AS_OUR_UID, 0,
     OWN_MARK},
    {"the mark of the wire", try_udp, "198.51.100.1", 9999, AS_ROOTS, 0, PASS_MARK},
    {"source route, loose", try_source_route, "198.51.100.10", 9999, AS_ANYONE, ANY_POLICY, 131},
    {"source route, strict", try_source_route, "198.51.100.10", 9999, AS_ANYONE, ANY_POLICY, 137},
    {"routing header 0", try_routing_header, "2001:db8::10", 0, AS_ROOTS, ANY_POLICY, 0},
    {"routing header 2", try_routing_header, "2001:db8::10", 0, AS_ROOTS, ANY_POLICY, 2},
    {"routing header 4", try_routing_header, "2001:db8::10", 0, AS_ROOTS, ANY_POLICY, 4},
    {"to loopback by a device, tcp", try_tcp_by_device, "127.0.0.1", 8080, AS_ANYONE, ANY_POLICY,
     0},
    {"to loopback by a device, udp", try_udp_by_device, "127.0.0.1", 9999, AS_ANYONE, ANY_POLICY,
     0},
    {"to loopback by a device, our DNS", try_udp_by_device, "127.0.0.1", 15353, AS_USER, 0, 0},
    {"DNS by a device", try_udp_by_device, "198.51.100.2", 53, AS_USER, ANY_POLICY, 0},
    {"https by a device", try_tcp_by_device, "198.51.100.2", 443, AS_USER, NO_ANSWER, 0},
    {"udp out of lo", try_udp_by_device, "198.51.100.1", 9999, AS_USER, NO_ANSWER, 1},
    {"raw: SCTP", try_protocol, "198.51.100.1", 0, AS_ROOTS, 0, 132},
    {"raw: GRE, IPv6", try_protocol, "2001:db8::1", 0, AS_ROOTS, 0, 47},
    {"raw: a protocol nobody knows", try_protocol, "198.51.100.1", 0, AS_ROOTS, 0, 253},
    {"raw: IGMP", try_protocol, "239.1.2.3", 0, AS_ROOTS, 0, 2},
    {"raw: udp", try_forged_udp, "198.51.100.1", 9999, AS_ROOTS, 0, 0},
    {"raw: udp with a foreign source", try_forged_udp, "198.51.100.1", 9999, AS_ROOTS, 0, 1},
    {"raw: udp with loopback as source", try_forged_udp, "198.51.100.10", 9999, AS_ROOTS,
     ANY_POLICY, 2},
    {"raw: udp 853 with a foreign source", try_forged_udp, "198.51.100.10", 853, AS_ROOTS, 0, 1},
    {"raw: SYN", try_stray_segment, "198.51.100.1", 8080, AS_ROOTS, 0, TH_SYN},
    {"raw: ACK with data", try_stray_segment, "198.51.100.1", 8080, AS_ROOTS, 0, TH_ACK},
    {"raw: RST with data", try_stray_segment, "198.51.100.1", 8080, AS_ROOTS, 0, TH_RST},
    {"raw: SYN and ACK", try_stray_segment, "198.51.100.1", 8080, AS_ROOTS, 0, TH_SYN | TH_ACK},
    {"raw: no flags, to 443 of a permitted address", try_stray_segment, "198.51.100.10", 443,
     AS_ROOTS, ANY_POLICY, 0},
    {"raw: RST with data to 53 of a permitted address", try_stray_segment, "198.51.100.10", 53,
     AS_ROOTS, ANY_POLICY, TH_RST},
    {"raw: fragments to 53 of a permitted address", try_fragments, "198.51.100.10", 53, AS_ROOTS,
     ANY_POLICY, 0},
    {"raw: fragments to 853 of a permitted address", try_fragments, "198.51.100.10", 853, AS_ROOTS,
     ANY_POLICY, 0},
    {"raw: fragments", try_fragments, "198.51.100.1", 9999, AS_ROOTS, ANY_POLICY, 0},
    {"neighbour solicitation with a payload", try_neighbour, "2001:db8::1", 0, AS_ROOTS, 0, 135},
    {"neighbour advertisement with a payload", try_neighbour, "2001:db8::1", 0, AS_ROOTS, 0, 136},
    {"router solicitation with a payload", try_neighbour, "ff02::2", 0, AS_ROOTS, 0, 133},
    {"frame", try_frame, "198.51.100.1", 9999, AS_ROOTS, FRAME, 0},
    {"frame to a permitted address", try_frame, "198.51.100.10", 9999, AS_ROOTS, FRAME, 0},
    {"frame past the queue", try_frame, "198.51.100.1", 9999, AS_ROOTS, FRAME, FRAME_BYPASS},
    {"frame, IPv6", try_frame, "198.51.100.1", 9999, AS_ROOTS, FRAME, FRAME_V6 | FRAME_BYPASS},
    {"frame with a mark", try_frame, "198.51.100.1", 9999, AS_ROOTS, FRAME, FRAME_MARKED},
    {"frame to a group", try_frame, "239.1.2.3", 9999, AS_ROOTS, FRAME, FRAME_GROUP},
    {"frame of ARP with a payload", try_frame, "198.51.100.1", 0, AS_ROOTS, FRAME, FRAME_ARP},
    {"frame of ARP past the queue", try_frame, "198.51.100.1", 0, AS_ROOTS, FRAME,
     FRAME_ARP | FRAME_BYPASS},
    {"a flow from outside, forged over lo", try_forged_inbound, "198.51.100.66", 4444, AS_ROOTS, 0,
     0},
    {"the same from the gateway", try_forged_inbound, OUTSIDE4, 4444, AS_ROOTS, 0, 0},
};

enum { ATTEMPTS = sizeof attempts / sizeof *attempts };

static void policy(void)
{
    fixture_nft(&ns, "add element inet opensandbox learned4 { 198.51.100.10, 198.51.100.20 }; "
                     "add element inet opensandbox learned6 { 2001:db8::10, 2001:db8::20 }; "
                     "add element inet opensandbox bound4 { 198.51.100.20 }; "
                     "add element inet opensandbox bound6 { 2001:db8::20 }; "
                     "add element inet opensandbox always4_ranges { "
                     "198.51.100.30-198.51.100.39 : goto refuse }");
}

static int open_door(void **state)
{
    (void)state;
    return netns_run(&ns, RULES_PROGRAM " remove") ? 0 : -1;
}

static int in_force(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    fixture_apply(&ns, &r);
    policy();
    return 0;
}

static int closed(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    r.shape = RULESET_CLOSED;
    fixture_apply(&ns, &r);
    return 0;
}

/* ---- the table */

static unsigned each(unsigned (*one)(const struct attempt *, enum who))
{
    unsigned faults = 0;
    for (size_t i = 0; i < ATTEMPTS; i++) {
        for (unsigned who = AS_USER; who <= AS_OUR_UID; who <<= 1) {
            if (attempts[i].who & who)
                faults += one(&attempts[i], (enum who)who);
        }
    }
    return faults;
}

static unsigned complain(const struct attempt *a, enum who who, const char *what)
{
    static const char *const names[] = {[AS_USER] = "nobody",
                                        [AS_ROOT] = "root",
                                        [AS_RAW] = "root with NET_RAW",
                                        [AS_OUR_UID] = "our uid"};
    printf("%s (%s): %s\n", a->name, names[who], what);
    return 1;
}

/* Frames alone show it; what stays inside by nature is left out. */
static unsigned gets_out(const struct attempt *a, enum who who)
{
    char what[160];
    bool local = a->run == try_forged_inbound || (a->run == try_udp_by_device && a->number);
    netns_tap_forget(&ns);
    enum outcome o = attempt_as(&ns, a, who);
    if (o == UNABLE || local)
        return 0;
    return netns_tap_count(&ns, QUIET_MS, what) > 0 ? 0 : complain(a, who, "cannot get out at all");
}

static unsigned stays_in(const struct attempt *a, enum who who)
{
    char what[160], line[256];
    netns_tap_forget(&ns);
    enum outcome o = attempt_as(&ns, a, who);
    unsigned out = netns_tap_count(&ns, QUIET_MS, what);
    if (out > 0) {
        snprintf(line, sizeof line, "GOT OUT (%u frames): %s", out, what);
        return complain(a, who, line);
    }
    if (a->traits & NO_ANSWER || o == UNABLE || o == ANSWERED)
        return 0;
    snprintf(line, sizeof line, "%s", outcome_text(o));
    return complain(a, who, line);
}

static void every_attempt_gets_out_where_there_are_no_rules(void **state)
{
    (void)state;
    assert_int_equal(each(gets_out), 0);
}

static void no_attempt_gets_out_and_each_is_answered(void **state)
{
    (void)state;
    assert_int_equal(each(stays_in), 0);
}

static void closed_rules_let_no_attempt_out(void **state)
{
    (void)state;
    assert_int_equal(each(stays_in), 0);
}

static unsigned stays_in_whatever_is_allowed(const struct attempt *a, enum who who)
{
    return a->traits & ANY_POLICY ? stays_in(a, who) : 0;
}

static void what_no_policy_opens_stays_in_when_all_is_allowed(void **state)
{
    (void)state;
    fixture_nft(&ns,
                "add element inet opensandbox fallback { ipv4 : goto pass, ipv6 : goto pass }");
    assert_int_equal(each(stays_in_whatever_is_allowed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_attempt_gets_out_where_there_are_no_rules, open_door),
        cmocka_unit_test_setup(no_attempt_gets_out_and_each_is_answered, in_force),
        cmocka_unit_test_setup(closed_rules_let_no_attempt_out, closed),
        cmocka_unit_test_setup(what_no_policy_opens_stays_in_when_all_is_allowed, in_force),
    };
    if (!netns_start(&ns))
        return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    netns_stop(&ns);
    return failed;
}
