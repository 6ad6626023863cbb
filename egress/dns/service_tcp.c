/* service_tcp.c — queries over TCP (RFC 7766): pipelined, answered as answers come, in whatever
 * order.  A client that sends in drips, never ends a query or reads no answers has until its
 * deadline; one that asks more than it may have waiting is not read until it has its answers. */
#include "egress/dns/service_impl.h"

enum { UNREAD_BYTES = 128 * 1024 }; /* of answers; then no more queries are read */

struct dns_client {
    struct list link; /* in service.clients */
    struct dns_service *s;
    bool gone; /* takes no part any more, but its conn has not closed yet */
    struct conn *conn;
    struct buf out;
    struct timer timer;
    unsigned waiting, queries;
    bool held;  /* something may lie unread that we did not want */
    bool ended; /* no more queries are taken: the client's end came, or it has had its number */
    bool eof, finished;
};

static bool takes_more(const struct dns_client *c)
{
    const struct dns_limits *l = &c->s->s.limits;
    return !c->ended && c->waiting < l->tcp_in_flight && c->out.len < UNREAD_BYTES;
}

static void arm(struct dns_client *c, uint64_t ms)
{
    timer_set(c->s->s.w, &c->timer, ms);
}

/* True: all is said, and nothing will follow. */
static bool is_done(const struct dns_client *c)
{
    return c->ended && c->waiting == 0 && c->out.len == 0;
}

/* Takes the next whole query into s->query; 0: there is none yet, or the connection is no good. */
static size_t take_query(struct dns_client *c, struct buf *in)
{
    uint8_t len[2];
    if (in->len < 2)
        return 0;
    buf_peek(in, len, 2);
    size_t n = (size_t)len[0] << 8 | len[1];
    if (n == 0 || n > DNS_QUERY_BYTES) {
        conn_close(c->conn, WHY_CLIENT_PROTOCOL);
        c->ended = true;
        return 0;
    }
    if (in->len - 2 < n)
        return 0;
    buf_drop(in, 2);
    buf_peek(in, c->s->query, n);
    buf_drop(in, n);
    return n;
}

static void on_bytes(void *user, struct buf *in)
{
    struct dns_client *c = user;
    size_t n;
    if (c->gone)
        return;
    while (takes_more(c) && (n = take_query(c, in)) > 0) {
        struct dns_origin from = {.client = c};
        memcpy(&from.from, conn_info(c->conn)->peer, addr_len(conn_info(c->conn)->peer));
        c->ended = ++c->queries == c->s->s.limits.tcp_queries;
        arm(c, c->s->s.limits.tcp_idle_ms);
        dns_query(c->s, &from, c->s->query, n);
    }
    c->held = !takes_more(c);
    if (c->ended)
        buf_drop(in, in->len);
    if (is_done(c))
        conn_wake(c->conn);
}

static void on_eof(void *user)
{
    struct dns_client *c = user;
    c->ended = c->eof = true;
    conn_wake(c->conn);
}

/* A client that goes on sending would lose its last answers to a reset, so it is not hung up on at
 * once. */
static void say_end(struct dns_client *c)
{
    if (c->eof)
        conn_close(c->conn, WHY_OK);
    else if (!c->finished)
        conn_finish(c->conn);
    c->finished = true;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct dns_client *c = user;
    if (c->gone)
        return;
    buf_move(out, &c->out, c->out.len < max ? c->out.len : max);
    if (out->len > 0) {
        if (c->held && takes_more(c)) {
            c->held = false;
            conn_read(c->conn, true);
        }
        return;
    }
    if (is_done(c))
        say_end(c);
}

static void leave(struct dns_client *c)
{
    if (c->gone)
        return;
    timer_clear(c->s->s.w, &c->timer);
    list_del(&c->link);
    dns_origin_gone(c->s, c);
    buf_clear(&c->out);
    c->gone = true;
}

static void on_closed(void *user, enum why why)
{
    (void)why;
    struct dns_client *c = user;
    leave(c);
    dns_client_closed(c->s);
    mem_free(c);
}

/* Whoever waits for us is given the time that we take; our own deadlines end that. */
static void on_timer(struct timer *t)
{
    struct dns_client *c = container_of(t, struct dns_client, timer);
    if (c->waiting > 0 && c->out.len == 0 && conn_unsent(c->conn) == 0)
        arm(c, c->s->s.limits.tcp_idle_ms);
    else
        conn_close(c->conn, WHY_DEADLINE);
}

void dns_client_accept(void *user, struct conn *conn)
{
    static const struct conn_events events = {NULL, on_bytes, on_eof, on_fill, on_closed};
    struct dns_service *s = user;
    struct dns_client *c = mem_new(sizeof *c);
    c->s = s;
    c->conn = conn;
    buf_init(&c->out, worker_pool(s->s.w));
    timer_init(&c->timer, on_timer);
    list_push(&s->clients, &c->link);
    s->conns++;
    arm(c, s->s.limits.tcp_first_ms);
    conn_attach(conn, &events, c);
}

void dns_client_waits(struct dns_client *c)
{
    c->waiting++;
}

void dns_client_reply(struct dns_client *c, const void *p, size_t n, bool waited)
{
    uint8_t len[2] = {(uint8_t)(n >> 8), (uint8_t)n};
    c->waiting -= waited;
    buf_write(&c->out, len, 2);
    buf_write(&c->out, p, n);
    conn_wake(c->conn);
}

void dns_clients_close(struct dns_service *s)
{
    for (struct list *it; (it = list_first(&s->clients));) {
        struct dns_client *c = container_of(it, struct dns_client, link);
        conn_close(c->conn, WHY_DRAIN);
        leave(c);
    }
}
