/* webhook.h — one call of E_DENY_WEBHOOK for each denied query (contract egress-policy 6.1).
 *
 * Belongs to events.h.  What comes faster than the webhook takes it is dropped. */
#ifndef EVENTS_WEBHOOK_H
#define EVENTS_WEBHOOK_H

#include "egress/events/events.h"

struct webhook;

/* Counts in `counters`.  NULL: *ret_error is one line. */
struct webhook *webhook_new(const struct events_setup *setup, struct event_counters *counters,
                            struct arena *a, struct str *ret_error);
/* What waits is forgotten. */
void webhook_free(struct webhook *h);
/* A query for `host` was denied: lower case, no final dot; not the root. */
void webhook_tell(struct webhook *h, struct str host);
unsigned webhook_waiting(const struct webhook *h);
/* What is there is sent within ms; done(user) once, not before this returns. */
void webhook_drain(struct webhook *h, uint64_t ms, void (*done)(void *user), void *user);

#endif
