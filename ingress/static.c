/* static.c — the resolver that reads a file, and takes changes beside it.  The list in force is
 * sorted by id and never changed; each step (static_load.c) makes a new one off the loop, one step
 * after the other, so that a change is judged by what is in force when its turn comes.  What a step
 * found is told in slices, a turn each, since the file may be large. */
#include "ingress/static.h"

#include <assert.h>
#include <stdio.h>

#include "base/log.h"
#include "ingress/settings.h"
#include "ingress/static_impl.h"
#include "net/watch.h"
#include "net/worker.h"

enum { TELL_SLICE = 1024, EXPIRY_SLICE = 4096, RECHECK_MS = 1000 };

enum static_state {
    STATIC_IDLE,
    STATIC_LOADING, /* a job is under way */
    STATIC_TELLING, /* the post is under way */
    STATIC_STOPPED  /* one of the two was, and frees it all when it comes home */
};

struct static_routes {
    struct worker *w;
    char *path; /* NULL: there is no file */
    struct resolver_events ev;
    void *user;
    enum static_state state;
    bool again; /* asked for another reading while busy */
    bool asked; /* by a person, who wants to hear of a fault even if it is the old one */
    bool ready;
    struct watch *watch;
    struct post turn;
    struct list edits; /* that wait for their step */
    struct load load;
    size_t told; /* items of load: first those gone, then those put */

    struct routes_list before; /* replaced; while the difference is told */
    struct routes_list list;   /* in force ... */
    struct routes_mark mark;   /* of the file it stands in ... */
    bool ours;                 /* ... which we have written */
    int64_t expired_s;         /* ... but what ended up to here was told to be gone */
    struct sandbox **expiring; /* by time; borrowed from list */
    size_t nexpiring, expired;
    struct timer expiry;

    struct json_fault fault; /* the last one, until a good reading */
    int64_t read_s;
    uint64_t faults, changes;
};

static void load_work(void *user)
{
    struct static_routes *s = user;
    uint64_t start_us = worker_now_us(s->w);
    load_run(&s->load);
    s->load.took_us = worker_now_us(s->w) - start_us;
}

/* ---- what is over ---- */

/* The old list and the arrays of a reading, which may be large: freed off the loop. */
struct remains {
    struct routes_list list;
    const struct sandbox **put;
    struct str *gone;
};

static void remains_work(void *user)
{
    struct remains *r = user;
    routes_list_free(&r->list);
    mem_free(r->put);
    mem_free(r->gone);
}

static void end_edits(struct list *edits, enum static_outcome outcome)
{
    for (struct list *l; (l = list_pop(edits));) {
        struct static_edit *e = container_of(l, struct static_edit, link);
        e->outcome = outcome;
        e->done(e);
    }
}

static void destroy(struct static_routes *s)
{
    end_edits(&s->load.edits, EDIT_STOPPED);
    load_done(&s->load);
    routes_list_free(&s->before);
    routes_list_free(&s->list);
    mem_free(s->expiring);
    mem_free(s->path);
    mem_free(s);
}

/* ---- faults ---- */

static struct str fault_text(const struct static_routes *s, struct arena *a)
{
    const struct json_fault *f = &s->load.fault;
    if (!s->path)
        return str_of(f->text);
    if (f->line == 0)
        return arena_printf(a, "%s: %s", s->path, f->text);
    return arena_printf(a, "%s:%u:%u: %s", s->path, f->line, f->column, f->text);
}

static bool same_fault(const struct json_fault *a, const struct json_fault *b)
{
    return a->line == b->line && a->column == b->column && strcmp(a->text, b->text) == 0;
}

static void note_fault(struct static_routes *s)
{
    char first[512];
    struct arena a;
    bool known = same_fault(&s->fault, &s->load.fault);
    s->faults++;
    s->fault = s->load.fault;
    if (known && !s->asked)
        return;
    s->asked = false;
    arena_init(&a, first, sizeof first);
    log_note(LOG_ERROR, "--routes: not usable, nothing changed", "fault", fault_text(s, &a).p,
             NULL);
    arena_done(&a);
}

