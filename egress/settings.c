/* settings.c — the sidecar's settings as rows, one per variable.  A row holds what a table can say;
 * settings_check.c judges the texts that lists, addresses and URLs are. */
#include "egress/settings.h"

#include <math.h>
#include <stdlib.h>

static const char *const log_levels[] = {"debug", "info",  "warn", "warning",
                                         "error", "fatal", NULL};
static const char *const backends[] = {"auto", "iptables", "nft", NULL};
static const char *const profiles[] = {"sidecar", NULL};
static const char *const exits[] = {"deny", "remove", NULL};
static const char *const answers[] = {"allow", "deny", NULL};
static const char *const scopes[] = {"bound", "all", NULL};
static const char *const http_bindings[] = {"lease", "any", NULL};
static const char *const losses[] = {"refuse", "forward", NULL};
static const char *const oversizes[] = {"pass", "refuse", NULL};
static const char *const ca_keys[] = {"ec", "rsa2048", NULL};

#define MANY 1e9
#define SECONDS(n) ((n)*1e9)
#define PLAIN (SETTING_VARIABLE | SETTING_TRIM | SETTING_PLAIN)

#define NAMED(name, kind, field, def, min, max, choices, flags, group, help)                      \
    {                                                                                             \
        name, name, kind, offsetof(struct egress_settings, field), def, min, max, choices, flags, \
            group, help, 0                                                                        \
    }
#define ROW(name, kind, field, def, min, max, flags, group, help) \
    NAMED(EGRESS_VARIABLE name, kind, field, def, min, max, NULL, flags, group, help)
#define NAMED_GIVEN(name, kind, field, def, min, max, given, group, help)                          \
    {                                                                                              \
        EGRESS_VARIABLE name, EGRESS_VARIABLE name, kind, offsetof(struct egress_settings, field), \
            def, min, max, NULL, PLAIN, group, help, offsetof(struct egress_settings, given)       \
    }
#define TEXT(name, field, def, group, help) \
    ROW(name, SET_TEXT, field, def, 0, 0, SETTING_VARIABLE | SETTING_TRIM, group, help)
#define SECRET(name, field, group, help) \
    ROW(name, SET_TEXT, field, "", 0, 0, SETTING_VARIABLE | SETTING_SECRET, group, help)
#define FOREIGN(name, field, group, help) \
    NAMED(name, SET_TEXT, field, "", 0, 0, NULL, SETTING_VARIABLE | SETTING_TRIM, group, help)
#define BOOL(name, field, def, group, help) \
    ROW(name, SET_BOOL, field, def, 0, 0, PLAIN, group, help)
#define INT(name, field, def, min, max, group, help) \
    ROW(name, SET_INT, field, def, min, max, PLAIN, group, help)
#define WAIT(name, field, def, least, group, help) \
    ROW(name, SET_DURATION, field, def, SECONDS(least), INFINITY, PLAIN, group, help)
#define BYTES(name, field, def, min, max, group, help) \
    ROW(name, SET_BYTES, field, def, min, max, PLAIN, group, help)
#define CHOICE(name, field, choices, def, group, help)                                           \
    NAMED(EGRESS_VARIABLE name, SET_CHOICE, field, def, 0, 0, choices, PLAIN | SETTING_ANY_CASE, \
          group, help)

