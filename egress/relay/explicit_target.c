/* explicit_target.c — reads a proxy's target.  Resolvers take more spellings for addresses than we
 * do (octal parts, one large number, hex), so whatever could be one of these is refused: judged
 * here as a name, it would be dialled there as an address. */
#include "egress/relay/explicit_target.h"

static bool is_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n > 0;
}

static bool looks_numeric(struct str name)
{
    struct str last = str_skip(name, (size_t)(str_rchr(name, '.') + 1));
    return is_digits(last) || str_istarts(last, STR("0x"));
}

/* A literal with a final dot is one more spelling. */
static bool has_final_dot(struct str text)
{
    ptrdiff_t colon = str_rchr(text, ':');
    struct str host = colon < 0 ? text : str_head(text, (size_t)colon);
    return host.n > 0 && host.p[host.n - 1] == '.';
}

static const char *host_fault(struct str text, const struct host *h)
{
    struct host strict;
    if (h->kind == HOST_ADDRESS)
        return has_final_dot(text) ? "an address has no final dot" : NULL;
    if (looks_numeric(host_name(h)))
        return "an address is four decimal numbers, or in brackets";
    return host_read(host_name(h), &strict) ? NULL : "the host is no name";
}

enum why explicit_target_read(struct str text, uint16_t default_port, struct explicit_target *ret,
                              const char **ret_fault)
{
    struct explicit_target t;
    const char *fault = NULL;
    if (str_chr(text, '@') >= 0)
        fault = "a target has no user part";
    else if (str_chr(text, '%') >= 0)
        fault = "a target has no zone and nothing encoded";
    else if (!authority_read(text, &t.host, &t.port))
        fault = "host or port are malformed";
    else if (t.port == 0 && default_port == 0)
        fault = "the port is missing";
    else
        fault = host_fault(text, &t.host);
    if (fault) {
        *ret_fault = fault;
        return WHY_CLIENT_PROTOCOL;
    }
    t.port = t.port ? t.port : default_port;
    *ret = t;
    return WHY_OK;
}
