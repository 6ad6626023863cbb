/* admin.h — what operators look at, on a listener of its own (I8): /healthz, /readyz, /metrics and
 * /debug/{config,exchanges,pools}, the product's own pages, and its API. */
#ifndef APP_ADMIN_H
#define APP_ADMIN_H

#include "app/app.h"

struct admin;

/* Serves on the bound socket fd, which is its own from now on. */
struct admin *admin_start(struct app *app, int fd);
void admin_stop(struct admin *ad);

/* ---- an API of the product's: any method, a body, an answer that may come later */

/* One request to it, on the main worker.  It is there until it is answered, also when the client
 * has left and after admin_stop(); all its memory is wiped. */
struct admin_visit;

struct admin_api {
    const char *path; /* "/routes": that path and all below it */
    size_t max_body_bytes;
    /* With the head alone.  True: the body is read, then serve().  False: it has been answered. */
    bool (*admit)(struct app *app, struct admin_visit *v);
    /* Answers, at once or later. */
    void (*serve)(struct app *app, struct admin_visit *v);
    /* In place of serve(): the body is too long (413) or broken.  Answers at once. */
    void (*refuse)(struct app *app, struct admin_visit *v, int status, struct str why);
};

/* Lent until it is answered. */
const struct http_head *admin_head(const struct admin_visit *v);
struct str admin_path(const struct admin_visit *v); /* as it came, without the query */
struct str admin_body(const struct admin_visit *v); /* in serve() and after it */
struct arena *admin_mem(struct admin_visit *v);

struct admin_answer {
    int status;
    const char *type;       /* NULL: no body (204, 304) */
    struct str body;        /* copied; not sent for HEAD */
    struct field fields[3]; /* beside Content-Type and Cache-Control: no-store; kept in admin_mem()
                               or for ever */
    unsigned nfields;
};
/* Once for each visit, also for one whose client has left: then nothing is sent.  The visit may be
 * gone when it returns. */
void admin_answer(struct admin_visit *v, const struct admin_answer *a);

#endif
