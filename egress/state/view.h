/* view.h — everything decisions read, in one immutable, counted object: the user's policy, the
 * operator's lists, what they come to together (contract egress-policy 3), and the credential vault
 * (contract egress-vault 2).
 *
 * A change makes a new view beside the old one.  Counts are atomic; the rest is never written. */
#ifndef STATE_VIEW_H
#define STATE_VIEW_H

#include "conf/snapshot.h"
#include "policies/policy.h"

struct patterns;
struct vault; /* egress/vault/vault.h */
struct lost;  /* egress/vault/lost.h */

/* The operator's files as lists; each holds one reference, the owner's.  NULL: no rules. */
struct always_lists {
    const struct rules *deny, *allow, *log_skip;
};
/* Gives the references back. */
void always_lists_done(struct always_lists *lists);

struct egress_view {
    const struct policy *policy; /* in force: all layers */
    struct document user;        /* the layer that the API shows */
    struct always_lists always;
    const struct patterns *log_skip; /* whose success is not logged (6.2) */
    const struct vault *vault;       /* NULL: there is none */
    const struct lost *lost;         /* bound by one that a crash took away; NULL: none */
    uint64_t revision;               /* counts accepted changes, from 1 */
};

/* One reference, the caller's.  Document and lists are copied by reference. */
struct egress_view *view_new(const struct document *user, const struct always_lists *always,
                             uint64_t revision);
/* The next revision with another user policy, or with other lists; the vault stays. */
struct egress_view *view_with_user(const struct egress_view *old, const struct document *user);
struct egress_view *view_with_always(const struct egress_view *old,
                                     const struct always_lists *always);
/* With another vault (NULL: none any more), which is copied by reference; nothing is lost any more,
 * and the policy is the very same. */
struct egress_view *view_with_vault(const struct egress_view *old, const struct vault *vault);
/* The same revision, but for what was lost before the start; copied by reference. */
struct egress_view *view_with_lost(const struct egress_view *old, const struct lost *lost);
/* Is this host (lower case, no final dot) bound for https (tls) or http, or was it? */
bool view_binds(const struct egress_view *v, struct str host, bool tls);
const struct egress_view *view_ref(const struct egress_view *v);
void view_unref(const struct egress_view *v); /* NULL is fine */

/* A snapshot that holds one more reference to `v`; `set` must outlive it. */
struct snapshot *view_snapshot(const struct settings *set, const struct egress_view *v);
/* What a snapshot made by view_snapshot() carries. */
const struct egress_view *view_of(const struct snapshot *s);

#endif
