/* flows.c — ends what lost its permission.  First the socket is destroyed, while the flow may still
 * speak, so that the reset reaches the peer; then the entry gets the cut mark, which holds what a
 * socket does not show: raw sockets, UDP without a connection, data that only comes in.
 *
 * Sockets are looked through before entries because that takes one millisecond: the table of
 * entries is the whole machine's, and walking it takes ten. */
#include "egress/kernel/flows.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "egress/kernel/flows_impl.h"
#include "egress/kernel/ruleset.h"

enum { LOCAL_MAX = 256 };

struct flows {
    struct netlink conntrack, sockets;
    struct ip local[LOCAL_MAX]; /* addresses of the namespace, read anew for each call */
    unsigned nlocal;
};

int flows_open(struct flows **ret)
{
    struct flows *f = mem_new(sizeof *f);
    int error = netlink_open(&f->conntrack, NETLINK_NETFILTER);
    if (error == 0) {
        error = netlink_open(&f->sockets, NETLINK_SOCK_DIAG);
        if (error)
            netlink_close(&f->conntrack);
    }
    if (error) {
        mem_free(f);
        return error;
    }
    *ret = f;
    return 0;
}

void flows_close(struct flows *f)
{
    if (!f)
        return;
    netlink_close(&f->conntrack);
    netlink_close(&f->sockets);
    mem_free(f);
}

/* ---- who is local */

static void add_local(struct flows *f, const struct sockaddr *sa)
{
    struct ip ip = {{[10] = 0xff, [11] = 0xff}};
    if (!sa || f->nlocal == LOCAL_MAX)
        return;
    if (sa->sa_family == AF_INET)
        memcpy(ip.b + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    else if (sa->sa_family == AF_INET6)
        memcpy(ip.b, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    else
        return;
    f->local[f->nlocal++] = ip;
}

static int read_local(struct flows *f)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return -errno;
    f->nlocal = 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        add_local(f, i->ifa_addr);
    freeifaddrs(all);
    return 0;
}

static bool is_local(const struct flows *f, const struct ip *ip)
{
    if (ip_is_v4(ip) && ip->b[12] == 127)
        return true;
    for (unsigned i = 0; i < f->nlocal; i++) {
        if (ip_eq(&f->local[i], ip))
            return true;
    }
    return false;
}

/* ---- cut */

/* Entries that are to be cut; a flow found by its socket has no entry yet. */
struct cut {
    struct flows *f;
    bool (*keep)(void *user, const struct flow *flow);
    void *user;
    struct tracked *lost;
    size_t n, room;
    unsigned done;
};

static void add_lost(struct cut *c, const struct tracked *t)
{
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 64;
        c->lost = mem_renew(c->lost, c->room * sizeof *c->lost);
    }
    c->lost[c->n++] = *t;
}

static bool is_lost(const struct cut *c, const struct flow *flow)
{
    return !is_local(c->f, &flow->dst) && !c->keep(c->user, flow);
}

static void judge_socket(void *user, const struct flow *flow)
{
    struct tracked t = {.flow = *flow};
    if (is_lost(user, flow))
        add_lost(user, &t);
}

static void judge_entry(void *user, const struct tracked *t)
{
    if (!t->redirected && is_lost(user, &t->flow))
        add_lost(user, t);
}

static int end(struct cut *c, const struct tracked *t)
{
    int socket_error = sockets_destroy(&c->f->sockets, &t->flow);
    int mark_error = conntrack_cut(&c->f->conntrack, t);
    if (mark_error == 0)
        c->done++;
    return mark_error ? mark_error : socket_error;
}

/* The socket's flow, if it was the socket that opened it, and to the place it thinks. */
static int end_socket(struct cut *c, const struct flow *flow)
{
    struct tracked t;
    int error = conntrack_find(&c->f->conntrack, flow, &t);
    if (error)
        return error == -ENOENT ? 0 : error;
    if (t.mark & RULESET_CT_ALL || t.redirected || !ip_eq(&t.flow.dst, &flow->dst))
        return 0;
    return end(c, &t);
}

static int first(int error, int next)
{
    return error ? error : next;
}

/* A dump that was interrupted may have missed some; those it has shown are judged anew. */
static int cut_sockets(struct cut *c, uint8_t protocol)
{
    int error = -EINTR;
    for (unsigned i = 0; i < NETLINK_DUMP_TRIES && error == -EINTR; i++) {
        c->n = 0;
        error = sockets_open(&c->f->sockets, protocol, judge_socket, c);
    }
    for (size_t i = 0; i < c->n; i++)
        error = first(error, end_socket(c, &c->lost[i].flow));
    return error;
}

static int cut_entries(struct cut *c)
{
    int error = -EINTR;
    for (unsigned i = 0; i < NETLINK_DUMP_TRIES && error == -EINTR; i++) {
        c->n = 0;
        error = conntrack_dump(&c->f->conntrack, judge_entry, c);
    }
    for (size_t i = 0; i < c->n; i++)
        error = first(error, end(c, &c->lost[i]));
    return error;
}

int flows_cut(struct flows *f, bool (*keep)(void *user, const struct flow *flow), void *user,
              unsigned *ret_cut)
{
    struct cut c = {.f = f, .keep = keep, .user = user};
    int error = read_local(f);
    if (error == 0) {
        error = cut_sockets(&c, IPPROTO_TCP);
        error = first(error, cut_sockets(&c, IPPROTO_UDP));
        error = first(error, cut_entries(&c));
    }
    mem_free(c.lost);
    *ret_cut = c.done;
    return error;
}

/* ---- in use */

struct usage {
    const struct flows *f;
    void (*each)(void *user, const struct flow *flow);
    void *user;
};

static void tell(void *user, const struct flow *flow)
{
    const struct usage *u = user;
    if (!is_local(u->f, &flow->dst))
        u->each(u->user, flow);
}

/* Open is what the rules let pass without asking again: let out once, and answered.  An entry of
 * TCP outlives its socket by days. */
static void tell_entry(void *user, const struct tracked *t)
{
    if (t->flow.protocol != IPPROTO_TCP && t->answered && t->mark & RULESET_CT_OPEN &&
        !t->redirected)
        tell(user, &t->flow);
}

/* Without the entries what the sockets say is still true. */
int flows_in_use(struct flows *f, void (*each)(void *user, const struct flow *flow), void *user)
{
    struct usage u = {f, each, user};
    int error = read_local(f);
    if (error == 0)
        error = sockets_open(&f->sockets, IPPROTO_TCP, tell, &u);
    if (error == 0)
        (void)!conntrack_dump(&f->conntrack, tell_entry, &u);
    return error;
}
