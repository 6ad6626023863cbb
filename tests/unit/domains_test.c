/* domains_test.c — canonical names, what can match, public suffixes, host patterns, the index, and
 * targets. */
#include "policies/domains.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "policies/target.h"

static void same_text(const char *what, struct str got, const char *expected)
{
    if (!str_eq(got, str_of(expected)))
        fail_msg("%s: got \"%.*s\", expected \"%s\"", what, STR_ARG(got), expected);
}

static void names_have_one_canonical_form(void **state)
{
    static const struct {
        const char *written, *canonical; /* NULL: none */
    } rows[] = {
        {"Example.COM", "example.com"},
        {"example.com.", "example.com"},
        {"example.com..", "example.com."},
        {".", ""},
        {"_dmarc.Example.com", "_dmarc.example.com"},
        {"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
        {"xn--zz--.example", "xn--zz--.example"},
        {"faß.de", "xn--fa-hia.de"},
        {"bücher.example。", "xn--bcher-kva.example"},
        {"*.例子.测试", "*.xn--fsqu00a.xn--0zwm56d"},
        {"*。example.com", "*.example.com"},
        {"１２７.0.0.1", "127.0.0.1"},
        {"\xff.example", NULL},
        {"http://bücher.example", NULL},
        {"a\u200db.example", NULL},
        {"\U0001f4a9\u0378.example", NULL},
    };
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str got = STR("");
        bool good = name_canonical(str_of(rows[i].written), &a, &got);
        if (good != (rows[i].canonical != NULL))
            fail_msg("%s: %s", rows[i].written, good ? "taken" : "refused");
        if (good)
            same_text(rows[i].written, got, rows[i].canonical);
    }
    arena_done(&a);
}

static void a_name_with_a_zero_byte_or_without_an_end_has_no_form(void **state)
{
    (void)state;
    struct arena a;
    struct str got;
    static char long_name[100000];
    arena_init(&a, NULL, 0);
    assert_false(name_canonical((struct str){"a\0b", 3}, &a, &got));
    assert_false(name_canonical((struct str){"\xc3\xbc\0b", 4}, &a, &got));
    for (size_t i = 0; i < sizeof long_name; i++)
        long_name[i] = i % 2 ? '\xbc' : '\xc3';
    assert_false(name_canonical((struct str){long_name, sizeof long_name}, &a, &got));
    arena_done(&a);
}

static void what_no_query_can_be_for_never_matches(void **state)
{
    static const char label63[] = "0123456789012345678901234567890123456789012345678901234567890ab";
    static const char *const good[] = {"example.com", "com",    "_sip._tcp.x",
                                       "127.1",       "0x7f.1", "-a.b"};
    static const char *const bad[] = {"",
                                      ".",
                                      "a..b",
                                      ".ok.test",
                                      "ok.test.",
                                      "*",
                                      "a.*.b",
                                      "**.x",
                                      "https://x.test",
                                      "x.test:443",
                                      "[::1]",
                                      "10.0.0.0/33",
                                      "203.0.113.1",
                                      "a b",
                                      "a.test # x",
                                      "a\\.b",
                                      "user@x.test",
                                      "\x7f.x",
                                      "x.\xc3\xbc"};
    (void)state;
    char text[300];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!name_can_match(str_of(good[i])))
            fail_msg("%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (name_can_match(str_of(bad[i])))
            fail_msg("%s", bad[i]);
    assert_true(name_can_match(str_of(label63)));
    snprintf(text, sizeof text, "%sx", label63);
    assert_false(name_can_match(str_of(text)));
    snprintf(text, sizeof text, "%s.%s.%s.%.61s", label63, label63, label63, label63);
    assert_int_equal(strlen(text), NAME_BYTES_MAX);
    assert_true(name_can_match(str_of(text)));
    snprintf(text, sizeof text, "%s.%s.%s.%.62s", label63, label63, label63, label63);
    assert_false(name_can_match(str_of(text)));
}

static void public_suffixes_are_known(void **state)
{
    static const char *const yes[] = {"com",        "co.uk", "test",
                                      "xn--fiqs8s", "ck",    "foo.kawasaki.jp"};
    static const char *const no[] = {"example.com", "github.io", "www.ck", "evil.test", ""};
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!name_is_public_suffix(str_of(yes[i])))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (name_is_public_suffix(str_of(no[i])))
            fail_msg("%s", no[i]);
}

