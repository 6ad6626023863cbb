/* labels.h — E_SANDBOX_ID and E_METRICS_EXTRA_ATTRS as the labels of every metric (contract
 * egress-policy 1.2, 6.3).  Pure. */
#ifndef EVENTS_LABELS_H
#define EVENTS_LABELS_H

#include "egress/settings.h"

/* What stands between the braces of every sample, terminated, "" if there is nothing; lies in `a`.
 * Keys become label names: other bytes than letters, digits and _ are _, and a key that a family
 * of ours or Prometheus uses gets "attr_" in front; of equal ones the first stays.  Masked as in
 * the log. */
struct str labels_make(const struct egress_settings *set, struct arena *a);

#endif
