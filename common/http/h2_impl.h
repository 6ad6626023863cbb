/* h2_impl.h — the inside of an HTTP/2 session, for h2.c, h2_in.c and h2_out.c.
 *
 * nghttp2 knows frames, windows and compression; this side knows streams and their users.  A stream
 * lives until both are done with it: nghttp2 (closed) and the user (gone).  Three rules keep the
 * two apart: nghttp2 is fed and drained only at the top, in on_bytes and on_fill; operations only
 * submit; and what is found out while frames are written is told afterwards (h2_later). */
#ifndef HTTP_H2_IMPL_H
#define HTTP_H2_IMPL_H

#include <nghttp2/nghttp2.h>

#include "base/list.h"
#include "base/wheel.h"
#include "http/h2_budget.h"
#include "http/h2head.h"
#include "http/session.h"
#include "http/window.h"
#include "net/worker.h"

enum h2_phase {
    H2_OPEN,
    H2_NOTICE,  /* draining: the peer has been told, requests may still be on their way */
    H2_LEAVING, /* the last stream is named; what runs is finished */
    H2_ENDING,  /* our GOAWAY is the last thing we have to say */
    H2_LINGER,  /* FIN is out: what still comes is thrown away */
    H2_CLOSED   /* the conn is closing, or gone */
};

enum h2_in {
    H2_IN_HEAD, /* no final head yet */
    H2_IN_BODY,
    H2_IN_HELD,   /* server: a tunnel was asked for, its bytes wait for the answer */
    H2_IN_TUNNEL, /* raw bytes */
    H2_IN_IGNORE, /* nobody wants it any more */
    H2_IN_ENDED
};

enum h2_out {
    H2_OUT_WAIT, /* no final head yet */
    H2_OUT_BODY,
    H2_OUT_LAST, /* end() was said, bytes may be queued */
    H2_OUT_DONE, /* END_STREAM has been written */
    H2_OUT_CUT   /* what is queued leaves, then the stream is reset */
};

struct h2 {
    struct session s;
    nghttp2_session *ng;
    enum h2_phase phase;
    enum why end_why;

    struct list streams; /* all */
    struct list later;   /* those with something to tell */
    struct list graves;  /* dead in this turn of ours */
    struct list free;
    unsigned nstreams, nfree;

    struct slice *feeding; /* the slice nghttp2 reads from; NULL: it is not reading */
    struct buf *filling;   /* where frames go; NULL: it is not writing */
    size_t fill_max;
    uint32_t fail_code; /* the session ends with it when nghttp2 has done reading; 0: no */
    bool broken;        /* nghttp2 has ended the session over an error of the peer */
    bool choked;        /* bytes were left, since too many answers to frames are queued */
    bool goaway_left;   /* our last GOAWAY has been written */
    bool peer_settings, peer_goaway, peer_eof;
    bool told_open, was_busy; /* client: what events->idle has said */
    bool bulk;

    struct h2_budget budget;
    int32_t last_id; /* server: of the streams the peer has begun */
    struct {
        int32_t from, to;
    } gaps[8]; /* ids it has skipped, the youngest ones */
    unsigned ngaps;

    struct field *fields; /* of the one header block that can be coming */
    unsigned nfields, room;
    unsigned continuations;
    size_t heads;             /* bytes in heads of all streams */
    uint64_t window, granted; /* of the connection; the sum of all streams' windows */

    struct timer timer; /* keep-alive, round trip of a notice, linger: by phase */
};

struct h2_stream {
    struct http_stream pub;
    struct h2 *h;
    struct list link;
    struct list later;
    int32_t id; /* 0: no head was given yet */
    enum h2_in in;
    enum h2_out out;
    bool gone;   /* the user has heard closed() or said cancel() */
    bool closed; /* nghttp2 has let go of it, or never had it */
    bool released;
    bool tunnel; /* asked for or granted; both directions end by themselves */
    bool ours;   /* its reset is no fault of the peer */
    bool begun;  /* client: the request has been written */
    bool peer_reset;
    bool follows;  /* data or trailers may follow the head: nghttp2 asks for them */
    bool bodyless; /* server: what is given as body is dropped */
    bool trailing; /* the header block that comes is of trailers */
    bool held_end; /* H2_IN_HELD: END_STREAM came */
    bool release;  /* what was held goes to the user now */
    uint32_t reset_code;
    enum why why;                   /* of its end; WHYS: not known yet */
    const struct http_fault *fault; /* found while its head came */

    size_t head_bytes;
    const struct http_head *request, *trailers;
    struct buf body; /* given, not written */
    struct buf held;
    uint64_t received;
    size_t unread; /* received and not credited, held ones included */
    size_t sent;   /* written, not told */
    struct window window;
    struct timer timer; /* of a cut */
};

static inline struct h2_stream *h2_of(struct http_stream *s)
{
    return container_of(s, struct h2_stream, pub);
}

/* h2.c */
struct h2_stream *h2_stream_new(struct h2 *h, int32_t id);
/* The user is told closed(why), if it still listens: for events. */
void h2_stream_over(struct h2_stream *s, enum why why);
/* Forgets it, if nghttp2 and the user are both done. */
void h2_stream_release(struct h2_stream *s);
/* Bytes that nobody will credit are given back to the window of the connection (N2). */
void h2_give_back(struct h2_stream *s);
/* s has something to tell when nghttp2 has done writing. */
void h2_later(struct h2_stream *s);
void h2_tell_later(struct h2 *h);
/* The deadline of a session without users begins, if it has none left. */
void h2_unused(struct h2 *h);
/* After anything was done: may the session end, may streams be opened?  For events. */
void h2_settle(struct h2 *h);
/* GOAWAY, then the connection ends; streams that still run are told `why` by the caller. */
void h2_end(struct h2 *h, uint32_t code, enum why why);
/* The peer broke the protocol: h2_end(), and every stream is told.  For events. */
void h2_fail(struct h2 *h, uint32_t code);
/* Names the last stream: what the peer begins from now on it may send elsewhere. */
void h2_leave(struct h2 *h);
/* Follows the notice of draining: when it is acknowledged, the peer knows. */
static const uint8_t h2_notice_ping[8] = "drain\0\0";
enum why h2_gone(const struct h2 *h);
enum why h2_protocol(const struct h2 *h);

/* h2_in.c */
void h2_on_bytes(void *user, struct buf *in);
/* What was held goes to the user, since the tunnel is granted. */
void h2_release_held(struct h2_stream *s);
void h2_drop_fields(struct h2 *h);
/* CONTINUATION frames a header block may have. */
unsigned h2_max_continuations(const struct http_limits *limits);
/* Too many frames wait to be written: nothing more is read until they have left. */
bool h2_choked(const struct h2 *h);
void h2_callbacks_in(nghttp2_session_callbacks *cb);

/* h2_out.c */
extern const struct http_ops h2_ops;
void h2_on_fill(void *user, struct buf *out, size_t max);
void h2_callbacks_out(nghttp2_session_callbacks *cb);

#endif
