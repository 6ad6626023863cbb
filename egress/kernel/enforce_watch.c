/* enforce_watch.c — keeps in force what is in force.  Whatever raises a doubt, a foreign
 * transaction, a device that came, an order the kernel refused, leads to the same look: it compares
 * all with all and puts back what differs.  Looks are cheap but not free, so the next one waits a
 * while, the longer the more often something had to be put back. */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "egress/kernel/enforce_impl.h"

enum {
    TICK_MS = 10000,
    GAP_MS = 100,
    GAP_MAX_MS = 5000,
    RETRY_MS = 1000,
    RETRY_MAX_MS = 30000,
    RETEST_MS = 1000,
    GUARD_TRIES = 6,
    FLOOD = 100, /* packets between two ticks */
    DROPS_A_TURN = 64
};

/* ---- doubts */

void enforce_look(struct enforce *e)
{
    if (e->look_waits)
        return;
    timer_clear(e->w, &e->doubt);
    e->look_waits = true;
    errand_give(errand_new(e, ERRAND_SYNC), true);
}

/* Then the namespace is open. */
static bool is_gone(struct enforce *e)
{
    char hash[RULESET_HASH_TEXT];
    return e->state == ENFORCE_HELD && sets_table(e->sets, hash) == -ENOENT;
}

void enforce_doubt(struct enforce *e)
{
    uint64_t now = worker_now(e->w);
    if (!e->monitor)
        return;
    if (e->doubt_since == 0)
        e->doubt_since = now;
    if (e->under_way && e->under_way->sync)
        e->doubt_anew = true;
    else if (!e->look_waits) {
        if (now >= e->looked_at + e->gap_ms || is_gone(e))
            enforce_look(e);
        else if (!timer_is_set(&e->doubt))
            timer_set(e->w, &e->doubt, e->looked_at + e->gap_ms - now);
    }
}

static void on_doubt(struct timer *t)
{
    enforce_look(container_of(t, struct enforce, doubt));
}

/* ---- the self test */

static void start_test(struct enforce *e);

static void on_retest(struct timer *t)
{
    start_test(container_of(t, struct enforce, retest));
}

static void on_tested(void *user, const char *fault)
{
    struct enforce *e = user;
    e->test = NULL;
    e->test_state = fault ? TEST_FAILED : TEST_PASSED;
    e->test_fault = fault;
    if (!fault) {
        e->tampered = false;
        return;
    }
    log_note_rarely(LOG_ERROR, "the kernel's rules do not hold", "error", fault, NULL);
    timer_set(e->w, &e->retest, RETEST_MS);
}

static void start_test(struct enforce *e)
{
    struct selftest_rules rules = {.dns6 = e->set.dns6, .refuses = e->full};
    timer_clear(e->w, &e->retest);
    selftest_stop(e->test);
    e->test_state = TEST_RUNS;
    e->test = selftest_start(e->w, &rules, on_tested, e);
    selftest_ports(e->test, e->test_ports);
}

/* Other rules than before are in force. */
static void prove(struct enforce *e)
{
    e->test_state = TEST_OWED;
    if (!e->begun)
        return;
    start_test(e);
    e->cut_owed = true;
    enforce_cut(e, NULL, NULL);
}

static void on_begin(struct worker *w, struct post *p)
{
    struct enforce *e = container_of(p, struct enforce, begin);
    (void)w;
    if (enforce_job_over(e))
        return;
    e->begun = true;
    if (e->state == ENFORCE_HELD)
        prove(e);
}

/* ---- what came of a look */

static void tell_lacks(const struct enforce *e, unsigned before)
{
    static const struct {
        unsigned lack;
        const char *text;
    } texts[] = {
        {RULESET_NO_WIRE, "this kernel cannot judge frames at the device: with CAP_NET_RAW the "
                          "sandbox gets out by AF_PACKET"},
        {RULESET_NO_COUNTER, "this kernel has no counters: refused packets are not counted"},
        {RULESET_NO_LOG, "this kernel has no nflog: refused packets make no events"},
    };
    unsigned now = e->rules.lacks & ~before;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (now & texts[i].lack)
            log_note(LOG_WARN, texts[i].text, NULL);
    }
}

