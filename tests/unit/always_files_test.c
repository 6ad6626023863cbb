/* always_files_test.c — the operator's rule files on a real file system: in force within two
 * seconds, however they change; faults change nothing (contract egress-policy 3.6). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/policy_rig.h"
#include "policies/domains.h"

struct fixture {
    struct policy_rig rig;
    struct arena a;
    uint64_t revision;
};

static const char *variables(const char *name)
{
    return strcmp(name, "OPENSANDBOX_EGRESS_MODE") == 0 ? "dns+nft" : NULL;
}

static int setup(void **state)
{
    static struct fixture f;
    struct document deny = document_deny();
    struct str error = STR("");
    arena_init(&f.a, NULL, 0);
    rig_init(&f.rig, variables);
    rig_write(&f.rig, "deny.always", "a.test\n");
    if (!rig_start(&f.rig, &deny, &error))
        fail_msg("%.*s", STR_ARG(error));
    document_done(&deny);
    f.rig.always = always_start(f.rig.w, f.rig.changes, str_of(f.rig.folder));
    rig_run(&f.rig, 50);
    f.revision = 1;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rig_stop(&f->rig);
    arena_done(&f->a);
    return 0;
}

static bool has_changed(void *user)
{
    struct fixture *f = user;
    return changes_now(f->rig.changes)->revision != f->revision;
}

static const struct always_lists *lists(struct fixture *f)
{
    return &changes_now(f->rig.changes)->always;
}

/* How many ms until the next change. */
static uint64_t changes_in(struct fixture *f)
{
    uint64_t start = worker_now_us(f->rig.w);
    assert_true(rig_until(&f->rig, has_changed, f));
    f->revision = changes_now(f->rig.changes)->revision;
    return (worker_now_us(f->rig.w) - start) / 1000;
}

static void stays(struct fixture *f, unsigned ms)
{
    rig_run(&f->rig, ms);
    assert_int_equal(changes_now(f->rig.changes)->revision, f->revision);
}

static void what_was_read_at_the_start_is_no_change(void **state)
{
    struct fixture *f = *state;
    stays(f, 50);
    assert_int_equal(f->rig.kernel.applies, 0);
    assert_int_equal(lists(f)->deny->n, 1);
}

static void a_change_is_in_force_within_two_seconds(void **state)
{
    struct fixture *f = *state;
    char path[2][256];
    rig_write(&f->rig, "allow.always", "b.test\n10.0.0.0/8\n");
    assert_in_range(changes_in(f), 0, 2000);
    assert_int_equal(lists(f)->allow->n, 2);
    assert_int_equal(f->rig.kernel.applies, 1);
    rig_write(&f->rig, "new", "c.test\n");
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", f->rig.folder, i ? "deny.always" : "new");
    assert_int_equal(rename(path[0], path[1]), 0);
    assert_in_range(changes_in(f), 0, 2000);
    assert_true(str_eq(lists(f)->deny->at[0].target.text, STR("c.test")));
    rig_write(&f->rig, "deny.always", NULL);
    assert_in_range(changes_in(f), 0, 2000);
    assert_int_equal(lists(f)->deny->n, 0);
}

static void a_signal_does_not_wait(void **state)
{
    struct fixture *f = *state;
    rig_write(&f->rig, "deny.always", "b.test\n");
    always_reload(f->rig.always);
    assert_in_range(changes_in(f), 0, 300);
}

static void another_order_is_no_change(void **state)
{
    struct fixture *f = *state;
    rig_write(&f->rig, "deny.always", "a.test\nb.test\n");
    always_reload(f->rig.always);
    changes_in(f);
    rig_write(&f->rig, "deny.always", "# more\nb.test\r\n\na.test");
    always_reload(f->rig.always);
    stays(f, 100);
}

