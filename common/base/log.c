/* log.c — lines are made on the caller's stack, copied into one ring of bytes under a lock nobody
 * holds long, and written by a thread.  The thread naps a moment after each batch, so that under
 * load a line costs a copy and no system call; it is woken only out of its real sleep.  Whoever
 * logs never waits for a sink: when the ring is full the line is lost, and counted. */
#include "base/log.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

enum {
    RING_BYTES = 1 << 20,
    OUTPUTS_MAX = 8,
    LEVEL_OFF = LOG_FATAL + 1,
    NAP_MS = 10,
    END_BYTES = 16,    /* kept free for what log_end() adds */
    PIPE_WRITE = 4096, /* as much as a pipe that is ready takes without blocking */
    STOP_POLL_MS = 100,
    STOP_POLLS = 10, /* so often log_stop() waits for a sink that takes nothing */
    FILE_MAX_BYTES = 100 << 20,
    FILE_MAX_AGE_DAYS = 30,
    FILE_MAX_BACKUPS = 10,
    RARE_NOTES = 128,
};

static const char *const level_texts[] = {"debug", "info", "warn", "error", "fatal"};

/* No field of such a name is ever printed, in whatever spelling (B5).  Shortest first. */
static const struct str log_masked[] = {
#define M(name)                \
    {                          \
        name, sizeof(name) - 1 \
    }
    M("token"),
    M("cookie"),
    M("secret"),
    M("api_key"),
    M("password"),
    M("signature"),
    M("credential"),
    M("set-cookie"),
    M("access_token"),
    M("authorization"),
    M("proxy-authorization"),
    M("open-sandbox-api-key"),
    M("opensandbox-egress-auth"),
    M("opensandbox-secure-access"),
    M("x-fast-sandbox-route-credential"),
#undef M
};

struct output {
    int fd;
    bool file;     /* a regular file of ours, which turns over */
    char *path;    /* NULL: stdout or stderr, which are not ours to close */
    int64_t bytes; /* in the file */
};

struct rare_note {
    const char *msg;
    uint64_t last_ms, left_out;
};

/* The log is global because the process is: it has one standard output, and everything that logs,
 * from any thread, must end up in one order in one place.  This is all of its state. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool running, stopping, sleeping, napping; /* under the lock */
    uint64_t head, tail;                       /* bytes ever written, read; under the lock */
    uint8_t *ring;
    atomic_int level;
    atomic_bool hurry; /* log_stop() waits */
    _Atomic uint64_t lost;
    struct output outputs[OUTPUTS_MAX]; /* the thread's, as all that follows */
    size_t output_count;
    unsigned polls_left;
    uint64_t lost_told;
    char after_ts[256]; /* what stands between ts and the message */
    size_t after_ts_len;
    pthread_mutex_t rare_lock;
    struct rare_note rare[RARE_NOTES];
} the_log = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .rare_lock = PTHREAD_MUTEX_INITIALIZER, .level = LEVEL_OFF};

/* ---- levels ---- */

bool log_level_parse(struct str s, enum log_level *ret)
{
    for (enum log_level level = LOG_DEBUG; level <= LOG_FATAL; level++) {
        bool alias = level == LOG_WARN && str_ieq(s, STR("warning"));
        if (!alias && !str_ieq(s, str_of(level_texts[level])))
            continue;
        *ret = level;
        return true;
    }
    return false;
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&the_log.level, (int)level, memory_order_release);
}

bool log_on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&the_log.level, memory_order_acquire);
}

uint64_t log_lost(void)
{
    return atomic_load_explicit(&the_log.lost, memory_order_relaxed);
}

/* ---- making a line ---- */

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The time of day as text, made once per thread and millisecond. */
static struct str stamp(void)
{
    static _Thread_local struct {
        uint64_t ms;
        char text[24];
    } cache;
    uint64_t ms = clock_ms(CLOCK_REALTIME);
    if (cache.ms != ms) {
        text_put_iso8601(cache.text, ms);
        cache.ms = ms;
    }
    return (struct str){cache.text, sizeof cache.text};
}

static size_t room(const struct log_line *l)
{
    return sizeof l->text - END_BYTES - l->n;
}

static bool put(struct log_line *l, struct str s)
{
    if (s.n > room(l))
        return false;
    memcpy(l->text + l->n, s.p, s.n);
    l->n += s.n;
    return true;
}

static bool put_escaped(struct log_line *l, struct str s)
{
    size_t space = room(l), n = text_put_json(l->text + l->n, space, s);
    l->n += n;
    /* with less room left than an escape has bytes it may have been cut */
    return s.n * 6 <= space || space - n >= 6;
}

