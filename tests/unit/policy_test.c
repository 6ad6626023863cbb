/* policy_test.c — what is in force: names and addresses against reading the lists from their top,
 * layers, learned addresses, answers, packets, and how long a full policy takes. */
#include "policies/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "policies/packet.h"
#include "policies/special.h"

/* "+target -target": allow, deny. */
static struct rules *rules_of(const char *text)
{
    struct rules *rules = rules_new();
    struct str rest = str_of(text), word;
    while (rest.n && str_next(&rest, ' ', &word))
        if (rules_add(rules, word.p[0] == '+', str_skip(word, 1)) != TARGET_OK)
            fail_msg("no target: %.*s", STR_ARG(word));
    return rules;
}

static struct policy *policy_of(const char *deny, const char *allow, const char *user,
                                bool by_default)
{
    struct rules *d = rules_of(deny), *a = rules_of(allow);
    struct document doc = {rules_of(user), by_default};
    struct policy *p = policy_new(d, a, &doc);
    rules_unref(d);
    rules_unref(a);
    document_done(&doc);
    return p;
}

static struct ip ip_of(const char *text)
{
    struct ip ip;
    if (!ip_parse(str_of(text), &ip))
        fail_msg("no address: %s", text);
    return ip;
}

static void same_answer(const char *what, struct policy_answer answer, const char *expected)
{
    char rule[POLICY_RULE_BYTES], got[POLICY_RULE_BYTES + 1];
    size_t n = policy_rule_text(answer, rule);
    snprintf(got, sizeof got, "%c%.*s", answer.allow ? '+' : '-', (int)n, rule);
    if (strcmp(got, expected) != 0)
        fail_msg("%s: got %s, expected %s", what, got, expected);
}

/* ---- layers */

static void nothing_given_is_deny(void **state)
{
    (void)state;
    struct policy *p = policy_new(NULL, NULL, NULL);
    struct ip ip = ip_of("192.0.2.1");
    same_answer("name", policy_name(p, STR("a.test")), "-default");
    same_answer("address", policy_addr(p, &ip, LEARNED_NOT), "-default");
    assert_int_equal(policy_learns(p, STR("a.test")), LEARNED_NOT);
    assert_false(policy_default(p));
    policy_free(p);
    policy_free(NULL);
}

