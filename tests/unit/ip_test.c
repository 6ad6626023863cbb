/* ip_test.c — addresses as text and back. */
#include "base/ip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void expect_text(const char *in, const char *out)
{
    struct ip ip;
    char text[IP_TEXT_BYTES];
    if (!ip_parse(str_of(in), &ip))
        fail_msg("refused: %s", in);
    size_t n = ip_text(&ip, text);
    if (!str_eq((struct str){text, n}, str_of(out)))
        fail_msg("%s gave %.*s, not %s", in, (int)n, text, out);
}

static void addresses_are_read_and_written_in_their_canonical_form(void **state)
{
    static const char *const rows[][2] = {
        {"10.0.0.1", "10.0.0.1"},
        {"0.0.0.0", "0.0.0.0"},
        {"255.255.255.255", "255.255.255.255"},
        {"192.0.2.100", "192.0.2.100"},
        {"::", "::"},
        {"::1", "::1"},
        {"1::", "1::"},
        {"2001:DB8::7", "2001:db8::7"},
        {"2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"},
        {"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
        {"2001:db8::1:0:0:1", "2001:db8::1:0:0:1"},
        {"2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"},
        {"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
        {"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"},
        {"0:0:1:0:0:1:0:0", "::1:0:0:1:0:0"},
        {"fe80::a:b", "fe80::a:b"},
        {"fd00:ec2::254", "fd00:ec2::254"},
        {"::ffff:10.0.0.1", "10.0.0.1"},
        {"::FFFF:a00:1", "10.0.0.1"},
        {"0:0:0:0:0:ffff:1.2.3.4", "1.2.3.4"},
        {"::1.2.3.4", "::102:304"},
        {"64:ff9b::192.0.2.33", "64:ff9b::c000:221"},
        {"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"},
        {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_text(rows[i][0], rows[i][1]);
}

static void what_is_no_address_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "1",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.4.",
        "256.1.1.1",
        "01.2.3.4",
        "1.2.3.04",
        "1.2.3.00",
        " 1.2.3.4",
        "1.2.3.4 ",
        "1.2.3.4:80",
        "a.b.c.d",
        "1..3.4",
        "+1.2.3.4",
        "1.2.3.-4",
        "0x1.2.3.4",
        "1.2.3.4/8",
        "[::1]",
        "::1%lo",
        ":",
        ":::",
        ":1",
        "1:",
        "::1:",
        ":1::",
        "1::2::3",
        "1:2:3:4:5:6:7",
        "12345::",
        "g::",
        "::1 ",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7:8::",
        "::1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7:1.2.3.4",
        "::1.2.3",
        "::1.2.3.256",
        "::1.2.3.4:5",
        "1.2.3.4::",
        "::01.2.3.4",
        "1:::2",
        "localhost",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip;
        if (ip_parse(str_of(rows[i]), &ip))
            fail_msg("taken: %s", rows[i]);
    }
}

static void a_refused_text_leaves_the_result_alone(void **state)
{
    (void)state;
    struct ip ip, same;
    assert_true(ip_parse(STR("10.1.2.3"), &ip));
    same = ip;
    assert_false(ip_parse(STR("10.1.2"), &ip));
    assert_false(ip_parse(STR("::1::"), &ip));
    assert_true(ip_eq(&ip, &same));
}

static void mapped_addresses_are_ipv4(void **state)
{
    (void)state;
    struct ip a, b, c;
    assert_true(ip_parse(STR("::ffff:127.0.0.1"), &a) && ip_parse(STR("127.0.0.1"), &b) &&
                ip_parse(STR("::127.0.0.1"), &c));
    assert_true(ip_eq(&a, &b) && ip_is_v4(&a));
    assert_false(ip_eq(&a, &c) || ip_is_v4(&c));
}

static void the_longest_text_fits(void **state)
{
    (void)state;
    struct ip ip;
    char text[IP_TEXT_BYTES];
    memset(ip.b, 0xff, sizeof ip.b);
    assert_int_equal(ip_text(&ip, text), 39);
}

static void addresses_of_the_machine_itself_are_known(void **state)
{
    static const struct {
        const char *text;
        bool loopback, unspecified;
    } rows[] = {
        {"127.0.0.1", true, false},    {"127.255.255.255", true, false},
        {"::1", true, false},          {"0.0.0.0", false, true},
        {"::", false, true},           {"0.0.0.1", false, false},
        {"128.0.0.1", false, false},   {"126.0.0.1", false, false},
        {"::2", false, false},         {"7f00::1", false, false},
        {"::127.0.0.1", false, false}, {"fe80::1", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip;
        assert_true(ip_parse(str_of(rows[i].text), &ip));
        if (ip_is_loopback(&ip) != rows[i].loopback ||
            ip_is_unspecified(&ip) != rows[i].unspecified)
            fail_msg("%s", rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_and_written_in_their_canonical_form),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(a_refused_text_leaves_the_result_alone),
        cmocka_unit_test(mapped_addresses_are_ipv4),
        cmocka_unit_test(the_longest_text_fits),
        cmocka_unit_test(addresses_of_the_machine_itself_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
