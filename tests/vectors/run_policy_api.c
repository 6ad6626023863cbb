/* run_policy_api.c — policy_api: each row is one request over a real socket to the API, the queue
 * of changes and the policy file behind it. */
#include <ifaddrs.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "harness/policy_rig.h"
#include "vectors/row_vault.h"
#include "vectors/run_egress.h"

/* A vault whose one binding names these hosts; NULL: the row has none. */
static struct vault *vault_of(struct row *r)
{
    const struct json *hosts = row_member(row_member(r->v, "state"), "vault_hosts");
    struct json_out o;
    if (!hosts)
        return NULL;
    json_out_init(&o);
    json_put_raw(&o, STR("{\"bindings\":[{\"name\":\"b\",\"auth\":{\"type\":\"passthrough\"},"
                         "\"match\":{\"hosts\":"));
    o.comma = false;
    row_put(&o, r, hosts);
    o.comma = false;
    json_put_raw(&o, STR("}}]}"));
    return row_vault(r, &o);
}

/* An address of this machine outside 127/8 and ::1, or "". */
static struct str other_address(struct arena *a)
{
    struct ifaddrs *all;
    struct str found = STR("");
    if (getifaddrs(&all) < 0)
        return found;
    for (const struct ifaddrs *i = all; i && !found.n; i = i->ifa_next) {
        char text[IP_TEXT_BYTES];
        struct ip ip;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        addr_ip(i->ifa_addr, &ip);
        if (ip.b[12] != 127)
            found = arena_printf(a, "%.*s", (int)ip_text(&ip, text), text);
    }
    freeifaddrs(all);
    return found;
}

static struct str request_of(struct row *r)
{
    struct str more = STR("");
    const struct json *headers = row_member(r->v, "headers");
    bool body =
        row_member(r->v, "body") || row_member(r->v, "body_b64") || row_member(r->v, "body_parts");
    for (const struct json *v = headers ? json_first(headers) : NULL; v; v = json_next(v))
        more = arena_printf(r->a, "%.*s%.*s: %.*s\r\n", STR_ARG(more), STR_ARG(json_name(v)),
                            STR_ARG(json_string(v)));
    struct str bytes = body ? row_body(r, "body") : STR_NONE;
    if (body && !bytes.p)
        bytes = STR("");
    return rig_request(arena_printf(r->a, "%.*s", STR_ARG(row_text(r->v, "method"))).p,
                       arena_printf(r->a, "%.*s", STR_ARG(row_text(r->v, "path"))).p,
                       more.n ? arena_printf(r->a, "%.*s", STR_ARG(more)).p : "", bytes, r->a);
}

static bool same_status(struct row *r, int status)
{
    const struct json *v = row_member(r->v, "status");
    int64_t one = 0;
    if (json_type(v) != JSON_ARRAY)
        return json_int(r->doc, v, &one) && row_same_int(r, "status", status, one);
    for (const struct json *any = json_first(v); any; any = json_next(any))
        if (json_int(r->doc, any, &one) && one == status)
            return true;
    return row_fail(r, "status %d", status);
}

static bool same_headers(struct row *r, const struct rig_answer *got)
{
    struct str type = rig_field(got, "content-type");
    ptrdiff_t semicolon = str_chr(type, ';');
    const struct json *out = row_member(r->v, "headers_out");
    type = semicolon < 0 ? type : str_head(type, (size_t)semicolon);
    if (!row_same(r, "type", type, row_text(r->v, "type")))
        return false;
    for (const struct json *v = out ? json_first(out) : NULL; v; v = json_next(v)) {
        const char *name = arena_printf(r->a, "%.*s", STR_ARG(json_name(v))).p;
        if (!row_same(r, name, rig_field(got, name), json_string(v)))
            return false;
    }
    bool text = str_eq(type, STR("text/plain"));
    return !text ||
           row_same(r, "nosniff", rig_field(got, "x-content-type-options"), STR("nosniff"));
}

static bool same_text(struct row *r, struct str body)
{
    const struct json *text = row_member(r->v, "text");
    bool line = body.n && (body.p[body.n - 1] == '\n' || str_eq(body, STR("ok")));
    if (text && !row_same(r, "text", body, json_string(text)))
        return false;
    return (line && str_starts(body, row_text(r->v, "text_prefix"))) ||
           row_fail(r, "text: %.*s", STR_ARG(body));
}

