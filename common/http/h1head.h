/* h1head.h — the bytes of an HTTP/1 head → start line and fields.  Pure.
 *
 * A head passes two hands.  The scan looks at every byte as it comes, split anywhere: each LF
 * follows a CR, each CR is followed by LF, no line begins with a blank, nothing is longer than the
 * limit (DESIGN 18.3 L14, L15).  When the blank line is there, the start line is read here (RFC
 * 9112 sections 3 and 4) and the fields by llhttp (section 5). */
#ifndef HTTP_H1HEAD_H
#define HTTP_H1HEAD_H

#include "base/why.h"
#include "http/rules.h"

struct h1_scan {
    size_t bytes;   /* so far */
    unsigned lines; /* complete, the blank one not counted */
    size_t in_line; /* bytes of the line that is not complete, without its CR */
    bool cr;        /* the last byte was a CR */
};

enum h1_scan_result { H1_SCAN_MORE, H1_SCAN_DONE, H1_SCAN_BAD, H1_SCAN_TOO_LARGE };

/* Goes over n further bytes; *ret_used is how many of them belong to the head (all of them for
 * MORE).  limit: bytes of the whole head. */
enum h1_scan_result h1_scan(struct h1_scan *s, const char *p, size_t n, size_t limit,
                            size_t *ret_used);

/* Reads a complete head, from the first byte of the start line to its blank line.  Texts are slices
 * of `block`, which may be edited. */
enum why h1head_request(struct str block, unsigned lines, struct arena *a, struct http_raw *ret,
                        struct http_fault *ret_fault) must_check;
enum why h1head_response(struct str block, unsigned lines, struct arena *a,
                         struct http_raw *ret) must_check;
/* Trailer fields with their blank line; framing and hop-by-hop ones are left out. */
enum why h1head_trailers(struct str block, unsigned lines, struct arena *a,
                         struct http_head *ret) must_check;

#endif
