/* force.c — what a change does to the sidecar: kernel, snapshot, leases, flows, in that order
 * (contract egress-policy 2.7, DESIGN 15.2). */
#include <assert.h>
#include <time.h>

#include "base/log.h"
#include "egress/boot_intercept.h"
#include "egress/events/metrics.h"
#include "egress/handover_hosts.h"
#include "egress/relay/relay.h"
#include "egress/state/cover.h"
#include "proxy/proxy.h"

enum { PULSE_MS = 500, DRAIN_PULSE_MS = 20, TIDY_MS = 1000 };

/* ---- the kernel's step */

static void forget_judged(struct boot *b)
{
    arena_done(&b->judged);
    arena_init(&b->judged, NULL, 0);
}

static bool all_bound(void *user, struct str name)
{
    (void)user;
    (void)name;
    return true;
}

/* QUIC and its hints are what this is about, so bindings for plain HTTP do not count. */
static bool tls_bound(void *user, struct str name)
{
    return view_binds(user, name, true);
}

struct gate_rules force_rules(const struct egress_settings *set, const struct egress_view *view)
{
    bool all = set->mitm && set->mitm_scope == EGRESS_SCOPE_ALL;
    return (struct gate_rules){.policy = view->policy,
                               .private_deny = set->private_answers == EGRESS_PRIVATE_DENY,
                               .bound = all ? all_bound : tls_bound,
                               .user = (void *)(uintptr_t)view};
}

/* Of what is not published nothing is remembered: another view may have its address later. */
static void on_kernel(void *arg, int error)
{
    struct boot *b = arg;
    const struct egress_view *by = b->judged_by;
    b->kernel_done(b->kernel_arg, error);
    if (!b->fresh && b->judged_by == by)
        b->judged_by = NULL;
}

static void kernel(void *user, const struct egress_view *old, const struct egress_view *fresh,
                   void (*done)(void *arg, int error), void *arg)
{
    struct boot *b = user;
    struct gate_rules rules = force_rules(b->set, fresh);
    forget_judged(b);
    leases_judge(b->sc->leases, &rules, worker_now(b->w), &b->judged, &b->leases);
    b->judged_by = fresh;
    b->kernel_done = done;
    b->kernel_arg = arg;
    enforce_replace(b->sc->enforce, old ? old->policy : NULL, fresh->policy, &b->leases, on_kernel,
                    b);
}

/* ---- publishing */

/* What the kernel was told of leases for the sake of this view. */
static const struct lease_change *told(struct boot *b)
{
    static const struct lease_change nothing;
    bool ours = b->judged_by == b->view;
    b->judged_by = NULL;
    return ours ? &b->leases : &nothing;
}

/* A change needs some MiB for a moment: text, tree, a second view. */
static void on_tidy(struct timer *t)
{
    (void)t;
    mem_trim();
}

static void tidy_later(struct boot *b)
{
    if (!timer_is_set(&b->tidy))
        timer_set(b->w, &b->tidy, TIDY_MS);
}

static void adopt(struct boot *b)
{
    const struct egress_view *old = b->view, *fresh = b->fresh;
    struct snapshot *snap = view_snapshot(&b->set->core, fresh);
    b->view = fresh;
    b->fresh = NULL;
    b->rules = force_rules(b->set, fresh);
    worker_adopt(b->w, snap);
    app_published(b->app, snap);
    snapshot_unref(snap);
    dns_service_adopt(b->sc->dns, &b->rules, told(b));
    forget_judged(b);
    tidy_later(b);
    events_adopt(b->sc->events, fresh);
    if (b->sc->relay)
        relay_recheck(b->sc->relay);
    view_unref(old);
    b->in_force(b->in_force_arg);
}

static bool other_policy(const struct boot *b)
{
    return b->fresh->user.rules != b->view->user.rules ||
           b->fresh->user.allow != b->view->user.allow;
}

/* On a thread of the pool: the supervisor may take its time. */
static void leave(void *user)
{
    struct boot *b = user;
    if (b->leaves_policy)
        handover_leave_policy(b->hand, &b->fresh->user);
    if (b->leaves_hosts)
        bound_hosts_before(b->bound);
}

static void on_left(void *user)
{
    adopt(user);
}

/* A crash after this must not bring back what was in force before it (egress-policy 7.3), nor send
 * without a credential what had one (egress-vault 13.1). */
static void publish(void *user, const struct egress_view *fresh, void (*in_force)(void *arg),
                    void *arg)
{
    struct boot *b = user;
    assert(!b->fresh);
    b->fresh = view_ref(fresh);
    b->in_force = in_force;
    b->in_force_arg = arg;
    if (b->sc->enforce)
        enforce_adopt(b->sc->enforce, fresh);
    b->leaves_policy = other_policy(b) && b->set->policy_file.n == 0 && handover_kept(b->hand);
    b->leaves_hosts = (fresh->vault != b->view->vault || fresh->lost != b->view->lost) &&
                      bound_hosts_change(b->bound, vault_bindings(fresh->vault));
    if (b->leaves_policy || b->leaves_hosts)
        worker_call(b->w, leave, on_left, b);
    else
        adopt(b);
}

