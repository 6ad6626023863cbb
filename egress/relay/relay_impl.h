/* relay_impl.h — the inside of the relay, for relay.c (listeners, numbers, the end) and
 * transparent.c (connections that are looked at). */
#ifndef RELAY_RELAY_IMPL_H
#define RELAY_RELAY_IMPL_H

#include "egress/caller.h"
#include "egress/relay/relay.h"
#include "net/listen.h"

struct relay {
    struct relay_setup s;
    struct tally *redirected, *asked;
    struct tally *strangers; /* who may not ask the proxy, and is told so */
    struct listener *listeners[RELAY_LISTENERS];
    unsigned nlisteners;
    struct list looking; /* struct look */
    struct timer ebb;
    struct relay_counters counters;
};

/* A listener's accept; user is the relay. */
void transparent_accept(void *relay, struct conn *conn);
/* All that could not be told yet are closed. */
void transparent_close(struct relay *r);
/* Ends an accepted connection that nobody has attached to yet. */
void relay_discard(struct conn *conn, enum why why);

#endif
