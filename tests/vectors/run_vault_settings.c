/* run_vault_settings.c — settings: config.yaml, and the variables of interception and vault, judged
 * in-process. */
#include "conf/sources.h"
#include "egress/intercept/passlist.h"
#include "egress/settings.h"
#include "vectors/run_egress.h"

static bool load(struct row *r, struct egress_settings *ret, struct str *ret_error)
{
    struct conf_input in = {0, NULL, row_getenv, true};
    enum conf_action action;
    *ret_error = STR("");
    memset(ret, 0, sizeof *ret);
    return conf_load(&egress_schema, &in, r->a, ret, &action, ret_error) &&
           egress_settings_check(ret, r->a, ret_error);
}

/* ---- config.yaml */

static bool run_config(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect"),
                      *hosts = row_member(expect, "ignore_hosts");
    struct str error, text = row_text(r->v, "config_yaml");
    struct mitm_config config;
    struct egress_settings set;
    unsigned i = 0;
    if (!load(r, &set, &error) || !mitm_config_read(text, r->a, &config, &error))
        return row_fail(r, "%.*s", STR_ARG(error));
    egress_settings_config(&set, config.stream_large_bodies);
    if (!row_same_int(r, "ignore_hosts", config.nignore_hosts, (int64_t)json_count(hosts)))
        return false;
    for (const struct json *v = json_first(hosts); v; v = json_next(v), i++)
        if (!row_same(r, "ignore_hosts", config.ignore_hosts[i], json_string(v)))
            return false;
    return row_same_int(r, "body_substitution_max", set.body_max,
                        row_int(r, expect, "body_substitution_max", -1));
}

/* ---- variables */

static bool same_networks(struct row *r, const struct json *list, const struct cidr_set *got)
{
    char text[CIDR_TEXT_BYTES];
    unsigned i = 0;
    if (!row_same_int(r, "networks", got->n, (int64_t)json_count(list)))
        return false;
    for (const struct json *v = json_first(list); v; v = json_next(v), i++)
        if (!row_same(r, "network", (struct str){text, cidr_text(&got->nets[i], text)},
                      json_string(v)))
            return false;
    return true;
}

static bool same_proxy(struct row *r, const struct json *expect, const struct egress_settings *s)
{
    const struct json *proxy = row_member(expect, "proxy");
    if (!proxy)
        return row_same(r, "proxy", s->parent.host, STR(""));
    return row_same(r, "scheme", s->parent.tls ? STR("https") : STR("http"),
                    row_text(proxy, "scheme")) &&
           row_same(r, "host", s->parent.host, row_text(proxy, "host")) &&
           row_same_int(r, "port", s->parent.port, row_int(r, proxy, "port", -1));
}

/* The vectors' name of a setting, what it is here. */
static bool same_setting(struct row *r, struct str key, const struct json *v,
                         const struct egress_settings *s)
{
    static const char *const scopes[] = {"bound", "all"}, *const https[] = {"lease", "any"},
                             *const losses[] = {"refuse", "forward"},
                             *const oversizes[] = {"pass", "refuse"},
                             *const keys[] = {"ec", "rsa2048"};
    const struct {
        const char *key, *text;
        int64_t n;
    } all[] = {{"require_tls", NULL, s->vault_tls},
               {"scoped_match", NULL, s->vault_scoped},
               {"mitm_scope", scopes[s->mitm_scope], 0},
               {"http_binding_address", https[s->http_binding], 0},
               {"vault_lost", losses[s->vault_lost], 0},
               {"scrub_bodies", NULL, s->scrub_bodies},
               {"scrub_body_min", NULL, s->scrub_body_min},
               {"body_substitution_max", NULL, s->body_max},
               {"body_substitution_oversize", oversizes[s->body_oversize], 0},
               {"vault_ready_wait_s", NULL, s->vault_ready_wait / 1000000000},
               {"ca_key", keys[s->ca_key], 0}};
    int64_t n = json_type(v) == JSON_BOOL && json_bool(v);
    if (json_type(v) == JSON_ARRAY)
        return same_networks(r, v, &s->vault_proxies);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!str_eq(key, str_of(all[i].key)))
            continue;
        if (all[i].text)
            return row_same(r, all[i].key, str_of(all[i].text), json_string(v));
        return (json_type(v) == JSON_BOOL || json_int(r->doc, v, &n)) &&
               row_same_int(r, all[i].key, all[i].n, n);
    }
    return row_fail(r, "nobody knows %.*s", STR_ARG(key));
}

static bool run_variables(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect"),
                      *effective = row_member(expect, "effective");
    struct str error;
    struct egress_settings set;
    bool good = load(r, &set, &error);
    if (!row_bool(expect, "ok"))
        return !good ? row_has(error, row_text(expect, "names")) ||
                           row_fail(r, "not named: %.*s", STR_ARG(error))
                     : row_fail(r, "starts");
    if (!good)
        return row_fail(r, "does not start: %.*s", STR_ARG(error));
    for (const struct json *v = effective ? json_first(effective) : NULL; v; v = json_next(v))
        if (!same_setting(r, json_name(v), v, &set))
            return false;
    return effective || same_proxy(r, expect, &set);
}

bool run_vault_settings(struct row *r)
{
    set_env_row(r);
    return row_is(r->v, "kind", "config") ? run_config(r) : run_variables(r);
}
