/* leases_test.c — leases with a kernel that is a map from address and set to time, so that after
 * every step what it holds can be compared with what the leases say. */
#include "egress/dns/leases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "policies/document.h"

enum { IPS = 16, KINDS = 3, ORDERS = 32 };

struct order {
    struct lease_address address[IPS];
    size_t n;
    unsigned kinds;
    void (*done)(void *arg, bool ok);
    void *arg;
};

struct rig {
    struct leases *l;
    struct policy *policy;
    struct gate_rules rules;
    uint64_t now, until[IPS][KINDS]; /* what the kernel has: of 192.0.2.0 and so on */
    unsigned learned;                /* orders carried out */
    bool slow;
    struct order order[ORDERS];
    unsigned norders;
    int done; /* -1: not told */
    const char *bound;
};

static struct ip ip_of(unsigned i)
{
    struct ip ip = {.b = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = (uint8_t)i}};
    return ip;
}

static void carry_out(struct rig *rig, const struct order *o)
{
    rig->learned++;
    for (size_t i = 0; i < o->n; i++)
        for (unsigned k = 0; k < KINDS; k++)
            if (o->kinds & 1u << k)
                rig->until[o->address[i].ip.b[15]][k] = rig->now + 1000ull * o->address[i].seconds;
}

static void on_learn(void *user, struct str name, const struct lease_address *list, size_t n,
                     unsigned kinds, void (*done)(void *arg, bool ok), void *arg)
{
    struct rig *rig = user;
    struct order o = {.n = n, .kinds = kinds, .done = done, .arg = arg};
    assert_true(name.n > 0 && n <= IPS);
    memcpy(o.address, list, n * sizeof *list);
    carry_out(rig, &o);
    if (rig->slow)
        rig->order[rig->norders++] = o;
    else
        done(arg, true);
}

static void on_withdraw(void *user, const struct lease_gone *list, size_t n)
{
    struct rig *rig = user;
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k < KINDS; k++)
            if (list[i].kinds & 1u << k)
                rig->until[list[i].ip.b[15]][k] = 0;
}

static void acknowledge(struct rig *rig)
{
    unsigned n = rig->norders;
    rig->norders = 0;
    for (unsigned i = 0; i < n; i++)
        rig->order[i].done(rig->order[i].arg, true);
}

static bool is_bound(void *user, struct str name)
{
    struct rig *rig = user;
    return rig->bound && str_eq(name, str_of(rig->bound));
}

static void set_policy(struct rig *rig, const char *allow_always, const char *json)
{
    struct document d;
    struct json_fault fault;
    struct rules *always = rules_new();
    assert_true(document_parse(str_of(json), &d, &fault));
    assert_int_equal(rules_add(always, true, str_of(allow_always)), TARGET_OK);
    policy_free(rig->policy);
    rig->policy = policy_new(NULL, always, &d);
    rig->rules = (struct gate_rules){.policy = rig->policy, .bound = is_bound, .user = rig};
    rules_unref(always);
    document_done(&d);
}

