/* redact_test.c — what is searched for of a credential, and what is left of field values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/secret.h"
#include "policies/redact.h"
#include "policies/spell.h"

static void assert_str(struct str got, struct str want)
{
    assert_int_equal(got.n, want.n);
    if (want.n)
        assert_memory_equal(got.p, want.p, want.n);
}

/* ---- spellings */

static void values_are_spelled_as_encoders_do(void **state)
{
    (void)state;
    static const struct {
        enum spelling how;
        const char *value, *spelled;
    } rows[] = {
        {SPELL_PERCENT, "aZ09-._~", "aZ09-._~"},
        {SPELL_PERCENT, " /+%\xc3\xa9\x7f", "%20%2F%2B%25%C3%A9%7F"},
        {SPELL_PERCENT_LOWER, " /+\xc3\xa9", "%20%2f%2b%c3%a9"},
        {SPELL_FORM, "a b+/", "a+b%2B%2F"},
        {SPELL_FORM_LOWER, "a b+/", "a+b%2b%2f"},
        {SPELL_JSON, "\"\\/\n\r\t\b\f\x01\x1f\x7f", "\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f"},
        {SPELL_JSON, "<>&\xc3\xa9\xe2\x80\xa8", "<>&\xc3\xa9\xe2\x80\xa8"},
        {SPELL_JSON_HTML, "<>&\xc3\xa9\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa",
         "\\u003c\\u003e\\u0026\xc3\xa9\\u2028\\u2029\xe2\x80\xaa"},
        {SPELL_JSON_ASCII, "<>&\xc3\xa9\xe2\x82\xac", "<>&\\u00e9\\u20ac"},
        {SPELL_JSON_ASCII, "\xf0\x9f\x98\x80\xef\xbf\xbf", "\\ud83d\\ude00\\uffff"},
        {SPELL_JSON, "\xff\xc3", "\xff\xc3"}, /* no UTF-8: as it is */
        {SPELL_JSON_ASCII, "\xff\xc3", "\\ufffd\\ufffd"},
        {SPELL_JSON_ASCII, "\xe2\x82", "\\ufffd\\ufffd"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str value = str_of(rows[i].value);
        char out[200];
        size_t n = spell(rows[i].how, value, out);
        assert_true(n <= value.n * SPELL_GROWS);
        assert_str((struct str){out, n}, str_of(rows[i].spelled));
    }
}

/* ---- field values */

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, NULL, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_done(&arena);
    return secret_held() == 0 ? 0 : -1;
}

static struct redaction *redaction_of(const char *value, bool bearer, bool basic)
{
    struct redact_use use = {str_of(value), bearer, basic};
    return redaction_new(&(struct redact_list){&use, 1, NULL, 0, 6});
}

static void all_forms_of_a_credential_are_marked(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool bearer, basic;
        const char *text, *want;
    } rows[] = {
        {"a b/c", false, false, "<a b/c>", "<[REDACTED]>"},
        {"a b/c", false, false, "<a%20b%2Fc|a%20b%2fc>", "<[REDACTED]|[REDACTED]>"},
        {"a b/c", false, false, "<a+b%2Fc|a+b%2fc>", "<[REDACTED]|[REDACTED]>"},
        {"a\"b<", false, false, "<a\\\"b<|a\\\"b\\u003c>", "<[REDACTED]|[REDACTED]>"},
        {"\xc3\xa9x", false, false, "\\u00e9x", "[REDACTED]"},
        {"token", true, false, "Bearer token", "[REDACTED]"},
        {"token", false, false, "Bearer token", "Bearer [REDACTED]"},
        {"token", true, false, "bearer token", "bearer [REDACTED]"},
        {"dTpwdw==", false, true, "Basic dTpwdw==", "[REDACTED]"},
        {"dTpwdw==", false, true, "u:pw pw u", "[REDACTED] [REDACTED] u"},
        {"dTpwdw", false, true, "u:pw", "[REDACTED]"},           /* without padding */
        {"dTpwdw==", false, false, "u:pw pw", "u:pw pw"},        /* only where it is Basic */
        {"cHc=", false, true, "pw", "pw"},                       /* no colon */
        {"dTpw\x0a", false, true, "u:p", "[REDACTED]"},          /* base64 skips line ends */
        {"dTo=", false, true, "u: u", "[REDACTED] u"},           /* an empty password is nothing */
        {"dTpwCg==", false, true, "u:p", "u:p"},                 /* text with a line feed */
        {"/zr/", false, true, "\xff:\xff", "\xff:\xff"},         /* no text */
        {" token\t", false, false, "x=token;", "x=[REDACTED];"}, /* as a field carries it */
        {"no base64!", false, true, "no base64!", "[REDACTED]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct redaction *r = redaction_of(rows[i].value, rows[i].bearer, rows[i].basic);
        assert_str(redact_value(r, str_of(rows[i].text), &arena), str_of(rows[i].want));
        redaction_unref(r);
    }
}

