/* devices.h — the network devices of the namespace, but for lo. */
#ifndef KERNEL_DEVICES_H
#define KERNEL_DEVICES_H

#include "base/mem.h"
#include "base/why.h"

enum { DEVICES_MAX = 64 };

/* Their names, sorted, in `a`.  False: they cannot be listed, or there are over DEVICES_MAX: no
 * rule could then be said to hold for all. */
must_check bool devices_read(struct arena *a, const struct str **ret, unsigned *ret_n);

#endif
