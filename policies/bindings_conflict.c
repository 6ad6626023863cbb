/* bindings_conflict.c — can two bindings match the same request?  They can where their schemes,
 * hosts, methods and paths all meet.  Whose texts meet is found for all bindings at once, in one
 * walk over the sorted texts of all, and kept as a bit for each pair: neither many bindings nor
 * long lists cost their square in comparisons. */
#include <stdlib.h>

#include "policies/bindings_impl.h"

/* One text of a binding; an open one meets all that begin with it, another one only its equals. */
struct entry {
    uint64_t begins; /* its first bytes, so that sorting seldom looks at the rest */
    struct str text;
    unsigned i; /* of the binding */
    bool open;
};

/* A row of bits for each binding: with whom it meets. */
struct table {
    uint64_t *bits;
    unsigned words; /* of a row */
};

/* An open text that the walk is below of. */
struct level {
    struct str text;
    uint64_t *sum; /* the bindings of this one and of those above it */
};

struct walk {
    struct table *t;
    struct arena *a;
    struct level *levels;
    unsigned depth, made, room; /* levels in use, with a sum, allocated */
    uint64_t *here;             /* a row */
};

/* ---- rows */

static void set(uint64_t *row, unsigned i)
{
    row[i / 64] |= (uint64_t)1 << i % 64;
}

static void unite(uint64_t *row, const uint64_t *with, unsigned words)
{
    for (unsigned w = 0; w < words; w++)
        row[w] |= with[w];
}

static uint64_t *row_of(const struct table *t, unsigned i)
{
    return t->bits + (size_t)i * t->words;
}

static bool meet(const struct table *t, unsigned i, unsigned k)
{
    return row_of(t, i)[k / 64] >> k % 64 & 1 || row_of(t, k)[i / 64] >> i % 64 & 1;
}

/* ---- one walk */

static uint64_t begins_of(struct str s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof n; i++)
        n = n << 8 | (i < s.n ? (uint8_t)s.p[i] : 0);
    return n;
}

static int by_text(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    if (a->begins != b->begins)
        return a->begins < b->begins ? -1 : 1;
    return str_cmp(a->text, b->text);
}

static struct level *push(struct walk *w, struct str text)
{
    if (w->depth == w->room) {
        w->room = w->room ? 2 * w->room : 16;
        w->levels = mem_renew(w->levels, w->room * sizeof *w->levels);
    }
    struct level *l = &w->levels[w->depth++];
    if (w->depth > w->made) {
        l->sum = arena_get(w->a, w->t->words * sizeof *l->sum);
        w->made = w->depth;
    }
    l->text = text;
    memset(l->sum, 0, w->t->words * sizeof *l->sum);
    if (w->depth > 1)
        unite(l->sum, l[-1].sum, w->t->words);
    return l;
}

/* What is open at this text, if anything is, becomes a level. */
static void open_level(struct walk *w, const struct entry *at, unsigned n)
{
    struct level *l = NULL;
    for (unsigned i = 0; i < n; i++) {
        if (!at[i].open)
            continue;
        l = l ? l : push(w, at->text);
        set(l->sum, at[i].i);
    }
}

/* n entries of one text.  Each meets what is open above it and here, and its equals. */
static void enter(struct walk *w, const struct entry *at, unsigned n)
{
    unsigned words = w->t->words;
    while (w->depth > 0 && !str_starts(at->text, w->levels[w->depth - 1].text))
        w->depth--;
    open_level(w, at, n);
    if (w->depth == 0 && n == 1)
        return;
    memset(w->here, 0, words * sizeof *w->here);
    if (w->depth > 0)
        unite(w->here, w->levels[w->depth - 1].sum, words);
    for (unsigned i = 0; i < n; i++)
        set(w->here, at[i].i);
    for (unsigned i = 0; i < n; i++)
        unite(row_of(w->t, at[i].i), w->here, words);
}

