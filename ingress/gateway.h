/* gateway.h — what the gateway keeps for the process and for each worker; the gate reads it. */
#ifndef INGRESS_GATEWAY_H
#define INGRESS_GATEWAY_H

#include "base/metrics.h"
#include "ingress/readiness.h"
#include "ingress/static.h"
#include "ingress/table.h"
#include "policies/limits.h"
#include "proxy/gate.h"

enum routing { ROUTING_SUCCESS, ROUTING_NOT_FOUND, ROUTING_NOT_READY, ROUTING_ERROR, ROUTINGS };

struct gateway_metrics {
    struct counter routing[ROUTINGS];
    struct histogram routing_took[ROUTINGS];
    struct counter connect[DIAL_CLASSES][2]; /* http, websocket */
    struct histogram connect_took[DIAL_CLASSES][2];
    struct counter signature_failures;
};

/* The process's: counted once, whatever --workers says (I15). */
struct gateway {
    struct app *app;
    struct failures *by_sandbox, *by_client;
    struct readiness *readiness;
    struct static_routes *routes;
    struct certwatch *certwatch; /* NULL: no TLS listener */
    struct table **tables;
};

/* A worker's, in SLOT_PRODUCT. */
struct gateway_worker {
    struct gateway *all;
    struct table *table;
    struct gateway_metrics metrics;
};

/* The gate's own part of a verdict. */
struct gateway_note;

extern const struct gate ingress_gate;
const char *routing_text(enum routing r);

#endif
