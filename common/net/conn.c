/* conn.c — the life of a TCP connection over libuv.  Reading stays on and what the codec leaves is
 * offered again; output is pulled when the kernel can take it, one write in flight at most.  libuv
 * says when; the bytes go through recv() and send(), which cost less than its read() and write()
 * and know MSG_MORE.  Traps U1 to U8, U15, U17, U21 of DESIGN 18.1 are dealt with here and nowhere
 * else. */
#include "net/conn.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "net/conn_impl.h"
#include "net/listen.h"
#include "net/splice_impl.h"

enum { FILL_BYTES = 3 * CHUNK_BULK_BYTES, ROUNDS = 4, IOVS = 64, READS = 32, JOIN_BYTES = 4096 };

static void drop_note(struct conn *c)
{
    if (c->drop_note)
        c->drop_note((void *)c->info.note);
    c->drop_note = NULL;
    c->info.note = NULL;
}

static void on_close(uv_handle_t *h)
{
    struct conn *c = h->data;
    if (c->gate)
        atomic_fetch_sub_explicit(&c->gate->open, 1, memory_order_relaxed);
    if (c->ev && c->ev->closed)
        c->ev->closed(c->user, c->why);
    drop_note(c);
    buf_clear(&c->in);
    buf_clear(&c->out);
    conn_tls_free(c->tls);
    mem_free(c->flying);
    mem_free(c);
}

static bool begin_closing(struct conn *c, enum why why)
{
    if (c->closing)
        return false;
    c->closing = true;
    c->why = why;
    if (c->tls && why == conn_gone(c) && c->info.fault.n == 0)
        c->info.fault = conn_tls_lost(c->tls);
    list_del(&c->dirty);
    vanish_forget(c);
    if (c->source)
        splice_abandon(c->source);
    if (c->sink)
        splice_abandon(c->sink);
    return true;
}

/* close() sends what the kernel was told to hold, but throws it away if something of the peer's
 * lies unread. */
static void let_go(struct conn *c)
{
    int unread = 0;
    if (c->held && (ioctl(c->fd, FIONREAD, &unread) < 0 || unread > 0))
        shutdown(c->fd, SHUT_WR);
}

void conn_close(struct conn *c, enum why why)
{
    if (c->tls && why == WHY_OK && !c->closing)
        conn_tls_bye(c);
    if (!begin_closing(c, why))
        return;
    let_go(c);
    uv_close((uv_handle_t *)&c->tcp, on_close);
}

void conn_reset(struct conn *c, enum why why)
{
    if (begin_closing(c, why) && uv_tcp_close_reset(&c->tcp, on_close) < 0)
        uv_close((uv_handle_t *)&c->tcp, on_close); /* after shutdown() a reset is refused */
}

enum why conn_gone(const struct conn *c)
{
    return c->info.listener ? WHY_CLIENT_GONE : WHY_ORIGIN_GONE;
}

static void mark(struct conn *c)
{
    if (!c->closing && list_empty(&c->dirty))
        list_push(&c->w->dirty, &c->dirty);
}

size_t conn_read_bound(const struct conn *c)
{
    return c->bulk ? CHUNK_BULK_BYTES : CHUNK_BYTES;
}

/* No memory for libuv: that makes it tell us that there is something to read, and read nothing. */
static void on_alloc(uv_handle_t *h, size_t wish, uv_buf_t *ret)
{
    (void)h;
    (void)wish;
    *ret = uv_buf_init(NULL, 0);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b);

static bool is_shaking(const struct conn *c)
{
    return c->tls && !conn_tls_up(c->tls);
}

static size_t lying(const struct conn *c)
{
    return c->in.len + (c->tls ? conn_tls_lying(c->tls) : 0);
}

/* The peer has said that it is done: FIN, or close_notify where there is TLS. */
static bool is_over(const struct conn *c)
{
    return c->tls ? conn_tls_over(c->tls) : c->eof;
}

/* Nothing more can come, said properly or not. */
static bool is_cut(const struct conn *c)
{
    return c->eof || (c->tls && conn_tls_cut(c->tls));
}

/* Reading follows need: off only while a chunk's worth lies untaken or the user wants nothing
 * (U17). */
void conn_update_reading(struct conn *c)
{
    bool want = (!c->paused || is_shaking(c)) && !c->eof && lying(c) < conn_read_bound(c) &&
                !(c->source && splice_full(c->source));
    if (want == c->reading || c->closing)
        return;
    c->reading = want;
    vanish_stopped(c, !want && !c->eof);
    if (!want) {
        uv_read_stop((uv_stream_t *)&c->tcp);
        return;
    }
    if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) < 0)
        conn_close(c, conn_gone(c));
}

