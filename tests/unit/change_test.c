/* change_test.c — a change is made whole or not at all: after a failure in any step, file, kernel
 * and memory agree and are what they were (contract egress-policy 2.7). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/policy_rig.h"

struct fixture {
    struct policy_rig rig;
    struct arena a;
};

/* A change of the test's own. */
struct edit {
    struct change change;
    const char *policy; /* NULL: nothing to do */
    bool over;
    struct change_answer answer;
    const struct egress_view *seen; /* when it was its turn */
};

static const char *variables(const char *name)
{
    return strcmp(name, "OPENSANDBOX_EGRESS_MODE") == 0             ? "dns+nft"
           : strcmp(name, "OPENSANDBOX_EGRESS_KERNEL_TIMEOUT") == 0 ? "1"
                                                                    : NULL;
}

static struct document document(const char *text)
{
    struct document d;
    struct json_fault fault;
    if (!document_parse(str_of(text), &d, &fault))
        fail_msg("%s", fault.text);
    return d;
}

static int setup(void **state)
{
    static struct fixture f;
    struct document first =
        document("{\"egress\":[{\"action\":\"allow\",\"target\":\"first.test\"}]}");
    struct str error = STR("");
    arena_init(&f.a, NULL, 0);
    rig_init(&f.rig, variables);
    f.rig.set.policy_file = str_of(f.rig.file);
    if (!rig_start(&f.rig, &first, &error))
        fail_msg("%.*s", STR_ARG(error));
    document_done(&first);
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

static struct egress_view *candidate(struct change *c, const struct egress_view *now,
                                     struct change_answer *ret)
{
    struct edit *e = container_of(c, struct edit, change);
    e->seen = now;
    if (!e->policy) {
        ret->status = 418;
        return NULL;
    }
    struct document d = document(e->policy);
    struct egress_view *v = view_with_user(now, &d);
    document_done(&d);
    return v;
}

static void on_done(struct change *c, const struct change_answer *answer,
                    const struct egress_view *now)
{
    struct edit *e = container_of(c, struct edit, change);
    (void)now;
    assert_false(e->over);
    e->over = true;
    e->answer = *answer;
}

static void submit(struct fixture *f, struct edit *e, const char *policy)
{
    *e = (struct edit){
        .change = {.candidate = candidate, .done = on_done, .keeps = true, .addresses = true},
        .policy = policy};
    change_submit(f->rig.changes, &e->change);
}

static bool is_over(void *e)
{
    return ((struct edit *)e)->over;
}

static int run(struct fixture *f, const char *policy)
{
    struct edit e;
    submit(f, &e, policy);
    assert_true(rig_until(&f->rig, is_over, &e));
    return e.answer.status;
}

/* File, kernel, memory and what requests see are one. */
static void agree(struct fixture *f)
{
    struct document kept;
    struct json_out a, b;
    struct str error;
    enum policy_source source;
    const struct egress_view *now = changes_now(f->rig.changes);
    struct pin *pin = pin_get(f->rig.w);
    assert_ptr_equal(view_of(pin->snap), now);
    pin_put(f->rig.w, pin);
    assert_ptr_equal(f->rig.kernel.holds, now->policy);
    if (access(f->rig.file, F_OK) < 0) {
        assert_int_equal(now->revision, 1);
        return;
    }
    assert_true(policy_start(str_of(f->rig.file), STR(""), &kept, &source, &f->a, &error));
    json_out_init(&a);
    json_out_init(&b);
    document_put(&a, &kept);
    document_put(&b, &now->user);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    json_out_done(&a);
    json_out_done(&b);
    document_done(&kept);
}

static void a_change_goes_through_all_steps(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 200);
    assert_int_equal(f->rig.kernel.applies, 1);
    assert_int_equal(f->rig.afters, 1);
    assert_true(changes_now(f->rig.changes)->user.allow);
    assert_int_equal(changes_now(f->rig.changes)->revision, 2);
    agree(f);
}

static void nothing_to_do_touches_nothing(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, NULL), 418);
    assert_int_equal(f->rig.kernel.applies, 0);
    assert_int_equal(f->rig.afters, 0);
    agree(f);
}

static void a_kernel_that_refuses_takes_the_file_back(void **state)
{
    struct fixture *f = *state;
    f->rig.kernel.fail_at = 1;
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 500);
    assert_true(access(f->rig.file, F_OK) < 0);
    agree(f);
    assert_int_equal(run(f, "{}"), 200);
    agree(f);
    struct str before = rig_file(f->rig.file, &f->a);
    f->rig.kernel.fail_at = 3;
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 500);
    assert_true(str_eq(rig_file(f->rig.file, &f->a), before));
    assert_false(f->rig.unsure);
    assert_int_equal(f->rig.afters, 1);
    agree(f);
}

