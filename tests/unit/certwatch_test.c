/* certwatch_test.c — files that change are told once and together; keys turn and ends are told by
 * the clock; what /metrics and the log say of a certificate. */
#include "ingress/certwatch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "conf/sources.h"
#include "harness/pems.h"
#include "net/worker_impl.h"

enum { HOUR_MS = 3600000, NOON_S = 1012608000 /* the end of PEM_OLD */ };

static struct {
    struct arena a;
    struct ingress_settings s;
    struct ingress_view view;
    struct worker *w;
    struct certwatch *watch;
    struct str error;
    unsigned changes, turns;
    uint64_t ahead_ms;
    char dir[64];
} t;

uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + t.ahead_ms;
}

void __wrap_tls_tickets_turn(struct tls_tickets *tickets);
void __wrap_tls_tickets_turn(struct tls_tickets *tickets)
{
    assert_ptr_equal(tickets, t.view.tickets);
    t.turns++;
}

static void on_changed(void *user)
{
    assert_ptr_equal(user, &t);
    t.changes++;
}

static const struct ingress_view *view_of(void *user)
{
    assert_ptr_equal(user, &t);
    return &t.view;
}

static const struct certwatch_events events = {on_changed, view_of};

static const char *at(const char *name)
{
    return arena_printf(&t.a, "%s/%s", t.dir, name).p;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    arena_init(&t.a, NULL, 0);
    snprintf(t.dir, sizeof t.dir, "/tmp/certwatch_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    t.w = worker_new(0);
    static const char *const names[] = {"one", "two", "old", "odd"};
    static const char *const pems[][2] = {{PEM_ONE_CRT, PEM_ONE_KEY},
                                          {PEM_TWO_CRT, PEM_TWO_KEY},
                                          {PEM_OLD_CRT, PEM_OLD_KEY},
                                          {PEM_ODD_CRT, PEM_ODD_KEY}};
    for (int i = 0; i < 4; i++) {
        put(arena_printf(&t.a, "%s.crt", names[i]).p, pems[i][0]);
        put(arena_printf(&t.a, "%s.key", names[i]).p, pems[i][1]);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    certwatch_stop(t.watch);
    worker_turn(t.w);
    worker_free(t.w);
    certs_unref(t.view.certs);
    tls_tickets_unref(t.view.tickets);
    arena_done(&t.a);
    snprintf(command, sizeof command, "rm -r %s", t.dir);
    return system(command);
}

/* Stems of pairs, separated by blanks. */
static void load(const char *stems)
{
    struct str rest = str_of(stems), stem, error;
    t.s.tls_cert = t.s.tls_key = STR_NONE;
    while (str_next(&rest, ' ', &stem)) {
        const char *comma = t.s.tls_cert.n ? "," : "";
        t.s.tls_cert = arena_printf(&t.a, "%.*s%s%s/%.*s.crt", STR_ARG(t.s.tls_cert), comma, t.dir,
                                    STR_ARG(stem));
        t.s.tls_key = arena_printf(&t.a, "%.*s%s%s/%.*s.key", STR_ARG(t.s.tls_key), comma, t.dir,
                                   STR_ARG(stem));
    }
    certs_unref(t.view.certs);
    t.view.certs = certs_load(&t.s, &t.a, &error);
    assert_non_null(t.view.certs);
}

static void start(void)
{
    t.watch = certwatch_start(t.w, &t.s, &events, &t);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void turns(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        worker_turn(t.w);
        nap();
    }
}

static void until_changes(unsigned n)
{
    for (int i = 0; t.changes < n && i < 2000; i++)
        turns(1);
    assert_int_equal(t.changes, n);
}

/* ---- files */

static void both_files_of_a_pair_are_one_change(void **state)
{
    (void)state;
    load("one");
    start();
    turns(5);
    put("one.crt", PEM_TWO_CRT);
    put("one.key", PEM_TWO_KEY);
    until_changes(1);
    turns(300); /* a second and a half: both were seen by then */
    assert_int_equal(t.changes, 1);
}

static void what_comes_into_the_folder_is_watched_from_then_on(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("d"), 0700), 0);
    t.s.tls_cert_dir = str_of(at("d"));
    load("one");
    start();
    turns(5);
    put("d/a.crt", PEM_ONE_CRT);
    put("d/a.key", PEM_ONE_KEY);
    until_changes(1);
    turns(5);
    put("d/a.crt", PEM_TWO_CRT); /* the folder itself does not change */
    until_changes(2);
}

static void authorities_and_ticket_keys_are_watched(void **state)
{
    (void)state;
    put("ca", "1");
    put("tickets", "1");
    load("one");
    t.s.tls_client_ca = str_of(at("ca"));
    t.s.tls_ticket_keys_file = str_of(at("tickets"));
    start();
    turns(5);
    put("ca", "22");
    until_changes(1);
    put("tickets", "22");
    until_changes(2);
}