static void tell_guards(struct enforce *e)
{
    struct xdp *x = &e->pool.xdp;
    if (x->unguarded && x->unguarded != e->counts.unguarded)
        log_note(LOG_WARN,
                 "not all queues of the devices are held: with CAP_NET_RAW the sandbox "
                 "gets out by AF_XDP",
                 NULL);
    e->counts.unguarded = x->unguarded;
    for (unsigned i = 0; e->set.keep && i < x->ngone; i++) {
        struct enforce_guard gone = {str_of(x->gone[i]), -1};
        e->set.keep(e->set.user, &gone);
    }
    for (unsigned i = 0; e->set.keep && i < x->n; i++) {
        struct enforce_guard g = {str_of(x->at[i].name), x->at[i].fd};
        if (x->at[i].fresh)
            e->set.keep(e->set.user, &g);
        x->at[i].fresh = false;
    }
    x->ngone = 0;
}

static void failed(struct enforce *e, const struct sync *s)
{
    uint64_t gap = e->gap_ms < RETRY_MS ? RETRY_MS : 2 * e->gap_ms;
    e->counts.apply_failed++;
    if (e->state == ENFORCE_HELD)
        e->state = ENFORCE_BROKEN;
    enforce_set_fault(e, "the kernel's rules are not in force", s->text);
    log_note_rarely(LOG_ERROR, "the kernel's rules are not in force", "error", e->fault, NULL);
    e->gap_ms = gap < RETRY_MAX_MS ? gap : RETRY_MAX_MS;
    if (e->doubt_since == 0)
        e->doubt_since = worker_now(e->w);
    timer_set(e->w, &e->doubt, e->gap_ms);
}

static void note_repair(struct enforce *e)
{
    e->counts.repaired++;
    e->tampered = true;
    e->gap_ms = 2 * e->gap_ms < GAP_MAX_MS ? 2 * e->gap_ms : GAP_MAX_MS;
    log_note_rarely(LOG_ERROR,
                    "somebody else changed our rules in the kernel: they have been put "
                    "back",
                    NULL);
}

static void in_force(struct enforce *e, const struct sync *s, bool change)
{
    unsigned lacks = e->state == ENFORCE_NEVER ? 0 : e->rules.lacks;
    bool other = s->applied || (s->wrote && !change) || e->state != ENFORCE_HELD;
    bool repaired = e->state != ENFORCE_NEVER && other && !e->devices_changed;
    e->counts.applied += s->applied;
    e->print = s->print;
    e->rules.lacks = s->rules.lacks;
    if (!other || e->state != ENFORCE_HELD)
        e->gap_ms = GAP_MS;
    tell_lacks(e, lacks);
    if (repaired)
        note_repair(e);
    e->state = ENFORCE_HELD;
    e->devices_changed = false;
    e->doubt_since = 0;
    if (other)
        prove(e);
}

static void open_drops(struct enforce *e);

void enforce_synced(struct enforce *e, struct sync *s, bool change)
{
    bool anew = e->doubt_anew;
    e->looked_at = worker_now(e->w);
    e->doubt_anew = false;
    tell_guards(e);
    if (s->error) {
        failed(e, s);
        return;
    }
    monitor_trust(e->monitor, s->generation);
    in_force(e, s, change);
    open_drops(e);
    if (anew)
        enforce_doubt(e);
}

/* ---- what is heard */

static void on_rules(void *user)
{
    struct enforce *e = user;
    uint32_t ports[] = {sets_port(e->sets), sets_port(e->pool.sets)};
    if (monitor_rules(e->monitor, ports, 2))
        enforce_doubt(e);
}

static void on_devices(void *user)
{
    struct enforce *e = user;
    if (!monitor_devices(e->monitor))
        return;
    e->devices_changed = true;
    enforce_doubt(e);
}

void enforce_deafen(struct enforce *e, bool deaf)
{
    ready_stop(e->on_rules);
    e->on_rules = deaf ? NULL : ready_start(e->w, monitor_rules_fd(e->monitor), on_rules, e);
}