/* The operator's files win over a vault that was there before them. */
static void warn_uncovered(struct boot *b, const struct egress_view *old,
                           const struct egress_view *fresh)
{
    struct cover c = {fresh->policy, force_passed, b};
    struct vault_cover cover = cover_of(&c);
    bool same = fresh->always.deny == old->always.deny && fresh->always.allow == old->always.allow;
    struct arena a;
    struct log_line l;
    if (same || !fresh->vault)
        return;
    arena_init(&a, NULL, 0);
    struct str why = vault_uncovered(fresh->vault, &cover, &a);
    if (why.n) {
        log_begin(&l, LOG_WARN, "rule files deny a host of the credential vault");
        log_str(&l, "error", why);
        log_end(&l);
    }
    arena_done(&a);
}

static void cut(struct boot *b)
{
    if (b->sc->enforce)
        enforce_cut(b->sc->enforce, b->after_done, b->after_arg);
    else
        b->after_done(b->after_arg);
}

static void leave_after(void *user)
{
    bound_hosts_after(((struct boot *)user)->bound);
}

static void on_left_after(void *user)
{
    cut(user);
}

static void after(void *user, const struct egress_view *old, const struct egress_view *fresh,
                  void (*done)(void *arg), void *arg)
{
    struct boot *b = user;
    warn_uncovered(b, old, fresh);
    b->after_done = done;
    b->after_arg = arg;
    if (b->leaves_hosts)
        worker_call(b->w, leave_after, on_left_after, b);
    else
        cut(b);
}

static void unsure(void *user, bool is)
{
    ((struct boot *)user)->unsure = is;
}

/* ---- life */

/* What the main thread is told for its pages, and whether the end may come. */
static void on_pulse(struct timer *t)
{
    struct boot *b = container_of(t, struct boot, pulse);
    atomic_store(&b->enforced, force_fault(b) == NULL || b->set->allow_unenforced);
    egress_measure(b->sc);
    timer_set(b->w, t, b->draining ? DRAIN_PULSE_MS : PULSE_MS);
    bool idle = b->events_drained && api_open(b->sc->api) == 0 && !changes_busy(b->sc->changes);
    if (b->held && idle) {
        b->held = false;
        app_unhold(b->app);
    }
}

struct str boot_unready(struct app *app, struct arena *a)
{
    (void)a;
    return atomic_load(&boot_of(app)->enforced) ? STR("") : STR("not enforced\n");
}

void force_start(struct boot *b, int api)
{
    struct change_host host = {.w = b->w,
                               .kernel =
                                   b->sc->enforce && b->set->mode == EGRESS_DNS_NFT ? kernel : NULL,
                               .publish = publish,
                               .after = after,
                               .unsure = unsure,
                               .kernel_ms = settings_ms(b->set->kernel_timeout),
                               .user = b};
    struct api_host asks = force_asks(b);
    arena_init(&b->judged, NULL, 0);
    host.store = b->store = policy_store_new(b->w, b->set->policy_file);
    asks.changes = b->sc->changes = changes_new(&host, b->view);
    events_adopt(b->sc->events, b->view);
    b->sc->api = api_start(b->w, api, &asks);
    b->always = always_start(b->w, b->sc->changes, STR(ALWAYS_FOLDER));
    timer_init(&b->pulse, on_pulse);
    timer_init(&b->tidy, on_tidy);
    timer_set(b->w, &b->tidy, TIDY_MS);
    if (b->set->core.admin_addr.n > 0) /* nobody else looks */
        timer_set(b->w, &b->pulse, 1);
}

/* ---- things the main thread asks for, on the worker */

struct errand {
    struct post post;
    struct boot *b;
};

static void send_off(struct boot *b, void (*run)(struct worker *w, struct post *p))
{
    struct errand *e = mem_new(sizeof *e);
    e->post.run = run;
    e->b = b;
    worker_post(b->w, &e->post);
}

static struct boot *receive(struct post *p)
{
    struct errand *e = container_of(p, struct errand, post);
    struct boot *b = e->b;
    mem_free(e);
    return b;
}

static void on_reload(struct worker *w, struct post *p)
{
    struct boot *b = receive(p);
    (void)w;
    always_reload(b->always);
    boot_intercept_reload(b->reads);
    if (b->sc->relay)
        relay_recheck(b->sc->relay);
}

void force_reload(struct boot *b)
{
    send_off(b, on_reload);
}

static void on_events_drained(void *user)
{
    ((struct boot *)user)->events_drained = true;
}

static void on_drain(struct worker *w, struct post *p)
{
    struct boot *b = receive(p);
    b->draining = true;
    b->held = true;
    api_drain(b->sc->api);
    if (b->sc->relay)
        relay_drain(b->sc->relay);
    events_drain(b->sc->events, on_events_drained, b);
    timer_set(w, &b->pulse, 1);
}

void force_drain(struct boot *b)
{
    send_off(b, on_drain);
}

/* Turns the loop until what was under way is through; the worker's thread is gone.  False: the
 * kernel or a disk does not answer. */
static bool settle(struct boot *b)
{
    enum { TURNS = 2000 };
    always_stop(b->always);
    api_stop(b->sc->api);
    worker_turn(b->w);
    for (int i = 0; i < TURNS && changes_busy(b->sc->changes); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        worker_turn(b->w);
    }
    return !changes_busy(b->sc->changes);
}

bool force_stop(struct boot *b)
{
    timer_clear(b->w, &b->pulse);
    timer_clear(b->w, &b->tidy);
    if (!settle(b))
        return false;
    changes_free(b->sc->changes);
    policy_store_free(b->store);
    arena_done(&b->judged);
    return true;
}
