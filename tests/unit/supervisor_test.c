/* supervisor_test.c — the supervisor's pure parts: when it starts again, and its command line
 * (contract egress-policy 1.5, 7.4). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/json.h"
#include "egress/supervisor/child.h"
#include "egress/supervisor/events.h"
#include "egress/supervisor/flags.h"

static const struct schedule_rules defaults = {1000, 30000, 60000, 300000, 0.1, 10};

static void chance_moves_a_pause_and_never_out_of_its_limits(void **state)
{
    static const struct {
        double chance;
        uint64_t pauses[7];
    } rows[] = {
        {-1, {1000, 1800, 3600, 7200, 14400, 27000, 27000}},
        {0, {1000, 2000, 4000, 8000, 16000, 30000, 30000}},
        {1, {1100, 2200, 4400, 8800, 17600, 30000, 30000}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct schedule s;
        schedule_init(&s, &defaults);
        for (int k = 0; k < 7; k++)
            assert_int_equal(schedule_ended(&s, 0, 0, rows[i].chance).sleep_ms, rows[i].pauses[k]);
    }
}

static void great_limits_do_not_overflow(void **state)
{
    struct schedule_rules r = {1, INT64_MAX / 1000000, 1000, UINT64_MAX, 1, 0};
    struct schedule s;
    (void)state;
    schedule_init(&s, &r);
    for (int i = 0; i < 100; i++) {
        struct schedule_verdict v = schedule_ended(&s, 0, 0, 1);
        assert_true(v.sleep_ms >= r.backoff_min_ms && v.sleep_ms <= r.backoff_max_ms);
        assert_false(v.burst);
    }
}

/* Starts of no length, each `gap` ms after the one before; which of them spends the budget. */
static int spent_at(unsigned max, uint64_t window_ms, uint64_t gap_ms)
{
    struct schedule_rules r = defaults;
    struct schedule s;
    r.burst_max = max;
    r.burst_window_ms = window_ms;
    schedule_init(&s, &r);
    for (int i = 1; i <= 50; i++) {
        uint64_t now_ms = (uint64_t)i * gap_ms;
        schedule_started(&s, now_ms);
        if (schedule_ended(&s, now_ms, 0, 0).burst)
            return i;
    }
    return 0;
}

static void the_budget_is_spent_when_its_last_starts_lie_in_the_window(void **state)
{
    (void)state;
    assert_int_equal(spent_at(10, 9000, 1000), 10);
    assert_int_equal(spent_at(10, 8999, 1000), 0);
    assert_int_equal(spent_at(1, 0, 1000), 1);
    assert_int_equal(spent_at(0, UINT64_MAX, 0), 0);
    assert_int_equal(spent_at(SCHEDULE_BURST_MAX, UINT64_MAX, 0), 0);
}

static void early_starts_leave_the_window(void **state)
{
    static const uint64_t starts[] = {0, 100, 5000, 5100, 5200};
    struct schedule_rules r = defaults;
    struct schedule s;
    (void)state;
    r.burst_max = 3;
    r.burst_window_ms = 1000;
    schedule_init(&s, &r);
    for (int i = 0; i < 5; i++) {
        schedule_started(&s, starts[i]);
        assert_int_equal(schedule_ended(&s, starts[i], 0, 0).burst, i == 4);
    }
}

/* ---- command line */

static enum flags_verdict read_line(const char *line, struct flags *f)
{
    static char text[1024], *argv[64], error[FLAGS_ERROR_BYTES];
    int argc = 0;
    struct str rest = str_of(line), word;
    char *at = text;
    while (str_next(&rest, ' ', &word)) {
        argv[argc++] = at;
        memcpy(at, word.p, word.n);
        at += word.n;
        *at++ = '\0';
    }
    argv[argc] = NULL;
    return flags_read(argc, argv, f, error);
}

