/* rules_run.c — a child process with a deadline.  It is given the text on its standard input, since
 * the marks in it are secret and arguments are not; it inherits no environment and no descriptor.
 */
#include "egress/kernel/rules_run.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SAID_MAX = 1024, POLL_MS = 10 };

struct run {
    pid_t pid;
    int end; /* of a socket that is its input, output and standard error */
    int64_t until_ms;
    char said[SAID_MAX];
    size_t nsaid;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool fail(struct arena *a, const char *what, const char *why, struct str *error)
{
    *error = arena_printf(a, "%s: %s", what, why);
    return false;
}

bool rules_allowed(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2] = {{0, 0, 0}, {0, 0, 0}};
    return syscall(SYS_capget, &head, caps) == 0 && caps[0].effective & 1u << CAP_NET_ADMIN;
}

/* ---- where it is */

static bool beside(const char *dir, const char *name, char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return n > 0 && n < PATH_MAX && access(out, X_OK) == 0;
}

static bool find(char out[PATH_MAX])
{
    char dir[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    if (n <= 0)
        return false;
    ptrdiff_t slash = str_rchr((struct str){dir, (size_t)n}, '/');
    if (slash < 0)
        return false;
    dir[slash] = '\0';
    return beside(dir, "sallyport-egress-rules", out) || beside(dir, "egress-rules", out);
}

/* ---- running */

static int start(struct run *r, const char *program, const char *verb)
{
    int ends[2];
    char *argv[] = {(char *)program, (char *)verb, NULL}, *env[] = {NULL};
    posix_spawn_file_actions_t actions;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    int error = posix_spawn(&r->pid, program, &actions, NULL, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error)
        close(ends[0]);
    else
        r->end = ends[0];
    return error;
}

static bool is_late(const struct run *r)
{
    return now_ms() >= r->until_ms;
}

/* Something can be done with the socket, or a moment has passed. */
static short wait_for(struct run *r, short events)
{
    struct pollfd p = {.fd = r->end, .events = events};
    return poll(&p, 1, POLL_MS) > 0 ? p.revents : 0;
}

static void feed(struct run *r, struct str text)
{
    while (text.n > 0 && !is_late(r)) {
        short events = wait_for(r, POLLOUT);
        if (events & (POLLERR | POLLHUP))
            return;
        if (!(events & POLLOUT))
            continue;
        ssize_t n = send(r->end, text.p, text.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return;
        text = str_skip(text, n > 0 ? (size_t)n : 0);
    }
}

static bool is_done(const struct run *r)
{
    return str_eq((struct str){r->said, r->nsaid}, STR(RULES_DONE));
}

/* What it says, until it ends or is done. */
static void hear(struct run *r)
{
    while (!is_late(r) && !is_done(r)) {
        char drop[256];
        bool room = r->nsaid < sizeof r->said;
        if (!wait_for(r, POLLIN))
            continue;
        ssize_t n = recv(r->end, room ? r->said + r->nsaid : drop,
                         room ? sizeof r->said - r->nsaid : sizeof drop, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (room && n > 0)
            r->nsaid += (size_t)n;
    }
}

/* Its status, or -1: it had to be ended. */
static int end(struct run *r)
{
    const struct timespec moment = {.tv_nsec = 200000};
    int status;
    pid_t got;
    while ((got = waitpid(r->pid, &status, WNOHANG)) == 0 && !is_late(r))
        nanosleep(&moment, NULL);
    if (got == r->pid)
        return status;
    if (got < 0 && errno == ECHILD) /* its number may be somebody else's by now */
        return -1;
    kill(r->pid, SIGKILL);
    while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return -1;
}

static void *bury(void *arg)
{
    while (waitpid((pid_t)(intptr_t)arg, NULL, 0) < 0 && errno == EINTR)
        ;
    return NULL;
}

/* Its end is waited for by a thread of its own. */
static bool leave(const struct run *r)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, bury, (void *)(intptr_t)r->pid) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

static struct str first_line(const struct run *r)
{
    struct str line, said = {r->said, r->nsaid}, mine = STR("sallyport-egress-rules: ");
    (void)str_next(&said, '\n', &line);
    return str_starts(line, mine) ? str_skip(line, mine.n) : line;
}

static bool judge(const struct run *r, int status, const char *verb, struct arena *a,
                  struct str *error)
{
    if (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (status < 0)
        return fail(a, "sallyport-egress-rules", "no end in time", error);
    struct str line = first_line(r);
    *error = line.n ? arena_str(a, line)
                    : arena_printf(a, "%s: sallyport-egress-rules ended with %d", verb, status);
    return false;
}

bool rules_run(const char *program, const char *verb, struct str input, struct arena *a,
               struct str *error)
{
    char found[PATH_MAX];
    struct run r = {.until_ms = now_ms() + RULES_RUN_MS};
    if (!program && !find(found))
        return fail(a, "sallyport-egress-rules", "not found beside this program", error);
    int fault = start(&r, program ? program : found, verb);
    if (fault)
        return fail(a, "sallyport-egress-rules", strerrordesc_np(fault), error);
    feed(&r, input);
    shutdown(r.end, SHUT_WR);
    hear(&r);
    close(r.end);
    if (is_done(&r) && leave(&r))
        return true;
    return judge(&r, end(&r), verb, a, error);
}
