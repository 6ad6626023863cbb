/* watch_test.c — every way a file becomes another one, on a real worker and real files. */
#include "net/watch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "net/worker.h"

enum { SEEN_MS = 2000, QUIET_MS = 2300 };

static struct {
    char dir[64], file[96], other[96], link[96];
    struct worker *w;
    struct watch *watch;
    unsigned changes;
} t;

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void run(uint64_t ms)
{
    for (uint64_t end = now_ms() + ms; now_ms() < end; nap())
        worker_turn(t.w);
}

/* How long it took. */
static uint64_t run_until_change(unsigned changes)
{
    uint64_t start = now_ms();
    while (t.changes < changes && now_ms() < start + 5000) {
        worker_turn(t.w);
        nap();
    }
    assert_int_equal(t.changes, changes);
    return now_ms() - start;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void on_changed(void *user)
{
    assert_ptr_equal(user, &t);
    t.changes++;
}

static int start(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/watch_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.file, sizeof t.file, "%s/file", t.dir);
    snprintf(t.other, sizeof t.other, "%s/other", t.dir);
    snprintf(t.link, sizeof t.link, "%s/link", t.dir);
    write_file(t.file, "one");
    t.w = worker_new(0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    watch_stop(t.watch);
    worker_free(t.w);
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", t.dir);
    return system(command);
}

static void watch(const char *path)
{
    t.watch = watch_start(t.w, str_of(path), on_changed, &t);
}

static void an_untouched_file_does_not_change(void **state)
{
    (void)state;
    watch(t.file);
    run(QUIET_MS);
    assert_int_equal(t.changes, 0);
}

static void a_rewritten_file_has_changed_once(void **state)
{
    (void)state;
    watch(t.file);
    run(300);
    write_file(t.file, "two");
    assert_true(run_until_change(1) <= SEEN_MS);
    run(QUIET_MS);
    assert_int_equal(t.changes, 1);
}

static void a_change_before_the_first_look_is_seen(void **state)
{
    (void)state;
    watch(t.file);
    write_file(t.file, "more than one");
    assert_true(run_until_change(1) <= SEEN_MS);
}

static void a_change_of_the_same_size_is_seen(void **state)
{
    (void)state;
    watch(t.file);
    run(50);
    write_file(t.file, "eno");
    assert_true(run_until_change(1) <= SEEN_MS);
}

static void a_file_renamed_over_is_another(void **state)
{
    (void)state;
    write_file(t.other, "one");
    watch(t.file);
    assert_int_equal(rename(t.other, t.file), 0);
    assert_true(run_until_change(1) <= SEEN_MS);
}

static void a_link_turned_is_another(void **state)
{
    (void)state;
    char fresh[96];
    snprintf(fresh, sizeof fresh, "%s/fresh", t.dir);
    write_file(t.other, "one");
    assert_int_equal(symlink(t.file, t.link), 0);
    watch(t.link);
    assert_int_equal(symlink(t.other, fresh), 0);
    assert_int_equal(rename(fresh, t.link), 0);
    assert_true(run_until_change(1) <= SEEN_MS);
}

static void a_link_turned_further_up_is_seen(void **state)
{
    (void)state;
    char path[128], fresh[96]; /* as Kubernetes mounts a ConfigMap: ..data → a folder of its own for
                                  each version */
    snprintf(path, sizeof path, "%s/v1", t.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/v2", t.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/v1/routes", t.dir);
    write_file(path, "one");
    snprintf(path, sizeof path, "%s/v2/routes", t.dir);
    write_file(path, "one");
    assert_int_equal(symlink("v1", t.link), 0);
    snprintf(path, sizeof path, "%s/routes", t.link);
    watch(path);
    snprintf(fresh, sizeof fresh, "%s/fresh", t.dir);
    assert_int_equal(symlink("v2", fresh), 0);
    assert_int_equal(rename(fresh, t.link), 0);
    assert_true(run_until_change(1) <= SEEN_MS);
}

static void a_file_that_goes_and_comes_back_changed_twice(void **state)
{
    (void)state;
    watch(t.file);
    unlink(t.file);
    assert_true(run_until_change(1) <= SEEN_MS);
    write_file(t.file, "one");
    assert_true(run_until_change(2) <= SEEN_MS);
}

static void a_file_that_is_not_there_yet_can_be_watched(void **state)
{
    (void)state;
    watch(t.other);
    run(QUIET_MS);
    assert_int_equal(t.changes, 0);
    write_file(t.other, "one");
    assert_true(run_until_change(1) <= SEEN_MS);
}

static void a_file_written_all_the_time_changes_all_the_same(void **state)
{
    (void)state;
    watch(t.file);
    unsigned n = 0;
    for (uint64_t end = now_ms() + 5000; t.changes == 0 && now_ms() < end; nap()) {
        write_file(t.file, n++ % 2 ? "one" : "three");
        worker_turn(t.w);
    }
    assert_int_equal(t.changes, 1);
}

static void nothing_is_said_after_the_stop(void **state)
{
    (void)state;
    /* at many points of a look */
    for (unsigned i = 0; i < 12; i++) {
        t.watch = watch_start(t.w, str_of(t.file), on_changed, &t);
        write_file(t.file, i % 2 ? "one" : "three");
        for (uint64_t end = now_ms() + 1000 + i * 6; now_ms() < end; nap())
            worker_turn(t.w);
        unsigned before = t.changes;
        watch_stop(t.watch);
        t.watch = NULL;
        for (unsigned k = 0; k < 20; k++, nap())
            worker_turn(t.w);
        assert_int_equal(t.changes, before);
    }
}

static void on_changed_stop(void *user)
{
    t.changes++;
    watch_stop(t.watch);
    t.watch = NULL;
    (void)user;
}

static void it_may_be_stopped_by_what_it_says(void **state)
{
    (void)state;
    t.watch = watch_start(t.w, str_of(t.file), on_changed_stop, &t);
    write_file(t.file, "three");
    run_until_change(1);
    run(1300);
    assert_int_equal(t.changes, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(an_untouched_file_does_not_change),
        TEST(a_rewritten_file_has_changed_once),
        TEST(a_change_before_the_first_look_is_seen),
        TEST(a_change_of_the_same_size_is_seen),
        TEST(a_file_renamed_over_is_another),
        TEST(a_link_turned_is_another),
        TEST(a_link_turned_further_up_is_seen),
        TEST(a_file_that_goes_and_comes_back_changed_twice),
        TEST(a_file_that_is_not_there_yet_can_be_watched),
        TEST(a_file_written_all_the_time_changes_all_the_same),
        TEST(nothing_is_said_after_the_stop),
        TEST(it_may_be_stopped_by_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
