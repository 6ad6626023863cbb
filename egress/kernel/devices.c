/* devices.c — names of devices, in an order of their own: the kernel's changes when one goes and
 * comes back, and rules that are the same are to have the same text. */
#include "egress/kernel/devices.h"

#include <net/if.h>
#include <stdlib.h>

static int by_name(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

bool devices_read(struct arena *a, const struct str **ret, unsigned *ret_n)
{
    struct str *names = arena_get(a, DEVICES_MAX * sizeof *names);
    unsigned n = 0;
    bool fits = true;
    struct if_nameindex *all = if_nameindex();
    for (struct if_nameindex *i = all; i && i->if_index != 0; i++) {
        if (strcmp(i->if_name, "lo") == 0)
            continue;
        fits = n < DEVICES_MAX;
        if (!fits)
            break;
        names[n++] = arena_str(a, str_of(i->if_name));
    }
    if (!all)
        return false;
    if_freenameindex(all);
    qsort(names, n, sizeof *names, by_name);
    *ret = names;
    *ret_n = n;
    return fits;
}
