/* signature_test.c — key rings, forms, and scheme v1 beyond the vectors. */
#include "policies/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/text.h"

static struct keyring *ring_of(const char *text)
{
    struct keyring *k = NULL;
    char error[200];
    if (!keyring_parse(str_of(text), &k, NULL, error, sizeof error))
        fail_msg("%s: %s", text, error);
    return k;
}

static void a_ring_gives_each_key_by_its_id(void **state)
{
    (void)state;
    struct keyring *k = ring_of(" a = AAEC ,, b=/w==,\n0=a2tr, ");
    assert_true(keyring_has(k, 'a') && keyring_has(k, 'b') && keyring_has(k, '0'));
    assert_false(keyring_has(k, 'c') || keyring_has(k, 'A') || keyring_has(k, '\0') ||
                 keyring_has(k, (char)0xe9));
    assert_true(str_eq(keyring_key(k, 'b'), STR("\xff")));
    assert_true(str_eq(keyring_key(k, '0'), STR("kkk")));
    assert_int_equal(keyring_key(k, 'z').n, 0);
    keyring_free(k);
}

static void no_ring_has_no_keys(void **state)
{
    (void)state;
    struct keyring *k = ring_of(" \xc2\xa0\n");
    assert_null(k);
    assert_false(keyring_has(k, 'a'));
    keyring_free(k);
}

static void the_last_of_equal_ids_counts_and_each_is_warned_of_once(void **state)
{
    (void)state;
    struct keyring *k = NULL;
    char warn[40], error[200];
    assert_true(keyring_parse(STR("a=AAEC,b=AAEC,a=/w==,a=q80=,c=AAEC,b=AAEC"), &k, warn, error,
                              sizeof error));
    assert_string_equal(warn, "ab");
    assert_true(str_eq(keyring_key(k, 'a'), STR("\xab\xcd")));
    keyring_free(k);
    assert_true(keyring_parse(STR("a=AAEC"), &k, warn, error, sizeof error));
    assert_string_equal(warn, "");
    keyring_free(k);
}

static void a_bad_ring_is_refused_as_a_whole_and_its_error_holds_no_value(void **state)
{
    static const char *const rows[] = {",",
                                       " , ,",
                                       "a=AAEC,b=SECRETSECRET!",
                                       "SECRETSECRET",
                                       "SECRET=SECRET",
                                       "a=SECRETSECRE",
                                       "a=AAEC,SECRET=AAEC",
                                       "ab=AAEC",
                                       "a=",
                                       "=",
                                       "a=\r\n",
                                       "a=SEC RET="};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct keyring *untouched = (struct keyring *)&i, *k = untouched;
        char error[200] = "";
        if (keyring_parse(str_of(rows[i]), &k, NULL, error, sizeof error))
            fail_msg("taken: %s", rows[i]);
        assert_ptr_equal(k, untouched);
        assert_true(strlen(error) > 20 && strlen(error) < sizeof error - 1);
        assert_null(strstr(error, "SECRET"));
        assert_null(strchr(error, '\n'));
    }
}

