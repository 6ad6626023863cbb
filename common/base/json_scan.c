/* json_scan.c — decides what is JSON, without recursion and without a tree: a mark goes over the
 * text once, names of open objects wait on a stack until their object ends.  Where a tree is to be
 * built it also notes where every value begins. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/json_impl.h"
#include "base/map.h"
#include "base/text.h"

struct json_level {
    bool object;
    uint32_t first_name;
};

enum {
    NUMBER_BYTES = 63, /* what cJSON reads of one number */
    FEW_NAMES = 8,     /* so many are compared each with each */
    NAME_SHOWN = 80,   /* bytes of a member name in a fault */
};

/* ---- faults ---- */

void json_place(struct json_fault *fault, struct str text, size_t at)
{
    fault->line = 1;
    size_t line_start = 0;
    for (const char *lf; (lf = memchr(text.p + line_start, '\n', at - line_start));) {
        fault->line++;
        line_start = (size_t)(lf + 1 - text.p);
    }
    fault->column = (unsigned)(at - line_start + 1);
}

bool json_scan_fail(struct json_scan *s, size_t at, const char *text)
{
    json_place(s->fault, s->text, at);
    snprintf(s->fault->text, sizeof s->fault->text, "%s", text);
    return false;
}

static bool fail_expected(struct json_scan *s, const char *what)
{
    char text[64];
    bool end = s->at == s->text.n;
    snprintf(text, sizeof text, end ? "expected %s, found the end" : "expected %s", what);
    return json_scan_fail(s, s->at, text);
}

/* ---- bytes ---- */

/* The byte at the mark, or -1 at the end. */
static int peek(const struct json_scan *s)
{
    return s->at < s->text.n ? (unsigned char)s->text.p[s->at] : -1;
}

static void skip_blanks(struct json_scan *s)
{
    for (int c = peek(s); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(s))
        s->at++;
}

static size_t skip_digits(struct json_scan *s)
{
    size_t from = s->at;
    for (int c = peek(s); c >= '0' && c <= '9'; c = peek(s))
        s->at++;
    return s->at - from;
}

/* ---- strings ---- */

