/* pathsafe_test.c — every reading of a path in turn, and what none of them may hold. */
#include "policies/pathsafe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void same(struct str got, const char *expected)
{
    if (!str_eq(got, str_of(expected)))
        fail_msg("got \"%.*s\", expected \"%s\"", STR_ARG(got), expected);
}

/* All views, joined by blanks. */
static const char *views_of(const char *path, bool *ret_endless)
{
    static char out[1024]; /* of this test program */
    struct arena a;
    struct path_views v;
    size_t n = 0;
    arena_init(&a, NULL, 0);
    path_views_init(&v, str_of(path), &a);
    while (path_views_next(&v))
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", n ? " " : "", STR_ARG(v.view));
    *ret_endless = v.endless;
    assert_false(path_views_next(&v));
    arena_done(&a);
    return out;
}

static void a_path_is_seen_as_it_stands_and_then_in_each_further_decoding(void **state)
{
    static const struct {
        const char *path, *views;
    } rows[] = {
        {"/a/b", "/a/b"},
        {"/%41", "/%41 /A"},
        {"/a%252fb", "/a%252fb /a%2fb /a/b"},
        {"/%25%32%66", "/%25%32%66 /%2f //"},
        {"/%zz%4", "/%zz%4"},
        {"/%", "/%"},
        {"/%zz%41", "/%zz%41 /%zzA"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool endless;
        same(str_of(views_of(rows[i].path, &endless)), rows[i].views);
        assert_false(endless);
    }
}

/* "%25…25" so often, then "2f". */
static void nest(char *out, unsigned times)
{
    size_t n = 0;
    out[n++] = '/';
    out[n++] = '%';
    for (unsigned i = 0; i < times; i++) {
        out[n++] = '2';
        out[n++] = '5';
    }
    out[n++] = '2';
    out[n++] = 'f';
    out[n] = 0;
}

static void ten_decodings_are_the_most_that_are_tried(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (unsigned times = 0; times < 30; times++) {
        char path[80];
        bool endless;
        nest(path, times);
        views_of(path, &endless);
        assert_int_equal(endless, times >= 9);
        assert_int_equal(path_is_safe(str_of(path), false, &a), times < 9);
        assert_false(path_is_safe(str_of(path), true, &a));
    }
    arena_done(&a);
}

static void a_path_is_safe_when_no_reading_climbs_or_turns_its_slashes(void **state)
{
    static const struct {
        const char *path;
        bool safe, strictly;
    } rows[] = {
        {"/", true, true},
        {"/a/./b//c;d=1", true, true},
        {"/.../..foo/foo..", true, true},
        {"/..;a/..%20/..%00", true, true},
        {"/a%c0%afb", true, true},
        {"/a%20b", true, true},
        {"/a%2fb", true, false},
        {"/a%252Fb", true, false},
        {"/..", false, false},
        {"..", false, false},
        {"/../", false, false},
        {"/a/..", false, false},
        {"/%2e.", false, false},
        {"/%2E%2e/", false, false},
        {"/%252e%252e/", false, false},
        {"/a%2f..", false, false},
        {"/a%2f%2e%2e%2fb", false, false},
        {"/a\\b", false, false},
        {"/a%5cb", false, false},
        {"/a%5Cb", false, false},
        {"/a%255cb", false, false},
        {"/a%25%35%63b", false, false},
    };
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str path = str_of(rows[i].path);
        if (path_is_safe(path, false, &a) != rows[i].safe)
            fail_msg("%s: safe?", rows[i].path);
        if (path_is_safe(path, true, &a) != rows[i].strictly)
            fail_msg("%s: strictly safe?", rows[i].path);
    }
    arena_done(&a);
}

static void the_path_itself_is_not_written_to(void **state)
{
    (void)state;
    char path[] = "/%2541";
    struct arena a;
    arena_init(&a, NULL, 0);
    assert_true(path_is_safe(str_of(path), false, &a));
    assert_string_equal(path, "/%2541");
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_is_seen_as_it_stands_and_then_in_each_further_decoding),
        cmocka_unit_test(ten_decodings_are_the_most_that_are_tried),
        cmocka_unit_test(a_path_is_safe_when_no_reading_climbs_or_turns_its_slashes),
        cmocka_unit_test(the_path_itself_is_not_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
