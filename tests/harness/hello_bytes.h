/* hello_bytes.h — a ClientHello as bytes of a connection, for tests that look at first bytes. */
#ifndef HARNESS_HELLO_BYTES_H
#define HARNESS_HELLO_BYTES_H

#include "base/mem.h"

enum { HELLO_TEST_BYTES = 2048 };

/* In records of at most `most` bytes; sni p NULL: without a name.  The result lies in `out`. */
struct str hello_bytes(struct str sni, size_t most, char out[HELLO_TEST_BYTES]);

#endif
