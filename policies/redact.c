/* redact.c — the strings of contract 14.1 of all credentials in two matchers: one for field values,
 * one for bodies, where short strings would mask half of the text.  What one exchange adds lies
 * over those of its vault, which are not built again. */
#include "policies/redact.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/text.h"
#include "policies/marks.h"
#include "policies/spell.h"

/* At most, of one credential: as it is, trimmed, spelled, rendered twice, decoded, its password. */
enum { STRINGS_MAX = 2 + SPELLINGS + 2 + 2 };

static const char mark[] = "[REDACTED]";
enum { MARK_BYTES = sizeof mark - 1 };

struct redaction {
    atomic_uint count;
    struct redaction *base;
    struct matcher *fields, *body; /* our own; body may be fields */
};

/* ---- what is searched */

struct list {
    struct str *at;
    unsigned n;
    struct arena *a; /* wiped */
};

static void add(struct list *l, struct str s)
{
    if (s.n)
        l->at[l->n++] = s;
}

static void add_spellings(struct list *l, struct str value)
{
    for (enum spelling how = 0; how < SPELLINGS; how++) {
        char *out = arena_get(l->a, value.n * SPELL_GROWS);
        add(l, (struct str){out, spell(how, value, out)});
    }
}

/* Tokens are often written without their padding. */
static struct str padded(struct arena *a, struct str token)
{
    static const char padding[] = "==";
    size_t over = token.n % 4;
    if (over < 2)
        return token;
    return arena_cat(a, token, (struct str){padding, 4 - over});
}

static void add_basic_text(struct list *l, struct str value)
{
    uint8_t *text = arena_get(l->a, value.n + 4);
    struct str s = {(const char *)text, 0};
    if (!text_base64(padded(l->a, value), text, &s.n))
        return;
    ptrdiff_t colon = str_chr(s, ':');
    if (colon < 0 || str_chr(s, '\n') >= 0 || !text_utf8(s))
        return;
    add(l, s);
    add(l, str_skip(s, (size_t)colon + 1));
}

static void add_use(struct list *l, const struct redact_use *use)
{
    struct str value = use->value, trimmed = str_trim(value);
    if (value.n == 0)
        return;
    add(l, value);
    add(l, trimmed); /* what a field makes of it (RFC 9110 section 5.5) */
    add_spellings(l, value);
    if (use->bearer)
        add(l, arena_cat(l->a, STR("Bearer "), value));
    if (use->basic) {
        add(l, arena_cat(l->a, STR("Basic "), value));
        add_basic_text(l, trimmed);
    }
}

/* Only those that are long enough; in place. */
static unsigned keep_long(struct str *at, unsigned n, size_t least)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n; i++)
        if (at[i].n >= least)
            at[kept++] = at[i];
    return kept;
}

/* All of the strings are searched in fields, the first n of them in bodies too.  A matcher is
 * shared where both have the same. */
static struct redaction *make(struct redaction *base, struct str *at, unsigned n, unsigned all,
                              size_t body_min)
{
    struct matcher *fields = matcher_over(base ? base->fields : NULL, at, all);
    if (!fields)
        return base ? redaction_ref(base) : NULL;
    struct redaction *r = mem_new(sizeof *r);
    atomic_init(&r->count, 1);
    r->base = base ? redaction_ref(base) : NULL;
    r->fields = fields;
    unsigned body = keep_long(at, n, body_min);
    bool same = body == all && (!base || base->body == base->fields);
    r->body = same ? fields : matcher_over(redaction_body(base), at, body);
    return r;
}

struct redaction *redaction_new(const struct redact_list *list)
{
    struct arena a;
    arena_init_private(&a, NULL, 0);
    size_t room = (size_t)list->nuses * STRINGS_MAX + list->nplaceholders;
    struct list l = {.at = arena_get(&a, room * sizeof *l.at), .a = &a};
    for (unsigned i = 0; i < list->nuses; i++)
        add_use(&l, &list->uses[i]);
    unsigned secrets = l.n;
    for (unsigned i = 0; i < list->nplaceholders; i++)
        add(&l, list->placeholders[i]);
    struct redaction *r = make(NULL, l.at, secrets, l.n, list->body_min);
    arena_done(&a);
    return r;
}

