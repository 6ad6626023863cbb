/* target_test.c — what may be dialled, and which ports are closed. */
#include "ingress/target.h"

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

static bool allowed(const struct target_rules *rules, const char *address, uint16_t port)
{
    struct ip ip = ip_of(address);
    return target_allowed(rules, &ip, port);
}

static void special_addresses_need_a_setting(void **state)
{
    (void)state;
    struct cidr net;
    assert_true(cidr_parse(STR("169.254.0.0/16"), &net));
    struct target_rules rules = {0};
    assert_true(allowed(&rules, "10.0.0.5", 80));
    assert_false(allowed(&rules, "169.254.0.5", 80));
    assert_false(allowed(&rules, "127.0.0.1", 80));
    rules.allow = (struct cidr_set){&net, 1};
    assert_true(allowed(&rules, "169.254.0.5", 80));
    assert_false(allowed(&rules, "127.0.0.1", 80));
}

static void the_static_resolver_may_dial_loopback_only(void **state)
{
    (void)state;
    struct target_rules rules = {.loopback = true};
    assert_true(allowed(&rules, "127.0.0.1", 80) && allowed(&rules, "127.9.9.9", 80) &&
                allowed(&rules, "::1", 80));
    assert_false(allowed(&rules, "0.0.0.0", 80) || allowed(&rules, "::", 80) ||
                 allowed(&rules, "fe80::1", 80));
}

static void no_setting_opens_our_own_listeners(void **state)
{
    (void)state;
    struct cidr nets[2];
    assert_true(cidr_parse(STR("0.0.0.0/0"), &nets[0]) && cidr_parse(STR("::/0"), &nets[1]));
    struct own_listener own[] = {{.ip = ip_of("10.0.0.9"), .port = 28888},
                                 {.ip = ip_of("127.0.0.1"), .port = 28889}};
    struct target_rules rules = {.allow = {nets, 2}, .loopback = true, .own = own, .nown = 2};
    assert_false(allowed(&rules, "10.0.0.9", 28888));
    assert_false(allowed(&rules, "::ffff:10.0.0.9", 28888));
    assert_true(allowed(&rules, "10.0.0.9", 28889));
    assert_false(allowed(&rules, "127.0.0.1", 28889));
    assert_false(allowed(&rules, "0.0.0.0", 28889));
    assert_false(allowed(&rules, "::", 28889));
    assert_true(allowed(&rules, "127.0.0.2", 28889));
    assert_true(allowed(&rules, "127.0.0.1", 28888));
}

static void a_listener_on_all_addresses_is_the_whole_machine(void **state)
{
    (void)state;
    struct own_listener own = {.any = true, .port = 28888};
    struct ip local[] = {ip_of("10.0.0.9"), ip_of("fd00::9")};
    struct cidr net;
    assert_true(cidr_parse(STR("0.0.0.0/0"), &net));
    struct target_rules rules = {
        .allow = {&net, 1}, .loopback = true, .own = &own, .nown = 1, .local = local, .nlocal = 2};
    static const char *const ours[] = {"10.0.0.9", "fd00::9", "127.0.0.1", "127.3.2.1",
                                       "::1",      "0.0.0.0", "::"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (allowed(&rules, ours[i], 28888))
            fail_msg("%s", ours[i]);
    assert_true(allowed(&rules, "10.0.0.10", 28888));
    assert_true(allowed(&rules, "10.0.0.9", 28880));
    assert_true(allowed(&rules, "127.0.0.1", 80));
}

static void port_lists_are_sorted_and_merged(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct port_set set;
    struct str bad;
    assert_true(port_set_parse(STR(" 8000-8010,22 ,8005 - 8020,8021,1, 65535"), &a, &set, &bad));
    assert_int_equal(set.n, 4);
    static const uint16_t in[] = {1, 22, 8000, 8010, 8015, 8020, 8021, 65535},
                          out[] = {2, 21, 23, 7999, 8022, 65534};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        assert_true(port_set_has(&set, in[i]));
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        assert_false(port_set_has(&set, out[i]));
    assert_true(port_set_parse(STR(""), &a, &set, &bad));
    assert_false(port_set_has(&set, 22));
    assert_true(port_set_parse(STR("1-65535"), &a, &set, &bad));
    assert_true(port_set_has(&set, 1) && port_set_has(&set, 65535));
    arena_done(&a);
}

static void a_bad_port_list_names_its_entry(void **state)
{
    static const char *const rows[][2] = {
        {"22,x", "x"}, {"0", "0"},   {"65536", "65536"}, {"22,", ""},        {"10-5", "10-5"},
        {"1-", "1-"},  {"-5", "-5"}, {"022", "022"},     {"1-2-3", "1-2-3"}, {"22 23", "22 23"},
    };
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct port_set set;
        struct str bad = STR_NONE;
        if (port_set_parse(str_of(rows[i][0]), &a, &set, &bad) || !str_eq(bad, str_of(rows[i][1])))
            fail_msg("%s", rows[i][0]);
    }
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_addresses_need_a_setting),
        cmocka_unit_test(the_static_resolver_may_dial_loopback_only),
        cmocka_unit_test(no_setting_opens_our_own_listeners),
        cmocka_unit_test(a_listener_on_all_addresses_is_the_whole_machine),
        cmocka_unit_test(port_lists_are_sorted_and_merged),
        cmocka_unit_test(a_bad_port_list_names_its_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
