/* store.c — a revision of the vault: judged as a whole, then made with everything that requests
 * will ask for, so that a request only follows pointers.  Nothing of it changes afterwards; a write
 * makes another one, and values that both have are the same bytes. */
#include <assert.h>

#include "egress/vault/vault_impl.h"

/* ---- judging (contract 5.1, 7, 9.3) */

struct judging {
    struct entry **credentials, **bindings; /* by name */
    unsigned ncredentials, nbindings;
    struct map *by_name; /* of the credentials */
    const struct vault_cover *cover;
    struct arena *a;
    struct str fault;
};

static bool can_be_in_a_header(struct str value)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool judge_use(struct judging *j, const struct binding *b, struct str credential,
                      bool in_header)
{
    const struct entry *e = map_get(j->by_name, credential);
    struct str binding = binding_quoted(b->name, j->a), shown = binding_quoted(credential, j->a);
    if (!e)
        j->fault = arena_printf(j->a, "binding %.*s references unknown credential %.*s",
                                STR_ARG(binding), STR_ARG(shown));
    else if (in_header && !can_be_in_a_header(secret_bytes(e->value)))
        j->fault = arena_printf(j->a, "binding %.*s: credential %.*s cannot be used in a header",
                                STR_ARG(binding), STR_ARG(shown));
    return j->fault.n == 0;
}

static bool judge_uses(struct judging *j, const struct binding *b)
{
    for (unsigned i = 0; i < b->nheaders; i++)
        if (!judge_use(j, b, b->headers[i].credential, true))
            return false;
    for (unsigned i = 0; i < b->nsubstitutions; i++) {
        const struct substitution *s = &b->substitutions[i];
        if (!judge_use(j, b, s->credential, s->in & SURFACE_HEADER))
            return false;
    }
    return true;
}

static struct str uncovered(const struct vault_cover *cover, const struct binding *b,
                            struct arena *a)
{
    for (unsigned i = 0; i < b->hosts.n; i++) {
        struct str fault = cover->fault(cover->user, b, b->hosts.at[i], a);
        if (fault.n)
            return fault;
    }
    return STR("");
}

static bool judge_one(struct judging *j, const struct binding *b)
{
    if (!judge_uses(j, b))
        return false;
    j->fault = uncovered(j->cover, b, j->a);
    return j->fault.n == 0;
}

/* The bindings as a set; NULL: j->fault. */
static struct bindings *judge(struct judging *j)
{
    const struct binding **all = arena_get(j->a, (j->nbindings + 1) * sizeof *all);
    bool good = true;
    j->by_name = map_new();
    for (unsigned i = 0; i < j->ncredentials; i++)
        map_put(j->by_name, j->credentials[i]->name, j->credentials[i]);
    for (unsigned i = 0; i < j->nbindings && good; i++) {
        all[i] = j->bindings[i]->binding;
        good = judge_one(j, all[i]);
    }
    map_free(j->by_name);
    return good ? bindings_new(all, j->nbindings, j->a, &j->fault) : NULL;
}

/* ---- making */

