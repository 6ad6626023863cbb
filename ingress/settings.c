/* settings.c — the gateway's settings as rows.  All that a row can say of a setting stands in it;
 * what it cannot hold is in settings_check.c. */
#include "ingress/settings.h"

#include <math.h>

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

#define SPAN(name, field, def, help) \
    ROW(name, SET_DURATION, field, def, 0, INFINITY, 0, "Sandboxes", help)

#define MANY 1e9
#define MAX_STREAMS 1e6 /* far from what SETTINGS_MAX_CONCURRENT_STREAMS can say */

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
         "listener of /healthz, /readyz, /metrics, /debug and /routes; \":PORT\" means all "
         "addresses"),
    TEXT("admin-token-file", admin_token_file, "", 0, "Listeners",
         "file with the bearer token for /routes on the admin listener, static provider only; "
         "without "
         "it /routes is 404"),
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
    TEXT("tls-ticket-keys-file", tls_ticket_keys_file, "", 0, "Listeners",
         "file with keys of session tickets, the same for all replicas; without it they are made "
         "at random"),

    CHOICE("mode", mode, modes, "auto", 0, 0, "Routes",
           "which parts of a request name its sandbox; wildcard is header"),
    TEXT("base-domain", base_domain, "", 0, "Routes",
         "Hosts under this domain are routes, all others are not"),
    BOOL("lenient-ports", lenient_ports, "false", "Routes",
         "signs and leading zeros are allowed in the ports of routes"),
    TEXT("deny-ports", deny_ports, "", 0, "Routes",
         "comma list of ports and ranges a-b; routes to them are 403"),

    CHOICE("provider-type", provider_type, providers, "batchsandbox", 0, AT(provider_given),
           "Sandboxes",
           "what finds sandboxes: objects of a cluster, FastPath, a file, or the lifecycle server"),
    TEXT("namespace", ns, "opensandbox", 0, "Sandboxes",
         "taken and ignored: the watch is cluster-wide"),
    TEXT("routes", routes, "", 0, "Sandboxes",
         "JSON file of the static provider; given alone it makes provider-type static, which does "
         "without it only where there is an admin-token-file"),
    TEXT("lifecycle-url", lifecycle_url, "", 0, "Sandboxes",
         "server that the lifecycle provider asks"),
    TEXT("lifecycle-api-key-file", lifecycle_api_key_file, "", 0, "Sandboxes",
         "file with the key for it"),
    VARIABLE("OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY", lifecycle_api_key, "Sandboxes",
             "the key, where lifecycle-api-key-file is not set"),
    SPAN("lifecycle-cache", lifecycle_cache, "2s",
         "how long a good answer is used; 0: for the requests that waited for it"),
    SPAN("lifecycle-negative-cache", lifecycle_negative_cache, "1s",
         "the same for a sandbox that is not there"),
    SPAN("lifecycle-not-ready-cache", lifecycle_not_ready_cache, "500ms",
         "the same for one that is not ready"),
    SPAN("lifecycle-stale-max", lifecycle_stale_max, "1m",
         "how old a good answer may become while the server is in trouble"),
    ROW("lifecycle-max-calls", SET_INT, lifecycle_max_calls, "32", 1, MANY, 0, "Sandboxes",
        "calls to it at a time"),
    ROW("lifecycle-connect-timeout", SET_DURATION, lifecycle_connect_timeout, "1s", 0, INFINITY,
        SETTING_EXCLUSIVE, "Sandboxes", "name, connect and TLS"),
    ROW("lifecycle-timeout", SET_DURATION, lifecycle_timeout, "3s", 0, INFINITY, SETTING_EXCLUSIVE,
        "Sandboxes", "a whole call"),

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
        "Forwarding", "requests and tunnels in progress to one sandbox; 0: no limit"),
    ROW("rate-limit-per-sandbox", SET_INT, rate_limit_per_sandbox, "0", 0, MANY, 0, "Forwarding",
        "requests a second to one sandbox, and as many at once; 0: no limit"),

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
    ROW("move-timeout", SET_DURATION, move_timeout, "5s", 0, INFINITY, 0, "Limits",
        "answers of an address that its sandbox has left; 0: they are cut"),
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
    CORE("h2-max-streams", SET_INT, h2_max_streams, "256", 1, MAX_STREAMS, 0,
         "requests and tunnels that a client may have open on one HTTP/2 connection"),
    CORE("h2-max-resets", SET_INT, h2_max_resets, "200", 1, MANY, 0,
         "streams reset ahead of those that ended well before an HTTP/2 connection is closed"),
    CORE("h2-max-control-frames", SET_INT, h2_max_control, "1000", 1, MANY, 0,
         "frames that carry nothing ahead of those that do before an HTTP/2 connection is closed"),
    CORE("max-connections", SET_INT, max_connections, "0", 0, MANY, 0,
         "client connections; 0: half of what the descriptor limit allows"),
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
         "a request to a paused sandbox of FastPath waits while it is resumed"),
    ROW("wake-park-budget", SET_DURATION, wake_park_budget, "5s", 0, INFINITY, SETTING_EXCLUSIVE,
        "Fast Sandbox", "how long it waits, and a resume may take"),
    ROW("wake-park-max", SET_INT, wake_park_max, "1024", 1, MANY, 0, "Fast Sandbox",
        "requests that wait, for all sandboxes together"),
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
