/* settings.h — the gateway's settings: O's flags, then ours (contract ingress 1.2, 1.3). */
#ifndef INGRESS_SETTINGS_H
#define INGRESS_SETTINGS_H

#include "conf/core.h"
#include "ingress/target.h"
#include "policies/signature.h"

enum provider {
    PROVIDER_BATCHSANDBOX,
    PROVIDER_AGENT_SANDBOX,
    PROVIDER_FAST_SANDBOX,
    PROVIDER_STATIC,
    PROVIDER_LIFECYCLE
};
enum mode_choice { MODE_AUTO, MODE_HEADER, MODE_WILDCARD, MODE_URI };
enum backend_host { BACKEND_HOST_TARGET, BACKEND_HOST_PRESERVE };
enum backend_protocol { BACKEND_AUTO, BACKEND_H1, BACKEND_H2C };

struct ingress_settings {
    struct settings core; /* first: common/ reads it */
    int64_t port;
    struct str ns;
    int provider_type;
    bool provider_given; /* --provider-type was set by somebody */
    int mode;
    struct str secure_access_keys, secure_access_keys_env, secure_access_keys_file;

    bool renew_intent_enabled;
    struct str renew_intent_redis_dsn, renew_intent_queue_key;
    int64_t renew_intent_queue_max_len, renew_intent_min_interval;
    bool activity_enabled;
    struct str activity_redis_dsn;
    int64_t activity_min_interval, activity_ttl_seconds;
    struct str fastpath_endpoint;
    int fastpath_access_mode;
    int64_t fastpath_wait_timeout_millis;
    bool wake_enabled;
    int64_t wake_park_budget, wake_park_max, wake_retry_interval;
    double wake_retry_factor, wake_retry_jitter;
    int64_t readiness_window, readiness_max_targets, readiness_min_attempts, readiness_min_targets,
        readiness_min_signal_targets;
    double readiness_failure_ratio;

    struct str base_domain;
    bool lenient_ports;
    int backend_host;
    struct str trusted_proxies, allow_target_cidr, deny_ports;
    int64_t signature_failure_limit;
    struct str routes;
    struct str lifecycle_url, lifecycle_api_key_file, lifecycle_api_key;
    int64_t lifecycle_cache, lifecycle_negative_cache, lifecycle_not_ready_cache,
        lifecycle_stale_max, lifecycle_max_calls, lifecycle_connect_timeout, lifecycle_timeout;
    int64_t tls_port;
    struct str tls_cert, tls_key, tls_cert_dir, tls_client_ca, tls_ticket_keys_file;
    bool proxy_protocol;
    int backend_protocol;
    bool forward_api_key, renew_on_traffic;
    int64_t max_connections_per_sandbox, rate_limit_per_sandbox;
    int64_t move_timeout;
    struct str admin_token_file;
};

extern const struct schema ingress_schema;

/* Rules between settings, and the syntax of what the rows cannot judge: networks, port lists, DSN,
 * key ring, listener addresses. A setting of a feature that is off is not looked at.  False: one
 * line.  Also derives provider_type from --routes. */
bool ingress_settings_check(struct ingress_settings *s, struct arena *a, struct str *ret_error);
/* What is allowed and still looks wrong: lines, each but the last ended by a line feed; empty:
 * nothing. */
struct str ingress_settings_warnings(const struct ingress_settings *s, struct arena *a);
/* The key ring's text: flag, else file, else variable (contract 1.3).  False: the file cannot be
 * read. */
bool ingress_settings_keys(const struct ingress_settings *s, struct arena *a, struct str *ret,
                           struct str *ret_error);
/* The same, parsed; see keyring_parse().  *ret_error names the setting it came from, never a value.
 */
bool ingress_settings_keyring(const struct ingress_settings *s, struct arena *a,
                              struct keyring **ret, char ret_warn[40], struct str *ret_error);
/* "127.0.0.1:28889", "[::1]:28889", ":28889" (all addresses); port 0: any free one. */
bool ingress_listener_parse(struct str text, struct own_listener *ret);

#endif
