/* etag.c — If-Match and If-None-Match.  A list is judged whole before anything is compared, because
 * a condition that is not understood must not read as one that holds. */
#include "ingress/etag.h"

static bool is_tag_byte(char c)
{
    uint8_t b = (uint8_t)c;
    return b == 0x21 || (b >= 0x23 && b != 0x7f);
}

/* One tag off the front of *s, without W/; false: there is none. */
static bool take_tag(struct str *s, struct str *ret_tag, bool *ret_weak)
{
    size_t n = 1;
    *ret_weak = str_starts(*s, STR("W/"));
    struct str t = str_skip(*s, *ret_weak ? 2 : 0);
    if (t.n == 0 || t.p[0] != '"')
        return false;
    while (n < t.n && is_tag_byte(t.p[n]))
        n++;
    if (n == t.n || t.p[n] != '"')
        return false;
    *ret_tag = str_head(t, n + 1);
    *s = str_skip(t, n + 1);
    return true;
}

/* Blanks, and with them the commas of empty members (RFC 9110 section 5.6.1). */
static struct str skip_gap(struct str s, unsigned *ret_commas)
{
    *ret_commas = 0;
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t' || s.p[0] == ',')) {
        *ret_commas += s.p[0] == ',';
        s = str_skip(s, 1);
    }
    return s;
}

/* The next one of a list; false: its end, or *ret_bad. */
static bool next_tag(struct str *rest, bool first, struct str *ret_tag, bool *ret_weak,
                     bool *ret_bad)
{
    unsigned commas;
    *rest = skip_gap(*rest, &commas);
    *ret_bad = false;
    if (rest->n == 0)
        return false;
    *ret_bad = (!first && commas == 0) || !take_tag(rest, ret_tag, ret_weak);
    return !*ret_bad;
}

static bool is_list(struct str s)
{
    struct str tag;
    unsigned n = 0;
    bool weak, bad;
    while (next_tag(&s, n == 0, &tag, &weak, &bad))
        n++;
    return !bad && n > 0;
}

bool etag_read(const struct http_head *h, struct str name, struct arena *a, struct etag_list *ret)
{
    struct etag_list l = {.given = false};
    for (const struct field *f = NULL; (f = head_next(h, name, f)) != NULL;) {
        l.tags = l.given ? arena_cat(a, arena_cat(a, l.tags, STR(",")), f->value) : f->value;
        l.given = true;
    }
    l.any = l.given && str_eq(str_trim(l.tags), STR("*"));
    if (l.given && !l.any && !is_list(l.tags))
        return false;
    *ret = l;
    return true;
}

bool etag_listed(const struct etag_list *l, struct str tag, bool weak)
{
    struct str rest = l->tags, one;
    bool first = true, is_weak, bad;
    for (; next_tag(&rest, first, &one, &is_weak, &bad); first = false)
        if ((weak || !is_weak) && str_eq(one, tag))
            return true;
    return false;
}

bool etag_allows(const struct etag_list *match, const struct etag_list *none_match, struct str tag)
{
    bool there = tag.p != NULL;
    if (match->given && !(there && (match->any || etag_listed(match, tag, false))))
        return false;
    return !(none_match->given && there && (none_match->any || etag_listed(none_match, tag, true)));
}
