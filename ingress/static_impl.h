/* static_impl.h — one step of the static resolver off its loop, for static.c: a reading of the
 * file, or a batch of changes to what is in force.  Made on the loop, run on a thread of the pool,
 * taken apart on the loop again. */
#ifndef INGRESS_STATIC_IMPL_H
#define INGRESS_STATIC_IMPL_H

#include "base/list.h"
#include "ingress/routes_disk.h"
#include "ingress/static.h"

enum load_result {
    LOAD_FAULT, /* nothing changes; `fault` says why, line 0: without a place */
    LOAD_SAME,  /* nothing changes, there was nothing to */
    LOAD_GOOD
};

struct load {
    const char *path;       /* lent; NULL: there is no file */
    struct routes_list old; /* lent: what is in force */
    int64_t old_expired_s, now_s;
    struct routes_mark mark; /* of the file that is in force; afterwards of what is then */
    bool ours;               /* we have written that file; afterwards likewise */
    bool force;              /* read it even so */
    struct list edits;       /* of struct static_edit; none: the file is read */

    enum load_result result;
    struct json_fault fault;
    struct routes_list fresh;
    const struct sandbox **put;
    struct str *gone; /* ids lie in records of the old list */
    size_t nput, ngone;
    struct sandbox **expiring; /* those of fresh that end some time, by time */
    size_t nexpiring;
    uint64_t took_us;
};

/* Everything that blocks. */
void load_run(struct load *l);
/* Reads and judges the file, nothing else. */
bool load_read(struct load *l);
/* Frees what nobody has taken over, but for the edits. */
void load_done(struct load *l);

#endif
