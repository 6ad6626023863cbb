/* route.c — the grammar of routes.  Sources are tried in the order of the mode; the first that is
 * there decides and its faults are final, so that a bad route never becomes somebody else's.  Texts
 * are cut out of the head, not copied: what the sandbox gets is the tail of the very bytes that
 * came. */
#include "ingress/route.h"

#include "base/text.h"
#include "http/path.h"

struct parse {
    const struct route_rules *rules;
    const struct http_head *head;
    struct arena *a;
    struct route *r;
    struct fault *fault;
};

static bool refuse(struct parse *p, enum fault_id id, struct str value)
{
    *p->fault = (struct fault){.id = id, .value = value};
    return false;
}

static bool is_scope(struct str s)
{
    return str_starts(s, STR("f1."));
}

/* ---- labels (3.3) ---- */

/* Takes the last part of *s, and the dash before it, off. */
static bool cut_last(struct str *s, struct str *ret_part)
{
    ptrdiff_t dash = str_rchr(*s, '-');
    if (dash < 0)
        return false;
    *ret_part = str_skip(*s, (size_t)dash + 1);
    *s = str_head(*s, (size_t)dash);
    return true;
}

static void sign(struct parse *p, const struct route_signed *s)
{
    struct route_signed *by = arena_get(p->a, sizeof *by);
    *by = *s;
    p->r->by = by;
}

static bool signed_label(struct parse *p, struct str label)
{
    struct str port;
    struct route_signed s = {.forward = p->head->path};
    if (!cut_last(&label, &s.signature) || !signature_is_signature(s.signature) ||
        !cut_last(&label, &s.exp36) || !signature_is_exp36(s.exp36) || !cut_last(&label, &port) ||
        !signature_port(port, p->rules->lenient_ports, &p->r->port) || label.n == 0)
        return false;
    sign(p, &s);
    p->r->id = label;
    return true;
}

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

static bool bad_port(struct parse *p, struct str port)
{
    if (port.n > 1 && port.p[0] == '0' && all_digits(port))
        return refuse(p, FAULT_LEADING_ZERO, STR_NONE);
    return refuse(p, FAULT_INVALID_PORT, port);
}

/* O reads any signed integer; out of range is refused all the same.  A minus cannot be here, it
 * separates parts. */
static bool lenient_label_port(struct parse *p, struct str port)
{
    uint64_t v;
    if (!text_u64(port.n && port.p[0] == '+' ? str_skip(port, 1) : port, UINT16_MAX, &v))
        return refuse(p, FAULT_INVALID_PORT, port);
    if (v == 0)
        return refuse(p, FAULT_PORT_ZERO_LABEL, STR_NONE);
    p->r->port = (uint16_t)v;
    return true;
}

static bool label_port(struct parse *p, struct str port)
{
    if (p->rules->lenient_ports)
        return lenient_label_port(p, port);
    if (signature_port(port, false, &p->r->port))
        return true;
    if (str_eq(port, STR("0")))
        return refuse(p, FAULT_PORT_ZERO_LABEL, STR_NONE);
    return bad_port(p, port);
}

/* `value` is what the client sent, for the message. */
static bool parse_label(struct parse *p, struct str label, struct str value)
{
    struct str port;
    p->r->form = FORM_LABEL;
    p->r->forward = p->head->path;
    if (signed_label(p, label))
        return true;
    if (!cut_last(&label, &port) || label.n == 0 || label.p[0] == '-')
        return refuse(p, FAULT_INVALID_HOST, value);
    p->r->id = label;
    return label_port(p, port);
}

static struct str before_dot(struct str s)
{
    ptrdiff_t dot = str_chr(s, '.');
    return dot < 0 ? s : str_head(s, (size_t)dot);
}

static bool take_scope(struct parse *p, struct str token)
{
    p->r->form = FORM_SCOPE;
    p->r->token = token;
    p->r->forward = p->head->path;
    return true;
}

/* ---- header (source 1) ---- */

