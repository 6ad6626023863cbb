/* cover.h — does a policy let a vault reach the hosts that its bindings name (contract egress-vault
 * 7)?  Both sides ask: a write to the vault, and a write to the policy. */
#ifndef STATE_COVER_H
#define STATE_COVER_H

#include "egress/vault/vault.h"
#include "policies/policy.h"

struct cover {
    const struct policy *policy;
    /* Is this host of a binding passed by configuration?  NULL: none is. */
    bool (*passed)(void *user, struct str host);
    void *user;
};

/* For the functions of vault.h; `c` is lent as long as they run.  A wildcard is asked for by a name
 * below it, so that a deny rule for one of its names does not count. */
struct vault_cover cover_of(struct cover *c);

#endif
