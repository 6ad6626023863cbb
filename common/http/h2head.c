/* h2head.c — header lists of HTTP/2 and heads, both ways.  A list is judged whole, by the grammar
 * of HTTP/2, before anything behind sees a byte of it: what HTTP/1 would read as framing, or as a
 * second message, never gets that far.  Framing is not copied on the way out either, but made anew
 * from the head. */
#include "http/h2head.h"

#include "base/text.h"
#include "http/fields.h"
#include "http/websocket.h"

#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

/* ---- pseudo-header fields ---- */

enum pseudo { METHOD, PROTOCOL, SCHEME, AUTHORITY, PATH, STATUS, PSEUDOS };

static const struct str pseudo_names[PSEUDOS] = {
    [METHOD] = NAME(":method"),       [PROTOCOL] = NAME(":protocol"), [SCHEME] = NAME(":scheme"),
    [AUTHORITY] = NAME(":authority"), [PATH] = NAME(":path"),         [STATUS] = NAME(":status"),
};

struct pseudos {
    bool has[PSEUDOS];
    struct str value[PSEUDOS];
};

static enum pseudo pseudo_of(struct str name)
{
    enum pseudo p = METHOD;
    while (p < PSEUDOS && !str_eq(name, pseudo_names[p]))
        p++;
    return p;
}

/* Those at the front of the list; any further back is no token, and so no name of a field.  False:
 * unknown, or there twice. */
static bool read_pseudos(const struct h2_list *list, struct pseudos *ret, unsigned *ret_n)
{
    unsigned n = 0;
    *ret = (struct pseudos){.has = {false}};
    for (; n < list->nfields; n++) {
        struct field f = list->fields[n];
        if (f.name.n == 0 || f.name.p[0] != ':')
            break;
        enum pseudo p = pseudo_of(f.name);
        if (p == PSEUDOS || ret->has[p])
            return false;
        ret->has[p] = true;
        ret->value[p] = f.value;
    }
    *ret_n = n;
    return true;
}

/* ---- fields ---- */

static bool is_lower(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] >= 'A' && name.p[i] <= 'Z')
            return false;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* RFC 9113 section 8.2.1 asks for more than HTTP/1 does, which cuts blanks. */
static bool is_trimmed(struct str value)
{
    return value.n == 0 || !(is_blank(value.p[0]) || is_blank(value.p[value.n - 1]));
}

/* RFC 9113 section 8.2.2. */
static bool belongs_in_h2(const struct field *f)
{
    switch (fields_kind(f->name)) {
    case FIELD_TE:
        return str_ieq(f->value, STR("trailers"));
    case FIELD_CONNECTION:
    case FIELD_CODING:
    case FIELD_UPGRADE:
    case FIELD_LINK:
        return false;
    default:
        return true;
    }
}

/* What follows the first `skip`, sorted into `s`; false: malformed. */
static bool scan_fields(const struct h2_list *list, unsigned skip, bool request,
                        struct field_scan *s)
{
    struct http_raw raw = {.nfields = list->nfields - skip};
    raw.fields = skip > 0 ? list->fields + skip : list->fields; /* may be NULL */
    for (unsigned i = 0; i < raw.nfields; i++)
        if (!is_lower(raw.fields[i].name) || !is_trimmed(raw.fields[i].value))
            return false;
    if (!fields_scan(s, &raw, request))
        return false;
    for (unsigned i = s->kept; i < s->nfields; i++)
        if (!belongs_in_h2(&s->fields[i]))
            return false;
    return true;
}

/* ---- requests ---- */

static enum why fault(struct http_fault *ret, int status, const char *text)
{
    *ret = (struct http_fault){status, text};
    return WHY_CLIENT_PROTOCOL;
}

static bool is_scheme(struct str scheme)
{
    return str_ieq(scheme, STR("http")) || str_ieq(scheme, STR("https"));
}

static bool is_connect(const struct pseudos *ps)
{
    return str_eq(ps->value[METHOD], STR("CONNECT"));
}

