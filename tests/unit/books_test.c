/* books_test.c — what the kernel was told of learned addresses is known again, and what it should
 * hold is told apart from what it does. */
#include "egress/kernel/books.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct arena arena;

static int setup(void **state)
{
    arena_init(&arena, NULL, 0);
    *state = books_new();
    return 0;
}

static int teardown(void **state)
{
    books_free(*state);
    arena_done(&arena);
    return 0;
}

static struct sets_address address(const char *ip, unsigned kinds, unsigned seconds,
                                   const char *name)
{
    struct sets_address a = {.kinds = kinds, .seconds = seconds, .name = str_of(name)};
    if (!ip_parse(str_of(ip), &a.ip))
        fail_msg("%s", ip);
    return a;
}

static void learn(struct books *b, const char *ip, unsigned kinds, unsigned seconds,
                  const char *name, uint64_t now)
{
    struct sets_address a = address(ip, kinds, seconds, name);
    books_learn(b, &a, 1, now);
}

static void each_kind_has_its_own_end_and_name(void **state)
{
    struct books *b = *state;
    struct sets_address *list;
    learn(b, "192.0.2.1", SETS_LEARNED | SETS_BOUND, 100, "a.test", 1000);
    learn(b, "192.0.2.1", SETS_BOUND, 200, "b.test", 1000);
    assert_int_equal(books_list(b, 1000, &arena, &list), 2);
    assert_int_equal(list[0].kinds, SETS_LEARNED);
    assert_int_equal(list[0].seconds, 100);
    assert_true(str_eq(list[0].name, STR("a.test")));
    assert_int_equal(list[1].kinds, SETS_BOUND);
    assert_int_equal(list[1].seconds, 200);
    assert_true(str_eq(list[1].name, STR("b.test")));
    assert_int_equal(books_count(b, SETS_LEARNED), 1);
    assert_int_equal(books_count(b, SETS_PARENT), 0);
    assert_int_equal(books_until(b, &list[1].ip, SETS_PARENT), 0);
    assert_true(books_until(b, &list[1].ip, SETS_BOUND) > 200000);
}

static void what_has_run_out_is_not_told_and_is_swept(void **state)
{
    struct books *b = *state;
    struct sets_address *list;
    struct books_entry *copy;
    learn(b, "192.0.2.1", SETS_LEARNED, 60, "a.test", 0);
    learn(b, "192.0.2.2", SETS_LEARNED, 360, "a.test", 0);
    assert_int_equal(books_list(b, 60500, &arena, &list), 1);
    assert_int_equal(books_copy(b, 61000, NULL, &copy), 1);
    mem_free(copy);
    assert_int_equal(books_count(b, SETS_LEARNED), 2);
    books_sweep(b, 61000);
    assert_int_equal(books_count(b, SETS_LEARNED), 1);
    books_sweep(b, 400000);
    assert_int_equal(books_count(b, SETS_LEARNED), 0);
}

static struct policy *policy_of(const char *json)
{
    struct document d;
    struct json_fault fault;
    assert_true(document_parse(str_of(json), &d, &fault));
    struct policy *p = policy_new(NULL, NULL, &d);
    document_done(&d);
    return p;
}

static unsigned kinds_at(const struct books *b, uint64_t now, const struct policy *late,
                         const char *ip)
{
    struct books_entry *copy;
    size_t n = books_copy(b, now, late, &copy);
    struct sets_address a = address(ip, 0, 0, "");
    unsigned kinds = books_kinds(copy, n, &a.ip);
    mem_free(copy);
    return kinds;
}

static void what_ran_out_a_moment_ago_is_what_its_name_is_allowed_for(void **state)
{
    struct books *b = *state;
    struct policy *allow = policy_of("{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"}]}"),
                  *deny = policy_of("{}");
    learn(b, "192.0.2.1", SETS_LEARNED_ALWAYS, 60, "a.test", 0);
    learn(b, "192.0.2.2", SETS_LEARNED | SETS_BOUND, 60, "b.test", 0);
    learn(b, "192.0.2.3", SETS_PARENT, 60, "", 0);
    for (unsigned swept = 0; swept < 2; swept++) {
        assert_int_equal(kinds_at(b, 61000, NULL, "192.0.2.1"), 0);
        assert_int_equal(kinds_at(b, 61000, deny, "192.0.2.1"), 0);
        assert_int_equal(kinds_at(b, 61000, allow, "192.0.2.1"), SETS_LEARNED);
        assert_int_equal(kinds_at(b, 61000, allow, "192.0.2.2"), SETS_BOUND);
        assert_int_equal(kinds_at(b, 61000, allow, "192.0.2.3"), 0);
        assert_int_equal(kinds_at(b, 60100 + BOOKS_LATE_MS, allow, "192.0.2.1"), 0);
        books_sweep(b, 61000);
        assert_int_equal(books_count(b, SETS_LEARNED), 0);
    }
    learn(b, "192.0.2.1", SETS_LEARNED_ALWAYS, 60, "a.test", 62000);
    assert_int_equal(books_count(b, SETS_LEARNED_ALWAYS), 1);
    books_sweep(b, 61000 + BOOKS_LATE_MS);
    assert_int_equal(kinds_at(b, 62000, allow, "192.0.2.2"), 0);
    assert_int_equal(kinds_at(b, 62000, deny, "192.0.2.1"), SETS_LEARNED_ALWAYS);
    struct sets_address gone = address("192.0.2.1", SETS_LEARNED_ALWAYS, 0, "");
    books_sweep(b, 123000);
    assert_int_equal(books_count(b, SETS_LEARNED_ALWAYS), 0);
    books_forget(b, &gone, 1);
    assert_int_equal(books_count(b, SETS_LEARNED_ALWAYS), 0);
    assert_int_equal(kinds_at(b, 123000, allow, "192.0.2.1"), 0);
    policy_free(allow);
    policy_free(deny);
}

