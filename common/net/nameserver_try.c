/* nameserver_try.c — one question to one server, on the wire.  A reply counts only if it comes to
 * the socket the question left by (connected, so from the server's address), with its id and with
 * its question to the letter; what does not pass is as if it had never come (DESIGN 18.7 D2). */
#include "base/digest.h"
#include "net/conn_impl.h"
#include "net/nameserver_impl.h"

enum {
    SOCKET_QUESTIONS = 16, /* then another port */
    SOCKET_AGE_MS = 30000, /* likewise */
    EDNS_BYTES = 1232,     /* what passes everywhere without fragments */
};

/* A connected UDP socket.  Once out of its server's set it lives until nobody waits on it. */
struct ns_socket {
    uv_udp_t udp;
    struct ns_server *server;
    struct list waiting; /* tries */
    unsigned asked;
    uint64_t born;
    bool retired;
};

/* The same question over TCP; lives until its conn has closed. */
struct ns_tcp {
    struct conn *conn;
    struct ns_try *owner; /* NULL: nobody waits for it any more */
    struct buf in;
    bool asked;
};

/* ---- questions on the wire ---- */

static uint16_t random16(void)
{
    uint16_t v;
    digest_random(&v, sizeof v);
    return v;
}

static void question_of(const struct ns_try *t, struct dns_question *ret)
{
    *ret = *t->asked;
    if (t->lower)
        dns_name_lower(&ret->name);
}

static size_t write_question(struct ns_try *t, uint8_t p[DNS_WRITE_MIN])
{
    struct dns_writer w;
    struct dns_question q;
    t->lower = t->server->folds;
    t->edns = !t->server->no_edns;
    question_of(t, &q);
    dns_write(&w, p, DNS_WRITE_MIN, t->id, t->flags);
    dns_write_question(&w, &q);
    if (t->edns)
        dns_write_edns(&w, &(struct dns_edns){.udp_size = EDNS_BYTES, .dnssec_ok = t->dnssec_ok});
    return dns_write_end(&w);
}

/* Is this the reply to what t asked?  *ret_spelt: to the letter. */
static bool is_reply(const struct ns_try *t, struct str reply, bool *ret_spelt)
{
    struct dns_reader r;
    struct dns_question asked, q;
    if (!dns_read(&r, reply.p, reply.n) || r.id != t->id || !(r.flags & DNS_QR) ||
        r.flags & DNS_OPCODE_MASK)
        return false;
    if (r.count[DNS_QUESTION] != 1 || !dns_next_question(&r, &q))
        return false;
    question_of(t, &asked);
    *ret_spelt = dns_name_same(&q.name, &asked.name);
    return q.type == asked.type && q.class == asked.class && dns_name_eq(&q.name, &asked.name);
}

/* Takes the spelling out of a reply, which is over with it: other names of the reply may point to
 * the question's. */
static void forget_spelling(char *p, size_t n)
{
    size_t at = DNS_HEADER_BYTES;
    for (size_t end; at < n && (end = at + 1 + (uint8_t)p[at]) <= n && p[at] > 0; at = end)
        for (size_t i = at + 1; i < end; i++)
            p[i] = ascii_lower(p[i]);
}

/* ---- UDP sockets ---- */

static void on_socket_closed(uv_handle_t *h)
{
    mem_free(container_of(h, struct ns_socket, udp));
}

static void close_if_unused(struct ns_socket *s)
{
    if (s->retired && list_empty(&s->waiting) && !uv_is_closing((uv_handle_t *)&s->udp))
        uv_close((uv_handle_t *)&s->udp, on_socket_closed);
}

/* No more questions by this port. */
static void retire(struct ns_socket *s)
{
    if (s->retired)
        return;
    s->retired = true;
    for (unsigned i = 0; i < NS_SOCKETS; i++)
        if (s->server->socket[i] == s)
            s->server->socket[i] = NULL;
    close_if_unused(s);
}

static void on_alloc(uv_handle_t *h, size_t wish, uv_buf_t *ret)
{
    (void)wish;
    struct ns_socket *s = container_of(h, struct ns_socket, udp);
    *ret = uv_buf_init((char *)s->server->set->in, NS_REPLY_BYTES);
}

