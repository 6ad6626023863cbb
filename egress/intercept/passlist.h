/* passlist.h — hosts that are never intercepted: ignore_hosts of config.yaml, regular expressions
 * that are searched (contract egress-vault 15, 18.3).  The door of PCRE2.  Immutable. */
#ifndef INTERCEPT_PASSLIST_H
#define INTERCEPT_PASSLIST_H

#include "base/ip.h"

struct passlist;
/* One that does not compile is left out; warn(user, pattern, why) is told. */
struct passlist *passlist_new(const struct str *patterns, unsigned n,
                              void (*warn)(void *user, struct str pattern, struct str why),
                              void *user);
void passlist_free(struct passlist *p); /* NULL is fine */
bool passlist_is_empty(const struct passlist *p);
/* Is one found in the SNI (as sent), in SNI:port, or in address:port?  sni p NULL: none. */
bool passlist_passes(const struct passlist *p, struct str sni, const struct ip *to, uint16_t port);
/* Is one found in a binding's host; of a wildcard in *.suffix or probe.suffix (contract 7)? */
bool passlist_covers(const struct passlist *p, struct str host);

/* config.yaml (contract 18.3): what we read of it. */
struct mitm_config {
    struct str *ignore_hosts;
    unsigned nignore_hosts;
    int64_t stream_large_bodies; /* bytes; -1: not stated */
    struct str *others;          /* keys that differ from what is shipped: one warning each */
    unsigned nothers;
};
/* All in the arena.  A value that cannot be read: false, one line. */
bool mitm_config_read(struct str text, struct arena *a, struct mitm_config *ret,
                      struct str *ret_error);

#endif
