/* signature.h — signed routes, scheme v1 (contract ingress 4.3–4.5), and the key ring.  Pure but
 * for the digest. */
#ifndef POLICIES_SIGNATURE_H
#define POLICIES_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/secret.h"

/* Keys by their one-character id [0-9a-z]; immutable, counted by its owner. */
struct keyring;

/* s without Unicode white space at both ends; what "trimmed" means for keys and for the token of a
 * sandbox (contract 4.1). */
struct str signature_trim(struct str s);
/* "a=BASE64,b=BASE64" (contract 4.3).  Blank text: *ret is NULL and the result true (no verifier).
 * False: one line in error[error_bytes] that says what is allowed and never holds a value. ret_warn
 * (or NULL) gets the ids that were given twice, terminated. */
bool keyring_parse(struct str text, struct keyring **ret, char ret_warn[40], char *error,
                   size_t error_bytes);
void keyring_free(struct keyring *k); /* wipes; NULL is fine */
/* Is there a key of that id? */
bool keyring_has(const struct keyring *k, char id);
/* Bytes of the key, or an empty text; never to be logged. */
struct str keyring_key(const struct keyring *k, char id);

/* 1..13 of [0-9a-z], no leading zero, fits 64 bits: an expiry; and 8 of [0-9a-f] plus one of
 * [0-9a-z]: a signature. */
bool signature_is_exp36(struct str s);
bool signature_is_signature(struct str s);
/* Port of contract 3.2: strict, or (lenient_plus) with a leading '+'. */
bool signature_port(struct str s, bool lenient_plus, uint16_t *ret);

struct signed_route {
    struct str id, exp36, signature;
    uint16_t port;
};

enum signature_verdict {
    SIGNATURE_OK,
    SIGNATURE_EXPIRED,
    SIGNATURE_KEY_UNKNOWN,
    SIGNATURE_MISMATCH,
    SIGNATURE_FORMAT
};

/* Checked in that order: expiry, key id, MAC; compared in constant time. */
enum signature_verdict signature_verify(const struct keyring *k, const struct signed_route *r,
                                        int64_t now_unix_s);
/* "v1 LF short LF id LF port LF exp36 LF"; returns a text in the arena. */
struct str signature_canonical(struct str id, uint16_t port, struct str exp36, struct arena *a);
/* SHA-256 over BE32(len(key)) key BE32(len(canonical)) canonical. */
void signature_inner(struct str key, struct str canonical, uint8_t out[32]);
/* Nine characters: eight of hex and the key id. */
void signature_make(struct str key, char key_id, struct str id, uint16_t port, struct str exp36,
                    char out[9]);

#endif
