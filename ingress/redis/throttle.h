/* throttle.h — one per interval and sandbox, whichever worker asks (I15).  Its memory is fixed:
 * with more sandboxes than it has marks the oldest marks are forgotten, and those sandboxes count
 * once more.  From any thread. */
#ifndef INGRESS_REDIS_THROTTLE_H
#define INGRESS_REDIS_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

struct throttle;

/* Marks for at least max (namespace, id), 16 bytes each.  interval_ms 0: NULL, which throttles
 * nothing. */
struct throttle *throttle_new(uint64_t interval_ms, unsigned max);
void throttle_free(struct throttle *t);
/* Does this one count?  Then the sandbox is marked with now_ms, of a monotonic clock. */
bool throttle_take(struct throttle *t, struct str ns, struct str id, uint64_t now_ms);
/* What was taken at now_ms came to nothing: the mark goes, unless there is a newer one. */
void throttle_give_back(struct throttle *t, struct str ns, struct str id, uint64_t now_ms);

#endif
