/* session.h — what turns a conn into streams: h1.c (one at a time), h2.c (many), raw.c (one). */
#ifndef HTTP_SESSION_H
#define HTTP_SESSION_H

#include "http/stream.h"
#include "net/conn.h"

struct session;
struct worker;

/* What a peer can push against; shared by all sessions of a listener or of a pool, immutable. */
struct http_limits {
    size_t max_head_bytes; /* 431, or ORIGIN_PROTOCOL; trailers too */
    unsigned max_fields;   /* server role: fields of a head or of trailers, likewise; 0: as many as
                              fit */
    size_t max_memory; /* of the worker: above it heads in pieces are refused with 503 (B7); 0: no
                          cap */
    size_t window;     /* bytes of a body received and not credited; h1 tunnels: half */
    size_t window_max; /* what it may grow to while its credit keeps coming quickly (window.h) */
    unsigned max_streams;   /* h2: streams a peer may have open at once */
    unsigned max_resets;    /* h2: streams reset, by either side, ahead of those that ended well */
    unsigned max_control;   /* h2: frames that carry nothing (SETTINGS, PING, PRIORITY, empty DATA,
                               WINDOW_UPDATE beyond what our data call for), ahead of those that do */
    uint64_t keep_alive_ms; /* idle client connection */
    uint64_t head_ms;       /* session_start(): first bytes that do not tell the version yet */
    uint64_t
        linger_ms; /* the rest of a request that was answered early, or of an answer that is cut */
    uint64_t drain_idle_ms; /* idle client connection while draining: a request may be on its way */
    bool two_names; /* h2, server role: a Host beside another :authority is head.host, and its
                       user's to judge; false: such a request is malformed */
};

struct session_ops {
    /* Client role.  False: busy, draining, gone, or (h2) not known yet how many the peer takes. The
     * user fills in ev, user and mem before the first operation. */
    bool (*open)(struct session *s, struct http_stream **ret);
    /* Finish what runs, then close. */
    void (*drain)(struct session *s);
    /* Now; streams get closed(why), the session its closed(), from the loop. */
    void (*close)(struct session *s, enum why why);
    /* Server role, of a CONNECT that was granted: gives the connection away.  No more of what the
     * peer says is taken; when all that was given has left, done(arg, conn) is the last event: of
     * the stream, which may still hear sent() before, and of the session.  Who is told must
     * conn_attach().  Ends that come earlier are told as ever, and done() is not called then.  The
     * operation is NULL where a connection carries more than the tunnel (h2). */
    void (*release)(struct session *s, void (*done)(void *arg, struct conn *conn), void *arg);
};

struct session_events {
    /* Server role: a request begins.  Fill in ev, user and mem. */
    void (*accept)(void *user, struct session *s, struct http_stream *stream);
    /* Client role: no exchange is running and open() would work.  h2: also each time open() works
     * again after it did not, the first time when the peer's SETTINGS have come; `running` tells.
     */
    void (*idle)(void *user, struct session *s);
    /* Server role, after session_start(): the codec is known now, and s stands for the session that
     * was returned, which is dead.  NULL: nobody asks. */
    void (*became)(void *user, struct session *s);
    /* Last; the pointer is dead. */
    void (*closed)(void *user, struct session *s);
};

struct session {
    const struct session_ops *ops;
    const struct session_events *ev;
    void *user;
    struct conn *conn;
    struct worker *w;
    const struct http_limits *limits;
    bool server;
    unsigned exchanges; /* streams begun so far */
    unsigned running;   /* streams whose user has not heard closed() nor said cancel() */
    bool many;          /* h2: more than one exchange at a time */
    bool bytes;         /* raw: a head that is given to a stream is seen by nobody */
    bool extended;      /* client role: the peer takes extended CONNECT (RFC 8441) */
};

/* Takes over conn (attaches to it).  limits must outlive the session. */
struct session *h1_start(struct worker *w, struct conn *conn, bool server,
                         const struct http_limits *limits, const struct session_events *ev,
                         void *user);
/* HTTP/2 (RFC 9113) from its first byte on: preface and SETTINGS leave at once. */
struct session *h2_start(struct worker *w, struct conn *conn, bool server,
                         const struct http_limits *limits, const struct session_events *ev,
                         void *user);
/* Server role, h1 or h2: by ALPN where there is TLS, else by whether the first bytes are the
 * preface of HTTP/2 (prior knowledge, RFC 9113 section 3.3).  Until that is known drain() and
 * close() work and keep_alive_ms is the deadline, from the first byte on head_ms; then became(). */
struct session *session_start(struct worker *w, struct conn *conn, const struct http_limits *limits,
                              const struct session_events *ev, void *user);
/* Bytes as one stream.  Server role: one head, CONNECT authority (copied), in the next turn, unless
 * the peer has ended by then and said nothing; then a tunnel both ways.  Client role: open() once;
 * no head comes, and what head() is given is swallowed. */
struct session *raw_start(struct worker *w, struct conn *conn, bool server, struct str authority,
                          const struct http_limits *limits, const struct session_events *ev,
                          void *user);

#endif
