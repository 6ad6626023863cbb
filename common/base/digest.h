/* digest.h — hashes, random bytes, comparison in constant time.  The only door to libcrypto for
 * these. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum { SHA256_BYTES = 32, SHA1_BYTES = 20 };

/* Before the first use of libcrypto or libssl, and wherever that could be; from any thread.
 * Afterwards the system's openssl.cnf is never read: what we ask of TLS is in our sources, and no
 * file is to weaken it. */
void digest_begin(void);
/* SHA-256 over n pieces one after the other; algorithm objects are fetched once per process,
 * contexts once per thread. */
void digest_sha256(uint8_t out[SHA256_BYTES], const struct str *pieces, size_t n);
/* SHA-1, likewise: only for Sec-WebSocket-Accept (RFC 6455 section 4.2.2). */
void digest_sha1(uint8_t out[SHA1_BYTES], const struct str *pieces, size_t n);
/* n unpredictable bytes from the kernel; ends the process if there are none. */
void digest_random(void *out, size_t n);
/* Equal, in a time that depends on the lengths only. */
bool digest_equal(struct str a, struct str b);
/* Overwrites in a way the compiler cannot leave out. */
void digest_wipe(void *p, size_t n);

#endif
