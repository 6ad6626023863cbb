/* upkeep.h — leases of names that clients keep using (contract egress-policy 4.3): names are looked
 * up again before their leases end, and addresses that connections are open to are renewed.
 *
 * upkeep.c is when and what, pure; upkeep_rounds.c is who asks. */
#ifndef DNS_UPKEEP_H
#define DNS_UPKEEP_H

#include "base/list.h"
#include "base/map.h"
#include "egress/dns/leases.h"
#include "net/nameserver.h"

enum { UPKEEP_NAMES = 128, UPKEEP_ADDRESSES = 64 };

/* ---- when and what */

/* Seconds until a name is asked for again, whose earliest lease has so much left, after so many
 * failures in a row. */
uint64_t upkeep_next_s(uint64_t lease_left_s, unsigned failures);

enum upkeep_found {
    UPKEEP_ANSWER,  /* NOERROR, with addresses or without */
    UPKEEP_NO_NAME, /* NXDOMAIN */
    UPKEEP_FAILED   /* anything else */
};

enum upkeep_verdict {
    UPKEEP_RENEW, /* what is left in `learned` */
    UPKEEP_DROP,  /* the name is not looked up any more */
    UPKEEP_AGAIN  /* a failure */
};

/* What two look-ups came to.  `learned`: all addresses of both; those not among the n observed are
 * taken out. */
enum upkeep_verdict upkeep_settle(enum upkeep_found a, enum upkeep_found aaaa,
                                  const struct ip *observed, unsigned n,
                                  struct gate_learned *learned);

struct upkeep_name {
    struct list link; /* the one not asked for longest comes first */
    struct str text;  /* lower case, no final dot */
    struct dns_name name;
    unsigned n;
    struct ip *ip; /* observed */
    unsigned failures;
    uint64_t next_ms; /* after a failure */
    bool busy;
};

/* Names that are looked up again. */
struct upkeep_table {
    struct list by_use;
    struct map *names;
};

void upkeep_table_init(struct upkeep_table *t);
void upkeep_table_done(struct upkeep_table *t);
/* A client was told these addresses; the name not asked for longest may go for it. */
void upkeep_observe(struct upkeep_table *t, struct str text, const struct dns_name *name,
                    const struct gate_learned *learned);
struct upkeep_name *upkeep_find(const struct upkeep_table *t, struct str text);
void upkeep_drop(struct upkeep_table *t, struct upkeep_name *n);
/* The name, not busy, to be looked up first of those that are due now; NULL: none is.  Names
 * without a lease go. */
struct upkeep_name *upkeep_due(struct upkeep_table *t, const struct leases *leases,
                               uint64_t now_ms);
/* A look-up of n failed. */
void upkeep_failed(struct upkeep_name *n, const struct leases *leases, uint64_t now_ms);

/* ---- who asks */

struct upkeep;
struct worker;

struct upkeep_setup {
    struct worker *w;
    struct nameservers *servers;
    struct leases *leases;
    const struct gate_rules *rules; /* until upkeep_adopt() */
    /* Addresses that connections of the namespace are open to: done(arg, …) once, later or at once;
     * the list is lent.  NULL: nobody knows. */
    void (*in_use)(void *user,
                   void (*done)(void *arg, bool readable, const struct ip *list, size_t n),
                   void *arg);
    void *user;
};

struct upkeep *upkeep_new(const struct upkeep_setup *setup);
/* Nobody may answer an in_use() that is under way. */
void upkeep_free(struct upkeep *u);
/* A client was told these addresses. */
void upkeep_told(struct upkeep *u, struct str text, const struct dns_name *name,
                 const struct gate_learned *learned);
/* Other rules are in force: nothing is remembered, what is under way is thrown away. */
void upkeep_adopt(struct upkeep *u, const struct gate_rules *rules);

#endif