/* ,"key": */
static bool put_key(struct log_line *l, struct str key)
{
    if (key.n + 4 > room(l))
        return false;
    char *at = l->text + l->n;
    memcpy(at, ",\"", 2);
    memcpy(at + 2, key.p, key.n);
    memcpy(at + 2 + key.n, "\":", 2);
    l->n += key.n + 4;
    return true;
}

/* A field is there whole or not at all. */
static void keep_if(struct log_line *l, size_t before, bool whole)
{
    if (whole)
        return;
    l->n = before;
    l->full = true;
}

static bool is_masked(struct str key)
{
    for (size_t i = 0; i < sizeof log_masked / sizeof *log_masked && log_masked[i].n <= key.n; i++)
        if (key.n == log_masked[i].n && str_ieq(key, log_masked[i]))
            return true;
    return false;
}

void log_begin(struct log_line *l, enum log_level level, const char *msg)
{
    l->level = level;
    l->full = false;
    l->n = 0;
    if (!log_on(level))
        return;
    put(l, STR("{\"level\":\""));
    put(l, str_of(level_texts[level]));
    put(l, STR("\",\"ts\":\""));
    put(l, stamp());
    put(l, (struct str){the_log.after_ts, the_log.after_ts_len});
    size_t before = l->n;
    keep_if(l, before, put_escaped(l, str_of(msg)));
    put(l, STR("\""));
}

/* A line that nobody wants stays empty. */
static bool wanted(const struct log_line *l)
{
    return l->n > 0;
}

static void put_value(struct log_line *l, const char *key, struct str value)
{
    size_t before = l->n;
    keep_if(l, before, put_key(l, str_of(key)) && put(l, value));
}

void log_str(struct log_line *l, const char *key, struct str value)
{
    if (!wanted(l))
        return;
    struct str k = str_of(key);
    if (is_masked(k))
        value = STR("***");
    size_t before = l->n;
    keep_if(l, before,
            put_key(l, k) && put(l, STR("\"")) && put_escaped(l, value) && put(l, STR("\"")));
}

void log_int(struct log_line *l, const char *key, int64_t value)
{
    char text[21] = "-";
    if (!wanted(l))
        return;
    bool minus = value < 0;
    size_t n = text_put_u64(text + minus, minus ? 0 - (uint64_t)value : (uint64_t)value);
    put_value(l, key, (struct str){text, n + minus});
}

void log_ms(struct log_line *l, const char *key, uint64_t us)
{
    char text[24];
    if (!wanted(l))
        return;
    size_t n = text_put_u64(text, us / 1000);
    unsigned fraction = (unsigned)(us % 1000);
    text[n++] = '.';
    text[n++] = (char)('0' + fraction / 100);
    text[n++] = (char)('0' + fraction / 10 % 10);
    text[n++] = (char)('0' + fraction % 10);
    put_value(l, key, (struct str){text, n});
}

void log_bool(struct log_line *l, const char *key, bool value)
{
    if (wanted(l))
        put_value(l, key, value ? STR("true") : STR("false"));
}

static void finish(struct log_line *l)
{
    struct str end = l->full ? STR(",\"cut\":true}\n") : STR("}\n");
    _Static_assert(sizeof(",\"cut\":true}\n") <= END_BYTES, "the end of a line must fit");
    memcpy(l->text + l->n, end.p, end.n);
    l->n += end.n;
}

/* ---- the ring ---- */

static void copy_in(uint64_t at, const char *p, size_t n)
{
    size_t start = at % RING_BYTES, part = RING_BYTES - start;
    if (part > n)
        part = n;
    memcpy(the_log.ring + start, p, part);
    memcpy(the_log.ring, p + part, n - part);
}

/* Puts a line in; says whether the thread must be woken.  Called under the lock. */
static bool push(const struct log_line *l)
{
    uint64_t used = the_log.head - the_log.tail;
    if (used + l->n > RING_BYTES) {
        atomic_fetch_add_explicit(&the_log.lost, 1, memory_order_relaxed);
        return false;
    }
    copy_in(the_log.head, l->text, l->n);
    the_log.head += l->n;
    bool wake = the_log.sleeping || (the_log.napping && used > RING_BYTES / 2);
    if (wake)
        the_log.sleeping = the_log.napping = false;
    return wake;
}

void log_end(struct log_line *l)
{
    if (!wanted(l))
        return;
    finish(l);
    pthread_mutex_lock(&the_log.lock);
    if (the_log.running && push(l))
        pthread_cond_signal(&the_log.wake);
    pthread_mutex_unlock(&the_log.lock);
}

/* ---- notes ---- */

static void note(enum log_level level, const char *msg, uint64_t repeated, va_list args)
{
    struct log_line l;
    log_begin(&l, level, msg);
    for (const char *key; (key = va_arg(args, const char *));)
        log_str(&l, key, str_of(va_arg(args, const char *)));
    if (repeated)
        log_int(&l, "repeated", (int64_t)repeated);
    log_end(&l);
}

