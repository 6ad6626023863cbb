/* boot.h — the order in which the sidecar's parts begin and end (contract egress-policy 7.1, 7.2).
 *
 * Everything is made on the main thread before the worker runs, and unmade there after it has
 * stopped; in between it belongs to the worker. */
#ifndef EGRESS_BOOT_H
#define EGRESS_BOOT_H

#include "app/app.h"
#include "egress/handover.h"
#include "egress/sidecar.h"

struct boot;

/* Before anything listens and before files are read: what a predecessor left is taken over, else
 * the kernel is closed (E2).  Puts the policy that outlived a predecessor in the place of E_RULES.
 * *ret is the caller's, and part of `app` from now on (app_product()). */
bool boot_prepare(struct app *app, struct egress_settings *set, struct arena *a,
                  struct str *ret_error);
/* The first view: policy file, else what outlived the predecessor, else E_RULES; the rule files.
 * NULL: one line. */
void *boot_view(const struct settings *set, const void *old, struct arena *a,
                struct str *ret_error);
/* A worker that asks for names asks our own DNS. */
struct names *boot_names(struct app *app, struct worker *w);
/* Sockets, DNS, kernel, queue of changes, API, relay.  False: one line. */
bool boot_start(struct app *app, struct arena *a, struct str *ret_error);
/* SIGHUP: the rule files are read again. */
void boot_reload(struct app *app);
/* SIGTERM: no connection begins, changes and webhook calls end. */
void boot_drain(struct app *app);
/* The worker runs no more: connections are cut, everything ends, the kernel is closed, or its rules
 * are taken away.  Where a change does not end the process does, with 1, after that. */
void boot_stop(struct app *app);
/* Why the policy is not enforced, in `a`; "": it is.  On the main worker. */
struct str boot_unready(struct app *app, struct arena *a);

#endif
