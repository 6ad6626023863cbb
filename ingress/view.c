/* view.c — compiles the settings into what decisions read: key ring, networks, ports, our own
 * listeners, certificates.  It is made whole or not at all, so a reload with a bad file leaves the
 * view in force as it is. */
#include "ingress/view.h"

#include <errno.h>
#include <ifaddrs.h>

#include "base/digest.h"
#include "conf/sources.h"
#include "net/addr.h"

enum { PEM_BYTES = 1 << 20, TICKET_KEYS_BYTES = 1 << 16 };

struct made {
    struct ingress_view view;
    char first[2048]; /* of the view's arena */
};

static void drop(void *view)
{
    struct made *m = view;
    keyring_free(m->view.keys);
    tls_ctx_unref(m->view.tls);
    tls_ctx_unref(m->view.origin_tls);
    tls_tickets_unref(m->view.tickets);
    certs_unref(m->view.certs);
    arena_done(&m->view.mem);
    mem_free(m);
}

static bool bad_entry(const char *name, struct str entry, struct arena *a, struct str *ret_error)
{
    struct str shown = schema_quote(a, entry);
    *ret_error = arena_printf(a, "%s: %.*s is wrong", name, STR_ARG(shown));
    return false;
}

static bool make_lists(const struct ingress_settings *s, struct ingress_view *v, struct arena *a,
                       struct str *ret_error)
{
    struct str bad;
    if (!cidr_set_parse(s->trusted_proxies, &v->mem, &v->forward.trusted, &bad))
        return bad_entry("trusted-proxies", bad, a, ret_error);
    if (!cidr_set_parse(s->allow_target_cidr, &v->mem, &v->target.allow, &bad))
        return bad_entry("allow-target-cidr", bad, a, ret_error);
    if (!port_set_parse(s->deny_ports, &v->mem, &v->deny_ports, &bad))
        return bad_entry("deny-ports", bad, a, ret_error);
    return true;
}

/* A port that was left to the system is not known here; the caller sets it in the settings once it
 * has bound it. */
static bool make_own(const struct ingress_settings *s, struct ingress_view *v, struct arena *a,
                     struct str *ret_error)
{
    struct own_listener *own = arena_get(&v->mem, 3 * sizeof *own);
    v->target.own = own;
    if (s->port)
        own[v->target.nown++] = (struct own_listener){.any = true, .port = (uint16_t)s->port};
    if (s->tls_port)
        own[v->target.nown++] = (struct own_listener){.any = true, .port = (uint16_t)s->tls_port};
    if (!ingress_listener_parse(s->core.admin_addr, &own[v->target.nown]))
        return bad_entry("admin-addr", s->core.admin_addr, a, ret_error);
    v->target.nown += own[v->target.nown].port != 0;
    return true;
}

static bool ip_of(const struct sockaddr *addr, struct ip *ret)
{
    bool has_ip = addr && (addr->sa_family == AF_INET || addr->sa_family == AF_INET6);
    if (has_ip)
        addr_ip(addr, ret);
    return has_ip;
}

static bool make_local(struct ingress_view *v, struct arena *a, struct str *ret_error)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0) {
        *ret_error =
            arena_printf(a, "the addresses of this machine cannot be read: %s", strerror(errno));
        return false;
    }
    unsigned n = 0;
    struct ip ip;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        n += ip_of(i->ifa_addr, &ip);
    struct ip *local = arena_get(&v->mem, (n + 1) * sizeof *local);
    v->target.local = local;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (ip_of(i->ifa_addr, &ip))
            local[v->target.nlocal++] = ip;
    freeifaddrs(all);
    return true;
}

static struct route_rules route_rules(const struct ingress_settings *s)
{
    static const enum route_mode modes[] = {
        [MODE_AUTO] = ROUTE_AUTO,
        [MODE_HEADER] = ROUTE_BY_HEADER,
        [MODE_WILDCARD] = ROUTE_BY_HEADER,
        [MODE_URI] = ROUTE_BY_URI,
    };
    struct str domain = s->base_domain;
    if (domain.n > 1 && domain.p[domain.n - 1] == '.')
        domain.n--; /* a Host has its trailing dot cut as well */
    return (struct route_rules){
        .mode = modes[s->mode],
        .base_domain = domain,
        .lenient_ports = s->lenient_ports,
    };
}

/* ---- TLS */

static bool of_setting(const char *name, struct str why, struct arena *a, struct str *ret_error)
{
    *ret_error = arena_printf(a, "%s: %.*s", name, STR_ARG(why));
    return false;
}

