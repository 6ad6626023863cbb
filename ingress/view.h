/* view.h — what the gateway's decisions read: compiled from the settings, immutable, part of the
 * snapshot. */
#ifndef INGRESS_VIEW_H
#define INGRESS_VIEW_H

#include "conf/snapshot.h"
#include "ingress/certs.h"
#include "ingress/forward.h"
#include "ingress/route.h"
#include "ingress/settings.h"
#include "ingress/target.h"

struct ingress_view {
    const struct ingress_settings *set;
    struct route_rules route;
    struct forward_rules forward;
    struct target_rules target;
    struct port_set deny_ports;
    struct keyring *keys; /* NULL: no verifier */
    bool keys_twice;      /* an id was given twice: warn_ids says which */
    char warn_ids[40];
    struct certs *certs;         /* of the TLS listener; NULL: there is none */
    struct tls_tickets *tickets; /* likewise; made at random ones pass from view to view */
    struct tls_ctx *tls;
    struct tls_ctx *origin_tls; /* towards https endpoints (FastPath); NULL: there are none */
    struct arena mem;
};

/* Reads key file, certificates and ticket keys again, compiles the rest.  See struct maker. */
extern const struct maker ingress_view_maker;

#endif