static void a_file_that_cannot_be_written_leaves_the_kernel_alone(void **state)
{
    struct fixture *f = *state;
    struct edit e;
    policy_store_free(f->rig.store);
    f->rig.store = policy_store_new(f->rig.w, STR("/tmp/no/such/folder/policy.json"));
    struct change_host host = {.w = f->rig.w, .store = f->rig.store};
    struct changes *q = changes_new(&host, changes_now(f->rig.changes));
    e = (struct edit){.change = {.candidate = candidate, .done = on_done, .keeps = true},
                      .policy = "{}"};
    change_submit(q, &e.change);
    assert_true(rig_until(&f->rig, is_over, &e));
    assert_int_equal(e.answer.status, 500);
    assert_string_equal(e.answer.text, "failed to persist policy: No such file or directory");
    assert_int_equal(changes_now(q)->revision, 1);
    changes_free(q);
}

static void a_kernel_that_cannot_tell_is_told_everything_anew(void **state)
{
    struct fixture *f = *state;
    f->rig.kernel.fail_at = 1;
    f->rig.kernel.error = -ENOBUFS;
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 500);
    assert_true(f->rig.unsure);
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 200);
    assert_true(f->rig.kernel.asked_blind);
    assert_false(f->rig.unsure);
    assert_int_equal(run(f, "{}"), 200);
    assert_false(f->rig.kernel.asked_blind);
    agree(f);
}

static bool is_sure(void *r)
{
    return !((struct policy_rig *)r)->unsure;
}

static void a_late_kernel_is_put_right_without_a_further_change(void **state)
{
    struct fixture *f = *state;
    f->rig.kernel.silent = true;
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 500);
    assert_true(f->rig.unsure);
    assert_true(changes_busy(f->rig.changes));
    f->rig.kernel.silent = false;
    rig_kernel_speak(&f->rig, 0);
    assert_ptr_not_equal(f->rig.kernel.holds, changes_now(f->rig.changes)->policy);
    assert_true(rig_until(&f->rig, is_sure, &f->rig));
    agree(f);
}

static void a_change_waits_for_the_kernel_to_be_put_right(void **state)
{
    struct fixture *f = *state;
    struct edit e;
    f->rig.kernel.silent = true;
    assert_int_equal(run(f, "{\"defaultAction\":\"allow\"}"), 500);
    rig_kernel_speak(&f->rig, -EINVAL); /* which begins the repair */
    submit(f, &e, "{\"defaultAction\":\"allow\"}");
    rig_run(&f->rig, 50);
    assert_false(e.over);
    f->rig.kernel.silent = false;
    rig_kernel_speak(&f->rig, 0);
    assert_true(rig_until(&f->rig, is_over, &e));
    assert_int_equal(e.answer.status, 200);
    agree(f);
}

static void changes_see_what_those_before_them_made(void **state)
{
    enum { MANY = 50 };
    static struct edit edits[MANY];
    struct fixture *f = *state;
    for (int i = 0; i < MANY; i++)
        submit(f, &edits[i], i % 2 ? "{}" : "{\"defaultAction\":\"allow\"}");
    f->rig.kernel.fail_at = 7;
    assert_true(rig_until(&f->rig, is_over, &edits[MANY - 1]));
    for (int i = 0; i < MANY; i++) {
        assert_true(edits[i].over);
        assert_int_equal(edits[i].answer.status, i == 6 ? 500 : 200);
    }
    assert_int_equal(changes_now(f->rig.changes)->revision, MANY);
    agree(f);
}

static void what_the_kernel_does_not_know_does_not_go_there(void **state)
{
    struct fixture *f = *state;
    struct edit e = {.change = {.candidate = candidate, .done = on_done}, .policy = "{}"};
    change_submit(f->rig.changes, &e.change);
    assert_true(rig_until(&f->rig, is_over, &e));
    assert_int_equal(e.answer.status, 200);
    assert_int_equal(f->rig.kernel.applies, 0);
    assert_true(access(f->rig.file, F_OK) < 0);
}

static void whatever_fails_all_agree_afterwards(void **state)
{
    static const char *const policies[] = {
        "{}", "{\"defaultAction\":\"allow\"}",
        "{\"egress\":[{\"action\":\"allow\",\"target\":\"10.0.0.0/8\"}]}"};
    static const int errors[] = {0, -EINVAL, -ENOBUFS, -EPERM, 0};
    struct fixture *f = *state;
    unsigned seed = 7;
    for (int i = 0; i < 200; i++) {
        int error = errors[(unsigned)rand_r(&seed) % 5];
        f->rig.kernel.fail_all = error != 0;
        f->rig.kernel.error = error;
        int status = run(f, policies[(unsigned)rand_r(&seed) % 3]);
        assert_int_equal(status, error ? 500 : 200);
        if (!f->rig.unsure)
            agree(f);
    }
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_change_goes_through_all_steps),
        T(nothing_to_do_touches_nothing),
        T(a_kernel_that_refuses_takes_the_file_back),
        T(a_file_that_cannot_be_written_leaves_the_kernel_alone),
        T(a_kernel_that_cannot_tell_is_told_everything_anew),
        T(a_late_kernel_is_put_right_without_a_further_change),
        T(a_change_waits_for_the_kernel_to_be_put_right),
        T(changes_see_what_those_before_them_made),
        T(what_the_kernel_does_not_know_does_not_go_there),
        T(whatever_fails_all_agree_afterwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
