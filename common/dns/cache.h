/* cache.h — answers by name and kind.  Time is an argument.
 *
 * The kind is the type, and in the upper half whatever else makes an answer another one.  What an
 * answer is, the user knows: the cache keeps its bytes.  An answer is fresh until its TTL is over,
 * then stale for a while: still there, to be used only if the servers fail (RFC 8767). When it is
 * full the answer goes that was not asked for longest. */
#ifndef DNS_CACHE_H
#define DNS_CACHE_H

#include "dns/message.h"

struct dns_cache;

/* At most max_entries answers; each stays for stale_ms after its end. */
struct dns_cache *dns_cache_new(unsigned max_entries, uint64_t stale_ms);
void dns_cache_free(struct dns_cache *c);
/* Keeps a copy of value, fresh for ttl_ms from now; replaces what was there. */
void dns_cache_put(struct dns_cache *c, const struct dns_name *name, uint32_t kind,
                   struct str value, uint64_t ttl_ms, uint64_t now_ms);
/* The answer, valid until the cache is changed; name in any case.  False: none. */
bool dns_cache_get(struct dns_cache *c, const struct dns_name *name, uint32_t kind, uint64_t now_ms,
                   struct str *ret_value, bool *ret_fresh);
/* A stale answer counts as fresh for ms more, but is not kept any longer for it: the servers are
 * away, and asking for each use would not bring them back. */
void dns_cache_extend(struct dns_cache *c, const struct dns_name *name, uint32_t kind, uint64_t ms,
                      uint64_t now_ms);
void dns_cache_clear(struct dns_cache *c);
size_t dns_cache_size(const struct dns_cache *c);

#endif
