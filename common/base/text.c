/* text.c — strict readers and writers for small text forms.  Each reader has one grammar and
 * takes the whole text or nothing, because what two readers of one text understand differently
 * is where holes come from. */
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* ---- digits ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Value of a digit in any base up to 36, lower and upper case, or 36. */
static unsigned digit_value(char c)
{
    if (is_digit(c))
        return (unsigned)(c - '0');
    c = ascii_lower(c);
    return c >= 'a' && c <= 'z' ? (unsigned)(c - 'a') + 10 : 36;
}

/* One or more digits of the base, at most max. */
static bool read_digits(struct str s, unsigned base, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = digit_value(s.p[i]);
        if (digit >= base || v > max / base || digit > max - v * base)
            return false;
        v = v * base + digit;
    }
    if (s.n == 0)
        return false;
    *ret = v;
    return true;
}

bool text_u64(struct str s, uint64_t max, uint64_t *ret)
{
    return read_digits(s, 10, max, ret);
}

bool text_base36(struct str s, uint64_t *ret)
{
    if (s.n == 0 || s.n > 13 || (s.p[0] == '0' && s.n > 1))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] >= 'A' && s.p[i] <= 'Z')
            return false;
    return read_digits(s, 36, UINT64_MAX, ret);
}

/* Both bases as constants: a division by one is a multiplication, and each line of the log has some
 * thirty digits. */

size_t text_put_base36(char out[13], uint64_t v)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    size_t n = 1;
    for (uint64_t rest = v; rest >= 36; rest /= 36)
        n++;
    for (size_t i = n; i-- > 0; v /= 36)
        out[i] = digits[v % 36];
    return n;
}

size_t text_put_u64(char out[20], uint64_t v)
{
    size_t n = 1;
    for (uint64_t rest = v; rest >= 10; rest /= 10)
        n++;
    for (size_t i = n; i-- > 0; v /= 10)
        out[i] = (char)('0' + v % 10);
    return n;
}

void text_put_hex(char *out, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = p;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

int text_hex(char c)
{
    unsigned v = digit_value(c);
    return v < 16 ? (int)v : -1;
}

/* The limit of a signed 64-bit number with that sign, as its magnitude. */
static uint64_t magnitude_max(bool minus)
{
    return (uint64_t)INT64_MAX + minus;
}

static int64_t with_sign(uint64_t magnitude, bool minus)
{
    return (int64_t)(minus ? 0 - magnitude : magnitude);
}

/* Takes one leading sign off *s. */
static bool take_sign(struct str *s)
{
    bool minus = s->n && s->p[0] == '-';
    if (minus || (s->n && s->p[0] == '+'))
        *s = str_skip(*s, 1);
    return minus;
}

bool text_go_int(struct str s, int64_t *ret)
{
    static const struct {
        char letter;
        unsigned base;
    } prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    bool minus = take_sign(&s);
    unsigned base = s.n > 1 && s.p[0] == '0' ? 8 : 10;
    for (size_t i = 0; i < 3 && base == 8; i++) {
        if (ascii_lower(s.p[1]) != prefixes[i].letter)
            continue;
        base = prefixes[i].base;
        s = str_skip(s, 2);
        break;
    }
    uint64_t v;
    if (!read_digits(s, base, magnitude_max(minus), &v))
        return false;
    *ret = with_sign(v, minus);
    return true;
}

bool text_bytes(struct str s, uint64_t *ret)
{
    static const struct {
        struct str text;
        unsigned shift;
    } units[] = {{{"KiB", 3}, 10}, {{"MiB", 3}, 20}, {{"GiB", 3}, 30}};
    unsigned shift = 0;
    for (size_t i = 0; i < 3 && s.n > 3; i++)
        if (str_eq(str_skip(s, s.n - 3), units[i].text))
            shift = units[i].shift;
    if (shift)
        s.n -= 3;
    uint64_t v;
    if (!read_digits(s, 10, UINT64_MAX >> shift, &v))
        return false;
    *ret = v << shift;
    return true;
}

static size_t count_digits(struct str s)
{
    size_t n = 0;
    while (n < s.n && is_digit(s.p[n]))
        n++;
    return n;
}

/* [sign] digits [. digits] [e [sign] digits], with a digit before or after the point. */
static bool is_decimal(struct str s)
{
    take_sign(&s);
    size_t whole = count_digits(s), fraction = 0;
    s = str_skip(s, whole);
    if (s.n && s.p[0] == '.') {
        fraction = count_digits(str_skip(s, 1));
        s = str_skip(s, fraction + 1);
    }
    if (whole + fraction == 0)
        return false;
    if (s.n == 0)
        return true;
    if (ascii_lower(s.p[0]) != 'e')
        return false;
    s = str_skip(s, 1);
    take_sign(&s);
    return s.n > 0 && count_digits(s) == s.n;
}

bool text_double(struct str s, double *ret)
{
    char z[128];
    if (s.n >= sizeof z || !is_decimal(s))
        return false;
    memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    double v = strtod(z, NULL);
    if (!isfinite(v))
        return false;
    *ret = v;
    return true;
}

/* ---- base64, percent ---- */

/* Value of a base64 digit, or 64. */
static unsigned base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (unsigned)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (unsigned)(c - 'a') + 26;
    if (is_digit(c))
        return (unsigned)(c - '0') + 52;
    return c == '+' ? 62 : c == '/' ? 63 : 64;
}

