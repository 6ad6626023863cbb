/* why.h — one vocabulary of endings: log field, metric label and test assertion use the same words.
 */
#ifndef BASE_WHY_H
#define BASE_WHY_H

#define WHY_MAP(X)                        \
    X(OK, "ok")                           \
    X(CLIENT_GONE, "client-gone")         \
    X(ORIGIN_GONE, "origin-gone")         \
    X(CLIENT_PROTOCOL, "client-protocol") \
    X(ORIGIN_PROTOCOL, "origin-protocol") \
    X(NO_ROUTE, "no-route")               \
    X(NOT_READY, "not-ready")             \
    X(UNAUTHORIZED, "unauthorized")       \
    X(DENIED, "denied")                   \
    X(IDENTITY, "identity")               \
    X(VAULT, "vault")                     \
    X(DNS, "dns")                         \
    X(DIAL, "dial")                       \
    X(TLS, "tls")                         \
    X(REFUSED, "refused")                 \
    X(DEADLINE, "deadline")               \
    X(LIMIT, "limit")                     \
    X(OVERLOAD, "overload")               \
    X(REVOKED, "revoked")                 \
    X(STALE, "stale")                     \
    X(DRAIN, "drain")

enum why {
#define X(id, text) WHY_##id,
    WHY_MAP(X)
#undef X
        WHYS
};

/* STALE: the origin says that this is no route of its any more.
 *
 * The word for `why`, e.g. "origin-gone"; static. */
const char *why_text(enum why why);

/* What can fail for a reason a peer can cause returns enum why, and its caller must look. */
#define must_check __attribute__((warn_unused_result))

#endif
