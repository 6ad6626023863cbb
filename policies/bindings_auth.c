/* bindings_auth.c — what a binding puts into requests: a type with its headers, and placeholders.
 * A header that frames or routes a message is never a credential's, since whoever sets it decides
 * what the message is. */
#include "base/text.h"
#include "policies/bindings_impl.h"
#include "policies/target.h"

static const struct {
    struct str text;
    bool one; /* takes one credential */
} types[] = {
    [AUTH_BEARER] = {{"bearer", 6}, true},
    [AUTH_BASIC] = {{"basic", 5}, true},
    [AUTH_API_KEY] = {{"apiKey", 6}, true},
    [AUTH_CUSTOM_HEADERS] = {{"customHeaders", 13}, false},
    [AUTH_PASSTHROUGH] = {{"passthrough", 11}, false},
};
enum { TYPES = sizeof types / sizeof *types };

const char *auth_type_text(enum auth_type t)
{
    return types[t].text.p;
}

static bool type_read(struct str text, enum auth_type *ret)
{
    for (unsigned t = 0; t < TYPES; t++) {
        if (!str_eq(text, types[t].text))
            continue;
        *ret = (enum auth_type)t;
        return true;
    }
    return false;
}

/* ---- headers */

static const struct str reserved[] = {
    {"host", 4},
    {"content-length", 14},
    {"content-type", 12},
    {"transfer-encoding", 17},
    {"connection", 10},
    {"upgrade", 7},
    {"te", 2},
    {"trailer", 7},
    {"proxy-authorization", 19},
    {"proxy-authenticate", 18},
    {"forwarded", 9},
    {"x-forwarded-for", 15},
    {"x-forwarded-host", 16},
    {"x-forwarded-proto", 17},
    /* HTTP/2 forbids these */
    {"keep-alive", 10},
    {"proxy-connection", 16},
    {"http2-settings", 14},
};

static bool is_reserved(struct str name)
{
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (str_ieq(name, reserved[i]))
            return true;
    return false;
}

static struct str canonical(struct str name, struct arena *a)
{
    char *out = arena_get(a, name.n + 1);
    bool first = true;
    for (size_t i = 0; i < name.n; i++) {
        char c = ascii_lower(name.p[i]);
        out[i] = (char)(first && c >= 'a' && c <= 'z' ? c - 32 : c);
        first = c == '-';
    }
    return (struct str){out, name.n};
}

static bool read_header_name(struct reading *r, struct str text, struct str *ret)
{
    text = target_trim(text);
    if (text.n == 0 || !text_is_token(text))
        return reading_fail(r, "invalid credential header name %.*s",
                            STR_ARG(binding_quoted(text, r->a)));
    *ret = canonical(text, r->a);
    return !is_reserved(text) || reading_fail(r, "reserved credential header name %.*s",
                                              STR_ARG(binding_quoted(*ret, r->a)));
}

static bool read_one(struct reading *r)
{
    struct auth_header *h = arena_zero(r->a, sizeof *h);
    struct str credential = target_trim(r->draft->credential);
    if (credential.n == 0)
        return reading_fail(r, "%s auth requires credential", auth_type_text(r->b->type));
    h->credential = arena_str(r->a, credential);
    h->name = STR("Authorization");
    if (r->b->type == AUTH_API_KEY && !read_header_name(r, r->draft->header_name, &h->name))
        return false;
    r->b->headers = h;
    r->b->nheaders = 1;
    return true;
}

static bool read_entry(struct reading *r, const struct auth_header *from, struct auth_header *to,
                       struct text_set *names)
{
    if (!read_header_name(r, from->name, &to->name))
        return false;
    struct str shown = binding_quoted(to->name, r->a);
    if (!text_set_add(names, to->name))
        return reading_fail(r, "duplicate custom header name %.*s", STR_ARG(shown));
    to->credential = arena_str(r->a, target_trim(from->credential));
    return to->credential.n > 0 ||
           reading_fail(r, "customHeaders entry %.*s requires credential", STR_ARG(shown));
}

static bool read_custom(struct reading *r)
{
    const struct binding_draft *d = r->draft;
    if (d->nheaders == 0)
        return reading_fail(r, "customHeaders auth requires headers");
    struct auth_header *headers = arena_zero(r->a, d->nheaders * sizeof *headers);
    struct text_set names = {.at = arena_get(r->a, d->nheaders * sizeof *names.at)};
    bool good = true;
    for (unsigned i = 0; i < d->nheaders && good; i++)
        good = read_entry(r, &d->headers[i], &headers[i], &names);
    text_set_done(&names);
    r->b->headers = headers;
    r->b->nheaders = d->nheaders;
    return good;
}

