/* child.c — signals are read, not handled, so that everything happens in one place and
 * one order: poll, signals, dead children, questions of the worker. */
#include "egress/supervisor/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DRAINS = 16 };

uint64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct str signal_text(int signal, char room[32])
{
    static const struct {
        int signal;
        const char *text;
    } names[] = {
        {SIGHUP, "hangup"},
        {SIGINT, "interrupt"},
        {SIGQUIT, "quit"},
        {SIGILL, "illegal instruction"},
        {SIGTRAP, "trace/breakpoint trap"},
        {SIGABRT, "aborted"},
        {SIGBUS, "bus error"},
        {SIGFPE, "floating point exception"},
        {SIGKILL, "killed"},
        {SIGUSR1, "user defined signal 1"},
        {SIGSEGV, "segmentation fault"},
        {SIGUSR2, "user defined signal 2"},
        {SIGPIPE, "broken pipe"},
        {SIGALRM, "alarm clock"},
        {SIGTERM, "terminated"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].signal == signal)
            return str_of(names[i].text);
    snprintf(room, 32, "signal %d", signal);
    return str_of(room);
}

bool children_init(struct children *c, struct store *store)
{
    sigset_t set;
    *c = (struct children){.store = store, .keep = -1};
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return false;
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return c->signals >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

static void keep_end(struct children *c)
{
    if (c->keep >= 0)
        close(c->keep);
    c->keep = -1;
}

void children_done(struct children *c)
{
    keep_end(c);
    close(c->signals);
}

/* ---- starting ---- */

static bool is_replaced(const char *entry, const char *const *extra)
{
    for (; *extra; extra++) {
        size_t n = (size_t)(strchr(*extra, '=') - *extra) + 1;
        if (strncmp(entry, *extra, n) == 0)
            return true;
    }
    return strncmp(entry, KEEP_VARIABLE "=", sizeof KEEP_VARIABLE) == 0;
}

static char **environment(const char *const *extra, struct arena *a)
{
    size_t n = 0, at = 0;
    for (char **e = environ; *e; e++)
        n++;
    for (const char *const *e = extra; *e; e++)
        n++;
    char **env = arena_get(a, (n + 2) * sizeof *env);
    for (char **e = environ; *e; e++)
        if (!is_replaced(*e, extra))
            env[at++] = *e;
    for (const char *const *e = extra; *e; e++)
        env[at++] = (char *)*e;
    env[at] = env[at + 1] = NULL; /* room for one more */
    return env;
}

static void set_attributes(posix_spawnattr_t *attr)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(attr);
    posix_spawnattr_setpgroup(attr, 0);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &all);
    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                       POSIX_SPAWN_SETSIGDEF);
}

/* fd -1: none is passed on. */
static int spawn(pid_t *ret_pid, char *const *argv, char *const *env, int fd)
{
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    set_attributes(&attr);
    posix_spawn_file_actions_init(&actions);
    if (fd >= 0) /* onto itself: it is no longer closed on exec */
        posix_spawn_file_actions_adddup2(&actions, fd, fd);
    int err = posix_spawnp(ret_pid, argv[0], &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return err;
}

static char **last_of(char **env)
{
    while (*env)
        env++;
    return env;
}

int child_start(struct children *c, char *const *argv, const char *const *extra, bool worker)
{
    int pair[2] = {-1, -1};
    struct arena a;
    arena_init(&a, NULL, 0);
    char **env = environment(extra, &a);
    keep_end(c);
    /* a pair for each worker: no question or answer of a dead one is left in it */
    if (worker && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        c->keep = pair[0];
        *last_of(env) = (char *)arena_printf(&a, KEEP_VARIABLE "=%d", pair[1]).p;
    }
    c->now = (struct child){.worker = worker, .started_ms = clock_ms()};
    int err = spawn(&c->now.pid, argv, env, pair[1]);
    if (pair[1] >= 0)
        close(pair[1]);
    if (err) {
        keep_end(c);
        c->now = (struct child){.gone = true};
    }
    arena_done(&a);
    return err;
}

/* ---- waiting ---- */

/* What the worker left in its last moments counts. */
static void drain(struct children *c)
{
    for (int i = 0; i < DRAINS && c->keep >= 0; i++)
        if (!store_serve(c->store, c->keep))
            break;
    keep_end(c);
}

static void child_ended(struct children *c, const siginfo_t *info)
{
    if (c->now.worker) {
        /* while its leader is not reaped the group's number is nobody else's */
        kill(-c->now.pid, SIGKILL);
        drain(c);
    }
    bool exited = info->si_code == CLD_EXITED;
    c->now.gone = true;
    c->now.ended_ms = clock_ms();
    c->now.code = exited ? info->si_status : -1;
    c->now.signal = exited ? 0 : info->si_status;
}

static void reap(struct children *c)
{
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        if (info.si_pid == c->now.pid && !c->now.gone)
            child_ended(c, &info);
        waitpid(info.si_pid, NULL, 0);
    }
}

static void on_signal(struct children *c, int signal, bool to_worker)
{
    bool stop = signal == SIGTERM || signal == SIGINT;
    if (stop && c->stop_signal == 0)
        c->stop_signal = signal;
    if (to_worker && !c->now.gone && signal != SIGCHLD)
        kill(c->now.pid, stop ? SIGTERM : signal);
}

static void read_signals(struct children *c, bool to_worker)
{
    struct signalfd_siginfo info;
    while (read(c->signals, &info, sizeof info) == sizeof info)
        on_signal(c, (int)info.ssi_signo, to_worker);
}

static void turn(struct children *c, uint64_t until_ms, bool to_worker)
{
    struct pollfd p[2] = {{.fd = c->signals, .events = POLLIN}, {.fd = c->keep, .events = POLLIN}};
    uint64_t now_ms = clock_ms(), left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    poll(p, 2, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
    if (c->keep >= 0 && p[1].revents && !store_serve(c->store, c->keep))
        keep_end(c);
    read_signals(c, to_worker);
    reap(c); /* after the reading: a SIGCHLD that was read must not be waited for */
}

void children_wait(struct children *c, uint64_t until_ms, bool to_worker)
{
    while (!c->now.gone && c->stop_signal == 0 && clock_ms() < until_ms)
        turn(c, until_ms, to_worker);
}

void children_wait_end(struct children *c, uint64_t until_ms, bool to_worker)
{
    while (!c->now.gone && clock_ms() < until_ms)
        turn(c, until_ms, to_worker);
}

void children_sleep(struct children *c, uint64_t until_ms)
{
    while (c->stop_signal == 0 && clock_ms() < until_ms)
        turn(c, until_ms, false);
}

void child_kill(struct children *c)
{
    if (!c->now.gone)
        kill(-c->now.pid, SIGKILL);
    children_wait_end(c, UINT64_MAX, false);
}
