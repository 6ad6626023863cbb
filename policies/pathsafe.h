/* pathsafe.h — does a path mean one thing, whoever decodes it and however often (contract
 * egress-vault 10)?  Pure; bytes, not characters. */
#ifndef POLICIES_PATHSAFE_H
#define POLICIES_PATHSAFE_H

#include "base/mem.h"

enum { PATH_DECODINGS_MAX = 10 };

/* Walks the views of a path: itself, then each further decoding until nothing changes. */
struct path_views {
    struct str view; /* valid until the next one */
    unsigned decodings;
    bool begun, endless; /* endless: no fixpoint within PATH_DECODINGS_MAX */
    char *buffer;        /* of the caller's arena */
};
/* path: raw, up to the first `?`; lent.  The arena holds at most one copy of it. */
void path_views_init(struct path_views *v, struct str path, struct arena *a);
/* The next view, the first time the path itself; false: there is no further one (or endless). */
bool path_views_next(struct path_views *v);

/* May this view be what a path means?  No whole `..` segment, no backslash, no %5c; strict: no %2f
 * either. */
bool path_view_is_safe(struct str view, bool strict);

/* No view has a whole `..` segment, a backslash or %5c; strict: nor a %2f.  A path that cannot be
 * decoded to its end is not safe. */
bool path_is_safe(struct str path, bool strict, struct arena *a);

#endif
