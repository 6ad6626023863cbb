/* dns_server.c — sockets that do not block, read when the test says so.  Answers are made with our
 * own codec, so what they must not be trusted for (forgery, truncation, nonsense) a test writes by
 * hand. */
#include "harness/dns_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { SERVERS = 4, PEERS = 16 };

struct peer {
    int fd; /* -1: free */
    size_t n;
    uint8_t in[DNS_WRITE_MIN + 2];
};

struct dns_server {
    unsigned index, of;
    int udp, tcp;
    struct peer peer[PEERS];
    void (*handle)(void *user, const struct dns_asked *a);
    void *user;
};

static int open_socket(int type, const struct sockaddr_in *at)
{
    int one = 1, fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, type == SOCK_STREAM ? &one : &(int){0}, sizeof one);
    if (bind(fd, (const struct sockaddr *)at, sizeof *at) == 0 &&
        (type != SOCK_STREAM || listen(fd, 16) == 0))
        return fd;
    close(fd);
    return -1;
}

static bool server_open(struct dns_server *s, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + s->index);
    s->udp = open_socket(SOCK_DGRAM, &at);
    s->tcp = s->udp < 0 ? -1 : open_socket(SOCK_STREAM, &at);
    if (s->tcp < 0 && s->udp >= 0)
        close(s->udp);
    return s->tcp >= 0;
}

void dns_server_stop(struct dns_server *s)
{
    for (unsigned i = 0; i < PEERS; i++) {
        if (s->peer[i].fd >= 0)
            close(s->peer[i].fd);
        s->peer[i].fd = -1;
    }
    if (s->udp >= 0)
        close(s->udp);
    if (s->tcp >= 0)
        close(s->tcp);
    s->udp = s->tcp = -1;
}

static uint16_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = open_socket(SOCK_DGRAM, &at);
    assert(fd >= 0);
    getsockname(fd, (struct sockaddr *)&at, &len);
    close(fd);
    return ntohs(at.sin_port);
}

struct dns_server *dns_servers_new(unsigned n, uint16_t *ret_port,
                                   void (*handle)(void *user, const struct dns_asked *a),
                                   void *user)
{
    assert(n > 0 && n <= SERVERS);
    struct dns_server *s = mem_new(n * sizeof *s);
    for (unsigned i = 0; i < n; i++) {
        s[i] = (struct dns_server){
            .index = i, .of = n, .udp = -1, .tcp = -1, .handle = handle, .user = user};
        for (unsigned k = 0; k < PEERS; k++)
            s[i].peer[k].fd = -1;
    }
    for (int attempt = 0; attempt < 100; attempt++) {
        uint16_t port = free_port();
        unsigned open = 0;
        while (open < n && server_open(&s[open], port))
            open++;
        if (open == n) {
            *ret_port = port;
            return s;
        }
        for (unsigned i = 0; i < open; i++)
            dns_server_stop(&s[i]);
    }
    assert(!"no port is free on all addresses");
    return NULL;
}

void dns_servers_free(struct dns_server *servers)
{
    for (unsigned i = 0; i < servers->of; i++)
        dns_server_stop(&servers[i]);
    mem_free(servers);
}

unsigned dns_server_index(const struct dns_server *s)
{
    return s->index;
}

struct dns_server *dns_server_at(struct dns_server *servers, unsigned index)
{
    return &servers[index];
}

static void take(struct dns_server *s, struct dns_asked *a, const uint8_t *p, size_t n)
{
    struct dns_reader r;
    struct dns_record rec;
    struct dns_edns edns;
    bool ok = dns_read(&r, p, n) && dns_next_question(&r, &a->q);
    assert(ok);
    while (dns_next_record(&r, &rec))
        if (dns_record_edns(&rec, &edns)) {
            a->udp_size = edns.udp_size;
            a->options = edns.options.n;
        }
    ok = dns_read_whole(&r) && r.flags == DNS_RD && r.count[DNS_QUESTION] == 1;
    assert(ok);
    a->server = s;
    a->id = r.id;
    s->handle(s->user, a);
}

