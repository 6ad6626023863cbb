/* lifecycle_answer.h — what the lifecycle server's answers say (contract integration 8.2, 8.3).
 * Pure; texts lie in the arena or are static. */
#ifndef INGRESS_LIFECYCLE_ANSWER_H
#define INGRESS_LIFECYCLE_ANSWER_H

#include "ingress/resolver.h"

enum lifecycle_call { LIFECYCLE_STATE, LIFECYCLE_ENDPOINT, LIFECYCLE_CALLS };

/* What a status says; of a 200 it is still to be read. */
enum lifecycle_verdict {
    LIFECYCLE_GOOD,
    LIFECYCLE_ABSENT,  /* of the state: there is no such sandbox; of the endpoint: no address yet */
    LIFECYCLE_REFUSED, /* our key is wrong */
    LIFECYCLE_WRONG,   /* it does not understand what we asked */
    LIFECYCLE_TROUBLE, /* it cannot answer now, or not in a way that is understood */
    LIFECYCLE_VERDICTS
};
enum lifecycle_verdict lifecycle_judge(int status);
/* "good", "absent", …; for logs and labels. */
const char *lifecycle_verdict_text(enum lifecycle_verdict v);

struct lifecycle_state {
    enum sandbox_state state; /* RUNNING: the endpoint is to be asked for; NOT_READY, TERMINATED */
    struct str name;          /* as the server calls it, at most 64 bytes; for the log */
    int64_t until_unix_s;     /* INT64_MAX: no end */
};
/* The body of a 200 about this sandbox; false: *ret_fault says what is wrong (static). */
bool lifecycle_read_state(struct str body, struct str id, struct arena *a,
                          struct lifecycle_state *ret, const char **ret_fault);

struct lifecycle_endpoint {
    struct endpoint end; /* its url is `url` */
    struct endpoint_url url;
    struct str token; /* trimmed; empty: open */
    bool gateway;     /* it points back at a gateway; the rest is not set then */
};
/* The body of a 200; `ret` must stay where it is.  Secrets lie in the arena and in nothing else. */
bool lifecycle_read_endpoint(struct str body, struct arena *a, struct lifecycle_endpoint *ret,
                             const char **ret_fault);
/* host[:port][/path], strict: IPv6 in brackets, no user, query, fragment or dot segment. */
bool lifecycle_read_address(struct str text, struct arena *a, struct endpoint *ret,
                            struct endpoint_url *ret_url);
/* "code" of an error's body, if it is of the form of one; for the log.  Else empty. */
struct str lifecycle_read_code(struct str body, struct arena *a);

/* Target of a call; the id is one segment.  False: no id that could be one, and nobody need be
 * asked. */
bool lifecycle_target(struct str id, struct arena *a, struct str *ret);

#endif
