/* rules.c — what a head means, decided once for everybody behind.  The fields are walked once: each is classified by length and first
 * letter, and what concerns one hop is swapped behind the others, so that the few that say something (Connection, lengths, Upgrade) can
 * be read afterwards without a copy.  Whatever two readers could take for two things is refused rather than repaired. */
#include "http/rules.h"

#include <assert.h>

#include "base/ip.h"
#include "base/text.h"

enum { MAX_OPTIONS = 32, LONGEST_KNOWN = 19 };

/* ---- names ---- */

enum kind {
    PLAIN,
    IDEMPOTENCY, /* end-to-end, but says something to us */
    EXPECT,
    HOP, /* from here on: taken out */
    HOST,
    CONNECTION,
    LENGTH,
    CODING,
    TE,
    UPGRADE
};

#define NAME(text) {text, sizeof(text) - 1}

static const struct known {
    struct str name;
    enum kind kind;
} knowns[] = { /* by length: known_at[] has their places */
    {NAME("te"), TE},
    {NAME("host"), HOST},
    {NAME("expect"), EXPECT},
    {NAME("upgrade"), UPGRADE},
    {NAME("trailer"), HOP},
    {NAME("connection"), CONNECTION},
    {NAME("keep-alive"), HOP},
    {NAME("content-length"), LENGTH},
    {NAME("http2-settings"), HOP},
    {NAME("idempotency-key"), IDEMPOTENCY},
    {NAME("proxy-connection"), HOP},
    {NAME("transfer-encoding"), CODING},
    {NAME("x-idempotency-key"), IDEMPOTENCY},
    {NAME("proxy-authenticate"), HOP},
    {NAME("proxy-authorization"), HOP},
};

/* Index of the first known name of each length. */
static const uint8_t known_at[LONGEST_KNOWN + 2] = {0, 0, 0, 1, 1, 2, 2, 3, 5, 5, 5, 7, 7, 7, 7, 9, 10, 11, 13, 14, 15};

/* Is `name`, of the same length, the known one?  In tokens this bit is the case of a letter and nothing else that could match. */
static inline bool same_letters(const char *name, const char *known, size_t n)
{
    size_t i = 0;
    while (i < n && (name[i] | 0x20) == known[i])
        i++;
    return i == n;
}

static inline enum kind kind_of(struct str name)
{
    if (name.n > LONGEST_KNOWN)
        return PLAIN;
    for (unsigned i = known_at[name.n]; i < known_at[name.n + 1]; i++)
        if (same_letters(name.p, knowns[i].name.p, name.n))
            return knowns[i].kind;
    return PLAIN;
}

/* ---- bytes of values ---- */

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static uint64_t load64(const char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Up to eight bytes in one word, harmless ones where there are none. */
static uint64_t load_short(struct str v)
{
    uint32_t low, high;
    uint64_t x = 0x6161616161616161u;
    if (v.n >= 4) {
        memcpy(&low, v.p, sizeof low);
        memcpy(&high, v.p + v.n - sizeof high, sizeof high);
        return low | (uint64_t)high << 32;
    }
    for (size_t i = 0; i < v.n; i++)
        x = x << 8 | (unsigned char)v.p[i];
    return x;
}

/* Has x a byte below 0x20 or a DEL? */
static bool has_control(uint64_t x)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t del = x ^ ones * 0x7f;
    return (((x - ones * 0x20) & ~x) | ((del - ones) & ~del)) & high;
}

/* The same for a text.  Values are most of a head, so they are looked at 16 bytes at a time, the ends overlapping. */
static bool may_hold_control(struct str v)
{
    bytes16 bad = {0}, x;
    if (v.n <= 8)
        return has_control(load_short(v));
    if (v.n < sizeof x)
        return has_control(load64(v.p)) || has_control(load64(v.p + v.n - 8));
    for (size_t at = 0; at < v.n; at += sizeof x) {
        memcpy(&x, v.p + (at + sizeof x <= v.n ? at : v.n - sizeof x), sizeof x);
        bad |= (bytes16)(x < 0x20) | (bytes16)(x == 0x7f);
    }
    uint64_t halves[2];
    memcpy(halves, &bad, sizeof halves);
    return halves[0] | halves[1];
}