struct credential *vault_find(const struct vault *v, struct str name)
{
    for (unsigned low = 0, high = v->ncredentials; low < high;) {
        unsigned middle = low + (high - low) / 2;
        int order = str_cmp(v->credentials[middle].name, name);
        if (order == 0)
            return &v->credentials[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct str value_of(void *user, struct str name)
{
    const struct credential *c = vault_find(user, name);
    assert(c);
    return secret_bytes(c->value);
}

static void take_credentials(struct vault *v, const struct judging *j)
{
    v->credentials = arena_zero(&v->mem, (j->ncredentials + 1) * sizeof *v->credentials);
    v->ncredentials = j->ncredentials;
    for (unsigned i = 0; i < v->ncredentials; i++) {
        const struct entry *e = j->credentials[i];
        v->credentials[i] = (struct credential){.name = arena_str(&v->mem, e->name),
                                                .revision = e->revision,
                                                .value = secret_ref(e->value)};
    }
}

static unsigned mark_uses(struct vault *v, const struct binding *b)
{
    for (unsigned i = 0; i < b->nheaders; i++) {
        struct credential *c = vault_find(v, b->headers[i].credential);
        c->used = true;
        c->bearer |= b->type == AUTH_BEARER;
        c->basic |= b->type == AUTH_BASIC;
    }
    for (unsigned i = 0; i < b->nsubstitutions; i++)
        vault_find(v, b->substitutions[i].credential)->used = true;
    return b->nsubstitutions;
}

static void arm_all(struct vault *v)
{
    const struct values values = {value_of, v};
    unsigned n = bindings_count(v->bindings);
    v->armed = arena_zero(&v->mem, (n + 1) * sizeof *v->armed);
    for (unsigned i = 0; i < n; i++)
        arm(bindings_at(v->bindings, i), &values, &v->mem, &v->bag, &v->armed[i]);
}

/* Everything that must not come back (contract 14.1). */
static void make_redaction(struct vault *v, struct arena *a)
{
    unsigned n = bindings_count(v->bindings), all = 0;
    struct redact_use *uses = arena_zero(a, (v->ncredentials + 1) * sizeof *uses);
    for (unsigned i = 0; i < n; i++)
        all += mark_uses(v, bindings_at(v->bindings, i));
    struct str *placeholders = arena_get(a, (all + 1) * sizeof *placeholders);
    struct redact_list list = {
        .uses = uses, .placeholders = placeholders, .body_min = v->rules.body_min};
    for (unsigned i = 0; i < v->ncredentials; i++) {
        const struct credential *c = &v->credentials[i];
        if (c->used)
            uses[list.nuses++] = (struct redact_use){secret_bytes(c->value), c->bearer, c->basic};
    }
    for (unsigned i = 0; i < n; i++) {
        const struct binding *b = bindings_at(v->bindings, i);
        for (unsigned k = 0; k < b->nsubstitutions; k++)
            placeholders[list.nplaceholders++] = b->substitutions[k].placeholder;
    }
    v->redaction = redaction_new(&list);
}

static struct vault *make(const struct judging *j, struct bindings *bindings, int64_t revision,
                          const struct vault_rules *rules)
{
    struct vault *v = mem_new(sizeof *v);
    atomic_init(&v->count, 1);
    v->revision = revision;
    v->rules = *rules;
    v->bindings = bindings;
    arena_init(&v->mem, NULL, 0);
    secret_bag_init(&v->bag);
    take_credentials(v, j);
    arm_all(v);
    make_redaction(v, j->a);
    return v;
}

static bool are_few(unsigned n, unsigned max, const char *what, struct arena *a,
                    struct vault_fault *ret)
{
    if (max == 0 || n <= max)
        return true;
    *ret = (struct vault_fault){400,
                                arena_printf(a, "too many %s: %u, the limit is %u", what, n, max)};
    return false;
}

/* What two finished edits come to. */
static struct vault *finish(const struct edit *credentials, const struct edit *bindings,
                            int64_t revision, const struct vault_rules *rules,
                            const struct vault_cover *cover, struct vault_fault *ret)
{
    struct judging j = {.cover = cover, .a = credentials->a};
    j.credentials = edit_sorted(credentials, &j.ncredentials);
    j.bindings = edit_sorted(bindings, &j.nbindings);
    if (!are_few(j.ncredentials, rules->max_credentials, "credentials", j.a, ret) ||
        !are_few(j.nbindings, rules->max_bindings, "bindings", j.a, ret))
        return NULL;
    struct bindings *set = judge(&j);
    if (!set) {
        *ret = (struct vault_fault){400, j.fault};
        return NULL;
    }
    return make(&j, set, revision, rules);
}

struct vault *vault_new(const struct vault_create *c, const struct vault_rules *rules,
                        const struct vault_cover *cover, struct arena *a, struct vault_fault *ret)
{
    struct edit credentials, bindings;
    struct vault *v = NULL;
    edit_begin(&credentials, "credential", 1, a);
    edit_begin(&bindings, "binding", 1, a);
    if (!edit_create(&credentials, &c->credentials))
        *ret = (struct vault_fault){400, credentials.fault};
    else if (!edit_create(&bindings, &c->bindings))
        *ret = (struct vault_fault){400, bindings.fault};
    else
        v = finish(&credentials, &bindings, 1, rules, cover, ret);
    edit_done(&credentials);
    edit_done(&bindings);
    return v;
}

static void keep_all(const struct vault *old, struct edit *credentials, struct edit *bindings)
{
    for (unsigned i = 0; i < old->ncredentials; i++) {
        const struct credential *c = &old->credentials[i];
        edit_keep(credentials, &(struct entry){c->name, c->revision, c->value, NULL});
    }
    for (unsigned i = 0; i < bindings_count(old->bindings); i++) {
        const struct binding *b = bindings_at(old->bindings, i);
        edit_keep(bindings, &(struct entry){b->name, 0, NULL, b});
    }
}

static bool is_current(const struct vault *old, const struct vault_patch *p, struct arena *a,
                       struct vault_fault *ret)
{
    if (!p->has_expected || p->expected == old->revision)
        return true;
    struct str text = arena_printf(a, "expectedRevision %lld does not match current revision %lld",
                                   (long long)p->expected, (long long)old->revision);
    *ret = (struct vault_fault){409, text};
    return false;
}

struct vault *vault_edit(const struct vault *old, const struct vault_patch *p,
                         const struct vault_rules *rules, const struct vault_cover *cover,
                         struct arena *a, struct vault_fault *ret)
{
    struct edit credentials, bindings;
    struct vault *v = NULL;
    if (!is_current(old, p, a, ret))
        return NULL;
    edit_begin(&credentials, "credential", old->revision + 1, a);
    edit_begin(&bindings, "binding", old->revision + 1, a);
    keep_all(old, &credentials, &bindings);
    if (!edit_apply_ops(&credentials, &p->credentials))
        *ret = (struct vault_fault){400, credentials.fault};
    else if (!edit_apply_ops(&bindings, &p->bindings))
        *ret = (struct vault_fault){400, bindings.fault};
    else
        v = finish(&credentials, &bindings, old->revision + 1, rules, cover, ret);
    edit_done(&credentials);
    edit_done(&bindings);
    return v;
}

struct str vault_uncovered(const struct vault *v, const struct vault_cover *cover, struct arena *a)
{
    for (unsigned i = 0; v && i < bindings_count(v->bindings); i++) {
        struct str fault = uncovered(cover, bindings_at(v->bindings, i), a);
        if (fault.n)
            return fault;
    }
    return STR("");
}

/* ---- counting */

static struct vault *mutable(const struct vault *v)
{
    return (struct vault *)(uintptr_t)v; /* only the count changes */
}

struct vault *vault_ref(const struct vault *v)
{
    unsigned before = atomic_fetch_add_explicit(&mutable(v)->count, 1, memory_order_relaxed);
    assert(before > 0);
    return mutable(v);
}

void vault_unref(const struct vault *v)
{
    if (!v)
        return;
    struct vault *mine = mutable(v);
    unsigned before = atomic_fetch_sub_explicit(&mine->count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    for (unsigned i = 0; i < mine->ncredentials; i++)
        secret_unref(mine->credentials[i].value);
    redaction_unref(mine->redaction);
    bindings_free(mine->bindings);
    secret_bag_done(&mine->bag);
    arena_done(&mine->mem);
    mem_free(mine);
}

int64_t vault_revision(const struct vault *v)
{
    return v ? v->revision : 0;
}

struct bindings *vault_bindings(const struct vault *v)
{
    return v ? v->bindings : NULL;
}

const struct armed *vault_armed(const struct vault *v, const struct binding *b)
{
    return &v->armed[bindings_index(v->bindings, b)];
}

struct redaction *vault_redaction(const struct vault *v)
{
    return v ? v->redaction : NULL;
}
