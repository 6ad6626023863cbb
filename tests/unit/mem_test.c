/* mem_test.c — text slices and arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdalign.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/why.h"
#include "harness/copies.h"

/* What nobody else in this process says: the bytes with 0x55 over them. */
#define MASKED "\x3e\x30\x2c\x78\x3a\x33\x78\x38\x2c\x78\x33\x27\x3c\x30\x3b\x31"

static void assert_str(struct str s, const char *expected)
{
    assert_int_equal(s.n, strlen(expected));
    assert_memory_equal(s.p ? s.p : "", expected, s.n);
}

static void str_compares_with_and_without_case(void **state)
{
    (void)state;
    assert_true(str_eq(STR("Host"), STR("Host")));
    assert_false(str_eq(STR("Host"), STR("host")));
    assert_false(str_eq(STR("Host"), STR("Hos")));
    assert_true(str_eq(STR_NONE, STR("")));
    assert_true(str_ieq(STR("Host"), STR("hOST")));
    assert_false(str_ieq(STR("Host"), STR("Hosts")));
    assert_true(str_ieq(STR_NONE, STR("")));
    /* only ASCII letters: '@' and '`', '[' and '{' differ by 32 too */
    assert_false(str_ieq(STR("@["), STR("`{")));
}

static void str_knows_how_it_begins_and_ends(void **state)
{
    (void)state;
    assert_true(str_starts(STR("https://x"), STR("https://")));
    assert_false(str_starts(STR("HTTPS://x"), STR("https://")));
    assert_false(str_starts(STR("ht"), STR("https://")));
    assert_true(str_starts(STR("x"), STR("")));
    assert_true(str_istarts(STR("HTTPS://x"), STR("https://")));
    assert_false(str_istarts(STR("http"), STR("https")));
    assert_true(str_iends(STR("a.Example"), STR(".EXAMPLE")));
    assert_false(str_iends(STR("example"), STR(".example")));
    assert_true(str_iends(STR("x"), STR_NONE));
    assert_true(str_iends(STR_NONE, STR_NONE));
}

static void str_finds_first_and_last(void **state)
{
    (void)state;
    assert_int_equal(str_chr(STR("a-b-c"), '-'), 1);
    assert_int_equal(str_rchr(STR("a-b-c"), '-'), 3);
    assert_int_equal(str_chr(STR("abc"), '-'), -1);
    assert_int_equal(str_rchr(STR_NONE, '-'), -1);
    assert_int_equal(str_chr(STR_NONE, '-'), -1);
    assert_int_equal(str_chr((struct str){"abc", 2}, 'c'), -1);
}

static void str_trim_takes_blanks_and_tabs_only(void **state)
{
    (void)state;
    assert_str(str_trim(STR(" \t a b\t ")), "a b");
    assert_str(str_trim(STR(" \t ")), "");
    assert_str(str_trim(STR("\ra\n")), "\ra\n");
    assert_str(str_trim(STR_NONE), "");
}

static void str_next_yields_every_piece(void **state)
{
    (void)state;
    struct str rest = STR("a,,b"), piece;
    assert_true(str_next(&rest, ',', &piece));
    assert_str(piece, "a");
    assert_true(str_next(&rest, ',', &piece));
    assert_str(piece, "");
    assert_true(str_next(&rest, ',', &piece));
    assert_str(piece, "b");
    assert_null(rest.p);
    assert_false(str_next(&rest, ',', &piece));

    rest = STR("");
    assert_true(str_next(&rest, ',', &piece));
    assert_str(piece, "");
    assert_false(str_next(&rest, ',', &piece));

    rest = STR("a,");
    assert_true(str_next(&rest, ',', &piece));
    assert_true(str_next(&rest, ',', &piece));
    assert_str(piece, "");
    assert_false(str_next(&rest, ',', &piece));
}

static void str_put_copies_one_behind_the_other(void **state)
{
    char room[8] = "........", *at = room;
    (void)state;
    struct str ab = str_put(&at, STR("ab")), none = str_put(&at, STR_NONE);
    struct str c = str_put(&at, STR("c"));
    assert_true(str_eq(ab, STR("ab")) && ab.p == room && none.n == 0);
    assert_true(str_eq(c, STR("c")) && c.p == room + 2 && at == room + 3);
    assert_memory_equal(room, "abc.....", sizeof room);
}

static void str_cmp_orders_by_bytes_then_length(void **state)
{
    (void)state;
    assert_true(str_cmp(STR("a"), STR("b")) < 0);
    assert_true(str_cmp(STR("b"), STR("aa")) > 0);
    assert_true(str_cmp(STR("a"), STR("ab")) < 0);
    assert_true(str_cmp(STR("ab"), STR("a")) > 0);
    assert_true(str_cmp(STR("\xff"), STR("a")) > 0);
    assert_int_equal(str_cmp(STR("ab"), STR("ab")), 0);
    assert_int_equal(str_cmp(STR_NONE, STR("")), 0);
}

