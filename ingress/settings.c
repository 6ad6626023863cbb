/* settings.c — the gateway's settings as rows, and the rules that a row cannot hold.  A rule looks
 * at one matter and names the setting to change; it is asked only when its feature is on, so that
 * leftovers of other set-ups do not stop a start. */
#include "ingress/settings.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>

#include "base/digest.h"
#include "base/ip.h"
#include "base/text.h"
#include "conf/sources.h"
#include "ingress/dsn.h"
#include "net/addr.h"
#include "policies/cidr.h"

static const char *const log_levels[] = {"debug", "info",  "warn", "warning",
                                         "error", "fatal", NULL};
static const char *const providers[] = {"batchsandbox", "agent-sandbox", "fast-sandbox",
                                        "static",       "lifecycle",     NULL};
static const char *const modes[] = {"auto", "header", "wildcard", "uri", NULL};
static const char *const access_modes[] = {"direct-fastlet-proxy", "central-proxy", NULL};
static const char *const backend_hosts[] = {"target", "preserve", NULL};
static const char *const backend_protocols[] = {"auto", "h1", "h2c", NULL};

#define AT(field) offsetof(struct ingress_settings, field)
#define ROW(name, kind, field, def, min, max, flags, group, help)               \
    {                                                                           \
        name, NULL, kind, AT(field), def, min, max, NULL, flags, group, help, 0 \
    }
#define TEXT(name, field, def, flags, group, help) \
    ROW(name, SET_TEXT, field, def, 0, 0, flags, group, help)
#define BOOL(name, field, def, group, help) ROW(name, SET_BOOL, field, def, 0, 0, 0, group, help)
#define CHOICE(name, field, choices, def, flags, given, group, help)                     \
    {                                                                                    \
        name, NULL, SET_CHOICE, AT(field), def, 0, 0, choices, flags, group, help, given \
    }
#define VARIABLE(name, field, group, help)                                                         \
    {                                                                                              \
        name, name, SET_TEXT, AT(field), "", 0, 0, NULL, SETTING_SECRET | SETTING_VARIABLE, group, \
            help, 0                                                                                \
    }
#define CORE(name, kind, field, def, min, max, flags, help) \
    CORE_SETTING(struct ingress_settings, name, field, kind, def, min, max, flags, help)
#define DEADLINE(name, field, def, help) \
    CORE(name, SET_DURATION, field, def, 0, INFINITY, SETTING_EXCLUSIVE, help)

#define MANY 1e9