static struct redaction *redaction_of_all(const char *const *list, unsigned n)
{
    struct str s[8];
    for (unsigned i = 0; i < n; i++)
        s[i] = str_of(list[i]);
    return redaction_with(NULL, s, n, 6);
}

static void overlapping_marks_are_one_and_touching_ones_are_two(void **state)
{
    (void)state;
    static const struct {
        const char *strings[4], *text, *want;
    } rows[] = {
        {{"abc"}, "abcabc", "[REDACTED][REDACTED]"},
        {{"ab", "bcd"}, "abcd", "[REDACTED]"},
        {{"abc", "abcdef"}, "abcdef", "[REDACTED]"},
        {{"abc", "def", "cd"}, "abcdef", "[REDACTED]"},
        {{"abc", "def", "c", "d"}, "abcdef", "[REDACTED][REDACTED]"},
        {{"aa"}, "aaaa", "[REDACTED]"},
        {{"a"}, "xaax", "x[REDACTED][REDACTED]x"},
        {{"RED", "x"}, "x", "[REDACTED]"}, /* a mark is not searched */
        {{"abc"}, "", ""},
        {{"abc"}, "ab", "ab"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned n = 0;
        while (n < 4 && rows[i].strings[n])
            n++;
        struct redaction *r = redaction_of_all(rows[i].strings, n);
        assert_str(redact_value(r, str_of(rows[i].text), &arena), str_of(rows[i].want));
        redaction_unref(r);
    }
}

static void a_value_without_marks_is_the_same_text(void **state)
{
    (void)state;
    struct redaction *r = redaction_of("a-secret", true, false);
    struct str text = STR("nothing here");
    assert_ptr_equal(redact_value(r, text, &arena).p, text.p);
    assert_ptr_equal(redact_value(NULL, text, &arena).p, text.p);
    redaction_unref(r);
}

static void framing_fields_are_never_changed(void **state)
{
    (void)state;
    static const char *const kept[] = {"Content-Length", "content-encoding", "Transfer-Encoding",
                                       "Connection",     "Upgrade",          "TE",
                                       "Trailer"};
    struct redaction *r = redaction_of("11", false, false);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct field fields[] = {{str_of(kept[i]), STR("11")}, {STR("X"), STR("11")}};
        assert_int_equal(redact_fields(r, fields, 2, &arena), 1);
        assert_str(fields[0].value, STR("11"));
        assert_str(fields[1].value, STR("[REDACTED]"));
    }
    struct field one = {STR("Set-Cookie"), STR("11")};
    assert_int_equal(redact_fields(NULL, &one, 1, &arena), 0);
    redaction_unref(r);
}

/* ---- what is searched where */

static bool body_holds(const struct redaction *r, const char *text)
{
    const struct matcher *m = redaction_body(r);
    return m && matcher_tail(m, text, strlen(text)) == strlen(text);
}

static void placeholders_are_searched_in_fields_alone(void **state)
{
    (void)state;
    struct redact_use use = {STR("a-secret"), false, false};
    struct redaction *r =
        redaction_new(&(struct redact_list){&use, 1, (struct str[]){STR("__placeholder__")}, 1, 6});
    assert_str(redact_value(r, STR("__placeholder__ a-secret"), &arena),
               STR("[REDACTED] [REDACTED]"));
    assert_true(body_holds(r, "a-sec"));
    assert_false(body_holds(r, "__place"));
    redaction_unref(r);
}

