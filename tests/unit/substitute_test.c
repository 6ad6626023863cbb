/* substitute_test.c — values in their encodings; one scan from left to right; Basic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "policies/substitute.h"

enum { MOST = 1 << 20 };

static void values_are_encoded_for_their_place(void **state)
{
    (void)state;
    static const struct {
        enum encoding e;
        const char *value, *encoded;
    } rows[] = {
        {ENCODE_RAW, "a b\"%", "a b\"%"},
        {ENCODE_PERCENT, "aZ09-._~", "aZ09-._~"},
        {ENCODE_PERCENT, "a b/+%\xc3\xa9", "a%20b%2F%2B%25%C3%A9"},
        {ENCODE_FORM, "a b/+%\xc3\xa9", "a+b%2F%2B%25%C3%A9"},
        {ENCODE_JSON, "a\"\\\n\r\t\b\f\x01/<>&\x7f", "a\\\"\\\\\\n\\r\\t\\b\\f\\u0001/<>&\x7f"},
        {ENCODE_JSON, "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80", "\\u00e9\\u65e5\\ud83d\\ude00"},
        {ENCODE_JSON, "\xf4\x8f\xbf\xbf", "\\udbff\\udfff"},
        {ENCODE_JSON, "x\xff", "x\\ufffd"},
    };
    struct secret_bag bag;
    secret_bag_init(&bag);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str got = encode_value(rows[i].e, str_of(rows[i].value), &bag);
        assert_true(str_eq(got, str_of(rows[i].encoded)));
        assert_true(secret_covers(got.p));
    }
    secret_bag_done(&bag);
}

static const struct replacement few[] = {
    {STR("__A__"), STR("1")}, {STR("__A__B"), STR("22")}, {STR("__C__"), STR("__A__")},
    {STR("ab"), STR("x")},    {STR("bcd"), STR("y")},     {STR("aa"), STR("z")},
};
static const struct replacements pairs = {few, sizeof few / sizeof *few};

static void the_leftmost_and_there_the_longest_wins(void **state)
{
    (void)state;
    static const struct {
        const char *text, *result; /* NULL: nothing is found */
    } rows[] = {
        {"", NULL},
        {"nothing __a__", NULL},
        {"__A__", "1"},
        {"__A__B", "22"},
        {"__A__C", "1C"},
        {"x__A__B__A__y", "x221y"},
        {"__C__", "__A__"}, /* not looked at again */
        {"__C____A__", "__A__1"},
        {"abcd", "xcd"},
        {"bcdab", "yx"},
        {"aaaaa", "zza"},
        {"aab", "zb"},
        {"__A____A__", "11"},
        {"__A___A__", "1_A__"},
    };
    struct secret_bag bag;
    struct str got;
    secret_bag_init(&bag);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum substituted done = substitute(&pairs, str_of(rows[i].text), MOST, &bag, &got);
        assert_int_equal(done, rows[i].result ? SUBSTITUTE_DONE : SUBSTITUTE_NOTHING);
        if (rows[i].result)
            assert_true(str_eq(got, str_of(rows[i].result)));
    }
    secret_bag_done(&bag);
}

/* The rule as it is written down: at each position the longest that matches. */
static struct str plain_scan(const struct replacements *p, struct str text, struct arena *a)
{
    struct str out = STR("");
    while (text.n) {
        const struct replacement *best = NULL;
        for (unsigned i = 0; i < p->n; i++)
            if (str_starts(text, p->at[i].placeholder) &&
                (!best || p->at[i].placeholder.n > best->placeholder.n))
                best = &p->at[i];
        out = arena_cat(a, out, best ? best->value : str_head(text, 1));
        text = str_skip(text, best ? best->placeholder.n : 1);
    }
    return out;
}

static void it_is_the_scan_of_the_contract(void **state)
{
    (void)state;
    struct replacement many[40];
    char names[40][6];
    uint32_t x = 1;
    for (int round = 0; round < 2000; round++) {
        struct arena a;
        struct secret_bag bag;
        char text[64];
        arena_init(&a, NULL, 0);
        secret_bag_init(&bag);
        unsigned n = 1 + (unsigned)round % 40; /* few and many are looked for differently */
        for (unsigned i = 0; i < n; i++) {
            size_t len = 1 + (x = x * 1664525 + 1013904223) / 65536 % 5;
            for (size_t k = 0; k < len; k++)
                names[i][k] = "ab"[(x = x * 1664525 + 1013904223) >> 31];
            many[i] = (struct replacement){{names[i], len}, arena_printf(&a, "<%u>", i)};
        }
        for (size_t k = 0; k < sizeof text; k++)
            text[k] = "abc"[(x = x * 1664525 + 1013904223) / 65536 % 3];
        struct str all = {text, sizeof text}, got = all;
        substitute(&(struct replacements){many, n}, all, MOST, &bag, &got);
        assert_true(str_eq(got, plain_scan(&(struct replacements){many, n}, all, &a)));
        secret_bag_done(&bag);
        arena_done(&a);
    }
}

