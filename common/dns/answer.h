/* answer.h — what a reply says about the question that was asked.  Pure.
 *
 * Any record may stand in an answer section; an answer is only what hangs on the question by a
 * chain of aliases (DESIGN 18.7 D3). */
#ifndef DNS_ANSWER_H
#define DNS_ANSWER_H

#include "dns/message.h"

enum { DNS_ADDRESSES_MAX = 16, DNS_CHAIN_MAX = 8 };

enum dns_finding {
    DNS_FOUND,   /* addresses */
    DNS_NODATA,  /* the name is there, but no address of that type */
    DNS_NO_NAME, /* NXDOMAIN */
    DNS_USELESS  /* another code, a fault in the message, or a chain that is too long */
};

struct dns_answer {
    enum dns_finding finding;
    uint32_t ttl; /* s: least of the chain and its addresses, or what RFC 2308 gives for a negative
                     answer; 0: not to be kept */
    unsigned n;
    struct ip ip[DNS_ADDRESSES_MAX]; /* in the order of the reply, each once; more are left out */
};

/* Reads the reply of n bytes at p to a question for addresses; `type` is DNS_A or DNS_AAAA.  That
 * id and question agree has been checked. */
void dns_answer(const void *p, size_t n, const struct dns_name *name, uint16_t type,
                struct dns_answer *ret);
/* How long, in s, the whole reply to a question for `type` may be kept: the least TTL of its
 * records; for a negative one no longer than RFC 2308 says.  0: not to be kept. */
uint32_t dns_reply_ttl(const void *p, size_t n, uint16_t type);
/* All twelve bits of the reply's code, the upper ones from its OPT record; -1: the message is
 * faulty. */
int dns_reply_rcode(const void *p, size_t n);

#endif
