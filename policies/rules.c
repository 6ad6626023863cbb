/* rules.c — an ordered list of rules.  Targets are read once, when a rule comes in; edits and
 * policies copy what was read.  Everything of a list lies in its own arena, so that it can outlive
 * the request it came with. */
#include "policies/rules.h"

#include <stdatomic.h>
#include <stdlib.h>

struct list {
    struct rules rules; /* first: what is handed out */
    atomic_uint references;
    struct rule *own;
    unsigned room;
    struct arena arena;
};

static struct list *list_of(const struct rules *r)
{
    return (struct list *)(void *)r;
}

struct rules *rules_new(void)
{
    struct list *l = mem_new(sizeof *l);
    atomic_init(&l->references, 1);
    arena_init(&l->arena, NULL, 0);
    return &l->rules;
}

const struct rules *rules_ref(const struct rules *r)
{
    atomic_fetch_add_explicit(&list_of(r)->references, 1, memory_order_relaxed);
    return r;
}

void rules_unref(const struct rules *r)
{
    if (!r)
        return;
    struct list *l = list_of(r);
    if (atomic_fetch_sub_explicit(&l->references, 1, memory_order_acq_rel) != 1)
        return;
    arena_done(&l->arena);
    mem_free(l->own);
    mem_free(l);
}

static void append(struct list *l, struct rule rule)
{
    if (l->rules.n == l->room) {
        l->room = l->room ? l->room * 2 : 8;
        l->own = mem_renew(l->own, l->room * sizeof *l->own);
        l->rules.at = l->own;
    }
    l->own[l->rules.n++] = rule;
}

enum target_fault rules_add(struct rules *r, bool allow, struct str target)
{
    struct rule rule = {.allow = allow};
    enum target_fault fault = target_parse(target, &list_of(r)->arena, &rule.target);
    if (fault == TARGET_OK)
        append(list_of(r), rule);
    return fault;
}

void rules_copy(struct rules *r, const struct rule *rule)
{
    struct list *l = list_of(r);
    append(l, (struct rule){target_copy(&rule->target, &l->arena), rule->allow});
}

/* ---- comparing */

static int compare(const struct rule *a, const struct rule *b)
{
    int order = str_cmp(a->target.key, b->target.key);
    return order ? order : (int)a->allow - (int)b->allow;
}

static int compare_places(const void *a, const void *b)
{
    return compare(*(const struct rule *const *)a, *(const struct rule *const *)b);
}

/* The rules in order of their keys, each once; the caller frees the list. */
static const struct rule **sorted(const struct rules *r, unsigned *ret_n)
{
    unsigned count = r ? r->n : 0, n = 0;
    const struct rule **list = mem_new((count + 1) * sizeof(const struct rule *));
    for (unsigned i = 0; i < count; i++)
        list[i] = &r->at[i];
    qsort(list, count, sizeof *list, compare_places);
    for (unsigned i = 0; i < count; i++)
        if (n == 0 || compare(list[n - 1], list[i]) != 0)
            list[n++] = list[i];
    *ret_n = n;
    return list;
}

bool rules_same(const struct rules *a, const struct rules *b)
{
    unsigned na, nb;
    const struct rule **list_a = sorted(a, &na), **list_b = sorted(b, &nb);
    bool same = na == nb;
    for (unsigned i = 0; i < na && same; i++)
        same = compare(list_a[i], list_b[i]) == 0;
    mem_free(list_a);
    mem_free(list_b);
    return same;
}

/* ---- warnings */

enum { NAMED = 5, SHOWN_BYTES = 100 };

/* The target as written, cut between characters. */
static struct str shown(struct str text, struct arena *a)
{
    size_t n = SHOWN_BYTES;
    if (text.n <= n)
        return text;
    while (n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    return arena_cat(a, str_head(text, n), STR("..."));
}

static bool is_inert(const struct target *t)
{
    return t->kind == TARGET_NAME && t->inert;
}

static bool is_address(const struct target *t)
{
    return t->kind != TARGET_NAME;
}

/* Appends "HEAD: x, y and 3 more" for the rules that fit. */
static struct str describe(const struct rules *r, bool (*fits)(const struct target *),
                           const char *head, struct str text, struct arena *a)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->n; i++) {
        const struct target *t = &r->at[i].target;
        if (!fits(t) || n++ >= NAMED)
            continue;
        if (n == 1)
            text = arena_printf(a, "%.*s%s%s: ", STR_ARG(text), text.n ? "; " : "", head);
        else
            text = arena_cat(a, text, STR(", "));
        text = arena_cat(a, text, shown(t->text, a));
    }
    return n > NAMED ? arena_printf(a, "%.*s and %u more", STR_ARG(text), n - NAMED) : text;
}

struct str rules_warnings(const struct rules *r, bool addresses_enforced, struct arena *a)
{
    struct str text = STR("");
    text = describe(r, target_is_broad, "wildcards over a whole public suffix", text, a);
    text = describe(r, is_inert, "targets that can never match", text, a);
    if (!addresses_enforced)
        text = describe(r, is_address, "address rules, not enforced in this mode", text, a);
    return text;
}
