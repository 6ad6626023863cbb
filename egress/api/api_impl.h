/* api_impl.h — the API's connections and one request to it, for the files of egress/api. */
#ifndef API_API_IMPL_H
#define API_API_IMPL_H

#include "base/secret.h"
#include "egress/api/api.h"
#include "egress/vault/vault.h"
#include "http/session.h"
#include "net/worker.h"

enum visit_state {
    VISIT_HEAD,
    VISIT_READY, /* not admitted yet: what it needs may come; its body waits */
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
    struct vault_counters vault;
    bool draining, stopping;
    bool told_unlocked; /* that secrets are not locked; once is enough */
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
    const char *methods; /* the value of Allow; NULL: any */
    bool open;           /* for everybody, and without a body */
    size_t max_body;     /* if it is less than the setting; 0: that alone */
    /* With the head alone, who asks is allowed to.  False: it is answered, or visit_pause() was
     * called.  NULL: go on. */
    bool (*admit)(struct visit *v);
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
    struct arena mem; /* private: heads hold tokens */
    char *body;       /* on the heap; wiped wherever it is given back */
    size_t n, room;
    bool bodyless;

    /* while it is not admitted */
    void (*tick)(struct visit *v);
    struct buf early; /* of the body; not credited */
    bool early_end;
    uint64_t until_ms;

    struct change change; /* policy_api.c, vault_writes.c */
    struct vault_fault fault;
    enum edit_result edit;
    struct document before;
    struct str item; /* vault_reads.c: whose name the path ends with */
    enum vault_write write;
    struct vault_create *create;
    struct vault_patch *patch;
    char first[1024];
};

/* api.c: frees it once it is stopping and nothing of it is left. */
void api_free_if_over(struct api *api);

/* visit.c: a request begins; it ends by itself. */
void visit_new(struct api_client *c, struct http_stream *stream);
/* What all requests share. */
const struct api_host *visit_host(const struct visit *v);
struct str visit_body(const struct visit *v);
/* It is read; wiped. */
void visit_drop_body(struct visit *v);
/* Of admit(): tick() is called from time to time until it answers or calls visit_go_on(). */
void visit_pause(struct visit *v, void (*tick)(struct visit *v));
void visit_go_on(struct visit *v);
/* Answers.  A refusal is one line of text; `text` comes without its end.  Nothing happens if the
 * client left. */
void visit_refuse(struct visit *v, int status, struct str text);
/* One object, with status 200 or another; `o` is finished with a line feed and freed. */
void visit_json(struct visit *v, struct json_out *o);
void visit_json_as(struct visit *v, int status, struct json_out *o);
/* 204. */
void visit_nothing(struct visit *v);
/* The request waits for the queue of changes; visit_resume() follows, then the answer. */
void visit_wait(struct visit *v);
/* True: there is somebody to answer to.  Otherwise the visit is gone. */
bool visit_resume(struct visit *v);

/* routes.c.  Of a path without its query; NULL: nobody's. */
const struct route *route_find(struct visit *v, struct str path);
bool route_takes(const struct route *route, struct str method);

/* visit.c, policy_api.c, check.c */
void serve_health(struct visit *v);
void serve_policy(struct visit *v);
void serve_check(struct visit *v);
void serve_log(struct visit *v);
/* vault_reads.c.  The route of a path without its query, below /credential-vault; else NULL. */
const struct route *vault_route(struct visit *v, struct str path);
/* vault_writes.c.  May this be written to the vault (struct route.admit); what becomes of it. */
bool vault_admit(struct visit *v);
void serve_vault_write(struct visit *v);
void vault_visit_done(struct visit *v);

#endif
