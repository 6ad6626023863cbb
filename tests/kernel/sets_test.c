/* sets_test.c — what is written into the kernel is what stands there, all of it or nothing, and it
 * decides as the policy does. */
#include "egress/kernel/sets.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernel/fixture.h"

static struct netns ns;
static struct sets *sets;
static struct arena arena;

static int fresh(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    r.relay_port = 0;
    fixture_apply(&ns, &r);
    arena_init(&arena, NULL, 0);
    return 0;
}

static int after(void **state)
{
    (void)state;
    arena_done(&arena);
    return 0;
}

/* ---- helpers */

static struct ip ip_of(const char *text)
{
    struct ip ip;
    if (!ip_parse(str_of(text), &ip))
        fail_msg("no address: %s", text);
    return ip;
}

static struct range_rule rule_of(const char *net, bool allow)
{
    struct range_rule r = {.allow = allow};
    if (!cidr_parse(str_of(net), &r.net))
        fail_msg("no network: %s", net);
    return r;
}

static struct sets_rules rules_of(const struct range_rule *always, size_t nalways,
                                  const struct range_rule *user, size_t nuser, bool allow)
{
    return (struct sets_rules){.always = ranges_compile(always, nalways, &arena),
                               .user = ranges_compile(user, nuser, &arena),
                               .allow = allow};
}

static void assert_lists(const struct range_list *a, const struct range_list *b, const char *what)
{
    char x[IP_TEXT_BYTES], y[IP_TEXT_BYTES];
    if (a->n != b->n)
        fail_msg("%s: %zu ranges, not %zu", what, a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        bool same = ip_eq(&a->at[i].lo, &b->at[i].lo) && ip_eq(&a->at[i].hi, &b->at[i].hi) &&
                    a->at[i].allow == b->at[i].allow;
        if (same)
            continue;
        ip_text(&a->at[i].lo, x);
        ip_text(&b->at[i].lo, y);
        fail_msg("%s: range %zu begins %s, should %s", what, i, x, y);
    }
}

static void assert_layer(const struct ranges *there, const struct ranges *wanted, const char *what)
{
    struct ranges joined = ranges_joined(wanted, &arena);
    for (unsigned k = 0; k < RANGE_KINDS; k++)
        assert_lists(&there->list[k], &joined.list[k], what);
}

static void assert_kernel_has(const struct sets_rules *wanted)
{
    struct sets_content c;
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_layer(&c.rules.always, &wanted->always, "always");
    assert_layer(&c.rules.user, &wanted->user, "user");
    assert_int_equal(c.rules.allow, wanted->allow);
}

static const struct sets_address *find(const struct sets_content *c, const char *ip, unsigned kind)
{
    struct ip wanted = ip_of(ip);
    for (size_t i = 0; i < c->n; i++) {
        if (ip_eq(&c->at[i].ip, &wanted) && c->at[i].kinds == kind)
            return &c->at[i];
    }
    return NULL;
}

/* May a UDP packet of the workload leave for the address? */
static bool passes(int fd, const struct ip *ip)
{
    union addr to;
    addr_make(&to, ip, 9999);
    return sendto(fd, "x", 1, 0, &to.sa, addr_len(&to.sa)) == 1;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- rules */

static void a_policy_is_there_as_it_was_sent(void **state)
{
    struct range_rule always[] = {rule_of("10.0.0.0/8", false), rule_of("2001:db8::/32", true),
                                  rule_of("192.0.2.1", true)};
    struct range_rule user[] = {rule_of("0.0.0.0/0", true), rule_of("::/0", false),
                                rule_of("255.255.255.255", false), rule_of("::1", true)};
    struct sets_rules r = rules_of(always, 3, user, 4, true);
    (void)state;
    assert_int_equal(sets_replace(sets, NULL, &r, NULL, 0), 0);
    assert_kernel_has(&r);
}

static void ranges_that_touch_stay_apart(void **state)
{
    struct range_rule user[] = {rule_of("10.0.0.0/25", true), rule_of("10.0.0.128/25", false),
                                rule_of("10.0.1.0/24", true), rule_of("255.0.0.0/8", false),
                                rule_of("fd00::/16", true),   rule_of("fd01::/16", false),
                                rule_of("ff00::/8", true)};
    struct sets_rules r = rules_of(NULL, 0, user, 7, false);
    (void)state;
    assert_int_equal(sets_replace(sets, NULL, &r, NULL, 0), 0);
    assert_kernel_has(&r);
}

static void each_policy_becomes_the_next(void **state)
{
    static const char *const nets[][3] = {
        {"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"}, {"10.1.0.0/16", "10.0.0.0/9", "10.1.2.4"},
        {"0.0.0.0/0", "10.1.2.4", "fd00::/8"},     {"fd00::/9", "fd00::1", "10.1.2.3"},
        {"10.1.2.3", "10.1.2.3", "10.0.0.0/8"},
    };
    struct sets_rules was = rules_of(NULL, 0, NULL, 0, false);
    (void)state;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct range_rule list[3];
        for (size_t k = 0; k < 3; k++)
            list[k] = rule_of(nets[i][k], (i + k) % 2 == 0);
        struct sets_rules is = rules_of(list, 3, list + 1, 2, i % 2 == 0);
        assert_int_equal(sets_replace(sets, &was, &is, NULL, 0), 0);
        assert_kernel_has(&is);
        was = is;
    }
}

