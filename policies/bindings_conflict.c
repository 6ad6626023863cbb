/* bindings_conflict.c — can two bindings match the same request?  Only those that share a name are
 * compared at all, and of those the lists are searched sorted, so that neither many bindings nor
 * long lists cost their square. */
#include <stdlib.h>

#include "policies/bindings_impl.h"

/* A path pattern without its star. */
struct stem {
    struct str text;
    bool open; /* a star stood behind it */
};

/* A binding as it is compared; lists are sorted. */
struct prepared {
    unsigned schemes;
    uint64_t method_bits; /* one for each method; without one in common no method is */
    struct str *methods;
    struct stem *paths;
    unsigned nmethods, npaths;
    unsigned asked_by; /* the binding that compared itself with it last, plus 1 */
};

struct checking {
    const struct bindings *s;
    struct prepared *all;
    unsigned i;     /* who compares itself */
    unsigned found; /* the lowest place it collides with; the number of bindings: none */
};

/* ---- preparing */

static int by_text(const void *x, const void *y)
{
    const struct str *a = x, *b = y;
    return str_cmp(*a, *b);
}

static int by_stem(const void *x, const void *y)
{
    const struct stem *a = x, *b = y;
    int order = str_cmp(a->text, b->text);
    return order ? order : (int)b->open - (int)a->open;
}

static unsigned method_bit(struct str method)
{
    unsigned h = 0;
    for (size_t i = 0; i < method.n; i++)
        h = h * 31 + (unsigned char)method.p[i];
    return h % 64;
}

static void prepare(const struct binding *b, struct arena *a, struct prepared *p)
{
    *p = (struct prepared){.schemes = schemes_of(b),
                           .methods = arena_get(a, (b->methods.n + 1) * sizeof *p->methods),
                           .paths = arena_get(a, (b->paths.n + 1) * sizeof *p->paths),
                           .nmethods = b->methods.n,
                           .npaths = b->paths.n};
    for (unsigned i = 0; i < p->nmethods; i++) {
        p->methods[i] = b->methods.at[i];
        p->method_bits |= (uint64_t)1 << method_bit(p->methods[i]);
    }
    for (unsigned i = 0; i < p->npaths; i++) {
        struct str path = b->paths.at[i];
        bool open = path.p[path.n - 1] == '*';
        p->paths[i] = (struct stem){str_head(path, path.n - open), open};
    }
    if (p->nmethods > 1)
        qsort(p->methods, p->nmethods, sizeof *p->methods, by_text);
    if (p->npaths > 1)
        qsort(p->paths, p->npaths, sizeof *p->paths, by_stem);
}

/* ---- comparing two */

static bool methods_meet(const struct prepared *a, const struct prepared *b)
{
    const struct prepared *less = a->nmethods < b->nmethods ? a : b, *more = less == a ? b : a;
    for (unsigned i = 0; i < less->nmethods; i++)
        if (bsearch(&less->methods[i], more->methods, more->nmethods, sizeof *more->methods,
                    by_text))
            return true;
    return false;
}

/* The first of them that is not before `text`, or their number. */
static unsigned first_from(const struct prepared *p, struct str text)
{
    unsigned low = 0, high = p->npaths;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (str_cmp(p->paths[middle].text, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Does a path of a take in the whole of one of b?  What begins with a text stands together, from
 * that text on. */
static bool takes_in(const struct prepared *a, const struct prepared *b)
{
    for (unsigned i = 0; i < a->npaths; i++) {
        const struct stem *path = &a->paths[i];
        unsigned at = first_from(b, path->text);
        if (at == b->npaths)
            continue;
        struct str other = b->paths[at].text;
        if (path->open ? str_starts(other, path->text) : str_eq(other, path->text))
            return true;
    }
    return false;
}

/* The last byte that both have differs most often. */
static bool begins_with(struct str s, struct str with)
{
    if (with.n == 0)
        return true;
    return with.n <= s.n && s.p[with.n - 1] == with.p[with.n - 1] &&
           memcmp(s.p, with.p, with.n) == 0;
}

static bool stems_meet(const struct stem *a, const struct stem *b)
{
    const struct stem *less = a->text.n < b->text.n ? a : b, *more = less == a ? b : a;
    bool enough = less->open || less->text.n == more->text.n;
    return enough && begins_with(more->text, less->text);
}

static bool paths_meet(const struct prepared *a, const struct prepared *b)
{
    if (a->npaths == 1 && b->npaths == 1)
        return stems_meet(a->paths, b->paths);
    return takes_in(a, b) || takes_in(b, a);
}

/* What costs least is asked first. */
static bool collide(const struct prepared *a, const struct prepared *b)
{
    return a->schemes & b->schemes && a->method_bits & b->method_bits && paths_meet(a, b) &&
           methods_meet(a, b);
}

/* ---- comparing all */

static void ask(struct checking *c, const struct ref *list)
{
    const struct prepared *mine = &c->all[c->i];
    for (; list; list = list->next) {
        struct prepared *other = &c->all[list->i];
        if (list->i <= c->i || list->i >= c->found || other->asked_by == c->i + 1)
            continue;
        other->asked_by = c->i + 1;
        if (collide(mine, other))
            c->found = list->i;
    }
}

static void ask_all(struct checking *c, struct str host)
{
    if (host.p[0] != '*') {
        ask(c, node_of(c->s, host)->exact);
        return;
    }
    struct str name = str_skip(host, 2);
    const struct host_node *node = node_of(c->s, name);
    ask(c, node->wild);
    ask(c, node->below);
    while (name_up(&name)) {
        node = node_of(c->s, name);
        if (node)
            ask(c, node->wild);
    }
}

bool bindings_conflict(const struct bindings *s, unsigned *ret_i, unsigned *ret_k)
{
    unsigned n = bindings_count(s);
    struct arena a;
    arena_init(&a, NULL, 0);
    struct checking c = {.s = s, .all = arena_get(&a, (n + 1) * sizeof *c.all), .found = n};
    for (unsigned i = 0; i < n; i++)
        prepare(bindings_at(s, i), &a, &c.all[i]);
    for (; c.i < n && c.found == n; c.i++) {
        const struct str_list *hosts = &bindings_at(s, c.i)->hosts;
        for (unsigned k = 0; k < hosts->n; k++)
            ask_all(&c, hosts->at[k]);
    }
    arena_done(&a);
    if (c.found == n)
        return false;
    *ret_i = c.i - 1;
    *ret_k = c.found;
    return true;
}
