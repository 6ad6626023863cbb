/* head.h — a request or response head without its version.
 *
 * fields[] holds end-to-end fields only, spelt and ordered as received (compare names without
 * case); whatever frames the message or concerns one hop has been taken out by rules.c and stands
 * in a typed member.  All memory is the exchange's arena. */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct http_head {
    struct str method;    /* request: any token, case kept */
    struct str scheme;    /* "http" or "https", of the connection it came on */
    struct str authority; /* Host or the authority of an absolute target, byte for byte; p == NULL:
                             there was none (HTTP/1.0) */
    struct str absolute;  /* the scheme of an absolute target, "http" or "https"; else empty */
    struct str
        host;         /* the Host line, which counts only where the target names nobody; p == NULL:
                         there was none; in HTTP/2 only where it is another (http_limits.two_names) */
    struct str path;  /* the raw target in origin form with its query; "*"; empty for CONNECT */
    int status;       /* response; each 1xx is a head of its own; 0 in a request */
    unsigned nfields; /* of fields */
    int64_t length;   /* content-length, or -1: not stated */
    struct str
        protocol; /* an upgrade token ("websocket") or empty: what this head asks for, or grants */
    bool te_trailers;     /* the client sent "TE: trailers" */
    bool expect_continue; /* the client waits for a 100 (RFC 9110 section 10.1.1); Expect itself is
                             in fields[] too */
    bool idempotent; /* safe to send again: by method (RFC 9110 section 9.2.2) or by an idempotency
                        key */
    bool keyless; /* an upgrade, or its grant, that came over HTTP/2: without the fields that only
                     a handshake of HTTP/1.1 has (websocket.h) */
    unsigned crumbs; /* the Cookie line was so many fields of HTTP/2 (RFC 9113 section 8.2.3), and
                        is to be where it goes on over HTTP/2; 0: it was one line */
    struct field *fields;
};

/* Value of the first field of that name, or NULL; present but empty is not NULL. */
const struct str *head_get(const struct http_head *h, struct str name);
/* The field of that name after `after` (NULL: the first), or NULL. */
const struct field *head_next(const struct http_head *h, struct str name,
                              const struct field *after);
/* Is token, without case, one of the comma-separated tokens of all lines of that name? */
bool head_has_token(const struct http_head *h, struct str name, struct str token);
/* The same for one field value. */
bool token_list_has(struct str list, struct str token);
/* A copy of h whose fields[] has room for `more` further ones, in the arena. */
struct http_head *head_copy(const struct http_head *h, unsigned more, struct arena *a);
/* Appends a field; the caller saw to the room (head_copy). */
void head_add(struct http_head *h, struct str name, struct str value);
/* Standard phrase of a status ("Not Found"), or "" for one we do not know. */
struct str head_reason(int status);

#endif
