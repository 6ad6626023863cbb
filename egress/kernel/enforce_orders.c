/* enforce_orders.c — the queue.  Order is what keeps kernel and leases from drifting apart: an
 * address that was learned after a change of the policy was asked for must not be opened before
 * it. */
#include <assert.h>
#include <errno.h>

#include "base/log.h"
#include "egress/kernel/enforce_impl.h"

enum { AHEAD_MS = 5000, LATER_MS = 50 };

_Static_assert((int)LEASE_ALWAYS == SETS_LEARNED_ALWAYS && (int)LEASE_USER == SETS_LEARNED &&
                   (int)LEASE_BOUND == SETS_BOUND,
               "kinds of leases and of sets have the same numbers");

struct errand *errand_new(struct enforce *e, enum errand_kind kind)
{
    struct errand *o = mem_new(sizeof *o);
    o->e = e;
    o->kind = kind;
    list_init(&o->link);
    arena_init(&o->a, NULL, 0);
    return o;
}

void errand_free(struct errand *o)
{
    list_del(&o->link);
    sync_free(o->sync);
    view_unref(o->view);
    mem_free(o->learned_now);
    arena_done(&o->a);
    mem_free(o);
}

bool enforce_applies(const struct enforce *e)
{
    return e->full && e->state != ENFORCE_NEVER;
}

/* ---- on the loop: learned addresses */

/* The table is gone: it is put back, then the address.  Where it could not be put back, that is
 * tried at its own pace. */
static bool put_back_first(struct errand *o)
{
    if (o->error != -ENOENT || o->again || o->e->state != ENFORCE_HELD)
        return false;
    o->again = true;
    errand_give(o, true);
    enforce_look(o->e);
    return true;
}

/* Is one of them the upstream proxy's, and was not before?  The sandbox may have spoken to it. */
static bool has_new_parent(const struct errand *o)
{
    for (size_t i = 0; i < o->nlearn; i++) {
        if (o->learn[i].kinds & SETS_PARENT &&
            books_until(o->e->books, &o->learn[i].ip, SETS_PARENT) <= worker_now(o->e->w))
            return true;
    }
    return false;
}

static void note_learned(struct errand *o)
{
    struct enforce *e = o->e;
    bool judge = e->begun && has_new_parent(o);
    books_learn(e->books, o->learn, o->nlearn, worker_now(e->w));
    e->cut_owed |= judge;
    if (judge)
        enforce_cut(e, NULL, NULL);
}

/* A set that is full is as it should be. */
static void note_refused(struct errand *o)
{
    if (o->error != -ENFILE)
        enforce_doubt(o->e);
    log_note_rarely(LOG_WARN, "the kernel refused a learned address", "error",
                    strerrordesc_np(-o->error), NULL);
}

static void learn(struct errand *o)
{
    struct enforce *e = o->e;
    bool ours = enforce_applies(e);
    if (ours)
        o->error = sets_change(e->sets, NULL, NULL, NULL, 0, o->learn, o->nlearn);
    if (put_back_first(o))
        return;
    if (o->error)
        note_refused(o);
    else
        note_learned(o);
    e->counts.learned += ours && o->error == 0;
    e->counts.learn_failed += o->error != 0;
    if (o->learned)
        o->learned(o->arg, o->error == 0);
    errand_free(o);
}

/* The books forget at once: what the kernel did not, the next look takes out. */
static void withdraw(struct errand *o)
{
    struct enforce *e = o->e;
    books_forget(e->books, o->forget, o->nforget);
    e->cut_owed = true;
    if (enforce_applies(e)) {
        o->error = sets_forget(e->sets, o->forget, o->nforget);
        e->counts.removed += o->error == 0;
        e->counts.remove_failed += o->error != 0;
        if (o->error)
            enforce_doubt(e);
    }
    errand_free(o);
}

/* ---- on the pool: all else */

static int write_difference(struct errand *o)
{
    struct sets_rules old = sync_rules(o->old), fresh = sync_rules(o->fresh);
    return sets_change(o->e->pool.sets, &old, &fresh, o->forget, o->nforget, o->learn, o->nlearn);
}

/* By an allow that went or a deny that came: nothing else takes a permission away. */
static bool layer_narrows(const struct ranges *old, const struct ranges *fresh, struct arena *a)
{
    struct ranges_change c = ranges_diff(old, fresh, a);
    for (unsigned k = 0; k < RANGE_KINDS; k++) {
        for (size_t i = 0; i < c.remove[k].n; i++)
            if (c.remove[k].at[i].allow)
                return true;
        for (size_t i = 0; i < c.add[k].n; i++)
            if (!c.add[k].at[i].allow)
                return true;
    }
    return false;
}

