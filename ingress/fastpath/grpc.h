/* grpc.h — unary gRPC calls over HTTP/2: the prefix of five bytes, a deadline that the server is
 * told of, and the status from the trailers (gRPC over HTTP2, the protocol's own document). */
#ifndef INGRESS_FASTPATH_GRPC_H
#define INGRESS_FASTPATH_GRPC_H

#include "proxy/call.h"

enum grpc_code {
    GRPC_OK,
    GRPC_CANCELED,
    GRPC_UNKNOWN,
    GRPC_INVALID_ARGUMENT,
    GRPC_DEADLINE_EXCEEDED,
    GRPC_NOT_FOUND,
    GRPC_ALREADY_EXISTS,
    GRPC_PERMISSION_DENIED,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_FAILED_PRECONDITION,
    GRPC_ABORTED,
    GRPC_OUT_OF_RANGE,
    GRPC_UNIMPLEMENTED,
    GRPC_INTERNAL,
    GRPC_UNAVAILABLE,
    GRPC_DATA_LOSS,
    GRPC_UNAUTHENTICATED,
    GRPC_CODES
};

/* "NotFound" ..., as the contract writes them; "Code(17)" and beyond: "Unknown".  Static. */
const char *grpc_code_text(enum grpc_code c);

struct grpc;

enum { GRPC_MESSAGE_MAX = 65536 };

/* service: "fastpath.v2.FastPathService".  deadline done() is told once: OK and the message (lent);
 * or the code and what is known (for the log only; never for a client). A server that cannot be
 * reached or breaks off is UNAVAILABLE, one that is late DEADLINE_EXCEEDED, one that does not speak
 * gRPC what its HTTP status stands for. */
struct grpc *grpc_call(struct caller *c, struct str service, struct str method, struct str message,
                       uint64_t deadline_ms,
                       void (*done)(void *user, enum grpc_code code, struct str message,
                                    struct str detail),
                       void *user);
/* done() will not be called; not within it.  Before caller_free(). */
void grpc_cancel(struct grpc *g);

#endif
