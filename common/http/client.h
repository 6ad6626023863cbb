/* client.h — one request of our own: a connection made for it, a deadline over all, a cap on what
 * comes back; for webhooks, telemetry, and whoever else is to be told or asked.
 *
 * HTTP/1.1.  Redirects are answers like any other: nobody is sent elsewhere by what he was told. */
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include "http/head.h"
#include "http/url.h"
#include "net/dial.h"

struct client;

struct client_request {
    struct url url; /* its userinfo becomes Authorization, unless fields[] has one */
    struct str method;
    const struct field *fields; /* as a head may hold; without Host, lengths and Connection */
    unsigned nfields;
    struct str body;
    struct tls_ctx *tls; /* for https: who the other side may be */
    struct names *names; /* who is asked for the host; NULL: the worker's */
    uint64_t timeout_ms; /* from now to the last byte of the answer */
    size_t max_bytes;    /* of the answer's body */
    /* Of each address before it is connected to (net/dial.h); NULL: all may be. */
    enum why (*allow)(void *user, const struct sockaddr *addr);
};

struct client_answer {
    /* OK: the answer is whole.  Else, as of net/dial.h and http/stream.h; TLS; LIMIT: its body is
     * over the cap; DEADLINE. */
    enum why why;
    int status;                   /* 0: no head came; it may have come without the rest */
    const struct http_head *head; /* NULL with status 0 */
    struct str body;              /* with OK only */
};

/* Everything in `r` is copied, tls is counted, names must outlive the call.  done(user, answer),
 * once, never before this returns; the answer is lent. */
struct client *client_start(struct worker *w, const struct client_request *r,
                            void (*done)(void *user, const struct client_answer *answer),
                            void *user);
/* done() will not be called.  Not within it. */
void client_cancel(struct client *c);

#endif