static void nothing_is_allocated_where_nothing_is_found(void **state)
{
    (void)state;
    struct secret_bag bag;
    struct str got, token, text;
    secret_bag_init(&bag);
    assert_int_equal(substitute(&pairs, STR("nothing"), MOST, &bag, &got), SUBSTITUTE_NOTHING);
    assert_int_equal(substitute_basic(&pairs, STR("Basic dTpw"), MOST, &bag, &got, &token, &text),
                     SUBSTITUTE_NOTHING);
    assert_int_equal(bag.n, 0);
    assert_null(bag.at);
    secret_bag_done(&bag);
}

static void a_result_has_a_bound(void **state)
{
    (void)state;
    struct secret_bag bag;
    struct str got;
    secret_bag_init(&bag);
    assert_int_equal(substitute(&pairs, STR("--__A__B"), 4, &bag, &got), SUBSTITUTE_DONE);
    assert_int_equal(substitute(&pairs, STR("--__A__B"), 3, &bag, &got), SUBSTITUTE_LONG);
    assert_int_equal(substitute(&pairs, STR("--------"), 3, &bag, &got), SUBSTITUTE_NOTHING);
    secret_bag_done(&bag);
}

static void basic_is_decoded_and_encoded_again(void **state)
{
    (void)state;
    static const struct {
        const char *value, *result, *text; /* NULL: as it is */
    } rows[] = {
        {"Basic dTpfX0FfXw==", "Basic dTox", "u:1"},
        {"bAsIc   dTpfX0FfXw==", "bAsIc   dTox", "u:1"},
        {"Basic dTpfX0FfXw", "Basic dTox", "u:1"},
        {"Basic dTpfX0FfX0I=", "Basic dToyMg==", "u:22"},
        {"Basic dTpfX0FfX0I", "Basic dToyMg==", "u:22"},
        {"Basic dTpfX0FfXw=", NULL, NULL},   /* half of the padding */
        {"Basic dTpfX0FfXw===", NULL, NULL}, /* too much of it */
        {"Basic dTpf=X0FfXw==", NULL, NULL},
        {"Basic dTpfX0FfXx==", NULL, NULL}, /* unused bits */
        {"Basic dTpf X0FfXw==", NULL, NULL},
        {"Basic dTpf\r\nX0FfXw==", NULL, NULL},
        {"Basic dTpw", NULL, NULL},
        {"Basic", NULL, NULL},
        {"Basic ", NULL, NULL},
        {"Basic =", NULL, NULL},
        {"Basic ==", NULL, NULL},
        {"Basic a", NULL, NULL},
        {"BasicdTpfX0FfXw==", NULL, NULL},
        {"Bearer dTpfX0FfXw==", NULL, NULL},
        {"Basic /19fQV9f", NULL, NULL}, /* no text */
    };
    struct secret_bag bag;
    secret_bag_init(&bag);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str got, token, text;
        enum substituted done =
            substitute_basic(&pairs, str_of(rows[i].value), MOST, &bag, &got, &token, &text);
        assert_int_equal(done, rows[i].result ? SUBSTITUTE_DONE : SUBSTITUTE_NOTHING);
        if (!rows[i].result)
            continue;
        assert_true(str_eq(got, str_of(rows[i].result)));
        assert_true(str_eq(text, str_of(rows[i].text)));
        assert_true(str_iends(got, token) && token.p + token.n == got.p + got.n);
        assert_true(secret_covers(got.p) && secret_covers(text.p));
    }
    secret_bag_done(&bag);
}

static void a_long_basic_token_is_read_too(void **state)
{
    (void)state;
    char value[6 + 4000];
    struct secret_bag bag;
    struct str got, token, text;
    memcpy(value, "Basic ", 6);
    for (size_t i = 6; i < sizeof value; i += 8)
        memcpy(value + i, "X19BX18g", 8); /* "__A__ " */
    secret_bag_init(&bag);
    assert_int_equal(substitute_basic(&pairs, (struct str){value, sizeof value}, MOST, &bag, &got,
                                      &token, &text),
                     SUBSTITUTE_DONE);
    assert_int_equal(text.n, 4000 / 8 * 2);
    assert_true(str_starts(text, STR("1 1 1 ")));
    secret_bag_done(&bag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_encoded_for_their_place),
        cmocka_unit_test(the_leftmost_and_there_the_longest_wins),
        cmocka_unit_test(it_is_the_scan_of_the_contract),
        cmocka_unit_test(nothing_is_allocated_where_nothing_is_found),
        cmocka_unit_test(a_result_has_a_bound),
        cmocka_unit_test(basic_is_decoded_and_encoded_again),
        cmocka_unit_test(a_long_basic_token_is_read_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
