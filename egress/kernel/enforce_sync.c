/* enforce_sync.c — makes the kernel hold what it should, whatever it holds: the rules by the
 * program if they are not exactly those that were put there, then the elements by what differs. The
 * number of transactions says whether anybody else was at it meanwhile; then it begins anew. */
#include <errno.h>
#include <stdlib.h>

#include "egress/kernel/devices.h"
#include "egress/kernel/enforce_impl.h"
#include "egress/kernel/rules_run.h"

enum { TRIES = 5 };

/* From the best rules to the weakest. */
static const unsigned lacks_list[] = {
    0,
    RULESET_NO_LOG,
    RULESET_NO_COUNTER,
    RULESET_NO_COUNTER | RULESET_NO_LOG,
    RULESET_NO_WIRE,
    RULESET_NO_WIRE | RULESET_NO_LOG,
    RULESET_NO_WIRE | RULESET_NO_COUNTER,
    RULESET_NO_WIRE | RULESET_NO_COUNTER | RULESET_NO_LOG,
};

enum { LACKS = sizeof lacks_list / sizeof *lacks_list };

/* ---- in and out */

/* The books as they are when this change is in force. */
static void list_changed(struct sync *s, const struct books *books, const struct errand *change)
{
    uint64_t now = worker_now(s->e->w);
    struct books *b = books_new();
    struct sets_address *list;
    size_t n = books_list(books, now, &s->a, &list);
    books_learn(b, list, n, now);
    books_forget(b, change->forget, change->nforget);
    books_learn(b, change->learn, change->nlearn, now);
    s->nwanted = books_list(b, now, &s->a, &s->wanted);
    books_free(b);
}

struct sync *sync_new(struct enforce *e, const struct policy *policy, const struct errand *change)
{
    struct sync *s = mem_new(sizeof *s);
    arena_init(&s->a, NULL, 0);
    s->e = e;
    s->rules = e->rules;
    s->policy = e->full ? policy : NULL;
    s->print = e->print;
    if (change)
        list_changed(s, e->books, change);
    else
        s->nwanted = books_list(e->books, worker_now(e->w), &s->a, &s->wanted);
    return s;
}

void sync_free(struct sync *s)
{
    if (!s)
        return;
    arena_done(&s->a);
    mem_free(s);
}

static bool fail(struct sync *s, int error, const char *what)
{
    s->error = error;
    s->text = arena_printf(&s->a, "%s: %s", what, strerrordesc_np(-error));
    return false;
}

static bool read_devices(struct sync *s)
{
    if (devices_read(&s->a, &s->rules.devices, &s->rules.ndevices))
        return true;
    s->error = -E2BIG;
    s->text = STR("the network devices cannot be listed, or are too many");
    return false;
}

/* How far an attempt has come. */
struct progress {
    struct sets_print expected; /* rules 0: not known */
    bool applied;               /* the rules were put there just now ... */
    uint32_t by;                /* ... by this transaction */
    bool restless;              /* somebody else was at it: another look */
    bool anew;                  /* what stands in the sets cannot be mended */
};

/* ---- rules */

static bool text_of(struct sync *s, unsigned lacks, struct str *ret)
{
    struct ruleset r = s->rules;
    struct str error;
    r.lacks = lacks;
    if (ruleset_text(&r, &s->a, ret, &error))
        return true;
    s->error = -EINVAL;
    s->text = error;
    return false;
}

static unsigned devices_wanted(const struct sync *s)
{
    bool wire = s->rules.shape != RULESET_DNS && !(s->rules.lacks & RULESET_NO_WIRE);
    return wire ? s->rules.ndevices : 0;
}

/* Do the rules stand as they were put?  `what` is not known of a predecessor's: then the hash in
 * their name has to do. */
static bool rules_stand(struct sync *s, const struct sets_print *expected)
{
    char hash[RULESET_HASH_TEXT];
    struct str text;
    struct sets_print now;
    if (!text_of(s, s->rules.lacks, &text) || sets_table(s->e->pool.sets, hash) != 0 ||
        !str_eq(ruleset_hash(text), (struct str){hash, sizeof hash}) ||
        sets_print(s->e->pool.sets, &now) != 0 || now.devices != devices_wanted(s))
        return false;
    if (expected->rules && (expected->hash != now.hash || expected->rules != now.rules))
        return false;
    s->print = now;
    return true;
}

static bool apply_with(struct sync *s, unsigned lacks, struct str *ret_error)
{
    struct str text;
    if (!text_of(s, lacks, &text))
        return false;
    if (!rules_run(s->e->set.program, "apply", text, &s->a, ret_error))
        return false;
    s->rules.lacks = lacks;
    return true;
}

/* A device that goes while it is named makes the kernel refuse the rules, which are none the worse
 * for it. */
static bool devices_are_others(struct sync *s)
{
    const struct str *was = s->rules.devices;
    unsigned n = s->rules.ndevices;
    if (!read_devices(s))
        return false;
    bool same = n == s->rules.ndevices;
    for (unsigned i = 0; same && i < n; i++)
        same = str_eq(was[i], s->rules.devices[i]);
    if (same)
        return false;
    s->error = -EINTR;
    s->text = STR("the network devices change all the time");
    return true;
}

