/* substitute.c — placeholders in texts.  Each placeholder knows where it stands next; the first of
 * these places, and there the longest, is the next one to be filled in.  So a text without any is
 * searched once for each and nothing is allocated, and no text makes the search slow. */
#include "policies/substitute.h"

#include <stdint.h>

#include "base/text.h"
#include "policies/spell.h"

/* ---- values ---- */

/* The longest that it could become lies in the memory of secrets, too, and only for a moment. */
struct str encode_value(enum encoding e, struct str value, struct secret_bag *bag)
{
    static const enum spelling spellings[ENCODINGS] = {[ENCODE_PERCENT] = SPELL_PERCENT,
                                                       [ENCODE_FORM] = SPELL_FORM,
                                                       [ENCODE_JSON] = SPELL_JSON_ASCII};
    char *room;
    if (e == ENCODE_RAW)
        return secret_bag_str(bag, value);
    struct secret *longest = secret_make(value.n * SPELL_GROWS, &room);
    struct str s = secret_bag_str(bag, (struct str){room, spell(spellings[e], value, room)});
    secret_unref(longest);
    return s;
}

/* ---- the search ---- */

enum { FEW = 16 };
#define NOWHERE SIZE_MAX

struct search {
    const struct replacements *p;
    struct str text;
    size_t few[FEW], *next; /* of each: where it stands at or behind the last place, or NOWHERE */
};

static void look(struct search *s, unsigned i, size_t from)
{
    struct str rest = str_skip(s->text, from), what = s->p->at[i].placeholder;
    const char *at = rest.n ? memmem(rest.p, rest.n, what.p, what.n) : NULL;
    s->next[i] = at ? (size_t)(at - s->text.p) : NOWHERE;
}

static void search_start(struct search *s, const struct replacements *p, struct str text)
{
    s->p = p;
    s->text = text;
    s->next = p->n > FEW ? mem_new(p->n * sizeof *s->next) : s->few;
    for (unsigned i = 0; i < p->n; i++)
        look(s, i, 0);
}

static void search_done(struct search *s)
{
    if (s->next != s->few)
        mem_free(s->next);
}

/* The first one at or behind `from`; NULL: none.  Calls must go from left to right. */
static const struct replacement *search_next(struct search *s, size_t from, size_t *ret_at)
{
    const struct replacement *best = NULL;
    *ret_at = NOWHERE;
    for (unsigned i = 0; i < s->p->n; i++) {
        const struct replacement *one = &s->p->at[i];
        if (s->next[i] < from)
            look(s, i, from);
        size_t at = s->next[i];
        if (at == NOWHERE || at > *ret_at)
            continue;
        if (at < *ret_at || one->placeholder.n > best->placeholder.n)
            best = one;
        *ret_at = at;
    }
    return best;
}

/* out NULL: counts only, and stops when it is over `most`; *ret_hits: how often. */
static size_t fill(const struct replacements *p, struct str text, size_t most, char *out,
                   size_t *ret_hits)
{
    struct search s;
    size_t n = 0, from = 0, at;
    *ret_hits = 0;
    search_start(&s, p, text);
    for (const struct replacement *x; n <= most && (x = search_next(&s, from, &at)); ++*ret_hits) {
        if (out) {
            memcpy(out + n, text.p + from, at - from);
            memcpy(out + n + (at - from), x->value.p, x->value.n);
        }
        n += at - from + x->value.n;
        from = at + x->placeholder.n;
    }
    search_done(&s);
    if (out && from < text.n)
        memcpy(out + n, text.p + from, text.n - from);
    return n + (text.n - from);
}

enum substituted substitute(const struct replacements *p, struct str text, size_t most,
                            struct secret_bag *bag, struct str *ret)
{
    size_t hits;
    if (p->n == 0 || text.n == 0)
        return SUBSTITUTE_NOTHING;
    size_t n = fill(p, text, most, NULL, &hits);
    if (hits == 0)
        return SUBSTITUTE_NOTHING;
    if (n > most)
        return SUBSTITUTE_LONG;
    char *out = secret_bag_get(bag, n);
    fill(p, text, most, out, &hits);
    *ret = (struct str){out, n};
    return SUBSTITUTE_DONE;
}

/* ---- Basic ---- */

/* The token of `Basic token`, without its padding; empty: it is no such value. */
static struct str basic_token(struct str value)
{
    struct str scheme = STR("basic");
    if (!str_istarts(value, scheme) || value.n == scheme.n || value.p[scheme.n] != ' ')
        return STR("");
    struct str padded = str_trim(str_skip(value, scheme.n)), token = padded;
    ptrdiff_t padding = str_chr(padded, '=');
    if (padding >= 0)
        token = str_head(padded, (size_t)padding);
    bool whole = token.n == padded.n || padded.n % 4 == 0;
    for (size_t i = token.n; i < padded.n; i++)
        whole = whole && padded.p[i] == '=';
    return whole && padded.n - token.n <= 2 ? token : STR("");
}

/* text_base64() wants padding: whole groups are read as they stand, the last one is completed. */
static bool decode_token(struct str token, char *out, size_t *ret_n)
{
    size_t rest = token.n % 4, whole = token.n - rest, n = 0, last = 0;
    char group[4] = {'=', '=', '=', '='};
    if (memchr(token.p, '\n', token.n) || memchr(token.p, '\r', token.n))
        return false;
    if (whole && !text_base64(str_head(token, whole), (uint8_t *)out, &n))
        return false;
    memcpy(group, token.p + whole, rest);
    if (rest && !text_base64((struct str){group, 4}, (uint8_t *)out + n, &last))
        return false;
    *ret_n = n + last;
    return true;
}

/* Puts together what stands before the token, and the token of the text. */
static void encode_token(struct str before, struct str text, struct secret_bag *bag,
                         struct str *ret, struct str *ret_token)
{
    size_t n = 4 * ((text.n + 2) / 3);
    char *out = secret_bag_get(bag, before.n + n);
    memcpy(out, before.p, before.n);
    text_put_base64(out + before.n, text.p, text.n);
    *ret = (struct str){out, before.n + n};
    *ret_token = (struct str){out + before.n, n};
}

enum substituted substitute_basic(const struct replacements *p, struct str value, size_t most,
                                  struct secret_bag *bag, struct str *ret, struct str *ret_token,
                                  struct str *ret_text)
{
    char few[1024];
    struct str token = basic_token(value), text = {few, 0};
    if (p->n == 0 || token.n == 0)
        return SUBSTITUTE_NOTHING;
    char *room = token.n > sizeof few ? mem_new(token.n) : few;
    text.p = room;
    enum substituted done = SUBSTITUTE_NOTHING;
    if (decode_token(token, room, &text.n) && text_utf8(text))
        done = substitute(p, text, most / 2, bag, ret_text);
    if (room == few)
        mem_wipe(few, text.n);
    else
        mem_free_wiped(room);
    if (done == SUBSTITUTE_DONE)
        encode_token(str_head(value, (size_t)(token.p - value.p)), *ret_text, bag, ret, ret_token);
    return done;
}
