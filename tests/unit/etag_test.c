/* etag_test.c — conditions of requests: what a list is, and what it lets through. */
#include "ingress/etag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

struct row {
    const char *match, *none_match; /* NULL: no such line */
    const char *tag;                /* NULL: nothing is there */
    bool allows;
};

static const struct row rows[] = {
    {NULL, NULL, "\"a\"", true},           {NULL, NULL, NULL, true},
    {"\"a\"", NULL, "\"a\"", true},        {"\"b\"", NULL, "\"a\"", false},
    {"\"a\"", NULL, NULL, false},          {"*", NULL, "\"a\"", true},
    {" * ", NULL, "\"a\"", true},          {"*", NULL, NULL, false},
    {"\"x\", \"a\"", NULL, "\"a\"", true}, {"\"x\",,\t\"a\" ,", NULL, "\"a\"", true},
    {"W/\"a\"", NULL, "\"a\"", false}, /* compared strongly */
    {"\"x,\"", NULL, "\"x\"", false},      {"\"\"", NULL, "\"\"", true},
    {"\"*\"", NULL, "\"a\"", false},       {NULL, "\"a\"", "\"a\"", false},
    {NULL, "W/\"a\"", "\"a\"", false}, /* compared weakly */
    {NULL, "\"b\"", "\"a\"", true},        {NULL, "\"b\"", NULL, true},
    {NULL, "*", "\"a\"", false},           {NULL, "*", NULL, true},
    {"\"a\"", "\"b\"", "\"a\"", true},     {"\"a\"", "\"a\"", "\"a\"", false},
};

static struct http_head head_with(struct field *fields, const char *name, const char *value)
{
    struct http_head h = {.fields = fields};
    if (value)
        fields[h.nfields++] = (struct field){str_of(name), str_of(value)};
    return h;
}

static void a_condition_lets_through_what_it_says(void **state)
{
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct field f[2], g[2];
        struct http_head match = head_with(f, "If-Match", rows[i].match),
                         none = head_with(g, "if-none-match", rows[i].none_match);
        struct etag_list l, m;
        assert_true(etag_read(&match, STR("if-match"), &a, &l));
        assert_true(etag_read(&none, STR("if-none-match"), &a, &m));
        if (etag_allows(&l, &m, str_of(rows[i].tag)) != rows[i].allows)
            fail_msg("row %zu", i);
    }
    arena_done(&a);
}

static void what_is_no_list_is_refused(void **state)
{
    static const char *const bad[] = {
        "",       " ",           ",",         "a",        "\"a",       "a\"",
        "\"a\"b", "\"a\" \"b\"", "*,\"a\"",   "\"a\",*",  "w/\"a\"",   "W/a",
        "W/",     "\"a b\"",     "\"a\x7f\"", "W/ \"a\"", "\"a\",\"b", "\"a\"\"b\""};
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct field f[2];
        struct http_head h = head_with(f, "If-Match", bad[i]);
        struct etag_list l;
        if (etag_read(&h, STR("if-match"), &a, &l))
            fail_msg("taken: %s", bad[i]);
    }
    arena_done(&a);
}

static void lines_of_one_name_are_one_list(void **state)
{
    struct field f[] = {{STR("If-Match"), STR("\"a\"")}, {STR("if-match"), STR("\"b\"")}};
    struct http_head h = {.fields = f, .nfields = 2};
    struct etag_list l;
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(etag_read(&h, STR("if-match"), &a, &l));
    assert_true(etag_listed(&l, STR("\"a\""), false) && etag_listed(&l, STR("\"b\""), false));
    f[1].value = STR("*");
    assert_false(etag_read(&h, STR("if-match"), &a, &l));
    arena_done(&a);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_condition_lets_through_what_it_says),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(lines_of_one_name_are_one_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