static void note_read(const struct static_routes *s)
{
    struct log_line line;
    log_begin(&line, LOG_INFO, list_empty(&s->load.edits) ? "routes read" : "routes changed");
    log_int(&line, "sandboxes", (int64_t)static_size(s));
    log_int(&line, "put", (int64_t)s->load.nput);
    log_int(&line, "gone", (int64_t)s->load.ngone);
    log_ms(&line, "ms", s->load.took_us);
    log_end(&line);
}

/* ---- time ---- */

/* The wall clock may be set, so even a distant end is looked at from time to time. */
static void plan_expiry(struct static_routes *s)
{
    if (s->expired == s->nexpiring)
        return;
    int64_t wait = s->expiring[s->expired]->until_unix_s * 1000 - (int64_t)worker_unix_ms(s->w);
    timer_set(s->w, &s->expiry, wait < 0 ? 0 : wait < RECHECK_MS ? (uint64_t)wait : RECHECK_MS);
}

static size_t count_expired(const struct static_routes *s, int64_t now_s)
{
    size_t n = 0;
    while (n < EXPIRY_SLICE && s->expired + n < s->nexpiring &&
           s->expiring[s->expired + n]->until_unix_s <= now_s)
        n++;
    return n;
}

static void on_expiry(struct timer *t)
{
    struct static_routes *s = container_of(t, struct static_routes, expiry);
    int64_t now_s = worker_unix_s(s->w);
    size_t n = count_expired(s, now_s);
    struct str *gone = mem_new(n * sizeof *gone);
    for (size_t i = 0; i < n; i++)
        gone[i] = s->expiring[s->expired++]->id;
    bool more = s->expired < s->nexpiring && s->expiring[s->expired]->until_unix_s <= now_s;
    s->expired_s = more ? s->expiring[s->expired]->until_unix_s - 1 : now_s;
    plan_expiry(s);
    if (n > 0)
        s->ev.change(s->user, NULL, 0, gone, n);
    mem_free(gone);
}

/* ---- changes ---- */

/* Of a step that went well each has its outcome already. */
static void answer_edits(struct static_routes *s, struct list *edits, const struct str *fault)
{
    for (struct list *l; (l = list_pop(edits));) {
        struct static_edit *e = container_of(l, struct static_edit, link);
        if (fault) {
            e->outcome = EDIT_FAILED;
            e->fault = *fault;
        } else {
            s->changes += e->outcome == EDIT_CREATED || e->outcome == EDIT_REPLACED ||
                          e->outcome == EDIT_DELETED;
        }
        e->done(e);
    }
}

static void fail_edits(struct static_routes *s, struct list *edits)
{
    char first[512];
    struct arena a;
    arena_init(&a, first, sizeof first);
    struct str fault = fault_text(s, &a);
    log_note(LOG_ERROR, "routes not changed", "fault", fault.p, NULL);
    answer_edits(s, edits, &fault);
    arena_done(&a);
}

static void move_edits(struct list *from, struct list *to)
{
    list_init(to);
    for (struct list *l; (l = list_pop(from));)
        list_push(to, l);
}

/* ---- telling ---- */

static void next_step(struct static_routes *s);

static void finish(struct static_routes *s)
{
    bool first = !s->ready;
    struct list edits;
    struct remains *r = mem_new(sizeof *r);
    *r = (struct remains){s->before, s->load.put, s->load.gone};
    note_read(s);
    move_edits(&s->load.edits, &edits);
    s->before = (struct routes_list){NULL, 0};
    s->load.put = NULL;
    s->load.gone = NULL;
    s->ready = true;
    s->state = STATIC_IDLE;
    worker_call(s->w, remains_work, mem_free, r);
    plan_expiry(s);
    next_step(s);
    answer_edits(s, &edits, NULL);
    if (first)
        s->ev.ready(s->user); /* last: it may stop us, and so may change() below */
}

