/* supervisor_flow_test.c — the real supervisor over small shell commands, and over this program as
 * a worker that leaves things to its successor (contract egress-policy 1.5, 7.4). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <netinet/in.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/text.h"
#include "egress/supervisor/keep.h"

enum { WORDS = 40, PATIENCE_MS = 10000 };

struct fixture {
    char folder[64], events[128], out[128];
    pid_t pid;
    bool quiet; /* what it says on standard error is no news */
    struct arena a;
};

static uint64_t clock_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

static void begin(struct fixture *f)
{
    snprintf(f->folder, sizeof f->folder, "/tmp/supervisor_flow_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->events, sizeof f->events, "%s/deep/er/events", f->folder);
    snprintf(f->out, sizeof f->out, "%s/out", f->folder);
    setenv("OUT", f->out, 1);
    arena_init(&f->a, NULL, 0);
    f->pid = 0;
    f->quiet = false;
}

static void end(struct fixture *f)
{
    char path[160];
    if (f->pid > 0) {
        kill(f->pid, SIGKILL);
        waitpid(f->pid, NULL, 0);
    }
    unlink(f->events);
    unlink(f->out);
    snprintf(path, sizeof path, "%s/deep/er", f->folder);
    rmdir(path);
    snprintf(path, sizeof path, "%s/deep", f->folder);
    rmdir(path);
    snprintf(path, sizeof path, "%s/hook", f->folder);
    unlink(path);
    rmdir(f->folder);
    arena_done(&f->a);
}

/* Starts it with short pauses, then with these words, ended by NULL. */
static void start(struct fixture *f, ...)
{
    char *argv[WORDS] = {SUPERVISOR, "--event-log", f->events, "--backoff-min=10ms",
                         "--backoff-max=40ms"};
    int n = 5;
    va_list words;
    va_start(words, f);
    while (n < WORDS - 1 && (argv[n] = va_arg(words, char *)))
        n++;
    va_end(words);
    argv[n] = NULL;
    f->pid = fork();
    assert_true(f->pid >= 0);
    if (f->pid == 0) {
        if (f->quiet && !freopen("/dev/null", "w", stderr))
            _exit(127);
        execv(argv[0], argv);
        _exit(127);
    }
}

/* The supervisor's exit status; -1 if a signal ended it. */
static int status_of(struct fixture *f)
{
    int status;
    uint64_t until_ms = clock_now_ms() + PATIENCE_MS;
    while (waitpid(f->pid, &status, WNOHANG) == 0) {
        if (clock_now_ms() > until_ms)
            fail_msg("the supervisor does not end");
        nap(5);
    }
    f->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct str file_text(struct fixture *f, const char *path)
{
    char *text = arena_zero(&f->a, 1 << 16);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, (1 << 16) - 1);
    if (fd >= 0)
        close(fd);
    return (struct str){text, n > 0 ? (size_t)n : 0};
}

static void await_text(struct fixture *f, const char *path, const char *what)
{
    uint64_t until_ms = clock_now_ms() + PATIENCE_MS;
    while (!strstr(file_text(f, path).p, what)) {
        if (clock_now_ms() > until_ms)
            fail_msg("no %s in %s", what, path);
        nap(5);
    }
}

/* The member's value in each event of that kind, joined by blanks; texts and numbers. */
static const char *of_events(struct fixture *f, const char *kind, const char *member)
{
    struct str rest = file_text(f, f->events), line, got = STR("");
    while (str_next(&rest, '\n', &line) && line.n > 0) {
        struct json_fault fault;
        struct json_doc *doc = json_parse(line, 0, 8, &fault);
        assert_non_null(doc);
        const struct json *root = json_root(doc), *v = json_member(root, str_of(member));
        int64_t number = 0;
        if (str_eq(json_string(json_member(root, STR("event"))), str_of(kind)) && v) {
            const char *gap = got.n ? " " : "";
            if (json_type(v) == JSON_NUMBER && json_int(doc, v, &number))
                got = arena_printf(&f->a, "%.*s%s%lld", STR_ARG(got), gap, (long long)number);
            else
                got = arena_printf(&f->a, "%.*s%s%.*s", STR_ARG(got), gap, STR_ARG(json_string(v)));
        }
        json_free(doc);
    }
    return arena_str(&f->a, got).n ? got.p : "";
}

static void write_hook(struct fixture *f, char path[128], const char *text)
{
    snprintf(path, 128, "%s/hook", f->folder);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    chmod(path, 0755);
}

static void a_spent_budget_ends_with_status_1(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--burst-max=3", "--backoff-jitter=0", "--name", "egress", "--", "sh", "-c", "exit 3",
          NULL);
    assert_int_equal(status_of(&f), 1);
    assert_string_equal(of_events(&f, "start", "attempt"), "1 2 3");
    assert_string_equal(of_events(&f, "exit", "exit_code"), "3 3 3");
    assert_string_equal(of_events(&f, "exit", "reason"), "crashed crashed crashed");
    assert_string_equal(of_events(&f, "backoff", "sleep_ms"), "10 20");
    assert_string_equal(of_events(&f, "backoff", "next_attempt"), "2 3");
    assert_string_equal(of_events(&f, "burst_exit", "attempts"), "3");
    assert_string_equal(of_events(&f, "burst_exit", "window"), "5m0s");
    assert_string_equal(of_events(&f, "burst_exit", "name"), "egress");
    end(&f);
}

