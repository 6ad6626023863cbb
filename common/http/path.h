/* path.h — the target in origin form: segments, percent-decoding, dot segments.  Pure; never
 * rewrites by itself. */
#ifndef HTTP_PATH_H
#define HTTP_PATH_H

#include <stdbool.h>

#include "base/mem.h"

/* Splits a target at the first '?': *ret_query begins with it, or is empty. */
struct str path_without_query(struct str target, struct str *ret_query);
/* Takes one segment off the front of *rest, which begins with '/': "/a/b" gives "a" and leaves
 * "/b".  False when *rest is empty. */
bool path_segment(struct str *rest, struct str *ret_segment);
/* Would the dot segments of `rest` (from '/', no query) climb above its start?  Judged twice, split
 * at '/' and split at '/' and
 * "%2F"; "%2e" counts as a dot (contract ingress 3.7). */
bool path_climbs(struct str rest);

#endif
