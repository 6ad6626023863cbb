/* proxyhead_test.c — headers of the PROXY protocol, whole and cut at every byte; what is taken is
 * taken to the byte, what is not is found as early as can be. */
#include "net/proxyhead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"

struct reading {
    enum proxyhead_result result;
    size_t used;
    bool has;
    char source[ADDR_TEXT_BYTES + 1];
};

/* The bytes lie alone on the heap, so that a look behind them is found. */
static struct reading read_bytes(const char *p, size_t n)
{
    struct reading r = {0};
    union addr source;
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    r.result = proxyhead_read(copy, n, &r.used, &r.has, &source);
    free(copy);
    if (r.result == PROXYHEAD_DONE && r.has)
        r.source[addr_text(&source.sa, r.source)] = '\0';
    return r;
}

/* Every shorter piece must ask for more; with something behind it the result is the same. */
static void expect_done(const char *p, size_t n, const char *source)
{
    for (size_t part = 0; part < n; part++)
        if (read_bytes(p, part).result != PROXYHEAD_MORE)
            fail_msg("%.40s: settled after %zu of %zu bytes", p, part, n);
    char more[PROXYHEAD_MAX + 16];
    memcpy(more, p, n);
    memcpy(more + n, "GET / HTTP/1.1\r\n", 16);
    for (size_t behind = 0; behind <= 16; behind += 16) {
        struct reading r = read_bytes(more, n + behind);
        if (r.result != PROXYHEAD_DONE || r.used != n || r.has != (source != NULL) ||
            (source && strcmp(source, r.source) != 0))
            fail_msg("%.40s: result %d, used %zu, source %s", p, (int)r.result, r.used, r.source);
    }
}

/* Bad as a whole, and no piece of it is a header. */
static void expect_bad(const char *p, size_t n)
{
    bool bad = false;
    for (size_t part = 0; part <= n; part++) {
        struct reading r = read_bytes(p, part);
        if (r.result == PROXYHEAD_DONE || (bad && r.result != PROXYHEAD_BAD))
            fail_msg("%.40s: result %d after %zu bytes", p, (int)r.result, part);
        bad = r.result == PROXYHEAD_BAD;
    }
    if (!bad)
        fail_msg("%.60s was taken", p);
}

