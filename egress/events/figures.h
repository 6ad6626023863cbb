/* figures.h — memory and CPU of the node and of our own cgroup (contract egress-policy 6.3), as
 * /proc and the cgroup's files tell them.  Reads files: not for a loop that serves. */
#ifndef EVENTS_FIGURES_H
#define EVENTS_FIGURES_H

#include <stdbool.h>

#include "base/mem.h"

/* Ticks since the machine started, of all its CPUs. */
struct cpu_ticks {
    uint64_t total, idle;
};

/* What could be read; the rest is not to be shown. */
struct figures {
    bool has_node_memory, has_node_cpu, has_memory, has_cpu;
    uint64_t node_memory; /* bytes */
    double node_cpu;      /* busy share since the last reading, 0 to 1 */
    uint64_t memory;      /* bytes, our cgroup's */
    double cpu_s;         /* its CPU time */
};

/* `root`: "", or a folder that stands for the root of the file system.  *last is the reading before
 * (zeroed: there was none), and becomes this one. */
void figures_read(const char *root, struct cpu_ticks *last, struct figures *ret);

#endif
