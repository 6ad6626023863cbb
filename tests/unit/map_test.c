/* map_test.c — the hash map, against a plain array, and SipHash against the vectors of its
 * authors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/map.h"

struct thing {
    char text[16];
    size_t n;
    bool in;
};

static struct str key_of(const struct thing *t)
{
    return (struct str){t->text, t->n};
}

static struct thing *make_things(size_t n)
{
    struct thing *things = mem_new(n * sizeof *things);
    for (size_t i = 0; i < n; i++)
        things[i].n = (size_t)snprintf(things[i].text, sizeof things[i].text, "key-%zu", i);
    return things;
}

static void siphash_gives_the_reference_values(void **state)
{
    (void)state;
    /* vectors_sip64 of the reference implementation: key 00..0f, message 00, 01, … of that length
     */
    static const struct {
        size_t n;
        uint8_t hash[8];
    } vectors[] = {
        {0, {0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72}},
        {1, {0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74}},
        {7, {0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab}},
        {8, {0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93}},
        {15, {0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1}},
    };
    uint8_t key[16], message[64];
    for (uint8_t i = 0; i < 16; i++)
        key[i] = i;
    for (uint8_t i = 0; i < 64; i++)
        message[i] = i;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint64_t hash = map_hash(key, message, vectors[i].n), expected = 0;
        for (size_t k = 0; k < 8; k++)
            expected |= (uint64_t)vectors[i].hash[k] << (8 * k);
        assert_true(hash == expected);
    }
}

static void empty_map_finds_nothing(void **state)
{
    (void)state;
    struct map *m = map_new();
    size_t at = 0;
    assert_int_equal(map_size(m), 0);
    assert_null(map_get(m, STR("x")));
    assert_null(map_del(m, STR("x")));
    assert_null(map_next(m, &at));
    assert_null(map_next(m, &at));
    map_free(m);
    map_free(NULL);
}

static void put_replaces_value_and_key_text(void **state)
{
    (void)state;
    struct map *m = map_new();
    int one = 1, two = 2;
    char *key = mem_strdup(STR("name"));
    assert_null(map_put(m, (struct str){key, 4}, &one));
    assert_ptr_equal(map_put(m, STR("name"), &two), &one);
    mem_free(key); /* the map must not look at it any more */
    assert_ptr_equal(map_get(m, STR("name")), &two);
    assert_null(map_get(m, STR("Name")));
    assert_int_equal(map_size(m), 1);
    assert_ptr_equal(map_del(m, STR("name")), &two);
    assert_int_equal(map_size(m), 0);
    map_free(m);
}

static void keys_may_be_empty_and_hold_zeros(void **state)
{
    (void)state;
    struct map *m = map_new();
    int a = 0, b = 0, c = 0;
    map_put(m, STR_NONE, &a);
    map_put(m, STR("\0"), &b);
    map_put(m, STR("\0\0"), &c);
    assert_ptr_equal(map_get(m, STR("")), &a);
    assert_ptr_equal(map_get(m, STR("\0")), &b);
    assert_ptr_equal(map_get(m, STR("\0\0")), &c);
    map_free(m);
}

static void random_puts_and_deletes_match_a_plain_array(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct thing *things = make_things(N);
    struct map *m = map_new();
    unsigned seed = 7;
    size_t in = 0;
    for (int step = 0; step < 200000; step++) {
        /* phases of growth and of shrinking */
        bool shrinking = step / 20000 % 2;
        struct thing *t = &things[rand_r(&seed) % N];
        if (rand_r(&seed) % 4 < (shrinking ? 1 : 3)) {
            assert_ptr_equal(map_put(m, key_of(t), t), t->in ? t : NULL);
            in += !t->in;
            t->in = true;
        } else {
            assert_ptr_equal(map_del(m, key_of(t)), t->in ? t : NULL);
            in -= t->in;
            t->in = false;
        }
        assert_int_equal(map_size(m), in);
        struct thing *look = &things[rand_r(&seed) % N];
        assert_ptr_equal(map_get(m, key_of(look)), look->in ? look : NULL);
    }
    for (size_t i = 0; i < N; i++)
        assert_ptr_equal(map_get(m, key_of(&things[i])), things[i].in ? &things[i] : NULL);
    map_free(m);
    mem_free(things);
}

static void walk_sees_each_entry_once(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct thing *things = make_things(N);
    struct map *m = map_new();
    for (size_t i = 0; i < N; i++)
        map_put(m, key_of(&things[i]), &things[i]);
    size_t at = 0, n = 0;
    for (struct thing *t; (t = map_next(m, &at)); n++) {
        assert_false(t->in);
        t->in = true;
    }
    assert_int_equal(n, N);
    assert_null(map_next(m, &at));
    map_free(m);
    mem_free(things);
}

static void walk_allows_to_delete_what_it_returned(void **state)
{
    (void)state;
    enum { N = 1000 };
    for (unsigned seed = 1; seed < 20; seed++) {
        struct thing *things = make_things(N);
        struct map *m = map_new();
        unsigned random = seed;
        size_t at = 0, seen = 0, left = N;
        for (size_t i = 0; i < N; i++)
            map_put(m, key_of(&things[i]), &things[i]);
        for (struct thing *t; (t = map_next(m, &at)); seen++) {
            assert_false(t->in);
            t->in = true;
            if (rand_r(&random) % 3 == 0)
                continue;
            assert_ptr_equal(map_del(m, key_of(t)), t);
            left--;
        }
        assert_int_equal(seen, N);
        assert_int_equal(map_size(m), left);
        map_free(m);
        mem_free(things);
    }
}

static void churn_does_not_slow_down_or_grow(void **state)
{
    (void)state;
    /* with tombstones that are never swept this would not end */
    enum { N = 500000, LIVE = 50 };
    struct thing *things = make_things(N);
    struct map *m = map_new();
    for (size_t i = 0; i < N; i++) {
        map_put(m, key_of(&things[i]), &things[i]);
        if (i >= LIVE)
            assert_ptr_equal(map_del(m, key_of(&things[i - LIVE])), &things[i - LIVE]);
        assert_null(map_get(m, STR("absent")));
    }
    assert_int_equal(map_size(m), LIVE);
    map_free(m);
    mem_free(things);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_gives_the_reference_values),
        cmocka_unit_test(empty_map_finds_nothing),
        cmocka_unit_test(put_replaces_value_and_key_text),
        cmocka_unit_test(keys_may_be_empty_and_hold_zeros),
        cmocka_unit_test(random_puts_and_deletes_match_a_plain_array),
        cmocka_unit_test(walk_sees_each_entry_once),
        cmocka_unit_test(walk_allows_to_delete_what_it_returned),
        cmocka_unit_test(churn_does_not_slow_down_or_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
