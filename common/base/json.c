/* json.c — strict JSON over cJSON.  A pre-scan without recursion decides what is JSON and notes
 * where every value begins; cJSON only builds the tree of what has passed.  The places are put into
 * the tree afterwards: both go through the values in the same order, and cJSON's integer member,
 * useless beside the text itself, has room for them. */
#include "base/json.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/map.h"
#include "base/text.h"

enum {
    DEPTH_MAX = CJSON_NESTING_LIMIT,
    NUMBER_BYTES = 63, /* what cJSON reads of one number */
    FEW_NAMES = 8,     /* so many are compared each with each */
    NAME_SHOWN = 80,   /* bytes of a member name in a fault */
};

struct json_doc {
    cJSON *root;
    struct str text;
};

/* A member name of an object that is still open, as it stands in the text. */
struct name {
    uint32_t at, len; /* between the quotes */
    bool escaped;
};

struct level {
    bool object;
    uint32_t first_name;
};

struct scan {
    struct str text;
    size_t at;
    struct level *levels;
    unsigned depth, max_depth;
    uint32_t *places; /* of every value, in the order of the text */
    size_t place_count, place_room;
    struct name *names; /* of all open objects, the innermost last */
    size_t name_count, name_room;
    struct json_fault *fault;
};

/* ---- faults ---- */

static void set_place(struct json_fault *fault, struct str text, size_t at)
{
    fault->line = 1;
    size_t line_start = 0;
    for (const char *lf; (lf = memchr(text.p + line_start, '\n', at - line_start));) {
        fault->line++;
        line_start = (size_t)(lf + 1 - text.p);
    }
    fault->column = (unsigned)(at - line_start + 1);
}

static bool fail(struct scan *s, size_t at, const char *text)
{
    set_place(s->fault, s->text, at);
    snprintf(s->fault->text, sizeof s->fault->text, "%s", text);
    return false;
}

static bool fail_expected(struct scan *s, const char *what)
{
    char text[64];
    bool end = s->at == s->text.n;
    snprintf(text, sizeof text, end ? "expected %s, found the end" : "expected %s", what);
    return fail(s, s->at, text);
}

/* ---- bytes ---- */

/* The byte at the mark, or -1 at the end. */
static int peek(const struct scan *s)
{
    return s->at < s->text.n ? (unsigned char)s->text.p[s->at] : -1;
}

static void skip_blanks(struct scan *s)
{
    for (int c = peek(s); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(s))
        s->at++;
}

static size_t skip_digits(struct scan *s)
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
static bool scan_unicode(struct scan *s)
{
    size_t start = s->at - 2;
    int unit = hex4(s->text, s->at);
    if (unit < 0)
        return fail(s, start, "bad \\u escape");
    if (unit == 0)
        return fail(s, start, "\\u0000 is not allowed");
    s->at += 4;
    if (is_low(unit))
        return fail(s, start, "lone surrogate");
    if (!is_high(unit))
        return true;
    struct str rest = str_skip(s->text, s->at);
    if (!str_starts(rest, STR("\\u")) || !is_low(hex4(s->text, s->at + 2)))
        return fail(s, start, "lone surrogate");
    s->at += 6;
    return true;
}

/* The mark is at a backslash. */
static bool scan_escape(struct scan *s)
{
    if (s->text.n - s->at < 2)
        return fail(s, s->at, "string without an end");
    char c = s->text.p[s->at + 1];
    if (c != 'u' && !memchr("\"\\/bfnrt", c, 8))
        return fail(s, s->at, "bad escape");
    s->at += 2;
    return c != 'u' || scan_unicode(s);
}

/* The mark is at a byte of 0x80 or more. */
static bool scan_wide(struct scan *s)
{
    unsigned char lead = (unsigned char)s->text.p[s->at];
    size_t len = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (s->text.n - s->at < len || !text_utf8((struct str){s->text.p + s->at, len}))
        return fail(s, s->at, "bad UTF-8");
    s->at += len;
    return true;
}

