/* enforce.c — the life of the kernel's part, and what it says of itself.  It begins blocking, on
 * the main thread, so that nothing listens or asks before the rules are there, and ends there, when
 * nothing runs any more that could put rules back. */
#include "egress/kernel/enforce.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/kernel/cgroup.h"
#include "egress/kernel/enforce_impl.h"
#include "egress/kernel/rules_run.h"

enum { DOUBT_TOLD_MS = 1000, LEARNED_SPARE = 1024, LEARNED_LIMIT = 1 << 24 };

bool enforce_close(const char *program, struct arena *a, struct str *error)
{
    if (rules_allowed())
        return rules_run(program, "close", STR_NONE, a, error);
    *error = STR("CAP_NET_ADMIN is missing");
    return false;
}

/* ---- what is made of the settings */

static unsigned learned_max(const struct egress_settings *set)
{
    int64_t n = set->max_learned < LEARNED_LIMIT ? set->max_learned : LEARNED_LIMIT;
    return 2 * (unsigned)(n > 0 ? n : 0) + LEARNED_SPARE;
}

static void know_ourselves(struct enforce *e)
{
    struct cgroup group;
    struct ruleset *r = &e->rules;
    r->own_mark = e->set.own_mark;
    r->pass_mark = e->set.pass_mark;
    r->group_mark = e->set.group_mark;
    r->pass_priority = e->set.pass_priority;
    r->has_uid = true;
    r->uid = geteuid();
    if (cgroup_own(&e->arena, &group)) {
        r->cgroup = group.path;
        r->cgroup_level = group.level;
    }
}

static void copy_upstreams(struct enforce *e)
{
    size_t bytes = e->set.nupstreams * sizeof *e->set.upstreams;
    struct ruleset_server *copy = arena_get(&e->arena, bytes + 1);
    if (bytes)
        memcpy(copy, e->set.upstreams, bytes);
    e->set.upstreams = e->rules.upstreams = copy;
    e->rules.nupstreams = e->set.nupstreams;
}

static void make_rules(struct enforce *e)
{
    const struct egress_settings *set = e->set.set;
    e->rules = (struct ruleset){.shape = e->full ? RULESET_FULL : RULESET_DNS,
                                .dns_port = e->set.dns_port,
                                .relay_port = e->set.relay_port,
                                .extra_ports = set->extra_ports,
                                .nextra = set->nextra_ports,
                                .block_doh = set->block_doh,
                                .doh = set->doh,
                                .exempt = set->exempt,
                                .nexempt = (unsigned)set->nexempt,
                                .parent_port = set->parent.host.n ? set->parent.port : 0,
                                .learned_max = learned_max(set)};
    copy_upstreams(e);
    know_ourselves(e);
}

static void make_packets(struct enforce *e)
{
    const struct egress_settings *set = e->set.set;
    struct cidr *exempt = arena_get(&e->arena, (set->nexempt + 1) * sizeof *exempt);
    for (size_t i = 0; i < set->nexempt; i++)
        exempt[i] = (struct cidr){set->exempt[i], 128};
    e->packets = (struct packet_rules){.nft = true,
                                       .block_doh = set->block_doh,
                                       .doh_blocklist = set->doh,
                                       .exempt = {exempt, (unsigned)set->nexempt}};
}

static void take_guards(struct enforce *e)
{
    for (unsigned i = 0; e->full && i < e->set.nguards; i++) {
        struct enforce_guard *g = &e->set.guards[i];
        if (g->fd >= 0 && xdp_take(&e->pool.xdp, g->name, g->fd))
            g->fd = -1;
    }
    e->set.guards = NULL;
    e->set.nguards = 0;
}

struct enforce *enforce_new(const struct enforce_setup *setup)
{
    struct enforce *e = mem_new(sizeof *e);
    e->set = *setup;
    e->w = setup->w;
    e->full = setup->set->mode == EGRESS_DNS_NFT;
    arena_init(&e->arena, NULL, 0);
    list_init(&e->waiting);
    pthread_mutex_init(&e->lock, NULL);
    e->books = books_new();
    xdp_init(&e->pool.xdp);
    make_rules(e);
    make_packets(e);
    take_guards(e);
    enforce_watch_init(e);
    enforce_set_fault(e, "the kernel's rules are not in force", STR("not started"));
    return e;
}

void enforce_set_fault(struct enforce *e, const char *what, struct str why)
{
    snprintf(e->fault, sizeof e->fault, "%s: %.*s", what, STR_ARG(why));
}

/* ---- start */

static int open_all(struct enforce *e)
{
    int error = e->sets ? 0 : sets_open(&e->sets);
    if (error == 0 && !e->pool.sets)
        error = sets_open(&e->pool.sets);
    if (error == 0 && !e->pool.flows)
        error = flows_open(&e->pool.flows);
    /* Last: whoever finds it knows that the others are there. */
    if (error == 0 && !e->monitor)
        error = monitor_open(&e->monitor);
    return error;
}

static bool open_or_say(struct enforce *e)
{
    int error = rules_allowed() ? open_all(e) : -EPERM;
    if (error == 0)
        return true;
    enforce_set_fault(e, "the kernel's rules are not in force",
                      error == -EPERM ? STR("CAP_NET_ADMIN is missing")
                                      : str_of(strerrordesc_np(-error)));
    if (!e->monitor)
        log_note(LOG_ERROR, e->fault, NULL);
    return false;
}

bool enforce_is_ours(struct enforce *e)
{
    return rules_allowed() && open_all(e) == 0 && sync_is_ours(e);
}

static int by_ip_and_name(const void *a, const void *b)
{
    const struct sets_address *x = a, *y = b;
    int order = memcmp(x->ip.b, y->ip.b, sizeof x->ip.b);
    return order ? order : str_cmp(x->name, y->name);
}