static void short_strings_are_searched_in_fields_alone(void **state)
{
    (void)state;
    struct redaction *r = redaction_of("abc", true, false),
                     *none = redaction_of("abc", false, false);
    assert_true(body_holds(r, "Bearer ab"));
    assert_false(body_holds(r, "ab"));
    assert_null(redaction_body(none));
    assert_str(redact_value(none, STR("xabcx"), &arena), STR("x[REDACTED]x"));
    redaction_unref(r);
    redaction_unref(none);
}

/* What one exchange adds must not bring what its vault searches in fields alone into bodies. */
static void more_strings_lie_over_those_of_the_vault(void **state)
{
    (void)state;
    struct redact_use use = {STR("a-secret"), false, false}, shorter = {STR("xyz"), false, false};
    struct redact_use uses[] = {use, shorter};
    struct redaction *base =
        redaction_new(&(struct redact_list){uses, 2, (struct str[]){STR("__placeholder__")}, 1, 6});
    struct redaction *r = redaction_with(base, (struct str[]){STR("the-token"), STR("pq")}, 2, 6),
                     *longer = redaction_with(base, (struct str[]){STR("the-token")}, 1, 6);
    assert_ptr_not_equal(r, base);
    redaction_unref(base);
    assert_str(redact_value(r, STR("xyz pq a-secret the-token __placeholder__"), &arena),
               STR("[REDACTED] [REDACTED] [REDACTED] [REDACTED] [REDACTED]"));
    for (unsigned i = 0; i < 2; i++) {
        assert_true(body_holds(i ? longer : r, "a-sec"));
        assert_true(body_holds(i ? longer : r, "the-tok"));
        assert_false(body_holds(i ? longer : r, "__place"));
        assert_false(body_holds(i ? longer : r, "xy"));
        assert_false(body_holds(i ? longer : r, "p"));
    }
    redaction_unref(r);
    redaction_unref(longer);
}

static void nothing_more_is_the_same_redaction(void **state)
{
    (void)state;
    struct redaction *base = redaction_of("a-secret", false, false),
                     *r = redaction_with(base, (struct str[]){STR("")}, 1, 6);
    assert_ptr_equal(r, base);
    redaction_unref(r);
    redaction_unref(base);
    assert_null(redaction_with(NULL, NULL, 0, 6));
}

static void short_additions_leave_the_bodies_of_the_vault(void **state)
{
    (void)state;
    struct redaction *base = redaction_of("a-secret", false, false),
                     *r = redaction_with(base, (struct str[]){STR("ab")}, 1, 6);
    assert_true(body_holds(r, "a-sec"));
    assert_false(body_holds(r, "a-secret"));
    redaction_unref(base);
    redaction_unref(r);
}

static void of_no_credentials_there_is_no_redaction(void **state)
{
    (void)state;
    struct redact_use empty = {STR(""), true, true};
    assert_null(redaction_new(&(struct redact_list){.body_min = 6}));
    assert_null(redaction_new(&(struct redact_list){&empty, 1, NULL, 0, 6}));
    assert_null(redaction_body(NULL));
    redaction_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_spelled_as_encoders_do),
        cmocka_unit_test_setup_teardown(all_forms_of_a_credential_are_marked, setup, teardown),
        cmocka_unit_test_setup_teardown(overlapping_marks_are_one_and_touching_ones_are_two, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_value_without_marks_is_the_same_text, setup, teardown),
        cmocka_unit_test_setup_teardown(framing_fields_are_never_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(placeholders_are_searched_in_fields_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(short_strings_are_searched_in_fields_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(more_strings_lie_over_those_of_the_vault, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_more_is_the_same_redaction, setup, teardown),
        cmocka_unit_test_setup_teardown(short_additions_leave_the_bodies_of_the_vault, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(of_no_credentials_there_is_no_redaction, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
