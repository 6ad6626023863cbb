/* resp_test.c — commands out and replies in, in whatever pieces; and what is no reply. */
#include "ingress/redis/resp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

static void commands_are_lists_of_bulk_strings(void **state)
{
    (void)state;
    static const char wanted[] = "*3\r\n$5\r\nLPUSH\r\n$0\r\n\r\n$3\r\na\0b\r\n";
    struct resp_command c = {{STR("LPUSH"), STR_NONE, {"a\0b", 3}}, 3};
    size_t n;
    char *text = resp_encode(&c, &n);
    assert_int_equal(n, sizeof wanted - 1);
    assert_memory_equal(text, wanted, n);
    mem_free_wiped(text);
}

static const char many[] =
    "+OK\r\n:-5\r\n$2\r\nab\r\n$-1\r\n*-1\r\n-ERR no such thing\r\n-READONLY\r\n";
static const struct resp_reply wanted[] = {
    {RESP_TEXT, 0, "OK", 2},        {RESP_NUMBER, -5, "", 0}, {RESP_TEXT, 0, "ab", 2},
    {RESP_NIL, 0, "", 0},           {RESP_NIL, 0, "", 0},     {RESP_ERROR, 0, "ERR", 3},
    {RESP_ERROR, 0, "READONLY", 8},
};
enum { MANY = sizeof wanted / sizeof *wanted };

static void takes(struct resp_reader *r, struct str piece, unsigned *got)
{
    struct resp_reply reply;
    assert_true(resp_feed(r, piece.p, piece.n));
    for (int what; (what = resp_next(r, &reply)) != 0; (*got)++) {
        assert_int_equal(what, 1);
        assert_true(*got < MANY);
        assert_int_equal(reply.type, wanted[*got].type);
        assert_int_equal(reply.number, wanted[*got].number);
        assert_true(str_eq(resp_text(&reply), resp_text(&wanted[*got])));
    }
}

static void replies_are_the_same_however_they_are_cut(void **state)
{
    (void)state;
    struct str all = STR(many);
    for (size_t piece = 1; piece <= all.n; piece++) {
        struct resp_reader *r = resp_reader_new();
        unsigned got = 0;
        for (size_t at = 0; at < all.n; at += piece) {
            struct str rest = str_skip(all, at);
            takes(r, str_head(rest, piece < rest.n ? piece : rest.n), &got);
        }
        assert_int_equal(got, MANY);
        assert_int_equal(resp_lying(r), 0);
        resp_reader_free(r);
    }
}

static void an_error_shows_its_code_and_nothing_that_was_sent(void **state)
{
    (void)state;
    static const struct {
        const char *reply, *code;
    } rows[] = {
        {"-ERR unknown command 'AUTH', with args beginning with: 's3cret'\r\n", "ERR"},
        {"-s3cret\r\n", ""},
        {"-S3cret is wrong\r\n", ""},
        {"-\r\n", ""},
        {"-NOSCRIPT No matching script.\r\n", "NOSCRIPT"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct resp_reader *r = resp_reader_new();
        struct resp_reply reply;
        assert_true(resp_feed(r, rows[i].reply, strlen(rows[i].reply)));
        assert_int_equal(resp_next(r, &reply), 1);
        assert_int_equal(reply.type, RESP_ERROR);
        assert_true(str_eq(resp_text(&reply), str_of(rows[i].code)));
        resp_reader_free(r);
    }
}

static void long_texts_are_cut_and_not_believed_to_be_longer(void **state)
{
    (void)state;
    char text[1024];
    struct resp_reader *r = resp_reader_new();
    struct resp_reply reply;
    int n = snprintf(text, sizeof text, "$500\r\n%0500d\r\n:1\r\n", 7);
    assert_true(resp_feed(r, text, (size_t)n));
    assert_int_equal(resp_next(r, &reply), 1);
    assert_int_equal(reply.n, RESP_TEXT_BYTES);
    assert_int_equal(resp_next(r, &reply), 1);
    assert_int_equal(reply.number, 1);
    resp_reader_free(r);
}

static void what_is_no_reply_is_refused_for_good(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "%1\r\n+a\r\n+b\r\n",
        ":x\r\n",
        "$-2\r\n",
        "$x\r\n",
        "*1\r\n:1\r\n",
        "*0\r\n",
        "*2147483647\r\n",
        "*9223372036854775807\r\n",
        "\r\n",
        "$99999999999999999999\r\n",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct resp_reader *r = resp_reader_new();
        struct resp_reply reply;
        assert_true(resp_feed(r, rows[i], strlen(rows[i])));
        assert_int_equal(resp_next(r, &reply), -1);
        assert_int_equal(resp_next(r, &reply), -1);
        assert_false(resp_feed(r, ":1\r\n", 4));
        resp_reader_free(r);
    }
}