/* RFC 9113 section 8.5: nothing but :method and :authority. */
static enum why plain_connect(const struct pseudos *ps, struct http_head *head,
                              struct http_fault *ret_fault)
{
    if (ps->has[SCHEME] || ps->has[PATH] || !ps->has[AUTHORITY])
        return fault(ret_fault, 400, "malformed CONNECT");
    if (!rules_connect_target(ps->value[AUTHORITY]))
        return fault(ret_fault, 400, "malformed request target");
    head->path = STR("");
    return WHY_OK;
}

/* RFC 9113 section 8.3.1; RFC 8441 section 4. */
static enum why request_target(const struct pseudos *ps, struct http_head *head,
                               struct http_fault *ret_fault)
{
    if (ps->has[STATUS] || !ps->has[METHOD] || !text_is_token(ps->value[METHOD]))
        return fault(ret_fault, 400, "malformed method");
    head->method = ps->value[METHOD];
    if (ps->has[PROTOCOL] && (!is_connect(ps) || !ps->has[AUTHORITY]))
        return fault(ret_fault, 400, "malformed extended CONNECT");
    if (is_connect(ps) && !ps->has[PROTOCOL])
        return plain_connect(ps, head, ret_fault);
    if (ps->has[PROTOCOL])
        head->method = STR("GET"); /* which is what it stands for */
    if (!ps->has[SCHEME] || !is_scheme(ps->value[SCHEME]))
        return fault(ret_fault, 400, "malformed scheme");
    if (!ps->has[PATH] || !rules_path(head->method, ps->value[PATH]))
        return fault(ret_fault, 400, "malformed request target");
    head->path = ps->value[PATH];
    return WHY_OK;
}

/* :authority counts; a Host beside it should be the same (H8).  One of the two must be there: what
 * HTTP/1.1 asks for is not asked less here. */
static enum why request_authority(const struct pseudos *ps, const struct field_scan *s,
                                  struct http_head *head, struct http_fault *ret_fault)
{
    if (s->hosts > 1)
        return fault(ret_fault, 400, "more than one Host");
    if (!ps->has[AUTHORITY] && s->hosts == 0)
        return fault(ret_fault, 400, "no authority");
    if (ps->has[AUTHORITY] && !rules_authority(ps->value[AUTHORITY]))
        return fault(ret_fault, 400, "malformed authority");
    if (s->host.n > 0 && !rules_authority(s->host))
        return fault(ret_fault, 400, "malformed Host");
    if (ps->has[AUTHORITY] && s->hosts > 0 && !str_ieq(s->host, ps->value[AUTHORITY]))
        head->host = s->host;
    if (head->host.p && head->host.n == 0)
        return fault(ret_fault, 400, "empty Host beside an authority");
    head->authority = ps->has[AUTHORITY] ? ps->value[AUTHORITY] : s->host;
    if (head->authority.n == 0)
        head->authority = STR("");
    return WHY_OK;
}

static enum why request_length(const struct pseudos *ps, const struct field_scan *s, bool end,
                               struct http_head *head, struct http_fault *ret_fault)
{
    if (!fields_length(s, true, &head->length))
        return fault(ret_fault, 400, "malformed Content-Length");
    if (s->lengths > 0 && is_connect(ps))
        return fault(ret_fault, 400, "Content-Length of a tunnel");
    if (end && head->length > 0)
        return fault(ret_fault, 400, "no body, but a Content-Length");
    if (end && s->lengths == 0 && rules_expects_body(head->method))
        head->length = 0;
    return WHY_OK;
}

static size_t cookie_bytes(const struct http_head *head, unsigned *ret_n)
{
    size_t bytes = 0;
    *ret_n = 0;
    for (const struct field *f = NULL; (f = head_next(head, STR("cookie"), f)); ++*ret_n)
        bytes += f->value.n + 2;
    return bytes;
}

