/* ranges_test.c — ordered address rules as disjoint ranges, against reading the list from its top;
 * differences; and how long a full list takes. */
#include "policies/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

static struct ip ip_of(const char *text)
{
    struct ip ip;
    if (!ip_parse(str_of(text), &ip))
        fail_msg("no address: %s", text);
    return ip;
}

/* "+10.0.0.0/8 -10.1.0.0/16": allow, deny. */
static size_t rules_of(const char *text, struct range_rule *ret)
{
    struct str rest = str_of(text), word;
    size_t n = 0;
    while (rest.n && str_next(&rest, ' ', &word)) {
        ret[n] = (struct range_rule){.number = (uint32_t)(100 + n), .allow = word.p[0] == '+'};
        if (!cidr_parse(str_skip(word, 1), &ret[n++].net))
            fail_msg("no network: %.*s", STR_ARG(word));
    }
    return n;
}

static struct ranges compile(const char *text, struct arena *a)
{
    struct range_rule rules[64];
    return ranges_compile(rules, rules_of(text, rules), a);
}

/* All four lists as "+lo-hi …", lists apart by '|'. */
static void describe(const struct range_list *lists, char *out, size_t room)
{
    size_t n = 0;
    for (int kind = 0; kind < RANGE_KINDS; kind++) {
        n += (size_t)snprintf(out + n, room - n, "%s", kind ? "|" : "");
        for (size_t i = 0; i < lists[kind].n; i++) {
            const struct range *r = &lists[kind].at[i];
            char lo[IP_TEXT_BYTES], hi[IP_TEXT_BYTES];
            int nl = (int)ip_text(&r->lo, lo), nh = (int)ip_text(&r->hi, hi);
            n += (size_t)snprintf(out + n, room - n, "%s%c%.*s", i ? " " : "", r->allow ? '+' : '-',
                                  nl, lo);
            if (!ip_eq(&r->lo, &r->hi))
                n += (size_t)snprintf(out + n, room - n, "~%.*s", nh, hi);
        }
    }
}

