/* gateway.h — what the gateway keeps for the process and for each worker; the
 * gate reads it. */
#ifndef INGRESS_GATEWAY_H
#define INGRESS_GATEWAY_H

#include "base/metrics.h"
#include "ingress/kube/objects.h"
#include "ingress/limits.h"
#include "ingress/readiness.h"
#include "ingress/redis/activity.h"
#include "ingress/redis/renew.h"
#include "ingress/resolver.h"
#include "ingress/table.h"
#include "ingress/wake.h"
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
    struct limits *limits;
    struct renew *renew;       /* NULL: off */
    struct activity *activity; /* NULL: off */
    struct wake *wake;         /* NULL: off */
    const struct resolver *resolver,
        *fast;                   /* of plain routes, of f1. routes; NULL: there are none */
    void *resolving, *fasting;   /* NULL: it has not started */
    bool asks;                   /* one of them does */
    unsigned unready;            /* of the two, those that are not ready yet */
    bool agent_names;            /* an id has several names (7.3) */
    struct certwatch *certwatch; /* NULL: no TLS listener */
    struct table **tables;
    struct names *names;    /* of the main worker */
    struct routes_api *api; /* NULL: off */
};

/* A worker's, in SLOT_PRODUCT. */
struct gateway_worker {
    struct gateway *all;
    struct table *table;
    struct gateway_metrics metrics;
};

extern const struct gate ingress_gate;
const char *routing_text(enum routing r);

#endif