static struct range_rule random_rule(unsigned *seed)
{
    static const uint8_t v4_head[12] = {[10] = 0xff, [11] = 0xff};
    bool v4 = rand_r(seed) % 3 > 0;
    struct range_rule r = {.allow = rand_r(seed) % 2};
    for (unsigned i = 0; i < 16; i++)
        r.net.ip.b[i] = (uint8_t)(rand_r(seed) % 3 * 0x7f);
    if (v4)
        memcpy(r.net.ip.b, v4_head, 12);
    r.net.prefix = (uint8_t)(v4 ? 96 + rand_r(seed) % 33 : rand_r(seed) % 129);
    char text[CIDR_TEXT_BYTES];
    size_t n = cidr_text(&r.net, text);
    assert_true(cidr_parse((struct str){text, n}, &r.net));
    return r;
}

/* Joined ranges of one policy against those of the next, in one transaction, again and again. */
static void random_policies_become_each_other(void **state)
{
    enum { ROUNDS = 150, RULES = 24 };
    unsigned seed = 4711;
    struct sets_rules was = rules_of(NULL, 0, NULL, 0, false);
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct range_rule list[RULES];
        for (unsigned i = 0; i < RULES; i++)
            list[i] = random_rule(&seed);
        struct sets_rules is = rules_of(list, RULES / 2, list + RULES / 2, RULES / 2, round % 2);
        int error = sets_replace(sets, &was, &is, NULL, 0);
        if (error)
            fail_msg("round %u: %s", round, strerror(-error));
        assert_kernel_has(&is);
        was = is;
    }
}

/* By packets: an address, and its neighbours at the edges, get what ranges_find() says. */
static void the_kernel_decides_as_the_ranges_do(void **state)
{
    static const char *const probes[] = {"198.51.100.0",   "198.51.100.1",   "198.51.100.15",
                                         "198.51.100.16",  "198.51.100.31",  "198.51.100.32",
                                         "198.51.100.63",  "198.51.100.64",  "198.51.100.127",
                                         "198.51.100.128", "198.51.100.255", "198.51.99.255"};
    struct range_rule user[] = {rule_of("198.51.100.1", false), rule_of("198.51.100.0/28", true),
                                rule_of("198.51.100.32/27", true),
                                rule_of("198.51.100.0/25", false),
                                rule_of("198.51.100.0/24", true)};
    struct sets_rules r = rules_of(NULL, 0, user, 5, false);
    (void)state;
    assert_int_equal(sets_replace(sets, NULL, &r, NULL, 0), 0);
    netns_enter(ns.inside);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    netns_enter(ns.home);
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        struct ip ip = ip_of(probes[i]);
        const struct range *decides = ranges_find(&r.user, &ip);
        if (passes(fd, &ip) != (decides && decides->allow))
            fail_msg("%s", probes[i]);
    }
    close(fd);
}

