/* settings_check.c — judges what rows cannot: lists, addresses, URLs, and what goes with what. Each
 * rule looks at one matter and names the variable; what it has read it keeps, so that nobody reads
 * a text twice. */
#include "egress/settings.h"

#include <unistd.h>

#include "base/text.h"
#include "egress/dns/upstreams.h"
#include "http/url.h"
#include "policies/document.h"
#include "policies/domains.h"

#define V(name) EGRESS_VARIABLE name

/* The next part of a comma list that is not blank, trimmed. */
static bool next_part(struct str *rest, struct str *ret)
{
    while (str_next(rest, ',', ret)) {
        *ret = target_trim(*ret);
        if (ret->n)
            return true;
    }
    return false;
}

static size_t count_parts(struct str list)
{
    size_t n = 0;
    for (struct str part; next_part(&list, &part);)
        n++;
    return n;
}

const char *egress_mode_text(enum egress_mode mode)
{
    static const char *const texts[] = {
        [EGRESS_DNS] = "dns", [EGRESS_DNS_NFT] = "dns+nft", [EGRESS_PROXY] = "proxy"};
    return texts[mode];
}

/* ---- mode and listeners */

static bool judge_mode(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct str rest = s->mode_text, token;
    bool dns = false, nft = false, bad = false;
    if (str_ieq(s->mode_text, STR("proxy"))) {
        s->mode = EGRESS_PROXY;
        return true;
    }
    while (str_next(&rest, '+', &token)) {
        token = target_trim(token);
        bool is_dns = str_ieq(token, STR("dns")), is_nft = str_ieq(token, STR("nft"));
        dns |= is_dns;
        nft |= is_nft;
        bad |= token.n && !is_dns && !is_nft;
    }
    s->mode = nft ? EGRESS_DNS_NFT : EGRESS_DNS;
    return (dns && !bad) ||
           schema_refuse(a, ret_error, V("MODE"), s->mode_text, "dns, dns+nft or proxy");
}

/* "address:port", "[address]:port", ":port" for all addresses, "localhost:port". */
static bool parse_listener(struct str text, union addr *ret)
{
    union addr addr;
    char literal[32] = "127.0.0.1";
    if (str_istarts(text, STR("localhost:")) && text.n <= 15) {
        struct str port = str_skip(text, 9);
        memcpy(literal + 9, port.p, port.n);
        text = (struct str){literal, 9 + port.n};
    }
    if (!addr_parse(text, &addr) || addr_port(&addr.sa) == 0)
        return false;
    *ret = addr;
    return true;
}

static bool judge_listener(const char *name, struct str text, union addr *ret, struct arena *a,
                           struct str *ret_error)
{
    return text.n == 0 || parse_listener(text, ret) ||
           schema_refuse(a, ret_error, name, text,
                         "address:port, [IPv6 address]:port, or :port for all addresses");
}

static bool judge_listeners(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    if (s->mode == EGRESS_PROXY && s->proxy_addr.n == 0)
        s->proxy_addr = STR("127.0.0.1:18082");
    return judge_listener(V("HTTP_ADDR"), s->http_addr, &s->http, a, ret_error) &&
           judge_listener(V("PROXY_ADDR"), s->proxy_addr, &s->proxy, a, ret_error) &&
           judge_listener(V("ADMIN_ADDR"), s->core.admin_addr, &s->admin, a, ret_error);
}

/* What stands in a field of HTTP, which cuts blanks off its ends: such a secret could never be
 * shown. */
static bool judge_secret(const char *name, struct str secret, struct arena *a,
                         struct str *ret_error)
{
    bool good = secret.n == str_trim(secret).n;
    for (size_t i = 0; i < secret.n; i++)
        good &= (unsigned char)secret.p[i] >= ' ' && secret.p[i] != 127;
    return good ||
           schema_refuse_because(a, ret_error, name,
                                 "\"***\" is wrong; allowed: a text without control characters "
                                 "and without blanks at its ends");
}

static bool judge_secrets(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    return judge_secret(V("TOKEN"), s->token, a, ret_error) &&
           judge_secret(V("UPSTREAM_PROXY_AUTH"), s->parent_auth, a, ret_error);
}

