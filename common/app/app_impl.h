/* app_impl.h — the inside of app.h, for app.c (the course of things), app_bind.c (sockets) and
 * app_drain.c (the end). */
#ifndef APP_APP_IMPL_H
#define APP_APP_IMPL_H

#include "app/app.h"
#include "net/worker.h"

enum { SURPLUS_CONNECTIONS = 64 };

struct word { /* a post to the main worker */
    struct post post;
    struct app *app;
    const struct snapshot *snap; /* a reference, or NULL */
};

struct told { /* a post to one worker */
    struct post post;
    struct app *app;
    unsigned i;
    const struct snapshot *snap; /* a reference, or NULL */
};

struct app {
    const struct product *product;
    void *settings;
    struct arena mem;
    const struct snapshot *snap;
    uint64_t started_us, adopted_us, reload_faults;
    struct worker *main;
    struct worker *workers[APP_WORKERS];
    unsigned nworkers;
    int fds[APP_WORKERS][APP_LISTENERS];
    unsigned nlisteners;
    struct str where[APP_LISTENERS]; /* for the log */
    int admin_fd;
    struct accept_gate gate;
    struct admin *admin;
    enum app_phase phase;
    bool opening;         /* the workers were told to listen */
    unsigned closed;      /* workers that do not listen yet */
    unsigned draining;    /* workers that have not reported yet, and what the product holds */
    unsigned collections; /* app_collect() under way */
    unsigned holds;       /* of draining, the product's */
    bool drained;         /* the workers stop as soon as nobody asks them anything */
    struct timer deadline, remind;
    void *product_data;
};

/* run() on every serving worker with a struct told, which it frees. */
void app_tell_all(struct app *app, void (*run)(struct worker *w, struct post *p),
                  const struct snapshot *snap);
/* run() on the main worker with a struct word, which it frees; takes over a reference to snap. */
void app_tell_main(struct app *app, void (*run)(struct worker *w, struct post *p),
                   const struct snapshot *snap);
/* The workers stop, once nobody asks them anything. */
void app_stop_when_done(struct app *app);

/* app_bind.c: the limit of descriptors, raised as far as it goes. */
int64_t app_descriptors(void);
/* Client connections that are served (B7). */
int64_t app_connection_limit(const struct app *app, int64_t descriptors);
/* Bound, not listening: until lookups can be answered a connection is refused (contract
 * ingress 1.5).  False: one line. */
bool app_bind(struct app *app, struct str *ret_error);

/* app_drain.c: SIGTERM. */
void app_drain(struct app *app);
/* Of app.deadline: what still runs is cut. */
void app_on_deadline(struct timer *t);

#endif