bool text_base64(struct str s, uint8_t *ret, size_t *ret_n)
{
    uint32_t bits = 0;
    size_t digits = 0, padding = 0, n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '\r' || c == '\n')
            continue;
        if (c == '=') {
            padding++;
            continue;
        }
        unsigned v = base64_value(c);
        if (v == 64 || padding)
            return false;
        bits = bits << 6 | v;
        if (++digits % 4 == 0) {
            ret[n++] = (uint8_t)(bits >> 16);
            ret[n++] = (uint8_t)(bits >> 8);
            ret[n++] = (uint8_t)bits;
        }
    }
    static const struct {
        size_t padding, bytes;
        uint32_t unused; /* bits that must be zero */
    } ends[4] = {{0, 0, 0}, {SIZE_MAX, 0, 0}, {2, 1, 0x0f}, {1, 2, 0x03}};
    size_t rest = digits % 4;
    if (padding != ends[rest].padding || (bits & ends[rest].unused) != 0)
        return false;
    if (rest)
        ret[n++] = (uint8_t)(bits >> (rest == 2 ? 4 : 10));
    if (rest == 3)
        ret[n++] = (uint8_t)(bits >> 2);
    *ret_n = n;
    return true;
}

size_t text_put_base64(char *out, const void *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = p;
    size_t at = 0;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        if (left > 1)
            bits |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2)
            bits |= bytes[i + 2];
        out[at++] = digits[bits >> 18];
        out[at++] = digits[bits >> 12 & 63];
        out[at++] = left > 1 ? digits[bits >> 6 & 63] : '=';
        out[at++] = left > 2 ? digits[bits & 63] : '=';
    }
    return at;
}

static bool is_escape(struct str s, size_t at)
{
    return s.n - at >= 3 && text_hex(s.p[at + 1]) >= 0 && text_hex(s.p[at + 2]) >= 0;
}

bool text_whole_escapes(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '%' && !is_escape(s, i))
            return false;
    return true;
}

bool text_percent(struct str s, char *out, size_t *ret_n)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '%') {
            out[n++] = s.p[i];
            continue;
        }
        if (!is_escape(s, i))
            return false;
        out[n++] = (char)(text_hex(s.p[i + 1]) << 4 | text_hex(s.p[i + 2]));
        i += 2;
    }
    *ret_n = n;
    return true;
}

static bool is_unreserved(char c)
{
    char l = ascii_lower(c);
    return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

size_t text_put_percent(char *out, struct str s)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (is_unreserved(s.p[i])) {
            out[n++] = s.p[i];
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[c >> 4];
        out[n++] = digits[c & 15];
    }
    return n;
}

