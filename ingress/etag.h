/* etag.h — entity tags and the conditions that name them (RFC 9110 sections 8.8.3, 13.1).  Pure. */
#ifndef INGRESS_ETAG_H
#define INGRESS_ETAG_H

#include "http/head.h"

/* A list of If-Match or If-None-Match. */
struct etag_list {
    bool given;      /* false: there is no such condition, nothing else counts */
    bool any;        /* "*" */
    struct str tags; /* quoted, as they came, comma-separated; lines joined in the arena */
};

/* The lines of that name.  False: that is no list of tags. */
bool etag_read(const struct http_head *h, struct str name, struct arena *a, struct etag_list *ret);
/* Is tag (quoted, strong) in the list?  weak: also as W/.  Not for "*". */
bool etag_listed(const struct etag_list *l, struct str tag, bool weak);
/* Do both conditions hold for what has this tag?  tag.p NULL: for what is not there. */
bool etag_allows(const struct etag_list *match, const struct etag_list *none_match, struct str tag);

#endif
