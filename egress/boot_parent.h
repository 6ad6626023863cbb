/* boot_parent.h — the upstream proxy that everything leaves through (E_UPSTREAM_PROXY, contracts
 * egress-policy 10.3, egress-vault 15), from the settings. */
#ifndef EGRESS_BOOT_PARENT_H
#define EGRESS_BOOT_PARENT_H

#include "egress/boot_impl.h"

struct boot_parent;

/* NULL and an empty *ret_error: there is none.  NULL: one line.  `b` has its names and, where there
 * is a kernel's part, that. */
struct boot_parent *boot_parent_new(struct boot *b, struct str *ret_error);
/* For struct dial_to; lives as long as p. */
const struct dial_parent *boot_parent_dial(const struct boot_parent *p);
void boot_parent_free(struct boot_parent *p);

#endif