/* What the kernel lacks is found out once; then that is what it gets.  The first refusal is the one
 * worth telling. */
static bool apply_best(struct sync *s)
{
    struct str first = STR_NONE, error = STR_NONE;
    bool known = s->print.rules > 0;
    for (unsigned i = 0; i < (known ? 1 : LACKS); i++) {
        if (apply_with(s, known ? s->rules.lacks : lacks_list[i], &error))
            return true;
        if (s->error || devices_are_others(s))
            return false;
        if (first.n == 0)
            first = error;
    }
    s->error = -EOPNOTSUPP;
    s->text = first;
    return false;
}

static bool apply(struct sync *s)
{
    s->applied = true;
    if (rules_allowed())
        return apply_best(s);
    s->error = -EPERM;
    s->text = STR("CAP_NET_ADMIN is missing");
    return false;
}

/* ---- elements */

struct sets_rules sync_rules(const struct policy *p)
{
    return (struct sets_rules){*policy_always_ranges(p), *policy_user_ranges(p), policy_default(p)};
}

static bool differ(const struct ranges *there, const struct ranges *wanted, struct arena *a)
{
    struct ranges is = ranges_joined(there, a), should = ranges_joined(wanted, a);
    return ranges_diff(&is, &should, a).n > 0;
}

static bool write_elements(struct sync *s, struct progress *p)
{
    struct sets_content c;
    struct books_diff d;
    int error = sets_dump(s->e->pool.sets, &s->a, &c);
    if (error)
        return fail(s, error, "reading the kernel's sets");
    p->anew = p->restless = c.odd;
    if (p->anew)
        return true;
    struct sets_rules wanted = sync_rules(s->policy);
    bool rules = differ(&c.rules.always, &wanted.always, &s->a) ||
                 differ(&c.rules.user, &wanted.user, &s->a) || c.rules.allow != wanted.allow;
    qsort(c.at, c.n, sizeof *c.at, books_order);
    books_compare(c.at, c.n, s->wanted, s->nwanted, &s->a, &d);
    s->wrote = rules || d.nforget > 0 || d.nlearn > 0;
    if (!s->wrote)
        return true;
    error = sets_change(s->e->pool.sets, &c.rules, rules ? &wanted : NULL, d.forget, d.nforget,
                        d.learn, d.nlearn);
    p->anew = error && error != -EINTR && error != -ENOBUFS;
    return error ? fail(s, error, "writing the kernel's sets") : true;
}

/* ---- together */

static bool count_transactions(struct sync *s, uint32_t *ret)
{
    int error = sets_generation(s->e->pool.sets, ret);
    return error ? fail(s, error, "asking the kernel") : true;
}

static void hold_queues(struct sync *s)
{
    if (s->policy)
        xdp_hold(&s->e->pool.xdp, s->rules.devices, s->rules.ndevices);
}

static bool put_there(struct sync *s, struct progress *p, uint32_t before)
{
    p->expected = (struct sets_print){0};
    p->applied = p->restless = true;
    p->by = before + 1;
    return s->error == 0 && apply(s);
}

static bool attempt(struct sync *s, struct progress *p)
{
    uint32_t before, after;
    bool applied = p->applied, anew = p->anew;
    p->applied = p->restless = p->anew = s->wrote = false;
    if (!read_devices(s) || !count_transactions(s, &before))
        return false;
    if (anew || (applied && before != p->by) || !rules_stand(s, &p->expected))
        return put_there(s, p, before);
    p->expected = s->print;
    if (s->policy && !write_elements(s, p))
        return false;
    if (!count_transactions(s, &after))
        return false;
    p->restless |= after != before + s->wrote;
    s->generation = after;
    return true;
}

/* The table may have gone under our hands; what the program refuses will be refused again. */
static bool may_try_again(const struct sync *s, const struct progress *p)
{
    return p->anew || s->error == -ENOENT || s->error == -EINTR || s->error == -ENOBUFS;
}

void sync_work(struct sync *s)
{
    struct progress p = {.expected = s->print};
    bool wrote = false;
    for (unsigned i = 0; i < TRIES; i++) {
        s->error = 0;
        bool good = attempt(s, &p);
        wrote |= s->wrote;
        if (!good && !may_try_again(s, &p))
            return;
        if (good && !p.restless) {
            s->wrote = wrote;
            hold_queues(s);
            return;
        }
    }
    if (s->error == 0)
        (void)fail(s, -EINTR, "the kernel's rules do not come to rest");
}

bool sync_is_ours(struct enforce *e)
{
    struct sync s = {.e = e, .rules = e->rules};
    struct sets_print unknown = {0};
    bool ours = false;
    arena_init(&s.a, NULL, 0);
    for (unsigned i = 0; i < LACKS && !ours && read_devices(&s); i++) {
        s.rules.lacks = lacks_list[i];
        ours = rules_stand(&s, &unknown);
    }
    if (ours)
        e->rules.lacks = s.rules.lacks;
    arena_done(&s.a);
    return ours;
}
