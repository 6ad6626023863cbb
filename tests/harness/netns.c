/* netns.c — namespaces for the kernel tests.  All sockets of the outside are made and kept by the
 * test's own process: a socket stays in the namespace in which it was made, so there is no server
 * process to start, to wait for or to forget. */
#include "harness/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "netns: %s: %s\n", what, strerror(errno));
    abort();
}

int netns_current(void)
{
    return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

void netns_enter(int namespace)
{
    must(setns(namespace, CLONE_NEWNET) == 0, "setns");
}

static bool run_in(const struct netns *ns, int namespace, const char *command)
{
    netns_enter(namespace);
    int status = system(command);
    netns_enter(ns->home);
    return status == 0;
}

bool netns_run(const struct netns *ns, const char *command)
{
    return run_in(ns, ns->inside, command);
}

bool netns_feed(const struct netns *ns, const char *command, struct str text)
{
    netns_enter(ns->inside);
    FILE *f = popen(command, "we");
    must(f && fwrite(text.p, 1, text.n, f) == text.n, command);
    int status = pclose(f);
    netns_enter(ns->home);
    return status == 0;
}

static bool join(const struct netns *ns)
{
    char line[256];
    static const char outside[] =
        "exec 2>&1; ip link set lo up && ip addr add " OUTSIDE4 "/24 dev o0 && "
        "ip -6 addr add " OUTSIDE6 "/64 dev o0 nodad && ip link set o0 up && "
        "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit && "
        "ip route add local 198.51.100.0/24 dev lo && ip -6 route add local 2001:db8::/32 dev lo";
    static const char inside[] =
        "exec 2>&1; ip link set lo up && ip addr add " INSIDE4 "/24 dev e0 && "
        "ip -6 addr add " INSIDE6 "/64 dev e0 nodad && ip link set e0 up && "
        "ip route add default via " OUTSIDE4 " && ip -6 route add default via " OUTSIDE6;
    snprintf(line, sizeof line, "ip link add o0 type veth peer name e0 netns /proc/%d/fd/%d",
             (int)getpid(), ns->inside);
    return run_in(ns, ns->outside, line) && run_in(ns, ns->outside, outside) &&
           run_in(ns, ns->inside, inside) &&
           run_in(ns, ns->inside,
                  "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; "
                  "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range");
}

static int tap_open(const struct netns *ns)
{
    netns_enter(ns->outside);
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL));
    struct sockaddr_ll to = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex("o0")};
    int room = 1 << 22;
    must(fd >= 0 && bind(fd, (struct sockaddr *)&to, sizeof to) == 0, "tap");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    netns_enter(ns->home);
    return fd;
}

bool netns_start(struct netns *ns)
{
    ns->home = netns_current();
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0) {
        puts("skip: kernel tests need root and CAP_SYS_ADMIN to make network namespaces");
        return false;
    }
    ns->inside = netns_current();
    must(unshare(CLONE_NEWNET) == 0, "unshare");
    ns->outside = netns_current();
    netns_enter(ns->home);
    if (!join(ns)) {
        puts("skip: kernel tests need iproute2 and veth devices");
        return false;
    }
    ns->tap = tap_open(ns);
    return true;
}

void netns_stop(struct netns *ns)
{
    close(ns->tap);
    close(ns->inside);
    close(ns->outside);
    close(ns->home);
}

union addr netns_addr(const char *ip, uint16_t port)
{
    struct ip parsed;
    union addr a;
    must(ip_parse(str_of(ip), &parsed), ip);
    addr_make(&a, &parsed, port);
    return a;
}

int netns_listen(int namespace, int type, const char *ip, uint16_t port)
{
    int home = netns_current(), one = 1;
    union addr a = netns_addr(ip, port);
    netns_enter(namespace);
    int fd = socket(a.sa.sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* All addresses of a range are at home, but the kernel knows none of them by itself. */
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
    if (a.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    must(bind(fd, &a.sa, addr_len(&a.sa)) == 0, "bind");
    must(type != SOCK_STREAM || listen(fd, 64) == 0, "listen");
    netns_enter(home);
    close(home);
    return fd;
}

bool netns_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1 && p.revents & POLLIN;
}

/* ---- the tap */

void netns_tap_forget(const struct netns *ns)
{
    uint8_t frame[2048];
    while (recv(ns->tap, frame, sizeof frame, 0) > 0)
        ;
}

/* What a kernel without a word from anybody sends: ARP, neighbour and router solicitations and
 * advertisements (hop limit 255, at most a link-layer option: 32 bytes), membership reports. */
static bool is_housekeeping(const uint8_t *p, size_t n, unsigned protocol)
{
    if (protocol == ETH_P_ARP)
        return n <= 42;
    if (protocol != ETH_P_IPV6 || n < 14 + 40 + 8)
        return false;
    const uint8_t *v6 = p + 14;
    bool member = v6[6] == 0 && v6[40] == IPPROTO_ICMPV6;
    bool neighbour = v6[6] == IPPROTO_ICMPV6 && v6[7] == 255 && v6[40] >= 133 && v6[40] <= 136;
    return member || (neighbour && n <= 14 + 40 + 32);
}

static void describe(const uint8_t *p, size_t n, unsigned protocol, char what[160])
{
    static const char digits[] = "0123456789abcdef";
    size_t at = (size_t)snprintf(what, 160, "type %04x, %zu bytes: ", protocol, n);
    for (size_t i = 14; i < n && at + 3 < 160; i++) {
        what[at++] = digits[p[i] >> 4];
        what[at++] = digits[p[i] & 15];
    }
    what[at] = 0;
}

unsigned netns_tap_count(const struct netns *ns, unsigned ms, char what[160])
{
    uint8_t frame[2048];
    unsigned count = 0;
    what[0] = 0;
    while (netns_readable(ns->tap, (int)ms)) {
        struct sockaddr_ll from;
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(ns->tap, frame, sizeof frame, 0, (struct sockaddr *)&from, &len);
        unsigned protocol = n >= 14 ? (unsigned)frame[12] << 8 | frame[13] : 0;
        if (n < 0 || from.sll_pkttype == PACKET_OUTGOING ||
            is_housekeeping(frame, (size_t)n, protocol))
            continue;
        if (count++ == 0)
            describe(frame, (size_t)n, protocol, what);
    }
    return count;
}
