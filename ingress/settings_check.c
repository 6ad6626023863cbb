/* settings_check.c — the rules between settings, and the texts that a row cannot judge.  A rule
 * looks at one matter and names the setting to change; it is asked only when its feature is on, so
 * that leftovers of other set-ups do not stop a start. */
#include <dirent.h>
#include <errno.h>

#include "base/digest.h"
#include "base/ip.h"
#include "base/text.h"
#include "conf/sources.h"
#include "ingress/dsn.h"
#include "ingress/settings.h"
#include "net/addr.h"
#include "policies/cidr.h"

enum { SECRET_FILE_BYTES = 1 << 16, PEM_FILE_BYTES = 1 << 20 };

/* --- forms of texts --- */

static bool is_blank(struct str s)
{
    return signature_trim(s).n == 0;
}

static bool is_label(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
            return false;
    }
    return s.n > 0 && s.n < 64;
}

static bool is_name(struct str s)
{
    if (s.n > 1 && s.p[s.n - 1] == '.')
        s = str_head(s, s.n - 1);
    if (s.n == 0 || s.n > 253)
        return false;
    for (struct str label; str_next(&s, '.', &label);)
        if (!is_label(label))
            return false;
    return true;
}

/* "name", "address", "[address]", each with ":port" behind it; without, port is empty. */
static bool split_host(struct str s, struct str *ret_host, struct str *ret_port, bool *ret_bracket)
{
    bool bracket = s.n && s.p[0] == '[';
    ptrdiff_t end = str_chr(s, bracket ? ']' : ':');
    if (bracket && end < 0)
        return false;
    size_t host_end = end < 0 ? s.n : (size_t)end;
    struct str rest = str_skip(s, host_end + bracket);
    if (rest.n && rest.p[0] != ':')
        return false;
    *ret_host = str_head(str_skip(s, bracket), host_end - bracket);
    *ret_port = rest.n ? str_skip(rest, 1) : STR_NONE;
    *ret_bracket = bracket;
    return true;
}

static bool is_port(struct str s, uint16_t least, uint16_t *ret)
{
    uint64_t v;
    if (!text_u64(s, UINT16_MAX, &v) || v < least)
        return false;
    *ret = (uint16_t)v;
    return true;
}

static bool is_host(struct str host, bool bracket)
{
    struct ip ip;
    return bracket ? str_chr(host, ':') >= 0 && ip_parse(host, &ip) : is_name(host);
}

static bool is_endpoint(struct str s)
{
    struct str host, port;
    bool bracket;
    uint16_t number;
    return split_host(s, &host, &port, &bracket) && is_host(host, bracket) &&
           is_port(port, 1, &number);
}

static bool is_url(struct str s)
{
    if (!str_istarts(s, STR("http://")) && !str_istarts(s, STR("https://")))
        return false;
    s = str_skip(s, (size_t)str_chr(s, ':') + 3);
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 127 ||
            strchr("?#@\\\"", s.p[i]))
            return false;
    ptrdiff_t slash = str_chr(s, '/');
    struct str authority = slash < 0 ? s : str_head(s, (size_t)slash), host, port;
    bool bracket;
    uint16_t number;
    return split_host(authority, &host, &port, &bracket) && is_host(host, bracket) &&
           (!port.p || is_port(port, 1, &number));
}

bool ingress_listener_parse(struct str text, struct own_listener *ret)
{
    static const struct ip all_v6, all_v4 = {{[10] = 0xff, [11] = 0xff}};
    union addr addr;
    if (!addr_parse(text, &addr))
        return false;
    *ret = (struct own_listener){.port = addr_port(&addr.sa)};
    addr_ip(&addr.sa, &ret->ip);
    ret->any = ip_eq(&ret->ip, &all_v6) || ip_eq(&ret->ip, &all_v4);
    return true;
}

/* --- the key ring --- */

