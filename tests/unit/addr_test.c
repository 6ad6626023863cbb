/* addr_test.c — socket addresses and their text. */
#include "net/addr.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void expect_text(const union addr *a, const char *want)
{
    char text[ADDR_TEXT_BYTES];
    size_t n = addr_text(&a->sa, text);
    if (!str_eq((struct str){text, n}, str_of(want)))
        fail_msg("%.*s, not %s", (int)n, text, want);
}

static void addresses_with_ports_are_read_and_written(void **state)
{
    static const char *const rows[][2] = {
        {"10.0.0.1:80", "10.0.0.1:80"}, {"0.0.0.0:0", "0.0.0.0:0"},
        {"[::1]:65535", "[::1]:65535"}, {"[2001:DB8::1]:1", "[2001:db8::1]:1"},
        {":8080", "[::]:8080"},         {"[::ffff:10.0.0.1]:80", "10.0.0.1:80"},
        {"1.2.3.4:0080", "1.2.3.4:80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        union addr a;
        if (!addr_parse(str_of(rows[i][0]), &a))
            fail_msg("refused: %s", rows[i][0]);
        expect_text(&a, rows[i][1]);
    }
}

static void what_is_no_address_with_a_port_is_refused(void **state)
{
    static const char *const rows[] = {
        "",        "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1",  "10.0.0.1:+1",
        "::1:80",  "[::1]",    "[::1]80",   "[::1:80",        "::1]:80",      "[10.0.0.1]:80",
        "host:80", "[]:80",    "[::1]:8 0", "10.0.0.1:80 ",   " 10.0.0.1:80", "[[::1]]:80",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        union addr a;
        if (addr_parse(str_of(rows[i]), &a))
            fail_msg("accepted: %s", rows[i]);
    }
}

static void host_and_port_are_split_without_brackets(void **state)
{
    static const struct {
        const char *in, *host;
        uint16_t port;
    } rows[] = {
        {"example.com:443", "example.com", 443},
        {"10.0.0.1:1", "10.0.0.1", 1},
        {"[::1]:65535", "::1", 65535},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str host;
        uint16_t port;
        assert_true(addr_split(str_of(rows[i].in), &host, &port));
        assert_true(str_eq(host, str_of(rows[i].host)));
        assert_int_equal(port, rows[i].port);
    }
    static const char *const bad[] = {"",           ":80",    "host",      "host:", "host:0",
                                      "host:65536", "::1:80", "[host]:80", "[::1]", "a]:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct str host = STR("untouched");
        uint16_t port = 7;
        if (addr_split(str_of(bad[i]), &host, &port))
            fail_msg("accepted: %s", bad[i]);
        assert_true(str_eq(host, STR("untouched")));
    }
}

static void an_address_and_back_is_the_same(void **state)
{
    static const struct {
        const char *text;
        int family;
        socklen_t len;
    } rows[] = {
        {"192.0.2.1", AF_INET, sizeof(struct sockaddr_in)},
        {"::ffff:192.0.2.1", AF_INET, sizeof(struct sockaddr_in)},
        {"2001:db8::1", AF_INET6, sizeof(struct sockaddr_in6)},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip, back;
        union addr a;
        assert_true(ip_parse(str_of(rows[i].text), &ip));
        addr_make(&a, &ip, 4711);
        assert_int_equal(a.sa.sa_family, rows[i].family);
        assert_int_equal(addr_len(&a.sa), rows[i].len);
        assert_int_equal(addr_port(&a.sa), 4711);
        addr_ip(&a.sa, &back);
        assert_true(ip_eq(&ip, &back));
    }
}

static void equality_looks_at_address_and_port_not_at_the_family(void **state)
{
    (void)state;
    union addr a, b, c, mapped;
    struct ip ip;
    assert_true(addr_parse(STR("10.0.0.1:80"), &a));
    assert_true(addr_parse(STR("10.0.0.1:81"), &b));
    assert_true(addr_parse(STR("10.0.0.2:80"), &c));
    memset(&mapped, 0, sizeof mapped); /* as a dual-stack socket reports an IPv4 peer */
    mapped.v6.sin6_family = AF_INET6;
    mapped.v6.sin6_port = htons(80);
    addr_ip(&a.sa, &ip);
    memcpy(&mapped.v6.sin6_addr, ip.b, 16);
    assert_true(addr_eq(&a.sa, &a.sa));
    assert_false(addr_eq(&a.sa, &b.sa));
    assert_false(addr_eq(&a.sa, &c.sa));
    assert_true(addr_eq(&a.sa, &mapped.sa));
    expect_text(&mapped, "10.0.0.1:80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_with_ports_are_read_and_written),
        cmocka_unit_test(what_is_no_address_with_a_port_is_refused),
        cmocka_unit_test(host_and_port_are_split_without_brackets),
        cmocka_unit_test(an_address_and_back_is_the_same),
        cmocka_unit_test(equality_looks_at_address_and_port_not_at_the_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
