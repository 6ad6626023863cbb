/* run_dns_upstreams.c — nameserver: which servers are asked, and which of them are there. */
#include <arpa/inet.h>
#include <unistd.h>

#include "egress/dns/upstreams.h"
#include "harness/dns_server.h"
#include "net/hostfiles.h"
#include "net/nameserver.h"
#include "net/worker.h"
#include "vectors/run_policy.h"

enum { WATCH_MS = 100, STEP_US = 500 };

static struct str addr_list(struct row *r, const struct upstreams *u)
{
    struct str out = STR("");
    for (unsigned i = 0; i < u->n; i++) {
        char text[ADDR_TEXT_BYTES];
        size_t n = addr_text(&u->at[i].sa, text);
        out = arena_printf(r->a, "%.*s%s%.*s", STR_ARG(out), i ? "," : "", (int)n, text);
    }
    return out;
}

static struct str ip_list(struct row *r, const struct ip *list, size_t n)
{
    struct str out = STR("");
    for (size_t i = 0; i < n; i++) {
        char text[IP_TEXT_BYTES];
        size_t len = ip_text(&list[i], text);
        out = arena_printf(r->a, "%.*s%s%.*s", STR_ARG(out), i ? "," : "", (int)len, text);
    }
    return out;
}

static bool same(struct row *r, const char *name, struct str got)
{
    const struct json *list = row_member(r->v, name);
    return !list || row_same(r, name, got, row_joined(r, list));
}

static void add_once(struct ip *list, size_t *n, const struct ip *ip)
{
    for (size_t i = 0; i < *n; i++)
        if (ip_eq(&list[i], ip))
            return;
    list[(*n)++] = *ip;
}

/* What the original opens for name service (contract 4.2).  We open the exempt ones alone, but read
 * the same lists. */
static struct str allowed(struct row *r, struct str conf_text, const struct upstreams *ups,
                          const struct ip *exempt, size_t nexempt)
{
    static const struct ip loopback = {.b = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    struct resolv_conf c;
    resolv_conf_parse(conf_text, r->a, &c);
    struct ip *list = arena_get(r->a, (1 + c.nservers + ups->n + nexempt) * sizeof *list), ip;
    size_t n = 0;
    add_once(list, &n, &loopback);
    for (unsigned i = 0; i < c.nservers; i++)
        if (!ip_is_loopback(&c.server[i]) && !ip_is_unspecified(&c.server[i]))
            add_once(list, &n, &c.server[i]);
    for (unsigned i = 0; i < ups->n; i++) {
        addr_ip(&ups->at[i].sa, &ip);
        add_once(list, &n, &ip);
    }
    for (size_t i = 0; i < nexempt; i++)
        add_once(list, &n, &exempt[i]);
    return ip_list(r, list, n);
}

static bool run_lists(struct row *r)
{
    struct str conf = row_text(r->v, "resolv_conf"), bad, env = row_env(r, "DNS_UPSTREAM"),
               exempt = row_env(r, "NAMESERVER_EXEMPT");
    struct upstreams ups, none = {NULL, 0};
    const struct ip *exempts;
    size_t nexempt;
    bool ok = exempt_parse(exempt, r->a, &exempts, &nexempt, &bad);
    if (str_trim(env).n)
        ok &= upstreams_parse(env, r->a, &ups, &bad);
    else
        upstreams_of_resolv_conf(conf, r->a, &ups);
    if (!row_same_int(r, "error", !ok, row_bool(r->v, "error")) || !ok)
        return !ok == row_bool(r->v, "error");
    return same(r, "upstreams", addr_list(r, &ups)) &&
           same(r, "exempt", ip_list(r, exempts, nexempt)) &&
           same(r, "allow", allowed(r, conf, &ups, exempts, nexempt)) &&
           same(r, "allow_resolv", allowed(r, conf, &none, NULL, 0));
}

static bool run_probe(struct row *r)
{
    const struct json *probe = row_member(r->v, "probe");
    struct dns_question q;
    char text[DNS_NAME_TEXT_BYTES];
    if (!probe_parse(row_env(r, "DNS_UPSTREAM_PROBE"), &q))
        return row_fail(r, "no name");
    size_t n = dns_name_text(&q.name, text);
    if (q.name.n > 1)
        text[n++] = '.';
    return row_same(r, "name", (struct str){text, n}, row_text(probe, "name")) &&
           row_same(r, "type", q.type == DNS_NS ? STR("NS") : STR("A"), row_text(probe, "type"));
}

/* ---- health */

static void on_asked(void *user, const struct dns_asked *a)
{
    struct row *r = user;
    const struct json *v = json_first(row_member(r->v, "replies"));
    for (unsigned i = dns_server_index(a->server); v && i > 0; i--)
        v = json_next(v);
    if (!v || json_type(v) != JSON_STRING)
        return;
    struct dns_reply *reply = mem_new(sizeof *reply);
    dns_reply_begin(reply, a, str_eq(json_string(v), STR("NOERROR")) ? 0 : DNS_SERVFAIL);
    dns_reply_send(reply);
    mem_free(reply);
}

static bool run_health(struct row *r)
{
    const struct json *names = row_member(r->v, "upstreams");
    unsigned n = (unsigned)json_count(names), active, i = 0;
    uint16_t port;
    struct dns_server *servers = dns_servers_new(n, &port, on_asked, r);
    struct worker *w = worker_new(0);
    struct nameserver_list list = {.n = n,
                                   .rounds = 1,
                                   .try_ms = WATCH_MS,
                                   .watch_every_ms = 100 * WATCH_MS,
                                   .watch_ms = WATCH_MS};
    probe_parse(STR(""), &list.probe);
    for (unsigned k = 0; k < n; k++)
        list.addr[k].v4 = (struct sockaddr_in){.sin_family = AF_INET,
                                               .sin_port = htons(port),
                                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + k)};
    struct nameservers *ns = nameservers_new(w, &list);
    for (int step = 0; step < 4 * WATCH_MS * 1000 / STEP_US; step++) {
        worker_turn(w);
        dns_servers_step(servers);
        usleep(STEP_US);
    }
    nameservers_active(ns, &active);
    struct str got = STR("");
    for (const struct json *v = json_first(names); v; v = json_next(v), i++)
        if (active & 1u << i)
            got = arena_printf(r->a, "%.*s%s%.*s", STR_ARG(got), got.n ? "," : "",
                               STR_ARG(json_string(v)));
    nameservers_free(ns);
    worker_turn(w);
    worker_free(w);
    dns_servers_free(servers);
    return same(r, "active", got);
}

bool run_nameserver(struct row *r)
{
    if (row_is(r->v, "kind", "probe"))
        return run_probe(r);
    return row_is(r->v, "kind", "health") ? run_health(r) : run_lists(r);
}
