/* rulefile.h — the operator's files deny.always, allow.always and log_skip.always (contract
 * egress-policy 3.6): one target per line.  Pure: the caller reads and watches them. */
#ifndef POLICIES_RULEFILE_H
#define POLICIES_RULEFILE_H

#include "policies/rules.h"

enum rulefile { RULEFILE_DENY, RULEFILE_ALLOW, RULEFILE_LOG_SKIP };

enum { RULEFILE_LINE_BYTES = 65536, RULEFILE_ERROR_BYTES = 320 };

/* Reads a file's text; a missing file is "".  On success *ret is the list, one reference, the
 * caller's.  False: `error` says what is wrong, as "PATH line N: …". */
must_check bool rulefile_parse(enum rulefile file, const char *path, struct str text,
                               const struct rules **ret, char error[RULEFILE_ERROR_BYTES]);
/* The names of a list as an index whose places are those in the list; the caller frees it. */
struct patterns;
struct patterns *rulefile_patterns(const struct rules *r);

#endif