#define BOTH                                                     \
    "{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"}," \
    "{\"action\":\"allow\",\"target\":\"b.test\"}]}"
#define ONLY_B "{\"egress\":[{\"action\":\"allow\",\"target\":\"b.test\"}]}"

static struct rig *rig_new(unsigned per_name, unsigned total)
{
    struct rig *rig = mem_new(sizeof *rig);
    rig->now = 1000000;
    rig->l = leases_new(&(struct leases_limits){per_name, total},
                        &(struct leases_kernel){on_learn, on_withdraw, rig});
    set_policy(rig, "always.test", BOTH);
    return rig;
}

static void rig_free(struct rig *rig)
{
    leases_free(rig->l);
    policy_free(rig->policy);
    mem_free(rig);
}

static void on_done(void *arg, bool ok)
{
    struct rig *rig = arg;
    rig->done = ok;
}

static enum lease_answer take(struct rig *rig, const char *name, unsigned ip, uint32_t ttl)
{
    struct gate_learned learned = {.n = 1, .at[0] = {ip_of(ip), ttl}};
    unsigned kinds = leases_kinds(&rig->rules, str_of(name));
    rig->done = -1;
    return leases_take(rig->l, str_of(name), kinds, &learned, true, rig->now, on_done, rig);
}

static unsigned left_s(const struct rig *rig, const char *name, unsigned i)
{
    struct ip ip = ip_of(i);
    uint64_t until = leases_until(rig->l, str_of(name), &ip);
    return until > rig->now ? (unsigned)((until - rig->now) / 1000) : 0;
}

static unsigned kernel_s(const struct rig *rig, unsigned i, enum lease_kind kind)
{
    uint64_t until = rig->until[i][__builtin_ctz(kind)];
    return until > rig->now ? (unsigned)((until - rig->now) / 1000) : 0;
}

static bool has(const struct rig *rig, unsigned i, enum lease_kind kind)
{
    return rig->until[i][__builtin_ctz(kind)] > rig->now;
}

/* What a lease wants is there. */
static void expect_kernel_has_all(struct rig *rig)
{
    for (unsigned i = 0; i < IPS; i++) {
        struct ip ip = ip_of(i);
        bool bound;
        enum learned learned = leases_learned(rig->l, &ip, rig->now, &bound);
        assert_true(learned != LEARNED_ALWAYS || has(rig, i, LEASE_ALWAYS));
        assert_true(learned != LEARNED_USER || has(rig, i, LEASE_USER));
        assert_true(!bound || has(rig, i, LEASE_BOUND));
    }
}

/* The kernel counts whole seconds from when it was told: an address may stay there a little longer
 * than its lease, as long as a name that it was learned for is allowed for this. */
static bool may_linger(const struct rig *rig, unsigned i, unsigned kind)
{
    static const char *const names[] = {"a.test", "b.test", "always.test"};
    struct ip ip = ip_of(i);
    for (unsigned n = 0; n < 3; n++) {
        if (leases_kinds(&rig->rules, str_of(names[n])) & kind &&
            leases_until(rig->l, str_of(names[n]), &ip) + 15000 >
                rig->until[i][__builtin_ctz(kind)])
            return true;
    }
    return false;
}

/* And nothing else: after a change, when all is acknowledged. */
static void expect_kernel_agrees(struct rig *rig)
{
    expect_kernel_has_all(rig);
    for (unsigned i = 0; i < IPS; i++) {
        struct ip ip = ip_of(i);
        unsigned wanted = 0;
        bool bound;
        enum learned learned = leases_learned(rig->l, &ip, rig->now, &bound);
        for (unsigned kind = 1; kind <= LEASE_BOUND; kind <<= 1)
            wanted |= may_linger(rig, i, kind) ? kind : 0;
        assert_true(learned != LEARNED_NOT || !has(rig, i, LEASE_USER) || wanted & LEASE_USER);
        assert_true(learned == LEARNED_ALWAYS || !has(rig, i, LEASE_ALWAYS) ||
                    wanted & LEASE_ALWAYS);
        assert_true(bound || !has(rig, i, LEASE_BOUND) || wanted & LEASE_BOUND);
    }
}

static void adopt(struct rig *rig, bool tell)
{
    struct arena a;
    struct lease_change c;
    arena_init(&a, NULL, 0);
    leases_judge(rig->l, &rig->rules, rig->now, &a, &c);
    if (tell) { /* as the transaction that changes the rules does */
        on_withdraw(rig, c.gone, c.ngone);
        for (size_t i = 0; i < c.nfresh; i++)
            carry_out(rig, &(struct order){.address[0] = c.fresh[i].address,
                                           .n = 1,
                                           .kinds = c.fresh[i].kinds});
    }
    leases_adopt(rig->l, &rig->rules, tell ? &c : NULL, rig->now);
    arena_done(&a);
}

/* ---- tests */

static void a_later_answer_renews_and_never_shortens(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 8);
    take(rig, "a.test", 1, 300);
    assert_int_equal(left_s(rig, "a.test", 1), 360);
    rig->now += 10000;
    assert_int_equal(take(rig, "a.test", 1, 10), LEASES_HELD);
    assert_int_equal(left_s(rig, "a.test", 1), 350);
    assert_int_equal(take(rig, "a.test", 1, 3600), LEASES_ASKED);
    assert_int_equal(left_s(rig, "a.test", 1), 360);
    rig_free(rig);
}

static void another_name_does_not_shorten_what_the_kernel_has(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 8);
    take(rig, "a.test", 1, 300);
    take(rig, "b.test", 1, 0);
    assert_int_equal(left_s(rig, "b.test", 1), 360);
    assert_int_equal(kernel_s(rig, 1, LEASE_USER), 360);
    rig_free(rig);
}

static void an_answer_from_the_cache_leaves_a_lease_that_outlasts_it(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 8);
    struct gate_learned learned = {.n = 1, .at[0] = {ip_of(1), 3600}};
    take(rig, "a.test", 1, 3600);
    rig->now += 50000;
    assert_true(leases_held(rig->l, STR("a.test"), LEASE_USER, &learned, false, rig->now));
    rig->now += 20000;
    assert_false(leases_held(rig->l, STR("a.test"), LEASE_USER, &learned, false, rig->now));
    rig_free(rig);
}

