/* cover.c — see cover.h.  Domain rules only: which address a name has is not known yet, and a deny
 * rule for it is judged with each connection. */
#include "egress/state/cover.h"

#include "base/text.h"

static struct str quoted(struct arena *a, struct str name)
{
    size_t room = 6 * name.n + 1;
    char *out = arena_get(a, room);
    return (struct str){out, text_put_json(out, room, name)};
}

static bool is_allowed(const struct policy *p, struct str host, struct arena *a)
{
    if (str_starts(host, STR("*.")))
        host = arena_cat(a, STR("probe."), str_skip(host, 2));
    return policy_name(p, host).allow;
}

static struct str fault(void *user, const struct binding *b, struct str host, struct arena *a)
{
    const struct cover *c = user;
    const char *what = NULL;
    if (!is_allowed(c->policy, host, a))
        what = "is not allowed by egress policy";
    else if (c->passed && c->passed(c->user, host))
        what = "matches mitmproxy ignore_hosts";
    if (!what)
        return STR("");
    return arena_printf(a, "binding \"%.*s\" host \"%.*s\" %s", STR_ARG(quoted(a, b->name)),
                        STR_ARG(quoted(a, host)), what);
}

struct vault_cover cover_of(struct cover *c)
{
    return (struct vault_cover){fault, c};
}
