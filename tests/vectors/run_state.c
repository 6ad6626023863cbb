/* run_state.c — persistence, revision, and the reloads of always_rules: what comes into force, and
 * what is kept. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "harness/policy_rig.h"
#include "policies/packet.h"
#include "policies/rulefile.h"
#include "vectors/run_egress.h"

/* ---- persistence */

static mode_t mode_of(struct str octal)
{
    mode_t mode = 0;
    for (size_t i = 0; i < octal.n; i++)
        mode = mode << 3 | (mode_t)(octal.p[i] - '0');
    return mode;
}

static const char *z(struct row *r, struct str s)
{
    return arena_printf(r->a, "%.*s", STR_ARG(s)).p;
}

static bool is_start(struct row *r, const struct json *expected, const char *file)
{
    static const char *const sources[] = {[POLICY_FROM_DEFAULT] = "default",
                                          [POLICY_FROM_VARIABLE] = "env",
                                          [POLICY_FROM_FILE] = "file"};
    struct document d;
    enum policy_source source;
    struct str error, rules = row_text(r->v, "env_rules");
    if (!policy_start(str_of(file), rules, &d, &source, r->a, &error)) {
        bool named = row_has(error, STR("OPENSANDBOX_EGRESS_")) && str_chr(error, '\n') < 0;
        return (!row_bool(expected, "ok") && named) || row_fail(r, "%.*s", STR_ARG(error));
    }
    bool good = row_bool(expected, "ok") || row_fail(r, "starts");
    good = good && row_same(r, "source", str_of(sources[source]), row_text(expected, "source")) &&
           row_same_document(r, &d, row_member(expected, "policy"));
    document_done(&d);
    return good;
}

static bool run_start(struct row *r, struct policy_rig *rig)
{
    const struct json *file = row_member(r->v, "file"), *path = row_member(file, "path"),
                      *text = row_member(file, "text");
    if (path)
        return is_start(r, row_member(r->v, "start"),
                        json_type(path) == JSON_STRING ? z(r, json_string(path)) : "");
    if (text)
        rig_write(rig, "policy.json", z(r, json_string(text)));
    if (row_bool(file, "unreadable")) /* for root too */
        mkdir(rig->file, 0700);
    return is_start(r, row_member(r->v, "start"), rig->file);
}

static struct rig_answer send_request(struct row *r, struct policy_rig *rig)
{
    const struct json *method = json_first(row_member(r->v, "request"));
    struct str body = json_string(json_next(method));
    return rig_ask(
        rig, NULL,
        rig_request(z(r, json_string(method)), "/policy", "", body.n ? body : STR(""), r->a), r->a);
}

static bool same_file(struct row *r, const struct policy_rig *rig, const struct json *expected)
{
    if (!expected)
        return access(rig->file, F_OK) < 0 || row_fail(r, "there is a file");
    return row_same(r, "file", rig_file(rig->file, r->a), json_string(expected));
}

static bool same_mode(struct row *r, const struct policy_rig *rig, struct str mode)
{
    struct stat st;
    if (mode.n == 0)
        return true;
    if (stat(rig->file, &st) < 0)
        return row_fail(r, "no file");
    return row_same(r, "mode", arena_printf(r->a, "%04o", st.st_mode & 07777), mode);
}

static bool begin(struct row *r, struct policy_rig *rig)
{
    struct document user;
    struct str error;
    rig_write(rig, "deny.always", z(r, row_text(r->v, "deny_always")));
    rig_write(rig, "allow.always", z(r, row_text(r->v, "allow_always")));
    if (!row_document(r, row_member(r->v, "policy"), &user))
        return false;
    bool good = rig_start(rig, &user, &error) || row_fail(r, "%.*s", STR_ARG(error));
    document_done(&user);
    return good;
}

static bool run_write(struct row *r, struct policy_rig *rig)
{
    struct str mode = row_text(r->v, "mode_before"), old = STR("{\"defaultAction\":\"deny\"}\n");
    if (mode.n) {
        rig_write(rig, "policy.json", old.p);
        chmod(rig->file, mode_of(mode));
    }
    rig->kernel.present = true;
    if (!begin(r, rig))
        return false;
    send_request(r, rig);
    if (row_bool(r->v, "unchanged"))
        return row_same(r, "file", rig_file(rig->file, r->a), old) &&
               same_mode(r, rig, row_text(r->v, "mode_after"));
    return same_file(r, rig, row_member(r->v, "file_after")) &&
           same_mode(r, rig, row_text(r->v, "mode_after"));
}

