/* service.c — the life of the DNS service: its sockets, the rules it goes by, and its end.  A
 * query's course is in service_lookup.c, what is said to it in service_answer.c. */
#include "egress/dns/service.h"

#include <assert.h>

#include "egress/dns/service_impl.h"

static void on_datagram(void *user, struct udp *u, struct str datagram, const struct sockaddr *from)
{
    struct dns_origin origin = {.udp = u};
    memcpy(&origin.from, from, addr_len(from));
    dns_query(user, &origin, datagram.p, datagram.n);
}

struct dns_service *dns_service_new(const struct dns_setup *setup)
{
    struct dns_service *s = mem_new(sizeof *s);
    s->s = *setup;
    if (setup->limits.cache_entries > 0)
        s->cache = dns_cache_new(setup->limits.cache_entries, 0);
    s->lookups = map_new();
    s->rates = rates_new(setup->limits.asks, setup->limits.domain_asks);
    list_init(&s->waiting);
    list_init(&s->clients);
    list_init(&s->owns);
    list_init(&s->soon);
    accept_gate_init(&s->gate, setup->limits.tcp_clients, 0);
    return s;
}

void dns_service_udp(struct dns_service *s, int fd)
{
    assert(s->nudp < DNS_SOCKETS);
    s->udp[s->nudp++] = udp_start(s->s.w, fd, on_datagram, s);
}

void dns_service_tcp(struct dns_service *s, int fd)
{
    assert(s->ntcp < DNS_SOCKETS);
    s->tcp[s->ntcp++] = listener_start(s->s.w, fd, &s->gate, dns_client_accept, s);
}

void dns_service_adopt(struct dns_service *s, const struct gate_rules *rules,
                       const struct lease_change *told)
{
    s->s.rules = rules;
    leases_adopt(s->s.leases, rules, told, worker_now(s->s.w));
    if (s->s.upkeep)
        upkeep_adopt(s->s.upkeep, rules);
}

const struct dns_counters *dns_service_counters(const struct dns_service *s)
{
    return &s->counters;
}

unsigned dns_service_waiting(const struct dns_service *s)
{
    return s->in_flight;
}

void dns_service_unused(struct dns_service *s)
{
    if (s->over && s->conns == 0 && !s->posted)
        mem_free(s);
}

void dns_client_closed(struct dns_service *s)
{
    s->conns--;
    dns_service_unused(s);
}

void dns_service_free(struct dns_service *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->nudp; i++)
        udp_close(s->udp[i]);
    for (unsigned i = 0; i < s->ntcp; i++)
        listener_stop(s->tcp[i]);
    dns_clients_close(s);
    dns_lookups_free(s);
    dns_waiting_free(s);
    dns_cache_free(s->cache);
    rates_free(s->rates);
    dns_owns_free(s);
    s->over = true;
    dns_service_unused(s);
}