static const struct setting rows[] = {
    TEXT(
        "config", core.config_file, "", SETTING_NO_FILE, "Program",
        "file with one JSON object, members named like the flags; a flag or variable wins over it"),
    CHOICE("log-level", core.log_level, log_levels, "info", SETTING_ANY_CASE, 0, "Program",
           "least level that is logged"),
    ROW("workers", SET_INT, core.workers, "0", 0, 1024, 0, "Program",
        "threads that serve; 0: one per core"),
    ROW("drain-timeout", SET_DURATION, core.drain_timeout, "30s", 0, INFINITY, 0, "Program",
        "how long requests may run on after SIGTERM"),

    ROW("port", SET_INT, port, "28888", 0, 65535, 0, "Listeners",
        "port on all addresses; 0: any free one"),
    TEXT("admin-addr", core.admin_addr, "127.0.0.1:28889", 0, "Listeners",
         "listener of /healthz, /readyz, /metrics and /debug; \":PORT\" means all addresses"),
    TEXT("admin-token-file", admin_token_file, "", 0, "Listeners",
         "file with the bearer token for /routes on the admin listener; without it /routes is 404"),
    BOOL("proxy-protocol", proxy_protocol, "false", "Listeners",
         "connections from trusted proxies begin with a PROXY header, v1 or v2"),
    ROW("tls-port", SET_INT, tls_port, "0", 0, 65535, 0, "Listeners",
        "TLS listener on all addresses; 0: none"),
    TEXT("tls-cert", tls_cert, "", 0, "Listeners",
         "comma list of PEM files with certificate chains; the first is the default"),
    TEXT("tls-key", tls_key, "", 0, "Listeners",
         "comma list of PEM files with their keys, in the same order"),
    TEXT("tls-cert-dir", tls_cert_dir, "", 0, "Listeners",
         "folder with more pairs: NAME.crt and NAME.key, or NAME/tls.crt and NAME/tls.key"),
    TEXT("tls-client-ca", tls_client_ca, "", 0, "Listeners",
         "PEM file; only clients with a certificate of these authorities are served"),

    CHOICE("mode", mode, modes, "auto", 0, 0, "Routes",
           "which parts of a request name its sandbox; wildcard is header"),
    TEXT("base-domain", base_domain, "", 0, "Routes",
         "Hosts under this domain are routes, all others are not"),
    BOOL("lenient-ports", lenient_ports, "false", "Routes",
         "signs and leading zeros are allowed in the ports of routes"),
    TEXT("deny-ports", deny_ports, "", 0, "Routes",
         "comma list of ports and ranges a-b; routes to them are 403"),

    CHOICE("provider-type", provider_type, providers, "batchsandbox", 0, AT(provider_given),
           "Sandboxes", "what finds sandboxes"),
    TEXT("namespace", ns, "opensandbox", 0, "Sandboxes",
         "taken and ignored: the watch is cluster-wide"),
    TEXT("routes", routes, "", 0, "Sandboxes",
         "JSON file of the static provider; given alone it makes provider-type static"),
    TEXT("lifecycle-url", lifecycle_url, "", 0, "Sandboxes",
         "server that the lifecycle provider asks"),
    TEXT("lifecycle-api-key-file", lifecycle_api_key_file, "", 0, "Sandboxes",
         "file with the key for it"),
    VARIABLE("OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY", lifecycle_api_key, "Sandboxes",
             "the key, where lifecycle-api-key-file is not set"),

    TEXT("secure-access-keys", secure_access_keys, "", SETTING_SECRET, "Access",
         "key ring for signed routes, a=BASE64,b=BASE64; blank: see the file, then the variable"),
    TEXT("secure-access-keys-file", secure_access_keys_file, "", 0, "Access",
         "file with the same text, read again on SIGHUP"),
    VARIABLE("OPENSANDBOX_SECURE_ACCESS_KEYS", secure_access_keys_env, "Access",
             "the key ring, where flag and file have none"),
    ROW("signature-failure-limit", SET_INT, signature_failure_limit, "100", 0, MANY, 0, "Access",
        "failed signatures a minute per sandbox before all signed requests to it are 429; 0: no "
        "limit"),

    CHOICE("backend-host", backend_host, backend_hosts, "target", 0, 0, "Forwarding",
           "the Host that a sandbox sees: its own address, or the client's"),
    CHOICE("backend-protocol", backend_protocol, backend_protocols, "auto", 0, 0, "Forwarding",
           "how sandboxes are spoken to; auto: h1, and h2c for gRPC"),
    TEXT("trusted-proxies", trusted_proxies, "", 0, "Forwarding",
         "comma list of networks whose forwarding fields count"),
    TEXT("allow-target-cidr", allow_target_cidr, "", 0, "Forwarding",
         "comma list of networks that may be dialled although they are loopback, link-local or "
         "metadata addresses"),
    BOOL("forward-api-key", forward_api_key, "false", "Forwarding",
         "the tenant's OPEN-SANDBOX-API-KEY goes on to the sandbox"),
    ROW("max-connections-per-sandbox", SET_INT, max_connections_per_sandbox, "0", 0, MANY, 0,
        "Forwarding", "requests and tunnels in progress; 0: no limit"),
    ROW("rate-limit-per-sandbox", SET_INT, rate_limit_per_sandbox, "0", 0, MANY, 0, "Forwarding",
        "requests a second; 0: no limit"),

    DEADLINE("head-timeout", head_timeout, "30s",
             "PROXY header, TLS handshake and a whole request head"),
    DEADLINE("keep-alive-timeout", keep_alive_timeout, "75s", "an idle client connection"),
    DEADLINE("connect-timeout", connect_timeout, "30s", "name, connect and TLS of a sandbox"),
    DEADLINE("response-timeout", response_timeout, "1h",
             "until the sandbox's final head; each 1xx starts it anew"),
    DEADLINE("decide-timeout", decide_timeout, "10s", "a lookup that has to ask somebody"),
    DEADLINE("idle-timeout", idle_timeout, "1h", "a body without a byte in either direction"),
    CORE("tunnel-idle-timeout", SET_DURATION, tunnel_idle_timeout, "0", 0, INFINITY, 0,
         "a tunnel without a byte in either direction; 0: none"),
    DEADLINE("half-close-timeout", half_close_timeout, "60s",
             "a tunnel of which one direction has ended, without a byte in the other"),
    DEADLINE("linger-timeout", linger_timeout, "5s",
             "reading the rest of a request that was answered early"),
    DEADLINE("backend-idle-timeout", backend_idle_timeout, "90s",
             "an idle connection to a sandbox"),
    CORE("backend-idle-max", SET_INT, backend_idle_max, "64", 0, MANY, 0,
         "idle connections per sandbox and worker"),
    CORE("max-head-bytes", SET_BYTES, max_head_bytes, "1MiB", 1024, 67108864, 0,
         "request and answer heads"),
    CORE("max-connections", SET_INT, max_connections, "0", 0, MANY, 0,
         "client connections; 0: what the descriptor limit allows"),
    CORE("max-memory", SET_BYTES, max_memory, "0", 0, INFINITY, 0,
         "heads and bodies held, all workers together; 0: no cap"),

    BOOL("renew-intent-enabled", renew_intent_enabled, "false", "Renew intents",
         "tell the server through Redis which sandboxes are in use"),
    TEXT("renew-intent-redis-dsn", renew_intent_redis_dsn, "redis://127.0.0.1:6379/0",
         SETTING_SECRET, "Renew intents", "redis://, rediss:// or unix://"),
    TEXT("renew-intent-queue-key", renew_intent_queue_key, "opensandbox:renew:intent", 0,
         "Renew intents", "key of the list"),
    ROW("renew-intent-queue-max-len", SET_INT, renew_intent_queue_max_len, "0", 0, 0, 0,
        "Renew intents", "longest list; 0 or less: no cap"),
    ROW("renew-intent-min-interval", SET_INT, renew_intent_min_interval, "60", -INFINITY, MANY, 0,
        "Renew intents", "seconds between two intents of a sandbox; 0 or less: no throttle"),
    BOOL("renew-on-traffic", renew_on_traffic, "true", "Renew intents",
         "a stream that moves bytes counts again once each interval"),

    BOOL("activity-enabled", activity_enabled, "false", "Activity",
         "write the time of the last request of each sandbox to Redis"),
    TEXT("activity-redis-dsn", activity_redis_dsn, "redis://127.0.0.1:6379/0", SETTING_SECRET,
         "Activity", "redis://, rediss:// or unix://"),
    ROW("activity-min-interval", SET_DURATION, activity_min_interval, "5s", 0, INFINITY, 0,
        "Activity", "between two writes for a sandbox; 0: each counts"),
    ROW("activity-ttl-seconds", SET_INT, activity_ttl_seconds, "1800", 1, MANY, 0, "Activity",
        "life of a key; must equal the server's value"),

    TEXT("fastpath-endpoint", fastpath_endpoint, "", SETTING_TRIM, "Fast Sandbox",
         "host:port of FastPath; turns Fast Sandbox routes on"),
    CHOICE("fastpath-access-mode", fastpath_access_mode, access_modes, "direct-fastlet-proxy",
           SETTING_TRIM, 0, "Fast Sandbox", "access mode asked for"),
    ROW("fastpath-wait-timeout-millis", SET_INT, fastpath_wait_timeout_millis, "2000", 1, 300000, 0,
        "Fast Sandbox", "deadline of each call, ms"),
    BOOL("wake-enabled", wake_enabled, "false", "Fast Sandbox",
         "a request to a paused sandbox waits while it is resumed"),
    ROW("wake-park-budget", SET_DURATION, wake_park_budget, "5s", 0, INFINITY, SETTING_EXCLUSIVE,
        "Fast Sandbox", "how long it waits"),
    ROW("wake-park-max", SET_INT, wake_park_max, "1024", 1, MANY, 0, "Fast Sandbox",
        "requests that wait"),
    ROW("wake-retry-interval", SET_DURATION, wake_retry_interval, "50ms", 0, INFINITY,
        SETTING_EXCLUSIVE, "Fast Sandbox", "first back-off between questions"),
    ROW("wake-retry-factor", SET_DOUBLE, wake_retry_factor, "1.3", 1, INFINITY, SETTING_EXCLUSIVE,
        "Fast Sandbox", "growth of the back-off"),
    ROW("wake-retry-jitter", SET_DOUBLE, wake_retry_jitter, "0.1", 0, INFINITY, 0, "Fast Sandbox",
        "part of the back-off added at random"),

    ROW("network-readiness-shadow-window", SET_DURATION, readiness_window, "1m", 0, INFINITY,
        SETTING_EXCLUSIVE, "Network readiness", "length of a window"),
    ROW("network-readiness-shadow-max-targets", SET_INT, readiness_max_targets, "1024", 1, MANY, 0,
        "Network readiness", "hosts told apart"),
    ROW("network-readiness-shadow-min-attempts", SET_INT, readiness_min_attempts, "20", 1, MANY, 0,
        "Network readiness", "connects before a window counts"),
    ROW("network-readiness-shadow-min-targets", SET_INT, readiness_min_targets, "5", 1, MANY, 0,
        "Network readiness", "hosts before a window counts"),
    ROW("network-readiness-shadow-min-signal-targets", SET_INT, readiness_min_signal_targets, "2",
        1, MANY, 0, "Network readiness",
        "hosts with timeouts or unreachable ones before it is degraded"),
    ROW("network-readiness-shadow-failure-ratio", SET_DOUBLE, readiness_failure_ratio, "0.2", 0, 1,
        SETTING_EXCLUSIVE, "Network readiness",
        "part of failed connects from which it is degraded"),
};