/* Walking the machine's table of flows takes longer than all else, so it is not done for a change
 * that only opens. */
static bool narrows(const struct errand *o)
{
    struct arena a;
    bool is = o->nforget > 0 || (policy_default(o->old) && !policy_default(o->fresh));
    for (size_t i = 0; i < o->nlearn; i++)
        is |= (o->learn[i].kinds & SETS_BOUND) != 0;
    arena_init(&a, NULL, 0);
    is = is || layer_narrows(policy_always_ranges(o->old), policy_always_ranges(o->fresh), &a) ||
         layer_narrows(policy_user_ranges(o->old), policy_user_ranges(o->fresh), &a);
    arena_done(&a);
    return is;
}

static void work(void *user)
{
    struct errand *o = user;
    struct enforce *e = o->e;
    pthread_mutex_lock(&e->lock);
    o->narrows = true;
    if (e->ended) {
        o->error = -ECANCELED;
    } else if (o->sync) {
        sync_work(o->sync);
    } else {
        o->error = write_difference(o);
        o->narrows = narrows(o);
    }
    pthread_mutex_unlock(&e->lock);
}

static void on_back(void *user);

static void send_off(struct errand *o)
{
    struct enforce *e = o->e;
    if (o->sync)
        enforce_deafen(e, true);
    else if (o->old && o->fresh)
        e->cut_owed |= books_late_lose(e->books, worker_now(e->w), o->old, o->fresh);
    e->under_way = o;
    enforce_job(e);
    worker_call(e->w, work, on_back, o);
}

void enforce_count_rules(struct enforce *e, const struct policy *p)
{
    uint64_t n = policy_default(p) ? 2 : 0;
    for (unsigned k = 0; k < RANGE_KINDS; k++)
        n += policy_always_ranges(p)->list[k].n + policy_user_ranges(p)->list[k].n;
    e->counts.rules = e->print.rules + (e->full ? n : 0);
}

static void note_in_books(struct errand *o)
{
    books_forget(o->e->books, o->forget, o->nforget);
    books_learn(o->e->books, o->learn, o->nlearn, worker_now(o->e->w));
}

static void replaced(struct errand *o)
{
    struct enforce *e = o->e;
    e->cut_owed |= o->narrows;
    if (o->error == 0) {
        e->ahead = o->fresh != e->view->policy;
        e->ahead_until = worker_now(e->w) + AHEAD_MS;
        note_in_books(o);
        enforce_count_rules(e, o->fresh);
    }
    e->counts.applied += o->error == 0;
    e->counts.apply_failed += o->error != 0;
    o->replaced(o->arg, o->error);
}

/* What went wrong with a difference goes right, if anything does, when the kernel is read first. */
static bool try_again(struct errand *o)
{
    if (o->kind != ERRAND_REPLACE || o->sync || o->error == 0)
        return false;
    o->sync = sync_new(o->e, o->fresh, o);
    send_off(o);
    return true;
}

bool errand_returned(struct errand *o)
{
    struct enforce *e = o->e;
    e->under_way = NULL;
    if (!enforce_job_over(e))
        return true;
    errand_free(o);
    return false;
}

static void on_back(void *user)
{
    struct errand *o = user;
    struct enforce *e = o->e;
    if (!errand_returned(o))
        return;
    if (try_again(o))
        return;
    e->running = true; /* what is asked for now comes after all that waits */
    if (o->sync) {
        o->error = o->sync->error;
        enforce_deafen(e, false);
        enforce_synced(e, o->sync, o->kind == ERRAND_REPLACE);
    }
    if (o->kind == ERRAND_REPLACE)
        replaced(o);
    errand_back(o);
}

static void replace(struct errand *o)
{
    struct enforce *e = o->e;
    if (!enforce_applies(e)) {
        note_in_books(o);
        o->replaced(o->arg, 0);
        errand_free(o);
        return;
    }
    if (!o->old || e->state != ENFORCE_HELD)
        o->sync = sync_new(e, o->fresh, o);
    send_off(o);
}

/* A look now would put the old policy back. */
static bool is_ahead(const struct enforce *e)
{
    return e->ahead && worker_now(e->w) < e->ahead_until;
}