static bool keys_source(const struct ingress_settings *s, struct arena *a, struct str *ret,
                        const char **ret_name, struct str *ret_error)
{
    struct str file = STR_NONE, error;
    *ret_name = "secure-access-keys";
    *ret = s->secure_access_keys;
    if (!is_blank(*ret))
        return true;
    if (s->secure_access_keys_file.n &&
        !conf_read_file(s->secure_access_keys_file, SECRET_FILE_BYTES, a, &file, &error)) {
        *ret_error = arena_cat(a, STR("secure-access-keys-file: "), error);
        return false;
    }
    *ret_name = "secure-access-keys-file";
    *ret = file;
    if (!is_blank(file))
        return true;
    *ret_name = "OPENSANDBOX_SECURE_ACCESS_KEYS (secure-access-keys)";
    *ret = s->secure_access_keys_env;
    return true;
}

bool ingress_settings_keys(const struct ingress_settings *s, struct arena *a, struct str *ret,
                           struct str *ret_error)
{
    const char *name;
    return keys_source(s, a, ret, &name, ret_error);
}

bool ingress_settings_keyring(const struct ingress_settings *s, struct arena *a,
                              struct keyring **ret, char ret_warn[40], struct str *ret_error)
{
    struct str text;
    const char *name;
    char error[200];
    if (!keys_source(s, a, &text, &name, ret_error))
        return false;
    bool good = keyring_parse(text, ret, ret_warn, error, sizeof error);
    if (text.n && text.p != s->secure_access_keys.p && text.p != s->secure_access_keys_env.p)
        digest_wipe((void *)(uintptr_t)text.p,
                    text.n); /* what was read from the file; the ring has its own copy */
    return good || schema_refuse_because(a, ret_error, name, error);
}

/* --- rules between settings --- */

static bool judge_provider(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    if (s->routes.n && !s->provider_given)
        s->provider_type = PROVIDER_STATIC;
    if (s->routes.n && s->provider_type != PROVIDER_STATIC)
        return schema_refuse_because(a, ret_error, "routes", "goes with provider-type static only");
    if (!s->routes.n && !s->admin_token_file.n && s->provider_type == PROVIDER_STATIC)
        return schema_refuse_because(
            a, ret_error, "routes",
            "provider-type static needs a file, or admin-token-file for routes over REST");
    return true;
}

static bool judge_base_domain(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return !s->base_domain.n || is_name(s->base_domain) ||
           schema_refuse(a, ret_error, "base-domain", s->base_domain,
                         "a domain such as gw.example.com");
}

static bool judge_keys(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    struct keyring *keys = NULL;
    char warn[40];
    if (!ingress_settings_keyring(s, a, &keys, warn, ret_error))
        return false;
    bool have = keys != NULL;
    keyring_free(keys);
    if (!s->fastpath_endpoint.n && s->provider_type == PROVIDER_FAST_SANDBOX)
        return schema_refuse_because(a, ret_error, "fastpath-endpoint",
                                     "provider-type fast-sandbox needs it: host:port");
    if (s->fastpath_endpoint.n && !is_endpoint(s->fastpath_endpoint))
        return schema_refuse(a, ret_error, "fastpath-endpoint", s->fastpath_endpoint, "host:port");
    if (s->fastpath_endpoint.n && !have)
        return schema_refuse_because(a, ret_error, "secure-access-keys",
                                     "fastpath-endpoint needs at least one key");
    return true;
}

static bool judge_wake(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return !s->wake_enabled || s->fastpath_endpoint.n ||
           schema_refuse_because(a, ret_error, "wake-enabled",
                                 "needs a Fast Sandbox provider: set fastpath-endpoint");
}

static bool judge_dsn(const char *name, bool on, struct str dsn, struct arena *a,
                      struct str *ret_error)
{
    struct dsn parsed;
    const char *why;
    return !on || dsn_parse(dsn, a, &parsed, &why) ||
           schema_refuse_because(a, ret_error, name, why);
}

