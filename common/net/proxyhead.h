/* proxyhead.h — the PROXY protocol's header, version 1 and 2, as bytes come.  Pure. */
#ifndef NET_PROXYHEAD_H
#define NET_PROXYHEAD_H

#include <stdbool.h>

#include "net/addr.h"

enum proxyhead_result {
    PROXYHEAD_MORE, /* not whole yet */
    PROXYHEAD_DONE,
    PROXYHEAD_BAD /* this is none, or a broken one */
};

enum { PROXYHEAD_MAX = 4096 }; /* longest header taken, TLVs of version 2 included */

/* Looks at the first n bytes of a connection.  DONE: *ret_used bytes are the header; *ret_has: it
 * names a source, *ret_source (LOCAL, UNKNOWN and other families name none). */
enum proxyhead_result proxyhead_read(const uint8_t *p, size_t n, size_t *ret_used, bool *ret_has,
                                     union addr *ret_source);

#endif
