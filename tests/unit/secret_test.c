/* secret_test.c — secrets are copied, counted, kept out of core dumps, and gone afterwards. */
#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>
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

static bool all_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* What stands at p now, though nothing is alive there: read as another process would. */
static bool is_wiped(const char *p, size_t n)
{
    char copy[4096];
    assert_true(n <= sizeof copy);
    FILE *f = fopen("/proc/self/mem", "rb");
    assert_non_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    bool read = fseeko(f, (off_t)(uintptr_t)p, SEEK_SET) == 0 && fread(copy, 1, n, f) == n;
    fclose(f);
    return !read || all_zero(copy, n); /* or the pages are gone */
}

static void bytes_are_wiped_at_the_last_unref(void **state)
{
    (void)state;
    struct secret *other = secret_new("other", 5), *s = secret_new("abc", 3);
    const char *p = secret_bytes(s).p;
    assert_false(is_wiped(p, 3));
    assert_ptr_equal(secret_ref(s), s);
    secret_unref(s);
    assert_true(str_eq(secret_bytes(s), STR("abc")));
    secret_unref(s);
    assert_true(is_wiped(p, 3));
    assert_true(str_eq(secret_bytes(other), STR("other")));
    secret_unref(other);
}

static void a_large_one_is_wiped_too(void **state)
{
    (void)state;
    char *bytes;
    struct secret *s = secret_make(300000, &bytes);
    assert_true(all_zero(bytes, 300000));
    memset(bytes, 's', 300000);
    assert_false(is_wiped(bytes + 290000, 4096));
    secret_unref(s);
    assert_true(is_wiped(bytes + 290000, 4096));
}

static void what_is_made_is_zero(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        char *bytes;
        struct secret *s = secret_make(1000, &bytes);
        assert_true(all_zero(bytes, 1000));
        memset(bytes, 'x', 1000);
        secret_unref(s);
    }
}

/* Sizes and order by a fixed stream of numbers; each holds its own letter. */
static void many_of_all_sizes_do_not_meet(void **state)
{
    (void)state;
    enum { N = 600 };
    struct secret *all[N] = {0};
    size_t held = secret_held();
    uint32_t x = 7;
    for (int i = 0; i < 20000; i++) {
        unsigned at = (x = x * 1664525 + 1013904223) / 65536 % N;
        size_t size = (x = x * 1664525 + 1013904223) / 65536 % (i % 100 ? 400 : 40000);
        if (all[at]) {
            struct str s = secret_bytes(all[at]);
            for (size_t k = 0; k < s.n; k++)
                assert_int_equal(s.p[k], (char)(at + 1));
            secret_unref(all[at]);
        }
        char *bytes;
        all[at] = secret_make(size, &bytes);
        assert_true(all_zero(bytes, size));
        memset(bytes, (int)(at + 1), size);
    }
    for (unsigned i = 0; i < N; i++)
        secret_unref(all[i]);
    assert_int_equal(secret_held(), held);
}

/* Bytes of the mappings that we can read and write and that are not dumped: regions. */
static size_t region_bytes(void)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t bytes = 0, size = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3)
            size = strncmp(rights, "rw", 2) == 0 && secret_covers((void *)from) ? to - from : 0;
        else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dd"))
            bytes += size;
    }
    fclose(f);
    return bytes;
}

static void regions_are_given_back_but_one(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct secret *all[N];
    for (int i = 0; i < N; i++)
        all[i] = secret_new("0123456789", 10);
    struct secret *large = secret_new(NULL, 0), *alone;
    char *bytes;
    alone = secret_make(1 << 20, &bytes);
    size_t most = region_bytes();
    assert_true(most >= (1 << 20) + N * 64 && most <= (1 << 20) + N * 64 + 3 * 65536);
    for (int i = 0; i < N; i++)
        secret_unref(all[i]);
    secret_unref(large);
    secret_unref(alone);
    assert_int_equal(region_bytes(), 65536);
}

