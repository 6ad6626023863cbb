/* relay_rig.c — everything is made before the worker runs, and asked for on its own thread. */
#include "harness/relay_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "egress/events/events.h"
#include "egress/gate.h"
#include "egress/judge.h"
#include "egress/state/view.h"
#include "harness/short_policy.h"
#include "net/listen.h"
#include "net/resolve.h"
#include "proxy/proxy.h"

enum { PATIENCE_MS = 20000 };

/* ---- in the place of the kernel */

static _Atomic uint16_t target_port;
static char target_address[IP_TEXT_BYTES]; /* written while nobody accepts */

int __real_conn_original(const struct conn *c, union addr *ret);
int __wrap_conn_original(const struct conn *c, union addr *ret);
bool __real_judge_is_loopback(const struct ip *ip);
bool __wrap_judge_is_loopback(const struct ip *ip);

void relay_rig_target(const char *address, uint16_t port)
{
    snprintf(target_address, sizeof target_address, "%s", address);
    target_port = port;
}

int __wrap_conn_original(const struct conn *c, union addr *ret)
{
    struct ip ip;
    if (target_port == 0)
        return __real_conn_original(c, ret);
    if (!ip_parse(str_of(target_address), &ip))
        return -EINVAL;
    addr_make(ret, &ip, target_port);
    return 0;
}

/* The origins are on loopback. */
bool __wrap_judge_is_loopback(const struct ip *ip)
{
    return target_port == 0 && __real_judge_is_loopback(ip);
}

/* ---- in the place of the events */

void events_connection(struct events *e, const struct event_connection *c)
{
    struct relay_rig *r = (struct relay_rig *)(void *)e;
    pthread_mutex_lock(&r->lock);
    size_t n = strlen(r->events);
    snprintf(r->events + n, sizeof r->events - n, "%s %.*s %u %.*s\n",
             c->allow ? "allow" : "refuse", STR_ARG(c->host), c->port, STR_ARG(c->rule));
    pthread_mutex_unlock(&r->lock);
}

static const char *decision_text(enum credential_decision d)
{
    static const char *const texts[] = {[CREDENTIAL_NO_MATCH] = "no match",
                                        [CREDENTIAL_INJECTED] = "injected",
                                        [CREDENTIAL_DENIED] = "denied",
                                        [CREDENTIAL_AMBIGUOUS] = "ambiguous",
                                        [CREDENTIAL_MISMATCH] = "mismatch"};
    return texts[d];
}

/* "injected BINDING HOST STATUS" */
void events_credential(struct events *e, const struct event_credential *c)
{
    struct relay_rig *r = (struct relay_rig *)(void *)e;
    pthread_mutex_lock(&r->lock);
    size_t n = strlen(r->events);
    snprintf(r->events + n, sizeof r->events - n, "%s %.*s %.*s %d\n", decision_text(c->decision),
             STR_ARG(c->binding), STR_ARG(c->host), c->status);
    pthread_mutex_unlock(&r->lock);
}

static void wait_for(bool (*done)(struct relay_rig *r, const void *arg), struct relay_rig *r,
                     const void *arg, const char *what)
{
    for (int i = 0; i < PATIENCE_MS / 5; i++) {
        if (done(r, arg))
            return;
        usleep(5000);
    }
    fail_msg("waited for %s in vain; events:\n%s", what, r->events);
}

static bool has_event(struct relay_rig *r, const void *arg)
{
    pthread_mutex_lock(&r->lock);
    bool has = strstr(r->events, arg) != NULL;
    pthread_mutex_unlock(&r->lock);
    return has;
}

void relay_rig_event(struct relay_rig *r, const char *text)
{
    wait_for(has_event, r, text, text);
}

/* ---- in the place of the DNS */

struct asked {
    struct timer timer;
    struct worker *w;
    bool found;
    void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why);
    void *arg;
};

static void on_found(struct timer *t)
{
    static const struct ip here = {{[10] = 0xff, [11] = 0xff, 127, 0, 0, 1}};
    struct asked *a = container_of(t, struct asked, timer);
    if (a->found)
        a->done(a->arg, &here, 1, WHY_OK);
    else
        a->done(a->arg, NULL, 0, WHY_DNS);
    worker_bury(a->w, mem_free, a);
}

