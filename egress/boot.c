/* boot.c — see boot.h.  The order is the point: the kernel is closed before a file is read, sockets
 * are bound before anything is redirected to them, and nothing is served before all of it stands.
 */
#include "egress/boot_parent.h"

#include <unistd.h>

#include "base/log.h"
#include "egress/boot_dns.h"
#include "egress/boot_intercept.h"
#include "egress/dns/own_names.h"
#include "egress/fit.h"
#include "egress/handover_hosts.h"
#include "egress/harden.h"
#include "egress/relay/relay.h"
#include "egress/vault/lost.h"
#include "net/resolve.h"
#include "proxy/proxy.h"

struct boot *boot_of(const struct app *app)
{
    return app_product(app);
}

/* ---- before anything */

/* A predecessor's rules may stay until ours replace them: they are closed already. */
static void close_first(struct boot *b)
{
    struct str error;
    struct arena a;
    if (!boot_wants_kernel(b->set) || handover_succeeds(b->hand))
        return;
    arena_init(&a, NULL, 0);
    if (!enforce_close(NULL, &a, &error)) {
        char *text = mem_strdup(error);
        log_note(LOG_ERROR, "the kernel cannot be closed: nothing is enforced", "error", text,
                 NULL);
        mem_free(text);
    }
    arena_done(&a);
}

bool boot_prepare(struct app *app, struct egress_settings *set, struct arena *a,
                  struct str *ret_error)
{
    struct boot *b = mem_new(sizeof *b);
    struct str kept;
    harden_environment(&egress_schema);
    b->app = app;
    b->set = set;
    b->hand = handover_open(a);
    app_set_product(app, b);
    fit_descriptors(set, fit_limit());
    events_attributes(set);
    close_first(b);
    b->marks = handover_marks(b->hand); /* who finds them relies on a closed kernel */
    if (set->policy_file.n == 0 && handover_text(b->hand, HANDOVER_POLICY, &kept))
        set->rules = kept;
    if (set->vault_lost == EGRESS_LOST_REFUSE && handover_text(b->hand, HANDOVER_BOUND, &kept))
        set->lost_hosts = kept;
    b->bound = bound_hosts_new(b->hand);
    b->reads = boot_intercept_prepare(set, a, ret_error);
    return b->reads != NULL;
}

static struct egress_view *with_lost(struct egress_view *view, struct str hosts)
{
    if (!view || hosts.n == 0)
        return view;
    struct lost *lost = lost_read(hosts);
    struct egress_view *ret = view_with_lost(view, lost);
    lost_unref(lost);
    view_unref(view);
    return ret;
}

void *boot_view(const struct settings *set, const void *old, struct arena *a, struct str *ret_error)
{
    const struct egress_settings *s = (const struct egress_settings *)set;
    struct always_lists lists;
    struct document user;
    enum policy_source source;
    (void)old;
    if (!policy_start(s->policy_file, s->rules, &user, &source, a, ret_error))
        return NULL;
    struct egress_view *view = NULL;
    if (always_read(STR(ALWAYS_FOLDER), &lists, a, ret_error)) {
        view = view_new(&user, &lists, 1);
        always_lists_done(&lists);
    }
    document_done(&user);
    return with_lost(view, s->lost_hosts);
}

struct names *boot_names(struct app *app, struct worker *w)
{
    (void)app;
    (void)w;
    return NULL; /* asked through the DNS that boot_start() makes */
}

/* ---- the parts */

static void on_dns(void *user, const struct dns_told *told)
{
    struct boot *b = user;
    events_dns(b->sc->events, told);
}

static void on_drop(void *user, const struct drop *drop)
{
    struct boot *b = user;
    char rule[POLICY_RULE_BYTES];
    events_drop(b->sc->events, drop, force_drop_rule(b, drop, rule));
}

static void on_keep(void *user, const struct enforce_guard *g)
{
    struct boot *b = user;
    char *name = mem_strdup(g->name);
    handover_leave(b->hand, name, g->fd);
    mem_free(name);
}

static unsigned own_servers(const struct nameserver_list *list, struct ruleset_server *ret)
{
    for (unsigned i = 0; i < list->n; i++) {
        addr_ip(&list->addr[i].sa, &ret[i].ip);
        ret[i].port = addr_port(&list->addr[i].sa);
    }
    return list->n;
}

