/* edit_test.c — documents, edits and rule files: what is taken, what is refused and in which words,
 * what is shown and written. */
#include "policies/edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "policies/domains.h"
#include "policies/rulefile.h"

static struct document document_of(const char *text)
{
    struct document d = document_deny();
    struct json_fault fault;
    document_done(&d);
    if (!document_parse(str_of(text), &d, &fault))
        fail_msg("%s: %s", text, fault.text);
    return d;
}

static void shown_is(const struct document *d, const char *expected)
{
    struct json_out o;
    json_out_init(&o);
    document_put(&o, d);
    if (!str_eq((struct str){o.p, o.n}, str_of(expected)))
        fail_msg("got %.*s", (int)o.n, o.p);
    json_out_done(&o);
}

/* ---- documents */

static void faults_say_what_and_where(void **state)
{
    static const struct {
        const char *text, *fault;
        unsigned line, column;
    } rows[] = {
        {"{\"egress\":[{\"action\":\" Foo \",\"target\":\"a\"}]}", "unsupported action \"foo\"", 1,
         22},
        {"{\"egress\":[{\"action\":\"a\\nb\\\"\",\"target\":\"a\"}]}",
         "unsupported action \"a\\nb\\\"\"", 1, 22},
        {"{\"defaultAction\":\"allow-all\"}", "unsupported defaultAction \"allow-all\"", 1, 18},
        {"{\"egress\":[\n{\"target\":\" \"}]}", "egress target cannot be empty", 2, 11},
        {"{\"egress\":[\n {}]}", "egress target cannot be empty", 2, 2},
        {"{\"egress\":[{\"target\":\"a\\tb\"}]}",
         "egress target holds a control character: \"a\\tb\"", 1, 22},
        {"{\"egress\":[{\"target\":\"\u0378.test\"}]}",
         "egress target has no form in A-labels: \"\u0378.test\"", 1, 22},
        {"{\"x\\ny\":1}", "unknown field \"x\\ny\"", 1, 9},
        {"{\"Egress\":[]}", "unknown field \"Egress\"", 1, 11},
        {"{\"egress\":[{\"target\":\"a\",\"ports\":[]}]}", "unknown field \"ports\"", 1, 34},
        {"[]", "a policy must be an object, not array", 1, 1},
        {"{\"egress\":{}}", "the list of rules must be an array, not object", 1, 11},
        {"{\"egress\":[null]}", "a rule must be an object, not null", 1, 12},
        {"{\"egress\":[{\"target\":4}]}", "target must be a string, not number", 1, 22},
        {"{\"defaultAction\":true}", "defaultAction must be a string, not boolean", 1, 18},
        {"{\"egress\":[[[[[[[[[]]]]]]]]]}", "nested too deeply", 1, 18},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct document d;
        struct json_fault fault;
        if (document_parse(str_of(rows[i].text), &d, &fault))
            fail_msg("taken: %s", rows[i].text);
        assert_string_equal(fault.text, rows[i].fault);
        if (fault.line != rows[i].line || fault.column != rows[i].column)
            fail_msg("%s: %u:%u", rows[i].text, fault.line, fault.column);
    }
}

static void a_body_of_many_values_is_refused_and_one_of_long_texts_is_not(void **state)
{
    (void)state;
    enum { N = 400000 };
    char *text = malloc(N + 100);
    struct document d;
    struct json_fault fault;
    size_t n = (size_t)snprintf(text, 100, "{\"egress\":[0");
    while (n < N) {
        text[n++] = ',';
        text[n++] = '0';
    }
    n += (size_t)snprintf(text + n, 100, "]}");
    assert_false(document_parse((struct str){text, n}, &d, &fault));
    assert_string_equal(fault.text, "too many values");
    n = (size_t)snprintf(text, 100, "{\"egress\":[{\"target\":\"\\\"\\\\");
    while (n < N)
        text[n++] = ',';
    n += (size_t)snprintf(text + n, 100, "\"}]}");
    assert_true(document_parse((struct str){text, n}, &d, &fault));
    assert_true(d.rules->at[0].target.inert);
    document_done(&d);
    free(text);
}

