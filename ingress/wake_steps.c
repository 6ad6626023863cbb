/* wake_steps.c — the tables of a wake: what a state and what a code lead to,
 * and how long to wait (contract ingress 12.2, 12.3). */
#include <math.h>

#include "ingress/wake.h"

enum wake_phase wake_probe(enum pb_runtime runtime, enum pb_data_plane plane)
{
    switch (runtime) {
    case PB_RUNTIME_READY:
        return plane == PB_PLANE_READY ? WAKE_READY : WAKE_NOT_READY;
    case PB_RUNTIME_PAUSING:
    case PB_RUNTIME_PAUSED:
    case PB_RUNTIME_RESUMING:
        return WAKE_WAKEABLE;
    case PB_RUNTIME_STOPPING:
    case PB_RUNTIME_STOPPED:
        return WAKE_TERMINAL;
    default:
        return WAKE_NOT_READY;
    }
}

/* It would say the same the next time. */
static bool is_rejected(enum grpc_code code)
{
    return code == GRPC_PERMISSION_DENIED || code == GRPC_UNAUTHENTICATED ||
           code == GRPC_INVALID_ARGUMENT || code == GRPC_UNIMPLEMENTED || code == GRPC_INTERNAL;
}

enum wake_step wake_after_get(enum grpc_code code)
{
    if (code == GRPC_OK)
        return WAKE_GO_ON;
    if (code == GRPC_NOT_FOUND)
        return WAKE_END_NOT_FOUND;
    if (code == GRPC_CANCELED)
        return WAKE_END_CANCELED;
    return is_rejected(code) ? WAKE_END_REJECTED : WAKE_END_NOT_READY;
}

enum wake_step wake_after_resume(enum grpc_code code, bool has_checkpoint)
{
    switch (code) {
    case GRPC_OK:
        return WAKE_POLL;
    case GRPC_FAILED_PRECONDITION: /* it runs already; or that was for want of a
                                      checkpoint */
        return has_checkpoint ? WAKE_POLL : WAKE_PROBE_AGAIN;
    case GRPC_ABORTED:
        return WAKE_PROBE_AGAIN;
    case GRPC_NOT_FOUND:
        return WAKE_END_NOT_FOUND;
    case GRPC_CANCELED:
        return WAKE_END_CANCELED;
    default:
        return is_rejected(code) ? WAKE_END_REJECTED : WAKE_RETRY;
    }
}

uint64_t wake_backoff_us(double interval_ms, double factor, double jitter, unsigned n,
                         double random)
{
    static const double most_us = 1e15; /* decades: the deadline cuts it, and it fits the type */
    double us = interval_ms * 1000 * pow(factor, n) * (1 + random * jitter);
    return us < most_us ? (uint64_t)us : (uint64_t)most_us;
}
