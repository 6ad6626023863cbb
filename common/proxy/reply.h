/* reply.h — answers of our own: text, JSON or a small page, as the client's Accept prefers
 * (contract ingress 6.2).  Pure. */
#ifndef PROXY_REPLY_H
#define PROXY_REPLY_H

#include "http/head.h"

struct reply {
    int status;
    struct str brand;   /* "OpenSandbox Ingress": stands before the message in text and page */
    struct str code;    /* for programs: "sandbox_not_found" */
    struct str message; /* for people, without the brand */
    struct str request_id;
    bool retry;                /* Retry-After: 1; a page for a GET loads itself again */
    const struct field *extra; /* one more field of its head; NULL: none */
};

enum reply_form { REPLY_TEXT, REPLY_JSON, REPLY_HTML };

/* What the Accept lines of the request prefer; request may be NULL. */
enum reply_form reply_form(const struct http_head *request);
/* Head and body in the arena.  The body is made for HEAD too: its length is stated, sending it is
 * the caller's business. */
void reply_make(const struct reply *r, const struct http_head *request, struct str http_date,
                struct arena *a, struct http_head *ret_head, struct str *ret_body);

#endif
