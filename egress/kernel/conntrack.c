/* conntrack.c — reads and marks entries.  An entry is never deleted: the peer's next packet would
 * make it anew, as a flow from outside. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include "egress/kernel/flows_impl.h"
#include "egress/kernel/ruleset.h"

struct reader {
    void (*each)(void *, const struct tracked *);
    void *user;
};

static bool read_ip(const struct nlattr *ips, uint16_t v4, uint16_t v6, struct ip *ret)
{
    const struct nlattr *a = netlink_inside(ips, v4);
    *ret = (struct ip){{[10] = 0xff, [11] = 0xff}};
    if (a && mnl_attr_get_payload_len(a) == 4) {
        memcpy(ret->b + 12, mnl_attr_get_payload(a), 4);
        return true;
    }
    a = netlink_inside(ips, v6);
    if (!a || mnl_attr_get_payload_len(a) != 16)
        return false;
    memcpy(ret->b, mnl_attr_get_payload(a), 16);
    return true;
}

static uint16_t read_port(const struct nlattr *proto, uint16_t type)
{
    const struct nlattr *a = netlink_inside(proto, type);
    return a && mnl_attr_get_payload_len(a) == 2 ? ntohs(mnl_attr_get_u16(a)) : 0;
}

static bool read_tuple(const struct nlattr *tuple, struct flow *ret)
{
    const struct nlattr *ips = netlink_inside(tuple, CTA_TUPLE_IP),
                        *proto = netlink_inside(tuple, CTA_TUPLE_PROTO);
    const struct nlattr *number = netlink_inside(proto, CTA_PROTO_NUM);
    if (!number || !read_ip(ips, CTA_IP_V4_SRC, CTA_IP_V6_SRC, &ret->src) ||
        !read_ip(ips, CTA_IP_V4_DST, CTA_IP_V6_DST, &ret->dst))
        return false;
    ret->protocol = mnl_attr_get_u8(number);
    ret->src_port = read_port(proto, CTA_PROTO_SRC_PORT);
    ret->dst_port = read_port(proto, CTA_PROTO_DST_PORT);
    return true;
}

static int on_entry(const struct nlmsghdr *m, void *user)
{
    const struct reader *r = user;
    const struct nfgenmsg *g = mnl_nlmsg_get_payload(m);
    struct tracked t = {.family = g->nfgen_family};
    const struct nlattr *a, *tuple = NULL;
    uint32_t status = 0;
    mnl_attr_for_each(a, m, sizeof *g)
    {
        uint16_t type = mnl_attr_get_type(a);
        if (type == CTA_TUPLE_ORIG)
            tuple = a;
        else if (type == CTA_STATUS)
            status = ntohl(mnl_attr_get_u32(a));
        else if (type == CTA_ZONE)
            t.zone = ntohs(mnl_attr_get_u16(a));
        else if (type == CTA_MARK)
            t.mark = ntohl(mnl_attr_get_u32(a));
    }
    if (!tuple || mnl_attr_get_payload_len(tuple) > TUPLE_BYTES || !read_tuple(tuple, &t.flow))
        return 0;
    t.redirected = status & IPS_DST_NAT;
    t.answered = status & IPS_SEEN_REPLY;
    t.tuple_len = mnl_attr_get_payload_len(tuple);
    memcpy(t.tuple, mnl_attr_get_payload(tuple), t.tuple_len);
    r->each(r->user, &t);
    return 0;
}

static struct nlmsghdr *begin(struct netlink *nl, void *p, unsigned verb, uint16_t flags,
                              uint8_t family)
{
    struct nlmsghdr *m = netlink_begin(nl, p, (uint16_t)(NFNL_SUBSYS_CTNETLINK << 8 | verb), flags);
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof *g);
    *g = (struct nfgenmsg){.nfgen_family = family, .version = NFNETLINK_V0};
    return m;
}

static void put_mark(struct nlmsghdr *m, uint32_t mark, uint32_t mask)
{
    mnl_attr_put_u32(m, CTA_MARK, htonl(mark));
    mnl_attr_put_u32(m, CTA_MARK_MASK, htonl(mask));
}

int conntrack_dump(struct netlink *nl, void (*each)(void *, const struct tracked *), void *user)
{
    char q[1024] __attribute__((aligned(8)));
    struct reader r = {each, user};
    struct nlmsghdr *m = begin(nl, q, IPCTNL_MSG_CT_GET, NLM_F_DUMP, AF_UNSPEC);
    put_mark(m, 0, RULESET_CT_ALL);
    return netlink_dump(nl, m, on_entry, &r);
}

static void put_tuple(struct nlmsghdr *m, const struct flow *flow)
{
    bool v4 = ip_is_v4(&flow->dst);
    unsigned skip = v4 ? 12 : 0;
    struct nlattr *tuple = mnl_attr_nest_start(m, CTA_TUPLE_ORIG);
    struct nlattr *ips = mnl_attr_nest_start(m, CTA_TUPLE_IP);
    mnl_attr_put(m, v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, 16 - skip, flow->src.b + skip);
    mnl_attr_put(m, v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, 16 - skip, flow->dst.b + skip);
    mnl_attr_nest_end(m, ips);
    struct nlattr *proto = mnl_attr_nest_start(m, CTA_TUPLE_PROTO);
    mnl_attr_put_u8(m, CTA_PROTO_NUM, flow->protocol);
    mnl_attr_put_u16(m, CTA_PROTO_SRC_PORT, htons(flow->src_port));
    mnl_attr_put_u16(m, CTA_PROTO_DST_PORT, htons(flow->dst_port));
    mnl_attr_nest_end(m, proto);
    mnl_attr_nest_end(m, tuple);
}

static void keep_entry(void *user, const struct tracked *t)
{
    struct tracked *found = user;
    *found = *t;
}

int conntrack_find(struct netlink *nl, const struct flow *flow, struct tracked *ret)
{
    char q[1024] __attribute__((aligned(8)));
    struct tracked found = {.tuple_len = 0};
    struct reader r = {keep_entry, &found};
    uint8_t family = ip_is_v4(&flow->dst) ? AF_INET : AF_INET6;
    struct nlmsghdr *m = begin(nl, q, IPCTNL_MSG_CT_GET, 0, family);
    put_tuple(m, flow);
    int error = netlink_dump(nl, m, on_entry, &r);
    if (error)
        return error;
    *ret = found;
    return found.tuple_len ? 0 : -ENOENT;
}

int conntrack_cut(struct netlink *nl, const struct tracked *t)
{
    char q[1024] __attribute__((aligned(8)));
    struct nlmsghdr *m = begin(nl, q, IPCTNL_MSG_CT_NEW, 0, t->family);
    mnl_attr_put(m, CTA_TUPLE_ORIG | NLA_F_NESTED, t->tuple_len, t->tuple);
    put_mark(m, RULESET_CT_CUT, RULESET_CT_CUT);
    if (t->zone)
        mnl_attr_put_u16(m, CTA_ZONE, htons(t->zone));
    int error = netlink_ask(nl, m);
    return error == -ENOENT ? 0 : error;
}