/* ---- dates ---- */

enum { DAY_S = 86400 };
static const int64_t LAST_YEAR_END_S = 253402300799; /* 9999-12-31T23:59:59Z */

struct civil {
    unsigned year, month, day; /* from 1 */
};

/* Days since 1970-01-01 in the Gregorian calendar, for years from 0; a year begins with March here.
 */
static int64_t days_of(struct civil c)
{
    unsigned year = c.year + 400 - (c.month <= 2);
    unsigned month = (c.month + 9) % 12;
    unsigned day_of_year = (153 * month + 2) / 5 + c.day - 1;
    return (int64_t)year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719468 - 146097;
}

static struct civil civil_of(int64_t days)
{
    unsigned since = (unsigned)(days + 719468); /* 0000-03-01; days are not before it */
    unsigned era = since / 146097, day_of_era = since % 146097;
    unsigned year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    unsigned month = (5 * day_of_year + 2) / 153;
    struct civil c = {.year = era * 400 + year_of_era,
                      .month = month < 10 ? month + 3 : month - 9,
                      .day = day_of_year - (153 * month + 2) / 5 + 1};
    c.year += c.month <= 2;
    return c;
}

static unsigned month_days(unsigned year, unsigned month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

/* A number of exactly n digits in min..max, taken off *s. */
static bool take_number(struct str *s, size_t n, unsigned min, unsigned max, unsigned *ret)
{
    uint64_t v;
    if (s->n < n || !read_digits(str_head(*s, n), 10, max, &v) || v < min)
        return false;
    *ret = (unsigned)v;
    *s = str_skip(*s, n);
    return true;
}

static bool take_char(struct str *s, char c)
{
    if (s->n == 0 || s->p[0] != c)
        return false;
    *s = str_skip(*s, 1);
    return true;
}

static bool take_date(struct str *s, int64_t *ret_days)
{
    struct civil c;
    if (!take_number(s, 4, 0, 9999, &c.year) || !take_char(s, '-') ||
        !take_number(s, 2, 1, 12, &c.month) || !take_char(s, '-') ||
        !take_number(s, 2, 1, month_days(c.year, c.month), &c.day))
        return false;
    *ret_days = days_of(c);
    return true;
}

/* hh:mm:ss; a leap second is let through here. */
static bool take_time(struct str *s, int64_t *ret_s)
{
    unsigned hour, minute, second;
    if (!take_number(s, 2, 0, 23, &hour) || !take_char(s, ':') ||
        !take_number(s, 2, 0, 59, &minute) || !take_char(s, ':') ||
        !take_number(s, 2, 0, 60, &second))
        return false;
    *ret_s = (int64_t)hour * 3600 + minute * 60 + second;
    return true;
}

/* An optional ".digits", of which nine count. */
static bool take_fraction(struct str *s, uint32_t *ret_ns)
{
    *ret_ns = 0;
    if (!take_char(s, '.'))
        return true;
    size_t digits = count_digits(*s);
    for (size_t i = 0; i < 9; i++)
        *ret_ns = *ret_ns * 10 + (i < digits ? (uint32_t)(s->p[i] - '0') : 0);
    *s = str_skip(*s, digits);
    return digits > 0;
}

/* "Z" or the offset from UTC, in seconds. */
static bool take_zone(struct str *s, int64_t *ret_s)
{
    *ret_s = 0;
    if (take_char(s, 'Z') || take_char(s, 'z'))
        return true;
    if (s->n == 0 || (s->p[0] != '+' && s->p[0] != '-'))
        return false;
    bool minus = take_sign(s);
    unsigned hour, minute;
    if (!take_number(s, 2, 0, 23, &hour) || !take_char(s, ':') ||
        !take_number(s, 2, 0, 59, &minute))
        return false;
    int64_t offset = (int64_t)hour * 3600 + minute * 60;
    *ret_s = minus ? -offset : offset;
    return true;
}

bool text_rfc3339(struct str s, int64_t *ret_unix_s, uint32_t *ret_ns)
{
    int64_t days, time_s, zone_s;
    uint32_t ns;
    if (!take_date(&s, &days) || (!take_char(&s, 'T') && !take_char(&s, 't')))
        return false;
    struct str seconds = s.n >= 8 ? (struct str){s.p + 6, 2} : STR_NONE;
    if (!take_time(&s, &time_s) || !take_fraction(&s, &ns) || !take_zone(&s, &zone_s) || s.n != 0)
        return false;
    int64_t unix_s = days * DAY_S + time_s - zone_s;
    /* leap seconds are put in at the end of a day of UTC only */
    if (str_eq(seconds, STR("60")) && unix_s % DAY_S != 0)
        return false;
    *ret_unix_s = unix_s;
    *ret_ns = ns;
    return true;
}

static char *put_2(char *out, unsigned v)
{
    out[0] = (char)('0' + v / 10 % 10);
    out[1] = (char)('0' + v % 10);
    return out + 2;
}

/* hh:mm:ss */
static char *put_time(char *out, unsigned day_s)
{
    out = put_2(out, day_s / 3600);
    *out++ = ':';
    out = put_2(out, day_s / 60 % 60);
    *out++ = ':';
    return put_2(out, day_s % 60);
}

static int64_t printable_s(int64_t unix_s)
{
    if (unix_s < 0)
        return 0;
    return unix_s > LAST_YEAR_END_S ? LAST_YEAR_END_S : unix_s;
}

void text_put_http_date(char out[29], int64_t unix_s)
{
    static const char weekdays[] = "ThuFriSatSunMonTueWed"; /* 1970-01-01 was a Thursday */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    unix_s = printable_s(unix_s);
    int64_t days = unix_s / DAY_S;
    struct civil c = civil_of(days);
    char *at = out;
    memcpy(at, weekdays + days % 7 * 3, 3);
    memcpy(at + 3, ", ", 2);
    at = put_2(at + 5, c.day);
    *at++ = ' ';
    memcpy(at, months + (c.month - 1) * 3, 3);
    at[3] = ' ';
    at = put_2(at + 4, c.year / 100);
    at = put_2(at, c.year % 100);
    *at++ = ' ';
    at = put_time(at, (unsigned)(unix_s % DAY_S));
    memcpy(at, " GMT", 4);
}

void text_put_iso8601(char out[24], uint64_t unix_ms)
{
    uint64_t max_ms = (uint64_t)LAST_YEAR_END_S * 1000 + 999;
    if (unix_ms > max_ms)
        unix_ms = max_ms;
    int64_t unix_s = (int64_t)(unix_ms / 1000);
    unsigned ms = (unsigned)(unix_ms % 1000);
    struct civil c = civil_of(unix_s / DAY_S);
    char *at = put_2(put_2(out, c.year / 100), c.year % 100);
    *at++ = '-';
    at = put_2(at, c.month);
    *at++ = '-';
    at = put_2(at, c.day);
    *at++ = 'T';
    at = put_time(at, (unsigned)(unix_s % DAY_S));
    *at++ = '.';
    at = put_2(at, ms / 10);
    at[0] = (char)('0' + ms % 10);
    at[1] = 'Z';
}

/* ---- durations, as Go reads and prints them ---- */

enum { MICROSECOND = 1000, MILLISECOND = 1000 * 1000, SECOND = 1000 * 1000 * 1000 };

static const struct {
    struct str text;
    uint64_t ns;
} units[] = {
    {{"ns", 2}, 1},
    {{"us", 2}, MICROSECOND},
    {{"\xc2\xb5s", 3}, MICROSECOND}, /* U+00B5, micro sign */
    {{"\xce\xbcs", 3}, MICROSECOND}, /* U+03BC, Greek mu */
    {{"ms", 2}, MILLISECOND},
    {{"s", 1}, SECOND},
    {{"m", 1}, UINT64_C(60) * SECOND},
    {{"h", 1}, UINT64_C(3600) * SECOND},
};

/* The unit at the front of *s, which is all letters up to the next number; 0 if there is none of
 * that name. */
static uint64_t take_unit(struct str *s)
{
    size_t n = 0;
    while (n < s->n && !is_digit(s->p[n]) && s->p[n] != '.')
        n++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!str_eq(str_head(*s, n), units[i].text))
            continue;
        *s = str_skip(*s, n);
        return units[i].ns;
    }
    return 0;
}

