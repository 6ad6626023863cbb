/* domains.c — names in policies.  Rules are put into A-labels once, when they are read; a query is
 * only lowered.  The index has one entry per name, which knows the first rule for the name itself
 * and the first one for all names below it: a look-up asks for the name and for each of its parents
 * and takes the lowest place, since list order decides and not the length of a match. */
#include "policies/domains.h"

#include <assert.h>
#include <idn2.h>
#include <libpsl.h>

#include "base/ip.h"
#include "base/map.h"

enum {
    UNICODE_BYTES_MAX = 2048, /* far more than any name, so that a long text costs nothing */
    QUERY_BYTES_MAX = 1024    /* the longest name with all its bytes escaped */
};

static bool is_ascii(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] > 127)
            return false;
    return true;
}

static struct str lower_without_dot(struct str s, char *out)
{
    for (size_t i = 0; i < s.n; i++)
        out[i] = ascii_lower(s.p[i]);
    return (struct str){out, s.n - (s.n > 0 && s.p[s.n - 1] == '.')};
}

/* By libidn2; with `std3` letters, digits and hyphens only. */
static bool to_alabels(struct str text, bool std3, struct arena *a, struct str *ret)
{
    int flags = IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL | (std3 ? IDN2_USE_STD3_ASCII_RULES : 0);
    uint8_t source[UNICODE_BYTES_MAX + 1], *result;
    if (text.n > UNICODE_BYTES_MAX)
        return false;
    memcpy(source, text.p, text.n);
    source[text.n] = 0;
    if (idn2_lookup_u8(source, &result, flags) != IDN2_OK)
        return false;
    struct str s = str_of((char *)result);
    *ret = lower_without_dot(s, arena_get(a, s.n + 1));
    idn2_free(result);
    return true;
}

bool name_canonical(struct str text, struct arena *a, struct str *ret)
{
    if (str_chr(text, '\0') >= 0)
        return false;
    if (!is_ascii(text))
        return to_alabels(text, false, a, ret);
    *ret = lower_without_dot(text, arena_get(a, text.n + 1));
    return true;
}

static bool label_can_match(struct str label)
{
    if (label.n == 0 || label.n > LABEL_BYTES_MAX)
        return false;
    for (size_t i = 0; i < label.n; i++)
        if (label.p[i] <= ' ' || label.p[i] > '~' || memchr("*/:@\\", label.p[i], 5))
            return false;
    return true;
}

bool name_can_match(struct str canonical)
{
    struct ip ip;
    struct str label;
    if (canonical.n == 0 || canonical.n > NAME_BYTES_MAX || ip_parse(canonical, &ip))
        return false;
    while (str_next(&canonical, '.', &label))
        if (!label_can_match(label))
            return false;
    return true;
}

bool name_is_public_suffix(struct str canonical)
{
    const psl_ctx_t *list = psl_builtin();
    char name[NAME_BYTES_MAX + 1];
    if (canonical.n == 0 || canonical.n > NAME_BYTES_MAX)
        return false;
    if (!list) /* built without one: single labels are all that is known */
        return str_chr(canonical, '.') < 0;
    memcpy(name, canonical.p, canonical.n);
    name[canonical.n] = 0;
    return psl_is_public_suffix2(list, name, PSL_TYPE_ICANN);
}

/* ---- the stricter form */

static bool is_host_label(struct str label)
{
    if (label.n == 0 || label.n > LABEL_BYTES_MAX)
        return false;
    if (label.p[0] == '-' || label.p[label.n - 1] == '-')
        return false;
    for (size_t i = 0; i < label.n; i++)
        if (!(label.p[i] >= 'a' && label.p[i] <= 'z') &&
            !(label.p[i] >= '0' && label.p[i] <= '9') && label.p[i] != '-')
            return false;
    return true;
}

static bool is_host(struct str name, size_t max_bytes)
{
    struct ip ip;
    struct str label;
    unsigned labels = 0;
    if (name.n > max_bytes || ip_parse(name, &ip))
        return false;
    for (; str_next(&name, '.', &label); labels++)
        if (!is_host_label(label))
            return false;
    return labels >= 2;
}

static bool has_alabel(struct str name)
{
    struct str label;
    while (str_next(&name, '.', &label))
        if (str_istarts(label, STR("xn--")))
            return true;
    return false;
}

bool host_pattern(struct str text, struct arena *a, struct str *ret)
{
    struct str name, written = str_trim(text);
    bool below = str_starts(written, STR("*."));
    if (below)
        written = str_skip(written, 2);
    if (!name_canonical(written, a, &name))
        return false;
    if (!is_host(name, below ? NAME_BYTES_MAX - 2 : NAME_BYTES_MAX))
        return false;
    /* an A-label that stands for nothing is none */
    if ((has_alabel(name) || !is_ascii(written)) && !to_alabels(written, true, a, &name))
        return false;
    *ret = below ? arena_cat(a, STR("*."), name) : name;
    return true;
}

/* ---- many patterns */

struct entry {
    struct str name;
    int itself, below; /* lowest places, or PATTERNS_NONE */
};

struct patterns {
    struct map *entries;
    struct arena arena;
    unsigned deepest; /* most labels of a name with patterns below it */
};

struct patterns *patterns_new(void)
{
    struct patterns *n = mem_new(sizeof *n);
    n->entries = map_new();
    arena_init(&n->arena, NULL, 0);
    return n;
}

void patterns_free(struct patterns *n)
{
    if (!n)
        return;
    map_free(n->entries);
    arena_done(&n->arena);
    mem_free(n);
}

static unsigned count_labels(struct str name)
{
    unsigned n = 1;
    for (size_t i = 0; i < name.n; i++)
        n += name.p[i] == '.';
    return n;
}

static void lower_place(int *place, int candidate)
{
    if (candidate != PATTERNS_NONE && (*place == PATTERNS_NONE || candidate < *place))
        *place = candidate;
}

void patterns_add(struct patterns *n, struct str canonical, bool below, int place)
{
    struct entry *e = map_get(n->entries, canonical);
    assert(place >= 0);
    if (!e) {
        e = arena_get(&n->arena, sizeof *e);
        *e = (struct entry){arena_str(&n->arena, canonical), PATTERNS_NONE, PATTERNS_NONE};
        map_put(n->entries, e->name, e);
    }
    lower_place(below ? &e->below : &e->itself, place);
    if (below && count_labels(canonical) > n->deepest)
        n->deepest = count_labels(canonical);
}

int patterns_first(const struct patterns *n, struct str name)
{
    char lowered[QUERY_BYTES_MAX];
    if (name.n == 0 || name.n > QUERY_BYTES_MAX)
        return PATTERNS_NONE;
    name = lower_without_dot(name, lowered);
    const struct entry *e = map_get(n->entries, name);
    int place = e ? e->itself : PATTERNS_NONE;
    unsigned labels = 0;
    for (size_t at = name.n; at > 0 && labels < n->deepest; at--) {
        if (name.p[at - 1] != '.')
            continue;
        labels++;
        e = map_get(n->entries, str_skip(name, at));
        if (e)
            lower_place(&place, e->below);
    }
    return place;
}
