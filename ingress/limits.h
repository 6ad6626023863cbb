/* limits.h — what is counted per sandbox once for the process (contract ingress 1.3, 6.3, I15):
 * requests in progress, requests a second, and the sums that /metrics and /debug/sandboxes show.
 * From any thread.  Bounded: beyond max_keys sandboxes the one that was quiet longest makes room;
 * one with a request in progress never does, and when all have one, new sandboxes are not counted
 * and not limited (they are counted in `uncounted`). */
#ifndef INGRESS_LIMITS_H
#define INGRESS_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct limits;
struct limits_place; /* a request in progress */

struct limits_rules {
    size_t max_keys;      /* 0: 16,384 */
    unsigned max_running; /* 0: no limit */
    unsigned per_second;  /* 0: no limit; burst the same */
};

struct limits *limits_new(const struct limits_rules *rules);
void limits_free(struct limits *l); /* when nobody has a place any more */

enum limits_verdict { LIMITS_OK, LIMITS_BUSY, LIMITS_RATE };
/* OK: *ret_place is the request's, to be given back (NULL: it is not counted).  Else the request is
 * counted as refused and has no place. */
enum limits_verdict limits_enter(struct limits *l, struct str ns, struct str id, uint64_t now_ms,
                                 struct limits_place **ret_place);
/* status 0: none was sent; bytes of bodies and tunnels.  NULL is fine. */
void limits_leave(struct limits *l, struct limits_place *p, int status, uint64_t bytes_in,
                  uint64_t bytes_out);

struct limits_row {
    struct str ns, id; /* in the arena */
    uint64_t requests, running, refused, failed /* status 5xx or none */, bytes_in, bytes_out;
    uint64_t last_ms;
};
/* The n with the most requests, most first (n 0: all that are known). */
size_t limits_top(struct limits *l, size_t n, struct arena *a, const struct limits_row **ret);
uint64_t limits_uncounted(const struct limits *l);

#endif
