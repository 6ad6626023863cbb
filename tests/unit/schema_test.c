/* schema_test.c — one row: reading, range, message, showing, help. */
#include "conf/schema.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "conf/core.h"

struct toy {
    bool on;
    int64_t count, wait, room;
    double ratio;
    struct str name, key;
    int pick;
    bool pick_given;
};

static const char *const picks[] = {"red", "Green", NULL};

#define AT(field) offsetof(struct toy, field)
static const struct setting rows[] = {
    {"on", NULL, SET_BOOL, AT(on), "true", 0, 0, NULL, 0, "First", "switch", 0},
    {"count", "TOY_COUNT", SET_INT, AT(count), "3", 1, 9, NULL, 0, "First", "number", 0},
    {"wait", NULL, SET_DURATION, AT(wait), "5s", 0, INFINITY, NULL, SETTING_EXCLUSIVE, "Second",
     "time", 0},
    {"room", NULL, SET_BYTES, AT(room), "1MiB", 1024, 1 << 30, NULL, 0, "First", "space", 0},
    {"ratio", NULL, SET_DOUBLE, AT(ratio), "0.2", 0, 1, NULL, SETTING_EXCLUSIVE, "Second", "part",
     0},
    {"name", NULL, SET_TEXT, AT(name), "", 0, 0, NULL, SETTING_TRIM, "Second", "text", 0},
    {"key", NULL, SET_TEXT, AT(key), "", 0, 0, NULL, SETTING_SECRET, "Second", "secret", 0},
    {"pick", NULL, SET_CHOICE, AT(pick), "red", 0, 0, picks, SETTING_ANY_CASE | SETTING_TRIM,
     "Second", "choice", AT(pick_given)},
    {"TOY_VAR", "TOY_VAR", SET_TEXT, AT(key), "", 0, 0, NULL, SETTING_VARIABLE, "Second",
     "variable", 0},
};
static const struct schema toys = {
    "toy", "toy [--flag=value ...]", rows, sizeof rows / sizeof rows[0], sizeof(struct toy), false};

struct fixture {
    struct arena a;
    struct toy t;
    struct str error;
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    arena_init(&f.a, NULL, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    arena_done(&((struct fixture *)*state)->a);
    return 0;
}

static const struct setting *row(const char *name)
{
    const struct setting *r = schema_find(&toys, str_of(name));
    assert_non_null(r);
    return r;
}

static bool put(struct fixture *f, const char *name, const char *value)
{
    f->error = STR_NONE;
    return schema_set(row(name), &f->t, str_of(value), &f->a, &f->error);
}

#define assert_text(s, z)                                       \
    do {                                                        \
        struct str s_ = (s);                                    \
        if (!str_eq(s_, str_of(z)))                             \
            fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(s_), z); \
    } while (0)

static void a_row_is_found_by_its_whole_name_only(void **state)
{
    (void)state;
    assert_ptr_equal(schema_find(&toys, STR("count")), &rows[1]);
    assert_null(schema_find(&toys, STR("coun")));
    assert_null(schema_find(&toys, STR("Count")));
    assert_null(schema_find(&toys, STR_NONE));
}

static void booleans_are_the_words_of_go(void **state)
{
    struct fixture *f = *state;
    static const char *const yes[] = {"1", "t", "T", "TRUE", "true", "True"};
    static const char *const no[] = {"0", "f", "F", "FALSE", "false", "False"};
    static const char *const bad[] = {"", "yes", "tRUE", "2", " true", "on"};
    for (unsigned i = 0; i < 6; i++) {
        f->t.on = false;
        assert_true(put(f, "on", yes[i]) && f->t.on);
        assert_true(put(f, "on", no[i]) && !f->t.on);
        assert_false(put(f, "on", bad[i]));
    }
}