static struct str routing_value(const struct http_head *h)
{
    static const struct str names[] = {{"OpenSandbox-Ingress-To", 22},
                                       {"OPEN-SANDBOX-INGRESS", 20}};
    for (unsigned i = 0; i < 2; i++) {
        const struct str *value = head_get(h, names[i]);
        struct str trimmed = value ? str_trim(*value) : STR_NONE;
        if (trimmed.n)
            return trimmed;
    }
    return STR_NONE;
}

static bool from_header(struct parse *p, struct str value)
{
    struct str s = value;
    p->r->source = FROM_HEADER;
    if (is_scope(value))
        return take_scope(p, value);
    if (str_starts(s, STR("https://")))
        s = str_skip(s, 8);
    if (str_starts(s, STR("http://")))
        s = str_skip(s, 7);
    return parse_label(p, before_dot(s), value);
}

/* ---- Host (sources 2 and 4) ---- */

static struct str without_port(struct str host)
{
    size_t n = host.n;
    while (n > 0 && host.p[n - 1] >= '0' && host.p[n - 1] <= '9')
        n--;
    return n > 0 && n < host.n && host.p[n - 1] == ':' ? str_head(host, n - 1) : host;
}

/* Host ".D" in any case, its label; false: not under D. */
static bool under_domain(struct str host, struct str domain, struct str *ret_label)
{
    if (host.n && host.p[host.n - 1] == '.')
        host.n--;
    if (host.n <= domain.n || !str_iends(host, domain) || host.p[host.n - domain.n - 1] != '.')
        return false;
    *ret_label = str_head(host, host.n - domain.n - 1);
    return true;
}

static bool is_literal(struct str host)
{
    return host.n && host.p[0] == '[';
}

/* Source 2; *ret_there: it decides. */
static bool from_domain(struct parse *p, bool *ret_there)
{
    struct str host = p->head->authority, bare = without_port(host), label;
    p->r->source = FROM_HOST;
    *ret_there = is_scope(bare);
    if (*ret_there)
        return take_scope(p, bare);
    *ret_there = !is_literal(host) && under_domain(bare, p->rules->base_domain, &label);
    if (!*ret_there)
        return false;
    if (str_chr(label, '.') >= 0)
        return refuse(p, FAULT_INVALID_HOST, host);
    return parse_label(p, label, host);
}

/* Source 4: false also means that there is none, with the fault to answer if nothing else is there.
 */
static bool from_host(struct parse *p)
{
    struct str host = p->head->authority, bare = without_port(host);
    p->r->source = FROM_HOST;
    if (host.n == 0)
        return refuse(p, FAULT_ROUTE_MISSING, STR_NONE);
    if (is_scope(bare))
        return take_scope(p, bare);
    if (is_literal(host))
        return refuse(p, FAULT_INVALID_HOST, host);
    return parse_label(p, before_dot(bare), host);
}

/* ---- paths (sources 3 and 5) ---- */

struct path_parts {
    struct str path;     /* without query */
    struct str id, port; /* as they came */
    struct str rest;     /* of path */
};

/* What stands behind the first n bytes of the target; it begins with a '/'. */
static struct str tail_of(struct parse *p, size_t n)
{
    struct str tail = str_skip(p->head->path, n);
    if (tail.n == 0)
        return STR("/");
    return tail.p[0] == '/' ? tail : arena_cat(p->a, STR("/"), tail);
}

/* One segment of a prefix, percent-decoded once; false: a broken escape. */
static bool decode(struct parse *p, struct str segment, struct str *ret)
{
    if (str_chr(segment, '%') < 0) {
        *ret = segment;
        return true;
    }
    char *out = arena_get(p->a, segment.n);
    *ret = (struct str){out, 0};
    return text_percent(segment, out, &ret->n);
}

/* 3.6: exp36 and signature right behind the prefix make a second reading. */
static void read_signed(struct parse *p, const struct path_parts *parts, bool decoded)
{
    struct str rest = parts->rest;
    struct route_signed s;
    if (!path_segment(&rest, &s.exp36) || !path_segment(&rest, &s.signature))
        return;
    if (decoded && (!decode(p, s.exp36, &s.exp36) || !decode(p, s.signature, &s.signature)))
        return;
    if (!signature_is_signature(s.signature) || !signature_is_exp36(s.exp36))
        return;
    s.forward = tail_of(p, (size_t)(rest.p - parts->path.p));
    s.climbs = path_climbs(rest);
    sign(p, &s);
}

