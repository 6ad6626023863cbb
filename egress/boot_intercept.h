/* boot_intercept.h — what reading TLS needs at start (contract egress-vault 15, 16, 19.1): the
 * hosts that are never read, the authority and its export, both sides' TLS. */
#ifndef EGRESS_BOOT_INTERCEPT_H
#define EGRESS_BOOT_INTERCEPT_H

#include "egress/boot_impl.h"

struct boot_intercept;

/* Before anything else: the export of a predecessor must not be taken for ours; config.yaml stands
 * between variables and defaults.  NULL: one line. */
struct boot_intercept *boot_intercept_prepare(struct egress_settings *set, struct arena *a,
                                              struct str *ret_error);
/* The authority is there and exported, the sidecar's passlist, origin_tls and intercept are set;
 * the worker has its proxy, and nothing is redirected yet.  False: one line.  Without redirects it
 * is no error where it cannot be had: then a line says so, and what should be read is refused. */
bool boot_intercept_start(struct boot_intercept *p, struct boot *b,
                          struct str *ret_error) must_check;
/* PEM of the authorities that were ours since the start; empty: none was.  Lent until the next
 * reload. */
struct str boot_intercept_never(const struct boot_intercept *p);
/* config.yaml is read again, for its ignore_hosts, and the authority: another one is exported and
 * signs from then on, one that cannot be changes nothing (contract egress-vault 16).  On the
 * worker. */
void boot_intercept_reload(struct boot_intercept *p);
/* What shakes hands is closed; the sidecar's proxy is still there. */
void boot_intercept_stop(struct boot_intercept *p);
/* Nothing is open any more; p NULL is fine. */
void boot_intercept_free(struct boot_intercept *p);

#endif
