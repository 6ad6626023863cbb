/* bindings.c — a set of bindings, and the one that a request gets.  All hangs on names: a name's
 * node knows which bindings it is exact for and which have it as a suffix, so a request asks for
 * its host and each name above it.
 *
 * The same walk runs for each reading of the path: a reading that would meet other bindings than
 * the path as it stands means that somebody behind us could see another request than we judged. */
#include "policies/bindings.h"

#include <assert.h>
#include <stdlib.h>

#include "base/ip.h"
#include "policies/bindings_impl.h"
#include "policies/pathsafe.h"

struct ref {
    struct ref *next; /* in the order of the set */
    unsigned i;       /* of the binding */
};

/* Everything that hangs on one name. */
struct host_node {
    struct str name;
    struct ref *exact; /* bindings that name it */
    struct ref *wild;  /* that name *. and it */
    unsigned exact_schemes, wild_schemes;
};

struct bindings {
    struct arena mem;
    struct binding *at; /* by name */
    unsigned n;
    struct map *nodes; /* of struct host_node, by name */
};

unsigned schemes_of(const struct binding *b)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < b->schemes.n; i++)
        bits |= str_eq(b->schemes.at[i], STR("https")) ? SCHEME_HTTPS : SCHEME_HTTP;
    return bits;
}

static unsigned scheme_bit(bool tls)
{
    return tls ? SCHEME_HTTPS : SCHEME_HTTP;
}

bool binding_has_scheme(const struct binding *b, bool tls)
{
    return schemes_of(b) & scheme_bit(tls);
}

/* ---- making one */

static struct str_list copy_texts(struct str_list from, struct arena *a)
{
    struct str *at = arena_get(a, (from.n + 1) * sizeof *at);
    for (unsigned i = 0; i < from.n; i++)
        at[i] = arena_str(a, from.at[i]);
    return (struct str_list){at, from.n};
}

static struct binding copy(const struct binding *from, struct arena *a)
{
    struct auth_header *headers = arena_get(a, (from->nheaders + 1) * sizeof *headers);
    struct substitution *all = arena_get(a, (from->nsubstitutions + 1) * sizeof *all);
    for (unsigned i = 0; i < from->nheaders; i++)
        headers[i] = (struct auth_header){arena_str(a, from->headers[i].name),
                                          arena_str(a, from->headers[i].credential)};
    for (unsigned i = 0; i < from->nsubstitutions; i++)
        all[i] = (struct substitution){arena_str(a, from->substitutions[i].credential),
                                       arena_str(a, from->substitutions[i].placeholder),
                                       from->substitutions[i].in};
    return (struct binding){.name = arena_str(a, from->name),
                            .schemes = copy_texts(from->schemes, a),
                            .hosts = copy_texts(from->hosts, a),
                            .methods = copy_texts(from->methods, a),
                            .paths = copy_texts(from->paths, a),
                            .type = from->type,
                            .headers = headers,
                            .nheaders = from->nheaders,
                            .substitutions = all,
                            .nsubstitutions = from->nsubstitutions};
}

static int by_name(const void *x, const void *y)
{
    const struct binding *const *a = x, *const *b = y;
    return str_cmp((*a)->name, (*b)->name);
}

static struct host_node *node_of(const struct bindings *s, struct str name)
{
    return map_get(s->nodes, name);
}

/* Cuts the first label off; false: no further label stands there. */
static bool name_up(struct str *name)
{
    ptrdiff_t dot = str_chr(*name, '.');
    if (dot < 0)
        return false;
    *name = str_skip(*name, (size_t)dot + 1);
    return true;
}

static struct host_node *make_node(struct bindings *s, struct str name)
{
    struct host_node *node = node_of(s, name);
    if (node)
        return node;
    node = arena_zero(&s->mem, sizeof *node);
    node->name = name;
    map_put(s->nodes, node->name, node);
    return node;
}

static bool is_wild(struct str host)
{
    return host.p[0] == '*';
}

static void put_ref(struct bindings *s, struct ref **list, unsigned i)
{
    struct ref *r = arena_get(&s->mem, sizeof *r);
    *r = (struct ref){*list, i};
    *list = r;
}

static void hang_up(struct bindings *s, unsigned i, struct str host)
{
    bool wild = is_wild(host);
    struct host_node *node = make_node(s, wild ? str_skip(host, 2) : host);
    put_ref(s, wild ? &node->wild : &node->exact, i);
    *(wild ? &node->wild_schemes : &node->exact_schemes) |= schemes_of(&s->at[i]);
}

/* From the last to the first, since each goes to the front of its list. */
static void index_hosts(struct bindings *s)
{
    for (unsigned i = s->n; i-- > 0;)
        for (unsigned k = s->at[i].hosts.n; k-- > 0;)
            hang_up(s, i, s->at[i].hosts.at[k]);
}

struct bindings *bindings_new_unchecked(const struct binding *const *at, unsigned n)
{
    struct bindings *s = mem_new(sizeof *s);
    const struct binding **sorted = mem_new((n + 1) * sizeof *sorted);
    arena_init(&s->mem, NULL, 0);
    s->at = arena_get(&s->mem, (n + 1) * sizeof *s->at);
    s->n = n;
    s->nodes = map_new();
    for (unsigned i = 0; i < n; i++)
        sorted[i] = at[i];
    if (n > 1)
        qsort(sorted, n, sizeof(*sorted), by_name);
    for (unsigned i = 0; i < n; i++)
        s->at[i] = copy(sorted[i], &s->mem);
    mem_free(sorted);
    index_hosts(s);
    return s;
}