static void host_patterns_are_strict(void **state)
{
    static const char label64[] =
        "0123456789012345678901234567890123456789012345678901234567890123.example";
    static const struct {
        const char *written, *canonical;
    } rows[] = {
        {"API.Example.COM.", "api.example.com"},
        {" api.example.com\t", "api.example.com"},
        {"*.例子.测试", "*.xn--fsqu00a.xn--0zwm56d"},
        {"*.example.com", "*.example.com"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"1.2.3.example", "1.2.3.example"},
        {"", NULL},
        {"localhost", NULL},
        {"*", NULL},
        {"*.", NULL},
        {"*.com", NULL},
        {"api.*.com", NULL},
        {"**.x.com", NULL},
        {"10.0.0.1", NULL},
        {"*.10.0.0.1", NULL},
        {"::1", NULL},
        {"https://x.example", NULL},
        {"x.example:443", NULL},
        {"a..b.com", NULL},
        {"-a.example", NULL},
        {"a-.example", NULL},
        {"a_.example", NULL},
        {"example.com..", NULL},
        {"xn--.example", NULL},
        {"xn--zz--a.example", NULL},
        {"xn--a.example", NULL},
        {"a_b.bücher.example", NULL},
        {label64, NULL},
    };
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str got = STR("");
        bool good = host_pattern(str_of(rows[i].written), &a, &got);
        if (good != (rows[i].canonical != NULL))
            fail_msg("%s: %s", rows[i].written, good ? "taken" : "refused");
        if (good)
            same_text(rows[i].written, got, rows[i].canonical);
    }
    arena_done(&a);
}

static void host_patterns_leave_room_for_the_wildcard(void **state)
{
    (void)state;
    char text[300];
    struct arena a;
    struct str got;
    arena_init(&a, NULL, 0);
    for (int n = 250; n <= 254; n++) {
        char name[256];
        for (int i = 0; i < n; i++)
            name[i] = i % 50 == 49 ? '.' : 'a';
        name[n] = 0;
        snprintf(text, sizeof text, "*.%s", name);
        assert_int_equal(host_pattern(str_of(name), &a, &got), n <= 253);
        assert_int_equal(host_pattern(str_of(text), &a, &got), n <= 251);
    }
    arena_done(&a);
}

