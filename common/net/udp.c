/* udp.c — a batch of datagrams costs one system call in and one out.  libuv would want 20 buffers
 * of 64 KiB for that (U19), so it only tells when there is something to read, and we read. */
#include "net/udp.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "net/worker_impl.h"

enum { BATCH = 16, BATCHES_A_TURN = 8 };

struct datagram {
    union addr peer;
    struct iovec bytes;
};

struct udp {
    uv_poll_t poll;
    struct worker *w;
    void (*on)(void *user, struct udp *u, struct str datagram, const struct sockaddr *from);
    void *user;
    int fd;
    bool reading, closing;
    unsigned nout;
    struct datagram in[BATCH], out[BATCH];
    struct mmsghdr in_head[BATCH], out_head[BATCH];
    uint8_t in_bytes[BATCH][UDP_BYTES], out_bytes[BATCH][UDP_BYTES];
};

/* errno stays. */
static int bind_fault(int fd, const struct sockaddr *addr, struct arena *a, struct str *ret_error)
{
    int error = errno;
    char text[ADDR_TEXT_BYTES];
    size_t n = addr_text(addr, text);
    *ret_error =
        arena_printf(a, "cannot listen on udp %.*s: %s", (int)n, text, strerrordesc_np(error));
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

int udp_bind(const struct sockaddr *addr, union addr *ret_bound, struct arena *a,
             struct str *ret_error)
{
    int fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    socklen_t n = sizeof *ret_bound;
    if (fd < 0)
        return bind_fault(fd, addr, a, ret_error);
    if (addr->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, addr, addr_len(addr)) < 0 || getsockname(fd, &ret_bound->sa, &n) < 0)
        return bind_fault(fd, addr, a, ret_error);
    return fd;
}

static void head_init(struct mmsghdr *head, struct datagram *d, uint8_t *bytes)
{
    d->bytes = (struct iovec){bytes, UDP_BYTES};
    head->msg_hdr = (struct msghdr){
        .msg_name = &d->peer, .msg_namelen = sizeof d->peer, .msg_iov = &d->bytes, .msg_iovlen = 1};
}

static void flush(struct udp *u)
{
    unsigned at = 0;
    while (at < u->nout) {
        int n = sendmmsg(u->fd, u->out_head + at, u->nout - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        at += n > 0 ? (unsigned)n : 1; /* a peer that is gone costs only its own reply */
        if (n < 0 && errno == EAGAIN)
            break;
    }
    u->nout = 0;
}

void udp_send(struct udp *u, const struct sockaddr *to, const void *p, size_t n)
{
    assert(n <= UDP_BYTES);
    if (u->closing)
        return;
    if (!u->reading) {
        sendto(u->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL, to, addr_len(to));
        return;
    }
    struct datagram *d = &u->out[u->nout];
    head_init(&u->out_head[u->nout], d, u->out_bytes[u->nout]);
    memcpy(&d->peer, to, addr_len(to));
    u->out_head[u->nout].msg_hdr.msg_namelen = addr_len(to);
    memcpy(u->out_bytes[u->nout], p, n);
    d->bytes.iov_len = n;
    if (++u->nout == BATCH)
        flush(u);
}

/* One batch; false: no more waits. */
static bool read_batch(struct udp *u)
{
    int n = recvmmsg(u->fd, u->in_head, BATCH, MSG_DONTWAIT, NULL);
    u->reading = true;
    for (int i = 0; i < n && !u->closing; i++) {
        struct mmsghdr *h = &u->in_head[i];
        if (!(h->msg_hdr.msg_flags & MSG_TRUNC))
            u->on(u->user, u, (struct str){(char *)u->in_bytes[i], h->msg_len}, &u->in[i].peer.sa);
        h->msg_hdr.msg_namelen = sizeof u->in[i].peer; /* all else stays as it was */
    }
    u->reading = false;
    flush(u);
    return n == BATCH && !u->closing;
}

static void on_close(uv_handle_t *h)
{
    struct udp *u = h->data;
    close(u->fd);
    mem_free(u);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    struct udp *u = p->data;
    for (int i = 0; i < BATCHES_A_TURN && read_batch(u); i++)
        ;
}

struct udp *udp_start(struct worker *w, int fd,
                      void (*on)(void *user, struct udp *u, struct str datagram,
                                 const struct sockaddr *from),
                      void *user)
{
    struct udp *u = mem_new(sizeof *u);
    u->w = w;
    u->fd = fd;
    u->on = on;
    u->user = user;
    for (unsigned i = 0; i < BATCH; i++)
        head_init(&u->in_head[i], &u->in[i], u->in_bytes[i]);
    int err = uv_poll_init(worker_loop(w), &u->poll, fd);
    assert(err == 0);
    u->poll.data = u;
    uv_poll_start(&u->poll, UV_READABLE, on_poll);
    return u;
}

void udp_close(struct udp *u)
{
    if (!u || u->closing)
        return;
    flush(u);
    u->closing = true;
    uv_poll_stop(&u->poll);
    uv_close((uv_handle_t *)&u->poll, on_close);
}