static void a_change_that_fails_changes_nothing(void **state)
{
    struct range_rule first[] = {rule_of("10.0.0.0/8", true)};
    struct range_rule never[] = {rule_of("172.16.0.0/12", true)};
    struct range_rule next[] = {rule_of("192.0.2.0/24", true)};
    struct sets_rules was = rules_of(first, 1, NULL, 0, false);
    struct sets_rules wrong = rules_of(first, 1, never, 1, false);
    struct sets_rules is = rules_of(next, 1, next, 1, true);
    struct sets_address parent = {ip_of("192.0.2.7"), SETS_PARENT, 0, STR_NONE};
    (void)state;
    assert_int_equal(sets_replace(sets, NULL, &was, NULL, 0), 0);
    assert_int_equal(sets_replace(sets, &wrong, &is, NULL, 0), -ENOENT);
    assert_kernel_has(&was);
    /* The last message of a batch: a set that is not there. */
    assert_int_equal(sets_replace(sets, &was, &is, &parent, 1), -ENOENT);
    assert_kernel_has(&was);
}

static void without_a_table_there_is_an_error(void **state)
{
    struct sets_rules none = rules_of(NULL, 0, NULL, 0, true);
    struct ip ip = ip_of("192.0.2.1");
    struct sets_content c;
    char hash[RULESET_HASH_TEXT];
    (void)state;
    assert_true(netns_run(&ns, RULES_PROGRAM " remove"));
    assert_int_equal(sets_replace(sets, NULL, &none, NULL, 0), -ENOENT);
    assert_int_equal(sets_learn(sets, STR("a.test"), &ip, 1, 60, SETS_LEARNED), -ENOENT);
    assert_int_equal(sets_dump(sets, &arena, &c), -ENOENT);
    assert_int_equal(sets_table(sets, hash), -ENOENT);
}

static void a_table_says_which_text_made_it(void **state)
{
    struct ruleset r = fixture_settings();
    struct str text, error;
    char hash[RULESET_HASH_TEXT];
    (void)state;
    r.relay_port = 0;
    assert_true(ruleset_text(&r, &arena, &text, &error));
    assert_int_equal(sets_table(sets, hash), 0);
    assert_true(str_eq(ruleset_hash(text), (struct str){hash, RULESET_HASH_TEXT}));
    fixture_nft(&ns, "delete table inet opensandbox; add table inet opensandbox");
    assert_int_equal(sets_table(sets, hash), -ENODATA);
}

/* ---- learned addresses */

static void learned_addresses_have_name_and_time(void **state)
{
    struct ip ips[] = {ip_of("192.0.2.1"), ip_of("2001:db8::1"), ip_of("192.0.2.2")};
    char longest[253];
    struct sets_content c;
    (void)state;
    memset(longest, 'n', 251);
    assert_int_equal(sets_learn(sets, STR("a.test"), ips, 3, 60, SETS_LEARNED | SETS_BOUND), 0);
    assert_int_equal(sets_learn(sets, (struct str){longest, 251}, ips, 1, 300, SETS_LEARNED_ALWAYS),
                     0);
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_int_equal(c.n, 7);
    const struct sets_address *one = find(&c, "2001:db8::1", SETS_BOUND);
    assert_true(one && str_eq(one->name, STR("a.test")));
    assert_true(one->seconds >= 58 && one->seconds <= 60);
    one = find(&c, "192.0.2.1", SETS_LEARNED_ALWAYS);
    assert_non_null(one);
    assert_int_equal(one->name.n, 251);
    assert_true(one->seconds >= 298);
}

static void a_name_too_long_for_a_comment_is_left_out(void **state)
{
    struct ip ip = ip_of("192.0.2.1");
    char longest[253];
    struct sets_content c;
    (void)state;
    memset(longest, 'n', sizeof longest);
    for (size_t n = 252; n <= sizeof longest; n++) {
        assert_int_equal(sets_learn(sets, (struct str){longest, n}, &ip, 1, 60, SETS_LEARNED), 0);
        assert_int_equal(sets_dump(sets, &arena, &c), 0);
        assert_int_equal(c.n, 1);
        assert_int_equal(c.at[0].name.n, 0);
    }
}

static void learning_again_renews_time_and_name(void **state)
{
    struct ip ip = ip_of("192.0.2.1");
    struct sets_content c;
    (void)state;
    assert_int_equal(sets_learn(sets, STR("a.test"), &ip, 1, 60, SETS_LEARNED), 0);
    assert_int_equal(sets_learn(sets, STR("b.test"), &ip, 1, 360, SETS_LEARNED), 0);
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_int_equal(c.n, 1);
    assert_true(str_eq(c.at[0].name, STR("b.test")));
    assert_true(c.at[0].seconds >= 358);
}

