/* access.c — the secure-access matrix as one chain of questions.  Their order is the contract: the
 * access header, once it is there, decides alone; a signature is looked at only when nothing else
 * could. */
#include "policies/access.h"

#include "base/digest.h"

static enum access from_verdict(enum signature_verdict verdict)
{
    static const enum access results[] = {
        [SIGNATURE_OK] = ACCESS_SIGNATURE,
        [SIGNATURE_EXPIRED] = ACCESS_EXPIRED,
        [SIGNATURE_KEY_UNKNOWN] = ACCESS_KEY_UNKNOWN,
        [SIGNATURE_MISMATCH] = ACCESS_MISMATCH,
        [SIGNATURE_FORMAT] = ACCESS_REQUIRED,
    };
    return results[verdict];
}

enum access access_check(struct str token, const struct str *given,
                         const struct signed_route *route, const struct keyring *keys, bool blocked,
                         int64_t now_unix_s)
{
    if (token.n == 0)
        return ACCESS_OPEN;
    if (given)
        return digest_equal(token, signature_trim(*given)) ? ACCESS_TOKEN : ACCESS_TOKEN_MISMATCH;
    if (!route)
        return ACCESS_REQUIRED;
    if (!keys)
        return ACCESS_NO_VERIFIER;
    if (blocked)
        return ACCESS_TOO_MANY;
    return from_verdict(signature_verify(keys, route, now_unix_s));
}

bool access_counts(enum access a)
{
    return a == ACCESS_KEY_UNKNOWN || a == ACCESS_MISMATCH;
}