static struct ns_try *waiting_for(struct ns_socket *s, uint16_t id)
{
    list_each(l, &s->waiting)
    {
        struct ns_try *t = container_of(l, struct ns_try, link);
        if (t->id == id)
            return t;
    }
    return NULL;
}

static void on_datagram(struct ns_socket *s, char *p, size_t n)
{
    struct dns_reader r;
    bool spelt;
    struct str reply = {p, n};
    struct ns_try *t = dns_read(&r, p, n) ? waiting_for(s, r.id) : NULL;
    if (!t || !is_reply(t, reply, &spelt))
        return;
    if (!spelt) {
        t->miscased = true;
        return;
    }
    forget_spelling(p, n);
    ns_try_replied(t, reply, false);
}

/* The kernel was told that nobody is there: every try on this socket has failed. */
static void on_socket_error(struct ns_socket *s)
{
    struct list *l;
    while ((l = list_first(&s->waiting)))
        ns_try_failed(container_of(l, struct ns_try, link));
}

static void on_recv(uv_udp_t *udp, ssize_t n, const uv_buf_t *b, const struct sockaddr *from,
                    unsigned flags)
{
    (void)from; /* the socket is connected: the kernel lets nobody else in */
    struct ns_socket *s = container_of(udp, struct ns_socket, udp);
    if (n > 0 && !(flags & UV_UDP_PARTIAL))
        on_datagram(s, b->base, (size_t)n);
    if (n < 0) {
        retire(s); /* its last one waiting closes it */
        on_socket_error(s);
    }
}

static int connect_socket(struct ns_socket *s)
{
    const struct sockaddr *to = &s->server->addr.sa;
    int fd, err = uv_fileno((uv_handle_t *)&s->udp, &fd);
    if (err == 0)
        err = prepare_socket(&s->server->set->prepare, fd, to);
    return err < 0 ? err : uv_udp_connect(&s->udp, to);
}

static struct ns_socket *socket_new(struct ns_server *server)
{
    struct worker *w = server->set->w;
    struct ns_socket *s = mem_new(sizeof *s);
    s->server = server;
    s->born = worker_now(w);
    list_init(&s->waiting);
    if (uv_udp_init_ex(worker_loop(w), &s->udp, server->addr.sa.sa_family) < 0) {
        mem_free(s);
        return NULL;
    }
    uv_unref((uv_handle_t *)&s->udp);
    if (connect_socket(s) == 0 && uv_udp_recv_start(&s->udp, on_alloc, on_recv) == 0)
        return s;
    s->retired = true;
    close_if_unused(s);
    return NULL;
}

/* Where no new socket is to be had, an old one will do. */
static struct ns_socket *any_socket(struct ns_server *server)
{
    for (unsigned i = 0; i < NS_SOCKETS; i++)
        if (server->socket[i])
            return server->socket[i];
    return NULL;
}

static struct ns_socket *pick_socket(struct ns_server *server)
{
    unsigned i = random16() % NS_SOCKETS;
    struct ns_socket *s = server->socket[i];
    if (s && s->asked < SOCKET_QUESTIONS && worker_now(server->set->w) - s->born < SOCKET_AGE_MS)
        return s;
    struct ns_socket *fresh = socket_new(server);
    if (!fresh)
        return any_socket(server);
    if (s)
        retire(s);
    server->socket[i] = fresh;
    return fresh;
}

static void leave_socket(struct ns_try *t)
{
    struct ns_socket *s = t->socket;
    if (!s)
        return;
    t->socket = NULL;
    list_del(&t->link);
    close_if_unused(s);
}

static uint16_t unused_id(struct ns_socket *s)
{
    uint16_t id;
    do
        id = random16();
    while (waiting_for(s, id));
    return id;
}

/* A first error may be the news that an earlier datagram was refused, which is lost with it; the
 * second datagram brings it again, for all who wait on the socket. */
static bool send_datagram(struct ns_socket *s, const uint8_t *p, size_t n)
{
    uv_buf_t b = uv_buf_init((char *)p, (unsigned)n);
    int sent = uv_udp_try_send(&s->udp, &b, 1, NULL);
    if (sent < 0 && sent != UV_EAGAIN)
        sent = uv_udp_try_send(&s->udp, &b, 1, NULL);
    return sent >= 0 || sent == UV_EAGAIN; /* EAGAIN is a lost datagram like any other */
}