static bool judge_redis(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return judge_dsn("renew-intent-redis-dsn", s->renew_intent_enabled, s->renew_intent_redis_dsn,
                     a, ret_error) &&
           judge_dsn("activity-redis-dsn", s->activity_enabled, s->activity_redis_dsn, a,
                     ret_error);
}

static bool judge_targets(const char *name, int64_t v, const struct ingress_settings *s,
                          struct arena *a, struct str *ret_error)
{
    if (v <= s->readiness_max_targets)
        return true;
    *ret_error = arena_printf(a,
                              "%s: \"%lld\" is wrong; allowed: an integer from 1 to "
                              "network-readiness-shadow-max-targets (%lld)",
                              name, (long long)v, (long long)s->readiness_max_targets);
    return false;
}

static bool judge_readiness(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return judge_targets("network-readiness-shadow-min-targets", s->readiness_min_targets, s, a,
                         ret_error) &&
           judge_targets("network-readiness-shadow-min-signal-targets",
                         s->readiness_min_signal_targets, s, a, ret_error);
}

static bool judge_lists(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    struct cidr_set nets;
    struct port_set ports;
    struct str bad;
    if (!cidr_set_parse(s->trusted_proxies, a, &nets, &bad))
        return schema_refuse(a, ret_error, "trusted-proxies", bad,
                             "a comma list of networks such as 10.0.0.0/8,fd00::/8");
    if (!cidr_set_parse(s->allow_target_cidr, a, &nets, &bad))
        return schema_refuse(a, ret_error, "allow-target-cidr", bad,
                             "a comma list of networks such as 127.0.0.0/8,::1");
    if (!port_set_parse(s->deny_ports, a, &ports, &bad))
        return schema_refuse(a, ret_error, "deny-ports", bad,
                             "a comma list of ports and ranges such as 22,8000-8010");
    return true;
}

static bool judge_listeners(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    struct own_listener admin;
    if (!ingress_listener_parse(s->core.admin_addr, &admin))
        return schema_refuse(a, ret_error, "admin-addr", s->core.admin_addr,
                             "address:port, [IPv6 address]:port, or :port for all addresses");
    /* listeners share their ports among the workers, so the kernel would not refuse this */
    if (admin.port && (admin.port == s->port || admin.port == s->tls_port))
        return schema_refuse(a, ret_error, "admin-addr", s->core.admin_addr,
                             "a port that neither port nor tls-port has");
    if (s->tls_port && s->tls_port == s->port)
        return schema_refuse_because(a, ret_error, "tls-port",
                                     "port has the same value; allowed: another one");
    return true;
}

/* Can it be read?  What stands in it is judged with the view; here it is wiped, since it may be a
 * key. */
static bool judge_file(const char *name, struct str path, struct arena *a, struct str *ret_error)
{
    struct arena own;
    struct str text, error;
    arena_init(&own, NULL, 0);
    bool good = conf_read_file(path, PEM_FILE_BYTES, &own, &text, &error);
    if (good)
        digest_wipe((void *)(uintptr_t)text.p, text.n);
    else
        *ret_error = arena_printf(a, "%s: %.*s", name, STR_ARG(error));
    arena_done(&own);
    return good;
}

static bool judge_files(const char *name, struct str list, struct arena *a, struct str *ret_error,
                        unsigned *ret_count)
{
    *ret_count = 0;
    for (struct str path; str_next(&list, ',', &path); (*ret_count)++)
        if (!judge_file(name, str_trim(path), a, ret_error))
            return false;
    return true;
}

static bool judge_folder(const char *name, struct str path, struct arena *a, struct str *ret_error)
{
    struct str z = arena_printf(a, "%.*s", STR_ARG(path));
    DIR *dir = z.n ? opendir(z.p) : NULL;
    if (dir)
        closedir(dir);
    else if (z.n)
        *ret_error = arena_printf(a, "%s: %s: %s", name, z.p, strerror(errno));
    return dir || !z.n;
}