static void lines_of_version_1_name_the_source(void **state)
{
    (void)state;
    static const struct {
        const char *line, *source;
    } cases[] = {
        {"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n", "192.0.2.1:56324"},
        {"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", "0.0.0.0:0"},
        {"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", "[2001:db8::1]:1"},
        {"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
         "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
        {"PROXY TCP6 ::ffff:192.0.2.1 ::1 7 8\r\n", "192.0.2.1:7"},
        {"PROXY UNKNOWN\r\n", NULL},
        {"PROXY UNKNOWN whatever 1 stands here\r\n", NULL},
        {"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", /* the longest: 107 bytes */
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_done(cases[i].line, strlen(cases[i].line), cases[i].source);
}

static void lines_that_are_not_exact_are_broken(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "GET / HTTP/1.1\r\n",
        "\x16\x03\x01",
        "PROXX",
        "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY\r\n",
        "PROXY \r\n",
        "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
        "PROXY TCP4\t192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rX",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 02\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 ::1 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 ::1 1 2\r\n",
        "PROXY TCP6 ::1 192.0.2.1 1 2\r\n",
        "PROXY TCP6 [::1] ::1 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY TCP6 :::1 ::1 1 2\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UNKNOWN\x01\r\n",
        "PROXY UNKNOWN \x80\r\n",
        "PROXY UNKNOWN\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_bad(cases[i], strlen(cases[i]));
    expect_bad("PROXY UNKNOWN \0\r\n", 17);
}

static void a_line_of_108_bytes_is_broken_before_its_end_comes(void **state)
{
    (void)state;
    char line[140];
    memset(line, 'x', sizeof line);
    memcpy(line, "PROXY UNKNOWN ", 14);
    memcpy(line + 105, "\r\n", 2);
    expect_done(line, 107, NULL);
    memcpy(line + 105, "x\r\n", 3);
    expect_bad(line, 108);
    memset(line + 105, 'x', 35);
    assert_int_equal(read_bytes(line, 106).result, PROXYHEAD_MORE);
    assert_int_equal(read_bytes(line, 107).result, PROXYHEAD_BAD);
    expect_bad(line, sizeof line);
}

/* Version 2: fixed part, then `n` bytes of which the first are `addresses`. */
static size_t binary(char *out, uint8_t command, uint8_t family, const char *addresses,
                     size_t naddresses, size_t n)
{
    memcpy(out, SIGNATURE, 12);
    out[12] = (char)command;
    out[13] = (char)family;
    out[14] = (char)(n >> 8);
    out[15] = (char)n;
    memset(out + 16, 0x5a, n);
    memcpy(out + 16, addresses, naddresses < n ? naddresses : n);
    return 16 + n;
}

static const char v4[] = "\xc0\0\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb";
static const char v6[] = "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"
                         "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\xdc\x04\x01\xbb";
static const char mapped[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01"
                             "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\xdc\x04\x01\xbb";

static void headers_of_version_2_name_the_source(void **state)
{
    (void)state;
    static const struct {
        uint8_t command, family;
        const char *addresses;
        size_t naddresses, n;
        const char *source;
    } cases[] = {
        {0x21, 0x11, v4, 12, 12, "192.0.2.1:56324"},
        {0x21, 0x11, v4, 12, 12 + 3, "192.0.2.1:56324"}, /* TLVs, not looked at */
        {0x21, 0x11, v4, 12, 300, "192.0.2.1:56324"},
        {0x21, 0x11, v4, 12, PROXYHEAD_MAX - 16, "192.0.2.1:56324"},
        {0x21, 0x21, v6, 36, 36, "[2001:db8::1]:56324"},
        {0x21, 0x21, v6, 36, 99, "[2001:db8::1]:56324"},
        {0x21, 0x21, mapped, 36, 36, "192.0.2.1:56324"},
        {0x20, 0x00, "", 0, 0, NULL}, /* LOCAL: a health check of the proxy's own */
        {0x20, 0x11, v4, 12, 12, NULL},
        {0x20, 0x11, v4, 12, 5, NULL},
        {0x20, 0x00, "", 0, PROXYHEAD_MAX - 16, NULL},
        {0x21, 0x00, "", 0, 0, NULL}, /* no family */
        {0x21, 0x00, "", 0, 40, NULL},
        {0x21, 0x10, v4, 12, 12, NULL}, /* no transport */
        {0x21, 0x12, v4, 12, 12, NULL}, /* datagrams */
        {0x21, 0x22, v6, 36, 36, NULL},
        {0x21, 0x31, "", 0, 216, NULL}, /* Unix sockets */
    };
    char head[PROXYHEAD_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = binary(head, cases[i].command, cases[i].family, cases[i].addresses,
                          cases[i].naddresses, cases[i].n);
        expect_done(head, n, cases[i].source);
    }
}

static void headers_of_version_2_that_are_not_exact_are_broken(void **state)
{
    (void)state;
    static const struct {
        uint8_t command, family;
        size_t n;
    } cases[] = {
        {0x11, 0x11, 12},                                     /* version */
        {0x31, 0x11, 12}, {0x01, 0x11, 12}, {0x22, 0x11, 12}, /* command */
        {0x2f, 0x11, 12}, {0x21, 0x41, 12},                   /* family */
        {0x21, 0xf1, 12}, {0x21, 0x13, 12},                   /* transport */
        {0x21, 0x1f, 12}, {0x21, 0x11, 0},                    /* too short for its addresses */
        {0x21, 0x11, 11}, {0x21, 0x21, 35}, {0x21, 0x21, 12},
    };
    char head[PROXYHEAD_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_bad(head, binary(head, cases[i].command, cases[i].family, v6, 36, cases[i].n));
    for (size_t i = 0; i < 12; i++) { /* each byte of the signature counts */
        size_t n = binary(head, 0x21, 0x11, v4, 12, 12);
        head[i] ^= 0x20;
        expect_bad(head, n);
        assert_int_equal(read_bytes(head, i + 1).result, PROXYHEAD_BAD);
    }
}

static void a_length_over_the_bound_is_broken_at_once(void **state)
{
    (void)state;
    char head[16 + 65535];
    for (size_t n = PROXYHEAD_MAX - 16 + 1; n <= 65535; n = n < 65535 ? 65535 : 65536) {
        binary(head, 0x21, 0x11, v4, 12, n);
        assert_int_equal(read_bytes(head, 15).result, PROXYHEAD_MORE);
        assert_int_equal(read_bytes(head, 16).result, PROXYHEAD_BAD);
        binary(head, 0x20, 0, "", 0, n);
        assert_int_equal(read_bytes(head, 16).result, PROXYHEAD_BAD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_version_1_name_the_source),
        cmocka_unit_test(lines_that_are_not_exact_are_broken),
        cmocka_unit_test(a_line_of_108_bytes_is_broken_before_its_end_comes),
        cmocka_unit_test(headers_of_version_2_name_the_source),
        cmocka_unit_test(headers_of_version_2_that_are_not_exact_are_broken),
        cmocka_unit_test(a_length_over_the_bound_is_broken_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
