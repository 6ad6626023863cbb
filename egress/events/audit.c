/* audit.c — the lines about the policy itself (contract egress-policy 6.2).  They say what came
 * into force, from the rules as they were understood; of what was refused only that, since the
 * texts of refusals quote what came in. */
#include "egress/events/events_impl.h"

static void put_rules(struct json_out *o, const struct rules *r)
{
    json_key(o, "rules");
    json_open(o, '[');
    for (unsigned i = 0; i < r->n; i++) {
        json_open(o, '{');
        json_key(o, "action");
        json_put_str(o, r->at[i].allow ? STR("allow") : STR("deny"));
        json_key(o, "target");
        json_put_str(o, r->at[i].target.text);
        json_close(o, '}');
    }
    json_close(o, ']');
}

static void put_event(struct json_out *o, struct str event)
{
    json_out_init(o);
    json_open(o, '{');
    json_key(o, "opensandbox.event");
    json_put_str(o, event);
}

static void end_event(struct json_out *o, enum log_level level, const char *msg)
{
    json_close(o, '}');
    log_audit(level, msg, (struct str){o->p, o->n});
    json_out_done(o);
}

static void tell(struct str event, const char *msg, bool allow, const struct rules *rules)
{
    struct json_out o;
    if (!log_on(LOG_INFO))
        return;
    put_event(&o, event);
    json_key(&o, "egress.default");
    json_put_str(&o, allow ? STR("allow") : STR("deny"));
    put_rules(&o, rules);
    end_event(&o, LOG_INFO, msg);
}

void events_loaded(struct events *e, const struct egress_view *view)
{
    (void)e;
    tell(STR("egress.loaded"), "egress policy loaded", view->user.allow, view->user.rules);
}

static bool is_same(const struct rule *a, const struct rule *b)
{
    return a->allow == b->allow && str_eq(a->target.text, b->target.text);
}

/* What a DELETE took out: `after` is `before` without some of its rules. */
static const struct rules *removed(const struct rules *before, const struct rules *after)
{
    struct rules *gone = rules_new();
    unsigned at = 0;
    for (unsigned i = 0; i < before->n; i++) {
        if (at < after->n && is_same(&before->at[i], &after->at[at]))
            at++;
        else
            rules_copy(gone, &before->at[i]);
    }
    return gone;
}

/* The rules of a PATCH, which was read before and found good. */
static const struct rules *patch(struct str body)
{
    struct rules *rules = rules_new();
    struct json_fault fault;
    struct json_doc *d = document_json(body, &fault);
    bool read = d && document_rules_read(d, json_root(d), rules, &fault);
    if (!read)
        log_note(LOG_ERROR, "a patch that is in force cannot be read again", NULL);
    json_free(d);
    return rules;
}

static const struct rules *touched(const struct api_update *u)
{
    switch (u->kind) {
    case EDIT_PATCH:
        return patch(u->body);
    case EDIT_DELETE:
        return removed(u->before->rules, u->after->rules);
    default:
        return rules_ref(u->after->rules);
    }
}

/* The text without what it quotes, which is the client's and stands last (B5). */
static struct str without_quoted(struct str text, struct arena *a)
{
    ptrdiff_t quote = str_chr(text, '"');
    return quote < 0 ? text : arena_cat(a, str_head(text, (size_t)quote), STR("\"***\""));
}

static void tell_failed(const struct api_update *u)
{
    struct arena a;
    struct json_out o;
    enum log_level level = u->status < 500 ? LOG_WARN : LOG_ERROR;
    if (!log_on(level))
        return;
    arena_init(&a, NULL, 0);
    put_event(&o, STR("egress.update_failed"));
    json_key(&o, "error");
    json_put_str(&o, without_quoted(str_of(u->error ? u->error : ""), &a));
    end_event(&o, level, "egress policy update failed");
    arena_done(&a);
}

void events_update(struct events *e, const struct api_update *u)
{
    (void)e;
    if (!u->after) {
        tell_failed(u);
        return;
    }
    if (!log_on(LOG_INFO))
        return;
    const struct rules *rules = touched(u);
    tell(STR("egress.updated"), "egress policy updated", u->after->allow, rules);
    rules_unref(rules);
}
