/* rates.h — how often upstreams are asked, in all and below one domain: a tunnel needs a new name
 * for each of its packets.  Pure. */
#ifndef DNS_RATES_H
#define DNS_RATES_H

#include "base/mem.h"

/* per_s 0: no limit. */
struct rate {
    unsigned per_s, burst;
};

struct rates;

struct rates *rates_new(struct rate all, struct rate per_domain);
void rates_free(struct rates *r);
/* May this name be asked for now?  Domains are told apart by their last two labels; some share
 * their limit with another one. */
bool rates_take(struct rates *r, struct str name, uint64_t now_ms);

#endif
