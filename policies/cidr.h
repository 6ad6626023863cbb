/* cidr.h — sets of networks, and the address ranges that are never dialled by default.  Pure. */
#ifndef POLICIES_CIDR_H
#define POLICIES_CIDR_H

#include <stdbool.h>

#include "base/ip.h"
#include "base/mem.h"

struct cidr {
    struct ip ip;
    uint8_t prefix; /* bits of the 128 */
};

struct cidr_set {
    const struct cidr *nets;
    unsigned n;
};

/* "10.0.0.0/8" or a single address; bits behind the prefix are cut off.  False: not one. */
bool cidr_parse(struct str s, struct cidr *ret);
/* Comma list, blanks around entries allowed, empty text is the empty set.  On a fault *ret_bad is
 * the entry. */
bool cidr_set_parse(struct str list, struct arena *a, struct cidr_set *ret, struct str *ret_bad);
bool cidr_set_has(const struct cidr_set *s, const struct ip *ip);
bool cidr_has(const struct cidr *net, const struct ip *ip);
/* Of IPv4, which a network wider than the mapped range is not. */
bool cidr_is_v4(const struct cidr *net);
/* The last address of the network; its first one is net->ip. */
struct ip cidr_last(const struct cidr *net);
enum { CIDR_TEXT_BYTES = IP_TEXT_BYTES + 4 };
/* Canonical text with its prefix ("10.0.0.0/8"); returns its length. */
size_t cidr_text(const struct cidr *net, char out[CIDR_TEXT_BYTES]);
/* Ranges of contract ingress 7.1 that are dialled only when a setting covers them: loopback,
 * link-local, multicast, metadata … */
bool cidr_is_special(const struct ip *ip);

#endif