/* RFC 9110 section 5.5: in a request no control byte but HTAB; of a backend's we refuse only what ends a line for somebody. */
static bool value_ok(struct str v, bool request)
{
    if (!may_hold_control(v))
        return true;
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c == 0 || c == '\r' || c == '\n' || (request && c != '\t' && (c < 0x20 || c == 0x7f)))
            return false;
    }
    return true;
}

/* ---- one walk over the fields ---- */

struct scan {
    struct field *fields;
    unsigned nfields, kept; /* fields[0..kept) stay, fields[kept..nfields) are taken out, with their texts */
    unsigned hosts, lengths, codings, others; /* lines; others: Connection, TE, Upgrade */
    struct str host, length, coding;          /* the last of each */
    bool expect, idempotent;
};

static void note(struct scan *s, const struct field *f, enum kind kind)
{
    switch (kind) {
    case HOST:
        s->hosts++;
        s->host = f->value;
        break;
    case LENGTH:
        s->lengths++;
        s->length = f->value;
        break;
    case CODING:
        s->codings++;
        s->coding = f->value;
        break;
    case CONNECTION:
    case TE:
    case UPGRADE:
        s->others++;
        break;
    case EXPECT:
        s->expect |= token_list_has(f->value, STR("100-continue"));
        break;
    case IDEMPOTENCY:
        s->idempotent = true;
        break;
    case PLAIN:
    case HOP:
        break;
    }
}

/* False: a name or value that no message may hold. */
static bool scan_fields(struct scan *s, const struct http_raw *raw, bool request)
{
    *s = (struct scan){.fields = raw->fields, .nfields = raw->nfields};
    for (unsigned i = 0; i < raw->nfields; i++) {
        struct field f = raw->fields[i];
        if (!text_is_token(f.name) || !value_ok(f.value, request))
            return false;
        enum kind kind = kind_of(f.name);
        if (kind != PLAIN)
            note(s, &f, kind);
        if (kind >= HOP)
            continue;
        if (i != s->kept) { /* what was taken out moves up, so that its texts are not lost */
            raw->fields[i] = raw->fields[s->kept];
            raw->fields[s->kept] = f;
        }
        s->kept++;
    }
    return true;
}

/* ---- Connection, TE, Upgrade ---- */

struct hop {
    bool close, keep_alive, upgrade, te_trailers, overflow;
    struct str options[MAX_OPTIONS]; /* names of fields that go too */
    unsigned n;
};

static void take_option(struct hop *hop, struct str option, bool request)
{
    if (str_ieq(option, STR("close")))
        hop->close = true;
    else if (str_ieq(option, STR("keep-alive")))
        hop->keep_alive = true;
    else if (str_ieq(option, STR("upgrade")))
        hop->upgrade = true;
    else if (option.n == 0 || kind_of(option) >= HOP || (request && str_ieq(option, STR("x-request-id"))))
        return;
    else if (hop->n == MAX_OPTIONS)
        hop->overflow = true;
    else
        hop->options[hop->n++] = option;
}

static bool is_option(const struct hop *hop, struct str name)
{
    for (unsigned i = 0; i < hop->n; i++)
        if (str_ieq(hop->options[i], name))
            return true;
    return false;
}

static void drop_options(struct scan *s, const struct hop *hop)
{
    unsigned kept = 0;
    s->expect = s->idempotent = false; /* said by a field that goes, it is not said */
    for (unsigned i = 0; i < s->kept; i++) {
        struct field f = s->fields[i];
        if (is_option(hop, f.name))
            continue;
        note(s, &f, kind_of(f.name));
        s->fields[kept++] = f;
    }
    s->kept = kept;
}

static void read_hop(struct scan *s, struct hop *hop, bool request)
{
    hop->close = hop->keep_alive = hop->upgrade = hop->te_trailers = hop->overflow = false;
    hop->n = 0;
    if (s->others == 0)
        return;
    for (unsigned i = s->kept; i < s->nfields; i++) {
        struct str rest = s->fields[i].value, option;
        enum kind kind = kind_of(s->fields[i].name);
        if (kind == TE)
            hop->te_trailers |= token_list_has(rest, STR("trailers"));
        while (kind == CONNECTION && str_next(&rest, ',', &option))
            take_option(hop, str_trim(option), request);
    }
}