/* The share of unit that ".digits" means; digits beyond what 63 bits hold do not count (as in Go).
 */
static uint64_t share_of(struct str digits, uint64_t unit)
{
    const uint64_t max = magnitude_max(true);
    uint64_t parts = 0;
    double scale = 1;
    for (size_t i = 0; i < digits.n; i++) {
        uint64_t digit = (uint64_t)(digits.p[i] - '0');
        if (parts > INT64_MAX / 10 || parts * 10 + digit > max)
            break;
        parts = parts * 10 + digit;
        scale *= 10;
    }
    return (uint64_t)((double)parts * ((double)unit / scale));
}

/* Adds value * unit and the share the fraction means; the sum is at most 2^63. */
static bool add_part(uint64_t *sum, uint64_t value, struct str fraction, uint64_t unit)
{
    const uint64_t max = magnitude_max(true);
    if (value > max / unit)
        return false;
    uint64_t ns = value * unit, share = share_of(fraction, unit);
    if (share > max - ns || ns + share > max - *sum)
        return false;
    *sum += ns + share;
    return true;
}

/* digits [. digits] unit, with a digit before or after the point. */
static bool take_part(struct str *s, uint64_t *sum)
{
    uint64_t value = 0;
    size_t whole = count_digits(*s);
    if (whole && !read_digits(str_head(*s, whole), 10, magnitude_max(true), &value))
        return false;
    *s = str_skip(*s, whole);
    struct str fraction = STR_NONE;
    if (take_char(s, '.')) {
        fraction = str_head(*s, count_digits(*s));
        *s = str_skip(*s, fraction.n);
    }
    uint64_t unit = take_unit(s);
    return whole + fraction.n > 0 && unit != 0 && add_part(sum, value, fraction, unit);
}

