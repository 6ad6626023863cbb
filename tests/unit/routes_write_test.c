/* routes_write_test.c — sandboxes as JSON, and a file that is replaced whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "ingress/routes_disk.h"

static const struct {
    const char *entry, *full, *shown; /* NULL: as it was read */
} rows[] = {
    {"{\"address\":\"10.0.0.1\"}", NULL, NULL},
    {"{\"address\":\"box.example.\"}", NULL, NULL},
    {"{\"address\":\"[FD00::1]\"}", "{\"address\":\"fd00::1\"}", "{\"address\":\"fd00::1\"}"},
    {"{\"address\":\"a\",\"state\":\"Paused\"}", NULL, NULL},
    {"{\"address\":\"a\",\"state\":\"Terminated\"}", NULL, NULL},
    {"{\"address\":\"a\",\"state\":\"Running\"}", "{\"address\":\"a\"}", "{\"address\":\"a\"}"},
    {"{\"address\":\"a\",\"state\":\"Pausing\"}", "{\"address\":\"a\"}", "{\"address\":\"a\"}"},
    {"{\"address\":\"a\",\"secureAccessToken\":\"t\\\"\\\\\\u0001\xc3\xa9\"}", NULL,
     "{\"address\":\"a\",\"secureAccess\":true}"},
    {"{\"secureAccessToken\":\" t \",\"address\":\"a\"}",
     "{\"address\":\"a\",\"secureAccessToken\":\"t\"}",
     "{\"address\":\"a\",\"secureAccess\":true}"},
    {"{\"address\":\"a\",\"secureAccessToken\":\"  \"}", "{\"address\":\"a\"}",
     "{\"address\":\"a\"}"},
    {"{\"address\":\"a\",\"expiresAt\":\"2026-01-31T12:00:00Z\"}", NULL, NULL},
    {"{\"address\":\"a\",\"expiresAt\":\"2026-01-31T12:00:00.75+01:30\"}",
     "{\"address\":\"a\",\"expiresAt\":\"2026-01-31T10:30:00Z\"}",
     "{\"address\":\"a\",\"expiresAt\":\"2026-01-31T10:30:00Z\"}"},
    {"{\"address\":\"a\",\"expiresAt\":\"9999-12-31T23:59:59-23:59\"}",
     "{\"address\":\"a\",\"expiresAt\":\"9999-12-31T23:59:59Z\"}",
     "{\"address\":\"a\",\"expiresAt\":\"9999-12-31T23:59:59Z\"}"},
    {"{\"address\":\"a\",\"expiresAt\":\"0000-01-01T00:00:00+00:01\"}",
     "{\"address\":\"a\",\"expiresAt\":\"0000-01-01T00:00:00Z\"}",
     "{\"address\":\"a\",\"expiresAt\":\"0000-01-01T00:00:00Z\"}"},
    {"{\"address\":\"a\",\"ports\":{\"80\":{}}}", NULL, NULL},
    {"{\"address\":\"a\",\"ports\":{\"443\":{\"protocol\":\"h1\"},\"80\":{\"address\":"
     "\"[fd00::2]:8080\",\"protocol\":\"h2c\"},\"81\":{\"address\":\"b:1\"},\"82\":{\"protocol\":"
     "\"auto\"}}}",
     "{\"address\":\"a\",\"ports\":{\"80\":{\"address\":\"[fd00::2]:8080\",\"protocol\":\"h2c\"},"
     "\"81\":{\"address\":\"b:1\"},\"82\":{\"protocol\":\"auto\"},\"443\":{\"protocol\":\"h1\"}}}",
     "{\"address\":\"a\",\"ports\":{\"80\":{\"address\":\"[fd00::2]:8080\",\"protocol\":\"h2c\"},"
     "\"81\":{\"address\":\"b:1\"},\"82\":{\"protocol\":\"auto\"},\"443\":{\"protocol\":\"h1\"}}}"},
};

