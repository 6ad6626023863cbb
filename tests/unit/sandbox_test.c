/* sandbox_test.c — the record: copies, counts, generations, endpoints. */
#include "ingress/resolver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const struct endpoint one_end[] = {{.host = {"10.0.0.1", 8}}};

static struct sandbox simple(void)
{
    return (struct sandbox){.id = STR("sb1"),
                            .token = STR("tok"),
                            .state = SANDBOX_RUNNING,
                            .ends = one_end,
                            .nends = 1,
                            .until_unix_s = INT64_MAX};
}

static void assert_text(struct str s, const char *z)
{
    assert_int_equal(s.n, strlen(z));
    assert_memory_equal(s.p, z, s.n);
}

static void a_record_keeps_copies_of_all_its_texts(void **state)
{
    (void)state;
    char id[] = "sb1", token[] = "tok", reason[] = "Paused", host[] = "10.0.0.1",
         other[] = "name.test";
    struct endpoint ends[] = {{.port = 80, .to = 8080, .host = {other, 9}, .wire = WIRE_H2C},
                              {.host = {host, 8}}};
    struct sandbox from = {.id = {id, 3},
                           .token = {token, 3},
                           .reason = {reason, 6},
                           .state = SANDBOX_NOT_READY,
                           .ends = ends,
                           .nends = 2,
                           .until_unix_s = 77};
    struct sandbox *s = sandbox_new(&from);
    memset(id, 'x', 3);
    memset(token, 'x', 3);
    memset(reason, 'x', 6);
    memset(host, 'x', 8);
    memset(other, 'x', 9);
    memset(ends, 0xff, sizeof ends);
    assert_text(s->id, "sb1");
    assert_text(s->token, "tok");
    assert_text(s->reason, "Paused");
    assert_int_equal(s->state, SANDBOX_NOT_READY);
    assert_int_equal(s->until_unix_s, 77);
    assert_int_equal(s->nends, 2);
    assert_int_equal(s->ends[0].port, 80);
    assert_int_equal(s->ends[0].to, 8080);
    assert_int_equal(s->ends[0].wire, WIRE_H2C);
    assert_text(s->ends[0].host, "name.test");
    assert_text(s->ends[1].host, "10.0.0.1");
    sandbox_unref(s);
}

static void every_record_has_a_generation_and_a_pool_of_its_own(void **state)
{
    (void)state;
    struct sandbox from = simple();
    struct sandbox *a = sandbox_new(&from), *b = sandbox_new(&from);
    char pool[64];
    assert_true(b->generation > a->generation);
    snprintf(pool, sizeof pool, "sb1#%llu", (unsigned long long)a->generation);
    assert_text(a->pool, pool);
    snprintf(pool, sizeof pool, "sb1#%llu", (unsigned long long)b->generation);
    assert_text(b->pool, pool);
    sandbox_unref(a);
    sandbox_unref(b);
}

static void a_record_lives_as_long_as_somebody_counts_on_it(void **state)
{
    (void)state;
    struct sandbox from = simple();
    struct sandbox *s = sandbox_new(&from);
    assert_ptr_equal(sandbox_ref(s), s);
    assert_int_equal(s->refs, 2);
    sandbox_unref(s);
    assert_int_equal(s->refs, 1);
    assert_text(s->id, "sb1");
    sandbox_unref(s);
    sandbox_unref(NULL);
}

static void same_means_equal_in_all_but_the_generation(void **state)
{
    (void)state;
    static const struct endpoint ends[] = {
        {.port = 80, .to = 81, .host = {"10.0.0.1", 8}, .wire = WIRE_H1},
        {.host = {"10.0.0.1", 8}}};
    struct endpoint port[] = {ends[0], ends[1]}, to[] = {ends[0], ends[1]},
                    host[] = {ends[0], ends[1]}, wire[] = {ends[0], ends[1]};
    port[0].port = 79;
    to[0].to = 82;
    host[1].host = STR("10.0.0.2");
    wire[0].wire = WIRE_H2C;
    struct sandbox from = simple();
    from.ends = ends;
    from.nends = 2;
    struct sandbox *a = sandbox_new(&from), *b = sandbox_new(&from);
    assert_true(sandbox_same(a, b));
    sandbox_unref(b);

    struct sandbox others[10];
    for (size_t i = 0; i < 10; i++)
        others[i] = from;
    others[0].id = STR("sb2");
    others[1].token = STR("tik");
    others[2].state = SANDBOX_TERMINATED;
    others[3].reason = STR("why");
    others[4].until_unix_s = 5;
    others[5].ends = port;
    others[6].ends = to;
    others[7].ends = host;
    others[8].ends = wire;
    others[9].instance = 1;
    for (size_t i = 0; i < 10; i++) {
        b = sandbox_new(&others[i]);
        assert_false(sandbox_same(a, b));
        assert_false(sandbox_same(b, a));
        sandbox_unref(b);
    }
    from.nends = 1;
    from.ends = ends + 1;
    b = sandbox_new(&from);
    assert_false(sandbox_same(a, b));
    sandbox_unref(b);
    sandbox_unref(a);
}

