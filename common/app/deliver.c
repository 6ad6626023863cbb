/* deliver.c — a queue and a few runners.  An event keeps its runner during its pauses too: so a
 * receiver that is down holds a bounded number of events, and the queue says honestly when it is
 * full. */
#include "app/deliver.h"

#include <assert.h>

#include "base/list.h"
#include "net/worker.h"

enum { ANSWER_BYTES = 65536 };

struct event {
    struct list link; /* waiting, or running */
    struct deliver *d;
    struct timer pause;
    struct client *call; /* while a try is under way */
    unsigned tries;
    struct str label, body;
    char text[];
};

struct deliver {
    struct worker *w;
    struct client_request to;
    struct deliver_rules rules;
    const struct deliver_events *ev;
    void *user;
    struct list waiting, running;
    unsigned nwaiting, nrunning;
    bool draining;
    uint64_t end; /* of the drain */
    struct timer drained;
    void (*done)(void *user);
    void *done_user;
};

static void go_on(struct deliver *d);
static void try_now(struct event *e);

static uint64_t left_ms(const struct deliver *d)
{
    uint64_t now = worker_now(d->w);
    return d->end > now ? d->end - now : 0;
}

static void destroy(struct event *e)
{
    struct deliver *d = e->d;
    list_del(&e->link);
    timer_clear(d->w, &e->pause);
    if (e->call)
        client_cancel(e->call);
    worker_bury(d->w, mem_free, e);
}

/* ---- one event */

/* It ran, and is over. */
static void leave(struct event *e)
{
    e->d->nrunning--;
    destroy(e);
}

static void succeed(struct event *e)
{
    struct deliver *d = e->d;
    leave(e);
    if (d->ev->delivered)
        d->ev->delivered(d->user, e->label);
}

static void give_up(struct event *e, enum why why, int status)
{
    struct deliver *d = e->d;
    leave(e);
    d->ev->given_up(d->user, e->label, why, status);
}

static void on_pause_over(struct timer *t)
{
    struct event *e = container_of(t, struct event, pause);
    struct deliver *d = e->d;
    try_now(e);
    go_on(d);
}

static void rest(struct event *e)
{
    struct deliver *d = e->d;
    uint64_t ms = d->rules.pause_ms << (e->tries - 1);
    if (d->draining && ms >= left_ms(d))
        ms = 0;
    timer_set(d->w, &e->pause, ms);
}

/* A status that came is an answer, whatever became of the rest of it. */
static void judge(struct event *e, enum why why, int status)
{
    if (status >= 200 && status < 300)
        succeed(e);
    else if ((status >= 300 && status < 500) || e->tries >= e->d->rules.tries)
        give_up(e, why, status);
    else
        rest(e);
}

static void on_answer(void *user, const struct client_answer *a)
{
    struct event *e = user;
    struct deliver *d = e->d;
    e->call = NULL;
    judge(e, a->why, a->status);
    go_on(d);
}

/* The rest of the time, when the worker drains, is the limit of a try too. */
static void try_now(struct event *e)
{
    struct deliver *d = e->d;
    struct client_request r = d->to;
    uint64_t left = d->draining ? left_ms(d) : UINT64_MAX;
    if (left == 0) {
        give_up(e, WHY_DRAIN, 0);
        return;
    }
    e->tries++;
    r.body = e->body;
    r.timeout_ms = d->rules.timeout_ms < left ? d->rules.timeout_ms : left;
    r.max_bytes = ANSWER_BYTES;
    e->call = client_start(d->w, &r, on_answer, e);
}

/* ---- the queue */

static void start_next(struct deliver *d)
{
    struct event *e = container_of(list_pop(&d->waiting), struct event, link);
    d->nwaiting--;
    d->nrunning++;
    list_push(&d->running, &e->link);
    try_now(e);
}

static void on_drained(struct timer *t)
{
    struct deliver *d = container_of(t, struct deliver, drained);
    void (*done)(void *user) = d->done;
    d->done = NULL;
    if (done)
        done(d->done_user);
}

/* Starts what can be started; nothing of it tells anybody anything in this call but that its time
 * is over. */
static void go_on(struct deliver *d)
{
    while (d->nwaiting > 0 && d->nrunning < d->rules.parallel)
        start_next(d);
    if (d->draining && d->done && d->nwaiting + d->nrunning == 0)
        timer_set(d->w, &d->drained, 0);
}

bool deliver_push(struct deliver *d, struct str label, struct str body)
{
    if (d->draining || (d->nwaiting >= d->rules.queue && d->nrunning >= d->rules.parallel))
        return false;
    struct event *e = mem_new(sizeof *e + label.n + body.n);
    e->d = d;
    memcpy(e->text, label.p, label.n);
    memcpy(e->text + label.n, body.p, body.n);
    e->label = (struct str){e->text, label.n};
    e->body = (struct str){e->text + label.n, body.n};
    timer_init(&e->pause, on_pause_over);
    list_init(&e->link);
    list_push(&d->waiting, &e->link);
    d->nwaiting++;
    go_on(d);
    return true;
}

/* ---- its life */

struct deliver *deliver_new(struct worker *w, const struct client_request *to,
                            const struct deliver_rules *rules, const struct deliver_events *ev,
                            void *user)
{
    struct deliver *d = mem_new(sizeof *d);
    assert(rules->parallel > 0 && rules->tries > 0 && rules->tries < 32);
    d->w = w;
    d->to = *to;
    d->rules = *rules;
    d->ev = ev;
    d->user = user;
    list_init(&d->waiting);
    list_init(&d->running);
    timer_init(&d->drained, on_drained);
    return d;
}

/* Pauses that would last longer than the drain end now. */
static void cut_pauses(struct deliver *d)
{
    list_each(l, &d->running)
    {
        struct event *e = container_of(l, struct event, link);
        if (timer_is_set(&e->pause) && e->pause.due >= d->end)
            timer_set(d->w, &e->pause, 0);
    }
}

void deliver_drain(struct deliver *d, uint64_t ms, void (*done)(void *user), void *user)
{
    assert(!d->draining);
    d->draining = true;
    d->end = worker_now(d->w) + ms;
    d->done = done;
    d->done_user = user;
    cut_pauses(d);
    if (d->nwaiting + d->nrunning == 0)
        timer_set(d->w, &d->drained, 0);
    else
        timer_set(d->w, &d->drained, ms);
}

unsigned deliver_waiting(const struct deliver *d)
{
    return d->nwaiting;
}

unsigned deliver_running(const struct deliver *d)
{
    return d->nrunning;
}

static void forget(struct list *events)
{
    struct list *l;
    while ((l = list_first(events)))
        destroy(container_of(l, struct event, link));
}

void deliver_free(struct deliver *d)
{
    if (!d)
        return;
    forget(&d->waiting);
    forget(&d->running);
    timer_clear(d->w, &d->drained);
    worker_bury(d->w, mem_free, d);
}