static void make_enforce(struct boot *b, const struct nameserver_list *list, bool dns6)
{
    struct ruleset_server servers[NAMESERVERS_MAX];
    struct enforce_guard guards[HANDOVER_GUARDS];
    struct enforce_setup setup = {.w = b->w,
                                  .set = b->set,
                                  .own_mark = b->marks.own,
                                  .pass_mark = b->marks.pass,
                                  .group_mark = b->marks.group,
                                  .pass_priority = b->marks.pass_priority,
                                  .dns_port = BOOT_DNS_PORT,
                                  .dns6 = dns6,
                                  .relay_port = b->set->mitm ? (uint16_t)b->set->mitm_port : 0,
                                  .upstreams = servers,
                                  .nupstreams = own_servers(list, servers),
                                  .guards = guards,
                                  .keep = on_keep,
                                  .drop = on_drop,
                                  .user = b};
    setup.nguards = handover_guards(b->hand, ENFORCE_GUARD_PREFIX, guards);
    b->sc->enforce = enforce_new(&setup);
    for (unsigned i = 0; i < setup.nguards; i++)
        if (guards[i].fd >= 0)
            close(guards[i].fd);
}

static void make_dns(struct boot *b, const struct nameserver_list *list)
{
    struct sidecar *sc = b->sc;
    struct leases_limits limits = {(unsigned)b->set->max_learned_per_name,
                                   (unsigned)b->set->max_learned};
    struct leases_kernel kernel = {0};
    if (sc->enforce)
        kernel = enforce_leases(sc->enforce);
    bool told = sc->enforce && b->set->mode == EGRESS_DNS_NFT;
    sc->leases = leases_new(&limits, told ? &kernel : NULL);
    b->servers = nameservers_new(b->w, list);
    struct upkeep_setup upkeep = {.w = b->w,
                                  .servers = b->servers,
                                  .leases = sc->leases,
                                  .rules = &b->rules,
                                  .in_use = sc->enforce ? enforce_in_use : NULL,
                                  .user = sc->enforce};
    b->upkeep = upkeep_new(&upkeep);
    struct dns_setup setup = {.w = b->w,
                              .servers = b->servers,
                              .leases = sc->leases,
                              .upkeep = b->upkeep,
                              .rules = &b->rules,
                              .limits = boot_dns_limits(b->set, list->n),
                              .told = on_dns,
                              .user = b};
    sc->dns = dns_service_new(&setup);
    names_free(worker_get(b->w, SLOT_NAMES));
    worker_set(b->w, SLOT_NAMES, own_names_new(b->w, sc->dns));
}

static bool make_events(struct boot *b, struct str *ret_error)
{
    b->free_names = (struct free_names){b->w, b->servers};
    b->names = free_names_new(&b->free_names);
    b->sc->decisions = decisions_new();
    struct events_setup setup = {
        .w = b->w, .set = b->set, .decisions = b->sc->decisions, .names = b->names};
    b->sc->events = events_new(&setup, b->mem, ret_error);
    return b->sc->events != NULL;
}

static void listen_dns(struct boot *b, const struct boot_fds *f)
{
    for (int v6 = 0; v6 < 2; v6++) {
        if (f->udp[v6] >= 0)
            dns_service_udp(b->sc->dns, f->udp[v6]);
        if (f->tcp[v6] >= 0)
            dns_service_tcp(b->sc->dns, f->tcp[v6]);
    }
}

static void make_relay(struct boot *b, const struct boot_fds *f)
{
    if (f->relay[0] < 0 && f->proxy < 0)
        return;
    struct relay_setup setup = {.w = b->w, .sidecar = b->sc, .proxy = proxy_of(b->w)};
    b->sc->relay = relay_new(&setup);
    for (int v6 = 0; v6 < 2; v6++)
        if (f->relay[v6] >= 0)
            relay_transparent(b->sc->relay, f->relay[v6]);
    if (f->proxy >= 0)
        relay_explicit(b->sc->relay, f->proxy);
}

/* ---- start */

static unsigned on_found(void *user, const struct lease_fresh *found)
{
    struct boot *b = user;
    struct lease_fresh fresh = *found;
    fresh.kinds = leases_kinds(&b->rules, found->name);
    if (fresh.kinds)
        leases_restore(b->sc->leases, &fresh, worker_now(b->w));
    return fresh.kinds;
}

