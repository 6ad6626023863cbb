/* readiness.h — is the network behind the gateway well?  Every backend connect is classed and
 * counted in windows of the wall clock; the last whole window is shown (contract ingress 14.2).
 * Advisory: nothing is decided by it. */
#ifndef INGRESS_READINESS_H
#define INGRESS_READINESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/why.h"

#define DIAL_CLASS_MAP(X)         \
    X(SUCCESS, "success")         \
    X(TIMEOUT, "timeout")         \
    X(UNREACHABLE, "unreachable") \
    X(REFUSED, "refused")         \
    X(DNS_ERROR, "dns_error")     \
    X(CANCELED, "canceled")       \
    X(OTHER, "other")

enum dial_class {
#define X(id, text) DIAL_##id,
    DIAL_CLASS_MAP(X)
#undef X
        DIAL_CLASSES
};

/* "dns_error" …: label of a metric; static. */
const char *dial_class_text(enum dial_class c);
/* The class of a dial that ended with `why`; err: errno of its last connect, 0 if there was none;
 * client_gone: nobody waits for it any more.  A target that was not allowed (WHY_DENIED) was never
 * dialled and is not to be recorded. */
enum dial_class dial_class_of(enum why why, int err, bool client_gone);

enum { READINESS_KEY_BYTES = 256 };

/* The host of "host:port" as windows tell targets apart: no port, no brackets, lower case, no final
 * dot, addresses in canonical form; what does not fit is cut.  Returns the length. */
size_t readiness_key(struct str target, char out[READINESS_KEY_BYTES]);

struct readiness_rules {
    uint64_t window_ms; /* > 0 */
    size_t
        max_targets; /* hosts told apart in a window; the attempts of others count all the same */
    uint64_t min_attempts; /* fewer, or ... */
    size_t min_targets;    /* ... fewer hosts: not qualified */
    size_t min_signal_targets;
    double failure_ratio;
};

struct readiness_view {
    uint64_t attempts, signal_failures; /* a signal is a timeout or an unreachable host */
    size_t targets, signal_targets;
    bool qualified, degraded;
};

struct readiness;

struct readiness *readiness_new(const struct readiness_rules *rules);
void readiness_free(struct readiness *r);
/* From any thread: a dial of `target` ended at end_unix_ms. */
void readiness_record(struct readiness *r, struct str target, enum dial_class c,
                      uint64_t end_unix_ms);
/* From any thread: the last whole window at that time. */
struct readiness_view readiness_read(struct readiness *r, uint64_t now_unix_ms);
/* Body of the page: "OK" or "DEGRADED". */
struct str readiness_body(const struct readiness_view *v);

#endif
