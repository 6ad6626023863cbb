/* head.c — access to the fields of a head.  A head has a dozen fields and is asked for a handful of
 * them, so a walk that compares length and first letter before anything else beats any index that
 * would have to be built first. */
#include "http/head.h"

#include <assert.h>

static bool same_name(struct str a, struct str b)
{
    return a.n == b.n &&
           (a.n == 0 || (ascii_lower(a.p[0]) == ascii_lower(b.p[0]) && str_ieq(a, b)));
}

const struct field *head_next(const struct http_head *h, struct str name, const struct field *after)
{
    if (h->nfields == 0)
        return NULL; /* fields may be NULL */
    for (const struct field *f = after ? after + 1 : h->fields, *end = h->fields + h->nfields;
         f < end; f++)
        if (same_name(f->name, name))
            return f;
    return NULL;
}

const struct str *head_get(const struct http_head *h, struct str name)
{
    const struct field *f = head_next(h, name, NULL);
    return f ? &f->value : NULL;
}

bool token_list_has(struct str list, struct str token)
{
    struct str piece;
    while (str_next(&list, ',', &piece))
        if (str_ieq(str_trim(piece), token))
            return true;
    return false;
}

bool head_has_token(const struct http_head *h, struct str name, struct str token)
{
    for (const struct field *f = NULL; (f = head_next(h, name, f));)
        if (token_list_has(f->value, token))
            return true;
    return false;
}

struct http_head *head_copy(const struct http_head *h, unsigned more, struct arena *a)
{
    struct http_head *copy = arena_get(a, sizeof *copy);
    *copy = *h;
    copy->fields = arena_get(a, ((size_t)h->nfields + more) * sizeof *copy->fields);
    if (h->nfields)
        memcpy(copy->fields, h->fields, h->nfields * sizeof *copy->fields);
    return copy;
}

void head_add(struct http_head *h, struct str name, struct str value)
{
    assert(h->fields && name.n);
    h->fields[h->nfields++] = (struct field){name, value};
}

struct str head_reason(int status)
{
#define REASON(code, text) \
    case code:             \
        return STR(text)
    switch (status) {
        REASON(100, "Continue");
        REASON(101, "Switching Protocols");
        REASON(102, "Processing");
        REASON(103, "Early Hints");
        REASON(200, "OK");
        REASON(201, "Created");
        REASON(202, "Accepted");
        REASON(203, "Non-Authoritative Information");
        REASON(204, "No Content");
        REASON(205, "Reset Content");
        REASON(206, "Partial Content");
        REASON(207, "Multi-Status");
        REASON(208, "Already Reported");
        REASON(226, "IM Used");
        REASON(300, "Multiple Choices");
        REASON(301, "Moved Permanently");
        REASON(302, "Found");
        REASON(303, "See Other");
        REASON(304, "Not Modified");
        REASON(305, "Use Proxy");
        REASON(307, "Temporary Redirect");
        REASON(308, "Permanent Redirect");
        REASON(400, "Bad Request");
        REASON(401, "Unauthorized");
        REASON(402, "Payment Required");
        REASON(403, "Forbidden");
        REASON(404, "Not Found");
        REASON(405, "Method Not Allowed");
        REASON(406, "Not Acceptable");
        REASON(407, "Proxy Authentication Required");
        REASON(408, "Request Timeout");
        REASON(409, "Conflict");
        REASON(410, "Gone");
        REASON(411, "Length Required");
        REASON(412, "Precondition Failed");
        REASON(413, "Content Too Large");
        REASON(414, "URI Too Long");
        REASON(415, "Unsupported Media Type");
        REASON(416, "Range Not Satisfiable");
        REASON(417, "Expectation Failed");
        REASON(418, "I'm a teapot");
        REASON(421, "Misdirected Request");
        REASON(422, "Unprocessable Content");
        REASON(423, "Locked");
        REASON(424, "Failed Dependency");
        REASON(425, "Too Early");
        REASON(426, "Upgrade Required");
        REASON(428, "Precondition Required");
        REASON(429, "Too Many Requests");
        REASON(431, "Request Header Fields Too Large");
        REASON(451, "Unavailable For Legal Reasons");
        REASON(500, "Internal Server Error");
        REASON(501, "Not Implemented");
        REASON(502, "Bad Gateway");
        REASON(503, "Service Unavailable");
        REASON(504, "Gateway Timeout");
        REASON(505, "HTTP Version Not Supported");
        REASON(506, "Variant Also Negotiates");
        REASON(507, "Insufficient Storage");
        REASON(508, "Loop Detected");
        REASON(511, "Network Authentication Required");
    default:
        return STR("");
    }
#undef REASON
}
