/* boot_sockets.c — the sockets of the sidecar, bound before anything is redirected to them.  A
 * predecessor's are taken over as they are, so that nobody else gets its ports in between. */
#include <errno.h>

#include "egress/boot_impl.h"

static void local(union addr *ret, bool v6, uint16_t port)
{
    static const struct ip four = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1}},
                           six = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    memset(ret, 0, sizeof *ret);
    addr_make(ret, v6 ? &six : &four, port);
}

/* The names of a service's sockets, for handover and messages. */
struct service {
    const char *setting, *udp[2], *tcp[2];
};
static const struct service dns_names = {"DNS", {"udp4", "udp6"}, {"tcp4", "tcp6"}};
static const struct service relay_names = {
    EGRESS_VARIABLE "MITMPROXY_PORT", {NULL, NULL}, {"relay4", "relay6"}};

static bool refuse(struct boot *b, const char *setting, struct str error, struct str *ret_error)
{
    *ret_error = arena_printf(b->mem, "%s: %.*s", setting, STR_ARG(error));
    return false;
}

/* IPv6 may be switched off (K9): then the rules keep it closed. */
static bool bind_local(struct boot *b, const struct service *s, uint16_t port, int udp[2],
                       int tcp[2], struct str *ret_error)
{
    struct str error;
    for (int v6 = 0; v6 < 2; v6++) {
        union addr at;
        local(&at, v6, port);
        tcp[v6] = handover_listen(b->hand, s->tcp[v6], &at, b->mem, &error);
        udp[v6] = -1;
        if (tcp[v6] >= 0 && s->udp[v6])
            udp[v6] = handover_udp(b->hand, s->udp[v6], &at, b->mem, &error);
        bool good = tcp[v6] >= 0 && (udp[v6] >= 0 || !s->udp[v6]);
        if (!good && (!v6 || errno == EADDRINUSE))
            return refuse(b, s->setting, error, ret_error);
    }
    b->sc->ports[b->sc->nports++] = port;
    return true;
}

static bool bind_one(struct boot *b, const char *setting, const char *name, const union addr *at,
                     int *ret, struct str *ret_error)
{
    struct str error;
    *ret = handover_listen(b->hand, name, at, b->mem, &error);
    if (*ret < 0)
        return refuse(b, setting, error, ret_error);
    b->sc->ports[b->sc->nports++] = addr_port(&at->sa);
    return true;
}

bool boot_bind(struct boot *b, struct boot_fds *f, struct str *ret_error)
{
    const struct egress_settings *set = b->set;
    int none[2];
    *f = (struct boot_fds){{-1, -1}, {-1, -1}, {-1, -1}, -1, -1};
    if (set->core.admin_addr.n > 0) {
        union addr admin;
        if (addr_parse(set->core.admin_addr, &admin))
            b->sc->ports[b->sc->nports++] = addr_port(&admin.sa);
    }
    if (boot_wants_kernel(set) &&
        !bind_local(b, &dns_names, BOOT_DNS_PORT, f->udp, f->tcp, ret_error))
        return false;
    if (boot_wants_kernel(set) && set->mitm &&
        !bind_local(b, &relay_names, (uint16_t)set->mitm_port, none, f->relay, ret_error))
        return false;
    if (!bind_one(b, EGRESS_VARIABLE "HTTP_ADDR", "api", &set->http, &f->api, ret_error))
        return false;
    return set->proxy.sa.sa_family == 0 ||
           bind_one(b, EGRESS_VARIABLE "PROXY_ADDR", "proxy", &set->proxy, &f->proxy, ret_error);
}
