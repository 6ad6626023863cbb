/* pages.h — what operators see of single sandboxes (contract ingress 1.3, 14.3; I8): the busiest in
 * /metrics, all that are counted at /debug/sandboxes. */
#ifndef INGRESS_PAGES_H
#define INGRESS_PAGES_H

#include "base/metrics.h"
#include "ingress/limits.h"

enum { PAGES_TOP_SANDBOXES = 10 };

/* {"sandboxes":[{"id":…,"requests":…,…},…],"uncounted":n}, most requests first. */
struct str pages_sandboxes(struct limits *l, uint64_t now_ms, struct arena *a);
/* Families with the label sandbox (and namespace, where there is one) for the PAGES_TOP_SANDBOXES
 * with the most requests, and how many requests were not counted.  Which sandboxes stand there
 * changes: a series may end, and come back where it was. */
void pages_sandbox_metrics(struct limits *l, struct metrics_out *o);

#endif
