/* h2head.h — a header list of HTTP/2 (RFC 9113 section 8) as struct http_head, and back:
 * pseudo-header fields judged together, cookie crumbs joined, nothing that frames a message or
 * concerns one hop (sections 8.1 to 8.5, DESIGN 18.2 N8, N16, N19).  Pure; nghttp2 is not needed
 * here, and what it has checked already is checked again. */
#ifndef HTTP_H2HEAD_H
#define HTTP_H2HEAD_H

#include "http/rules.h"

/* A list as it came, in order, pseudo-header fields among the others. */
struct h2_list {
    struct field *fields;
    unsigned nfields;
};

/* A request.  `end`: END_STREAM came with it.  WHY_OK; or WHY_CLIENT_PROTOCOL and *ret_fault:
 * status 400 stands for a malformed request (section 8.1.1: RST_STREAM PROTOCOL_ERROR), 501 for an
 * extended CONNECT nobody serves (contract ingress 9.1).
 *
 * ret_head->fields may be list->fields, texts are not copied but for joined cookies (which go apart
 * again in h2head_write_request: `crumbs`).  Extended
 * CONNECT gives method GET with `protocol`, plain CONNECT method CONNECT with an empty path.
 * Of a handshake's fields the key and its answer are not kept: the head is keyless.
 * `length` comes from content-length; with `end` and no length it is 0 for methods that expect a
 * body, else -1.  What h1 would call Host is authority; where both are there they must be equal. */
enum why h2head_request(struct h2_list *list, bool end, struct str scheme, struct arena *a,
                        struct http_head *ret_head, struct http_fault *ret_fault) must_check;
/* The same, but a Host that differs is no fault: it is ret_head->host, for others to judge. */
enum why h2head_request_of_two(struct h2_list *list, bool end, struct str scheme, struct arena *a,
                               struct http_head *ret_head, struct http_fault *ret_fault) must_check;

/* A response to `request`; 2xx to an extended CONNECT becomes 101 with its protocol, 2xx to a
 * CONNECT gets the protocol "connect", a 101 is an error (section 8.6).  WHY_OK or
 * WHY_ORIGIN_PROTOCOL. */
enum why h2head_response(struct h2_list *list, const struct http_head *request,
                         struct http_head *ret_head) must_check;

/* Trailers: no pseudo-header fields; rules_trailers() for the rest. */
enum why h2head_trailers(struct h2_list *list, bool request, struct http_head *ret_head) must_check;

/* What goes out as a header list: pseudo-header fields first, then fields[] with names in lower
 * case (in the arena where they were not), te: trailers where it was asked for, content-length
 * where the head states one, without Sec-WebSocket-Key or -Accept in an extended CONNECT and its
 * answer. */
void h2head_write_request(const struct http_head *head, bool end, struct arena *a,
                          struct h2_list *ret);
/* `request` may be NULL where none could be read. */
void h2head_write_response(const struct http_head *head, const struct http_head *request, bool end,
                           struct arena *a, struct h2_list *ret);
void h2head_write_trailers(const struct http_head *trailers, struct arena *a, struct h2_list *ret);
/* Must this field never enter a compression table? (RFC 7541 section 7.1.3): credentials. */
bool h2head_sensitive(struct str name);

#endif
