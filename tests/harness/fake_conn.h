/* fake_conn.h — conn.h without sockets: a test is the kernel and the peer.
 *
 * The laws are those of conn.c: no event inside an operation; bytes that were not taken are offered
 * again with the next ones or after conn_read(true); eof only after the last byte was taken; output
 * is pulled just before the loop would sleep, one write in flight at most; closed() last and once.
 * Time stands still unless fake_time() moves it: programs that link this file are linked with
 * --wrap=uv_now. */
#ifndef HARNESS_FAKE_CONN_H
#define HARNESS_FAKE_CONN_H

#include <stdbool.h>
#include <stddef.h>

#include "net/conn.h"
#include "net/worker.h"

/* A connection that is up.  accepted: it came in by a listener. */
struct conn *fake_new(struct worker *w, bool accepted);
/* Only after its closed(); the codec must have let go of it. */
void fake_free(struct conn *c);

/* What the peer sends.  Goes up at once, as far as the codec reads. */
void fake_feed(struct conn *c, const void *p, size_t n);
/* The peer's FIN, behind what it has sent so far; a reset, which overtakes everything. */
void fake_feed_eof(struct conn *c);
void fake_feed_error(struct conn *c);

/* How many further bytes the kernel takes; SIZE_MAX, as at first: any number. */
void fake_room(struct conn *c, size_t n);

/* Turns of the loop until nothing moves any more. */
void fake_settle(struct worker *w);
/* ms pass, then as fake_settle(). */
void fake_time(struct worker *w, uint64_t ms);

/* What the kernel took so far. */
struct str fake_written(const struct conn *c);
/* Bytes sent by the peer that the kernel still holds, since nobody reads. */
size_t fake_unread(const struct conn *c);

enum fake_end {
    FAKE_UP,
    FAKE_FIN,    /* we sent FIN, after all output; reading goes on */
    FAKE_CLOSED, /* conn_close(): what the kernel took arrives, then FIN */
    FAKE_RESET   /* conn_reset() */
};
enum fake_end fake_end(const struct conn *c);
/* Bytes that were lost because the connection was closed before the kernel took them. */
size_t fake_lost(const struct conn *c);

/* It came in over the connection limit. */
void fake_surplus(struct conn *c);
/* TLS is up, with this protocol ("h2", "http/1.1", or NULL: none) and, where it came in, this name
 * (or NULL); bytes stay plain.  The texts must outlive c. */
void fake_tls(struct conn *c, const char *alpn, const char *sni);
/* TLS has failed, with this text (static): the next error is its end. */
void fake_fault(struct conn *c, const char *text);
/* Has conn_secure() been called?  TLS is then up, and ready() told, in the next turn, with what
 * fake_tls() has said before or nothing. */
bool fake_secured(const struct conn *c);

/* Told of each change of fake_end(), in order with the events. */
void fake_watch(struct conn *c, void (*on_end)(void *user, enum fake_end end, enum why why),
                void *user);

#endif
