/* events.c — a line is as long as a pipe takes in one piece, so that it is whole among
 * what the worker writes to the same place. */
#include "egress/supervisor/events.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

enum { END_BYTES = 2, SINK_WAIT_MS = 100, TS_BYTES = 24 };

static bool make_parents(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, path, n + 1);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return false;
        *p = '/';
    }
    return true;
}

bool events_open(struct event_log *log, const char *path, struct str name)
{
    int fd = STDERR_FILENO;
    if (path && !make_parents(path))
        return false;
    /* not blocking: a FIFO nobody reads is an error now rather than a start that hangs */
    if (path)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    *log = (struct event_log){fd, name};
    return fd >= 0;
}

void events_close(struct event_log *log)
{
    if (log->fd != STDERR_FILENO)
        close(log->fd);
}

static size_t room(const struct event *e)
{
    return sizeof e->text - END_BYTES - e->n;
}

static void put(struct event *e, struct str s)
{
    memcpy(e->text + e->n, s.p, s.n);
    e->n += s.n;
}

static void put_pair(struct event *e, const char *key, struct str value, const char *quote)
{
    char line[EVENT_BYTES];
    int n = snprintf(line, sizeof line, "%s\"%s\":%s%.*s%s", e->n > 1 ? "," : "", key, quote,
                     STR_ARG(value), quote);
    if (n > 0 && (size_t)n < sizeof line && (size_t)n <= room(e))
        put(e, (struct str){line, (size_t)n});
}

void event_str(struct event *e, const char *key, struct str value)
{
    char escaped[EVENT_BYTES];
    size_t n = text_put_json(escaped, sizeof escaped, value);
    put_pair(e, key, (struct str){escaped, n}, "\"");
}

void event_int(struct event *e, const char *key, int64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    put_pair(e, key, (struct str){text, (size_t)n}, "");
}

void event_true(struct event *e, const char *key)
{
    put_pair(e, key, STR("true"), "");
}

void event_begin(struct event *e, const struct event_log *log, const char *event)
{
    struct timespec t;
    char ts[TS_BYTES];
    clock_gettime(CLOCK_REALTIME, &t);
    text_put_iso8601(ts, (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
    e->n = 0;
    put(e, STR("{"));
    event_str(e, "ts", (struct str){ts, sizeof ts});
    event_str(e, "name", log->name);
    event_str(e, "event", str_of(event));
}

void event_end(struct event *e, const struct event_log *log)
{
    struct pollfd p = {.fd = log->fd, .events = POLLOUT};
    memcpy(e->text + e->n, "}\n", END_BYTES);
    e->n += END_BYTES;
    if (poll(&p, 1, SINK_WAIT_MS) == 1 && write(log->fd, e->text, e->n) < 0)
        return; /* nobody is left to tell */
}
