/* main.c — sallyport-supervisor: starts the worker, waits, starts it again (contract
 * egress-policy 7.4).  It is the part that must not fail, so it does little: no loop library, no
 * threads, no parsing but of its command line.  While the worker is down the kernel's rules stay as
 * they are, and what the worker left here (keep.h) waits for its successor. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/random.h>

#include "base/text.h"
#include "egress/supervisor/child.h"
#include "egress/supervisor/events.h"
#include "egress/supervisor/flags.h"

enum { STOPPED = 0, SPENT = 1, USAGE = 2, GOES_ON = -1 };
enum { HOOK_VARIABLES = 5, VARIABLE_BYTES = 64 };

/* How the worker ended. */
struct outcome {
    pid_t pid;
    int code, signal;
    uint64_t up_ms;
};

struct supervisor {
    struct flags flags;
    struct event_log log;
    struct schedule schedule;
    struct store store;
    struct children children;
    int64_t generation; /* starts ever, from 1 */
    int64_t attempt;    /* starts since the last stable run, from 1 */
    bool told;          /* the event of the stop is written */
    struct outcome last;
};

static bool is_stopping(const struct supervisor *s)
{
    return s->children.stop_signal != 0;
}

/* ---- lines ---- */

static void begin(const struct supervisor *s, struct event *e, const char *event)
{
    event_begin(e, &s->log, event);
    event_int(e, "gen", s->generation);
    event_int(e, "attempt", s->attempt);
}

static void put_end(struct event *e, int code, int signal)
{
    char room[32];
    event_int(e, "exit_code", code);
    if (signal)
        event_str(e, "signal", signal_text(signal, room));
}

static void tell_stop(struct supervisor *s)
{
    struct event e;
    char room[32];
    if (!is_stopping(s) || s->told)
        return;
    s->told = true;
    event_begin(&e, &s->log, "shutdown");
    event_str(&e, "signal", signal_text(s->children.stop_signal, room));
    event_end(&e, &s->log);
}

/* For what is no event: a line on standard error. */
static void complain(const struct supervisor *s, enum flags_level level, const char *what,
                     const char *about)
{
    if (level >= s->flags.level)
        fprintf(stderr, "sallyport-supervisor: %s: %s\n", what, about);
}

/* ---- hooks ---- */

/* What a hook learns of the worker, as "NAME=value"; a first pre-start hook has the attempt only.
 */
static void describe(const struct supervisor *s, char text[HOOK_VARIABLES][VARIABLE_BYTES],
                     const char *list[HOOK_VARIABLES + 1])
{
    const struct outcome *o = &s->last;
    char room[32];
    struct str signal = o->signal ? signal_text(o->signal, room) : STR("");
    snprintf(text[0], VARIABLE_BYTES, "WORKER_ATTEMPT=%lld", (long long)s->attempt);
    snprintf(text[1], VARIABLE_BYTES, "WORKER_EXIT_CODE=%d", o->code);
    snprintf(text[2], VARIABLE_BYTES, "WORKER_SIGNAL=%.*s", STR_ARG(signal));
    snprintf(text[3], VARIABLE_BYTES, "WORKER_DURATION_MS=%llu", (unsigned long long)o->up_ms);
    snprintf(text[4], VARIABLE_BYTES, "WORKER_PID=%d", (int)o->pid);
    unsigned n = o->pid ? HOOK_VARIABLES : 1;
    for (unsigned i = 0; i < n; i++)
        list[i] = text[i];
    list[n] = NULL;
}

/* Waits for a hook; a stop leaves one before a start only the grace period, one after an end its
 * time. */
static bool hook_ends_in_time(struct supervisor *s, const struct hooks *h)
{
    struct children *c = &s->children;
    uint64_t until_ms = c->now.started_ms + h->timeout_ms;
    if (h == &s->flags.pre_start) {
        children_wait(c, until_ms, false);
        if (is_stopping(s) && !c->now.gone) {
            uint64_t grace_ms = clock_ms() + s->flags.grace_ms;
            tell_stop(s);
            kill(c->now.pid, SIGTERM);
            until_ms = grace_ms < until_ms ? grace_ms : until_ms;
        }
    }
    children_wait_end(c, until_ms, false);
    bool ended = c->now.gone;
    child_kill(c);
    return ended;
}