static void trimming_takes_unicode_white_space_and_nothing_else(void **state)
{
    static const char *const rows[][2] = {
        {" \t\n\v\f\ra b\r\n", "a b"},
        {"\xc2\xa0tok\xc2\x85", "tok"},
        {"\xe3\x80\x80\xe2\x80\x83x\xe2\x80\xaf", "x"},
        {"\xe2\x80\x8bx", "\xe2\x80\x8bx"},
        {"\xa0x\x85", "\xa0x\x85"},
        {"", ""},
        {" \xe1\x9a\x80\xe2\x81\x9f ", ""},
        {"\xe2\x80", "\xe2\x80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(str_eq(signature_trim(str_of(rows[i][0])), str_of(rows[i][1])));
}

static void ports_follow_their_grammar(void **state)
{
    static const struct {
        const char *text;
        bool plus, valid;
        uint16_t port;
    } rows[] = {
        {"1", false, true, 1},    {"65535", false, true, 65535}, {"65536", false, false, 0},
        {"0", false, false, 0},   {"080", false, false, 0},      {"", false, false, 0},
        {"+80", false, false, 0}, {"+80", true, true, 80},       {"++80", true, false, 0},
        {"+080", true, false, 0}, {"+0", true, false, 0},        {"+", true, false, 0},
        {"-80", true, false, 0},  {"100000", true, false, 0},    {"8\xc2\xb2", false, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t port = 7;
        if (signature_port(str_of(rows[i].text), rows[i].plus, &port) != rows[i].valid)
            fail_msg("%s", rows[i].text);
        assert_int_equal(port, rows[i].valid ? rows[i].port : 7);
    }
}

static const struct signed_route example_a = {
    {"my-sandbox", 10}, {"x2qxvk", 6}, {"5528a7c9a", 9}, 8080};

static void making_and_checking_agree_with_the_canonical_text(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct str canonical = signature_canonical(example_a.id, example_a.port, example_a.exp36, &a);
    assert_true(str_eq(canonical, STR("v1\nshort\nmy-sandbox\n8080\nx2qxvk\n")));
    uint8_t inner[32];
    char hex[8], made[9];
    signature_inner(STR("conformance-key-1"), canonical, inner);
    text_put_hex(hex, inner, 4);
    signature_make(STR("conformance-key-1"), 'a', example_a.id, example_a.port, example_a.exp36,
                   made);
    assert_memory_equal(made, hex, 8);
    assert_memory_equal(made, "5528a7c9a", 9);
    arena_done(&a);
}

static void expiry_is_judged_before_key_and_key_before_hash(void **state)
{
    static const struct {
        const char *exp36, *signature;
        int64_t now;
        enum signature_verdict verdict;
    } rows[] = {
        {"x2qxvk", "5528a7c9a", 2000000000, SIGNATURE_OK},
        {"x2qxvk", "5528a7c9a", 2000000001, SIGNATURE_EXPIRED},
        {"x2qxvk", "00000000z", 2000000001, SIGNATURE_EXPIRED},
        {"x2qxvk", "00000000z", 2000000000, SIGNATURE_KEY_UNKNOWN},
        {"x2qxvk", "00000000a", 2000000000, SIGNATURE_MISMATCH},
        {"x2qxvk", "5528a7c9b", 0, SIGNATURE_KEY_UNKNOWN},
        {"3w5e11264sgsf", "00000000a", INT64_MAX, SIGNATURE_MISMATCH},
        {"0", "00000000a", -1, SIGNATURE_EXPIRED},
        {"x2qxvk", "5528a7c9", 0, SIGNATURE_FORMAT},
        {"0x2", "5528a7c9a", 0, SIGNATURE_FORMAT},
        {"", "5528a7c9a", 0, SIGNATURE_FORMAT},
    };
    (void)state;
    struct keyring *k = ring_of("a=Y29uZm9ybWFuY2Uta2V5LTE=");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct signed_route r = example_a;
        r.exp36 = str_of(rows[i].exp36);
        r.signature = str_of(rows[i].signature);
        if (signature_verify(k, &r, rows[i].now) != rows[i].verdict)
            fail_msg("row %zu", i);
    }
    keyring_free(k);
}

static void every_part_of_a_route_is_covered(void **state)
{
    (void)state;
    struct keyring *k = ring_of("a=Y29uZm9ybWFuY2Uta2V5LTE=");
    struct signed_route id = example_a, port = example_a, exp = example_a;
    id.id = STR("my-sandboy");
    port.port = 8081;
    exp.exp36 = STR("x2qxvl");
    assert_int_equal(signature_verify(k, &id, 0), SIGNATURE_MISMATCH);
    assert_int_equal(signature_verify(k, &port, 0), SIGNATURE_MISMATCH);
    assert_int_equal(signature_verify(k, &exp, 0), SIGNATURE_MISMATCH);
    keyring_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_gives_each_key_by_its_id),
        cmocka_unit_test(no_ring_has_no_keys),
        cmocka_unit_test(the_last_of_equal_ids_counts_and_each_is_warned_of_once),
        cmocka_unit_test(a_bad_ring_is_refused_as_a_whole_and_its_error_holds_no_value),
        cmocka_unit_test(trimming_takes_unicode_white_space_and_nothing_else),
        cmocka_unit_test(ports_follow_their_grammar),
        cmocka_unit_test(making_and_checking_agree_with_the_canonical_text),
        cmocka_unit_test(expiry_is_judged_before_key_and_key_before_hash),
        cmocka_unit_test(every_part_of_a_route_is_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
