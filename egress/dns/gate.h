/* gate.h — what the sidecar's DNS answers (contract egress-policy 5.1–5.3): a query is read, judged
 * by its name before anything is sent, and the upstream's answer goes through a filter.  Pure. */
#ifndef DNS_GATE_H
#define DNS_GATE_H

#include "dns/message.h"
#include "policies/policy.h"

enum {
    GATE_ADDRESSES = 256,  /* told and learned from one answer; the rest is left out of it */
    GATE_UDP_BYTES = 4096, /* most that goes out in one datagram, whatever a client can take */
    GATE_NAME_BYTES = DNS_NAME_TEXT_BYTES
};

/* What is in force. */
struct gate_rules {
    const struct policy *policy;
    bool private_deny; /* E_PRIVATE_ANSWERS=deny */
    /* Is this host intercepted?  NULL: none is.  The name is lower case, without its final dot. */
    bool (*bound)(void *user, struct str name);
    void *user;
};

/* A query, and what its reply depends on. */
struct gate_query {
    struct dns_question question; /* as spelt */
    uint16_t id, flags;
    uint16_t room; /* most bytes of a reply */
    bool asked;    /* there is a question to echo */
    bool edns, dnssec_ok;
    enum dns_rcode fault; /* for GATE_REPLY */
};

enum gate_step {
    GATE_IGNORE, /* no query */
    GATE_REPLY,  /* gate_error() with query.fault */
    GATE_JUDGE   /* well-formed */
};

/* Reads the n bytes of a message that came by UDP or TCP. */
enum gate_step gate_read(const void *p, size_t n, bool tcp, struct gate_query *ret);
/* The question's name as policies take it: lower case, no final dot.  Returns its text in out. */
struct str gate_name(const struct gate_query *q, char out[GATE_NAME_BYTES]);
/* Is the host bound that the name is about, which is the name without labels like _443 and _https?
 */
bool gate_is_bound(const struct gate_rules *rules, struct str name);
/* Can one reply answer it?  Not a zone transfer (RFC 5936, RFC 1995), nor what asks for no class
 * (RFC 2136). */
bool gate_has_answer(const struct gate_query *q);

/* Each of these writes a reply to out, which has q->room bytes, and returns its length. */

/* Nothing but a code. */
size_t gate_error(const struct gate_query *q, enum dns_rcode rcode, uint8_t *out);
/* Denied by the policy: NXDOMAIN that may be kept for a second (E3). */
size_t gate_denial(const struct gate_query *q, uint8_t *out);

struct gate_address {
    struct ip ip;
    uint32_t ttl; /* s */
};

/* Addresses that a reply tells of, each once. */
struct gate_learned {
    unsigned n;
    struct gate_address at[GATE_ADDRESSES];
};

/* The upstream's reply, which is whole and in order and age_s old, as the client may have it.
 * What it tells of in q's name must be reachable before it is sent. */
size_t gate_reply(const struct gate_rules *rules, const struct gate_query *q, struct str upstream,
                  uint32_t age_s, uint8_t *out, struct gate_learned *ret);

#endif
