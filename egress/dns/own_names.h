/* own_names.h — the sidecar's names for net/dial.h: each host is asked for through its own DNS,
 * under the workload's policy (DESIGN 11).  No hosts file, no search list, nothing stale. */
#ifndef DNS_OWN_NAMES_H
#define DNS_OWN_NAMES_H

#include "egress/dns/service.h"

/* Freed (names_free()) before the service. */
struct names *own_names_new(struct worker *w, struct dns_service *s);

#endif
