/* seeming.h — connections that seem to come from elsewhere, or by TLS: what conn_info() says of
 * them, in programs that are linked with --wrap=conn_info. */
#ifndef HARNESS_SEEMING_H
#define HARNESS_SEEMING_H

#include <stdbool.h>

#include "net/addr.h"

/* From now on, of every connection; NULL and false: as it is. */
void seem(const struct ip *peer, bool tls);

#endif
