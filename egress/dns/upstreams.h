/* upstreams.h — which servers are asked (contract egress-policy 1.2, 4.2, 5.4), from the settings
 * and the text of resolv.conf.  Pure. */
#ifndef DNS_UPSTREAMS_H
#define DNS_UPSTREAMS_H

#include "dns/message.h"
#include "net/addr.h"

/* As many as a list names; they lie in the arena. */
struct upstreams {
    const union addr *at;
    unsigned n;
};

/* E_DNS_UPSTREAM: "IP[:port]", … in order, each once.  False: a part that is none, or no part at
 * all; *ret_bad is the part. */
bool upstreams_parse(struct str text, struct arena *a, struct upstreams *ret, struct str *ret_bad);
/* The servers of resolv.conf, loopback ones last, ten at most; 8.8.8.8 if it names none. */
void upstreams_of_resolv_conf(struct str text, struct arena *a, struct upstreams *ret);
/* Are they all on loopback, where a process of the sandbox may answer in their place? */
bool upstreams_only_loopback(const struct upstreams *u);
/* E_NAMESERVER_EXEMPT: addresses, each once; false and *ret_bad: a part that is none. */
bool exempt_parse(struct str text, struct arena *a, const struct ip **ret, size_t *ret_n,
                  struct str *ret_bad);
/* E_DNS_UPSTREAM_PROBE as a question; false: no name. */
bool probe_parse(struct str text, struct dns_question *ret);

#endif