static void rules_become_as_few_disjoint_ranges_as_there_can_be(void **state)
{
    static const struct {
        const char *rules, *joined;
    } rows[] = {
        {"", "|||"},
        {"+10.0.0.0/8", "|+10.0.0.0~10.255.255.255||"},
        {"+10.0.0.5", "+10.0.0.5|||"},
        {"+10.0.0.5/32", "+10.0.0.5|||"},
        {"-10.0.0.0/8 +10.0.0.5", "|-10.0.0.0~10.255.255.255||"},
        {"+10.0.0.5 -10.0.0.0/8", "+10.0.0.5|-10.0.0.0~10.255.255.255||"},
        {"+9.9.9.9 -9.9.9.9", "+9.9.9.9|||"},
        {"-9.9.9.9 +9.9.9.9", "-9.9.9.9|||"},
        {"+10.0.0.0/24 -10.0.0.0/8 +10.0.0.0/16",
         "|+10.0.0.0~10.0.0.255 -10.0.1.0~10.255.255.255||"},
        {"-10.1.0.0/16 +10.0.0.0/8",
         "|+10.0.0.0~10.0.255.255 -10.1.0.0~10.1.255.255 +10.2.0.0~10.255.255.255||"},
        {"+10.0.0.0/9 +10.128.0.0/9", "|+10.0.0.0~10.255.255.255||"},
        {"+10.1.0.0/16 +10.0.0.0/8", "|+10.0.0.0~10.255.255.255||"},
        {"-10.255.0.0/16 +10.0.0.0/8", "|+10.0.0.0~10.254.255.255 -10.255.0.0~10.255.255.255||"},
        {"-0.0.0.0/1 +0.0.0.0/0", "|-0.0.0.0~127.255.255.255 +128.0.0.0~255.255.255.255||"},
        {"-255.255.255.254/31 +0.0.0.0/0",
         "|+0.0.0.0~255.255.255.253 -255.255.255.254~255.255.255.255||"},
        {"-ffff:ffff::/32 +::/0", "|||+::~ffff:fffe:ffff:ffff:ffff:ffff:ffff:ffff "
                                  "-ffff:ffff::~ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
        {"+::/1 -8000::/1 +::/0", "|||+::~7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
                                  "-8000::~ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
        {"+2001:db8::1 -2001:db8::/32 +192.0.2.1", "+192.0.2.1||+2001:db8::1|-2001:db8::~2001:db8:"
                                                   "ffff:ffff:ffff:ffff:ffff:ffff"},
        {"+::ffff:10.0.0.1", "+10.0.0.1|||"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a;
        char text[1000];
        arena_init(&a, NULL, 0);
        struct ranges r = compile(rows[i].rules, &a), j = ranges_joined(&r, &a);
        describe(j.list, text, sizeof text);
        if (strcmp(text, rows[i].joined) != 0)
            fail_msg("%s: %s", rows[i].rules, text);
        arena_done(&a);
    }
}

static void the_deciding_rule_is_named(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct ranges r = compile("+10.1.0.0/16 +10.0.0.0/8 -10.1.2.3 -192.0.2.1", &a);
    static const struct {
        const char *ip;
        uint32_t number; /* 0: none */
    } rows[] = {{"10.1.2.3", 100},  {"10.2.0.0", 101}, {"10.0.0.0", 101},
                {"192.0.2.1", 103}, {"192.0.2.2", 0},  {"::1", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip = ip_of(rows[i].ip);
        const struct range *found = ranges_find(&r, &ip);
        assert_int_equal(found ? found->number : 0, rows[i].number);
    }
    arena_done(&a);
}

/* ---- against the list itself */

static uint64_t random_bits(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Close together, so that they nest and touch; at both ends of the space now and then. */
static struct ip random_ip(uint64_t *seed)
{
    struct ip ip = {{0}};
    uint64_t bits = random_bits(seed);
    if (bits & 1)
        ip = (struct ip){{[10] = 0xff, [11] = 0xff, 10, 0, 0}};
    else
        memcpy(ip.b, "\x20\x01\x0d\xb8", 4);
    if (bits & 2)
        ip.b[14] = (uint8_t)(bits >> 8 & 3);
    ip.b[15] = (uint8_t)(bits >> 16);
    if ((bits >> 32 & 15) == 0)
        memset(ip.b + (bits & 1 ? 12 : 0), bits >> 36 & 1 ? 0xff : 0, bits & 1 ? 4 : 16);
    return ip;
}

static struct range_rule random_rule(uint64_t *seed, size_t number)
{
    static const uint8_t prefixes[] = {128, 128, 127, 126, 125, 124, 120,
                                       118, 112, 97,  96,  64,  1,   0};
    struct range_rule rule = {.number = (uint32_t)number, .allow = random_bits(seed) & 1};
    struct ip ip = random_ip(seed);
    char text[CIDR_TEXT_BYTES];
    unsigned prefix = prefixes[random_bits(seed) % sizeof prefixes];
    if (ip_is_v4(&ip) && prefix < 96)
        prefix = 96;
    rule.net = (struct cidr){ip, (uint8_t)prefix};
    /* through its text, which cuts the host bits */
    size_t n = cidr_text(&rule.net, text);
    if (!cidr_parse((struct str){text, n}, &rule.net))
        fail_msg("%.*s", (int)n, text);
    return rule;
}

static const struct range_rule *reference(const struct range_rule *rules, size_t n,
                                          const struct ip *ip)
{
    for (size_t i = 0; i < n; i++)
        if (cidr_has(&rules[i].net, ip))
            return &rules[i];
    return NULL;
}

static void check_address(const struct range_rule *rules, size_t n, const struct ranges *r,
                          const struct ranges *joined, const struct ip *ip)
{
    const struct range_rule *rule = reference(rules, n, ip);
    const struct range *found = ranges_find(r, ip), *short_found = ranges_find(joined, ip);
    if (!rule != !found || !rule != !short_found)
        fail_msg("one says nothing");
    if (rule && (found->number != rule->number || short_found->allow != rule->allow))
        fail_msg("rule %u, found %u", rule->number, found->number);
}

/* Ascending, apart, and in joined lists never two of one verdict that touch. */
static void check_lists(const struct ranges *r, bool joined)
{
    for (int kind = 0; kind < RANGE_KINDS; kind++) {
        const struct range_list *list = &r->list[kind];
        for (size_t i = 0; i < list->n; i++) {
            const struct range *x = &list->at[i];
            bool single = kind == RANGES_V4_SINGLE || kind == RANGES_V6_SINGLE;
            assert_true(memcmp(x->lo.b, x->hi.b, 16) <= 0);
            assert_true(!single || ip_eq(&x->lo, &x->hi));
            if (i == 0)
                continue;
            const struct range *y = &list->at[i - 1];
            assert_true(memcmp(y->hi.b, x->lo.b, 16) < 0);
            struct ip next = y->hi;
            for (unsigned b = 16; b-- > 0 && ++next.b[b] == 0;)
                ;
            assert_true(single || !joined || y->allow != x->allow || !ip_eq(&next, &x->lo));
        }
    }
}

static void compiled_ranges_decide_as_the_list_does(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15;
    for (unsigned round = 0; round < 2000; round++) {
        struct range_rule rules[40];
        struct arena a;
        size_t n = random_bits(&seed) % 41;
        arena_init(&a, NULL, 0);
        for (size_t i = 0; i < n; i++)
            rules[i] = random_rule(&seed, i);
        struct ranges r = ranges_compile(rules, n, &a), joined = ranges_joined(&r, &a);
        check_lists(&r, false);
        check_lists(&joined, true);
        for (unsigned i = 0; i < 60; i++) {
            struct ip ip = random_ip(&seed);
            check_address(rules, n, &r, &joined, &ip);
        }
        for (size_t i = 0; i < n; i++) {
            struct ip first = rules[i].net.ip, last = cidr_last(&rules[i].net);
            check_address(rules, n, &r, &joined, &first);
            /* a network wider than the mapped range does not mean IPv4 */
            check_address(rules, n, &r, &joined, &last);
        }
        arena_done(&a);
    }
}

/* ---- differences */

static bool is_in(const struct range_list *list, const struct range *r)
{
    for (size_t i = 0; i < list->n; i++)
        if (ip_eq(&list->at[i].lo, &r->lo) && ip_eq(&list->at[i].hi, &r->hi) &&
            list->at[i].allow == r->allow)
            return true;
    return false;
}

static void a_difference_is_what_one_has_and_the_other_has_not(void **state)
{
    (void)state;
    uint64_t seed = 42;
    for (unsigned round = 0; round < 500; round++) {
        struct range_rule rules[32];
        struct arena a;
        size_t n = 1 + random_bits(&seed) % 30, cut = random_bits(&seed) % n;
        arena_init(&a, NULL, 0);
        for (size_t i = 0; i < n; i++)
            rules[i] = random_rule(&seed, i);
        struct ranges x = ranges_compile(rules, cut, &a), y = ranges_compile(rules, n, &a);
        struct ranges old = ranges_joined(&x, &a), fresh = ranges_joined(&y, &a);
        struct ranges_change c = ranges_diff(&old, &fresh, &a);
        size_t count = 0;
        for (int kind = 0; kind < RANGE_KINDS; kind++) {
            for (size_t i = 0; i < c.remove[kind].n; i++, count++) {
                assert_true(is_in(&old.list[kind], &c.remove[kind].at[i]));
                assert_false(is_in(&fresh.list[kind], &c.remove[kind].at[i]));
            }
            for (size_t i = 0; i < c.add[kind].n; i++, count++) {
                assert_false(is_in(&old.list[kind], &c.add[kind].at[i]));
                assert_true(is_in(&fresh.list[kind], &c.add[kind].at[i]));
            }
            assert_int_equal(old.list[kind].n - c.remove[kind].n + c.add[kind].n,
                             fresh.list[kind].n);
        }
        assert_int_equal(count, c.n);
        arena_done(&a);
    }
}

static void a_small_change_is_a_small_difference(void **state)
{
    static const struct {
        const char *before, *after, *remove, *add;
    } rows[] = {
        {"+10.0.0.1 +10.0.0.2", "+10.0.0.2 +10.0.0.1", "|||", "|||"},
        {"+10.0.0.1", "+10.0.0.1 +10.0.0.2", "|||", "+10.0.0.2|||"},
        {"+10.0.0.1", "-10.0.0.1", "+10.0.0.1|||", "-10.0.0.1|||"},
        {"-10.0.0.0/8", "+10.0.0.5 -10.0.0.0/8", "|||", "+10.0.0.5|||"},
        {"+10.0.0.0/8 +10.1.0.0/16", "+10.1.0.0/16 +10.0.0.0/8", "|||", "|||"},
        {"+10.0.0.0/8", "-10.0.0.0/9 +10.0.0.0/8", "|+10.0.0.0~10.255.255.255||",
         "|-10.0.0.0~10.127.255.255 +10.128.0.0~10.255.255.255||"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a;
        char text[400];
        arena_init(&a, NULL, 0);
        struct ranges x = compile(rows[i].before, &a), y = compile(rows[i].after, &a);
        struct ranges old = ranges_joined(&x, &a), fresh = ranges_joined(&y, &a);
        struct ranges_change c = ranges_diff(&old, &fresh, &a);
        describe(c.remove, text, sizeof text);
        assert_string_equal(text, rows[i].remove);
        describe(c.add, text, sizeof text);
        assert_string_equal(text, rows[i].add);
        arena_done(&a);
    }
}

static void the_first_compilation_is_all_to_add(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct ranges r = compile("+10.0.0.1 -10.0.0.0/8 +2001:db8::/32", &a);
    struct ranges_change c = ranges_diff(NULL, &r, &a);
    assert_int_equal(c.n, 3);
    assert_int_equal(c.add[RANGES_V4_SINGLE].n + c.add[RANGES_V4].n + c.add[RANGES_V6].n, 3);
    arena_done(&a);
}

/* ---- how long it takes; printed, not judged: machines differ */

static double compile_ms(const struct range_rule *rules, size_t n)
{
    struct timespec from, to;
    struct arena a;
    arena_init(&a, NULL, 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    struct ranges r = ranges_compile(rules, n, &a);
    struct ranges j = ranges_joined(&r, &a);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    assert_true(j.list[RANGES_V4_SINGLE].n + j.list[RANGES_V4].n > 0);
    arena_done(&a);
    return (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

static void a_full_list_compiles(void **state)
{
    enum { N = 4096 };
    static const struct {
        const char *what;
        unsigned least, span; /* prefixes */
    } rows[] = {{"single addresses", 128, 1}, {"ranges", 104, 24}, {"both", 104, 25}};
    (void)state;
    uint64_t seed = 7;
    struct range_rule *rules = malloc(N * sizeof *rules);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (size_t i = 0; i < N; i++) {
            uint64_t bits = random_bits(&seed);
            char text[CIDR_TEXT_BYTES];
            rules[i] = (struct range_rule){.number = (uint32_t)i, .allow = bits & 1};
            rules[i].net = (struct cidr){{{[10] = 0xff,
                                           [11] = 0xff,
                                           (uint8_t)(bits >> 8),
                                           (uint8_t)(bits >> 16),
                                           (uint8_t)(bits >> 24),
                                           (uint8_t)(bits >> 32)}},
                                         (uint8_t)(rows[k].least + (bits >> 40) % rows[k].span)};
            size_t n = cidr_text(&rules[i].net, text);
            assert_true(cidr_parse((struct str){text, n}, &rules[i].net));
        }
        print_message("           4,096 %s: %.2f ms\n", rows[k].what, compile_ms(rules, N));
    }
    free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_become_as_few_disjoint_ranges_as_there_can_be),
        cmocka_unit_test(the_deciding_rule_is_named),
        cmocka_unit_test(compiled_ranges_decide_as_the_list_does),
        cmocka_unit_test(a_difference_is_what_one_has_and_the_other_has_not),
        cmocka_unit_test(a_small_change_is_a_small_difference),
        cmocka_unit_test(the_first_compilation_is_all_to_add),
        cmocka_unit_test(a_full_list_compiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
