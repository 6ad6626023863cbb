/* parenthead_test.c — heads of a parent proxy's answer, whole and cut at every byte: what is taken
 * is taken to the byte, and nothing but a clean head is one. */
#include "net/parenthead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The bytes lie alone on the heap, so that a look behind them is found. */
static enum parenthead_result read_part(struct parenthead *h, const char *p, size_t n, size_t *used)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    enum parenthead_result r = parenthead_read(h, copy, n, used);
    free(copy);
    return r;
}

static void a_clean_head_is_taken_to_the_byte(void **state)
{
    static const struct {
        const char *head;
        int status;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\n\r\n", 200},
        {"HTTP/1.0 200 Connection established\r\n\r\n", 200},
        {"HTTP/1.1 200\r\n\r\n", 200},
        {"HTTP/1.1 200 \r\n\r\n", 200},
        {"HTTP/1.1 204 No\tbody\xc3\xa9\r\nX:\r\nContent-Length: 5\r\n\r\n", 204},
        {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n", 407},
        {"HTTP/1.1 999 x\r\n\r\n", 999},
        {"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 102 x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].head), used;
        char more[256];
        memcpy(more, rows[i].head, n);
        memcpy(more + n, "\r\nHTTP/", 7);
        for (size_t cut = 0; cut <= n; cut++) {
            struct parenthead h = {0};
            enum parenthead_result r = read_part(&h, more, cut, &used);
            assert_int_equal(used, cut);
            if (r != (cut == n ? PARENTHEAD_DONE : PARENTHEAD_MORE))
                fail_msg("%s: %d after %zu bytes", rows[i].head, (int)r, cut);
            if (cut < n) {
                assert_int_equal(read_part(&h, more + cut, n - cut + 7, &used), PARENTHEAD_DONE);
                assert_int_equal(used, n - cut);
            }
            assert_int_equal(h.status, rows[i].status);
        }
    }
}

static void nothing_else_is_a_head(void **state)
{
    static const char *const rows[] = {
        "HTTP/2 200 OK\r\n",
        "HTTP/1.2 200 OK\r\n",
        "HTTP/1.1  200 OK\r\n",
        "http/1.1 200 OK\r\n",
        " HTTP/1.1 200 OK\r\n",
        "\r\nHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 20\r\n",
        "HTTP/1.1 2000 OK\r\n",
        "HTTP/1.1 099 OK\r\n",
        "HTTP/1.1 +20 OK\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n",
        "HTTP/1.1 200 OK\n",
        "HTTP/1.1 200 OK\r\r\n",
        "HTTP/1.1 200 \x01\r\n",
        "HTTP/1.1 200 \x7f\r\n",
        "HTTP/1.1 200 OK\r\nA b: c\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n",
        "HTTP/1.1 200 OK\r\n: b\r\n",
        "HTTP/1.1 200 OK\r\n A: b\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n",
        "HTTP/1.1 200 OK\r\nA: b\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n",
        "HTTP/1.1 200 OK\r\n\rX",
        "HTTP/1.1 100 x\r\n\r\nXTTP/1.1 200 OK\r\n",
        "\x16\x03\x01",
        "SSH-2.0-x\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parenthead h = {0};
        size_t used;
        if (read_part(&h, rows[i], strlen(rows[i]), &used) != PARENTHEAD_BAD)
            fail_msg("row %zu is taken: %s", i, rows[i]);
        assert_int_equal(read_part(&h, "HTTP/1.1 200 OK\r\n\r\n", 19, &used), PARENTHEAD_BAD);
        assert_int_equal(used, 0);
    }
}

static void a_zero_byte_is_none_of_a_head(void **state)
{
    struct parenthead h = {0};
    size_t used;
    (void)state;
    assert_int_equal(read_part(&h, "HTTP/1.1 200 \0", 14, &used), PARENTHEAD_BAD);
}

/* Interim answers count as well: a parent cannot keep us reading. */
static void a_head_has_a_longest_length(void **state)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const size_t each = sizeof interim - 1;
    struct parenthead h = {0};
    size_t used, n = 0;
    (void)state;
    while (n + each <= PARENTHEAD_MAX) {
        assert_int_equal(read_part(&h, interim, each, &used), PARENTHEAD_MORE);
        n += each;
    }
    assert_int_equal(read_part(&h, interim, each, &used), PARENTHEAD_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_head_is_taken_to_the_byte),
        cmocka_unit_test(nothing_else_is_a_head),
        cmocka_unit_test(a_zero_byte_is_none_of_a_head),
        cmocka_unit_test(a_head_has_a_longest_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
