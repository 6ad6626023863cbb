/* json_cut.c — reading without a tree, for texts of which little is wanted.  A value is found by
 * its end alone: quotes and brackets are followed, what stands between them is looked at only where
 * somebody asks for it, and then as strictly as everywhere else. */
#include "base/json.h"

#include <assert.h>

#include "base/json_impl.h"
#include "base/text.h"

bool json_check(struct str text, size_t max_bytes, unsigned max_depth, struct json_fault *ret_fault)
{
    assert(max_depth > 0);
    struct json_scan s = {.text = text, .max_depth = max_depth, .fault = ret_fault};
    bool good = json_scan_document(&s, max_bytes);
    json_scan_done(&s);
    return good;
}

/* ---- walking over ---- */

static const uint64_t ones = 0x0101010101010101;

/* Is one of the eight bytes that byte? */
static bool holds(uint64_t eight, uint8_t byte)
{
    eight ^= ones * byte;
    return ((eight - ones) & ~eight & ones * 0x80) != 0;
}

/* Eight bytes at a time, as long as none of them is a quote or a backslash. */
static size_t walk_plain(struct str text, size_t at)
{
    uint64_t eight;
    for (; text.n - at >= sizeof eight; at += sizeof eight) {
        memcpy(&eight, text.p + at, sizeof eight);
        if (holds(eight, '"') || holds(eight, '\\'))
            break;
    }
    return at;
}

/* The position behind the string that begins at `at`, or 0. */
static size_t walk_string(struct str text, size_t at)
{
    at++;
    while (at < text.n) {
        at = walk_plain(text, at);
        for (unsigned i = 0; i < sizeof(uint64_t) && at < text.n; i++, at++) {
            if (text.p[at] == '"')
                return at + 1;
            at += text.p[at] == '\\';
        }
    }
    return 0;
}

/* The position behind the object or array that begins at `at`, or 0. */
static size_t walk_brackets(struct str text, size_t at)
{
    enum { PLAIN, QUOTE, OPEN, CLOSE };
    static const uint8_t kinds[256] = {
        ['"'] = QUOTE, ['{'] = OPEN, ['['] = OPEN, ['}'] = CLOSE, [']'] = CLOSE,
    };
    for (size_t depth = 0; at < text.n;) {
        uint8_t kind = kinds[(uint8_t)text.p[at]];
        if (kind == QUOTE) {
            at = walk_string(text, at);
            if (at == 0)
                return 0;
            continue;
        }
        at++;
        depth += kind == OPEN;
        if (kind == CLOSE && --depth == 0)
            return at;
    }
    return 0;
}

/* Numbers and words. */
static size_t walk_word(struct str text, size_t at)
{
    size_t start = at;
    while (at < text.n && !strchr(",:]} \t\r\n\"[{", text.p[at]))
        at++;
    return at > start ? at : 0;
}

static size_t walk_value(struct str text, size_t at)
{
    if (at == text.n)
        return 0;
    if (text.p[at] == '"')
        return walk_string(text, at);
    bool open = text.p[at] == '{' || text.p[at] == '[';
    return open ? walk_brackets(text, at) : walk_word(text, at);
}

/* ---- one level ---- */

static size_t blanks(struct str text, size_t at)
{
    while (at < text.n &&
           (text.p[at] == ' ' || text.p[at] == '\n' || text.p[at] == '\r' || text.p[at] == '\t'))
        at++;
    return at;
}

static bool stands(const struct json_cut *c, char byte)
{
    return c->at < c->text.n && c->text.p[c->at] == byte;
}

bool json_cut_begin(struct json_cut *c, struct str text, enum json_type type)
{
    assert(type == JSON_OBJECT || type == JSON_ARRAY);
    bool object = type == JSON_OBJECT;
    *c = (struct json_cut){.text = text, .at = blanks(text, 0), .end = object ? '}' : ']'};
    if (!stands(c, object ? '{' : '['))
        return false;
    c->state = JSON_CUT_FIRST;
    c->at = blanks(text, c->at + 1);
    return true;
}