/* No file can be written. */
static void forbid_writing(bool forbidden)
{
    struct rlimit limit;
    fflush(NULL);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = forbidden ? 0 : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static bool run_rollback(struct row *r, struct policy_rig *rig)
{
    const struct json *before = row_member(r->v, "file_before");
    bool fails = row_is(r->v, "persist", "fail");
    if (before)
        rig_write(rig, "policy.json", z(r, json_string(before)));
    rig->kernel.present = true;
    rig->kernel.fail_all = row_is(r->v, "kernel", "fail");
    if (!begin(r, rig))
        return false;
    if (fails)
        forbid_writing(true);
    struct rig_answer got = send_request(r, rig);
    if (fails)
        forbid_writing(false);
    return row_same_int(r, "status", got.status, row_int(r, r->v, "status", 0)) &&
           same_file(r, rig, row_member(r->v, "file_after"));
}

static bool run_roundtrip(struct row *r, struct policy_rig *rig)
{
    struct document d;
    enum policy_source source;
    struct str error;
    const struct json *path = row_member(r->v, "path");
    if (path)
        rig->set.policy_file = STR_NONE;
    if (!begin(r, rig))
        return false;
    struct rig_answer got = send_request(r, rig);
    if (!row_same_int(r, "status", got.status, 200))
        return false;
    if (!policy_start(rig->set.policy_file, row_text(r->v, "env_rules"), &d, &source, r->a, &error))
        return row_fail(r, "%.*s", STR_ARG(error));
    bool good = row_same_document(r, &d, row_member(r->v, "after_restart"));
    document_done(&d);
    return good;
}

bool run_persistence(struct row *r)
{
    struct policy_rig rig;
    set_env_row(r);
    rig_init(&rig, row_getenv);
    rig.set.policy_file = str_of(rig.file);
    bool good = row_is(r->v, "kind", "start")      ? run_start(r, &rig)
                : row_is(r->v, "kind", "write")    ? run_write(r, &rig)
                : row_is(r->v, "kind", "rollback") ? run_rollback(r, &rig)
                                                   : run_roundtrip(r, &rig);
    rig_stop(&rig);
    return good;
}

/* ---- reloads */

static bool same_targets(struct row *r, const char *what, const struct rules *rules,
                         const struct json *expected)
{
    struct str got = STR("");
    for (unsigned i = 0; rules && i < rules->n; i++)
        got = arena_printf(r->a, "%.*s%s%.*s", STR_ARG(got), i ? "," : "",
                           STR_ARG(rules->at[i].target.text));
    return row_same(r, what, got, row_joined(r, expected));
}

struct expectation {
    struct policy_rig *rig;
    uint64_t revision;
};

static bool has_changed(void *user)
{
    struct expectation *e = user;
    return changes_now(e->rig->changes)->revision != e->revision;
}

static bool run_step(struct row *r, struct policy_rig *rig, const struct json *step)
{
    const struct json *deny = row_member(step, "deny"), *allow = row_member(step, "allow");
    struct expectation e = {rig, changes_now(rig->changes)->revision};
    rig_write(rig, "deny.always", deny ? z(r, json_string(deny)) : NULL);
    rig_write(rig, "allow.always", allow ? z(r, json_string(allow)) : NULL);
    rig->kernel.fail_all = row_is(step, "kernel", "fail");
    if (!rig->always)
        rig->always = always_start(rig->w, rig->changes, str_of(rig->folder));
    else
        always_reload(rig->always);
    bool expected = row_bool(step, "changed");
    if (expected)
        rig_until(rig, has_changed, &e);
    rig_run(rig, 30);
    const struct always_lists *now = &changes_now(rig->changes)->always;
    return row_same_int(r, "changed", has_changed(&e), expected) &&
           same_targets(r, "deny", now->deny, row_member(step, "deny_rules")) &&
           same_targets(r, "allow", now->allow, row_member(step, "allow_rules"));
}

bool run_always_reload(struct row *r)
{
    struct policy_rig rig;
    struct document user = document_deny();
    struct str error;
    set_env_row(r);
    rig_init(&rig, row_getenv);
    rig.kernel.present = true;
    bool good = rig_start(&rig, &user, &error) || row_fail(r, "%.*s", STR_ARG(error));
    const struct json *step = json_first(row_member(r->v, "steps"));
    for (; step && good; step = json_next(step))
        good = run_step(r, &rig, step);
    rig_stop(&rig);
    document_done(&user);
    return good;
}

/* ---- revision: what a new policy leaves of what was learned and of what is open */

static struct policy *policy_of(struct row *r, const char *when)
{
    char error[RULEFILE_ERROR_BYTES];
    const struct rules *lists[2] = {NULL, NULL};
    struct document user;
    const char *const names[] = {"deny_always", "allow_always"};
    for (int i = 0; i < 2; i++) {
        struct str text = row_text(r->v, arena_printf(r->a, "%s_%s", names[i], when).p);
        if (!rulefile_parse((enum rulefile)i, names[i], text, &lists[i], error))
            row_fail(r, "%s", error);
    }
    if (!row_document(r, row_member(r->v, when), &user))
        return NULL;
    struct policy *p = policy_new(lists[0], lists[1], &user);
    for (int i = 0; i < 2; i++)
        rules_unref(lists[i]);
    document_done(&user);
    return p;
}

static enum learned best(enum learned a, enum learned b)
{
    return a > b ? a : b;
}

static bool is_cut(struct row *r, const struct policy *p, const struct packet_rules *rules,
                   const struct json *flow)
{
    struct packet k = {.port = (uint16_t)row_int(r, flow, "port", 0),
                       .proto = row_is(flow, "proto", "udp") ? PACKET_UDP : PACKET_TCP,
                       .own = row_bool(flow, "own"),
                       .reply = row_bool(flow, "inbound")};
    const struct json *list = row_member(r->v, "learned");
    struct ip ip;
    if (!ip_parse(row_text(flow, "addr"), &k.to))
        return row_fail(r, "no address");
    if (row_member(flow, "name"))
        k.learned = policy_learns(p, row_text(flow, "name"));
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (ip_parse(row_text(v, "addr"), &ip) && ip_eq(&ip, &k.to))
            k.learned = best(k.learned, policy_learns(p, row_text(v, "name")));
    return packet_judge(p, rules, &k).verdict == PACKET_REFUSE;
}

static struct str learned_after(struct row *r, const struct policy *p)
{
    const struct json *list = row_member(r->v, "learned");
    struct str got = STR("");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (policy_learns(p, row_text(v, "name")) != LEARNED_NOT)
            got = arena_printf(r->a, "%.*s%.*s=%.*s ", STR_ARG(got), STR_ARG(row_text(v, "name")),
                               STR_ARG(row_text(v, "addr")));
    return got;
}

static struct str pairs(struct row *r, const struct json *list)
{
    struct str got = STR("");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        got = arena_printf(r->a, "%.*s%.*s=%.*s ", STR_ARG(got), STR_ARG(row_text(v, "name")),
                           STR_ARG(row_text(v, "addr")));
    return got;
}

bool run_revision(struct row *r)
{
    struct packet_rules rules = {.nft = true};
    struct str bad, cut = STR("");
    const struct json *flows = row_member(r->v, "flows");
    struct policy *p = policy_of(r, "after");
    if (!p || !cidr_set_parse(row_env(r, "NAMESERVER_EXEMPT"), r->a, &rules.exempt, &bad))
        return row_fail(r, "the row is not to be read");
    for (const struct json *v = flows ? json_first(flows) : NULL; v; v = json_next(v))
        if (is_cut(r, p, &rules, v))
            cut = arena_printf(r->a, "%.*s%s%.*s", STR_ARG(cut), cut.n ? "," : "",
                               STR_ARG(row_text(v, "flow")));
    struct str kept = learned_after(r, p);
    policy_free(p);
    return row_same(r, "learned", kept, pairs(r, row_member(r->v, "learned_after"))) &&
           row_same(r, "cut", cut, row_joined(r, row_member(r->v, "cut")));
}