/* All of it, a bound's worth at a time.  True: nothing more is to be had of what has come. */
static bool offer_bytes(struct conn *c)
{
    for (;;) {
        bool more = c->tls && conn_tls_read(c);
        if (!c->closing && c->in.len > 0 && !c->paused && c->ev->bytes)
            c->ev->bytes(c->user, &c->in);
        if (!more || c->closing)
            return true;
        if (c->paused || c->in.len >= conn_read_bound(c))
            return false;
    }
}

/* Offers what is there; the end is told only after the last byte was taken. */
static void offer(struct conn *c)
{
    c->offer = false;
    if (c->source)
        return; /* lent */
    bool all = offer_bytes(c);
    if (c->closing)
        return;
    if (is_over(c) && !c->eof_told && c->in.len == 0) {
        c->eof_told = true;
        if (c->ev->eof)
            c->ev->eof(c->user);
    } else if (is_cut(c) && !is_over(c) && all && c->in.len == 0 && !c->offer) {
        conn_close(c, conn_gone(c)); /* cut off: FIN without close_notify */
        return;
    }
    conn_update_reading(c);
}

static void read_end(struct conn *c)
{
    c->eof = true;
    c->reading = false;
    uv_read_stop((uv_stream_t *)&c->tcp); /* or it would be told again and again (U5) */
    offer(c);
}

static uint8_t *room_to_read(struct conn *c, size_t *ret_room)
{
    if (c->bulk && c->tls)
        return buf_reserve_sealed(c->w->pool, ret_room);
    return buf_reserve(c->w->pool, c->bulk, ret_room);
}

