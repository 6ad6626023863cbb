/* scope.h — route scope tokens `f1.` of Fast Sandbox (contract ingress 5).  Pure. */
#ifndef POLICIES_SCOPE_H
#define POLICIES_SCOPE_H

#include "policies/signature.h"

enum scope_verdict {
    SCOPE_OK,
    SCOPE_NO_VERIFIER,
    SCOPE_MALFORMED,
    SCOPE_BAD_NAMESPACE,
    SCOPE_BAD_ID,
    SCOPE_BAD_PORT,
    SCOPE_BAD_KEY_ID,
    SCOPE_BAD_MAC_FORM,
    SCOPE_KEY_UNKNOWN,
    SCOPE_MAC_MISMATCH
};

struct scope {
    struct str ns, id; /* UTF-8, no control characters, not empty */
    uint16_t port;
};

/* Checked in the order of the contract; texts in the arena.  keys NULL: no verifier. */
enum scope_verdict scope_verify(struct str token, const struct keyring *keys, struct arena *a,
                                struct scope *ret);
/* The token for these; the key must be in the ring.  For tests. */
bool scope_mint(const struct scope *s, char key_id, const struct keyring *keys, struct arena *a,
                struct str *ret);

#endif
