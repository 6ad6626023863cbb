/* match_test.c — the matcher against a search that tries every string at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/secret.h"
#include "policies/match.h"
#include "policies/pairs.h"

enum { TEXT_MAX = 600, STRINGS_MAX = 40, HITS = 1 << 16 };

struct hits {
    unsigned n;
    struct {
        size_t at, len;
    } list[HITS];
};

static void on_hit(void *user, size_t at, size_t len)
{
    struct hits *h = user;
    assert_true(h->n < HITS);
    h->list[h->n].at = at;
    h->list[h->n++].len = len;
}

static int compare(const void *a, const void *b)
{
    const size_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

static bool is_double(const struct str *s, unsigned i)
{
    for (unsigned k = 0; k < i; k++)
        if (str_eq(s[k], s[i]))
            return true;
    return false;
}

static void find_plainly(const struct str *s, unsigned ns, struct str text, struct hits *h)
{
    h->n = 0;
    for (unsigned i = 0; i < ns; i++)
        for (size_t at = 0; s[i].n && !is_double(s, i) && at + s[i].n <= text.n; at++)
            if (memcmp(text.p + at, s[i].p, s[i].n) == 0)
                on_hit(h, at, s[i].n);
}

static size_t tail_plainly(const struct str *s, unsigned ns, struct str text)
{
    for (size_t at = 0; at < text.n; at++)
        for (unsigned i = 0; i < ns; i++)
            if (s[i].n > text.n - at && memcmp(text.p + at, s[i].p, text.n - at) == 0)
                return text.n - at;
    return 0;
}

static void check(const struct matcher *m, const struct str *s, unsigned ns, struct str text)
{
    static struct hits got, want;
    char *exact = malloc(text.n ? text.n : 1); /* a look beyond is seen */
    memcpy(exact, text.p, text.n);
    got.n = 0;
    matcher_find(m, exact, text.n, on_hit, &got);
    find_plainly(s, ns, text, &want);
    qsort(got.list, got.n, sizeof *got.list, compare);
    qsort(want.list, want.n, sizeof *want.list, compare);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.list, want.list, got.n * sizeof *got.list);
    assert_int_equal(matcher_tail(m, exact, text.n), tail_plainly(s, ns, text));
    free(exact);
}

static char random_byte(unsigned letters)
{
    static const char bytes[] = "ab\0\xff-Zcdefghijklmnop";
    return bytes[(unsigned)rand() % letters];
}

static struct str random_text(char *to, size_t n, unsigned letters)
{
    for (size_t i = 0; i < n; i++)
        to[i] = random_byte(letters);
    return (struct str){to, n};
}

struct world {
    struct str s[STRINGS_MAX];
    unsigned n;
    char bytes[STRINGS_MAX][32];
    char text[TEXT_MAX];
};

static void random_world(struct world *w, unsigned letters, unsigned max_strings, size_t min_len)
{
    w->n = 1 + (unsigned)rand() % max_strings;
    for (unsigned i = 0; i < w->n; i++)
        w->s[i] = random_text(w->bytes[i], min_len + (size_t)rand() % 12, letters);
}

/* Texts that hold whole strings, and end with a part of one. */
static struct str text_of(struct world *w, unsigned letters)
{
    struct str text = random_text(w->text, (size_t)rand() % TEXT_MAX, letters);
    for (unsigned k = 0; k < 6; k++) {
        struct str s = w->s[(unsigned)rand() % w->n];
        if (s.n && s.n < text.n)
            memcpy(w->text + (size_t)rand() % (text.n - s.n), s.p, s.n);
    }
    struct str last = w->s[(unsigned)rand() % w->n];
    size_t part = last.n ? (size_t)rand() % last.n : 0;
    if (part && part < text.n)
        memcpy(w->text + text.n - part, last.p, part);
    return text;
}

