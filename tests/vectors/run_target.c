/* run_target.c — dial_target and client_ip: questions about addresses. */
#include "ingress/forward.h"
#include "ingress/target.h"
#include "vectors/vectors.h"

static bool read_set(struct row *r, const char *name, struct cidr_set *ret)
{
    struct str bad;
    if (cidr_set_parse(row_joined(r, row_member(r->v, name)), r->a, ret, &bad))
        return true;
    return row_fail(r, "%s: bad entry %.*s", name, STR_ARG(bad));
}

static bool read_own(struct row *r, struct target_rules *rules)
{
    const struct json *list = row_member(r->v, "own");
    struct own_listener *own = arena_zero(r->a, (list ? json_count(list) : 0) * sizeof *own + 1);
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        int64_t port = 0;
        const struct json *address = json_first(v);
        if (!ip_parse(json_string(address), &own[rules->nown].ip) ||
            !json_int(r->doc, json_next(address), &port))
            return row_fail(r, "own: not to be read");
        own[rules->nown++].port = (uint16_t)port;
    }
    rules->own = own;
    return true;
}

bool run_dial_target(struct row *r)
{
    struct target_rules rules = {0};
    struct ip ip;
    if (!read_set(r, "allow_target_cidr", &rules.allow) || !read_own(r, &rules))
        return false;
    if (!ip_parse(row_text(r->v, "address"), &ip))
        return row_fail(r, "the address is not to be read");
    bool allowed = target_allowed(&rules, &ip, (uint16_t)row_int(r, r->v, "port", 0));
    return row_same_int(r, "allow", allowed, row_bool(row_member(r->v, "expect"), "allow"));
}

bool run_client_ip(struct row *r)
{
    struct http_head head = {0};
    struct cidr_set trusted;
    struct ip peer;
    char text[IP_TEXT_BYTES];
    if (!read_set(r, "trusted_proxies", &trusted))
        return false;
    if (!ip_parse(row_text(r->v, "peer"), &peer))
        return row_fail(r, "the peer is not to be read");
    head.fields = row_fields(r, row_member(r->v, "headers"), 0, &head.nfields);
    struct ip client = forward_client_ip(&trusted, &peer, &head);
    return row_same(r, "client", (struct str){text, ip_text(&client, text)},
                    row_text(r->v, "expect"));
}
