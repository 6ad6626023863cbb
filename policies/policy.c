/* policy.c — the effective policy.  All three layers are one list, numbered through: the lowest
 * number that matches decides, for names and for addresses alike.  For addresses the list is cut in
 * two where learned ones come in between. */
#include "policies/policy.h"

#include <stdio.h>

#include "policies/domains.h"

enum { LISTS = LAYER_USER + 1 };

struct policy {
    const struct rules *lists[LISTS]; /* by layer; one reference each, NULL: no rules */
    bool allow;
    struct patterns *names; /* places are numbers through all lists */
    struct ranges always, user, always_joined, user_joined;
    struct arena arena;
};

static unsigned list_length(const struct policy *p, unsigned layer)
{
    return p->lists[layer] ? p->lists[layer]->n : 0;
}

static unsigned first_number(const struct policy *p, unsigned layer)
{
    unsigned n = 0;
    for (unsigned i = 0; i < layer; i++)
        n += list_length(p, i);
    return n;
}

static const struct rule *rule_of(const struct policy *p, enum layer layer, unsigned i)
{
    return &p->lists[layer]->at[i];
}

/* deny.always denies whatever its rules say; so the other one allows. */
static bool allows(const struct policy *p, enum layer layer, unsigned i)
{
    return layer == LAYER_USER ? rule_of(p, layer, i)->allow : layer == LAYER_ALLOW;
}

static void index_names(struct policy *p)
{
    int number = 0;
    for (unsigned layer = 0; layer < LISTS; layer++) {
        for (unsigned i = 0; i < list_length(p, layer); i++, number++) {
            const struct target *t = &rule_of(p, layer, i)->target;
            if (t->kind == TARGET_NAME && !t->inert)
                patterns_add(p->names, t->name, t->below, number);
        }
    }
}

/* The address rules of layers from..to in order. */
static struct ranges compile(struct policy *p, unsigned from, unsigned to)
{
    unsigned number = first_number(p, from), n = 0;
    size_t room = first_number(p, to + 1) - number;
    struct range_rule *rules = mem_new((room + 1) * sizeof *rules);
    for (unsigned layer = from; layer <= to; layer++) {
        for (unsigned i = 0; i < list_length(p, layer); i++, number++) {
            const struct target *t = &rule_of(p, layer, i)->target;
            if (t->kind != TARGET_NAME)
                rules[n++] = (struct range_rule){t->net, number, allows(p, layer, i)};
        }
    }
    struct ranges ranges = ranges_compile(rules, n, &p->arena);
    mem_free(rules);
    return ranges;
}

struct policy *policy_new(const struct rules *deny_always, const struct rules *allow_always,
                          const struct document *user)
{
    const struct rules *lists[LISTS] = {deny_always, allow_always, user ? user->rules : NULL};
    struct policy *p = mem_new(sizeof *p);
    for (unsigned i = 0; i < LISTS; i++)
        p->lists[i] = lists[i] ? rules_ref(lists[i]) : NULL;
    p->allow = user && user->allow;
    p->names = patterns_new();
    arena_init(&p->arena, NULL, 0);
    index_names(p);
    p->always = compile(p, LAYER_DENY, LAYER_ALLOW);
    p->user = compile(p, LAYER_USER, LAYER_USER);
    p->always_joined = ranges_joined(&p->always, &p->arena);
    p->user_joined = ranges_joined(&p->user, &p->arena);
    return p;
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < LISTS; i++)
        rules_unref(p->lists[i]);
    patterns_free(p->names);
    arena_done(&p->arena);
    mem_free(p);
}

/* ---- questions */

static struct policy_answer by_number(const struct policy *p, unsigned number)
{
    unsigned layer = 0;
    while (number >= list_length(p, layer))
        number -= list_length(p, layer++);
    return (struct policy_answer){allows(p, (enum layer)layer, number), (enum layer)layer, number};
}

static struct policy_answer by_default(const struct policy *p)
{
    return (struct policy_answer){p->allow, LAYER_DEFAULT, 0};
}

struct policy_answer policy_name(const struct policy *p, struct str name)
{
    int number = patterns_first(p->names, name);
    return number == PATTERNS_NONE ? by_default(p) : by_number(p, (unsigned)number);
}

enum learned policy_learns(const struct policy *p, struct str name)
{
    struct policy_answer answer = policy_name(p, name);
    if (!answer.allow)
        return LEARNED_NOT;
    return answer.layer == LAYER_ALLOW ? LEARNED_ALWAYS : LEARNED_USER;
}

struct policy_answer policy_addr(const struct policy *p, const struct ip *ip, enum learned learned)
{
    const struct range *r = ranges_find(&p->always, ip);
    if (!r && learned == LEARNED_ALWAYS)
        return (struct policy_answer){true, LAYER_LEARNED, 0};
    if (!r)
        r = ranges_find(&p->user, ip);
    if (r)
        return by_number(p, r->number);
    if (learned != LEARNED_NOT)
        return (struct policy_answer){true, LAYER_LEARNED, 0};
    return by_default(p);
}

bool policy_addr_by_rule(const struct policy *p, const struct ip *ip)
{
    struct policy_answer answer = policy_addr(p, ip, LEARNED_NOT);
    return answer.allow && answer.layer != LAYER_DEFAULT;
}

const struct ranges *policy_always_ranges(const struct policy *p)
{
    return &p->always_joined;
}

const struct ranges *policy_user_ranges(const struct policy *p)
{
    return &p->user_joined;
}

bool policy_default(const struct policy *p)
{
    return p->allow;
}

/* ---- explaining */

static bool has_rule(enum layer layer)
{
    return layer <= LAYER_USER;
}

size_t policy_rule_text(struct policy_answer answer, char out[POLICY_RULE_BYTES])
{
    static const char *const names[] = {
        [LAYER_DENY] = "deny.always", [LAYER_ALLOW] = "allow.always", [LAYER_USER] = "user",
        [LAYER_LEARNED] = "learned",  [LAYER_DEFAULT] = "default",
    };
    const char *name = names[answer.layer];
    int n = has_rule(answer.layer) ? snprintf(out, POLICY_RULE_BYTES, "%s:%u", name, answer.rule)
                                   : snprintf(out, POLICY_RULE_BYTES, "%s", name);
    return (size_t)n;
}

struct str policy_target(const struct policy *p, struct policy_answer answer)
{
    return has_rule(answer.layer) ? rule_of(p, answer.layer, answer.rule)->target.text : STR("");
}