/* `reason` beside the object: a piece of it, or anything. */
static bool same_reason(struct row *r, struct str reason)
{
    const struct json *rule = row_member(r->v, "reason");
    if (rule && json_type(rule) == JSON_OBJECT)
        return (reason.n && row_has(reason, row_text(rule, "has"))) ||
               row_fail(r, "reason: %.*s", STR_ARG(reason));
    bool named = rule || row_member(row_member(r->v, "json"), "reason");
    return named || row_same(r, "reason", reason, STR(""));
}

static bool same_object(struct row *r, struct str body)
{
    struct json_fault fault;
    const struct json *expected = row_member(r->v, "json");
    struct json_doc *d = json_parse(body, 0, 8, &fault);
    if (!d)
        return row_fail(r, "no JSON: %s", fault.text);
    const struct json *got = json_root(d), *reason = row_member(got, "reason");
    size_t extra = reason && !row_member(expected, "reason");
    bool good = same_reason(r, reason ? json_string(reason) : STR("")) &&
                row_same_int(r, "members", (int64_t)(json_count(got) - extra),
                             (int64_t)json_count(expected));
    for (const struct json *v = json_first(expected); v && good; v = json_next(v)) {
        const struct json *member = json_member(got, json_name(v));
        good = (member && same_json(d, member, r->doc, v)) ||
               row_fail(r, "%.*s: %.*s", STR_ARG(json_name(v)), STR_ARG(body));
    }
    json_free(d);
    return good;
}

static bool judge(struct row *r, struct policy_rig *rig, const struct rig_answer *got)
{
    const struct json *applies = row_member(r->v, "applies"), *result = row_member(r->v, "result");
    int64_t n = 0;
    if (!same_status(r, got->status) || !same_headers(r, got))
        return false;
    if (row_member(r->v, "json") ? !same_object(r, got->body) : !same_text(r, got->body))
        return false;
    if (applies && json_int(r->doc, applies, &n) &&
        !row_same_int(r, "applies", rig->kernel.applies, n))
        return false;
    return !result || row_same_document(r, &changes_now(rig->changes)->user, result);
}

static void set_state(struct row *r, struct policy_rig *rig)
{
    const struct json *state = row_member(r->v, "state"), *files = row_member(r->v, "files"),
                      *ready = row_member(state, "interception_ready");
    for (const struct json *v = files ? json_first(files) : NULL; v; v = json_next(v))
        rig_write(rig, arena_printf(r->a, "%.*s", STR_ARG(json_name(v))).p,
                  arena_printf(r->a, "%.*s", STR_ARG(json_string(v))).p);
    rig->kernel.fail_all = row_is(state, "kernel", "fail");
    rig->not_enforced = row_is(state, "kernel", "absent") ? "no NET_ADMIN" : NULL;
    if (row_is(state, "persist", "fail"))
        rig->set.policy_file = STR("/tmp/policy_rig/no/such/folder/policy.json");
    rig->interception_ready = !ready || json_bool(ready);
    rig->vault = vault_of(r);
}

static bool run(struct row *r, struct policy_rig *rig, struct document *user)
{
    struct str error, from = STR("");
    set_state(r, rig);
    if (!rig_start(rig, user, &error))
        return row_fail(r, "%.*s", STR_ARG(error));
    if (row_is(r->v, "peer", "remote")) {
        from = other_address(r->a);
        if (from.n == 0)
            return row_skip(r);
    }
    struct rig_answer got = rig_ask(rig, from.n ? from.p : NULL, request_of(r), r->a);
    return judge(r, rig, &got);
}

bool run_policy_api(struct row *r)
{
    struct policy_rig rig;
    struct document user;
    if (!row_document(r, row_member(r->v, "policy"), &user))
        return false;
    set_env_row(r);
    rig_init(&rig, row_getenv);
    bool good = run(r, &rig, &user);
    rig_stop(&rig);
    vault_unref(rig.vault);
    document_done(&user);
    return good;
}
