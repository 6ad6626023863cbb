/* secret_test.c — secrets are copied, counted, kept out of core dumps, and gone afterwards. */
#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/secret.h"

static void holds_a_copy(void **state)
{
    (void)state;
    char text[] = "token";
    struct secret *s = secret_new(text, 5);
    memset(text, 0, sizeof text);
    assert_true(str_eq(secret_bytes(s), STR("token")));
    secret_unref(s);
    secret_unref(NULL);
}

static void may_be_empty_or_large(void **state)
{
    (void)state;
    struct secret *s = secret_new(NULL, 0);
    assert_int_equal(secret_bytes(s).n, 0);
    secret_unref(s);
    char *large = mem_new(100000);
    memset(large, 's', 100000);
    s = secret_new(large, 100000);
    assert_true(str_eq(secret_bytes(s), (struct str){large, 100000}));
    secret_unref(s);
    mem_free(large);
}

/* Are the pages at p mapped? */
static bool is_mapped(const void *p)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char in_core;
    return mincore((void *)((uintptr_t)p & ~(page - 1)), 1, &in_core) == 0;
}

static void pages_are_gone_after_the_last_unref(void **state)
{
    (void)state;
    struct secret *s = secret_new("abc", 3);
    const char *p = secret_bytes(s).p;
    assert_ptr_equal(secret_ref(s), s);
    secret_unref(s);
    assert_true(is_mapped(p));
    assert_true(str_eq(secret_bytes(s), STR("abc")));
    secret_unref(s);
    assert_false(is_mapped(p));
}

/* Has the mapping that holds p the flag, in the words of /proc/self/smaps? */
static bool has_flag(const void *p, const char *flag)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false, found = false;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(f);
    return found;
}

/* Does mlock() lock?  The sanitizers make it do nothing, and some limits are too low. */
static bool mlock_locks(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    bool locks = mlock(p, page) == 0 && has_flag(p, " lo");
    munmap(p, page);
    return locks;
}

static void pages_are_locked_and_not_dumped(void **state)
{
    (void)state;
    bool lockable = mlock_locks();
    struct secret *s = secret_new("abc", 3);
    assert_true(has_flag(secret_bytes(s).p, " dd"));
    assert_int_equal(has_flag(secret_bytes(s).p, " lo"), lockable);
    secret_unref(s);
}

static void works_where_nothing_may_be_locked(void **state)
{
    (void)state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    struct secret *s = secret_new("abc", 3);
    assert_true(has_flag(secret_bytes(s).p, " dd"));
    assert_true(str_eq(secret_bytes(s), STR("abc")));
    secret_unref(s);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

static void *ref_and_unref(void *secret)
{
    for (int i = 0; i < 10000; i++)
        secret_unref(secret_ref(secret));
    return NULL;
}

static void counts_are_atomic(void **state)
{
    (void)state;
    pthread_t threads[4];
    struct secret *s = secret_new("abc", 3);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ref_and_unref, s), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const char *p = secret_bytes(s).p;
    assert_true(is_mapped(p));
    secret_unref(s);
    assert_false(is_mapped(p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_a_copy),
        cmocka_unit_test(may_be_empty_or_large),
        cmocka_unit_test(pages_are_gone_after_the_last_unref),
        cmocka_unit_test(pages_are_locked_and_not_dumped),
        cmocka_unit_test(works_where_nothing_may_be_locked),
        cmocka_unit_test(counts_are_atomic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
