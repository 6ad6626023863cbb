/* svcb.h — the data of SVCB and HTTPS records (RFC 9460) without what the workload should not be
 * told (contract egress-policy 5.3, E17).  Pure. */
#ifndef DNS_SVCB_H
#define DNS_SVCB_H

#include "policies/policy.h"

struct svcb_rules {
    const struct policy *policy;
    bool private_deny; /* private hints go too (E4) */
    bool bound;        /* an intercepted host: no ECH, no HTTP/3 */
};

/* Writes what is left of `data` to out, which has room for data.n bytes: addresses that
 * answer_kept() refuses are taken out of the hints; what was taken out is not "mandatory" either.
 * False: the data is faulty. */
bool svcb_filter(const struct svcb_rules *rules, struct str data, uint8_t *out, size_t *ret_n);

#endif