/* What stays is settled: drops what Connection names, and gives the rest to the head. */
static bool settle_fields(struct scan *s, struct hop *hop, bool request, struct http_head *head)
{
    unsigned taken_out = s->kept;
    read_hop(s, hop, request);
    if (hop->overflow)
        return false;
    if (hop->n > 0)
        drop_options(s, hop);
    head->fields = s->fields;
    head->nfields = s->kept;
    s->kept = taken_out; /* Upgrade and length lines still stand behind it */
    return true;
}

static bool keeps(const struct hop *hop, unsigned minor)
{
    return !hop->close && (minor > 0 || hop->keep_alive);
}

/* protocol = name [ "/" version ] (RFC 9110 section 7.8). */
static bool is_protocol(struct str s)
{
    ptrdiff_t slash = str_chr(s, '/');
    if (slash < 0)
        return text_is_token(s);
    return text_is_token(str_head(s, (size_t)slash)) && text_is_token(str_skip(s, (size_t)slash + 1));
}

/* The next element of the Upgrade lines; *at and *rest hold the place, 0 and STR_NONE at the start. */
static bool next_protocol(const struct scan *s, unsigned *at, struct str *rest, struct str *ret)
{
    for (;;) {
        while (str_next(rest, ',', ret)) {
            *ret = str_trim(*ret);
            if (ret->n > 0)
                return true;
        }
        while (s->kept + *at < s->nfields && kind_of(s->fields[s->kept + *at].name) != UPGRADE)
            ++*at;
        if (s->kept + *at >= s->nfields)
            return false;
        *rest = s->fields[s->kept + (*at)++].value;
    }
}

/* What a request wants to switch to, or nothing (contract ingress 9.1): websocket with GET wherever it stands in the list, h2c never,
 * of others the first. */
static struct str wanted_protocol(const struct scan *s, struct str method)
{
    unsigned at = 0;
    struct str rest = STR_NONE, protocol, wanted = STR("");
    while (next_protocol(s, &at, &rest, &protocol)) {
        bool websocket = str_ieq(protocol, STR("websocket"));
        if (websocket && str_eq(method, STR("GET")))
            return STR("websocket");
        if (!websocket && wanted.n == 0 && !str_ieq(protocol, STR("h2c")) && is_protocol(protocol))
            wanted = protocol;
    }
    return wanted;
}

struct str rules_extended_connect(struct str protocol)
{
    return str_ieq(protocol, STR("websocket")) ? STR("websocket") : STR("");
}

/* Does a 101 name the protocol that was asked for, and no other? */
static bool grants(const struct scan *s, const struct hop *hop, struct str wanted)
{
    unsigned at = 0;
    struct str rest = STR_NONE, protocol;
    bool named = false;
    while (next_protocol(s, &at, &rest, &protocol)) {
        if (!str_ieq(protocol, wanted))
            return false;
        named = true;
    }
    return named && hop->upgrade && wanted.n > 0;
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
        ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['-'] = true, ['.'] = true,       ['_'] = true, ['~'] = true,
        ['!'] = true,         ['$'] = true,         ['&'] = true,         ['\''] = true, ['('] = true,      [')'] = true, ['*'] = true,
        ['+'] = true,         [','] = true,         [';'] = true,         ['='] = true,
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
        return is_name(str_head(authority, (size_t)end)) && is_port(str_skip(authority, (size_t)end + 1));
    }
    if (end < 0)
        return false;
    struct str literal = str_skip(str_head(authority, (size_t)end), 1), rest = str_skip(authority, (size_t)end + 1);
    if (str_chr(literal, ':') < 0 || !ip_parse(literal, &ip))
        return false;
    return rest.n == 0 || (rest.p[0] == ':' && is_port(str_skip(rest, 1)));
}

static bool target_bytes_ok(struct str target)
{
    if (target.n == 0 || may_hold_control(target))
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
    /* a query and no path: the '/' it needs gets room where the last slash before the authority was */
    char *to = (char *)(uintptr_t)rest.p - 1;
    memmove(to, rest.p, n);
    to[n] = '/';
    head->authority.p = to;
    head->path = (struct str){to + n, head->path.n + 1};
    return true;
}

