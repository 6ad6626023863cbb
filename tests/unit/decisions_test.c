/* decisions_test.c — the decision log counts, orders, forgets, and is bounded. */
#include "egress/events/decisions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void note(struct decisions *d, const char *name, bool allow)
{
    struct decision one = {
        .kind = DECISION_DNS, .name = str_of(name), .rule = STR("default"), .allow = allow};
    decisions_note(d, &one, 1700000000000 + decisions_last(d));
}

/* Names and counts behind `since`, "a.test*2 …". */
static void is_list(const struct decisions *d, uint64_t since, const char *expected)
{
    char got[512] = "";
    struct json_out o;
    struct json_fault fault;
    json_out_init(&o);
    decisions_put(d, since, &o);
    struct json_doc *doc = json_parse((struct str){o.p, o.n}, 0, 8, &fault);
    assert_non_null(doc);
    const struct json *list = json_member(json_root(doc), STR("entries"));
    for (const struct json *v = json_first(list); v; v = json_next(v)) {
        int64_t count;
        struct str name = json_string(json_member(v, STR("name")));
        assert_true(json_int(doc, json_member(v, STR("count")), &count));
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s%.*s*%d", n ? " " : "", STR_ARG(name), (int)count);
    }
    assert_string_equal(got, expected);
    json_free(doc);
    json_out_done(&o);
}

static void a_repeated_decision_counts_and_moves_to_the_end(void **state)
{
    struct decisions *d = decisions_new();
    (void)state;
    is_list(d, 0, "");
    note(d, "a.test", true);
    note(d, "b.test", false);
    note(d, "a.test", true);
    is_list(d, 0, "b.test*1 a.test*2");
    is_list(d, 2, "a.test*2");
    is_list(d, 3, "");
    note(d, "a.test", false); /* another verdict is another decision */
    is_list(d, 3, "a.test*1");
    decisions_free(d);
}

static void an_id_of_an_earlier_process_shows_all(void **state)
{
    struct decisions *d = decisions_new();
    (void)state;
    note(d, "a.test", true);
    is_list(d, 5000, "a.test*1");
    decisions_free(d);
}

static void the_oldest_makes_room(void **state)
{
    struct decisions *d = decisions_new();
    char name[32];
    (void)state;
    note(d, "kept.test", true);
    for (int i = 0; i < DECISIONS_MAX; i++) {
        snprintf(name, sizeof name, "h%d.test", i);
        note(d, name, false);
        note(d, "kept.test", true);
    }
    is_list(d, decisions_last(d) - 2, "h999.test*1 kept.test*1001");
    struct json_out o;
    json_out_init(&o);
    decisions_put(d, 0, &o);
    unsigned n = 0;
    for (size_t i = 0; i + 7 < o.n; i++)
        n += memcmp(o.p + i, "\"count\"", 7) == 0;
    assert_int_equal(n, DECISIONS_MAX);
    json_out_done(&o);
    decisions_free(d);
}

static void members_that_do_not_apply_are_absent(void **state)
{
    struct decisions *d = decisions_new();
    struct json_out o;
    struct decision one = {.kind = DECISION_PACKET,
                           .address = STR("192.0.2.1"),
                           .port = 853,
                           .proto = STR("tcp"),
                           .rule = STR("port853")};
    (void)state;
    decisions_note(d, &one, 0);
    json_out_init(&o);
    decisions_put(d, 0, &o);
    static const char expected[] =
        "{\"entries\":[{\"id\":1,\"time\":\"1970-01-01T00:00:00.000Z\",\"kind\":\"packet\","
        "\"address\":\"192.0.2.1\",\"port\":853,\"proto\":\"tcp\",\"verdict\":\"deny\","
        "\"rule\":\"port853\",\"count\":1}],\"next\":1}";
    assert_int_equal(o.n, sizeof expected - 1);
    assert_memory_equal(o.p, expected, o.n);
    json_out_done(&o);
    decisions_free(d);
}

static void texts_of_any_length_and_kind_are_taken(void **state)
{
    struct decisions *d = decisions_new();
    struct json_fault fault;
    struct json_out o;
    char name[2000];
    (void)state;
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = (char)(i % 255 + 1); /* our reader takes no zero bytes */
    struct str all = {name, sizeof name};
    struct decision one = {DECISION_REQUEST, all, all, 65535, all, all, true};
    decisions_note(d, &one, UINT64_MAX);
    decisions_note(d, &one, UINT64_MAX);
    json_out_init(&o);
    decisions_put(d, 0, &o);
    struct json_doc *doc = json_parse((struct str){o.p, o.n}, 0, 8, &fault);
    assert_non_null(doc);
    assert_int_equal(decisions_last(d), 2);
    json_free(doc);
    json_out_done(&o);
    decisions_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_decision_counts_and_moves_to_the_end),
        cmocka_unit_test(an_id_of_an_earlier_process_shows_all),
        cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(members_that_do_not_apply_are_absent),
        cmocka_unit_test(texts_of_any_length_and_kind_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
