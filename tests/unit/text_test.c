/* text_test.c — tables of small texts: what each reader takes, what it refuses, and that writers
 * and readers agree. */
#include <setjmp.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "base/text.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void assert_text(const char *got, size_t n, const char *expected)
{
    if (n != strlen(expected) || memcmp(got, expected, n) != 0)
        fail_msg("got \"%.*s\", expected \"%s\"", (int)n, got, expected);
}

static void u64_takes_digits_up_to_max(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max, value;
        bool ok;
    } rows[] = {
        {"0", 0, 0, true},
        {"1", 0, 0, false},
        {"007", 65535, 7, true},
        {"65535", 65535, 65535, true},
        {"65536", 65535, 0, false},
        {"655350", 65535, 0, false},
        {"18446744073709551615", UINT64_MAX, UINT64_MAX, true},
        {"18446744073709551616", UINT64_MAX, 0, false},
        {"99999999999999999999999", UINT64_MAX, 0, false},
        {"", UINT64_MAX, 0, false},
        {"+1", UINT64_MAX, 0, false},
        {"-1", UINT64_MAX, 0, false},
        {" 1", UINT64_MAX, 0, false},
        {"1 ", UINT64_MAX, 0, false},
        {"0x1", UINT64_MAX, 0, false},
        {"1a", UINT64_MAX, 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t v = 42;
        assert_int_equal(text_u64(str_of(rows[i].text), rows[i].max, &v), rows[i].ok);
        assert_true(v == (rows[i].ok ? rows[i].value : 42));
    }
    uint64_t v;
    assert_false(text_u64((struct str){"1\0", 2}, 100, &v));
}

static void base36_follows_the_contract(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
        bool ok;
    } rows[] = {
        {"0", 0, true},
        {"z", 35, true},
        {"10", 36, true},
        {"x2qxvk", 2000000000, true},
        {"3w5e11264sgsf", UINT64_MAX, true},
        {"3w5e11264sgsg", 0, false},
        {"zzzzzzzzzzzzz", 0, false},
        {"00", 0, false},
        {"01", 0, false},
        {"", 0, false},
        {"X2", 0, false},
        {"-1", 0, false},
        {"1_", 0, false},
        {"10000000000000", 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t v = 42;
        assert_int_equal(text_base36(str_of(rows[i].text), &v), rows[i].ok);
        assert_true(v == (rows[i].ok ? rows[i].value : 42));
        char out[13];
        if (rows[i].ok)
            assert_text(out, text_put_base36(out, v), rows[i].text);
    }
}

static void put_u64_and_hex_write_what_is_meant(void **state)
{
    (void)state;
    char out[20], hex[8];
    assert_text(out, text_put_u64(out, 0), "0");
    assert_text(out, text_put_u64(out, 1234567890), "1234567890");
    assert_text(out, text_put_u64(out, UINT64_MAX), "18446744073709551615");
    text_put_hex(hex, "\x00\xff\x1a\xa1", 4);
    assert_text(hex, 8, "00ff1aa1");
    assert_int_equal(text_hex('0'), 0);
    assert_int_equal(text_hex('9'), 9);
    assert_int_equal(text_hex('a'), 10);
    assert_int_equal(text_hex('F'), 15);
    assert_int_equal(text_hex('g'), -1);
    assert_int_equal(text_hex('/'), -1);
    assert_int_equal(text_hex(':'), -1);
    assert_int_equal(text_hex('@'), -1);
    assert_int_equal(text_hex('\0'), -1);
    assert_int_equal(text_hex('\xff'), -1);
}

