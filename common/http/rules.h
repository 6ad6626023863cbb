/* rules.h — HTTP semantics between the bytes of a head and struct http_head: framing, hop-by-hop
 * fields, targets.  Pure.
 *
 * Strict on purpose (DESIGN 18.5, contract ingress 2): what two readers could understand
 * differently is refused. */
#ifndef HTTP_RULES_H
#define HTTP_RULES_H

#include "base/why.h"
#include "http/head.h"

/* A head as the codec read it: every field line, in order, blanks around values cut.  All of it may
 * be edited in place. */
struct http_raw {
    struct str method, target; /* request */
    int status;                /* response, 100..999 */
    unsigned minor;            /* HTTP/1.minor: 0 or 1 */
    struct field *fields;
    unsigned nfields;
};

/* NONE: not a byte follows, also where the head states a length of 0 or that of a body which is not
 * sent (HEAD, 304). */
enum body_kind { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_EOF };

struct framing {
    enum body_kind body;
    int64_t length;  /* BODY_LENGTH */
    bool keep_alive; /* the peer lets the connection live on (RFC 9112 section 9.3) */
};

/* What a broken request is answered with. */
struct http_fault {
    int status;       /* 400, 408, 431, 501, 503, 505 */
    const char *text; /* for the answer's body; static */
};

/* A request.  WHY_OK, or WHY_CLIENT_PROTOCOL and *ret_fault.  ret_head->fields is raw->fields,
 * texts are not copied.  What a Connection line names goes too, but X-Request-Id: what we set
 * ourselves cannot be taken off that way (contract ingress 8.2). RFC 9112 sections 3, 6; RFC 9110
 * section 7.6. */
enum why rules_request(const struct http_raw *raw, struct str scheme, struct http_head *ret_head,
                       struct framing *ret_framing, struct http_fault *ret_fault) must_check;

/* A response to `request`.  WHY_OK, or WHY_ORIGIN_PROTOCOL.  A 101 to anything but the protocol
 * that was asked for is an error; a 2xx to CONNECT gets the protocol "connect". */
enum why rules_response(const struct http_raw *raw, const struct http_head *request,
                        struct http_head *ret_head, struct framing *ret_framing) must_check;

/* Extended CONNECT (RFC 8441): what `:protocol` asks for as http_head.protocol has it, or empty:
 * none that is served (contract ingress 9.1). */
struct str rules_extended_connect(struct str protocol);

/* Trailer fields: framing, routing and hop-by-hop ones are taken out, our own credentials too (RFC
 * 9110 section 6.5.1, I3). */
void rules_trailers(struct field *fields, unsigned *nfields);

/* Host or authority, not empty: what a URI allows and nothing else: no userinfo, no path, port
 * digits only (RFC 3986 section 3.2). */
bool rules_authority(struct str authority);

/* host:port, as a plain CONNECT names it (RFC 9110 section 9.3.6). */
bool rules_connect_target(struct str target);
/* Origin form, or the asterisk of OPTIONS; no blank and no control byte (RFC 9112 section 3.2). */
bool rules_path(struct str method, struct str path);

/* RFC 9110 section 9.2.2. */
bool rules_idempotent(struct str method);
/* Methods that expect a body state that there is none (RFC 9110 section 8.6). */
bool rules_expects_body(struct str method);

/* May this connection carry another exchange?  The table of cases is tests/unit/rules_test.c
 * (DESIGN 18.5 H13). */
struct h1_end {
    bool request_done, response_done; /* both messages are complete, as sent and as received */
    bool peer_keeps, we_keep;         /* neither side said close */
    bool until_eof;                   /* the body is ended by the connection's end */
    size_t unread;                    /* bytes received that belong to no message (client role) */
};
bool h1_reusable(const struct h1_end *e);

#endif
