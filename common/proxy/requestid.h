/* requestid.h — one id per request, in the answer, towards the origin and in the log (I4).  Pure.
 */
#ifndef PROXY_REQUESTID_H
#define PROXY_REQUESTID_H

#include "http/head.h"

/* X-Request-Id of the request if it is 1..128 of [A-Za-z0-9._-], else 32 hex digits from `random`.
 * h may be NULL. */
struct str request_id(const struct http_head *h, const uint8_t random[16], struct arena *a);

#endif
