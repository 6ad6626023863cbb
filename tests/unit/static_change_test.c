/* static_change_test.c — changes beside the route file: what they do to what is in force, to the
 * file, and to what somebody else writes there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/map.h"
#include "ingress/routes_file.h"
#include "ingress/static.h"
#include "net/worker.h"

enum { PATIENCE_MS = 20000 };

static char log_path[] = "/tmp/static_change_test_log.XXXXXX";

static struct {
    char dir[64], file[96], block[128];
    struct worker *w;
    struct static_routes *s;
    struct map *known; /* what was put and is not gone */
    unsigned changes;
    bool ready;
} t;

struct my_edit {
    struct static_edit edit; /* first */
    bool done, wants_there, wants_missing;
    char fault[256];
};

/* ---- the loop ---- */

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void turn(void)
{
    worker_turn(t.w);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void run(uint64_t ms)
{
    for (uint64_t end = now_ms() + ms; now_ms() < end;)
        turn();
}

static void run_until(const bool *flag)
{
    for (uint64_t end = now_ms() + PATIENCE_MS; !*flag; turn())
        assert_true(now_ms() < end);
}

/* ---- what is told ---- */

static void on_ready(void *user)
{
    (void)user;
    t.ready = true;
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    (void)user;
    t.changes++;
    for (size_t i = 0; i < ngone; i++) {
        struct sandbox *s = map_del(t.known, gone[i]);
        assert_non_null(s);
        sandbox_unref(s);
    }
    for (size_t i = 0; i < nput; i++) {
        sandbox_ref(put[i]);
        sandbox_unref(map_put(t.known, put[i]->id, (void *)(uintptr_t)put[i]));
    }
}

static const struct sandbox *known(const char *id)
{
    return map_get(t.known, str_of(id));
}

static const struct resolver_events events = {.ready = on_ready, .change = on_change};

/* ---- files ---- */

static void write_text(const char *text)
{
    char fresh[128];
    snprintf(fresh, sizeof fresh, "%s/fresh", t.dir);
    FILE *f = fopen(fresh, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(fresh, t.file), 0);
}

static const char *file_text(void)
{
    static char text[8192];
    FILE *f = fopen(t.file, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static bool in_file(const char *what)
{
    return strstr(file_text(), what) != NULL;
}

static unsigned count_in_log(const char *what)
{
    static char text[1 << 18];
    run(200); /* the log has a thread of its own */
    FILE *f = fopen(log_path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* ---- each test ---- */

static void start(const char *text)
{
    struct arena a;
    struct str error;
    if (text)
        write_text(text);
    arena_init(&a, NULL, 0);
    t.s = static_start(t.w, text ? str_of(t.file) : STR_NONE, &events, NULL, &a, &error);
    assert_non_null(t.s);
    arena_done(&a);
    run_until(&t.ready);
}

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/static_change_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.file, sizeof t.file, "%s/routes.json", t.dir);
    snprintf(t.block, sizeof t.block, "%s/.routes.json.new", t.dir);
    t.w = worker_new(0);
    t.known = map_new();
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    size_t at = 0;
    (void)state;
    static_stop(t.s);
    worker_turn(t.w);
    worker_free(t.w);
    for (struct sandbox *s; (s = map_next(t.known, &at));)
        sandbox_unref(s);
    map_free(t.known);
    snprintf(command, sizeof command, "rm -r '%s'", t.dir);
    return system(command);
}

static void on_done(struct static_edit *e)
{
    struct my_edit *m = (struct my_edit *)e;
    assert_false(m->done);
    m->done = true;
    if (e->outcome == EDIT_FAILED)
        snprintf(m->fault, sizeof m->fault, "%.*s", STR_ARG(e->fault));
}

static bool may(const struct static_edit *e, const struct sandbox *there)
{
    const struct my_edit *m = (const struct my_edit *)e;
    return (!m->wants_there || there) && (!m->wants_missing || !there);
}

/* entry NULL: delete. */
static void begin(struct my_edit *m, const char *id, const char *entry)
{
    struct json_fault f;
    m->done = false;
    m->edit = (struct static_edit){.id = str_of(id), .may = may, .done = on_done};
    list_init(&m->edit.link);
    if (entry)
        m->edit.put = routes_parse_entry(str_of(id), str_of(entry), &f);
    assert_true(!entry || m->edit.put);
    static_change(t.s, &m->edit);
    assert_false(m->done);
}

static enum static_outcome finish(struct my_edit *m)
{
    run_until(&m->done);
    sandbox_unref(m->edit.put);
    return m->edit.outcome;
}

static enum static_outcome change(const char *id, const char *entry)
{
    struct my_edit m = {.done = false};
    begin(&m, id, entry);
    return finish(&m);
}

#define ONE "{\"sandboxes\":{\"a\":{\"address\":\"10.0.0.1\",\"secureAccessToken\":\"tok\"}}}"

/* ---- tests ---- */

static void a_change_is_told_and_stands_in_the_file(void **state)
{
    (void)state;
    start(ONE);
    assert_int_equal(change("b", "{\"address\":\"10.0.0.2\"}"), EDIT_CREATED);
    assert_non_null(known("b"));
    assert_ptr_equal(static_get(t.s, STR("b")), known("b"));
    assert_true(in_file("\"b\":{\"address\":\"10.0.0.2\"}") && in_file("\"tok\""));
    assert_int_equal(change("b", "{\"address\":\"10.0.0.3\"}"), EDIT_REPLACED);
    assert_true(str_eq(sandbox_endpoint(known("b"), 80)->host, STR("10.0.0.3")));
    assert_true(in_file("10.0.0.3") && !in_file("10.0.0.2"));
    assert_int_equal(change("b", NULL), EDIT_DELETED);
    assert_null(known("b"));
    assert_null(static_get(t.s, STR("b")));
    assert_false(in_file("\"b\""));
    assert_int_equal(change("b", NULL), EDIT_MISSING);
    assert_int_equal(static_size(t.s), 1);
}

static void what_says_the_same_keeps_its_generation(void **state)
{
    (void)state;
    start(ONE);
    uint64_t generation = known("a")->generation;
    struct stat before, after;
    assert_int_equal(stat(t.file, &before), 0);
    assert_int_equal(change("a", "{\"secureAccessToken\":\" tok \",\"address\":\"10.0.0.1\"}"),
                     EDIT_SAME);
    assert_int_equal(known("a")->generation, generation);
    assert_int_equal(stat(t.file, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* nothing to write */
    assert_int_equal(change("b", "{\"address\":\"h\"}"), EDIT_CREATED);
    assert_int_equal(known("a")->generation, generation);
}

static void changes_are_made_in_the_order_they_came(void **state)
{
    struct my_edit m[40] = {{.done = false}};
    (void)state;
    start(ONE);
    for (size_t i = 0; i < 40; i++) {
        m[i].wants_missing = i % 4 == 0;
        m[i].wants_there = i % 4 != 0;
        begin(&m[i], "x",
              i % 4 == 3 ? NULL
              : i % 2    ? "{\"address\":\"h1\"}"
                         : "{\"address\":\"h2\"}");
    }
    for (size_t i = 0; i < 40; i++) {
        static const enum static_outcome wanted[] = {EDIT_CREATED, EDIT_REPLACED, EDIT_REPLACED,
                                                     EDIT_DELETED};
        assert_int_equal(finish(&m[i]), wanted[i % 4]);
    }
    assert_null(known("x"));
    assert_true(t.changes < 20); /* those that wait are made together */
}

/* Both stand in one step, whose outcome differs little, or not at all, from what there was. */
static void what_is_made_after_a_removal_is_another_sandbox(void **state)
{
    static const char *const entries[] = {
        "{\"address\":\"10.0.0.1\",\"secureAccessToken\":\"tok\"}",
        "{\"address\":\"10.0.0.1\",\"secureAccessToken\":\"tok\",\"expiresAt\":"
        "\"2100-01-01T00:00:00Z\"}",
        "{\"address\":\"10.0.0.2\",\"secureAccessToken\":\"tok\"}"};
    (void)state;
    start(ONE);
    for (size_t i = 0; i < 3; i++) {
        struct my_edit m[3] = {{.done = false}};
        const struct sandbox *before = sandbox_ref(known("a"));
        unsigned changes = t.changes;
        begin(&m[0], "b", i % 2 ? NULL : "{\"address\":\"h\"}");
        begin(&m[1], "a", NULL);
        begin(&m[2], "a", entries[i]);
        for (int k = 0; k < 3; k++)
            finish(&m[k]);
        assert_true(m[1].edit.outcome == EDIT_DELETED && m[2].edit.outcome == EDIT_CREATED);
        assert_int_equal(t.changes, changes + 2); /* the first one has a step of its own */
        assert_true(known("a")->instance != before->instance);
        assert_true(known("a")->generation != before->generation);
        assert_false(sandbox_is_let_go(before) || sandbox_moved(before, known("a")));
        sandbox_unref(before);
    }
}

static void what_is_replaced_stays_the_same_sandbox(void **state)
{
    (void)state;
    start(ONE);
    assert_int_equal(change("b", "{\"address\":\"h1\"}"), EDIT_CREATED);
    const struct sandbox *before = sandbox_ref(known("b"));
    assert_true(before->instance != 0);
    assert_int_equal(change("b", "{\"address\":\"h2\"}"), EDIT_REPLACED);
    assert_true(sandbox_moved(before, known("b")));
    assert_int_equal(change("b", "{\"address\":\"h2\"}"), EDIT_SAME);
    write_text(
        "{\"sandboxes\":{\"b\":{\"address\":\"h3\"}}}"); /* by hand, and read with the change */
    assert_int_equal(change("c", "{\"address\":\"h\"}"), EDIT_CREATED);
    assert_true(sandbox_moved(before, known("b")));
    assert_true(str_eq(sandbox_endpoint(known("b"), 80)->host, STR("h3")));
    sandbox_unref(before);
}

static void a_condition_is_judged_when_its_turn_comes(void **state)
{
    struct my_edit m[3] = {{.wants_missing = true}, {.wants_missing = true}, {.wants_there = true}};
    (void)state;
    start(ONE);
    begin(&m[0], "x", "{\"address\":\"h1\"}");
    begin(&m[1], "x", "{\"address\":\"h2\"}");
    begin(&m[2], "x", "{\"address\":\"h3\"}");
    assert_int_equal(finish(&m[0]), EDIT_CREATED);
    assert_int_equal(finish(&m[1]), EDIT_REFUSED);
    assert_int_equal(finish(&m[2]), EDIT_REPLACED);
    assert_true(in_file("h3") && !in_file("h1") && !in_file("h2"));
}

static void what_somebody_wrote_meanwhile_is_kept(void **state)
{
    struct my_edit m = {.done = false};
    (void)state;
    start(ONE);
    write_text("{\"sandboxes\":{\"a\":{\"address\":\"10.9.9.9\"},\"c\":{\"address\":\"h\"}}}");
    begin(&m, "b", "{\"address\":\"10.0.0.2\"}");
    assert_int_equal(finish(&m), EDIT_CREATED);
    assert_true(in_file("10.9.9.9") && in_file("\"c\"") && in_file("\"b\""));
    assert_non_null(known("c"));
    assert_true(str_eq(sandbox_endpoint(known("a"), 1)->host, STR("10.9.9.9")));
}

static void a_bad_file_stops_changes_and_stays_as_it_is(void **state)
{
    struct my_edit m = {.done = false};
    (void)state;
    start(ONE);
    write_text("{\"sandboxes\":\n{\"a\":7}}");
    begin(&m, "b", "{\"address\":\"10.0.0.2\"}");
    assert_int_equal(finish(&m), EDIT_FAILED);
    assert_non_null(strstr(m.fault, "routes.json:2:"));
    assert_string_equal(file_text(), "{\"sandboxes\":\n{\"a\":7}}");
    assert_null(known("b"));
    assert_null(static_get(t.s, STR("b")));
    write_text(ONE);
    assert_int_equal(change("b", "{\"address\":\"10.0.0.2\"}"), EDIT_CREATED);
}

static void what_cannot_be_written_does_not_happen(void **state)
{
    struct my_edit m = {.done = false};
    (void)state;
    start(ONE);
    unsigned changes = t.changes;
    assert_int_equal(mkdir(t.block, 0700), 0);
    begin(&m, "b", "{\"address\":\"10.0.0.2\"}");
    assert_int_equal(finish(&m), EDIT_FAILED);
    assert_true(m.fault[0] != '\0');
    assert_null(strstr(m.fault, "tok"));
    assert_int_equal(change("a", NULL), EDIT_FAILED);
    assert_int_equal(t.changes, changes);
    assert_string_equal(file_text(), ONE);
    assert_int_equal(rmdir(t.block), 0);
    assert_int_equal(change("a", NULL), EDIT_DELETED);
}

static void our_own_writing_is_not_read_again(void **state)
{
    (void)state;
    start(ONE);
    unsigned before = count_in_log("\"routes read\"");
    assert_int_equal(change("b", "{\"address\":\"10.0.0.2\"}"), EDIT_CREATED);
    run(2500); /* the file is looked at each second */
    assert_int_equal(count_in_log("\"routes read\""), before);
    static_reload(t.s); /* who asks for it gets it */
    for (uint64_t end = now_ms() + PATIENCE_MS; count_in_log("\"routes read\"") == before;)
        assert_true(now_ms() < end);
    write_text(ONE); /* and so does who writes himself */
    for (uint64_t end = now_ms() + PATIENCE_MS; known("b"); turn())
        assert_true(now_ms() < end);
}

static void without_a_file_they_live_in_memory(void **state)
{
    (void)state;
    start(NULL);
    assert_true(count_in_log("memory only") > 0);
    assert_int_equal(change("b", "{\"address\":\"10.0.0.2\"}"), EDIT_CREATED);
    static_reload(t.s);
    run(50);
    assert_non_null(known("b"));
    assert_int_equal(change("b", NULL), EDIT_DELETED);
    assert_null(known("b"));
    assert_int_equal(static_size(t.s), 0);
}

static void what_has_ended_is_not_written(void **state)
{
    char entry[128];
    struct tm tm;
    time_t soon = time(NULL) + 2;
    (void)state;
    start(ONE);
    gmtime_r(&soon, &tm);
    strftime(entry, sizeof entry, "{\"address\":\"e\",\"expiresAt\":\"%Y-%m-%dT%H:%M:%SZ\"}", &tm);
    assert_int_equal(change("e", entry), EDIT_CREATED);
    assert_true(in_file("\"e\":"));
    for (uint64_t end = now_ms() + PATIENCE_MS; known("e"); turn())
        assert_true(now_ms() < end);
    assert_null(static_get(t.s, STR("e")));
    assert_int_equal(change("b", "{\"address\":\"h\"}"), EDIT_CREATED);
    assert_false(in_file("\"e\":"));
    assert_int_equal(change("e", NULL), EDIT_MISSING);
}

static void count_one(void *user, const struct sandbox *s)
{
    struct str *last = user;
    assert_true(last->n == 0 || str_cmp(*last, s->id) < 0);
    *last = s->id;
}

static void each_is_by_id(void **state)
{
    struct str last = STR_NONE;
    (void)state;
    start(ONE);
    assert_int_equal(change("c", "{\"address\":\"h\"}"), EDIT_CREATED);
    assert_int_equal(change("b", "{\"address\":\"h\"}"), EDIT_CREATED);
    static_each(t.s, count_one, &last);
    assert_true(str_eq(last, STR("c")));
}

static void a_stop_ends_what_waits(void **state)
{
    struct my_edit m[3] = {{.done = false}};
    (void)state;
    for (int turns = 0; turns < 4; turns++) {
        start(ONE);
        for (size_t i = 0; i < 3; i++)
            begin(&m[i], "b", i % 2 ? NULL : "{\"address\":\"10.0.0.2\"}");
        for (int k = 0; k < turns; k++)
            worker_turn(t.w);
        static_stop(t.s);
        t.s = NULL;
        for (size_t i = 0; i < 3; i++)
            finish(&m[i]); /* each is told, whatever has become of it */
        size_t at = 0;
        for (struct sandbox *s; (s = map_next(t.known, &at));)
            sandbox_unref(s);
        map_free(t.known);
        t.known = map_new();
        t.ready = false;
    }
}

static int start_log(void **state)
{
    char error[128];
    (void)state;
    int fd = mkstemp(log_path);
    close(fd);
    return log_start("test", str_of(log_path), LOG_INFO, error, sizeof error) ? 0 : -1;
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
        TEST(a_change_is_told_and_stands_in_the_file),
        TEST(what_says_the_same_keeps_its_generation),
        TEST(changes_are_made_in_the_order_they_came),
        TEST(what_is_made_after_a_removal_is_another_sandbox),
        TEST(what_is_replaced_stays_the_same_sandbox),
        TEST(a_condition_is_judged_when_its_turn_comes),
        TEST(what_somebody_wrote_meanwhile_is_kept),
        TEST(a_bad_file_stops_changes_and_stays_as_it_is),
        TEST(what_cannot_be_written_does_not_happen),
        TEST(our_own_writing_is_not_read_again),
        TEST(without_a_file_they_live_in_memory),
        TEST(what_has_ended_is_not_written),
        TEST(each_is_by_id),
        TEST(a_stop_ends_what_waits),
    };
    return cmocka_run_group_tests(tests, start_log, stop_log);
}