const struct schema ingress_schema = {
    .program = "sallyport-ingress",
    .usage = "sallyport-ingress [--flag=value ...], or sallyport-ingress sign [--flag=value ...]",
    .rows = rows,
    .nrows = sizeof rows / sizeof rows[0],
    .settings_bytes = sizeof(struct ingress_settings),
};

enum { SECRET_FILE_BYTES = 1 << 16, PEM_FILE_BYTES = 1 << 20 };

/* One line: the setting, the value or the part of it, what is allowed. */
static bool refuse(struct arena *a, struct str *ret_error, const char *name, struct str value,
                   const char *allowed)
{
    struct str shown = schema_quote(a, value);
    *ret_error = arena_printf(a, "%s: %.*s is wrong; allowed: %s", name, STR_ARG(shown), allowed);
    return false;
}

static bool refuse_because(struct arena *a, struct str *ret_error, const char *name,
                           const char *why)
{
    *ret_error = arena_printf(a, "%s: %s", name, why);
    return false;
}

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
    return good || refuse_because(a, ret_error, name, error);
}

/* --- rules between settings --- */

static bool judge_provider(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    if (s->routes.n && !s->provider_given)
        s->provider_type = PROVIDER_STATIC;
    if (s->routes.n && s->provider_type != PROVIDER_STATIC)
        return refuse_because(a, ret_error, "routes", "goes with provider-type static only");
    if (!s->routes.n && s->provider_type == PROVIDER_STATIC)
        return refuse_because(a, ret_error, "routes", "provider-type static needs a file");
    return true;
}

