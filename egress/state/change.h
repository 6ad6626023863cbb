/* change.h — the one way in which anything comes into force (contract egress-policy 2.7).
 *
 * Changes stand in one queue and go through five steps, one change at a time: candidate, file,
 * kernel, publish, after.  A step that fails undoes those before it; the answer is given when all
 * is in force, or nothing is. */
#ifndef STATE_CHANGE_H
#define STATE_CHANGE_H

#include "base/list.h"
#include "egress/state/view.h"

struct worker;
struct policy_store;
struct changes;

/* What a change does to the world.  All on the worker's loop.  Each `done` and `in_force` is called
 * once, at once or later.  NULL: there is no such step. */
struct change_host {
    struct worker *w;
    struct policy_store *store;
    /* Makes the kernel's rules about addresses those of `fresh`, bound hosts included, knowing that
     * they are those of `old`; NULL: it is not known what they are.  All of it (0) or nothing (a
     * negative errno); -ENOBUFS: it cannot be told.  Both live until done(). */
    void (*kernel)(void *user, const struct egress_view *old, const struct egress_view *fresh,
                   void (*done)(void *arg, int error), void *arg);
    /* The view is the current one for whatever begins from in_force() on. */
    void (*publish)(void *user, const struct egress_view *fresh, void (*in_force)(void *arg),
                    void *arg);
    /* Leases are judged again, flows without a permission cut; must come to an end by itself. */
    void (*after)(void *user, const struct egress_view *old, const struct egress_view *fresh,
                  void (*done)(void *arg), void *arg);
    /* Whether the kernel may hold other rules than those in force: /healthz is to say so. */
    void (*unsure)(void *user, bool unsure);
    uint64_t kernel_ms; /* how long a change waits for the kernel */
    void *user;
};

enum { CHANGE_TEXT_BYTES = 320 };

struct change_answer {
    int status;                   /* 200, 400, 413 or 500 */
    char text[CHANGE_TEXT_BYTES]; /* of a refusal: one line without its end */
};

struct change {
    struct list link; /* the queue's */
    /* Makes the next view from the one in force; quick, without side effects.  NULL: nothing is to
     * be done, *ret is the answer (200, or a refusal). */
    struct egress_view *(*candidate)(struct change *c, const struct egress_view *now,
                                     struct change_answer *ret);
    /* Once; the change is the caller's again.  `now` is in force. */
    void (*done)(struct change *c, const struct change_answer *answer,
                 const struct egress_view *now);
    bool keeps;     /* the user's policy changes, and goes to the file */
    bool addresses; /* what the kernel knows changes; candidate() may set it */
};

/* `first` is in force already.  The host is copied. */
struct changes *changes_new(const struct change_host *host, const struct egress_view *first);
/* Nothing may be under way. */
void changes_free(struct changes *q);
void change_submit(struct changes *q, struct change *c);
/* The view in force, valid for this turn; view_ref() keeps it. */
const struct egress_view *changes_now(const struct changes *q);
/* A change is under way or waits, or the kernel has not answered yet. */
bool changes_busy(const struct changes *q);

#endif
