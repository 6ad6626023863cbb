/* target.c — reads one target.  Whatever is no address and no range is a name, also what looks like
 * an address to other readers (0x7f.1, 010.0.0.1): a target must not mean more than it says.  Names
 * that can never match are kept as they are, so that a policy can be shown as it was written. */
#include "policies/target.h"

#include "policies/domains.h"

/* What White_Space of Unicode has beyond ASCII, in UTF-8. */
static const struct str blanks[] = {
    {"\xc2\x85", 2},     {"\xc2\xa0", 2},     {"\xe1\x9a\x80", 3}, {"\xe2\x80\x80", 3},
    {"\xe2\x80\x81", 3}, {"\xe2\x80\x82", 3}, {"\xe2\x80\x83", 3}, {"\xe2\x80\x84", 3},
    {"\xe2\x80\x85", 3}, {"\xe2\x80\x86", 3}, {"\xe2\x80\x87", 3}, {"\xe2\x80\x88", 3},
    {"\xe2\x80\x89", 3}, {"\xe2\x80\x8a", 3}, {"\xe2\x80\xa8", 3}, {"\xe2\x80\xa9", 3},
    {"\xe2\x80\xaf", 3}, {"\xe2\x81\x9f", 3}, {"\xe3\x80\x80", 3},
};

static bool is_ascii_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Length of the blank at the beginning or at the end of s, or 0. */
static size_t blank_at(struct str s, bool end)
{
    if (s.n == 0)
        return 0;
    unsigned char c = (unsigned char)s.p[end ? s.n - 1 : 0];
    if (c < 128)
        return is_ascii_blank((char)c);
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++) {
        struct str b = blanks[i];
        if (s.n >= b.n && memcmp(end ? s.p + s.n - b.n : s.p, b.p, b.n) == 0)
            return b.n;
    }
    return 0;
}

struct str target_trim(struct str s)
{
    for (size_t n; (n = blank_at(s, false)) > 0;)
        s = str_skip(s, n);
    for (size_t n; (n = blank_at(s, true)) > 0;)
        s = str_head(s, s.n - n);
    return s;
}

static bool has_control(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            return true;
    return false;
}

/* A first letter keeps keys of addresses and keys of names apart. */
static struct str address_key(struct str text, struct arena *a)
{
    char *p = arena_get(a, text.n + 1);
    p[0] = 'a';
    for (size_t i = 0; i < text.n; i++)
        p[i + 1] = ascii_lower(text.p[i]);
    return (struct str){p, text.n + 1};
}

static enum target_fault read_name(struct arena *a, struct target *t)
{
    if (!name_canonical(t->text, a, &t->name))
        return TARGET_NO_ALABEL;
    t->kind = TARGET_NAME;
    t->key = arena_cat(a, STR("n"), t->name);
    t->below = str_starts(t->name, STR("*."));
    t->name = str_skip(t->key, t->below ? 3 : 1);
    t->inert = !name_can_match(t->name);
    return TARGET_OK;
}

enum target_fault target_parse(struct str text, struct arena *a, struct target *ret)
{
    struct target t = {.text = target_trim(text), .name = STR("")};
    if (t.text.n == 0)
        return TARGET_EMPTY;
    if (has_control(t.text))
        return TARGET_CONTROL;
    t.text = arena_str(a, t.text);
    if (cidr_parse(t.text, &t.net)) {
        t.kind = str_chr(t.text, '/') < 0 ? TARGET_ADDRESS : TARGET_RANGE;
        t.key = address_key(t.text, a);
    } else {
        enum target_fault fault = read_name(a, &t);
        if (fault != TARGET_OK)
            return fault;
    }
    *ret = t;
    return TARGET_OK;
}

struct target target_copy(const struct target *t, struct arena *a)
{
    struct target copy = *t;
    copy.text = arena_str(a, t->text);
    copy.key = arena_str(a, t->key);
    copy.name = t->kind == TARGET_NAME ? str_skip(copy.key, t->below ? 3 : 1) : STR("");
    return copy;
}

struct str target_fault_text(enum target_fault fault)
{
    static const struct str texts[] = {
        [TARGET_OK] = {"", 0},
        [TARGET_EMPTY] = {"egress target cannot be empty", 29},
        [TARGET_CONTROL] = {"egress target holds a control character", 39},
        [TARGET_NO_ALABEL] = {"egress target has no form in A-labels", 37},
    };
    return texts[fault];
}

bool target_is_broad(const struct target *t)
{
    return t->kind == TARGET_NAME && t->below && !t->inert && name_is_public_suffix(t->name);
}
