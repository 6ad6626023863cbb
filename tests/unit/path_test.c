/* path_test.c — queries, segments, dot segments. */
#include "http/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void the_query_begins_at_the_first_question_mark(void **state)
{
    static const char *const rows[][3] = {
        {"/a?b=c", "/a", "?b=c"}, {"/a?", "/a", "?"}, {"/a", "/a", ""},
        {"/?/x?y", "/", "?/x?y"}, {"", "", ""},       {"/a%3Fb", "/a%3Fb", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str query, path = path_without_query(str_of(rows[i][0]), &query);
        if (!str_eq(path, str_of(rows[i][1])) || !str_eq(query, str_of(rows[i][2])))
            fail_msg("%s", rows[i][0]);
    }
}

static void segments_come_one_by_one_empty_ones_too(void **state)
{
    static const char *const rows[][2] = {
        {"/a/b", "a|b|"},     {"/", "|"}, {"//", "||"},
        {"/a//b/", "a||b||"}, {"", ""},   {"/%2F", "%2F|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char got[64];
        size_t n = 0;
        struct str rest = str_of(rows[i][0]), segment;
        while (path_segment(&rest, &segment))
            n += (size_t)snprintf(got + n, sizeof got - n, "%.*s|", STR_ARG(segment));
        got[n] = 0;
        assert_string_equal(got, rows[i][1]);
    }
}

static void a_path_climbs_only_when_some_reading_of_it_goes_below_its_start(void **state)
{
    static const struct {
        const char *rest;
        bool climbs;
    } rows[] = {
        {"", false},
        {"/", false},
        {"/a", false},
        {"/.", false},
        {"/..", true},
        {"/../", true},
        {"/../x", true},
        {"/a/..", false},
        {"/a/../..", true},
        {"/a/../b", false},
        {"/a/../../b", true},
        {"/./../x", true},
        {"//../x", true},
        {"/a//../../b", true},
        {"/a/./../b", false},
        {"/a/./../../b", true},
        {"/...", false},
        {"/.../..", false},
        {"/.../../..", true},
        {"/....", false},
        {"/..a", false},
        {"/a..", false},
        {"/a../..", false},
        {"/..;/b", false},
        {"/..\\b", false},
        {"/..%5cb", false},
        {"/%2e", false},
        {"/%2e%2e", true},
        {"/%2E%2e/x", true},
        {"/.%2e/x", true},
        {"/%2e./x", true},
        {"/%2e%2e%2e/x", false},
        {"/%252e%252e/b", false},
        {"/..%2fx", true},
        {"/..%2Fx", true},
        {"/a%2F..%2Fb", false},
        {"/a%2f..%2f..%2fb", true},
        {"/a%2f../..", true},
        {"/a%2f../../..", true},
        {"/a/b%2f..%2f..%2f..", true},
        {"/a/..%2f..", true},
        {"/%2f..", true},
        {"/a/%2e%2e/%2e%2e/b", true},
        {"/%2", false},
        {"/%2/..", false},
        {"/%/..", false},
        {"/..%2", false},
        {"/..%", false},
        {"/..%2e", false},
        {"/x%2f..%2f../y", true},
        {"..", true},
        {"a/..", false},
        {"/a%2%2f..%2f..", true},
        {"/a/%2%2e%2e/..", false},
        {"/%%2e%2e", false},
        {"/a%2%2e/..", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (path_climbs(str_of(rows[i].rest)) != rows[i].climbs)
            fail_msg("%s", rows[i].rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_query_begins_at_the_first_question_mark),
        cmocka_unit_test(segments_come_one_by_one_empty_ones_too),
        cmocka_unit_test(a_path_climbs_only_when_some_reading_of_it_goes_below_its_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