struct redaction *redaction_with(struct redaction *base, const struct str *more, unsigned n,
                                 size_t body_min)
{
    struct arena a;
    arena_init_private(&a, NULL, 0);
    struct list l = {.at = arena_get(&a, n * sizeof *l.at), .a = &a};
    for (unsigned i = 0; i < n; i++)
        add(&l, more[i]);
    struct redaction *r = make(base, l.at, l.n, l.n, body_min);
    arena_done(&a);
    return r;
}

struct redaction *redaction_ref(struct redaction *r)
{
    unsigned before = atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
    assert(before > 0);
    return r;
}

/* The last of one that lies over another lets go of that. */
void redaction_unref(struct redaction *r)
{
    while (r && atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel) == 1) {
        struct redaction *base = r->base;
        if (r->body != r->fields)
            matcher_free(r->body);
        matcher_free(r->fields);
        mem_free(r);
        r = base;
    }
}

const struct matcher *redaction_body(const struct redaction *r)
{
    while (r && !r->body)
        r = r->base;
    return r ? r->body : NULL;
}

/* ---- field values */

struct finding {
    struct arena *a;
    size_t n;
    uint64_t *covered; /* NULL: nothing was found yet */
    uint64_t *joined;  /* with the byte before it, by one and the same mark */
};

static void on_hit(void *user, size_t at, size_t len)
{
    struct finding *f = user;
    size_t bytes = marks_words(f->n) * sizeof *f->covered;
    if (!f->covered) {
        f->covered = arena_zero(f->a, bytes);
        f->joined = arena_zero(f->a, bytes);
    }
    marks_set(f->covered, at, at + len);
    marks_set(f->joined, at + 1, at + len);
}

/* Marks that overlap are one, those that only touch are not. */
static size_t mark_end(const struct finding *f, size_t from)
{
    return marks_next(f->joined, f->n, from + 1, false);
}

static struct str put_marks(const struct finding *f, struct str value)
{
    unsigned n = 0;
    size_t from = marks_next(f->covered, f->n, 0, true), at = 0;
    for (size_t i = from; i < f->n; i = marks_next(f->covered, f->n, mark_end(f, i), true))
        n++;
    char *text = arena_get(f->a, value.n + (size_t)n * MARK_BYTES), *to = text;
    for (; from < f->n; from = marks_next(f->covered, f->n, at, true)) {
        memcpy(to, value.p + at, from - at);
        memcpy(to + (from - at), mark, MARK_BYTES);
        to += from - at + MARK_BYTES;
        at = mark_end(f, from);
    }
    memcpy(to, value.p + at, value.n - at);
    return (struct str){text, (size_t)(to - text) + value.n - at};
}

struct str redact_value(const struct redaction *r, struct str value, struct arena *a)
{
    struct finding f = {.a = a, .n = value.n};
    if (!r || value.n == 0)
        return value;
    matcher_find(r->fields, value.p, value.n, on_hit, &f);
    return f.covered ? put_marks(&f, value) : value;
}

/* Framing hangs on these, and none of them is an echo. */
static bool is_kept(struct str name)
{
    static const struct str kept[] = {
        {"content-length", 14}, {"content-encoding", 16}, {"transfer-encoding", 17},
        {"connection", 10},     {"upgrade", 7},           {"te", 2},
        {"trailer", 7},
    };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (str_ieq(name, kept[i]))
            return true;
    return false;
}

unsigned redact_fields(const struct redaction *r, struct field *fields, unsigned n, struct arena *a)
{
    unsigned changed = 0;
    for (unsigned i = 0; r && i < n; i++) {
        if (is_kept(fields[i].name))
            continue;
        struct str value = redact_value(r, fields[i].value, a);
        changed += value.p != fields[i].value.p;
        fields[i].value = value;
    }
    return changed;
}
