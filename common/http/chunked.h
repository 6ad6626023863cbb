/* chunked.h — the chunked coding (RFC 9112 section 7.1), read strictly, split anywhere.  Pure.
 *
 * Strict: CRLF only, sizes of 1 to 16 hex digits without blanks or signs, extensions of visible
 * characters, blanks and tabs that are ignored and not passed on, a line of at most 4 KiB. */
#ifndef HTTP_CHUNKED_H
#define HTTP_CHUNKED_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum { CHUNK_LINE_BYTES = 4096 };

enum chunked_state {
    CHUNKED_SIZE, /* before and in the size */
    CHUNKED_EXT,  /* behind it */
    CHUNKED_SIZE_LF,
    CHUNKED_BODY,
    CHUNKED_BODY_CR,
    CHUNKED_BODY_LF,
    CHUNKED_TRAILER /* the last chunk is over */
};

struct chunked {
    enum chunked_state state;
    uint64_t left;   /* of the chunk */
    unsigned digits; /* of the size */
    unsigned line;   /* bytes of the size line so far */
};

enum chunked_event {
    CHUNKED_MORE,     /* all used, more is needed */
    CHUNKED_DATA,     /* *ret_span is body */
    CHUNKED_TRAILERS, /* the last chunk is over: what follows is trailer lines and a blank line, for
                         h1_scan() */
    CHUNKED_BAD
};

/* A zeroed struct chunked is at the beginning.  Looks at n bytes, at most up to the end of one span
 * of data; *ret_used says how many are done with, the span included. */
enum chunked_event chunked_step(struct chunked *c, const char *p, size_t n, size_t *ret_used,
                                struct str *ret_span);

#endif
