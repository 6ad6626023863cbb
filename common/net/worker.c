/* worker.c — a thread, its loop and its turn.  The order of a turn is the point: events of the
 * kernel and the mailbox first, then, in prepare, all output in one go, then the graves; so nothing
 * is freed while an event is on the stack. */
#include "net/worker.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "conf/snapshot.h"
#include "net/pipes.h"
#include "net/worker_impl.h"

enum { LAST_TURNS = 100 };

static void empty_graves(struct worker *w)
{
    while (w->ngraves > 0) { /* freeing may bury more */
        struct grave g = w->graves[--w->ngraves];
        g.free_fn(g.p);
    }
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void plan_tick(struct worker *w);

static void on_tick(uv_timer_t *t)
{
    struct worker *w = t->data;
    w->tick_at = UINT64_MAX;
    wheel_turn(&w->wheel, uv_now(&w->loop));
    plan_tick(w);
}

static void plan_tick(struct worker *w)
{
    uint64_t now = uv_now(&w->loop);
    uint64_t wait = wheel_wait(&w->wheel, now);
    if (wait == UINT64_MAX || now + wait >= w->tick_at)
        return;
    w->tick_at = now + wait;
    uv_timer_start(&w->tick, on_tick, wait, 0);
}

static void on_prepare(uv_prepare_t *p)
{
    struct worker *w = p->data;
    conn_flush_all(w);
    empty_graves(w);
    bool more = !list_empty(&w->dirty);
    if (more && !uv_is_active((uv_handle_t *)&w->idle))
        uv_idle_start(&w->idle, on_idle);
    if (!more && uv_is_active((uv_handle_t *)&w->idle))
        uv_idle_stop(&w->idle);
}

static struct post *take_mail(struct worker *w, bool *ret_stopping)
{
    pthread_mutex_lock(&w->lock);
    struct post *mail = w->mail;
    w->mail = NULL;
    w->mail_tail = &w->mail;
    *ret_stopping = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return mail;
}

/* False: there was nothing. */
static bool run_mail(struct worker *w, bool *ret_stopping)
{
    struct post *p = take_mail(w, ret_stopping), *first = p;
    while (p) {
        struct post *next = p->next;
        p->run(w, p);
        p = next;
    }
    return first != NULL;
}

static void on_bell(uv_async_t *bell)
{
    struct worker *w = bell->data;
    bool stopping;
    run_mail(w, &stopping);
    if (stopping)
        uv_stop(&w->loop);
}

static void init_handles(struct worker *w)
{
    uv_loop_init(&w->loop);
    uv_prepare_init(&w->loop, &w->prepare);
    uv_idle_init(&w->loop, &w->idle);
    uv_async_init(&w->loop, &w->bell, on_bell);
    uv_timer_init(&w->loop, &w->tick);
    w->prepare.data = w->idle.data = w->bell.data = w->tick.data = w;
    uv_prepare_start(&w->prepare, on_prepare);
    uv_unref((uv_handle_t *)&w->prepare);
    uv_unref((uv_handle_t *)&w->tick);
}

struct worker *worker_new(unsigned index)
{
    struct worker *w = mem_new(sizeof *w);
    w->index = index;
    list_init(&w->dirty);
    list_init(&w->written);
    list_init(&w->stopped);
    list_init(&w->dials);
    list_init(&w->jobs);
    pthread_mutex_init(&w->lock, NULL);
    w->mail_tail = &w->mail;
    w->tick_at = UINT64_MAX;
    w->pool = chunk_pool_new();
    init_handles(w);
    wheel_init(&w->wheel, uv_now(&w->loop));
    timer_init(&w->sweep, NULL);
    timer_init(&w->look, NULL);
    return w;
}

void worker_run(struct worker *w)
{
    uv_run(&w->loop, UV_RUN_DEFAULT);
}

static void *thread_main(void *arg)
{
    worker_run(arg);
    return NULL;
}

void worker_start(struct worker *w)
{
    /* signals belong to the main thread */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int err = pthread_create(&w->thread, NULL, thread_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    assert(err == 0);
    w->threaded = true;
}

void worker_join(struct worker *w)
{
    if (w->threaded)
        pthread_join(w->thread, NULL);
    w->threaded = false;
}

void worker_stop(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_mutex_unlock(&w->lock);
    uv_async_send(&w->bell);
}

void worker_turn(struct worker *w)
{
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void close_own(uv_handle_t *h, void *arg)
{
    struct worker *w = arg;
    bool own = h == (uv_handle_t *)&w->prepare || h == (uv_handle_t *)&w->idle ||
               h == (uv_handle_t *)&w->bell || h == (uv_handle_t *)&w->tick || h->type == UV_SIGNAL;
    if (own && !uv_is_closing(h))
        uv_close(h, NULL);
}

/* Whoever still has handles open at the end is a leak worth an abort in tests: nothing else frees
 * them. */
void worker_free(struct worker *w)
{
    if (!w)
        return;
    bool stopping;
    worker_join(w);
    while (run_mail(w, &stopping)) /* what was posted belongs to whoever waits for it */
        ;
    empty_graves(w);
    if (w->pin)
        worker_adopt(w, NULL);
    while (!list_empty(&w->jobs))
        uv_run(&w->loop, UV_RUN_ONCE);
    uv_walk(&w->loop, close_own, w);
    for (int i = 0; i < LAST_TURNS && uv_loop_alive(&w->loop); i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
    empty_graves(w);
    int err = uv_loop_close(&w->loop);
    assert(err == 0);
    pipes_free(w);
    chunk_pool_free(w->pool);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->graves);
    mem_free(w);
}

unsigned worker_cores(void)
{
    return uv_available_parallelism();
}

unsigned worker_index(const struct worker *w)
{
    return w->index;
}

struct chunk_pool *worker_pool(struct worker *w)
{
    return w->pool;
}

uint64_t worker_now(const struct worker *w)
{
    return uv_now(&w->loop);
}

uint64_t worker_now_us(const struct worker *w)
{
    (void)w;
    return uv_hrtime() / 1000;
}

int64_t worker_unix_s(const struct worker *w)
{
    (void)w;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* not the coarse clock: an expiry is judged to the second */
    return t.tv_sec;
}

uint64_t worker_unix_ms(const struct worker *w)
{
    (void)w;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void *worker_get(const struct worker *w, enum worker_slot slot)
{
    return w->slot[slot];
}

void worker_set(struct worker *w, enum worker_slot slot, void *p)
{
    w->slot[slot] = p;
}

void timer_set(struct worker *w, struct timer *t, uint64_t ms)
{
    uint64_t due = uv_now(&w->loop) + ms;
    wheel_set(&w->wheel, t, due);
    if (due < w->tick_at)
        plan_tick(w);
}

void timer_clear(struct worker *w, struct timer *t)
{
    wheel_clear(&w->wheel, t);
}

void worker_bury(struct worker *w, void (*free_fn)(void *), void *p)
{
    if (w->ngraves == w->graves_room) {
        w->graves_room = w->graves_room ? 2 * w->graves_room : 64;
        w->graves = mem_renew(w->graves, w->graves_room * sizeof *w->graves);
    }
    w->graves[w->ngraves++] = (struct grave){free_fn, p};
}

void worker_private(struct worker *w)
{
    w->private = true;
    chunk_pool_private(w->pool);
}

bool worker_is_private(const struct worker *w)
{
    return w->private;
}

void worker_arena(const struct worker *w, struct arena *a, void *first, size_t n)
{
    if (w->private)
        arena_init_private(a, first, n);
    else
        arena_init(a, first, n);
}

void worker_hold(struct worker *w, ptrdiff_t delta)
{
    assert(delta >= 0 || w->held >= (size_t)-delta);
    w->held += (size_t)delta;
}

size_t worker_held(const struct worker *w)
{
    return chunk_pool_used(w->pool) + w->held;
}

void worker_post(struct worker *w, struct post *p)
{
    pthread_mutex_lock(&w->lock);
    p->next = NULL;
    *w->mail_tail = p;
    w->mail_tail = &p->next;
    pthread_mutex_unlock(&w->lock);
    uv_async_send(&w->bell);
}

static void start_job(struct worker *w);

static void on_work(uv_work_t *work)
{
    struct job *j = work->data;
    j->run(j->user);
}

static void on_work_done(uv_work_t *work, int status)
{
    (void)status;
    struct job *j = work->data;
    struct worker *w = j->w;
    list_del(&j->link);
    j->done(j->user);
    mem_free(j);
    start_job(w);
}

static void start_job(struct worker *w)
{
    struct list *first = list_first(&w->jobs);
    if (!first)
        return;
    struct job *j = container_of(first, struct job, link);
    if (j->work.data)
        return; /* runs already: done() queued another one behind it */
    j->work.data = j;
    int err = uv_queue_work(&w->loop, &j->work, on_work, on_work_done);
    assert(err == 0);
}

void worker_call(struct worker *w, void (*work)(void *), void (*done)(void *), void *user)
{
    struct job *j = mem_new(sizeof *j);
    j->w = w;
    j->run = work;
    j->done = done;
    j->user = user;
    list_push(&w->jobs, &j->link);
    start_job(w);
}

static void drop_pin(struct pin *p)
{
    snapshot_unref(p->snap);
    mem_free(p);
}

void worker_adopt(struct worker *w, const struct snapshot *snap)
{
    struct pin *old = w->pin;
    w->pin = NULL;
    if (snap) {
        w->pin = mem_new(sizeof *w->pin);
        w->pin->snap = snapshot_ref(snap);
        w->pin->current = true;
    }
    if (!old)
        return;
    old->current = false;
    if (old->users == 0)
        drop_pin(old);
}

struct pin *pin_get(struct worker *w)
{
    assert(w->pin);
    w->pin->users++;
    return w->pin;
}

void pin_put(struct worker *w, struct pin *p)
{
    (void)w;
    assert(p->users > 0);
    if (--p->users == 0 && !p->current)
        drop_pin(p);
}

static void on_signal(uv_signal_t *s, int signum)
{
    struct worker *w = s->data;
    w->on_signal(w->signal_user, signum);
}

void worker_signals(struct worker *w, void (*on)(void *user, int signum), void *user)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    w->on_signal = on;
    w->signal_user = user;
    for (unsigned i = 0; i < 3; i++) {
        uv_signal_init(&w->loop, &w->signals[i]);
        w->signals[i].data = w;
        uv_signal_start(&w->signals[i], on_signal, numbers[i]);
        uv_unref((uv_handle_t *)&w->signals[i]);
    }
    w->nsignals = 3;
}
