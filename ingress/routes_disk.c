/* routes_disk.c — reads the file of --routes, and replaces it so that whoever reads it, at any time
 * and after any crash, sees the old routes or the new ones.  The list may be long, so it is written
 * out in pieces, each wiped behind us.  The temporary name is always the same: there is one writer,
 * and what a killed one has left behind is cleared by the next. */
#include "ingress/routes_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 65536, FIRST_ROOM = 2 * PIECE_BYTES, NEW_FILE_MODE = 0600 };

/* ---- marks ---- */

static struct routes_mark mark_from(const struct stat *s)
{
    return (struct routes_mark){true, s->st_dev, s->st_ino, s->st_size, s->st_mtim, s->st_ctim};
}

struct routes_mark routes_mark_of(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? mark_from(&s) : (struct routes_mark){.known = false};
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool routes_mark_same(const struct routes_mark *a, const struct routes_mark *b)
{
    return a->known && b->known && a->device == b->device && a->inode == b->inode &&
           a->bytes == b->bytes && same_time(&a->modified, &b->modified) &&
           same_time(&a->changed, &b->changed);
}

/* ---- faults ---- */

/* Always false, so that a function can end with it. */
static bool fault(struct json_fault *f, const char *what)
{
    *f = (struct json_fault){0};
    snprintf(f->text, sizeof f->text, "%s", what);
    return false;
}

static bool errno_fault(struct json_fault *f)
{
    char text[128];
    return fault(f, strerror_r(errno, text, sizeof text));
}

/* ---- reading ---- */

/* Up to the end, whatever its size was a moment ago. */
static bool read_fd(int fd, size_t size, struct str *ret, struct json_fault *ret_fault)
{
    size_t room = size + 1, n = 0;
    char *p = mem_renew(NULL, room);
    for (ssize_t got = 1; got != 0;) {
        if (n == room) {
            room *= 2;
            p = mem_renew_wiped(p, room);
        }
        got = read(fd, p + n, room - n);
        if (got < 0 && errno != EINTR) {
            errno_fault(ret_fault);
            mem_free_wiped(p);
            return false;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    *ret = (struct str){p, n};
    return true;
}

static bool read_open(int fd, struct str *ret, struct routes_mark *ret_mark, struct json_fault *f)
{
    struct stat before, after;
    if (fstat(fd, &before) != 0)
        return errno_fault(f);
    if (!S_ISREG(before.st_mode))
        return fault(f, "is not a regular file");
    if (!read_fd(fd, (size_t)before.st_size, ret, f))
        return false;
    struct routes_mark first = mark_from(&before), last = {.known = false};
    if (fstat(fd, &after) == 0)
        last = mark_from(&after);
    first.known = routes_mark_same(&first, &last);
    *ret_mark = first;
    return true;
}

bool routes_disk_read(const char *path, struct str *ret, struct routes_mark *ret_mark,
                      struct json_fault *ret_fault)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us up */
    if (fd < 0)
        return errno_fault(ret_fault);
    bool good = read_open(fd, ret, ret_mark, ret_fault);
    close(fd);
    return good;
}

/* ---- writing ---- */

static bool write_all(int fd, struct str s)
{
    while (s.n > 0) {
        ssize_t n = write(fd, s.p, s.n);
        if (n < 0 && errno != EINTR)
            return false;
        s = str_skip(s, n > 0 ? (size_t)n : 0);
    }
    return true;
}

static bool flush(int fd, struct json_out *o)
{
    bool good = write_all(fd, (struct str){o->p, o->n});
    mem_wipe(o->p, o->n);
    o->n = 0;
    return good;
}

/* So that it never has to grow by itself, which would leave tokens behind. */
static void make_room(struct json_out *o, size_t n)
{
    if (o->room - o->n >= n)
        return;
    o->room = o->n + n;
    o->p = mem_renew_wiped(o->p, o->room);
}

static bool write_list(int fd, const struct routes_list *l)
{
    struct json_out o = {.p = mem_new(FIRST_ROOM), .room = FIRST_ROOM};
    bool good = true;
    json_put_raw(&o, STR("{\"sandboxes\":{"));
    for (size_t i = 0; i < l->n && good; i++) {
        make_room(&o, routes_member_room(l->items[i]) + 2);
        o.comma = false;
        json_put_raw(&o, i ? STR(",\n") : STR("\n")); /* a line each, for faults and people */
        o.comma = false;
        routes_put_member(&o, l->items[i], true);
        good = o.n < PIECE_BYTES || flush(fd, &o);
    }
    make_room(&o, 8);
    o.comma = false;
    json_put_raw(&o, STR("\n}}\n"));
    good = good && flush(fd, &o);
    mem_free_wiped(o.p);
    return good;
}

/* How the old file was, for the new one. */
static bool keep_looks(int fd, const char *path)
{
    struct stat old, fresh;
    if (stat(path, &old) != 0)
        return errno == ENOENT;
    if (fstat(fd, &fresh) != 0)
        return false;
    bool other = fresh.st_uid != old.st_uid || fresh.st_gid != old.st_gid;
    if (other && fchown(fd, old.st_uid, old.st_gid) != 0 && errno != EPERM)
        return false;
    return fchmod(fd, old.st_mode & 07777) == 0;
}

/* The mark is taken after the rename, which moves the time of change on. */
static bool replace(int dir, const char *path, const char *name, const char *temporary,
                    const struct routes_list *l, struct routes_mark *ret_mark)
{
    struct stat s;
    unlinkat(dir, temporary, 0);
    int fd =
        openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, NEW_FILE_MODE);
    if (fd < 0)
        return false;
    bool good = write_list(fd, l) && keep_looks(fd, path) && fsync(fd) == 0 &&
                renameat(dir, temporary, dir, name) == 0;
    int error = errno;
    *ret_mark = good && fstat(fd, &s) == 0 ? mark_from(&s) : (struct routes_mark){.known = false};
    close(fd);
    if (!good)
        unlinkat(dir, temporary, 0);
    errno = error;
    return good;
}

static bool write_at(const char *path, const struct routes_list *l, struct routes_mark *ret_mark)
{
    char folder[PATH_MAX], temporary[NAME_MAX + 16];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    errno = ENAMETOOLONG;
    if (n >= sizeof folder || strlen(name) > NAME_MAX)
        return false;
    snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, n ? path : ".");
    snprintf(temporary, sizeof temporary, ".%s.new", name);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return false;
    bool good = replace(dir, path, name, temporary, l, ret_mark);
    int error = errno;
    if (good)
        fsync(dir); /* it is in force by now; where this cannot be done nothing else could be */
    close(dir);
    errno = error;
    return good;
}

bool routes_disk_write(const char *path, const struct routes_list *l, struct routes_mark *ret_mark,
                       struct json_fault *ret_fault)
{
    char *real = realpath(path, NULL); /* a link stays, what it leads to is replaced */
    bool good = write_at(real ? real : path, l, ret_mark) || errno_fault(ret_fault);
    free(real);
    return good;
}