static bool stop(struct json_cut *c, bool good)
{
    c->state = good ? JSON_CUT_END : JSON_CUT_BROKEN;
    return false;
}

/* The name and its colon; names are short and are judged at once. */
static bool cut_name(struct json_cut *c)
{
    struct json_fault fault;
    struct json_name name;
    struct json_scan s = {.text = c->text, .at = c->at, .fault = &fault};
    if (!stands(c, '"') || c->text.n >= INT32_MAX || !json_scan_string(&s, &name))
        return false;
    c->name = (struct str){c->text.p + name.at, name.len};
    c->escaped = name.escaped;
    c->at = blanks(c->text, s.at);
    if (!stands(c, ':'))
        return false;
    c->at = blanks(c->text, c->at + 1);
    return true;
}

bool json_cut_next(struct json_cut *c)
{
    if (c->state == JSON_CUT_END || c->state == JSON_CUT_BROKEN)
        return false;
    if (stands(c, c->end))
        return stop(c, blanks(c->text, c->at + 1) == c->text.n);
    if (c->state == JSON_CUT_LATER) {
        if (!stands(c, ','))
            return stop(c, false);
        c->at = blanks(c->text, c->at + 1);
    }
    c->state = JSON_CUT_LATER;
    if (c->end == '}' && !cut_name(c))
        return stop(c, false);
    size_t end = walk_value(c->text, c->at);
    if (end == 0)
        return stop(c, false);
    c->value = (struct str){c->text.p + c->at, end - c->at};
    c->at = blanks(c->text, end);
    return true;
}

bool json_cut_is(const struct json_cut *c, struct str name)
{
    if (!c->escaped)
        return str_eq(c->name, name);
    char *plain = mem_renew(NULL, c->name.n);
    bool same = str_eq((struct str){plain, json_unescape(c->name, plain)}, name);
    mem_free_wiped(plain);
    return same;
}

/* ---- what is wanted ---- */

/* The row this member is for, or NULL. */
static struct json_pick *row_of(const struct json_cut *c, struct json_pick *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_cut_is(c, rows[i].name))
            return &rows[i];
    return NULL;
}

static void forget(struct json_pick *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct json_pick){.name = rows[i].name};
}

const char *json_pick(struct str object, struct json_pick *rows, size_t n)
{
    struct json_cut c;
    bool twice = false;
    forget(rows, n);
    if (!json_cut_begin(&c, object, JSON_OBJECT))
        return "no object";
    while (json_cut_next(&c)) {
        struct json_pick *row = row_of(&c, rows, n);
        if (!row)
            continue;
        row->twice = row->value.p;
        twice |= row->twice;
        if (!row->twice)
            row->value = c.value;
    }
    if (c.state != JSON_CUT_END) {
        forget(rows, n);
        return "broken JSON";
    }
    return twice ? "a doubled member" : NULL;
}

/* ---- single values ---- */

bool json_cut_text(struct str value, struct arena *a, struct str *ret)
{
    struct json_fault fault;
    struct json_name name;
    struct json_scan s = {.text = value, .fault = &fault};
    if (value.n == 0 || value.p[0] != '"' || value.n >= INT32_MAX || !json_scan_string(&s, &name) ||
        s.at != value.n)
        return false;
    struct str raw = {value.p + name.at, name.len};
    if (!name.escaped) {
        *ret = raw;
        return true;
    }
    char *plain = arena_get(a, raw.n);
    *ret = (struct str){plain, json_unescape(raw, plain)};
    return true;
}

bool json_cut_int(struct str value, int64_t *ret)
{
    bool minus = value.n > 0 && value.p[0] == '-';
    uint64_t magnitude;
    if (minus)
        value = str_skip(value, 1);
    if ((value.n > 1 && value.p[0] == '0') ||
        !text_u64(value, (uint64_t)INT64_MAX + minus, &magnitude))
        return false;
    *ret = (int64_t)(minus ? 0 - magnitude : magnitude);
    return true;
}
