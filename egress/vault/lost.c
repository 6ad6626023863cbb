/* lost.c — the hosts of a vault as text for the supervisor, and read back by a successor that has
 * lost the vault itself.  What cannot be read counts as everything: a name too many is refused, a
 * name too few would go out without its credential. */
#include "egress/vault/lost.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "policies/domains.h"

enum { SCHEMES = 2 };
static const struct str schemes[SCHEMES] = {{"http", 4}, {"https", 5}}; /* by bool tls */

struct lost {
    atomic_uint count;
    bool all;
    struct patterns *names[SCHEMES]; /* by bool tls */
};

/* ---- writing */

static int by_text(const void *x, const void *y)
{
    const struct str *a = x, *b = y;
    return str_cmp(*a, *b);
}

static unsigned put_lines(const struct binding *b, struct str *lines, struct arena *a)
{
    unsigned n = 0;
    for (int tls = 0; tls < SCHEMES; tls++)
        for (unsigned i = 0; binding_has_scheme(b, tls) && i < b->hosts.n; i++)
            lines[n++] =
                arena_printf(a, "%.*s %.*s\n", STR_ARG(schemes[tls]), STR_ARG(b->hosts.at[i]));
    return n;
}

struct str lost_text(const struct bindings *b, struct arena *a)
{
    size_t all = 0, n = 0, bytes = 0;
    for (unsigned i = 0; i < bindings_count(b); i++)
        all += SCHEMES * bindings_at(b, i)->hosts.n;
    struct str *lines = arena_get(a, (all + 1) * sizeof *lines);
    for (unsigned i = 0; i < bindings_count(b); i++)
        n += put_lines(bindings_at(b, i), lines + n, a);
    if (n > 1)
        qsort(lines, n, sizeof(*lines), by_text);
    for (size_t i = 0; i < n; i++)
        bytes += lines[i].n;
    char *out = arena_get(a, bytes + 1);
    bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && str_eq(lines[i], lines[i - 1]))
            continue;
        memcpy(out + bytes, lines[i].p, lines[i].n);
        bytes += lines[i].n;
    }
    return (struct str){out, bytes};
}

/* ---- reading */

static bool read_line(struct lost *l, struct str line)
{
    ptrdiff_t blank = str_chr(line, ' ');
    if (line.n == 0)
        return true; /* two texts were put together */
    if (blank < 0)
        return false;
    struct str scheme = str_head(line, (size_t)blank), host = str_skip(line, (size_t)blank + 1);
    bool tls = str_eq(scheme, schemes[true]), wild = str_starts(host, STR("*."));
    if ((!tls && !str_eq(scheme, schemes[false])) || !binding_host_is_normal(host))
        return false;
    patterns_add(l->names[tls], wild ? str_skip(host, 2) : host, wild, 0);
    return true;
}

struct lost *lost_read(struct str text)
{
    struct str line;
    if (text.n == 0)
        return NULL;
    struct lost *l = mem_new(sizeof *l);
    atomic_init(&l->count, 1);
    for (int tls = 0; tls < SCHEMES; tls++)
        l->names[tls] = patterns_new();
    if (text.p[text.n - 1] == '\n')
        text.n--;
    else
        l->all = true; /* cut off */
    while (!l->all && str_next(&text, '\n', &line))
        l->all = !read_line(l, line);
    return l;
}

static struct lost *mutable(const struct lost *l)
{
    return (struct lost *)(uintptr_t)l; /* only the count changes */
}

struct lost *lost_ref(const struct lost *l)
{
    unsigned before = atomic_fetch_add_explicit(&mutable(l)->count, 1, memory_order_relaxed);
    assert(before > 0);
    return mutable(l);
}

void lost_unref(const struct lost *l)
{
    if (!l)
        return;
    struct lost *mine = mutable(l);
    unsigned before = atomic_fetch_sub_explicit(&mine->count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    for (int tls = 0; tls < SCHEMES; tls++)
        patterns_free(mine->names[tls]);
    mem_free(mine);
}

bool lost_binds(const struct lost *l, struct str name, bool tls)
{
    return l && (l->all || patterns_first(l->names[tls], name) != PATTERNS_NONE);
}