/* Our own attempts are nobody's. */
static void tell_drop(void *user, const struct drop *d)
{
    struct enforce *e = user;
    for (unsigned i = 0; i < SELFTEST_PORTS; i++) {
        if (d->dst_port == 853 && d->src_port == e->test_ports[i] && d->has_uid &&
            d->uid == e->rules.uid)
            return;
    }
    e->set.drop(e->set.user, d);
}

static void on_drops(void *user)
{
    struct enforce *e = user;
    int n = drops_read(e->drops, DROPS_A_TURN, tell_drop, e);
    if (n < 0)
        log_note_rarely(LOG_WARN, "refused packets cannot be read", "error", strerrordesc_np(-n),
                        NULL);
}

static void open_drops(struct enforce *e)
{
    if (e->drops || e->drops_tried || !e->set.drop || !e->full || e->rules.lacks & RULESET_NO_LOG)
        return;
    e->drops_tried = true;
    int error = drops_open(&e->drops);
    if (error)
        log_note(LOG_WARN, "refused packets make no events", "error", strerrordesc_np(-error),
                 NULL);
    else
        e->on_drops = ready_start(e->w, drops_fd(e->drops), on_drops, e);
}

/* ---- now and then */

static void tell_floods(struct enforce *e, const struct sets_counts *now)
{
    if (!e->told_marks && now->wrong_mark >= e->counts.packets.wrong_mark + FLOOD) {
        e->told_marks = true;
        log_note(LOG_WARN, "the sandbox sends many packets with marks that are not ours", NULL);
    }
    if (!e->told_forged && now->forged >= e->counts.packets.forged + FLOOD) {
        e->told_forged = true;
        log_note(LOG_WARN, "the sandbox sends many forged packets", NULL);
    }
}

static void look_at_counters(struct enforce *e)
{
    struct sets_counts now;
    if (e->state != ENFORCE_HELD || sets_counts(e->sets, &now) != 0)
        return;
    tell_floods(e, &now);
    e->counts.packets = now;
}

/* Messages may get lost: the number cannot. */
static void look_at_number(struct enforce *e)
{
    uint32_t generation;
    if (e->under_way || e->state != ENFORCE_HELD)
        return;
    on_rules(e);
    if (e->under_way || e->look_waits)
        return;
    if (sets_generation(e->sets, &generation) != 0 || !monitor_is_up_to(e->monitor, generation))
        enforce_doubt(e);
}

static void on_tick(struct timer *t)
{
    struct enforce *e = container_of(t, struct enforce, tick);
    timer_set(e->w, &e->tick, TICK_MS);
    books_sweep(e->books, worker_now(e->w));
    if (!e->monitor)
        return;
    look_at_counters(e);
    look_at_number(e);
    /* The kernel lets go of a queue some time after whoever had it has ended. */
    if (e->counts.unguarded && e->guard_tries++ < GUARD_TRIES)
        enforce_doubt(e);
    if (e->recut) {
        e->recut = false;
        enforce_cut(e, NULL, NULL);
    }
}

/* ---- life */

void enforce_watch_init(struct enforce *e)
{
    e->begin.run = on_begin;
    timer_init(&e->doubt, on_doubt);
    timer_init(&e->tick, on_tick);
    timer_init(&e->retest, on_retest);
    e->gap_ms = GAP_MS;
}

void enforce_watch_go(struct enforce *e)
{
    timer_set(e->w, &e->tick, TICK_MS);
    if (e->monitor)
        e->on_devices = ready_start(e->w, monitor_devices_fd(e->monitor), on_devices, e);
    enforce_job(e);
    worker_post(e->w, &e->begin);
}

void enforce_watch_stop(struct enforce *e)
{
    selftest_stop(e->test);
    e->test = NULL;
    ready_stop(e->on_rules);
    ready_stop(e->on_devices);
    ready_stop(e->on_drops);
    e->on_rules = e->on_devices = e->on_drops = NULL;
    timer_clear(e->w, &e->doubt);
    timer_clear(e->w, &e->tick);
    timer_clear(e->w, &e->retest);
}