static void command_lines_are_read_as_in_go(void **state)
{
    static const struct {
        const char *line;
        enum flags_verdict verdict;
    } rows[] = {
        {"s -- /bin/true", FLAGS_RUN},
        {"s /bin/true", FLAGS_RUN},
        {"s -name x -- /bin/true", FLAGS_RUN},
        {"s -name=x -- /bin/true --help", FLAGS_RUN},
        {"s --on-burst-exit -- /bin/true", FLAGS_RUN},
        {"s --on-burst-exit=false -- /bin/true", FLAGS_RUN},
        {"s --log-level WARN -- /bin/true", FLAGS_RUN},
        {"s --burst-max 0 -- /bin/true", FLAGS_RUN},
        {"s --help", FLAGS_HELP},
        {"s -h -- /bin/true", FLAGS_HELP},
        {"s --version", FLAGS_VERSION},
        {"s", FLAGS_WRONG},
        {"s --", FLAGS_WRONG},
        {"s -- ", FLAGS_WRONG},
        {"s --name", FLAGS_WRONG},
        {"s --name= -- /bin/true", FLAGS_WRONG},
        {"s --nonsense -- /bin/true", FLAGS_WRONG},
        {"s --=x -- /bin/true", FLAGS_WRONG},
        {"s --on-burst-exit=maybe -- /bin/true", FLAGS_WRONG},
        {"s --backoff-min 1 -- /bin/true", FLAGS_WRONG},
        {"s --backoff-min 0s -- /bin/true", FLAGS_WRONG},
        {"s --backoff-min=-1s -- /bin/true", FLAGS_WRONG},
        {"s --backoff-min 31s -- /bin/true", FLAGS_WRONG},
        {"s --backoff-jitter 1.1 -- /bin/true", FLAGS_WRONG},
        {"s --burst-max 1001 -- /bin/true", FLAGS_WRONG},
        {"s --log-level loud -- /bin/true", FLAGS_WRONG},
        {"s --pre-start= -- /bin/true", FLAGS_WRONG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct flags f;
        if (read_line(rows[i].line, &f) != rows[i].verdict)
            fail_msg("%s", rows[i].line);
    }
}

static void unset_flags_have_the_contracts_defaults(void **state)
{
    struct flags f;
    (void)state;
    assert_int_equal(read_line("s -- /opt/x/egress a b", &f), FLAGS_RUN);
    assert_memory_equal(&f.rules.backoff_min_ms, &defaults.backoff_min_ms, 4 * sizeof(uint64_t));
    assert_true(f.rules.jitter > 0.099 && f.rules.jitter < 0.101);
    assert_int_equal(f.rules.burst_max, 10);
    assert_true(f.on_burst_exit && !f.event_log && f.pre_start.n == 0 && f.post_exit.n == 0);
    assert_int_equal(f.grace_ms, 10000);
    assert_int_equal(f.pre_start.timeout_ms, 30000);
    assert_int_equal(f.post_exit.timeout_ms, 30000);
    assert_true(str_eq(f.name, STR("egress")));
    assert_string_equal(f.command[2], "b");
    assert_null(f.command[3]);
}

static void hooks_may_be_repeated_within_a_bound(void **state)
{
    struct flags f;
    char line[1024] = "s";
    (void)state;
    assert_int_equal(read_line("s --pre-start /a --post-exit=/c --pre-start /b -- x", &f),
                     FLAGS_RUN);
    assert_int_equal(f.pre_start.n, 2);
    assert_string_equal(f.pre_start.paths[1], "/b");
    assert_string_equal(f.post_exit.paths[0], "/c");
    for (int i = 0; i <= HOOKS_MAX; i++) {
        size_t n = strlen(line);
        snprintf(line + n, sizeof line - n, " --pre-start=/a");
    }
    assert_int_equal(read_line(line, &f), FLAGS_WRONG);
}

/* ---- events */

static void a_line_is_json_whatever_it_holds(void **state)
{
    static char much[3 * EVENT_BYTES], got[2 * EVENT_BYTES];
    int ends[2];
    struct event e;
    struct json_fault fault;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    memset(much, 'a', sizeof much);
    struct event_log log = {ends[1], STR("a\"b\\c\n\xff")};
    event_begin(&e, &log, "exit");
    event_int(&e, "exit_code", -1);
    event_str(&e, "error", (struct str){much, sizeof much});
    event_true(&e, "reset_backoff");
    event_end(&e, &log);
    ssize_t n = read(ends[0], got, sizeof got);
    assert_in_range(n, 1, EVENT_BYTES);
    assert_int_equal(got[n - 1], '\n');
    struct json_doc *doc = json_parse((struct str){got, (size_t)n - 1}, 0, 8, &fault);
    assert_non_null(doc);
    const struct json *root = json_root(doc);
    assert_true(str_eq(json_string(json_member(root, STR("name"))), STR("a\"b\\c\n\xef\xbf\xbd")));
    assert_null(json_member(root, STR("error")));
    assert_true(json_bool(json_member(root, STR("reset_backoff"))));
    json_free(doc);
    close(ends[0]);
    close(ends[1]);
}

static void a_full_pipe_loses_lines_and_holds_nobody_up(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    struct event_log log = {ends[1], STR("w")};
    static char much[4000];
    memset(much, 'a', sizeof much);
    uint64_t begun_ms = clock_ms();
    for (int i = 0; i < 20; i++) {
        struct event e;
        event_begin(&e, &log, "exit");
        event_str(&e, "error", (struct str){much, sizeof much});
        event_end(&e, &log);
    }
    assert_true(clock_ms() - begun_ms < 5000);
    close(ends[0]);
    close(ends[1]);
}

static void signals_have_their_usual_names(void **state)
{
    char room[32];
    (void)state;
    assert_true(str_eq(signal_text(9, room), STR("killed")));
    assert_true(str_eq(signal_text(15, room), STR("terminated")));
    assert_true(str_eq(signal_text(40, room), STR("signal 40")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chance_moves_a_pause_and_never_out_of_its_limits),
        cmocka_unit_test(great_limits_do_not_overflow),
        cmocka_unit_test(the_budget_is_spent_when_its_last_starts_lie_in_the_window),
        cmocka_unit_test(early_starts_leave_the_window),
        cmocka_unit_test(command_lines_are_read_as_in_go),
        cmocka_unit_test(unset_flags_have_the_contracts_defaults),
        cmocka_unit_test(hooks_may_be_repeated_within_a_bound),
        cmocka_unit_test(a_line_is_json_whatever_it_holds),
        cmocka_unit_test(a_full_pipe_loses_lines_and_holds_nobody_up),
        cmocka_unit_test(signals_have_their_usual_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
