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

struct watch {
    struct worker *w;
    enum watch_state state; /* stopped while it looks: done() frees it */
    char *path;
    void (*changed)(void *user);
    void *user;
    struct timer timer;
    struct look seen, fresh;
    bool fresh_settled, held_back;
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
    mem_free(f->path);
    mem_free(f);
}

/* On a thread of the pool; only path and fresh are touched. */
static void work(void *user)
{
    struct watch *f = user;
    f->fresh = look_at(f->path);
    f->fresh_settled = is_settled(&f->fresh);
}

static void on_looked(void *user)
{
    struct watch *f = user;
    if (f->state == WATCH_STOPPED) {
        destroy(f);
        return;
    }
    f->state = WATCH_WAITS;
    timer_set(f->w, &f->timer, LOOK_MS);
    if (same_look(&f->fresh, &f->seen))
        return;
    f->held_back = !f->fresh_settled &&
                   !f->held_back; /* once: a file that is written all the time changes, too */
    if (f->held_back)
        return;
    f->seen = f->fresh;
    f->changed(f->user);
}

static void on_timer(struct timer *t)
{
    struct watch *f = container_of(t, struct watch, timer);
    f->state = WATCH_LOOKS;
    worker_call(f->w, work, on_looked, f);
}

struct watch *watch_start(struct worker *w, struct str path, void (*changed)(void *user),
                          void *user)
{
    struct watch *f = mem_new(sizeof *f);
    f->w = w;
    f->path = mem_strdup(path);
    f->changed = changed;
    f->user = user;
    f->seen = look_at(f->path); /* now, so that nothing the caller reads later can change unseen */
    timer_init(&f->timer, on_timer);
    timer_set(w, &f->timer, LOOK_MS);
    return f;
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
