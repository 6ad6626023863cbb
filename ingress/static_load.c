/* static_load.c — a new list beside the old one.  It comes from the file, or is the old one with a
 * batch of changes in it, which is written to the file before anybody hears of it; a file that
 * somebody has changed by hand meanwhile is read first, so that nobody's work is lost.  Either way
 * a sandbox whose entry did not change is the old record, so that the difference falls out of one
 * walk over both. */
#include <stdlib.h>

#include "ingress/static_impl.h"

/* ---- the list ---- */

bool load_read(struct load *l)
{
    struct str text;
    if (!routes_disk_read(l->path, &text, &l->mark, &l->fault))
        return false;
    bool good = routes_parse(text, &l->fresh, &l->fault);
    mem_wipe((void *)(uintptr_t)text.p, text.n);
    mem_free((void *)(uintptr_t)text.p);
    l->ours = false;
    return good;
}

static void leave_out_expired(struct routes_list *list, int64_t now_s)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i]->until_unix_s > now_s)
            list->items[n++] = list->items[i];
        else
            sandbox_unref(list->items[i]);
    }
    list->n = n;
}

static void copy_old(struct load *l)
{
    l->fresh.items = mem_new(l->old.n * sizeof *l->fresh.items);
    l->fresh.n = l->old.n;
    for (size_t i = 0; i < l->old.n; i++) {
        l->fresh.items[i] = l->old.items[i];
        sandbox_ref(l->old.items[i]);
    }
}

/* ---- the difference ---- */

static void replace(struct sandbox **item, struct sandbox *by)
{
    sandbox_unref(*item);
    *item = by;
}

/* fresh[j], against old[i] of the same id or none: the old record stays if it says the same, and
 * what runs if only its end is another.  A file does not tell whether an entry was made anew. */
static void compare(struct load *l, struct sandbox *old, size_t j)
{
    struct sandbox **fresh = &l->fresh.items[j];
    bool lives = old && old->until_unix_s > l->old_expired_s;
    if (lives && *fresh != old && (*fresh)->instance == 0)
        (*fresh)->instance = old->instance;
    if (lives && sandbox_same(old, *fresh)) {
        sandbox_ref(old);
        replace(fresh, old);
        return;
    }
    if (lives && sandbox_prolonged(old, *fresh))
        replace(fresh, sandbox_renew(*fresh, old));
    l->put[l->nput++] = *fresh;
}

static void find_difference(struct load *l)
{
    const struct routes_list *old = &l->old, *fresh = &l->fresh;
    l->put = mem_new(fresh->n * sizeof *l->put);
    l->gone = mem_new(old->n * sizeof *l->gone);
    for (size_t i = 0, j = 0; i < old->n || j < fresh->n;) {
        int order = i == old->n     ? 1
                    : j == fresh->n ? -1
                                    : str_cmp(old->items[i]->id, fresh->items[j]->id);
        if (order < 0 && old->items[i]->until_unix_s > l->old_expired_s)
            l->gone[l->ngone++] = old->items[i]->id;
        if (order >= 0)
            compare(l, order == 0 ? old->items[i] : NULL, j);
        i += order <= 0;
        j += order >= 0;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct sandbox *const *x = a, *const *y = b;
    return ((*x)->until_unix_s > (*y)->until_unix_s) - ((*x)->until_unix_s < (*y)->until_unix_s);
}

static void find_expiring(struct load *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->fresh.n; i++)
        n += l->fresh.items[i]->until_unix_s != INT64_MAX;
    l->expiring = mem_new(n * sizeof *l->expiring);
    for (size_t i = 0; i < l->fresh.n; i++)
        if (l->fresh.items[i]->until_unix_s != INT64_MAX)
            l->expiring[l->nexpiring++] = l->fresh.items[i];
    qsort(l->expiring, n, sizeof *l->expiring, by_time);
}

/* ---- changes ---- */

