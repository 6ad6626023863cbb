/* hostfiles.h — what the texts of resolv.conf and the hosts file say (resolv.conf(5), hosts(5)).
 * Pure.
 *
 * Lines that mean nothing to us are passed over, as every resolver does; numbers are cut to what is
 * sensible. */
#ifndef NET_HOSTFILES_H
#define NET_HOSTFILES_H

#include "dns/message.h"

enum { RESOLV_SERVERS = 10, RESOLV_SEARCH = 32, HOSTS_ADDRESSES = 16 };

struct resolv_conf {
    struct ip server[RESOLV_SERVERS]; /* each once */
    unsigned nservers;
    struct str search[RESOLV_SEARCH]; /* without a final dot, in the arena */
    unsigned nsearch;
    unsigned ndots;     /* 0..15, default 1 */
    unsigned timeout_s; /* 1..30, default 5 */
    unsigned attempts;  /* 1..5, default 2 */
};

void resolv_conf_parse(struct str text, struct arena *a, struct resolv_conf *ret);

enum candidate { CANDIDATE_END, CANDIDATE_SKIP, CANDIDATE_OK };
/* The i-th name (from 0) to be asked for host: with search domains before or after the host itself,
 * as ndots says; with a final dot only the host.  SKIP: it makes no DNS name, try the next. */
enum candidate resolv_candidate(const struct resolv_conf *c, struct str host, unsigned i,
                                struct dns_name *ret);

struct hosts;

struct hosts *hosts_parse(struct str text);
void hosts_free(struct hosts *h);
/* The addresses of a name in lower case: IPv4 first, then IPv6, each in the order of the file.
 * Returns their number. */
unsigned hosts_find(const struct hosts *h, struct str name, struct ip ret[HOSTS_ADDRESSES]);

#endif
