/* special.h — addresses that an answer of the DNS should not point to (contract egress-policy 5.3).
 * Pure. */
#ifndef POLICIES_SPECIAL_H
#define POLICIES_SPECIAL_H

#include "policies/policy.h"

/* Loopback, unspecified, link-local, multicast or a cloud's metadata service. */
bool special_is_never_remote(const struct ip *ip);
/* RFC 1918, or a unique local address of RFC 4193. */
bool special_is_private(const struct ip *ip);
/* The IPv4 address behind a NAT64 one (64:ff9b::/96, RFC 6052); false: it carries none. */
bool special_carries_v4(const struct ip *ip, struct ip *ret);
/* Does an answer keep this address?  private_deny: private ones go as well (E4).  An address rule
 * that allows it keeps it; an address that carries an IPv4 one must be kept as both. */
bool answer_kept(const struct policy *p, const struct ip *ip, bool private_deny);

#endif
