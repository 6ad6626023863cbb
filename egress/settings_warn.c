/* settings_warn.c — what settings say that is good and still deserves a line: what is not in this
 * version, what has no effect, what opens more than it seems to. */
#include "egress/settings.h"

#include <unistd.h>

#define V(name) EGRESS_VARIABLE name

#define NO_PUSH \
    "metrics are not sent anywhere in this version; " V("ADMIN_ADDR") " shows them on /metrics"

struct str egress_settings_missing(const struct egress_settings *s, struct arena *a)
{
    const struct {
        bool asked;
        const char *name;
    } parts[] = {
        {s->revision_runtime, V("EXPERIMENTAL_REVISION_RUNTIME")},
        {s->quarantine_id.n, V("QUARANTINE_ID")},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].asked)
            return arena_printf(a, "%s: this part is not in this version; leave the setting out",
                                parts[i].name);
    return STR_NONE;
}

static struct str add_line(struct arena *a, struct str lines, const char *name, const char *text)
{
    return arena_printf(a, "%.*s%s%s: %s", STR_ARG(lines), lines.n ? "\n" : "", name, text);
}

static struct str unknown_variables(struct arena *a, struct str lines)
{
    for (char **at = environ; at && *at; at++) {
        struct str name = str_of(*at);
        ptrdiff_t equals = str_chr(name, '=');
        name = equals < 0 ? name : str_head(name, (size_t)equals);
        if (!str_starts(name, STR(EGRESS_VARIABLE)) || schema_find(&egress_schema, name))
            continue;
        struct str shown = schema_quote(a, name);
        lines = add_line(a, lines, arena_printf(a, "%.*s", STR_ARG(shown)).p,
                         "nobody reads this variable");
    }
    return lines;
}

static bool has_endpoint(const struct egress_settings *s)
{
    return s->otlp_metrics_endpoint.n || s->otlp_endpoint.n;
}

struct str egress_settings_warnings(const struct egress_settings *s, struct arena *a)
{
    enum { BACKEND_IPTABLES = 1 };
    const struct {
        bool told;
        const char *name, *text;
    } all[] = {
        {s->timeout_capped, V("DNS_UPSTREAM_TIMEOUT"), "120 is used, the most there can be"},
        {s->interval_capped, V("DNS_UPSTREAM_PROBE_INTERVAL_SEC"),
         "3600 is used, the most there can be"},
        {s->doh.n && !s->block_doh, V("DOH_BLOCKLIST"),
         "has no effect without " V("BLOCK_DOH_443")},
        {s->block_doh && s->mode != EGRESS_DNS_NFT, V("BLOCK_DOH_443"),
         "has no effect without mode dns+nft"},
        {s->redirect_backend == BACKEND_IPTABLES, V("REDIRECT_BACKEND"),
         "rules are made by nftables all the same"},
        {s->nexempt, V("NAMESERVER_EXEMPT"), "these name servers answer the workload unfiltered"},
        {s->proxy_clients.n && !s->proxy_addr.n, V("PROXY_CLIENTS"),
         "has no effect without " V("PROXY_ADDR")},
        {s->shadow, V("MITMPROXY_SHADOW"), "is taken and has no effect"},
        {s->http_binding == EGRESS_HTTP_ANY, V("HTTP_BINDING_ADDRESS"),
         "credentials go in clear to whatever address the workload names"},
        {s->ssl_insecure, V("MITMPROXY_SSL_INSECURE"),
         "nobody knows who the origins are; the vault takes no writes"},
        {!s->no_metrics && s->otlp_metrics_endpoint.n, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
         NO_PUSH},
        {!s->no_metrics && s->otlp_endpoint.n, "OTEL_EXPORTER_OTLP_ENDPOINT", NO_PUSH},
        {!s->no_metrics && !has_endpoint(s) && s->host_ip.n, "HOST_IP", NO_PUSH},
        {s->vault_socket.n, "OPENSANDBOX_CREDENTIAL_PROXY_SOCKET", "is taken and has no effect"},
    };
    struct str lines = STR_NONE;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].told)
            lines = add_line(a, lines, all[i].name, all[i].text);
    return unknown_variables(a, lines);
}