/* With a policy file the text is looked at only if that holds nothing (3.7). */
static bool judge_rules(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct json_fault fault;
    struct document d;
    if (s->policy_file.n)
        return true;
    if (!document_parse(s->rules, &d, &fault)) {
        *ret_error =
            arena_printf(a, V("RULES") ": %u:%u: %s", fault.line, fault.column, fault.text);
        return false;
    }
    document_done(&d);
    return true;
}

/* ---- DNS */

static bool judge_upstreams(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct upstreams u;
    struct str bad;
    if (s->upstream_text.n == 0)
        return true;
    if (!upstreams_parse(s->upstream_text, a, &u, &bad))
        return schema_refuse(a, ret_error, V("DNS_UPSTREAM"), bad,
                             "a comma list of addresses, each with a port if it is not 53");
    s->upstreams = u.at;
    s->nupstreams = u.n;
    return true;
}

static bool judge_exempt(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct str bad;
    return exempt_parse(s->exempt_text, a, &s->exempt, &s->nexempt, &bad) ||
           schema_refuse(a, ret_error, V("NAMESERVER_EXEMPT"), bad, "a comma list of addresses");
}

bool egress_is_exempt(const struct egress_settings *s, const struct ip *ip)
{
    for (size_t i = 0; i < s->nexempt; i++)
        if (ip_eq(&s->exempt[i], ip))
            return true;
    return false;
}

static void cap(int64_t *ns, int64_t max_s, bool *ret_capped)
{
    *ret_capped = *ns > max_s * 1000000000;
    if (*ret_capped)
        *ns = max_s * 1000000000;
}

static bool judge_probe(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct str name;
    cap(&s->dns_timeout, 120, &s->timeout_capped);
    cap(&s->probe_interval, 3600, &s->interval_capped);
    if (s->probe.n == 0 || str_eq(s->probe, STR(".")))
        return true;
    return (name_canonical(s->probe, a, &name) && name.n <= NAME_BYTES_MAX &&
            name_can_match(name)) ||
           schema_refuse(a, ret_error, V("DNS_UPSTREAM_PROBE"), s->probe, "a name, or a dot");
}

/* ---- lists */

static bool judge_networks(const char *name, struct str text, struct cidr_set *ret, struct arena *a,
                           struct str *ret_error)
{
    struct str bad;
    return cidr_set_parse(text, a, ret, &bad) ||
           schema_refuse(a, ret_error, name, bad, "a comma list of addresses and networks");
}

static bool judge_lists(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    return judge_networks(V("DOH_BLOCKLIST"), s->doh_text, &s->doh, a, ret_error) &&
           judge_networks(V("PROXY_CLIENTS"), s->proxy_clients_text, &s->proxy_clients, a,
                          ret_error) &&
           judge_networks(V("CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS"), s->vault_proxies_text,
                          &s->vault_proxies, a, ret_error);
}

static bool is_extra_port(const struct egress_settings *s, struct str part, uint16_t *ret)
{
    uint64_t v;
    if (!text_u64(part, UINT16_MAX, &v) || v == 0 || v == 80 || v == 443)
        return false;
    for (unsigned i = 0; i < s->nextra_ports; i++)
        if (s->extra_ports[i] == v)
            return false;
    *ret = (uint16_t)v;
    return true;
}

static bool judge_ports(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct str rest = s->extra_ports_text, part;
    uint16_t port;
    while (s->extra_ports_text.n && str_next(&rest, ',', &part)) {
        if (s->nextra_ports == EGRESS_EXTRA_PORTS_MAX)
            return schema_refuse(a, ret_error, V("MITMPROXY_EXTRA_PORTS"), s->extra_ports_text,
                                 "at most 13 ports");
        if (!is_extra_port(s, target_trim(part), &port))
            return schema_refuse(
                a, ret_error, V("MITMPROXY_EXTRA_PORTS"), part,
                "a comma list of ports from 1 to 65535, each once, without 80 and 443");
        s->extra_ports[s->nextra_ports++] = port;
    }
    return true;
}

