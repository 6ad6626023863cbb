/* handover_hosts.h — the names of bound hosts, left with the supervisor so that a successor refuses
 * what a lost vault would have credentialed (contract egress-vault 13.1).  Names only.
 *
 * While a change is under way both what was bound and what will be are left there: whenever the
 * worker dies, a host that a credential went to is among them. */
#ifndef EGRESS_HANDOVER_HOSTS_H
#define EGRESS_HANDOVER_HOSTS_H

#include "egress/handover.h"

#define HANDOVER_BOUND "bound"

struct bindings;
struct bound_hosts;

/* What the predecessor left is what is there. */
struct bound_hosts *bound_hosts_new(struct handover *h);
void bound_hosts_free(struct bound_hosts *b); /* NULL is fine; what was left stays */
/* Hosts that are bound from now on.  True: bound_hosts_before() has to be called before they are;
 * then bound_hosts_after().  False: there is nothing to tell. */
bool bound_hosts_change(struct bound_hosts *b, const struct bindings *fresh);
/* From a thread of the pool, as they may wait for the supervisor. */
void bound_hosts_before(struct bound_hosts *b);
void bound_hosts_after(struct bound_hosts *b);

#endif
