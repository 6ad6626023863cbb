/* boot_parent.h — the upstream proxy that everything leaves through (E_UPSTREAM_PROXY, contracts
 * egress-policy 10.3, egress-vault 15), from the settings. */
#ifndef EGRESS_BOOT_PARENT_H
#define EGRESS_BOOT_PARENT_H

#include "egress/boot_impl.h"

struct boot_parent;

/* NULL and an empty *ret_error: there is none.  NULL: one line.  `b` has its names and, where there
 * is a kernel's part, that.  never_pem: as in net/tls.h. */
struct boot_parent *boot_parent_new(struct boot *b, struct str never_pem, struct str *ret_error);
/* From now on it must prove itself by this one (as dial_parent.tls, which is not NULL); the old one
 * is the caller's, and may still be used by what is being dialled. */
struct tls_ctx *boot_parent_renew(struct boot_parent *p, struct tls_ctx *tls);
/* For struct dial_to; lives as long as p. */
const struct dial_parent *boot_parent_dial(const struct boot_parent *p);
void boot_parent_free(struct boot_parent *p);

#endif