static void a_document_is_shown_and_written_as_it_was_given(void **state)
{
    (void)state;
    struct json_out o;
    struct document d = document_of("{\"defaultAction\":\"ALLOW\",\"egress\":[{\"action\":\"Deny\","
                                    "\"target\":\" *.Evil.test \"},{\"target\":\"a\\\"{\\\\}[,:\"},"
                                    "{\"target\":\"bücher.example\",\"action\":\"allow\"}]}");
    shown_is(&d,
             "{\"egress\":[{\"action\":\"deny\",\"target\":\"*.Evil.test\"},"
             "{\"action\":\"deny\",\"target\":\"a\\\"{\\\\}[,:\"},"
             "{\"action\":\"allow\",\"target\":\"bücher.example\"}],\"defaultAction\":\"allow\"}");
    json_out_init(&o);
    document_put_file(&o, &d);
    static const char file[] = "{\n  \"egress\": [\n    {\n      \"action\": \"deny\",\n"
                               "      \"target\": \"*.Evil.test\"\n    },\n    {\n"
                               "      \"action\": \"deny\",\n      \"target\": \"a\\\"{\\\\}[,:\"\n"
                               "    },\n    {\n      \"action\": \"allow\",\n"
                               "      \"target\": \"bücher.example\"\n    }\n  ],\n"
                               "  \"defaultAction\": \"allow\"\n}\n";
    if (!str_eq((struct str){o.p, o.n}, STR(file)))
        fail_msg("%.*s", (int)o.n, o.p);
    struct json_fault fault;
    struct document again;
    assert_true(document_parse((struct str){o.p, o.n}, &again, &fault));
    assert_true(rules_same(d.rules, again.rules) && again.allow);
    json_out_done(&o);
    document_done(&again);
    document_done(&d);
}

static void the_file_of_an_empty_policy_has_an_array(void **state)
{
    (void)state;
    struct json_out o;
    struct document d = document_deny();
    json_out_init(&o);
    document_put_file(&o, &d);
    assert_true(str_eq((struct str){o.p, o.n},
                       STR("{\n  \"egress\": [],\n  \"defaultAction\": \"deny\"\n}\n")));
    json_out_done(&o);
    document_done(&d);
}