/* RFC 9113 section 8.2.3: crumbs become one field, where the first one stood. */
static void join_cookies(struct http_head *head, struct arena *a)
{
    unsigned crumbs, kept = 0;
    size_t at = 0, bytes = cookie_bytes(head, &crumbs);
    if (crumbs < 2)
        return;
    char *text = arena_get(a, bytes);
    unsigned first = head->nfields;
    for (unsigned i = 0; i < head->nfields; i++) {
        struct field f = head->fields[i];
        bool cookie = str_ieq(f.name, STR("cookie"));
        if (cookie && first == head->nfields)
            first = kept;
        if (!cookie || first == kept)
            head->fields[kept++] = f;
        if (!cookie || f.value.n == 0)
            continue; /* an empty crumb at the end would leave a blank there */
        if (at > 0) {
            memcpy(text + at, "; ", 2);
            at += 2;
        }
        memcpy(text + at, f.value.p, f.value.n);
        at += f.value.n;
    }
    head->fields[first].value = (struct str){text, at};
    head->nfields = kept;
    head->crumbs = crumbs;
}

/* What HTTP/1 alone has of the handshake, and a peer of HTTP/2 has no say in. */
static void drop_handshake(struct http_head *head)
{
    unsigned kept = 0;
    head->keyless = true;
    for (unsigned i = 0; i < head->nfields; i++)
        if (!websocket_is_key(head->fields[i].name) && !websocket_is_accept(head->fields[i].name))
            head->fields[kept++] = head->fields[i];
    head->nfields = kept;
}

static enum why asked_protocol(const struct pseudos *ps, struct http_head *head,
                               struct http_fault *ret_fault)
{
    if (!ps->has[PROTOCOL])
        return WHY_OK;
    if (!text_is_token(ps->value[PROTOCOL]))
        return fault(ret_fault, 400, "malformed protocol");
    head->protocol = rules_extended_connect(ps->value[PROTOCOL]);
    if (head->protocol.n == 0)
        return fault(ret_fault, 501, "unknown protocol");
    drop_handshake(head);
    return WHY_OK;
}

enum why h2head_request(struct h2_list *list, bool end, struct str scheme, struct arena *a,
                        struct http_head *ret_head, struct http_fault *ret_fault)
{
    enum why why = h2head_request_of_two(list, end, scheme, a, ret_head, ret_fault);
    if (why == WHY_OK && ret_head->host.p)
        return fault(ret_fault, 400, "Host differs from authority");
    return why;
}

enum why h2head_request_of_two(struct h2_list *list, bool end, struct str scheme, struct arena *a,
                               struct http_head *ret_head, struct http_fault *ret_fault)
{
    struct pseudos ps;
    struct field_scan s;
    struct hop hop;
    unsigned n;
    *ret_head = (struct http_head){.scheme = scheme, .length = -1, .protocol = STR("")};
    if (!read_pseudos(list, &ps, &n))
        return fault(ret_fault, 400, "malformed pseudo-header field");
    enum why why = request_target(&ps, ret_head, ret_fault);
    if (why != WHY_OK)
        return why;
    if (!scan_fields(list, n, true, &s))
        return fault(ret_fault, 400, "malformed header field");
    why = request_authority(&ps, &s, ret_head, ret_fault);
    if (why == WHY_OK)
        why = request_length(&ps, &s, end, ret_head, ret_fault);
    if (why != WHY_OK)
        return why;
    if (!fields_settle(&s, &hop, true, ret_head))
        return fault(ret_fault, 400, "too many connection options");
    join_cookies(ret_head, a);
    ret_head->te_trailers = hop.te_trailers;
    ret_head->expect_continue = s.expect;
    ret_head->idempotent = s.idempotent || rules_idempotent(ret_head->method);
    return asked_protocol(&ps, ret_head, ret_fault);
}

/* ---- responses ---- */

static bool read_status(const struct pseudos *ps, int *ret)
{
    uint64_t status;
    for (enum pseudo p = METHOD; p < PSEUDOS; p++)
        if (ps->has[p] != (p == STATUS))
            return false;
    if (ps->value[STATUS].n != 3 || !text_u64(ps->value[STATUS], 999, &status) || status < 100)
        return false;
    *ret = (int)status;
    return true;
}

