/* attempts.c — ways out of a sandbox.  Each does what an attacker would do and no more; it says
 * how it was answered, and leaves the judgement to the tap. */
#include "kernel/attempts.h"
#include "kernel/fixture.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 300, NOBODY = 65534, PING4 = 8, MORE_FRAGMENTS = 0x2000 };

/* The system's headers have a struct ip as well, so its header is written down here. */
struct iphdr {
    uint8_t version_and_words, tos;
    uint16_t tot_len, id, frag_off;
    uint8_t ttl, protocol;
    uint16_t check;
    uint32_t saddr, daddr;
};

/* ---- privileges */

void become(enum who who)
{
    bool raw = who & AS_ROOTS;
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2] = {{0, 0, 0}, {0, 0, 0}};
    uid_t uid = who == AS_USER ? NOBODY : who == AS_OUR_UID ? OUR_UID : 0;
    caps[0].permitted = caps[0].effective = raw ? 1u << CAP_NET_RAW : 0;
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (setresuid(uid, uid, uid) != 0 || syscall(SYS_capset, &head, caps) != 0)
        abort();
}

enum outcome attempt_as(const struct netns *ns, const struct attempt *a, enum who who)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        netns_enter(ns->inside);
        become(who);
        _exit((int)a->run(a));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        abort();
    return (enum outcome)WEXITSTATUS(status);
}

const char *outcome_text(enum outcome o)
{
    static const char *const texts[] = {"sent", "answered", "silent", "reached", "unable"};
    return texts[o];
}

/* ---- plain sockets */

static bool mark(int fd, uint32_t number)
{
    return number == 0 || setsockopt(fd, SOL_SOCKET, SO_MARK, &number, sizeof number) == 0;
}

/* Waits for the first word about what was sent. */
static enum outcome heard(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    int error = 0;
    socklen_t len = sizeof error;
    if (poll(&p, 1, ANSWER_MS) == 0)
        return SILENT;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    return error ? ANSWERED : REACHED;
}

static enum outcome tcp_on(int fd, const union addr *to)
{
    if (connect(fd, &to->sa, addr_len(&to->sa)) == 0)
        return REACHED;
    return errno == EINPROGRESS ? heard(fd, POLLOUT) : ANSWERED;
}

static enum outcome udp_on(int fd, const union addr *to)
{
    /* A second one, since the first may be taken before the route or the neighbour is known. */
    if (connect(fd, &to->sa, addr_len(&to->sa)) != 0 || send(fd, "sallyport", 9, 0) != 9)
        return ANSWERED;
    return heard(fd, POLLIN);
}

static int open_for(const union addr *to, int type)
{
    return socket(to->sa.sa_family, type | SOCK_NONBLOCK, 0);
}

enum outcome try_tcp(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, a->port);
    int fd = open_for(&to, SOCK_STREAM);
    return mark(fd, a->number) ? tcp_on(fd, &to) : UNABLE;
}

enum outcome try_udp(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, a->port);
    int fd = open_for(&to, SOCK_DGRAM), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
    return mark(fd, a->number) ? udp_on(fd, &to) : UNABLE;
}

static bool bind_device(int fd, uint32_t number)
{
    const char *device = number ? "lo" : "e0";
    return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, 3) == 0;
}

enum outcome try_udp_by_device(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, a->port);
    int fd = open_for(&to, SOCK_DGRAM);
    return bind_device(fd, a->number) ? udp_on(fd, &to) : UNABLE;
}

enum outcome try_tcp_by_device(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, a->port);
    int fd = open_for(&to, SOCK_STREAM);
    return bind_device(fd, a->number) ? tcp_on(fd, &to) : UNABLE;
}

enum outcome try_ping(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, 0);
    bool v4 = to.sa.sa_family == AF_INET;
    int fd =
        socket(to.sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK, v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    uint8_t echo[16] = {v4 ? PING4 : ICMP6_ECHO_REQUEST};
    if (fd < 0)
        return UNABLE;
    if (connect(fd, &to.sa, addr_len(&to.sa)) != 0 || send(fd, echo, sizeof echo, 0) < 0)
        return ANSWERED;
    return heard(fd, POLLIN);
}

/* ---- source routes */

enum outcome try_source_route(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, a->port), hop = netns_addr(OUTSIDE4, 0);
    int fd = open_for(&to, SOCK_DGRAM);
    uint8_t option[8] = {(uint8_t)a->number, 7, 4, 0, 0, 0, 0, 0};
    memcpy(option + 3, &hop.v4.sin_addr, 4);
    if (setsockopt(fd, IPPROTO_IP, IP_OPTIONS, option, sizeof option) != 0)
        return UNABLE;
    return udp_on(fd, &to);
}