static void the_first_place_wins_and_not_the_longest_match(void **state)
{
    (void)state;
    struct patterns *n = patterns_new();
    patterns_add(n, STR("example.com"), true, 3);
    patterns_add(n, STR("a.example.com"), true, 5);
    patterns_add(n, STR("a.example.com"), false, 7);
    patterns_add(n, STR("b.example.com"), false, 1);
    patterns_add(n, STR("b.example.com"), false, 9);
    patterns_add(n, STR("com"), true, 8);
    static const struct {
        const char *name;
        int place;
    } rows[] = {
        {"example.com", 8},     {"x.example.com", 3},
        {"a.example.com", 3},   {"x.a.example.com", 3},
        {"B.Example.Com.", 1},  {"notexample.com", 8},
        {"com", PATTERNS_NONE}, {"", PATTERNS_NONE},
        {".", PATTERNS_NONE},   {"example.com.test", PATTERNS_NONE},
        {"*.example.com.", 3},  {"a\\046b.example.com", 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (patterns_first(n, str_of(rows[i].name)) != rows[i].place)
            fail_msg("%s: %d", rows[i].name, patterns_first(n, str_of(rows[i].name)));
    patterns_free(n);
}

static void a_name_of_many_labels_is_still_below_its_last_ones(void **state)
{
    (void)state;
    char name[1100];
    struct patterns *n = patterns_new();
    patterns_add(n, STR("example.com"), true, 0);
    for (size_t i = 0; i < 1000; i += 2) {
        name[i] = 'a';
        name[i + 1] = '.';
    }
    snprintf(name + 1000, 20, "example.com");
    assert_int_equal(patterns_first(n, str_of(name)), 0);
    patterns_free(n);
}

static void targets_are_read_for_what_they_are(void **state)
{
    static const struct {
        const char *text, *shown, *key;
        enum target_kind kind;
        bool below, inert;
    } rows[] = {
        {" Example.com.\t", "Example.com.", "nexample.com", TARGET_NAME, false, false},
        {"\u00a0*.Example.com\u3000", "*.Example.com", "n*.example.com", TARGET_NAME, true, false},
        {"2001:DB8::1", "2001:DB8::1", "a2001:db8::1", TARGET_ADDRESS, false, false},
        {"10.1.2.3/8", "10.1.2.3/8", "a10.1.2.3/8", TARGET_RANGE, false, false},
        {"127.1", "127.1", "n127.1", TARGET_NAME, false, false},
        {"010.0.0.1", "010.0.0.1", "n010.0.0.1", TARGET_NAME, false, false},
        {"10.0.0.0/33", "10.0.0.0/33", "n10.0.0.0/33", TARGET_NAME, false, true},
        {"[::1]", "[::1]", "n[::1]", TARGET_NAME, false, true},
        {"fe80::1%eth0", "fe80::1%eth0", "nfe80::1%eth0", TARGET_NAME, false, true},
        {"１２７.0.0.1", "１２７.0.0.1", "n127.0.0.1", TARGET_NAME, false, true},
        {"*", "*", "n*", TARGET_NAME, false, true},
        {"*.", "*.", "n*", TARGET_NAME, false, true},
        {".", ".", "n", TARGET_NAME, false, true},
        {"*.203.0.113.1", "*.203.0.113.1", "n*.203.0.113.1", TARGET_NAME, true, true},
        {"a*.ok.test", "a*.ok.test", "na*.ok.test", TARGET_NAME, false, true},
        {"**.ok.test", "**.ok.test", "n**.ok.test", TARGET_NAME, false, true},
    };
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct target t;
        assert_int_equal(target_parse(str_of(rows[i].text), &a, &t), TARGET_OK);
        same_text("text", t.text, rows[i].shown);
        same_text("key", t.key, rows[i].key);
        if (t.kind != rows[i].kind || t.below != rows[i].below || t.inert != rows[i].inert)
            fail_msg("%s: %d %d %d", rows[i].text, t.kind, t.below, t.inert);
        struct target copy = target_copy(&t, &a);
        same_text("copy", copy.key, rows[i].key);
        assert_true(str_eq(copy.name, t.name));
    }
    arena_done(&a);
}

static void what_is_no_target_is_refused(void **state)
{
    (void)state;
    struct arena a;
    struct target t;
    arena_init(&a, NULL, 0);
    assert_int_equal(target_parse(STR(" \r\n\u2003"), &a, &t), TARGET_EMPTY);
    assert_int_equal(target_parse(STR(""), &a, &t), TARGET_EMPTY);
    assert_int_equal(target_parse(STR("a\nb"), &a, &t), TARGET_CONTROL);
    assert_int_equal(target_parse((struct str){"a\0b", 3}, &a, &t), TARGET_CONTROL);
    assert_int_equal(target_parse(STR("a\x7f"), &a, &t), TARGET_CONTROL);
    assert_int_equal(target_parse(STR("a.\u0378"), &a, &t), TARGET_NO_ALABEL);
    assert_int_equal(target_parse(STR("\xff.x"), &a, &t), TARGET_NO_ALABEL);
    for (int fault = TARGET_EMPTY; fault <= TARGET_NO_ALABEL; fault++) {
        struct str text = target_fault_text((enum target_fault)fault);
        assert_int_equal(text.n, strlen(text.p));
    }
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_one_canonical_form),
        cmocka_unit_test(a_name_with_a_zero_byte_or_without_an_end_has_no_form),
        cmocka_unit_test(what_no_query_can_be_for_never_matches),
        cmocka_unit_test(public_suffixes_are_known),
        cmocka_unit_test(host_patterns_are_strict),
        cmocka_unit_test(host_patterns_leave_room_for_the_wildcard),
        cmocka_unit_test(the_first_place_wins_and_not_the_longest_match),
        cmocka_unit_test(a_name_of_many_labels_is_still_below_its_last_ones),
        cmocka_unit_test(targets_are_read_for_what_they_are),
        cmocka_unit_test(what_is_no_target_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