/* True: the chunk was filled, there may be more. */
static bool read_some(struct conn *c)
{
    size_t room;
    uint8_t *p = room_to_read(c, &room);
    ssize_t n;
    do
        n = recv(c->fd, p, room, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    int err = errno;
    buf_commit(c->tls ? conn_tls_in(c->tls) : &c->in, n > 0 ? (size_t)n : 0);
    if (n > 0)
        offer(c);
    else if (n == 0)
        read_end(c);
    else if (err != EAGAIN)
        conn_close(c, conn_gone(c));
    return n > 0 && (size_t)n == room;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct conn *c = s->data;
    (void)b;
    if (c->source) {
        c->reading = n != UV_EOF;
        splice_pump(c->source, true);
        return;
    }
    if (n == UV_EOF) { /* poll itself reports the end */
        c->eof = true;
        c->reading = false; /* libuv stopped by itself (U5) */
        offer(c);
        return;
    }
    if (n < 0 && n != UV_ENOBUFS) {
        conn_close(c, conn_gone(c));
        return;
    }
    for (int i = 0; i < READS && c->reading && !c->closing && read_some(c); i++)
        ;
}

/* The peer is gone.  One that shook us off has often said why before. */
static void write_failed(struct conn *c)
{
    if (c->tls && !conn_tls_heard(c->tls) && !c->eof)
        read_some(c);
    if (!c->closing)
        conn_close(c, conn_gone(c));
}

static void on_written(uv_write_t *w, int status)
{
    struct conn *c = w->data;
    mem_free(w);
    c->flying = NULL;
    if (c->closing)
        return;
    buf_clear(&c->out);
    if (status < 0) {
        write_failed(c);
        return;
    }
    vanish_note(c);
    mark(c);
}

static unsigned make_iov(const struct buf *b, uv_buf_t *iov, unsigned max)
{
    unsigned n = 0;
    for (const struct slice *s = b->head; s && n < max; s = s->next)
        iov[n++] = uv_buf_init((char *)s->p, (unsigned)s->n);
    return n;
}

/* The kernel took a part: the rest is the one write in flight.  Its slices stay in out until the
 * callback (U15). */
void conn_fly(struct conn *c)
{
    unsigned n = 0;
    for (const struct slice *s = c->out.head; s; s = s->next)
        n++;
    uv_buf_t few[IOVS], *iov = n <= IOVS ? few : mem_new(n * sizeof *iov);
    make_iov(&c->out, iov, n);
    c->flying = mem_new(sizeof *c->flying);
    c->flying->data = c;
    if (uv_write(c->flying, (uv_stream_t *)&c->tcp, iov, n, on_written) < 0) {
        mem_free(c->flying);
        c->flying = NULL;
        conn_close(c, conn_gone(c));
    }
    if (iov != few)
        mem_free(iov);
}

/* What send() says, for as much of out as one call takes.  The last bytes wait for FIN, so that
 * both go in one segment: send_fin() or conn_close() follows as soon as fill() has nothing more. */
static ssize_t send_out(struct conn *c)
{
    const bool held = c->finishing && !is_shaking(c);
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (held ? MSG_MORE : 0);
    const struct slice *first = c->out.head;
    char joined[JOIN_BYTES];
    uv_buf_t iov[IOVS];
    c->held = held;
    if (!first->next)
        return send(c->fd, first->p, first->n, flags);
    if (c->out.len <= sizeof joined) { /* copying a little costs less than a list */
        size_t len = c->out.len;
        buf_peek(&c->out, joined, len);
        ssize_t n = send(c->fd, joined, len, flags);
        if (c->w->private && !c->tls)
            mem_wipe(joined, len);
        return n;
    }
    struct msghdr msg = {.msg_iov = (struct iovec *)iov,
                         .msg_iovlen = make_iov(&c->out, iov, IOVS)};
    return sendmsg(c->fd, &msg, flags);
}

/* False: nothing more can go now. */
static bool write_out(struct conn *c)
{
    while (c->out.len > 0) {
        ssize_t n = send_out(c);
        if (n > 0) {
            buf_drop(&c->out, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            write_failed(c);
            return false;
        }
        conn_fly(c);
        return false;
    }
    vanish_note(c);
    return true;
}

static void send_fin(struct conn *c)
{
    if (!c->finishing || c->fin_sent || (c->tls && !conn_tls_notified(c->tls)))
        return;
    c->fin_sent = true;
    c->held = false;
    shutdown(c->fd, SHUT_WR); /* nothing is queued, so libuv has no say in it */
}

void conn_send_last(struct conn *c)
{
    for (ssize_t n; c->out.len > 0 && (n = send_out(c)) > 0;)
        buf_drop(&c->out, (size_t)n);
}

void conn_discard(struct conn *c)
{
    enum { SOME = 4096, TIMES = 16 };
    char bytes[SOME];
    for (int i = 0; i < TIMES && recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
        ;
}

/* One conn's share of the output; what is left after a few rounds waits a turn (fairness). */
static void flush(struct conn *c)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (c->offer)
            offer(c);
        if (c->closing || c->flying)
            return;
        if (c->sink) {
            if (c->out.len == 0 || write_out(c))
                splice_pump(c->sink, false);
            if (c->sink)
                return;
            continue;
        }
        if (c->tls)
            conn_tls_fill(c);
        else if (c->ev->fill)
            c->ev->fill(c->user, &c->out, FILL_BYTES);
        if (c->closing)
            return;
        if (c->out.len == 0) {
            send_fin(c);
            if (!c->offer)
                return;
            continue;
        }
        if (!write_out(c))
            return;
    }
    mark(c);
}

void conn_flush_all(struct worker *w)
{
    struct list now;
    if (list_empty(&w->dirty))
        return;
    /* what becomes dirty while we flush (credit, mostly) is flushed in the same turn, but only so
     * often */
    for (int pass = 0; pass < ROUNDS && !list_empty(&w->dirty); pass++) {
        list_init(&now);
        list_push(&w->dirty, &now);
        list_del(&w->dirty); /* `now` took the head's place */
        list_init(&w->dirty);
        for (struct list *l; (l = list_pop(&now));)
            flush(container_of(l, struct conn, dirty));
    }
}

static struct conn *conn_new(struct worker *w, const struct sockaddr *peer)
{
    struct conn *c = mem_new(sizeof *c);
    c->w = w;
    c->tcp.data = c;
    list_init(&c->dirty);
    list_init(&c->written);
    list_init(&c->stopped);
    buf_init(&c->in, w->pool);
    buf_init(&c->out, w->pool);
    memcpy(&c->peer, peer, addr_len(peer));
    c->info.peer = &c->peer.sa;
    return c;
}

struct conn *conn_accept(struct worker *w, int fd, const struct sockaddr *peer, uint16_t listener,
                         struct accept_gate *gate, bool surplus)
{
    struct conn *c = conn_new(w, peer);
    c->fd = fd;
    c->info.listener = listener;
    c->info.surplus = surplus;
    c->gate = gate;
    uv_tcp_init(&w->loop, &c->tcp);
    c->tcp.data = c;
    if (uv_tcp_open(&c->tcp, fd) == 0)
        return c;
    close(fd);
    conn_close(c, WHY_OVERLOAD);
    return NULL;
}

static void on_connect(uv_connect_t *r, int status)
{
    struct conn *c = r->data;
    mem_free(r);
    if (c->closing)
        return;
    if (status < 0) {
        c->err = -status;
        conn_close(c, status == UV_ETIMEDOUT ? WHY_DEADLINE : WHY_DIAL);
        return;
    }
    conn_update_reading(c);
    if (!c->closing && c->ev->ready)
        c->ev->ready(c->user);
}

static int start_connect(struct conn *c, const struct sockaddr *to, const struct prepare *prepare)
{
    int err = uv_fileno((uv_handle_t *)&c->tcp, &c->fd);
    if (err == 0)
        err = prepare_socket(prepare, c->fd, to);
    if (err < 0)
        return err;
    conn_socket_options(c->fd);
    uv_connect_t *r = mem_new(sizeof *r);
    r->data = c;
    err = uv_tcp_connect(r, &c->tcp, to, on_connect);
    if (err < 0)
        mem_free(r);
    return err;
}

struct conn *conn_connect(struct worker *w, const struct sockaddr *to, const struct conn_events *ev,
                          void *user, int *ret_errno)
{
    return conn_connect_prepared(w, to, NULL, ev, user, ret_errno);
}

struct conn *conn_connect_prepared(struct worker *w, const struct sockaddr *to,
                                   const struct prepare *prepare, const struct conn_events *ev,
                                   void *user, int *ret_errno)
{
    struct conn *c = conn_new(w, to);
    int err = uv_tcp_init_ex(&w->loop, &c->tcp,
                             to->sa_family); /* the family makes the socket exist (U16) */
    if (err < 0) {
        *ret_errno = -err;
        mem_free(c);
        return NULL;
    }
    c->tcp.data = c;
    err = start_connect(c, to, prepare);
    if (err < 0) {
        *ret_errno = -err;
        conn_close(c, WHY_DIAL);
        return NULL;
    }
    c->ev = ev;
    c->user = user;
    return c;
}

int conn_errno(const struct conn *c)
{
    return c->err;
}

void conn_socket_options(int fd)
{
    int one = 1, idle = 30, interval = 10, count = 5;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

const struct conn_info *conn_info(const struct conn *c)
{
    return &c->info;
}

void conn_attach(struct conn *c, const struct conn_events *ev, void *user)
{
    c->ev = ev;
    c->user = user;
    conn_update_reading(c);
    if (c->in.len > 0 || (is_over(c) && !c->eof_told)) {
        c->offer = true;
        mark(c);
    }
}

void conn_read(struct conn *c, bool on)
{
    c->paused = !on;
    if (!on) {
        conn_update_reading(c);
        return;
    }
    c->offer = true;
    mark(c);
}

static void secure(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to,
                   const struct tls_as *as)
{
    if (c->closing)
        return;
    conn_tls_start(c, ctx, to, as);
    conn_update_reading(c);
    c->offer = true; /* what has come, or our first message */
    mark(c);
}

void conn_secure(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to)
{
    secure(c, ctx, to, NULL);
}

void conn_secure_as(struct conn *c, struct tls_ctx *ctx, const struct tls_as *as)
{
    secure(c, ctx, NULL, as);
}

void conn_set_peer(struct conn *c, const struct sockaddr *peer)
{
    memcpy(&c->peer, peer, addr_len(peer));
}

void conn_set_target(struct conn *c, const struct sockaddr *target)
{
    memcpy(&c->target, target, addr_len(target));
    c->info.target = &c->target.sa;
}

void conn_set_note(struct conn *c, void *note, void (*drop)(void *note))
{
    drop_note(c);
    c->info.note = note;
    c->drop_note = drop;
}

/* A listener of both families has IPv4 clients on IPv6 sockets, but the kernel wrote down what it
 * redirected as IPv4. */
int conn_original(const struct conn *c, union addr *ret)
{
    enum { ORIGINAL_DST = 80 }; /* SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST */
    union addr own, was = {.sa.sa_family = AF_UNSPEC};
    struct ip ip;
    socklen_t n = sizeof own;
    if (getsockname(c->fd, &own.sa, &n) < 0)
        return -errno;
    addr_ip(&own.sa, &ip);
    addr_make(&own, &ip, 0);
    n = sizeof was;
    if (getsockopt(c->fd, own.sa.sa_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, ORIGINAL_DST,
                   &was, &n) < 0)
        return -errno;
    if (was.sa.sa_family != own.sa.sa_family)
        return -EAFNOSUPPORT;
    *ret = was;
    return 0;
}

/* The end of the peer's half stands behind these bytes, whether it was told or not. */
void conn_untake(struct conn *c, struct buf *b)
{
    buf_move_all(b, &c->in);
    buf_move_all(&c->in, b);
    c->eof_told = false;
    conn_update_reading(c);
    if (c->closing)
        return;
    c->offer = true;
    mark(c);
}

void conn_bulk(struct conn *c, bool on)
{
    c->bulk = on;
}

void conn_wake(struct conn *c)
{
    mark(c);
}

void conn_finish(struct conn *c)
{
    c->finishing = true;
    mark(c);
}

size_t conn_unsent(const struct conn *c)
{
    return c->out.len;
}

size_t conn_untaken(const struct conn *c)
{
    return c->in.len;
}