static void a_port_leads_to_its_endpoint_or_to_the_last_one(void **state)
{
    (void)state;
    enum { PORTS = 50 };
    static struct endpoint ends[PORTS + 1];
    for (unsigned i = 0; i < PORTS; i++)
        ends[i] = (struct endpoint){
            .port = (uint16_t)(2 * i + 2), .to = (uint16_t)(1000 + i), .host = STR("a")};
    ends[PORTS] = (struct endpoint){.host = STR("b")};
    struct sandbox from = simple();
    from.ends = ends;
    for (unsigned n = 0; n <= PORTS; n++) { /* with the last n ports */
        from.ends = ends + PORTS - n;
        from.nends = n + 1;
        struct sandbox *s = sandbox_new(&from);
        for (unsigned port = 1; port < 2 * PORTS + 5; port++) {
            const struct endpoint *e = sandbox_endpoint(s, (uint16_t)port);
            bool named = port % 2 == 0 && port >= 2 * (PORTS - n) + 2 && port <= 2 * PORTS;
            assert_int_equal(e->port, named ? port : 0);
            assert_int_equal(e->to, named ? 1000 + port / 2 - 1 : 0);
        }
        sandbox_unref(s);
    }
}

static void a_sandbox_without_endpoints_has_none(void **state)
{
    (void)state;
    struct sandbox from = {.id = STR("x"), .state = SANDBOX_AMBIGUOUS};
    struct sandbox *s = sandbox_new(&from);
    assert_null(sandbox_endpoint(s, 80));
    sandbox_unref(s);
    static const struct endpoint only[] = {{.port = 80, .host = {"a", 1}}};
    from.ends = only;
    from.nends = 1;
    s = sandbox_new(&from);
    assert_non_null(sandbox_endpoint(s, 80));
    assert_null(sandbox_endpoint(s, 81));
    sandbox_unref(s);
}

static void a_simple_record_takes_300_bytes_at_most(void **state)
{
    (void)state;
    struct sandbox from = simple();
    from.id = STR("0192b7e0-7c5a-7c1e-9f5b-6d3f5a2c1b0e");
    from.token = STR("0123456789abcdef0123456789abcdef");
    struct sandbox *s = sandbox_new(&from);
    size_t bytes = sizeof *s + (size_t)((s->pool.p + s->pool.n) - (const char *)(s + 1));
    print_message("a simple record: %zu bytes\n", bytes);
    assert_true(bytes <= 300);
    sandbox_unref(s);
}

static void ports_at_the_sandboxs_own_address_share_its_text(void **state)
{
    (void)state;
    struct endpoint ends[] = {
        {.port = 1, .host = one_end[0].host}, {.port = 2, .host = STR("b")}, one_end[0]};
    struct sandbox from = simple();
    from.ends = ends;
    from.nends = 3;
    struct sandbox *s = sandbox_new(&from);
    assert_ptr_equal(s->ends[0].host.p, s->ends[2].host.p);
    assert_text(s->ends[0].host, "10.0.0.1");
    assert_text(s->ends[1].host, "b");
    sandbox_unref(s);
}

static void moved_means_the_same_one_for_the_same_clients_and_running(void **state)
{
    (void)state;
    static const struct endpoint there[] = {{.host = {"10.0.0.2", 8}}};
    struct sandbox a = simple(), b = a, others[5];
    b.ends = there;
    b.until_unix_s = 5;
    assert_true(sandbox_moved(&a, &b) && sandbox_moved(&b, &a));
    assert_false(sandbox_moved(&a, NULL));
    assert_false(sandbox_prolonged(&a, &b));
    b.ends = one_end;
    assert_true(sandbox_prolonged(&a, &b) && !sandbox_same(&a, &b));
    for (size_t i = 0; i < 5; i++)
        others[i] = b;
    others[0].id = STR("sb2");
    others[1].ns = STR("ns");
    others[2].token = STR("");
    others[3].instance = 1;
    others[4].state = SANDBOX_NOT_READY;
    for (size_t i = 0; i < 5; i++)
        assert_false(sandbox_moved(&a, &others[i]) || sandbox_moved(&others[i], &a) ||
                     sandbox_prolonged(&a, &others[i]));
    assert_false(sandbox_prolonged(&others[4], &others[4]));
}

