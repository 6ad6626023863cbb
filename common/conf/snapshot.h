/* snapshot.h — the configuration in force: immutable, counted, swapped as a whole.
 *
 * It has two parts: the settings, and the view that the product compiles from them (route rules,
 * key ring, target rules; the sidecar's policy and bindings).  A reload builds both beside the old
 * ones; a fault leaves the old snapshot in force. */
#ifndef CONF_SNAPSHOT_H
#define CONF_SNAPSHOT_H

#include "conf/core.h"

/* What upper layers compile from settings is made by functions they pass in. */
struct maker {
    /* NULL: *ret_error is one line, in the arena.  `old` is the view in force or NULL; what it
     * counts may be shared. */
    void *(*make)(const struct settings *set, const void *old, struct arena *a,
                  struct str *ret_error);
    void (*drop)(void *made);
};

struct snapshot {
    const struct settings *set;
    const void *view;
    uint64_t revision;
};

/* A first snapshot; `set` must outlive every snapshot made from it. */
struct snapshot *snapshot_build(const struct settings *set, const struct maker *maker,
                                struct arena *a, struct str *ret_error);
/* The same settings, the view made anew (files read again); the old one stays as it is.  NULL on a
 * fault. */
struct snapshot *snapshot_rebuild(const struct snapshot *old, struct arena *a,
                                  struct str *ret_error);
/* A snapshot with a view that was made elsewhere (a change over an API); maker->drop() takes it
 * back.
 */
struct snapshot *snapshot_carrying(const struct settings *set, const struct maker *maker,
                                   void *view, uint64_t revision);
/* Counts are atomic: one per worker, not per request. */
const struct snapshot *snapshot_ref(const struct snapshot *s);
void snapshot_unref(const struct snapshot *s);

#endif
