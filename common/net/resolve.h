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
/* Where names are asked for, instead of files and DNS servers. */
struct names_source {
    /* done(arg, …) as of resolve_start(), once, never before this returns; what is returned is for
     * cancel(), after which done() is not called. */
    void *(*start)(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg);
    void (*cancel)(void *user, void *asked);
    void *user;
};
/* Literal addresses are their own answers here too; nothing is cached.  Copied. */
struct names *names_through(struct worker *w, const struct names_source *source);
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
/* Is host a name that anybody may be asked for: letters, digits, hyphens, underscores and dots, of
 * a name's length, and not what others take for an address ("127.1", "0x7f.1")? */
bool resolve_can_ask(struct str host);
/* Such a name, or an address without brackets. */
bool resolve_is_host(struct str host);

#endif