static void a_renewed_record_keeps_generation_and_pool_and_the_old_one_is_let_go(void **state)
{
    (void)state;
    struct sandbox from = simple();
    struct sandbox *old = sandbox_new(&from);
    from.until_unix_s = 99;
    struct sandbox *s = sandbox_renew(&from, old);
    assert_int_equal(s->generation, old->generation);
    assert_true(str_eq(s->pool, old->pool));
    assert_int_equal(s->until_unix_s, 99);
    assert_true(sandbox_is_let_go(old) && !sandbox_is_let_go(s));
    struct sandbox *other = sandbox_new(&from);
    assert_int_not_equal(other->generation, s->generation);
    sandbox_unref(old);
    assert_text(s->id, "sb1");
    sandbox_let_go(other);
    assert_true(sandbox_is_let_go(other));
    sandbox_unref(other);
    sandbox_unref(s);
}

static struct sandbox failed(void)
{
    return (struct sandbox){.id = STR("sb1"), .state = SANDBOX_FAILED, .until_unix_s = INT64_MAX};
}

static void a_doubt_keeps_the_pool_and_tells_nobody_what_ran(void **state)
{
    (void)state;
    struct sandbox from = simple(), none = failed();
    struct sandbox *old = sandbox_new(&from);
    struct sandbox *first = sandbox_doubt(&none, old);
    none.reason = STR("another");
    struct sandbox *s = sandbox_doubt(&none, first);
    assert_true(sandbox_is_let_go(old) && sandbox_is_let_go(first) && !sandbox_is_let_go(s));
    assert_true(s->generation == old->generation && str_eq(s->pool, old->pool));
    assert_int_equal(s->token.n + s->nends, 0);
    assert_ptr_equal(sandbox_ran(s), old);
    assert_int_equal(old->refs, 3);
    sandbox_unref(old);
    sandbox_unref(first);
    assert_int_equal(sandbox_ran(s)->refs, 1);
    struct sandbox *again = sandbox_renew(&from, s);
    assert_true(again->generation == s->generation && sandbox_is_let_go(s));
    sandbox_unref(s); /* and with it what ran */
    assert_ptr_equal(sandbox_ran(again), again);
    sandbox_unref(again);
}

static void a_doubt_is_measured_by_what_ran(void **state)
{
    (void)state;
    static const struct endpoint there[] = {{.host = {"10.0.0.2", 8}}};
    struct sandbox from = simple(), none = failed(), said = from;
    struct sandbox *old = sandbox_new(&from), *s = sandbox_doubt(&none, old);
    said.until_unix_s = 5;
    assert_true(sandbox_prolonged(s, &said));
    said.ends = there;
    assert_true(!sandbox_prolonged(s, &said) && sandbox_moved(s, &said));
    said.token = STR("other");
    assert_false(sandbox_moved(s, &said) || sandbox_moved(s, &none) || sandbox_moved(s, NULL));
    assert_true(sandbox_same(s, &none));
    sandbox_unref(old);
    sandbox_unref(s);
}

static void where_nothing_ran_there_is_nothing_to_doubt(void **state)
{
    (void)state;
    struct sandbox from = simple(), none = failed(), gone = failed();
    gone.state = SANDBOX_TERMINATED;
    struct sandbox *old = sandbox_new(&gone), *s = sandbox_doubt(&none, old);
    struct sandbox *first = sandbox_doubt(&none, NULL);
    assert_int_not_equal(first->generation, s->generation);
    assert_false(sandbox_ran(s) || sandbox_ran(first) || sandbox_ran(old));
    assert_false(sandbox_moved(s, &from) || sandbox_prolonged(s, &from) ||
                 sandbox_prolonged(s, &none));
    sandbox_unref(old);
    sandbox_unref(s);
    sandbox_unref(first);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_doubt_keeps_the_pool_and_tells_nobody_what_ran),
        cmocka_unit_test(a_doubt_is_measured_by_what_ran),
        cmocka_unit_test(where_nothing_ran_there_is_nothing_to_doubt),
        cmocka_unit_test(a_renewed_record_keeps_generation_and_pool_and_the_old_one_is_let_go),
        cmocka_unit_test(a_record_keeps_copies_of_all_its_texts),
        cmocka_unit_test(every_record_has_a_generation_and_a_pool_of_its_own),
        cmocka_unit_test(a_record_lives_as_long_as_somebody_counts_on_it),
        cmocka_unit_test(same_means_equal_in_all_but_the_generation),
        cmocka_unit_test(moved_means_the_same_one_for_the_same_clients_and_running),
        cmocka_unit_test(a_port_leads_to_its_endpoint_or_to_the_last_one),
        cmocka_unit_test(a_sandbox_without_endpoints_has_none),
        cmocka_unit_test(a_simple_record_takes_300_bytes_at_most),
        cmocka_unit_test(ports_at_the_sandboxs_own_address_share_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
