/* service.h — the sidecar's DNS as the workload meets it (contract egress-policy 5): UDP and TCP,
 * judged, cached, coalesced, asked upstream, filtered, leased, answered.
 *
 * No reply tells an address before the kernel has it. */
#ifndef DNS_SERVICE_H
#define DNS_SERVICE_H

#include "base/metrics.h"
#include "egress/dns/leases.h"
#include "egress/dns/rates.h"
#include "egress/dns/upkeep.h"
#include "net/nameserver.h"
#include "net/resolve.h"

struct dns_limits {
    unsigned in_flight;      /* queries that wait for an answer */
    unsigned cache_entries;  /* answers that are kept; 0: none */
    struct rate asks;        /* questions to upstreams */
    struct rate domain_asks; /* … below one domain */
    unsigned tcp_clients;
    unsigned tcp_in_flight; /* queries of one connection that wait; then it is not read */
    unsigned tcp_queries;   /* of one connection in all; then it ends */
    uint64_t tcp_first_ms, tcp_idle_ms; /* until the first query is whole, until the next one */
    uint64_t upstream_ms;               /* for one question, over all upstreams */
    uint64_t kernel_ms;                 /* until the kernel has what a reply tells of */
};

/* What came of a query, once for each; lent. */
struct dns_told {
    struct str name; /* lower case, no final dot; "." is the root */
    uint16_t type;
    struct policy_answer judged;
    enum dns_rcode rcode;           /* of the reply */
    const struct gate_learned *ips; /* told in it */
    enum why why; /* OK, DENIED, DNS, DEADLINE, LIMIT, OVERLOAD; REFUSED: see gate_has_answer() */
    uint64_t took_us;
    const struct sockaddr *client; /* NULL: it was asked for a connection of ours */
};

struct dns_counters {
    struct counter queries, malformed, denied, answered, cached, joined; /* joined: coalesced */
    struct counter upstream_failed, lease_failed, lease_full, overload, rate_limited;
};

struct dns_setup {
    struct worker *w;
    struct nameservers *servers;
    struct leases *leases;
    struct upkeep *upkeep;          /* NULL: none */
    const struct gate_rules *rules; /* until dns_service_adopt() */
    struct dns_limits limits;
    /* Not of queries of ours that are denied: who asks reports that.  May be NULL. */
    void (*told)(void *user, const struct dns_told *told);
    void *user;
};

struct dns_service;

struct dns_service *dns_service_new(const struct dns_setup *setup);
/* Answers on this bound socket (udp_bind(), listen_bind()), which belongs to it now. */
void dns_service_udp(struct dns_service *s, int fd);
void dns_service_tcp(struct dns_service *s, int fd);
/* Other rules are in force; lent until the next ones.  Leases and upkeep are told as well (`told`:
 * see leases_adopt()), and what waits is judged again when its answer comes. */
void dns_service_adopt(struct dns_service *s, const struct gate_rules *rules,
                       const struct lease_change *told);
const struct dns_counters *dns_service_counters(const struct dns_service *s);
/* Queries that wait. */
unsigned dns_service_waiting(const struct dns_service *s);

/* ---- names of our own connections */

struct dns_own;

/* Asks for the addresses of a name as a client would, in A and AAAA: judged, cached, coalesced,
 * limited, filtered, leased.  done(arg, ips, n, WHY_OK), IPv4 first, RESOLVE_ADDRESSES at most; or
 * (arg, NULL, 0, why): DENIED (by the policy), DNS (no address, or no server that says so),
 * DEADLINE, LIMIT (of questions, of leases), OVERLOAD.  Once, never before this returns; ips is
 * lent.  By the time of a connection the policy may be another: look at each address again. */
struct dns_own *dns_service_resolve(struct dns_service *s, struct str name, uint64_t timeout_ms,
                                    void (*done)(void *arg, const struct ip *ips, unsigned count,
                                                 enum why why),
                                    void *arg);
/* done() will not be called. */
void dns_service_cancel(struct dns_own *o);

/* Closes sockets and connections; what waits gets no answer, who waits for a name hears nothing and
 * must not cancel any more. */
void dns_service_free(struct dns_service *s);

#endif
