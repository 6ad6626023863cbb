/* fake_dial.h — dial.h and the listeners of listen.h without names and sockets: a test decides what
 * becomes of each dial.
 *
 * The laws are those of dial.c: done() once, never inside an operation, not after dial_cancel();
 * the address is judged by allow() before anything else; a dial that nobody answers ends with its
 * deadline.  For programs over fake_conn.h. */
#ifndef HARNESS_FAKE_DIAL_H
#define HARNESS_FAKE_DIAL_H

#include "harness/fake_conn.h"
#include "net/dial.h"
#include "net/listen.h"

/* Dials that wait, and the one that has waited longest, or NULL. */
unsigned fake_dials(const struct worker *w);
struct dial *fake_dial_first(const struct worker *w);
/* Where to. */
struct str fake_dial_host(const struct dial *d);
/* It is answered: with a connection, or NULL if allow() said no; where it asked for TLS that is up,
 * with this protocol (NULL: none). */
struct conn *fake_dial_up(struct dial *d);
struct conn *fake_dial_up_as(struct dial *d, const char *alpn);
/* Does it ask for TLS and offer this protocol? */
bool fake_dial_offers(const struct dial *d, const char *alpn);
/* What dial_fault() will say, static. */
void fake_dial_says(struct dial *d, const char *fault);
void fake_dial_fail(struct dial *d, enum why why, int error);

/* A listener with n connections in its queue; they are accepted when it stops. */
struct listener *fake_listener(struct worker *w, unsigned n,
                               void (*accept)(void *user, struct conn *c), void *user);
bool fake_listener_stopped(const struct listener *l);
/* A connection that was taken from the queue, or NULL; the caller frees it. */
struct conn *fake_listener_taken(struct listener *l);
void fake_listener_free(struct listener *l);

#endif
