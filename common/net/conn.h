/* conn.h — one TCP connection.  Push in, pull out: bytes() brings what the kernel gave, fill() asks
 * for output when the kernel can take more.
 *
 * A conn belongs to itself; its user (the dialler, then a codec) is a pointer with events.  No
 * function below calls an event before it returns.  It is freed in libuv's close callback, after
 * closed().  At most one write is in flight; output is made just before the loop sleeps (DESIGN 7).
 */
#ifndef NET_CONN_H
#define NET_CONN_H

#include "base/buf.h"
#include "base/why.h"
#include "net/addr.h"

struct conn;
struct worker;
struct tls_ctx;
struct tls_to;
struct tls_as;

/* NULL: nothing to do; bytes then stay untaken. */
struct conn_events {
    void (*ready)(void *user); /* connected, or TLS is up; not called for accepted plain ones, which
                                  are born ready */
    void (*bytes)(void *user, struct buf *in); /* take what you can; the rest comes again with more,
                                                  or after conn_read() */
    void (*eof)(void *user); /* the peer's half is over, after its last byte was offered; we may
                                still write */
    void (*fill)(void *user, struct buf *out,
                 size_t max); /* append up to about max bytes; none: nothing to say */
    void (*closed)(void *user, enum why why); /* last event, exactly once; the pointer is dead */
};

struct conn_info {
    const struct sockaddr *peer;
    /* Of TLS, whole after ready(); empty without. */
    struct str alpn;     /* the protocol both sides chose: "h2", "http/1.1", or none */
    struct str sni;      /* server role: the name the client asked for, in lower case */
    struct str verified; /* client role: the name the peer's certificate has proved */
    struct str fault;    /* why TLS failed, e.g. "certificate has expired"; static text, for
                            closed(); empty: nothing is known.  With ORIGIN_GONE: what is likely */
    uint16_t listener;   /* port of the listener it came in by, 0 for outgoing ones */
    bool tls;
    bool surplus;                  /* accepted over the connection limit: only to be refused (B7) */
    const struct sockaddr *target; /* where it was on its way to before it was redirected to us;
                                      NULL: here */
    const void *note;              /* what the product knows of it (conn_set_note()), or NULL */
};

const struct conn_info *conn_info(const struct conn *c);
/* Hand to the next owner; bytes not taken yet are offered to it in the next turn. */
void conn_attach(struct conn *c, const struct conn_events *ev, void *user);
/* on: offers again what lies untaken, later in this turn.  off: reading stops; rare, costs system
 * calls. */
void conn_read(struct conn *c, bool on);
/* Starts TLS on an attached connection: ctx is counted, bytes read and not taken are cipher text,
 * and ready() tells when both sides are done; closed(TLS) if that fails.  `to` (copied): client
 * role, to that name; NULL: server role.  From then on bytes() and fill() are plain text, eof()
 * means close_notify, and a FIN without one is a connection that was lost: what is not whole never
 * looks whole (RFC 8446 section 6.1).  The deadline of the handshake is the user's.
 * Once it is up it may be called a second time: TLS inside TLS, and conn_info tells of the inner
 * one alone. */
void conn_secure(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to);
/* Server role as exactly this one, whatever the names of ctx say; both are counted. */
void conn_secure_as(struct conn *c, struct tls_ctx *ctx, const struct tls_as *as);
/* The peer is another than the socket says (PROXY protocol). */
void conn_set_peer(struct conn *c, const struct sockaddr *peer);
/* An accepted connection that was redirected to us was on its way to this address (copied). */
void conn_set_target(struct conn *c, const struct sockaddr *target);
/* The product's own, for its gate; drop(note) when the connection is freed, or another is set. */
void conn_set_note(struct conn *c, void *note, void (*drop)(void *note));
/* The destination of an accepted connection before the kernel redirected it (SO_ORIGINAL_DST; K7:
 * of one that was not redirected it is our own address).  A negative errno: the kernel does not
 * know. */
must_check int conn_original(const struct conn *c, union addr *ret);
/* Puts bytes that were taken back in front of what lies untaken; moves all of b. */
void conn_untake(struct conn *c, struct buf *b);
/* Large reads: bulk goes in 64 KiB chunks, 124 where there is TLS. */
void conn_bulk(struct conn *c, bool on);
/* I have output: fill() is called before the loop sleeps. */
void conn_wake(struct conn *c);
/* close_notify where there is TLS, and FIN, once everything fill() has to say has left.  Reading
 * goes on; call conn_close() to be rid of it. */
void conn_finish(struct conn *c);
/* Now: what is queued is lost, no event but closed(why) comes any more. */
void conn_close(struct conn *c, enum why why);
/* As conn_close(), by a reset that the peer sees as an error whatever it has read so far. */
void conn_reset(struct conn *c, enum why why);
/* Bytes handed over by fill() that the kernel has not taken yet. */
size_t conn_unsent(const struct conn *c);
/* Bytes read that nobody took. */
size_t conn_untaken(const struct conn *c);

#endif
