/* boot_impl.h — the inside of the sidecar, for boot.c (the order of its parts) and force.c (what a
 * change does to them). */
#ifndef EGRESS_BOOT_IMPL_H
#define EGRESS_BOOT_IMPL_H

#include <stdatomic.h>

#include "egress/api/api.h"
#include "egress/boot.h"
#include "egress/dns/free_names.h"
#include "egress/dns/service.h"
#include "egress/events/events.h"
#include "egress/kernel/enforce.h"
#include "egress/own_socket.h"
#include "egress/state/always_files.h"
#include "egress/state/policy_store.h"

enum { BOOT_DNS_PORT = 15353 };

struct boot_fds {
    int udp[2], tcp[2], relay[2]; /* for IPv4 and IPv6; -1: not there */
    int api, proxy;
};

struct boot {
    struct app *app;
    const struct egress_settings *set;
    struct handover *hand;
    struct marks marks;
    struct own_socket own;
    struct arena *mem;
    struct worker *w;
    struct sidecar *sc;
    const struct egress_view *view; /* in force; a reference */
    struct gate_rules rules;        /* by it, for DNS and leases */
    struct nameservers *servers;
    struct upkeep *upkeep;
    struct free_names free_names;
    struct names *names; /* outside of the policy */
    struct boot_parent *parent;
    struct boot_intercept *reads;

    /* force.c */
    struct policy_store *store;
    struct always_files *always;
    struct timer tidy;                   /* after a change */
    struct arena judged;                 /* holds `leases` */
    struct lease_change leases;          /* what the kernel was told of them ... */
    const struct egress_view *judged_by; /* ... for the sake of this one; NULL: nothing */
    void (*kernel_done)(void *arg, int error);
    void *kernel_arg;
    const struct egress_view *fresh; /* being published */
    struct bound_hosts *bound;       /* what the supervisor has of the vault */
    void (*in_force)(void *arg);
    void *in_force_arg;
    bool leaves_policy, leaves_hosts; /* with the supervisor, on the way to it */
    void (*after_done)(void *arg);
    void *after_arg;
    bool unsure, draining;
    bool events_drained, held; /* held: the end waits for us */
    struct timer pulse;
    _Atomic bool enforced; /* for the main thread */
};

struct boot *boot_of(const struct app *app);
static inline bool boot_wants_kernel(const struct egress_settings *set)
{
    return set->mode != EGRESS_PROXY;
}

/* boot_sockets.c: all that the settings name, and lists their ports in the sidecar.  False: one
 * line. */
bool boot_bind(struct boot *b, struct boot_fds *ret, struct str *ret_error) must_check;

/* What DNS and leases go by under this view, which must live as long as they do. */
struct gate_rules force_rules(const struct egress_settings *set, const struct egress_view *view);
/* Queue of changes, API on this socket, rule files. */
void force_start(struct boot *b, int api);
void force_reload(struct boot *b);
void force_drain(struct boot *b);
/* False: a change is still under way, and what it needs has to stay. */
bool force_stop(struct boot *b) must_check;
/* force_asks.c.  What the API needs, but its queue. */
struct api_host force_asks(struct boot *b);
/* Why what is in force is not enforced; NULL: it is. */
const char *force_fault(const struct boot *b);
/* user: the boot (struct cover). */
bool force_passed(void *user, struct str host);
/* Which rule refused the packet; static until the next call. */
struct str force_drop_rule(struct boot *b, const struct drop *drop, char out[POLICY_RULE_BYTES]);

#endif