static void finds_what_a_plain_search_finds(void **state)
{
    (void)state;
    static const struct {
        unsigned letters, strings;
        size_t min_len;
    } kinds[] = {{2, 4, 1}, {4, 10, 2}, {20, STRINGS_MAX, 0}, {20, 6, 6}, {8, STRINGS_MAX, 3}};
    struct world *w = calloc(1, sizeof *w);
    srand(1);
    for (unsigned round = 0; round < 1000; round++) {
        unsigned k = round % (sizeof kinds / sizeof *kinds), letters = kinds[k].letters;
        random_world(w, letters, kinds[k].strings, kinds[k].min_len);
        struct matcher *m = matcher_over(NULL, w->s, w->n);
        for (unsigned i = 0; m && i < 5; i++)
            check(m, w->s, w->n, text_of(w, letters));
        matcher_free(m);
    }
    free(w);
}

static void a_matcher_over_another_finds_the_strings_of_both(void **state)
{
    (void)state;
    struct world *w = calloc(1, sizeof *w);
    srand(2);
    for (unsigned round = 0; round < 300; round++) {
        random_world(w, 6, 20, 2);
        for (unsigned i = 1; i < w->n; i++) /* those of both count twice */
            if (is_double(w->s, i))
                w->s[i] = STR_NONE;
        unsigned half = w->n / 2;
        struct matcher *base = matcher_over(NULL, w->s, half);
        struct matcher *m = matcher_over(base, w->s + half, w->n - half);
        if (m)
            check(m, w->s, w->n, text_of(w, 6));
        matcher_free(m);
        matcher_free(base);
    }
    free(w);
}

static void of_no_strings_there_is_no_matcher(void **state)
{
    (void)state;
    assert_null(matcher_over(NULL, NULL, 0));
    assert_null(matcher_over(NULL, (struct str[]){STR(""), STR_NONE}, 2));
    assert_int_equal(matcher_longest(NULL), 0);
    assert_int_equal(matcher_tail(NULL, "abc", 3), 0);
    matcher_free(NULL);
}

static void doubles_count_once(void **state)
{
    (void)state;
    struct hits *h = calloc(1, sizeof *h);
    struct matcher *m = matcher_over(NULL, (struct str[]){STR("abc"), STR("abc"), STR("c")}, 3);
    matcher_find(m, "xabcx", 5, on_hit, h);
    assert_int_equal(h->n, 2);
    matcher_free(m);
    free(h);
}

static void longest_is_the_longest_of_all(void **state)
{
    (void)state;
    struct matcher *base = matcher_over(NULL, (struct str[]){STR("abcdef"), STR("x")}, 2),
                   *m = matcher_over(base, (struct str[]){STR("abc")}, 1);
    assert_int_equal(matcher_longest(base), 6);
    assert_int_equal(matcher_longest(m), 6);
    matcher_free(m);
    matcher_free(base);
}

/* Many strings with one beginning, as tokens of one kind have. */
static void strings_of_one_beginning_are_told_apart(void **state)
{
    (void)state;
    enum { MANY = 300, LEN = 24 };
    char(*bytes)[LEN] = calloc(MANY, LEN);
    struct str *s = calloc(MANY, sizeof *s);
    for (unsigned i = 0; i < MANY; i++)
        s[i] =
            (struct str){bytes[i], (size_t)snprintf(bytes[i], LEN, "sk-live-%06u-%u", i * 7919, i)};
    struct matcher *m = matcher_over(NULL, s, MANY);
    char text[2 * LEN];
    for (unsigned i = 0; i < MANY; i++) {
        int n = snprintf(text, sizeof text, "k-l%.*s-live-%.5s", STR_ARG(s[i]), s[i].p);
        check(m, s, MANY, (struct str){text, (size_t)n});
    }
    matcher_free(m);
    free(s);
    free(bytes);
}

static void its_strings_lie_in_the_memory_of_secrets(void **state)
{
    (void)state;
    size_t before = secret_held();
    struct matcher *m = matcher_over(NULL, (struct str[]){STR("a-secret")}, 1);
    assert_true(secret_held() > before);
    matcher_free(m);
    assert_int_equal(secret_held(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_a_plain_search_finds),
        cmocka_unit_test(a_matcher_over_another_finds_the_strings_of_both),
        cmocka_unit_test(of_no_strings_there_is_no_matcher),
        cmocka_unit_test(doubles_count_once),
        cmocka_unit_test(longest_is_the_longest_of_all),
        cmocka_unit_test(strings_of_one_beginning_are_told_apart),
        cmocka_unit_test(its_strings_lie_in_the_memory_of_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
