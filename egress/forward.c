/* forward.c — the head that goes on.  The relay is not to be noticed: Host, order and spelling
 * stay. Hop-by-hop fields are gone already (http/rules.h). */
#include "egress/forward.h"

struct http_head *forward_request(const struct http_head *h, struct str authority, struct arena *a)
{
    struct http_head *out = head_copy(h, 0, a);
    out->nfields = 0;
    for (unsigned i = 0; i < h->nfields; i++)
        if (!str_istarts(h->fields[i].name, STR("proxy-")))
            out->fields[out->nfields++] = h->fields[i];
    out->scheme = STR("http");
    if (!h->authority.p)
        out->authority = authority;
    return out;
}
