/* static_test.c — the resolver of --routes on a real worker and real files. */
#include "ingress/static.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/map.h"
#include "ingress/table.h"
#include "net/worker.h"

enum { SEEN_MS = 2000, SLICE = 1024 };

static char log_path[] = "/tmp/static_test_log.XXXXXX";

static struct {
    char dir[64], file[96], other[96];
    struct worker *w;
    struct static_routes *s;
    struct map *known; /* what was put and is not gone: id → record */
    unsigned changes, puts, gones, ready;
    size_t largest;      /* change */
    uint64_t gone_at_ms; /* Unix time of the last one */
    size_t log_from;     /* end of the log when the test began */
    char error[512];
} t;

/* ---- time ---- */

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void run(uint64_t ms)
{
    for (uint64_t end = now_ms() + ms; now_ms() < end; nap())
        worker_turn(t.w);
}

/* ---- what is told ---- */

static void on_ready(void *user)
{
    assert_ptr_equal(user, &t);
    t.ready++;
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    assert_ptr_equal(user, &t);
    assert_true(nput + ngone > 0);
    t.largest = nput + ngone > t.largest ? nput + ngone : t.largest;
    t.changes++;
    t.puts += (unsigned)nput;
    t.gones += (unsigned)ngone;
    for (size_t i = 0; i < ngone; i++) {
        struct sandbox *s = map_del(t.known, gone[i]);
        assert_non_null(s);
        sandbox_unref(s);
        t.gone_at_ms = clock_ms(CLOCK_REALTIME);
    }
    for (size_t i = 0; i < nput; i++) {
        sandbox_ref(put[i]);
        sandbox_unref(map_put(t.known, put[i]->id, (void *)(uintptr_t)put[i]));
    }
}

static const struct resolver_events events = {.ready = on_ready, .change = on_change};

static const struct sandbox *known(const char *id)
{
    return map_get(t.known, str_of(id));
}

static uint64_t generation(const char *id)
{
    const struct sandbox *s = known(id);
    return s ? s->generation : 0;
}

static bool leads_to(const char *id, const char *host)
{
    const struct sandbox *s = known(id);
    return s && str_eq(sandbox_endpoint(s, 80)->host, str_of(host));
}

/* Turns the loop until sandbox `id` leads to `host` (NULL: is gone); how long it took. */
static uint64_t run_until(const char *id, const char *host)
{
    uint64_t start = now_ms();
    while (host ? !leads_to(id, host) : known(id) != NULL) {
        if (now_ms() > start + 10000)
            fail_msg("%s never led to %s", id, host ? host : "nothing");
        worker_turn(t.w);
        nap();
    }
    return now_ms() - start;
}

static void run_until_ready(void)
{
    for (uint64_t end = now_ms() + 20000; t.ready == 0; nap()) {
        assert_true(now_ms() < end);
        worker_turn(t.w);
    }
}

/* ---- files ---- */

