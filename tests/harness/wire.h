/* wire.h — reads HTTP/1 messages off a text, for tests that look at what went over a connection.
 * Knows nothing of our codecs: it takes what a peer would take, and says when it cannot. */
#ifndef HARNESS_WIRE_H
#define HARNESS_WIRE_H

#include "base/mem.h"

enum wire { WIRE_NONE /* not a byte */, WIRE_PART /* cut off */, WIRE_WHOLE, WIRE_BAD };

struct wire_message {
    struct str start; /* without CR LF */
    struct str head;  /* all field lines */
    struct str body;  /* decoded, in the arena */
    int status;       /* of a response */
    bool has_head;    /* the head is whole */
    bool chunked, until_eof;
    int64_t length; /* stated, or -1 */
};

/* The next message of *rest, which loses it; a part takes all that is left.  bodyless: an answer to
 * HEAD.  over: the connection has ended without a reset, so that a body may end with it. */
enum wire wire_request(struct str *rest, struct arena *a, struct wire_message *ret);
enum wire wire_response(struct str *rest, bool bodyless, bool over, struct arena *a,
                        struct wire_message *ret);
/* Value of the field, or p == NULL. */
struct str wire_field(const struct wire_message *m, const char *name);

#endif
