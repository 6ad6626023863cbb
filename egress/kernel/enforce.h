/* enforce.h — the kernel's part of the sidecar on its worker: rules put in force and kept in force,
 * the policy's sets, learned addresses, flows that lost their permission (contract egress-policy 4,
 * 7.1–7.3; DESIGN 15.1, 15.4).
 *
 * What is asked for is carried out in the order of asking.  Large work goes to the pool thread, one
 * piece at a time; a learned address costs some µs on the loop.  Nothing here is fatal: what is not
 * in force stands in enforce_fault(), and is tried again.
 *
 * In mode dns there are redirects only: learn, replace and cut are nothing then and answer at once.
 * The same where the kernel never took our rules: whoever runs unenforced has chosen to (E1). */
#ifndef KERNEL_ENFORCE_H
#define KERNEL_ENFORCE_H

#include "egress/dns/leases.h"
#include "egress/kernel/drops.h"
#include "egress/kernel/sets.h"
#include "egress/settings.h"
#include "egress/state/view.h"

struct enforce;
struct worker;

/* A descriptor to be kept over a crash (K15), with the name it is kept under. */
struct enforce_guard {
    struct str name;
    int fd;
};

#define ENFORCE_GUARD_PREFIX "xdp:"

struct enforce_setup {
    struct worker *w;
    const struct egress_settings *set; /* outlives it; mode dns or dns+nft */
    const char *program;               /* that puts rules into the kernel; NULL: beside ours */
    /* Random, different, not 0, and the same again after a crash: the hash of the rules tells
     * whether those in force are ours. */
    uint32_t own_mark, pass_mark, group_mark;
    uint32_t pass_priority;                 /* see ruleset.h */
    uint16_t dns_port;                      /* where our DNS listens */
    bool dns6;                              /* on ::1 as well */
    uint16_t relay_port;                    /* 0: nothing is redirected to it */
    const struct ruleset_server *upstreams; /* where our own UDP goes; copied */
    unsigned nupstreams;
    /* Guards that a predecessor left: enforce_new() takes those that are good (fd is -1 then), the
     * others stay the caller's. */
    struct enforce_guard *guards;
    unsigned nguards;
    /* Leave this descriptor, which stays ours, with the supervisor, or (fd -1) drop what is kept
     * under the name.  Before the worker runs, or on it.  NULL: nobody keeps anything. */
    void (*keep)(void *user, const struct enforce_guard *guard);
    /* A packet that was refused.  Lent; on the loop.  NULL: nobody wants to know. */
    void (*drop)(void *user, const struct drop *drop);
    void *user;
};

/* ---- life; on the main thread, while the worker does not run */

/* At start, before anything listens: deny-all, whatever stood there.  Blocks, 10 s at most.  False:
 * *error is one line in `a`. */
must_check bool enforce_close(const char *program, struct arena *a, struct str *error);
/* Does nothing to the kernel. */
struct enforce *enforce_new(const struct enforce_setup *setup);
/* Is the table that stands in the kernel the one this would make?  Then enforce_close() is not
 * wanted: enforce_start() takes it over. */
bool enforce_is_ours(struct enforce *e);
/* Puts the rules in force for this view, which becomes the current one; listeners are bound
 * already, so that nothing that is redirected gets lost.  Blocks: some 20 ms, at worst a minute.
 * Where a predecessor's rules are taken over, found() is asked about each address and name it had
 * learned (kinds of enum lease_kind, the seconds it has left) and returns the kinds it stays
 * learned for, 0: for none.  found NULL: all are forgotten.
 * Old flows are judged, and the self test is made, when the worker runs: until then there is a
 * fault. */
void enforce_start(struct enforce *e, const struct egress_view *view,
                   unsigned (*found)(void *user, const struct lease_fresh *lease), void *user);
/* At exit, after the worker was joined: waits for the pool, closes (deny-all stays) or removes the
 * rules, and frees it, before worker_free().  Nobody is answered any more.  NULL is fine. */
void enforce_end(struct enforce *e, bool remove);

/* ---- on the worker */

/* NULL: in force and proven.  Else why not, in one line; valid for this turn. */
const char *enforce_fault(const struct enforce *e);

/* For leases_new().  Learning fails when the kernel refuses; the table gone is put back first. */
struct leases_kernel enforce_leases(struct enforce *e);
/* Addresses of the upstream proxy (10.3), which only we may reach, on its port, for so long. */
void enforce_parent(struct enforce *e, const struct ip *ips, size_t n, unsigned seconds);

/* change_host.kernel: the policy's ranges, and what leases_judge() says of the leases under `fresh`
 * (NULL: nothing; all copied), in one transaction.  old NULL: the kernel is read first.  Both
 * policies live until done(arg, error): 0, or a negative errno and nothing of it is in force;
 * -ENOBUFS: it cannot be told.  After done() there may be orders that were given meanwhile. */
void enforce_replace(struct enforce *e, const struct policy *old, const struct policy *fresh,
                     const struct lease_change *leases, void (*done)(void *arg, int error),
                     void *arg);
/* change_host.publish: this view is the current one; soon after done() of enforce_replace(). */
void enforce_adopt(struct enforce *e, const struct egress_view *view);
/* change_host.after: flows that the current view and what is learned now deny are ended, those of
 * hosts that became bound too; to be called when leases_adopt() has been.  done(arg) in any case;
 * what cannot be cut is tried again by itself.  Where nobody can have lost anything since the last
 * time, nothing is looked through. */
void enforce_cut(struct enforce *e, void (*done)(void *arg), void *arg);

/* upkeep_setup.in_use: far ends of what is open (flows_in_use()), each once. */
void enforce_in_use(void *enforce,
                    void (*done)(void *arg, bool readable, const struct ip *list, size_t n),
                    void *arg);

/* ---- figures */

struct enforce_counts {
    uint64_t rules;                     /* rules and static elements of what was applied last */
    uint64_t applied, learned, removed; /* transactions: static, dynamic_add, remove */
    uint64_t apply_failed, learn_failed, remove_failed;
    uint64_t repaired;        /* times that somebody else had changed our rules */
    uint64_t cut, cut_failed; /* flows; attempts */
    uint64_t drops_lost;
    unsigned elements[4];       /* learned: user, always, bound, parent */
    unsigned lacks;             /* of enum ruleset_lack */
    unsigned unguarded;         /* devices' queues without a guard against AF_XDP */
    struct sets_counts packets; /* as of the last look, up to 10 s ago */
};
/* On the worker. */
void enforce_counts(const struct enforce *e, struct enforce_counts *ret);

#endif
