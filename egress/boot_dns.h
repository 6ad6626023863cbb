/* boot_dns.h — the sidecar's DNS put together from its settings: whom it asks, what it allows. */
#ifndef EGRESS_BOOT_DNS_H
#define EGRESS_BOOT_DNS_H

#include "egress/dns/service.h"
#include "egress/handover.h"
#include "egress/settings.h"
#include "net/prepare.h"

/* E_DNS_UPSTREAM, else what the predecessor read, else /etc/resolv.conf, which is left for the
 * successor: the sandbox shares the file, and its root can write it (contract 5.4).  At most
 * NAMESERVERS_MAX; lies in `a`. */
struct nameserver_list boot_upstreams(const struct egress_settings *set, struct handover *h,
                                      struct arena *a);
struct dns_limits boot_dns_limits(const struct egress_settings *set, unsigned nupstreams);

#endif
