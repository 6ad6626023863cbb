/* text.h — strict readers and writers for small text forms.  Pure.
 *
 * Readers take the whole text or refuse it: no blanks around, no signs, no prefix unless said.
 * Results are set only on success. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* Decimal digits only, leading zeros allowed, at most max. */
bool text_u64(struct str s, uint64_t max, uint64_t *ret);
/* exp36 of contract ingress 3.2: 1..13 of [0-9a-z], no leading zero unless it is "0", at most
 * 2^64-1. */
bool text_base36(struct str s, uint64_t *ret);
/* Writes v in base 36, lower case, at most 13 characters; returns their number. */
size_t text_put_base36(char out[13], uint64_t v);
/* Writes v in decimal, at most 20 characters; returns their number. */
size_t text_put_u64(char out[20], uint64_t v);
/* Lower-case hex of n bytes into out[2n]. */
void text_put_hex(char *out, const void *p, size_t n);
/* Value of a hex digit, or -1. */
int text_hex(char c);
/* Standard alphabet with padding (RFC 4648 section 4), canonical; CR and LF inside are skipped. ret
 * must hold 3/4 of s.n. False: bad text. */
bool text_base64(struct str s, uint8_t *ret, size_t *ret_n);
/* Writes standard base64 with padding; out must hold 4 * ((n + 2) / 3). */
size_t text_put_base64(char *out, const void *p, size_t n);
/* Percent-decodes s once into out (at least s.n bytes); false for a broken escape. */
bool text_percent(struct str s, char *out, size_t *ret_n);
/* Percent-encodes all bytes but unreserved ones (RFC 3986 section 2.3), in upper case; out must
 * hold three times s.n.  Returns how many it takes. */
size_t text_put_percent(char *out, struct str s);
/* Are two hex digits behind every '%'? */
bool text_whole_escapes(struct str s);
/* RFC 3339 date-time to Unix seconds (a fraction is cut off) and nanoseconds. */
bool text_rfc3339(struct str s, int64_t *ret_unix_s, uint32_t *ret_ns);
/* A duration in Go's syntax: "1.5s", "1m30s", "50ms", "0", sign allowed; in ns.  False: no unit,
 * overflow, junk. */
bool text_duration(struct str s, int64_t *ret_ns);
/* Writes a duration as Go prints it ("1m30s", "50ms", "0s"); returns the length (< 32). */
size_t text_put_duration(char out[32], int64_t ns);
/* Bytes: digits alone or with KiB, MiB, GiB. */
bool text_bytes(struct str s, uint64_t *ret);
/* Integer in Go's flag syntax: sign, 0x 0o 0b, leading 0 is octal, underscores not allowed. */
bool text_go_int(struct str s, int64_t *ret);
/* Decimal floating-point number; inf and nan are refused. */
bool text_double(struct str s, double *ret);
/* Appends s as the inside of a JSON string: quotes, backslash and control bytes escaped, bytes that
 * are no UTF-8 as \ufffd. At most `room` bytes are written, never half an escape; returns how many.
 */
size_t text_put_json(char *out, size_t room, struct str s);
/* Is s valid UTF-8 (RFC 3629: no surrogates, nothing overlong)? */
bool text_utf8(struct str s);
/* IMF-fixdate of RFC 9110 section 5.6.7, 29 characters, for Unix seconds. */
void text_put_http_date(char out[29], int64_t unix_s);
/* ISO 8601 with ms and zone "Z", 24 characters, for Unix milliseconds. */
void text_put_iso8601(char out[24], uint64_t unix_ms);
/* tchar of RFC 9110 section 5.6.2, one or more. */
bool text_is_token(struct str s);
/* VCHAR of RFC 5234 appendix B.1, one or more: no blanks, no control bytes, nothing beyond ASCII.
 */
bool text_is_visible(struct str s);
extern const uint8_t text_tchar[256];

#endif
