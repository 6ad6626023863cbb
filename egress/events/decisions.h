/* decisions.h — the last decisions about what the workload wanted, each once, with how often
 * (contract egress-policy 2.10, GET /policy/log).
 *
 * Belongs to one worker.  Time is an argument. */
#ifndef EVENTS_DECISIONS_H
#define EVENTS_DECISIONS_H

#include "base/json.h"

enum { DECISIONS_MAX = 1000, DECISION_NAME_BYTES = 253, DECISION_RULE_BYTES = 32 };

enum decision_kind { DECISION_DNS, DECISION_CONNECTION, DECISION_REQUEST, DECISION_PACKET };

/* Empty texts and port 0 do not apply. */
struct decision {
    enum decision_kind kind;
    struct str name; /* no path, no query; longer ones are cut */
    struct str address;
    uint16_t port;
    struct str proto; /* "tcp", "udp" or "icmp" */
    struct str rule;  /* as policy_rule_text() says it */
    bool allow;
};

struct decisions;

struct decisions *decisions_new(void);
void decisions_free(struct decisions *d);
/* A decision that is there already gets a new id and time and counts up.  Copies what it keeps. */
void decisions_note(struct decisions *d, const struct decision *one, uint64_t unix_ms);
/* The id of the newest one; they count from 1. */
uint64_t decisions_last(const struct decisions *d);
/* Writes {"entries":[…],"next":N}: those with an id above `since`, oldest first.  A `since` that
 * was never given out (by a process before this one) stands for 0. */
void decisions_put(const struct decisions *d, uint64_t since, struct json_out *o);

#endif
