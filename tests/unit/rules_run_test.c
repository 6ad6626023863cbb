/* rules_run_test.c — the program is given the text and nothing else; what it says comes back in one
 * line, without the text. */
#include "egress/kernel/rules_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/rules_run_test.%d", (int)getpid());
    arena_init(&arena, NULL, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    arena_done(&arena);
    return 0;
}

static void script(const char *text)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

static struct str long_text(size_t n)
{
    char *p = arena_get(&arena, n);
    memset(p, 'x', n);
    return (struct str){p, n};
}

static void what_it_says_is_told_in_one_line(void **state)
{
    static const struct {
        const char *script, *error; /* NULL: it goes well */
    } rows[] = {
        {"exit 0", NULL},
        {"echo warning >&2; exit 0", NULL},
        {"echo 'sallyport-egress-rules: apply: no' >&2; echo more >&2; exit 1", "apply: no"},
        {"echo other >&2; exit 2", "other"},
        {"cat >/dev/null; echo late >&2; exit 1", "late"},
        {"[ \"$1\" = apply ] && [ $# = 1 ]", NULL},
        {"[ $(wc -c) = 300000 ]", NULL},
        {"[ -z \"$SALLYPORT_TEST\" ]", NULL},
    };
    struct str error;
    (void)state;
    setenv("SALLYPORT_TEST", "inherited", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        script(rows[i].script);
        bool good = rules_run(path, "apply", long_text(300000), &arena, &error);
        if (good != !rows[i].error)
            fail_msg("row %zu: %s", i, good ? "good" : error.p);
        if (!good)
            assert_true(str_eq(error, str_of(rows[i].error)));
    }
}

static void nobody_waits_for_the_end_of_who_is_done(void **state)
{
    struct str error;
    (void)state;
    script("echo done; sleep 2");
    assert_true(rules_run(path, "close", STR_NONE, &arena, &error));
    script("echo no; echo done; exit 1");
    assert_false(rules_run(path, "close", STR_NONE, &arena, &error));
    script("printf done; exit 1");
    assert_false(rules_run(path, "close", STR_NONE, &arena, &error));
}

static void who_ends_without_a_word_is_named(void **state)
{
    struct str error;
    (void)state;
    script("exit 3");
    assert_false(rules_run(path, "close", STR_NONE, &arena, &error));
    assert_true(str_starts(error, STR("close: ")));
    script("kill -9 $$");
    assert_false(rules_run(path, "close", STR_NONE, &arena, &error));
    assert_true(str_starts(error, STR("close: ")));
}

static void a_program_that_is_not_there_is_a_fault(void **state)
{
    struct str error;
    (void)state;
    assert_false(rules_run("/nonexistent/rules", "close", STR_NONE, &arena, &error));
    assert_true(error.n > 0);
    assert_false(rules_run(NULL, "close", STR_NONE, &arena, &error)); /* none is beside this test */
    assert_true(error.n > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_it_says_is_told_in_one_line),
        TEST(nobody_waits_for_the_end_of_who_is_done),
        TEST(who_ends_without_a_word_is_named),
        TEST(a_program_that_is_not_there_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
