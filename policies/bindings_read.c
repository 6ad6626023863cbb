/* bindings_read.c — the name and the match of a binding: every spelling becomes one, or is refused.
 * What a client meant is never guessed: a host that two readers could take for two hosts, or a
 * pattern that matches more than it says, would send a secret where nobody wanted it. */
#include <stdio.h>

#include "base/ip.h"
#include "base/text.h"
#include "policies/bindings_impl.h"
#include "policies/target.h"

enum { HOST_MAX = 253, LABEL_MAX = 63, SUFFIX_MAX = 251 };

/* ---- errors */

struct str binding_quoted(struct str text, struct arena *a)
{
    size_t room = text.n * 6 + 2;
    char *out = arena_get(a, room);
    out[0] = '"';
    size_t n = 1 + text_put_json(out + 1, room - 2, text);
    out[n++] = '"';
    return (struct str){out, n};
}

bool reading_fail(struct reading *r, const char *format, ...)
{
    va_list args;
    struct str name = binding_quoted(r->b->name, r->a);
    va_start(args, format);
    struct str text = arena_vprintf(r->a, format, args);
    va_end(args);
    struct str head = arena_cat(r->a, arena_cat(r->a, STR("binding "), name), STR(": "));
    r->error = arena_cat(r->a, head, text);
    return false;
}

/* ---- lists of texts */

static void index_texts(struct text_set *s)
{
    s->index = map_new();
    for (unsigned i = 0; i < s->n; i++)
        map_put(s->index, s->at[i], &s->at[i]);
}

static bool is_in(struct text_set *s, struct str text)
{
    if (s->n == FEW_TEXTS && !s->index)
        index_texts(s);
    if (s->index)
        return map_get(s->index, text) != NULL;
    for (unsigned i = 0; i < s->n; i++)
        if (str_eq(s->at[i], text))
            return true;
    return false;
}

bool text_set_add(struct text_set *s, struct str text)
{
    if (is_in(s, text))
        return false;
    s->at[s->n] = text;
    if (s->index)
        map_put(s->index, text, &s->at[s->n]);
    s->n++;
    return true;
}

void text_set_done(struct text_set *s)
{
    map_free(s->index);
    s->index = NULL;
}