static void what_is_forgotten_is_gone_and_the_rest_stays(void **state)
{
    struct ip ips[] = {ip_of("192.0.2.1"), ip_of("2001:db8::1")};
    struct sets_address gone[] = {{ips[0], SETS_LEARNED | SETS_BOUND, 0, STR_NONE},
                                  {ip_of("192.0.2.99"), SETS_LEARNED, 0, STR_NONE}};
    struct sets_content c;
    (void)state;
    assert_int_equal(sets_learn(sets, STR("a.test"), ips, 2, 60, SETS_LEARNED | SETS_BOUND), 0);
    assert_int_equal(sets_forget(sets, gone, 2), 0);
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_int_equal(c.n, 2);
    assert_non_null(find(&c, "2001:db8::1", SETS_LEARNED));
    assert_non_null(find(&c, "2001:db8::1", SETS_BOUND));
}

static void a_change_forgets_in_the_same_transaction(void **state)
{
    struct ip ip = ip_of("192.0.2.1");
    struct range_rule user[] = {rule_of("10.0.0.0/8", true)};
    struct sets_rules r = rules_of(NULL, 0, user, 1, false);
    struct sets_address gone = {ip, SETS_LEARNED, 0, STR_NONE};
    struct sets_content c;
    (void)state;
    assert_int_equal(sets_learn(sets, STR("a.test"), &ip, 1, 60, SETS_LEARNED), 0);
    assert_int_equal(sets_replace(sets, NULL, &r, &gone, 1), 0);
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_int_equal(c.n, 0);
    assert_kernel_has(&r);
}

static void a_full_set_takes_no_more_and_says_so(void **state)
{
    struct ruleset r = fixture_settings();
    struct ip ips[5] = {ip_of("192.0.2.1"), ip_of("192.0.2.2"), ip_of("192.0.2.3"),
                        ip_of("192.0.2.4"), ip_of("192.0.2.5")};
    struct sets_content c;
    (void)state;
    r.learned_max = 4;
    fixture_apply(&ns, &r);
    assert_int_equal(sets_learn(sets, STR("a.test"), ips, 3, 60, SETS_LEARNED), 0);
    assert_int_equal(sets_learn(sets, STR("b.test"), ips + 3, 2, 60, SETS_LEARNED), -ENFILE);
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_int_equal(c.n, 3);
}

static void counters_count(void **state)
{
    struct sets_counts c;
    struct attempt away = {"udp", try_udp, "198.51.100.1", 9999, AS_RAW, 0, 1};
    struct attempt frame = {"frame", try_frame, "198.51.100.1", 9999, AS_RAW, 0, 0};
    (void)state;
    assert_int_equal(attempt_as(&ns, &away, AS_RAW), ANSWERED);
    attempt_as(&ns, &frame, AS_RAW);
    assert_int_equal(sets_counts(sets, &c), 0);
    assert_true(c.refused >= 1 && c.wrong_mark >= 1 && c.frames == 1);
    assert_int_equal(c.forged, 0);
}

/* ---- at once */

enum { AT_ONCE = 250 };

static void *replace_again_and_again(void *user)
{
    struct sets *own = user;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct range_rule one[] = {rule_of("10.0.0.0/8", true), rule_of("fd00::/8", true)};
    struct sets_rules none = {.allow = false};
    struct sets_rules some = {.user = ranges_compile(one, 2, &a)};
    int error = 0;
    for (unsigned i = 0; i < AT_ONCE && error == 0; i++)
        error = i % 2 ? sets_replace(own, &some, &none, NULL, 0)
                      : sets_replace(own, i ? &none : NULL, &some, NULL, 0);
    arena_done(&a);
    return (void *)(intptr_t)error;
}