/* The mark is at the opening quote; it ends behind the closing one. */
static bool scan_string(struct scan *s, struct name *ret)
{
    size_t start = s->at++;
    bool escaped = false, ok = true;
    for (int c; (c = peek(s)) != '"';) {
        if (c < 0)
            return fail(s, start, "string without an end");
        if (c < 0x20)
            return fail(s, s->at, "control byte in a string");
        if (c == '\\') {
            escaped = true;
            ok = scan_escape(s);
        } else if (c >= 0x80) {
            ok = scan_wide(s);
        } else {
            s->at++;
        }
        if (!ok)
            return false;
    }
    *ret = (struct name){(uint32_t)start + 1, (uint32_t)(s->at - start - 1), escaped};
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

/* The name as it is meant.  *ret_copy is what the caller must free. */
static struct str plain_name(const struct scan *s, const struct name *name, char **ret_copy)
{
    struct str raw = {s->text.p + name->at, name->len};
    *ret_copy = NULL;
    if (!name->escaped)
        return raw;
    char *copy = mem_renew(NULL, raw.n),
         *end = copy; /* an escape is never shorter than what it means */
    while (raw.n) {
        if (raw.p[0] == '\\') {
            raw = unescape_one(raw, &end);
            continue;
        }
        *end++ = raw.p[0];
        raw = str_skip(raw, 1);
    }
    *ret_copy = copy;
    return (struct str){copy, (size_t)(end - copy)};
}

static bool same_name(const struct scan *s, const struct name *a, const struct name *b)
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

static bool fail_doubled(struct scan *s, const struct name *name)
{
    char *copy, shown[NAME_SHOWN];
    size_t n = text_put_json(shown, sizeof shown, plain_name(s, name, &copy));
    mem_free_wiped(copy);
    set_place(s->fault, s->text, name->at - 1);
    snprintf(s->fault->text, sizeof s->fault->text, "doubled member name \"%.*s\"", (int)n, shown);
    return false;
}

static const struct name *doubled_of_few(const struct scan *s, const struct name *names, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (same_name(s, &names[i], &names[k]))
                return &names[i];
    return NULL;
}

static uint64_t name_hash(const struct scan *s, const uint8_t key[16], const struct name *name)
{
    char *copy;
    struct str plain = plain_name(s, name, &copy);
    uint64_t hash = map_hash(key, plain.p, plain.n);
    mem_free_wiped(copy);
    return hash;
}

/* A table of at least twice as many slots as names; the hash is keyed, since the sender chose the
 * names. */
static const struct name *doubled_of_many(const struct scan *s, const struct name *names, size_t n)
{
    struct seen {
        uint64_t hash;
        const struct name *name;
    } * seen;
    uint8_t key[16];
    size_t slots = 64;
    const struct name *doubled = NULL;
    while (slots < n * 2)
        slots *= 2;
    seen = mem_new(slots * sizeof *seen);
    digest_random(key, sizeof key);
    for (size_t i = 0; i < n && !doubled; i++) {
        uint64_t hash = name_hash(s, key, &names[i]);
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
static bool check_names(struct scan *s, uint32_t first)
{
    size_t n = s->name_count - first;
    s->name_count = first;
    if (n < 2)
        return true;
    const struct name *names = s->names + first;
    const struct name *doubled =
        n <= FEW_NAMES ? doubled_of_few(s, names, n) : doubled_of_many(s, names, n);
    return !doubled || fail_doubled(s, doubled);
}

/* ---- values ---- */

static void note_place(struct scan *s)
{
    if (s->place_count == s->place_room) {
        s->place_room = s->place_room ? s->place_room * 2 : 64;
        s->places = mem_renew(s->places, s->place_room * sizeof *s->places);
    }
    s->places[s->place_count++] = (uint32_t)s->at;
}

static void note_name(struct scan *s, struct name name)
{
    if (s->name_count == s->name_room) {
        s->name_room = s->name_room ? s->name_room * 2 : 64;
        s->names = mem_renew(s->names, s->name_room * sizeof *s->names);
    }
    s->names[s->name_count++] = name;
}

/* Takes a dot and digits, if there is a dot. */
static bool scan_fraction(struct scan *s)
{
    if (peek(s) != '.')
        return true;
    s->at++;
    return skip_digits(s) > 0;
}

/* Takes an exponent if there is one. */
static bool scan_exponent(struct scan *s, bool *ret_there)
{
    *ret_there = peek(s) == 'e' || peek(s) == 'E';
    if (!*ret_there)
        return true;
    s->at++;
    if (peek(s) == '+' || peek(s) == '-')
        s->at++;
    return skip_digits(s) > 0;
}

static bool scan_number(struct scan *s)
{
    size_t start = s->at;
    bool exponent;
    double v;
    if (peek(s) == '-')
        s->at++;
    bool zero = peek(s) == '0';
    size_t whole = skip_digits(s);
    if (whole == 0 || (zero && whole > 1) || !scan_fraction(s) || !scan_exponent(s, &exponent))
        return fail(s, start, "bad number");
    struct str number = {s->text.p + start, s->at - start};
    if (number.n > NUMBER_BYTES)
        return fail(s, start, "number too long");
    /* 1e999 has the form of a number, but none can hold it */
    return !exponent || text_double(number, &v) || fail(s, start, "number out of range");
}

static bool scan_word(struct scan *s)
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
static bool scan_name(struct scan *s)
{
    struct name name;
    if (peek(s) != '"')
        return fail_expected(s, "a member name");
    if (!scan_string(s, &name))
        return false;
    note_name(s, name);
    skip_blanks(s);
    if (peek(s) != ':')
        return fail_expected(s, "':'");
    s->at++;
    return true;
}

static bool close_level(struct scan *s)
{
    const struct level *level = &s->levels[--s->depth];
    s->at++;
    return !level->object || check_names(s, level->first_name);
}

/* What comes next: a value, or what follows one. */
enum want { VALUE, AFTER };

static bool open_level(struct scan *s, enum want *ret_want)
{
    bool object = peek(s) == '{';
    if (s->depth == s->max_depth)
        return fail(s, s->at, "nested too deeply");
    s->levels[s->depth++] = (struct level){object, (uint32_t)s->name_count};
    s->at++;
    skip_blanks(s);
    if (peek(s) == (object ? '}' : ']')) {
        *ret_want = AFTER;
        return close_level(s);
    }
    *ret_want = VALUE;
    return !object || scan_name(s);
}

static bool scan_value(struct scan *s, enum want *ret_want)
{
    struct name string;
    skip_blanks(s);
    note_place(s);
    int c = peek(s);
    if (c == '{' || c == '[')
        return open_level(s, ret_want);
    *ret_want = AFTER;
    if (c == '"')
        return scan_string(s, &string);
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(s);
    return scan_word(s);
}

static bool scan_after(struct scan *s, enum want *ret_want)
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

static bool scan_document(struct scan *s)
{
    enum want want = VALUE;
    while (want == VALUE || s->depth > 0)
        if (!(want == VALUE ? scan_value(s, &want) : scan_after(s, &want)))
            return false;
    skip_blanks(s);
    return s->at == s->text.n || fail(s, s->at, "something follows the document");
}

/* ---- the document ---- */

/* Goes through the tree in the order of the text; `above` has room for the depth of the document.
 */
static void put_places(cJSON *root, const uint32_t *places, size_t n, cJSON **above)
{
    size_t i = 0;
    unsigned depth = 0;
    for (cJSON *v = root; v;) {
        assert(i < n);
        v->valueint = (int)places[i++];
        if (v->child) {
            above[depth++] = v;
            v = v->child;
            continue;
        }
        while (v && !v->next)
            v = depth ? above[--depth] : NULL;
        v = v ? v->next : NULL;
    }
    assert(i == n);
}

static void *tree_get(size_t n)
{
    return mem_renew(NULL, n);
}

/* Any document may be one that brings secrets. */
static void wipe_trees(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){tree_get, mem_free_wiped});
}

static struct json_doc *build(struct scan *s)
{
    /* the library has its allocator once per process */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, wipe_trees);
    cJSON *root = cJSON_ParseWithLengthOpts(s->text.p, s->text.n, NULL, false);
    if (!root) {
        fail(s, 0, "not understood");
        return NULL;
    }
    cJSON **above = mem_new((s->max_depth + 1) * sizeof *above);
    put_places(root, s->places, s->place_count, above);
    mem_free(above);
    struct json_doc *d = mem_new(sizeof *d);
    *d = (struct json_doc){root, s->text};
    return d;
}

