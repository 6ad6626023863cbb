/* snapshot.c — counts who uses a configuration and frees it with its last user.  A new one is made
 * whole beside the old one, so there is nothing here that changes a snapshot: publishing is the
 * workers' business. */
#include "conf/snapshot.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/list.h"

struct counted {
    struct snapshot pub;
    const struct maker *maker;
    atomic_uint refs;
};

static struct counted *counted_of(const struct snapshot *s)
{
    return container_of((struct snapshot *)(uintptr_t)s, struct counted, pub);
}

static struct snapshot *build(const struct settings *set, const struct maker *maker,
                              const struct snapshot *old, struct arena *a, struct str *ret_error)
{
    void *view = maker->make(set, old ? old->view : NULL, a, ret_error);
    return view ? snapshot_carrying(set, maker, view, old ? old->revision + 1 : 1) : NULL;
}

struct snapshot *snapshot_carrying(const struct settings *set, const struct maker *maker,
                                   void *view, uint64_t revision)
{
    struct counted *c = mem_new(sizeof *c);
    c->pub = (struct snapshot){.set = set, .view = view, .revision = revision};
    c->maker = maker;
    atomic_init(&c->refs, 1);
    return &c->pub;
}

struct snapshot *snapshot_build(const struct settings *set, const struct maker *maker,
                                struct arena *a, struct str *ret_error)
{
    return build(set, maker, NULL, a, ret_error);
}

struct snapshot *snapshot_rebuild(const struct snapshot *old, struct arena *a,
                                  struct str *ret_error)
{
    return build(old->set, counted_of(old)->maker, old, a, ret_error);
}

const struct snapshot *snapshot_ref(const struct snapshot *s)
{
    unsigned before = atomic_fetch_add_explicit(&counted_of(s)->refs, 1, memory_order_relaxed);
    assert(before > 0);
    return s;
}

void snapshot_unref(const struct snapshot *s)
{
    if (!s)
        return;
    struct counted *c = counted_of(s);
    unsigned before = atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    c->maker->drop((void *)(uintptr_t)c->pub.view);
    mem_free(c);
}
