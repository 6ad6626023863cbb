/* sockets.c — finds and destroys sockets of the namespace by sock_diag.  A TCP socket is named by
 * its four numbers; for UDP they may name one that is bound but talks to many, and that one is left
 * alone: its packets to the lost address are refused by the cut mark. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>

#include "egress/kernel/flows_impl.h"

enum {
    OPEN_STATES = 1 << TCP_ESTABLISHED | 1 << TCP_SYN_SENT | 1 << TCP_SYN_RECV |
                  1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 | 1 << TCP_CLOSE_WAIT |
                  1 << TCP_LAST_ACK | 1 << TCP_CLOSING | 1 << 12 /* a SYN just came */
};

bool flow_in_use(unsigned tcp_state)
{
    return tcp_state < 32 && (unsigned)OPEN_STATES >> tcp_state & 1;
}

static void put_ip(uint32_t out[4], const struct ip *ip)
{
    memset(out, 0, 16);
    if (ip_is_v4(ip))
        memcpy(out, ip->b + 12, 4);
    else
        memcpy(out, ip->b, 16);
}

static void get_ip(struct ip *out, const uint32_t in[4], bool v4)
{
    *out = (struct ip){{[10] = 0xff, [11] = 0xff}};
    if (v4)
        memcpy(out->b + 12, in, 4);
    else
        memcpy(out->b, in, 16);
}

static struct inet_diag_req_v2 *begin(struct netlink *nl, void *p, uint16_t type, uint16_t flags,
                                      struct nlmsghdr **ret)
{
    *ret = netlink_begin(nl, p, type, flags);
    struct inet_diag_req_v2 *r = mnl_nlmsg_put_extra_header(*ret, sizeof *r);
    memset(r, 0, sizeof *r);
    r->idiag_states = ~0u;
    return r;
}

static void name(struct inet_diag_req_v2 *r, const struct flow *flow)
{
    r->sdiag_family = ip_is_v4(&flow->dst) ? AF_INET : AF_INET6;
    r->sdiag_protocol = flow->protocol;
    r->id.idiag_sport = htons(flow->src_port);
    r->id.idiag_dport = htons(flow->dst_port);
    put_ip(r->id.idiag_src, &flow->src);
    put_ip(r->id.idiag_dst, &flow->dst);
    r->id.idiag_cookie[0] = r->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

static int on_socket(const struct nlmsghdr *m, void *user)
{
    if (m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        memcpy(user, mnl_nlmsg_get_payload(m), sizeof(struct inet_diag_msg));
    return 0;
}

/* Is the UDP socket of a flow connected to its far side, and which one is it?  A question about one
 * UDP socket names it as its peer would: source and destination are the other way round. */
static int find_udp(struct netlink *nl, const struct flow *flow, struct inet_diag_sockid *ret)
{
    char q[256] __attribute__((aligned(8)));
    struct inet_diag_msg found = {0};
    struct flow seen = {flow->dst, flow->src, flow->dst_port, flow->src_port, flow->protocol};
    struct nlmsghdr *m;
    name(begin(nl, q, SOCK_DIAG_BY_FAMILY, 0, &m), &seen);
    int error = netlink_dump(nl, m, on_socket, &found);
    if (error == 0 && found.id.idiag_dport != htons(flow->dst_port))
        error = -ENOENT;
    *ret = found.id;
    return error;
}

/* Sockets come and go by themselves, and a kernel may have been built without this. */
static int forgive(int error)
{
    return error == -ENOENT || error == -EOPNOTSUPP ? 0 : error;
}

int sockets_destroy(struct netlink *nl, const struct flow *flow)
{
    char q[256] __attribute__((aligned(8)));
    struct inet_diag_sockid id;
    struct nlmsghdr *m;
    bool udp = flow->protocol == IPPROTO_UDP;
    if (!udp && flow->protocol != IPPROTO_TCP)
        return 0;
    int error = udp ? find_udp(nl, flow, &id) : 0;
    if (error)
        return forgive(error);
    struct inet_diag_req_v2 *r = begin(nl, q, SOCK_DESTROY, 0, &m);
    name(r, flow);
    if (udp)
        r->id = id;
    return forgive(netlink_ask(nl, m));
}

/* ---- all of them */

struct reader {
    uint8_t protocol;
    void (*each)(void *, const struct flow *);
    void *user;
};

static int on_open(const struct nlmsghdr *m, void *user)
{
    const struct reader *r = user;
    struct inet_diag_msg s = {0};
    struct flow flow = {.protocol = r->protocol};
    on_socket(m, &s);
    bool v4 = s.idiag_family == AF_INET;
    get_ip(&flow.src, s.id.idiag_src, v4);
    get_ip(&flow.dst, s.id.idiag_dst, v4);
    flow.src_port = ntohs(s.id.idiag_sport);
    flow.dst_port = ntohs(s.id.idiag_dport);
    r->each(r->user, &flow);
    return 0;
}

static int open_of_family(struct netlink *nl, uint8_t family, struct reader *reader)
{
    char q[256] __attribute__((aligned(8)));
    struct nlmsghdr *m;
    struct inet_diag_req_v2 *r = begin(nl, q, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &m);
    r->sdiag_family = family;
    r->sdiag_protocol = reader->protocol;
    r->idiag_states = OPEN_STATES;
    return netlink_dump(nl, m, on_open, reader);
}

/* The question in its older form is about both families: the table, which is the whole machine's,
 * is walked once. */
static int open_tcp(struct netlink *nl, struct reader *reader)
{
    char q[256] __attribute__((aligned(8)));
    struct nlmsghdr *m = netlink_begin(nl, q, TCPDIAG_GETSOCK, NLM_F_DUMP);
    struct inet_diag_req *r = mnl_nlmsg_put_extra_header(m, sizeof *r);
    memset(r, 0, sizeof *r);
    r->idiag_states = OPEN_STATES;
    return netlink_dump(nl, m, on_open, reader);
}

int sockets_open(struct netlink *nl, uint8_t protocol, void (*each)(void *, const struct flow *),
                 void *user)
{
    struct reader reader = {protocol, each, user};
    int error = protocol == IPPROTO_TCP ? open_tcp(nl, &reader) : -EINVAL;
    if (error != -EINVAL && error != -EOPNOTSUPP && error != -ENOENT)
        return error;
    error = open_of_family(nl, AF_INET, &reader);
    return error ? error : open_of_family(nl, AF_INET6, &reader);
}