static void a_fault_keeps_both_lists_until_it_is_gone(void **state)
{
    struct fixture *f = *state;
    rig_write(&f->rig, "deny.always", "good.test\n");
    rig_write(&f->rig, "allow.always", "b\001.test\n");
    always_reload(f->rig.always);
    stays(f, 100);
    assert_true(str_eq(lists(f)->deny->at[0].target.text, STR("a.test")));
    rig_write(&f->rig, "allow.always", "b.test\n");
    always_reload(f->rig.always);
    changes_in(f);
    assert_true(str_eq(lists(f)->deny->at[0].target.text, STR("good.test")));
}

static void an_unreadable_file_is_a_fault_and_a_missing_one_is_not(void **state)
{
    struct fixture *f = *state;
    char path[256];
    rig_write(&f->rig, "deny.always", NULL);
    snprintf(path, sizeof path, "%s/allow.always", f->rig.folder);
    assert_int_equal(mkdir(path, 0700), 0);
    always_reload(f->rig.always);
    stays(f, 100);
    assert_int_equal(lists(f)->deny->n, 1);
    assert_int_equal(rmdir(path), 0);
    always_reload(f->rig.always);
    changes_in(f);
    assert_int_equal(lists(f)->deny->n, 0);
}

static void a_kernel_that_refuses_is_asked_again_at_the_next_look(void **state)
{
    struct fixture *f = *state;
    f->rig.kernel.fail_all = true;
    rig_write(&f->rig, "deny.always", "10.0.0.1\n");
    always_reload(f->rig.always);
    stays(f, 100);
    assert_int_equal(f->rig.kernel.applies, 1);
    assert_true(str_eq(lists(f)->deny->at[0].target.text, STR("a.test")));
    f->rig.kernel.fail_all = false;
    always_reload(f->rig.always);
    changes_in(f);
    assert_int_equal(f->rig.kernel.applies, 2);
}

static void log_skip_goes_its_own_way(void **state)
{
    struct fixture *f = *state;
    rig_write(&f->rig, "log_skip.always", "*.quiet.test\n");
    rig_write(&f->rig, "deny.always", "\001\n");
    always_reload(f->rig.always);
    changes_in(f);
    const struct egress_view *now = changes_now(f->rig.changes);
    assert_int_equal(patterns_first(now->log_skip, STR("a.quiet.test")), 0);
    assert_int_equal(f->rig.kernel.applies, 0);
    rig_write(&f->rig, "log_skip.always", "10.0.0.1\n");
    rig_write(&f->rig, "deny.always", "c.test\n");
    always_reload(f->rig.always);
    changes_in(f);
    now = changes_now(f->rig.changes);
    assert_int_equal(patterns_first(now->log_skip, STR("a.quiet.test")), 0);
    assert_true(str_eq(lists(f)->deny->at[0].target.text, STR("c.test")));
}

static void changes_of_files_and_of_the_api_keep_each_other(void **state)
{
    struct fixture *f = *state;
    rig_write(&f->rig, "deny.always", "b.test\n");
    always_reload(f->rig.always);
    struct rig_answer got = rig_ask(
        &f->rig, NULL,
        rig_request("PUT", "/policy", "", STR("{\"defaultAction\":\"allow\"}"), &f->a), &f->a);
    assert_int_equal(got.status, 200);
    rig_run(&f->rig, 100);
    const struct egress_view *now = changes_now(f->rig.changes);
    assert_int_equal(now->revision, 3);
    assert_true(now->user.allow);
    assert_true(str_eq(now->always.deny->at[0].target.text, STR("b.test")));
    assert_false(policy_name(now->policy, STR("b.test")).allow);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_was_read_at_the_start_is_no_change),
        T(a_change_is_in_force_within_two_seconds),
        T(a_signal_does_not_wait),
        T(another_order_is_no_change),
        T(a_fault_keeps_both_lists_until_it_is_gone),
        T(an_unreadable_file_is_a_fault_and_a_missing_one_is_not),
        T(a_kernel_that_refuses_is_asked_again_at_the_next_look),
        T(log_skip_goes_its_own_way),
        T(changes_of_files_and_of_the_api_keep_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
