/* route.c — what an answer of ResolveEndpoint comes to: checked in the order of the contract, and
 * what is found wrong first is what the client is told. */
#include "base/text.h"
#include "http/fields.h"
#include "http/url.h"
#include "ingress/fastpath/fastpath.h"

static const char credential_name[] = "x-fast-sandbox-route-credential";

enum fault_id fast_fault(enum grpc_code code)
{
    switch (code) {
    case GRPC_OK:
        return FAULT_ROUTE_MISSING;
    case GRPC_NOT_FOUND:
        return FAULT_FASTPATH_NOT_FOUND;
    case GRPC_UNAVAILABLE:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_RESOURCE_EXHAUSTED:
    case GRPC_FAILED_PRECONDITION:
        return FAULT_FASTPATH_UNAVAILABLE;
    case GRPC_CANCELED:
        return FAULT_FASTPATH_CANCELED;
    default:
        return FAULT_FASTPATH_FAILED;
    }
}

bool fast_fresh(int64_t expires_unix_s, int64_t now_s)
{
    return expires_unix_s > 0 && now_s < expires_unix_s - FAST_NEAR_EXPIRY_S;
}

/* ---- proxy_endpoint */

static bool is_letter(char c)
{
    c = ascii_lower(c);
    return c >= 'a' && c <= 'z';
}

/* "scheme://" of RFC 3986 section 3.1 and something behind it. */
static bool has_scheme_and_host(struct str s)
{
    ptrdiff_t colon = str_chr(s, ':');
    if (colon < 1 || !is_letter(s.p[0]))
        return false;
    for (ptrdiff_t i = 1; i < colon; i++)
        if (!is_letter(s.p[i]) && !(s.p[i] >= '0' && s.p[i] <= '9') && !strchr("+-.", s.p[i]))
            return false;
    struct str rest = str_skip(s, (size_t)colon + 1);
    return str_starts(rest, STR("//")) && rest.n > 2 && !strchr("/?#", rest.p[2]);
}

static bool is_http(struct str s)
{
    return str_istarts(s, STR("http:")) || str_istarts(s, STR("https:"));
}

static struct str path_of(struct str target)
{
    ptrdiff_t query = str_chr(target, '?');
    if (query >= 0)
        target.n = (size_t)query;
    while (target.n > 0 && target.p[target.n - 1] == '/')
        target.n--;
    return target;
}

static struct str query_of(struct str target)
{
    ptrdiff_t query = str_chr(target, '?');
    return query < 0 ? STR("") : str_skip(target, (size_t)query + 1);
}

/* Userinfo would be a credential that nobody has allowed. */
static enum fault_id read_endpoint(struct str text, struct arena *a, struct fast_route *ret)
{
    struct url u;
    if (text.n == 0)
        return FAULT_FASTPATH_NO_ENDPOINT;
    if (!has_scheme_and_host(text) || !text_whole_escapes(path_of(text)))
        return FAULT_FASTPATH_ENDPOINT;
    if (!is_http(text))
        return FAULT_FASTPATH_SCHEME;
    if (!url_parse(text, &u) || u.user.p)
        return FAULT_FASTPATH_ENDPOINT;
    struct str target = url_target(&u, a);
    ret->url.authority = arena_str(a, u.authority);
    ret->url.path = path_of(target);
    ret->url.query = query_of(target);
    ret->end.host = arena_str(a, u.host);
    ret->end.to = u.port;
    ret->end.tls = u.tls;
    return FAULT_ROUTE_MISSING;
}

/* ---- required_headers */

static enum fault_id read_headers(const struct pb_resolved *r, struct arena *a,
                                  struct fast_route *ret)
{
    struct str name = str_of(credential_name), value = STR("");
    for (unsigned i = 0; i < r->nheaders; i++)
        if (!str_ieq(r->headers[i].name, name))
            return FAULT_FASTPATH_HEADERS;
    if (r->nheaders > 1)
        return FAULT_FASTPATH_DUPLICATE;
    if (r->nheaders == 1)
        value = str_trim(r->headers[0].value);
    if (value.n == 0 || !fields_value_ok(value, true))
        return FAULT_FASTPATH_CREDENTIAL;
    ret->add = (struct field){name, arena_str(a, value)};
    return FAULT_ROUTE_MISSING;
}

void fast_route_read(const struct pb_resolved *r, int64_t now_s, struct arena *a,
                     struct fast_route *ret)
{
    *ret = (struct fast_route){.fault_value = STR(""), .reason = STR("")};
    ret->end.url = &ret->url;
    ret->url.add = &ret->add;
    ret->url.nadd = 1;
    ret->expires_unix_s = r->expires_unix_s;
    ret->fault = read_endpoint(r->proxy_endpoint, a, ret);
    if (!ret->fault)
        ret->fault = read_headers(r, a, ret);
    if (ret->fault)
        return;
    if (fast_fresh(r->expires_unix_s, now_s))
        return;
    ret->fault = FAULT_FASTPATH_EXPIRED;
    ret->reason = arena_printf(a, "expires at %lld, now %lld", (long long)r->expires_unix_s,
                               (long long)now_s);
}