static unsigned step_udp(struct dns_server *s)
{
    uint8_t p[DNS_WRITE_MIN];
    unsigned count = 0;
    while (s->udp >= 0) {
        struct dns_asked a = {.fd = s->udp};
        socklen_t len = sizeof a.from;
        ssize_t n = recvfrom(s->udp, p, sizeof p, 0, &a.from.sa, &len);
        if (n < 0)
            break;
        take(s, &a, p, (size_t)n);
        count++;
    }
    return count;
}

static void accept_peers(struct dns_server *s)
{
    for (int fd;
         s->tcp >= 0 && (fd = accept4(s->tcp, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        unsigned i = 0;
        while (i < PEERS && s->peer[i].fd >= 0)
            i++;
        assert(i < PEERS);
        s->peer[i] = (struct peer){.fd = fd};
    }
}

static unsigned step_peer(struct dns_server *s, struct peer *peer)
{
    ssize_t n = recv(peer->fd, peer->in + peer->n, sizeof peer->in - peer->n, 0);
    if (n <= 0) {
        if (n < 0 && errno == EAGAIN)
            return 0;
        close(peer->fd);
        peer->fd = -1;
        return 0;
    }
    peer->n += (size_t)n;
    size_t want = peer->n < 2 ? 2 : 2 + ((size_t)peer->in[0] << 8 | peer->in[1]);
    if (peer->n < want)
        return 0;
    struct dns_asked a = {.tcp = true, .fd = peer->fd};
    assert(peer->n == want); /* one question, and nothing after it */
    take(s, &a, peer->in + 2, want - 2);
    peer->n = 0;
    return 1;
}

unsigned dns_servers_step(struct dns_server *servers)
{
    unsigned count = 0;
    for (struct dns_server *s = servers; s < servers + servers->of; s++) {
        count += step_udp(s);
        accept_peers(s);
        for (unsigned i = 0; i < PEERS; i++)
            if (s->peer[i].fd >= 0)
                count += step_peer(s, &s->peer[i]);
    }
    return count;
}

void dns_reply_begin(struct dns_reply *r, const struct dns_asked *a, unsigned flags)
{
    r->to = *a;
    dns_write(&r->w, r->p, sizeof r->p, a->id, (uint16_t)(DNS_QR | DNS_RD | DNS_RA | flags));
    dns_write_question(&r->w, &a->q);
}

static struct dns_name name_of(const char *text)
{
    struct dns_name name;
    bool ok = dns_name_parse(str_of(text), &name);
    assert(ok);
    return name;
}

void dns_reply_ip(struct dns_reply *r, const char *owner, const char *text, uint32_t ttl)
{
    struct dns_name name = name_of(owner);
    struct ip ip;
    bool ok = ip_parse(str_of(text), &ip);
    assert(ok);
    dns_write_ip(&r->w, DNS_ANSWER, &name, ttl, &ip);
}

void dns_reply_alias(struct dns_reply *r, const char *owner, const char *target, uint32_t ttl)
{
    struct dns_name name = name_of(owner), to = name_of(target);
    dns_write_target(&r->w, DNS_ANSWER, &name, DNS_CNAME, ttl, &to);
}

void dns_reply_soa(struct dns_reply *r, const char *owner, uint32_t ttl, uint32_t minimum)
{
    struct dns_name name = name_of(owner);
    struct dns_soa soa = {.primary = name, .mailbox = name, .minimum = minimum};
    dns_write_soa(&r->w, DNS_AUTHORITY, &name, ttl, &soa);
}

/* In two parts, so that the asker has to put them together. */
static void send_tcp(int fd, const uint8_t *p, size_t n)
{
    uint8_t len[2] = {(uint8_t)(n >> 8), (uint8_t)n};
    ssize_t sent = send(fd, len, 1, MSG_NOSIGNAL);
    sent += send(fd, len + 1, 1, MSG_NOSIGNAL);
    sent += send(fd, p, n, MSG_NOSIGNAL);
    assert(sent == (ssize_t)n + 2);
}

void dns_reply_send(struct dns_reply *r)
{
    size_t n = dns_write_end(&r->w);
    if (r->to.tcp)
        send_tcp(r->to.fd, r->p, n);
    else
        sendto(r->to.fd, r->p, n, 0, &r->to.from.sa, addr_len(&r->to.from.sa));
}