static struct str lower(struct str s, struct arena *a)
{
    char *out = arena_get(a, s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        out[i] = ascii_lower(s.p[i]);
    return (struct str){out, s.n};
}

static struct str upper(struct str s, struct arena *a)
{
    char *out = arena_get(a, s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        out[i] = (char)(s.p[i] >= 'a' && s.p[i] <= 'z' ? s.p[i] - 32 : s.p[i]);
    return (struct str){out, s.n};
}

/* A list through a function that normalises one text or fails; doubles are left out. */
static bool read_list(struct reading *r, struct str_list list, struct str_list *ret,
                      bool (*one)(struct reading *r, struct str text, struct str *ret))
{
    struct text_set set = {.at = arena_get(r->a, (list.n + 1) * sizeof *set.at)};
    bool good = true;
    for (unsigned i = 0; i < list.n && good; i++) {
        struct str text;
        good = one(r, target_trim(list.at[i]), &text);
        if (good)
            text_set_add(&set, text);
    }
    text_set_done(&set);
    *ret = (struct str_list){set.at, set.n};
    return good;
}

/* ---- schemes, ports, methods, paths */

static bool read_scheme(struct reading *r, struct str text, struct str *ret)
{
    *ret = lower(text, r->a);
    if (str_eq(*ret, STR("https")) || str_eq(*ret, STR("http")))
        return true;
    return reading_fail(r, "unsupported scheme %.*s", STR_ARG(binding_quoted(*ret, r->a)));
}

static bool read_ports(struct reading *r)
{
    for (unsigned i = 0; i < r->draft->nports; i++) {
        int64_t port = r->draft->ports[i];
        if (port != 80 && port != 443)
            return reading_fail(r,
                                "unsupported port %lld: only ports 80 and 443 are supported "
                                "(derived from scheme)",
                                (long long)port);
    }
    return true;
}

static bool read_method(struct reading *r, struct str text, struct str *ret)
{
    *ret = upper(text, r->a);
    return text.n > 0 || reading_fail(r, "method cannot be blank");
}

static bool read_path(struct reading *r, struct str text, struct str *ret)
{
    *ret = arena_str(r->a, text);
    return str_starts(text, STR("/")) || reading_fail(r, "path pattern must start with /");
}

bool binding_path_matches(struct str pattern, struct str path)
{
    if (pattern.n > 0 && pattern.p[pattern.n - 1] == '*')
        return str_starts(path, str_head(pattern, pattern.n - 1));
    return str_eq(pattern, path);
}

/* ---- hosts */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_label(struct str label)
{
    if (label.n == 0 || label.n > LABEL_MAX)
        return false;
    for (size_t i = 0; i < label.n; i++)
        if (!is_alnum(label.p[i]) && label.p[i] != '-')
            return false;
    return label.p[0] != '-' && label.p[label.n - 1] != '-';
}

/* At least two labels. */
static bool is_name(struct str name, size_t max)
{
    unsigned labels = 0;
    struct str label;
    if (name.n == 0 || name.n > max)
        return false;
    for (; str_next(&name, '.', &label); labels++)
        if (!is_label(label))
            return false;
    return labels > 1;
}

static bool is_address(struct str text)
{
    struct ip ip;
    return ip_parse(text, &ip);
}

static bool read_wildcard(struct reading *r, struct str host)
{
    struct str shown = binding_quoted(host, r->a), suffix;
    if (!str_starts(host, STR("*.")))
        return reading_fail(r, "invalid wildcard host %.*s", STR_ARG(shown));
    suffix = str_skip(host, 2);
    if (is_address(suffix))
        return reading_fail(r, "wildcard host %.*s cannot target an IP address", STR_ARG(shown));
    return is_name(suffix, SUFFIX_MAX) ||
           reading_fail(r, "invalid wildcard host %.*s", STR_ARG(shown));
}

static bool has_scheme_or_path(struct str host)
{
    return str_chr(host, '/') >= 0; /* "://" holds one, too */
}

static bool read_host(struct reading *r, struct str text, struct str *ret)
{
    if (text.n > 0 && text.p[text.n - 1] == '.')
        text.n--;
    struct str host = lower(text, r->a), shown = binding_quoted(host, r->a);
    *ret = host;
    if (host.n == 0)
        return reading_fail(r, "host cannot be blank");
    if (has_scheme_or_path(host))
        return reading_fail(r, "host %.*s must not include scheme or path", STR_ARG(shown));
    if (str_chr(host, '*') >= 0)
        return read_wildcard(r, host);
    if (is_address(host))
        return reading_fail(r, "credential binding host %.*s must be an FQDN, not an IP address",
                            STR_ARG(shown));
    return is_name(host, HOST_MAX) ||
           reading_fail(r, "credential binding host %.*s must be an FQDN", STR_ARG(shown));
}

bool binding_host_is_normal(struct str host)
{
    bool wild = str_starts(host, STR("*."));
    struct str name = wild ? str_skip(host, 2) : host;
    return !is_address(name) && is_name(name, wild ? SUFFIX_MAX : HOST_MAX);
}

/* ---- all of it */

static const struct str default_schemes[] = {{"https", 5}};
static const struct str default_methods[BINDING_METHODS_DEFAULT] = {
    {"GET", 3}, {"POST", 4}, {"PUT", 3}, {"PATCH", 5}, {"DELETE", 6}};
static const struct str default_paths[] = {{"/*", 2}};

static bool check_scope(struct reading *r)
{
    const struct binding *b = r->b;
    if (!r->scoped)
        return true;
    if (b->methods.n == 0)
        return reading_fail(
            r, "match.methods must be explicit when scoped-match enforcement is enabled");
    if (b->paths.n == 0)
        return reading_fail(
            r, "match.paths must be explicit when scoped-match enforcement is enabled");
    for (unsigned i = 0; i < b->paths.n; i++)
        if (str_eq(b->paths.at[i], STR("/*")))
            return reading_fail(
                r, "match.paths must not contain /* when scoped-match enforcement is enabled");
    return true;
}

static void fill_defaults(struct binding *b)
{
    if (b->schemes.n == 0)
        b->schemes = (struct str_list){default_schemes, 1};
    if (b->methods.n == 0)
        b->methods = (struct str_list){default_methods, BINDING_METHODS_DEFAULT};
    if (b->paths.n == 0)
        b->paths = (struct str_list){default_paths, 1};
}

static bool read_match(struct reading *r)
{
    const struct binding_draft *d = r->draft;
    if (!read_list(r, d->schemes, &r->b->schemes, read_scheme) || !read_ports(r))
        return false;
    if (d->hosts.n == 0)
        return reading_fail(r, "match.hosts cannot be empty");
    if (!read_list(r, d->hosts, &r->b->hosts, read_host) ||
        !read_list(r, d->methods, &r->b->methods, read_method) ||
        !read_list(r, d->paths, &r->b->paths, read_path) || !check_scope(r))
        return false;
    fill_defaults(r->b);
    return true;
}

bool binding_read(const struct binding_draft *d, bool scoped, struct arena *a, struct binding *ret,
                  struct str *ret_error)
{
    struct binding b = {.name = arena_str(a, target_trim(d->name))};
    struct reading r = {.draft = d, .a = a, .b = &b, .scoped = scoped};
    if (b.name.n == 0) {
        *ret_error = STR("binding name cannot be blank");
        return false;
    }
    if (!read_match(&r) || !reading_auth(&r)) {
        *ret_error = r.error;
        return false;
    }
    *ret = b;
    return true;
}