static void base64_takes_the_canonical_form_only(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
        size_t n;
        bool ok;
    } rows[] = {
        {"", "", 0, true},
        {"Zg==", "f", 1, true},
        {"Zm8=", "fo", 2, true},
        {"Zm9v", "foo", 3, true},
        {"Zm9vYg==", "foob", 4, true},
        {"Zm9vYmFy", "foobar", 6, true},
        {"+/+/", "\xfb\xff\xbf", 3, true},
        {"Zm9v\r\nYmFy\n", "foobar", 6, true},
        {"Z\ng=\r=", "f", 1, true},
        {"AA==", "\0", 1, true},
        {"Zg", "", 0, false},
        {"Zg=", "", 0, false},
        {"Zg===", "", 0, false},
        {"Zm8", "", 0, false},
        {"Zm8==", "", 0, false},
        {"Zm9v=", "", 0, false},
        {"Zh==", "", 0, false}, /* unused bits */
        {"Zm9=", "", 0, false},
        {"=", "", 0, false},
        {"====", "", 0, false},
        {"Z", "", 0, false},
        {"Zg==Zg==", "", 0, false},
        {"Z g=", "", 0, false},
        {"-_-_", "", 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t out[16];
        size_t n = 99;
        assert_int_equal(text_base64(str_of(rows[i].text), out, &n), rows[i].ok);
        assert_int_equal(n, rows[i].ok ? rows[i].n : 99);
        if (rows[i].ok)
            assert_memory_equal(out, rows[i].value, n);
    }
}

static void base64_reads_what_it_wrote(void **state)
{
    (void)state;
    uint8_t bytes[64], back[66];
    unsigned seed = 5;
    for (size_t n = 0; n <= sizeof bytes; n++) {
        char out[88];
        size_t back_n;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)rand_r(&seed);
        size_t len = text_put_base64(out, bytes, n);
        assert_int_equal(len, (n + 2) / 3 * 4);
        assert_true(text_base64((struct str){out, len}, back, &back_n));
        assert_int_equal(back_n, n);
        assert_memory_equal(back, bytes, n);
    }
}

static void percent_decodes_once(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
        bool ok;
    } rows[] = {
        {"", "", true},         {"a%20b", "a b", true}, {"%2f%2F", "//", true},
        {"%252e", "%2e", true}, {"a+b", "a+b", true},   {"%", "", false},
        {"%2", "", false},      {"%2g", "", false},     {"abc%g0", "", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[16];
        size_t n = 99;
        assert_int_equal(text_percent(str_of(rows[i].text), out, &n), rows[i].ok);
        assert_int_equal(text_whole_escapes(str_of(rows[i].text)), rows[i].ok);
        if (rows[i].ok)
            assert_text(out, n, rows[i].value);
        else
            assert_int_equal(n, 99);
    }
    char out[4];
    size_t n;
    assert_true(text_percent(STR("%00"), out, &n));
    assert_int_equal(n, 1);
    assert_int_equal(out[0], '\0');
}

static void percent_encodes_all_that_is_not_unreserved(void **state)
{
    (void)state;
    char bytes[256], out[3 * 256], back[256];
    for (unsigned i = 0; i < 256; i++)
        bytes[i] = (char)i;
    size_t n = text_put_percent(out, (struct str){bytes, 256}), back_n;
    assert_int_equal(n, 66 + 3 * 190);
    assert_true(text_percent((struct str){out, n}, back, &back_n));
    assert_int_equal(back_n, 256);
    assert_memory_equal(back, bytes, 256);
    assert_text(out, text_put_percent(out, STR("aZ0-._~ /+%")), "aZ0-._~%20%2F%2B%25");
}

