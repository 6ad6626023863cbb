/* enforce_impl.h — what the files of enforce share.
 *
 * Orders stand in one queue and are carried out one after the other: learning on the loop, the
 * others on the pool thread while the queue waits.  What the pool thread uses is its own (`pool`);
 * the lock is for the end alone, when main waits for what is under way. */
#ifndef KERNEL_ENFORCE_IMPL_H
#define KERNEL_ENFORCE_IMPL_H

#include <pthread.h>

#include "base/list.h"
#include "egress/kernel/books.h"
#include "egress/kernel/enforce.h"
#include "egress/kernel/flows.h"
#include "egress/kernel/monitor.h"
#include "egress/kernel/selftest.h"
#include "egress/kernel/xdp.h"
#include "net/ready.h"
#include "net/worker.h"
#include "policies/packet.h"

enum { ENFORCE_TEXT_BYTES = 256 };

enum enforce_state {
    ENFORCE_NEVER,  /* the kernel has not taken our rules yet */
    ENFORCE_HELD,   /* they are in force */
    ENFORCE_BROKEN, /* they were, and cannot be put back */
};

/* Brings the kernel to what it should hold, whatever it holds. */
struct sync {
    struct enforce *e;
    struct arena a;
    struct ruleset rules;        /* lacks: what is known, then what is so */
    const struct policy *policy; /* NULL in mode dns */
    struct sets_address *wanted; /* learned addresses, sorted */
    size_t nwanted;
    struct sets_print print; /* rules 0: not known; then what is there */
    int error;               /* not 0: `text` says more */
    struct str text;
    uint32_t generation; /* up to which all is known */
    bool applied, wrote; /* the rules were not there; elements were not */
};

enum errand_kind { ERRAND_LEARN, ERRAND_WITHDRAW, ERRAND_REPLACE, ERRAND_SYNC, ERRAND_CUT };

struct errand {
    struct list link; /* enforce.waiting */
    struct enforce *e;
    enum errand_kind kind;
    struct arena a;
    bool again; /* tried before, in vain */
    int error;
    struct sets_address *learn, *forget;
    size_t nlearn, nforget;
    void (*learned)(void *arg, bool ok);
    void (*replaced)(void *arg, int error);
    void (*after)(void *arg);
    void *arg;
    const struct policy *old, *fresh;
    bool narrows;      /* a replace: somebody may lose a permission by it */
    struct sync *sync; /* while it is a sync, or a replace that has become one */
    /* a cut, and the first of a sync */
    const struct egress_view *view;
    struct books_entry *learned_now;
    size_t nlearned_now;
    unsigned ended;
};

enum test_state { TEST_OWED, TEST_RUNS, TEST_PASSED, TEST_FAILED };

struct enforce {
    struct enforce_setup set;
    struct worker *w;
    struct arena arena;
    struct ruleset rules; /* without devices */
    struct packet_rules packets;
    bool full; /* mode dns+nft */

    enum enforce_state state;
    char fault[ENFORCE_TEXT_BYTES]; /* unless HELD */
    struct sets_print print;
    bool tampered;     /* somebody else was at our rules, and the test has not been passed since */
    bool flows_judged; /* those from before us */
    bool cut_owed;     /* there may be flows that have lost their permission */
    enum test_state test_state;
    const char *test_fault;
    struct selftest *test;
    uint16_t test_ports[SELFTEST_PORTS]; /* of the last one */

    const struct egress_view *view;
    struct books *books;
    struct sets *sets; /* the loop's */
    struct list waiting;
    struct errand *under_way;
    bool running; /* the queue is being worked off further up the stack */

    struct monitor *monitor;
    struct drops *drops;
    struct ready *on_rules, *on_devices, *on_drops;
    uint64_t doubt_since; /* ms; 0: no doubt.  A look waits, is under way, or the timer is set */
    bool look_waits;      /* in the queue */
    bool doubt_anew;      /* while one was under way */
    bool ahead;           /* the kernel holds a policy that is not the view's yet ... */
    uint64_t ahead_until; /* ... and is not looked at until then, in ms */
    bool devices_changed, recut, begun, drops_tried, told_marks, told_forged;
    unsigned guard_tries;
    uint64_t looked_at, gap_ms; /* when last, and how long there is none after that */
    struct timer doubt, tick, retest;
    struct post begin;

    struct {
        struct sets *sets;
        struct flows *flows;
        struct xdp xdp;
    } pool;
    pthread_mutex_t lock;
    bool ended;    /* under the lock */
    unsigned jobs; /* that will still come back, and the post */

    struct enforce_counts counts;
};

/* ---- enforce.c */
/* Work that comes back: begins and ends with these. */
void enforce_job(struct enforce *e);
/* True: enforce_end() has been; nobody is to be told anything, e may be gone. */
bool enforce_job_over(struct enforce *e);
void enforce_set_fault(struct enforce *e, const char *what, struct str why);

/* ---- enforce_orders.c */
struct errand *errand_new(struct enforce *e, enum errand_kind kind);
void errand_free(struct errand *o);
/* At the end of the queue, or (urgent) at its head. */
void errand_give(struct errand *o, bool urgent);
/* Are the policy's sets ours to keep? */
bool enforce_applies(const struct enforce *e);
/* An errand has come from the pool.  False: the end has come meanwhile, and it is freed. */
bool errand_returned(struct errand *o);
/* Goes on after an errand that was on the pool. */
void errand_back(struct errand *o);
void enforce_count_rules(struct enforce *e, const struct policy *p);

/* ---- enforce_sync.c */
/* A sync for this policy, which is to live as long, and the books, changed by the errand's lists if
 * it is not NULL. */
struct sync *sync_new(struct enforce *e, const struct policy *policy, const struct errand *change);
void sync_free(struct sync *s);
/* A policy as the kernel knows it; lent by the policy. */
struct sets_rules sync_rules(const struct policy *p);
/* On any thread, one at a time. */
void sync_work(struct sync *s);
/* Is the table that stands there one we would make? */
bool sync_is_ours(struct enforce *e);

/* ---- enforce_watch.c */
/* Somebody may have been at our rules: look, unless we have just looked. */
void enforce_doubt(struct enforce *e);
/* Look before anything else is done. */
void enforce_look(struct enforce *e);
/* What came of a sync.  change: that elements had to be written is nobody's fault. */
void enforce_synced(struct enforce *e, struct sync *s, bool change);
void enforce_watch_init(struct enforce *e);
/* Before the worker runs. */
void enforce_watch_go(struct enforce *e);
void enforce_watch_stop(struct enforce *e);
/* While the kernel is being read and written, nothing is heard. */
void enforce_deafen(struct enforce *e, bool deaf);

/* ---- enforce_cut.c */
void cut_start(struct errand *o);

#endif
