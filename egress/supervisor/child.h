/* child.h — starting programs, waiting for them, and the signals meanwhile.
 *
 * There is one child at a time that matters, the worker or a hook; it leads a process group of its
 * own, and what is left of a worker's group is killed when the worker has ended.  All others that
 * end are orphans and are reaped. */
#ifndef SUPERVISOR_CHILD_H
#define SUPERVISOR_CHILD_H

#include <sys/types.h>

#include "egress/supervisor/store.h"

struct child {
    pid_t pid; /* 0: none */
    bool worker, gone;
    int code, signal; /* once gone: exit code, -1 if a signal ended it; that signal, or 0 */
    uint64_t started_ms, ended_ms;
};

struct children {
    int signals;     /* a signalfd */
    int stop_signal; /* 0: nobody told us to stop yet */
    struct store *store;
    int keep; /* our end of the socket pair of the worker, -1: none */
    struct child now;
};

/* Milliseconds of a clock that does not jump. */
uint64_t clock_ms(void);
/* The name that programs know a signal by in events: "killed", "terminated". */
struct str signal_text(int signal, char room[32]);

/* Blocks the signals, which from now on are read, and adopts orphans.  False: errno says why. */
bool children_init(struct children *c, struct store *store);
void children_done(struct children *c);

/* Starts argv with our environment and `extra` ("NAME=value", ended by NULL) on top.  `worker`: it
 * gets a socket pair to the store in SALLYPORT_KEEP_FD.  0, or an errno. */
int child_start(struct children *c, char *const *argv, const char *const *extra, bool worker);
/* Waits for the child's end, a signal to stop or the time, whichever is first; to_worker: signals
 * are passed on to it. */
void children_wait(struct children *c, uint64_t until_ms, bool to_worker);
/* As above, for the end or the time; a signal to stop ends neither. */
void children_wait_end(struct children *c, uint64_t until_ms, bool to_worker);
/* Waits for the time or a signal to stop. */
void children_sleep(struct children *c, uint64_t until_ms);
/* Kills the child's whole group and waits for its end. */
void child_kill(struct children *c);

#endif