enum outcome try_routing_header(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, 0), from = netns_addr(INSIDE6, 0);
    int fd = socket(AF_INET6, SOCK_RAW, IPPROTO_RAW);
    uint8_t p[40 + 24 + 16] = {0x60, [5] = 40, [6] = IPPROTO_ROUTING, [7] = 64};
    memcpy(p + 8, &from.v6.sin6_addr, 16);
    memcpy(p + 24, &to.v6.sin6_addr, 16);
    p[40] = IPPROTO_UDP;
    p[41] = 2; /* 8-byte units after the first */
    p[42] = (uint8_t)a->number;
    p[43] = 1; /* segments left */
    memcpy(p + 48, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x77", 16);
    memcpy(p + 64, "\x0f\xa0\x27\x0f\0\x10\0\0sallypor", 16);
    if (fd < 0)
        return UNABLE;
    return sendto(fd, p, sizeof p, 0, &to.sa, sizeof to.v6) < 0 ? ANSWERED : SENT;
}

/* ---- raw sockets */

enum outcome try_protocol(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, 0);
    int fd = socket(to.sa.sa_family, SOCK_RAW, (int)a->number);
    if (fd < 0)
        return UNABLE;
    return sendto(fd, "sallyportsallyport", 16, 0, &to.sa, addr_len(&to.sa)) < 0 ? ANSWERED : SENT;
}

static uint16_t sum_of(const void *p, size_t n, uint32_t sum)
{
    const uint8_t *b = p;
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)b[i] << 8 | b[i + 1];
    if (n % 2)
        sum += (uint32_t)b[n - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* The sum over addresses, protocol and length that TCP and UDP count in. */
static uint32_t pseudo(const struct iphdr *ip, size_t n)
{
    return (uint32_t)sum_of(&ip->saddr, 8, 0) + ip->protocol + (uint32_t)n;
}

static void ip_head(struct iphdr *ip, const char *from, const char *to, uint8_t protocol, size_t n)
{
    *ip = (struct iphdr){.version_and_words = 0x45, .ttl = 64, .protocol = protocol};
    ip->tot_len = htons((uint16_t)(sizeof *ip + n));
    ip->saddr = netns_addr(from, 0).v4.sin_addr.s_addr;
    ip->daddr = netns_addr(to, 0).v4.sin_addr.s_addr;
}

/* Header and payload of a UDP packet at p, with room for 64 bytes; its length. */
static size_t udp_packet(uint8_t *p, const char *from, uint16_t from_port, const char *to,
                         uint16_t to_port, const char *payload)
{
    struct iphdr ip;
    size_t n = 8 + strlen(payload);
    ip_head(&ip, from, to, IPPROTO_UDP, n);
    struct udphdr udp = {.uh_sport = htons(from_port), .uh_dport = htons(to_port)};
    udp.uh_ulen = htons((uint16_t)n);
    memcpy(p + 20, &udp, 8);
    memcpy(p + 28, payload, n - 8);
    udp.uh_sum = htons((uint16_t)~sum_of(p + 20, n, pseudo(&ip, n)));
    memcpy(p + 20, &udp, 8);
    ip.check = htons((uint16_t)~sum_of(&ip, sizeof ip, 0));
    memcpy(p, &ip, sizeof ip);
    return 20 + n;
}

static size_t tcp_packet(uint8_t *p, const char *from, uint16_t from_port, const char *to,
                         uint16_t to_port, unsigned flags, uint32_t seq)
{
    struct iphdr ip;
    size_t n = 20 + 9;
    ip_head(&ip, from, to, IPPROTO_TCP, n);
    struct tcphdr tcp = {.th_sport = htons(from_port), .th_dport = htons(to_port)};
    tcp.th_seq = htonl(seq);
    tcp.th_ack = htonl(1);
    tcp.th_off = 5;
    tcp.th_flags = (uint8_t)flags;
    tcp.th_win = htons(1000);
    memcpy(p + 20, &tcp, 20);
    memcpy(p + 40, "sallyport", 9);
    tcp.th_sum = htons((uint16_t)~sum_of(p + 20, n, pseudo(&ip, n)));
    memcpy(p + 20, &tcp, 20);
    memcpy(p, &ip, sizeof ip);
    return 20 + n;
}

static int raw_send(const uint8_t *p, size_t n, const char *to)
{
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
    union addr a = netns_addr(to, 0);
    if (fd < 0)
        return -1;
    ssize_t sent = sendto(fd, p, n, 0, &a.sa, sizeof a.v4);
    close(fd);
    return sent == (ssize_t)n ? 1 : 0;
}

bool send_forged_udp(const char *from, uint16_t from_port, const char *to, uint16_t to_port,
                     const char *payload)
{
    uint8_t p[256];
    size_t n = udp_packet(p, from, from_port, to, to_port, payload);
    return raw_send(p, n, to) == 1;
}

bool send_forged_tcp(const char *from, uint16_t from_port, const char *to, uint16_t to_port,
                     unsigned flags, uint32_t seq)
{
    uint8_t p[256];
    size_t n = tcp_packet(p, from, from_port, to, to_port, flags, seq);
    return raw_send(p, n, to) == 1;
}

static enum outcome told(int sent)
{
    return sent < 0 ? UNABLE : sent ? SENT : ANSWERED;
}

enum outcome try_forged_udp(const struct attempt *a)
{
    uint8_t p[256];
    static const char *const sources[] = {INSIDE4, "198.51.100.99", "127.0.0.1"};
    const char *from = sources[a->number];
    return told(raw_send(p, udp_packet(p, from, 4000, a->ip, a->port, "sallyport"), a->ip));
}

enum outcome try_stray_segment(const struct attempt *a)
{
    uint8_t p[256];
    size_t n = tcp_packet(p, INSIDE4, 4001, a->ip, a->port, a->number, 1);
    return told(raw_send(p, n, a->ip));
}

enum outcome try_fragments(const struct attempt *a)
{
    uint8_t p[256], second[64];
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW), one = 1;
    union addr to = netns_addr(a->ip, 0);
    struct iphdr ip;
    if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_NODEFRAG, &one, sizeof one) != 0)
        return UNABLE;
    udp_packet(p, INSIDE4, 4002, a->ip, a->port, "sallyport-sally1sallyport-sally2");
    memcpy(&ip, p, sizeof ip);
    ip.frag_off = htons(MORE_FRAGMENTS);
    ip.tot_len = htons(20 + 24);
    ip.id = htons(7777);
    memcpy(p, &ip, sizeof ip);
    memcpy(second + 20, p + 44, 16);
    ip.frag_off = htons(3);
    ip.tot_len = htons(20 + 16);
    memcpy(second, &ip, sizeof ip);
    bool first = sendto(fd, p, 44, 0, &to.sa, sizeof to.v4) == 44;
    bool last = sendto(fd, second, 36, 0, &to.sa, sizeof to.v4) == 36;
    return first || last ? SENT : ANSWERED;
}

