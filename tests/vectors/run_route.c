/* run_route.c — route_parse: a request and the settings of routing → the route, or the refusal. */
#include "vectors/run_request.h"

static const char *const sources[] = {
    [FROM_HEADER] = "header", [FROM_HOST] = "host", [FROM_PATH] = "path"};
static const char *const forms[] = {[FORM_LABEL] = "label",
                                    [FORM_SANDBOXES] = "sandboxes",
                                    [FORM_URI] = "uri",
                                    [FORM_SCOPE] = "scope"};

struct route_rules row_route_rules(struct row *r)
{
    return (struct route_rules){
        .mode = row_is(r->v, "mode", "uri")    ? ROUTE_BY_URI
                : row_is(r->v, "mode", "auto") ? ROUTE_AUTO
                                               : ROUTE_BY_HEADER,
        .base_domain = row_text(r->v, "base_domain"),
        .lenient_ports = row_bool(r->v, "lenient_ports"),
    };
}

bool row_same_fault(struct row *r, const struct fault *fault)
{
    const struct json *expect = row_member(r->v, "expect");
    struct str message = fault_message(fault, r->a);
    if (!row_same_int(r, "status", fault_status(fault->id), row_int(r, expect, "status", 0)) ||
        !row_same(r, "code", fault_code(fault->id), row_text(expect, "code")))
        return false;
    return !row_member(expect, "message") ||
           row_same(r, "message", message, row_bytes(r, expect, "message"));
}

static bool same_signed(struct row *r, const struct json *expect, const struct route *route)
{
    bool is_signed = row_member(expect, "exp36") != NULL;
    if (!row_same_int(r, "signed", route->by != NULL, is_signed) || !is_signed)
        return (route->by != NULL) == is_signed;
    if (!row_same(r, "exp36", route->by->exp36, row_bytes(r, expect, "exp36")) ||
        !row_same(r, "signature", route->by->signature, row_bytes(r, expect, "signature")))
        return false;
    bool refused = row_member(expect, "signed_status") != NULL;
    if (!row_same_int(r, "the signed reading climbs", route->by->climbs, refused))
        return false;
    if (!refused)
        return row_same(r, "forward_signed", route->by->forward,
                        row_bytes(r, expect, "forward_signed"));
    return row_same_int(r, "signed_status", fault_status(FAULT_PATH_ESCAPES),
                        row_int(r, expect, "signed_status", 0)) &&
           row_same(r, "signed_code", fault_code(FAULT_PATH_ESCAPES),
                    row_text(expect, "signed_code"));
}

static bool same_route(struct row *r, const struct json *expect, const struct route *route)
{
    if (!row_same(r, "source", str_of(sources[route->source]), row_text(expect, "source")) ||
        !row_same(r, "form", str_of(forms[route->form]), row_text(expect, "form")) ||
        !row_same(r, "forward", route->forward, row_bytes(r, expect, "forward")))
        return false;
    if (route->form == FORM_SCOPE)
        return row_same(r, "token", route->token, row_bytes(r, expect, "token"));
    return row_same(r, "sandbox_id", route->id, row_bytes(r, expect, "sandbox_id")) &&
           row_same_int(r, "port", route->port, row_int(r, expect, "port", 0)) &&
           same_signed(r, expect, route);
}

bool run_route_parse(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    struct http_head head;
    struct http_fault broken;
    struct route route;
    struct fault fault;
    struct route_rules rules = row_route_rules(r);
    if (row_request(r, &head, &broken) != WHY_OK)
        return row_same_int(r, "status", broken.status, row_int(r, expect, "status", 0)) &&
               row_same(r, "code", fault_code(FAULT_BAD_REQUEST), row_text(expect, "code"));
    struct str local = route_local(&head);
    if (local.n || row_member(expect, "local"))
        return row_same(r, "local", local, row_text(expect, "local"));
    if (!route_parse(&rules, &head, r->a, &route, &fault))
        return row_same_fault(r, &fault);
    if (row_member(expect, "status"))
        return row_fail(r, "got a route to \"%.*s\", expected a refusal", STR_ARG(route.id));
    return same_route(r, expect, &route);
}
