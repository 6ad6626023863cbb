/* routes.c — which path is whose.  A path is compared as it came, but below /credential-vault,
 * whose items have names of any text (vault_reads.c). */
#include "egress/api/api_impl.h"
#include "http/path.h"

static const struct route routes[] = {
    {.path = "/healthz", .open = true, .serve = serve_health},
    {.path = "/policy", .methods = "GET, POST, PUT, PATCH, DELETE", .serve = serve_policy},
    {.path = "/policy/check", .methods = "POST", .serve = serve_check},
    {.path = "/policy/log", .methods = "GET", .serve = serve_log},
};

/* What another server would clean up or send elsewhere leads nowhere here. */
static bool is_clean(struct str path)
{
    struct str segment;
    while (path_segment(&path, &segment))
        if (str_eq(segment, STR(".")) || str_eq(segment, STR("..")) ||
            (segment.n == 0 && path.n > 0))
            return false;
    return true;
}

const struct route *route_find(struct visit *v, struct str path)
{
    if (!is_clean(path))
        return NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (str_eq(path, str_of(routes[i].path)))
            return &routes[i];
    return vault_route(v, path);
}

bool route_takes(const struct route *route, struct str method)
{
    struct str rest = str_of(route->methods);
    if (!route->methods)
        return true;
    for (struct str one; str_next(&rest, ',', &one);)
        if (str_eq(str_trim(one), method))
            return true;
    return false;
}
