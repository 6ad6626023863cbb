/* nameserver_impl.h — what a question's course (nameserver.c) and its tries (nameserver_try.c)
 * share. */
#ifndef NET_NAMESERVER_IMPL_H
#define NET_NAMESERVER_IMPL_H

#include "base/list.h"
#include "net/nameserver.h"
#include "net/worker.h"

enum {
    NS_SOCKETS = 16,       /* per server */
    NS_TRIES = 16,         /* per question */
    NS_REPLY_BYTES = 4096, /* over UDP */
};

struct ns_server;
struct ns_socket; /* UDP */
struct ns_tcp;

/* One question to one server: it waits on UDP, on TCP, or on both. */
struct ns_try {
    struct list link;                 /* in its socket's waiting, or in none */
    struct ns_server *server;         /* NULL: over */
    struct ns_ask *ask;               /* NULL: a probe */
    const struct dns_question *asked; /* as spelt */
    struct ns_socket *socket;
    struct ns_tcp *tcp;
    uint64_t sent;
    uint16_t id, flags;
    bool dnssec_ok;
    bool lower;    /* asked in lower case */
    bool edns;     /* asked with OPT */
    bool miscased; /* a reply came with the question in another spelling */
};

struct ns_server {
    struct nameservers *set;
    union addr addr;
    struct ns_socket *socket[NS_SOCKETS]; /* for new questions */
    uint64_t heard;                       /* when it last said anything */
    unsigned misses;                      /* questions in a row it let pass */
    bool out;                             /* asked last; probed */
    bool no_edns;                         /* does not know EDNS */
    bool folds; /* does not keep the spelling of questions: shown over TCP, so not by a forger */
    struct timer probe;
    uint64_t probe_ms;
    struct ns_try probing;
};

struct nameservers {
    struct worker *w;
    struct list asks;
    unsigned n, rounds;
    uint64_t try_ms;
    uint64_t watch_every_ms, watch_ms;
    struct dns_question probe;
    struct timer round; /* of the watch */
    struct prepare prepare;
    void (*news)(void *user, enum ns_news news, const union addr *addr);
    void *user;
    struct ns_server *server;
    uint8_t in[NS_REPLY_BYTES];
};

/* ---- nameserver_try.c */

void ns_try_init(struct ns_try *t, struct ns_server *server, struct ns_ask *ask,
                 const struct dns_question *asked);
/* Sends by UDP, once.  False: it could not be sent. */
bool ns_try_udp(struct ns_try *t);
/* Asks by TCP too, where t waits on UDP.  False: no connection can be made. */
bool ns_try_tcp(struct ns_try *t);
/* Waits on nothing any more; no event follows. */
void ns_try_over(struct ns_try *t);
/* Closes the server's sockets, on which nobody waits. */
void ns_sockets_close(struct ns_server *s);

/* ---- events, in nameserver.c; both may end t */

/* A reply that passed all checks. */
void ns_try_replied(struct ns_try *t, struct str reply, bool over_tcp);
/* Nothing will come: refused, closed, nonsense over TCP. */
void ns_try_failed(struct ns_try *t);

#endif
