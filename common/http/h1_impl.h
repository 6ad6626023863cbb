/* h1_impl.h — the inside of an HTTP/1 session, for h1.c, h1_in.c and h1_out.c.
 *
 * Two state machines side by side: `in` follows the message that is read, `out` the one that is
 * written.  The exchange is over when both are done; what may happen to the connection then is one
 * question, h1_reusable(). */
#ifndef HTTP_H1_IMPL_H
#define HTTP_H1_IMPL_H

#include "base/wheel.h"
#include "http/chunked.h"
#include "http/h1head.h"
#include "http/session.h"
#include "http/window.h"
#include "net/worker.h"

enum h1_in {
    IN_IDLE,    /* nothing expected; server: a request may begin, client: a byte now is a fault */
    IN_HEAD,    /* a head is coming */
    IN_BODY,    /* by length, chunked or until EOF: in_body says */
    IN_TRAILER, /* chunked: trailer lines */
    IN_DONE,    /* the message is complete */
    IN_TUNNEL,  /* raw bytes */
    IN_ENDED,   /* tunnel: the peer has ended its direction */
    IN_DISCARD  /* nobody wants it any more: read and dropped until the linger deadline */
};

enum h1_out {
    OUT_IDLE,   /* no exchange */
    OUT_WAIT,   /* the user has not given the final head yet */
    OUT_BODY,   /* final head given, body may follow */
    OUT_LAST,   /* end() was said, bytes are still queued */
    OUT_DONE,   /* the message has left for the kernel */
    OUT_TUNNEL, /* raw bytes */
    OUT_CUT     /* what is queued leaves, then the connection breaks off */
};

enum h1_coding { CODING_NONE, CODING_LENGTH, CODING_CHUNKED, CODING_EOF, CODING_RAW };

struct h1 {
    struct session s;
    struct http_stream stream; /* the one */
    bool has_stream;           /* its user may be told things */
    bool closing;              /* conn_close() was called */
    bool draining;
    bool peer_eof;

    enum h1_in in;
    struct h1_scan scan;
    char *scratch; /* of a head or trailer that comes in pieces */
    size_t scratch_n, scratch_room;
    struct framing in_framing;
    struct chunked chunked;
    int64_t left;     /* of a body by length */
    uint64_t body_in; /* bytes of this message's body so far: bulk or not */
    size_t unread;    /* given to the user, not credited */
    struct window window;
    bool waits_tunnel; /* server: the request asked for an upgrade; what follows may be the tunnel's
                        */
    unsigned minor;    /* of the peer */

    enum h1_out out;
    const struct http_head *request;  /* client: what we asked; server: what was asked */
    const struct http_head *response; /* server: the final head, not serialized yet */
    bool response_end;
    const struct http_head *trailers;
    struct str key; /* client: of a handshake we made up, in the exchange's arena; empty: none */
    enum h1_coding out_coding;
    bool we_keep;
    struct buf heads; /* serialized, not filled yet */
    struct buf body;
    size_t flown; /* of the body, given to the conn at the last fill: not told yet */

    struct timer timer; /* keep-alive or linger, by state */

    void (*released)(void *arg, struct conn *conn); /* NULL: nobody wants the connection */
    void *released_arg;
};

/* h1.c */
/* The exchange may be over, or the connection: looks at both machines. */
void h1_settle(struct h1 *h);
/* The conn goes now.  What is there hears why from the conn, later: for operations. */
void h1_close_conn(struct h1 *h, enum why why);
/* As h1_close_conn(), and a stream that is there is told at once: for events. */
void h1_close(struct h1 *h, enum why why);
/* Client: not a byte of the request has left, so whatever happens now has nothing to do with it. */
bool h1_request_unsent(const struct h1 *h);
/* The user is told closed(why) and the stream is gone. */
void h1_stream_over(struct h1 *h, enum why why);
/* After the answer: what still comes is read and thrown away, then the connection ends. */
void h1_linger(struct h1 *h);
/* Everything has left: the connection goes to who has asked for it. */
void h1_give_away(struct h1 *h);

/* h1_in.c */
void h1_on_bytes(void *user, struct buf *in);
void h1_on_eof(void *user);
void h1_reset_in(struct h1 *h);
void h1_drop_scratch(struct h1 *h);

/* h1_out.c */
extern const struct http_ops h1_ops;
/* What was filled is told: it has left, or will not be waited for. */
void h1_tell_sent(struct h1 *h);
void h1_on_fill(void *user, struct buf *out, size_t max);
/* h1_bulk.c: see http_ops. */
struct conn *h1_lend(struct http_stream *s, bool in, int64_t *ret_n);
void h1_back(struct http_stream *s, bool in, int64_t moved);
/* OUT_CUT: the connection ends so that the peer sees the answer is not whole. */
void h1_break_off(struct h1 *h);

#endif
