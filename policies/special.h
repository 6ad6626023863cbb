/* special.h — addresses that an answer of the DNS should not point to (contract egress-policy 5.3).
 * Pure. */
#ifndef POLICIES_SPECIAL_H
#define POLICIES_SPECIAL_H

#include "policies/policy.h"

/* Does an answer keep this address?  Loopback, unspecified, link-local and multicast ones go, and
 * those of a cloud's metadata service; private_deny: private ones (RFC 1918, RFC 4193) go as well
 * (E4).  An address rule that allows it keeps it; a NAT64 address (64:ff9b::/96, RFC 6052) must be
 * kept as both. */
bool answer_kept(const struct policy *p, const struct ip *ip, bool private_deny);

#endif
