/* metrics.h — the sidecar's part of /metrics: O's names (contract egress-policy 6.3), and ours
 * beside them. */
#ifndef EVENTS_METRICS_H
#define EVENTS_METRICS_H

#include "base/metrics.h"
#include "egress/sidecar.h"

/* On the sidecar's worker: what is no counter, and what the kernel's part counts, is shown as it is
 * now.  Cheap. */
void egress_measure(const struct sidecar *s);
/* Appends them; on the thread of the admin pages: some are read from files. */
void egress_metrics(const struct sidecar *s, struct metrics_out *o);

#endif
