/* listen.c — listening sockets, one per worker and address.  We accept ourselves, over a poll
 * handle: that gives the peer's address without another system call, and lets a closing listener
 * take what waits in its queue first (U20). */
#include "net/listen.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "net/conn_impl.h"

enum { BACKLOG = 4096, ACCEPTS_A_TURN = 64, OUT_OF_FDS_MS = 100 };

struct listener {
    uv_poll_t poll;
    struct worker *w;
    struct accept_gate *gate;
    void (*accept)(void *user, struct conn *c);
    void *user;
    struct timer retry; /* after the descriptors ran out (U14) */
    int fd;
    uint16_t port;
    bool stopping;
};

void accept_gate_init(struct accept_gate *g, int64_t max, int64_t surplus)
{
    atomic_init(&g->open, 0);
    atomic_init(&g->refused, 0);
    g->max = max;
    g->surplus = surplus;
}

/* errno stays. */
static int bind_fault(int fd, const struct sockaddr *addr, struct arena *a, struct str *ret_error)
{
    int error = errno;
    char text[ADDR_TEXT_BYTES];
    size_t n = addr_text(addr, text);
    *ret_error = arena_printf(a, "cannot listen on %.*s: %s", (int)n, text, strerrordesc_np(error));
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

static int bind_socket(const struct sockaddr *addr, bool shared, union addr *ret_bound,
                       struct arena *a, struct str *ret_error)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1,
        zero = 0;
    if (fd < 0)
        return bind_fault(fd, addr, a, ret_error);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (shared)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (addr->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    conn_socket_options(fd);
    socklen_t n = sizeof *ret_bound;
    if (bind(fd, addr, addr_len(addr)) < 0 || getsockname(fd, &ret_bound->sa, &n) < 0)
        return bind_fault(fd, addr, a, ret_error);
    return fd;
}

int listen_bind(const struct sockaddr *addr, union addr *ret_bound, struct arena *a,
                struct str *ret_error)
{
    return bind_socket(addr, true, ret_bound, a, ret_error);
}

/* Two sockets can be bound to one port as long as neither listens: only listen() settles whose it
 * is. */
int listen_bind_alone(const struct sockaddr *addr, union addr *ret_bound, struct arena *a,
                      struct str *ret_error)
{
    int fd = bind_socket(addr, false, ret_bound, a, ret_error);
    if (fd >= 0 && listen(fd, BACKLOG) < 0)
        return bind_fault(fd, addr, a, ret_error);
    return fd;
}

static void watch(struct listener *l);

static void on_retry(struct timer *t)
{
    struct listener *l = container_of(t, struct listener, retry);
    watch(l);
}

/* True: the connection counts; *ret_surplus: it is only to be refused. */
static bool admit(struct accept_gate *g, bool *ret_surplus)
{
    if (!g)
        return true;
    int64_t open = atomic_fetch_add_explicit(&g->open, 1, memory_order_relaxed);
    *ret_surplus = open >= g->max;
    if (open < g->max + g->surplus)
        return true;
    atomic_fetch_sub_explicit(&g->open, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&g->refused, 1, memory_order_relaxed);
    return false;
}

static void take(struct listener *l, int fd, const struct sockaddr *peer)
{
    bool surplus = false;
    if (!admit(l->gate, &surplus)) {
        close(fd);
        return;
    }
    struct conn *c = conn_accept(l->w, fd, peer, l->port, l->gate, surplus);
    if (c)
        l->accept(l->user, c);
}

/* False: nothing waits, or nothing can be taken. */
static bool accept_one(struct listener *l)
{
    union addr peer;
    socklen_t n = sizeof peer;
    int fd = accept4(l->fd, &peer.sa, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        take(l, fd, &peer.sa);
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED)
        return true;
    if (errno != EAGAIN && !l->stopping) {
        uv_poll_stop(&l->poll); /* out of descriptors: the queue waits, the loop does not spin */
        timer_set(l->w, &l->retry, OUT_OF_FDS_MS);
    }
    return false;
}

/* How many connections wait.  An accept() that finds none costs more than one that does, so it is
 * asked for first; where the kernel does not say, one, and poll tells of the next. */
static unsigned waiting(const struct listener *l)
{
    struct tcp_info i;
    socklen_t n = sizeof i;
    if (getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &i, &n) < 0 || i.tcpi_unacked == 0)
        return 1;
    return i.tcpi_unacked < ACCEPTS_A_TURN ? i.tcpi_unacked : ACCEPTS_A_TURN;
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    struct listener *l = p->data;
    for (unsigned n = waiting(l); n > 0 && accept_one(l); n--)
        ;
}

static void watch(struct listener *l)
{
    if (l->stopping)
        return;
    uv_poll_start(&l->poll, UV_READABLE, on_poll);
}

struct listener *listener_start(struct worker *w, int fd, struct accept_gate *gate,
                                void (*accept)(void *user, struct conn *c), void *user)
{
    union addr bound;
    socklen_t n = sizeof bound;
    struct listener *l = mem_new(sizeof *l);
    int err = listen(fd, BACKLOG);
    assert(err == 0);
    /* one that was kept for us over an end may still bear the ebb of that */
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &(int){0}, sizeof(int));
    getsockname(fd, &bound.sa, &n);
    l->port = addr_port(&bound.sa);
    l->w = w;
    l->fd = fd;
    l->gate = gate;
    l->accept = accept;
    l->user = user;
    timer_init(&l->retry, on_retry);
    err = uv_poll_init(&w->loop, &l->poll, fd);
    assert(err == 0);
    l->poll.data = l;
    watch(l);
    return l;
}

static void on_close(uv_handle_t *h)
{
    mem_free(h->data);
}

/* The kernel completes handshakes until the socket is closed, and resets then what nobody has
 * accepted.  So SYNs are dropped before: who is dropped asks again and is refused. */
void listener_ebb(struct listener *l)
{
    enum { FLAGS = 13, SYN = 2 }; /* of the TCP header, where a socket's filter begins to read */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FLAGS),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, SYN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    setsockopt(l->fd, SOL_SOCKET, SO_ATTACH_FILTER,
               &(struct sock_fprog){sizeof code / sizeof *code, code}, sizeof(struct sock_fprog));
}

void listener_stop(struct listener *l)
{
    l->stopping = true;
    while (accept_one(l))
        ;
    timer_clear(l->w, &l->retry);
    uv_poll_stop(&l->poll);
    uv_close((uv_handle_t *)&l->poll, on_close);
    close(l->fd);
}