static void learning_and_replacing_do_not_disturb_each_other(void **state)
{
    struct sets *other;
    struct sets_content c;
    pthread_t thread;
    void *error;
    (void)state;
    netns_enter(ns.inside);
    assert_int_equal(sets_open(&other), 0);
    netns_enter(ns.home);
    assert_int_equal(pthread_create(&thread, NULL, replace_again_and_again, other), 0);
    for (unsigned i = 0; i < AT_ONCE; i++) {
        struct ip ip = ip_of("192.0.2.0");
        ip.b[15] = (uint8_t)i;
        assert_int_equal(sets_learn(sets, STR("a.test"), &ip, 1, 60, SETS_LEARNED), 0);
        /* Among so many changes a picture may be impossible; what there is is whole. */
        int seen = i % 50 ? -EINTR : sets_dump(sets, &arena, &c);
        assert_true(seen == -EINTR || (seen == 0 && c.n == i + 1));
    }
    assert_int_equal(pthread_join(thread, &error), 0);
    assert_ptr_equal(error, NULL);
    assert_int_equal(sets_dump(sets, &arena, &c), 0);
    assert_int_equal(c.n, AT_ONCE);
    sets_close(other);
}

/* ---- figures: printed, and held to what leaves room for sanitizers and neighbours */

static struct sets_rules many(bool ranges, unsigned n, unsigned skip)
{
    struct range_rule *list = arena_get(&arena, n * sizeof *list);
    unsigned made = 0;
    for (unsigned i = 0; made < n; i++) {
        char text[64];
        if (skip && i % 400 == skip)
            continue;
        snprintf(text, sizeof text, "%u.%u.%u.0/%u", 11 + i / 16384, i / 64 % 256, i % 64 * 4,
                 ranges ? 24 : 32);
        list[made++] = rule_of(text, ranges ? i % 2 : true);
    }
    return rules_of(NULL, 0, list, n, false);
}

static void measure(const char *what, bool ranges)
{
    struct sets_rules all = many(ranges, 4096, 0), other = many(ranges, 4096, 7);
    struct sets_rules none = rules_of(NULL, 0, NULL, 0, false);
    double load = 1e12, change = 1e12;
    for (unsigned i = 0; i < 5; i++) {
        double start = now_us();
        assert_int_equal(sets_replace(sets, NULL, &all, NULL, 0), 0);
        double loaded = now_us();
        assert_int_equal(sets_replace(sets, &all, &other, NULL, 0), 0);
        double changed = now_us();
        assert_int_equal(sets_replace(sets, &other, &none, NULL, 0), 0);
        load = loaded - start < load ? loaded - start : load;
        change = changed - loaded < change ? changed - loaded : change;
    }
    printf("figure: 4096 %s loaded %.2f ms, a difference of some ten %.2f ms\n", what, load / 1e3,
           change / 1e3);
    assert_true(load < 500e3);
}

static void the_cost_of_changes(void **state)
{
    enum { ADDRESSES = 2000 };
    (void)state;
    measure("single addresses", false);
    measure("ranges", true);
    double start = now_us();
    for (unsigned i = 0; i < ADDRESSES; i++) {
        char text[32];
        snprintf(text, sizeof text, "12.0.%u.%u", i / 250, i % 250);
        struct ip ip = ip_of(text);
        assert_int_equal(sets_learn(sets, STR("some.name.test"), &ip, 1, 60, SETS_LEARNED), 0);
    }
    printf("figure: one learned address %.1f us\n", (now_us() - start) / ADDRESSES);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, after)
    const struct CMUnitTest tests[] = {
        TEST(a_policy_is_there_as_it_was_sent),
        TEST(ranges_that_touch_stay_apart),
        TEST(each_policy_becomes_the_next),
        TEST(random_policies_become_each_other),
        TEST(the_kernel_decides_as_the_ranges_do),
        TEST(a_change_that_fails_changes_nothing),
        TEST(without_a_table_there_is_an_error),
        TEST(a_table_says_which_text_made_it),
        TEST(learned_addresses_have_name_and_time),
        TEST(a_name_too_long_for_a_comment_is_left_out),
        TEST(learning_again_renews_time_and_name),
        TEST(what_is_forgotten_is_gone_and_the_rest_stays),
        TEST(a_change_forgets_in_the_same_transaction),
        TEST(a_full_set_takes_no_more_and_says_so),
        TEST(counters_count),
        TEST(learning_and_replacing_do_not_disturb_each_other),
        TEST(the_cost_of_changes),
    };
    if (!netns_start(&ns))
        return 0;
    netns_enter(ns.inside);
    if (sets_open(&sets) != 0)
        return 1;
    netns_enter(ns.home);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sets_close(sets);
    netns_stop(&ns);
    return failed;
}