static void the_layers_decide_in_their_order(void **state)
{
    static const struct {
        const char *name, *answer;
    } rows[] = {
        {"evil.test", "-deny.always:0"},  {"x.both.test", "-deny.always:1"},
        {"good.test", "+allow.always:1"}, {"both.test", "+allow.always:0"},
        {"late.test", "+user:3"},         {"x.late.test", "-user:1"},
        {"bücher.test", "-default"},      {"xn--bcher-kva.test", "+user:4"},
        {"other.test", "-default"},
    };
    (void)state;
    struct policy *p =
        policy_of("-evil.test -*.both.test", "+both.test +good.test -flag.test",
                  "-good.test -*.late.test +evil.test +late.test +bücher.test", false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        same_answer(rows[i].name, policy_name(p, str_of(rows[i].name)), rows[i].answer);
    /* a list means what its name says, whatever its rules say */
    same_answer("flag.test", policy_name(p, STR("flag.test")), "+allow.always:2");
    assert_true(str_eq(policy_target(p, policy_name(p, STR("x.late.test"))), STR("*.late.test")));
    assert_int_equal(policy_target(p, policy_name(p, STR("other.test"))).n, 0);
    policy_free(p);
}

static void a_learned_address_is_judged_by_its_best_name(void **state)
{
    static const struct {
        const char *ip, *not, *user, *always;
    } rows[] = {
        {"10.0.0.1", "-deny.always:1", "-deny.always:1", "-deny.always:1"},
        {"10.0.0.2", "+allow.always:1", "+allow.always:1", "+allow.always:1"},
        {"10.0.0.3", "-user:1", "-user:1", "+learned"},
        {"10.0.0.4", "+user:0", "+user:0", "+learned"},
        {"192.0.2.1", "-default", "+learned", "+learned"},
    };
    (void)state;
    struct policy *p = policy_of("-evil.test -10.0.0.1", "+good.test +10.0.0.1/30 -x",
                                 "+10.0.0.4 -10.0.0.0/8 +ok.test", false);
    struct policy *q = policy_of("-evil.test -10.0.0.1", "+good.test +10.0.0.2", /* no range */
                                 "+10.0.0.4 -10.0.0.0/8 +ok.test", false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip = ip_of(rows[i].ip);
        same_answer(rows[i].ip, policy_addr(q, &ip, LEARNED_NOT), rows[i].not );
        same_answer(rows[i].ip, policy_addr(q, &ip, LEARNED_USER), rows[i].user);
        same_answer(rows[i].ip, policy_addr(q, &ip, LEARNED_ALWAYS), rows[i].always);
    }
    struct ip three = ip_of("10.0.0.3");
    same_answer("range", policy_addr(p, &three, LEARNED_NOT), "+allow.always:1");
    assert_int_equal(policy_learns(p, STR("ok.test")), LEARNED_USER);
    assert_int_equal(policy_learns(p, STR("GOOD.test.")), LEARNED_ALWAYS);
    assert_int_equal(policy_learns(p, STR("evil.test")), LEARNED_NOT);
    policy_free(p);
    policy_free(q);
}

static void under_default_allow_every_allowed_name_may_be_learned(void **state)
{
    (void)state;
    struct policy *p = policy_of("", "", "-evil.test -10.0.0.0/8", true);
    struct ip ip = ip_of("10.0.0.1");
    assert_int_equal(policy_learns(p, STR("any.test")), LEARNED_USER);
    assert_int_equal(policy_learns(p, STR("evil.test")), LEARNED_NOT);
    same_answer("range", policy_addr(p, &ip, LEARNED_USER), "-user:1");
    policy_free(p);
}

static void a_policy_outlives_what_it_was_made_from(void **state)
{
    (void)state;
    struct rules *deny = rules_of("-evil.test");
    struct policy *p = policy_new(deny, NULL, NULL);
    const struct rules *other = rules_ref(deny);
    rules_unref(deny);
    rules_unref(other);
    same_answer("name", policy_name(p, STR("evil.test")), "-deny.always:0");
    policy_free(p);
}

static void the_kernel_gets_two_maps(void **state)
{
    (void)state;
    struct policy *p = policy_of("-10.0.0.1", "+10.0.0.0/24 +a.test", "+2001:db8::/32", false);
    const struct ranges *always = policy_always_ranges(p), *user = policy_user_ranges(p);
    assert_int_equal(always->list[RANGES_V4_SINGLE].n, 1);
    assert_false(always->list[RANGES_V4_SINGLE].at[0].allow);
    assert_int_equal(always->list[RANGES_V4].n, 1);
    assert_true(always->list[RANGES_V4].at[0].allow);
    assert_int_equal(user->list[RANGES_V6].n, 1);
    assert_int_equal(user->list[RANGES_V4].n, 0);
    policy_free(p);
}

/* ---- against the lists themselves */

static uint64_t random_bits(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Few labels, so that names meet. */
static size_t random_name(uint64_t *seed, char out[64])
{
    static const char *const labels[] = {"a", "b", "ab", "x-y", "_t"};
    size_t n = 0, count = 1 + random_bits(seed) % 4;
    for (size_t i = 0; i < count; i++)
        n += (size_t)snprintf(out + n, 64 - n, "%s%s", i ? "." : "", labels[random_bits(seed) % 5]);
    return n;
}

static size_t random_target(uint64_t *seed, char out[64])
{
    static const char *const v4[] = {"", "/32", "/31", "/30", "/28", "/8", "/0"};
    static const char *const v6[] = {"", "/128", "/127", "/120", "/64", "/0"};
    uint64_t bits = random_bits(seed);
    if (bits % 4 == 0)
        return (size_t)snprintf(out, 64, "10.0.%u.%u%s", (unsigned)(bits >> 8 & 1),
                                (unsigned)(bits >> 16 & 31), v4[(bits >> 32) % 7]);
    if (bits % 4 == 1)
        return (size_t)snprintf(out, 64, "fd00::%x%s", (unsigned)(bits >> 16 & 31),
                                v6[(bits >> 32) % 6]);
    size_t n = bits % 4 == 2 ? (size_t)snprintf(out, 64, "*.") : 0;
    return n + random_name(seed, out + n);
}

static struct rules *random_rules(uint64_t *seed, int kind)
{
    struct rules *rules = rules_new();
    size_t count = random_bits(seed) % 12;
    for (size_t i = 0; i < count; i++) {
        char text[80];
        size_t n = random_target(seed, text);
        bool allow = kind == LAYER_USER ? random_bits(seed) & 1 : kind == LAYER_ALLOW;
        assert_int_equal(rules_add(rules, allow, (struct str){text, n}), TARGET_OK);
    }
    return rules;
}

static bool covers_name(const struct target *t, struct str name)
{
    if (t->kind != TARGET_NAME)
        return false;
    if (!t->below)
        return str_eq(t->name, name);
    size_t n = t->name.n;
    return name.n > n + 1 && name.p[name.n - n - 1] == '.' &&
           str_eq(str_skip(name, name.n - n), t->name);
}

/* The first rule of one list that covers the name, or else the address; -1: none. */
static int first_in(const struct rules *rules, struct str name, const struct ip *ip)
{
    for (unsigned i = 0; i < rules->n; i++) {
        const struct target *t = &rules->at[i].target;
        if (ip ? t->kind != TARGET_NAME && cidr_has(&t->net, ip) : covers_name(t, name))
            return (int)i;
    }
    return -1;
}

static struct policy_answer reference(const struct rules *const lists[3], bool by_default,
                                      struct str name, const struct ip *ip, enum learned learned)
{
    for (unsigned layer = 0; layer < 3; layer++) {
        if (layer == LAYER_USER && ip && learned == LEARNED_ALWAYS)
            return (struct policy_answer){true, LAYER_LEARNED, 0};
        int i = first_in(lists[layer], name, ip);
        if (i >= 0)
            return (struct policy_answer){lists[layer]->at[i].allow, (enum layer)layer,
                                          (unsigned)i};
    }
    if (ip && learned == LEARNED_USER)
        return (struct policy_answer){true, LAYER_LEARNED, 0};
    return (struct policy_answer){by_default, LAYER_DEFAULT, 0};
}

static void check(const char *what, struct policy_answer got, struct policy_answer expected)
{
    char text[POLICY_RULE_BYTES + 1], rule[POLICY_RULE_BYTES];
    size_t n = policy_rule_text(expected, rule);
    snprintf(text, sizeof text, "%c%.*s", expected.allow ? '+' : '-', (int)n, rule);
    same_answer(what, got, text);
}

static void a_policy_decides_as_its_lists_do(void **state)
{
    (void)state;
    uint64_t seed = 0x1234567890abcdef;
    for (unsigned round = 0; round < 1500; round++) {
        const struct rules *lists[3];
        for (int layer = 0; layer < 3; layer++)
            lists[layer] = random_rules(&seed, layer);
        struct document user = {lists[LAYER_USER], random_bits(&seed) & 1};
        struct policy *p = policy_new(lists[LAYER_DENY], lists[LAYER_ALLOW], &user);
        for (unsigned i = 0; i < 30; i++) {
            char text[80];
            size_t n = random_name(&seed, text);
            struct str name = {text, n};
            check(text, policy_name(p, name),
                  reference(lists, user.allow, name, NULL, LEARNED_NOT));
            bool v4 = random_bits(&seed) & 1;
            snprintf(text, sizeof text, v4 ? "10.0.%u.%u" : "fd00::%x:%x",
                     (unsigned)(random_bits(&seed) & 1), (unsigned)(random_bits(&seed) & 31));
            struct ip ip = ip_of(text);
            for (int learned = LEARNED_NOT; learned <= LEARNED_ALWAYS; learned++)
                check(text, policy_addr(p, &ip, (enum learned)learned),
                      reference(lists, user.allow, name, &ip, (enum learned)learned));
        }
        policy_free(p);
        for (int layer = 0; layer < 3; layer++)
            rules_unref(lists[layer]);
    }
}

/* The kernel has no rule numbers, only its five look-ups in the joined maps. */
static bool kernel_allows(const struct policy *p, const struct ip *ip, enum learned learned)
{
    const struct range *r = ranges_find(policy_always_ranges(p), ip);
    if (r)
        return r->allow;
    if (learned == LEARNED_ALWAYS)
        return true;
    r = ranges_find(policy_user_ranges(p), ip);
    if (r)
        return r->allow;
    return learned == LEARNED_USER || policy_default(p);
}

static void the_kernels_look_ups_decide_as_the_policy_does(void **state)
{
    (void)state;
    uint64_t seed = 99;
    for (unsigned round = 0; round < 1000; round++) {
        struct rules *deny = random_rules(&seed, LAYER_DENY),
                     *allow = random_rules(&seed, LAYER_ALLOW);
        struct document user = {random_rules(&seed, LAYER_USER), random_bits(&seed) & 1};
        struct policy *p = policy_new(deny, allow, &user);
        for (unsigned i = 0; i < 64; i++) {
            char text[80];
            snprintf(text, sizeof text, i & 1 ? "10.0.%u.%u" : "fd00::%x:%x", i >> 1 & 1,
                     (unsigned)(random_bits(&seed) & 31));
            struct ip ip = ip_of(text);
            for (int learned = LEARNED_NOT; learned <= LEARNED_ALWAYS; learned++)
                assert_int_equal(kernel_allows(p, &ip, (enum learned)learned),
                                 policy_addr(p, &ip, (enum learned)learned).allow);
        }
        policy_free(p);
        rules_unref(deny);
        rules_unref(allow);
        document_done(&user);
    }
}

/* ---- answers and packets */

static void an_address_that_carries_another_is_kept_as_both(void **state)
{
    static const struct {
        const char *user, *ip;
        bool private_deny, kept;
    } rows[] = {
        {"", "64:ff9b::7f00:1", false, false},
        {"+127.0.0.0/8", "64:ff9b::7f00:1", false, true},
        {"+64:ff9b::/96", "64:ff9b::7f00:1", false, false},
        {"", "64:ff9b::a00:1", true, false},
        {"+10.0.0.0/8", "64:ff9b::a00:1", true, true},
        {"", "64:ff9b:1::7f00:1", false, true},
        {"", "::ffff:127.0.0.1", false, false},
        {"", "::", false, false},
        {"", "::2", false, true},
        {"", "168.63.129.16", false, false},
        {"", "fd20:ce::254", true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct policy *p = policy_of("", "", rows[i].user, true);
        struct ip ip = ip_of(rows[i].ip);
        if (answer_kept(p, &ip, rows[i].private_deny) != rows[i].kept)
            fail_msg("%s %s", rows[i].user, rows[i].ip);
        policy_free(p);
    }
}

static void packets_meet_their_rules_in_order(void **state)
{
    static const struct {
        const char *ip;
        uint16_t port;
        enum packet_proto proto;
        bool bound, reply, own;
        const char *rule;
        enum packet_verdict verdict;
    } rows[] = {
        {"10.0.0.2", 53, PACKET_TCP, false, false, false, "exempt", PACKET_ACCEPT},
        {"10.0.0.2", 54, PACKET_TCP, false, false, false, "default", PACKET_REFUSE},
        {"10.0.0.3", 53, PACKET_UDP, false, false, false, "user:0", PACKET_REFUSE},
        {"10.0.0.4", 53, PACKET_UDP, false, false, false, "dns53", PACKET_TO_DNS},
        {"10.0.0.4", 53, PACKET_UDP, false, true, false, "reply", PACKET_ACCEPT},
        {"10.0.0.4", 53, PACKET_UDP, false, false, true, "own", PACKET_ACCEPT},
        {"127.0.0.1", 53, PACKET_UDP, false, false, false, "dns53", PACKET_TO_DNS},
        {"127.0.0.1", 853, PACKET_TCP, false, false, false, "loopback", PACKET_ACCEPT},
        {"127.0.0.11", 5, PACKET_TCP, false, false, false, "dns53", PACKET_TO_DNS},
        {"127.0.0.11", 0, PACKET_ICMP, false, false, false, "loopback", PACKET_ACCEPT},
        {"192.0.2.9", 443, PACKET_TCP, true, false, false, "doh", PACKET_REFUSE},
        {"192.0.2.9", 443, PACKET_UDP, true, false, false, "quic", PACKET_REFUSE},
        {"192.0.2.9", 443, PACKET_UDP, false, false, false, "user:1", PACKET_ACCEPT},
        {"192.0.2.9", 853, PACKET_UDP, false, false, false, "port853", PACKET_REFUSE},
        {"192.0.2.9", 0, PACKET_ICMP, true, false, false, "user:1", PACKET_ACCEPT},
        {"2001:db8::1", 443, PACKET_TCP, false, false, false, "default", PACKET_REFUSE},
    };
    (void)state;
    struct policy *p = policy_of("", "", "-10.0.0.3 +192.0.2.0/24", false);
    struct arena a;
    struct str bad;
    struct packet_rules rules = {.nft = true, .block_doh = true};
    arena_init(&a, NULL, 0);
    assert_true(cidr_set_parse(STR("10.0.0.2,10.0.0.3"), &a, &rules.exempt, &bad));
    assert_true(cidr_set_parse(STR("192.0.2.9"), &a, &rules.doh_blocklist, &bad));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char rule[POLICY_RULE_BYTES];
        struct packet k = {.to = ip_of(rows[i].ip),
                           .port = rows[i].port,
                           .proto = rows[i].proto,
                           .bound = rows[i].bound,
                           .own = rows[i].own,
                           .reply = rows[i].reply};
        struct packet_answer answer = packet_judge(p, &rules, &k);
        size_t n = packet_rule_text(&answer, rule);
        if (!str_eq((struct str){rule, n}, str_of(rows[i].rule)) ||
            answer.verdict != rows[i].verdict)
            fail_msg("row %zu: %.*s", i, (int)n, rule);
    }
    arena_done(&a);
    policy_free(p);
}

/* ---- a full policy; times are printed, not judged */

static double ms_since(const struct timespec *from)
{
    struct timespec to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return (double)(to.tv_sec - from->tv_sec) * 1e3 + (double)(to.tv_nsec - from->tv_nsec) / 1e6;
}

static void a_full_policy_is_built_and_asked(void **state)
{
    (void)state;
    enum { N = 4096, ASKED = 200000 };
    struct timespec from;
    struct rules *rules = rules_new();
    struct arena a;
    unsigned allowed = 0;
    arena_init(&a, NULL, 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (unsigned i = 0; i < N; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, i & 1 ? "%shost-%u.example%u.com" : "%s10.%u.%u.1",
                         i % 4 == 3 ? "*." : "", i / 256, i % 256);
        assert_int_equal(rules_add(rules, true, (struct str){text, (size_t)n}), TARGET_OK);
    }
    double read_ms = ms_since(&from);
    struct document user = {rules, false};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    struct policy *p = policy_new(NULL, NULL, &user);
    double build_ms = ms_since(&from);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (unsigned i = 0; i < ASKED; i++)
        allowed += policy_name(p, STR("www.not-in-the-list.example.com")).allow;
    double name_ns = ms_since(&from) * 1e6 / ASKED;
    struct ip ip = ip_of("10.3.255.1");
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (unsigned i = 0; i < ASKED; i++)
        allowed += policy_addr(p, &ip, LEARNED_NOT).allow;
    double addr_ns = ms_since(&from) * 1e6 / ASKED;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    assert_int_equal(rules_warnings(rules, true, &a).n, 0);
    double warn_ms = ms_since(&from);
    assert_int_equal(allowed, 0);
    print_message("           4,096 rules: read %.2f ms, built %.2f ms, warnings %.2f ms; "
                  "a name %.0f ns, an address %.0f ns\n",
                  read_ms, build_ms, warn_ms, name_ns, addr_ns);
    policy_free(p);
    document_done(&user);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_is_deny),
        cmocka_unit_test(the_layers_decide_in_their_order),
        cmocka_unit_test(a_learned_address_is_judged_by_its_best_name),
        cmocka_unit_test(under_default_allow_every_allowed_name_may_be_learned),
        cmocka_unit_test(a_policy_outlives_what_it_was_made_from),
        cmocka_unit_test(the_kernel_gets_two_maps),
        cmocka_unit_test(a_policy_decides_as_its_lists_do),
        cmocka_unit_test(the_kernels_look_ups_decide_as_the_policy_does),
        cmocka_unit_test(an_address_that_carries_another_is_kept_as_both),
        cmocka_unit_test(packets_meet_their_rules_in_order),
        cmocka_unit_test(a_full_policy_is_built_and_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
