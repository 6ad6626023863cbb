/* resolve.h — names of our own connections → addresses: literal, hosts file, cache, DNS.
 *
 * One per worker.  Questions for one name are asked once, with a list of waiters; each can unlink
 * itself.  Stale answers serve while a name server is away (DESIGN 11). */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H

#include "base/ip.h"
#include "base/why.h"

struct worker;
struct names;
struct resolve;

enum { RESOLVE_ADDRESSES = 16 }; /* per name; IPv4 first, each family in the order of the answer */

struct names_files {
    const char *resolv_conf,
        *hosts;        /* NULL: /etc/resolv.conf, /etc/hosts; re-read when they change */
    uint16_t dns_port; /* of the name servers; 0: 53 */
};

/* files may be NULL: all defaults. */
struct names *names_new(struct worker *w, const struct names_files *files);
/* Before worker_free(), not within done().  Who still waits hears nothing any more. */
void names_free(struct names *n);
/* done(user, ips, n, WHY_OK) or (user, NULL, 0, why), once, never before this returns: DNS (no such
 * name, no address, or no server that says so), DEADLINE, OVERLOAD (too many names asked for at
 * once).  A literal address, IPv6 with or without brackets, is its own answer.  ips is lent. */
struct resolve *resolve_start(struct names *n, struct str host, uint64_t timeout_ms,
                              void (*done)(void *user, const struct ip *ips, unsigned count,
                                           enum why why),
                              void *user);
/* done() will not be called. */
void resolve_cancel(struct resolve *r);

#endif
