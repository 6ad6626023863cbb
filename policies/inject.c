/* inject.c — the head of a request with its credential.  The order is the point: what the binding
 * sets is taken out of the client's fields first, placeholders are filled into the rest, and ours
 * come last, so that nothing the client sent meets them. */
#include "policies/inject.h"

#include "policies/pathsafe.h"

struct work {
    const struct armed *x;
    struct arena *a;
    struct secret_bag *bag;
    struct injected *out;
    size_t left; /* of INJECT_HEAD_MOST */
};

static bool sets(const struct armed *x, struct str name)
{
    for (unsigned i = 0; i < x->nheaders; i++)
        if (str_ieq(x->headers[i].name, name))
            return true;
    return false;
}

/* Those of q that stay, with room for ours. */
static void keep_fields(struct work *w, const struct inject_request *q)
{
    struct injected *out = w->out;
    out->fields = arena_get(w->a, (q->nfields + w->x->nheaders) * sizeof *out->fields);
    for (unsigned i = 0; i < q->nfields; i++)
        if (!sets(w->x, q->fields[i].name))
            out->fields[out->nfields++] = q->fields[i];
}

void inject_trailers(const struct armed *x, struct field *fields, unsigned *nfields)
{
    unsigned n = 0;
    for (unsigned i = 0; i < *nfields; i++)
        if (!sets(x, fields[i].name))
            fields[n++] = fields[i];
    *nfields = n;
}

/* ---- Accept-Encoding ---- */

static bool is_readable(struct str element)
{
    static const struct str codings[] = {STR("gzip"), STR("x-gzip"), STR("br"), STR("zstd"),
                                         STR("identity")};
    struct str coding, rest = element;
    if (!str_next(&rest, ';', &coding))
        return false;
    coding = str_trim(coding);
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)
        if (str_ieq(coding, codings[i]))
            return true;
    return false;
}

static bool all_readable(struct str list)
{
    struct str element;
    while (str_next(&list, ',', &element))
        if (!is_readable(element))
            return false;
    return true;
}

/* The elements that we can read; empty: none. */
static struct str readable(struct str list, struct arena *a)
{
    if (list.n == 0 || all_readable(list))
        return list;
    struct str element;
    char *out = arena_get(a, 2 * list.n + 2); /* each comma may become two bytes */
    size_t n = 0;
    while (str_next(&list, ',', &element)) {
        if (!is_readable(element))
            continue;
        element = str_trim(element);
        if (n) {
            memcpy(out + n, ", ", 2);
            n += 2;
        }
        memcpy(out + n, element.p, element.n);
        n += element.n;
    }
    return (struct str){out, n};
}

/* Lines of which nothing is left go, but the first if that leaves none: then it says so. */
static void narrow(struct field *fields, unsigned *nfields, bool ranged, struct arena *a)
{
    unsigned n = 0, first = 0, lines = 0;
    bool some = false;
    for (unsigned i = 0; i < *nfields; i++) {
        struct field f = fields[i];
        if (!str_ieq(f.name, STR("accept-encoding"))) {
            fields[n++] = f;
            continue;
        }
        f.value = ranged ? STR("") : readable(f.value, a);
        if (lines++ > 0 && f.value.n == 0)
            continue;
        if (lines == 1)
            first = n;
        some = some || f.value.n > 0;
        fields[n++] = f;
    }
    *nfields = n;
    if (lines == 0 || fields[first].value.n > 0)
        return;
    if (!some) {
        fields[first].value = STR("identity");
        return;
    }
    memmove(&fields[first], &fields[first + 1], (n - first - 1) * sizeof *fields);
    --*nfields;
}

/* Of a part of a coded body nobody can say what it holds. */
static bool is_ranged(const struct field *fields, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (str_ieq(fields[i].name, STR("range")))
            return true;
    return false;
}

void inject_accept_coding(struct field *fields, unsigned *nfields, struct arena *a)
{
    narrow(fields, nfields, is_ranged(fields, *nfields), a);
}

/* ---- placeholders ---- */

/* True: *text may have changed; false: it would be too long. */
static bool put(struct work *w, const struct replacements *p, enum surface on, struct str *text)
{
    enum substituted done = substitute(p, *text, w->left, w->bag, text);
    if (done == SUBSTITUTE_DONE) {
        w->out->hits |= on;
        w->left -= text->n;
    }
    return done != SUBSTITUTE_LONG;
}