/* Four hex digits at `at`, or -1. */
static int hex4(struct str text, size_t at)
{
    int v = 0;
    if (text.n - at < 4)
        return -1;
    for (size_t i = 0; i < 4; i++) {
        int digit = text_hex(text.p[at + i]);
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

static bool is_high(int unit)
{
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low(int unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* The mark is behind "\u". */
static bool scan_unicode(struct json_scan *s)
{
    size_t start = s->at - 2;
    int unit = hex4(s->text, s->at);
    if (unit < 0)
        return json_scan_fail(s, start, "bad \\u escape");
    if (unit == 0)
        return json_scan_fail(s, start, "\\u0000 is not allowed");
    s->at += 4;
    if (is_low(unit))
        return json_scan_fail(s, start, "lone surrogate");
    if (!is_high(unit))
        return true;
    struct str rest = str_skip(s->text, s->at);
    if (!str_starts(rest, STR("\\u")) || !is_low(hex4(s->text, s->at + 2)))
        return json_scan_fail(s, start, "lone surrogate");
    s->at += 6;
    return true;
}

/* The mark is at a backslash. */
static bool scan_escape(struct json_scan *s)
{
    if (s->text.n - s->at < 2)
        return json_scan_fail(s, s->at, "string without an end");
    char c = s->text.p[s->at + 1];
    if (c != 'u' && !memchr("\"\\/bfnrt", c, 8))
        return json_scan_fail(s, s->at, "bad escape");
    s->at += 2;
    return c != 'u' || scan_unicode(s);
}

/* The mark is at a byte of 0x80 or more. */
static bool scan_wide(struct json_scan *s)
{
    unsigned char lead = (unsigned char)s->text.p[s->at];
    size_t len = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (s->text.n - s->at < len || !text_utf8((struct str){s->text.p + s->at, len}))
        return json_scan_fail(s, s->at, "bad UTF-8");
    s->at += len;
    return true;
}

/* Bytes of a string that mean themselves: no control byte, quote, backslash, nor 0x80 and more. */
static bool is_plain(char c)
{
    return (signed char)c >= 0x20 && c != '"' && c != '\\';
}

static bool scan_special(struct json_scan *s, size_t start, bool *escaped)
{
    int c = peek(s);
    if (c < 0)
        return json_scan_fail(s, start, "string without an end");
    if (c < 0x20)
        return json_scan_fail(s, s->at, "control byte in a string");
    if (c != '\\')
        return scan_wide(s);
    *escaped = true;
    return scan_escape(s);
}

bool json_scan_string(struct json_scan *s, struct json_name *ret)
{
    size_t start = s->at++;
    bool escaped = false;
    for (;;) {
        while (s->at < s->text.n && is_plain(s->text.p[s->at]))
            s->at++;
        if (peek(s) == '"')
            break;
        if (!scan_special(s, start, &escaped))
            return false;
    }
    *ret = (struct json_name){(uint32_t)start + 1, (uint32_t)(s->at - start - 1), escaped};
    s->at++;
    return true;
}

/* ---- member names ---- */

static char *put_utf8(char *out, unsigned c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
    }
    *out++ = (char)(0x80 | (c & 63));
    return out;
}

/* Writes one escape, known to be good, and returns what follows it. */
static struct str unescape_one(struct str s, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s.p[1] != 'u') {
        *(*out)++ = to[(const char *)memchr(from, s.p[1], 8) - from];
        return str_skip(s, 2);
    }
    int unit = hex4(s, 2);
    s = str_skip(s, 6);
    if (!is_high(unit)) {
        *out = put_utf8(*out, (unsigned)unit);
        return s;
    }
    unsigned low = (unsigned)hex4(s, 2);
    *out = put_utf8(*out, 0x10000 + (((unsigned)unit - 0xd800) << 10) + (low - 0xdc00));
    return str_skip(s, 6);
}

size_t json_unescape(struct str raw, char *out)
{
    char *end = out; /* an escape is never shorter than what it means */
    while (raw.n) {
        if (raw.p[0] == '\\') {
            raw = unescape_one(raw, &end);
            continue;
        }
        *end++ = raw.p[0];
        raw = str_skip(raw, 1);
    }
    return (size_t)(end - out);
}

/* The name as it is meant.  *ret_copy is what the caller must free. */
static struct str plain_name(const struct json_scan *s, const struct json_name *name,
                             char **ret_copy)
{
    struct str raw = {s->text.p + name->at, name->len};
    *ret_copy = NULL;
    if (!name->escaped)
        return raw;
    char *copy = mem_renew(NULL, raw.n);
    *ret_copy = copy;
    return (struct str){copy, json_unescape(raw, copy)};
}

static bool same_name(const struct json_scan *s, const struct json_name *a,
                      const struct json_name *b)
{
    char *copy_a, *copy_b;
    if (!a->escaped && !b->escaped)
        return a->len == b->len && memcmp(s->text.p + a->at, s->text.p + b->at, a->len) == 0;
    struct str plain_a = plain_name(s, a, &copy_a), plain_b = plain_name(s, b, &copy_b);
    bool same = str_eq(plain_a, plain_b);
    mem_free_wiped(copy_a);
    mem_free_wiped(copy_b);
    return same;
}

static bool fail_doubled(struct json_scan *s, const struct json_name *name)
{
    char *copy, shown[NAME_SHOWN];
    size_t n = text_put_json(shown, sizeof shown, plain_name(s, name, &copy));
    mem_free_wiped(copy);
    for (size_t i = 0; i < n; i++)
        if (shown[i] == 0x7f) /* JSON has no escape for it, a line of the log no room */
            shown[i] = '?';
    json_place(s->fault, s->text, name->at - 1);
    snprintf(s->fault->text, sizeof s->fault->text, "doubled member name \"%.*s\"", (int)n, shown);
    return false;
}

static const struct json_name *doubled_of_few(const struct json_scan *s,
                                              const struct json_name *names, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (same_name(s, &names[i], &names[k]))
                return &names[i];
    return NULL;
}

static uint64_t name_hash(const struct json_scan *s, const struct json_name *name)
{
    char *copy;
    struct str plain = plain_name(s, name, &copy);
    uint64_t hash = map_hash(s->key, plain.p, plain.n);
    mem_free_wiped(copy);
    return hash;
}

/* A table of at least twice as many slots as names; the hash is keyed, since the sender chose the
 * names. */
static const struct json_name *doubled_of_many(struct json_scan *s, const struct json_name *names,
                                               size_t n)
{
    struct seen {
        uint64_t hash;
        const struct json_name *name;
    } * seen;
    size_t slots = 64;
    const struct json_name *doubled = NULL;
    while (slots < n * 2)
        slots *= 2;
    seen = mem_new(slots * sizeof *seen);
    if (!s->has_key)
        digest_random(s->key, sizeof s->key);
    s->has_key = true;
    for (size_t i = 0; i < n && !doubled; i++) {
        uint64_t hash = name_hash(s, &names[i]);
        size_t at = hash & (slots - 1);
        for (; seen[at].name && !doubled; at = (at + 1) & (slots - 1))
            if (seen[at].hash == hash && same_name(s, seen[at].name, &names[i]))
                doubled = &names[i];
        seen[at] = (struct seen){hash, &names[i]};
    }
    mem_free(seen);
    return doubled;
}

/* Looks at the names of the innermost object, which has just ended, and forgets them. */
static bool check_names(struct json_scan *s, uint32_t first)
{
    size_t n = s->name_count - first;
    s->name_count = first;
    if (n < 2)
        return true;
    const struct json_name *names = s->names + first;
    const struct json_name *doubled =
        n <= FEW_NAMES ? doubled_of_few(s, names, n) : doubled_of_many(s, names, n);
    return !doubled || fail_doubled(s, doubled);
}

/* ---- values ---- */

static void note_place(struct json_scan *s)
{
    if (!s->tree)
        return;
    if (s->place_count == s->place_room) {
        s->place_room = s->place_room ? s->place_room * 2 : 64;
        s->places = mem_renew(s->places, s->place_room * sizeof *s->places);
    }
    s->places[s->place_count++] = (uint32_t)s->at;
}

static void note_name(struct json_scan *s, struct json_name name)
{
    if (s->name_count == s->name_room) {
        s->name_room = s->name_room ? s->name_room * 2 : 64;
        s->names = mem_renew(s->names, s->name_room * sizeof *s->names);
    }
    s->names[s->name_count++] = name;
}

/* Takes a dot and digits, if there is a dot. */
static bool scan_fraction(struct json_scan *s)
{
    if (peek(s) != '.')
        return true;
    s->at++;
    return skip_digits(s) > 0;
}

/* Takes an exponent if there is one. */
static bool scan_exponent(struct json_scan *s, bool *ret_there)
{
    *ret_there = peek(s) == 'e' || peek(s) == 'E';
    if (!*ret_there)
        return true;
    s->at++;
    if (peek(s) == '+' || peek(s) == '-')
        s->at++;
    return skip_digits(s) > 0;
}

static bool scan_number(struct json_scan *s)
{
    size_t start = s->at;
    bool exponent;
    double v;
    if (peek(s) == '-')
        s->at++;
    bool zero = peek(s) == '0';
    size_t whole = skip_digits(s);
    if (whole == 0 || (zero && whole > 1) || !scan_fraction(s) || !scan_exponent(s, &exponent))
        return json_scan_fail(s, start, "bad number");
    struct str number = {s->text.p + start, s->at - start};
    if (number.n > NUMBER_BYTES)
        return json_scan_fail(s, start, "number too long");
    /* 1e999 has the form of a number, but none can hold it */
    return !exponent || text_double(number, &v) || json_scan_fail(s, start, "number out of range");
}

static bool scan_word(struct json_scan *s)
{
    static const struct str words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    struct str rest = str_skip(s->text, s->at);
    for (size_t i = 0; i < 3; i++) {
        if (!str_starts(rest, words[i]))
            continue;
        s->at += words[i].n;
        return true;
    }
    return fail_expected(s, "a value");
}

/* The mark is where a member name must be; it ends behind the colon. */
static bool scan_name(struct json_scan *s)
{
    struct json_name name;
    if (peek(s) != '"')
        return fail_expected(s, "a member name");
    if (!json_scan_string(s, &name))
        return false;
    note_name(s, name);
    skip_blanks(s);
    if (peek(s) != ':')
        return fail_expected(s, "':'");
    s->at++;
    return true;
}

static bool close_level(struct json_scan *s)
{
    const struct json_level *level = &s->levels[--s->depth];
    s->at++;
    return !level->object || check_names(s, level->first_name);
}

/* What comes next: a value, or what follows one. */
enum want { VALUE, AFTER };

static bool open_level(struct json_scan *s, enum want *ret_want)
{
    bool object = peek(s) == '{';
    if (s->depth == s->max_depth)
        return json_scan_fail(s, s->at, "nested too deeply");
    s->levels[s->depth++] = (struct json_level){object, (uint32_t)s->name_count};
    s->at++;
    skip_blanks(s);
    if (peek(s) == (object ? '}' : ']')) {
        *ret_want = AFTER;
        return close_level(s);
    }
    *ret_want = VALUE;
    return !object || scan_name(s);
}

static bool scan_value(struct json_scan *s, enum want *ret_want)
{
    struct json_name string;
    skip_blanks(s);
    note_place(s);
    int c = peek(s);
    if (c == '{' || c == '[')
        return open_level(s, ret_want);
    *ret_want = AFTER;
    if (c == '"')
        return json_scan_string(s, &string);
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(s);
    return scan_word(s);
}

static bool scan_after(struct json_scan *s, enum want *ret_want)
{
    bool object = s->levels[s->depth - 1].object;
    skip_blanks(s);
    *ret_want = AFTER;
    if (peek(s) == (object ? '}' : ']'))
        return close_level(s);
    if (peek(s) != ',')
        return fail_expected(s, object ? "',' or '}'" : "',' or ']'");
    s->at++;
    *ret_want = VALUE;
    if (!object)
        return true;
    skip_blanks(s);
    return scan_name(s);
}

bool json_scan_document(struct json_scan *s, size_t max_bytes)
{
    enum want want = VALUE;
    if (!s->text.n)
        s->text = STR("");
    if ((max_bytes && s->text.n > max_bytes) || s->text.n >= INT_MAX)
        return json_scan_fail(s, 0, "too large");
    s->levels = mem_new(s->max_depth * sizeof *s->levels);
    while (want == VALUE || s->depth > 0)
        if (!(want == VALUE ? scan_value(s, &want) : scan_after(s, &want)))
            return false;
    skip_blanks(s);
    return s->at == s->text.n || json_scan_fail(s, s->at, "something follows the document");
}

void json_scan_done(struct json_scan *s)
{
    mem_free(s->levels);
    mem_free(s->places);
    mem_free(s->names);
}