static bool judge_attrs(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    struct field *at = arena_get(a, (count_parts(s->attrs_text) + 1) * sizeof *at);
    struct str rest = s->attrs_text;
    for (struct str part; next_part(&rest, &part);) {
        ptrdiff_t equals = str_chr(part, '=');
        struct str key = equals < 0 ? STR("") : target_trim(str_head(part, (size_t)equals));
        struct str value = equals < 0 ? STR("") : target_trim(str_skip(part, (size_t)equals + 1));
        if (key.n == 0 || value.n == 0)
            return schema_refuse(a, ret_error, V("METRICS_EXTRA_ATTRS"), part,
                                 "a comma list of key=value, neither of them blank");
        at[s->nattrs++] = (struct field){key, value};
    }
    s->attrs = at;
    return true;
}

/* ---- URLs */

/* What may hold a password is not shown. */
static bool judge_url(const char *name, struct str text, struct arena *a, struct str *ret_error)
{
    struct url unused;
    if (text.n == 0 || url_parse(text, &unused))
        return true;
    return str_chr(text, '@') < 0
               ? schema_refuse(a, ret_error, name, text, "an http:// or https:// URL")
               : schema_refuse_because(a, ret_error, name, "the URL is wrong");
}

static bool judge_urls(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    s->no_metrics =
        str_ieq(s->otel_disabled, STR("true")) || str_ieq(s->otel_exporter, STR("none"));
    return judge_url(V("DENY_WEBHOOK"), s->deny_webhook, a, ret_error) &&
           (s->no_metrics ||
            (judge_url("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", s->otlp_metrics_endpoint, a,
                       ret_error) &&
             judge_url("OTEL_EXPORTER_OTLP_ENDPOINT", s->otlp_endpoint, a, ret_error)));
}

static bool is_proxy_host(struct str host, struct arena *a)
{
    struct ip ip;
    struct str canonical;
    return ip_parse(host, &ip) || (str_chr(host, '.') >= 0 && host_pattern(host, a, &canonical) &&
                                   !str_starts(canonical, STR("*.")));
}

static bool judge_parent(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    static const char allowed[] = "http://host:port or https://host:port, host an address or a "
                                  "name with a dot, no user, path, query or fragment";
    struct url url;
    if (s->parent_text.n == 0)
        return s->parent_auth.n == 0 ||
               schema_refuse_because(a, ret_error, V("UPSTREAM_PROXY_AUTH"),
                                     "needs " V("UPSTREAM_PROXY"));
    if (str_chr(s->parent_text, '@') >= 0)
        return schema_refuse_because(a, ret_error, V("UPSTREAM_PROXY"),
                                     "no user in the URL; see " V("UPSTREAM_PROXY_AUTH"));
    if (!url_parse(s->parent_text, &url) || (url.rest.n && !str_eq(url.rest, STR("/"))) ||
        !is_proxy_host(url.host, a))
        return schema_refuse(a, ret_error, V("UPSTREAM_PROXY"), s->parent_text, allowed);
    s->parent = (struct egress_parent){.host = url.host, .port = url.port, .tls = url.tls};
    return s->proxy_addr.n || (s->mitm && s->mode == EGRESS_DNS_NFT) ||
           schema_refuse_because(
               a, ret_error, V("UPSTREAM_PROXY"),
               "needs " V("MITMPROXY_TRANSPARENT") " and mode dns+nft, or the explicit "
                                                   "proxy of " V("PROXY_ADDR"));
}

static bool judge_script(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    return s->script.n == 0 || schema_refuse_because(a, ret_error, V("MITMPROXY_SCRIPT"),
                                                     "scripts cannot run here; leave it blank");
}

bool egress_settings_check(struct egress_settings *s, struct arena *a, struct str *ret_error)
{
    static bool (*const rules[])(struct egress_settings *, struct arena *, struct str *) = {
        judge_mode,   judge_listeners, judge_secrets, judge_rules, judge_upstreams,
        judge_exempt, judge_probe,     judge_lists,   judge_ports, judge_attrs,
        judge_urls,   judge_parent,    judge_script};
    s->core.workers = 1; /* one table of leases, one queue of changes */
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i](s, a, ret_error))
            return false;
    return true;
}
