/* row.c — reading rows.  Rows are our own files, so what is missing or of another type simply reads
 * as nothing: the row then fails. */
#include "vectors/vectors.h"

#include <stdarg.h>

bool row_fail(struct row *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->trouble = arena_vprintf(r->a, format, args);
    va_end(args);
    return false;
}

bool row_skip(struct row *r)
{
    r->skipped = true;
    return true;
}

const struct json *row_member(const struct json *object, const char *name)
{
    const struct json *v =
        object && json_type(object) == JSON_OBJECT ? json_member(object, str_of(name)) : NULL;
    return v && json_type(v) != JSON_NULL ? v : NULL;
}

struct str row_text(const struct json *object, const char *name)
{
    const struct json *v = row_member(object, name);
    return v && json_type(v) == JSON_STRING ? json_string(v) : STR("");
}

struct str row_to_bytes(struct row *r, const struct json *string)
{
    struct str text = json_string(string);
    char *out = arena_get(r->a, text.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c >= 0xc0 && i + 1 < text.n) /* two bytes: U+0080 to U+00FF */
            out[n++] = (char)((c & 0x03) << 6 | (text.p[++i] & 0x3f));
        else
            out[n++] = (char)c;
    }
    return (struct str){out, n};
}

struct str row_bytes(struct row *r, const struct json *object, const char *name)
{
    const struct json *v = row_member(object, name);
    return v && json_type(v) == JSON_STRING ? row_to_bytes(r, v) : STR("");
}

int64_t row_int(struct row *r, const struct json *object, const char *name, int64_t otherwise)
{
    const struct json *v = row_member(object, name);
    int64_t n;
    return v && json_type(v) == JSON_NUMBER && json_int(r->doc, v, &n) ? n : otherwise;
}

bool row_bool(const struct json *object, const char *name)
{
    const struct json *v = row_member(object, name);
    return v && json_type(v) == JSON_BOOL && json_bool(v);
}

bool row_is(const struct json *object, const char *name, const char *text)
{
    return str_eq(row_text(object, name), str_of(text));
}

struct field *row_fields(struct row *r, const struct json *list, unsigned more, unsigned *ret_n)
{
    struct field *fields =
        arena_zero(r->a, ((list ? json_count(list) : 0) + more + 1) * sizeof *fields);
    unsigned n = more;
    for (const struct json *pair = list ? json_first(list) : NULL; pair; pair = json_next(pair)) {
        const struct json *name = json_first(pair);
        fields[n++] =
            (struct field){row_to_bytes(r, name), str_trim(row_to_bytes(r, json_next(name)))};
    }
    *ret_n = n;
    return fields;
}

struct str row_joined(struct row *r, const struct json *list)
{
    struct str joined = STR("");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        if (joined.n)
            joined = arena_cat(r->a, joined, STR(","));
        joined = arena_cat(r->a, joined, json_string(v));
    }
    return joined;
}

enum why row_request(struct row *r, struct http_head *ret_head, struct http_fault *ret_fault)
{
    /* no Host: only HTTP/1.0 may do that */
    const struct json *host = row_member(r->v, "host"), *method = row_member(r->v, "method");
    struct http_raw raw = {
        .method = method ? json_string(method) : STR("GET"),
        .target = row_bytes(r, r->v, "target"),
        .minor = host ? 1 : 0,
    };
    raw.fields = row_fields(r, row_member(r->v, "headers"), 1, &raw.nfields);
    if (host) {
        raw.fields[0] = (struct field){STR("Host"), row_to_bytes(r, host)};
    } else {
        raw.fields++;
        raw.nfields--;
    }
    return row_read_request(r, &raw, STR("http"), ret_head, ret_fault);
}

bool row_same(struct row *r, const char *what, struct str got, struct str expected)
{
    if (str_eq(got, expected))
        return true;
    return row_fail(r, "%s: got \"%.*s\", expected \"%.*s\"", what, STR_ARG(got),
                    STR_ARG(expected));
}

bool row_same_int(struct row *r, const char *what, int64_t got, int64_t expected)
{
    if (got == expected)
        return true;
    return row_fail(r, "%s: got %lld, expected %lld", what, (long long)got, (long long)expected);
}
