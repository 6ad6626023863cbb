/* change.c — the queue of changes as one small state machine.  What makes it more than a list of
 * calls is the kernel that does not answer: the change is taken back and answered all the same, and
 * because nobody knows what the kernel did then, it is told everything anew before it is trusted.
 */
#include "egress/state/change.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "egress/state/policy_store.h"
#include "net/worker.h"

enum { RESYNC_MS = 5000 };

enum step { STEP_IDLE, STEP_FILE, STEP_KERNEL, STEP_UNDO, STEP_PUBLISH, STEP_AFTER };

struct changes {
    struct change_host host;
    const struct egress_view *now;
    struct list waiting;
    enum step step;
    struct post post; /* the next one begins, on an empty stack */
    bool posted;

    struct change *current;
    struct egress_view *fresh;
    const struct egress_view *old; /* what was in force, for the last step */
    bool written;                  /* the file is the new one */
    struct change_answer answer;

    /* the kernel */
    bool asked;     /* it owes us an answer ... */
    bool lost;      /* ... which nobody waits for any more */
    bool resyncing; /* ... to the question of nobody */
    bool unsure;    /* it may hold anything */
    const struct egress_view *asked_old, *asked_fresh;
    struct timer timer, resync;
};

static void begin(struct worker *w, struct post *p);
static void on_resync(struct timer *t);
static void on_late(struct timer *t);

struct changes *changes_new(const struct change_host *host, const struct egress_view *first)
{
    struct changes *q = mem_new(sizeof *q);
    q->host = *host;
    q->now = view_ref(first);
    q->post.run = begin;
    list_init(&q->waiting);
    timer_init(&q->timer, on_late);
    timer_init(&q->resync, on_resync);
    return q;
}

void changes_free(struct changes *q)
{
    if (!q)
        return;
    assert(!changes_busy(q));
    timer_clear(q->host.w, &q->resync);
    view_unref(q->now);
    mem_free(q);
}

const struct egress_view *changes_now(const struct changes *q)
{
    return q->now;
}

bool changes_busy(const struct changes *q)
{
    return q->step != STEP_IDLE || q->asked || q->posted || !list_empty(&q->waiting);
}

static void ring(struct changes *q)
{
    if (q->posted || q->step != STEP_IDLE || list_empty(&q->waiting))
        return;
    q->posted = true;
    worker_post(q->host.w, &q->post);
}

void change_submit(struct changes *q, struct change *c)
{
    list_init(&c->link);
    list_push(&q->waiting, &c->link);
    ring(q);
}

/* ---- the end of a change */

static void finish(struct changes *q)
{
    struct change *c = q->current;
    view_unref(q->fresh);
    q->fresh = NULL;
    q->current = NULL;
    q->written = false;
    q->step = STEP_IDLE;
    c->done(c, &q->answer, q->now);
    ring(q);
}

static void refuse(struct changes *q, int status, const char *what, const char *why)
{
    q->answer.status = status;
    snprintf(q->answer.text, sizeof q->answer.text, "%s%s", what, why);
}

static void set_unsure(struct changes *q, bool unsure)
{
    if (q->unsure == unsure)
        return;
    q->unsure = unsure;
    if (unsure)
        timer_set(q->host.w, &q->resync, RESYNC_MS);
    else
        timer_clear(q->host.w, &q->resync);
    if (q->host.unsure)
        q->host.unsure(q->host.user, unsure);
}

static void on_undone(void *user, int error)
{
    struct changes *q = user;
    if (error)
        log_note(LOG_ERROR, "policy file keeps a policy that is not in force", "error",
                 strerrordesc_np(-error), NULL);
    finish(q);
}

/* The kernel refused, or did not say. */
static void take_back(struct changes *q, const char *why)
{
    refuse(q, 500, "failed to apply nftables policy: ", why);
    q->step = STEP_UNDO;
    if (q->written)
        policy_store_undo(q->host.store, on_undone, q);
    else
        finish(q);
}

/* ---- steps */