static void rfc3339_checks_every_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t unix_s;
        uint32_t ns;
        bool ok;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0, 0, true},
        {"1985-04-12T23:20:50.52Z", 482196050, 520000000, true},
        {"1996-12-19T16:39:57-08:00", 851042397, 0, true},
        {"2024-02-29t12:00:00z", 1709208000, 0, true},
        {"2000-02-29T00:00:00Z", 951782400, 0, true},
        {"2024-01-01T00:00:00.123456789123Z", 1704067200, 123456789, true},
        {"2024-01-01T00:00:00.000000001+00:00", 1704067200, 1, true},
        {"2024-01-01T05:30:00+05:30", 1704067200, 0, true},
        {"2024-01-01T00:00:00-00:00", 1704067200, 0, true},
        {"0000-01-01T00:00:00Z", -62167219200, 0, true},
        {"9999-12-31T23:59:59Z", 253402300799, 0, true},
        {"1969-12-31T23:59:59.5Z", -1, 500000000, true},
        {"1990-12-31T23:59:60Z", 662688000, 0, true},
        {"1990-12-31T15:59:60-08:00", 662688000, 0, true},
        {"1990-12-31T12:59:60Z", 0, 0, false},
        {"2023-02-29T00:00:00Z", 0, 0, false},
        {"1900-02-29T00:00:00Z", 0, 0, false},
        {"2024-04-31T00:00:00Z", 0, 0, false},
        {"2024-00-01T00:00:00Z", 0, 0, false},
        {"2024-13-01T00:00:00Z", 0, 0, false},
        {"2024-01-00T00:00:00Z", 0, 0, false},
        {"2024-01-32T00:00:00Z", 0, 0, false},
        {"2024-01-01T24:00:00Z", 0, 0, false},
        {"2024-01-01T00:60:00Z", 0, 0, false},
        {"2024-01-01T00:00:61Z", 0, 0, false},
        {"2024-01-01T00:00:00+24:00", 0, 0, false},
        {"2024-01-01T00:00:00+00:60", 0, 0, false},
        {"2024-01-01T00:00:00+0000", 0, 0, false},
        {"2024-01-01T00:00:00+00", 0, 0, false},
        {"2024-01-01T00:00:00", 0, 0, false},
        {"2024-01-01T00:00:00.Z", 0, 0, false},
        {"2024-01-01T00:00Z", 0, 0, false},
        {"2024-01-01 00:00:00Z", 0, 0, false},
        {"2024-01-01", 0, 0, false},
        {"2024-1-01T00:00:00Z", 0, 0, false},
        {"24-01-01T00:00:00Z", 0, 0, false},
        {"2024-01-01T00:00:00Z ", 0, 0, false},
        {" 2024-01-01T00:00:00Z", 0, 0, false},
        {"2024-01-01T00:00:00ZZ", 0, 0, false},
        {"-024-01-01T00:00:00Z", 0, 0, false},
        {"", 0, 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t unix_s = 42;
        uint32_t ns = 43;
        if (text_rfc3339(str_of(rows[i].text), &unix_s, &ns) != rows[i].ok)
            fail_msg("%s", rows[i].text);
        assert_true(unix_s == (rows[i].ok ? rows[i].unix_s : 42));
        assert_int_equal(ns, rows[i].ok ? rows[i].ns : 43);
    }
}