static void on_turn(struct worker *w, struct post *p)
{
    struct static_routes *s = container_of(p, struct static_routes, turn);
    struct load *l = &s->load;
    if (s->state == STATIC_STOPPED) {
        destroy(s);
        return;
    }
    size_t at = s->told, all = l->ngone + l->nput;
    if (at == all) {
        finish(s);
        return;
    }
    size_t end = all - at > TELL_SLICE ? at + TELL_SLICE : all;
    size_t gone_at = at < l->ngone ? at : l->ngone, gone_end = end < l->ngone ? end : l->ngone;
    size_t put_at = at - gone_at, put_end = end - gone_end;
    s->told = end;
    worker_post(w, &s->turn);
    s->ev.change(s->user, l->put + put_at, put_end - put_at, l->gone + gone_at, gone_end - gone_at);
}

static void take_over(struct static_routes *s, struct load *l)
{
    mem_free(s->expiring);
    s->before = s->list;
    s->list = l->fresh;
    s->mark = l->mark;
    s->ours = l->ours;
    s->expired_s = l->now_s;
    s->expiring = l->expiring;
    s->nexpiring = l->nexpiring;
    s->expired = 0;
    l->old = l->fresh = (struct routes_list){NULL, 0};
    l->expiring = NULL;
}

/* The new list is in force.  Nothing expires until all of it was told: gone must not come before
 * put. */
static void install(struct static_routes *s)
{
    timer_clear(s->w, &s->expiry);
    take_over(s, &s->load);
    s->read_s = s->load.now_s;
    s->faults = 0;
    s->fault = (struct json_fault){0};
    s->asked = false;
    s->told = 0;
    s->state = STATIC_TELLING;
    s->turn.run = on_turn;
    worker_post(s->w, &s->turn);
}

/* A step that changes nothing. */
static void drop(struct static_routes *s)
{
    bool asked_to_read = list_empty(&s->load.edits);
    struct list edits;
    move_edits(&s->load.edits, &edits);
    s->state = STATIC_IDLE;
    if (s->load.result == LOAD_SAME)
        answer_edits(s, &edits, NULL);
    else if (asked_to_read)
        note_fault(s);
    else
        fail_edits(s, &edits);
    next_step(s);
}

static void on_loaded(void *user)
{
    struct static_routes *s = user;
    if (s->state == STATIC_STOPPED)
        destroy(s);
    else if (s->load.result == LOAD_GOOD)
        install(s);
    else
        drop(s);
}

static void prepare_load(struct static_routes *s)
{
    s->load = (struct load){.path = s->path,
                            .old = s->list,
                            .old_expired_s = s->expired_s,
                            .now_s = worker_unix_s(s->w),
                            .mark = s->mark,
                            .ours = s->ours,
                            .force = s->asked};
    list_init(&s->load.edits);
    s->state = STATIC_LOADING;
}

/* A reading that is due comes first: changes are made to what it finds. */
static void next_step(struct static_routes *s)
{
    if (s->state != STATIC_IDLE || (!s->again && list_empty(&s->edits)))
        return;
    prepare_load(s);
    if (s->again)
        s->again = false;
    else
        move_edits(&s->edits, &s->load.edits);
    worker_call(s->w, load_work, on_loaded, s);
}

static void begin(struct static_routes *s)
{
    s->again = true;
    next_step(s);
}

void static_change(struct static_routes *s, struct static_edit *e)
{
    list_push(&s->edits, &e->link);
    next_step(s);
}

/* ---- the resolver ---- */

static void on_changed(void *user)
{
    begin(user);
}

