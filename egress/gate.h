/* gate.h — what the proxy of the sidecar asks: relayed connections, requests on them, and what is
 * asked of the explicit proxy (contracts egress-vault 8, egress-policy 4.7).
 *
 * Each connection to it carries a struct caller as its note.  facts.tables is the struct sidecar,
 * the snapshot's view a struct egress_view. */
#ifndef EGRESS_GATE_H
#define EGRESS_GATE_H

#include "proxy/gate.h"

/* proxy_rules.look_ms of it: a client that has kept silent for so long may be waiting for its
 * server to speak. */
enum { GATE_SILENCE_MS = 2000 };

extern const struct gate egress_gate;

#endif