static void take_out(struct routes_list *list, size_t at)
{
    sandbox_unref(list->items[at]);
    list->n--;
    memmove(&list->items[at], &list->items[at + 1], (list->n - at) * sizeof *list->items);
}

static void put_in(struct routes_list *list, size_t at, struct sandbox *s)
{
    memmove(&list->items[at + 1], &list->items[at], (list->n - at) * sizeof *list->items);
    list->n++;
    sandbox_ref(s);
    list->items[at] = s;
}

/* What comes after a removal is another sandbox, also in the same step. */
static void set_instance(struct sandbox *s, const struct sandbox *old)
{
    s->instance = old ? old->instance : s->generation;
}

/* Into a list with room for one more. */
static enum static_outcome apply(struct routes_list *list, const struct static_edit *e)
{
    bool there;
    size_t at = routes_list_find(list, e->id, &there);
    const struct sandbox *old = there ? list->items[at] : NULL;
    if (e->may && !e->may(e, old))
        return EDIT_REFUSED;
    if (!e->put && !there)
        return EDIT_MISSING;
    if (e->put)
        set_instance(e->put, old);
    if (e->put && there && sandbox_same(old, e->put))
        return EDIT_SAME;
    if (e->put && !there && list->n >= STATIC_MOST)
        return EDIT_FULL;
    if (there)
        take_out(list, at);
    if (!e->put)
        return EDIT_DELETED;
    put_in(list, at, e->put);
    return there ? EDIT_REPLACED : EDIT_CREATED;
}

static bool apply_all(struct load *l)
{
    bool changed = false;
    size_t n = l->fresh.n;
    list_each(it, &l->edits) n++;
    l->fresh.items = mem_renew(l->fresh.items, (n + 1) * sizeof *l->fresh.items);
    list_each(it, &l->edits)
    {
        struct static_edit *e = container_of(it, struct static_edit, link);
        e->outcome = apply(&l->fresh, e);
        changed |=
            e->outcome == EDIT_CREATED || e->outcome == EDIT_REPLACED || e->outcome == EDIT_DELETED;
    }
    return changed;
}

/* What is on the disk counts, if it is not what we know. */
static bool find_base(struct load *l, bool *ret_read)
{
    struct routes_mark now = l->path ? routes_mark_of(l->path) : l->mark;
    *ret_read = l->path && !routes_mark_same(&now, &l->mark);
    if (*ret_read)
        return load_read(l);
    copy_old(l);
    return true;
}

static enum load_result change(struct load *l)
{
    bool anew;
    if (!find_base(l, &anew))
        return LOAD_FAULT;
    leave_out_expired(&l->fresh, l->now_s);
    bool changed = apply_all(l);
    if (changed && l->path) {
        if (!routes_disk_write(l->path, &l->fresh, &l->mark, &l->fault))
            return LOAD_FAULT;
        l->ours = true;
    }
    return changed || anew ? LOAD_GOOD : LOAD_SAME;
}

/* ---- both ---- */

static enum load_result reread(struct load *l)
{
    struct routes_mark now = {.known = false};
    if (l->path && l->ours && !l->force)
        now = routes_mark_of(l->path);
    if (routes_mark_same(&now, &l->mark))
        return LOAD_SAME; /* what was noticed is our own writing */
    if (l->path && !load_read(l))
        return LOAD_FAULT;
    leave_out_expired(&l->fresh, l->now_s);
    return LOAD_GOOD;
}

void load_run(struct load *l)
{
    l->result = list_empty(&l->edits) ? reread(l) : change(l);
    if (l->result != LOAD_GOOD) {
        routes_list_free(&l->fresh);
        return;
    }
    find_difference(l);
    find_expiring(l);
}

void load_done(struct load *l)
{
    routes_list_free(&l->fresh);
    mem_free(l->put);
    mem_free(l->gone);
    mem_free(l->expiring);
    l->put = NULL;
    l->gone = NULL;
    l->expiring = NULL;
}
