/* keep_packet.c — a packet, and a descriptor beside it, through a socket.  What is not exactly what
 * was agreed upon is refused whole, and no descriptor that came with it stays open. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "egress/supervisor/keep_impl.h"

enum { DESCRIPTORS = 4 }; /* room for more than may come, so that we hold and close them */

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
};

bool keep_unpack(struct str bytes, struct keep_packet *ret)
{
    struct keep_packet p;
    if (bytes.n < sizeof p.head)
        return false;
    memcpy(&p.head, bytes.p, sizeof p.head);
    struct str rest = str_skip(bytes, sizeof p.head);
    if (p.head.version != KEEP_VERSION || p.head.name_n > KEEP_NAME_MAX || p.head.name_n > rest.n ||
        rest.n - p.head.name_n > KEEP_BLOB_MAX)
        return false;
    p.name = str_head(rest, p.head.name_n);
    p.blob = str_skip(rest, p.head.name_n);
    *ret = p;
    return true;
}

bool keep_send(int socket, const struct keep_packet *p, int flags, int fd)
{
    struct keep_head head = p->head;
    union control control = {0};
    head.version = KEEP_VERSION;
    head.name_n = (uint8_t)p->name.n;
    struct iovec parts[3] = {
        {&head, sizeof head}, {(void *)p->name.p, p->name.n}, {(void *)p->blob.p, p->blob.n}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
    if (fd >= 0) {
        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE(sizeof fd);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &m, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n >= 0;
}

/* Keeps the first descriptor, closes others; how many there were. */
static size_t take_descriptors(struct msghdr *m, int *ret_fd)
{
    size_t all = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (all++ == 0)
                *ret_fd = fd;
            else
                close(fd);
        }
    }
    return all;
}

ssize_t keep_recv(int socket, char *buffer, int flags, int *ret_fd)
{
    union control control;
    struct iovec part = {buffer, KEEP_PACKET_MAX};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;
    int fd = -1;
    do {
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        n = recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    size_t came = take_descriptors(&m, &fd);
    if (came > 1 || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        if (fd >= 0)
            close(fd);
        errno = EBADMSG;
        return -1;
    }
    *ret_fd = fd;
    return n;
}