struct json_doc *json_parse(struct str text, size_t max_bytes, unsigned max_depth,
                            struct json_fault *ret_fault)
{
    assert(max_depth > 0 && max_depth <= DEPTH_MAX);
    if (!text.n)
        text = STR("");
    struct scan s = {.text = text, .max_depth = max_depth, .fault = ret_fault};
    if ((max_bytes && text.n > max_bytes) || text.n >= INT_MAX) {
        fail(&s, 0, "too large");
        return NULL;
    }
    s.levels = mem_new(max_depth * sizeof *s.levels);
    struct json_doc *d = scan_document(&s) ? build(&s) : NULL;
    mem_free(s.levels);
    mem_free(s.places);
    mem_free(s.names);
    return d;
}

void json_free(struct json_doc *d)
{
    if (!d)
        return;
    cJSON_Delete(d->root);
    mem_free(d);
}

/* ---- reading ---- */

static const cJSON *item(const struct json *v)
{
    return (const cJSON *)(const void *)v;
}

static const struct json *value(const cJSON *item)
{
    return (const struct json *)(const void *)item;
}

const struct json *json_root(const struct json_doc *d)
{
    return value(d->root);
}

enum json_type json_type(const struct json *v)
{
    switch (item(v)->type & 0xff) {
    case cJSON_True:
    case cJSON_False:
        return JSON_BOOL;
    case cJSON_Number:
        return JSON_NUMBER;
    case cJSON_String:
        return JSON_STRING;
    case cJSON_Array:
        return JSON_ARRAY;
    case cJSON_Object:
        return JSON_OBJECT;
    default:
        return JSON_NULL;
    }
}

