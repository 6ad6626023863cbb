/* watch.c — a look at a file once a second.  Looking, where inotify would tell, also sees what it
 * does not: links turned further up the path, files on network mounts, directories that come back.
 */
#include "net/watch.h"

#include <sys/stat.h>
#include <time.h>

#include "net/worker.h"

enum { LOOK_MS = 1000, SETTLED_MS = 20 };

/* All zero: there is nothing. */
struct look {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

enum watch_state { WATCH_WAITS, WATCH_LOOKS, WATCH_STOPPED };

struct watched {
    char *path;
    struct look seen, fresh;
    bool fresh_settled, held_back;
};

struct watch {
    struct worker *w;
    enum watch_state state; /* stopped while it looks: done() frees it */
    void (*changed)(void *user);
    void *user;
    struct timer timer;
    unsigned n;
    struct watched at[];
};

static struct look look_at(const char *path)
{
    struct stat s;
    if (stat(path, &s) < 0)
        return (struct look){0};
    return (struct look){s.st_dev, s.st_ino, s.st_size, s.st_mtim, s.st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_look(const struct look *a, const struct look *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           same_time(a->mtime, b->mtime) && same_time(a->ctime, b->ctime);
}

/* The file system stamps times by the tick of its clock: another change within the same tick would
 * look the same. */
static bool is_settled(const struct look *l)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_ms =
        ((int64_t)now.tv_sec - l->ctime.tv_sec) * 1000 + (now.tv_nsec - l->ctime.tv_nsec) / 1000000;
    return age_ms < 0 || age_ms >= SETTLED_MS;
}

static void destroy(struct watch *f)
{
    for (unsigned i = 0; i < f->n; i++)
        mem_free(f->at[i].path);
    mem_free(f);
}

/* On a thread of the pool; only path and fresh are touched. */
static void work(void *user)
{
    struct watch *f = user;
    for (unsigned i = 0; i < f->n; i++) {
        f->at[i].fresh = look_at(f->at[i].path);
        f->at[i].fresh_settled = is_settled(&f->at[i].fresh);
    }
}

static bool has_changed(struct watched *x)
{
    if (same_look(&x->fresh, &x->seen))
        return false;
    x->held_back = !x->fresh_settled &&
                   !x->held_back; /* once: a file that is written all the time changes, too */
    if (x->held_back)
        return false;
    x->seen = x->fresh;
    return true;
}

static void on_looked(void *user)
{
    struct watch *f = user;
    bool changed = false;
    if (f->state == WATCH_STOPPED) {
        destroy(f);
        return;
    }
    f->state = WATCH_WAITS;
    timer_set(f->w, &f->timer, LOOK_MS);
    for (unsigned i = 0; i < f->n; i++)
        changed |= has_changed(&f->at[i]);
    if (changed)
        f->changed(f->user);
}

static void on_timer(struct timer *t)
{
    struct watch *f = container_of(t, struct watch, timer);
    f->state = WATCH_LOOKS;
    worker_call(f->w, work, on_looked, f);
}

struct watch *watch_start_all(struct worker *w, const struct str *paths, unsigned n,
                              void (*changed)(void *user), void *user)
{
    struct watch *f = mem_new(sizeof *f + n * sizeof *f->at);
    f->w = w;
    f->changed = changed;
    f->user = user;
    f->n = n;
    for (unsigned i = 0; i < n; i++) {
        f->at[i].path = mem_strdup(paths[i]);
        /* now, so that nothing the caller reads later can change unseen */
        f->at[i].seen = look_at(f->at[i].path);
    }
    timer_init(&f->timer, on_timer);
    timer_set(w, &f->timer, LOOK_MS);
    return f;
}

struct watch *watch_start(struct worker *w, struct str path, void (*changed)(void *user),
                          void *user)
{
    return watch_start_all(w, &path, 1, changed, user);
}

void watch_stop(struct watch *f)
{
    if (!f)
        return;
    timer_clear(f->w, &f->timer);
    if (f->state == WATCH_LOOKS)
        f->state = WATCH_STOPPED;
    else
        destroy(f);
}