static void dates_agree_with_the_c_library(void **state)
{
    (void)state;
    unsigned seed = 9;
    for (int i = 0; i < 20000; i++) {
        int64_t unix_s =
            (int64_t)(((uint64_t)(unsigned)rand_r(&seed) << 31 | (unsigned)rand_r(&seed)) %
                      253402300800u);
        time_t t = (time_t)unix_s;
        struct tm tm;
        char expected[40], got[29], iso[24];
        gmtime_r(&t, &tm);
        strftime(expected, sizeof expected, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        text_put_http_date(got, unix_s);
        assert_text(got, 29, expected);
        strftime(expected, sizeof expected, "%Y-%m-%dT%H:%M:%S.789Z", &tm);
        text_put_iso8601(iso, (uint64_t)unix_s * 1000 + 789);
        assert_text(iso, 24, expected);
        int64_t back;
        uint32_t ns;
        assert_true(text_rfc3339((struct str){iso, 24}, &back, &ns));
        assert_true(back == unix_s);
        assert_int_equal(ns, 789000000);
    }
}

static void dates_out_of_range_are_held_at_the_ends(void **state)
{
    (void)state;
    char http[29], iso[24];
    text_put_http_date(http, 784111777);
    assert_text(http, 29, "Sun, 06 Nov 1994 08:49:37 GMT");
    text_put_http_date(http, -5);
    assert_text(http, 29, "Thu, 01 Jan 1970 00:00:00 GMT");
    text_put_http_date(http, INT64_MAX);
    assert_text(http, 29, "Fri, 31 Dec 9999 23:59:59 GMT");
    text_put_iso8601(iso, UINT64_MAX);
    assert_text(iso, 24, "9999-12-31T23:59:59.999Z");
}

static void duration_reads_as_go_does(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
        bool ok;
    } rows[] = {
        /* from the tests of Go's package time */
        {"0", 0, true},
        {"5s", 5000000000, true},
        {"1478s", 1478000000000, true},
        {"-5s", -5000000000, true},
        {"+5s", 5000000000, true},
        {"-0", 0, true},
        {"+0", 0, true},
        {"5.0s", 5000000000, true},
        {"5.6s", 5600000000, true},
        {"5.s", 5000000000, true},
        {".5s", 500000000, true},
        {"1.004s", 1004000000, true},
        {"1.0040s", 1004000000, true},
        {"100.00100s", 100001000000, true},
        {"10ns", 10, true},
        {"11us", 11000, true},
        {"12\xc2\xb5s", 12000, true},
        {"12\xce\xbcs", 12000, true},
        {"13ms", 13000000, true},
        {"14s", 14000000000, true},
        {"15m", 900000000000, true},
        {"16h", 57600000000000, true},
        {"3h30m", 12600000000000, true},
        {"10.5s4m", 250500000000, true},
        {"-2m3.4s", -123400000000, true},
        {"1h2m3s4ms5us6ns", 3723004005006, true},
        {"39h9m14.425s", 140954425000000, true},
        {"52763797000ns", 52763797000, true},
        {"0.3333333333333333333h", 1200000000000, true},
        {"9007199254740993ns", 9007199254740993, true},
        {"9223372036854775807ns", INT64_MAX, true},
        {"9223372036854775.807us", INT64_MAX, true},
        {"9223372036s854ms775us807ns", INT64_MAX, true},
        {"-9223372036854775808ns", INT64_MIN, true},
        {"-9223372036854775.808us", INT64_MIN, true},
        {"-2562047h47m16.854775808s", INT64_MIN, true},
        {"0.100000000000000000000h", 360000000000, true},
        {"0.830103483285477580700h", 2988372539827, true},
        {"", 0, false},
        {"3", 0, false},
        {"-", 0, false},
        {"s", 0, false},
        {".", 0, false},
        {"-.", 0, false},
        {".s", 0, false},
        {"+.s", 0, false},
        {"1d", 0, false},
        {"1s1", 0, false},
        {"1.5.s", 0, false},
        {"1 s", 0, false},
        {"--5s", 0, false},
        {"1S", 0, false},
        {"00", 0, false},
        {"9223372036854775810ns", 0, false},
        {"9223372036854775808ns", 0, false},
        {"-9223372036854775809ns", 0, false},
        {"9223372036854776us", 0, false},
        {"3000000h", 0, false},
        {"9223372036854775.808us", 0, false},
        {"9223372036854ms775us808ns", 0, false},
        {"99999999999999999999s", 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ns = 42;
        if (text_duration(str_of(rows[i].text), &ns) != rows[i].ok)
            fail_msg("%s", rows[i].text);
        if (ns != (rows[i].ok ? rows[i].ns : 42))
            fail_msg("%s gave %lld", rows[i].text, (long long)ns);
    }
}

static void duration_prints_as_go_does(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } rows[] = {
        {"0s", 0},
        {"1ns", 1},
        {"1.1\xc2\xb5s", 1100},
        {"2.2ms", 2200000},
        {"50ms", 50000000},
        {"3.3s", 3300000000},
        {"30s", 30000000000},
        {"1m0s", 60000000000},
        {"1m30s", 90000000000},
        {"4m5s", 245000000000},
        {"4m5.001s", 245001000000},
        {"1h0m0s", 3600000000000},
        {"5h6m7.001s", 18367001000000},
        {"8m0.000000001s", 480000000001},
        {"2562047h47m16.854775807s", INT64_MAX},
        {"-2562047h47m16.854775808s", INT64_MIN},
        {"-1m30s", -90000000000},
        {"999.999\xc2\xb5s", 999999},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[32];
        size_t n = text_put_duration(out, rows[i].ns);
        assert_text(out, n, rows[i].text);
        int64_t back;
        assert_true(text_duration((struct str){out, n}, &back));
        assert_true(back == rows[i].ns);
    }
}

