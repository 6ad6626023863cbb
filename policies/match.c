/* match.c — finds strings by their anchors: where the sieve stops, the few strings that have this
 * pair are laid over the text and compared as a whole. */
#include "policies/match.h"

#include "policies/match_impl.h"

size_t matcher_longest(const struct matcher *m)
{
    size_t longest = 0;
    for (; m; m = m->base)
        longest = m->longest > longest ? m->longest : longest;
    return longest;
}

void matcher_free(struct matcher *m)
{
    if (m)
        secret_unref(m->memory);
}

/* ---- whole strings */

/* Index of the first anchor of that pair. */
static unsigned anchors_from(const struct matcher *m, uint16_t pair)
{
    unsigned low = 0, high = m->nanchors;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (m->anchors[middle].pair < pair)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The place in the text that the sieve stopped at. */
struct stop {
    const char *p;
    size_t n, at;
    void (*hit)(void *user, size_t at, size_t len);
    void *user;
};

static void try_anchor(const struct matcher *m, const struct anchor *a, const struct stop *s)
{
    struct str string = m->strings[a->string];
    if (a->at > s->at || string.n > s->n - (s->at - a->at))
        return;
    size_t at = s->at - a->at;
    if (memcmp(s->p + at, string.p, string.n) == 0)
        s->hit(s->user, at, string.n);
}

static void find_singles(const struct matcher *m, const struct stop *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (m->singles[(uint8_t)s->p[i]])
            s->hit(s->user, i, 1);
}

static void find_own(const struct matcher *m, struct stop *s)
{
    if (m->singles)
        find_singles(m, s);
    for (size_t at = 0; (at = pairs_next(&m->middles, s->p, s->n, at)) < s->n; at++) {
        uint16_t pair = pair_at(s->p + at);
        s->at = at;
        for (unsigned i = anchors_from(m, pair); i < m->nanchors && m->anchors[i].pair == pair; i++)
            try_anchor(m, &m->anchors[i], s);
    }
}

void matcher_find(const struct matcher *m, const char *p, size_t n,
                  void (*hit)(void *user, size_t at, size_t len), void *user)
{
    struct stop s = {.p = p, .n = n, .hit = hit, .user = user};
    for (; m; m = m->base)
        find_own(m, &s);
}

/* ---- beginnings */

/* Does a string begin with text, and go on?  In the order of strings the first one that is greater
 * is the next to have it as its beginning. */
static bool goes_on(const struct matcher *m, struct str text)
{
    unsigned low = 0, high = m->nstrings;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (str_cmp(m->strings[middle], text) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->nstrings && str_starts(m->strings[low], text);
}

static size_t tail_own(const struct matcher *m, const char *p, size_t n)
{
    size_t at = n < m->longest ? 0 : n - (m->longest - 1);
    for (; (at = pairs_next(&m->heads, p, n, at)) < n; at++)
        if (goes_on(m, (struct str){p + at, n - at}))
            return n - at;
    return n > 0 && goes_on(m, (struct str){p + n - 1, 1}) ? 1 : 0;
}

size_t matcher_tail(const struct matcher *m, const char *p, size_t n)
{
    size_t tail = 0;
    for (; m; m = m->base) {
        size_t own = tail_own(m, p, n);
        tail = own > tail ? own : tail;
    }
    return tail;
}