static bool is_same_lease(const struct sets_address *x, const struct sets_address *y)
{
    return by_ip_and_name(x, y) == 0;
}

/* The longest of several names of an address counts. */
static void take_lease(struct enforce *e, struct sets_address lease)
{
    uint64_t now = worker_now(e->w), until = now + 1000ull * lease.seconds;
    for (unsigned kind = 1; kind <= SETS_PARENT; kind <<= 1) {
        struct sets_address one = lease;
        one.kinds &= kind;
        if (one.kinds && books_until(e->books, &one.ip, kind) < until)
            books_learn(e->books, &one, 1, now);
    }
}

/* n elements of one address and one name.  Who has no name cannot be judged by it later. */
static void ask_about(struct enforce *e, const struct sets_address *list, size_t n,
                      unsigned (*found)(void *user, const struct lease_fresh *lease), void *user)
{
    struct sets_address all = {list->ip, 0, list->seconds, list->name};
    for (size_t i = 0; i < n; i++) {
        all.kinds |= list[i].kinds;
        if (list[i].seconds > all.seconds)
            all.seconds = list[i].seconds;
    }
    unsigned parent = all.kinds & SETS_PARENT;
    struct lease_fresh lease = {
        all.name, {all.ip, all.seconds}, all.kinds & ~(unsigned)SETS_PARENT};
    all.kinds = parent;
    if (found && lease.kinds && lease.name.n && lease.address.seconds)
        all.kinds |= found(user, &lease) & (LEASE_ALWAYS | LEASE_USER | LEASE_BOUND);
    take_lease(e, all);
}

static void take_over(struct enforce *e,
                      unsigned (*found)(void *user, const struct lease_fresh *lease), void *user)
{
    struct sets_content c;
    struct arena a;
    arena_init(&a, NULL, 0);
    if (e->full && sync_is_ours(e) && sets_dump(e->sets, &a, &c) == 0) {
        qsort(c.at, c.n, sizeof *c.at, by_ip_and_name);
        for (size_t i = 0, n; i < c.n; i += n) {
            for (n = 1; i + n < c.n && is_same_lease(&c.at[i], &c.at[i + n]); n++)
                ;
            ask_about(e, &c.at[i], n, found, user);
        }
    }
    arena_done(&a);
}

void enforce_start(struct enforce *e, const struct egress_view *view,
                   unsigned (*found)(void *user, const struct lease_fresh *lease), void *user)
{
    e->view = view_ref(view);
    if (open_or_say(e)) {
        take_over(e, found, user);
        struct sync *s = sync_new(e, view->policy, NULL);
        sync_work(s);
        enforce_synced(e, s, true);
        sync_free(s);
        enforce_count_rules(e, view->policy);
        enforce_deafen(e, false);
    }
    enforce_watch_go(e);
}

void enforce_adopt(struct enforce *e, const struct egress_view *view)
{
    const struct egress_view *old = e->view;
    e->view = view_ref(view);
    e->ahead = false;
    view_unref(old);
}

/* ---- end */

static void destroy(struct enforce *e)
{
    drops_close(e->drops);
    monitor_close(e->monitor);
    sets_close(e->sets);
    sets_close(e->pool.sets);
    flows_close(e->pool.flows);
    xdp_done(&e->pool.xdp);
    books_free(e->books);
    view_unref(e->view);
    pthread_mutex_destroy(&e->lock);
    arena_done(&e->arena);
    mem_free(e);
}

void enforce_job(struct enforce *e)
{
    e->jobs++;
}

bool enforce_job_over(struct enforce *e)
{
    bool ended = e->ended;
    if (--e->jobs == 0 && ended)
        destroy(e);
    return ended;
}

static void leave(struct enforce *e, bool remove)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    if (rules_allowed() &&
        !rules_run(e->set.program, remove ? "remove" : "close", STR_NONE, &a, &error))
        log_note(LOG_ERROR, "the kernel's rules stay as they are", "error",
                 arena_printf(&a, "%.*s", STR_ARG(error)).p, NULL);
    arena_done(&a);
}

void enforce_end(struct enforce *e, bool remove)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->ended = true;
    pthread_mutex_unlock(&e->lock);
    enforce_watch_stop(e);
    while (!list_empty(&e->waiting))
        errand_free(container_of(list_first(&e->waiting), struct errand, link));
    leave(e, remove);
    if (e->jobs == 0)
        destroy(e);
}

/* ---- what it says of itself */

const char *enforce_fault(const struct enforce *e)
{
    if (e->state != ENFORCE_HELD)
        return e->fault;
    if (e->tampered)
        return "somebody else changed our rules in the kernel: they have been put back and are "
               "being tested";
    if (e->doubt_since && worker_now(e->w) > e->doubt_since + DOUBT_TOLD_MS)
        return "somebody else may have changed our rules in the kernel";
    if (e->test_state == TEST_FAILED)
        return e->test_fault;
    if (e->test_state != TEST_PASSED)
        return "self test: not done yet";
    return e->full && !e->flows_judged ? "open flows have not been judged yet" : NULL;
}

void enforce_counts(const struct enforce *e, struct enforce_counts *ret)
{
    static const unsigned kinds[] = {SETS_LEARNED, SETS_LEARNED_ALWAYS, SETS_BOUND, SETS_PARENT};
    *ret = e->counts;
    for (unsigned i = 0; i < 4; i++)
        ret->elements[i] = books_count(e->books, kinds[i]);
    ret->lacks = e->state == ENFORCE_NEVER ? 0 : e->rules.lacks;
    ret->drops_lost = e->drops ? drops_lost(e->drops) : 0;
}
