/* run_fastpath.c — fastpath: the bytes of requests, what answers and codes come to, and how long an
 * answer is good for. */
#include "base/text.h"
#include "ingress/fastpath/fastpath.h"
#include "vectors/vectors.h"

static struct str hex(struct str s, struct arena *a)
{
    char *p = arena_get(a, 2 * s.n + 1);
    text_put_hex(p, s.p, s.n);
    return (struct str){p, 2 * s.n};
}

static bool run_bytes(struct row *r)
{
    struct str ns = row_text(r->v, "namespace"), id = row_text(r->v, "sandbox_id"), got;
    if (row_is(r->v, "rpc", "ResolveEndpoint"))
        got = pb_resolve(ns, id, (uint16_t)row_int(r, r->v, "port", 0),
                         row_is(r->v, "access_mode", "central-proxy") ? PB_CENTRAL_PROXY
                                                                      : PB_DIRECT_FASTLET_PROXY,
                         r->a);
    else if (row_is(r->v, "rpc", "GetSandbox"))
        got = pb_get(ns, id, r->a);
    else if (row_is(r->v, "rpc", "ResumeSandbox"))
        got =
            pb_resume(row_text(r->v, "request_id"), ns, id, row_text(r->v, "checkpoint_id"), r->a);
    else
        return row_fail(r, "an unknown call");
    return row_same(r, "bytes", hex(got, r->a), row_text(r->v, "expect"));
}

static bool same_fault(struct row *r, enum fault_id id, struct str value)
{
    const struct json *expect = row_member(r->v, "expect");
    const struct fault f = {.id = id, .value = value};
    return row_same_int(r, "status", fault_status(id), row_int(r, expect, "status", 0)) &&
           row_same(r, "code", fault_code(id), row_text(expect, "code")) &&
           row_same(r, "message", fault_message(&f, r->a), row_text(expect, "message"));
}

static struct pb_resolved response_of(struct row *r)
{
    const struct json *v = row_member(r->v, "response");
    struct pb_resolved ret = {.uid = STR("")};
    ret.proxy_endpoint = row_text(v, "proxy_endpoint");
    ret.expires_unix_s = row_int(r, v, "expires_at_unix_seconds", 0);
    const struct field *f = row_fields(r, row_member(v, "required_headers"), 0, &ret.nheaders);
    struct pb_header *headers = arena_get(r->a, (ret.nheaders + 1) * sizeof *headers);
    for (unsigned i = 0; i < ret.nheaders; i++)
        headers[i] = (struct pb_header){f[i].name, f[i].value};
    ret.headers = headers;
    return ret;
}

static bool run_answer_row(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    struct pb_resolved said = response_of(r);
    struct fast_route route;
    fast_route_read(&said, row_int(r, r->v, "now", 0), r->a, &route);
    if (row_member(expect, "status"))
        return route.fault ? same_fault(r, route.fault, route.fault_value) : row_fail(r, "taken");
    if (route.fault)
        return row_fail(r, "fault %d", (int)route.fault);
    struct str url = arena_printf(r->a, "http%s://%.*s%.*s%s%.*s", route.end.tls ? "s" : "",
                                  STR_ARG(route.url.authority), STR_ARG(route.url.path),
                                  route.url.query.n ? "?" : "", STR_ARG(route.url.query));
    return row_same(r, "upstream", url, row_text(expect, "upstream")) &&
           row_same(r, "credential", route.add.value, row_text(expect, "credential")) &&
           row_same(r, "its name", route.add.name, STR("x-fast-sandbox-route-credential")) &&
           row_same_int(r, "expires_at", route.expires_unix_s, row_int(r, expect, "expires_at", 0));
}

static bool run_code(struct row *r)
{
    for (int i = 0; i < GRPC_CODES; i++)
        if (row_is(r->v, "grpc_code", grpc_code_text((enum grpc_code)i)))
            return same_fault(r, fast_fault((enum grpc_code)i),
                              str_of(grpc_code_text((enum grpc_code)i)));
    return row_fail(r, "an unknown code");
}

static bool run_fresh(struct row *r)
{
    return row_same_int(r, "fresh",
                        fast_fresh(row_int(r, r->v, "expires_at", 0), row_int(r, r->v, "now", 0)),
                        row_bool(r->v, "expect"));
}

bool run_fastpath(struct row *r)
{
    static const struct {
        const char *kind;
        row_runner run;
    } kinds[] = {{"request", run_bytes},
                 {"answer", run_answer_row},
                 {"code", run_code},
                 {"fresh", run_fresh},
                 {"join", run_fastpath_join}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (row_is(r->v, "kind", kinds[i].kind))
            return kinds[i].run(r);
    return row_fail(r, "an unknown kind");
}
