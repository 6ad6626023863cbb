/* names_through_test.c — names that are asked of another source: what reaches it, what becomes of
 * its answers, and who hears nothing any more. */
#include "net/resolve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <poll.h>

#include "harness/name_list.h"

struct outcome {
    bool told;
    enum why why;
    unsigned n;
    struct ip first;
};

struct rig {
    struct name_list list;
    struct names *names;
};

static void rig_init(struct rig *r)
{
    *r = (struct rig){.list = {.w = worker_new(0), .name = "a.test", .ip = "192.0.2.1"}};
    r->names = name_list_names(&r->list);
}

static void rig_done(struct rig *r)
{
    names_free(r->names);
    worker_free(r->list.w);
}

static void turns(struct rig *r, const bool *told)
{
    for (int i = 0; i < 20000 && !*told; i++) {
        worker_turn(r->list.w);
        poll(NULL, 0, 1);
    }
    assert_true(*told);
}

static void on_done(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct outcome *o = user;
    assert_false(o->told);
    *o = (struct outcome){.told = true, .why = why, .n = n};
    if (n > 0)
        o->first = ips[0];
}

static void only_clean_names_reach_the_source(void **state)
{
    static const struct {
        const char *host, *asked;
        enum why why;
        const char *ip;
    } rows[] = {
        {"a.test", "a.test ", WHY_OK, "192.0.2.1"},
        {"A.Test", "a.test ", WHY_OK, "192.0.2.1"},
        {"b.test", "b.test ", WHY_DNS, NULL},
        {"192.0.2.9", "", WHY_OK, "192.0.2.9"},
        {"::1", "", WHY_OK, "::1"},
        {"[2001:db8::1]", "", WHY_OK, "2001:db8::1"},
        {"127.1", "", WHY_DNS, NULL},
        {"0x7f.1", "", WHY_DNS, NULL},
        {"a test", "", WHY_DNS, NULL},
        {"", "", WHY_DNS, NULL},
        {"a..test", "", WHY_DNS, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct outcome o = {0};
        struct ip ip;
        rig_init(&r);
        resolve_start(r.names, str_of(rows[i].host), 60000, on_done, &o);
        assert_false(o.told);
        turns(&r, &o.told);
        assert_string_equal(r.list.asked, rows[i].asked);
        assert_int_equal(o.why, rows[i].why);
        assert_int_equal(o.n, rows[i].ip ? 1 : 0);
        if (rows[i].ip)
            assert_true(ip_parse(str_of(rows[i].ip), &ip) && ip_eq(&ip, &o.first));
        rig_done(&r);
    }
}

static void each_question_is_asked_anew(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    for (int i = 0; i < 2; i++) {
        struct outcome o = {0};
        resolve_start(r.names, STR("a.test"), 60000, on_done, &o);
        turns(&r, &o.told);
    }
    assert_string_equal(r.list.asked, "a.test a.test ");
    rig_done(&r);
}

static void who_cancels_takes_his_question_back(void **state)
{
    struct rig r;
    struct outcome o = {0}, other = {0};
    (void)state;
    rig_init(&r);
    struct resolve *q = resolve_start(r.names, STR("a.test"), 60000, on_done, &o);
    resolve_start(r.names, STR("a.test"), 60000, on_done, &other);
    resolve_cancel(q);
    assert_int_equal(r.list.cancelled, 1);
    turns(&r, &other.told);
    assert_false(o.told);
    rig_done(&r);
}

static void at_the_end_nobody_hears_anything(void **state)
{
    struct rig r;
    struct outcome o = {0}, literal = {0};
    (void)state;
    rig_init(&r);
    r.list.silent = true;
    resolve_start(r.names, STR("a.test"), 60000, on_done, &o);
    resolve_start(r.names, STR("192.0.2.1"), 60000, on_done, &literal);
    rig_done(&r);
    assert_int_equal(r.list.cancelled, 1);
    assert_int_equal(r.list.waiting, 0);
    assert_false(o.told || literal.told);
}

static void what_others_take_for_an_address_is_no_name(void **state)
{
    static const char *const good[] = {"a",        "a.test", "a.test.",
                                       "A_b-c.1x", "1.test", "xn--a.test"};
    static const char *const bad[] = {"",       ".",     "a..b", "1",      "127.0.0.1", "1.2.3.4.",
                                      "0x7f.1", "a.0x1", "a b",  "a.te%t", "a/b",       "::1",
                                      "[::1]",  "a:80",  "u@a",  "*.a",    "a\n"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!resolve_can_ask(str_of(good[i])))
            fail_msg("not asked for: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (resolve_can_ask(str_of(bad[i])))
            fail_msg("asked for: %s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_clean_names_reach_the_source),
        cmocka_unit_test(each_question_is_asked_anew),
        cmocka_unit_test(who_cancels_takes_his_question_back),
        cmocka_unit_test(at_the_end_nobody_hears_anything),
        cmocka_unit_test(what_others_take_for_an_address_is_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
