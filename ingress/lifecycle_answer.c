/* lifecycle_answer.c — reads what the lifecycle server says.  Members that nobody needs are
 * skipped, so that a newer server does no harm; what is needed and not understood makes the whole
 * answer one that is not understood, since half an answer could lead to the wrong place or open
 * what is to be closed. */
#include "ingress/lifecycle_answer.h"

#include "base/json.h"
#include "base/text.h"
#include "http/fields.h"
#include "http/path.h"
#include "http/url.h"
#include "policies/signature.h"

enum { DEPTH = 64, BODY_BYTES = 65536, ID_BYTES = 256, NAME_BYTES = 64, ADD_MAX = 64 };

/* ---- statuses (8.3) */

enum lifecycle_verdict lifecycle_judge(int status)
{
    switch (status) {
    case 200:
        return LIFECYCLE_GOOD;
    case 400:
        return LIFECYCLE_WRONG;
    case 401:
    case 403:
        return LIFECYCLE_REFUSED;
    case 404:
        return LIFECYCLE_ABSENT;
    default:
        return LIFECYCLE_TROUBLE;
    }
}

const char *lifecycle_verdict_text(enum lifecycle_verdict v)
{
    static const char *const texts[LIFECYCLE_VERDICTS] = {"good", "absent", "refused", "wrong",
                                                          "trouble"};
    return texts[v];
}

/* ---- JSON */

static bool fail(const char **ret_fault, const char *text)
{
    *ret_fault = text;
    return false;
}

/* NULL where it is absent or null. */
static const struct json *member(const struct json *object, struct str name)
{
    const struct json *v = json_member(object, name);
    return v && json_type(v) != JSON_NULL ? v : NULL;
}

/* A text, empty where it is absent; false: of another type. */
static bool text_member(const struct json *object, struct str name, struct str *ret)
{
    const struct json *v = member(object, name);
    *ret = v && json_type(v) == JSON_STRING ? json_string(v) : STR_NONE;
    return !v || json_type(v) == JSON_STRING;
}

static struct json_doc *parse_object(struct str body)
{
    struct json_fault fault;
    struct json_doc *doc = json_parse(body, BODY_BYTES, DEPTH, &fault);
    if (doc && json_type(json_root(doc)) == JSON_OBJECT)
        return doc;
    json_free(doc);
    return NULL;
}

/* ---- state (7, 8.2) */

