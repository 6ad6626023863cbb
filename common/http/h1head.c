/* h1head.c — the only file that knows llhttp.  It is given a constant start line and the fields of
 * one head, so that methods and targets are ours to judge (L16) and what it thinks of framing plays
 * no part: rules.c decides that. */
#include "http/h1head.h"

#include <assert.h>
#include <llhttp.h>

#include "base/text.h"

enum h1_scan_result h1_scan(struct h1_scan *s, const char *p, size_t n, size_t limit,
                            size_t *ret_used)
{
    size_t at = 0;
    *ret_used = n;
    if (n > limit + 1 - s->bytes) /* what lies beyond the limit is not looked at, so that no cut of
                                     the bytes changes the result */
        n = limit + 1 - s->bytes;
    if (s->cr && n > 0 && p[0] != '\n')
        return H1_SCAN_BAD;
    while (at < n) {
        const char *lf = memchr(p + at, '\n', n - at);
        size_t end = lf ? (size_t)(lf - p) : n; /* of this line's bytes here, LF not counted */
        size_t len = end - at;
        if (len > 0 && s->in_line == 0 && !s->cr && (p[at] == ' ' || p[at] == '\t'))
            return H1_SCAN_BAD;
        bool cr = len > 0 ? p[end - 1] == '\r' : s->cr;
        const char *stray = len > 1 ? memchr(p + at, '\r', len - 1) : NULL;
        if (stray || (len > 0 && s->cr))
            return H1_SCAN_BAD;
        s->in_line += len - (len > 0 && cr);
        s->cr = cr;
        s->bytes += len + (lf != NULL);
        if (s->bytes > limit)
            return H1_SCAN_TOO_LARGE;
        if (!lf)
            return H1_SCAN_MORE;
        if (!cr)
            return H1_SCAN_BAD;
        at = end + 1;
        s->cr = false;
        if (s->in_line == 0) {
            *ret_used = at;
            return H1_SCAN_DONE;
        }
        s->in_line = 0;
        s->lines++;
    }
    return H1_SCAN_MORE;
}

/* ---- fields, by llhttp */

struct collect {
    llhttp_t parser;
    struct field *fields;
    unsigned n, room;
    bool in_field; /* a name came, its value is not complete */
};

/* llhttp may give a text in pieces; within one block they follow each other. */
static void extend(struct str *s, const char *p, size_t n)
{
    if (s->p == NULL)
        s->p = p;
    s->n = (size_t)(p + n - s->p);
}

static int on_name(llhttp_t *parser, const char *p, size_t n)
{
    struct collect *c = parser->data;
    if (!c->in_field) {
        if (c->n == c->room)
            return -1;
        c->fields[c->n++] = (struct field){STR_NONE, STR_NONE};
        c->in_field = true;
    }
    extend(&c->fields[c->n - 1].name, p, n);
    return 0;
}

static int on_value(llhttp_t *parser, const char *p, size_t n)
{
    struct collect *c = parser->data;
    if (!c->in_field)
        return -1;
    extend(&c->fields[c->n - 1].value, p, n);
    return 0;
}

/* An empty value calls only this.  A line without a name passes llhttp. */
static int on_value_complete(llhttp_t *parser)
{
    struct collect *c = parser->data;
    if (!c->in_field || c->fields[c->n - 1].name.n == 0)
        return -1;
    c->in_field = false;
    return 0;
}

static int on_complete(llhttp_t *parser)
{
    (void)parser;
    return HPE_PAUSED;
}

static const llhttp_settings_t *collect_settings(void)
{
    static const llhttp_settings_t settings = {
        .on_header_field = on_name,
        .on_header_value = on_value,
        .on_header_value_complete = on_value_complete,
        .on_headers_complete = on_complete,
    };
    return &settings;
}

/* Blanks at both ends do not belong to a value; an empty value still is one. */
static void trim_values(struct collect *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        struct str *v = &c->fields[i].value;
        *v = v->p ? str_trim(*v) : STR("");
    }
}

/* A parser behind the start line.  Each thread keeps one to copy, because getting there costs as
 * much as reading a few fields; it is never changed again. */
static const llhttp_t *behind_start_line(void)
{
    static const char start[] = "GET / HTTP/1.1\r\n";
    static _Thread_local llhttp_t parser;
    static _Thread_local bool there;
    if (there)
        return &parser;
    llhttp_init(&parser, HTTP_REQUEST, collect_settings());
    /* both lengths and codings are judged by rules.c, in responses with another outcome */
    llhttp_set_lenient_chunked_length(&parser, 1);
    there = llhttp_execute(&parser, start, sizeof start - 1) == HPE_OK;
    assert(there);
    return &parser;
}

static bool run_llhttp(struct collect *c, struct str block)
{
    c->n = 0;
    c->in_field = false;
    c->parser = *behind_start_line();
    c->parser.data = c;
    return llhttp_execute(&c->parser, block.p, block.n) == HPE_PAUSED;
}

/* Tabs at the end of a line become blanks: the same to RFC 9110 section 5.6.3, but not to llhttp 8
 * behind a length.  False: there were none. */