/* ---- clock */

static void pass(uint64_t ms)
{
    t.ahead_ms += ms;
    wheel_turn(&t.w->wheel, uv_now(&t.w->loop));
}

static void random_ticket_keys_turn_every_twelve_hours(void **state)
{
    (void)state;
    load("one");
    t.view.tickets = tls_tickets_new();
    start();
    for (unsigned hours = 0; hours < 50; hours++) {
        assert_int_equal(t.turns, hours / 12);
        pass(HOUR_MS + 200); /* a timer may be a slot late */
    }
}

static void ticket_keys_of_a_file_do_not_turn(void **state)
{
    (void)state;
    put("tickets", "1");
    load("one");
    t.s.tls_ticket_keys_file = str_of(at("tickets"));
    start();
    pass(50 * (uint64_t)HOUR_MS);
    assert_int_equal(t.turns, 0);
}

/* ---- what is said */

static void begin_log(void)
{
    char error[100];
    assert_true(log_start("test", str_of(at("log")), LOG_DEBUG, error, sizeof error));
}

static struct str end_log(void)
{
    struct str text, error;
    log_stop();
    assert_true(conf_read_file(str_of(at("log")), 1 << 20, &t.a, &text, &error));
    return text;
}

static unsigned count(struct str s, const char *what)
{
    unsigned n = 0;
    for (const char *p = s.p; (p = memmem(p, s.n - (size_t)(p - s.p), what, strlen(what))); p++)
        n++;
    return n;
}

static void warnings_begin_fourteen_days_before_the_end(void **state)
{
    (void)state;
    static const struct {
        int64_t left_s;
        unsigned soon, over;
    } cases[] = {{14 * 86400, 0, 0}, {14 * 86400 - 1, 1, 0}, {86400, 1, 0}, {1, 1, 0}, {0, 0, 1},
                 {-1, 0, 1},         {-9000000, 0, 1}};
    load("old one");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unlink(at("log"));
        begin_log();
        certwatch_warn(t.view.certs, NOON_S - cases[i].left_s);
        struct str text = end_log();
        assert_int_equal(count(text, "a certificate ends soon"), cases[i].soon);
        assert_int_equal(count(text, "a certificate is past its end"), cases[i].over);
        assert_int_equal(count(text, "\"name\":\"old.test\""), cases[i].soon + cases[i].over);
    }
}

static void a_warning_comes_again_each_day(void **state)
{
    (void)state;
    load("old");
    start();
    begin_log();
    for (int day = 0; day < 3; day++)
        pass(24 * (uint64_t)HOUR_MS + 200);
    assert_int_equal(count(end_log(), "past its end"), 3);
}

static struct str metrics(void)
{
    struct metrics_out o;
    metrics_out_init(&o);
    certwatch_metrics(t.view.certs, NOON_S - 60, &o);
    struct str text = arena_str(&t.a, (struct str){o.p, o.n});
    metrics_out_done(&o);
    return text;
}

static void a_gauge_says_how_long_each_name_is_good(void **state)
{
    (void)state;
    static const char family[] = "ingress_tls_certificate_left_seconds{";
    load("old one old odd");
    struct str text = metrics();
    assert_int_equal(count(text, family), 3); /* no name twice, or the page would be refused */
    assert_int_equal(count(text, "{name=\"old.test\"} 60\n"), 1);
    assert_int_equal(count(text, "{name=\"one.test\"} "), 1);
    assert_int_equal(count(text, "{name=\"od_d___x_.test\"} "), 1);
    certs_unref(t.view.certs);
    t.view.certs = NULL;
    assert_int_equal(metrics().n, 0);
}

static void labels_are_bounded(void **state)
{
    (void)state;
    char stems[100 * 8] = "one";
    for (int i = 0; i < 70; i++)
        snprintf(stems + strlen(stems), sizeof stems - strlen(stems), " old");
    load(stems);
    assert_int_equal(certs_count(t.view.certs), 71);
    assert_int_equal(count(metrics(), "left_seconds{"), 2);
    begin_log();
    certwatch_warn(t.view.certs, NOON_S);
    assert_int_equal(count(end_log(), "past its end"), 64);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(both_files_of_a_pair_are_one_change),
        T(what_comes_into_the_folder_is_watched_from_then_on),
        T(authorities_and_ticket_keys_are_watched),
        T(random_ticket_keys_turn_every_twelve_hours),
        T(ticket_keys_of_a_file_do_not_turn),
        T(warnings_begin_fourteen_days_before_the_end),
        T(a_warning_comes_again_each_day),
        T(a_gauge_says_how_long_each_name_is_good),
        T(labels_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
