/* packet.h — what happens to an outgoing packet of the workload: the order of contract
 * egress-policy 4.2 and 4.4 as a function, for /policy/check and as the reference the kernel's
 * rules are tested against.  Pure. */
#ifndef POLICIES_PACKET_H
#define POLICIES_PACKET_H

#include "policies/policy.h"

enum packet_proto { PACKET_TCP, PACKET_UDP, PACKET_ICMP };

/* Settings that decide beside the policy. */
struct packet_rules {
    bool nft;                      /* mode dns+nft: addresses are enforced */
    bool block_doh;                /* E_BLOCK_DOH_443 */
    struct cidr_set doh_blocklist; /* empty: every address */
    struct cidr_set exempt;        /* E_NAMESERVER_EXEMPT */
};

struct packet {
    struct ip to;
    uint16_t port; /* 0 for ICMP */
    enum packet_proto proto;
    enum learned learned;
    bool bound; /* learned for a name that is intercepted */
    bool own;   /* sent by us */
    bool reply; /* of a connection from outside */
};

enum packet_verdict { PACKET_ACCEPT, PACKET_REFUSE, PACKET_TO_DNS };

enum packet_rule {
    PACKET_BY_POLICY, /* see `answer` */
    PACKET_BY_REPLY,
    PACKET_BY_OWN,
    PACKET_BY_DNS53,
    PACKET_BY_NOTHING, /* mode dns does not filter */
    PACKET_BY_LOOPBACK,
    PACKET_BY_PORT853,
    PACKET_BY_DOH,
    PACKET_BY_QUIC,
    PACKET_BY_EXEMPT,
};

struct packet_answer {
    enum packet_verdict verdict;
    enum packet_rule by;
    struct policy_answer answer; /* set for BY_POLICY */
};

struct packet_answer packet_judge(const struct policy *p, const struct packet_rules *rules,
                                  const struct packet *packet);
/* The word for what decided ("port853", "user:3" …) in POLICY_RULE_BYTES; returns its length. */
size_t packet_rule_text(const struct packet_answer *answer, char out[POLICY_RULE_BYTES]);

#endif