struct static_routes *static_start(struct worker *w, struct str path,
                                   const struct resolver_events *ev, void *user, struct arena *a,
                                   struct str *ret_error)
{
    struct static_routes *s = mem_new(sizeof *s);
    s->w = w;
    s->path = path.n ? mem_strdup(path) : NULL;
    s->ev = *ev;
    s->user = user;
    list_init(&s->edits);
    timer_init(&s->expiry, on_expiry);
    /* before the first reading, so that nothing changes between the two */
    s->watch = s->path ? watch_start(w, path, on_changed, s) : NULL;
    prepare_load(s);
    load_work(s);
    if (s->load.result != LOAD_GOOD) {
        *ret_error = arena_cat(a, STR("--routes: "), fault_text(s, a));
        watch_stop(s->watch);
        destroy(s);
        return NULL;
    }
    if (!s->path)
        log_note(LOG_WARN, "routes live in memory only: --routes names no file", NULL);
    install(s);
    return s;
}

void static_reload(struct static_routes *s)
{
    if (!s->path)
        return;
    s->asked = true;
    begin(s);
}

void static_stop(struct static_routes *s)
{
    if (!s)
        return;
    assert(s->state != STATIC_STOPPED);
    bool busy = s->state != STATIC_IDLE;
    watch_stop(s->watch);
    timer_clear(s->w, &s->expiry);
    s->state = STATIC_STOPPED;
    end_edits(&s->edits, EDIT_STOPPED);
    if (!busy)
        destroy(s);
}

static bool has_ended(const struct static_routes *s, const struct sandbox *x)
{
    return x->until_unix_s <= s->expired_s || x->until_unix_s <= worker_unix_s(s->w);
}

const struct sandbox *static_get(const struct static_routes *s, struct str id)
{
    bool there;
    size_t at = routes_list_find(&s->list, id, &there);
    return there && !has_ended(s, s->list.items[at]) ? s->list.items[at] : NULL;
}

void static_each(const struct static_routes *s,
                 void (*each)(void *user, const struct sandbox *sandbox), void *user)
{
    for (size_t i = 0; i < s->list.n; i++)
        if (!has_ended(s, s->list.items[i]))
            each(user, s->list.items[i]);
}

size_t static_size(const struct static_routes *s)
{
    return s->list.n - s->expired;
}

int64_t static_read_s(const struct static_routes *s)
{
    return s->read_s;
}

uint64_t static_faults(const struct static_routes *s)
{
    return s->faults;
}

bool static_check(struct str path, struct arena *a, struct str *ret_error)
{
    if (!path.n)
        return true;
    struct static_routes s = {.path = mem_strdup(path)};
    s.load.path = s.path;
    bool good = load_read(&s.load);
    if (!good)
        *ret_error = arena_cat(a, STR("--routes: "), fault_text(&s, a));
    routes_list_free(&s.load.fresh);
    mem_free(s.path);
    return good;
}

/* ---- as a resolver */

static bool check(const struct ingress_settings *set, struct arena *a, struct str *ret_error)
{
    return static_check(set->routes, a, ret_error);
}

static void *start(struct worker *w, const struct ingress_settings *set,
                   const struct resolver_events *ev, void *user, struct arena *a,
                   struct str *ret_error)
{
    return static_start(w, set->routes, ev, user, a, ret_error);
}

static void reload(void *self)
{
    static_reload(self);
}

static void stop(void *self)
{
    static_stop(self);
}

static void metrics(void *self, struct metrics_out *o)
{
    const struct static_routes *s = self;
    metrics_single(o, "ingress.routes.sandboxes", "gauge", "Sandboxes of the route file",
                   (double)static_size(s));
    metrics_single(o, "ingress.routes.age.seconds", "gauge",
                   "Seconds since the route file was last read well",
                   (double)(worker_unix_s(s->w) - static_read_s(s)));
    metrics_single(o, "ingress.routes.faults", "counter",
                   "Readings of the route file that changed nothing", (double)static_faults(s));
    metrics_single(o, "ingress.routes.changes", "counter", "Routes put and deleted over REST",
                   (double)s->changes);
}

const struct resolver static_resolver = {.name = "static",
                                         .check = check,
                                         .start = start,
                                         .reload = reload,
                                         .stop = stop,
                                         .metrics = metrics};
