/* limits.h — how often something happened by key, counted once for the whole process and bounded.
 *
 * Keys come from peers, so the table is capped: a full one forgets the key that has been quiet
 * longest within the key's neighbourhood, and never grows.  Safe to use from several threads; time
 * is an argument. */
#ifndef POLICIES_LIMITS_H
#define POLICIES_LIMITS_H

#include <stdint.h>

#include "base/mem.h"

struct failures;

/* max_keys is rounded up to a power of two. */
struct failures *failures_new(unsigned max_keys);
void failures_free(struct failures *f);
/* How many failures of `key` were counted in the 60 seconds up to now_s (whole seconds of a
 * monotonic clock). */
unsigned failures_recent(struct failures *f, struct str key, uint64_t now_s);
/* Counts one. */
void failures_add(struct failures *f, struct str key, uint64_t now_s);

#endif