static void on_after(void *arg)
{
    struct changes *q = arg;
    assert(q->step == STEP_AFTER);
    view_unref(q->old);
    q->old = NULL;
    finish(q);
}

static void on_in_force(void *arg)
{
    struct changes *q = arg;
    assert(q->step == STEP_PUBLISH);
    q->old = q->now;
    q->now = view_ref(q->fresh);
    q->answer = (struct change_answer){.status = 200};
    q->step = STEP_AFTER;
    if (q->host.after)
        q->host.after(q->host.user, q->old, q->now, on_after, q);
    else
        on_after(q);
}

static void publish(struct changes *q)
{
    q->step = STEP_PUBLISH;
    if (q->host.publish)
        q->host.publish(q->host.user, q->fresh, on_in_force, q);
    else
        on_in_force(q);
}

static void on_kernel(void *arg, int error);

static void ask_kernel(struct changes *q, const struct egress_view *fresh)
{
    q->asked = true;
    q->lost = false;
    q->asked_old = view_ref(q->now);
    q->asked_fresh = view_ref(fresh);
    timer_set(q->host.w, &q->timer, q->host.kernel_ms);
    q->host.kernel(q->host.user, q->unsure ? NULL : q->asked_old, q->asked_fresh, on_kernel, q);
}

static void try_resync(struct changes *q)
{
    if (!q->unsure || q->asked || q->step != STEP_IDLE)
        return;
    q->resyncing = true;
    ask_kernel(q, q->now);
}

static void on_resync(struct timer *t)
{
    struct changes *q = container_of(t, struct changes, resync);
    timer_set(q->host.w, &q->resync, RESYNC_MS);
    try_resync(q);
}

static void on_kernel(void *arg, int error)
{
    struct changes *q = arg;
    bool lost = q->lost, waits = q->step == STEP_KERNEL, ours = waits && !q->resyncing;
    const struct egress_view *old = q->asked_old, *fresh = q->asked_fresh;
    assert(q->asked);
    q->asked = q->lost = q->resyncing = false;
    timer_clear(q->host.w, &q->timer);
    if (error)
        log_note(LOG_ERROR, "the kernel refused a change of rules", "error",
                 strerrordesc_np(-error), NULL);
    if (!lost && (!error || error == -ENOBUFS))
        set_unsure(q, error != 0);
    if (ours && error)
        take_back(q, strerrordesc_np(-error));
    else if (ours)
        publish(q);
    else if (waits)
        ask_kernel(q, q->fresh);
    else if (lost)
        try_resync(q);
    view_unref(old);
    view_unref(fresh);
}

static void on_late(struct timer *t)
{
    struct changes *q = container_of(t, struct changes, timer);
    q->lost = true;
    log_note(LOG_ERROR, "the kernel does not answer", NULL);
    set_unsure(q, true);
    if (q->step == STEP_KERNEL)
        take_back(q, "no answer in time");
}

static void to_kernel(struct changes *q)
{
    q->step = STEP_KERNEL;
    if (!q->host.kernel || !q->current->addresses)
        publish(q);
    else if (q->lost)
        take_back(q, "the kernel has not answered the change before");
    else if (!q->asked) /* else on_kernel() goes on */
        ask_kernel(q, q->fresh);
}

static void on_written(void *user, int error)
{
    struct changes *q = user;
    q->written = !error;
    if (!error) {
        to_kernel(q);
        return;
    }
    refuse(q, 500, "failed to persist policy: ", strerrordesc_np(-error));
    finish(q);
}

static void begin(struct worker *w, struct post *p)
{
    (void)w;
    struct changes *q = container_of(p, struct changes, post);
    q->posted = false;
    q->current = container_of(list_pop(&q->waiting), struct change, link);
    q->answer = (struct change_answer){.status = 200};
    q->step = STEP_FILE;
    q->fresh = q->current->candidate(q->current, q->now, &q->answer);
    if (!q->fresh)
        finish(q);
    else if (q->current->keeps && q->host.store && policy_store_keeps(q->host.store))
        policy_store_write(q->host.store, &q->fresh->user, on_written, q);
    else
        to_kernel(q);
}