static bool judge_tls_files(const struct ingress_settings *s, struct arena *a,
                            struct str *ret_error)
{
    const struct {
        const char *name;
        struct str path;
    } files[] = {{"tls-client-ca", s->tls_client_ca},
                 {"tls-ticket-keys-file", s->tls_ticket_keys_file}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i].path.n && !judge_file(files[i].name, files[i].path, a, ret_error))
            return false;
    return judge_folder("tls-cert-dir", s->tls_cert_dir, a, ret_error);
}

static bool judge_tls(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    unsigned certs, keys;
    if (!s->tls_port)
        return true;
    if (!judge_files("tls-cert", s->tls_cert, a, ret_error, &certs) ||
        !judge_files("tls-key", s->tls_key, a, ret_error, &keys) ||
        !judge_tls_files(s, a, ret_error))
        return false;
    if (certs == 0 && !s->tls_cert_dir.n)
        return schema_refuse_because(
            a, ret_error, "tls-port",
            "needs a certificate: set tls-cert and tls-key, or tls-cert-dir");
    if (certs == keys)
        return true;
    *ret_error = arena_printf(
        a, "tls-key: %u files for %u of tls-cert; allowed: one key for each certificate", keys,
        certs);
    return false;
}

static bool judge_proxy_protocol(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return !s->proxy_protocol || !is_blank(s->trusted_proxies) ||
           schema_refuse_because(
               a, ret_error, "proxy-protocol",
               "needs trusted-proxies: the networks whose connections begin with the "
               "header");
}

static bool judge_secret_file(const char *name, struct str path, struct arena *a,
                              struct str *ret_error)
{
    struct str text, error;
    if (!conf_read_file(path, SECRET_FILE_BYTES, a, &text, &error)) {
        *ret_error = arena_printf(a, "%s: %.*s", name, STR_ARG(error));
        return false;
    }
    bool blank = is_blank(text);
    digest_wipe((void *)(uintptr_t)text.p, text.n);
    return !blank || schema_refuse_because(a, ret_error, name, "the file is blank");
}

static bool judge_lifecycle(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    if (s->provider_type != PROVIDER_LIFECYCLE)
        return true;
    if (!s->lifecycle_url.n)
        return schema_refuse_because(
            a, ret_error, "lifecycle-url",
            "provider-type lifecycle needs it: http://host:port or https://host:port");
    if (!is_url(s->lifecycle_url))
        return schema_refuse(a, ret_error, "lifecycle-url", s->lifecycle_url,
                             "http:// or https://, host, port and path, nothing else");
    if (s->lifecycle_api_key_file.n)
        return judge_secret_file("lifecycle-api-key-file", s->lifecycle_api_key_file, a, ret_error);
    return !is_blank(s->lifecycle_api_key) ||
           schema_refuse_because(a, ret_error, "lifecycle-api-key-file",
                                 "provider-type lifecycle needs it, or the variable "
                                 "OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY");
}

static bool judge_admin_token(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    if (s->admin_token_file.n && s->provider_type != PROVIDER_STATIC)
        return schema_refuse_because(a, ret_error, "admin-token-file",
                                     "goes with provider-type static only");
    return !s->admin_token_file.n ||
           judge_secret_file("admin-token-file", s->admin_token_file, a, ret_error);
}

bool ingress_settings_check(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    static bool (*const rules[])(struct ingress_settings *, struct arena *, struct str *) = {
        judge_provider,  judge_base_domain, judge_keys,           judge_wake,
        judge_redis,     judge_readiness,   judge_lists,          judge_listeners,
        judge_lifecycle, judge_tls,         judge_proxy_protocol, judge_admin_token};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i](s, a, ret_error))
            return false;
    return true;
}

struct str ingress_settings_warnings(const struct ingress_settings *s, struct arena *a)
{
    (void)a;
    if (s->wake_enabled && s->wake_park_budget <= s->fastpath_wait_timeout_millis * 1000000)
        return STR("wake-park-budget: not above fastpath-wait-timeout-millis, so one slow call "
                   "uses it up");
    return STR_NONE;
}
