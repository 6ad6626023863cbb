/* file.c — replaces a file so that whoever reads it, at any time and after any crash, sees the old
 * bytes or the new ones.  The temporary name is always the same: there is one writer, and what a
 * killed one has left behind is cleared by the next. */
#include "egress/state/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NEW_FILE_MODE = 0600 };

void file_bytes_done(struct file_bytes *f)
{
    mem_free(f->p);
    *f = (struct file_bytes){.exists = false};
}

/* ---- reading */

static int read_whole(int fd, size_t max_bytes, struct file_bytes *f)
{
    size_t room = 0;
    for (ssize_t got = 1; got != 0;) {
        if (f->n > max_bytes)
            return -EFBIG;
        if (f->n == room) {
            room = room ? 2 * room : 4096;
            f->p = mem_renew(f->p, room);
        }
        got = read(fd, f->p + f->n, room - f->n);
        if (got < 0 && errno != EINTR)
            return -errno;
        f->n += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static int read_open(int fd, size_t max_bytes, struct file_bytes *f)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    *f = (struct file_bytes){
        .exists = true, .mode = st.st_mode & 07777, .uid = st.st_uid, .gid = st.st_gid};
    return read_whole(fd, max_bytes, f);
}

int file_get(const char *path, size_t max_bytes, struct file_bytes *ret)
{
    struct file_bytes f = {.exists = false};
    /* a pipe in its place must not hold us up */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
        return -errno;
    int error = fd < 0 ? 0 : read_open(fd, max_bytes, &f);
    if (fd >= 0)
        close(fd);
    if (error)
        file_bytes_done(&f);
    else
        *ret = f;
    return error;
}

/* ---- writing */

static int write_whole(int fd, const struct file_bytes *f)
{
    for (size_t done = 0; done < f->n;) {
        ssize_t n = write(fd, f->p + done, f->n - done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Some file systems have nothing to say about folders. */
static int sync_folder(int dir)
{
    return fsync(dir) < 0 && errno != EINVAL ? -errno : 0;
}

static int fill(int fd, const struct file_bytes *f)
{
    struct stat st;
    int error = write_whole(fd, f);
    if (error)
        return error;
    if (fstat(fd, &st) < 0)
        return -errno;
    bool other_owner = st.st_uid != f->uid || st.st_gid != f->gid;
    if (other_owner && fchown(fd, f->uid, f->gid) < 0 && errno != EPERM)
        return -errno;
    return fchmod(fd, f->mode) < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int replace(int dir, const char *name, const char *temporary, const struct file_bytes *f)
{
    unlinkat(dir, temporary, 0);
    int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, NEW_FILE_MODE);
    if (fd < 0)
        return -errno;
    int error = fill(fd, f);
    if (close(fd) < 0 && !error)
        error = -errno;
    if (!error && renameat(dir, temporary, dir, name) < 0)
        error = -errno;
    if (error)
        unlinkat(dir, temporary, 0);
    return error ? error : sync_folder(dir);
}

static int put_in_place(const char *path, const struct file_bytes *f)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, NEW_FILE_MODE);
    if (fd < 0)
        return -errno;
    int error = write_whole(fd, f);
    if (!error && (ftruncate(fd, (off_t)f->n) < 0 || fsync(fd) < 0))
        error = -errno;
    if (close(fd) < 0 && !error)
        error = -errno;
    return error;
}

/* The name cannot be replaced, which says nothing about what stands under it. */
static bool needs_place(int error)
{
    return error == -EBUSY || error == -EXDEV || error == -EACCES || error == -EPERM ||
           error == -EROFS || error == -ENAMETOOLONG;
}

static int take_away(int dir, const char *name)
{
    return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? -errno : sync_folder(dir);
}

static int put_at(const char *path, const struct file_bytes *f)
{
    char folder[PATH_MAX], temporary[NAME_MAX + 16];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder || strlen(name) > NAME_MAX)
        return -ENAMETOOLONG;
    snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, n ? path : ".");
    snprintf(temporary, sizeof temporary, ".%s.new", name);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    int error = f->exists ? replace(dir, name, temporary, f) : take_away(dir, name);
    close(dir);
    return f->exists && needs_place(error) ? put_in_place(path, f) : error;
}

int file_put(const char *path, const struct file_bytes *f)
{
    char *real = realpath(path, NULL);
    int error = put_at(real ? real : path, f);
    free(real);
    return error;
}