/* A state to come is asked for its endpoint, as a running one. */
static enum sandbox_state state_of(struct str name)
{
    static const struct {
        const char *name;
        enum sandbox_state state;
    } rows[] = {
        {"Pending", SANDBOX_NOT_READY}, {"Allocated", SANDBOX_NOT_READY},
        {"Paused", SANDBOX_NOT_READY},  {"Resuming", SANDBOX_NOT_READY},
        {"Failed", SANDBOX_NOT_READY},  {"Terminated", SANDBOX_TERMINATED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (str_eq(str_of(rows[i].name), name))
            return rows[i].state;
    return SANDBOX_RUNNING;
}

static bool take_state(const struct json *root, struct str id, struct arena *a,
                       struct lifecycle_state *ret, const char **ret_fault)
{
    struct str got, name, end;
    const struct json *status = member(root, STR("status"));
    uint32_t ns;
    if (!text_member(root, STR("id"), &got) || !str_eq(got, id))
        return fail(ret_fault, "the answer is about another sandbox");
    if (!status || json_type(status) != JSON_OBJECT || !text_member(status, STR("state"), &name) ||
        name.n == 0)
        return fail(ret_fault, "the answer has no state");
    ret->until_unix_s = INT64_MAX;
    if (!text_member(root, STR("expiresAt"), &end) ||
        (end.p && !text_rfc3339(end, &ret->until_unix_s, &ns)))
        return fail(ret_fault, "expiresAt is no time");
    ret->state = state_of(name);
    ret->name = arena_str(a, str_head(name, name.n < NAME_BYTES ? name.n : NAME_BYTES));
    return true;
}

bool lifecycle_read_state(struct str body, struct str id, struct arena *a,
                          struct lifecycle_state *ret, const char **ret_fault)
{
    struct lifecycle_state s;
    struct json_doc *doc = parse_object(body);
    if (!doc)
        return fail(ret_fault, "the answer is no JSON object");
    bool good = take_state(json_root(doc), id, a, &s, ret_fault);
    json_free(doc);
    if (good)
        *ret = s;
    return good;
}

/* ---- endpoint */

/* pchar and '/' of RFC 3986 section 3.3. */
static bool is_path(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i], l = (unsigned char)ascii_lower(s.p[i]);
        if (!((l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') ||
              (c && strchr("-._~!$&'()*+,;=:@/%", c))))
            return false;
    }
    return text_whole_escapes(s);
}

static bool has_dot_segment(struct str path, struct arena *a)
{
    char *plain = arena_get(a, path.n + 1);
    struct str segment;
    while (path_segment(&path, &segment)) {
        size_t n;
        if (!text_percent(segment, plain, &n))
            return true;
        struct str s = {plain, n};
        if (str_eq(s, STR(".")) || str_eq(s, STR("..")))
            return true;
    }
    return false;
}

bool lifecycle_read_address(struct str text, struct arena *a, struct endpoint *ret,
                            struct endpoint_url *ret_url)
{
    struct url u;
    if (!url_parse(arena_cat(a, STR("http://"), text), &u) || u.user.p ||
        (u.rest.n && u.rest.p[0] != '/') || !is_path(u.rest) || has_dot_segment(u.rest, a))
        return false;
    while (u.rest.n && u.rest.p[u.rest.n - 1] == '/')
        u.rest.n--;
    *ret_url = (struct endpoint_url){.authority = u.authority, .path = u.rest};
    *ret = (struct endpoint){.host = u.host, .to = u.port, .wire = WIRE_DEFAULT, .url = ret_url};
    return true;
}

enum header {
    HEADER_ADD,
    HEADER_TOKEN,
    HEADER_SKIP,    /* the client brings its own */
    HEADER_GATEWAY, /* the server is set up to point at a gateway */
    HEADER_BAD      /* of the connection, of the message's form, or ours to set */
};

static enum header header_of(struct str name)
{
    static const struct {
        const char *name;
        enum header header;
    } rows[] = {
        {"opensandbox-secure-access", HEADER_TOKEN},
        {"opensandbox-egress-auth", HEADER_SKIP},
        {"opensandbox-ingress-to", HEADER_GATEWAY},
        {"open-sandbox-ingress", HEADER_GATEWAY},
        {"open-sandbox-api-key", HEADER_BAD},
        {"opensandbox-access-renew", HEADER_BAD},
        {"x-fast-sandbox-route-credential", HEADER_BAD},
        {"host", HEADER_BAD},
        {"connection", HEADER_BAD},
        {"proxy-connection", HEADER_BAD},
        {"keep-alive", HEADER_BAD},
        {"proxy-authenticate", HEADER_BAD},
        {"proxy-authorization", HEADER_BAD},
        {"te", HEADER_BAD},
        {"trailer", HEADER_BAD},
        {"transfer-encoding", HEADER_BAD},
        {"upgrade", HEADER_BAD},
        {"http2-settings", HEADER_BAD},
        {"content-length", HEADER_BAD},
        {"expect", HEADER_BAD},
        {"x-request-id", HEADER_BAD},
        {"forwarded", HEADER_BAD},
        {"x-real-ip", HEADER_BAD},
        {"x-forwarded-for", HEADER_BAD},
        {"x-forwarded-host", HEADER_BAD},
        {"x-forwarded-proto", HEADER_BAD},
        {"x-forwarded-port", HEADER_BAD},
        {"x-forwarded-prefix", HEADER_BAD},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (str_ieq(str_of(rows[i].name), name))
            return rows[i].header;
    return HEADER_ADD;
}

static struct str lower(struct str name, struct arena *a)
{
    char *out = arena_get(a, name.n);
    for (size_t i = 0; i < name.n; i++)
        out[i] = ascii_lower(name.p[i]);
    return (struct str){out, name.n};
}

static bool names(const struct field *fields, unsigned n, struct str name)
{
    for (unsigned i = 0; i < n; i++)
        if (str_eq(fields[i].name, name))
            return true;
    return false;
}

/* Headers with their names in lower case; false: not to be understood, or one of them twice. */
static bool list_headers(const struct json *headers, struct arena *a, struct field *out,
                         unsigned *ret_n)
{
    unsigned n = 0;
    for (const struct json *v = json_first(headers); v; v = json_next(v)) {
        if (json_type(v) == JSON_NULL)
            continue;
        struct str name = lower(json_name(v), a);
        if (json_type(v) != JSON_STRING || n == ADD_MAX || !text_is_token(name) ||
            !fields_value_ok(json_string(v), true) || names(out, n, name))
            return false;
        out[n++] = (struct field){name, arena_str(a, str_trim(json_string(v)))};
    }
    *ret_n = n;
    return true;
}

/* Whatever else there is: one that points at a gateway is no way to a sandbox. */
static bool points_at_gateway(const struct field *fields, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (header_of(fields[i].name) == HEADER_GATEWAY)
            return true;
    return false;
}

static bool take_headers(const struct json *root, struct arena *a, struct lifecycle_endpoint *ret)
{
    const struct json *headers = member(root, STR("headers"));
    struct field *fields = arena_get(a, ADD_MAX * sizeof *fields);
    unsigned n = 0, nadd = 0;
    ret->url.add = fields;
    if (headers && (json_type(headers) != JSON_OBJECT || !list_headers(headers, a, fields, &n)))
        return false;
    ret->gateway = points_at_gateway(fields, n);
    for (unsigned i = 0; i < n && !ret->gateway; i++) {
        enum header kind = header_of(fields[i].name);
        if (kind == HEADER_BAD)
            return false;
        if (kind == HEADER_TOKEN)
            ret->token = signature_trim(fields[i].value);
        else if (kind == HEADER_ADD)
            fields[nadd++] = fields[i];
    }
    ret->url.nadd = nadd;
    return true;
}

static bool take_endpoint(const struct json *root, struct arena *a, struct lifecycle_endpoint *ret,
                          const char **ret_fault)
{
    struct str text;
    *ret = (struct lifecycle_endpoint){.token = STR("")};
    if (!text_member(root, STR("endpoint"), &text) ||
        !lifecycle_read_address(text, a, &ret->end, &ret->url))
        return fail(ret_fault, "the endpoint is not of the form host[:port][/path]");
    if (!take_headers(root, a, ret))
        return fail(ret_fault, "the endpoint has headers that cannot be sent");
    return true;
}

bool lifecycle_read_endpoint(struct str body, struct arena *a, struct lifecycle_endpoint *ret,
                             const char **ret_fault)
{
    struct json_doc *doc = parse_object(body);
    if (!doc)
        return fail(ret_fault, "the answer is no JSON object");
    bool good = take_endpoint(json_root(doc), a, ret, ret_fault);
    json_free(doc);
    return good;
}

/* ---- errors, targets */

static bool is_code(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= 'A' && s.p[i] <= 'Z') || (s.p[i] >= '0' && s.p[i] <= '9') ||
              s.p[i] == '_' || s.p[i] == ':'))
            return false;
    return s.n <= NAME_BYTES;
}

struct str lifecycle_read_code(struct str body, struct arena *a)
{
    struct str code = STR_NONE;
    struct json_doc *doc = parse_object(body);
    if (!doc)
        return STR_NONE;
    if (text_member(json_root(doc), STR("code"), &code) && is_code(code))
        code = arena_str(a, code);
    else
        code = STR_NONE;
    json_free(doc);
    return code;
}

/* A dot segment would be taken away by whoever reads the path, escaped or not. */
bool lifecycle_target(struct str id, struct arena *a, struct str *ret)
{
    static const char front[] = "/v1/sandboxes/";
    enum { FRONT = sizeof front - 1 };
    if (id.n == 0 || id.n > ID_BYTES || str_eq(id, STR(".")) || str_eq(id, STR("..")))
        return false;
    char *out = arena_get(a, FRONT + 3 * id.n);
    memcpy(out, front, FRONT);
    *ret = (struct str){out, FRONT + text_put_percent(out + FRONT, id)};
    return true;
}
