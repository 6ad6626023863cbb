/* cidr_test.c — networks, lists of them, and what is never dialled by default. */
#include "policies/cidr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct ip ip_of(const char *text)
{
    struct ip ip;
    if (!ip_parse(str_of(text), &ip))
        fail_msg("no address: %s", text);
    return ip;
}

static void a_network_covers_its_own_addresses_and_no_others(void **state)
{
    static const struct {
        const char *net, *ip;
        bool in;
    } rows[] = {
        {"10.0.0.0/8", "10.255.0.1", true},
        {"10.0.0.0/8", "11.0.0.0", false},
        {"10.1.2.3/8", "10.9.9.9", true},
        {"192.0.2.128/25", "192.0.2.127", false},
        {"192.0.2.128/25", "192.0.2.200", true},
        {"192.0.2.7", "192.0.2.7", true},
        {"192.0.2.7", "192.0.2.6", false},
        {"192.0.2.7/32", "::ffff:192.0.2.7", true},
        {"0.0.0.0/0", "203.0.113.9", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "10.0.0.1", false},
        {"::ffff:10.0.0.0/104", "10.7.7.7", true},
        {"::ffff:0:0/96", "10.7.7.7", true},
        {"::ffff:0:0/95", "10.7.7.7", false},
        {"fd00::/8", "fdff::1", true},
        {"fd00::/8", "fc00::1", false},
        {"2001:db8::/33", "2001:db8:7fff::", true},
        {"2001:db8::/33", "2001:db8:8000::", false},
        {"::1", "::1", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cidr net;
        struct ip ip = ip_of(rows[i].ip);
        assert_true(cidr_parse(str_of(rows[i].net), &net));
        struct cidr_set set = {&net, 1};
        if (cidr_set_has(&set, &ip) != rows[i].in)
            fail_msg("%s in %s", rows[i].ip, rows[i].net);
    }
}

static void what_is_no_network_is_refused(void **state)
{
    static const char *const rows[] = {"",
                                       "/8",
                                       "10.0.0.0/",
                                       "10.0.0.0/33",
                                       "10.0.0.0/-1",
                                       "10.0.0.0/08",
                                       "10.0.0.0/8/8",
                                       "::/129",
                                       "10.0.0/8",
                                       "10.0.0.0 /8",
                                       "10.0.0.0/ 8",
                                       "[::1]/128",
                                       "example.com",
                                       "10.0.0.0/255.0.0.0"};
    (void)state;
    struct cidr net;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (cidr_parse(str_of(rows[i]), &net))
            fail_msg("taken: %s", rows[i]);
}

static void a_list_is_a_set(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct cidr_set set;
    struct str bad = STR_NONE;
    struct ip in = ip_of("fd00::5"), out = ip_of("10.1.0.1");
    assert_true(cidr_set_parse(STR(" 10.0.0.0/16 ,fd00::/8,\t127.0.0.1 "), &a, &set, &bad));
    assert_int_equal(set.n, 3);
    assert_true(cidr_set_has(&set, &in));
    assert_false(cidr_set_has(&set, &out));
    assert_true(cidr_set_parse(STR("  "), &a, &set, &bad));
    assert_int_equal(set.n, 0);
    assert_false(cidr_set_has(&set, &in));
    arena_done(&a);
}

static void a_bad_entry_of_a_list_is_named(void **state)
{
    static const char *const rows[][2] = {{"10.0.0.0/8, x ,::1", "x"},
                                          {"10.0.0.0/8,", ""},
                                          {",::1", ""},
                                          {"::1,10.0.0.0/40", "10.0.0.0/40"}};
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cidr_set set;
        struct str bad = STR("?");
        assert_false(cidr_set_parse(str_of(rows[i][0]), &a, &set, &bad));
        assert_true(str_eq(bad, str_of(rows[i][1])));
    }
    arena_done(&a);
}

static void special_ranges_are_exactly_those_of_the_contract(void **state)
{
    static const struct {
        const char *ip;
        bool special;
    } rows[] = {
        {"0.0.0.0", true},
        {"0.255.255.255", true},
        {"1.0.0.0", false},
        {"126.255.255.255", false},
        {"127.0.0.0", true},
        {"127.255.255.255", true},
        {"128.0.0.0", false},
        {"169.253.255.255", false},
        {"169.254.0.0", true},
        {"169.254.255.255", true},
        {"169.255.0.0", false},
        {"223.255.255.255", false},
        {"224.0.0.0", true},
        {"239.255.255.255", true},
        {"240.0.0.0", true},
        {"255.255.255.255", true},
        {"100.100.100.200", true},
        {"100.100.100.201", false},
        {"168.63.129.16", true},
        {"168.63.129.17", false},
        {"192.0.0.192", true},
        {"192.0.0.191", false},
        {"10.0.0.1", false},
        {"100.64.0.1", false},
        {"::", true},
        {"::1", true},
        {"::2", false},
        {"fe80::", true},
        {"febf:ffff::", true},
        {"fec0::", false},
        {"ff00::", true},
        {"ff02::1", true},
        {"feff::", false},
        {"fd00:ec2::254", true},
        {"fd00:ec2::253", false},
        {"fd00::1", false},
        {"::ffff:127.0.0.1", true},
        {"::ffff:10.0.0.1", false},
        {"2001:db8::1", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip = ip_of(rows[i].ip);
        if (cidr_is_special(&ip) != rows[i].special)
            fail_msg("%s", rows[i].ip);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_covers_its_own_addresses_and_no_others),
        cmocka_unit_test(what_is_no_network_is_refused),
        cmocka_unit_test(a_list_is_a_set),
        cmocka_unit_test(a_bad_entry_of_a_list_is_named),
        cmocka_unit_test(special_ranges_are_exactly_those_of_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
