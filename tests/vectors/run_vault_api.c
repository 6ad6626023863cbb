/* run_vault_api.c — vault_api and policy_interplay: requests over real sockets to the API with the
 * queue of changes, the store and the policy file behind it.  What a row takes as given is brought
 * about by requests too, with settings that let them. */
#include <stdio.h>

#include "egress/intercept/passlist.h"
#include "egress/vault/vault.h"
#include "harness/policy_rig.h"
#include "harness/seeming.h"
#include "vectors/run_egress.h"

#define TOKEN "tok-test-0001"

static const char *given_variables(const char *name)
{
    static const char *const set[][2] = {{EGRESS_VARIABLE "TOKEN", TOKEN},
                                         {EGRESS_VARIABLE "MITMPROXY_TRANSPARENT", "true"},
                                         {EGRESS_VARIABLE "MODE", "dns+nft"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (strcmp(name, set[i][0]) == 0)
            return set[i][1];
    return NULL;
}

struct stage {
    struct policy_rig rig;
    struct passlist *passlist;
    struct document before; /* the user's policy */
    struct str state;       /* of the vault, as JSON; empty: none */
};

static const char *text_z(struct row *r, struct str s)
{
    return arena_printf(r->a, "%.*s", STR_ARG(s)).p;
}

/* ---- what is there before */

static const char default_policy[] =
    "{\"defaultAction\":\"deny\",\"egress\":[{\"action\":\"allow\",\"target\":\"api.example.com\"},"
    "{\"action\":\"allow\",\"target\":\"code.example.com\"},"
    "{\"action\":\"allow\",\"target\":\"*.apps.example.com\"}]}";

static bool given_policy(struct row *r, struct document *ret)
{
    const struct json *v = row_member(r->v, "given_policy");
    struct json_fault fault;
    if (v)
        return row_document(r, v, ret);
    return document_parse(STR(default_policy), ret, &fault) || row_fail(r, "%s", fault.text);
}

static void write_always(struct row *r, struct policy_rig *rig, const struct json *always)
{
    for (const struct json *file = always ? json_first(always) : NULL; file;
         file = json_next(file)) {
        struct str text = STR("");
        for (const struct json *v = json_first(file); v; v = json_next(v))
            text = arena_printf(r->a, "%.*s%.*s\n", STR_ARG(text), STR_ARG(json_string(v)));
        rig_write(rig, arena_printf(r->a, "%.*s.always", STR_ARG(json_name(file))).p,
                  text_z(r, text));
    }
}

static struct str json_text(struct row *r, const struct json *v)
{
    struct json_out o;
    if (!v || json_type(v) == JSON_NULL)
        return STR_NONE;
    json_out_init(&o);
    row_put(&o, r, v);
    struct str text = arena_str(r->a, (struct str){o.p, o.n});
    json_out_done(&o);
    return text;
}

static bool bring_about(struct row *r, struct policy_rig *rig)
{
    const struct json *given = row_member(r->v, "given");
    for (const struct json *v = given ? json_first(given) : NULL; v; v = json_next(v)) {
        const struct json *method = json_first(v), *path = json_next(method);
        struct str bytes = rig_request(text_z(r, json_string(method)), text_z(r, json_string(path)),
                                       "OPENSANDBOX-EGRESS-AUTH: " TOKEN "\r\n",
                                       json_text(r, json_next(path)), r->a);
        struct rig_answer got = rig_ask(rig, NULL, bytes, r->a);
        if (got.status / 100 != 2)
            return row_fail(r, "given: %d %.*s", got.status, STR_ARG(got.body));
    }
    return true;
}

static bool start(struct row *r, struct stage *s)
{
    struct document user;
    struct str error = STR("");
    if (row_is(r->v, "fail", "file"))
        s->rig.set.policy_file = STR("/tmp/policy_rig/no/such/folder/policy.json");
    else if (row_member(r->v, "policy_after"))
        s->rig.set.policy_file = str_of(s->rig.file);
    write_always(r, &s->rig, row_member(r->v, "given_always"));
    if (!given_policy(r, &user))
        return false;
    bool good = rig_start(&s->rig, &user, &error);
    document_done(&user);
    return good ? bring_about(r, &s->rig) : row_fail(r, "%.*s", STR_ARG(error));
}

/* ---- facts of the request */

static void set_bool(const struct json *facts, const char *name, bool *ret)
{
    if (row_member(facts, name))
        *ret = row_bool(facts, name);
}

static void set_ready(struct row *r, const struct json *facts, struct policy_rig *rig)
{
    const struct json *ready = row_member(facts, "ready");
    if (ready && json_type(ready) == JSON_OBJECT)
        rig->ready_at_ms = rig_now_ms() + (uint64_t)row_int(r, ready, "after_ms", 0);
    else
        set_bool(facts, "ready", &rig->interception_ready);
}

static void set_passlist(struct row *r, const struct json *facts, struct stage *s)
{
    const struct json *list = row_member(facts, "ignore_hosts");
    unsigned n = 0;
    if (!list)
        return;
    struct str *patterns = arena_get(r->a, (json_count(list) + 1) * sizeof *patterns);
    for (const struct json *v = json_first(list); v; v = json_next(v))
        patterns[n++] = json_string(v);
    s->rig.passlist = s->passlist = passlist_new(patterns, n, NULL, NULL);
}

static bool set_peer(struct row *r, const struct json *facts)
{
    struct str text = row_text(facts, "peer");
    struct ip peer;
    if (text.n && !ip_parse(text, &peer))
        return row_fail(r, "peer: %.*s", STR_ARG(text));
    seem(text.n ? &peer : NULL, row_bool(facts, "tls"));
    return true;
}

static bool set_facts(struct row *r, struct stage *s)
{
    const struct json *facts = row_member(r->v, "facts");
    struct egress_settings *set = &s->rig.set;
    struct str bad;
    if (row_member(facts, "token"))
        set->token = row_text(facts, "token");
    if (row_is(facts, "mode", "dns"))
        set->mode = EGRESS_DNS;
    if (row_bool(facts, "proxy_addr"))
        set->proxy_addr = STR("127.0.0.1:3128");
    set_bool(facts, "transparent", &set->mitm);
    set_bool(facts, "ssl_insecure", &set->ssl_insecure);
    set_bool(facts, "require_tls", &set->vault_tls);
    set_bool(facts, "scoped_match", &set->vault_scoped);
    set->max_rules = row_int(r, facts, "max_rules", set->max_rules);
    set->vault_ready_wait = row_int(r, facts, "ready_wait_ms", 30000) * 1000000;
    cidr_set_parse(row_joined(r, row_member(facts, "trusted_proxy_cidrs")), r->a,
                   &set->vault_proxies, &bad);
    set_ready(r, facts, &s->rig);
    set_passlist(r, facts, s);
    if (facts)
        rig_restart(&s->rig);
    return set_peer(r, facts);
}

static bool set_policy(struct row *r, struct policy_rig *rig)
{
    const struct json *policy = row_member(r->v, "policy"), *always = row_member(r->v, "always");
    struct always_lists lists;
    struct document d;
    struct str error;
    bool good = true;
    if (policy) {
        if (!row_document(r, policy, &d))
            return false;
        good = rig_policy(rig, &d);
        document_done(&d);
    }
    if (always) {
        write_always(r, rig, always);
        if (!always_read(str_of(rig->folder), &lists, r->a, &error))
            return row_fail(r, "%.*s", STR_ARG(error));
        good = good && rig_lists(rig, &lists);
        always_lists_done(&lists);
    }
    return good || row_fail(r, "the row's policy does not come into force");
}

/* ---- the request */

static struct str filled(struct row *r, const struct json *v)
{
    struct str prefix = row_text(v, "prefix"), fill = row_text(v, "fill"),
               suffix = row_text(v, "suffix");
    size_t total = (size_t)row_int(r, v, "total", 0), n = total - prefix.n - suffix.n;
    char *p = arena_get(r->a, total + 1);
    memcpy(p, prefix.p, prefix.n);
    for (size_t i = 0; i < n; i++)
        p[prefix.n + i] = fill.p[i % fill.n];
    memcpy(p + prefix.n + n, suffix.p, suffix.n);
    return (struct str){p, total};
}

static struct str body_of(struct row *r, const struct json *request)
{
    const struct json *text = row_member(request, "body"), *fill = row_member(request, "body_fill");
    if (fill)
        return filled(r, fill);
    if (text)
        return json_string(text).n ? json_string(text) : STR("");
    return json_text(r, row_member(request, "json"));
}

static struct rig_answer ask(struct row *r, struct policy_rig *rig)
{
    const struct json *request = row_member(r->v, "request"),
                      *headers = row_member(request, "headers");
    struct str more = headers ? STR("") : STR("OPENSANDBOX-EGRESS-AUTH: " TOKEN "\r\n");
    for (const struct json *v = headers ? json_first(headers) : NULL; v; v = json_next(v))
        more = arena_printf(r->a, "%.*s%.*s: %.*s\r\n", STR_ARG(more), STR_ARG(json_name(v)),
                            STR_ARG(json_string(v)));
    struct str bytes =
        rig_request(text_z(r, row_text(request, "method")), text_z(r, row_text(request, "path")),
                    text_z(r, more), body_of(r, request), r->a);
    return rig_ask(rig, NULL, bytes, r->a);
}

/* ---- what is expected */

static bool same_status(struct row *r, const struct json *expect, const struct rig_answer *got)
{
    const struct json *v = row_member(expect, "status");
    int64_t one = 0;
    if (json_type(v) != JSON_ARRAY)
        return (json_int(r->doc, v, &one) && one == got->status) ||
               row_fail(r, "status %d, expected %lld: %.*s", got->status, (long long)one,
                        STR_ARG(got->body));
    for (const struct json *any = json_first(v); any; any = json_next(any))
        if (json_int(r->doc, any, &one) && one == got->status)
            return true;
    return row_fail(r, "status %d", got->status);
}

static bool same_headers(struct row *r, const struct json *expect, const struct rig_answer *got)
{
    const struct json *headers = row_member(expect, "headers");
    bool error = got->status >= 400;
    if (got->status != 204 && got->status >= 200 &&
        !row_same(r, "type", rig_field(got, "content-type"),
                  error || str_eq(got->body, STR("ok")) ? STR("text/plain; charset=utf-8")
                                                        : STR("application/json")))
        return false;
    if (error && !row_same(r, "nosniff", rig_field(got, "x-content-type-options"), STR("nosniff")))
        return false;
    for (const struct json *v = headers ? json_first(headers) : NULL; v; v = json_next(v)) {
        const char *name = text_z(r, json_name(v));
        bool counts = got->status == 301 || !str_eq(json_name(v), STR("Location"));
        if (counts && !row_same(r, name, rig_field(got, name), json_string(v)))
            return false;
    }
    return true;
}

static bool same_value(struct row *r, struct str got, const struct json *expected)
{
    struct json_fault fault;
    struct json_doc *d = json_parse(got, 0, 64, &fault);
    bool good = d && same_json(d, json_root(d), r->doc, expected);
    json_free(d);
    return good || row_fail(r, "JSON: %.*s", STR_ARG(got));
}

static bool same_body(struct row *r, const struct json *expect, const struct rig_answer *got)
{
    const struct json *json = row_member(expect, "json"), *text = row_member(expect, "text"),
                      *excludes = row_member(expect, "excludes");
    for (const struct json *v = excludes ? json_first(excludes) : NULL; v; v = json_next(v))
        if (row_has(got->body, json_string(v)) || row_has(got->head, json_string(v)))
            return row_fail(r, "shows %.*s", STR_ARG(json_string(v)));
    if (json && !same_value(r, got->body, json))
        return false;
    if (text && !row_same(r, "text", got->body, json_string(text)))
        return false;
    return row_has(got->body, row_text(expect, "text_contains")) ||
           row_fail(r, "text: %.*s", STR_ARG(got->body));
}

static struct str state_of(struct row *r, struct policy_rig *rig)
{
    const struct vault *v = changes_now(rig->changes)->vault;
    struct json_out o;
    if (!v)
        return STR("");
    json_out_init(&o);
    vault_put_state(v, &o);
    struct str text = arena_str(r->a, (struct str){o.p, o.n});
    json_out_done(&o);
    return text;
}

static bool same_after(struct row *r, struct stage *s, const char *name)
{
    const struct json *after = json_member(r->v, str_of(name));
    struct str state = state_of(r, &s->rig);
    if (!after)
        return true;
    if (json_type(after) == JSON_NULL)
        return row_same(r, name, state, STR(""));
    return json_type(after) == JSON_STRING ? row_same(r, name, state, s->state)
                                           : same_value(r, state, after);
}

/* Memory, kernel and, once there is one, the file. */
static bool same_policy(struct row *r, struct stage *s)
{
    const struct json *after = row_member(r->v, "policy_after");
    const struct egress_view *now = changes_now(s->rig.changes);
    bool same = after && json_type(after) == JSON_STRING;
    struct json_fault fault;
    struct document d;
    if (!after)
        return true;
    if (same ? !rules_same(now->user.rules, s->before.rules) || now->user.allow != s->before.allow
             : !row_same_document(r, &now->user, after))
        return row_fail(r, "another policy in memory");
    if (s->rig.kernel.holds != now->policy)
        return row_fail(r, "another policy in the kernel");
    struct str text = rig_file(s->rig.file, r->a);
    if (text.n == 0)
        return same || row_fail(r, "no policy file");
    if (!document_parse(text, &d, &fault))
        return row_fail(r, "policy file: %s", fault.text);
    bool good = rules_same(d.rules, now->user.rules) && d.allow == now->user.allow;
    document_done(&d);
    return good || row_fail(r, "another policy in the file: %.*s", STR_ARG(text));
}

static bool judge(struct row *r, struct stage *s)
{
    const struct json *expect = row_member(r->v, "expect");
    s->before = document_copy(&changes_now(s->rig.changes)->user);
    s->state = state_of(r, &s->rig);
    s->rig.kernel.fail_all = row_is(r->v, "fail", "kernel");
    struct rig_answer got = ask(r, &s->rig);
    bool good = same_status(r, expect, &got) && same_headers(r, expect, &got) &&
                same_body(r, expect, &got) && same_after(r, s, "after") &&
                same_after(r, s, "vault_after") && same_policy(r, s);
    document_done(&s->before);
    return good;
}

bool run_vault_api(struct row *r)
{
    struct stage s = {.passlist = NULL};
    rig_init(&s.rig, given_variables);
    bool good = start(r, &s) && set_facts(r, &s) && set_policy(r, &s.rig) && judge(r, &s);
    seem(NULL, false);
    rig_stop(&s.rig);
    passlist_free(s.passlist);
    return good;
}
