/* route.h — which sandbox a request is for: header value, Host label, path forms (contract ingress
 * 3).  Pure.
 *
 * A path that looks signed has two readings and only the sandbox says which one holds, so a route
 * carries both.  What is forwarded is a slice of the raw target wherever possible; nothing is ever
 * decoded to be forwarded. */
#ifndef INGRESS_ROUTE_H
#define INGRESS_ROUTE_H

#include "http/head.h"
#include "ingress/faults.h"
#include "policies/signature.h"

enum route_mode { ROUTE_AUTO, ROUTE_BY_HEADER, ROUTE_BY_URI };
enum route_source { FROM_HEADER, FROM_HOST, FROM_PATH };
enum route_form { FORM_LABEL, FORM_SANDBOXES, FORM_URI, FORM_SCOPE };

struct route_rules {
    enum route_mode mode;
    struct str base_domain; /* empty: not set */
    bool lenient_ports;
};

/* What the signature of a route says. */
struct route_signed {
    struct str exp36, signature;
    struct str forward; /* path and query to send on under the signed reading */
    bool climbs;        /* that reading leaves the prefix: 400 on a secure sandbox (3.7) */
};

struct route {
    enum route_source source;
    enum route_form form;
    uint16_t port;
    union {
        struct str id;
        struct str token; /* FORM_SCOPE: the whole f1. token */
    };
    struct str forward; /* path and query to send on, unsigned reading */
    struct str prefix;  /* forms 3 and 5: what names the route, without signature segments; else
                           empty (a token is a secret) */
    const struct route_signed *by; /* exp36 and signature came with the route; NULL: they did not */
};

/* Answered by the gateway itself: "/status.ok", "/status.ok/network-readiness" (3.8), "*" of
 * OPTIONS (2); empty: no. */
struct str route_local(const struct http_head *h);
/* False: *ret_fault is the answer.  Texts are slices of the head or lie in the arena. */
bool route_parse(const struct route_rules *rules, const struct http_head *h, struct arena *a,
                 struct route *ret, struct fault *ret_fault);
/* The target for the log: without query, what looks like the signature of a path or is a path's f1.
 * token shown as *** (B5, contract 13).  Also for requests that are no route. */
struct str route_masked_uri(const struct http_head *h, struct arena *a);

#endif