static void a_spent_budget_may_only_be_told(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--burst-max=2", "--on-burst-exit=false", "--", "true", NULL);
    await_text(&f, f.events, "\"gen\":4");
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_non_null(strstr(of_events(&f, "exit", "reason"), "exited exited"));
    assert_non_null(strstr(of_events(&f, "burst_exit", "gen"), "2 3"));
    end(&f);
}

static void a_long_run_starts_the_pauses_anew(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--stable-after=200ms", "--burst-max=4", "--backoff-jitter=0", "--", "sh", "-c",
          "echo x >> $OUT; [ $(wc -l < $OUT) != 3 ] || sleep 0.3", NULL);
    assert_int_equal(status_of(&f), 1);
    assert_string_equal(of_events(&f, "backoff", "sleep_ms"), "10 20 10");
    assert_string_equal(of_events(&f, "stable", "gen"), "3");
    assert_string_equal(of_events(&f, "start", "attempt"), "1 2 3 1");
    end(&f);
}

static void told_to_stop_it_ends_the_worker_and_exits_with_0(void **state)
{
    static const struct {
        int signal;
        const char *text;
    } rows[] = {{SIGTERM, "terminated"}, {SIGINT, "interrupt"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        begin(&f);
        start(&f, "--", "sh", "-c",
              "trap 'echo got TERM >> $OUT; exit 7' TERM; "
              "echo ready > $OUT; while :; do sleep 0.02; done",
              NULL);
        await_text(&f, f.out, "ready");
        kill(f.pid, rows[i].signal);
        assert_int_equal(status_of(&f), 0);
        assert_non_null(strstr(file_text(&f, f.out).p, "got TERM"));
        assert_string_equal(of_events(&f, "shutdown", "signal"), rows[i].text);
        assert_string_equal(of_events(&f, "exit", "reason"), "shutdown");
        assert_string_equal(of_events(&f, "exit", "exit_code"), "7");
        end(&f);
    }
}

/* The number behind the first "=" of the worker's output. */
static uint64_t number_in(struct fixture *f)
{
    struct str text = file_text(f, f->out);
    uint64_t number = 0;
    ptrdiff_t equals = str_chr(text, '='), end_at = str_chr(text, '\n');
    assert_true(equals >= 0 && end_at > equals);
    struct str digits = {text.p + equals + 1, (size_t)(end_at - equals - 1)};
    assert_true(text_u64(digits, UINT32_MAX, &number));
    return number;
}

static bool is_alive(struct fixture *f)
{
    return kill((pid_t)number_in(f), 0) == 0;
}

static void after_the_grace_period_the_whole_group_is_killed(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--grace-period=100ms", "--log-level=error", "--", "sh", "-c",
          "trap '' TERM; sleep 1000 & echo pid=$! > $OUT; while :; do sleep 1; done", NULL);
    await_text(&f, f.out, "\n");
    assert_true(is_alive(&f));
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_string_equal(of_events(&f, "exit", "signal"), "killed");
    assert_string_equal(of_events(&f, "exit", "exit_code"), "-1");
    for (int i = 0; i < 200 && is_alive(&f); i++)
        nap(10); /* somebody else reaps it now */
    assert_false(is_alive(&f));
    end(&f);
}