static bool read_connect(struct str target, struct http_head *head)
{
    ptrdiff_t colon = str_rchr(target, ':');
    head->authority = target;
    head->path = STR("");
    return rules_authority(target) && colon >= 0 && (size_t)colon + 1 < target.n && target.p[target.n - 1] != ']';
}

/* RFC 9112 section 3.2: origin, absolute, authority and asterisk form. */
static bool read_target(const struct http_raw *raw, struct http_head *head)
{
    struct str target = raw->target;
    if (!target_bytes_ok(target))
        return false;
    if (str_eq(raw->method, STR("CONNECT")))
        return read_connect(target, head);
    head->path = target;
    if (target.p[0] == '/')
        return true;
    if (str_istarts(target, STR("http:")))
        return read_absolute(str_skip(target, 5), head);
    if (str_istarts(target, STR("https:")))
        return read_absolute(str_skip(target, 6), head);
    return str_eq(target, STR("*")) && str_eq(raw->method, STR("OPTIONS"));
}

/* ---- requests ---- */

static enum why fault(struct http_fault *ret, int status, const char *text)
{
    *ret = (struct http_fault){status, text};
    return WHY_CLIENT_PROTOCOL;
}

static enum why request_host(const struct scan *s, unsigned minor, struct http_head *head, struct http_fault *ret_fault)
{
    if (s->hosts > 1)
        return fault(ret_fault, 400, "more than one Host");
    if (s->hosts == 0)
        return minor == 0 ? WHY_OK : fault(ret_fault, 400, "no Host");
    if (s->host.n > 0 && !rules_authority(s->host))
        return fault(ret_fault, 400, "malformed Host");
    if (!head->authority.p) /* else the target had one, which counts instead */
        head->authority = s->host.n ? s->host : STR("");
    return WHY_OK;
}

enum coding { CODING_CHUNKED, CODING_UNKNOWN, CODING_BAD };

/* One line's codings.  Only plain "chunked" is served; what ends in chunked or is none of ours is unknown; the rest is broken. */
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

static enum why request_coding(const struct scan *s, unsigned minor, struct framing *framing, struct http_fault *ret_fault)
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

static bool read_length(struct str value, int64_t *ret)
{
    uint64_t length;
    if (!text_u64(value, INT64_MAX, &length))
        return false;
    *ret = (int64_t)length;
    return true;
}

static void frame_by_length(int64_t length, struct framing *framing)
{
    framing->body = length > 0 ? BODY_LENGTH : BODY_NONE;
    framing->length = length;
}

static enum why request_framing(const struct scan *s, unsigned minor, struct http_head *head, struct framing *framing,
                                struct http_fault *ret_fault)
{
    *framing = (struct framing){.body = BODY_NONE};
    if (s->codings > 0)
        return request_coding(s, minor, framing, ret_fault);
    if (s->lengths == 0)
        return WHY_OK;
    if (s->lengths > 1 || !read_length(s->length, &head->length))
        return fault(ret_fault, 400, "malformed Content-Length");
    frame_by_length(head->length, framing);
    return WHY_OK;
}

/* RFC 9110 section 9.2.2. */
static bool is_idempotent(struct str method)
{
    static const struct str methods[] = {NAME("GET"), NAME("HEAD"), NAME("OPTIONS"), NAME("TRACE"), NAME("PUT"), NAME("DELETE")};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (str_eq(method, methods[i]))
            return true;
    return false;
}

