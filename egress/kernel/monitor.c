/* monitor.c — two sockets that only listen.  A change of a policy makes thousands of messages, one
 * for each element: a filter in the kernel leaves the one that ends each transaction. */
#include "egress/kernel/monitor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "egress/kernel/netlink_impl.h"

enum { RECEIVE_BYTES = 32768, READS_A_TURN = 64 };

struct monitor {
    struct netlink rules, devices;
    uint32_t trusted; /* the last transaction that is known to be good */
    bool doubtful;
};

static int join(struct netlink *nl, int group)
{
    int fd = mnl_socket_get_fd(nl->socket);
    return setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) ? -errno : 0;
}

/* A message begins with its length; its type follows, in the machine's order, which a filter's
 * half-word loads turn round. */
static int only_ends(struct netlink *nl)
{
    enum { WANTED = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN, TYPE_AT = 4 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, TYPE_AT),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(WANTED), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    int fd = mnl_socket_get_fd(nl->socket);
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) ? -errno : 0;
}

static int open_rules(struct monitor *m)
{
    int error = netlink_open(&m->rules, NETLINK_NETFILTER);
    if (error)
        return error;
    error = only_ends(&m->rules);
    if (error == 0)
        error = join(&m->rules, NFNLGRP_NFTABLES);
    if (error)
        netlink_close(&m->rules);
    return error;
}

static int open_devices(struct monitor *m)
{
    int error = netlink_open(&m->devices, NETLINK_ROUTE);
    if (error)
        return error;
    error = join(&m->devices, RTNLGRP_LINK);
    if (error)
        netlink_close(&m->devices);
    return error;
}

int monitor_open(struct monitor **ret)
{
    struct monitor *m = mem_new(sizeof *m);
    int error = open_rules(m);
    if (error == 0) {
        error = open_devices(m);
        if (error)
            netlink_close(&m->rules);
    }
    if (error) {
        mem_free(m);
        return error;
    }
    *ret = m;
    return 0;
}

void monitor_close(struct monitor *m)
{
    if (!m)
        return;
    netlink_close(&m->rules);
    netlink_close(&m->devices);
    mem_free(m);
}

int monitor_rules_fd(const struct monitor *m)
{
    return mnl_socket_get_fd(m->rules.socket);
}

int monitor_devices_fd(const struct monitor *m)
{
    return mnl_socket_get_fd(m->devices.socket);
}

/* ---- who changed something */

void monitor_trust(struct monitor *m, uint32_t generation)
{
    m->trusted = generation;
    m->doubtful = false;
}

bool monitor_is_up_to(const struct monitor *m, uint32_t generation)
{
    return !m->doubtful && m->trusted == generation;
}

static bool is_one_of(uint32_t port, const uint32_t *ports, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (ports[i] == port)
            return true;
    }
    return false;
}

static void hear(struct monitor *m, const struct nlmsghdr *h, const uint32_t *ports, unsigned n)
{
    const struct nlattr *a;
    uint32_t number = m->trusted;
    if (h->nlmsg_type != (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN))
        return;
    mnl_attr_for_each(a, h, sizeof(struct nfgenmsg))
    {
        if (mnl_attr_get_type(a) == NFTA_GEN_ID && mnl_attr_get_payload_len(a) == sizeof number)
            number = ntohl(mnl_attr_get_u32(a));
    }
    if ((int32_t)(number - m->trusted) <= 0)
        return; /* old news */
    if (number == m->trusted + 1 && is_one_of(h->nlmsg_pid, ports, n))
        m->trusted = number;
    else
        m->doubtful = true;
}

/* Bytes of the kernel's, 0: something else, or something was lost; -1: nothing is there. */
static ssize_t receive(struct netlink *nl, void *p, bool *lost)
{
    struct sockaddr_nl from = {0};
    socklen_t len = sizeof from;
    ssize_t n = recvfrom(mnl_socket_get_fd(nl->socket), p, RECEIVE_BYTES, MSG_DONTWAIT,
                         (struct sockaddr *)&from, &len);
    if (n < 0 && errno == ENOBUFS)
        *lost = true;
    if (n < 0)
        return errno == ENOBUFS || errno == EINTR ? 0 : -1;
    return from.nl_pid == 0 ? n : 0;
}

bool monitor_rules(struct monitor *m, const uint32_t *ports, unsigned count)
{
    char p[RECEIVE_BYTES] __attribute__((aligned(8)));
    for (unsigned i = 0; i < READS_A_TURN; i++) {
        ssize_t n = receive(&m->rules, p, &m->doubtful);
        if (n < 0)
            break;
        const struct nlmsghdr *h = (const struct nlmsghdr *)p;
        for (int left = (int)n; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left))
            hear(m, h, ports, count);
    }
    return m->doubtful;
}

bool monitor_devices(struct monitor *m)
{
    char p[RECEIVE_BYTES] __attribute__((aligned(8)));
    bool any = false;
    for (unsigned i = 0; i < READS_A_TURN; i++) {
        ssize_t n = receive(&m->devices, p, &any);
        if (n < 0)
            break;
        any |= n > 0;
    }
    return any;
}
