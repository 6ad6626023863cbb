/* firstbytes.h — what a connection carries, from its first bytes (contract egress-vault 8.1).
 * Pure; looks and consumes nothing. */
#ifndef RELAY_FIRSTBYTES_H
#define RELAY_FIRSTBYTES_H

#include <stddef.h>
#include <stdint.h>

enum firstbytes {
    FIRST_MORE, /* cannot be told yet: after the deadline it is FIRST_OTHER */
    FIRST_TLS,  /* a handshake record: hello.h reads on */
    FIRST_H1,   /* a request line, well-formed or not */
    FIRST_H2, /* the preface of HTTP/2 in clear (RFC 9113 section 3.4), which is relayed as OTHER */
    FIRST_OTHER
};

/* After so many bytes the answer is never FIRST_MORE. */
enum { FIRSTBYTES_MAX = 64 };

/* The first n bytes of the connection, all that have come; what follows never changes an answer
 * other than FIRST_MORE. */
enum firstbytes firstbytes_look(const void *p, size_t n);

#endif