static void a_reply_that_never_ends_is_refused(void **state)
{
    (void)state;
    static const char *const begins[] = {"+", "$1000000\r\n"};
    char text[4096];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < 2; i++) {
        struct resp_reader *r = resp_reader_new();
        struct resp_reply reply;
        size_t n = 0;
        assert_true(resp_feed(r, begins[i], strlen(begins[i])));
        while (resp_feed(r, text, sizeof text)) {
            assert_int_equal(resp_next(r, &reply), 0);
            n += sizeof text;
            assert_true(n <= RESP_LYING_BYTES);
        }
        resp_reader_free(r);
    }
}

static void resp3_values_are_stepped_over(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        ptrdiff_t span; /* with one byte less it is not whole */
    } rows[] = {
        {"+OK\r\n", 5},
        {"-ERR x\r\n", 8},
        {"_\r\n", 3},
        {"#t\r\n", 4},
        {",1.5\r\n", 6},
        {"(123\r\n", 6},
        {"$-1\r\n", 5},
        {"*-1\r\n", 5},
        {"*0\r\n", 4},
        {"$2\r\nab\r\n", 8},
        {"=5\r\ntxt:a\r\n", 11},
        {"!3\r\nERR\r\n", 9},
        {"%1\r\n+a\r\n:1\r\n", 12},
        {"%2\r\n+a\r\n*2\r\n:1\r\n:2\r\n+b\r\n%1\r\n_\r\n_\r\n", 34},
        {"~1\r\n:1\r\n", 8},
        {"|1\r\n+k\r\n+v\r\n:7\r\n", 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str s = str_of(rows[i].text);
        assert_int_equal(resp3_span(s), rows[i].span);
        for (size_t n = 0; n < s.n; n++)
            assert_int_equal(resp3_span(str_head(s, n)), 0);
        char behind[64];
        int n = snprintf(behind, sizeof behind, "%s+more\r\n", rows[i].text);
        assert_int_equal(resp3_span((struct str){behind, (size_t)n}), rows[i].span);
    }
}

static void what_is_no_resp3_value_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"HTTP/1.1\r\n",    "\r\n",
                                       "+a\rb\r\n",       "$2\r\nabc\r\n",
                                       "%x\r\n",          "*-2\r\n",
                                       "%-1\r\n",         "*2\r\n:1\r\nx\r\n",
                                       "*9999999999\r\n", "*1048576\r\n*1048576\r\n*1048576\r\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(resp3_span(str_of(rows[i])), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_lists_of_bulk_strings),
        cmocka_unit_test(replies_are_the_same_however_they_are_cut),
        cmocka_unit_test(an_error_shows_its_code_and_nothing_that_was_sent),
        cmocka_unit_test(long_texts_are_cut_and_not_believed_to_be_longer),
        cmocka_unit_test(what_is_no_reply_is_refused_for_good),
        cmocka_unit_test(a_reply_that_never_ends_is_refused),
        cmocka_unit_test(resp3_values_are_stepped_over),
        cmocka_unit_test(what_is_no_resp3_value_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
