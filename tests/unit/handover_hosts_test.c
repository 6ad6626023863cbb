/* handover_hosts_test.c — whenever the worker dies, the supervisor knows every host that a
 * credential went to (contract egress-vault 13.1). */
#include "egress/handover_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "egress/vault/lost.h"
#include "harness/keeper.h"

struct fixture {
    struct keeper keeper;
    struct arena a;
    struct handover *h;
    struct bound_hosts *hosts;
};

static void start_worker(struct fixture *f)
{
    keeper_serve(&f->keeper);
    f->h = handover_open(&f->a);
    f->hosts = bound_hosts_new(f->h);
}

static void end_worker(struct fixture *f)
{
    bound_hosts_free(f->hosts);
    handover_close(f->h);
    keeper_wait(&f->keeper);
}

static int setup(void **state)
{
    static struct fixture f;
    keeper_init(&f.keeper);
    arena_init(&f.a, NULL, 0);
    start_worker(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    end_worker(f);
    keeper_done(&f->keeper);
    arena_done(&f->a);
    return 0;
}

/* One binding for each of these hosts. */
static struct bindings *bindings_for(struct fixture *f, const char *const *hosts, unsigned n)
{
    const struct binding *at[4];
    struct str error = STR("");
    for (unsigned i = 0; i < n; i++) {
        struct str *host = arena_get(&f->a, sizeof *host);
        struct binding *b = arena_get(&f->a, sizeof *b);
        *host = str_of(hosts[i]);
        struct binding_draft d = {.name = *host, .hosts = {host, 1}, .type = STR("passthrough")};
        if (!binding_read(&d, false, &f->a, b, &error))
            fail_msg("%.*s", STR_ARG(error));
        at[i] = b;
    }
    struct bindings *set = bindings_new(at, n, &f->a, &error);
    assert_non_null(set);
    return set;
}

#define BIND(f, ...)                                    \
    bindings_for(f, (const char *const[]){__VA_ARGS__}, \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* What a successor would read now. */
static bool is_kept(struct fixture *f, const char *host)
{
    struct str text = STR("");
    end_worker(f);
    start_worker(f);
    struct lost *l = handover_text(f->h, HANDOVER_BOUND, &text) ? lost_read(text) : NULL;
    bool kept = lost_binds(l, str_of(host), true);
    lost_unref(l);
    return kept;
}

/* As force.c does. */
static void change(struct fixture *f, struct bindings *fresh)
{
    if (bound_hosts_change(f->hosts, fresh)) {
        bound_hosts_before(f->hosts);
        bound_hosts_after(f->hosts);
    }
    bindings_free(fresh);
}

static void what_becomes_bound_is_left_before_it_is_in_force(void **state)
{
    struct fixture *f = *state;
    struct bindings *b = BIND(f, "api.example.com", "*.apps.example.com");
    assert_true(bound_hosts_change(f->hosts, b));
    bound_hosts_before(f->hosts);
    bindings_free(b);
    assert_true(is_kept(f, "api.example.com"));
    assert_true(is_kept(f, "x.apps.example.com"));
    assert_false(is_kept(f, "other.example.com"));
}

static void what_was_bound_stays_until_the_change_is_in_force(void **state)
{
    struct fixture *f = *state;
    change(f, BIND(f, "old.example.com", "kept.example.com"));
    struct bindings *b = BIND(f, "kept.example.com", "new.example.com");
    assert_true(bound_hosts_change(f->hosts, b));
    bound_hosts_before(f->hosts);
    assert_true(is_kept(f, "old.example.com"));
    assert_true(is_kept(f, "new.example.com"));
    assert_true(bound_hosts_change(f->hosts, b)); /* the successor comes to the same */
    bound_hosts_before(f->hosts);
    bound_hosts_after(f->hosts);
    bindings_free(b);
    assert_false(is_kept(f, "old.example.com"));
    assert_true(is_kept(f, "kept.example.com"));
    assert_true(is_kept(f, "new.example.com"));
}

static void a_vault_that_goes_is_kept_until_it_is_gone(void **state)
{
    struct fixture *f = *state;
    change(f, BIND(f, "api.example.com"));
    assert_true(bound_hosts_change(f->hosts, NULL));
    bound_hosts_before(f->hosts);
    assert_true(is_kept(f, "api.example.com"));
    assert_true(bound_hosts_change(f->hosts, NULL));
    bound_hosts_before(f->hosts);
    bound_hosts_after(f->hosts);
    assert_false(is_kept(f, "api.example.com"));
}

static void the_same_hosts_are_not_told_again(void **state)
{
    struct fixture *f = *state;
    change(f, BIND(f, "api.example.com"));
    struct bindings *b = BIND(f, "api.example.com");
    assert_false(bound_hosts_change(f->hosts, b));
    bindings_free(b);
    assert_true(is_kept(f, "api.example.com"));
    b = BIND(f, "api.example.com");
    assert_false(bound_hosts_change(f->hosts, b)); /* nor by a successor */
    bindings_free(b);
}

static void without_a_supervisor_there_is_nobody_to_tell(void **state)
{
    (void)state;
    struct fixture f;
    arena_init(&f.a, NULL, 0);
    unsetenv(KEEP_VARIABLE);
    f.h = handover_open(&f.a);
    f.hosts = bound_hosts_new(f.h);
    struct bindings *b = BIND(&f, "api.example.com");
    assert_false(bound_hosts_change(f.hosts, b));
    bindings_free(b);
    bound_hosts_free(f.hosts);
    handover_close(f.h);
    arena_done(&f.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_becomes_bound_is_left_before_it_is_in_force, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_bound_stays_until_the_change_is_in_force, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_vault_that_goes_is_kept_until_it_is_gone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_same_hosts_are_not_told_again, setup, teardown),
        cmocka_unit_test(without_a_supervisor_there_is_nobody_to_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
