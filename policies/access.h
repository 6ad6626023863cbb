/* access.h — the secure-access matrix (contract ingress 4.6): token, signature, key ring → allow,
 * or why not.  Pure. */
#ifndef POLICIES_ACCESS_H
#define POLICIES_ACCESS_H

#include "policies/signature.h"

enum access {
    ACCESS_OPEN,      /* the sandbox asks for nothing */
    ACCESS_TOKEN,     /* allowed by the access header */
    ACCESS_SIGNATURE, /* allowed by the signature */
    ACCESS_TOKEN_MISMATCH,
    ACCESS_REQUIRED,
    ACCESS_NO_VERIFIER,
    ACCESS_EXPIRED,
    ACCESS_KEY_UNKNOWN,
    ACCESS_MISMATCH,
    ACCESS_TOO_MANY /* past the failure limit: the signature was not looked at */
};

static inline bool access_allows(enum access a)
{
    return a <= ACCESS_SIGNATURE;
}

/* token: of the sandbox, trimmed, empty: open.  given: first line of the access header, NULL:
 * absent.  route: NULL: no signature came with the route.  keys: NULL: no verifier.  blocked: the
 * sandbox is past its failure limit (4.7). */
enum access access_check(struct str token, const struct str *given,
                         const struct signed_route *route, const struct keyring *keys, bool blocked,
                         int64_t now_unix_s);
/* Does this result count against the failure limit (wrong hashes and unknown key ids)? */
bool access_counts(enum access a);

#endif
