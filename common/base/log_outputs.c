/* log_outputs.c — stdout, stderr and files that turn over.  A file is renamed only if it is one of
 * ours, and a reader who is slow is waited for: only the log's own thread is held up. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log_impl.h"
#include "base/text.h"

enum {
    PIPE_WRITE = 4096, /* as much as a pipe that is ready takes without blocking */
    STOP_POLL_MS = 100,
    STOP_POLLS = 10, /* so often a sink that takes nothing is waited for in a hurry */
    FILE_MAX_BYTES = 100 << 20,
    FILE_MAX_AGE_DAYS = 30,
    FILE_MAX_BACKUPS = 10
};

/* ---- files that turn over: NAME.log → NAME-2026-01-02T03-04-05.678.log ---- */

enum { BACKUP_TIME_BYTES = 23 };

static int open_path(const char *path)
{
    /* not blocking: a FIFO nobody reads is an error now rather than a start that hangs */
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

static void split_path(struct str path, struct str *ret_dir, struct str *ret_stem,
                       struct str *ret_ext)
{
    ptrdiff_t slash = str_rchr(path, '/');
    struct str name = str_skip(path, (size_t)(slash + 1));
    *ret_dir = slash < 0 ? STR(".") : str_head(path, (size_t)(slash + 1));
    ptrdiff_t dot = str_rchr(name, '.');
    *ret_stem = dot < 0 ? name : str_head(name, (size_t)dot);
    *ret_ext = dot < 0 ? STR_NONE : str_skip(name, (size_t)dot);
}

/* Is `name` a backup of stem and ext?  Then *ret_unix_s is when it was made. */
static bool is_backup(struct str name, struct str stem, struct str ext, int64_t *ret_unix_s)
{
    char text[BACKUP_TIME_BYTES + 1];
    uint32_t ns;
    if (name.n != stem.n + 1 + BACKUP_TIME_BYTES + ext.n || !str_starts(name, stem) ||
        name.p[stem.n] != '-')
        return false;
    struct str rest = str_skip(name, stem.n + 1);
    if (!str_eq(str_skip(rest, BACKUP_TIME_BYTES), ext))
        return false;
    memcpy(text, rest.p, BACKUP_TIME_BYTES);
    if (text[13] != '-' || text[16] != '-')
        return false;
    text[13] = text[16] = ':';
    text[BACKUP_TIME_BYTES] = 'Z';
    return text_rfc3339((struct str){text, sizeof text}, ret_unix_s, &ns);
}

/* The names of all backups; the caller frees them. */
static size_t list_backups(DIR *dir, struct str stem, struct str ext, char ***ret_names)
{
    size_t n = 0, space = 0;
    int64_t unix_s;
    char **names = NULL;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!is_backup(str_of(e->d_name), stem, ext, &unix_s))
            continue;
        if (n == space) {
            space = space ? space * 2 : 16;
            names = mem_renew(names, space * sizeof *names);
        }
        names[n++] = mem_strdup(str_of(e->d_name));
    }
    *ret_names = names;
    return n;
}

static int newest_first(const void *a, const void *b)
{
    /* their times are written so that the order of bytes is the order of time */
    return strcmp(*(char *const *)b, *(char *const *)a);
}

static void remove_old_backups(const char *path)
{
    struct str dir_name, stem, ext;
    split_path(str_of(path), &dir_name, &stem, &ext);
    char *dir_path = mem_strdup(dir_name), **names;
    DIR *dir = opendir(dir_path);
    mem_free(dir_path);
    if (!dir)
        return;
    int64_t unix_s = 0, oldest_s = (int64_t)time(NULL) - FILE_MAX_AGE_DAYS * INT64_C(86400);
    size_t n = list_backups(dir, stem, ext, &names);
    if (n)
        qsort(names, n, sizeof *names, newest_first);
    for (size_t i = 0; i < n; i++) {
        if (i >= FILE_MAX_BACKUPS ||
            (is_backup(str_of(names[i]), stem, ext, &unix_s) && unix_s < oldest_s))
            unlinkat(dirfd(dir), names[i], 0);
        mem_free(names[i]);
    }
    mem_free(names);
    closedir(dir);
}