static bool run_hook(struct supervisor *s, const struct hooks *h, char *path)
{
    char text[HOOK_VARIABLES][VARIABLE_BYTES];
    const char *extra[HOOK_VARIABLES + 1];
    char *argv[] = {path, NULL};
    struct child *hook = &s->children.now;
    struct event e;
    describe(s, text, extra);
    int err = child_start(&s->children, argv, extra, false);
    bool in_time = err || hook_ends_in_time(s, h);
    bool good = !err && in_time && hook->code == 0;
    begin(s, &e, h == &s->flags.pre_start ? "prestart" : "postexit");
    event_str(&e, "hook", str_of(path));
    if (!err) {
        put_end(&e, hook->code, hook->signal);
        event_int(&e, "duration_ms", (int64_t)(hook->ended_ms - hook->started_ms));
    }
    if (!good)
        event_str(&e, "error",
                  err       ? str_of(strerror(err))
                  : in_time ? STR("hook failed")
                            : STR("hook timed out"));
    event_end(&e, &s->log);
    return good;
}

/* All of them, even if one fails; a stop skips those before a start. */
static bool run_hooks(struct supervisor *s, struct hooks *h)
{
    bool good = true;
    for (unsigned i = 0; i < h->n; i++) {
        if (h == &s->flags.pre_start && is_stopping(s))
            return false;
        good &= run_hook(s, h, h->paths[i]);
    }
    return good;
}

/* ---- the worker ---- */

static struct str reason_of(const struct supervisor *s)
{
    if (is_stopping(s))
        return STR("shutdown");
    if (s->last.signal)
        return STR("signaled");
    return s->last.code == 0 ? STR("exited") : STR("crashed");
}

static void tell_launch_failed(struct supervisor *s, int err)
{
    struct event e;
    begin(s, &e, "exit");
    event_int(&e, "exit_code", -1);
    event_str(&e, "reason", STR("launch_failed"));
    event_str(&e, "error", str_of(strerror(err)));
    event_end(&e, &s->log);
}

static void tell_start(struct supervisor *s)
{
    struct event e;
    begin(s, &e, "start");
    event_int(&e, "pid", s->children.now.pid);
    event_end(&e, &s->log);
}

static void tell_exit(struct supervisor *s)
{
    struct event e;
    begin(s, &e, "exit");
    event_int(&e, "pid", s->last.pid);
    put_end(&e, s->last.code, s->last.signal);
    event_int(&e, "duration_ms", (int64_t)s->last.up_ms);
    event_str(&e, "reason", reason_of(s));
    event_end(&e, &s->log);
}

static void await_worker(struct supervisor *s)
{
    struct children *c = &s->children;
    children_wait(c, UINT64_MAX, true);
    tell_stop(s);
    if (c->now.gone)
        return;
    children_wait_end(c, clock_ms() + s->flags.grace_ms, true);
    if (!c->now.gone)
        complain(s, FLAGS_WARN, "grace period over, killing", s->flags.command[0]);
    child_kill(c);
}

/* False: it could not be started. */
static bool run_worker(struct supervisor *s)
{
    const char *const none[] = {NULL};
    const struct child *now = &s->children.now;
    int err = child_start(&s->children, s->flags.command, none, true);
    if (err) {
        tell_launch_failed(s, err);
        return false;
    }
    if (s->children.keep < 0)
        complain(s, FLAGS_WARN, "nothing is kept for a successor", "no socket pair");
    tell_start(s);
    await_worker(s);
    s->last = (struct outcome){now->pid, now->code, now->signal, now->ended_ms - now->started_ms};
    tell_exit(s);
    return true;
}

/* ---- rounds ---- */

static double chance(void)
{
    uint32_t r;
    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
        return 0;
    return (double)r / UINT32_MAX * 2 - 1;
}