static void *ask_name(void *user, struct str host, uint64_t timeout_ms,
                      void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                      void *arg)
{
    struct asked *a = mem_new(sizeof *a);
    (void)timeout_ms;
    a->w = user;
    a->found = str_iends(host, STR(".test")) && !str_ieq(host, STR("gone.test"));
    a->done = done;
    a->arg = arg;
    timer_init(&a->timer, on_found);
    timer_set(a->w, &a->timer, 1);
    return a;
}

static void cancel_name(void *user, void *asked)
{
    struct asked *a = asked;
    (void)user;
    timer_clear(a->w, &a->timer);
    worker_bury(a->w, mem_free, a);
}

/* ---- on the worker */

struct order {
    struct post post;
    void (*act)(struct relay_rig *r, void *arg);
    struct relay_rig *r;
    void *arg;
    sem_t done;
};

static void run_order(struct worker *w, struct post *p)
{
    struct order *o = container_of(p, struct order, post);
    (void)w;
    o->act(o->r, o->arg);
    sem_post(&o->done);
}

static void order(struct relay_rig *r, void (*act)(struct relay_rig *r, void *arg), void *arg)
{
    struct order o = {.post = {.run = run_order}, .act = act, .r = r, .arg = arg};
    sem_init(&o.done, 0, 0);
    worker_post(r->w, &o.post);
    while (sem_wait(&o.done) != 0)
        ;
    sem_destroy(&o.done);
}

/* ---- policies */

static struct snapshot *snapshot_of(struct relay_rig *r, const char *text)
{
    struct document d = short_policy(text);
    struct always_lists none = {NULL, NULL, NULL};
    struct egress_view *v = view_new(&d, &none, 1);
    struct snapshot *snap = view_snapshot(&r->set.core, v);
    view_unref(v);
    document_done(&d);
    return snap;
}

static void on_leased(void *arg, bool ok)
{
    (void)arg;
    (void)ok;
}

static void lease(struct relay_rig *r, const struct policy *p)
{
    static const char *const names[] = {"ok.test", "also.test", "no.test"};
    struct gate_learned l = {.n = 1, .at = {{{{[10] = 0xff, [11] = 0xff, 127, 0, 0, 1}}, 3600}}};
    struct gate_rules rules = {.policy = p};
    uint64_t now = worker_now(r->w);
    leases_adopt(r->s.leases, &rules, NULL, now);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (policy_name(p, str_of(names[i])).allow)
            leases_take(r->s.leases, str_of(names[i]), LEASE_USER, &l, true, now, on_leased, NULL);
}

static void adopt(struct relay_rig *r, void *arg)
{
    struct snapshot *snap = snapshot_of(r, arg);
    worker_adopt(r->w, snap);
    lease(r, view_of(snap)->policy);
    if (r->relay)
        relay_recheck(r->relay);
    snapshot_unref(r->snap);
    r->snap = snap;
}

void relay_rig_policy(struct relay_rig *r, const char *policy)
{
    order(r, adopt, (void *)(uintptr_t)policy);
}

/* ---- life */

static int listener_at(uint16_t *ret_port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    union addr bound;
    struct str error;
    struct arena a;
    arena_init(&a, NULL, 0);
    int fd = listen_bind_alone((struct sockaddr *)&any, &bound, &a, &error);
    assert_true(fd >= 0);
    arena_done(&a);
    *ret_port = addr_port(&bound.sa);
    return fd;
}

#define LIMITS                                                                              \
    {                                                                                       \
        .max_head_bytes = 8192, .window = 65536, .keep_alive_ms = 60000, .linger_ms = 1000, \
        .head_ms = 60000, .drain_idle_ms = 100, .window_max = 65536, .max_streams = 10      \
    }