bool ns_try_udp(struct ns_try *t)
{
    uint8_t p[DNS_WRITE_MIN];
    struct ns_socket *s = pick_socket(t->server);
    if (!s)
        return false;
    t->id = unused_id(s);
    t->sent = worker_now(t->server->set->w);
    if (!send_datagram(s, p, write_question(t, p))) {
        retire(s);
        return false;
    }
    s->asked++;
    t->socket = s;
    list_push(&s->waiting, &t->link);
    return true;
}

/* ---- TCP ---- */

static void tcp_ready(void *user)
{
    struct ns_tcp *tcp = user;
    conn_wake(tcp->conn);
}

static void tcp_fill(void *user, struct buf *out, size_t max)
{
    (void)max;
    struct ns_tcp *tcp = user;
    uint8_t p[DNS_WRITE_MIN], len[2];
    if (tcp->asked || !tcp->owner)
        return;
    tcp->asked = true;
    size_t n = write_question(tcp->owner, p);
    len[0] = (uint8_t)(n >> 8);
    len[1] = (uint8_t)n;
    buf_write(out, len, 2);
    buf_write(out, p, n);
}

/* Nobody waits for this connection any more. */
static void leave_tcp(struct ns_try *t)
{
    struct ns_tcp *tcp = t->tcp;
    if (!tcp)
        return;
    t->tcp = NULL;
    tcp->owner = NULL;
    conn_close(tcp->conn, WHY_OK);
}

static void tcp_reply(struct ns_try *t, char *p, size_t n)
{
    bool spelt;
    struct str reply = {p, n};
    if (!is_reply(t, reply, &spelt)) {
        ns_try_failed(t);
        return;
    }
    if (!spelt)
        t->server->folds = true;
    forget_spelling(p, n);
    ns_try_replied(t, reply, true);
}

static void tcp_bytes(void *user, struct buf *in)
{
    struct ns_tcp *tcp = user;
    uint8_t len[2];
    buf_move_all(&tcp->in, in);
    if (!tcp->owner || tcp->in.len < 2)
        return;
    buf_peek(&tcp->in, len, 2);
    size_t n = (size_t)len[0] << 8 | len[1];
    if (tcp->in.len - 2 < n)
        return;
    char *p = mem_new(n + 1);
    buf_drop(&tcp->in, 2);
    buf_peek(&tcp->in, p, n);
    tcp_reply(tcp->owner, p, n);
    mem_free(p);
}

static void tcp_eof(void *user)
{
    struct ns_tcp *tcp = user;
    if (tcp->owner)
        ns_try_failed(tcp->owner);
    else
        conn_close(tcp->conn, WHY_OK);
}

static void tcp_closed(void *user, enum why why)
{
    (void)why;
    struct ns_tcp *tcp = user;
    struct ns_try *t = tcp->owner;
    if (t) {
        t->tcp = NULL;
        ns_try_failed(t);
    }
    buf_clear(&tcp->in);
    mem_free(tcp);
}

bool ns_try_tcp(struct ns_try *t)
{
    static const struct conn_events events = {tcp_ready, tcp_bytes, tcp_eof, tcp_fill, tcp_closed};
    struct worker *w = t->server->set->w;
    struct ns_tcp *tcp = mem_new(sizeof *tcp);
    int err;
    tcp->owner = t;
    buf_init(&tcp->in, worker_pool(w));
    tcp->conn =
        conn_connect_prepared(w, &t->server->addr.sa, &t->server->set->prepare, &events, tcp, &err);
    if (!tcp->conn) {
        mem_free(tcp);
        return false;
    }
    t->tcp = tcp;
    return true;
}

/* ---- both ---- */

void ns_try_init(struct ns_try *t, struct ns_server *server, struct ns_ask *ask,
                 const struct dns_question *asked)
{
    *t = (struct ns_try){.server = server, .ask = ask, .asked = asked, .flags = DNS_RD};
    list_init(&t->link);
}

void ns_try_over(struct ns_try *t)
{
    leave_socket(t);
    leave_tcp(t);
    t->server = NULL;
}

void ns_sockets_close(struct ns_server *s)
{
    for (unsigned i = 0; i < NS_SOCKETS; i++)
        if (s->socket[i])
            retire(s->socket[i]);
}
