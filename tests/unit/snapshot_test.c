/* snapshot_test.c — build, rebuild, count, drop; a fault leaves the old one alone; counting from
 * several threads. */
#include "conf/snapshot.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <cmocka.h>

struct fake_view {
    const void *old;
    int number;
};

static atomic_int made, dropped;
static bool fail_next;

static void *make(const struct settings *set, const void *old, struct arena *a,
                  struct str *ret_error)
{
    (void)a;
    assert_non_null(set);
    if (fail_next) {
        *ret_error = STR("no luck");
        return NULL;
    }
    struct fake_view *v = mem_new(sizeof *v);
    v->old = old;
    v->number = ++made;
    return v;
}

static void drop(void *view)
{
    dropped++;
    mem_free(view);
}

static const struct maker maker = {make, drop};

static int setup(void **state)
{
    (void)state;
    made = dropped = 0;
    fail_next = false;
    return 0;
}

static void the_view_is_dropped_with_the_last_reference(void **state)
{
    (void)state;
    struct settings set = {0};
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct snapshot *s = snapshot_build(&set, &maker, &a, &error);
    assert_non_null(s);
    assert_ptr_equal(s->set, &set);
    assert_int_equal(s->revision, 1);
    assert_null(((const struct fake_view *)s->view)->old);
    assert_ptr_equal(snapshot_ref(s), s);
    snapshot_unref(s);
    assert_int_equal(dropped, 0);
    snapshot_unref(s);
    assert_int_equal(dropped, 1);
    snapshot_unref(NULL);
    arena_done(&a);
}

static void a_rebuilt_one_stands_beside_the_old_one(void **state)
{
    (void)state;
    struct settings set = {0};
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct snapshot *first = snapshot_build(&set, &maker, &a, &error);
    struct snapshot *second = snapshot_rebuild(first, &a, &error);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    assert_int_equal(second->revision, 2);
    assert_ptr_equal(second->set, &set);
    assert_ptr_equal(((const struct fake_view *)second->view)->old, first->view);
    assert_int_equal(((const struct fake_view *)first->view)->number, 1);
    snapshot_unref(first);
    assert_int_equal(dropped, 1);
    assert_int_equal(((const struct fake_view *)second->view)->number, 2);
    snapshot_unref(second);
    assert_int_equal(dropped, 2);
    arena_done(&a);
}

static void a_fault_leaves_the_old_one_in_force(void **state)
{
    (void)state;
    struct settings set = {0};
    struct arena a;
    struct str error = STR_NONE;
    arena_init(&a, NULL, 0);
    fail_next = true;
    assert_null(snapshot_build(&set, &maker, &a, &error));
    fail_next = false;
    struct snapshot *s = snapshot_build(&set, &maker, &a, &error);
    fail_next = true;
    assert_null(snapshot_rebuild(s, &a, &error));
    assert_true(str_eq(error, STR("no luck")));
    assert_int_equal(dropped, 0);
    assert_int_equal(s->revision, 1);
    snapshot_unref(s);
    assert_int_equal(dropped, 1);
    arena_done(&a);
}

static void *take_and_give(void *arg)
{
    for (int i = 0; i < 20000; i++)
        snapshot_unref(snapshot_ref(arg));
    snapshot_unref(arg);
    return NULL;
}

static void threads_may_count_at_once(void **state)
{
    (void)state;
    struct settings set = {0};
    struct arena a;
    struct str error;
    pthread_t threads[4];
    arena_init(&a, NULL, 0);
    struct snapshot *s = snapshot_build(&set, &maker, &a, &error);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, take_and_give, (void *)(uintptr_t)snapshot_ref(s)),
            0);
    snapshot_unref(s);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(dropped, 1);
    arena_done(&a);
}

static void a_view_made_elsewhere_is_carried_and_dropped(void **state)
{
    (void)state;
    struct settings set = {0};
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct snapshot *s = snapshot_carrying(&set, &maker, make(&set, NULL, &a, &error), 7);
    assert_int_equal(s->revision, 7);
    assert_ptr_equal(s->set, &set);
    assert_int_equal(made, 1);
    snapshot_unref(s);
    assert_int_equal(dropped, 1);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_view_is_dropped_with_the_last_reference, setup),
        cmocka_unit_test_setup(a_rebuilt_one_stands_beside_the_old_one, setup),
        cmocka_unit_test_setup(a_view_made_elsewhere_is_carried_and_dropped, setup),
        cmocka_unit_test_setup(a_fault_leaves_the_old_one_in_force, setup),
        cmocka_unit_test_setup(threads_may_count_at_once, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