static void bytes_take_binary_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
        bool ok;
    } rows[] = {
        {"0", 0, true},
        {"1024", 1024, true},
        {"64KiB", 65536, true},
        {"1MiB", 1048576, true},
        {"2GiB", 2147483648, true},
        {"18446744073709551615", UINT64_MAX, true},
        {"17179869183GiB", UINT64_C(17179869183) << 30, true},
        {"17179869184GiB", 0, false},
        {"1KB", 0, false},
        {"1kib", 0, false},
        {"1K", 0, false},
        {"1 KiB", 0, false},
        {"KiB", 0, false},
        {"1.5MiB", 0, false},
        {"-1KiB", 0, false},
        {"1MiBKiB", 0, false},
        {"", 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t v = 42;
        if (text_bytes(str_of(rows[i].text), &v) != rows[i].ok)
            fail_msg("%s", rows[i].text);
        assert_true(v == (rows[i].ok ? rows[i].value : 42));
    }
}

static void go_int_takes_go_prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
        bool ok;
    } rows[] = {
        {"0", 0, true},
        {"-0", 0, true},
        {"28888", 28888, true},
        {"+5", 5, true},
        {"-5", -5, true},
        {"0x1F", 31, true},
        {"0X1f", 31, true},
        {"-0x10", -16, true},
        {"0o17", 15, true},
        {"0O17", 15, true},
        {"017", 15, true},
        {"00", 0, true},
        {"0b101", 5, true},
        {"0B1", 1, true},
        {"9223372036854775807", INT64_MAX, true},
        {"-9223372036854775808", INT64_MIN, true},
        {"0x7fffffffffffffff", INT64_MAX, true},
        {"9223372036854775808", 0, false},
        {"-9223372036854775809", 0, false},
        {"0x8000000000000000", 0, false},
        {"", 0, false},
        {"-", 0, false},
        {"+-1", 0, false},
        {"08", 0, false},
        {"0o8", 0, false},
        {"0b2", 0, false},
        {"0x", 0, false},
        {"0b", 0, false},
        {"0xg", 0, false},
        {"1_000", 0, false},
        {"0x-1", 0, false},
        {" 1", 0, false},
        {"1.0", 0, false},
        {"1e3", 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t v = 42;
        if (text_go_int(str_of(rows[i].text), &v) != rows[i].ok)
            fail_msg("%s", rows[i].text);
        assert_true(v == (rows[i].ok ? rows[i].value : 42));
    }
}

static void double_takes_decimal_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
        bool ok;
    } rows[] = {
        {"0", 0, true},      {"1.3", 1.3, true},  {"-0.5", -0.5, true}, {"+.5", 0.5, true},
        {"5.", 5, true},     {"1e3", 1000, true}, {"1E-2", 0.01, true}, {"1e+2", 100, true},
        {"1e-999", 0, true}, {"1e999", 0, false}, {"inf", 0, false},    {"Infinity", 0, false},
        {"nan", 0, false},   {"0x1p3", 0, false}, {"0x10", 0, false},   {"", 0, false},
        {"-", 0, false},     {".", 0, false},     {"e5", 0, false},     {"1e", 0, false},
        {"1e+", 0, false},   {"1.2.3", 0, false}, {" 1", 0, false},     {"1 ", 0, false},
        {"1,5", 0, false},   {"--1", 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        double v = 42;
        if (text_double(str_of(rows[i].text), &v) != rows[i].ok)
            fail_msg("%s", rows[i].text);
        assert_true(v == (rows[i].ok ? rows[i].value : 42));
    }
}

