/* faults.h — every refusal of the gateway: status, code and message (contract ingress 6.3) in one
 * table. */
#ifndef INGRESS_FAULTS_H
#define INGRESS_FAULTS_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/why.h"

#define FAULT_ROUTE "invalid ingress route: "
#define FAULT_SCOPE FAULT_ROUTE "route scope: "
#define FAULT_FASTPATH "FastPath returned an "

/* FAULT(id, name, status, code, why, message); name is the word the vectors use for the condition.
 * A message with %v shows the request's value, cut at 256 bytes; with %u a port. */
#define FAULT_MAP(X)                                                                               \
    X(ROUTE_MISSING, "route_missing", 400, "route_missing", NO_ROUTE,                              \
      "missing header 'Opensandbox-Ingress-To' or 'Host'")                                         \
    X(PATH_MISSING, "path_missing", 400, "path_missing", NO_ROUTE, "missing URI path")             \
    X(INVALID_HOST, "invalid_host", 400, "route_invalid", NO_ROUTE,                                \
      FAULT_ROUTE "invalid host: %v")                                                              \
    X(INVALID_PORT, "invalid_port", 400, "route_invalid", NO_ROUTE,                                \
      FAULT_ROUTE "invalid port format: invalid port \"%v\"")                                      \
    X(LEADING_ZERO, "leading_zero", 400, "route_invalid", NO_ROUTE,                                \
      FAULT_ROUTE "invalid port format: port must not have leading zeros")                         \
    X(PORT_ZERO_LABEL, "port_zero_label", 400, "route_invalid", NO_ROUTE,                          \
      FAULT_ROUTE "missing sandbox ID or port")                                                    \
    X(URI_FORMAT, "uri_format", 400, "route_invalid", NO_ROUTE,                                    \
      FAULT_ROUTE "invalid URI path format: expected "                                             \
                  "'/<sandbox-id>/<sandbox-port>/<path-to-request>', got: %v")                     \
    X(URI_NO_ID, "uri_no_id", 400, "route_invalid", NO_ROUTE,                                      \
      FAULT_ROUTE "missing sandbox-id or sandbox-port in URI path")                                \
    X(INVALID_ID, "invalid_id", 400, "route_invalid", NO_ROUTE, FAULT_ROUTE "invalid sandbox id")  \
    X(PATH_ESCAPES, "path_escapes", 400, "path_escapes", NO_ROUTE,                                 \
      FAULT_ROUTE "path leaves the route prefix")                                                  \
    X(BAD_REQUEST, "bad_request", 400, "bad_request", CLIENT_PROTOCOL, "bad request: %v")          \
    X(SIGNATURE_REQUIRED, "signature_required", 401, "signature_required", UNAUTHORIZED,           \
      "signature: signature required for this sandbox")                                            \
    X(ACCESS_TOKEN_MISMATCH, "access_token_mismatch", 401, "access_token_mismatch", UNAUTHORIZED,  \
      "signature: secure access header mismatch")                                                  \
    X(SIGNATURE_EXPIRED, "signature_expired", 401, "signature_expired", UNAUTHORIZED,              \
      "signature: access expired")                                                                 \
    X(SIGNATURE_KEY_UNKNOWN, "signature_key_unknown", 401, "signature_key_unknown", UNAUTHORIZED,  \
      "signature: unauthorized: unknown signed_key_id")                                            \
    X(SIGNATURE_MISMATCH, "signature_mismatch", 401, "signature_mismatch", UNAUTHORIZED,           \
      "signature: unauthorized: signature mismatch")                                               \
    X(SCOPE_MALFORMED, "scope_malformed", 401, "scope_invalid", UNAUTHORIZED,                      \
      FAULT_SCOPE "invalid: malformed token")                                                      \
    X(SCOPE_NAMESPACE, "scope_namespace", 401, "scope_invalid", UNAUTHORIZED,                      \
      FAULT_SCOPE "invalid: invalid namespace")                                                    \
    X(SCOPE_ID, "scope_id", 401, "scope_invalid", UNAUTHORIZED,                                    \
      FAULT_SCOPE "invalid: invalid sandbox_id")                                                   \
    X(SCOPE_PORT, "scope_port", 401, "scope_invalid", UNAUTHORIZED,                                \
      FAULT_SCOPE "invalid: invalid port")                                                         \
    X(SCOPE_KEY_ID, "scope_key_id", 401, "scope_invalid", UNAUTHORIZED,                            \
      FAULT_SCOPE "invalid: invalid key_id")                                                       \
    X(SCOPE_MAC_FORM, "scope_mac_form", 401, "scope_invalid", UNAUTHORIZED,                        \
      FAULT_SCOPE "invalid: invalid mac")                                                          \
    X(SCOPE_NO_VERIFIER, "scope_no_verifier", 401, "scope_unauthorized", UNAUTHORIZED,             \
      FAULT_SCOPE "unauthorized: verifier is not configured")                                      \
    X(SCOPE_KEY_UNKNOWN, "scope_key_unknown", 401, "scope_unauthorized", UNAUTHORIZED,             \
      FAULT_SCOPE "unauthorized: unknown key_id")                                                  \
    X(SCOPE_MAC, "scope_mac", 401, "scope_unauthorized", UNAUTHORIZED,                             \
      FAULT_SCOPE "unauthorized: mac mismatch")                                                    \
    X(SCOPE_REQUIRED, "scope_required", 401, "scope_required", UNAUTHORIZED,                       \
      "route scope: unauthorized: Fast Sandbox provider requires an authenticated route scope")    \
    X(PORT_DENIED, "port_denied", 403, "port_denied", DENIED, "port %u is closed on this gateway") \
    X(SANDBOX_NOT_FOUND, "sandbox_not_found", 404, "sandbox_not_found", NO_ROUTE,                  \
      "sandbox not found: %v")                                                                     \
    X(FASTPATH_NOT_FOUND, "fastpath_not_found", 404, "sandbox_not_found", NO_ROUTE,                \
      "sandbox not found: sandbox not found")                                                      \
    X(WAKE_STOPPED, "wake_stopped", 404, "sandbox_not_found", NO_ROUTE,                            \
      "wake sandbox: sandbox not found: sandbox is stopped or expired")                            \
    X(WAKE_TERMINAL, "wake_terminal", 404, "sandbox_not_found", NO_ROUTE,                          \
      "wake sandbox: sandbox not found: sandbox became terminal while resuming")                   \
    X(HEAD_TIMEOUT, "head_timeout", 408, "bad_request", DEADLINE,                                  \
      "request was not complete in time")                                                          \
    X(SIGNATURE_FAILURES, "signature_failures", 429, "signature_failures", LIMIT,                  \
      "signature: too many failed signatures")                                                     \
    X(RATE_LIMITED, "rate_limited", 429, "rate_limited", LIMIT,                                    \
      "too many requests for this sandbox")                                                        \
    X(HEAD_TOO_LARGE, "head_too_large", 431, "head_too_large", LIMIT, "request head is too large") \
    X(PROTOCOL_UNSUPPORTED, "protocol_unsupported", 501, "protocol_unsupported", CLIENT_PROTOCOL,  \
      "protocol not supported")                                                                    \
    X(CODING_UNSUPPORTED, "coding_unsupported", 501, "bad_request", CLIENT_PROTOCOL,               \
      "transfer coding not supported")                                                             \
    X(TARGET_UNSUPPORTED, "target_unsupported", 501, "target_unsupported", NO_ROUTE,               \
      "sandbox target not supported: use the lifecycle networkpolicy API instead of port 18080")   \
    X(ROUTE_KIND, "route_kind", 501, "target_unsupported", NO_ROUTE,                               \
      "sandbox target not supported: route kind %v")                                               \
    X(SANDBOX_AMBIGUOUS, "sandbox_ambiguous", 502, "sandbox_ambiguous", NO_ROUTE,                  \
      "ambiguous sandbox id \"%v\"")                                                               \
    X(RESOLVER_FAILED, "resolver_failed", 502, "resolver_failed", NOT_READY,                       \
      "sandbox lookup failed")                                                                     \
    X(FASTPATH_NO_ENDPOINT, "fastpath_no_endpoint", 502, "resolver_failed", NOT_READY,             \
      FAULT_FASTPATH "empty proxy endpoint")                                                       \
    X(FASTPATH_ENDPOINT, "fastpath_endpoint", 502, "resolver_failed", NOT_READY,                   \
      FAULT_FASTPATH "invalid proxy endpoint")                                                     \
    X(FASTPATH_SCHEME, "fastpath_scheme", 502, "resolver_failed", NOT_READY,                       \
      FAULT_FASTPATH "unsupported proxy scheme")                                                   \
    X(FASTPATH_HEADERS, "fastpath_headers", 502, "resolver_failed", NOT_READY,                     \
      "FastPath returned unsupported required headers")                                            \
    X(FASTPATH_DUPLICATE, "fastpath_duplicate", 502, "resolver_failed", NOT_READY,                 \
      "FastPath returned duplicate route credentials")                                             \
    X(FASTPATH_CREDENTIAL, "fastpath_credential", 502, "resolver_failed", NOT_READY,               \
      FAULT_FASTPATH "invalid route credential")                                                   \
    X(FASTPATH_EXPIRED, "fastpath_expired", 502, "resolver_failed", NOT_READY,                     \
      FAULT_FASTPATH "expired or near-expiry route credential")                                    \
    X(FASTPATH_CANCELED, "fastpath_canceled", 502, "resolver_failed", NOT_READY,                   \
      "FastPath resolution canceled")                                                              \
    X(FASTPATH_FAILED, "fastpath_failed", 502, "resolver_failed", NOT_READY,                       \
      "FastPath ResolveEndpoint failed: %v")                                                       \
    X(WAKE_REJECTED, "wake_rejected", 502, "resolver_failed", NOT_READY,                           \
      "wake sandbox: FastPath permanently rejected the lifecycle request: %v")                     \
    X(TARGET_FORBIDDEN, "target_forbidden", 502, "target_forbidden", DENIED,                       \
      "sandbox address is not allowed")                                                            \
    X(UPSTREAM_UNREACHABLE, "upstream_unreachable", 502, "upstream_unreachable", DIAL,             \
      "upstream connection failed")                                                                \
    X(UPSTREAM_FAILED, "upstream_failed", 502, "upstream_failed", ORIGIN_GONE,                     \
      "upstream closed the connection before answering")                                           \
    X(UPSTREAM_INVALID, "upstream_invalid", 502, "upstream_invalid", ORIGIN_PROTOCOL,              \
      "upstream sent an invalid response")                                                         \
    X(VERIFIER_MISSING, "verifier_missing", 503, "verifier_missing", UNAUTHORIZED,                 \
      "signature: ingress verifier not configured")                                                \
    X(SANDBOX_NOT_READY, "sandbox_not_ready", 503, "sandbox_not_ready", NOT_READY,                 \
      "sandbox not ready: %v")                                                                     \
    X(FASTPATH_UNAVAILABLE, "fastpath_unavailable", 503, "sandbox_not_ready", NOT_READY,           \
      "sandbox not ready: FastPath resolution temporarily unavailable")                            \
    X(WAKE_EXHAUSTED, "wake_exhausted", 503, "sandbox_not_ready", NOT_READY,                       \
      "wake sandbox: wake park budget exhausted")                                                  \
    X(WAKE_NOT_READY, "wake_not_ready", 503, "sandbox_not_ready", NOT_READY,                       \
      "wake sandbox: sandbox not ready: sandbox runtime is %v")                                    \
    X(ROUTE_STALE, "route_stale", 503, "route_stale", NOT_READY,                                   \
      "sandbox not ready: route is stale")                                                         \
    X(OVERLOADED, "overloaded", 503, "overloaded", OVERLOAD, "gateway is overloaded")              \
    X(SANDBOX_BUSY, "sandbox_busy", 503, "overloaded", LIMIT,                                      \
      "too many connections to this sandbox")                                                      \
    X(WAKE_LOT_FULL, "wake_lot_full", 503, "overloaded", OVERLOAD,                                 \
      "wake sandbox: wake parking lot full")                                                       \
    X(DRAINING, "draining", 503, "draining", DRAIN, "gateway is shutting down")                    \
    X(UPSTREAM_TIMEOUT, "upstream_timeout", 504, "upstream_timeout", DEADLINE,                     \
      "upstream connection timed out")                                                             \
    X(UPSTREAM_SILENT, "upstream_silent", 504, "upstream_timeout", DEADLINE,                       \
      "upstream sent no answer in time")                                                           \
    X(VERSION_UNSUPPORTED, "version_unsupported", 505, "bad_request", CLIENT_PROTOCOL,             \
      "HTTP version not supported")

enum fault_id {
#define X(id, name, status, code, why, message) FAULT_##id,
    FAULT_MAP(X)
#undef X
        FAULTS
};

struct fault {
    enum fault_id id;
    struct str value; /* what %v shows */
    unsigned port;    /* what %u shows */
};

int fault_status(enum fault_id id);
struct str fault_code(enum fault_id id);
enum why fault_why(enum fault_id id);
/* Is its answer to say "Retry-After: 1" (contract 6.2: every 503 and every rate_limited)? */
bool fault_retry(enum fault_id id);
/* The row of that name, or FAULTS. */
enum fault_id fault_by_name(struct str name);
/* The message, without the prefix "OpenSandbox Ingress: ". */
struct str fault_message(const struct fault *f, struct arena *a);

#endif
