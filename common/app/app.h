/* app.h — main() of the programs: start, signals, workers, reload, drain.
 *
 * The main thread has a worker of its own that serves no traffic: it takes signals, builds
 * configuration, runs the product's resolver and the admin pages.  The serving workers are told
 * things by post and share nothing. */
#ifndef APP_APP_H
#define APP_APP_H

#include "app/command.h"
#include "base/metrics.h"
#include "conf/snapshot.h"
#include "proxy/proxy.h"

struct app;
struct page;
struct admin_api;

enum { APP_LISTENERS = 2, APP_WORKERS = 256 };

struct product {
    const char *title; /* of the banner */
    const char *logger;
    struct command command; /* schema, checks */
    /* The settings are wrong, and a start was wanted: nothing will run.  NULL: so be it. */
    void (*refused)(void);
    const struct maker *view;
    const struct gate *gate;
    uint64_t look_ms;      /* see struct proxy_rules */
    bool two_names;        /* see struct http_limits; of clients */
    unsigned max_workers;  /* 0: as the settings say */
    bool publishes;        /* it puts snapshots in force itself: app_published() */
    const char *not_ready; /* the text of /readyz before app_ready() */
    /* The log is open, nothing is bound, no file was read; may still change the settings.  NULL:
     * nothing to do.  False: one line, exit 2. */
    bool (*prepare)(struct app *app, void *settings, struct arena *a, struct str *ret_error);
    /* Addresses to serve on; returns how many (at most APP_LISTENERS).  NULL: the product has its
     * own listeners. */
    unsigned (*listeners)(const void *settings, union addr *ret, const char **ret_setting);
    /* The addresses the kernel gave (port 0 was asked for, or another family): into the settings,
     * before anything reads them.  admin NULL: there is none. */
    void (*bound)(void *settings, const union addr *listeners, const union addr *admin,
                  struct arena *a);
    /* See proxy_rules.moved_ms.  NULL: 0. */
    uint64_t (*moved_ms)(const void *settings);
    /* See proxy_rules.move_ms.  NULL: 0. */
    uint64_t (*move_ms)(const void *settings);
    /* Whom a worker asks for names; NULL: files and DNS servers of the system. */
    struct names *(*names)(struct app *app, struct worker *w);
    /* Before the workers run: what they share, and SLOT_PRODUCT of each. */
    void (*worker_init)(struct app *app, struct worker *w);
    void (*worker_done)(struct worker *w);
    /* On the main worker; app_ready() once traffic can be answered.  False: one line, exit 2. */
    bool (*start)(struct app *app, struct arena *a, struct str *ret_error);
    /* SIGHUP, after the new snapshot is in force. */
    void (*reload)(struct app *app);
    /* A drain begins; what must end first is held: app_hold().  NULL: nothing. */
    void (*drain)(struct app *app);
    /* Nothing runs any more. */
    void (*stop)(struct app *app);
    /* Warnings about a snapshot that is about to be in force (keys given twice …).  NULL: none. */
    void (*remarks)(struct app *app, const struct snapshot *s);
    /* Why /readyz says no, one line with its end; "": it does not.  On the main worker; NULL: it
     * goes by the phase alone. */
    struct str (*unready)(struct app *app, struct arena *a);
    /* What /readyz says after "ready", lines with their ends.  On the main worker; NULL: nothing.
     */
    struct str (*ready_text)(struct app *app, struct arena *a);
    /* The product's own metrics. */
    void (*metrics)(struct app *app, struct metrics_out *o);
    /* Its own pages of the admin listener (app/pages.h), ended by a row without a path, and its API
     * there (app/admin.h).  NULL: none. */
    const struct page *pages;
    const struct admin_api *api;
};

/* Runs until told to stop; the exit status. */
int app_run(const struct product *product, int argc, char **argv);

const struct settings *app_settings(const struct app *app);
struct worker *app_main(struct app *app);
unsigned app_nworkers(const struct app *app);
struct worker *app_worker(struct app *app, unsigned i);
/* What the product keeps for the process. */
void *app_product(const struct app *app);
void app_set_product(struct app *app, void *p);
/* On any worker: the product has put this snapshot in force.  Counts it. */
void app_published(struct app *app, const struct snapshot *snap);
/* On the main worker, from drain(): the end waits until as many app_unhold() have come, from any
 * worker, or for the deadline. */
void app_hold(struct app *app);
void app_unhold(struct app *app);
/* Lookups can be answered: the main listeners open. */
void app_ready(struct app *app);
/* On the main worker, before that: they never will be.  The line goes to stderr, the process ends
 * with exit status 2; does not return. */
_Noreturn void app_fail(struct app *app, struct str error);
/* The snapshot in force, lent; on the main worker. */
const struct snapshot *app_snapshot(const struct app *app);
/* Files that the view is made from have changed: a new snapshot, as SIGHUP makes one.  A fault
 * changes nothing, is logged and counted.  Not while draining. */
void app_renew(struct app *app);

/* ---- for admin.c */
enum app_phase { APP_STARTING, APP_SERVING, APP_DRAINING };
enum app_phase app_phase(const struct app *app);
const struct product *app_product_of(const struct app *app);
const struct accept_gate *app_accept_gate(const struct app *app);
/* Age of the process and of the snapshot in force, s; its revision; faults of reloads so far. */
struct app_times {
    uint64_t uptime_s, snapshot_age_s, revision, reload_faults;
};
struct app_times app_times(const struct app *app);

/* Runs each(w, arg of worker i) on every serving worker's loop, then done(user) on the main one,
 * after this has returned.  False: the workers are about to stop. */
bool app_collect(struct app *app, void (*each)(struct worker *w, void *arg), void *args,
                 size_t arg_bytes, void (*done)(void *user), void *user);

#endif
