/* stream.h — one exchange on one connection, in either role, over h1, h2 or raw bytes: the
 * interface in the middle.
 *
 * Words.  An *exchange* is one request and its response.  A *stream* is one side of it on one
 * connection.  The *user* of a stream is whoever filled in ev and user: the proxy, an API, a client
 * of our own, a test.  *Credit* says that received bytes are gone: it is the only flow control
 * there is, so for each direction received − credited is what is held, and never more than the
 * window and one read.
 *
 * Operations go from the user to the wire; none fails, none calls an event before it returns.  What
 * cannot be done any more is swallowed and credited, and the ending comes as closed().  Events come
 * from the wire.  What is passed is lent for the call, except that the slices of a buf move, and
 * heads and trailers may be kept as long as `mem`.
 *
 * A request or response is head, data*, end.  1xx responses are heads before the final one and end
 * nothing.  A head with end = true has no body.  After a 101 (or a 2xx to CONNECT) both directions
 * carry raw bytes through data() and end(), even if the request's end was said before: that is a
 * tunnel.  An upgrade is an ordinary method with `protocol` set, granted by a head of status 101
 * with that protocol, over HTTP/2 too: there the codecs write and read an extended CONNECT and its
 * 200 (RFC 8441), and websocket.h makes up and checks what one version has and the other has not.
 */
#ifndef HTTP_STREAM_H
#define HTTP_STREAM_H

#include "base/buf.h"
#include "base/why.h"
#include "http/head.h"
#include "http/rules.h"

struct http_stream;

enum http_left { HTTP_LEFT_NOTHING, HTTP_LEFT_PART, HTTP_LEFT_ALL };

struct http_ops {
    /* Kept until closed(): head and what it points to. */
    void (*head)(struct http_stream *s, const struct http_head *head, bool end);
    /* Moves all of it. */
    void (*data)(struct http_stream *s, struct buf *b);
    /* trailers may be NULL; only their fields count. */
    void (*end)(struct http_stream *s, const struct http_head *trailers);
    /* n received bytes are gone: open the window. */
    void (*credit)(struct http_stream *s, size_t n);
    /* Silence from now on, the pointer is dead.  A response under way is cut so that the peer sees
     * it is not whole, after what was queued has left; CLIENT_GONE and REVOKED do not wait for
     * that. */
    void (*cancel)(struct http_stream *s, enum why why);
    /* Bulk: lends the connection for one direction (in: what the peer sends) when it is plain,
     * nothing is queued or unread in that direction, and the next *ret_n bytes (-1: until EOF) are
     * body and nothing else; NULL: not now.  Until back() the stream keeps its hands off that
     * direction.  The operation itself is NULL where a codec never can (h2). */
    struct conn *(*lend)(struct http_stream *s, bool in, int64_t *ret_n);
    /* The loan is over; so many bytes went past the codec, which counts them as its own. */
    void (*back)(struct http_stream *s, bool in, int64_t moved);
    /* Client role: how much of the request has left for the kernel. */
    enum http_left (*left)(const struct http_stream *s);
};

struct http_events {
    /* 1xx may precede the final one. */
    void (*head)(void *user, struct http_head *head, bool end);
    /* Take the slices; you owe credit() for them. */
    void (*data)(void *user, struct buf *b);
    /* The message is complete; trailers or NULL. */
    void (*end)(void *user, struct http_head *trailers);
    /* n bytes given to data() have left for the kernel. */
    void (*sent)(void *user, size_t n);
    /* Server role: the request is broken, nothing more of it will come.  An answer can still be
     * given; the connection ends with it. */
    void (*fault)(void *user, const struct http_fault *fault);
    /* Last, exactly once, never after cancel().  REFUSED, client role: the origin has not begun
     * with the request (not a byte of it has left, or the origin said so: RFC 9113 section 8.7), so
     * that any request may be sent again. */
    void (*closed)(void *user, enum why why);
};

struct http_stream {
    const struct http_ops *ops;
    const struct http_events *ev;
    void *user;
    struct arena *mem; /* the exchange's; outlives both its streams */
    bool spoke;        /* client role: bytes of an answer have come, a head or not */
};

#endif
