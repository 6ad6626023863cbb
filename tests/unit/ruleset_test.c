/* ruleset_test.c — the rules' text for given settings, whole, against the texts in unit/ruleset/.
 * RULESET_WRITE=1 writes those anew: to be read, line by line, before they are kept. */
#include "egress/kernel/ruleset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { GOLDEN_MAX = 1 << 16 };

static struct ip ip_of(const char *text)
{
    struct ip ip;
    if (!ip_parse(str_of(text), &ip))
        fail_msg("no address: %s", text);
    return ip;
}

static const struct str devices[] = {{"eth0", 4}, {"eth1", 4}};

/* What a sidecar without any wish has. */
static struct ruleset plain(enum ruleset_shape shape)
{
    return (struct ruleset){.shape = shape,
                            .dns_port = 15353,
                            .own_mark = 0x11111111,
                            .pass_mark = 0x22222222,
                            .group_mark = 0x33333333,
                            .devices = devices,
                            .ndevices = 1,
                            .learned_max = 65536};
}

static struct str text_of(const struct ruleset *r, struct arena *a)
{
    struct str text, error;
    if (!ruleset_text(r, a, &text, &error))
        fail_msg("%.*s", STR_ARG(error));
    return text;
}

static void assert_golden(const char *name, const struct ruleset *r)
{
    char path[512], *wanted = calloc(1, GOLDEN_MAX);
    struct arena a;
    arena_init(&a, NULL, 0);
    struct str text = text_of(r, &a);
    bool write = getenv("RULESET_WRITE") != NULL;
    snprintf(path, sizeof path, SOURCE_DIR "/tests/unit/ruleset/%s.nft", name);
    FILE *f = fopen(path, write ? "we" : "re");
    assert_non_null(f);
    if (write)
        assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
    size_t n = write ? 0 : fread(wanted, 1, GOLDEN_MAX, f);
    fclose(f);
    if (!write && !str_eq(text, (struct str){wanted, n}))
        fail_msg("%s is not\n%.*s", path, STR_ARG(text));
    free(wanted);
    arena_done(&a);
}

static void closed(void **state)
{
    struct ruleset r = plain(RULESET_CLOSED);
    (void)state;
    assert_golden("closed", &r);
}

static void closed_without_anything_of_our_own(void **state)
{
    struct ruleset r = plain(RULESET_CLOSED);
    (void)state;
    r.own_mark = 0;
    assert_golden("closed_alone", &r);
}

static void mode_dns(void **state)
{
    struct ruleset r = plain(RULESET_DNS);
    (void)state;
    assert_golden("dns", &r);
}

static void mode_dns_nft(void **state)
{
    struct ruleset r = plain(RULESET_FULL);
    (void)state;
    assert_golden("full", &r);
}

static void mode_dns_nft_with_every_setting(void **state)
{
    static const uint16_t ports[] = {8080, 8443};
    struct ruleset r = plain(RULESET_FULL);
    struct ip exempt[] = {ip_of("10.0.0.2"), ip_of("fd00::53"), ip_of("10.0.0.3")};
    struct ruleset_server upstreams[] = {{ip_of("8.8.8.8"), 53}, {ip_of("2001:db8::53"), 5353}};
    struct cidr doh[3];
    (void)state;
    assert_true(cidr_parse(STR("9.9.9.9"), &doh[0]) && cidr_parse(STR("2001:db8::/32"), &doh[1]) &&
                cidr_parse(STR("1.1.1.0/24"), &doh[2]));
    r.relay_port = 18081;
    r.extra_ports = ports;
    r.nextra = 2;
    r.block_doh = true;
    r.doh = (struct cidr_set){doh, 3};
    r.exempt = exempt;
    r.nexempt = 3;
    r.upstreams = upstreams;
    r.nupstreams = 2;
    r.parent_port = 3128;
    r.has_uid = true;
    r.uid = 10042;
    r.pass_priority = 0x55550002;
    r.cgroup = STR("unified/sidecar");
    r.cgroup_level = 1;
    r.ndevices = 2;
    assert_golden("everything", &r);
}

static void a_kernel_that_lacks_much(void **state)
{
    struct ruleset r = plain(RULESET_FULL);
    (void)state;
    r.lacks = RULESET_NO_WIRE | RULESET_NO_COUNTER | RULESET_NO_LOG;
    r.block_doh = true;
    assert_golden("bare", &r);
}

static void a_namespace_without_devices_has_no_wire(void **state)
{
    struct ruleset r = plain(RULESET_FULL);
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    r.ndevices = 0;
    struct str text = text_of(&r, &a);
    assert_null(memmem(text.p, text.n, "hook egress", 11));
    arena_done(&a);
}

static void names_that_could_be_rules_are_refused(void **state)
{
    static const char *const names[] = {"e0\"; accept",     "a b", "",   "e{",  "e0\n",
                                        "sixteen-letters-", "e;",  "$x", "e\"0"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct str device = str_of(names[i]), text, error = STR_NONE;
        struct ruleset r = plain(RULESET_FULL), c = plain(RULESET_FULL);
        struct arena a;
        arena_init(&a, NULL, 0);
        r.devices = &device;
        assert_false(ruleset_text(&r, &a, &text, &error));
        assert_true(error.n > 0);
        c.cgroup = str_of(i < 2 ? names[i] : "kubepods/\"pod");
        assert_false(ruleset_text(&c, &a, &text, &error));
        arena_done(&a);
    }
}

static void the_first_rules_take_nothing_away(void **state)
{
    struct ruleset r = {.shape = RULESET_CLOSED, .devices = devices, .ndevices = 2};
    struct str text, error;
    struct arena a;
    (void)state;
    r.pass_mark = 3;
    r.group_mark = 4;
    arena_init(&a, NULL, 0);
    assert_true(ruleset_text(&r, &a, &text, &error));
    assert_non_null(strstr(arena_printf(&a, "%.*s", STR_ARG(text)).p, "delete table netdev"));
    const char *first = ruleset_first(text, &a).p;
    assert_null(strstr(first, "delete table"));
    assert_null(strstr(first, "add table"));
    assert_non_null(strstr(first, "create table inet opensandbox\ntable inet opensandbox {"));
    assert_non_null(strstr(first, "create table netdev opensandbox\ntable netdev opensandbox {"));
    arena_done(&a);
}

static void the_hash_is_of_the_rules(void **state)
{
    struct ruleset r = plain(RULESET_FULL), other = plain(RULESET_FULL);
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    other.own_mark++;
    struct str one = ruleset_hash(text_of(&r, &a)), same = ruleset_hash(text_of(&r, &a));
    assert_int_equal(one.n, RULESET_HASH_TEXT);
    assert_true(str_eq(one, same));
    assert_false(str_eq(one, ruleset_hash(text_of(&other, &a))));
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed),
        cmocka_unit_test(closed_without_anything_of_our_own),
        cmocka_unit_test(mode_dns),
        cmocka_unit_test(mode_dns_nft),
        cmocka_unit_test(mode_dns_nft_with_every_setting),
        cmocka_unit_test(a_kernel_that_lacks_much),
        cmocka_unit_test(a_namespace_without_devices_has_no_wire),
        cmocka_unit_test(names_that_could_be_rules_are_refused),
        cmocka_unit_test(the_first_rules_take_nothing_away),
        cmocka_unit_test(the_hash_is_of_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