static bool judge_base_domain(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return !s->base_domain.n || is_name(s->base_domain) ||
           refuse(a, ret_error, "base-domain", s->base_domain, "a domain such as gw.example.com");
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
        return refuse_because(a, ret_error, "fastpath-endpoint",
                              "provider-type fast-sandbox needs it: host:port");
    if (s->fastpath_endpoint.n && !is_endpoint(s->fastpath_endpoint))
        return refuse(a, ret_error, "fastpath-endpoint", s->fastpath_endpoint, "host:port");
    if (s->fastpath_endpoint.n && !have)
        return refuse_because(a, ret_error, "secure-access-keys",
                              "fastpath-endpoint needs at least one key");
    return true;
}

static bool judge_wake(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return !s->wake_enabled || s->fastpath_endpoint.n ||
           refuse_because(a, ret_error, "wake-enabled",
                          "needs a Fast Sandbox provider: set fastpath-endpoint");
}

static bool judge_dsn(const char *name, bool on, struct str dsn, struct arena *a,
                      struct str *ret_error)
{
    struct dsn parsed;
    const char *why;
    return !on || dsn_parse(dsn, a, &parsed, &why) || refuse_because(a, ret_error, name, why);
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
        return refuse(a, ret_error, "trusted-proxies", bad,
                      "a comma list of networks such as 10.0.0.0/8,fd00::/8");
    if (!cidr_set_parse(s->allow_target_cidr, a, &nets, &bad))
        return refuse(a, ret_error, "allow-target-cidr", bad,
                      "a comma list of networks such as 127.0.0.0/8,::1");
    if (!port_set_parse(s->deny_ports, a, &ports, &bad))
        return refuse(a, ret_error, "deny-ports", bad,
                      "a comma list of ports and ranges such as 22,8000-8010");
    return true;
}