static void put_json_escapes_what_must_be(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", ""},
        {"plain text, longer than eight bytes", "plain text, longer than eight bytes"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\b\f\n\r\t", "\\b\\f\\n\\r\\t"},
        {"\x01\x1f\x7f", "\\u0001\\u001f\x7f"},
        {"12345678\x1b[0m", "12345678\\u001b[0m"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff", "\\ufffd"},
        {"a\xc3", "a\\ufffd"},
        {"\xe2\x82", "\\ufffd\\ufffd"},
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},
        {"\xc0\x80", "\\ufffd\\ufffd"},
        {"/<>&'", "/<>&'"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[128];
        size_t n = text_put_json(out, sizeof out, str_of(rows[i].text));
        assert_text(out, n, rows[i].expected);
    }
    char out[16];
    assert_text(out, text_put_json(out, sizeof out, STR("a\0b")), "a\\u0000b");
}

static void put_json_never_cuts_an_escape(void **state)
{
    (void)state;
    struct str s = STR("abcdefghij\n\x01\"\xe2\x82\xac\xffxyz");
    char whole[64];
    size_t whole_n = text_put_json(whole, sizeof whole, s);
    static const size_t ends[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 10,
                                  12, 12, 12, 12, 12, 12, 18, 18, 20, 20, 20, 23,
                                  23, 23, 23, 23, 23, 29, 30, 31, 32, 32};
    assert_int_equal(whole_n, 32);
    for (size_t room = 0; room < COUNT(ends); room++) {
        char *out = malloc(room + 1); /* exact, so that a write too far is seen */
        size_t n = text_put_json(out, room, s);
        assert_int_equal(n, ends[room]);
        assert_memory_equal(out, whole, n);
        free(out);
    }
}

static void utf8_refuses_what_rfc_3629_does(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
    } rows[] = {
        {"", true},
        {"ascii that is longer than a word", true},
        {"\x7f", true},
        {"\xc2\x80", true},
        {"\xdf\xbf", true},
        {"\xe0\xa0\x80", true},
        {"\xed\x9f\xbf", true},
        {"\xee\x80\x80", true},
        {"\xef\xbf\xbf", true},
        {"\xf0\x90\x80\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"12345678\xe2\x82\xac"
         "12345678",
         true},
        {"\x80", false},
        {"\xbf", false},
        {"\xc0\x80", false},
        {"\xc1\xbf", false},
        {"\xc2", false},
        {"\xc2\x41", false},
        {"\xe0\x9f\xbf", false},
        {"\xed\xa0\x80", false},
        {"\xed\xbf\xbf", false},
        {"\xe2\x82", false},
        {"\xe2\x28\xa1", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"\xf0\x9f\x98", false},
        {"\xff", false},
        {"1234567\xff"
         "1234567",
         false},
        {"12345678\xc3", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (text_utf8(str_of(rows[i].text)) != rows[i].ok)
            fail_msg("row %zu", i);
}

static void token_is_tchar(void **state)
{
    (void)state;
    assert_true(text_is_token(STR("X-Request-Id")));
    assert_true(text_is_token(STR("!#$%&'*+-.^_`|~09azAZ")));
    assert_false(text_is_token(STR("")));
    static const char bad[] = " \t\"(),/:;<=>?@[\\]{}\x7f\x80\xff";
    for (size_t i = 0; i < sizeof bad; i++) { /* the terminator too */
        char text[3] = {'a', bad[i], 'b'};
        assert_false(text_is_token((struct str){text, 3}));
    }
    size_t n = 0;
    for (size_t i = 0; i < 256; i++)
        n += text_tchar[i];
    assert_int_equal(n, 77);
}

static void visible_is_vchar(void **state)
{
    (void)state;
    size_t n = 0;
    assert_false(text_is_visible(STR("")));
    for (int i = 0; i < 256; i++) {
        char text[3] = {'a', (char)i, 'b'};
        bool visible = text_is_visible((struct str){text, 3});
        assert_int_equal(visible, i > 0x20 && i < 0x7f);
        n += visible;
    }
    assert_int_equal(n, 94);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u64_takes_digits_up_to_max),
        cmocka_unit_test(base36_follows_the_contract),
        cmocka_unit_test(put_u64_and_hex_write_what_is_meant),
        cmocka_unit_test(base64_takes_the_canonical_form_only),
        cmocka_unit_test(base64_reads_what_it_wrote),
        cmocka_unit_test(percent_decodes_once),
        cmocka_unit_test(percent_encodes_all_that_is_not_unreserved),
        cmocka_unit_test(rfc3339_checks_every_range),
        cmocka_unit_test(dates_agree_with_the_c_library),
        cmocka_unit_test(dates_out_of_range_are_held_at_the_ends),
        cmocka_unit_test(duration_reads_as_go_does),
        cmocka_unit_test(duration_prints_as_go_does),
        cmocka_unit_test(bytes_take_binary_units),
        cmocka_unit_test(go_int_takes_go_prefixes),
        cmocka_unit_test(double_takes_decimal_numbers),
        cmocka_unit_test(put_json_escapes_what_must_be),
        cmocka_unit_test(put_json_never_cuts_an_escape),
        cmocka_unit_test(utf8_refuses_what_rfc_3629_does),
        cmocka_unit_test(token_is_tchar),
        cmocka_unit_test(visible_is_vchar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
