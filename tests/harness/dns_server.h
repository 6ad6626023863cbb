/* dns_server.h — a scripted DNS server on loopback, UDP and TCP, in the test's own thread: it moves
 * only when it is stepped.
 *
 * Several may share a port on 127.0.0.1, 127.0.0.2 …, as the servers of one resolv.conf do.  What
 * comes in goes to handle(), which may answer at once, later, wrongly or never. */
#ifndef HARNESS_DNS_SERVER_H
#define HARNESS_DNS_SERVER_H

#include "dns/message.h"
#include "net/addr.h"

struct dns_server;

/* A question that came in; may be copied and answered later. */
struct dns_asked {
    struct dns_server *server;
    struct dns_question q; /* as spelt */
    uint16_t id, udp_size; /* udp_size 0: no EDNS */
    size_t options;        /* bytes of EDNS options */
    bool tcp;
    int fd;
    union addr from;
};

/* The port on which all of the n servers are; handle is of the test. */
struct dns_server *dns_servers_new(unsigned n, uint16_t *ret_port,
                                   void (*handle)(void *user, const struct dns_asked *a),
                                   void *user);
void dns_servers_free(struct dns_server *servers);
/* Takes what has come in; returns how many questions. */
unsigned dns_servers_step(struct dns_server *servers);
/* 0: the one on 127.0.0.1, and so on. */
unsigned dns_server_index(const struct dns_server *s);
struct dns_server *dns_server_at(struct dns_server *servers, unsigned index);
/* Closes the one's sockets: questions are refused. */
void dns_server_stop(struct dns_server *s);

/* A reply under construction. */
struct dns_reply {
    struct dns_writer w;
    struct dns_asked to;
    uint8_t p[DNS_MESSAGE_MAX];
};
/* Header with id and question of `a`, and flags or code. */
void dns_reply_begin(struct dns_reply *r, const struct dns_asked *a, unsigned flags);
void dns_reply_ip(struct dns_reply *r, const char *owner, const char *ip, uint32_t ttl);
void dns_reply_alias(struct dns_reply *r, const char *owner, const char *target, uint32_t ttl);
void dns_reply_soa(struct dns_reply *r, const char *owner, uint32_t ttl, uint32_t minimum);
/* Ends it and sends it from where the question came. */
void dns_reply_send(struct dns_reply *r);

#endif
