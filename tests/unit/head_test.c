/* head_test.c — fields of a head. */
#include "http/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct field fields[] = {
    {{"Host", 4}, {"gw", 2}},          {{"x-a", 3}, {"1", 1}}, {{"X-B", 3}, {"", 0}},
    {{"X-A", 3}, {"b , Upgrade", 11}}, {{"y-a", 3}, {"3", 1}}, {{"X-AA", 4}, {"4", 1}},
};
static const struct http_head head = {.fields = fields, .nfields = 6};

static void a_field_is_found_by_name_without_case(void **state)
{
    (void)state;
    assert_true(str_eq(*head_get(&head, STR("X-a")), STR("1")));
    assert_true(str_eq(*head_get(&head, STR("HOST")), STR("gw")));
    assert_null(head_get(&head, STR("X-C")));
    assert_null(head_get(&head, STR("X-")));
}

static void a_present_but_empty_field_is_not_absent(void **state)
{
    (void)state;
    assert_non_null(head_get(&head, STR("x-b")));
    assert_int_equal(head_get(&head, STR("x-b"))->n, 0);
}

static void repeated_fields_come_in_order(void **state)
{
    (void)state;
    const struct field *f = head_next(&head, STR("X-A"), NULL);
    assert_ptr_equal(f, &fields[1]);
    f = head_next(&head, STR("X-A"), f);
    assert_ptr_equal(f, &fields[3]);
    assert_null(head_next(&head, STR("X-A"), f));
    assert_null(head_next(&(struct http_head){0}, STR("X-A"), NULL));
}

static void tokens_are_whole_words_of_any_line(void **state)
{
    (void)state;
    assert_true(head_has_token(&head, STR("x-a"), STR("upgrade")));
    assert_true(head_has_token(&head, STR("x-a"), STR("1")));
    assert_false(head_has_token(&head, STR("x-a"), STR("up")));
    assert_false(head_has_token(&head, STR("x-c"), STR("up")));
    assert_true(token_list_has(STR(",,\tClose ,x"), STR("close")));
    assert_false(token_list_has(STR("closed, un close"), STR("close")));
    assert_false(token_list_has(STR(""), STR("close")));
}

static void a_copy_has_room_and_leaves_the_original_alone(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct http_head *copy = head_copy(&head, 2, &a);
    head_add(copy, STR("Z"), STR("9"));
    head_add(copy, STR("Z"), STR("10"));
    assert_int_equal(copy->nfields, 8);
    assert_int_equal(head.nfields, 6);
    assert_true(str_eq(copy->fields[7].value, STR("10")));
    assert_true(str_eq(*head_get(copy, STR("host")), STR("gw")));
    struct http_head *empty = head_copy(&(struct http_head){0}, 1, &a);
    head_add(empty, STR("A"), STR(""));
    assert_int_equal(empty->nfields, 1);
    arena_done(&a);
}

static void known_statuses_have_their_phrase_and_others_none(void **state)
{
    (void)state;
    assert_true(str_eq(head_reason(404), STR("Not Found")));
    assert_true(str_eq(head_reason(101), STR("Switching Protocols")));
    assert_true(str_eq(head_reason(504), STR("Gateway Timeout")));
    assert_int_equal(head_reason(299).n, 0);
    assert_int_equal(head_reason(0).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_is_found_by_name_without_case),
        cmocka_unit_test(a_present_but_empty_field_is_not_absent),
        cmocka_unit_test(repeated_fields_come_in_order),
        cmocka_unit_test(tokens_are_whole_words_of_any_line),
        cmocka_unit_test(a_copy_has_room_and_leaves_the_original_alone),
        cmocka_unit_test(known_statuses_have_their_phrase_and_others_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