static const struct setting rows[] = {
    TEXT("MODE", mode_text, "dns", "Program",
         "dns, dns+nft (addresses and ports too), or proxy (the explicit proxy alone)"),
    CHOICE("LOG_LEVEL", core.log_level, log_levels, "info", "Program",
           "least level that is logged: debug, info, warn, error or fatal"),
    FOREIGN("OPENSANDBOX_LOG_OUTPUT", log_output, "Program",
            "comma list of stdout, stderr and files; blank: stdout"),
    ROW("SANDBOX_ID", SET_TEXT, sandbox_id, "", 0, 0, SETTING_VARIABLE, "Program",
        "stands in webhook calls, log lines and metrics"),
    BOOL("ALLOW_UNENFORCED", allow_unenforced, "off", "Program",
         "run and be healthy without the kernel's help"),
    CHOICE("ON_EXIT", on_exit, exits, "deny", "Program",
           "deny: nothing leaves afterwards; remove: all rules are taken away"),
    WAIT("DRAIN_TIMEOUT", core.drain_timeout, "8", 0, "Program",
         "seconds for the end after SIGTERM"),
    CHOICE("PROFILE", profile, profiles, "sidecar", "Program", "sidecar"),
    WAIT("PENDING_PUSH_TTL", pending_push_ttl, "30", 1, "Program", "taken and ignored"),
    BOOL("EXPERIMENTAL_REVISION_RUNTIME", revision_runtime, "off", "Program",
         "not in this version"),
    TEXT("QUARANTINE_ID", quarantine_id, "", "Program", "not in this version"),

    TEXT("HTTP_ADDR", http_addr, ":18080", "Policy", "listener of the policy API, host:port"),
    SECRET("TOKEN", token, "Policy",
           "what clients of the API send; none: loopback peers only are served"),
    TEXT("RULES", rules, "", "Policy", "the policy to start with, JSON; none: deny all"),
    TEXT("POLICY_FILE", policy_file, "", "Policy",
         "keeps the policy over restarts; what it holds wins over RULES"),
    INT("MAX_RULES", max_rules, "4096", 0, MANY, "Policy",
        "rules of the API's policy; 0: no limit"),

    TEXT("DNS_UPSTREAM", upstream_text, "", "DNS",
         "comma list of IP[:port] to ask; none: those of /etc/resolv.conf"),
    WAIT("DNS_UPSTREAM_TIMEOUT", dns_timeout, "5", 1, "DNS",
         "seconds for each upstream and query, at most 120"),
    TEXT("DNS_UPSTREAM_PROBE", probe, "", "DNS", "name that probes ask for; none: . NS"),
    WAIT("DNS_UPSTREAM_PROBE_INTERVAL_SEC", probe_interval, "10", 1, "DNS",
         "seconds between probes, at most 3600"),
    TEXT("NAMESERVER_EXEMPT", exempt_text, "", "DNS",
         "comma list of addresses that the workload may ask itself, unfiltered"),
    CHOICE("PRIVATE_ANSWERS", private_answers, answers, "allow", "DNS",
           "deny: private addresses are taken out of answers as well"),

    BOOL("BLOCK_DOH_443", block_doh, "off", "Kernel",
         "TCP 443 is refused, to DOH_BLOCKLIST or, without a list, to everybody"),
    TEXT("DOH_BLOCKLIST", doh_text, "", "Kernel", "comma list of addresses and networks"),
    CHOICE("REDIRECT_BACKEND", redirect_backend, backends, "auto", "Kernel",
           "auto, iptables or nft: rules are always nftables"),

    BOOL("MITMPROXY_TRANSPARENT", mitm, "off", "Connections",
         "ports 80, 443 and the extra ones are redirected to us"),
    INT("MITMPROXY_PORT", mitm_port, "18081", 1, 65535, "Connections",
        "where redirected connections arrive"),
    TEXT("MITMPROXY_EXTRA_PORTS", extra_ports_text, "", "Connections",
         "comma list of up to 13 further ports"),
    CHOICE("MITM_SCOPE", mitm_scope, scopes, "bound", "Connections",
           "which TLS is read: bound, of hosts that a binding names; or all"),
    TEXT("MITMPROXY_SCRIPT", script, "", "Connections", "must be blank: scripts cannot run here"),
    TEXT("MITMPROXY_UPSTREAM_TRUST_DIR", trust_dir, "/etc/ssl/certs", "Connections",
         "folder of certificates that origins and an https upstream proxy are verified by"),
    TEXT("MITMPROXY_UPSTREAM_EXTRA_CA", extra_ca, "", "Connections", "PEM file with more of them"),
    BOOL("MITMPROXY_SSL_INSECURE", ssl_insecure, "off", "Connections",
         "they are not verified; the vault takes no writes then"),
    BOOL("MITMPROXY_SHADOW", shadow, "off", "Connections", "taken and ignored"),
    CHOICE("MITM_CA_KEY", ca_key, ca_keys, "ec", "Connections",
           "key of an authority that is made: ec (P-256), or rsa2048 for old clients"),
    TEXT("PROXY_ADDR", proxy_addr, "", "Connections",
         "listener of the explicit proxy, host:port; none: off, but 127.0.0.1:18082 in mode proxy"),
    TEXT("PROXY_CLIENTS", proxy_clients_text, "", "Connections",
         "comma list of networks that may use it besides this namespace"),
    TEXT("UPSTREAM_PROXY", parent_text, "", "Connections",
         "http:// or https:// proxy that everything leaves through"),
    SECRET("UPSTREAM_PROXY_AUTH", parent_auth, "Connections", "credentials for it"),

    BOOL("CREDENTIAL_VAULT_REQUIRE_TLS", vault_tls, "off", "Vault",
         "writes need loopback, TLS, or a trusted proxy that says https"),
    TEXT("CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS", vault_proxies_text, "", "Vault",
         "comma list of networks whose X-Forwarded-Proto counts for that"),
    BOOL("CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH", vault_scoped, "off", "Vault",
         "each binding must name its methods and paths"),
    WAIT("VAULT_READY_WAIT", vault_ready_wait, "30", 0, "Vault",
         "seconds that a write waits until connections can be intercepted"),
    INT("VAULT_MAX_CREDENTIALS", vault_max_credentials, "2000", 1, 10000, "Vault",
        "credentials of a vault"),
    INT("VAULT_MAX_BINDINGS", vault_max_bindings, "2000", 1, 10000, "Vault", "bindings of a vault"),
    CHOICE("VAULT_LOST", vault_lost, losses, "refuse", "Vault",
           "requests to hosts of a vault that a crash took away: refuse, or forward as they are"),
    CHOICE("HTTP_BINDING_ADDRESS", http_binding, http_bindings, "lease", "Vault",
           "where credentials go in plain HTTP: lease, addresses that our DNS told; or any"),
    BOOL("SCRUB_BODIES", scrub_bodies, "on", "Vault",
         "secrets are masked in bodies of answers, not in fields alone"),
    INT("SCRUB_BODY_MIN", scrub_body_min, "6", 1, 65536, "Vault",
        "least bytes of a secret that is searched for in bodies"),
    NAMED_GIVEN("BODY_SUBSTITUTION_MAX", SET_BYTES, body_max, "1MiB", 0, 67108864, body_max_given,
                "Vault", "longest request body that placeholders are filled into"),
    CHOICE("BODY_SUBSTITUTION_OVERSIZE", body_oversize, oversizes, "pass", "Vault",
           "longer ones: pass as they are, or refuse"),
    FOREIGN("OPENSANDBOX_CREDENTIAL_PROXY_SOCKET", vault_socket, "Vault", "taken and ignored"),

    TEXT("DENY_WEBHOOK", deny_webhook, "", "Events", "URL that is told of denied names"),
    TEXT("METRICS_EXTRA_ATTRS", attrs_text, "", "Events",
         "comma list of key=value for metrics and log lines"),
    TEXT("ADMIN_ADDR", core.admin_addr, "", "Events",
         "listener of /healthz, /readyz, /metrics and /debug, host:port; none: off"),
    FOREIGN("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", otlp_metrics_endpoint, "Events",
            "URL for metrics"),
    FOREIGN("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_endpoint, "Events", "the same, for all signals"),
    FOREIGN("HOST_IP", host_ip, "Events", "without those: http://HOST_IP:4318"),
    FOREIGN("OTEL_SDK_DISABLED", otel_disabled, "Events", "true: no metrics are sent"),
    FOREIGN("OTEL_METRICS_EXPORTER", otel_exporter, "Events", "none: no metrics are sent"),
    FOREIGN("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", otlp_temporality, "Events",
            "delta or cumulative; blank: delta"),

    INT("API_MAX_CONNECTIONS", api_max_connections, "256", 1, MANY, "Limits",
        "to the API; one more takes the place of the oldest that has shown no token"),
    WAIT("API_HEAD_TIMEOUT", api_head_timeout, "10", 1, "Limits", "a request head"),
    WAIT("API_BODY_TIMEOUT", api_body_timeout, "30", 1, "Limits", "a body, and taking an answer"),
    WAIT("API_IDLE_TIMEOUT", api_idle_timeout, "60", 1, "Limits", "an idle connection"),
    BYTES("MAX_BODY_BYTES", max_body_bytes, "1MiB", 1024, 67108864, "Limits", "one body"),
    BYTES("MAX_BODIES_BYTES", max_bodies_bytes, "16MiB", 1024, 1073741824, "Limits",
          "all bodies that are being read"),
    BYTES("SCRUB_MEMORY_MAX", scrub_memory, "64MiB", 33554432, 1073741824, "Limits",
          "windows of all decoders for answers that are scrubbed"),
    WAIT("KERNEL_TIMEOUT", kernel_timeout, "30", 1, "Limits", "a change of the kernel's rules"),
    INT("DNS_MAX_INFLIGHT", dns_max_inflight, "1024", 1, 65535, "Limits",
        "questions that wait for an upstream"),
    INT("DNS_MAX_RATE", dns_max_rate, "2000", 0, MANY, "Limits",
        "questions a second that are sent upstream; 0: no limit"),
    INT("DNS_MAX_DOMAIN_RATE", dns_max_domain_rate, "200", 0, MANY, "Limits",
        "the same below one domain, ten times as many at once; 0: no limit"),
    INT("DNS_CACHE_SIZE", dns_cache_size, "4096", 0, 1000000, "Limits", "answers kept; 0: none"),
    INT("DNS_TCP_MAX_CONNECTIONS", dns_tcp_max_connections, "256", 1, 65535, "Limits",
        "DNS clients over TCP"),
    INT("DNS_TCP_MAX_QUERIES", dns_tcp_max_queries, "128", 1, MANY, "Limits",
        "questions on one of their connections"),
    WAIT("DNS_TCP_IDLE_TIMEOUT", dns_tcp_idle_timeout, "8", 1, "Limits",
         "an idle one of their connections"),
    WAIT("LEARN_TIMEOUT", learn_timeout, "5", 1, "Limits",
         "until a learned address is in the kernel"),
    INT("MAX_LEARNED", max_learned, "16384", 64, 1000000, "Limits", "learned addresses"),
    INT("MAX_LEARNED_PER_NAME", max_learned_per_name, "256", 1, 65536, "Limits",
        "learned addresses of one name"),
    INT("RELAY_MAX_CONNECTIONS", relay_max_connections, "4096", 1, MANY, "Limits",
        "redirected connections"),
    WAIT("FIRST_BYTES_TIMEOUT", first_bytes_timeout, "10", 1, "Limits",
         "what a redirected connection begins with"),
    INT("WEBHOOK_QUEUE", webhook_queue, "256", 1, 65536, "Limits", "events that wait"),
    WAIT("WEBHOOK_TIMEOUT", webhook_timeout, "5", 1, "Limits", "one call of the webhook"),
    WAIT("HEAD_TIMEOUT", core.head_timeout, "30", 1, "Limits", "a request head to the proxy"),
    WAIT("KEEP_ALIVE_TIMEOUT", core.keep_alive_timeout, "600", 1, "Limits",
         "an idle connection to the proxy"),
    WAIT("CONNECT_TIMEOUT", core.connect_timeout, "30", 1, "Limits", "name and connect"),
    WAIT("DECIDE_TIMEOUT", core.decide_timeout, "10", 1, "Limits", "a decision that has to wait"),
    WAIT("RESPONSE_TIMEOUT", core.response_timeout, "3600", 1, "Limits",
         "until the final head of an answer"),
    WAIT("IDLE_TIMEOUT", core.idle_timeout, "600", 1, "Limits",
         "a body without a byte in either direction"),
    WAIT("TUNNEL_IDLE_TIMEOUT", core.tunnel_idle_timeout, "0", 0, "Limits",
         "the same for a tunnel; 0: none"),
    WAIT("HALF_CLOSE_TIMEOUT", core.half_close_timeout, "60", 1, "Limits",
         "a tunnel of which one direction has ended"),
    WAIT("LINGER_TIMEOUT", core.linger_timeout, "5", 1, "Limits",
         "reading the rest of a request that was answered early"),
    WAIT("BACKEND_IDLE_TIMEOUT", core.backend_idle_timeout, "90", 1, "Limits",
         "an idle connection to an origin"),
    INT("BACKEND_IDLE_MAX", core.backend_idle_max, "8", 0, MANY, "Limits",
        "idle connections per origin"),
    INT("MAX_HEAD_FIELDS", core.max_fields, "256", 1, 65536, "Limits", "fields of a request head"),
    BYTES("MAX_HEAD_BYTES", core.max_head_bytes, "64KiB", 1024, 67108864, "Limits",
          "request and answer heads"),
    INT("MAX_CONNECTIONS", core.max_connections, "0", 0, MANY, "Limits",
        "client connections; 0: half of what the descriptor limit allows"),
    BYTES("MAX_MEMORY", core.max_memory, "128MiB", 0, INFINITY, "Limits",
          "heads and bodies held; 0: no cap"),
};

const struct schema egress_schema = {
    .program = "sallyport-egress",
    .usage = "sallyport-egress, set by its environment; flags are actions only",
    .rows = rows,
    .nrows = sizeof rows / sizeof rows[0],
    .settings_bytes = sizeof(struct egress_settings),
};

/* A token is taken as it is, so a blank one is not the same as none. */
const char *egress_getenv(const char *name)
{
    const char *value = getenv(name);
    if (!value || strcmp(name, EGRESS_VARIABLE "TOKEN") == 0)
        return value;
    return value[strspn(value, " \t\r\n\v\f")] ? value : NULL;
}

void egress_settings_config(struct egress_settings *s, int64_t stream_large_bodies)
{
    enum { MOST = 64 << 20 };
    if (!s->body_max_given && stream_large_bodies >= 0)
        s->body_max = stream_large_bodies < MOST ? stream_large_bodies : MOST;
}
