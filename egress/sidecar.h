/* sidecar.h — what the parts of the sidecar share: SLOT_PRODUCT of its worker, and the tables of
 * its gate.  All of it lives on that one worker. */
#ifndef EGRESS_SIDECAR_H
#define EGRESS_SIDECAR_H

#include "egress/settings.h"
#include "net/worker.h"

struct dial_parent;
struct intercept;
struct passlist;
struct tls_ctx;

enum { SIDECAR_PORTS = 8 };

struct sidecar {
    const struct egress_settings *set;
    struct worker *w;
    struct leases *leases;
    struct dns_service *dns;
    struct decisions *decisions;
    struct events *events;
    struct changes *changes;
    struct enforce *enforce; /* NULL in mode proxy */
    struct relay *relay;     /* NULL: there are neither redirects nor an explicit proxy */
    struct api *api;
    uint16_t ports[SIDECAR_PORTS]; /* that we listen on: never dialled at an address of ours */
    unsigned nports;
    const struct dial_parent *parent; /* everything leaves through it; NULL: there is none */
    struct intercept *intercept;      /* NULL: no TLS can be read, and what should be is refused */
    const struct passlist *passlist;  /* hosts that are never read; NULL: none */
    struct tls_ctx *origin_tls;       /* towards origins whose TLS is read; NULL: none is */
};

static inline struct sidecar *sidecar_of(const struct worker *w)
{
    return worker_get(w, SLOT_PRODUCT);
}

#endif
