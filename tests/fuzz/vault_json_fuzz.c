/* vault_json_fuzz.c — any body of a create and of a patch upon it.  What is refused has one line of
 * text and leaves nothing; what is taken is shown as JSON that is taken again as the same match,
 * has every binding armed, and its values stand in nothing that is shown.  Input: create, patch, a
 * request's host and target, with zero bytes between. */
#include <stdint.h>
#include <stdlib.h>

#include "base/secret.h"
#include "egress/vault/lost.h"
#include "egress/vault/vault.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct str allow(void *user, const struct binding *b, struct str host, struct arena *a)
{
    (void)user;
    (void)a;
    CHECK(b->name.n && binding_host_is_normal(host));
    return STR("");
}

static const struct vault_rules rules = {.body_min = 6};
static const struct vault_cover cover = {allow, NULL};

static void check_fault(const struct vault_fault *f)
{
    CHECK((f->status == 400 || f->status == 409) && f->text.n > 0);
    for (size_t i = 0; i < f->text.n; i++)
        CHECK((unsigned char)f->text.p[i] >= ' ');
}

static void check_binding(const struct vault *v, const struct binding *b, const struct lost *lost)
{
    const struct armed *x = vault_armed(v, b);
    CHECK(x->binding == b && x->nheaders == b->nheaders);
    CHECK(b->schemes.n && b->hosts.n && b->methods.n && b->paths.n);
    for (unsigned i = 0; i < b->hosts.n; i++) {
        struct str host = b->hosts.at[i];
        if (host.p[0] == '*')
            continue;
        for (int tls = 0; tls < 2; tls++)
            CHECK(
                !binding_has_scheme(b, tls) ||
                (bindings_bind_host(vault_bindings(v), host, tls) && lost_binds(lost, host, tls)));
    }
}

static void check_shown(const struct vault *v)
{
    struct json_out o;
    struct json_fault fault;
    json_out_init(&o);
    vault_put_state(v, &o);
    struct json_doc *d = json_parse((struct str){o.p, o.n}, 0, 8, &fault);
    CHECK(d);
    json_free(d);
    json_out_done(&o);
}

static void check_choice(const struct vault *v, struct str host, struct str target)
{
    for (int tls = 0; tls < 2; tls++) {
        const struct binding *got = NULL;
        struct binding_request q = {tls, tls ? 443 : 80, STR("GET"), host, target};
        enum binding_choice choice = bindings_choose(vault_bindings(v), &q, &got);
        CHECK(choice != BINDING_AMBIGUOUS); /* such sets are refused */
        CHECK((choice == BINDING_NONE) == !got);
        CHECK(!got || bindings_bind_host(vault_bindings(v), host, tls));
    }
}

static void check(const struct vault *v, struct str host, struct str target, struct arena *a)
{
    struct bindings *s = vault_bindings(v);
    struct lost *lost = lost_read(lost_text(s, a));
    for (unsigned i = 0; i < bindings_count(s); i++)
        check_binding(v, bindings_at(s, i), lost);
    lost_unref(lost);
    check_shown(v);
    check_choice(v, host, target);
    for (unsigned i = 0; vault_warning(v, i, a).p; i++)
        CHECK(i < 8);
}

static struct vault *make(struct str body, struct arena *a)
{
    struct vault_fault fault;
    struct vault_create *c = vault_create_read(body, &rules, a, &fault);
    struct vault *v = c ? vault_new(c, &rules, &cover, a, &fault) : NULL;
    vault_create_free(c);
    if (!v)
        check_fault(&fault);
    return v;
}

static struct vault *next(const struct vault *old, struct str body, struct arena *a)
{
    struct vault_fault fault;
    struct vault_patch *p = vault_patch_read(body, &rules, a, &fault);
    struct vault *v = p ? vault_edit(old, p, &rules, &cover, a, &fault) : NULL;
    vault_patch_free(p);
    if (!v)
        check_fault(&fault);
    CHECK(!v || vault_revision(v) == vault_revision(old) + 1);
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = {(const char *)data, size}, create, patch = STR(""), host = STR(""),
               target = STR("");
    struct arena a;
    if (!str_next(&rest, '\0', &create))
        return 0;
    (void)(str_next(&rest, '\0', &patch) && str_next(&rest, '\0', &host) &&
           str_next(&rest, '\0', &target));
    arena_init(&a, NULL, 0);
    struct vault *one = make(create, &a);
    if (!one)
        one = make(STR("{}"), &a);
    check(one, host, target, &a);
    struct vault *two = next(one, patch, &a);
    vault_unref(one);
    if (two)
        check(two, host, target, &a);
    vault_unref(two);
    CHECK(secret_held() == 0);
    arena_done(&a);
    return 0;
}
