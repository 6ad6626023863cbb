/* judge.h — the sidecar's questions to policies/identity.h, under one snapshot and the leases of
 * the moment, with what is decided before any rule: by the kernel for direct connections (contract
 * egress-policy 4.2 items 7 and 8, 4.4), since ours do not pass its rules; and that our own
 * listeners are dialled by nobody (4.7).
 *
 * Pure, but that the kernel is asked whether an address leads here. */
#ifndef EGRESS_JUDGE_H
#define EGRESS_JUDGE_H

#include "conf/snapshot.h"
#include "egress/sidecar.h"
#include "policies/identity.h"
#include "policies/packet.h"

struct egress_view;

struct judge {
    struct identity_rules rules;
    struct packet_rules packet;
    const struct sidecar *sidecar;
    const struct egress_view *view; /* of the snapshot */
    uint64_t now_ms;
};

/* *j must stay where it is: the rules point to it.  now_ms as of worker_now(). */
void judge_init(struct judge *j, const struct snapshot *snap, const struct sidecar *s,
                uint64_t now_ms);

struct opinion {
    enum identity fault;
    char rule[POLICY_RULE_BYTES]; /* "user:3", "port853", "own" …; "": no rule decided */
};

/* identity_target(), identity_first() and identity_request(), after what no rule can open: our own
 * listeners, closed ports.  *ret is REFUSE with any fault, *ret_host is set without one. */
struct opinion judge_target(const struct judge *j, const struct identity_conn *c);
struct opinion judge_first(const struct judge *j, const struct identity_conn *c, enum passage *ret);
struct opinion judge_request(const struct judge *j, const struct identity_conn *c,
                             const struct identity_request *q, struct host *ret_host);

/* Is it this name that makes the way to c->to one's own, by a lease that runs or did when the
 * connection began?  Where a rule about the address opened it, that rule has to stay. */
bool judge_holds(const struct judge *j, const struct identity_conn *c, const struct host *name);

/* Does a binding name this host, or did one of a vault that is lost, for requests that come on c?
 * NOT where c can carry no credential at all. */
enum bound judge_bound(const struct judge *j, const struct identity_conn *c,
                       const struct host *name);
/* Would what begins with TLS for this name, or with HTTP, on the way of c be read for the sake of
 * a binding, or by configuration?  Of CONNECT, before the client has said anything. */
bool judge_would_read(const struct judge *j, const struct identity_conn *c,
                      const struct host *name);

/* ip_is_loopback(); tests, whose networks are all loopback, put another in its place. */
bool judge_is_loopback(const struct ip *ip);
/* Has this host that address? */
bool judge_is_local(const struct ip *ip);
/* Does one of our own listeners answer there?  Asks the kernel, for the ports in question only. */
bool judge_is_ours(const struct sidecar *s, const struct ip *ip, uint16_t port);

#endif
