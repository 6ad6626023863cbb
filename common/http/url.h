/* url.h — http:// and https:// URLs that an operator has written.  Pure; results are slices of the
 * text. */
#ifndef HTTP_URL_H
#define HTTP_URL_H

#include "base/mem.h"

struct url {
    bool tls;             /* https */
    struct str user;      /* userinfo as it stands, likely a secret; p == NULL: there is none */
    struct str authority; /* host and port as they stand, without userinfo */
    struct str host;      /* a name (resolve_can_ask()), or an address without brackets */
    uint16_t port;        /* 1 to 65535; 80 or 443 where none is stated */
    struct str rest;      /* path, query and fragment as they stand, or empty */
};

/* Strict (RFC 3986, RFC 9110 section 4.2): no blank, control byte or backslash anywhere, a host, a
 * port of digits, whole escapes in userinfo.  The scheme counts without case. */
bool url_parse(struct str text, struct url *ret);
/* Path and query for a request line: "/" where there is no path, no fragment, and what no URI may
 * hold is escaped. */
struct str url_target(const struct url *u, struct arena *a);
/* The value of Authorization that userinfo stands for (RFC 7617), or empty. */
struct str url_basic(const struct url *u, struct arena *a);

#endif