static void knows_what_lies_in_a_secret(void **state)
{
    (void)state;
    char here = 'x';
    struct secret *s = secret_new("abc", 3), *large;
    char *bytes, *heap = mem_new(10);
    large = secret_make(200000, &bytes);
    assert_true(secret_covers(secret_bytes(s).p));
    assert_true(secret_covers(secret_bytes(s).p + 2));
    assert_true(secret_covers(bytes + 199999));
    assert_false(secret_covers(&here));
    assert_false(secret_covers(heap));
    assert_false(secret_covers("literal"));
    assert_false(secret_covers(NULL));
    mem_free(heap);
    secret_unref(s);
    secret_unref(large);
}

static void a_bag_holds_what_it_is_given(void **state)
{
    (void)state;
    struct secret_bag bag;
    size_t held = secret_held();
    secret_bag_init(&bag);
    struct secret *s = secret_new("kept", 4);
    secret_bag_put(&bag, secret_ref(s));
    struct str copy = secret_bag_str(&bag, STR("copy"));
    char *room = secret_bag_get(&bag, 100);
    memset(room, 'r', 100);
    for (int i = 0; i < 20; i++)
        secret_bag_get(&bag, 1);
    assert_true(str_eq(copy, STR("copy")));
    assert_int_equal(secret_held(), held + 4 + 4 + 100 + 20);
    secret_bag_done(&bag);
    assert_int_equal(secret_held(), held + 4);
    assert_true(is_wiped(room, 100));
    assert_true(str_eq(secret_bytes(s), STR("kept")));
    secret_unref(s);
    secret_bag_done(&bag); /* again is fine */
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
    bool lockable = mlock_locks();
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    char *bytes;
    struct secret *s = secret_make(100000, &bytes); /* in a region of its own, made now */
    memcpy(bytes, "abc", 3);
    assert_true(has_flag(bytes, " dd"));
    assert_true(str_starts(secret_bytes(s), STR("abc")));
    secret_unref(s);
    if (lockable && geteuid() != 0) /* root may lock whatever the limit says */
        assert_false(secret_all_locked());
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
    assert_true(str_eq(secret_bytes(s), STR("abc")));
    secret_unref(s);
    assert_true(is_wiped(p, 3));
}

static void *make_and_unref(void *arg)
{
    for (int i = 0; i < 3000; i++) {
        struct secret *s = secret_new(arg, strlen(arg)), *large;
        char *bytes;
        large = i % 50 ? NULL : secret_make(50000, &bytes);
        if (!str_eq(secret_bytes(s), str_of(arg)) || !secret_covers(secret_bytes(s).p))
            return arg;
        secret_unref(s);
        secret_unref(large);
    }
    return NULL;
}

static void any_thread_makes_and_frees(void **state)
{
    (void)state;
    char *texts[4] = {"first", "second", "third, which is longer", "4"};
    pthread_t threads[4];
    size_t held = secret_held();
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_unref, texts[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        void *trouble;
        pthread_join(threads[i], &trouble);
        assert_null(trouble);
    }
    assert_int_equal(secret_held(), held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_a_copy),
        cmocka_unit_test(may_be_empty_or_large),
        cmocka_unit_test(bytes_are_wiped_at_the_last_unref),
        cmocka_unit_test(a_large_one_is_wiped_too),
        cmocka_unit_test(what_is_made_is_zero),
        cmocka_unit_test(many_of_all_sizes_do_not_meet),
        cmocka_unit_test(regions_are_given_back_but_one),
        cmocka_unit_test(knows_what_lies_in_a_secret),
        cmocka_unit_test(a_bag_holds_what_it_is_given),
        cmocka_unit_test(pages_are_locked_and_not_dumped),
        cmocka_unit_test(works_where_nothing_may_be_locked),
        cmocka_unit_test(counts_are_atomic),
        cmocka_unit_test(any_thread_makes_and_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
