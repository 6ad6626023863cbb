/* view.c — makes views and counts who uses them.  Whatever a change does not touch is shared with
 * the view before it. */
#include "egress/state/view.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/list.h"
#include "policies/domains.h"
#include "policies/rulefile.h"

struct counted {
    struct egress_view pub;
    atomic_uint refs;
};

static struct counted *counted_of(const struct egress_view *v)
{
    return container_of((struct egress_view *)(uintptr_t)v, struct counted, pub);
}

static const struct rules *ref_or_null(const struct rules *r)
{
    return r ? rules_ref(r) : NULL;
}

void always_lists_done(struct always_lists *lists)
{
    const struct rules *all[] = {lists->deny, lists->allow, lists->log_skip};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            rules_unref(all[i]);
    *lists = (struct always_lists){NULL, NULL, NULL};
}

struct egress_view *view_new(const struct document *user, const struct always_lists *always,
                             uint64_t revision)
{
    struct counted *c = mem_new(sizeof *c);
    struct egress_view *v = &c->pub;
    atomic_init(&c->refs, 1);
    v->user = document_copy(user);
    v->always.deny = ref_or_null(always->deny);
    v->always.allow = ref_or_null(always->allow);
    v->always.log_skip = ref_or_null(always->log_skip);
    v->policy = policy_new(always->deny, always->allow, user);
    v->log_skip = always->log_skip ? rulefile_patterns(always->log_skip) : patterns_new();
    v->revision = revision;
    return v;
}

struct egress_view *view_with_user(const struct egress_view *old, const struct document *user)
{
    return view_new(user, &old->always, old->revision + 1);
}

struct egress_view *view_with_always(const struct egress_view *old,
                                     const struct always_lists *always)
{
    return view_new(&old->user, always, old->revision + 1);
}

const struct egress_view *view_ref(const struct egress_view *v)
{
    unsigned before = atomic_fetch_add_explicit(&counted_of(v)->refs, 1, memory_order_relaxed);
    assert(before > 0);
    return v;
}

void view_unref(const struct egress_view *v)
{
    if (!v)
        return;
    struct counted *c = counted_of(v);
    unsigned before = atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    policy_free((struct policy *)(uintptr_t)v->policy);
    patterns_free((struct patterns *)(uintptr_t)v->log_skip);
    document_done(&c->pub.user);
    always_lists_done(&c->pub.always);
    mem_free(c);
}

/* ---- in a snapshot */

/* A reload of the settings alone keeps what is in force. */
static void *make(const struct settings *set, const void *old, struct arena *a,
                  struct str *ret_error)
{
    (void)set;
    (void)a;
    if (!old)
        *ret_error = STR("there is no policy yet");
    return old ? (void *)(uintptr_t)view_ref(old) : NULL;
}

static void drop(void *view)
{
    view_unref(view);
}

static const struct maker maker = {make, drop};

struct snapshot *view_snapshot(const struct settings *set, const struct egress_view *v)
{
    return snapshot_carrying(set, &maker, (void *)(uintptr_t)view_ref(v), v->revision);
}

const struct egress_view *view_of(const struct snapshot *s)
{
    return s->view;
}
