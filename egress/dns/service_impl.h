/* service_impl.h — what the course of a query (service.c) and its TCP connections (service_tcp.c)
 * share. */
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

/* Where a query came from. */
struct dns_origin {
    struct udp *udp; /* or */
    struct dns_client *client;
    union addr from;
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
    unsigned conns;              /* of clients, those included that are closing */
    bool over;                   /* it goes with the last of them: they count in its gate */
    struct gate_learned learned; /* of the reply under construction */
    uint8_t out[DNS_MESSAGE_MAX], query[DNS_QUERY_BYTES];
};

/* ---- service.c */

/* A query's bytes; answered now or later. */
void dns_query(struct dns_service *s, const struct dns_origin *from, const void *p, size_t n);
/* No reply can be given to this client any more. */
void dns_origin_gone(struct dns_service *s, struct dns_client *client);

/* A connection has closed. */
void dns_client_closed(struct dns_service *s);

/* ---- service_tcp.c */

/* A query of the client waits for its answer. */
void dns_client_waits(struct dns_client *c);
/* Its answer is there (n 0: there is none). */
void dns_client_reply(struct dns_client *c, const void *p, size_t n, bool waited);
void dns_clients_close(struct dns_service *s);
/* For dns_service_tcp(): a connection was accepted. */
void dns_client_accept(void *user, struct conn *conn);

#endif
