/* parenthead.h — the head of a parent proxy's answer to CONNECT, as bytes come.  Pure.
 *
 * Nothing of it is kept but the status: an answer of 2xx has no body whatever its fields say (RFC
 * 9110 section 9.3.6), and of any other the status says all. */
#ifndef NET_PARENTHEAD_H
#define NET_PARENTHEAD_H

#include <stdbool.h>
#include <stddef.h>

enum { PARENTHEAD_MAX = 16384 }; /* longest head taken, interim answers included */

enum parenthead_result {
    PARENTHEAD_MORE,
    PARENTHEAD_DONE,
    PARENTHEAD_BAD /* no answer of HTTP/1, or too long a one */
};

/* All zero at the start. */
struct parenthead {
    int state;
    size_t bytes, in_line; /* so far; of this line */
    int status;            /* of the final answer, 200 to 999, once DONE */
};

/* Goes over n further bytes; *ret_used is how many of them belong to the head (all of them for
 * MORE).  Answers of 1xx but 101 are passed over (RFC 9110 section 15.2). */
enum parenthead_result parenthead_read(struct parenthead *h, const char *p, size_t n,
                                       size_t *ret_used);

#endif
