/* forward.h — the head that goes on to the sandbox and the head that comes back (contract
 * ingress 8.2, 8.3).  Pure.
 *
 * One removal list, applied here and nowhere else: credentials and routing fields never reach a
 * sandbox (I3). */
#ifndef INGRESS_FORWARD_H
#define INGRESS_FORWARD_H

#include "base/ip.h"
#include "http/head.h"
#include "policies/cidr.h"

struct endpoint_url;

struct forward_rules {
    struct cidr_set trusted; /* whose forwarding fields count */
    bool preserve_host;      /* --backend-host=preserve */
    bool forward_api_key;
};

struct forward_facts {
    struct ip peer;
    uint16_t local_port;
    bool tls;              /* the client's connection */
    struct str target;     /* "address:port", IPv6 in brackets */
    struct str path;       /* what to ask the sandbox for */
    struct str prefix;     /* path forms; else empty */
    struct str request_id; /* of the exchange */
    struct str credential; /* of the provider, or empty */
    /* Of an endpoint that was given as a URL (contract 8.1): what Host says in place of target,
     * what comes before the path and the query, fields in place of the client's.  NULL: nothing of
     * it. */
    const struct endpoint_url *url;
    bool to_tls; /* so is the connection to the sandbox: what :scheme says over HTTP/2 */
};

/* The base of a URL and the path and query to ask for, byte for byte (contract 8.1): base path,
 * path; base query, '&', query, or whichever is not empty. */
struct str forward_join(const struct endpoint_url *url, struct str path, struct arena *a);

/* The request to send, in the arena; fields that stay are not copied. */
struct http_head *forward_request(const struct forward_rules *rules,
                                  const struct forward_facts *facts, const struct http_head *h,
                                  struct arena *a);
extern const struct field forward_powered_by; /* on every answer that came from a sandbox */
/* The response to send; `granted`: it is a 101 or a tunnel's 2xx, which gets no powered-by line.
 * http_date: for answers without Date; lent. */
struct http_head *forward_response(const struct http_head *h, struct str request_id,
                                   struct str http_date, struct arena *a);
/* Whose request it is, for logs and counts (contract 13): from a trusted peer the last address of
 * X-Forwarded-For that is not itself trusted. */
struct ip forward_client_ip(const struct cidr_set *trusted, const struct ip *peer,
                            const struct http_head *h);

#endif