static bool take_path(struct parse *p, const struct path_parts *parts, enum route_form form)
{
    size_t n = (size_t)(parts->rest.p - parts->path.p);
    p->r->form = form;
    p->r->forward = tail_of(p, n);
    if (path_climbs(parts->rest))
        return refuse(p, FAULT_PATH_ESCAPES, STR_NONE);
    if (form == FORM_SCOPE)
        return true;
    p->r->prefix = str_head(parts->path, n);
    read_signed(p, parts, form == FORM_URI);
    return true;
}

static bool is_dots(struct str s)
{
    return str_eq(s, STR(".")) || str_eq(s, STR(".."));
}

/* 3.4: does the path have the shape? */
static bool main_shape(struct str path, struct path_parts *ret)
{
    struct str rest = path, word;
    *ret = (struct path_parts){.path = path};
    if (!str_starts(path, STR("/sandboxes/")))
        return false;
    rest = str_skip(path, sizeof "/sandboxes" - 1);
    if (!path_segment(&rest, &ret->id) || !path_segment(&rest, &word) ||
        !str_eq(word, STR("port")) || !path_segment(&rest, &ret->port))
        return false;
    ret->rest = rest;
    return true;
}

static bool is_plain_id(struct str id)
{
    static const bool plain[256] = {
        ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['.'] = true,
        ['_'] = true,         ['~'] = true,         ['-'] = true,
    };
    for (size_t i = 0; i < id.n; i++)
        if (!plain[(unsigned char)id.p[i]])
            return false;
    return true;
}

/* Source 3, whose shape is there. */
static bool from_main_path(struct parse *p, const struct path_parts *parts)
{
    p->r->source = FROM_PATH;
    if (parts->id.n == 0)
        return refuse(p, FAULT_URI_NO_ID, STR_NONE);
    if (is_scope(parts->id))
        return refuse(p, FAULT_SCOPE_MALFORMED, STR_NONE);
    if (!is_plain_id(parts->id) || is_dots(parts->id))
        return refuse(p, FAULT_INVALID_ID, STR_NONE);
    p->r->id = parts->id;
    if (!signature_port(parts->port, false, &p->r->port))
        return bad_port(p, parts->port);
    return take_path(p, parts, FORM_SANDBOXES);
}

