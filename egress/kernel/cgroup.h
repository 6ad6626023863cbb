/* cgroup.h — the cgroup of this process, where it proves that a socket is ours (E10). */
#ifndef KERNEL_CGROUP_H
#define KERNEL_CGROUP_H

#include "base/mem.h"

struct cgroup {
    struct str path; /* below /sys/fs/cgroup; in the arena */
    unsigned level;  /* depth in its own hierarchy, from 1 */
};

/* False: there is none that only this process and its parent are in, or rules could not name it: it
 * would prove nothing. */
bool cgroup_own(struct arena *a, struct cgroup *ret);

/* The path in a line "0::/path" of a process's cgroup file; empty: there is none, or it is the
 * root. Pure. */
struct str cgroup_line(struct str file);

#endif
