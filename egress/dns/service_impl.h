/* service_impl.h — what the course of a query (service_lookup.c, service_answer.c), its TCP
 * connections (service_tcp.c) and our own queries (service_own.c) share. */
#ifndef DNS_SERVICE_IMPL_H
#define DNS_SERVICE_IMPL_H

#include "base/list.h"
#include "base/map.h"
#include "dns/cache.h"
#include "egress/dns/service.h"
#include "net/listen.h"
#include "net/udp.h"
#include "net/worker.h"

enum { DNS_SOCKETS = 4, DNS_QUERY_BYTES = UDP_BYTES };

struct dns_client; /* a TCP connection */
struct dns_half;   /* one family of a name of ours */

/* Where a query came from: one of the first three. */
struct dns_origin {
    struct udp *udp;
    struct dns_client *client;
    struct dns_half *half;
    union addr from; /* not of a half */
};

struct dns_service {
    struct dns_setup s;
    struct dns_counters counters;
    struct dns_cache *cache;
    struct map *lookups;
    struct list waiting; /* askers whose leases the kernel is asked for */
    struct rates *rates;
    unsigned in_flight;
    struct udp *udp[DNS_SOCKETS];
    struct listener *tcp[DNS_SOCKETS];
    unsigned nudp, ntcp;
    struct accept_gate gate;
    struct list clients;
    unsigned conns;         /* of clients, those included that are closing */
    struct list owns, soon; /* names of ours; of them, what is to be told */
    struct post post;       /* tells them */
    bool posted;            /* it is in the mailbox */
    bool over;              /* it goes with the last of conns, which count in its gate, and post */
    struct gate_learned learned; /* of the reply under construction */
    uint8_t out[DNS_MESSAGE_MAX], query[DNS_QUERY_BYTES];
};

/* A query while it is answered; lives in the call. */
struct answering {
    struct dns_service *s;
    const struct dns_origin *from;
    const struct gate_query *q;
    struct str name;
    struct policy_answer judged;
    uint64_t began_us;
    bool waited; /* it is an asker's */
};

/* A query that waits, for a look-up or for the kernel. */
struct asker {
    struct list link; /* in lookup.askers, or in service.waiting */
    struct dns_service *s;
    struct dns_origin from; /* all NULL: gone */
    struct gate_query q;
    struct timer timer; /* while the kernel is asked */
    uint64_t began_us;
    uint8_t *reply;
    size_t n;
    struct gate_learned *learned;
};

/* ---- service.c */

/* A connection has closed. */
void dns_client_closed(struct dns_service *s);
/* Frees it if it is over and nothing of it is left. */
void dns_service_unused(struct dns_service *s);

/* ---- service_lookup.c */

/* A query's bytes; answered now or later. */
void dns_query(struct dns_service *s, const struct dns_origin *from, const void *p, size_t n);
/* A well-formed query; answered now or later. */
void dns_ask(struct dns_service *s, const struct dns_origin *from, const struct gate_query *q);
/* No reply can be given to this client any more. */
void dns_origin_gone(struct dns_service *s, struct dns_client *client);
/* Who waits for one gets no answer. */
void dns_lookups_free(struct dns_service *s);

/* ---- service_answer.c; each of the first four tells of it, once */

/* By the policy. */
void dns_deny(const struct answering *a);
void dns_error(const struct answering *a, enum dns_rcode rcode, enum why why);
/* From the upstream's reply, `age_s` old; exact: see leases_held().  `k` is the asker, if the query
 * has waited; true: it is used up. */
bool dns_answer_from(const struct answering *a, struct str upstream, uint32_t age_s, bool exact,
                     struct asker *k);
/* Answers k by the rules of now, from the upstream's reply or for want of one, and uses it up. */
void dns_settle(struct asker *k, struct str reply, enum why why);
/* To a query that cannot be judged; nobody is told of it. */
void dns_malformed(struct dns_service *s, const struct dns_origin *from, struct gate_query *q);
/* NULL: too many wait. */
struct asker *dns_asker_new(const struct answering *a);
void dns_asker_free(struct asker *k);
/* Who waits for the kernel gets no answer. */
void dns_waiting_free(struct dns_service *s);

/* ---- service_own.c */

/* What came of a half's query; learned may be NULL.  Nobody is called back in this. */
void dns_half_told(struct dns_half *h, enum why why, const struct gate_learned *learned);
void dns_owns_free(struct dns_service *s);

/* ---- service_tcp.c */

/* A query of the client waits for its answer. */
void dns_client_waits(struct dns_client *c);
/* Its answer is there (n 0: there is none). */
void dns_client_reply(struct dns_client *c, const void *p, size_t n, bool waited);
void dns_clients_close(struct dns_service *s);
/* For dns_service_tcp(): a connection was accepted. */
void dns_client_accept(void *user, struct conn *conn);

#endif