static bool read_tickets(struct str path, struct ingress_view *v, struct arena *a,
                         struct str *ret_error)
{
    static const char name[] = "tls-ticket-keys-file";
    struct arena own;
    struct str text, error;
    arena_init(&own, NULL, 0);
    bool good = conf_read_file(path, TICKET_KEYS_BYTES, &own, &text, &error);
    if (good) {
        v->tickets = tls_tickets_parse(text, &own, &error);
        digest_wipe((void *)(uintptr_t)text.p, text.n);
        if (!v->tickets)
            error = arena_printf(&own, "%.*s: %.*s", STR_ARG(path), STR_ARG(error));
    }
    if (!v->tickets)
        of_setting(name, error, a, ret_error);
    arena_done(&own);
    return v->tickets != NULL;
}

/* Random keys outlive a reload, or every client would have to shake hands in full after it. */
static bool make_tickets(const struct ingress_settings *s, const struct ingress_view *old,
                         struct ingress_view *v, struct arena *a, struct str *ret_error)
{
    if (s->tls_ticket_keys_file.n)
        return read_tickets(s->tls_ticket_keys_file, v, a, ret_error);
    v->tickets = old && old->tickets ? tls_tickets_ref(old->tickets) : tls_tickets_new();
    return true;
}

static struct tls_leaf *leaf_of(void *user, struct str sni)
{
    return certs_find(user, sni);
}

static void drop_names(void *user)
{
    certs_unref(user);
}

static bool make_tls(const struct ingress_settings *s, const struct ingress_view *old,
                     struct ingress_view *v, struct arena *a, struct str *ret_error)
{
    struct str ca = STR_NONE, error;
    if (!s->tls_port)
        return true;
    v->certs = certs_load(s, a, ret_error);
    if (!v->certs || !make_tickets(s, old, v, a, ret_error))
        return false;
    if (s->tls_client_ca.n && !conf_read_file(s->tls_client_ca, PEM_BYTES, a, &ca, &error))
        return of_setting("tls-client-ca", error, a, ret_error);
    if (s->tls_client_ca.n && str_trim(ca).n == 0) /* or anybody would be served */
        return of_setting("tls-client-ca", STR("the file is blank"), a, ret_error);
    const struct tls_server_rules rules = {.names = {leaf_of, drop_names, certs_ref(v->certs)},
                                           .client_ca_pem = ca,
                                           .tickets = v->tickets,
                                           .h2 = true};
    v->tls = tls_server_new(&rules, a, &error);
    if (v->tls)
        return true;
    certs_unref(v->certs);
    return of_setting(ca.n ? "tls-client-ca" : "tls-port", error, a, ret_error);
}

/* Names of so many endpoints are resumed. */
enum { ORIGIN_SESSIONS = 256 };

static bool make_origin_tls(const struct ingress_settings *s, struct ingress_view *v,
                            struct arena *a, struct str *ret_error)
{
    struct str error;
    if (!s->fastpath_endpoint.n)
        return true;
    v->origin_tls =
        tls_client_new(&(struct tls_client_rules){.sessions = ORIGIN_SESSIONS}, a, &error);
    return v->origin_tls || of_setting("fastpath-endpoint", error, a, ret_error);
}

static void *make(const struct settings *set, const void *old, struct arena *a,
                  struct str *ret_error)
{
    const struct ingress_settings *s =
        (const struct ingress_settings *)set; /* core is its first member */
    struct made *m = mem_new(sizeof *m);
    struct ingress_view *v = &m->view;
    arena_init(&v->mem, m->first, sizeof m->first);
    v->set = s;
    v->route = route_rules(s);
    v->forward.preserve_host = s->backend_host == BACKEND_HOST_PRESERVE;
    v->forward.forward_api_key = s->forward_api_key;
    v->target.loopback = s->provider_type == PROVIDER_STATIC;
    if (!make_lists(s, v, a, ret_error) || !make_own(s, v, a, ret_error) ||
        !make_local(v, a, ret_error) ||
        !ingress_settings_keyring(s, a, &v->keys, v->warn_ids, ret_error) ||
        !make_tls(s, old, v, a, ret_error) || !make_origin_tls(s, v, a, ret_error)) {
        drop(m);
        return NULL;
    }
    v->keys_twice = v->warn_ids[0] != '\0';
    return v;
}

const struct maker ingress_view_maker = {make, drop};