static void make_proxy(struct relay_rig *r)
{
    static const struct names_source source = {ask_name, cancel_name, NULL};
    static const struct proxy_rules rules = {
        .gate = &egress_gate,
        .client = LIMITS,
        .origin = LIMITS,
        .pools = {.idle_ms = 60000, .idle_max = 8, .idle_cap = 8},
        .timeout_ms = {[X_HEAD] = 60000,
                       [X_DIAL] = 20000,
                       [X_WAIT] = 60000,
                       [X_BODY] = 60000,
                       [X_TUNNEL] = 60000,
                       [X_CLOSING] = 1000},
        .half_close_ms = 20000,
        .look_ms = GATE_SILENCE_MS,
    };
    struct names_source s = source;
    s.user = r->w;
    worker_set(r->w, SLOT_NAMES, names_through(r->w, &s));
    r->p = proxy_new(r->w, &rules);
}

void relay_rig_begin(struct relay_rig *r, const char *policy,
                     void (*tweak)(struct egress_settings *set))
{
    static const struct leases_limits limits = {64, 1024};
    *r = (struct relay_rig){.set = {.mode = EGRESS_DNS_NFT,
                                    .relay_max_connections = 64,
                                    .first_bytes_timeout = 30 * INT64_C(1000000000)}};
    if (tweak)
        tweak(&r->set);
    pthread_mutex_init(&r->lock, NULL);
    relay_rig_target("", 0);
    r->w = worker_new(0);
    r->s = (struct sidecar){.set = &r->set, .w = r->w, .events = (struct events *)(void *)r};
    r->s.leases = leases_new(&limits, NULL);
    worker_set(r->w, SLOT_PRODUCT, &r->s);
    make_proxy(r);
    adopt(r, (void *)(uintptr_t)policy);
    r->relay = relay_new(&(struct relay_setup){r->w, &r->s, r->p});
    relay_transparent(r->relay, listener_at(&r->redirected));
    relay_explicit(r->relay, listener_at(&r->explicit));
    r->s.ports[r->s.nports++] = r->redirected;
    r->s.ports[r->s.nports++] = r->explicit;
    r->s.relay = r->relay;
    worker_start(r->w);
}

static void drain(struct relay_rig *r, void *arg)
{
    (void)arg;
    relay_drain(r->relay);
}

void relay_rig_drain(struct relay_rig *r)
{
    order(r, drain, NULL);
}

static void on_drained(void *user)
{
    sem_post(user);
}

struct leaving {
    sem_t over;
};

static void leave(struct relay_rig *r, void *arg)
{
    struct leaving *l = arg;
    relay_drain(r->relay);
    proxy_drain(r->p, on_drained, &l->over);
    proxy_cut(r->p);
}

static void count_open(struct relay_rig *r, void *arg)
{
    *(unsigned *)arg = relay_open(r->relay);
}

static bool is_open(struct relay_rig *r, const void *arg)
{
    unsigned n;
    order(r, count_open, &n);
    return n == *(const unsigned *)arg;
}

void relay_rig_open(struct relay_rig *r, unsigned n)
{
    wait_for(is_open, r, &n, "connections");
}

static void count_all(struct relay_rig *r, void *arg)
{
    *(unsigned *)arg = relay_open(r->relay) + relay_open_asked(r->relay);
}

static bool is_quiet(struct relay_rig *r, const void *arg)
{
    unsigned n;
    (void)arg;
    order(r, count_all, &n);
    return n == 0;
}

void relay_rig_end(struct relay_rig *r)
{
    struct leaving l;
    sem_init(&l.over, 0, 0);
    order(r, leave, &l);
    while (sem_wait(&l.over) != 0)
        ;
    wait_for(is_quiet, r, NULL, "the end of all connections");
    worker_stop(r->w);
    worker_join(r->w);
    relay_free(r->relay);
    proxy_free(r->p);
    leases_free(r->s.leases);
    names_free(worker_get(r->w, SLOT_NAMES));
    worker_set(r->w, SLOT_NAMES, NULL);
    worker_free(r->w);
    snapshot_unref(r->snap);
    pthread_mutex_destroy(&r->lock);
    sem_destroy(&l.over);
}