static bool blank_tabs(struct str block)
{
    bool any = false;
    char *p = (char *)(uintptr_t)block.p;
    for (size_t i = 1; i < block.n; i++)
        for (size_t j = i; p[i] == '\r' && j > 0 && (p[j - 1] == ' ' || p[j - 1] == '\t'); j--) {
            any |= p[j - 1] == '\t';
            p[j - 1] = ' ';
        }
    return any;
}

static bool parse_fields(struct str block, unsigned lines, struct arena *a, struct field **ret,
                         unsigned *ret_n)
{
    struct collect c = {.fields = arena_get(a, (lines + 1) * sizeof(struct field)), .room = lines};
    if (!run_llhttp(&c, block) && (!blank_tabs(block) || !run_llhttp(&c, block)))
        return false;
    trim_values(&c);
    *ret = c.fields;
    *ret_n = c.n;
    return true;
}

/* ---- start lines */

static bool is_version(struct str v, unsigned *ret_minor)
{
    if (v.n != 8 || memcmp(v.p, "HTTP/1.", 7) != 0 || (v.p[7] != '0' && v.p[7] != '1'))
        return false;
    *ret_minor = (unsigned)(v.p[7] - '0');
    return true;
}

/* HTTP/2.0, HTTP/3.0, HTTP/1.2: somebody's version, but none of ours. */
static bool is_other_version(struct str v)
{
    return v.n == 8 && memcmp(v.p, "HTTP/", 5) == 0 && v.p[5] >= '0' && v.p[5] <= '9' &&
           v.p[6] == '.' && v.p[7] >= '0' && v.p[7] <= '9';
}

static enum why fault(struct http_fault *ret, int status, const char *text)
{
    *ret = (struct http_fault){status, text};
    return WHY_CLIENT_PROTOCOL;
}

static bool target_ok(struct str t)
{
    for (size_t i = 0; i < t.n; i++)
        if ((unsigned char)t.p[i] <= ' ' || t.p[i] == 127)
            return false;
    return t.n > 0;
}

static enum why request_line(struct str line, struct http_raw *ret, struct http_fault *ret_fault)
{
    ptrdiff_t a = str_chr(line, ' '), b = str_rchr(line, ' ');
    if (a <= 0 || a == b)
        return fault(ret_fault, 400, "malformed request line");
    struct str version = str_skip(line, (size_t)b + 1);
    ret->method = str_head(line, (size_t)a);
    ret->target = (struct str){line.p + a + 1, (size_t)(b - a - 1)};
    if (!text_is_token(ret->method) || !target_ok(ret->target))
        return fault(ret_fault, 400, "malformed request line");
    if (is_version(version, &ret->minor))
        return WHY_OK;
    if (is_other_version(version))
        return fault(ret_fault, 505, "HTTP version not supported");
    return fault(ret_fault, 400, "malformed request line");
}

static struct str first_line(struct str block)
{
    const char *cr = memchr(block.p, '\r', block.n);
    return str_head(block, cr ? (size_t)(cr - block.p) : block.n);
}

enum why h1head_request(struct str block, unsigned lines, struct arena *a, struct http_raw *ret,
                        struct http_fault *ret_fault)
{
    struct str line = first_line(block);
    memset(ret, 0, sizeof *ret);
    if (line.n + 2 > block.n)
        return fault(ret_fault, 400, "malformed request line");
    enum why why = request_line(line, ret, ret_fault);
    if (why != WHY_OK)
        return why;
    if (!parse_fields(str_skip(block, line.n + 2), lines, a, &ret->fields, &ret->nfields))
        return fault(ret_fault, 400, "malformed header field");
    return WHY_OK;
}

/* status-line = HTTP-version SP status-code SP [ reason-phrase ]; the last blank is forgiven, as
 * everybody does. */
static bool status_line(struct str line, struct http_raw *ret)
{
    if (line.n < 12 || !is_version(str_head(line, 8), &ret->minor) || line.p[8] != ' ')
        return false;
    if (line.n > 12 && line.p[12] != ' ')
        return false;
    uint64_t status;
    if (!text_u64((struct str){line.p + 9, 3}, 999, &status) || status < 100)
        return false;
    ret->status = (int)status;
    return memchr(line.p, 0, line.n) == NULL;
}

enum why h1head_response(struct str block, unsigned lines, struct arena *a, struct http_raw *ret)
{
    struct str line = first_line(block);
    memset(ret, 0, sizeof *ret);
    if (line.n + 2 > block.n || !status_line(line, ret))
        return WHY_ORIGIN_PROTOCOL;
    if (!parse_fields(str_skip(block, line.n + 2), lines, a, &ret->fields, &ret->nfields))
        return WHY_ORIGIN_PROTOCOL;
    return WHY_OK;
}

enum why h1head_trailers(struct str block, unsigned lines, struct arena *a, struct http_head *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->length = -1;
    if (lines == 0)
        return WHY_OK;
    if (!parse_fields(block, lines, a, &ret->fields, &ret->nfields))
        return WHY_CLIENT_PROTOCOL;
    rules_trailers(ret->fields, &ret->nfields);
    return WHY_OK;
}