const char *json_type_name(enum json_type t)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    assert((unsigned)t <= JSON_OBJECT);
    return names[t];
}

const struct json *json_first(const struct json *v)
{
    return value(item(v)->child);
}

const struct json *json_next(const struct json *v)
{
    return value(item(v)->next);
}

size_t json_count(const struct json *v)
{
    size_t n = 0;
    for (const cJSON *child = item(v)->child; child; child = child->next)
        n++;
    return n;
}

struct str json_name(const struct json *member)
{
    return str_of(item(member)->string);
}

const struct json *json_member(const struct json *object, struct str name)
{
    for (const struct json *m = json_first(object); m; m = json_next(m))
        if (str_eq(json_name(m), name))
            return m;
    return NULL;
}

struct str json_string(const struct json *v)
{
    assert(json_type(v) == JSON_STRING);
    return str_of(item(v)->valuestring);
}

bool json_bool(const struct json *v)
{
    assert(json_type(v) == JSON_BOOL);
    return (item(v)->type & 0xff) == cJSON_True;
}

double json_double(const struct json *v)
{
    assert(json_type(v) == JSON_NUMBER);
    return item(v)->valuedouble;
}

bool json_int(const struct json_doc *d, const struct json *v, int64_t *ret)
{
    assert(json_type(v) == JSON_NUMBER);
    struct str s = str_skip(d->text, (size_t)item(v)->valueint);
    bool minus = s.p[0] == '-';
    if (minus)
        s = str_skip(s, 1);
    size_t n = 0;
    while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9')
        n++;
    if (n < s.n && (s.p[n] == '.' || ascii_lower(s.p[n]) == 'e'))
        return false;
    uint64_t magnitude;
    if (!text_u64(str_head(s, n), (uint64_t)INT64_MAX + minus, &magnitude))
        return false;
    *ret = (int64_t)(minus ? 0 - magnitude : magnitude);
    return true;
}

void json_fault_at(const struct json_doc *d, const struct json *v, struct json_fault *ret_fault,
                   const char *format, ...)
{
    va_list args;
    set_place(ret_fault, d->text, (size_t)item(v)->valueint);
    va_start(args, format);
    vsnprintf(ret_fault->text, sizeof ret_fault->text, format, args);
    va_end(args);
}

/* ---- writing ---- */

void json_out_init(struct json_out *o)
{
    *o = (struct json_out){0};
}

void json_out_done(struct json_out *o)
{
    mem_free(o->p);
    json_out_init(o);
}

/* Room for n more bytes. */
static char *grow(struct json_out *o, size_t n)
{
    if (o->room - o->n < n) {
        size_t room = o->room ? o->room : 256;
        while (room - o->n < n)
            room *= 2;
        o->p = mem_renew(o->p, room);
        o->room = room;
    }
    return o->p + o->n;
}

static void put(struct json_out *o, struct str s)
{
    char *at = grow(o, s.n);
    if (s.n)
        memcpy(at, s.p, s.n);
    o->n += s.n;
}

/* A value comes next. */
static void separate(struct json_out *o)
{
    if (o->comma)
        put(o, STR(","));
    o->comma = true;
}

static void put_quoted(struct json_out *o, struct str s)
{
    char *at = grow(o, s.n * 6 + 2); /* the longest escape has six bytes */
    at[0] = '"';
    size_t n = text_put_json(at + 1, s.n * 6, s);
    at[n + 1] = '"';
    o->n += n + 2;
}

void json_open(struct json_out *o, char bracket)
{
    assert(bracket == '{' || bracket == '[');
    separate(o);
    put(o, (struct str){&bracket, 1});
    o->comma = false;
}

void json_close(struct json_out *o, char bracket)
{
    assert(bracket == '}' || bracket == ']');
    put(o, (struct str){&bracket, 1});
    o->comma = true;
}

void json_key(struct json_out *o, const char *name)
{
    separate(o);
    put_quoted(o, str_of(name));
    put(o, STR(":"));
    o->comma = false;
}

void json_put_str(struct json_out *o, struct str s)
{
    separate(o);
    put_quoted(o, s);
}

void json_put_int(struct json_out *o, int64_t v)
{
    char digits[20];
    separate(o);
    if (v < 0)
        put(o, STR("-"));
    size_t n = text_put_u64(digits, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    put(o, (struct str){digits, n});
}

void json_put_bool(struct json_out *o, bool v)
{
    separate(o);
    put(o, v ? STR("true") : STR("false"));
}

void json_put_raw(struct json_out *o, struct str s)
{
    separate(o);
    put(o, s);
}
