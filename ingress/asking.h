/* asking.h — between workers and the resolvers that have to be asked, which
 * live on the main worker. */
#ifndef INGRESS_ASKING_H
#define INGRESS_ASKING_H

#include "ingress/gateway.h"
#include "ingress/wake.h"

/* From any worker; texts are copied.  fast: of the FastPath resolver. */
void asking_want(struct gateway *g, bool fast, const struct want *want);
void asking_drop(struct gateway *g, bool fast, struct str key, uint64_t generation);
/* On the main worker, to all workers: what waits for this key is decided anew.
 * end: of a wake, or NULL. */
void asking_tell(struct gateway *g, struct str key, const struct wake_end *end);

#endif
