/* row_vault.h — the vault that a row describes, for runners that need a real one. */
#ifndef VECTORS_ROW_VAULT_H
#define VECTORS_ROW_VAULT_H

#include "egress/vault/vault.h"
#include "vectors/run_policy.h"

/* Of the body of a create request, which is finished with it; the policy lets all of its hosts.
 * NULL: the row failed. */
struct vault *row_vault(struct row *r, struct json_out *body);

#endif
