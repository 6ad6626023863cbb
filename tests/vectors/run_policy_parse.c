/* run_policy_parse.c — policy_parse: bodies read as policies. */
#include "vectors/run_policy.h"

static struct str canonical(struct row *r, const struct target *t)
{
    char text[CIDR_TEXT_BYTES];
    if (t->kind == TARGET_NAME)
        return t->below ? arena_cat(r->a, STR("*."), t->name) : t->name;
    size_t n = t->kind == TARGET_RANGE ? cidr_text(&t->net, text) : ip_text(&t->net.ip, text);
    return arena_str(r->a, (struct str){text, n});
}

static bool same_targets(struct row *r, const struct rules *rules)
{
    static const char *const kinds[] = {
        [TARGET_NAME] = "domain", [TARGET_ADDRESS] = "ip", [TARGET_RANGE] = "cidr"};
    const struct json *kind = row_member(r->v, "kinds"), *canon = row_member(r->v, "canon");
    kind = kind ? json_first(kind) : NULL;
    canon = canon ? json_first(canon) : NULL;
    for (unsigned i = 0; i < rules->n; i++) {
        const struct target *t = &rules->at[i].target;
        if (kind && !row_same(r, "kind", str_of(kinds[t->kind]), json_string(kind)))
            return false;
        if (canon && !row_same(r, "canon", canonical(r, t), json_string(canon)))
            return false;
        kind = kind ? json_next(kind) : NULL;
        canon = canon ? json_next(canon) : NULL;
    }
    return !kind && !canon ? true : row_fail(r, "fewer targets than expected");
}

bool run_policy_parse(struct row *r)
{
    struct document d;
    struct json_fault fault;
    bool expected = row_bool(r->v, "ok");
    if (!document_parse(row_body(r, "body"), &d, &fault)) {
        struct str text = str_of(fault.text), has = row_text(r->v, "error_has");
        if (expected || text.n == 0 || fault.line == 0)
            return row_fail(r, "refused: %u:%u %s", fault.line, fault.column, fault.text);
        return row_has(text, has) || row_fail(r, "error: %s", fault.text);
    }
    bool good = expected || row_fail(r, "taken");
    good = good && row_same_document(r, &d, row_member(r->v, "policy")) && same_targets(r, d.rules);
    document_done(&d);
    return good;
}
