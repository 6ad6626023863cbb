/* policy.h — what is in force: deny.always, allow.always, the user's rules and default action as
 * one ordered list (contract egress-policy 3.3, 3.4).  Pure; a policy is never changed.
 *
 * Two questions: may this name be asked for, and may this address be reached.  The second knows of
 * names only what it is told: whether the address was learned for one (4.3). */
#ifndef POLICIES_POLICY_H
#define POLICIES_POLICY_H

#include "policies/document.h"
#include "policies/ranges.h"

enum layer { LAYER_DENY, LAYER_ALLOW, LAYER_USER, LAYER_LEARNED, LAYER_DEFAULT };

struct policy_answer {
    bool allow;
    enum layer layer;
    unsigned rule; /* counted from 0 within the layer; 0 for LEARNED and DEFAULT */
};

/* By what names an address was learned, the best one counting. */
enum learned {
    LEARNED_NOT,
    LEARNED_USER,  /* for a name that a user rule or the default action allows */
    LEARNED_ALWAYS /* for a name that allow.always allows */
};

struct policy;

/* Built from copies; NULL lists have no rules, a NULL document is deny. */
struct policy *policy_new(const struct rules *deny_always, const struct rules *allow_always,
                          const struct document *user);
void policy_free(struct policy *p);

/* `name` as patterns_first() takes it. */
struct policy_answer policy_name(const struct policy *p, struct str name);
/* What an address learned for this name is worth; NOT: the name is denied. */
enum learned policy_learns(const struct policy *p, struct str name);
/* The table of 3.4, for whoever decides about an address: the kernel's five look-ups give the same.
 */
struct policy_answer policy_addr(const struct policy *p, const struct ip *ip, enum learned learned);
/* Does an address rule (steps 1, 2, 4 without learned ones) allow it?  The default action is none.
 */
bool policy_addr_by_rule(const struct policy *p, const struct ip *ip);

/* The kernel's two maps, already joined: the always rules (steps 1 and 2), the user's (step 4). */
const struct ranges *policy_always_ranges(const struct policy *p);
const struct ranges *policy_user_ranges(const struct policy *p);
bool policy_default(const struct policy *p);

enum { POLICY_RULE_BYTES = 32 };
/* "deny.always:N", "allow.always:N", "user:N", "learned" or "default"; returns its length. */
size_t policy_rule_text(struct policy_answer answer, char out[POLICY_RULE_BYTES]);
/* The target of the rule that decided, as written; "" for LEARNED and DEFAULT.  The policy's. */
struct str policy_target(const struct policy *p, struct policy_answer answer);

#endif
