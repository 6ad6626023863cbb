/* session.h — what turns a conn into streams: h1.c (one at a time), raw.c (one), later h2 (many).
 */
#ifndef HTTP_SESSION_H
#define HTTP_SESSION_H

#include "http/stream.h"
#include "net/conn.h"

struct session;
struct worker;

/* What a peer can push against; shared by all sessions of a listener or of a pool, immutable. */
struct http_limits {
    size_t max_head_bytes; /* 431, or ORIGIN_PROTOCOL; trailers too */
    size_t max_memory; /* of the worker: above it heads in pieces are refused with 503 (B7); 0: no
                          cap */
    size_t window;     /* bytes of a body received and not credited; tunnels: half */
    uint64_t keep_alive_ms; /* idle client connection */
    uint64_t
        linger_ms; /* the rest of a request that was answered early, or of an answer that is cut */
    uint64_t drain_idle_ms; /* idle client connection while draining: a request may be on its way */
};

struct session_ops {
    /* Client role.  False: busy, draining or gone.  The user fills in ev, user and mem before the
     * first operation. */
    bool (*open)(struct session *s, struct http_stream **ret);
    /* Finish what runs, then close. */
    void (*drain)(struct session *s);
    /* Now; streams get closed(why), the session its closed(), from the loop. */
    void (*close)(struct session *s, enum why why);
};

struct session_events {
    /* Server role: a request begins.  Fill in ev, user and mem. */
    void (*accept)(void *user, struct session *s, struct http_stream *stream);
    /* Client role: the exchange is over and open() would work again. */
    void (*idle)(void *user, struct session *s);
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
};

/* Takes over conn (attaches to it).  limits must outlive the session. */
struct session *h1_start(struct worker *w, struct conn *conn, bool server,
                         const struct http_limits *limits, const struct session_events *ev,
                         void *user);
/* Bytes as one stream.  Server role: one head, CONNECT authority (copied), then a tunnel both ways;
 * client role: open() once. */
struct session *raw_start(struct worker *w, struct conn *conn, bool server, struct str authority,
                          const struct http_limits *limits, const struct session_events *ev,
                          void *user);

#endif