enum why rules_request(const struct http_raw *raw, struct str scheme, struct http_head *ret_head, struct framing *ret_framing,
                       struct http_fault *ret_fault)
{
    struct scan s;
    struct hop hop;
    *ret_head = (struct http_head){.method = raw->method, .scheme = scheme, .length = -1, .protocol = STR("")};
    if (!text_is_token(raw->method))
        return fault(ret_fault, 400, "malformed method");
    if (!read_target(raw, ret_head))
        return fault(ret_fault, 400, "malformed request target");
    if (!scan_fields(&s, raw, true))
        return fault(ret_fault, 400, "malformed header field");
    enum why why = request_host(&s, raw->minor, ret_head, ret_fault);
    if (why == WHY_OK)
        why = request_framing(&s, raw->minor, ret_head, ret_framing, ret_fault);
    if (why != WHY_OK)
        return why;
    if (!settle_fields(&s, &hop, true, ret_head))
        return fault(ret_fault, 400, "too many connection options");
    ret_framing->keep_alive = keeps(&hop, raw->minor);
    if (hop.upgrade && raw->minor > 0)
        ret_head->protocol = wanted_protocol(&s, raw->method);
    ret_head->te_trailers = hop.te_trailers;
    ret_head->expect_continue = s.expect && raw->minor > 0;
    ret_head->idempotent = s.idempotent || is_idempotent(raw->method);
    return WHY_OK;
}

/* ---- responses ---- */

/* All lines and list elements must say the same (RFC 9110 section 8.6); -1 without any. */
static bool response_length(const struct scan *s, int64_t *ret)
{
    *ret = -1;
    for (unsigned i = s->kept; i < s->nfields && s->lengths > 0; i++) {
        struct str rest = s->fields[i].value, piece;
        int64_t length;
        if (kind_of(s->fields[i].name) != LENGTH)
            continue;
        if (rest.n == 0)
            return false;
        while (str_next(&rest, ',', &piece)) {
            if (!read_length(str_trim(piece), &length) || (*ret >= 0 && length != *ret))
                return false;
            *ret = length;
        }
    }
    return true;
}

static bool has_no_body(int status, struct str method)
{
    return status < 200 || status == 204 || status == 304 || str_eq(method, STR("HEAD"));
}

static void frame_response(struct http_head *head, struct str method, bool coded, struct framing *framing)
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

enum why rules_response(const struct http_raw *raw, const struct http_head *request, struct http_head *ret_head,
                        struct framing *ret_framing)
{
    struct scan s;
    struct hop hop;
    *ret_head = (struct http_head){.status = raw->status, .length = -1, .protocol = STR("")};
    if (raw->status < 100 || raw->status > 999 || !scan_fields(&s, raw, false) || !settle_fields(&s, &hop, false, ret_head))
        return WHY_ORIGIN_PROTOCOL;
    if (!response_length(&s, &ret_head->length))
        return WHY_ORIGIN_PROTOCOL;
    bool coded = s.codings > 0;
    if (coded && (s.codings > 1 || raw->minor == 0 || read_coding(s.coding) != CODING_CHUNKED))
        return WHY_ORIGIN_PROTOCOL;
    if (raw->status == 101)
        return grants(&s, &hop, request->protocol) ? tunnel(ret_head, request->protocol, ret_framing) : WHY_ORIGIN_PROTOCOL;
    if (raw->status / 100 == 2 && str_eq(request->method, STR("CONNECT")))
        return tunnel(ret_head, STR("connect"), ret_framing);
    /* a peer that states both is not to be trusted with another exchange (RFC 9112 section 6.3) */
    *ret_framing = (struct framing){.keep_alive = keeps(&hop, raw->minor) && !(coded && s.lengths > 0)};
    if (coded)
        ret_head->length = -1;
    frame_response(ret_head, request->method, coded, ret_framing);
    return WHY_OK;
}

/* ---- trailers ---- */

static bool is_ours(struct str name)
{
    static const struct str starts[] = {NAME("opensandbox-"), NAME("open-sandbox-"), NAME("x-fast-sandbox-"), NAME("x-forwarded-")};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (str_istarts(name, starts[i]))
            return true;
    return str_ieq(name, STR("forwarded")) || str_ieq(name, STR("x-real-ip"));
}

void rules_trailers(struct field *fields, unsigned *nfields)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < *nfields; i++) {
        enum kind kind = kind_of(fields[i].name);
        bool good = text_is_token(fields[i].name) && value_ok(fields[i].value, false);
        if (good && kind < HOP && kind != EXPECT && !is_ours(fields[i].name))
            fields[kept++] = fields[i];
    }
    *nfields = kept;
}

bool h1_reusable(const struct h1_end *e)
{
    return e->request_done && e->response_done /* H13: leftovers are read as the next response */
           && e->peer_keeps && e->we_keep && !e->until_eof && e->unread == 0;
}