bool text_duration(struct str s, int64_t *ret_ns)
{
    bool minus = take_sign(&s);
    uint64_t sum = 0;
    if (s.n == 0)
        return false;
    if (str_eq(s, STR("0"))) {
        *ret_ns = 0;
        return true;
    }
    while (s.n)
        if (!take_part(&s, &sum))
            return false;
    if (sum > magnitude_max(minus))
        return false;
    *ret_ns = with_sign(sum, minus);
    return true;
}

/* v, which counts 1/10^places, as a decimal number without zeros at its end. */
static char *put_decimal(char *out, uint64_t v, unsigned places)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < places; i++)
        scale *= 10;
    out += text_put_u64(out, v / scale);
    v %= scale;
    if (v == 0)
        return out;
    *out++ = '.';
    for (; v != 0; v %= scale) {
        scale /= 10;
        *out++ = (char)('0' + v / scale);
    }
    return out;
}

static char *put_chars(char *out, struct str s)
{
    memcpy(out, s.p, s.n);
    return out + s.n;
}

static char *put_below_second(char *out, uint64_t ns)
{
    if (ns < MICROSECOND)
        return put_chars(put_decimal(out, ns, 0), STR("ns"));
    if (ns < MILLISECOND)
        return put_chars(put_decimal(out, ns, 3), STR("\xc2\xb5s"));
    return put_chars(put_decimal(out, ns, 6), STR("ms"));
}

size_t text_put_duration(char out[32], int64_t ns)
{
    uint64_t v = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    char *at = out;
    if (ns < 0)
        *at++ = '-';
    if (v == 0)
        at = put_chars(at, STR("0s"));
    else if (v < SECOND)
        at = put_below_second(at, v);
    else {
        uint64_t minutes = v / SECOND / 60;
        if (minutes >= 60)
            at = put_chars(at + text_put_u64(at, minutes / 60), STR("h"));
        if (minutes > 0)
            at = put_chars(at + text_put_u64(at, minutes % 60), STR("m"));
        at = put_chars(put_decimal(at, v % (UINT64_C(60) * SECOND), 9), STR("s"));
    }
    return (size_t)(at - out);
}

