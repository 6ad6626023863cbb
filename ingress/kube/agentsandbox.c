/* agentsandbox.c — an agent-sandbox (contract ingress 7.3): its state, and under which names the
 * one for an id may stand. */
#include "base/digest.h"
#include "base/json.h"
#include "base/text.h"
#include "ingress/kube/objects_impl.h"
#include "net/resolve.h"

/* ---- state ---- */

enum { C_TYPE, C_STATUS, C_REASON, C_MESSAGE, C_COUNT };

enum ready { READY, NO_LIST, NO_CONDITION, BROKEN, NOT_READY };

/* What this condition says, if it is the one of type Ready. */
static enum ready judge(struct str condition, struct arena *a, struct json_pick row[C_COUNT])
{
    struct str type, status;
    if (condition.p[0] != '{')
        return NO_CONDITION;
    if (json_pick(condition, row, C_COUNT) != NULL)
        return BROKEN;
    if (!kube_text(row[C_TYPE].value, a, &type) || !str_eq(type, STR("Ready")))
        return NO_CONDITION;
    bool ready = kube_text(row[C_STATUS].value, a, &status) && str_eq(status, STR("True"));
    return ready ? READY : NOT_READY;
}

/* The first condition of type Ready counts; the list must be a whole one all the same. */
static enum ready find_ready(struct str conditions, struct arena *a, struct json_pick row[C_COUNT])
{
    struct json_cut c;
    enum ready found = NO_CONDITION;
    if (!conditions.p || !json_cut_begin(&c, conditions, JSON_ARRAY))
        return NO_LIST;
    while (json_cut_next(&c))
        if (found == NO_CONDITION)
            found = judge(c.value, a, row);
    return c.state == JSON_CUT_END ? found : BROKEN;
}

/* It becomes the Host of requests too, so it must be one. */
static void set_host(struct str value, struct arena *a, struct kube_object *ret)
{
    struct str host;
    if (!kube_text(value, a, &host))
        kube_set_not_ready(ret, a, "no serviceFQDN");
    else if (!resolve_is_host(host))
        kube_set_not_ready(ret, a, "serviceFQDN is no host name");
    else
        kube_set_running(ret, host);
}

static void set_unready(const struct json_pick row[C_COUNT], struct arena *a,
                        struct kube_object *ret)
{
    struct str reason = STR("DependenciesNotReady"), message = STR("Ready condition is not True");
    kube_text(row[C_REASON].value, a, &reason);
    kube_text(row[C_MESSAGE].value, a, &message);
    kube_set_not_ready(ret, a, "%.*s: %.*s", STR_ARG(reason), STR_ARG(message));
}

void kube_read_agent_sandbox(const struct kube_parts *p, struct arena *a, struct kube_object *ret)
{
    struct json_pick status[] = {{.name = STR("conditions")}, {.name = STR("serviceFQDN")}};
    struct json_pick row[C_COUNT] = {
        [C_TYPE] = {.name = STR("type")},
        [C_STATUS] = {.name = STR("status")},
        [C_REASON] = {.name = STR("reason")},
        [C_MESSAGE] = {.name = STR("message")},
    };
    if (!p->status.p || p->status.p[0] != '{') {
        kube_set_not_ready(ret, a, "missing status");
        return;
    }
    const char *error = json_pick(p->status, status, 2);
    switch (error ? BROKEN : find_ready(status[0].value, a, row)) {
    case READY:
        set_host(status[1].value, a, ret);
        return;
    case NO_LIST:
        kube_set_not_ready(ret, a, "NoConditions: no sandbox conditions reported");
        return;
    case NO_CONDITION:
        kube_set_not_ready(ret, a, "ReadyConditionMissing: ready condition missing");
        return;
    case BROKEN:
        kube_set_not_ready(ret, a, "broken status");
        return;
    case NOT_READY:
        set_unready(row, a, ret);
        return;
    }
}

/* ---- names ---- */

enum { LABEL_BYTES = 63, KEPT_BYTES = 54, SUFFIX_BYTES = 8 };

static const struct str prefix = {"sandbox-", 8};

static struct str trim_dashes(struct str s)
{
    while (s.n && s.p[0] == '-')
        s = str_skip(s, 1);
    while (s.n && s.p[s.n - 1] == '-')
        s.n--;
    return s;
}

/* The next character in lower case if it may stand in a label, else 0.  Two characters beyond ASCII
 * have a small letter within it: the sign of Kelvin and the dotted I. */
static char take_letter(struct str *s)
{
    if (str_starts(*s, STR("\xe2\x84\xaa")) || str_starts(*s, STR("\xc4\xb0"))) {
        bool kelvin = s->p[0] == '\xe2';
        *s = str_skip(*s, kelvin ? 3 : 2);
        return kelvin ? 'k' : 'i';
    }
    char c = ascii_lower(s->p[0]);
    *s = str_skip(*s, 1);
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : 0;
}

/* Small letters and digits; what stands between them is one dash. */
static struct str folded(struct str id, struct arena *a)
{
    char *out = arena_get(a, id.n + 1);
    size_t n = 0;
    while (id.n) {
        char c = take_letter(&id);
        if (c || n == 0 || out[n - 1] != '-')
            out[n++] = c ? c : '-';
    }
    return trim_dashes((struct str){out, n});
}

static struct str suffix_of(struct str id, struct arena *a)
{
    uint8_t hash[SHA256_BYTES];
    char *hex = arena_get(a, SUFFIX_BYTES);
    digest_sha256(hash, &id, 1);
    text_put_hex(hex, hash, SUFFIX_BYTES / 2);
    return (struct str){hex, SUFFIX_BYTES};
}

struct str agent_dns1035(struct str id, struct arena *a)
{
    struct str name = folded(id, a);
    if (name.n == 0)
        return arena_cat(a, prefix, suffix_of(id, a));
    if (name.p[0] < 'a')
        name = arena_cat(a, prefix, name);
    if (name.n <= LABEL_BYTES)
        return name;
    name = trim_dashes(str_head(name, KEPT_BYTES));
    return arena_cat(a, arena_cat(a, name, STR("-")), suffix_of(id, a));
}

unsigned agent_names(struct str id, struct arena *a, struct str ret[3])
{
    unsigned n = 0;
    ret[n++] = agent_dns1035(id, a);
    if (!str_eq(id, ret[0]))
        ret[n++] = id;
    struct str third = str_starts(id, prefix) ? id : arena_cat(a, prefix, id);
    if (!str_eq(third, ret[0]) && !str_eq(third, id))
        ret[n++] = third;
    return n;
}