/* Sorted, a text stands behind all that it begins with, and what stands between begins so, too. */
static void walk(struct table *t, struct entry *all, unsigned n, struct arena *a)
{
    struct walk w = {.t = t, .a = a, .here = arena_get(a, t->words * sizeof *w.here)};
    if (n > 1)
        qsort(all, n, sizeof(*all), by_text);
    for (unsigned i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && by_text(&all[i], &all[k]) == 0; k++)
            ;
        enter(&w, &all[i], k - i);
    }
    mem_free(w.levels);
}

/* ---- the texts */

/* Read backwards, the names below another one begin with it.  An exact host meets no wildcard,
 * since it goes before all of them (contract 9.2); so the two kinds begin differently. */
static struct entry host_entry(struct str host, struct arena *a)
{
    bool wild = host.p[0] == '*';
    char *text = arena_get(a, host.n + 1);
    size_t n = 0;
    text[n++] = wild ? '*' : '=';
    for (size_t i = host.n; i > (wild ? 1 : 0); i--)
        text[n++] = host.p[i - 1];
    return (struct entry){.text = {text, n}, .open = wild};
}

static struct entry path_entry(struct str path, struct arena *a)
{
    bool open = path.p[path.n - 1] == '*';
    (void)a;
    return (struct entry){.text = str_head(path, path.n - open), .open = open};
}

static struct entry method_entry(struct str method, struct arena *a)
{
    (void)a;
    return (struct entry){.text = method};
}

static const struct str_list *hosts_of(const struct binding *b)
{
    return &b->hosts;
}

static const struct str_list *paths_of(const struct binding *b)
{
    return &b->paths;
}

static const struct str_list *methods_of(const struct binding *b)
{
    return &b->methods;
}

/* Whose lists of this kind meet. */
static struct table table_of(const struct bindings *s,
                             const struct str_list *(*list_of)(const struct binding *b),
                             struct entry (*entry_of)(struct str text, struct arena *a),
                             struct arena *a)
{
    unsigned n = bindings_count(s), all = 0, at = 0;
    struct table t = {.words = n / 64 + 1};
    t.bits = arena_zero(a, (size_t)(n + 1) * t.words * sizeof *t.bits);
    for (unsigned i = 0; i < n; i++)
        all += list_of(bindings_at(s, i))->n;
    struct entry *entries = arena_get(a, ((size_t)all + 1) * sizeof *entries);
    for (unsigned i = 0; i < n; i++) {
        const struct str_list *list = list_of(bindings_at(s, i));
        for (unsigned k = 0; k < list->n; k++) {
            struct entry *e = &entries[at++];
            *e = entry_of(list->at[k], a);
            e->begins = begins_of(e->text);
            e->i = i;
        }
    }
    walk(&t, entries, all, a);
    return t;
}

/* ---- the first pair */

struct tables {
    struct table methods, hosts, paths;
};

/* The first after i that collides with it; the number of bindings: none. */
static unsigned first_after(const struct bindings *s, const struct tables *t, unsigned i)
{
    const uint64_t *row = row_of(&t->methods, i); /* equals see each other: it is whole */
    unsigned n = bindings_count(s), schemes = schemes_of(bindings_at(s, i));
    for (unsigned k = i + 1; k < n; k++) {
        uint64_t rest = row[k / 64] >> k % 64;
        if (rest == 0)
            k |= 63; /* on to the next word */
        else if (rest & 1 && meet(&t->hosts, i, k) && meet(&t->paths, i, k) &&
                 schemes & schemes_of(bindings_at(s, k)))
            return k;
    }
    return n;
}

bool bindings_conflict(const struct bindings *s, unsigned *ret_i, unsigned *ret_k)
{
    unsigned n = bindings_count(s), found = n;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct tables t = {.methods = table_of(s, methods_of, method_entry, &a),
                       .hosts = table_of(s, hosts_of, host_entry, &a),
                       .paths = table_of(s, paths_of, path_entry, &a)};
    for (unsigned i = 0; i < n && found == n; i++) {
        found = first_after(s, &t, i);
        *ret_i = i;
    }
    arena_done(&a);
    *ret_k = found;
    return found < n;
}
