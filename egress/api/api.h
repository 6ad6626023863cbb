/* api.h — the API of port 18080: policy and credential vault, routes, access and limits (contracts
 * egress-policy 2, egress-vault 3).
 *
 * Lives on one worker, with the queue of changes.  It asks others through its host and is otherwise
 * on its own. */
#ifndef API_API_H
#define API_API_H

#include "base/metrics.h"
#include "egress/events/decisions.h"
#include "egress/settings.h"
#include "egress/state/change.h"
#include "policies/edit.h"

struct api;

/* A write that was made or refused, for the log (6.2).  Lent for the call. */
struct api_update {
    enum edit_kind kind;
    int status;                            /* 200: in force; 4xx: the client's fault; 5xx: ours */
    const char *error;                     /* what was answered, or NULL */
    struct str body;                       /* as it came */
    const struct document *before, *after; /* the user's policy; after == NULL: refused */
};

/* Functions may be NULL: nobody is learned or bound, everything is in force, nobody listens. */
struct api_host {
    const struct egress_settings *set; /* must outlive the API */
    struct changes *changes;
    struct decisions *decisions; /* or NULL */
    /* Why the policy is not enforced; NULL: it is (2.8). */
    const char *(*not_enforced)(void *user);
    bool (*interception_ready)(void *user);
    /* What an address was learned for, and whether for a host that is intercepted. */
    enum learned (*learned)(void *user, const struct ip *ip, bool *ret_bound);
    /* Is this canonical name's host intercepted? */
    bool (*bound)(void *user, struct str name);
    /* Is this host of a binding passed by configuration, whatever binds it (passlist.h)? */
    bool (*passed)(void *user, struct str host);
    void (*updated)(void *user, const struct api_update *u);
    /* Is this peer on this host, as the sandbox is?  NULL: none is. */
    bool (*is_local)(const struct ip *peer);
    void *user;
};

/* Writes to the vault by those who may make them. */
enum vault_write { VAULT_CREATE, VAULT_PATCH, VAULT_DELETE, VAULT_WRITES };
struct vault_counters {
    struct counter made[VAULT_WRITES], failed[VAULT_WRITES];
    /* Tells one vault from every other that this worker or another had under the same name: grows
     * with each start and each create; ms since 1970 of it, at least. */
    struct counter epoch;
};

/* Serves on the bound socket fd, which is its own from now on.  The host is copied. */
struct api *api_start(struct worker *w, int fd, const struct api_host *host);
/* No connection begins any more, those there end with their answer, /healthz says 503. */
void api_drain(struct api *api);
/* Live with the API. */
const struct vault_counters *api_vault_counters(const struct api *api);
/* Connections and requests there are. */
unsigned api_open(const struct api *api);
/* Everything ends now; the API is freed when its last connection has gone and its last change is
 * through. */
void api_stop(struct api *api);

#endif