struct bindings *bindings_new(const struct binding *const *at, unsigned n, struct arena *a,
                              struct str *ret_error)
{
    unsigned i, k;
    struct bindings *s = bindings_new_unchecked(at, n);
    if (!bindings_conflict(s, &i, &k))
        return s;
    *ret_error = arena_printf(a, "bindings %.*s and %.*s can match the same request",
                              STR_ARG(binding_quoted(s->at[i].name, a)),
                              STR_ARG(binding_quoted(s->at[k].name, a)));
    bindings_free(s);
    return NULL;
}

void bindings_free(struct bindings *s)
{
    if (!s)
        return;
    map_free(s->nodes);
    arena_done(&s->mem);
    mem_free(s);
}

unsigned bindings_count(const struct bindings *s)
{
    return s ? s->n : 0;
}

const struct binding *bindings_at(const struct bindings *s, unsigned i)
{
    assert(i < s->n);
    return &s->at[i];
}

unsigned bindings_index(const struct bindings *s, const struct binding *b)
{
    assert(b >= s->at && b < s->at + s->n);
    return (unsigned)(b - s->at);
}

const struct binding *bindings_named(const struct bindings *s, struct str name)
{
    for (unsigned low = 0, high = bindings_count(s); low < high;) {
        unsigned middle = low + (high - low) / 2;
        int order = str_cmp(s->at[middle].name, name);
        if (order == 0)
            return &s->at[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- asking it */

/* A suffix of numbers could be the end of an address. */
static bool is_address(struct str host)
{
    struct ip ip;
    return ip_parse(host, &ip);
}

bool bindings_bind_host(const struct bindings *s, struct str name, bool tls)
{
    unsigned bit = scheme_bit(tls);
    if (!s || s->n == 0 || is_address(name))
        return false;
    const struct host_node *node = node_of(s, name);
    if (node && node->exact_schemes & bit)
        return true;
    while (name_up(&name)) {
        node = node_of(s, name);
        if (node && node->wild_schemes & bit)
            return true;
    }
    return false;
}

struct choosing {
    const struct bindings *s;
    const struct binding_request *q;
    struct str raw, view;
    const struct binding *exact, *wild; /* the first that matches so */
    bool exact_tied, wild_tied;
    bool differs; /* somebody matches one of raw and view only */
};

static bool has_method(const struct binding *b, struct str method)
{
    for (unsigned i = 0; i < b->methods.n; i++)
        if (str_ieq(b->methods.at[i], method))
            return true;
    return false;
}

static bool has_path(const struct binding *b, struct str path)
{
    for (unsigned i = 0; i < b->paths.n; i++)
        if (binding_path_matches(b->paths.at[i], path))
            return true;
    return false;
}

static void note(const struct binding **first, bool *tied, const struct binding *b)
{
    *tied |= *first && *first != b;
    if (!*first)
        *first = b;
}

static void look_at(struct choosing *c, const struct ref *list, bool exact)
{
    for (; list; list = list->next) {
        const struct binding *b = &c->s->at[list->i];
        if (!binding_has_scheme(b, c->q->tls) || !has_method(b, c->q->method))
            continue;
        bool matches = has_path(b, c->raw);
        c->differs |= c->view.p != c->raw.p && has_path(b, c->view) != matches;
        if (!matches)
            continue;
        if (exact)
            note(&c->exact, &c->exact_tied, b);
        else
            note(&c->wild, &c->wild_tied, b);
    }
}

/* All bindings that have the host, scheme and method. */
static void walk(struct choosing *c)
{
    struct str name = c->q->host;
    const struct host_node *node = node_of(c->s, name);
    if (node)
        look_at(c, node->exact, true);
    while (name_up(&name)) {
        node = node_of(c->s, name);
        if (node)
            look_at(c, node->wild, false);
    }
}

static bool means_one_thing(struct choosing *c)
{
    char first[2048];
    struct arena a;
    struct path_views v;
    bool good = true;
    arena_init(&a, first, sizeof first);
    path_views_init(&v, c->raw, &a);
    while (good && path_views_next(&v)) {
        c->view = v.view;
        if (v.decodings > 0)
            walk(c);
        good = !c->differs && path_view_is_safe(v.view, false);
    }
    good &= !v.endless;
    arena_done(&a);
    return good;
}

static struct str path_of(struct str target)
{
    ptrdiff_t query = str_chr(target, '?');
    struct str path = query < 0 ? target : str_head(target, (size_t)query);
    return path.n ? path : STR("/");
}

enum binding_choice bindings_choose(const struct bindings *s, const struct binding_request *q,
                                    const struct binding **ret)
{
    if (!s || s->n == 0 || q->port != (q->tls ? 443 : 80) || is_address(q->host))
        return BINDING_NONE;
    struct choosing c = {.s = s, .q = q, .raw = path_of(q->target)};
    c.view = c.raw;
    walk(&c);
    const struct binding *best = c.exact ? c.exact : c.wild;
    if (!best)
        return BINDING_NONE;
    *ret = best;
    if (c.exact ? c.exact_tied : c.wild_tied)
        return BINDING_AMBIGUOUS;
    return means_one_thing(&c) ? BINDING_ONE : BINDING_UNSAFE;
}