static void forgetting_is_for_the_kinds_that_are_named(void **state)
{
    struct books *b = *state;
    struct books_entry *copy;
    struct sets_address gone = address("2001:db8::1", SETS_LEARNED, 0, "");
    learn(b, "2001:db8::1", SETS_LEARNED | SETS_LEARNED_ALWAYS, 100, "a.test", 0);
    books_forget(b, &gone, 1);
    size_t n = books_copy(b, 0, NULL, &copy);
    assert_int_equal(books_kinds(copy, n, &gone.ip), SETS_LEARNED_ALWAYS);
    assert_int_equal(books_learned(SETS_LEARNED_ALWAYS | SETS_BOUND), LEARNED_ALWAYS);
    assert_int_equal(books_learned(SETS_BOUND), LEARNED_NOT);
    mem_free(copy);
    gone.kinds = 15;
    books_forget(b, &gone, 1);
    books_forget(b, &gone, 1);
    n = books_copy(b, 0, NULL, &copy);
    assert_int_equal(n, 0);
    assert_int_equal(books_kinds(copy, n, &gone.ip), 0);
    mem_free(copy);
}

/* The kernel takes no comment of that length, so none is expected back. */
static void a_name_that_is_too_long_is_none(void **state)
{
    struct books *b = *state;
    struct sets_address *list, a = address("192.0.2.1", SETS_LEARNED, 100, "");
    char name[252];
    memset(name, 'a', sizeof name);
    a.name = (struct str){name, 251};
    books_learn(b, &a, 1, 0);
    assert_int_equal(books_list(b, 0, &arena, &list), 1);
    assert_int_equal(list[0].name.n, 251);
    a.name.n = 252;
    books_learn(b, &a, 1, 0);
    assert_int_equal(books_list(b, 0, &arena, &list), 1);
    assert_int_equal(list[0].name.n, 0);
}

static void what_differs_is_found(void **state)
{
    static const struct {
        unsigned there_s, wanted_s; /* 0: not there */
        const char *there_name, *wanted_name;
        unsigned forget, learn;
    } rows[] = {
        {100, 100, "a", "a", 0, 0}, {100, 97, "a", "a", 0, 0}, {100, 103, "a", "a", 0, 0},
        {100, 90, "a", "a", 0, 1},  {90, 100, "a", "a", 0, 1}, {100, 100, "a", "b", 0, 1},
        {100, 0, "a", "a", 1, 0},   {0, 100, "a", "a", 0, 1},  {1, 0, "a", "a", 0, 0},
        {0, 1, "a", "a", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* Between two others that are the same. */
        struct sets_address there[3], wanted[3];
        size_t t = 0, w = 0;
        struct books_diff d;
        there[t++] = wanted[w++] = address("192.0.2.1", SETS_BOUND, 60, "x");
        if (rows[i].there_s)
            there[t++] = address("192.0.2.2", SETS_LEARNED, rows[i].there_s, rows[i].there_name);
        if (rows[i].wanted_s)
            wanted[w++] = address("192.0.2.2", SETS_LEARNED, rows[i].wanted_s, rows[i].wanted_name);
        there[t++] = wanted[w++] = address("192.0.2.2", SETS_BOUND, 60, "x");
        books_compare(there, t, wanted, w, &arena, &d);
        if (d.nforget != rows[i].forget || d.nlearn != rows[i].learn)
            fail_msg("row %zu: %zu forgotten, %zu learned", i, d.nforget, d.nlearn);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_kind_has_its_own_end_and_name),
        TEST(what_has_run_out_is_not_told_and_is_swept),
        TEST(what_ran_out_a_moment_ago_is_what_its_name_is_allowed_for),
        TEST(forgetting_is_for_the_kinds_that_are_named),
        TEST(a_name_that_is_too_long_is_none),
        TEST(what_differs_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