static void look(struct errand *o)
{
    struct enforce *e = o->e;
    e->look_waits = false;
    if (is_ahead(e)) {
        timer_set(e->w, &e->doubt, LATER_MS);
        errand_free(o);
        return;
    }
    o->view = view_ref(e->view);
    o->sync = sync_new(e, o->view->policy, NULL);
    send_off(o);
}

/* ---- the queue */

static void carry_out(struct errand *o)
{
    static void (*const verbs[])(struct errand *) = {[ERRAND_LEARN] = learn,
                                                     [ERRAND_WITHDRAW] = withdraw,
                                                     [ERRAND_REPLACE] = replace,
                                                     [ERRAND_SYNC] = look,
                                                     [ERRAND_CUT] = cut_start};
    verbs[o->kind](o);
}

static void run(struct enforce *e)
{
    if (e->running)
        return;
    e->running = true;
    for (struct list *first; !e->under_way && (first = list_pop(&e->waiting));)
        carry_out(container_of(first, struct errand, link));
    e->running = false;
}

void errand_give(struct errand *o, bool urgent)
{
    struct enforce *e = o->e;
    if (urgent)
        list_push_front(&e->waiting, &o->link);
    else
        list_push(&e->waiting, &o->link);
    run(e);
}

void errand_back(struct errand *o)
{
    struct enforce *e = o->e;
    errand_free(o);
    e->running = false;
    run(e);
}

/* ---- what is asked */

static void on_learn(void *user, struct str name, const struct lease_address *list, size_t n,
                     unsigned kinds, void (*done)(void *arg, bool ok), void *arg)
{
    struct errand *o = errand_new(user, ERRAND_LEARN);
    o->learn = arena_get(&o->a, (n + 1) * sizeof *o->learn);
    name = arena_str(&o->a, name);
    for (size_t i = 0; i < n; i++)
        o->learn[i] = (struct sets_address){list[i].ip, kinds, list[i].seconds, name};
    o->nlearn = n;
    o->learned = done;
    o->arg = arg;
    errand_give(o, false);
}

static struct sets_address *copy_gone(struct arena *a, const struct lease_gone *list, size_t n)
{
    struct sets_address *out = arena_get(a, (n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct sets_address){.ip = list[i].ip, .kinds = list[i].kinds};
    return out;
}

static void on_withdraw(void *user, const struct lease_gone *list, size_t n)
{
    struct errand *o = errand_new(user, ERRAND_WITHDRAW);
    o->forget = copy_gone(&o->a, list, n);
    o->nforget = n;
    errand_give(o, false);
}

struct leases_kernel enforce_leases(struct enforce *e)
{
    return (struct leases_kernel){on_learn, on_withdraw, e};
}

void enforce_parent(struct enforce *e, const struct ip *ips, size_t n, unsigned seconds)
{
    if (!e->rules.parent_port || n == 0)
        return;
    struct errand *o = errand_new(e, ERRAND_LEARN);
    o->learn = arena_get(&o->a, n * sizeof *o->learn);
    for (size_t i = 0; i < n; i++)
        o->learn[i] = (struct sets_address){ips[i], SETS_PARENT, seconds, STR_NONE};
    o->nlearn = n;
    errand_give(o, false);
}

static struct sets_address *copy_fresh(struct arena *a, const struct lease_fresh *list, size_t n)
{
    struct sets_address *out = arena_get(a, (n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct sets_address){list[i].address.ip, list[i].kinds, list[i].address.seconds,
                                       arena_str(a, list[i].name)};
    return out;
}

void enforce_replace(struct enforce *e, const struct policy *old, const struct policy *fresh,
                     const struct lease_change *leases, void (*done)(void *arg, int error),
                     void *arg)
{
    struct errand *o = errand_new(e, ERRAND_REPLACE);
    o->old = old;
    o->fresh = fresh;
    if (leases) {
        o->forget = copy_gone(&o->a, leases->gone, leases->ngone);
        o->learn = copy_fresh(&o->a, leases->fresh, leases->nfresh);
        o->nforget = leases->ngone;
        o->nlearn = leases->nfresh;
    }
    o->replaced = done;
    o->arg = arg;
    errand_give(o, false);
}

void enforce_cut(struct enforce *e, void (*done)(void *arg), void *arg)
{
    struct errand *o = errand_new(e, ERRAND_CUT);
    o->after = done;
    o->arg = arg;
    errand_give(o, false);
}
