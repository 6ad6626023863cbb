/* policy_fuzz.c — any document, body of a request, rule file and name.  What is taken is shown and
 * written so that it is taken again as the same; edits do what they promise, once; what is refused
 * has one line of text; and a policy decides as reading its lists from the top does.  Input:
 * document, body, rule file, name or address, with zero bytes between. */
#include <stdint.h>
#include <stdlib.h>

#include "policies/domains.h"
#include "policies/edit.h"
#include "policies/policy.h"
#include "policies/rulefile.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct document *a, const struct document *b)
{
    CHECK(a->allow == b->allow && a->rules->n == b->rules->n);
    for (unsigned i = 0; i < a->rules->n; i++) {
        const struct rule *x = &a->rules->at[i], *y = &b->rules->at[i];
        CHECK(x->allow == y->allow && str_eq(x->target.text, y->target.text));
        CHECK(str_eq(x->target.key, y->target.key) && x->target.kind == y->target.kind);
        CHECK(str_eq(x->target.name, y->target.name) && x->target.below == y->target.below);
    }
    CHECK(rules_same(a->rules, b->rules));
}

static void check_reads_back(const struct document *d,
                             void (*put)(struct json_out *, const struct document *))
{
    struct json_out o;
    struct json_fault fault;
    struct document again;
    json_out_init(&o);
    put(&o, d);
    CHECK(document_parse((struct str){o.p, o.n}, &again, &fault));
    check_same(d, &again);
    document_done(&again);
    json_out_done(&o);
}

static void check_line(const char *text)
{
    CHECK(text[0]);
    for (; *text; text++)
        CHECK((unsigned char)*text >= ' ');
}

static void check_target(const struct target *t, struct arena *a)
{
    struct target again;
    CHECK(t->text.n > 0 && t->key.n > 0);
    CHECK(target_parse(t->text, a, &again) == TARGET_OK && str_eq(again.key, t->key));
    if (t->kind != TARGET_NAME || t->inert)
        return;
    struct str canonical;
    CHECK(name_canonical(t->name, a, &canonical) && str_eq(canonical, t->name));
}

/* A second time there is nothing left to do. */
static void check_edit(enum edit_kind kind, const struct document *base, struct str body)
{
    char text[EDIT_TEXT_BYTES] = "";
    struct document after, twice;
    enum edit_result result = edit_apply(kind, base, body, 0, &after, text);
    CHECK(result != EDIT_TOO_MANY);
    if (result == EDIT_WRONG)
        check_line(text);
    if (result != EDIT_DONE && result != EDIT_RESET)
        return;
    enum edit_result again = edit_apply(kind, &after, body, 0, &twice, text);
    if (kind == EDIT_DELETE) {
        CHECK(result == EDIT_DONE && again == EDIT_NOTHING && after.rules->n < base->rules->n);
    } else {
        CHECK(again == result);
        check_same(&after, &twice);
        document_done(&twice);
    }
    check_reads_back(&after, document_put);
    if (kind == EDIT_PATCH && after.rules->n > 1)
        CHECK(edit_apply(kind, base, body, after.rules->n - 1, &twice, text) == EDIT_TOO_MANY);
    document_done(&after);
}

/* ---- deciding */

static bool covers(const struct target *t, struct str name, const struct ip *ip)
{
    if (ip || t->kind != TARGET_NAME || t->inert)
        return ip && t->kind != TARGET_NAME && cidr_has(&t->net, ip);
    if (!t->below)
        return str_ieq(t->name, name);
    return name.n > t->name.n && name.p[name.n - t->name.n - 1] == '.' &&
           str_ieq(str_skip(name, name.n - t->name.n), t->name);
}

static struct policy_answer reference(const struct rules *deny, const struct document *user,
                                      struct str name, const struct ip *ip)
{
    for (unsigned i = 0; i < deny->n; i++)
        if (covers(&deny->at[i].target, name, ip))
            return (struct policy_answer){false, LAYER_DENY, i};
    for (unsigned i = 0; i < user->rules->n; i++)
        if (covers(&user->rules->at[i].target, name, ip))
            return (struct policy_answer){user->rules->at[i].allow, LAYER_USER, i};
    return (struct policy_answer){user->allow, LAYER_DEFAULT, 0};
}

static void check_answer(struct policy_answer a, struct policy_answer b)
{
    CHECK(a.allow == b.allow && a.layer == b.layer && a.rule == b.rule);
}

static void check_policy(const struct rules *deny, const struct document *user, struct str asked)
{
    struct policy *p = policy_new(deny, NULL, user);
    struct ip ip;
    struct str name = asked;
    if (name.n && name.p[name.n - 1] == '.')
        name.n--;
    if (asked.n <= 1024)
        check_answer(policy_name(p, asked), reference(deny, user, name, NULL));
    if (ip_parse(asked, &ip))
        check_answer(policy_addr(p, &ip, LEARNED_NOT), reference(deny, user, name, &ip));
    for (unsigned i = 0; i < user->rules->n; i++) {
        const struct target *t = &user->rules->at[i].target;
        if (t->kind != TARGET_NAME)
            check_answer(policy_addr(p, &t->net.ip, LEARNED_NOT),
                         reference(deny, user, name, &t->net.ip));
    }
    policy_free(p);
}

static void check_host(struct str text, struct arena *a)
{
    struct str host, again;
    if (!host_pattern(text, a, &host))
        return;
    CHECK(host_pattern(host, a, &again) && str_eq(host, again));
    CHECK(host.n <= NAME_BYTES_MAX);
}

static const struct rules *read_file(struct str text)
{
    char error[RULEFILE_ERROR_BYTES];
    const struct rules *rules;
    if (rulefile_parse(RULEFILE_DENY, "FILE", text, &rules, error))
        return rules;
    check_line(error);
    return rules_new();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = {(const char *)data, size}, text, body = STR(""), file = STR(""),
               asked = STR("");
    struct document d;
    struct json_fault fault;
    struct arena a;
    if (!str_next(&rest, '\0', &text))
        return 0;
    (void)(str_next(&rest, '\0', &body) && str_next(&rest, '\0', &file) &&
           str_next(&rest, '\0', &asked));
    arena_init(&a, NULL, 0);
    if (!document_parse(text, &d, &fault)) {
        check_line(fault.text);
        d = document_deny();
    }
    check_reads_back(&d, document_put);
    check_reads_back(&d, document_put_file);
    for (unsigned i = 0; i < d.rules->n; i++)
        check_target(&d.rules->at[i].target, &a);
    struct str warnings = rules_warnings(d.rules, false, &a);
    CHECK(warnings.n < 4096);
    for (int kind = EDIT_REPLACE; kind <= EDIT_DELETE; kind++)
        check_edit((enum edit_kind)kind, &d, body);
    const struct rules *deny = read_file(file);
    check_policy(deny, &d, asked);
    check_host(asked, &a);
    rules_unref(deny);
    document_done(&d);
    arena_done(&a);
    return 0;
}