static void the_mode_is_that_of_the_users_policy(void **state)
{
    (void)state;
    static const struct {
        const char *text, *mode;
    } rows[] = {
        {"", "deny_all"},
        {"null", "deny_all"},
        {"{\"defaultAction\":\"allow\"}", "allow_all"},
        {"{\"egress\":[{\"target\":\"a\"}]}", "enforcing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct document d = document_of(rows[i].text);
        assert_string_equal(document_mode(&d), rows[i].mode);
        document_done(&d);
    }
}

/* ---- warnings */

static void warnings_are(const char *targets, bool enforced, const char *expected)
{
    struct arena a;
    struct rules *rules = rules_new();
    struct str rest = str_of(targets), word;
    arena_init(&a, NULL, 0);
    while (rest.n && str_next(&rest, ' ', &word))
        assert_int_equal(rules_add(rules, true, word), TARGET_OK);
    struct str text = rules_warnings(rules, enforced, &a);
    if (!str_eq(text, str_of(expected)))
        fail_msg("got: %.*s", STR_ARG(text));
    rules_unref(rules);
    arena_done(&a);
}

static void warnings_name_what_a_person_should_know(void **state)
{
    (void)state;
    warnings_are("a.test *.example.com 10.0.0.1", true, "");
    warnings_are("*.com *.co.uk", true, "wildcards over a whole public suffix: *.com, *.co.uk");
    warnings_are("*.test", true, "wildcards over a whole public suffix: *.test");
    warnings_are("* a.*.b .ok.test *.203.0.113.1 x:1 u/ **.t", true,
                 "targets that can never match: *, a.*.b, .ok.test, *.203.0.113.1, x:1 and 2 more");
    warnings_are("10.0.0.1 *.org ::/0 *", false,
                 "wildcards over a whole public suffix: *.org; targets that can never match: *; "
                 "address rules, not enforced in this mode: 10.0.0.1, ::/0");
}

static void a_long_target_is_named_cut_between_characters(void **state)
{
    (void)state;
    char target[400] = "", expected[400] = "targets that can never match: ";
    size_t n = strlen(expected);
    for (int i = 0; i < 50; i++)
        snprintf(target + 3 * i, 4, "*.a");
    memcpy(expected + n, target, 100);
    snprintf(expected + n + 100, 10, "...");
    warnings_are(target, true, expected);
}

/* ---- edits */

static void edit_is(enum edit_kind kind, const char *base, const char *body, unsigned max,
                    enum edit_result expected, const char *text)
{
    char got[EDIT_TEXT_BYTES] = "";
    struct document before = document_of(base), after;
    enum edit_result result = edit_apply(kind, &before, str_of(body), max, &after, got);
    if (result != expected)
        fail_msg("%s: %d %s", body, result, got);
    if (result == EDIT_DONE || result == EDIT_RESET) {
        shown_is(&after, text);
        document_done(&after);
    } else {
        assert_string_equal(got, text);
    }
    document_done(&before);
}

#define RULE(action, target) "{\"action\":\"" action "\",\"target\":\"" target "\"}"
#define POLICY(rules, action) "{\"egress\":[" rules "],\"defaultAction\":\"" action "\"}"

static void patched_rules_go_first_and_replace_their_like(void **state)
{
    (void)state;
    edit_is(EDIT_PATCH,
            POLICY(RULE("deny", "B.test.") "," RULE("allow", "b.test") "," RULE("deny", "c.test"),
                   "allow"),
            "[" RULE("allow", "a.test") "," RULE("deny", "A.TEST") "," RULE("allow", "C.test") "]",
            0, EDIT_DONE,
            POLICY(RULE("allow", "a.test") "," RULE("allow", "C.test") "," RULE("deny", "B.test."),
                   "allow"));
}

static void addresses_are_the_same_by_text_and_names_by_meaning(void **state)
{
    (void)state;
    edit_is(EDIT_DELETE,
            POLICY(RULE("deny", "2001:DB8::1") "," RULE("deny", "2001:db8:0::1") "," RULE(
                       "deny", "１２７.0.0.1") "," RULE("deny", "Bücher.test"),
                   "deny"),
            "[\"2001:db8::1\",\"127.0.0.1\",\"XN--bcher-kva.test.\"]", 0, EDIT_DONE,
            POLICY(RULE("deny", "2001:db8:0::1") "," RULE("deny", "１２７.0.0.1"), "deny"));
}

static void what_names_nothing_deletes_nothing(void **state)
{
    (void)state;
    edit_is(EDIT_DELETE, POLICY(RULE("deny", "a.test"), "deny"),
            "[\"\",\" \",\"x\",\"a\\u0001\",\"\u0378\",\"*.a.test\"]", 0, EDIT_NOTHING, "");
    edit_is(EDIT_DELETE, "", "[\"x\"]", 0, EDIT_NOTHING, "");
}

static void refusals_begin_as_the_contract_says(void **state)
{
    static const struct {
        enum edit_kind kind;
        const char *body, *text;
        enum edit_result result;
    } rows[] = {
        {EDIT_REPLACE, "x", "invalid policy: expected a value", EDIT_WRONG},
        {EDIT_REPLACE, "{\"egress\":[" RULE("foo", "a") "]}",
         "invalid policy: unsupported action \"foo\"", EDIT_WRONG},
        {EDIT_REPLACE, "{\"egress\":[" RULE("deny", "b") "," RULE("deny", "c") "]}",
         "egress rule total count 2 exceeds limit 1", EDIT_TOO_MANY},
        {EDIT_PATCH, " \n", "empty body", EDIT_WRONG},
        {EDIT_DELETE, "", "empty body", EDIT_WRONG},
        {EDIT_PATCH, "null", "invalid patch rules: empty array", EDIT_WRONG},
        {EDIT_DELETE, " [ ] ", "invalid delete targets: empty array", EDIT_WRONG},
        {EDIT_PATCH, "{}", "invalid patch rules: the list of rules must be an array, not object",
         EDIT_WRONG},
        {EDIT_PATCH, "[" RULE("foo", "a") ",1]",
         "invalid patch rules: a rule must be an object, not number", EDIT_WRONG},
        {EDIT_PATCH, "[" RULE("foo", "a") "]", "invalid merged policy: unsupported action \"foo\"",
         EDIT_WRONG},
        {EDIT_PATCH, "[" RULE("deny", "") "]",
         "invalid merged policy: egress target cannot be empty", EDIT_WRONG},
        {EDIT_PATCH, "[" RULE("deny", "b") "]", "egress rule total count 2 exceeds limit 1",
         EDIT_TOO_MANY},
        {EDIT_DELETE, "\"a\"", "invalid delete targets: not an array but string", EDIT_WRONG},
        {EDIT_DELETE, "[\"a\",1]", "invalid delete targets: not a string but number", EDIT_WRONG},
        {EDIT_DELETE, "[\"a\",]", "invalid delete targets: expected a value", EDIT_WRONG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        edit_is(rows[i].kind, POLICY(RULE("deny", "a"), "deny"), rows[i].body, 1, rows[i].result,
                rows[i].text);
}

static void blank_resets_and_deletion_knows_no_limit(void **state)
{
    (void)state;
    edit_is(EDIT_REPLACE, POLICY(RULE("deny", "a"), "allow"), "\r\n\t ", 1, EDIT_RESET,
            POLICY("", "deny"));
    edit_is(EDIT_REPLACE, POLICY(RULE("deny", "a"), "allow"), "null", 1, EDIT_DONE,
            POLICY("", "deny"));
    edit_is(EDIT_DELETE,
            POLICY(RULE("deny", "a") "," RULE("deny", "b") "," RULE("deny", "c"), "allow"),
            "[\"b\"]", 1, EDIT_DONE, POLICY(RULE("deny", "a") "," RULE("deny", "c"), "allow"));
}

/* ---- rule files */

static void file_error_is(enum rulefile file, struct str text, const char *expected)
{
    char error[RULEFILE_ERROR_BYTES];
    const struct rules *rules;
    if (rulefile_parse(file, "/r/deny.always", text, &rules, error))
        fail_msg("taken: %.*s", STR_ARG(text));
    assert_string_equal(error, expected);
}

static void rule_files_name_the_wrong_line(void **state)
{
    (void)state;
    file_error_is(RULEFILE_DENY, STR("# x\r\n\r\na.test\r\nb\001.test\r\n"),
                  "/r/deny.always line 4: \"b\\u0001.test\" holds a control character");
    file_error_is(RULEFILE_ALLOW, STR("\u0378.test"),
                  "/r/deny.always line 1: \"\u0378.test\" has no form in A-labels");
    file_error_is(RULEFILE_ALLOW, STR("a\n\xff.test"),
                  "/r/deny.always line 2: \"\\ufffd.test\" has no form in A-labels");
    file_error_is(RULEFILE_LOG_SKIP, STR("a.test\n10.0.0.0/8\n"),
                  "/r/deny.always line 2: \"10.0.0.0/8\" is not a domain pattern; only host/domain "
                  "entries are supported");
}

static void a_line_is_at_most_64_kib(void **state)
{
    (void)state;
    char *text = malloc(RULEFILE_LINE_BYTES + 2), error[RULEFILE_ERROR_BYTES];
    const struct rules *rules;
    memset(text, 'a', RULEFILE_LINE_BYTES + 2);
    assert_true(
        rulefile_parse(RULEFILE_DENY, "f", (struct str){text, RULEFILE_LINE_BYTES}, &rules, error));
    rules_unref(rules);
    file_error_is(RULEFILE_DENY, (struct str){text, RULEFILE_LINE_BYTES + 1},
                  "/r/deny.always line 1: longer than 64 KiB");
    free(text);
}

static void lists_are_the_same_in_any_order(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"a.test\nb.test", "b.test\n\n# c\na.test\n", true},
        {"a.test\na.test\nb.test", "b.test\na.test", true},
        {"A.test.", "a.test", true},
        {"a.test", "*.a.test", false},
        {"a.test", "", false},
        {"", "", true},
        {"10.0.0.1", "10.0.0.1/32", false},
    };
    char error[RULEFILE_ERROR_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct rules *a, *b;
        assert_true(rulefile_parse(RULEFILE_DENY, "f", str_of(rows[i].a), &a, error));
        assert_true(rulefile_parse(RULEFILE_DENY, "f", str_of(rows[i].b), &b, error));
        assert_int_equal(rules_same(a, b), rows[i].same);
        assert_int_equal(rules_same(a, NULL), a->n == 0);
        rules_unref(a);
        rules_unref(b);
    }
}

static void a_rule_files_names_are_an_index(void **state)
{
    (void)state;
    char error[RULEFILE_ERROR_BYTES];
    const struct rules *rules;
    assert_true(
        rulefile_parse(RULEFILE_DENY, "f", STR("10.0.0.1\n*\n*.b.test\na.test"), &rules, error));
    struct patterns *names = rulefile_patterns(rules);
    assert_int_equal(patterns_first(names, STR("x.B.test.")), 2);
    assert_int_equal(patterns_first(names, STR("a.test")), 3);
    assert_int_equal(patterns_first(names, STR("10.0.0.1")), PATTERNS_NONE);
    patterns_free(names);
    rules_unref(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_say_what_and_where),
        cmocka_unit_test(a_body_of_many_values_is_refused_and_one_of_long_texts_is_not),
        cmocka_unit_test(a_document_is_shown_and_written_as_it_was_given),
        cmocka_unit_test(the_file_of_an_empty_policy_has_an_array),
        cmocka_unit_test(the_mode_is_that_of_the_users_policy),
        cmocka_unit_test(warnings_name_what_a_person_should_know),
        cmocka_unit_test(a_long_target_is_named_cut_between_characters),
        cmocka_unit_test(patched_rules_go_first_and_replace_their_like),
        cmocka_unit_test(addresses_are_the_same_by_text_and_names_by_meaning),
        cmocka_unit_test(what_names_nothing_deletes_nothing),
        cmocka_unit_test(refusals_begin_as_the_contract_says),
        cmocka_unit_test(blank_resets_and_deletion_knows_no_limit),
        cmocka_unit_test(rule_files_name_the_wrong_line),
        cmocka_unit_test(a_line_is_at_most_64_kib),
        cmocka_unit_test(lists_are_the_same_in_any_order),
        cmocka_unit_test(a_rule_files_names_are_an_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