static bool read_nothing(struct reading *r)
{
    if (r->draft->credential.n)
        return reading_fail(r, "passthrough auth does not accept credential");
    if (r->draft->header_name.n)
        return reading_fail(r, "passthrough auth does not accept name");
    return r->draft->nheaders == 0 || reading_fail(r, "passthrough auth does not accept headers");
}

/* ---- substitutions */

static const struct {
    enum surface surface;
    struct str text;
} surfaces[] = {
    {SURFACE_PATH, {"path", 4}},
    {SURFACE_QUERY, {"query", 5}},
    {SURFACE_HEADER, {"header", 6}},
    {SURFACE_BODY, {"body", 4}},
};
enum { SURFACES = sizeof surfaces / sizeof *surfaces };

static bool read_surface(struct reading *r, unsigned i, struct str text, unsigned *in)
{
    text = target_trim(text);
    for (unsigned s = 0; s < SURFACES; s++) {
        if (!str_ieq(text, surfaces[s].text))
            continue;
        *in |= surfaces[s].surface;
        return true;
    }
    char *low = arena_get(r->a, text.n + 1);
    for (size_t k = 0; k < text.n; k++)
        low[k] = ascii_lower(text.p[k]);
    struct str shown = binding_quoted((struct str){low, text.n}, r->a);
    return reading_fail(r, "substitution %u has unsupported target surface %.*s", i,
                        STR_ARG(shown));
}

static bool read_substitution(struct reading *r, unsigned i, struct substitution *to)
{
    const struct substitution_draft *from = &r->draft->substitutions[i];
    to->credential = arena_str(r->a, target_trim(from->credential));
    if (to->credential.n == 0)
        return reading_fail(r, "substitution %u requires credential", i);
    if (target_trim(from->placeholder).n == 0)
        return reading_fail(r, "substitution %u requires placeholder", i);
    to->placeholder = arena_str(r->a, from->placeholder);
    if (from->in.n == 0)
        return reading_fail(r, "substitution %u requires at least one target surface", i);
    for (unsigned k = 0; k < from->in.n; k++)
        if (!read_surface(r, i, from->in.at[k], &to->in))
            return false;
    return true;
}

/* A placeholder may stand once on each surface: index[s] knows who has it there. */
static bool take_placeholder(struct reading *r, struct map *index[SURFACES],
                             const struct substitution *all, unsigned i)
{
    for (unsigned s = 0; s < SURFACES; s++) {
        if (!(all[i].in & surfaces[s].surface))
            continue;
        const struct substitution *first = map_get(index[s], all[i].placeholder);
        if (first)
            return reading_fail(
                r,
                "substitution %u duplicates placeholder %.*s on %.*s surface from substitution %u",
                i, STR_ARG(binding_quoted(all[i].placeholder, r->a)), STR_ARG(surfaces[s].text),
                (unsigned)(first - all));
        map_put(index[s], all[i].placeholder, (void *)(uintptr_t)&all[i]);
    }
    return true;
}

static bool check_placeholders(struct reading *r)
{
    struct map *index[SURFACES];
    bool good = true;
    for (unsigned s = 0; s < SURFACES; s++)
        index[s] = map_new();
    for (unsigned i = 0; i < r->b->nsubstitutions && good; i++)
        good = take_placeholder(r, index, r->b->substitutions, i);
    for (unsigned s = 0; s < SURFACES; s++)
        map_free(index[s]);
    return good;
}

static bool read_substitutions(struct reading *r)
{
    unsigned n = r->draft->nsubstitutions;
    struct substitution *all = arena_zero(r->a, (n + 1) * sizeof *all);
    for (unsigned i = 0; i < n; i++)
        if (!read_substitution(r, i, &all[i]))
            return false;
    r->b->substitutions = all;
    r->b->nsubstitutions = n;
    return n < 2 || check_placeholders(r);
}

bool reading_auth(struct reading *r)
{
    struct str type = target_trim(r->draft->type);
    if (!type_read(type, &r->b->type))
        return reading_fail(r, "unsupported auth type %.*s", STR_ARG(binding_quoted(type, r->a)));
    bool good = types[r->b->type].one               ? read_one(r)
                : r->b->type == AUTH_CUSTOM_HEADERS ? read_custom(r)
                                                    : read_nothing(r);
    return good && read_substitutions(r);
}