/* The path lies in the memory of secrets, so what is made of it may not stay behind. */
static bool is_safe(struct str path)
{
    char first[2048];
    struct arena a;
    arena_init_private(&a, first, sizeof first);
    bool safe = path_is_safe(path, true, &a);
    arena_done(&a);
    return safe;
}

static struct str join(struct work *w, struct str path, struct str query)
{
    char *out = secret_bag_get(w->bag, path.n + 1 + query.n);
    memcpy(out, path.p, path.n);
    out[path.n] = '?';
    if (query.n)
        memcpy(out + path.n + 1, query.p, query.n);
    return (struct str){out, path.n + 1 + query.n};
}

static enum inject_fault put_target(struct work *w, struct str target)
{
    struct str query = target, path = STR("");
    str_next(&query, '?', &path);
    w->out->target = target;
    if (!put(w, &w->x->path, SURFACE_PATH, &path))
        return INJECT_LONG;
    if (w->out->hits && !is_safe(path))
        return INJECT_UNSAFE;
    if (query.p && !put(w, &w->x->query, SURFACE_QUERY, &query))
        return INJECT_LONG;
    if (w->out->hits)
        w->out->target = query.p ? join(w, path, query) : path;
    return INJECT_OK;
}

/* Fields that say where a request goes or how it is framed (contract 11, header). */
static bool is_excluded(struct str name)
{
    static const struct str names[] = {STR("host"),
                                       STR("content-length"),
                                       STR("transfer-encoding"),
                                       STR("connection"),
                                       STR("upgrade"),
                                       STR("te"),
                                       STR("trailer"),
                                       STR("proxy-authorization"),
                                       STR("proxy-authenticate"),
                                       STR("forwarded"),
                                       STR("x-forwarded-for"),
                                       STR("x-forwarded-host"),
                                       STR("x-forwarded-proto")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (name.n == names[i].n && str_ieq(name, names[i]))
            return true;
    return false;
}

/* What cannot be scrubbed out of the answer is not made: further lines stay as they are. */
static bool put_basic(struct work *w, struct str *value)
{
    struct injected *out = w->out;
    struct str token, text;
    if (out->nmade + 2 > sizeof out->made / sizeof *out->made)
        return true;
    enum substituted done =
        substitute_basic(&w->x->header, *value, w->left, w->bag, value, &token, &text);
    if (done != SUBSTITUTE_DONE)
        return done != SUBSTITUTE_LONG;
    out->hits |= SURFACE_HEADER;
    out->made[out->nmade++] = token;
    out->made[out->nmade++] = text;
    w->left -= value->n < w->left ? value->n : w->left;
    return true;
}

static bool put_field(struct work *w, struct field *f)
{
    const char *before = f->value.p;
    if (is_excluded(f->name))
        return true;
    if (!put(w, &w->x->header, SURFACE_HEADER, &f->value))
        return false;
    if (f->value.p == before)
        return !str_ieq(f->name, STR("authorization")) || put_basic(w, &f->value);
    f->value = str_trim(f->value); /* as what the binding sets (inject_arm.c) */
    return true;
}

static enum inject_fault put_fields(struct work *w)
{
    if (w->x->header.n == 0)
        return INJECT_OK;
    for (unsigned i = 0; i < w->out->nfields; i++)
        if (!put_field(w, &w->out->fields[i]))
            return INJECT_LONG;
    return INJECT_OK;
}

/* ---- the head ---- */

enum inject_fault inject_head(const struct armed *x, const struct inject_request *q,
                              struct arena *a, struct secret_bag *bag, struct injected *ret)
{
    struct work w = {x, a, bag, ret, INJECT_HEAD_MOST};
    *ret = (struct injected){0};
    enum inject_fault fault = put_target(&w, q->target);
    if (fault != INJECT_OK)
        return fault;
    keep_fields(&w, q);
    if (q->scrubs)
        narrow(ret->fields, &ret->nfields,
               is_ranged(ret->fields, ret->nfields) || is_ranged(x->headers, x->nheaders), a);
    fault = put_fields(&w);
    for (unsigned i = 0; i < x->nheaders; i++)
        ret->fields[ret->nfields++] = x->headers[i];
    ret->sets = x->nheaders;
    return fault;
}