/* ---- UTF-8, JSON, tokens ---- */

/* Length of the well-formed character of two bytes or more at p, or 0 (Unicode table 3-7). */
static size_t wide_char(const uint8_t *p, size_t n)
{
    if (n < 2 || p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint8_t min = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t max = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (n < len || p[1] < min || p[1] > max)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

bool text_utf8(struct str s)
{
    const uint8_t *p = (const uint8_t *)s.p;
    for (size_t i = 0; i < s.n;) {
        uint64_t word;
        if (s.n - i >= sizeof word) {
            memcpy(&word, p + i, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                i += sizeof word;
                continue;
            }
        }
        size_t len = p[i] < 0x80 ? 1 : wide_char(p + i, s.n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

/* How a byte stands in a JSON string: 0 as it is, 'u' as \u00xx, 'w' part of a wide character, else
 * after a backslash. */
static char escape_of(uint8_t c)
{
    static const char controls[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (c >= 0x80)
        return 'w';
    if (c < 0x20)
        return controls[c] ? controls[c] : 'u';
    return c == '"' || c == '\\' ? (char)c : 0;
}

/* Bytes of s up to the first that needs more than copying, at most max. */
static size_t plain_run(struct str s, size_t max)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    size_t n = s.n < max ? s.n : max, i = 0;
    for (uint64_t w; n - i >= sizeof w; i += sizeof w) {
        memcpy(&w, s.p + i, sizeof w);
        uint64_t quote = w ^ ones * '"', slash = w ^ ones * '\\';
        /* the top bit of a byte that is below 0x20, zero, or has its top bit set (false alarms go
         * the slow way) */
        if (((w - ones * 0x20) | (quote - ones) | (slash - ones) | w) & tops)
            break;
    }
    while (i < n && escape_of((uint8_t)s.p[i]) == 0)
        i++;
    return i;
}

/* One character that needs more than copying: its text in *ret (room for 6), how much of s it was
 * in *ret_taken. */
static size_t put_special(char *ret, struct str s, size_t *ret_taken)
{
    uint8_t c = (uint8_t)s.p[0];
    char escape = escape_of(c);
    size_t len;
    *ret_taken = 1;
    if (escape == 'w' && (len = wide_char((const uint8_t *)s.p, s.n)) != 0) {
        memcpy(ret, s.p, len);
        *ret_taken = len;
        return len;
    }
    if (escape == 'w') {
        memcpy(ret, "\\ufffd", 6);
        return 6;
    }
    if (escape == 'u') {
        memcpy(ret, "\\u00", 4);
        text_put_hex(ret + 4, &c, 1);
        return 6;
    }
    ret[0] = '\\';
    ret[1] = escape;
    return 2;
}

size_t text_put_json(char *out, size_t room, struct str s)
{
    size_t n = 0;
    while (s.n) {
        size_t run = plain_run(s, room - n);
        memcpy(out + n, s.p, run);
        n += run;
        s = str_skip(s, run);
        if (s.n == 0 || n == room)
            break;
        char special[6];
        size_t taken, len = put_special(special, s, &taken);
        if (len > room - n)
            break;
        memcpy(out + n, special, len);
        n += len;
        s = str_skip(s, taken);
    }
    return n;
}

const uint8_t text_tchar[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1,         ['&'] = 1,         ['\''] = 1,
    ['*'] = 1, ['+'] = 1, ['-'] = 1, ['.'] = 1,         ['^'] = 1,         ['_'] = 1,
    ['`'] = 1, ['|'] = 1, ['~'] = 1, ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};

bool text_is_token(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!text_tchar[(uint8_t)s.p[i]])
            return false;
    return s.n > 0;
}

bool text_is_visible(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~')
            return false;
    return s.n > 0;
}