static void a_lease_runs_from_the_acknowledgement_on(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 8);
    rig->slow = true;
    assert_int_equal(take(rig, "a.test", 1, 60), LEASES_ASKED);
    assert_int_equal(left_s(rig, "a.test", 1), 0);
    assert_int_equal(rig->done, -1);
    acknowledge(rig);
    assert_int_equal(left_s(rig, "a.test", 1), 120);
    assert_int_equal(rig->done, 1);
    rig_free(rig);
}

static void limits_hold_and_nobody_is_pushed_out(void **state)
{
    (void)state;
    struct rig *rig = rig_new(2, 3);
    assert_int_equal(take(rig, "a.test", 1, 60), LEASES_ASKED);
    assert_int_equal(take(rig, "a.test", 2, 60), LEASES_ASKED);
    assert_int_equal(take(rig, "a.test", 3, 60), LEASES_FULL);
    assert_int_equal(take(rig, "b.test", 4, 60), LEASES_ASKED);
    assert_int_equal(take(rig, "b.test", 5, 60), LEASES_FULL);
    assert_int_equal(left_s(rig, "a.test", 1), 120);
    assert_int_equal(take(rig, "a.test", 1, 90), LEASES_ASKED);
    rig->now += 300000; /* over, and not in use at any poll since */
    assert_int_equal(take(rig, "b.test", 5, 60), LEASES_ASKED);
    rig_free(rig);
}

static void a_policy_takes_away_what_no_name_is_allowed_for(void **state)
{
    (void)state;
    for (int tell = 0; tell < 2; tell++) {
        struct rig *rig = rig_new(8, 16);
        take(rig, "a.test", 1, 60);
        take(rig, "b.test", 2, 60);
        take(rig, "a.test", 3, 300);
        take(rig, "b.test", 3, 0);
        set_policy(rig, "always.test", ONLY_B);
        adopt(rig, tell);
        expect_kernel_agrees(rig);
        assert_int_equal(left_s(rig, "a.test", 1), 0);
        assert_int_equal(left_s(rig, "b.test", 2), 120);
        assert_int_equal(left_s(rig, "b.test", 3), 360);
        assert_int_equal(left_s(rig, "a.test", 3), 0);
        rig_free(rig);
    }
}

static void a_name_that_another_layer_allows_moves_its_addresses(void **state)
{
    (void)state;
    for (int tell = 0; tell < 2; tell++) {
        struct rig *rig = rig_new(8, 16);
        take(rig, "a.test", 1, 60);
        set_policy(rig, "a.test", ONLY_B);
        adopt(rig, tell);
        expect_kernel_agrees(rig);
        assert_int_equal(kernel_s(rig, 1, LEASE_ALWAYS), 120);
        assert_int_equal(kernel_s(rig, 1, LEASE_USER), 0);
        rig->bound = "a.test";
        adopt(rig, tell);
        expect_kernel_agrees(rig);
        assert_int_equal(kernel_s(rig, 1, LEASE_BOUND), 120);
        rig_free(rig);
    }
}

static void the_lost_ones_are_told_from_those_that_only_move(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 16);
    struct arena a;
    struct lease_change c;
    arena_init(&a, NULL, 0);
    take(rig, "a.test", 1, 60);
    take(rig, "b.test", 2, 60);
    set_policy(rig, "b.test", "{}");
    leases_judge(rig->l, &rig->rules, rig->now, &a, &c);
    assert_int_equal(c.ngone, 2);
    for (size_t i = 0; i < c.ngone; i++)
        assert_int_equal(c.gone[i].lost, c.gone[i].ip.b[15] == 1);
    assert_int_equal(c.nfresh, 1);
    assert_int_equal(left_s(rig, "a.test", 1), 120); /* judged, not changed */
    arena_done(&a);
    rig_free(rig);
}

/* A flow may be open to it, and is found in use at the next poll only. */
static void what_ran_out_a_moment_ago_is_gone_only_if_its_name_is_denied(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 16);
    struct arena a;
    struct lease_change c;
    struct ip one = ip_of(1);
    arena_init(&a, NULL, 0);
    take(rig, "a.test", 1, 0);
    take(rig, "b.test", 2, 0);
    rig->now += 60001 + LEASES_POLL_MS / 3;
    leases_judge(rig->l, &rig->rules, rig->now, &a, &c);
    assert_true(c.ngone == 0 && c.nfresh == 0);
    set_policy(rig, "always.test", ONLY_B);
    leases_judge(rig->l, &rig->rules, rig->now, &a, &c);
    assert_int_equal(c.ngone, 1);
    assert_true(ip_eq(&c.gone[0].ip, &one) && c.gone[0].lost);
    adopt(rig, true);
    struct ip used[] = {ip_of(1), ip_of(2)};
    leases_poll(rig->l, true, used, 2, rig->now);
    assert_int_equal(left_s(rig, "a.test", 1), 0);
    assert_int_equal(left_s(rig, "b.test", 2), 360);
    assert_true(has(rig, 2, LEASE_USER) && !has(rig, 1, LEASE_USER));
    arena_done(&a);
    rig_free(rig);
}

