/* events.h — what the sidecar tells of: log lines (contract egress-policy 6.2), the decision log
 * (2.10), the webhook for denied names (6.1), numbers (6.3).
 *
 * Lives on the sidecar's worker, and holds nothing up: what cannot be told now is counted.  Numbers
 * may be read from any thread. */
#ifndef EVENTS_EVENTS_H
#define EVENTS_EVENTS_H

#include "egress/api/api.h"
#include "egress/dns/service.h"
#include "egress/events/decisions.h"
#include "egress/kernel/drops.h"
#include "policies/bindings.h"

struct events;
struct names;

/* A decision about a connection, or about a request on one; lent. */
struct event_connection {
    struct str host;     /* empty: none was named */
    const struct ip *ip; /* NULL: none was judged */
    uint16_t port;
    bool allow;
    struct str rule; /* as policy_rule_text() says it */
    enum why why;    /* of a refusal */
};

/* What the vault had to do with a request (contract egress-vault 20). */
enum credential_decision {
    CREDENTIAL_NO_MATCH, /* its host is bound, and it went out without a credential */
    CREDENTIAL_INJECTED,
    CREDENTIAL_DENIED,
    CREDENTIAL_AMBIGUOUS,
    CREDENTIAL_MISMATCH, /* of identity */
    CREDENTIAL_DECISIONS
};

/* Lent; no values, no path. */
struct event_credential {
    enum credential_decision decision;
    const char *cause; /* of a refusal */
    struct str host, method, request_id;
    struct str binding, pattern; /* the one that matched, the path pattern it did by; or empty */
    int64_t revision;
    const struct auth_header *headers; /* what was set: names are told */
    unsigned nheaders;
    unsigned surfaces; /* of enum surface: where something was put in */
    bool missed;       /* it has substitutions, and none was found */
    bool skipped;      /* a body could not be looked into */
    uint64_t masked;   /* marks in the answer's body */
    int status;        /* 0: none was sent */
    uint64_t took_ms;
};

/* Buckets of the time that a query takes, upper bounds in us (6.3), and one more for all above. */
#define EVENTS_BOUNDS_US                                                                          \
    {                                                                                             \
        1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, \
            10000000, 15000000, 30000000, 60000000, 120000000, 300000000, 600000000               \
    }
enum { EVENTS_BUCKETS = 20 };

struct event_counters {
    struct counter took[EVENTS_BUCKETS], took_us; /* of queries */
    struct counter denied, upstream_error, rcode; /* that were denied, not answered, answered so */
    struct counter not_told; /* whose answer was not given: a limit, or the kernel */
    struct counter connections_allowed, connections_denied, drops;
    struct counter credential[CREDENTIAL_DECISIONS]; /* requests to bound hosts */
    struct counter credential_skipped, credential_masked;
    struct histogram credential_took;
    struct counter lines_left_out; /* a second's share of such lines was used up */
    struct counter webhook_sent, webhook_dropped, webhook_given_up;
};

struct events_setup {
    struct worker *w;
    const struct egress_settings *set; /* until events_free() */
    struct decisions *decisions;       /* NULL: nobody keeps them */
    struct names *names;  /* for the webhook's host, outside of the policy; until events_free() */
    struct str roots_pem; /* for the webhook's certificate; empty: the system's */
};

/* At the start, once the log runs: sandbox_id and E_METRICS_EXTRA_ATTRS stand in each line from now
 * on.  Those that do not fit, or have the name of a field of ours, are left out, and a line says
 * so. */
void events_attributes(const struct egress_settings *set);

/* NULL and one line: the webhook's certificate could not be verified, there are no roots. */
struct events *events_new(const struct events_setup *setup, struct arena *a, struct str *ret_error);
/* What waits is forgotten. */
void events_free(struct events *e);
/* `view` is in force: its log_skip counts.  Keeps a reference. */
void events_adopt(struct events *e, const struct egress_view *view);

/* A query of the workload was answered; dns_setup.told. */
void events_dns(struct events *e, const struct dns_told *told);
void events_connection(struct events *e, const struct event_connection *c);
/* A request to a bound host is over. */
void events_credential(struct events *e, const struct event_credential *c);
/* The kernel refused a packet; `rule` as policy_rule_text() or 2.10 says it. */
void events_drop(struct events *e, const struct drop *drop, struct str rule);
/* The policy at the start.  A line like this and the next ones is not left out and not displaced by
 * others, whatever its length. */
void events_loaded(struct events *e, const struct egress_view *view);
/* api_host.updated */
void events_update(struct events *e, const struct api_update *u);

/* The webhook's events are sent as long as a drain lasts (E_DRAIN_TIMEOUT, but for its last
 * eighth), and none is added; done(user) when none is left or the time is over, once, maybe before
 * this returns, and not after events_free(). */
void events_drain(struct events *e, void (*done)(void *user), void *user);

#endif
