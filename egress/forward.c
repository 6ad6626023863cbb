/* forward.c — the head that goes on, and where to.  The relay is not to be noticed: Host, order and
 * spelling stay.  Hop-by-hop fields are gone already (http/rules.h).  A redirected connection leads
 * to the address that the client chose itself; a name is looked up only where it is the explicit
 * proxy's, or the parent's to do so. */
#include "egress/forward.h"

struct http_head *forward_head(const struct http_head *h, struct str authority, bool tls,
                               struct arena *a)
{
    struct http_head *out = head_copy(h, 0, a);
    out->nfields = 0;
    for (unsigned i = 0; i < h->nfields; i++)
        if (!str_istarts(h->fields[i].name, STR("proxy-")))
            out->fields[out->nfields++] = h->fields[i];
    out->scheme = tls ? STR("https") : STR("http");
    if (!h->authority.p)
        out->authority = authority;
    return out;
}

struct str host_text(const struct host *h, struct arena *a)
{
    char text[IP_TEXT_BYTES];
    if (h->kind != HOST_ADDRESS)
        return arena_str(a, host_name(h));
    struct str ip = {text, ip_text(&h->ip, text)};
    return arena_printf(a, ip_is_v4(&h->ip) ? "%.*s" : "[%.*s]", STR_ARG(ip));
}

static struct str address_text(const struct ip *ip, struct arena *a)
{
    struct host h = {.kind = HOST_ADDRESS, .ip = *ip};
    return host_text(&h, a);
}

struct reach reach_to(const struct sidecar *s, const struct identity_conn *c,
                      const struct host *host, bool read, bool h2, struct arena *a)
{
    struct str name = host_text(host, a);
    struct reach r = {.to = {.port = c->port, .parent = s->parent}};
    r.to.host =
        s->parent || c->unresolved ? arena_str(a, host_name(host)) : address_text(&c->to, a);
    if (read) {
        r.to.tls = s->origin_tls;
        r.to.tls_name = host->kind == HOST_NAME ? name : STR("");
        r.to.tls_h2 = h2;
    }
    r.pool = arena_printf(a, "%s|%s|%.*s|%.*s|%u", c->target ? "asked" : "redirected",
                          read ? "tls" : "clear", STR_ARG(name), STR_ARG(r.to.host), c->port);
    return r;
}

bool reach_is_parent(const struct sidecar *s, const struct identity_conn *c,
                     const struct host *host)
{
    struct host parent;
    return s->parent && c->port == s->parent->port && host_read(s->parent->host, &parent) &&
           host_same(&parent, host);
}