enum outcome try_neighbour(const struct attempt *a)
{
    union addr to = netns_addr(a->ip, 0);
    int fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), hops = 255;
    uint8_t p[64] = {(uint8_t)a->number};
    if (fd < 0)
        return UNABLE;
    setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof hops);
    setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops);
    memcpy(p + 24, "sallyport", 9);
    return sendto(fd, p, sizeof p, 0, &to.sa, sizeof to.v6) < 0 ? ANSWERED : SENT;
}

/* ---- frames */

static size_t frame_body(uint8_t *p, const struct attempt *a)
{
    memset(p, 'S', 80);
    if (a->number & FRAME_ARP)
        return 80;
    if (!(a->number & FRAME_V6))
        return udp_packet(p, INSIDE4, 4003, a->ip, a->port, "sallyport");
    union addr from = netns_addr(INSIDE6, 0), to = netns_addr("2001:db8::66", 0);
    memcpy(p, "\x60\0\0\0\0\x20\x3b\x40", 8);
    memcpy(p + 8, &from.v6.sin6_addr, 16);
    memcpy(p + 24, &to.v6.sin6_addr, 16);
    return 40 + 32;
}

enum outcome try_frame(const struct attempt *a)
{
    uint8_t p[256];
    unsigned type = a->number & FRAME_ARP  ? ETH_P_ARP
                    : a->number & FRAME_V6 ? ETH_P_IPV6
                                           : ETH_P_IP;
    int fd = socket(AF_PACKET, SOCK_DGRAM, 0), one = 1;
    uint32_t guess = PASS_MARK; /* half of what opens the wire */
    struct sockaddr_ll to = {.sll_family = AF_PACKET,
                             .sll_protocol = htons((uint16_t)type),
                             .sll_ifindex = (int)if_nametoindex("e0"),
                             .sll_halen = 6,
                             .sll_addr = {2, 0, 0, 0, 0, 1}};
    if (a->number & FRAME_GROUP)
        to.sll_addr[0] = 1;
    if (fd < 0)
        return UNABLE;
    if (a->number & FRAME_BYPASS &&
        setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) != 0)
        return UNABLE;
    if (a->number & FRAME_MARKED && !mark(fd, guess))
        return UNABLE;
    size_t n = frame_body(p, a);
    return sendto(fd, p, n, 0, (struct sockaddr *)&to, sizeof to) < 0 ? ANSWERED : SENT;
}

enum outcome try_forged_inbound(const struct attempt *a)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    union addr me = netns_addr(INSIDE4, 4004), to = netns_addr(a->ip, a->port);
    if (bind(fd, &me.sa, sizeof me.v4) != 0 ||
        !send_forged_udp(a->ip, a->port, INSIDE4, 4004, "hello"))
        return UNABLE;
    return sendto(fd, "sallyport", 9, 0, &to.sa, sizeof to.v4) < 0 ? ANSWERED : SENT;
}
