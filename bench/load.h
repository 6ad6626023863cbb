/* load.h — what the parts of the load generator share: load.c (options, report), lane.c
 * (connections), call.c (requests). */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "histogram.h"
#include "http/session.h"
#include "net/dial.h"
#include "net/worker.h"

enum { MAX_FIELDS = 12, FIRST_BYTES = 2048 };

struct options {
    uint64_t connections, streams, seconds, requests, ws, idle, rate;
    struct str to, path, host;
    bool close, json, tls, h2, grpc;
};

struct load {
    struct worker *w;
    struct options o;
    struct dial_to to;
    struct tls_ctx *tls;
    struct http_limits limits;
    struct http_head head; /* of every request */
    struct field fields[MAX_FIELDS];
    struct lane *lanes;
    uint64_t nlanes;
    struct timer deadline;
    struct latencies latencies;
    uint64_t started_us, ended_us;
    uint64_t begun, done, errors, refused, bytes; /* refused: a final status that is no 2xx, or a
                                                     grpc-status that is not 0 */
    uint64_t held;                                /* tunnels, or idle connections */
    uint64_t alive;                               /* lanes with a dial, a handshake or a session */
    bool stopping;
};

/* A place for one request under way. */
struct call {
    struct lane *n;
    struct http_stream *up; /* NULL: free */
    struct timer pace;      /* --rate */
    size_t owed;            /* received, not credited yet */
    uint64_t begun_us, paced_us;
    int status;
    bool whole, good;
    struct arena mem;
    char first[FIRST_BYTES];
};

/* One connection. */
struct lane {
    struct load *l;
    struct dial *dial;
    struct conn *opening; /* in its handshake */
    struct session *s;
    struct timer pause;
    uint64_t begun_us;
    bool answered; /* since it was dialled */
    struct call *calls;
    unsigned ncalls;
};

/* ---- lane.c */
void lane_init(struct lane *n, struct load *l);
void lane_done(struct lane *n);
/* A new connection, and requests on it. */
void lane_start(struct lane *n);
/* The next lane that was never started, if there is one. */
void lane_start_next(struct load *l);
/* As many requests as the session takes. */
void lane_fill(struct lane *n);
void lane_stop(struct lane *n);

/* ---- call.c */
void call_init(struct call *c, struct lane *n);
void call_done(struct call *c);
/* c->up was opened: the request. */
void call_send(struct call *c);
void call_stop(struct call *c);

/* ---- load.c */
/* Ends the run: everything is closed, the loop ends with the last lane. */
void load_stop(struct load *l);
/* A tunnel, or an idle connection, more; tells when all are there. */
void load_hold(struct load *l);

#endif