static void what_a_dead_worker_had_started_ends_with_it_and_is_reaped(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--backoff-min=10s", "--backoff-max=10s", "--", "sh", "-c",
          "sleep 1000 & echo pid=$! > $OUT; kill -9 $$", NULL);
    await_text(&f, f.events, "backoff");
    for (int i = 0; i < 200 && is_alive(&f); i++)
        nap(10);
    assert_false(is_alive(&f));
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_string_equal(of_events(&f, "exit", "reason"), "signaled");
    end(&f);
}

static void orphans_of_other_groups_are_reaped(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--", "sh", "-c", "(setsid sh -c 'echo pid=$$ > $OUT; sleep 0.1' &) ; sleep 1000",
          NULL);
    await_text(&f, f.out, "\n");
    for (int i = 0; i < 200 && is_alive(&f); i++)
        nap(10);
    assert_false(is_alive(&f)); /* a zombie would be alive for kill() */
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    end(&f);
}

static void a_stop_ends_a_pause_and_a_hook_before_a_start(void **state)
{
    struct fixture f;
    char hook[128];
    (void)state;
    begin(&f);
    start(&f, "--backoff-min=1h", "--backoff-max=1h", "--", "false", NULL);
    await_text(&f, f.events, "backoff");
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_string_equal(of_events(&f, "start", "gen"), "1");
    unlink(f.events);
    write_hook(&f, hook, "#!/bin/sh\necho in hook > $OUT\nexec sleep 1000\n");
    start(&f, "--pre-start", hook, "--", "true", NULL);
    await_text(&f, f.out, "in hook");
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_string_equal(of_events(&f, "start", "gen"), "");
    assert_string_equal(of_events(&f, "shutdown", "signal"), "terminated");
    end(&f);
}

static void sighup_goes_to_the_worker(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--", "sh", "-c",
          "trap 'echo got HUP >> $OUT' HUP; "
          "echo ready > $OUT; while :; do sleep 0.02; done",
          NULL);
    await_text(&f, f.out, "ready");
    kill(f.pid, SIGHUP);
    await_text(&f, f.out, "got HUP");
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_string_equal(of_events(&f, "start", "gen"), "1");
    end(&f);
}

static void a_failing_hook_before_a_start_skips_it_and_counts(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--burst-max=2", "--pre-start", "false", "--pre-start", "true", "--", "sh", "-c",
          "echo started > $OUT", NULL);
    assert_int_equal(status_of(&f), 1);
    assert_string_equal(file_text(&f, f.out).p, "");
    assert_string_equal(of_events(&f, "prestart", "hook"), "false true false true");
    assert_string_equal(of_events(&f, "prestart", "exit_code"), "1 0 1 0");
    assert_string_equal(of_events(&f, "start", "gen"), "");
    end(&f);
}

static void a_hook_that_takes_too_long_is_killed(void **state)
{
    struct fixture f;
    char hook[128];
    (void)state;
    begin(&f);
    write_hook(&f, hook, "#!/bin/sh\nsleep 1000\n");
    start(&f, "--burst-max=1", "--pre-start-timeout=50ms", "--pre-start", hook, "--", "true", NULL);
    assert_int_equal(status_of(&f), 1);
    assert_string_equal(of_events(&f, "prestart", "error"), "hook timed out");
    end(&f);
}

static void hooks_after_an_end_know_how_it_was(void **state)
{
    struct fixture f;
    char hook[128];
    (void)state;
    begin(&f);
    write_hook(&f, hook,
               "#!/bin/sh\necho \"$WORKER_EXIT_CODE/$WORKER_SIGNAL/$WORKER_ATTEMPT/"
               "${WORKER_PID:+pid}/${WORKER_DURATION_MS:+ms}/$SALLYPORT_KEEP_FD\" >> $OUT\n"
               "exit 5\n");
    start(&f, "--burst-max=1", "--post-exit", hook, "--", "sh", "-c", "kill -9 $$", NULL);
    assert_int_equal(status_of(&f), 1);
    assert_string_equal(file_text(&f, f.out).p, "-1/killed/1/pid/ms/\n");
    assert_string_equal(of_events(&f, "postexit", "exit_code"), "5");
    end(&f);
}

static void hooks_after_an_end_run_when_it_stops_too(void **state)
{
    struct fixture f;
    char hook[128];
    (void)state;
    begin(&f);
    write_hook(&f, hook, "#!/bin/sh\nsleep 0.1\necho after >> $OUT\n");
    start(&f, "--post-exit", hook, "--", "sleep", "1000", NULL);
    await_text(&f, f.events, "start");
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    assert_string_equal(file_text(&f, f.out).p, "after\n");
    end(&f);
}

