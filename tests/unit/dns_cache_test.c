/* dns_cache_test.c — what is kept, how long, and what goes first. */
#include "dns/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct dns_name name_of(const char *text)
{
    struct dns_name name;
    assert_true(dns_name_parse(str_of(text), &name));
    return name;
}

static void put(struct dns_cache *c, const char *name, uint16_t type, const char *value,
                uint64_t ttl, uint64_t now)
{
    struct dns_name n = name_of(name);
    dns_cache_put(c, &n, type, str_of(value), ttl, now);
}

/* want NULL: nothing is there. */
static void expect(struct dns_cache *c, const char *name, uint16_t type, uint64_t now,
                   const char *want, bool want_fresh)
{
    struct dns_name n = name_of(name);
    struct str value;
    bool fresh;
    if (!dns_cache_get(c, &n, type, now, &value, &fresh)) {
        if (want)
            fail_msg("%s at %llu: nothing, not %s", name, (unsigned long long)now, want);
        return;
    }
    if (!want)
        fail_msg("%s at %llu: %.*s, not nothing", name, (unsigned long long)now, STR_ARG(value));
    assert_true(str_eq(value, str_of(want)));
    assert_int_equal(fresh, want_fresh);
}

static void an_answer_is_fresh_until_its_ttl_then_stale_then_gone(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(8, 1000);
    put(c, "a.test", DNS_A, "one", 100, 5000);
    expect(c, "a.test", DNS_A, 5000, "one", true);
    expect(c, "a.test", DNS_A, 5099, "one", true);
    expect(c, "a.test", DNS_A, 5100, "one", false);
    expect(c, "a.test", DNS_A, 6099, "one", false);
    expect(c, "a.test", DNS_A, 6100, NULL, false);
    assert_int_equal(dns_cache_size(c), 0);
    dns_cache_free(c);
}

static void name_and_type_make_the_key_and_case_does_not_count(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(8, 0);
    put(c, "A.Test", DNS_A, "four", 100, 0);
    put(c, "a.test", DNS_AAAA, "six", 100, 0);
    put(c, "b.test", DNS_A, "other", 100, 0);
    expect(c, "a.tESt.", DNS_A, 1, "four", true);
    expect(c, "A.TEST", DNS_AAAA, 1, "six", true);
    expect(c, "b.test", DNS_A, 1, "other", true);
    expect(c, "b.test", DNS_AAAA, 1, NULL, false);
    expect(c, "test", DNS_A, 1, NULL, false);
    dns_cache_free(c);
}

static void a_new_answer_takes_the_place_of_the_old_one(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(8, 0);
    put(c, "a.test", DNS_A, "old and longer", 1000, 0);
    put(c, "a.TEST", DNS_A, "new", 10, 5);
    assert_int_equal(dns_cache_size(c), 1);
    expect(c, "a.test", DNS_A, 14, "new", true);
    expect(c, "a.test", DNS_A, 15, NULL, false);
    put(c, "a.test", DNS_A, "", 10, 20);
    expect(c, "a.test", DNS_A, 21, "", true);
    dns_cache_free(c);
}

static void when_full_the_one_asked_for_longest_ago_goes(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(3, 0);
    put(c, "a.test", DNS_A, "a", 1000, 0);
    put(c, "b.test", DNS_A, "b", 1000, 0);
    put(c, "c.test", DNS_A, "c", 1000, 0);
    expect(c, "a.test", DNS_A, 1, "a", true);
    put(c, "d.test", DNS_A, "d", 1000, 1);
    assert_int_equal(dns_cache_size(c), 3);
    expect(c, "b.test", DNS_A, 2, NULL, false);
    expect(c, "a.test", DNS_A, 2, "a", true);
    expect(c, "c.test", DNS_A, 2, "c", true);
    expect(c, "d.test", DNS_A, 2, "d", true);
    put(c, "d.test", DNS_A, "D", 1000, 2); /* replacing needs no room */
    expect(c, "a.test", DNS_A, 3, "a", true);
    dns_cache_free(c);
}

static void the_number_of_answers_is_bounded(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(64, 1000);
    char name[32];
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "n%u.test", i);
        put(c, name, DNS_A, "x", 1000, 0);
        assert_true(dns_cache_size(c) <= 64);
    }
    expect(c, "n4999.test", DNS_A, 0, "x", true);
    expect(c, "n4935.test", DNS_A, 0, NULL, false);
    dns_cache_free(c);
}

static void a_stale_answer_can_be_extended_but_is_not_kept_longer(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(8, 1000);
    struct dns_name n = name_of("a.test"), none = name_of("none.test");
    put(c, "a.test", DNS_A, "a", 100, 0);
    dns_cache_extend(c, &n, DNS_A, 5000, 50); /* fresh: its TTL rules */
    expect(c, "a.test", DNS_A, 100, "a", false);
    dns_cache_extend(c, &n, DNS_A, 200, 100);
    expect(c, "a.test", DNS_A, 299, "a", true);
    expect(c, "a.test", DNS_A, 300, "a", false);
    dns_cache_extend(c, &n, DNS_A, 5000, 1000);
    expect(c, "a.test", DNS_A, 1099, "a", true);
    expect(c, "a.test", DNS_A, 1100, NULL, false);
    dns_cache_extend(c, &none, DNS_A, 5000, 0);
    expect(c, "none.test", DNS_A, 0, NULL, false);
    dns_cache_free(c);
}

static void an_answer_without_ttl_is_stale_from_the_start(void **state)
{
    (void)state;
    struct dns_cache *c = dns_cache_new(8, 1000);
    put(c, "a.test", DNS_A, "a", 0, 7);
    expect(c, "a.test", DNS_A, 7, "a", false);
    dns_cache_clear(c);
    expect(c, "a.test", DNS_A, 7, NULL, false);
    assert_int_equal(dns_cache_size(c), 0);
    dns_cache_free(c);
    dns_cache_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_fresh_until_its_ttl_then_stale_then_gone),
        cmocka_unit_test(name_and_type_make_the_key_and_case_does_not_count),
        cmocka_unit_test(a_new_answer_takes_the_place_of_the_old_one),
        cmocka_unit_test(when_full_the_one_asked_for_longest_ago_goes),
        cmocka_unit_test(the_number_of_answers_is_bounded),
        cmocka_unit_test(a_stale_answer_can_be_extended_but_is_not_kept_longer),
        cmocka_unit_test(an_answer_without_ttl_is_stale_from_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
