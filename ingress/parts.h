/* parts.h — what runs on the main worker: resolvers, wakes, Redis. */
#ifndef INGRESS_PARTS_H
#define INGRESS_PARTS_H

#include "ingress/gateway.h"

/* The resolver of plain routes; NULL: there are none (fast-sandbox). */
const struct resolver *parts_resolver(const struct ingress_settings *s);
/* False: one line.  Opens the listeners (app_ready()) once all of them are
 * ready. */
bool parts_start(struct gateway *g, const struct ingress_settings *s, struct arena *a,
                 struct str *ret_error);
void parts_reload(struct gateway *g);
/* A drain begins: what is queued for Redis leaves before its end. */
void parts_flush(struct gateway *g);
void parts_stop(struct gateway *g);
void parts_metrics(struct gateway *g, struct metrics_out *o);
/* What is missing while it is not ready: one line with its end, or "". */
struct str parts_unready(struct gateway *g, struct arena *a);
/* How old what it goes by may be: a line with its end, or "". */
struct str parts_age(struct gateway *g, struct arena *a);

#endif
