/* netlink.c — requests over netlink.  A full receive buffer loses messages (ENOBUFS), a signal
 * interrupts, a dump may change under our hands, an answer may belong to an older question: it is
 * dealt with here and nowhere else. */
#include "egress/kernel/netlink_impl.h"

#include <errno.h>
#include <sys/socket.h>

enum { RECEIVE_BYTES = 1 << 20, WAIT_S = 5, ANSWER_BYTES = 32768 };

int netlink_open(struct netlink *nl, int protocol)
{
    struct timeval wait = {.tv_sec = WAIT_S};
    int room = RECEIVE_BYTES, one = 1;
    nl->seq = 0;
    nl->socket = mnl_socket_open2(protocol, SOCK_CLOEXEC);
    if (!nl->socket)
        return -errno;
    int fd = mnl_socket_get_fd(nl->socket);
    if (mnl_socket_bind(nl->socket, 0, MNL_SOCKET_AUTOPID) != 0) {
        int error = errno;
        mnl_socket_close(nl->socket);
        return -error;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    /* Errors need not quote the request; older kernels do it all the same. */
    mnl_socket_setsockopt(nl->socket, NETLINK_CAP_ACK, &one, sizeof one);
    return 0;
}

void netlink_close(struct netlink *nl)
{
    mnl_socket_close(nl->socket);
}

struct nlmsghdr *netlink_begin(struct netlink *nl, void *p, uint16_t type, uint16_t flags)
{
    struct nlmsghdr *m = mnl_nlmsg_put_header(p);
    m->nlmsg_type = type;
    m->nlmsg_flags = NLM_F_REQUEST | flags;
    m->nlmsg_seq = ++nl->seq;
    return m;
}

static int send_all(struct netlink *nl, const void *p, size_t n)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t sent;
    do
        sent = sendto(mnl_socket_get_fd(nl->socket), p, n, 0, (struct sockaddr *)&kernel,
                      sizeof kernel);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* One datagram of the kernel's; -EAGAIN: there is none. */
static int receive(struct netlink *nl, void *p, size_t room, int flags, size_t *ret)
{
    for (;;) {
        struct sockaddr_nl from;
        socklen_t len = sizeof from;
        ssize_t n =
            recvfrom(mnl_socket_get_fd(nl->socket), p, room, flags, (struct sockaddr *)&from, &len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (from.nl_pid != 0)
            continue;
        *ret = (size_t)n;
        return 0;
    }
}

/* The errno of an error message or acknowledgement, as it stands there: 0 or negative. */
static int error_in(const struct nlmsghdr *m)
{
    const struct nlmsgerr *e = mnl_nlmsg_get_payload(m);
    return m->nlmsg_len < NLMSG_LENGTH(sizeof *e) ? -EBADMSG : e->error;
}

int netlink_ask(struct netlink *nl, struct nlmsghdr *request)
{
    char answer[ANSWER_BYTES] __attribute__((aligned(8)));
    size_t n;
    request->nlmsg_flags |= NLM_F_ACK;
    int error = send_all(nl, request, request->nlmsg_len);
    while (error == 0 && (error = receive(nl, answer, sizeof answer, 0, &n)) == 0) {
        const struct nlmsghdr *m = (const struct nlmsghdr *)answer;
        for (int left = (int)n; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left)) {
            if (m->nlmsg_seq == request->nlmsg_seq && m->nlmsg_type == NLMSG_ERROR)
                return error_in(m);
        }
    }
    return error;
}

struct dump {
    uint32_t seq;
    int (*each)(const struct nlmsghdr *, void *);
    void *user;
    bool single; /* a question about one thing */
    int error;   /* the first */
    bool done;
};

static void dump_message(struct dump *d, const struct nlmsghdr *m)
{
    int error = 0;
    if (m->nlmsg_seq != d->seq)
        return;
    if (m->nlmsg_flags & NLM_F_DUMP_INTR)
        error = -EINTR;
    if (m->nlmsg_type == NLMSG_ERROR || m->nlmsg_type == NLMSG_DONE)
        d->done = true;
    if (m->nlmsg_type == NLMSG_ERROR)
        error = error_in(m);
    else if (m->nlmsg_type != NLMSG_DONE && error == 0 && d->error == 0)
        error = d->each(m, d->user);
    if (d->error == 0)
        d->error = error;
    /* conntrack says NLM_F_MULTI of single answers too, so the question decides. */
    if (d->single)
        d->done = true;
}

int netlink_dump(struct netlink *nl, struct nlmsghdr *request,
                 int (*each)(const struct nlmsghdr *, void *), void *user)
{
    char answer[ANSWER_BYTES] __attribute__((aligned(8)));
    struct dump d = {.seq = request->nlmsg_seq, .each = each, .user = user};
    d.single = (request->nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP;
    size_t n;
    int error = send_all(nl, request, request->nlmsg_len);
    while (error == 0 && !d.done && (error = receive(nl, answer, sizeof answer, 0, &n)) == 0) {
        const struct nlmsghdr *m = (const struct nlmsghdr *)answer;
        for (int left = (int)n; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left))
            dump_message(&d, m);
    }
    return error ? error : d.error;
}

/* ---- batches */

struct verdict {
    uint32_t last_seq;
    int error; /* the first */
    bool acknowledged;
};

static void batch_message(struct verdict *v, const struct nlmsghdr *m)
{
    if (m->nlmsg_type != NLMSG_ERROR)
        return;
    int error = error_in(m);
    if (error == 0 && m->nlmsg_seq == v->last_seq)
        v->acknowledged = true;
    if (v->error == 0)
        v->error = error;
}

/* A batch may be larger than what a socket takes at once. */
static void make_room(struct netlink *nl, size_t n)
{
    int fd = mnl_socket_get_fd(nl->socket), room = (int)n + 4096, have = 0;
    socklen_t len = sizeof have;
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &have, &len) == 0 && have >= room)
        return;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
}

/* What is left over from an older question would be taken for an answer to this one. */
static void drain(struct netlink *nl)
{
    char answer[ANSWER_BYTES];
    size_t n;
    int error;
    do
        error = receive(nl, answer, sizeof answer, MSG_DONTWAIT, &n);
    while (error == 0 || error == -ENOBUFS);
}

int netlink_send_batch(struct netlink *nl, const void *p, size_t n, uint32_t last_seq)
{
    char answer[ANSWER_BYTES] __attribute__((aligned(8)));
    struct verdict v = {last_seq, 0, false};
    size_t got;
    drain(nl);
    make_room(nl, n);
    int error = send_all(nl, p, n);
    while (error == 0 && (error = receive(nl, answer, sizeof answer, MSG_DONTWAIT, &got)) == 0) {
        const struct nlmsghdr *m = (const struct nlmsghdr *)answer;
        for (int left = (int)got; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left))
            batch_message(&v, m);
    }
    if (v.error)
        return v.error;
    if (error != -EAGAIN)
        return error;
    return v.acknowledged ? 0 : -ENOBUFS;
}

const struct nlattr *netlink_inside(const struct nlattr *nest, uint16_t type)
{
    const struct nlattr *a;
    if (!nest)
        return NULL;
    mnl_attr_for_each_nested(a, nest)
    {
        if (mnl_attr_get_type(a) == type)
            return a;
    }
    return NULL;
}