static void an_order_from_before_a_change_opens_nothing_after_it(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 16);
    rig->slow = true;
    take(rig, "a.test", 1, 60);
    set_policy(rig, "always.test", ONLY_B);
    adopt(rig, true);
    carry_out(rig, &rig->order[0]); /* the kernel may come to it only now */
    acknowledge(rig);
    assert_int_equal(rig->done, 0);
    expect_kernel_agrees(rig);
    rig_free(rig);
}

static void an_order_whose_name_has_moved_is_given_anew(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 16);
    rig->slow = true;
    take(rig, "a.test", 1, 60);
    set_policy(rig, "a.test", ONLY_B);
    adopt(rig, true);
    acknowledge(rig);
    assert_int_equal(rig->done, -1);
    acknowledge(rig);
    assert_int_equal(rig->done, 1);
    expect_kernel_agrees(rig);
    assert_int_equal(left_s(rig, "a.test", 1), 120);
    rig_free(rig);
}

static void what_a_predecessor_left_counts(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8, 16);
    struct ip ip = ip_of(1);
    bool bound;
    leases_restore(rig->l, &(struct lease_fresh){STR("a.test"), {ip, 100}, LEASE_USER}, rig->now);
    rig->until[1][1] = rig->now + 100000;
    assert_true(leases_covers(rig->l, STR("a.test"), &ip, rig->now));
    assert_int_equal(leases_learned(rig->l, &ip, rig->now, &bound), LEARNED_USER);
    set_policy(rig, "always.test", ONLY_B);
    adopt(rig, true);
    expect_kernel_agrees(rig);
    rig_free(rig);
}

/* Names, addresses, policies and polls at random, acknowledged late or at once. */
static void at_random_the_kernel_always_agrees_in_the_end(void **state)
{
    (void)state;
    static const char *const names[] = {"a.test", "b.test", "always.test"};
    static const char *const always[] = {"always.test", "b.test", "nobody.test"};
    static const char *const policies[] = {BOTH, ONLY_B, "{}"};
    struct rig *rig = rig_new(8, 24);
    srand(1); /* the same each time */
    for (int step = 0; step < 40000; step++) {
        rig->slow = rand() % 2;
        unsigned i = (unsigned)rand() % 3;
        if (rand() % 4) {
            if (leases_kinds(&rig->rules, str_of(names[i])))
                take(rig, names[i], (unsigned)rand() % IPS, (uint32_t)rand() % 400);
        } else if (rand() % 2) {
            rig->bound = rand() % 2 ? names[rand() % 3] : NULL;
            set_policy(rig, always[rand() % 3], policies[i]);
            adopt(rig, rand() % 2);
            while (rig->norders)
                acknowledge(rig);
            expect_kernel_agrees(rig);
        } else {
            struct ip used[2] = {ip_of((unsigned)rand() % IPS), ip_of((unsigned)rand() % IPS)};
            leases_poll(rig->l, rand() % 8 != 0, used, 2, rig->now);
        }
        while (rig->norders && (step % 2 || rand() % 2))
            acknowledge(rig);
        if (rig->norders == 0)
            expect_kernel_has_all(rig);
        rig->now += (uint64_t)rand() % 5000;
    }
    rig->slow = false;
    while (rig->norders)
        acknowledge(rig);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_later_answer_renews_and_never_shortens),
        cmocka_unit_test(another_name_does_not_shorten_what_the_kernel_has),
        cmocka_unit_test(an_answer_from_the_cache_leaves_a_lease_that_outlasts_it),
        cmocka_unit_test(a_lease_runs_from_the_acknowledgement_on),
        cmocka_unit_test(limits_hold_and_nobody_is_pushed_out),
        cmocka_unit_test(a_policy_takes_away_what_no_name_is_allowed_for),
        cmocka_unit_test(a_name_that_another_layer_allows_moves_its_addresses),
        cmocka_unit_test(the_lost_ones_are_told_from_those_that_only_move),
        cmocka_unit_test(what_ran_out_a_moment_ago_is_gone_only_if_its_name_is_denied),
        cmocka_unit_test(an_order_from_before_a_change_opens_nothing_after_it),
        cmocka_unit_test(an_order_whose_name_has_moved_is_given_anew),
        cmocka_unit_test(what_a_predecessor_left_counts),
        cmocka_unit_test(at_random_the_kernel_always_agrees_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
