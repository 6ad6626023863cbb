/* policy_api.c — /policy: reads and writes of the user's policy.  A write is a change in the queue;
 * what it comes to is worked out there, from the policy that is in force when its turn comes. */
#include <stdio.h>

#include "egress/api/api_impl.h"
#include "egress/state/cover.h"

static bool enforces_addresses(const struct visit *v)
{
    return visit_host(v)->set->mode != EGRESS_DNS;
}

static void put_status(struct json_out *o, const struct document *user)
{
    json_key(o, "status");
    json_put_str(o, STR("ok"));
    json_key(o, "mode");
    json_put_str(o, str_of(document_mode(user)));
}

static void put_reason(struct json_out *o, struct str reason)
{
    if (reason.n == 0)
        return;
    json_key(o, "reason");
    json_put_str(o, reason);
}

static void answer(struct visit *v, const struct document *user, bool whole)
{
    struct json_out o;
    bool reset = !whole && v->edit == EDIT_RESET, nothing = !whole && v->edit == EDIT_NOTHING;
    json_out_init(&o);
    json_open(&o, '{');
    put_status(&o, user);
    if (!reset) {
        json_key(&o, "enforcementMode");
        json_put_str(&o, str_of(egress_mode_text(visit_host(v)->set->mode)));
    }
    put_reason(&o, reset     ? STR("policy reset to default deny-all")
                   : nothing ? STR("no matching targets found")
                             : rules_warnings(user->rules, enforces_addresses(v), &v->mem));
    if (whole) {
        json_key(&o, "policy");
        document_put(&o, user);
    }
    json_close(&o, '}');
    visit_json(v, &o);
}

static struct visit *visit_of(struct change *c)
{
    return container_of(c, struct visit, change);
}

/* A body may take many milliseconds to come, so the method says all there is to know before. */
static enum edit_kind kind_of(const struct visit *v)
{
    if (str_eq(v->head->method, STR("PATCH")))
        return EDIT_PATCH;
    return str_eq(v->head->method, STR("DELETE")) ? EDIT_DELETE : EDIT_REPLACE;
}

static struct egress_view *judged(struct visit *v, struct egress_view *fresh,
                                  struct change_answer *ret)
{
    const struct api_host *h = visit_host(v);
    struct cover c = {fresh->policy, h->passed, h->user};
    struct vault_cover cover = cover_of(&c);
    struct str why = fresh->vault ? vault_uncovered(fresh->vault, &cover, &v->mem) : STR("");
    if (why.n == 0)
        return fresh;
    v->fault.status = ret->status = 400;
    v->fault.text = arena_cat(&v->mem, STR("credential vault policy validation: "), why);
    snprintf(ret->text, sizeof ret->text, "%.*s", STR_ARG(v->fault.text));
    view_unref(fresh);
    return NULL;
}

static struct egress_view *candidate(struct change *c, const struct egress_view *now,
                                     struct change_answer *ret)
{
    struct visit *v = visit_of(c);
    struct document d;
    _Static_assert((int)EDIT_TEXT_BYTES <= (int)CHANGE_TEXT_BYTES, "an answer holds a refusal");
    v->before = document_copy(&now->user);
    v->edit = edit_apply(kind_of(v), &now->user, visit_body(v),
                         (unsigned)visit_host(v)->set->max_rules, &d, ret->text);
    if (v->edit != EDIT_DONE && v->edit != EDIT_RESET) {
        ret->status = v->edit == EDIT_NOTHING ? 200 : v->edit == EDIT_TOO_MANY ? 413 : 400;
        return NULL;
    }
    struct egress_view *fresh = view_with_user(now, &d);
    document_done(&d);
    return judged(v, fresh, ret);
}

static void tell(struct visit *v, const struct change_answer *a, const struct egress_view *now)
{
    const struct api_host *h = visit_host(v);
    bool good = a->status == 200;
    if (!h->updated || v->edit == EDIT_NOTHING)
        return;
    h->updated(h->user, &(struct api_update){kind_of(v), a->status, good ? NULL : a->text,
                                             visit_body(v), &v->before, good ? &now->user : NULL});
}

static void on_done(struct change *c, const struct change_answer *a, const struct egress_view *now)
{
    struct visit *v = visit_of(c);
    tell(v, a, now);
    document_done(&v->before);
    if (!visit_resume(v))
        return;
    if (a->status == 200)
        answer(v, &now->user, false);
    else if (v->fault.status) /* as long as it is */
        visit_refuse(v, v->fault.status, v->fault.text);
    else
        visit_refuse(v, a->status, str_of(a->text));
}

void serve_policy(struct visit *v)
{
    if (str_eq(v->head->method, STR("GET"))) {
        answer(v, &changes_now(visit_host(v)->changes)->user, true);
        return;
    }
    v->change =
        (struct change){.candidate = candidate, .done = on_done, .keeps = true, .addresses = true};
    visit_wait(v);
    change_submit(visit_host(v)->changes, &v->change);
}
