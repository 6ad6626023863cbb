/* view.c — makes views and counts who uses them.  Whatever a change does not touch is shared with
 * the view before it. */
#include "egress/state/view.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/list.h"
#include "egress/vault/lost.h"
#include "egress/vault/vault.h"
#include "policies/domains.h"
#include "policies/rulefile.h"

/* What the layers come to: many views of a vault share one. */
struct layers {
    atomic_uint refs;
    const struct policy *policy;
    const struct patterns *log_skip;
    struct document user;
    struct always_lists always;
};

struct counted {
    struct egress_view pub;
    struct layers *layers;
    atomic_uint refs;
};

static struct counted *counted_of(const struct egress_view *v)
{
    return container_of((struct egress_view *)(uintptr_t)v, struct counted, pub);
}

/* True: that was the last one. */
static bool give_back(atomic_uint *refs)
{
    unsigned before = atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel);
    assert(before > 0);
    return before == 1;
}

/* ---- layers */

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

static struct layers *layers_new(const struct document *user, const struct always_lists *always)
{
    struct layers *l = mem_new(sizeof *l);
    atomic_init(&l->refs, 1);
    l->user = document_copy(user);
    l->always.deny = ref_or_null(always->deny);
    l->always.allow = ref_or_null(always->allow);
    l->always.log_skip = ref_or_null(always->log_skip);
    l->policy = policy_new(always->deny, always->allow, user);
    l->log_skip = always->log_skip ? rulefile_patterns(always->log_skip) : patterns_new();
    return l;
}

static struct layers *layers_ref(struct layers *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

static void layers_unref(struct layers *l)
{
    if (!give_back(&l->refs))
        return;
    policy_free((struct policy *)(uintptr_t)l->policy);
    patterns_free((struct patterns *)(uintptr_t)l->log_skip);
    document_done(&l->user);
    always_lists_done(&l->always);
    mem_free(l);
}

/* ---- views */

/* The reference to the layers is the view's from now on; those to the others are its own. */
static struct egress_view *make_view(struct layers *l, const struct vault *vault,
                                     const struct lost *lost, uint64_t revision)
{
    struct counted *c = mem_new(sizeof *c);
    atomic_init(&c->refs, 1);
    c->layers = l;
    c->pub = (struct egress_view){.policy = l->policy,
                                  .user = l->user,
                                  .always = l->always,
                                  .log_skip = l->log_skip,
                                  .vault = vault ? vault_ref(vault) : NULL,
                                  .lost = lost ? lost_ref(lost) : NULL,
                                  .revision = revision};
    return &c->pub;
}

struct egress_view *view_new(const struct document *user, const struct always_lists *always,
                             uint64_t revision)
{
    return make_view(layers_new(user, always), NULL, NULL, revision);
}

struct egress_view *view_with_user(const struct egress_view *old, const struct document *user)
{
    return make_view(layers_new(user, &old->always), old->vault, old->lost, old->revision + 1);
}

struct egress_view *view_with_always(const struct egress_view *old,
                                     const struct always_lists *always)
{
    return make_view(layers_new(&old->user, always), old->vault, old->lost, old->revision + 1);
}

struct egress_view *view_with_vault(const struct egress_view *old, const struct vault *vault)
{
    return make_view(layers_ref(counted_of(old)->layers), vault, NULL, old->revision + 1);
}

struct egress_view *view_with_lost(const struct egress_view *old, const struct lost *lost)
{
    return make_view(layers_ref(counted_of(old)->layers), old->vault, lost, old->revision);
}

bool view_binds(const struct egress_view *v, struct str host, bool tls)
{
    return bindings_bind_host(vault_bindings(v->vault), host, tls) ||
           lost_binds(v->lost, host, tls);
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
    if (!give_back(&c->refs))
        return;
    vault_unref(v->vault);
    lost_unref(v->lost);
    layers_unref(c->layers);
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