static bool judge_listeners(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    struct own_listener admin;
    if (!ingress_listener_parse(s->core.admin_addr, &admin))
        return refuse(a, ret_error, "admin-addr", s->core.admin_addr,
                      "address:port, [IPv6 address]:port, or :port for all addresses");
    /* listeners share their ports among the workers, so the kernel would not refuse this */
    if (admin.port && (admin.port == s->port || admin.port == s->tls_port))
        return refuse(a, ret_error, "admin-addr", s->core.admin_addr,
                      "a port that neither port nor tls-port has");
    if (s->tls_port && s->tls_port == s->port)
        return refuse_because(a, ret_error, "tls-port",
                              "port has the same value; allowed: another one");
    return true;
}

static bool judge_files(const char *name, struct str list, struct arena *a, struct str *ret_error,
                        unsigned *ret_count)
{
    *ret_count = 0;
    for (struct str path, text, error; str_next(&list, ',', &path); (*ret_count)++) {
        if (conf_read_file(str_trim(path), PEM_FILE_BYTES, a, &text, &error))
            continue;
        *ret_error = arena_printf(a, "%s: %.*s", name, STR_ARG(error));
        return false;
    }
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

static bool judge_tls(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    unsigned certs, keys, authorities;
    if (!s->tls_port)
        return true;
    if (!judge_files("tls-cert", s->tls_cert, a, ret_error, &certs) ||
        !judge_files("tls-key", s->tls_key, a, ret_error, &keys) ||
        !judge_files("tls-client-ca", s->tls_client_ca, a, ret_error, &authorities) ||
        !judge_folder("tls-cert-dir", s->tls_cert_dir, a, ret_error))
        return false;
    if (certs == 0 && !s->tls_cert_dir.n)
        return refuse_because(a, ret_error, "tls-port",
                              "needs a certificate: set tls-cert and tls-key, or tls-cert-dir");
    if (certs == keys)
        return true;
    *ret_error = arena_printf(
        a, "tls-key: %u files for %u of tls-cert; allowed: one key for each certificate", keys,
        certs);
    return false;
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
    return !blank || refuse_because(a, ret_error, name, "the file is blank");
}

static bool judge_lifecycle(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    if (s->provider_type != PROVIDER_LIFECYCLE)
        return true;
    if (!s->lifecycle_url.n)
        return refuse_because(
            a, ret_error, "lifecycle-url",
            "provider-type lifecycle needs it: http://host:port or https://host:port");
    if (!is_url(s->lifecycle_url))
        return refuse(a, ret_error, "lifecycle-url", s->lifecycle_url,
                      "http:// or https://, host, port and path, nothing else");
    if (s->lifecycle_api_key_file.n)
        return judge_secret_file("lifecycle-api-key-file", s->lifecycle_api_key_file, a, ret_error);
    return !is_blank(s->lifecycle_api_key) ||
           refuse_because(a, ret_error, "lifecycle-api-key-file",
                          "provider-type lifecycle needs it, or the variable "
                          "OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY");
}

static bool judge_admin_token(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    return !s->admin_token_file.n ||
           judge_secret_file("admin-token-file", s->admin_token_file, a, ret_error);
}

bool ingress_settings_check(struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    static bool (*const rules[])(struct ingress_settings *, struct arena *, struct str *) = {
        judge_provider,  judge_base_domain, judge_keys,       judge_wake,
        judge_redis,     judge_readiness,   judge_lists,      judge_listeners,
        judge_lifecycle, judge_tls,         judge_admin_token};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i](s, a, ret_error))
            return false;
    return true;
}