static void mem_new_is_zeroed_and_strdup_terminates(void **state)
{
    (void)state;
    unsigned char *p = mem_new(100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(p[i], 0);
    p = mem_renew(p, 200);
    p[199] = 1;
    mem_free(p);
    mem_free(NULL);
    mem_free(mem_new(0));
    char *z = mem_strdup((struct str){"abcdef", 3});
    assert_string_equal(z, "abc");
    mem_free(z);
    z = mem_strdup(STR_NONE);
    assert_string_equal(z, "");
    mem_free(z);
}

static void arena_uses_the_owners_block_first(void **state)
{
    (void)state;
    struct arena a;
    alignas(max_align_t) char first[256];
    arena_init(&a, first, sizeof first);
    char *p = arena_get(&a, 10), *q = arena_get(&a, 10);
    assert_ptr_equal(p, first);
    assert_ptr_equal(q, first + 16);
    assert_int_equal(a.extra, 0);
    char *large = arena_get(&a, 240);
    assert_true(large < first || large >= first + sizeof first);
    assert_true(a.extra >= 240);
    arena_done(&a);
}

static void arena_memory_is_aligned_and_apart(void **state)
{
    (void)state;
    struct arena a;
    char first[101];
    unsigned char *got[400];
    arena_init(&a, first + 1, sizeof first - 1);
    for (size_t i = 0; i < 400; i++) {
        got[i] = arena_get(&a, i);
        assert_int_equal((uintptr_t)got[i] % alignof(max_align_t), 0);
        memset(got[i], (int)(i & 0xff), i);
    }
    for (size_t i = 0; i < 400; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_equal(got[i][k], i & 0xff);
    arena_done(&a);
}

static void arena_blocks_double_up_to_64_kib(void **state)
{
    (void)state;
    struct arena a;
    size_t before = 0, last_block = 0;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < 3000; i++) {
        arena_get(&a, 128);
        if (a.extra == before)
            continue;
        size_t block = a.extra - before;
        assert_true(last_block == 0 || block == last_block * 2 || block == 65536);
        last_block = block;
        before = a.extra;
    }
    assert_int_equal(last_block, 65536);
    arena_done(&a);
}

static void arena_large_wish_leaves_the_current_block_in_use(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    arena_get(&a, 2000);
    arena_get(&a, 2000); /* two blocks, to be freed both */
    char *small = arena_get(&a, 16);
    size_t extra = a.extra;
    char *large = arena_get(&a, 1 << 20);
    memset(large, 'x', 1 << 20);
    assert_in_range(a.extra - extra, 1 << 20, (1 << 20) + 64);
    char *next = arena_get(&a, 16);
    assert_ptr_equal(next, small + 16);
    arena_done(&a);

    arena_init(&a, NULL, 0);
    memset(arena_get(&a, 1 << 20), 'x', 1 << 20);
    memset(arena_get(&a, 100), 'x', 100);
    arena_done(&a);
    assert_int_equal(a.extra, 0);
}

static void a_sealed_arena_gives_nothing_more_of_what_it_has(void **state)
{
    (void)state;
    char *first = mem_new(4000);
    struct arena a;
    arena_init(&a, first, 4000);
    memset(arena_get(&a, 100), 'x', 100);
    size_t used = arena_seal(&a);
    assert_in_range(used, 100, 120); /* the owner may give back the rest */
    mem_cut(first, used);
    assert_int_equal(first[99], 'x');
    char *second = arena_get(&a, 100);
    assert_true(a.extra > 0);
    memset(second, 'y', 100);
    size_t extra = a.extra;
    assert_int_equal(arena_seal(&a), used);
    assert_true(a.extra < extra);
    assert_int_equal(second[99], 'y');
    extra = a.extra;
    assert_int_equal(arena_seal(&a), used); /* nothing more to give */
    assert_int_equal(a.extra, extra);
    memset(arena_get(&a, 100000), 'z', 100000); /* a block of its own */
    assert_int_equal(arena_seal(&a), used);
    memset(arena_get(&a, 10), 'z', 10);
    arena_done(&a);
    mem_free(first);
    arena_init(&a, NULL, 0);
    assert_int_equal(arena_seal(&a), 0);
    memset(arena_get(&a, 100), 'x', 100);
    arena_done(&a);
}

static void arena_copies_joins_and_formats(void **state)
{
    (void)state;
    struct arena a;
    char first[64];
    arena_init(&a, first, sizeof first);
    assert_str(arena_str(&a, STR("abc")), "abc");
    assert_str(arena_str(&a, STR_NONE), "");
    assert_str(arena_cat(&a, STR("ab"), STR("cd")), "abcd");
    assert_str(arena_cat(&a, STR_NONE, STR("cd")), "cd");
    struct str s = arena_printf(&a, "%s-%d", "port", 80);
    assert_str(s, "port-80");
    assert_int_equal(s.p[s.n], '\0');
    unsigned char *zero = arena_zero(&a, 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(zero[i], 0);
    arena_done(&a);
}

static void arena_printf_grows_when_the_block_is_short(void **state)
{
    (void)state;
    struct arena a;
    char expected[400];
    memset(expected, 'y', sizeof expected - 1);
    expected[sizeof expected - 1] = '\0';
    for (size_t n = 0; n < sizeof expected - 1; n++) {
        char first[128];
        arena_init(&a, first, sizeof first);
        struct str s = arena_printf(&a, "%.*s", (int)n, expected);
        struct str t = arena_printf(&a, "%s", "next");
        assert_int_equal(s.n, n);
        assert_memory_equal(s.p, expected, n);
        assert_int_equal(s.p[n], '\0');
        assert_str(t, "next");
        arena_done(&a);
    }
    arena_init(&a, NULL, 0);
    assert_str(arena_printf(&a, "%s", "x"), "x");
    arena_done(&a);
}

static void list_keeps_order_and_forgets_safely(void **state)
{
    (void)state;
    struct item {
        int n;
        struct list link;
    } items[4];
    struct list head;
    list_init(&head);
    assert_null(list_pop(&head));
    for (int i = 0; i < 4; i++) {
        items[i].n = i;
        list_init(&items[i].link);
    }
    list_push(&head, &items[1].link);
    list_push(&head, &items[2].link);
    list_push_front(&head, &items[0].link);
    list_del(&items[3].link); /* in none */
    int expected = 0;
    list_each(it, &head)
    {
        assert_int_equal(container_of(it, struct item, link)->n, expected++);
        list_del(it);
    }
    assert_int_equal(expected, 3);
    assert_true(list_empty(&head));
}

static void why_has_a_word_for_every_ending(void **state)
{
    (void)state;
    assert_string_equal(why_text(WHY_OK), "ok");
    assert_string_equal(why_text(WHY_ORIGIN_GONE), "origin-gone");
    assert_string_equal(why_text(WHY_DRAIN), "drain");
    for (int i = 0; i < WHYS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(why_text((enum why)i), why_text((enum why)k));
}

static unsigned copies_of_an_arena(bool private)
{
    struct secret *secret = copies_unmask(STR(MASKED));
    char *first = mem_new(200);
    struct arena a;
    if (private)
        arena_init_private(&a, first, 200);
    else
        arena_init(&a, first, 200);
    for (int i = 0; i < 400; i++) /* the first block, and several from the heap */
        arena_str(&a, secret_bytes(secret));
    memcpy(arena_get(&a, 100000), secret_bytes(secret).p, secret_bytes(secret).n);
    arena_printf(&a, "%.*s", STR_ARG(secret_bytes(secret)));
    arena_done(&a);
    unsigned n = copies_count(secret);
    mem_free(first);
    secret_unref(secret);
    return n;
}

static void a_private_arena_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(copies_of_an_arena(true), 0);
    assert_true(copies_of_an_arena(false) > 0);
}

static void what_is_freed_or_grows_can_be_wiped(void **state)
{
    (void)state;
    struct secret *secret = copies_unmask(STR(MASKED));
    struct str text = secret_bytes(secret);
    char *p = mem_renew_wiped(NULL, 16 + text.n);
    memcpy(p + 16, text.p, text.n);
    p = mem_renew_wiped(p, 100000);
    assert_memory_equal(p + 16, text.p, text.n);
    assert_int_equal(copies_count(secret), 1);
    p = mem_renew_wiped(p, 16 + text.n);
    assert_int_equal(copies_count(secret), 1);
    mem_free_wiped(p);
    mem_free_wiped(NULL);
    assert_int_equal(copies_count(secret), 0);
    secret_unref(secret);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(str_compares_with_and_without_case),
        cmocka_unit_test(str_knows_how_it_begins_and_ends),
        cmocka_unit_test(str_finds_first_and_last),
        cmocka_unit_test(str_trim_takes_blanks_and_tabs_only),
        cmocka_unit_test(str_next_yields_every_piece),
        cmocka_unit_test(str_put_copies_one_behind_the_other),
        cmocka_unit_test(str_cmp_orders_by_bytes_then_length),
        cmocka_unit_test(mem_new_is_zeroed_and_strdup_terminates),
        cmocka_unit_test(arena_uses_the_owners_block_first),
        cmocka_unit_test(arena_memory_is_aligned_and_apart),
        cmocka_unit_test(arena_blocks_double_up_to_64_kib),
        cmocka_unit_test(arena_large_wish_leaves_the_current_block_in_use),
        cmocka_unit_test(a_sealed_arena_gives_nothing_more_of_what_it_has),
        cmocka_unit_test(arena_copies_joins_and_formats),
        cmocka_unit_test(arena_printf_grows_when_the_block_is_short),
        cmocka_unit_test(what_is_freed_or_grows_can_be_wiped),
        cmocka_unit_test(a_private_arena_leaves_nothing),
        cmocka_unit_test(list_keeps_order_and_forgets_safely),
        cmocka_unit_test(why_has_a_word_for_every_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
