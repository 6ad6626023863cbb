/* static.c — the resolver that reads a file.  The list in force is sorted by id and never changed;
 * a read makes a new one off the loop, in which a sandbox whose entry did not change is the old
 * record, so that the difference falls out of one walk over both.  What it found is told in slices,
 * a turn each, since the file may be large. */
#include "ingress/static.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/log.h"
#include "ingress/routes_file.h"
#include "net/watch.h"
#include "net/worker.h"

enum { TELL_SLICE = 1024, EXPIRY_SLICE = 4096, RECHECK_MS = 1000 };

/* One reading of the file: what a thread of the pool is given, and what it makes of it. */
struct load {
    struct routes_list old; /* borrowed: what is in force */
    int64_t old_expired_s, now_s;

    bool good;
    struct json_fault fault; /* line 0: the file could not be read */
    struct routes_list fresh;
    const struct sandbox **put;
    struct str *gone; /* ids lie in records of the old list */
    size_t nput, ngone;
    struct sandbox **expiring; /* those of fresh that end some time, by time */
    size_t nexpiring;
    uint64_t took_us;
};

enum static_state {
    STATIC_IDLE,
    STATIC_LOADING, /* a job is under way */
    STATIC_TELLING, /* the post is under way */
    STATIC_STOPPED  /* one of the two was, and frees it all when it comes home */
};

struct static_routes {
    struct worker *w;
    char *path;
    struct resolver_events ev;
    void *user;
    enum static_state state;
    bool again; /* asked for another reading while busy */
    bool asked; /* by a person, who wants to hear of a fault even if it is the old one */
    bool ready;
    struct watch *watch;
    struct post turn;
    struct load load;
    size_t told; /* items of load: first those gone, then those put */

    struct routes_list before; /* replaced; while the difference is told */
    struct routes_list list;   /* in force ... */
    int64_t expired_s;         /* ... but what ended up to here was told to be gone */
    struct sandbox **expiring; /* by time; borrowed from list */
    size_t nexpiring, expired;
    struct timer expiry;

    struct json_fault fault; /* the last one, until a good reading */
    int64_t read_s;
    uint64_t faults;
};

/* ---- reading, on a thread of the pool ---- */

static bool io_fault(struct load *l, const char *what)
{
    l->fault = (struct json_fault){0};
    snprintf(l->fault.text, sizeof l->fault.text, "%s", what);
    return false;
}

static bool errno_fault(struct load *l)
{
    char text[128];
    return io_fault(l, strerror_r(errno, text, sizeof text));
}

/* Up to the end, whatever its size was a moment ago. */
static bool read_fd(struct load *l, int fd, size_t size, struct str *ret)
{
    size_t room = size + 1, n = 0;
    char *p = mem_renew(NULL, room);
    for (ssize_t got = 1; got != 0;) {
        if (n == room) {
            char *more = mem_renew(NULL, room * 2);
            memcpy(more, p, n);
            digest_wipe(p, n); /* there are tokens in it */
            mem_free(p);
            p = more;
            room *= 2;
        }
        got = read(fd, p + n, room - n);
        if (got < 0 && errno != EINTR) {
            errno_fault(l);
            digest_wipe(p, n);
            mem_free(p);
            return false;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    *ret = (struct str){p, n};
    return true;
}

static bool read_file(struct load *l, const char *path, struct str *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us up */
    if (fd < 0)
        return errno_fault(l);
    struct stat s;
    bool good = fstat(fd, &s) == 0 || errno_fault(l);
    if (good && !S_ISREG(s.st_mode))
        good = io_fault(l, "is not a regular file");
    good = good && read_fd(l, fd, (size_t)s.st_size, ret);
    close(fd);
    return good;
}

static void read_routes(struct load *l, const char *path)
{
    struct str text;
    if (!read_file(l, path, &text))
        return;
    l->good = routes_parse(text, &l->fresh, &l->fault);
    digest_wipe((void *)(uintptr_t)text.p, text.n);
    mem_free((void *)(uintptr_t)text.p);
}

static void leave_out_expired(struct routes_list *list, int64_t now_s)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i]->until_unix_s > now_s)
            list->items[n++] = list->items[i];
        else
            sandbox_unref(list->items[i]);
    }
    list->n = n;
}

/* fresh[j], against old[i] of the same id or none: the old record stays if it says the same. */
static void compare(struct load *l, struct sandbox *old, size_t j)
{
    struct sandbox **fresh = &l->fresh.items[j];
    if (!old || old->until_unix_s <= l->old_expired_s || !sandbox_same(old, *fresh)) {
        l->put[l->nput++] = *fresh;
        return;
    }
    sandbox_unref(*fresh);
    sandbox_ref(old);
    *fresh = old;
}