static void turn_over(struct log_output *o)
{
    char time_text[24], backup[PATH_MAX];
    struct timespec now;
    struct str dir, stem, ext;
    o->bytes =
        0; /* if anything fails here the file grows by as much again before the next attempt */
    split_path(str_of(o->path), &dir, &stem, &ext);
    clock_gettime(CLOCK_REALTIME, &now);
    text_put_iso8601(time_text, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
    time_text[13] = time_text[16] = '-';
    int n = snprintf(backup, sizeof backup, "%.*s-%.*s%.*s", (int)(strlen(o->path) - ext.n),
                     o->path, BACKUP_TIME_BYTES, time_text, STR_ARG(ext));
    if (n < 0 || (size_t)n >= sizeof backup || rename(o->path, backup) != 0)
        return;
    int fd = open_path(o->path);
    if (fd < 0)
        return;
    close(o->fd);
    o->fd = fd;
    remove_old_backups(o->path);
}

/* ---- writing ---- */

/* Waits until fd takes bytes; without end, but in a hurry not long for a reader that is not there.
 */
static bool wait_writable(struct log_outputs *o, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    for (;;) {
        int rc = poll(&p, 1, STOP_POLL_MS);
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
        if (atomic_load_explicit(&o->hurry, memory_order_relaxed) && o->polls_left-- <= 1) {
            o->polls_left = 1;
            return false;
        }
    }
}

static uint64_t count_lines(struct str text)
{
    uint64_t lines = 0;
    for (ptrdiff_t at; (at = str_chr(text, '\n')) >= 0; text = str_skip(text, (size_t)at + 1))
        lines++;
    return lines;
}

/* Returns how many lines were lost. */
static uint64_t write_text(struct log_outputs *all, struct log_output *o, struct str text)
{
    while (text.n) {
        size_t n = o->file || text.n < PIPE_WRITE ? text.n : PIPE_WRITE;
        if (!o->file && !wait_writable(all, o->fd))
            break;
        ssize_t done = write(o->fd, text.p, n);
        if (done < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (done < 0)
            break;
        o->bytes += done;
        text = str_skip(text, (size_t)done);
    }
    return count_lines(text);
}

uint64_t log_outputs_write(struct log_outputs *all, struct str first, struct str second)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < all->n; i++) {
        struct log_output *o = &all->at[i];
        if (o->file && o->bytes > 0 && o->bytes + (int64_t)(first.n + second.n) > FILE_MAX_BYTES)
            turn_over(o);
        lost += write_text(all, o, first);
        lost += write_text(all, o, second);
    }
    return lost;
}

void log_outputs_hurry(struct log_outputs *o)
{
    atomic_store(&o->hurry, true);
}

/* ---- opening and closing ---- */

void log_outputs_close(struct log_outputs *all)
{
    for (size_t i = 0; i < all->n; i++) {
        struct log_output *o = &all->at[i];
        if (o->path)
            close(o->fd);
        mem_free(o->path);
    }
    all->n = 0;
}

/* May the file at path be renamed?  Not /dev/stdout and its like, which lead to what is not ours.
 */
static bool is_own_file(const char *path)
{
    struct stat st;
    return path && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool add_output(struct log_outputs *all, struct str name, char *error, size_t error_bytes)
{
    struct log_output *o = &all->at[all->n];
    struct stat st;
    if (all->n == LOG_OUTPUTS_MAX) {
        snprintf(error, error_bytes, "more than %d log outputs", LOG_OUTPUTS_MAX);
        return false;
    }
    *o = (struct log_output){.fd = str_eq(name, STR("stderr")) ? STDERR_FILENO : STDOUT_FILENO};
    if (!str_eq(name, STR("stdout")) && !str_eq(name, STR("stderr"))) {
        o->path = mem_strdup(name);
        o->fd = open_path(o->path);
    }
    if (o->fd < 0 || fstat(o->fd, &st) != 0) {
        snprintf(error, error_bytes, "cannot open log output %.*s: %m", STR_ARG(name));
        mem_free(o->path);
        return false;
    }
    all->n++;
    o->bytes = st.st_size;
    o->file = is_own_file(o->path);
    if (o->file)
        remove_old_backups(o->path);
    return true;
}

static bool add_outputs(struct log_outputs *all, struct str outputs, char *error,
                        size_t error_bytes)
{
    struct str piece;
    while (str_next(&outputs, ',', &piece)) {
        piece = str_trim(piece);
        if (piece.n && !add_output(all, piece, error, error_bytes))
            return false;
    }
    return all->n > 0 || add_output(all, STR("stdout"), error, error_bytes);
}
bool log_outputs_open(struct log_outputs *o, struct str names, char *error, size_t error_bytes)
{
    o->n = 0;
    o->polls_left = STOP_POLLS;
    atomic_store(&o->hurry, false);
    if (add_outputs(o, names, error, error_bytes))
        return true;
    log_outputs_close(o);
    return false;
}
