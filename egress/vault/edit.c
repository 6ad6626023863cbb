/* edit.c — the lists of a write, applied to what is there (contract egress-vault 5.1, 5.2).  A name
 * may stand in one list only: what a write that says two things about it means would depend on an
 * order that its writer does not see. */
#include <stdlib.h>

#include "egress/vault/vault_impl.h"

void edit_begin(struct edit *e, const char *kind, int64_t revision, struct arena *a)
{
    *e = (struct edit){.kind = kind, .revision = revision, .a = a, .now = map_new()};
}

void edit_done(struct edit *e)
{
    map_free(e->now);
    e->now = NULL;
}

static void put(struct edit *e, struct entry entry)
{
    struct entry *copy = arena_get(e->a, sizeof *copy);
    *copy = entry;
    map_put(e->now, copy->name, copy);
}

void edit_keep(struct edit *e, const struct entry *kept)
{
    put(e, *kept);
}

static bool fail(struct edit *e, const char *before, struct str name, const char *after)
{
    e->fault = arena_printf(e->a, "%s%s%.*s%s", before, e->kind,
                            STR_ARG(arena_cat(e->a, STR(" "), binding_quoted(name, e->a))), after);
    return false;
}

static bool fail_with(struct edit *e, struct str text)
{
    e->fault = arena_str(e->a, text);
    return false;
}

static void write_item(struct edit *e, const struct item *i)
{
    put(e, (struct entry){i->name, e->revision, i->value, i->binding});
}

bool edit_create(struct edit *e, const struct items *items)
{
    for (unsigned i = 0; i < items->n; i++) {
        const struct item *item = &items->at[i];
        if (item->fault.n)
            return fail_with(e, item->fault);
        if (map_get(e->now, item->name)) {
            e->fault = arena_printf(e->a, "duplicate %s name %.*s", e->kind,
                                    STR_ARG(binding_quoted(item->name, e->a)));
            return false;
        }
        write_item(e, item);
    }
    return true;
}

/* ---- patches */

/* Is it the first time that the name stands anywhere? */
static bool mention(struct edit *e, struct map *mentioned, const struct item *item)
{
    if (map_get(mentioned, item->name))
        return fail(e, "", item->name, " mentioned by multiple operations");
    map_put(mentioned, item->name, (void *)(uintptr_t)item);
    return true;
}

static bool remove_all(struct edit *e, const struct items *items, struct map *mentioned)
{
    for (unsigned i = 0; i < items->n; i++) {
        const struct item *item = &items->at[i];
        if (item->name.n == 0)
            return fail_with(e, arena_printf(e->a, "%s delete name cannot be blank", e->kind));
        if (!mention(e, mentioned, item))
            return false;
        if (!map_del(e->now, item->name))
            return fail(e, "", item->name, " does not exist");
    }
    return true;
}

static bool replace_all(struct edit *e, const struct items *items, struct map *mentioned)
{
    for (unsigned i = 0; i < items->n; i++) {
        const struct item *item = &items->at[i];
        if (item->fault.n)
            return fail_with(e, item->fault);
        if (!mention(e, mentioned, item))
            return false;
        if (!map_get(e->now, item->name))
            return fail(e, "", item->name, " does not exist");
        write_item(e, item);
    }
    return true;
}

static bool add_all(struct edit *e, const struct items *items, struct map *mentioned)
{
    for (unsigned i = 0; i < items->n; i++) {
        const struct item *item = &items->at[i], *other = map_get(mentioned, item->name);
        if (item->fault.n)
            return fail_with(e, item->fault);
        if (other && other >= items->at && other < item)
            return fail_with(e, arena_printf(e->a, "duplicate %s add name %.*s", e->kind,
                                             STR_ARG(binding_quoted(item->name, e->a))));
        if (!mention(e, mentioned, item))
            return false;
        if (map_get(e->now, item->name))
            return fail(e, "", item->name, " already exists");
        write_item(e, item);
    }
    return true;
}

bool edit_apply_ops(struct edit *e, const struct ops *ops)
{
    struct map *mentioned = map_new();
    bool good = remove_all(e, &ops->remove, mentioned) &&
                replace_all(e, &ops->replace, mentioned) && add_all(e, &ops->add, mentioned);
    map_free(mentioned);
    return good;
}

static int by_name(const void *x, const void *y)
{
    struct entry *const *a = x, *const *b = y;
    return str_cmp((*a)->name, (*b)->name);
}

struct entry **edit_sorted(const struct edit *e, unsigned *ret_n)
{
    struct entry **all = arena_get(e->a, (map_size(e->now) + 1) * sizeof *all), *one;
    unsigned n = 0;
    for (size_t at = 0; (one = map_next(e->now, &at));)
        all[n++] = one;
    if (n > 1)
        qsort(all, n, sizeof(*all), by_name);
    *ret_n = n;
    return all;
}