struct str ingress_settings_warnings(const struct ingress_settings *s, struct arena *a)
{
    struct str lines = STR_NONE;
    if (s->wake_enabled && s->wake_park_budget <= s->fastpath_wait_timeout_millis * 1000000)
        lines = STR("wake-park-budget: not above fastpath-wait-timeout-millis, so one slow call "
                    "uses it up");
    if (s->proxy_protocol && is_blank(s->trusted_proxies))
        lines = arena_printf(a, "%.*s%sproxy-protocol: has no effect without trusted-proxies",
                             STR_ARG(lines), lines.n ? "\n" : "");
    return lines;
}

struct str ingress_settings_missing(const struct ingress_settings *s, struct arena *a)
{
    const struct {
        bool asked;
        const char *name;
    } parts[] = {
        {s->renew_intent_enabled, "renew-intent-enabled"},
        {s->activity_enabled, "activity-enabled"},
        {s->fastpath_endpoint.n, "fastpath-endpoint"},
        {s->wake_enabled, "wake-enabled"},
        {s->tls_port, "tls-port"},
        {s->tls_cert.n, "tls-cert"},
        {s->tls_key.n, "tls-key"},
        {s->tls_cert_dir.n, "tls-cert-dir"},
        {s->tls_client_ca.n, "tls-client-ca"},
        {s->proxy_protocol, "proxy-protocol"},
        {s->backend_protocol == BACKEND_H2C, "backend-protocol=h2c"},
        {s->admin_token_file.n, "admin-token-file"},
        {s->max_connections_per_sandbox, "max-connections-per-sandbox"},
        {s->rate_limit_per_sandbox, "rate-limit-per-sandbox"},
    };
    if (s->provider_type != PROVIDER_STATIC)
        return arena_printf(
            a, "provider-type: \"%s\" is not in this version; allowed: static, with --routes=FILE",
            providers[s->provider_type]);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].asked)
            return arena_printf(a, "%s: this part is not in this version; leave the setting out",
                                parts[i].name);
    return STR_NONE;
}
