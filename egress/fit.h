/* fit.h — the settings' limits, as far as the descriptors of this process go. */
#ifndef EGRESS_FIT_H
#define EGRESS_FIT_H

#include "egress/settings.h"

/* Lowers the limits of connections and questions so that all of them together leave room, whoever
 * opens as many as there may be (B6).  descriptors: that there may be in all. */
void fit_descriptors(struct egress_settings *set, uint64_t descriptors);
/* The most that this process may have. */
uint64_t fit_limit(void);

#endif
