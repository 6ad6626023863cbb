/* boot_dns.c — see boot_dns.h. */
#include "egress/boot_dns.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/dns/upstreams.h"

enum {
    RESOLV_CONF_BYTES = 65536,
    TRY_MS = 3000, /* longest wait before the next server is asked as well */
    PROBE_MS = 2000,
    BUDGET_MS = 120000,
    TCP_FIRST_MS = 2000,
    TCP_IN_FLIGHT = 32,
    BURSTS = 10
};

static struct str read_resolv_conf(struct arena *a)
{
    char *text = arena_get(a, RESOLV_CONF_BYTES);
    int fd = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, RESOLV_CONF_BYTES);
    if (fd >= 0)
        close(fd);
    return (struct str){text, n > 0 ? (size_t)n : 0};
}

static struct str resolv_conf(struct handover *h, struct arena *a)
{
    struct str text;
    if (handover_text(h, HANDOVER_UPSTREAMS, &text))
        return text;
    text = read_resolv_conf(a);
    if (!handover_leave_text(h, HANDOVER_UPSTREAMS, text.n ? text : STR("#")))
        log_note(LOG_WARN, "a crash would make us read /etc/resolv.conf again", NULL);
    return text;
}

static struct upstreams find(const struct egress_settings *set, struct handover *h, struct arena *a)
{
    struct upstreams u = {set->upstreams, (unsigned)set->nupstreams};
    if (u.n == 0)
        upstreams_of_resolv_conf(resolv_conf(h, a), a, &u);
    if (upstreams_only_loopback(&u))
        log_note(LOG_WARN,
                 "all upstream name servers are on loopback: a process of the sandbox could answer "
                 "in their place",
                 NULL);
    return u;
}

/* ---- what becomes of them */

/* What is said of each server, made once: log_note_rarely() tells messages apart by their address.
 */
struct words {
    unsigned n;
    struct word {
        union addr addr;
        const char *probe, *exchange;
    } at[NAMESERVERS_MAX];
};

static struct words *make_words(const struct nameserver_list *list, struct arena *a)
{
    struct words *w = arena_zero(a, sizeof *w);
    char text[ADDR_TEXT_BYTES];
    for (; w->n < list->n; w->n++) {
        int n = (int)addr_text(&list->addr[w->n].sa, text);
        w->at[w->n] = (struct word){
            list->addr[w->n],
            arena_printf(a, "[dns] upstream probe %.*s failed: no reply", n, text).p,
            arena_printf(a, "[dns] upstream %.*s exchange error: no useful reply", n, text).p};
    }
    return w;
}

static void on_news(void *user, enum ns_news news, const union addr *addr)
{
    const struct words *w = user;
    if (news == NS_NONE_LEFT)
        log_note_rarely(LOG_WARN, "[dns] no upstream answers probes: all are asked", NULL);
    for (unsigned i = 0; addr && i < w->n; i++) {
        if (!addr_eq(&w->at[i].addr.sa, &addr->sa))
            continue;
        if (news == NS_PROBE_SILENT)
            log_note_rarely(LOG_ERROR, w->at[i].probe, NULL);
        else
            log_note_rarely(LOG_WARN, w->at[i].exchange, NULL);
    }
}

struct nameserver_list boot_upstreams(const struct egress_settings *set, struct handover *h,
                                      struct arena *a)
{
    struct upstreams u = find(set, h, a);
    struct nameserver_list list = {.rounds = 1, .news = on_news};
    uint64_t wait = settings_ms(set->dns_timeout);
    list.n = u.n < NAMESERVERS_MAX ? u.n : NAMESERVERS_MAX;
    memcpy(list.addr, u.at, list.n * sizeof *list.addr);
    if (list.n < u.n)
        log_note(LOG_WARN, "only the first ten upstream name servers are asked", NULL);
    list.try_ms = wait < TRY_MS ? wait : TRY_MS;
    list.watch_every_ms = settings_ms(set->probe_interval);
    list.watch_ms = wait < PROBE_MS ? wait : PROBE_MS;
    list.user = make_words(&list, a);
    probe_parse(set->probe, &list.probe);
    return list;
}

struct dns_limits boot_dns_limits(const struct egress_settings *set, unsigned nupstreams)
{
    uint64_t budget = settings_ms(set->dns_timeout) * nupstreams;
    unsigned rate = (unsigned)set->dns_max_rate, below = (unsigned)set->dns_max_domain_rate;
    return (struct dns_limits){.in_flight = (unsigned)set->dns_max_inflight,
                               .cache_entries = (unsigned)set->dns_cache_size,
                               .asks = {rate, rate},
                               .domain_asks = {below, below * BURSTS},
                               .tcp_clients = (unsigned)set->dns_tcp_max_connections,
                               .tcp_in_flight = TCP_IN_FLIGHT,
                               .tcp_queries = (unsigned)set->dns_tcp_max_queries,
                               .tcp_first_ms = TCP_FIRST_MS,
                               .tcp_idle_ms = settings_ms(set->dns_tcp_idle_timeout),
                               .upstream_ms = budget < BUDGET_MS ? budget : BUDGET_MS,
                               .kernel_ms = settings_ms(set->learn_timeout)};
}
