/* rules.c — what a head means, decided once for everybody behind: whose request it is, what frames
 * it, what becomes of the connection.  Whatever two readers could take for two things is refused
 * rather than repaired. */
#include "http/rules.h"

#include "base/ip.h"
#include "base/text.h"
#include "http/fields.h"

#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

/* ---- targets ---- */

static bool is_port(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

/* reg-name (RFC 3986 section 3.2.2), not empty. */
static bool is_name(struct str s)
{
    static const bool plain[256] = {
        ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['-'] = true,
        ['.'] = true,         ['_'] = true,         ['~'] = true,         ['!'] = true,
        ['$'] = true,         ['&'] = true,         ['\''] = true,        ['('] = true,
        [')'] = true,         ['*'] = true,         ['+'] = true,         [','] = true,
        [';'] = true,         ['='] = true,
    };
    for (size_t i = 0; i < s.n; i++) {
        if (plain[(unsigned char)s.p[i]])
            continue;
        if (s.p[i] != '%' || s.n - i < 3 || text_hex(s.p[i + 1]) < 0 || text_hex(s.p[i + 2]) < 0)
            return false;
        i += 2;
    }
    return s.n > 0;
}

bool rules_authority(struct str authority)
{
    struct ip ip;
    ptrdiff_t end = str_chr(authority, authority.n && authority.p[0] == '[' ? ']' : ':');
    if (authority.n == 0 || authority.p[0] != '[') {
        if (end < 0)
            return is_name(authority);
        return is_name(str_head(authority, (size_t)end)) &&
               is_port(str_skip(authority, (size_t)end + 1));
    }
    if (end < 0)
        return false;
    struct str literal = str_skip(str_head(authority, (size_t)end), 1),
               rest = str_skip(authority, (size_t)end + 1);
    if (str_chr(literal, ':') < 0 || !ip_parse(literal, &ip))
        return false;
    return rest.n == 0 || (rest.p[0] == ':' && is_port(str_skip(rest, 1)));
}

static bool target_bytes_ok(struct str target)
{
    if (target.n == 0 || fields_may_hold_control(target))
        return false;
    return str_chr(target, ' ') < 0;
}

/* "//authority/path": what stands behind "http:". */
static bool read_absolute(struct str rest, struct http_head *head)
{
    if (!str_starts(rest, STR("//")))
        return false;
    rest = str_skip(rest, 2);
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    head->authority = str_head(rest, n);
    head->path = n < rest.n ? str_skip(rest, n) : STR("/");
    if (!rules_authority(head->authority))
        return false;
    if (head->path.p[0] == '/')
        return true;
    /* a query and no path: the '/' it needs takes the room of the one before the authority */
    char *to = (char *)(uintptr_t)rest.p - 1;
    memmove(to, rest.p, n);
    to[n] = '/';
    head->authority.p = to;
    head->path = (struct str){to + n, head->path.n + 1};
    return true;
}

bool rules_connect_target(struct str target)
{
    ptrdiff_t colon = str_rchr(target, ':');
    return rules_authority(target) && colon >= 0 && (size_t)colon + 1 < target.n &&
           target.p[target.n - 1] != ']';
}

static bool is_asterisk(struct str method, struct str target)
{
    return str_eq(target, STR("*")) && str_eq(method, STR("OPTIONS"));
}

bool rules_path(struct str method, struct str path)
{
    return target_bytes_ok(path) && (path.p[0] == '/' || is_asterisk(method, path));
}

/* RFC 9112 section 3.2: origin, absolute, authority and asterisk form. */
static bool read_target(const struct http_raw *raw, struct http_head *head)
{
    struct str target = raw->target;
    if (!target_bytes_ok(target))
        return false;
    if (str_eq(raw->method, STR("CONNECT"))) {
        head->authority = target;
        head->path = STR("");
        return rules_connect_target(target);
    }
    head->path = target;
    if (target.p[0] == '/')
        return true;
    if (str_istarts(target, STR("http:"))) {
        head->absolute = STR("http");
        return read_absolute(str_skip(target, 5), head);
    }
    if (str_istarts(target, STR("https:"))) {
        head->absolute = STR("https");
        return read_absolute(str_skip(target, 6), head);
    }
    return is_asterisk(raw->method, target);
}

/* ---- methods ---- */

bool rules_idempotent(struct str method)
{
    static const struct str methods[] = {NAME("GET"),   NAME("HEAD"), NAME("OPTIONS"),
                                         NAME("TRACE"), NAME("PUT"),  NAME("DELETE")};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (str_eq(method, methods[i]))
            return true;
    return false;
}

bool rules_expects_body(struct str method)
{
    return str_eq(method, STR("POST")) || str_eq(method, STR("PUT")) ||
           str_eq(method, STR("PATCH"));
}

/* ---- requests ---- */

static bool keeps(const struct hop *hop, unsigned minor)
{
    return !hop->close && (minor > 0 || hop->keep_alive);
}

static enum why fault(struct http_fault *ret, int status, const char *text)
{
    *ret = (struct http_fault){status, text};
    return WHY_CLIENT_PROTOCOL;
}

static enum why request_host(const struct field_scan *s, unsigned minor, struct http_head *head,
                             struct http_fault *ret_fault)
{
    if (s->hosts > 1)
        return fault(ret_fault, 400, "more than one Host");
    if (s->hosts == 0)
        return minor == 0 ? WHY_OK : fault(ret_fault, 400, "no Host");
    if (s->host.n > 0 && !rules_authority(s->host))
        return fault(ret_fault, 400, "malformed Host");
    head->host = s->host.n ? s->host : STR("");
    if (!head->authority.p) /* else the target had one, which counts instead */
        head->authority = head->host;
    return WHY_OK;
}

enum coding { CODING_CHUNKED, CODING_UNKNOWN, CODING_BAD };

/* One line's codings.  Only plain "chunked" is served; what ends in chunked or is none of ours is
 * unknown; the rest is broken. */
static enum coding read_coding(struct str value)
{
    struct str piece;
    bool chunked = false;
    if (str_ieq(value, STR("chunked")))
        return CODING_CHUNKED;
    while (str_next(&value, ',', &piece)) {
        ptrdiff_t parameters = str_chr(piece, ';');
        struct str name = str_trim(parameters < 0 ? piece : str_head(piece, (size_t)parameters));
        if (chunked || !text_is_token(name))
            return CODING_BAD;
        chunked = str_ieq(name, STR("chunked"));
        if (chunked && parameters >= 0)
            return CODING_BAD;
    }
    return CODING_UNKNOWN;
}

static enum why request_coding(const struct field_scan *s, unsigned minor, struct framing *framing,
                               struct http_fault *ret_fault)
{
    if (s->lengths > 0)
        return fault(ret_fault, 400, "Content-Length together with Transfer-Encoding");
    if (minor == 0)
        return fault(ret_fault, 400, "Transfer-Encoding in HTTP/1.0");
    enum coding coding = s->codings == 1 ? read_coding(s->coding) : CODING_BAD;
    if (coding == CODING_UNKNOWN)
        return fault(ret_fault, 501, "unknown transfer coding");
    if (coding == CODING_BAD)
        return fault(ret_fault, 400, "malformed Transfer-Encoding");
    framing->body = BODY_CHUNKED;
    return WHY_OK;
}

static void frame_by_length(int64_t length, struct framing *framing)
{
    framing->body = length > 0 ? BODY_LENGTH : BODY_NONE;
    framing->length = length;
}

static enum why request_framing(const struct field_scan *s, unsigned minor, struct http_head *head,
                                struct framing *framing, struct http_fault *ret_fault)
{
    *framing = (struct framing){.body = BODY_NONE};
    if (s->codings > 0)
        return request_coding(s, minor, framing, ret_fault);
    if (s->lengths == 0)
        return WHY_OK;
    if (!fields_length(s, true, &head->length))
        return fault(ret_fault, 400, "malformed Content-Length");
    frame_by_length(head->length, framing);
    return WHY_OK;
}

enum why rules_request(const struct http_raw *raw, struct str scheme, struct http_head *ret_head,
                       struct framing *ret_framing, struct http_fault *ret_fault)
{
    struct field_scan s;
    struct hop hop;
    *ret_head = (struct http_head){
        .method = raw->method, .scheme = scheme, .length = -1, .protocol = STR("")};
    if (!text_is_token(raw->method))
        return fault(ret_fault, 400, "malformed method");
    if (!read_target(raw, ret_head))
        return fault(ret_fault, 400, "malformed request target");
    if (!fields_scan(&s, raw, true))
        return fault(ret_fault, 400, "malformed header field");
    enum why why = request_host(&s, raw->minor, ret_head, ret_fault);
    if (why == WHY_OK)
        why = request_framing(&s, raw->minor, ret_head, ret_framing, ret_fault);
    if (why != WHY_OK)
        return why;
    if (!fields_settle(&s, &hop, true, ret_head))
        return fault(ret_fault, 400, "too many connection options");
    ret_framing->keep_alive = keeps(&hop, raw->minor);
    if (hop.upgrade && raw->minor > 0)
        ret_head->protocol = fields_wanted_protocol(&s, raw->method);
    ret_head->te_trailers = hop.te_trailers;
    ret_head->expect_continue = s.expect && raw->minor > 0;
    ret_head->idempotent = s.idempotent || rules_idempotent(raw->method);
    return WHY_OK;
}

struct str rules_extended_connect(struct str protocol)
{
    return str_ieq(protocol, STR("websocket")) ? STR("websocket") : STR("");
}

/* ---- responses ---- */

static bool has_no_body(int status, struct str method)
{
    return status < 200 || status == 204 || status == 304 || str_eq(method, STR("HEAD"));
}

static void frame_response(struct http_head *head, struct str method, bool coded,
                           struct framing *framing)
{
    if (head->status < 200 || head->status == 204)
        head->length = -1;
    if (has_no_body(head->status, method)) {
        framing->body = BODY_NONE;
    } else if (coded) {
        framing->body = BODY_CHUNKED;
    } else if (head->length >= 0) {
        frame_by_length(head->length, framing);
    } else {
        framing->body = BODY_EOF;
        framing->keep_alive = false;
    }
}

/* From here on bytes are bytes. */
static enum why tunnel(struct http_head *head, struct str protocol, struct framing *framing)
{
    head->length = -1;
    head->protocol = protocol;
    *framing = (struct framing){.body = BODY_NONE};
    return WHY_OK;
}

enum why rules_response(const struct http_raw *raw, const struct http_head *request,
                        struct http_head *ret_head, struct framing *ret_framing)
{
    struct field_scan s;
    struct hop hop;
    *ret_head = (struct http_head){.status = raw->status, .length = -1, .protocol = STR("")};
    if (raw->status < 100 || raw->status > 999 || !fields_scan(&s, raw, false) ||
        !fields_settle(&s, &hop, false, ret_head))
        return WHY_ORIGIN_PROTOCOL;
    if (!fields_length(&s, false, &ret_head->length))
        return WHY_ORIGIN_PROTOCOL;
    bool coded = s.codings > 0;
    if (coded && (s.codings > 1 || raw->minor == 0 || read_coding(s.coding) != CODING_CHUNKED))
        return WHY_ORIGIN_PROTOCOL;
    if (raw->status == 101)
        return fields_grants(&s, &hop, request->protocol)
                   ? tunnel(ret_head, request->protocol, ret_framing)
                   : WHY_ORIGIN_PROTOCOL;
    if (raw->status / 100 == 2 && str_eq(request->method, STR("CONNECT")))
        return tunnel(ret_head, STR("connect"), ret_framing);
    /* a peer that states both is not to be trusted with another exchange (RFC 9112 section 6.3) */
    *ret_framing =
        (struct framing){.keep_alive = keeps(&hop, raw->minor) && !(coded && s.lengths > 0)};
    if (coded)
        ret_head->length = -1;
    frame_response(ret_head, request->method, coded, ret_framing);
    return WHY_OK;
}

/* ---- trailers ---- */

static bool is_ours(struct str name)
{
    static const struct str starts[] = {NAME("opensandbox-"), NAME("open-sandbox-"),
                                        NAME("x-fast-sandbox-"), NAME("x-forwarded-")};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (str_istarts(name, starts[i]))
            return true;
    return str_ieq(name, STR("forwarded")) || str_ieq(name, STR("x-real-ip"));
}

void rules_trailers(struct field *fields, unsigned *nfields)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < *nfields; i++) {
        enum field_kind kind = fields_kind(fields[i].name);
        bool good = text_is_token(fields[i].name) && fields_value_ok(fields[i].value, false);
        if (good && kind < FIELD_HOP && kind != FIELD_EXPECT && !is_ours(fields[i].name))
            fields[kept++] = fields[i];
    }
    *nfields = kept;
}

bool h1_reusable(const struct h1_end *e)
{
    return e->request_done && e->response_done /* H13: leftovers are read as the next response */
           && e->peer_keeps && e->we_keep && !e->until_eof && e->unread == 0;
}