static bool has_slash_or_control(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '/' || (unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return true;
    return false;
}

/* Source 5. */
static bool from_short_path(struct parse *p, struct path_parts *parts)
{
    struct str port;
    parts->rest = parts->path;
    if (!path_segment(&parts->rest, &parts->id) || !path_segment(&parts->rest, &parts->port))
        return refuse(p, FAULT_URI_FORMAT, parts->path);
    if (parts->id.n == 0)
        return refuse(p, FAULT_URI_NO_ID, STR_NONE);
    if (!decode(p, parts->id, &p->r->id) || has_slash_or_control(p->r->id) || is_dots(p->r->id))
        return refuse(p, FAULT_INVALID_ID, STR_NONE);
    if (is_scope(p->r->id))
        return refuse(p, FAULT_SCOPE_MALFORMED, STR_NONE);
    if (!decode(p, parts->port, &port))
        return refuse(p, FAULT_INVALID_PORT, parts->port);
    if (!signature_port(port, p->rules->lenient_ports, &p->r->port))
        return bad_port(p, port);
    return take_path(p, parts, FORM_URI);
}

static bool from_any_path(struct parse *p, struct path_parts *parts, bool main_path)
{
    struct str token;
    if (main_path)
        return from_main_path(p, parts);
    p->r->source = FROM_PATH;
    parts->rest = parts->path;
    if (!path_segment(&parts->rest, &token) || !is_scope(token))
        return from_short_path(p, parts);
    p->r->token = token;
    return take_path(p, parts, FORM_SCOPE);
}

/* ---- all sources (3.1) ---- */

static bool by_domain(struct parse *p, const struct path_parts *parts, bool main_path)
{
    bool there;
    bool good = from_domain(p, &there);
    if (there)
        return good;
    return main_path ? from_main_path(p, parts) : refuse(p, FAULT_ROUTE_MISSING, STR_NONE);
}

static bool by_host(struct parse *p, const struct path_parts *parts, bool main_path)
{
    if (main_path && p->rules->mode == ROUTE_AUTO)
        return from_main_path(p, parts);
    if (from_host(p))
        return true;
    if (!main_path)
        return false;
    *p->r = (struct route){0};
    return from_main_path(p, parts);
}

bool route_parse(const struct route_rules *rules, const struct http_head *h, struct arena *a,
                 struct route *ret, struct fault *ret_fault)
{
    struct parse p = {rules, h, a, ret, ret_fault};
    struct path_parts parts;
    struct str query, header;
    *ret = (struct route){0};
    if (h->path.n == 0)
        return refuse(&p, FAULT_PATH_MISSING, STR_NONE);
    bool main_path = main_shape(path_without_query(h->path, &query), &parts);
    if (rules->mode == ROUTE_BY_URI)
        return from_any_path(&p, &parts, main_path);
    header = routing_value(h);
    if (header.n)
        return from_header(&p, header);
    return rules->base_domain.n ? by_domain(&p, &parts, main_path) : by_host(&p, &parts, main_path);
}

struct str route_local(const struct http_head *h)
{
    static const struct str health = {"/status.ok", 10},
                            readiness = {"/status.ok/network-readiness", 28};
    struct str query;
    if (str_eq(h->path, STR("*")))
        return STR("*");
    if (!str_starts(h->path, health))
        return STR("");
    struct str path = path_without_query(h->path, &query);
    if (str_eq(path, health))
        return health;
    return str_eq(path, readiness) ? readiness : STR("");
}

/* ---- for the log ---- */

/* Is the segment a signature behind its expiry?  Decoded, since source 5 reads it so. */
static bool is_signed_pair(struct str expiry, struct str segment)
{
    enum { LONGEST = 3 * 13 };
    struct str texts[] = {segment, expiry};
    char plain[2][LONGEST];
    if (segment.n < 9 || segment.n > LONGEST || expiry.n > LONGEST)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        size_t n;
        if (str_chr(texts[i], '%') < 0)
            continue;
        if (!text_percent(texts[i], plain[i], &n))
            return false;
        texts[i] = (struct str){plain[i], n};
    }
    return signature_is_signature(texts[0]) && signature_is_exp36(texts[1]);
}

/* A whole token is one wherever it stands, and however it is spelled: who sends it to the wrong
 * place has not given it up. */
static bool is_token(struct str segment, struct arena *a)
{
    enum { DOTS = 5 };
    size_t dots = 0;
    if (segment.n == 0 || (segment.p[0] != 'f' && segment.p[0] != '%'))
        return false;
    if (str_chr(segment, '%') >= 0) {
        char *plain = arena_get(a, segment.n);
        size_t n;
        if (!text_percent(segment, plain, &n))
            return false;
        segment = (struct str){plain, n};
    }
    for (size_t i = 0; i < segment.n; i++)
        dots += segment.p[i] == '.';
    return is_scope(segment) && dots >= DOTS;
}

static size_t put(char *out, size_t at, struct str s)
{
    if (s.n)
        memcpy(out + at, s.p, s.n);
    return at + s.n;
}

struct str route_masked_uri(const struct http_head *h, struct arena *a)
{
    struct str query, path = path_without_query(h->path, &query), rest = path, segment;
    struct str before = STR_NONE;
    size_t from = 0, n = 0;
    char *out = NULL;
    for (; path_segment(&rest, &segment); before = segment) {
        size_t at = (size_t)(segment.p - path.p);
        if (!is_signed_pair(before, segment) && !(at <= 1 && is_scope(segment)) &&
            !is_token(segment, a))
            continue;
        if (!out)
            out = arena_get(a, path.n); /* *** is never longer than what it hides */
        n = put(out, n, (struct str){path.p + from, at - from});
        n = put(out, n, STR("***"));
        from = at + segment.n;
    }
    if (!out)
        return path;
    n = put(out, n, str_skip(path, from));
    return (struct str){out, n};
}