static void a_command_that_is_not_there_is_tried_again(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    start(&f, "--burst-max=2", "--", "/nonexistent/worker", NULL);
    assert_int_equal(status_of(&f), 1);
    assert_string_equal(of_events(&f, "exit", "reason"), "launch_failed launch_failed");
    assert_string_equal(of_events(&f, "exit", "name"), "worker worker");
    end(&f);
}

static void wrong_usage_exits_with_2(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    f.quiet = true;
    start(&f, "--nonsense", "--", "true", NULL);
    assert_int_equal(status_of(&f), 2);
    start(&f, "--", NULL);
    assert_int_equal(status_of(&f), 2);
    start(&f, "--event-log", "/proc/none/events", "--", "true", NULL);
    assert_int_equal(status_of(&f), 2);
    end(&f);
}

/* ---- the worker that this program is */

static void say(const char *what, unsigned value)
{
    FILE *file = fopen(getenv("OUT"), "a");
    fprintf(file, "%s=%u\n", what, value);
    fclose(file);
}

static int leave_things(struct keep *k)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&any, n) != 0 || listen(fd, 5) != 0 ||
        getsockname(fd, (struct sockaddr *)&any, &n) != 0 ||
        keep_put(k, STR("api"), STR_NONE, fd) != WHY_OK ||
        keep_put_text(k, STR("policy"), STR("{}")) != WHY_OK)
        return 1;
    say("port", ntohs(any.sin_port));
    kill(getpid(), SIGKILL);
    return 1;
}

static int be_worker(void)
{
    struct arena a;
    struct kept_list list;
    struct str text;
    struct keep *k = keep_open(getenv(KEEP_VARIABLE));
    arena_init(&a, NULL, 0);
    if (!k || keep_load(k, &a, &list) != WHY_OK)
        return 1;
    if (list.n == 0)
        return leave_things(k);
    if (!keep_text(keep_find(&list, STR("policy")), 100, &a, &text) || !str_eq(text, STR("{}")))
        return 1;
    int client = accept(keep_find(&list, STR("api"))->fd, NULL, NULL);
    if (write(client, "hello", 5) == 5)
        say("served", list.n);
    for (;;)
        pause();
}

static void who_comes_while_the_worker_is_down_is_served_by_its_successor(void **state)
{
    struct fixture f;
    char self[256], got[6] = "";
    (void)state;
    begin(&f);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    start(&f, "--backoff-min=300ms", "--backoff-max=300ms", "--", self, "--worker", NULL);
    await_text(&f, f.events, "backoff");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)number_in(&f));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_string_equal(of_events(&f, "start", "gen"), "1");
    assert_int_equal(read(fd, got, 5), 5);
    assert_string_equal(got, "hello");
    await_text(&f, f.out, "served=2");
    close(fd);
    kill(f.pid, SIGTERM);
    assert_int_equal(status_of(&f), 0);
    end(&f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spent_budget_ends_with_status_1),
        cmocka_unit_test(a_spent_budget_may_only_be_told),
        cmocka_unit_test(a_long_run_starts_the_pauses_anew),
        cmocka_unit_test(told_to_stop_it_ends_the_worker_and_exits_with_0),
        cmocka_unit_test(after_the_grace_period_the_whole_group_is_killed),
        cmocka_unit_test(what_a_dead_worker_had_started_ends_with_it_and_is_reaped),
        cmocka_unit_test(orphans_of_other_groups_are_reaped),
        cmocka_unit_test(a_stop_ends_a_pause_and_a_hook_before_a_start),
        cmocka_unit_test(sighup_goes_to_the_worker),
        cmocka_unit_test(a_failing_hook_before_a_start_skips_it_and_counts),
        cmocka_unit_test(a_hook_that_takes_too_long_is_killed),
        cmocka_unit_test(hooks_after_an_end_know_how_it_was),
        cmocka_unit_test(hooks_after_an_end_run_when_it_stops_too),
        cmocka_unit_test(a_command_that_is_not_there_is_tried_again),
        cmocka_unit_test(who_comes_while_the_worker_is_down_is_served_by_its_successor),
        cmocka_unit_test(wrong_usage_exits_with_2),
    };
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return be_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
