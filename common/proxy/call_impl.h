/* call_impl.h — the inside of call.h: call.c (calls) and caller.c (the server they go to). */
#ifndef PROXY_CALL_IMPL_H
#define PROXY_CALL_IMPL_H

#include "net/worker.h"
#include "proxy/call.h"

struct caller {
    struct worker *w;
    struct arena mem;
    struct origins *origins;
    struct list calls;
    struct origin_want want;
    struct str authority, base;
    bool tls;
    uint64_t connect_ms, renewed_ms;
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void *user;
};

/* TELLING: the end is told when this turn ends. */
enum call_state { CALL_DIALLING, CALL_TELLING, CALL_WAITING, CALL_READING, CALL_OVER };

struct call {
    struct list link;
    struct caller *c;
    enum call_state state;
    struct arena mem; /* the exchange's; its fields may be secret */
    struct http_head ask;
    struct str body;
    struct origin_dial *dial;   /* DIALLING */
    struct http_stream *stream; /* WAITING, READING, until it has closed */
    const struct conn_info *info;
    bool reach; /* a connection is all that is wanted */
    bool h2, reused, retried;
    bool ended; /* the answer is whole */
    const struct http_head *trailers;
    enum why why; /* TELLING */
    struct str fault;
    struct timer timer;
    uint64_t start_ms, head_ms, whole_ms; /* moments; whole_ms: UINT64_MAX for none */
    uint64_t silence_ms, heard_ms;
    size_t left; /* bytes of the body that may still come */
    struct call_events ev;
    void *user;
};

/* The call is over, nothing is told; what it holds goes. */
void call_let_go(struct call *k, enum why why);

#endif