static void integers_are_read_as_go_does_and_kept_in_range(void **state)
{
    struct fixture *f = *state;
    assert_true(put(f, "count", "0x9") && f->t.count == 9);
    assert_true(put(f, "count", "01") && f->t.count == 1);
    assert_true(put(f, "count", "+3") && f->t.count == 3);
    static const char *const bad[] = {
        "0", "10", "-1", "", "1.0", "1e0", " 1", "1 ", "1_0", "99999999999999999999", "0x"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (put(f, "count", bad[i]))
            fail_msg("\"%s\" was taken", bad[i]);
    assert_int_equal(f->t.count, 3);
}

static void an_exclusive_least_value_is_refused_itself(void **state)
{
    struct fixture *f = *state;
    assert_false(put(f, "wait", "0"));
    assert_text(f->error,
                "wait: \"0\" is wrong; allowed: a duration such as 50ms or 1m30s above 0s");
    assert_true(put(f, "wait", "1ns") && f->t.wait == 1);
    assert_false(put(f, "ratio", "0"));
    assert_true(put(f, "ratio", "1") && f->t.ratio == 1.0);
    assert_false(put(f, "ratio", "1.0001"));
    assert_text(f->error, "ratio: \"1.0001\" is wrong; allowed: a number above 0, at most 1");
    assert_false(put(f, "ratio", "NaN"));
    assert_false(put(f, "ratio", "inf"));
}

static void bytes_have_units_and_limits(void **state)
{
    struct fixture *f = *state;
    assert_true(put(f, "room", "64KiB") && f->t.room == 65536);
    assert_true(put(f, "room", "1024") && f->t.room == 1024);
    assert_false(put(f, "room", "1023"));
    assert_text(f->error,
                "room: \"1023\" is wrong; allowed: bytes such as 65536 or 64KiB from 1KiB to 1GiB");
    assert_false(put(f, "room", "64KB"));
    assert_false(put(f, "room", "-1"));
    assert_false(put(f, "room", "18446744073709551615"));
}

static void a_choice_counts_as_its_row_says(void **state)
{
    struct fixture *f = *state;
    assert_true(put(f, "pick", " green ") && f->t.pick == 1);
    assert_false(put(f, "pick", "blue"));
    assert_text(f->error, "pick: \"blue\" is wrong; allowed: one of red, Green");
    struct setting strict = *row("pick");
    strict.flags = 0;
    assert_false(schema_set(&strict, &f->t, STR("green"), &f->a, &f->error));
    assert_false(schema_set(&strict, &f->t, STR(" red"), &f->a, &f->error));
    assert_true(schema_set(&strict, &f->t, STR("Green"), &f->a, &f->error));
}

static void a_text_is_copied_and_trimmed_where_its_row_says(void **state)
{
    struct fixture *f = *state;
    char source[] = " ab ";
    assert_true(put(f, "name", source));
    assert_true(put(f, "key", source));
    memset(source, 'x', 4);
    assert_text(f->t.name, "ab");
    assert_text(f->t.key, " ab ");
}

static void a_message_is_one_line_whatever_the_value(void **state)
{
    struct fixture *f = *state;
    assert_false(put(f, "count", "a\nb\"\x01\xff"));
    assert_true(str_chr(f->error, '\n') < 0);
    assert_true(str_starts(f->error, STR("count: \"a\\nb\\\"\\u0001\\ufffd\" is wrong")));
    char longer[1000];
    memset(longer, 'q', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_false(put(f, "count", longer));
    assert_true(f->error.n < 250);
}

static void a_secret_is_shown_masked_but_not_when_empty(void **state)
{
    struct fixture *f = *state;
    assert_text(schema_show(row("key"), &f->t, false, &f->a), "");
    assert_true(put(f, "key", "hush"));
    assert_text(schema_show(row("key"), &f->t, false, &f->a), "***");
    assert_text(schema_show(row("key"), &f->t, true, &f->a), "hush");
    struct setting secret_number = *row("count");
    secret_number.flags = SETTING_SECRET;
    assert_false(schema_set(&secret_number, &f->t, STR("hush"), &f->a, &f->error));
    assert_text(f->error, "count: *** is wrong; allowed: an integer from 1 to 9");
}

static void what_is_shown_reads_back_as_the_same(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name, *value, *shown;
    } cases[] = {
        {"on", "t", "true"},       {"on", "0", "false"},
        {"count", "07", "7"},      {"wait", "90s", "1m30s"},
        {"wait", "0.05s", "50ms"}, {"wait", "2562047h47m16.854775807s", "2562047h47m16.854775807s"},
        {"room", "2048", "2KiB"},  {"room", "1536", "1536"},
        {"ratio", "0.1", "0.1"},   {"ratio", "0.30000000000000004", "0.30000000000000004"},
        {"ratio", "1", "1"},       {"pick", "GREEN", "Green"}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(put(f, cases[i].name, cases[i].value));
        struct toy before = f->t;
        struct str shown = schema_show(row(cases[i].name), &f->t, false, &f->a);
        assert_text(shown, cases[i].shown);
        assert_true(schema_set(row(cases[i].name), &f->t, shown, &f->a, &f->error));
        assert_memory_equal(&before, &f->t, sizeof before);
    }
}

static void a_longest_duration_rounds_up_to_milliseconds(void **state)
{
    (void)state;
    assert_int_equal(settings_ms(INT64_MAX), 9223372036855u);
    assert_int_equal(settings_ms(1), 1);
    assert_int_equal(settings_ms(1000000), 1);
    assert_int_equal(settings_ms(1000001), 2);
    assert_int_equal(settings_ms(0), 0);
    assert_int_equal(settings_ms(-5), 0);
}

static void help_has_every_row_once_under_its_group(void **state)
{
    struct fixture *f = *state;
    struct str help = schema_help(&toys, &f->a);
    assert_text(help,
                "Usage: toy [--flag=value ...]\n"
                "\nFirst:\n"
                "  --on\n      switch (default true)\n"
                "  --count INT\n      number (default 3) (variable TOY_COUNT)\n"
                "  --room BYTES\n      space (default 1MiB)\n"
                "\nSecond:\n"
                "  --wait DURATION\n      time (default 5s)\n"
                "  --ratio NUM\n      part (default 0.2)\n"
                "  --name TEXT\n      text\n"
                "  --key TEXT\n      secret\n"
                "  --pick red|Green\n      choice (default red)\n"
                "  variable TOY_VAR\n      variable\n"
                "\nActions:\n"
                "  --help\n      print this text, whatever else is given\n"
                "  --version\n      print version, commit and build time\n"
                "  --check\n      judge all settings and files, start nothing\n"
                "  --print-config\n      print the effective settings as JSON, secrets masked\n");
}

static void plain_rows_read_what_a_shell_would_write(void **state)
{
    static const struct {
        enum setting_type type;
        const char *text, *shown; /* NULL: refused */
    } plain[] = {
        {SET_BOOL, "YES", "true"},  {SET_BOOL, "off", "false"},  {SET_BOOL, "y", "true"},
        {SET_BOOL, "0", "false"},   {SET_BOOL, "t", NULL},       {SET_BOOL, "", NULL},
        {SET_INT, "010", "10"},     {SET_INT, "0x10", NULL},     {SET_INT, "-1", NULL},
        {SET_INT, "1_0", NULL},     {SET_INT, "1001", NULL},     {SET_DURATION, "7", "7"},
        {SET_DURATION, "7s", NULL}, {SET_DURATION, "1.5", NULL}, {SET_DURATION, "9300000000", NULL},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        bool wait = plain[i].type == SET_DURATION;
        struct setting row = {
            "x",  "X",           plain[i].type, 0,      "", 0, wait ? INFINITY : 1000,
            NULL, SETTING_PLAIN, "First",       "help", 0};
        int64_t place = 0;
        bool good = schema_set(&row, &place, str_of(plain[i].text), &f->a, &f->error);
        assert_int_equal(good, plain[i].shown != NULL);
        if (good)
            assert_text(schema_show(&row, &place, false, &f->a), plain[i].shown);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(plain_rows_read_what_a_shell_would_write),
        T(a_row_is_found_by_its_whole_name_only),
        T(booleans_are_the_words_of_go),
        T(integers_are_read_as_go_does_and_kept_in_range),
        T(an_exclusive_least_value_is_refused_itself),
        T(bytes_have_units_and_limits),
        T(a_choice_counts_as_its_row_says),
        T(a_text_is_copied_and_trimmed_where_its_row_says),
        T(a_message_is_one_line_whatever_the_value),
        T(a_secret_is_shown_masked_but_not_when_empty),
        T(what_is_shown_reads_back_as_the_same),
        T(a_longest_duration_rounds_up_to_milliseconds),
        T(help_has_every_row_once_under_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
