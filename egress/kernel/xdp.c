/* xdp.c — binds a socket to each queue of each device and does nothing with it.  It gets a single
 * frame of memory and no program that would lead packets into it. */
#include "egress/kernel/xdp.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_BYTES = 4096, RING = 1, QUEUES_MAX = 64 };

void xdp_init(struct xdp *x)
{
    *x = (struct xdp){.n = 0};
}

void xdp_done(struct xdp *x)
{
    for (unsigned i = 0; i < x->n; i++)
        close(x->at[i].fd);
    x->n = 0;
}

/* A device that went and came back has another number. */
static void name_of(const char *device, unsigned index, unsigned queue, char out[XDP_NAME_BYTES])
{
    snprintf(out, XDP_NAME_BYTES, "xdp:%s:%u:%u", device, index, queue);
}

static bool has(const struct xdp *x, const char *name)
{
    for (unsigned i = 0; i < x->n; i++) {
        if (strcmp(x->at[i].name, name) == 0)
            return true;
    }
    return false;
}

static void add(struct xdp *x, struct str name, int fd, bool fresh)
{
    struct xdp_guard *g = &x->at[x->n++];
    *g = (struct xdp_guard){.fd = fd, .fresh = fresh};
    memcpy(g->name, name.p, name.n);
}

/* Is it bound to what its name says? */
static bool is_bound(int fd, struct str name)
{
    struct sockaddr_xdp at = {0};
    socklen_t n = sizeof at;
    char device[IF_NAMESIZE], wanted[XDP_NAME_BYTES];
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 && at.sxdp_family == AF_XDP &&
        if_indextoname(at.sxdp_ifindex, device)) {
        name_of(device, at.sxdp_ifindex, at.sxdp_queue_id, wanted);
        return str_eq(name, str_of(wanted));
    }
    return false;
}

static bool is_xdp(int fd)
{
    int domain = 0;
    socklen_t n = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_XDP;
}

/* Kernels that do not tell what such a socket is bound to are believed its name, which only our
 * predecessor can have given it. */
bool xdp_take(struct xdp *x, struct str name, int fd)
{
    struct sockaddr_xdp at;
    socklen_t n = sizeof at;
    if (x->n == XDP_GUARDS_MAX || name.n >= XDP_NAME_BYTES || !str_starts(name, STR("xdp:")) ||
        !is_xdp(fd))
        return false;
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 && !is_bound(fd, name))
        return false;
    add(x, name, fd, false);
    return true;
}

static bool set(int fd, int option, const void *value, socklen_t n)
{
    return setsockopt(fd, SOL_XDP, option, value, n) == 0;
}

static bool give_memory(int fd)
{
    int ring = RING;
    void *frame =
        mmap(NULL, FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (frame == MAP_FAILED)
        return false;
    struct xdp_umem_reg area = {
        .addr = (uint64_t)(uintptr_t)frame, .len = FRAME_BYTES, .chunk_size = FRAME_BYTES};
    bool good = set(fd, XDP_UMEM_REG, &area, sizeof area) &&
                set(fd, XDP_UMEM_FILL_RING, &ring, sizeof ring) &&
                set(fd, XDP_UMEM_COMPLETION_RING, &ring, sizeof ring) &&
                set(fd, XDP_RX_RING, &ring, sizeof ring);
    munmap(frame, FRAME_BYTES); /* the kernel holds the page by itself */
    return good;
}

/* The guard, or -errno; -EINVAL: there is no such queue. */
static int hold_queue(unsigned index, unsigned queue)
{
    int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    struct sockaddr_xdp to = {.sxdp_family = AF_XDP,
                              .sxdp_flags = XDP_COPY,
                              .sxdp_ifindex = index,
                              .sxdp_queue_id = queue};
    if (fd < 0)
        return -errno;
    errno = ENOBUFS;
    if (give_memory(fd) && bind(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

/* Queues of a device are numbered from 0; the first that does not exist ends the search. */
static void hold_device(struct xdp *x, const char *device, unsigned index)
{
    for (unsigned queue = 0; queue < QUEUES_MAX && !x->unknown; queue++) {
        char name[XDP_NAME_BYTES];
        name_of(device, index, queue, name);
        if (has(x, name))
            continue;
        int fd = x->n < XDP_GUARDS_MAX ? hold_queue(index, queue) : -ENOSPC;
        if (fd == -EINVAL)
            return;
        x->unknown = fd == -EAFNOSUPPORT;
        if (fd >= 0)
            add(x, str_of(name), fd, true);
        else if (!x->unknown)
            x->unguarded++;
        /* Without the right to make any, the next would fail as well. */
        if (fd == -EPERM || fd == -EOPNOTSUPP || fd == -ENOSPC)
            return;
    }
}

/* Is there still the device that a name speaks of? */
static bool is_there(struct str name)
{
    struct str rest = str_skip(name, 4);
    char device[IF_NAMESIZE] = "", index[16];
    ptrdiff_t at = str_rchr(rest, ':');
    rest = str_head(rest, at < 0 ? 0 : (size_t)at);
    at = str_rchr(rest, ':');
    if (at <= 0 || at >= IF_NAMESIZE)
        return false;
    memcpy(device, rest.p, (size_t)at);
    snprintf(index, sizeof index, "%u", if_nametoindex(device));
    return str_eq(str_skip(rest, (size_t)at + 1), str_of(index));
}

static void drop_gone(struct xdp *x)
{
    for (unsigned i = x->n; i-- > 0;) {
        if (is_there(str_of(x->at[i].name)))
            continue;
        if (x->ngone < XDP_GONE_MAX)
            memcpy(x->gone[x->ngone++], x->at[i].name, XDP_NAME_BYTES);
        close(x->at[i].fd);
        x->at[i] = x->at[--x->n];
    }
}

void xdp_hold(struct xdp *x, const struct str *devices, unsigned n)
{
    x->unguarded = 0;
    drop_gone(x);
    for (unsigned i = 0; i < n; i++) {
        char name[IF_NAMESIZE] = "";
        if (devices[i].n >= IF_NAMESIZE)
            continue;
        memcpy(name, devices[i].p, devices[i].n);
        unsigned index = if_nametoindex(name);
        if (index)
            hold_device(x, name, index);
    }
}
