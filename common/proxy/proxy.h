/* proxy.h — the proxy of one worker: client sessions, exchanges by state, pools, counters. */
#ifndef PROXY_PROXY_H
#define PROXY_PROXY_H

#include "base/metrics.h"
#include "net/listen.h"
#include "proxy/gate.h"
#include "proxy/origin.h"

/* Every state has a list (its length is a gauge) and a deadline (its passing is an ending). */
#define XSTATE_MAP(X)                        \
    X(HEAD, "head", head_timeout)            \
    X(DECIDE, "decide", decide_timeout)      \
    X(DIAL, "dial", connect_timeout)         \
    X(WAIT, "wait", response_timeout)        \
    X(BODY, "body", idle_timeout)            \
    X(TUNNEL, "tunnel", tunnel_idle_timeout) \
    X(CLOSING, "closing", linger_timeout)

enum xstate {
#define X(id, text, timeout) X_##id,
    XSTATE_MAP(X)
#undef X
        XSTATES
};

enum { METRIC_METHODS = 10, METRIC_STATUSES = 500, METRIC_KINDS = 2 };

/* By method, status and kind (http, websocket): the counters are touched only where something
 * happened. */
struct request_metrics {
    struct counter count[METRIC_METHODS][METRIC_STATUSES][METRIC_KINDS];
    struct histogram *_Atomic duration[METRIC_METHODS][METRIC_STATUSES][METRIC_KINDS];
};

struct proxy_metrics {
    struct request_metrics requests;
    struct counter ended[WHYS]; /* exchanges by reason */
    struct counter connections; /* accepted */
    struct counter unopened;    /* ended by a PROXY header or TLS that failed, or took too long */
    struct counter h2;          /* exchanges that came in over HTTP/2 */
    struct counter reused, dials, retries, bytes_in, bytes_out;
    struct counter overload; /* refused for memory or connections */
};

struct proxy_rules {
    const struct gate *gate;
    struct http_limits client, origin;
    struct origin_rules pools;
    uint64_t timeout_ms[XSTATES];
    uint64_t half_close_ms;
    uint64_t moved_ms; /* between two calls of gate->moved(); 0: none */
    uint64_t move_ms;  /* see proxy_move(); 0: all end at once */
    uint64_t look_ms;  /* how long a client may keep silent before gate->look() is told so */
    size_t max_memory; /* of this worker; 0: no cap */
};

struct proxy;

/* Sits in SLOT_PROXY. */
struct proxy *proxy_new(struct worker *w, const struct proxy_rules *rules);
/* After a drain; nothing may be open. */
void proxy_free(struct proxy *p);
struct proxy *proxy_of(const struct worker *w);

/* A listener's accept (net/listen.h); user is the proxy. */
void proxy_accept(void *proxy, struct conn *conn);
/* The same for a connection that was looked at elsewhere; gate->begin is not asked.  HTTP: a server
 * session, of the version that TLS or the first bytes tell.  RAW: one CONNECT to `authority`
 * (copied), as the gate will see it. */
enum proxy_taken { PROXY_HTTP, PROXY_RAW };
void proxy_take(struct proxy *p, struct conn *conn, enum proxy_taken as, struct str authority);
/* A new snapshot is in force on this worker: gate->recheck() about each exchange that was
 * forwarded, and idle connections to origins go. */
void proxy_recheck(struct proxy *p);
/* On the worker's loop, within anything: what `key` (lent) stands for is known now.  Each exchange
 * that waits for it by now is decided anew, in its turn and not within this call, with facts.told =
 * told; the next that waits for it is the first again.  told is kept until drop(told), once, which
 * comes within this call where nobody waits; drop NULL: nothing is to be dropped, told outlives the
 * worker's loop or is NULL. */
void proxy_resume(struct proxy *p, struct str key, void *told, void (*drop)(void *told));
/* Listeners that a drain stops. */
void proxy_add_listener(struct proxy *p, struct listener *l);

/* Finish what runs: answers carry "connection: close", idle connections end.  drained(user) when
 * nothing is left. */
void proxy_drain(struct proxy *p, void (*drained)(void *user), void *user);
/* The client sessions of which which(user, info) says so end after what runs: HTTP/1.1 closes,
 * HTTP/2 says GOAWAY. */
void proxy_drain_clients(struct proxy *p, bool (*which)(void *user, const struct conn_info *info),
                         void *user);
/* The drain deadline: what still runs is cut. */
void proxy_cut(struct proxy *p);
/* A pool is over (I6): its connections and exchanges end. */
void proxy_purge(struct proxy *p, struct str pool);
/* What it stands for is reached by the pool `to` from now on: who has heard nothing and may be
 * repeated is decided anew, what has been sent as a whole may be answered for proxy_rules.move_ms,
 * but not beyond the end of `to`; anything else ends: nothing is sent to the old place any more. */
void proxy_move(struct proxy *p, struct str pool, struct str to);

const struct proxy_metrics *proxy_metrics(const struct proxy *p);
/* Gauges: exchanges in a state, client sessions, connections to origins and idle ones. */
unsigned proxy_count(const struct proxy *p, enum xstate s);
unsigned proxy_clients(const struct proxy *p);
const struct origins *proxy_origins(const struct proxy *p);
const char *xstate_text(enum xstate s);
/* "GET" … "other": the label of a row of request_metrics. */
const char *metric_method(unsigned i);

/* For /debug: one call per exchange.  No path: it may hold a signature (B5). */
struct exchange_view {
    struct str request_id, method;
    enum xstate state;
    uint64_t age_ms, bytes_in, bytes_out;
    struct str pool;
};
void proxy_each(const struct proxy *p, void (*each)(void *arg, const struct exchange_view *x),
                void *arg);

#endif
