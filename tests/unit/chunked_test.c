/* chunked_test.c — the chunked coding, cut at every byte: one strict grammar (RFC 9112 section 7.1,
 * cases H1-12). */
#include "http/chunked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#define TEXT(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

struct run {
    enum chunked_event last;
    char body[8192];
    size_t n;
    size_t used; /* up to the trailers */
};

/* Feeds the input in two pieces, each in steps of at most `every` bytes. */
static void run_cut(struct run *r, struct str in, size_t cut, size_t every)
{
    struct chunked c = {0};
    size_t at = 0;
    *r = (struct run){.last = CHUNKED_MORE};
    while (at < in.n && r->last != CHUNKED_BAD && r->last != CHUNKED_TRAILERS) {
        struct str span = STR_NONE;
        size_t n = at < cut && cut < in.n ? cut - at : in.n - at, used = SIZE_MAX;
        if (n > every)
            n = every;
        r->last = chunked_step(&c, in.p + at, n, &used, &span);
        if (r->last == CHUNKED_BAD)
            return;
        assert_true(used > 0 && used <= n);
        if (r->last == CHUNKED_MORE)
            assert_int_equal(used, n);
        if (r->last == CHUNKED_DATA) {
            assert_true(span.n > 0 && span.p >= in.p + at && span.p + span.n == in.p + at + used);
            memcpy(r->body + r->n, span.p, span.n);
            r->n += span.n;
        }
        at += used;
    }
    r->used = at;
}

static void check(struct str in, enum chunked_event last, struct str body, size_t used)
{
    for (size_t cut = 0; cut < in.n; cut++) {
        for (size_t every = 1; every <= in.n; every += every < 3 ? 1 : in.n) {
            struct run r;
            run_cut(&r, in, cut, every);
            if (r.last != last || r.n != body.n)
                print_error("%.*s cut at %zu, every %zu\n", STR_ARG(in), cut, every);
            assert_int_equal(r.last, last);
            assert_int_equal(r.n, body.n);
            assert_memory_equal(r.body, body.p, body.n);
            if (last == CHUNKED_TRAILERS)
                assert_int_equal(r.used, used);
        }
    }
}