/* An upgrade: over HTTP/2 it is asked for by an extended CONNECT. */
static bool is_upgrade(const struct http_head *request)
{
    return request && request->protocol.n > 0 && !str_eq(request->method, STR("CONNECT"));
}

/* From here on bytes are bytes. */
static void to_tunnel(const struct http_head *request, struct http_head *head)
{
    bool upgrade = is_upgrade(request);
    head->length = -1;
    head->protocol = upgrade ? request->protocol : STR("connect");
    if (!upgrade)
        return;
    head->status = 101;
    drop_handshake(head);
}

enum why h2head_response(struct h2_list *list, const struct http_head *request,
                         struct http_head *ret_head)
{
    struct pseudos ps;
    struct field_scan s;
    struct hop hop;
    unsigned n;
    *ret_head = (struct http_head){.length = -1, .protocol = STR("")};
    if (!read_pseudos(list, &ps, &n) || !read_status(&ps, &ret_head->status) ||
        ret_head->status == 101 || !scan_fields(list, n, false, &s) ||
        !fields_length(&s, false, &ret_head->length) || !fields_settle(&s, &hop, false, ret_head))
        return WHY_ORIGIN_PROTOCOL;
    if (ret_head->status < 200 || ret_head->status == 204)
        ret_head->length = -1;
    if (ret_head->status / 100 == 2 &&
        (is_upgrade(request) || str_eq(request->method, STR("CONNECT"))))
        to_tunnel(request, ret_head);
    return WHY_OK;
}

/* ---- trailers ---- */

enum why h2head_trailers(struct h2_list *list, bool request, struct http_head *ret_head)
{
    struct field_scan s;
    *ret_head = (struct http_head){.length = -1, .protocol = STR("")};
    if (!scan_fields(list, 0, request, &s))
        return request ? WHY_CLIENT_PROTOCOL : WHY_ORIGIN_PROTOCOL;
    ret_head->fields = s.fields;
    ret_head->nfields = s.kept;
    rules_trailers(ret_head->fields, &ret_head->nfields);
    return WHY_OK;
}

/* ---- what goes out ---- */

enum { OWN_FIELDS = PSEUDOS + 2 };

static void put(struct h2_list *list, struct str name, struct str value)
{
    list->fields[list->nfields++] = (struct field){name, value};
}

static void put_pseudo(struct h2_list *list, enum pseudo p, struct str value)
{
    put(list, pseudo_names[p], value);
}

static void put_length(struct h2_list *list, int64_t length, struct arena *a)
{
    char *text = arena_get(a, 20);
    put(list, STR("content-length"), (struct str){text, text_put_u64(text, (uint64_t)length)});
}

static struct str lower(struct str name, struct arena *a)
{
    if (is_lower(name))
        return name;
    char *to = arena_get(a, name.n);
    for (size_t i = 0; i < name.n; i++)
        to[i] = ascii_lower(name.p[i]);
    return (struct str){to, name.n};
}

/* What was joined, as it came: as many crumbs as there were, but empty ones. */
static void put_crumbs(struct h2_list *list, struct str name, struct str value, unsigned crumbs)
{
    for (const char *at; crumbs > 1 && (at = memmem(value.p, value.n, "; ", 2)); crumbs--) {
        put(list, name, str_head(value, (size_t)(at - value.p)));
        value = str_skip(value, (size_t)(at + 2 - value.p));
    }
    put(list, name, value);
}

static void put_fields(struct h2_list *list, const struct http_head *head, bool handshake,
                       struct arena *a)
{
    unsigned crumbs = head->crumbs;
    for (unsigned i = 0; i < head->nfields; i++) {
        struct field f = head->fields[i];
        if (!handshake && (websocket_is_key(f.name) || websocket_is_accept(f.name)))
            continue;
        if (crumbs <= 1 || !f.value.n || !str_ieq(f.name, STR("cookie"))) {
            put(list, lower(f.name, a), f.value);
            continue;
        }
        put_crumbs(list, lower(f.name, a), f.value, crumbs);
        crumbs = 0; /* there is room for one such line */
    }
}

