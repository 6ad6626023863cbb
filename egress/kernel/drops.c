/* drops.c — reads packets that were refused.  A packet is written by the sandbox, so it is parsed
 * as hostile input; all there is to say of it are its addresses, ports and protocol. */
#include "egress/kernel/drops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "egress/kernel/netlink_impl.h"
#include "egress/kernel/ruleset.h"

enum { RECEIVE_BYTES = 32768, COPY_BYTES = 128, V4_HEAD = 20, V6_HEAD = 40, GATHER_10MS = 10 };

struct drops {
    struct netlink nl;
    uint64_t lost;
    uint32_t next; /* number of the copy that should come next */
    bool counted;  /* there was one before */
};

/* ---- packets */

static uint16_t number16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void read_ports(const uint8_t *p, size_t n, struct drop *d)
{
    bool ports = d->protocol == IPPROTO_TCP || d->protocol == IPPROTO_UDP ||
                 d->protocol == IPPROTO_SCTP || d->protocol == IPPROTO_DCCP ||
                 d->protocol == IPPROTO_UDPLITE;
    if (!ports || n < 4)
        return;
    d->src_port = number16(p);
    d->dst_port = number16(p + 2);
}

static bool parse_v4(const uint8_t *p, size_t n, struct drop *d)
{
    size_t head = (size_t)(p[0] & 15) * 4;
    if (n < V4_HEAD || head < V4_HEAD)
        return false;
    d->src = d->dst = (struct ip){{[10] = 0xff, [11] = 0xff}};
    memcpy(d->src.b + 12, p + 12, 4);
    memcpy(d->dst.b + 12, p + 16, 4);
    d->protocol = p[9];
    bool first = (number16(p + 6) & 0x1fff) == 0;
    if (first && n > head)
        read_ports(p + head, n - head, d);
    return true;
}

static bool parse_v6(const uint8_t *p, size_t n, struct drop *d)
{
    if (n < V6_HEAD)
        return false;
    memcpy(d->src.b, p + 8, 16);
    memcpy(d->dst.b, p + 24, 16);
    d->protocol = p[6];
    if (d->protocol == IPPROTO_HOPOPTS || d->protocol == IPPROTO_ROUTING ||
        d->protocol == IPPROTO_FRAGMENT || d->protocol == IPPROTO_DSTOPTS)
        d->protocol = 0;
    read_ports(p + V6_HEAD, n - V6_HEAD, d);
    return true;
}

bool drop_parse(const uint8_t *p, size_t n, struct drop *ret)
{
    struct drop d = {0};
    if (n == 0)
        return false;
    if (p[0] >> 4 == 4 ? !parse_v4(p, n, &d) : p[0] >> 4 != 6 || !parse_v6(p, n, &d))
        return false;
    *ret = d;
    return true;
}

/* ---- nflog */

static struct nlmsghdr *configure(struct drops *d, void *p)
{
    struct nlmsghdr *m = netlink_begin(&d->nl, p, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, 0);
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof *g);
    *g = (struct nfgenmsg){
        .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(RULESET_LOG_GROUP)};
    return m;
}

static int bind_group(struct drops *d)
{
    char q[512] __attribute__((aligned(8)));
    struct nfulnl_msg_config_cmd bind = {NFULNL_CFG_CMD_BIND};
    struct nfulnl_msg_config_mode mode = {.copy_range = htonl(COPY_BYTES),
                                          .copy_mode = NFULNL_COPY_PACKET};
    struct nlmsghdr *m = configure(d, q);
    mnl_attr_put(m, NFULA_CFG_CMD, sizeof bind, &bind);
    int error = netlink_ask(&d->nl, m);
    if (error)
        return error;
    m = configure(d, q);
    mnl_attr_put(m, NFULA_CFG_MODE, sizeof mode, &mode);
    mnl_attr_put_u32(m, NFULA_CFG_TIMEOUT, htonl(GATHER_10MS));
    mnl_attr_put_u16(m, NFULA_CFG_FLAGS, htons(NFULNL_CFG_F_SEQ));
    return netlink_ask(&d->nl, m);
}

int drops_open(struct drops **ret)
{
    struct drops *d = mem_new(sizeof *d);
    int error = netlink_open(&d->nl, NETLINK_NETFILTER);
    if (error == 0) {
        error = bind_group(d);
        if (error)
            netlink_close(&d->nl);
    }
    if (error) {
        mem_free(d);
        return error;
    }
    *ret = d;
    return 0;
}

void drops_close(struct drops *d)
{
    if (!d)
        return;
    netlink_close(&d->nl);
    mem_free(d);
}

int drops_fd(const struct drops *d)
{
    return mnl_socket_get_fd(d->nl.socket);
}

uint64_t drops_lost(const struct drops *d)
{
    return d->lost;
}

static void note_number(struct drops *d, const struct nlattr *number)
{
    if (!number || mnl_attr_get_payload_len(number) != 4)
        return;
    uint32_t n = ntohl(mnl_attr_get_u32(number));
    if (d->counted)
        d->lost += n - d->next;
    d->counted = true;
    d->next = n + 1;
}

static bool read_packet(struct drops *d, const struct nlmsghdr *m, struct drop *ret)
{
    const struct nlattr *a, *packet = NULL, *uid = NULL, *number = NULL;
    mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
    {
        uint16_t type = mnl_attr_get_type(a);
        if (type == NFULA_PAYLOAD)
            packet = a;
        else if (type == NFULA_UID)
            uid = a;
        else if (type == NFULA_SEQ)
            number = a;
    }
    note_number(d, number);
    if (!packet || !drop_parse(mnl_attr_get_payload(packet), mnl_attr_get_payload_len(packet), ret))
        return false;
    ret->has_uid = uid && mnl_attr_get_payload_len(uid) == 4;
    ret->uid = ret->has_uid ? ntohl(mnl_attr_get_u32(uid)) : 0;
    return true;
}

static unsigned read_datagram(struct drops *d, const char *p, size_t n,
                              void (*each)(void *user, const struct drop *drop), void *user)
{
    const struct nlmsghdr *m = (const struct nlmsghdr *)(const void *)p;
    unsigned count = 0;
    for (int left = (int)n; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left)) {
        struct drop drop;
        if (m->nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET))
            continue;
        if (!read_packet(d, m, &drop)) {
            d->lost++;
            continue;
        }
        each(user, &drop);
        count++;
    }
    return count;
}

int drops_read(struct drops *d, unsigned max, void (*each)(void *user, const struct drop *drop),
               void *user)
{
    char p[RECEIVE_BYTES] __attribute__((aligned(8)));
    unsigned count = 0;
    while (count < max) {
        struct sockaddr_nl from;
        socklen_t len = sizeof from;
        ssize_t n =
            recvfrom(drops_fd(d), p, sizeof p, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
        if (n < 0 && errno == EAGAIN)
            break;
        /* A full buffer: how many were lost shows in the next copy's number. */
        if (n < 0 && (errno == EINTR || errno == ENOBUFS))
            continue;
        if (n < 0)
            return -errno;
        if (from.nl_pid == 0)
            count += read_datagram(d, p, (size_t)n, each, user);
    }
    return (int)count;
}
