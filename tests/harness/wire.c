/* wire.c — a small and strict reader of whole messages. */
#include "harness/wire.h"

#include <stdlib.h>

struct str wire_field(const struct wire_message *m, const char *name)
{
    struct str rest = m->head;
    while (rest.n > 0) {
        ptrdiff_t end = str_chr(rest, '\n');
        struct str line = str_head(rest, end < 0 ? rest.n : (size_t)end);
        rest = str_skip(rest, end < 0 ? rest.n : (size_t)end + 1);
        ptrdiff_t colon = str_chr(line, ':');
        if (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (colon > 0 && str_ieq(str_head(line, (size_t)colon), str_of(name)))
            return str_trim(str_skip(line, (size_t)colon + 1));
    }
    return STR_NONE;
}

/* Start line and fields; false: the empty line has not come. */
static bool take_head(struct str *rest, struct wire_message *m)
{
    const char *end = rest->n ? memmem(rest->p, rest->n, "\r\n\r\n", 4) : NULL;
    if (!end)
        return false;
    size_t n = (size_t)(end - rest->p);
    struct str all = str_head(*rest, n);
    ptrdiff_t line = str_chr(all, '\n');
    m->start = line < 0 ? all : str_head(all, (size_t)line - 1);
    m->head = line < 0 ? str_skip(all, n) : str_skip(all, (size_t)line + 1);
    *rest = str_skip(*rest, n + 4);
    m->has_head = true;
    return true;
}

/* Digits of the base, nothing else. */
static bool number(struct str s, unsigned base, uint64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 99;
        if (digit >= base || *ret > INT64_MAX / 16)
            return false;
        *ret = *ret * base + digit;
    }
    return s.n > 0;
}

static bool take_line(struct str *rest, struct str *ret)
{
    const char *end = rest->n ? memmem(rest->p, rest->n, "\r\n", 2) : NULL;
    if (!end)
        return false;
    *ret = str_head(*rest, (size_t)(end - rest->p));
    *rest = str_skip(*rest, ret->n + 2);
    return true;
}

static enum wire take_chunks(struct str *rest, struct arena *a, struct wire_message *m)
{
    char *to = arena_get(a, rest->n);
    m->body.p = to;
    for (;;) {
        struct str line;
        uint64_t n;
        if (!take_line(rest, &line))
            return WIRE_PART;
        if (!number(line, 16, &n))
            return WIRE_BAD;
        if (n == 0)
            break;
        size_t part = n < rest->n ? (size_t)n : rest->n;
        memcpy(to + m->body.n, rest->p, part);
        m->body.n += part;
        *rest = str_skip(*rest, part);
        if (rest->n < 2)
            return WIRE_PART;
        if (memcmp(rest->p, "\r\n", 2) != 0)
            return WIRE_BAD;
        *rest = str_skip(*rest, 2);
    }
    for (struct str line; take_line(rest, &line);)
        if (line.n == 0)
            return WIRE_WHOLE;
    return WIRE_PART;
}

static enum wire take_body(struct str *rest, struct arena *a, struct wire_message *m)
{
    if (m->chunked)
        return take_chunks(rest, a, m);
    size_t n = (size_t)m->length < rest->n ? (size_t)m->length : rest->n;
    m->body = str_head(*rest, n);
    *rest = str_skip(*rest, n);
    return n == (size_t)m->length ? WIRE_WHOLE : WIRE_PART;
}

/* Length and coding; false: they cannot be. */
static bool read_framing(struct wire_message *m)
{
    struct str length = wire_field(m, "content-length"),
               coding = wire_field(m, "transfer-encoding");
    uint64_t n;
    m->length = -1;
    m->chunked = coding.p != NULL;
    if (m->chunked)
        return !length.p && str_ieq(coding, STR("chunked"));
    if (!length.p)
        return true;
    if (!number(length, 10, &n))
        return false;
    m->length = (int64_t)n;
    return true;
}

static enum wire begin(struct str *rest, struct wire_message *m)
{
    *m = (struct wire_message){.length = -1};
    if (rest->n == 0)
        return WIRE_NONE;
    if (!take_head(rest, m)) {
        *rest = str_skip(*rest, rest->n);
        return WIRE_PART;
    }
    return read_framing(m) ? WIRE_WHOLE : WIRE_BAD;
}

enum wire wire_request(struct str *rest, struct arena *a, struct wire_message *ret)
{
    enum wire w = begin(rest, ret);
    if (w != WIRE_WHOLE)
        return w;
    if (!ret->chunked && ret->length < 0)
        ret->length = 0;
    return take_body(rest, a, ret);
}

enum wire wire_response(struct str *rest, bool bodyless, bool over, struct arena *a,
                        struct wire_message *ret)
{
    enum wire w = begin(rest, ret);
    uint64_t status;
    if (w != WIRE_WHOLE)
        return w;
    if (ret->start.n < 12 || !str_starts(ret->start, STR("HTTP/1.1 ")) ||
        !number(str_head(str_skip(ret->start, 9), 3), 10, &status))
        return WIRE_BAD;
    ret->status = (int)status;
    if (bodyless || status < 200 || status == 204 || status == 304)
        return WIRE_WHOLE;
    if (ret->chunked || ret->length >= 0)
        return take_body(rest, a, ret);
    ret->until_eof = true;
    ret->body = *rest;
    *rest = str_skip(*rest, rest->n);
    return over ? WIRE_WHOLE : WIRE_PART;
}
