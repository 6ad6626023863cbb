/* dns_main.c — the sidecar's DNS as a program of its own, without kernel, API or interception: what
 * suites and benchmarks aim at.  Not installed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "egress/dns/service.h"
#include "egress/dns/upstreams.h"
#include "net/listen.h"
#include "net/udp.h"
#include "net/worker.h"
#include "policies/document.h"

enum { POLICY_BYTES = 8 << 20 };

/* As the settings' defaults are, but for the rate. */
static const struct dns_limits limits = {.in_flight = 1024,
                                         .cache_entries = 8192,
                                         .tcp_clients = 256,
                                         .tcp_in_flight = 32,
                                         .tcp_queries = 128,
                                         .tcp_first_ms = 2000,
                                         .tcp_idle_ms = 8000,
                                         .upstream_ms = 5000,
                                         .kernel_ms = 5000};

static int fail(const char *what, struct str about)
{
    fprintf(stderr, "dns_main: %s: %.*s\n", what, STR_ARG(about));
    return 2;
}

static struct policy *read_policy(const char *path, struct arena *a)
{
    struct document d;
    struct json_fault fault;
    char *text = arena_get(a, POLICY_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, POLICY_BYTES);
    close(fd);
    if (n < 0 || !document_parse((struct str){text, (size_t)n}, &d, &fault))
        return NULL;
    struct policy *p = policy_new(NULL, NULL, &d);
    document_done(&d);
    return p;
}

static void on_signal(void *user, int signum)
{
    (void)signum;
    worker_stop(user);
}

static struct nameservers *ask_at(struct worker *w, const struct upstreams *u)
{
    struct nameserver_list list = {.n = u->n, .rounds = 1, .try_ms = 2000};
    for (unsigned i = 0; i < u->n; i++)
        list.addr[i] = u->at[i];
    return nameservers_new(w, &list);
}

/* False: it cannot listen. */
static bool listen_at(struct dns_service *s, const union addr *at, struct arena *a,
                      struct str *ret_error)
{
    union addr bound;
    int udp = udp_bind(&at->sa, &bound, a, ret_error);
    int tcp = udp < 0 ? -1 : listen_bind(&at->sa, &bound, a, ret_error);
    if (udp >= 0)
        dns_service_udp(s, udp);
    if (tcp >= 0)
        dns_service_tcp(s, tcp);
    return tcp >= 0;
}

static int serve(const union addr *at, const struct upstreams *u, const struct policy *policy,
                 struct arena *a)
{
    struct str error;
    struct gate_rules rules = {.policy = policy};
    struct worker *w = worker_new(0);
    struct nameservers *servers = ask_at(w, u);
    struct leases *leases = leases_new(&(struct leases_limits){256, 16384}, NULL);
    struct upkeep *upkeep = upkeep_new(
        &(struct upkeep_setup){.w = w, .servers = servers, .leases = leases, .rules = &rules});
    struct dns_service *s = dns_service_new(&(struct dns_setup){.w = w,
                                                                .servers = servers,
                                                                .leases = leases,
                                                                .upkeep = upkeep,
                                                                .rules = &rules,
                                                                .limits = limits});
    bool ok = listen_at(s, at, a, &error);
    worker_signals(w, on_signal, w);
    if (ok)
        worker_run(w);
    dns_service_free(s);
    upkeep_free(upkeep);
    nameservers_free(servers);
    worker_turn(w);
    leases_free(leases);
    worker_free(w);
    return ok ? 0 : fail("start", error);
}

int main(int argc, char **argv)
{
    struct arena a;
    union addr at;
    struct upstreams u;
    struct str bad;
    if (argc != 4)
        return fail("usage", STR("dns_main ADDRESS:PORT UPSTREAM[:PORT],... POLICY.json"));
    arena_init(&a, NULL, 0);
    if (!addr_parse(str_of(argv[1]), &at) || !upstreams_parse(str_of(argv[2]), &a, &u, &bad) ||
        u.n > NAMESERVERS_MAX)
        return fail("no address", str_of(argv[1]));
    struct policy *policy = read_policy(argv[3], &a);
    if (!policy)
        return fail("no policy", str_of(argv[3]));
    int status = serve(&at, &u, policy, &a);
    policy_free(policy);
    arena_done(&a);
    return status;
}
