/* settings.h — the sidecar's settings: O's variables, then ours, then limits (contract
 * egress-policy 1.1 to 1.3).  There are no flags but the four of every program. */
#ifndef EGRESS_SETTINGS_H
#define EGRESS_SETTINGS_H

#include "conf/core.h"
#include "net/addr.h"
#include "policies/cidr.h"

#define EGRESS_VARIABLE "OPENSANDBOX_EGRESS_"

enum egress_mode { EGRESS_DNS, EGRESS_DNS_NFT, EGRESS_PROXY };
enum egress_exit { EGRESS_EXIT_DENY, EGRESS_EXIT_REMOVE };
enum egress_private { EGRESS_PRIVATE_ALLOW, EGRESS_PRIVATE_DENY };
enum egress_scope { EGRESS_SCOPE_BOUND, EGRESS_SCOPE_ALL };
enum egress_http_binding { EGRESS_HTTP_LEASE, EGRESS_HTTP_ANY };
enum egress_lost { EGRESS_LOST_REFUSE, EGRESS_LOST_FORWARD };
enum egress_oversize { EGRESS_OVERSIZE_PASS, EGRESS_OVERSIZE_REFUSE };
enum egress_ca_key { EGRESS_CA_EC, EGRESS_CA_RSA2048 };
enum { EGRESS_EXTRA_PORTS_MAX = 13 };

/* Where E_UPSTREAM_PROXY leads; host empty: there is none. */
struct egress_parent {
    struct str host; /* an address without brackets, or a name */
    uint16_t port;
    bool tls;
};

struct egress_settings {
    struct settings core; /* first: common/ reads it */

    /* as given, trimmed */
    struct str mode_text, http_addr, token, rules, policy_file, deny_webhook, sandbox_id;
    struct str attrs_text, exempt_text, upstream_text, probe, doh_text, extra_ports_text;
    struct str script, trust_dir, extra_ca, vault_proxies_text, vault_socket;
    struct str parent_text, parent_auth, quarantine_id, log_output;
    struct str otlp_metrics_endpoint, otlp_endpoint, host_ip, otel_disabled, otel_exporter,
        otlp_temporality;
    struct str proxy_addr, proxy_clients_text;
    int64_t max_rules, mitm_port, pending_push_ttl; /* the last one: ns */
    int64_t dns_timeout, probe_interval;            /* ns */
    bool block_doh, mitm, ssl_insecure, shadow, vault_tls, vault_scoped, revision_runtime,
        allow_unenforced;
    int redirect_backend, profile;            /* nothing depends on them */
    int on_exit, private_answers, mitm_scope; /* the enums above */
    int http_binding, vault_lost, body_oversize, ca_key;
    bool scrub_bodies, body_max_given;
    int64_t scrub_memory; /* bytes */
    int64_t scrub_body_min, body_max /* bytes */, vault_ready_wait /* ns */;
    int64_t vault_max_credentials, vault_max_bindings;
    int64_t api_max_connections, max_body_bytes, max_bodies_bytes;
    int64_t api_head_timeout, api_body_timeout, api_idle_timeout, kernel_timeout; /* ns */
    int64_t dns_max_inflight, dns_max_rate, dns_max_domain_rate, dns_cache_size,
        dns_tcp_max_connections, dns_tcp_max_queries;
    int64_t dns_tcp_idle_timeout, learn_timeout; /* ns */
    int64_t max_learned, max_learned_per_name;
    int64_t relay_max_connections, first_bytes_timeout /* ns */;
    int64_t webhook_queue, webhook_timeout /* ns */;

    /* what the texts say; set by egress_settings_check(), in its arena */
    enum egress_mode mode;
    union addr http, proxy, admin; /* family 0: none */
    const struct ip *exempt;       /* E_NAMESERVER_EXEMPT, each once */
    size_t nexempt;
    const union addr *upstreams; /* E_DNS_UPSTREAM, each once; none: resolv.conf */
    size_t nupstreams;
    struct cidr_set doh, proxy_clients, vault_proxies;
    uint16_t extra_ports[EGRESS_EXTRA_PORTS_MAX];
    unsigned nextra_ports;
    const struct field *attrs; /* E_METRICS_EXTRA_ATTRS */
    size_t nattrs;
    struct egress_parent parent;
    bool no_metrics;                      /* OTEL_SDK_DISABLED, OTEL_METRICS_EXPORTER */
    bool timeout_capped, interval_capped; /* worth a warning */

    /* what a predecessor left (handover.h); not a variable */
    struct str lost_hosts; /* lost_read() reads it; empty: none */
};

extern const struct schema egress_schema;

/* The process's environment without the variables that are blank: those are not set (1.1).  For
 * struct command. */
const char *egress_getenv(const char *name);
/* Fills the second half of the struct.  False: one line that names the variable. */
bool egress_settings_check(struct egress_settings *s, struct arena *a, struct str *ret_error);
/* Settings that ask for a part this version does not have: one line; empty: all there. */
struct str egress_settings_missing(const struct egress_settings *s, struct arena *a);
/* What is allowed and still looks wrong, variables nobody knows included: lines, each but the last
 * ended by a line feed. */
struct str egress_settings_warnings(const struct egress_settings *s, struct arena *a);
/* What config.yaml says stands between the variables and their defaults; bytes, -1: nothing. */
void egress_settings_config(struct egress_settings *s, int64_t stream_large_bodies);
/* "dns", "dns+nft" or "proxy"; static. */
const char *egress_mode_text(enum egress_mode mode);
/* A name server that the workload may ask itself. */
bool egress_is_exempt(const struct egress_settings *s, const struct ip *ip);

#endif