static void begin(struct h2_list *list, const struct http_head *head, struct arena *a)
{
    size_t most = (size_t)head->nfields + head->crumbs + OWN_FIELDS;
    list->fields = arena_get(a, most * sizeof *list->fields);
    list->nfields = 0;
}

static void put_request_pseudos(const struct http_head *head, struct h2_list *list)
{
    bool upgrade = is_upgrade(head), connect = str_eq(head->method, STR("CONNECT"));
    put_pseudo(list, METHOD, upgrade ? STR("CONNECT") : head->method);
    if (upgrade)
        put_pseudo(list, PROTOCOL, head->protocol);
    if (!connect)
        put_pseudo(list, SCHEME, head->scheme.n > 0 ? head->scheme : STR("http"));
    if (head->authority.n > 0)
        put_pseudo(list, AUTHORITY, head->authority);
    if (!connect)
        put_pseudo(list, PATH, head->path);
}

static bool states_length(const struct http_head *head, bool end)
{
    if (head->protocol.n > 0 || str_eq(head->method, STR("CONNECT")))
        return false;
    return end ? head->length == 0 : head->length >= 0;
}

void h2head_write_request(const struct http_head *head, bool end, struct arena *a,
                          struct h2_list *ret)
{
    begin(ret, head, a);
    put_request_pseudos(head, ret);
    put_fields(ret, head, !is_upgrade(head), a);
    if (head->te_trailers)
        put(ret, STR("te"), STR("trailers"));
    if (states_length(head, end) ||
        (end && head->protocol.n == 0 && rules_expects_body(head->method)))
        put_length(ret, end ? 0 : head->length, a);
}

/* The one status of HTTP/2 for what was granted; a 2xx that grants nothing would look like it. */
static int status_of(const struct http_head *head, const struct http_head *request)
{
    if (head->status == 101)
        return 200;
    return is_upgrade(request) && head->status / 100 == 2 ? 502 : head->status;
}

/* Three digits. */
static struct str status_text(int status, struct arena *a)
{
    char *text = arena_get(a, 3);
    text[0] = (char)('0' + status / 100);
    text[1] = (char)('0' + status / 10 % 10);
    text[2] = (char)('0' + status % 10);
    return (struct str){text, 3};
}

void h2head_write_response(const struct http_head *head, const struct http_head *request, bool end,
                           struct arena *a, struct h2_list *ret)
{
    bool granted = head->protocol.n > 0;
    (void)end; /* END_STREAM says it all */
    begin(ret, head, a);
    put_pseudo(ret, STATUS, status_text(status_of(head, request), a));
    put_fields(ret, head, !is_upgrade(request), a);
    if (head->length >= 0 && !granted && head->status >= 200 && head->status != 204)
        put_length(ret, head->length, a);
}

void h2head_write_trailers(const struct http_head *trailers, struct arena *a, struct h2_list *ret)
{
    begin(ret, trailers, a);
    put_fields(ret, trailers, true, a);
}

bool h2head_sensitive(struct str name)
{
    static const struct str names[] = {
        NAME("cookie"),
        NAME("set-cookie"),
        NAME("authorization"),
        NAME("x-api-key"),
        NAME("proxy-authorization"),
        NAME("open-sandbox-api-key"),
        NAME("opensandbox-egress-auth"),
        NAME("opensandbox-secure-access"),
        NAME("x-fast-sandbox-route-credential"),
    };
#define LENGTH(n) (1u << (n))
    static const uint32_t lengths = LENGTH(6) | LENGTH(9) | LENGTH(10) | LENGTH(13) | LENGTH(19) |
                                    LENGTH(20) | LENGTH(23) | LENGTH(25) | LENGTH(31);
    if (name.n > 31 || !(lengths & LENGTH(name.n)))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_ieq(name, names[i]))
            return true;
    return false;
}
