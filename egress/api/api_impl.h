/* api_impl.h — the API's connections and one request to it, for the files of egress/api. */
#ifndef API_API_IMPL_H
#define API_API_IMPL_H

#include "base/secret.h"
#include "egress/api/api.h"
#include "http/session.h"
#include "net/worker.h"

enum visit_state {
    VISIT_HEAD,
    VISIT_BODY,
    VISIT_SLOW,   /* a wrong token: the answer waits */
    VISIT_CHANGE, /* in the queue of changes */
    VISIT_ANSWERED
};

struct api {
    struct worker *w;
    struct api_host host;
    struct secret *token; /* NULL: none */
    struct listener *listener;
    struct http_limits limits;
    struct list clients; /* oldest first */
    unsigned nclients;   /* without those that are closing */
    unsigned nvisits;
    size_t bodies; /* bytes */
    bool draining, stopping;
};

struct api_client {
    struct list link;
    struct api *api;
    struct conn *conn;
    struct session *session;
    struct visit *visit; /* the one there is, or NULL */
    bool proven;         /* has shown the token */
    bool local;          /* could be the sandbox */
    bool closing;
};

struct route {
    const char *path;
    const char *methods;            /* the value of Allow; NULL: any */
    void (*serve)(struct visit *v); /* with the whole body; answers, or sees to it */
};

struct visit {
    struct api *api;
    struct api_client *client;
    struct http_stream *stream; /* NULL: the client left */
    const struct http_head *head;
    const struct route *route;
    enum visit_state state;
    struct timer timer;
    struct arena mem;
    char *body; /* on the heap */
    size_t n, room;

    struct change change; /* policy_api.c */
    enum edit_result edit;
    struct document before;
    char first[1024];
};

/* api.c: frees it once it is stopping and nothing of it is left. */
void api_free_if_over(struct api *api);

/* visit.c: a request begins; it ends by itself. */
void visit_new(struct api_client *c, struct http_stream *stream);
/* What all requests share. */
const struct api_host *visit_host(const struct visit *v);
struct str visit_body(const struct visit *v);
/* Answers.  A refusal is one line of text; `text` comes without its end.  Nothing happens if the
 * client left. */
void visit_refuse(struct visit *v, int status, struct str text);
/* One object; `o` is finished with a line feed and freed. */
void visit_json(struct visit *v, struct json_out *o);
/* The request waits for the queue of changes; visit_resume() follows, then the answer. */
void visit_wait(struct visit *v);
/* True: there is somebody to answer to.  Otherwise the visit is gone. */
bool visit_resume(struct visit *v);

/* policy_api.c, check.c */
void serve_policy(struct visit *v);
void serve_check(struct visit *v);
void serve_log(struct visit *v);

#endif