static void tell_burst(struct supervisor *s)
{
    struct event e;
    char window[32];
    size_t n = text_put_duration(window, (int64_t)s->schedule.rules.burst_window_ms * 1000000);
    begin(s, &e, "burst_exit");
    event_int(&e, "attempts", s->schedule.rules.burst_max);
    event_str(&e, "window", (struct str){window, n});
    event_end(&e, &s->log);
}

static void tell_stable(struct supervisor *s)
{
    struct event e;
    begin(s, &e, "stable");
    event_int(&e, "duration_ms", (int64_t)s->last.up_ms);
    event_true(&e, "reset_backoff");
    event_end(&e, &s->log);
}

static void pause_before_next(struct supervisor *s, uint64_t sleep_ms)
{
    struct event e;
    begin(s, &e, "backoff");
    event_int(&e, "sleep_ms", (int64_t)sleep_ms);
    event_int(&e, "next_attempt", s->attempt + 1);
    event_end(&e, &s->log);
    children_sleep(&s->children, clock_ms() + sleep_ms);
}

static int after_end(struct supervisor *s, uint64_t ended_ms, uint64_t up_ms)
{
    struct schedule_verdict v = schedule_ended(&s->schedule, ended_ms, up_ms, chance());
    if (v.stable)
        tell_stable(s);
    if (up_ms >= s->schedule.rules.stable_after_ms)
        s->attempt = 0;
    if (v.burst)
        tell_burst(s);
    if (v.burst && s->flags.on_burst_exit)
        return SPENT;
    pause_before_next(s, v.sleep_ms);
    return is_stopping(s) ? STOPPED : GOES_ON;
}

/* One start and its end; an exit status, or GOES_ON. */
static int round_of(struct supervisor *s)
{
    s->generation++;
    s->attempt++;
    schedule_started(&s->schedule, clock_ms());
    bool may = run_hooks(s, &s->flags.pre_start);
    if (is_stopping(s))
        return STOPPED;
    bool ran = may && run_worker(s);
    uint64_t ended_ms = ran ? s->children.now.ended_ms : clock_ms();
    if (ran)
        run_hooks(s, &s->flags.post_exit);
    if (is_stopping(s))
        return STOPPED;
    return after_end(s, ended_ms, ran ? s->last.up_ms : 0);
}

static int usage(const char *error)
{
    fprintf(stderr, "sallyport-supervisor: %s\nsallyport-supervisor --help says more\n", error);
    return USAGE;
}

static int fail(const char *what)
{
    fprintf(stderr, "sallyport-supervisor: %s: %s\n", what, strerror(errno));
    return USAGE;
}

static int supervise(struct supervisor *s)
{
    int status = GOES_ON;
    schedule_init(&s->schedule, &s->flags.rules);
    store_init(&s->store);
    if (!events_open(&s->log, s->flags.event_log, s->flags.name))
        return fail(s->flags.event_log);
    /* The descriptors kept here, and a token in the environment, are nobody's to look at.  Not
     * earlier: /dev/stdout would not be ours to open any more. */
    prctl(PR_SET_DUMPABLE, 0);
    if (!children_init(&s->children, &s->store))
        return fail("signals");
    while (status == GOES_ON)
        status = round_of(s);
    tell_stop(s);
    children_done(&s->children);
    store_done(&s->store);
    events_close(&s->log);
    return status;
}

int main(int argc, char **argv)
{
    char error[FLAGS_ERROR_BYTES];
    struct supervisor *s = mem_new(sizeof *s);
    int status = USAGE;
    switch (flags_read(argc, argv, &s->flags, error)) {
    case FLAGS_RUN:
        status = supervise(s);
        break;
    case FLAGS_HELP:
        fputs(flags_help(), stdout);
        status = 0;
        break;
    case FLAGS_VERSION:
        puts("sallyport-supervisor " SALLYPORT_VERSION);
        status = 0;
        break;
    case FLAGS_WRONG:
        status = usage(error);
    }
    mem_free(s);
    return status;
}
