/* run_join.c — rows of fastpath of the kind join: what a sandbox behind a URL is asked for. */
#include "http/url.h"
#include "ingress/forward.h"
#include "ingress/resolver.h"
#include "vectors/vectors.h"

bool run_fastpath_join(struct row *r)
{
    struct url u;
    struct endpoint_url url = {.path = STR("")};
    if (!url_parse(row_text(r->v, "upstream"), &u))
        return row_fail(r, "the upstream is not to be read");
    ptrdiff_t mark = str_chr(u.rest, '?');
    url.path = str_head(u.rest, mark < 0 ? u.rest.n : (size_t)mark);
    url.query = mark < 0 ? STR("") : str_skip(u.rest, (size_t)mark + 1);
    while (url.path.n && url.path.p[url.path.n - 1] == '/')
        url.path.n--;
    return row_same(r, "path", forward_join(&url, row_bytes(r, r->v, "forward"), r->a),
                    row_bytes(r, r->v, "expect"));
}