static void good_bodies_are_read_to_the_trailers(void **state)
{
    (void)state;
    static const struct {
        struct str in, body;
        size_t rest; /* of the input, behind the last chunk line */
    } table[] = {
        {TEXT("0\r\n\r\n"), TEXT(""), 2}, /* E13 */
        {TEXT("5\r\nhello\r\n0\r\n\r\n"), TEXT("hello"), 2},
        {TEXT("5;a=b;c\r\nhello\r\n0;x\r\n\r\n"), TEXT("hello"), 2},   /* E01 */
        {TEXT("5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n"), TEXT("hello"), 2}, /* E02 */
        {TEXT("5; \t a = b\x80\r\nhello\r\n0\r\n\r\n"), TEXT("hello"), 2},
        {TEXT("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"), TEXT("01234567890123456789"),
         2}, /* E03 */
        {TEXT("0000000000000005\r\nhello\r\n0000000000000000\r\n\r\n"), TEXT("hello"), 2},
        {TEXT("2\r\n\r\n\r\n1\r\n0\r\n0\r\nX: 1\r\n\r\n"), TEXT("\r\n0"),
         8}, /* E08: trailers are not ours */
        {TEXT("1\r\nx\r\n0\r\nX Y\n"), TEXT("x"), 4},
        {TEXT("1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n"), TEXT("x"), 18}, /* E17 */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(table[i].in, CHUNKED_TRAILERS, table[i].body, table[i].in.n - table[i].rest);
}

static void what_two_parsers_could_read_differently_is_bad(void **state)
{
    (void)state;
    static const struct {
        struct str in, body;
    } table[] = {
        /* E05 */
        {TEXT("0x5\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("-5\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("+5\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5g\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT(" 5\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("10000000000000005\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("8000000000000000\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("00000000000000005\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("0_5\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5\r\nhelloworld\r\n0\r\n\r\n"), TEXT("hello")},
        {TEXT("5\r\nhello0\r\n\r\n"), TEXT("hello")},
        {TEXT("5\r\nhelloXX0\r\n\r\n"), TEXT("hello")},
        {TEXT("5;a\nb\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5;a\rb\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5;a\0b\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5;a\x7f\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5\0\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5\rhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5 (x)\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT(";a=b\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        /* E06 */
        {TEXT("5\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5\r\nhello\n0\r\n\r\n"), TEXT("hello")},
        {TEXT("5 \r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5 ;a\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5\r\r\nhello\r\n0\r\n\r\n"), TEXT("")},
        {TEXT("5\r\nhello\r\r0\r\n\r\n"), TEXT("hello")},
        {TEXT("5\r\nhello\r\n\r\n0\r\n\r\n"), TEXT("hello")},
        {TEXT("5\r\nhello\r\n0\n\r\n"), TEXT("hello")},
        {TEXT("5\r\nhello\r\n0\r0\n\r\n"), TEXT("hello")},
        /* E07 */
        {TEXT("2;\nxx\r\n2d\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n"),
         TEXT("")},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(table[i].in, CHUNKED_BAD, table[i].body, 0);
}

static void what_is_not_complete_wants_more(void **state)
{
    (void)state;
    static const struct {
        struct str in, body;
        enum chunked_event last;
    } table[] = {
        {TEXT("5"), TEXT(""), CHUNKED_MORE},
        {TEXT("5\r"), TEXT(""), CHUNKED_MORE},
        {TEXT("5\r\n"), TEXT(""), CHUNKED_MORE},
        {TEXT("5\r\nhell"), TEXT("hell"), CHUNKED_DATA},
        {TEXT("5\r\nhello"), TEXT("hello"), CHUNKED_DATA},
        {TEXT("5\r\nhello\r"), TEXT("hello"), CHUNKED_MORE},
        {TEXT("5\r\nhello\r\n"), TEXT("hello"), CHUNKED_MORE},
        {TEXT("5\r\nhello\r\n0"), TEXT("hello"), CHUNKED_MORE},
        {TEXT("5\r\nhello\r\n0\r"), TEXT("hello"), CHUNKED_MORE},
        {TEXT("7fffffffffffffff\r\nx"), TEXT("x"), CHUNKED_DATA},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(table[i].in, table[i].last, table[i].body, 0);
}

static void a_chunk_line_has_at_most_4_kib(void **state)
{
    (void)state;
    static char in[CHUNK_LINE_BYTES + 64];
    for (size_t n = CHUNK_LINE_BYTES - 2; n <= CHUNK_LINE_BYTES + 2;
         n++) { /* bytes of the line up to its CR */
        memset(in, 'a', sizeof in);
        memcpy(in, "1;", 2);
        memcpy(in + n - 1, "\r\nx\r\n0\r\n\r\n", 11);
        for (size_t every = 1; every < 5000; every += 1 + every * 4) {
            struct run r;
            run_cut(&r, (struct str){in, n + 10}, 0, every);
            assert_int_equal(r.last, n <= CHUNK_LINE_BYTES ? CHUNKED_TRAILERS : CHUNKED_BAD);
        }
    }
}

static void each_line_counts_for_itself(void **state)
{
    (void)state;
    static char in[3 * 4000 + 64];
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        memcpy(in + at, i < 2 ? "1;" : "0;", 2);
        memset(in + at + 2, 'a', 3990);
        memcpy(in + at + 3992, i < 2 ? "\r\nx\r\n" : "\r\n", i < 2 ? 5 : 2);
        at += i < 2 ? 3997 : 3994;
    }
    struct run r;
    run_cut(&r, (struct str){in, at}, 0, SIZE_MAX);
    assert_int_equal(r.last, CHUNKED_TRAILERS);
    assert_int_equal(r.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_bodies_are_read_to_the_trailers),
        cmocka_unit_test(what_two_parsers_could_read_differently_is_bad),
        cmocka_unit_test(what_is_not_complete_wants_more),
        cmocka_unit_test(a_chunk_line_has_at_most_4_kib),
        cmocka_unit_test(each_line_counts_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
