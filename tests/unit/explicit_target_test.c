/* explicit_target_test.c — what may be asked of the explicit proxy, and what is no target. */
#include "egress/relay/explicit_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define LABEL "a23456789012345678901234567890123456789012345678901234567890123"

static void describe(const struct explicit_target *t, char *out, size_t room)
{
    char ip[IP_TEXT_BYTES];
    if (t->host.kind == HOST_ADDRESS)
        snprintf(out, room, "<%.*s> %u", (int)ip_text(&t->host.ip, ip), ip, t->port);
    else
        snprintf(out, room, "%.*s %u", STR_ARG(host_name(&t->host)), t->port);
}

static void a_target_is_one_host_and_one_port(void **state)
{
    static const struct {
        const char *text, *expected;
        uint16_t default_port;
    } rows[] = {
        {"ok.test:443", "ok.test 443", 0},
        {"OK.Test.:443", "ok.test 443", 0},
        {"ok.test", "ok.test 80", 80},
        {"ok.test:8080", "ok.test 8080", 80},
        {"localhost:1", "localhost 1", 0},
        {"ip6-localhost:80", "ip6-localhost 80", 0},
        {"_x.a_b.test:65535", "_x.a_b.test 65535", 0},
        {"xn--bcher-kva.test:443", "xn--bcher-kva.test 443", 0},
        {"0.test:443", "0.test 443", 0},
        {"a.1x:443", "a.1x 443", 0},
        {"10.0.0.1.nip.test:443", "10.0.0.1.nip.test 443", 0},
        {LABEL ".test:443", LABEL ".test 443", 0},
        {"169.254.169.254:80", "<169.254.169.254> 80", 0},
        {"169.254.169.254", "<169.254.169.254> 80", 80},
        {"[::1]:443", "<::1> 443", 0},
        {"[0:0:0:0:0:0:0:1]:443", "<::1> 443", 0},
        {"[::1]", "<::1> 80", 80},
        {"[::ffff:a9fe:a9fe]:80", "<169.254.169.254> 80", 0},
        {"[fe80::1]:80", "<fe80::1> 80", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct explicit_target t;
        const char *fault;
        char got[NAME_BYTES_MAX + 8];
        if (explicit_target_read(str_of(rows[i].text), rows[i].default_port, &t, &fault))
            fail_msg("%s: %s", rows[i].text, fault);
        describe(&t, got, sizeof got);
        assert_string_equal(got, rows[i].expected);
    }
}

static void what_could_be_another_spelling_is_no_target(void **state)
{
    static const struct {
        const char *text, *fault;
    } rows[] = {
        {"0251.0376.0251.0376:80", "an address is four decimal numbers, or in brackets"},
        {"127.000.000.001:80", "an address is four decimal numbers, or in brackets"},
        {"127.1:80", "an address is four decimal numbers, or in brackets"},
        {"1.2.3.4.5:80", "an address is four decimal numbers, or in brackets"},
        {"1.2.3.256:80", "an address is four decimal numbers, or in brackets"},
        {"2852039166:80", "an address is four decimal numbers, or in brackets"},
        {"0xA9FEA9FE:80", "an address is four decimal numbers, or in brackets"},
        {"0XA9FEA9FE:80", "an address is four decimal numbers, or in brackets"},
        {"169.254.0xa9fe:80", "an address is four decimal numbers, or in brackets"},
        {"ok.0x:80", "an address is four decimal numbers, or in brackets"},
        {"ok.1:80", "an address is four decimal numbers, or in brackets"},
        {"127.1.:80", "an address is four decimal numbers, or in brackets"},
        {"127.0.0.1.:80", "an address has no final dot"},
        {"[fe80::1%25eth0]:80", "a target has no zone and nothing encoded"},
        {"[fe80::1%eth0]:80", "a target has no zone and nothing encoded"},
        {"ok%2etest:80", "a target has no zone and nothing encoded"},
        {"me@ok.test:80", "a target has no user part"},
        {"me:you@ok.test:80", "a target has no user part"},
        {"ok.test", "the port is missing"},
        {"[::1]", "the port is missing"},
        {"ok.test:", "host or port are malformed"},
        {"ok.test:0", "host or port are malformed"},
        {"ok.test:0443", "host or port are malformed"},
        {"ok.test:65536", "host or port are malformed"},
        {"ok.test:443443", "host or port are malformed"},
        {"ok.test:+443", "host or port are malformed"},
        {"ok.test:443x", "host or port are malformed"},
        {"ok.test:80:80", "host or port are malformed"},
        {"::1:443", "host or port are malformed"},
        {"[::1", "host or port are malformed"},
        {"[::1]443", "host or port are malformed"},
        {"[ok.test]:443", "host or port are malformed"},
        {"[127.0.0.1]:443", "host or port are malformed"},
        {"ok[.test:443", "host or port are malformed"},
        {"", "host or port are malformed"},
        {":443", "host or port are malformed"},
        {".:443", "host or port are malformed"},
        {"ok..test:443", "host or port are malformed"},
        {"ok.test..:443", "host or port are malformed"},
        {".ok.test:443", "host or port are malformed"},
        {"ok.test/x:443", "host or port are malformed"},
        {"ok.test\\x:443", "host or port are malformed"},
        {"ok.test,no.test:443", "host or port are malformed"},
        {"ok test:443", "host or port are malformed"},
        {"b\xc3\xbc.test:443", "host or port are malformed"},
        {"*.test:443", "the host is no name"},
        {"a!b.test:443", "the host is no name"},
        {LABEL "4.test:443", "the host is no name"},
        {LABEL "." LABEL "." LABEL "." LABEL ".test:443", "host or port are malformed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct explicit_target t;
        const char *fault = "none";
        enum why why = explicit_target_read(str_of(rows[i].text), 0, &t, &fault);
        if (why != WHY_CLIENT_PROTOCOL || strcmp(fault, rows[i].fault) != 0)
            fail_msg("%s: %s, expected %s", rows[i].text, fault, rows[i].fault);
    }
}

static void a_zero_byte_is_never_part_of_a_host(void **state)
{
    struct explicit_target t;
    struct host h;
    const char *fault;
    (void)state;
    assert_int_equal(explicit_target_read(STR("ok.test\0.no.test:443"), 0, &t, &fault),
                     WHY_CLIENT_PROTOCOL);
    assert_false(host_read(STR("ok.test\0"), &h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_one_host_and_one_port),
        cmocka_unit_test(what_could_be_another_spelling_is_no_target),
        cmocka_unit_test(a_zero_byte_is_never_part_of_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
