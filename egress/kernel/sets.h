/* sets.h — what of a policy stands in the kernel: verdicts of address rules, the default action,
 * learned addresses (contract egress-policy 3.4, 4.3).
 *
 * Every call is one transaction: all of it is in force when 0 comes back, or nothing is, and the
 * result is a negative errno.  -ENOBUFS alone says that it cannot be told: dump, compare, repeat.
 * -ENOENT: the table is not there, or a rule that was to go had gone: someone else was at it.
 *
 * A struct sets is one socket; calls on different ones may run in different threads, the kernel
 * puts them in a row. */
#ifndef KERNEL_SETS_H
#define KERNEL_SETS_H

#include "base/why.h"
#include "egress/kernel/ruleset.h"
#include "policies/ranges.h"

struct sets;

/* Opens a socket in the namespace of the calling thread. */
must_check int sets_open(struct sets **ret);
/* NULL is fine. */
void sets_close(struct sets *s);

/* What a policy says of addresses, in the three places where the kernel looks it up. */
struct sets_rules {
    struct ranges always, user;
    bool allow; /* the default action */
};

/* Which sets an address is in.  The parent's is there only where ruleset.parent_port is set. */
enum sets_kind {
    SETS_LEARNED_ALWAYS = 1, /* for a name that allow.always allows */
    SETS_LEARNED = 2,        /* for a name that a user rule allows */
    SETS_BOUND = 4,          /* of a bound host: no QUIC */
    SETS_PARENT = 8          /* of the upstream proxy */
};

struct sets_address {
    struct ip ip;
    unsigned kinds;   /* of enum sets_kind */
    unsigned seconds; /* a dump: how long it stays */
    struct str name;  /* a dump: for which it was learned; empty if over 251 bytes */
};

/* Sends the difference of two policies; `old` NULL: a fresh table, which is empty and denies.
 * Addresses in `forget` go in the same transaction, out of each of their kinds. */
must_check int sets_replace(struct sets *s, const struct sets_rules *old,
                            const struct sets_rules *fresh, const struct sets_address *forget,
                            size_t nforget);
/* Adds addresses to the sets of `kinds` for so many seconds, with the name as comment (none if it
 * has over 251 bytes); where one is already, time and name are made anew.  The set's limit is
 * ruleset.learned_max, and what is renewed counts twice while it is: -ENFILE when that is full, so
 * limit yourself lower. */
must_check int sets_learn(struct sets *s, struct str name, const struct ip *ips, size_t n,
                          unsigned seconds, unsigned kinds);
/* sets_replace() and sets_learn() in one: addresses in `learn` come with the name, seconds and
 * kinds of each.  With `fresh` NULL the rules stay as they are. */
must_check int sets_change(struct sets *s, const struct sets_rules *old,
                           const struct sets_rules *fresh, const struct sets_address *forget,
                           size_t nforget, const struct sets_address *learn, size_t nlearn);
/* Takes addresses out of the sets of their kinds; no error where one has run out already. */
must_check int sets_forget(struct sets *s, const struct sets_address *addresses, size_t n);

/* What is there, all of one generation; in `a`. */
struct sets_content {
    struct sets_rules rules; /* joined (ranges_joined()), numbers 0 */
    bool odd;                /* something is among them that is never written here */
    struct sets_address *at; /* one entry for each address and kind */
    size_t n;
};
/* -EINTR: the table changed each time it was looked at; later, then. */
must_check int sets_dump(struct sets *s, struct arena *a, struct sets_content *ret);
/* Who made the table: the hash in its comment. -ENOENT: there is none; -ENODATA: not ours. */
must_check int sets_table(struct sets *s, char ret_hash[RULESET_HASH_TEXT]);

/* Counts all transactions of the namespace, anybody's; it wraps. */
must_check int sets_generation(struct sets *s, uint32_t *ret);
/* Who we are in the kernel's messages about changes. */
uint32_t sets_port(const struct sets *s);

/* What our tables look like, elements of a policy left out. */
struct sets_print {
    uint64_t hash;    /* of all rules, chains and sets there are, their handles included */
    unsigned rules;   /* of both tables */
    unsigned devices; /* on which frames are judged */
};
/* -ENOENT: the table is not there. -EINTR: later, then. */
must_check int sets_print(struct sets *s, struct sets_print *ret);

/* Packets counted since the rules were applied. */
struct sets_counts {
    uint64_t refused;    /* by the policy */
    uint64_t forged;     /* pretending to be somebody, over lo or on a flow of ours */
    uint64_t wrong_mark; /* with a mark that is not ours */
    uint64_t frames;     /* that came past the rules and were stopped at the device */
};
/* Counters that are not there stay 0. */
must_check int sets_counts(struct sets *s, struct sets_counts *ret);

#endif