static struct sandbox *parsed(const char *id, const char *entry)
{
    struct json_fault f;
    struct sandbox *s = routes_parse_entry(str_of(id), str_of(entry), &f);
    if (!s)
        fail_msg("%u:%u: %s", f.line, f.column, f.text);
    return s;
}

static void expect_form(const struct sandbox *s, bool secrets, const char *wanted)
{
    struct json_out o;
    json_out_init(&o);
    routes_put_entry(&o, s, secrets);
    if (!str_eq((struct str){o.p, o.n}, str_of(wanted)))
        fail_msg("%.*s, wanted %s", (int)o.n, o.p, wanted);
    assert_true(o.n <= routes_member_room(s));
    json_out_done(&o);
}

static void an_entry_has_one_form_with_its_token_and_one_without(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sandbox *s = parsed("x", rows[i].entry);
        const char *full = rows[i].full ? rows[i].full : rows[i].entry;
        expect_form(s, true, full);
        expect_form(s, false, rows[i].shown ? rows[i].shown : full);
        struct sandbox *again = parsed("x", full);
        assert_true(sandbox_same(s, again));
        sandbox_unref(s);
        sandbox_unref(again);
    }
}

static void what_is_shown_of_a_secure_entry_is_not_read(void **state)
{
    struct json_fault f;
    (void)state;
    assert_null(
        routes_parse_entry(STR("x"), STR("{\"address\":\"a\",\n \"secureAccess\":true}"), &f));
    assert_int_equal(f.line, 2);
    assert_non_null(strstr(f.text, "secureAccess"));
}

static void an_entry_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text;
        unsigned line, column;
    } bad[] = {
        {"", 1, 1},
        {"[]", 1, 1},
        {"{\"address\":\"a\"} x", 1, 17},
        {"{\n\"address\":\"a:80\"}", 2, 11},
        {"{\"address\":\"a\",\"address\":\"a\"}", 1, 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json_fault f;
        assert_null(routes_parse_entry(STR("x"), str_of(bad[i].text), &f));
        if (f.line != bad[i].line || f.column != bad[i].column)
            fail_msg("row %zu: %u:%u: %s", i, f.line, f.column, f.text);
    }
}

/* ---- on the disk ---- */

static struct {
    char dir[64], path[96], link[96];
} d;

static int set_up(void **state)
{
    (void)state;
    snprintf(d.dir, sizeof d.dir, "/tmp/routes_write_test.XXXXXX");
    assert_non_null(mkdtemp(d.dir));
    snprintf(d.path, sizeof d.path, "%s/routes.json", d.dir);
    snprintf(d.link, sizeof d.link, "%s/link.json", d.dir);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", d.dir);
    return system(command);
}

static void put_file(const char *text, mode_t mode)
{
    FILE *f = fopen(d.path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(d.path, mode), 0);
}

static struct routes_list many(size_t n, size_t token_bytes)
{
    struct routes_list l = {mem_new(n * sizeof *l.items), n};
    char *token = mem_new(token_bytes + 1);
    memset(token, '"', token_bytes);
    for (size_t i = 0; i < n; i++) {
        char id[24];
        snprintf(id, sizeof id, "id\"%06zu", i);
        struct endpoint end = {.host = STR("10.0.0.1")};
        l.items[i] = sandbox_new(&(struct sandbox){.id = str_of(id),
                                                   .token = {token, i % 2 ? token_bytes : 0},
                                                   .ends = &end,
                                                   .nends = 1,
                                                   .until_unix_s = INT64_MAX});
    }
    mem_free(token);
    return l;
}

