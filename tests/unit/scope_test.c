/* scope_test.c — route scope tokens beyond the vectors: keys of any length, names of any bytes, and
 * that whatever is made is taken, and nothing that differs from it in one character. */
#include "policies/scope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/text.h"

static struct arena mem;

static int begin(void **state)
{
    (void)state;
    arena_init(&mem, NULL, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_done(&mem);
    return 0;
}

static struct keyring *ring_of(struct str text)
{
    struct keyring *k = NULL;
    char error[200];
    assert_true(keyring_parse(text, &k, NULL, error, sizeof error));
    return k;
}

/* One key of n bytes, all of them `byte`. */
static struct keyring *ring_of_bytes(size_t n, char byte)
{
    char key[200], text[300] = "k=";
    memset(key, byte, n);
    return ring_of((struct str){text, 2 + text_put_base64(text + 2, key, n)});
}

static enum scope_verdict verdict_of(struct str token, const struct keyring *k)
{
    struct scope s;
    return scope_verify(token, k, &mem, &s);
}

/* MACs of another program's HMAC. */
static void keys_longer_and_shorter_than_a_block_give_what_hmac_gives(void **state)
{
    static const struct {
        size_t n;
        const char *mac;
    } rows[] = {
        {1, "Jh6TUbonxt_B_7RJBUSW-w"},   {63, "lOAabhVkvvkWDQJlCq4Tgg"},
        {64, "Utl-Z8m8xGmdNWill-Ov2w"},  {65, "LlErVZhdu0Gp-nzjjtgrxQ"},
        {128, "7i7TUDxm3UAl-HT9hV9XHw"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct scope s = {STR("ns"), STR("id"), 80};
        struct keyring *k = ring_of_bytes(rows[i].n, 'x');
        struct str token = STR_NONE, want = arena_printf(&mem, "f1.bnM.aWQ.80.k.%s", rows[i].mac);
        assert_true(scope_mint(&s, 'k', k, &mem, &token));
        assert_int_equal(token.n, want.n);
        assert_memory_equal(token.p, want.p, want.n);
        assert_int_equal(verdict_of(token, k), SCOPE_OK);
        keyring_free(k);
    }
}

static void what_is_made_is_taken_and_says_the_same(void **state)
{
    static const struct scope rows[] = {
        {{"n", 1}, {"i", 1}, 1},
        {{"ns", 2}, {"id", 2}, 65535},
        {{"abc", 3}, {"a.b/c d", 7}, 80},
        {{"\xf0\x9f\x93\xa6", 4}, {"\xc2\xa0", 2}, 8080},
    };
    (void)state;
    struct keyring *k = ring_of_bytes(17, 'y');
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str token = STR_NONE;
        struct scope s;
        assert_true(scope_mint(&rows[i], 'k', k, &mem, &token));
        assert_int_equal(scope_verify(token, k, &mem, &s), SCOPE_OK);
        assert_true(str_eq(s.ns, rows[i].ns) && str_eq(s.id, rows[i].id));
        assert_int_equal(s.port, rows[i].port);
    }
    keyring_free(k);
}

static void nothing_is_made_that_would_not_be_taken(void **state)
{
    static const struct scope rows[] = {
        {{"", 0}, {"i", 1}, 1},     {{"n", 1}, {"", 0}, 1},
        {{"n", 1}, {"i", 1}, 0},    {{"a\nb", 3}, {"i", 1}, 1},
        {{"n", 1}, {"\x7f", 1}, 1}, {{"n", 1}, {"\xc2\x85", 2}, 1},
        {{"\xff", 1}, {"i", 1}, 1}, {{"n", 1}, {"\xed\xa0\x80", 3}, 1},
    };
    struct scope good = {STR("n"), STR("i"), 1};
    struct str token = STR_NONE;
    (void)state;
    struct keyring *k = ring_of_bytes(17, 'y');
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_false(scope_mint(&rows[i], 'k', k, &mem, &token));
    assert_false(scope_mint(&good, 'j', k, &mem, &token));
    assert_false(scope_mint(&good, 'k', NULL, &mem, &token));
    assert_true(scope_mint(&good, 'k', k, &mem, &token));
    keyring_free(k);
}

static void control_characters_and_bad_utf8_are_refused_where_they_stand(void **state)
{
    static const struct {
        const char *name;
        bool good;
    } rows[] = {
        {"", false},    {"YQ", true},    {"AA", false},      {"Hw", false},   {"fw", false},
        {"woA", false}, {"wp8", false},  {"wqA", true},      {"_w", false},   {"7aCA", false},
        {"wIA", false}, {"YQ==", false}, {"Y Q", false},     {"YQ\n", false}, {"Y", false},
        {"YR", false},  {"4oCo", true},  {"8J+TpgA", false},
    };
    (void)state;
    struct keyring *k = ring_of_bytes(17, 'y');
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str ns = arena_printf(&mem, "f1.%s.YQ.80.z.AAAAAAAAAAAAAAAAAAAAAA", rows[i].name);
        struct str id = arena_printf(&mem, "f1.YQ.%s.80.z.AAAAAAAAAAAAAAAAAAAAAA", rows[i].name);
        enum scope_verdict good = SCOPE_KEY_UNKNOWN;
        if (verdict_of(ns, k) != (rows[i].good ? good : SCOPE_BAD_NAMESPACE) ||
            verdict_of(id, k) != (rows[i].good ? good : SCOPE_BAD_ID))
            fail_msg("row %zu: %d, %d", i, verdict_of(ns, k), verdict_of(id, k));
    }
    keyring_free(k);
}

static void another_character_anywhere_is_another_token(void **state)
{
    struct scope s = {STR("tenant-a"), STR("sandbox-1"), 8080};
    struct str token = STR_NONE;
    (void)state;
    struct keyring *k = ring_of(STR("k=a2V5LTE=,j=a2V5LTE="));
    assert_true(scope_mint(&s, 'k', k, &mem, &token));
    for (size_t i = 0; i < token.n; i++)
        for (int c = 0; c < 256; c++) {
            struct str other = arena_str(&mem, token);
            ((char *)(uintptr_t)other.p)[i] = (char)c;
            bool same = str_eq(other, token), is_key = token.p[i] == 'k' && c == 'j';
            if (!is_key || token.p[i - 1] != '.' || token.p[i + 1] != '.')
                assert_int_equal(verdict_of(other, k) == SCOPE_OK, same);
        }
    for (size_t n = 0; n < token.n; n++)
        assert_int_not_equal(verdict_of(str_head(token, n), k), SCOPE_OK);
    keyring_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_longer_and_shorter_than_a_block_give_what_hmac_gives,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_is_made_is_taken_and_says_the_same, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_made_that_would_not_be_taken, begin, end),
        cmocka_unit_test_setup_teardown(
            control_characters_and_bad_utf8_are_refused_where_they_stand, begin, end),
        cmocka_unit_test_setup_teardown(another_character_anywhere_is_another_token, begin, end),
    };
    return cmocka_run_group_tests_name("scope", tests, NULL, NULL);
}