static void write_bytes(const char *path, const char *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

static void write_file(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

static void write_routes(const char *path, const char *inside)
{
    char text[2048];
    snprintf(text, sizeof text, "{\"sandboxes\":{%s}}", inside);
    write_file(path, text);
}

#define ENTRY(id, host) "\"" id "\":{\"address\":\"" host "\"}"

/* n sandboxes as a large installation would write them. */
static void write_many(const char *path, unsigned from, unsigned n)
{
    size_t room = 64 + (size_t)n * 160, at = 0;
    char *text = mem_new(room);
    at += (size_t)snprintf(text, room, "{\"sandboxes\":{");
    for (unsigned i = from; i < from + n; i++)
        at += (size_t)snprintf(
            text + at, room - at,
            "%s\n\"%08x-7c5a-7c1e-9f5b-6d3f5a2c%04x\":{\"address\":\"10.%u.%u.%u\","
            "\"secureAccessToken\":\"%08x%08x\"}",
            i == from ? "" : ",", i * 2654435761u, i & 0xffff, i >> 16 & 255, i >> 8 & 255, i & 255,
            i, ~i);
    at += (size_t)snprintf(text + at, room - at, "}}\n");
    write_bytes(path, text, at);
    mem_free(text);
}

/* The log of this test so far. */
static char *read_log(void)
{
    static char text[1 << 16];
    int fd = open(log_path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = pread(fd, text, sizeof text - 1, (off_t)t.log_from);
    assert_true(n >= 0);
    text[n] = '\0';
    close(fd);
    return text;
}

static unsigned count_in_log(const char *what)
{
    run(200); /* the log has a thread of its own */
    unsigned n = 0;
    for (const char *at = read_log(); (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* ---- each test ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/static_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.file, sizeof t.file, "%s/routes.json", t.dir);
    snprintf(t.other, sizeof t.other, "%s/other.json", t.dir);
    t.w = worker_new(0);
    t.known = map_new();
    run(50);
    struct stat s;
    assert_int_equal(stat(log_path, &s), 0);
    t.log_from = (size_t)s.st_size;
    return 0;
}

static void forget_known(void)
{
    size_t at = 0;
    for (struct sandbox *s; (s = map_next(t.known, &at));)
        sandbox_unref(s);
    map_free(t.known);
}

static int tear_down(void **state)
{
    (void)state;
    static_stop(t.s);
    for (unsigned i = 0; i < 5; i++)
        worker_turn(t.w);
    worker_free(t.w);
    forget_known();
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", t.dir);
    return system(command);
}

static bool start(const char *path)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    t.s = static_start(t.w, str_of(path), &events, &t, &a, &error);
    if (!t.s)
        snprintf(t.error, sizeof t.error, "%.*s", STR_ARG(error));
    arena_done(&a);
    return t.s != NULL;
}

static void start_ready(const char *inside)
{
    write_routes(t.file, inside);
    assert_true(start(t.file));
    run_until_ready();
}

/* ---- tests: the start ---- */

static void the_first_list_is_told_before_ready(void **state)
{
    (void)state;
    write_routes(t.file, ENTRY("a", "10.0.0.1") "," ENTRY("b", "b.test"));
    assert_true(start(t.file));
    assert_int_equal(t.changes, 0); /* events come on the loop */
    assert_int_equal(static_size(t.s), 2);
    run_until_ready();
    assert_int_equal(t.ready, 1);
    assert_true(leads_to("a", "10.0.0.1"));
    assert_true(leads_to("b", "b.test"));
    assert_int_equal(t.puts, 2);
    run(50);
    assert_int_equal(t.ready, 1);
    assert_int_equal(count_in_log("\"routes read\""), 1);
    assert_int_equal(count_in_log("\"sandboxes\":2"), 1);
    assert_true(static_read_s(t.s) + 5 > (int64_t)time(NULL));
}

static void an_empty_list_is_ready_too(void **state)
{
    (void)state;
    start_ready("");
    assert_int_equal(t.changes, 0);
    assert_int_equal(static_size(t.s), 0);
}

static void a_fault_at_the_start_is_one_line_with_its_place(void **state)
{
    (void)state;
    char expected[256];
    write_file(t.file, "{\"sandboxes\":{\n \"a\":{\"address\":\"h:1\"}}}");
    assert_false(start(t.file));
    snprintf(expected, sizeof expected,
             "--routes: %s:2:17: sandbox \"a\": \"address\" must be an IP address or a host name, "
             "without port",
             t.file);
    assert_string_equal(t.error, expected);

    assert_false(start(t.other));
    snprintf(expected, sizeof expected, "--routes: %s: No such file or directory", t.other);
    assert_string_equal(t.error, expected);

    assert_false(start(t.dir));
    snprintf(expected, sizeof expected, "--routes: %s: is not a regular file", t.dir);
    assert_string_equal(t.error, expected);

    assert_int_equal(mkfifo(t.other, 0600), 0);
    assert_false(start(t.other));
    assert_non_null(strstr(t.error, "is not a regular file"));
    assert_int_equal(t.changes + t.ready, 0);
}

static void a_check_says_what_a_start_would(void **state)
{
    (void)state;
    struct arena a;
    struct str error = STR("");
    arena_init(&a, NULL, 0);
    write_routes(t.file, ENTRY("a", "10.0.0.1"));
    assert_true(static_check(str_of(t.file), &a, &error));
    assert_int_equal(error.n, 0);
    write_routes(t.file, ENTRY("a", "10.0.0.256"));
    assert_false(static_check(str_of(t.file), &a, &error));
    assert_false(start(t.file));
    assert_true(str_eq(error, str_of(t.error)));
    assert_false(static_check(str_of(t.other), &a, &error));
    assert_true(str_starts(error, STR("--routes: ")) &&
                str_iends(error, STR(": No such file or directory")));
    arena_done(&a);
}

static void a_long_list_is_told_in_slices(void **state)
{
    (void)state;
    write_many(t.file, 0, 10 * SLICE + 1);
    assert_true(start(t.file));
    run_until_ready();
    assert_int_equal(t.puts, 10 * SLICE + 1);
    assert_int_equal(t.largest, SLICE);
    assert_int_equal(t.changes, 11);
    t.changes = 0;
    write_many(t.file, 5 * SLICE, 10 * SLICE + 1); /* half of them others */
    static_reload(t.s);
    for (uint64_t end = now_ms() + 5000; t.gones < 5 * SLICE || t.puts < 15 * SLICE + 1; nap()) {
        assert_true(now_ms() < end);
        worker_turn(t.w);
    }
    run(50);
    assert_int_equal(t.gones, 5 * SLICE);
    assert_int_equal(t.puts, 15 * SLICE + 1);
    assert_int_equal(t.largest, SLICE);
    assert_int_equal(map_size(t.known), 10 * SLICE + 1);
}

/* ---- tests: changes ---- */

static void a_rewritten_file_counts_within_two_seconds(void **state)
{
    (void)state;
    start_ready(ENTRY("a", "10.0.0.1") "," ENTRY("b", "10.0.0.2"));
    run(200);
    write_routes(t.file, ENTRY("a", "10.0.0.3") "," ENTRY("c", "10.0.0.4"));
    assert_true(run_until("a", "10.0.0.3") <= SEEN_MS);
    run(20);
    assert_null(known("b"));
    assert_true(leads_to("c", "10.0.0.4"));
    assert_int_equal(t.puts, 4);
    assert_int_equal(t.gones, 1);
    assert_int_equal(static_size(t.s), 2);
}

static void a_file_renamed_over_counts(void **state)
{
    (void)state;
    start_ready(ENTRY("a", "10.0.0.1"));
    write_routes(t.other, ENTRY("a", "10.0.0.2"));
    assert_int_equal(rename(t.other, t.file), 0);
    assert_true(run_until("a", "10.0.0.2") <= SEEN_MS);
}

static void a_link_turned_counts(void **state)
{
    (void)state;
    char link[96], fresh[96];
    snprintf(link, sizeof link, "%s/link", t.dir);
    snprintf(fresh, sizeof fresh, "%s/fresh", t.dir);
    write_routes(t.file, ENTRY("a", "10.0.0.1"));
    write_routes(t.other, ENTRY("a", "10.0.0.2"));
    assert_int_equal(symlink(t.file, link), 0);
    assert_true(start(link));
    run_until_ready();
    assert_int_equal(symlink(t.other, fresh), 0);
    assert_int_equal(rename(fresh, link), 0);
    assert_true(run_until("a", "10.0.0.2") <= SEEN_MS);
}

static void a_reload_counts_at_once(void **state)
{
    (void)state;
    start_ready(ENTRY("a", "10.0.0.1"));
    write_routes(t.file, ENTRY("a", "10.0.0.2"));
    static_reload(t.s);
    assert_true(run_until("a", "10.0.0.2") <= 900);
}

static void a_reload_during_a_reload_is_not_forgotten(void **state)
{
    (void)state;
    start_ready(ENTRY("a", "10.0.0.1"));
    for (unsigned i = 2; i < 40; i++) {
        char inside[64], host[32];
        snprintf(host, sizeof host, "10.0.0.%u", i);
        snprintf(inside, sizeof inside, "\"a\":{\"address\":\"%s\"}", host);
        static_reload(t.s); /* may read the old text or the new */
        for (unsigned k = 0; k < i % 5; k++)
            worker_turn(t.w);
        write_routes(t.file, inside);
        static_reload(t.s);
        assert_true(run_until("a", host) <= 900);
    }
}

static void what_did_not_change_keeps_its_generation(void **state)
{
    (void)state;
#define REST                                                                                      \
    "\"b\":{\"address\":\"[::1]\",\"state\":\"Running\",\"ports\":{\"80\":{\"address\":\"h:1\"}," \
    "\"90\":{}},"                                                                                 \
    "\"expiresAt\":\"2099-01-01T00:00:00Z\"},"                                                    \
    "\"c\":{\"address\":\"h\",\"secureAccessToken\":\" tok \"}"
#define REST_OTHERWISE                                                                             \
    "\"c\":{\"secureAccessToken\":\"tok\",\"address\":\"h\"},\n"                                   \
    "\"b\":{\"expiresAt\":\"2099-01-01T01:00:00+01:00\",\"ports\":{\"90\":{},\"80\":{\"address\":" \
    "\"h:1\"}},"                                                                                   \
    "\"address\":\"0:0::1\"}"
    start_ready(ENTRY("a", "10.0.0.1") "," REST);
    uint64_t a = generation("a"), b = generation("b"), c = generation("c");
    assert_true(a && b && c);
    write_routes(t.file, REST_OTHERWISE "," ENTRY("a", "10.0.0.2"));
    static_reload(t.s);
    run_until("a", "10.0.0.2");
    assert_true(generation("a") > a);
    assert_int_equal(generation("b"), b);
    assert_int_equal(generation("c"), c);
    assert_int_equal(t.puts, 4);
    assert_int_equal(t.gones, 0);
    static_reload(t.s);
    run(200);
    assert_int_equal(t.puts, 4);
    assert_int_equal(generation("b"), b);
}

static void a_changed_port_makes_another_record(void **state)
{
    (void)state;
    start_ready("\"a\":{\"address\":\"h\",\"ports\":{\"80\":{\"address\":\"h:1\"}}}");
    uint64_t a = generation("a");
    write_routes(t.file, "\"a\":{\"address\":\"h\",\"ports\":{\"80\":{\"address\":\"h:2\"}}}");
    static_reload(t.s);
    run(300);
    assert_true(generation("a") > a);
    assert_int_equal(t.gones, 0);
}

/* LIFE-01, as a file can tell it */
static void back_and_forth_ends_with_the_last_word(void **state)
{
    (void)state;
    start_ready(ENTRY("sb1", "a"));
    uint64_t last = generation("sb1");
    for (unsigned i = 0; i < 20; i++) {
        const char *host = i % 2 ? "a" : "b";
        write_routes(t.file, i % 2 ? ENTRY("sb1", "a") : ENTRY("sb1", "b"));
        static_reload(t.s);
        run_until("sb1", host);
        assert_true(generation("sb1") > last); /* never an old record again */
        last = generation("sb1");
    }
    write_routes(t.file, "");
    static_reload(t.s);
    run_until("sb1", NULL);
    run(1300);
    assert_null(known("sb1"));
}

/* ---- tests: faults ---- */

static void a_bad_file_changes_nothing_and_is_logged_once(void **state)
{
    (void)state;
    char place[160];
    start_ready(ENTRY("a", "10.0.0.1"));
    uint64_t a = generation("a");
    write_file(t.file, "{\"sandboxes\":{\"a\":{\"address\":\"secret-name:80\"}}}");
    run(2500);
    assert_int_equal(generation("a"), a);
    assert_int_equal(t.changes, 1);
    assert_int_equal(static_size(t.s), 1);
    assert_int_equal(static_faults(t.s), 1);
    snprintf(place, sizeof place, "%s:1:30: sandbox", t.file);
    assert_int_equal(count_in_log(place), 1);
    assert_int_equal(count_in_log("\"level\":\"error\""), 1);
    assert_int_equal(count_in_log("--routes"), 1);
    assert_int_equal(count_in_log("secret-name"), 0);

    write_file(t.file,
               "{\"sandboxes\":{\"a\":{\"address\":\"secret-name:8080\"}}}"); /* the same fault */
    run(1500);
    assert_int_equal(static_faults(t.s), 2);
    assert_int_equal(count_in_log(place), 1);
    static_reload(t.s); /* but somebody who asks is told */
    run(300);
    assert_int_equal(count_in_log(place), 2);
    write_file(t.file, "{\"sandboxes\":{\n\"a\":{}}}"); /* and another fault is another line */
    run(1500);
    snprintf(place, sizeof place, "%s:2:5: sandbox", t.file);
    assert_int_equal(count_in_log(place), 1);

    write_routes(t.file, ENTRY("a", "10.0.0.2"));
    assert_true(run_until("a", "10.0.0.2") <= SEEN_MS);
    assert_int_equal(static_faults(t.s), 0);
    assert_true(generation("a") > a);
}

static void a_file_that_goes_changes_nothing(void **state)
{
    (void)state;
    start_ready(ENTRY("a", "10.0.0.1"));
    uint64_t a = generation("a");
    unlink(t.file);
    run(2300);
    assert_int_equal(generation("a"), a);
    assert_int_equal(count_in_log("No such file or directory"), 1);
    write_routes(t.file, ENTRY("a", "10.0.0.1") "," ENTRY("b", "10.0.0.2"));
    assert_true(run_until("b", "10.0.0.2") <= SEEN_MS);
    assert_int_equal(generation("a"), a);
}

/* ---- tests: expiry ---- */

static void put_time(char out[32], int64_t unix_s)
{
    time_t s = (time_t)unix_s;
    struct tm tm;
    gmtime_r(&s, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
}

static void write_expiring(const char *id, int64_t until, const char *fraction, const char *more)
{
    char at[32], inside[512];
    put_time(at, until);
    snprintf(inside, sizeof inside, "\"%s\":{\"address\":\"h\",\"expiresAt\":\"%s%sZ\"}%s", id, at,
             fraction, more);
    write_routes(t.file, inside);
}

static void an_entry_ends_in_the_second_it_says(void **state)
{
    (void)state;
    int64_t until = (int64_t)time(NULL) + 2;
    write_expiring("a", until, ".9", "," ENTRY("b", "10.0.0.2"));
    assert_true(start(t.file));
    run_until_ready();
    assert_true(leads_to("a", "h"));
    assert_int_equal(static_size(t.s), 2);
    uint64_t b = generation("b");
    run_until("a", NULL);
    assert_true(t.gone_at_ms >= (uint64_t)until * 1000);
    assert_true(t.gone_at_ms < (uint64_t)until * 1000 + 900);
    assert_int_equal(static_size(t.s), 1);
    assert_int_equal(generation("b"), b);
    static_reload(t.s); /* the file still names it */
    run(300);
    assert_null(known("a"));
    assert_int_equal(t.gones, 1);
    assert_int_equal(generation("b"), b);
    assert_int_equal(static_size(t.s), 1);
    write_routes(t.file, ENTRY("b", "10.0.0.2")); /* nor is it gone twice */
    static_reload(t.s);
    run(300);
    assert_int_equal(t.gones, 1);
}

static void what_has_ended_is_never_told(void **state)
{
    (void)state;
    write_expiring("a", (int64_t)time(NULL), "", "," ENTRY("b", "10.0.0.2"));
    assert_true(start(t.file));
    assert_int_equal(static_size(t.s), 1);
    run_until_ready();
    assert_null(known("a"));
    assert_int_equal(t.puts, 1);
    write_expiring("c", 0, "", "," ENTRY("b", "10.0.0.2"));
    static_reload(t.s);
    run(300);
    assert_int_equal(t.puts, 1);
    assert_int_equal(t.gones, 0);
}

static void a_new_expiry_brings_it_back(void **state)
{
    (void)state;
    int64_t now = (int64_t)time(NULL);
    write_expiring("a", now + 1, "", "");
    assert_true(start(t.file));
    run_until_ready();
    run_until("a", NULL);
    write_expiring("a", now + 3600, "", "");
    static_reload(t.s);
    run_until("a", "h");
    assert_int_equal(static_size(t.s), 1);
    write_expiring("a", now - 1, "", ""); /* ended by hand */
    static_reload(t.s);
    run_until("a", NULL);
    assert_int_equal(static_size(t.s), 0);
}

static void many_may_end_at_once(void **state)
{
    (void)state;
    enum { N = 5000 };
    int64_t until = (int64_t)time(NULL) + 2;
    char at[32], *text = mem_new(N * 80);
    size_t n = (size_t)snprintf(text, 64, "{\"sandboxes\":{");
    put_time(at, until);
    for (unsigned i = 0; i < N; i++)
        n += (size_t)snprintf(text + n, 80, "%s\"s%u\":{\"address\":\"h\",\"expiresAt\":\"%sZ\"}",
                              i ? "," : "", i, at);
    n += (size_t)snprintf(text + n, 8, "}}");
    write_bytes(t.file, text, n);
    mem_free(text);
    assert_true(start(t.file));
    run_until_ready();
    assert_int_equal(map_size(t.known), N);
    run_until("s4999", NULL);
    run(200);
    assert_int_equal(map_size(t.known), 0);
    assert_int_equal(t.gones, N);
    assert_int_equal(static_size(t.s), 0);
}

/* ---- tests: the stop ---- */

static void it_can_be_stopped_at_any_point(void **state)
{
    (void)state;
    write_many(t.file, 0, 3 * SLICE);
    for (unsigned turns = 0; turns < 12; turns++) {
        assert_true(start(t.file));
        for (unsigned i = 0; i < turns; i++)
            worker_turn(t.w);
        if (turns >= 6)
            static_reload(t.s);
        for (unsigned i = 6; i < turns; i++)
            worker_turn(t.w);
        unsigned before = t.changes;
        static_stop(t.s);
        t.s = NULL;
        run(40);
        assert_int_equal(t.changes, before);
        forget_known();
        t.known = map_new();
    }
}

static void on_ready_stop(void *user)
{
    (void)user;
    t.ready++;
    static_stop(t.s);
    t.s = NULL;
}

static void on_change_stop(void *user, const struct sandbox *const *put, size_t nput,
                           const struct str *gone, size_t ngone)
{
    on_change(user, put, nput, gone, ngone);
    if (!t.s)
        return;
    static_stop(t.s);
    t.s = NULL;
}

static void it_may_be_stopped_by_what_it_tells(void **state)
{
    (void)state;
    static const struct resolver_events stop_at_ready = {.ready = on_ready_stop,
                                                         .change = on_change},
                                        stop_at_change = {.ready = on_ready,
                                                          .change = on_change_stop};
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    write_routes(t.file, ENTRY("a", "10.0.0.1"));
    t.s = static_start(t.w, str_of(t.file), &stop_at_ready, &t, &a, &error);
    run(100);
    assert_int_equal(t.ready, 1);
    assert_null(t.s);
    t.s = static_start(t.w, str_of(t.file), &stop_at_change, &t, &a, &error);
    run(100);
    assert_null(t.s);
    assert_int_equal(t.changes, 2);
    assert_int_equal(t.ready, 1);
    write_expiring("a", (int64_t)time(NULL) + 1, "", "");
    forget_known();
    t.known = map_new();
    t.s = static_start(t.w, str_of(t.file), &events, &t, &a, &error);
    run_until("a", "h");
    static_stop(t.s);
    t.s = NULL;
    run(1200);
    assert_true(leads_to("a", "h")); /* nobody said anything any more */
    arena_done(&a);
}

/* ---- tests: with tables, all on threads ---- */

enum { WORKERS = 2 };

static struct {
    struct worker *owner, *workers[WORKERS];
    struct table *tables[WORKERS];
    struct static_routes *s;
    atomic_uint ready, gone, changes;
    char gone_pool[64]; /* written by worker 0, read when it has ended */
} many;

static void on_table_gone(struct worker *w, const struct sandbox *s, const struct sandbox *next)
{
    (void)next;
    if (worker_index(w) == 0)
        snprintf(many.gone_pool, sizeof many.gone_pool, "%.*s", STR_ARG(s->pool));
    atomic_fetch_add(&many.gone, 1);
}

static void on_tables_changed(void *user)
{
    (void)user;
    atomic_fetch_add(&many.changes, 1);
}

static void on_tables_ready(void *user)
{
    (void)user;
    atomic_fetch_add(&many.ready, 1);
}

static void publish_ready(void *user)
{
    (void)user;
    table_publish(many.tables, WORKERS, NULL, 0, NULL, 0, true, many.owner, on_tables_ready, NULL);
}

static void publish_change(void *user, const struct sandbox *const *put, size_t nput,
                           const struct str *gone, size_t ngone)
{
    (void)user;
    table_publish(many.tables, WORKERS, put, nput, gone, ngone, false, many.owner,
                  on_tables_changed, NULL);
}

static void await(atomic_uint *what, unsigned count)
{
    for (uint64_t end = now_ms() + 20000; atomic_load(what) < count; nap())
        assert_true(now_ms() < end);
}

static void on_stop_post(struct worker *w, struct post *p)
{
    (void)p;
    static_stop(many.s);
    worker_stop(w);
}

static void start_many(const char *path)
{
    static const struct resolver_events tell_tables = {.ready = publish_ready,
                                                       .change = publish_change};
    struct arena a;
    struct str error;
    memset(&many, 0, sizeof many);
    arena_init(&a, NULL, 0);
    many.owner = worker_new(WORKERS);
    for (unsigned i = 0; i < WORKERS; i++) {
        many.workers[i] = worker_new(i);
        many.tables[i] = table_new(many.workers[i], on_table_gone, NULL);
        worker_start(many.workers[i]);
    }
    many.s = static_start(many.owner, str_of(path), &tell_tables, NULL, &a, &error);
    assert_non_null(many.s);
    worker_start(many.owner);
    arena_done(&a);
}

static void stop_many(void)
{
    struct post post = {.run = on_stop_post};
    worker_post(many.owner, &post);
    worker_join(many.owner);
    for (unsigned i = 0; i < WORKERS; i++) {
        worker_stop(many.workers[i]);
        worker_join(many.workers[i]);
    }
}

static void free_many(void)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        table_free(many.tables[i]);
        worker_free(many.workers[i]);
    }
    worker_free(many.owner);
}

/* LIFE-02 */
static void a_reused_address_never_gets_the_old_pool(void **state)
{
    (void)state;
    write_routes(t.file, ENTRY("sb1", "127.0.0.1"));
    start_many(t.file);
    await(&many.ready, 1);
    write_routes(t.file, ENTRY("sb2", "127.0.0.1"));
    await(&many.changes, 2);
    stop_many();
    assert_int_equal(atomic_load(&many.gone), WORKERS);
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_true(table_ready(many.tables[i]));
        assert_null(table_get(many.tables[i], STR("sb1")));
        const struct sandbox *s = table_get(many.tables[i], STR("sb2"));
        assert_non_null(s);
        assert_false(str_eq(s->pool, str_of(many.gone_pool)));
        assert_true(str_starts(s->pool, STR("sb2#")));
    }
    assert_true(strncmp(many.gone_pool, "sb1#", 4) == 0);
    free_many();
}

static void a_hundred_thousand_sandboxes_reach_every_worker(void **state)
{
    (void)state;
    enum { N = 100000 };
    write_many(t.file, 0, N);
    struct stat s;
    assert_int_equal(stat(t.file, &s), 0);
    uint64_t start = now_ms();
    start_many(t.file);
    uint64_t loaded = now_ms();
    await(&many.ready, 1);
    uint64_t ready = now_ms();
    unsigned changes = atomic_load(&many.changes);
    write_many(t.file, 100, N);
    uint64_t rewritten = now_ms();
    await(&many.changes, changes + 1);
    uint64_t changed = now_ms();
    print_message(
        "%lld bytes: read in %llu ms, in all tables after %llu ms, a change after %llu ms\n",
        (long long)s.st_size, (unsigned long long)(loaded - start),
        (unsigned long long)(ready - start), (unsigned long long)(changed - rewritten));
    stop_many();
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(table_size(many.tables[i]), N);
    assert_int_equal(atomic_load(&many.gone), WORKERS * 100);
    free_many();
}

static int start_log(void **state)
{
    (void)state;
    char error[256];
    int fd = mkstemp(log_path);
    assert_true(fd >= 0);
    close(fd);
    return log_start("static-test", str_of(log_path), LOG_DEBUG, error, sizeof error) ? 0 : -1;
}

static int stop_log(void **state)
{
    (void)state;
    log_stop();
    return unlink(log_path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(the_first_list_is_told_before_ready),
        TEST(an_empty_list_is_ready_too),
        TEST(a_fault_at_the_start_is_one_line_with_its_place),
        TEST(a_check_says_what_a_start_would),
        TEST(a_long_list_is_told_in_slices),
        TEST(a_rewritten_file_counts_within_two_seconds),
        TEST(a_file_renamed_over_counts),
        TEST(a_link_turned_counts),
        TEST(a_reload_counts_at_once),
        TEST(a_reload_during_a_reload_is_not_forgotten),
        TEST(what_did_not_change_keeps_its_generation),
        TEST(a_changed_port_makes_another_record),
        TEST(back_and_forth_ends_with_the_last_word),
        TEST(a_bad_file_changes_nothing_and_is_logged_once),
        TEST(a_file_that_goes_changes_nothing),
        TEST(an_entry_ends_in_the_second_it_says),
        TEST(what_has_ended_is_never_told),
        TEST(a_new_expiry_brings_it_back),
        TEST(many_may_end_at_once),
        TEST(it_can_be_stopped_at_any_point),
        TEST(it_may_be_stopped_by_what_it_tells),
        TEST(a_reused_address_never_gets_the_old_pool),
        TEST(a_hundred_thousand_sandboxes_reach_every_worker),
    };
    return cmocka_run_group_tests(tests, start_log, stop_log);
}