static void expect_in_file(const struct routes_list *l, const struct routes_mark *mark)
{
    struct routes_list read;
    struct routes_mark now;
    struct json_fault f;
    struct str text;
    assert_true(routes_disk_read(d.path, &text, &now, &f));
    assert_true(routes_mark_same(&now, mark));
    if (!routes_parse(text, &read, &f))
        fail_msg("%u:%u: %s", f.line, f.column, f.text);
    assert_int_equal(read.n, l->n);
    for (size_t i = 0; i < l->n; i++)
        assert_true(sandbox_same(read.items[i], l->items[i]));
    routes_list_free(&read);
    mem_free_wiped((void *)(uintptr_t)text.p);
}

static void what_is_written_reads_the_same(void **state)
{
    static const struct {
        size_t n, token_bytes;
    } sizes[] = {{0, 0}, {1, 0}, {2, 5}, {3000, 20}, {3, 200000}};
    (void)state;
    put_file("old", 0640);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct routes_list l = many(sizes[i].n, sizes[i].token_bytes);
        struct routes_mark mark;
        struct json_fault f;
        struct stat st;
        assert_true(routes_disk_write(d.path, &l, &mark, &f));
        expect_in_file(&l, &mark);
        assert_int_equal(stat(d.path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0640);
        routes_list_free(&l);
    }
}

static void a_link_stays_one(void **state)
{
    struct routes_list l = many(2, 3);
    struct routes_mark mark;
    struct json_fault f;
    struct stat st;
    (void)state;
    put_file("old", 0600);
    assert_int_equal(symlink("routes.json", d.link), 0);
    assert_true(routes_disk_write(d.link, &l, &mark, &f));
    assert_int_equal(lstat(d.link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    expect_in_file(&l, &mark);
    routes_list_free(&l);
}

static void what_a_killed_writer_left_is_in_nobodys_way(void **state)
{
    char left[128];
    struct routes_list l = many(1, 0);
    struct routes_mark mark;
    struct json_fault f;
    (void)state;
    put_file("old", 0600);
    snprintf(left, sizeof left, "%s/.routes.json.new", d.dir);
    fclose(fopen(left, "w"));
    assert_true(routes_disk_write(d.path, &l, &mark, &f));
    assert_int_not_equal(access(left, F_OK), 0);
    routes_list_free(&l);
}

static void a_fault_leaves_the_old_bytes(void **state)
{
    char block[128];
    struct routes_list l = many(1, 0);
    struct routes_mark before, mark, after;
    struct json_fault f = {0};
    (void)state;
    put_file("old", 0600);
    before = routes_mark_of(d.path);
    snprintf(block, sizeof block, "%s/.routes.json.new", d.dir);
    assert_int_equal(mkdir(block, 0700), 0);
    assert_false(routes_disk_write(d.path, &l, &mark, &f));
    assert_int_equal(f.line, 0);
    assert_true(f.text[0] != '\0');
    after = routes_mark_of(d.path);
    assert_true(routes_mark_same(&before, &after));
    assert_false(routes_disk_write("/nonexistent/x/routes.json", &l, &mark, &f));
    routes_list_free(&l);
}

static void a_mark_tells_a_file_from_another(void **state)
{
    (void)state;
    struct routes_mark none = routes_mark_of(d.path);
    assert_false(none.known);
    assert_false(routes_mark_same(&none, &none));
    put_file("one", 0600);
    struct routes_mark one = routes_mark_of(d.path), again = routes_mark_of(d.path);
    assert_true(routes_mark_same(&one, &again));
    put_file("three", 0600);
    struct routes_mark three = routes_mark_of(d.path);
    assert_false(routes_mark_same(&one, &three));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(an_entry_has_one_form_with_its_token_and_one_without),
        TEST(what_is_shown_of_a_secure_entry_is_not_read),
        TEST(an_entry_is_refused_with_its_place),
        TEST(what_is_written_reads_the_same),
        TEST(a_link_stays_one),
        TEST(what_a_killed_writer_left_is_in_nobodys_way),
        TEST(a_fault_leaves_the_old_bytes),
        TEST(a_mark_tells_a_file_from_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
