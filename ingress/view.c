/* view.c — compiles the settings into what decisions read: key ring, networks, ports, our own
 * listeners.  It is made whole or not at all, so a reload with a bad key file leaves the view in
 * force as it is. */
#include "ingress/view.h"

#include <errno.h>
#include <ifaddrs.h>

#include "net/addr.h"

struct made {
    struct ingress_view view;
    char first[2048]; /* of the view's arena */
};

static void drop(void *view)
{
    struct made *m = view;
    keyring_free(m->view.keys);
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

static void *make(const struct settings *set, const void *old, struct arena *a,
                  struct str *ret_error)
{
    (void)old;
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
        !ingress_settings_keyring(s, a, &v->keys, v->warn_ids, ret_error)) {
        drop(m);
        return NULL;
    }
    v->keys_twice = v->warn_ids[0] != '\0';
    return v;
}

const struct maker ingress_view_maker = {make, drop};