static void start_kernel(struct boot *b)
{
    struct str error;
    if (!b->sc->enforce)
        return;
    if (handover_succeeds(b->hand) && !enforce_is_ours(b->sc->enforce) &&
        !enforce_close(NULL, b->mem, &error))
        log_note(LOG_ERROR, "the kernel cannot be closed: nothing is enforced", NULL);
    enforce_start(b->sc->enforce, b->view, on_found, b);
}

static void adopt_view(struct boot *b, const struct egress_view *view)
{
    b->view = view_ref(view);
    b->rules = force_rules(b->set, view);
}

/* Who needs it has it as a secret; that there is one is still known by the length. */
static void forget(struct str setting)
{
    mem_wipe((void *)(uintptr_t)setting.p, setting.n);
}

bool boot_start(struct app *app, struct arena *a, struct str *ret_error)
{
    struct boot *b = boot_of(app);
    struct boot_fds fds;
    b->mem = a;
    b->w = app_worker(app, 0);
    worker_private(b->w);
    b->sc = sidecar_of(b->w);
    *b->sc = (struct sidecar){.set = b->set, .w = b->w};
    adopt_view(b, view_of(app_snapshot(app)));
    if (!boot_bind(b, &fds, ret_error))
        return false;
    struct nameserver_list list = boot_upstreams(b->set, b->hand, a);
    if (boot_wants_kernel(b->set)) {
        b->own = (struct own_socket){b->set, b->marks.own};
        list.prepare = own_socket_prepare(&b->own);
        dial_prepare(b->w, &list.prepare);
        make_enforce(b, &list, fds.tcp[1] >= 0);
    }
    make_dns(b, &list);
    if (!make_events(b, ret_error))
        return false;
    bool reads = fds.relay[0] >= 0 || fds.proxy >= 0;
    if (reads && !boot_intercept_start(b->reads, b, ret_error))
        return false;
    b->parent = boot_parent_new(b, boot_intercept_never(b->reads), ret_error);
    if (!b->parent && ret_error->n)
        return false;
    b->sc->parent = boot_parent_dial(b->parent);
    make_relay(b, &fds);
    listen_dns(b, &fds);
    start_kernel(b);
    force_start(b, fds.api);
    forget(b->set->token);
    forget(b->set->parent_auth);
    events_loaded(b->sc->events, b->view);
    app_ready(app);
    return true;
}

void boot_reload(struct app *app)
{
    force_reload(boot_of(app));
}

void boot_drain(struct app *app)
{
    app_hold(app);
    force_drain(boot_of(app));
}

/* ---- the end */

/* The relay first, then what it has given to the proxy meanwhile: it leans on all other parts. */
static void cut_connections(struct boot *b)
{
    enum { TURNS = 100 };
    struct proxy *p = proxy_of(b->w);
    boot_intercept_stop(b->reads);
    relay_free(b->sc->relay);
    b->sc->relay = NULL;
    proxy_cut(p);
    for (int i = 0; i < TURNS && (proxy_clients(p) || origin_open(proxy_origins(p))); i++)
        worker_turn(b->w);
}

/* The kernel or a disk does not answer, and nobody can say when it will: what it would come back to
 * must not be freed. */
static void leave_all(void)
{
    log_note(LOG_ERROR, "a change did not end: it goes with the process", NULL);
    log_stop();
    _exit(1);
}

void boot_stop(struct app *app)
{
    struct boot *b = boot_of(app);
    struct sidecar *sc = b->sc;
    cut_connections(b);
    bool settled = force_stop(b);
    enforce_end(sc->enforce, b->set->on_exit == EGRESS_EXIT_REMOVE);
    if (!settled)
        leave_all();
    events_free(sc->events);
    boot_intercept_free(b->reads);
    boot_parent_free(b->parent);
    names_free(b->names);
    names_free(worker_get(b->w, SLOT_NAMES));
    worker_set(b->w, SLOT_NAMES, NULL);
    dns_service_free(sc->dns);
    upkeep_free(b->upkeep);
    leases_free(sc->leases);
    worker_turn(b->w);
    nameservers_free(b->servers);
    decisions_free(sc->decisions);
    view_unref(b->view);
    bound_hosts_free(b->bound);
    handover_close(b->hand);
    mem_free(b);
    app_set_product(app, NULL);
}
