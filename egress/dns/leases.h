/* leases.h — which address was handed out for which name, until when (contract egress-policy 4.3).
 *
 * A lease runs for its TTL and a minute, 60 to 360 s; a later answer renews it and never shortens
 * it.  An address may have leases for several names: the kernel knows it by the best of them.  Time
 * is an argument, in ms. */
#ifndef DNS_LEASES_H
#define DNS_LEASES_H

#include "egress/dns/gate.h"

/* Which sets of the kernel an address is in. */
enum lease_kind {
    LEASE_ALWAYS = 1, /* for a name that allow.always allows */
    LEASE_USER = 2,   /* for a name that a user rule or the default action allows */
    LEASE_BOUND = 4   /* for a name that is intercepted */
};

struct lease_address {
    struct ip ip;
    unsigned seconds;
};

/* An address that is taken out of these sets; `lost`: it is in neither of the first two now. */
struct lease_gone {
    struct ip ip;
    unsigned kinds;
    bool lost;
};

/* An address that is in these sets from now on. */
struct lease_fresh {
    struct str name;
    struct lease_address address;
    unsigned kinds;
};

/* How the kernel is told; in mode dns nobody is.  What is asked is carried out in the order of
 * asking, a change of the policy's sets by others included. */
struct leases_kernel {
    /* Puts n addresses into the sets of `kinds`, for their time from now.  done(arg, ok) once, on
     * this worker, maybe before this returns.  All is lent. */
    void (*learn)(void *user, struct str name, const struct lease_address *list, size_t n,
                  unsigned kinds, void (*done)(void *arg, bool ok), void *arg);
    void (*withdraw)(void *user, const struct lease_gone *list, size_t n);
    void *user;
};

struct leases_limits {
    unsigned per_name, total; /* leases */
};

struct leases;

/* kernel may be NULL; it is copied.  Free them when nothing is under way. */
struct leases *leases_new(const struct leases_limits *limits, const struct leases_kernel *kernel);
void leases_free(struct leases *l);

/* Seconds of a lease for a TTL. */
unsigned lease_seconds(uint32_t ttl);

enum lease_answer {
    LEASES_HELD,  /* all run already, or nobody has to be told: the reply may go */
    LEASES_ASKED, /* done(arg, ok) will tell; ok: all run, and the name is still allowed */
    LEASES_FULL   /* a limit is reached; nothing was done */
};

/* Hands addresses out for a name (lower case, no final dot).  `kinds` as leases_kinds() tells.
 * exact: as long as the TTL says; else (an answer from the cache) a lease that outlasts its use is
 * left as it is.  done() may come before this returns, and then the result is LEASES_ASKED too. */
enum lease_answer leases_take(struct leases *l, struct str name, unsigned kinds,
                              const struct gate_learned *learned, bool exact, uint64_t now_ms,
                              void (*done)(void *arg, bool ok), void *arg);
/* Would leases_take() answer LEASES_HELD? */
bool leases_held(const struct leases *l, struct str name, unsigned kinds,
                 const struct gate_learned *learned, bool exact, uint64_t now_ms);
/* What a name's addresses are by these rules; 0: the name is denied. */
unsigned leases_kinds(const struct gate_rules *rules, struct str name);
/* The same of a name that these rules have judged already. */
unsigned leases_kinds_of(const struct gate_rules *rules, struct str name,
                         const struct policy_answer *judged);
/* done() of every order with this arg will not be called. */
void leases_forget(struct leases *l, void *arg);
/* A lease as a predecessor left it in the kernel. */
void leases_restore(struct leases *l, const struct lease_fresh *found, uint64_t now_ms);

/* ---- questions */

/* Was the address handed out for this name? */
bool leases_covers(const struct leases *l, struct str name, const struct ip *ip, uint64_t now_ms);
/* When the lease ends, in ms; 0: there is none. */
uint64_t leases_until(const struct leases *l, struct str name, const struct ip *ip);
/* What an address is learned for, the best name counting, and whether one of them is bound. */
enum learned leases_learned(const struct leases *l, const struct ip *ip, uint64_t now_ms,
                            bool *ret_bound);

struct leases_counts {
    unsigned leases, names, addresses;
    uint64_t full, failed; /* times that a limit was reached, that the kernel refused */
};
struct leases_counts leases_counts(const struct leases *l);

/* ---- another policy */

struct lease_change {
    const struct lease_gone *gone;
    const struct lease_fresh *fresh;
    size_t ngone, nfresh;
};

/* What the kernel has to be told when these rules come into force; nothing is changed.  The lists
 * lie in `a`. */
void leases_judge(struct leases *l, const struct gate_rules *rules, uint64_t now_ms,
                  struct arena *a, struct lease_change *ret);
/* They are in force: leases without permission end.  `told`: what came of leases_judge(), if the
 * kernel was told it; the rest, leases taken since and orders under way among it, it is told from
 * here. */
void leases_adopt(struct leases *l, const struct gate_rules *rules, const struct lease_change *told,
                  uint64_t now_ms);

/* ---- addresses in use */

enum { LEASES_POLL_MS = 30000 };

/* Every LEASES_POLL_MS: the n addresses that connections are open to; readable false: unknown.
 * Those in use, and those that were at the last poll, are renewed; leases that are over end. */
void leases_poll(struct leases *l, bool readable, const struct ip *in_use, size_t n,
                 uint64_t now_ms);

#endif
