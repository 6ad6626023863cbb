/* boot_tls.h — TLS of ours towards others, by the settings (contract egress-vault 15). */
#ifndef EGRESS_BOOT_TLS_H
#define EGRESS_BOOT_TLS_H

#include "egress/settings.h"
#include "net/tls.h"

/* Trusts E_MITMPROXY_UPSTREAM_TRUST_DIR or the system, and what E_MITMPROXY_UPSTREAM_EXTRA_CA adds.
 * never_pem and sessions as in net/tls.h.  NULL: one line, in `a`. */
struct tls_ctx *boot_tls_client(const struct egress_settings *set, struct str never_pem,
                                unsigned sessions, struct arena *a, struct str *ret_error);

#endif
