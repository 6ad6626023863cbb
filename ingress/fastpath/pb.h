/* pb.h — the few protobuf messages of FastPath (contract ingress 7.5), by hand.  Pure.  What is
 * read may come from anybody: unknown fields are skipped, wrong wire types, overlong varints and
 * lengths beyond the end are faults of the message; of a field that comes twice the last counts. */
#ifndef INGRESS_FASTPATH_PB_H
#define INGRESS_FASTPATH_PB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

enum pb_access { PB_CENTRAL_PROXY, PB_DIRECT_FASTLET_PROXY };

#define PB_RUNTIME_MAP(X) \
    X(UNSPECIFIED)        \
    X(UNKNOWN)            \
    X(PENDING)            \
    X(CREATING)           \
    X(READY)              \
    X(STOPPING)           \
    X(STOPPED)            \
    X(FAILED)             \
    X(UNAVAILABLE)        \
    X(PAUSING)            \
    X(PAUSED)             \
    X(RESUMING)
enum pb_runtime {
#define X(id) PB_RUNTIME_##id,
    PB_RUNTIME_MAP(X)
#undef X
        PB_RUNTIMES
};
/* "PAUSED" ...; a number that is none: "UNKNOWN".  Static. */
const char *pb_runtime_text(enum pb_runtime r);
enum pb_data_plane {
    PB_PLANE_UNSPECIFIED,
    PB_PLANE_UNKNOWN,
    PB_PLANE_PENDING,
    PB_PLANE_PUBLISHING,
    PB_PLANE_READY,
    PB_PLANE_DRAINING,
    PB_PLANE_FAILED,
    PB_PLANE_UNAVAILABLE
};

/* Requests, in the arena; fields in order of their numbers, defaults left out. */
struct str pb_resolve(struct str ns, struct str id, uint16_t port, enum pb_access access,
                      struct arena *a);
struct str pb_get(struct str ns, struct str id, struct arena *a);
struct str pb_resume(struct str request_id, struct str ns, struct str id, struct str checkpoint,
                     struct arena *a);

struct pb_header {
    struct str name, value;
};
/* Texts are slices of the message; arrays in the arena. */
struct pb_resolved {
    struct str uid, proxy_endpoint;
    const struct pb_header *headers;
    unsigned nheaders;
    int64_t generation, expires_unix_s;
};
bool pb_read_resolved(struct str message, struct arena *a, struct pb_resolved *ret);

/* Of GetSandboxResponse and ResumeSandboxResponse. */
struct pb_sandbox {
    enum pb_runtime runtime; /* a number that is none: UNKNOWN */
    enum pb_data_plane plane;
    bool ready;
    struct str checkpoint; /* checkpoint_id */
};
bool pb_read_sandbox(struct str message, struct pb_sandbox *ret);

#endif