static void find_difference(struct load *l)
{
    const struct routes_list *old = &l->old, *fresh = &l->fresh;
    l->put = mem_new(fresh->n * sizeof *l->put);
    l->gone = mem_new(old->n * sizeof *l->gone);
    for (size_t i = 0, j = 0; i < old->n || j < fresh->n;) {
        int order = i == old->n     ? 1
                    : j == fresh->n ? -1
                                    : str_cmp(old->items[i]->id, fresh->items[j]->id);
        if (order < 0 && old->items[i]->until_unix_s > l->old_expired_s)
            l->gone[l->ngone++] = old->items[i]->id;
        if (order >= 0)
            compare(l, order == 0 ? old->items[i] : NULL, j);
        i += order <= 0;
        j += order >= 0;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct sandbox *const *x = a, *const *y = b;
    return ((*x)->until_unix_s > (*y)->until_unix_s) - ((*x)->until_unix_s < (*y)->until_unix_s);
}

static void find_expiring(struct load *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->fresh.n; i++)
        n += l->fresh.items[i]->until_unix_s != INT64_MAX;
    l->expiring = mem_new(n * sizeof *l->expiring);
    for (size_t i = 0; i < l->fresh.n; i++)
        if (l->fresh.items[i]->until_unix_s != INT64_MAX)
            l->expiring[l->nexpiring++] = l->fresh.items[i];
    qsort(l->expiring, n, sizeof *l->expiring, by_time);
}

static void load_work(void *user)
{
    struct static_routes *s = user;
    struct load *l = &s->load;
    uint64_t start_us = worker_now_us(s->w);
    read_routes(l, s->path);
    if (!l->good)
        return;
    leave_out_expired(&l->fresh, l->now_s);
    find_difference(l);
    find_expiring(l);
    l->took_us = worker_now_us(s->w) - start_us;
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

static void destroy(struct static_routes *s)
{
    routes_list_free(&s->load.fresh);
    mem_free(s->load.put);
    mem_free(s->load.gone);
    mem_free(s->load.expiring);
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
    log_begin(&line, LOG_INFO, "routes read");
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

/* ---- telling ---- */

static void begin(struct static_routes *s);

static void finish(struct static_routes *s)
{
    bool first = !s->ready;
    struct remains *r = mem_new(sizeof *r);
    *r = (struct remains){s->before, s->load.put, s->load.gone};
    note_read(s);
    s->before = (struct routes_list){NULL, 0};
    s->load = (struct load){0};
    s->ready = true;
    s->state = STATIC_IDLE;
    worker_call(s->w, remains_work, mem_free, r);
    plan_expiry(s);
    if (s->again)
        begin(s);
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

static void on_loaded(void *user)
{
    struct static_routes *s = user;
    if (s->state == STATIC_STOPPED) {
        destroy(s);
        return;
    }
    if (s->load.good) {
        install(s);
        return;
    }
    note_fault(s);
    s->state = STATIC_IDLE;
    if (s->again)
        begin(s);
}

static void prepare_load(struct static_routes *s)
{
    s->load =
        (struct load){.old = s->list, .old_expired_s = s->expired_s, .now_s = worker_unix_s(s->w)};
    s->again = false;
    s->state = STATIC_LOADING;
}

static void begin(struct static_routes *s)
{
    if (s->state != STATIC_IDLE) {
        s->again = true;
        return;
    }
    prepare_load(s);
    worker_call(s->w, load_work, on_loaded, s);
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
    s->path = mem_strdup(path);
    s->ev = *ev;
    s->user = user;
    timer_init(&s->expiry, on_expiry);
    /* before the first reading, so that nothing changes between the two */
    s->watch = watch_start(w, path, on_changed, s);
    prepare_load(s);
    load_work(s);
    if (!s->load.good) {
        *ret_error = arena_cat(a, STR("--routes: "), fault_text(s, a));
        watch_stop(s->watch);
        destroy(s);
        return NULL;
    }
    install(s);
    return s;
}

void static_reload(struct static_routes *s)
{
    s->asked = true;
    begin(s);
}

void static_stop(struct static_routes *s)
{
    if (!s)
        return;
    assert(s->state != STATIC_STOPPED);
    watch_stop(s->watch);
    timer_clear(s->w, &s->expiry);
    if (s->state == STATIC_IDLE)
        destroy(s);
    else
        s->state = STATIC_STOPPED;
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
    struct static_routes s = {.path = mem_strdup(path)};
    read_routes(&s.load, s.path);
    if (!s.load.good)
        *ret_error = arena_cat(a, STR("--routes: "), fault_text(&s, a));
    routes_list_free(&s.load.fresh);
    mem_free(s.path);
    return s.load.good;
}