void log_note(enum log_level level, const char *msg, ...)
{
    if (!log_on(level))
        return;
    va_list args;
    va_start(args, msg);
    note(level, msg, 0, args);
    va_end(args);
}

/* The entry of msg.  There are more of them than the program has such messages; should they run
 * out, two share one. */
static struct rare_note *rare_note_of(const char *msg)
{
    size_t home = (size_t)(((uintptr_t)msg * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % RARE_NOTES;
    for (size_t i = 0; i < RARE_NOTES; i++) {
        struct rare_note *r = &the_log.rare[(home + i) % RARE_NOTES];
        if (r->msg == msg || !r->msg)
            return r;
    }
    return &the_log.rare[home];
}

/* May msg be logged now?  If so, *ret_left_out is how often it was not since the last time. */
static bool rare_enough(const char *msg, uint64_t now_ms, uint64_t *ret_left_out)
{
    pthread_mutex_lock(&the_log.rare_lock);
    struct rare_note *r = rare_note_of(msg);
    bool may = !r->msg || now_ms - r->last_ms >= 1000;
    if (may) {
        *ret_left_out = r->left_out;
        *r = (struct rare_note){.msg = msg, .last_ms = now_ms};
    } else {
        r->left_out++;
    }
    pthread_mutex_unlock(&the_log.rare_lock);
    return may;
}

void log_note_rarely(enum log_level level, const char *msg, ...)
{
    uint64_t left_out;
    if (!log_on(level) || !rare_enough(msg, clock_ms(CLOCK_MONOTONIC), &left_out))
        return;
    va_list args;
    va_start(args, msg);
    note(level, msg, left_out, args);
    va_end(args);
}

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

static void turn_over(struct output *o)
{
    char time_text[24], backup[PATH_MAX];
    struct str dir, stem, ext;
    o->bytes =
        0; /* if anything fails here the file grows by as much again before the next attempt */
    split_path(str_of(o->path), &dir, &stem, &ext);
    text_put_iso8601(time_text, clock_ms(CLOCK_REALTIME));
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

/* ---- the thread ---- */

static bool is_hurried(void)
{
    return atomic_load_explicit(&the_log.hurry, memory_order_relaxed);
}

/* Waits until fd takes bytes; without end, but for log_stop(), which does not wait long for a
 * reader that is not there. */
static bool wait_writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    for (;;) {
        int rc = poll(&p, 1, STOP_POLL_MS);
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
        if (is_hurried() && the_log.polls_left-- <= 1) {
            the_log.polls_left = 1;
            return false;
        }
    }
}

static void count_lost(struct str text)
{
    uint64_t lines = 0;
    for (ptrdiff_t at; (at = str_chr(text, '\n')) >= 0; text = str_skip(text, (size_t)at + 1))
        lines++;
    atomic_fetch_add_explicit(&the_log.lost, lines, memory_order_relaxed);
}

static void write_text(struct output *o, struct str text)
{
    while (text.n) {
        size_t n = o->file || text.n < PIPE_WRITE ? text.n : PIPE_WRITE;
        if (!o->file && !wait_writable(o->fd))
            break;
        ssize_t done = write(o->fd, text.p, n);
        if (done < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (done < 0)
            break;
        o->bytes += done;
        text = str_skip(text, (size_t)done);
    }
    count_lost(text);
}

static void write_all(struct str first, struct str second)
{
    for (size_t i = 0; i < the_log.output_count; i++) {
        struct output *o = &the_log.outputs[i];
        if (o->file && o->bytes > 0 && o->bytes + (int64_t)(first.n + second.n) > FILE_MAX_BYTES)
            turn_over(o);
        write_text(o, first);
        write_text(o, second);
    }
}

static void tell_lost(void)
{
    struct log_line l;
    uint64_t lost = log_lost(), more = lost - the_log.lost_told;
    if (more == 0)
        return;
    the_log.lost_told = lost;
    log_begin(&l, LOG_WARN, "log lines lost");
    if (!wanted(&l))
        return;
    log_int(&l, "lines", (int64_t)more);
    finish(&l);
    write_all((struct str){l.text, l.n}, STR_NONE);
}

/* Writes out what lies between two positions of the ring. */
static void write_ring(uint64_t tail, uint64_t head)
{
    size_t start = tail % RING_BYTES, n = (size_t)(head - tail), part = RING_BYTES - start;
    if (part > n)
        part = n;
    const char *ring = (const char *)the_log.ring;
    write_all((struct str){ring + start, part}, (struct str){ring, n - part});
    tell_lost();
}

/* Lets lines gather before the next batch.  Called under the lock. */
static void nap(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NAP_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    the_log.napping = true;
    while (the_log.napping && !the_log.stopping)
        if (pthread_cond_timedwait(&the_log.wake, &the_log.lock, &until) != 0)
            break;
    the_log.napping = false;
}

static void sleep_while_empty(void)
{
    while (the_log.head == the_log.tail && !the_log.stopping) {
        the_log.sleeping = true;
        pthread_cond_wait(&the_log.wake, &the_log.lock);
    }
    the_log.sleeping = false;
}

static void *write_lines(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&the_log.lock);
    for (;;) {
        sleep_while_empty();
        if (the_log.head == the_log.tail)
            break;
        uint64_t tail = the_log.tail, head = the_log.head;
        pthread_mutex_unlock(&the_log.lock);
        write_ring(tail, head);
        pthread_mutex_lock(&the_log.lock);
        the_log.tail = head;
        if (the_log.head == head)
            the_log.head = the_log.tail =
                0; /* the front of the ring stays warm, the rest untouched */
        nap();
    }
    pthread_mutex_unlock(&the_log.lock);
    return NULL;
}

/* ---- start and stop ---- */

static void close_outputs(void)
{
    for (size_t i = 0; i < the_log.output_count; i++) {
        struct output *o = &the_log.outputs[i];
        if (o->path)
            close(o->fd);
        mem_free(o->path);
    }
    the_log.output_count = 0;
}

/* May the file at path be renamed?  Not /dev/stdout and its like, which lead to what is not ours.
 */
static bool is_own_file(const char *path)
{
    struct stat st;
    return path && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool add_output(struct str name, char *error, size_t error_bytes)
{
    struct output *o = &the_log.outputs[the_log.output_count];
    struct stat st;
    if (the_log.output_count == OUTPUTS_MAX) {
        snprintf(error, error_bytes, "more than %d log outputs", OUTPUTS_MAX);
        return false;
    }
    *o = (struct output){.fd = str_eq(name, STR("stderr")) ? STDERR_FILENO : STDOUT_FILENO};
    if (!str_eq(name, STR("stdout")) && !str_eq(name, STR("stderr"))) {
        o->path = mem_strdup(name);
        o->fd = open_path(o->path);
    }
    if (o->fd < 0 || fstat(o->fd, &st) != 0) {
        snprintf(error, error_bytes, "cannot open log output %.*s: %m", STR_ARG(name));
        mem_free(o->path);
        return false;
    }
    the_log.output_count++;
    o->bytes = st.st_size;
    o->file = is_own_file(o->path);
    if (o->file)
        remove_old_backups(o->path);
    return true;
}

static bool add_outputs(struct str outputs, char *error, size_t error_bytes)
{
    struct str piece;
    while (str_next(&outputs, ',', &piece)) {
        piece = str_trim(piece);
        if (piece.n && !add_output(piece, error, error_bytes))
            return false;
    }
    return the_log.output_count > 0 || add_output(STR("stdout"), error, error_bytes);
}

static void set_logger(const char *logger)
{
    char name[128];
    size_t n = text_put_json(name, sizeof name, str_of(logger));
    int len = snprintf(the_log.after_ts, sizeof the_log.after_ts,
                       "\",\"logger\":\"%.*s\",\"msg\":\"", (int)n, name);
    assert(len > 0 && (size_t)len < sizeof the_log.after_ts);
    the_log.after_ts_len = (size_t)len;
}

/* Signals are for the threads that have a loop. */
static bool start_thread(void)
{
    sigset_t all, before;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&the_log.wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&the_log.thread, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0;
}

bool log_start(const char *logger, struct str outputs, enum log_level level, char *error,
               size_t error_bytes)
{
    assert(!the_log.running);
    if (!add_outputs(outputs, error, error_bytes)) {
        close_outputs();
        return false;
    }
    set_logger(logger);
    the_log.ring = mem_new(RING_BYTES);
    the_log.head = the_log.tail = 0;
    the_log.stopping = the_log.sleeping = the_log.napping = false;
    the_log.polls_left = STOP_POLLS;
    the_log.lost_told = log_lost();
    atomic_store(&the_log.hurry, false);
    the_log.running = true;
    if (!start_thread()) {
        snprintf(error, error_bytes, "cannot start the log thread");
        the_log.running = false;
        mem_free(the_log.ring);
        close_outputs();
        return false;
    }
    log_set_level(level);
    return true;
}

void log_stop(void)
{
    pthread_mutex_lock(&the_log.lock);
    bool was_running = the_log.running;
    the_log.running = false;
    the_log.stopping = true;
    pthread_mutex_unlock(&the_log.lock);
    if (!was_running)
        return;
    atomic_store(&the_log.hurry, true);
    pthread_cond_signal(&the_log.wake);
    pthread_join(the_log.thread, NULL);
    atomic_store_explicit(&the_log.level, LEVEL_OFF, memory_order_release);
    pthread_cond_destroy(&the_log.wake);
    close_outputs();
    mem_free(the_log.ring);
    the_log.ring = NULL;
}
