/* events.h — what happens to a worker, one JSON line each (contract egress-policy 7.4).
 *
 * A line is made on the stack and written at once.  A sink that takes nothing loses lines; it never
 * holds the supervisor up. */
#ifndef SUPERVISOR_EVENTS_H
#define SUPERVISOR_EVENTS_H

#include "base/mem.h"

/* No more than a pipe that is ready takes without blocking. */
enum { EVENT_BYTES = 4096 };

struct event_log {
    int fd;
    struct str name; /* of the worker, in every line */
};

/* Opens the file at path and makes its parents; NULL: standard error.  False: errno says why. */
bool events_open(struct event_log *log, const char *path, struct str name);
void events_close(struct event_log *log);

struct event {
    size_t n;
    char text[EVENT_BYTES];
};

/* Starts a line with ts, name and event. */
void event_begin(struct event *e, const struct event_log *log, const char *event);
/* A field that does not fit is left out. */
void event_int(struct event *e, const char *key, int64_t value);
void event_str(struct event *e, const char *key, struct str value);
void event_true(struct event *e, const char *key);
void event_end(struct event *e, const struct event_log *log);

#endif
