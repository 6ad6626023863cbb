/* passlist_test.c — hosts that are never opened (contract egress-vault 7, 15). */
#include "egress/intercept/passlist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { MAX_PATTERNS = 4 };

struct told {
    unsigned n;
    struct str pattern;
    bool has_why;
};

static void on_warning(void *user, struct str pattern, struct str why)
{
    struct told *t = user;
    t->n++;
    t->pattern = pattern;
    t->has_why = why.n > 0;
}

static struct passlist *list_of(const char *const *patterns, struct told *t)
{
    struct str at[MAX_PATTERNS];
    unsigned n = 0;
    for (; n < MAX_PATTERNS && patterns[n]; n++)
        at[n] = str_of(patterns[n]);
    *t = (struct told){.n = 0};
    return passlist_new(at, n, on_warning, t);
}

static void a_connection_is_passed_by_name_name_and_port_or_address_and_port(void **state)
{
    (void)state;
    static const struct {
        const char *patterns[MAX_PATTERNS], *sni, *to;
        uint16_t port;
        bool passes;
    } rows[] = {
        {{0}, "a.test", "10.0.0.1", 443, false},
        {{"a\\.test"}, "a.test", "10.0.0.1", 443, true},
        {{"a\\.test"}, "xa.test.evil", "10.0.0.1", 443, true}, /* searched, not anchored */
        {{"^a\\.test$"}, "xa.test", "10.0.0.1", 443, false},
        {{"^a\\.test$"}, "a.test", "10.0.0.1", 443, true},
        {{"^a\\.test:443$"}, "a.test", "10.0.0.1", 443, true},
        {{"^a\\.test:443$"}, "a.test", "10.0.0.1", 8443, false},
        {{"a\\.test"}, "A.test", "10.0.0.1", 443, false}, /* case counts */
        {{"(?i)a\\.test"}, "A.test", "10.0.0.1", 443, true},
        {{"^10\\.0\\.0\\.1:443$"}, "a.test", "10.0.0.1", 443, true},
        {{"^10\\.0\\.0\\.1:443$"}, NULL, "10.0.0.1", 443, true},
        {{"^10\\.0\\.0\\.1$"}, NULL, "10.0.0.1", 443, false}, /* never the bare address */
        {{"^$"}, NULL, "10.0.0.1", 443, false},
        {{"^2001:db8::1:443$"}, NULL, "2001:db8::1", 443, true},
        {{"^\\[2001:db8::1\\]:443$"}, NULL, "2001:db8::1", 443, true},
        {{"^\\[10"}, NULL, "10.0.0.1", 443, false},
        {{"x", "(?P<name>b)\\.test$"}, "b.test", "10.0.0.1", 443, true},
        {{"^(a)(b)(c)\\.test$"}, "abc.test", "10.0.0.1", 443, true},
        {{"(?!a)b\\.test"}, "b.test", "10.0.0.1", 443, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct told t;
        struct ip to;
        struct passlist *p = list_of(rows[i].patterns, &t);
        assert_true(ip_parse(str_of(rows[i].to), &to));
        assert_int_equal(t.n, 0);
        if (passlist_passes(p, str_of(rows[i].sni), &to, rows[i].port) != rows[i].passes)
            fail_msg("row %zu", i);
        passlist_free(p);
    }
}

static void a_bindings_host_is_covered_by_itself_or_as_a_wildcard(void **state)
{
    (void)state;
    static const struct {
        const char *patterns[MAX_PATTERNS], *host;
        bool covers;
    } rows[] = {
        {{0}, "a.test", false},
        {{"a\\.test"}, "a.test", true},
        {{"^b\\."}, "a.test", false},
        {{"^\\*\\.apps"}, "*.apps.test", true},
        {{"^probe\\.apps\\.test$"}, "*.apps.test", true},
        {{"^probe\\.apps\\.test$"}, "apps.test", false},
        {{"^x\\.apps\\.test$"}, "*.apps.test", false},
        {{"a\\.test:443"}, "a.test", false},
        {{"A"}, "a.test", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct told t;
        struct passlist *p = list_of(rows[i].patterns, &t);
        if (passlist_covers(p, str_of(rows[i].host)) != rows[i].covers)
            fail_msg("row %zu", i);
        passlist_free(p);
    }
}

static void one_that_does_not_compile_is_told_and_left_out(void **state)
{
    (void)state;
    static const char *const broken[] = {"([", "*.test", "a(?P<", "\\C", "a{2,1}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct told t;
        const char *const both[MAX_PATTERNS] = {broken[i], "^b\\.test$"};
        struct passlist *p = list_of(both, &t);
        assert_int_equal(t.n, 1);
        assert_true(str_eq(t.pattern, str_of(broken[i])));
        assert_true(t.has_why);
        assert_false(passlist_is_empty(p));
        assert_true(passlist_covers(p, STR("b.test")));
        assert_false(passlist_covers(p, STR("c.test")));
        passlist_free(p);
        const char *const alone[MAX_PATTERNS] = {broken[i]};
        p = list_of(alone, &t);
        assert_true(passlist_is_empty(p));
        assert_false(passlist_covers(p, STR("b.test")));
        passlist_free(p);
    }
    passlist_free(NULL);
}

/* The workload chooses the text: 2^250 ways to fail must not be tried. */
static void a_search_that_takes_too_long_has_found_nothing(void **state)
{
    (void)state;
    struct told t;
    struct ip to;
    char name[250];
    const char *const slow[MAX_PATTERNS] = {"^(a+)+$", "b$"};
    struct passlist *p = list_of(slow, &t);
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '!';
    assert_true(ip_parse(STR("10.0.0.1"), &to));
    assert_false(passlist_passes(p, (struct str){name, sizeof name}, &to, 443));
    name[sizeof name - 1] = 'b';
    assert_true(passlist_passes(p, (struct str){name, sizeof name}, &to, 443));
    passlist_free(p);
}

static void a_name_of_any_length_is_no_danger(void **state)
{
    (void)state;
    struct told t;
    struct ip to;
    char name[300];
    const char *const any[MAX_PATTERNS] = {"^a+:443$", "^\\*|^probe\\.a+$"};
    struct passlist *p = list_of(any, &t);
    memset(name, 'a', sizeof name);
    assert_true(ip_parse(STR("10.0.0.1"), &to));
    assert_true(passlist_passes(p, (struct str){name, 255}, &to, 65535) == false);
    assert_true(passlist_passes(p, (struct str){name, 255}, &to, 443));
    assert_false(passlist_passes(p, (struct str){name, sizeof name}, &to, 443));
    name[0] = '*', name[1] = '.';
    assert_true(passlist_covers(p, (struct str){name, sizeof name}));
    passlist_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_passed_by_name_name_and_port_or_address_and_port),
        cmocka_unit_test(a_bindings_host_is_covered_by_itself_or_as_a_wildcard),
        cmocka_unit_test(one_that_does_not_compile_is_told_and_left_out),
        cmocka_unit_test(a_search_that_takes_too_long_has_found_nothing),
        cmocka_unit_test(a_name_of_any_length_is_no_danger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
