/* access.h — who may use the API (contract egress-policy 2.2).  Pure but for the token's bytes. */
#ifndef API_ACCESS_H
#define API_ACCESS_H

#include "base/secret.h"
#include "http/head.h"
#include "net/addr.h"

enum access {
    ACCESS_GOOD,
    ACCESS_NO_TOKEN,  /* 401: none, or a wrong one */
    ACCESS_NOT_LOCAL, /* 403: without a token loopback peers only are served */
    ACCESS_BROWSER    /* 403: a page in a browser on this machine */
};

/* token NULL: none is set. */
enum access access_judge(const struct secret *token, const struct sockaddr *peer,
                         const struct http_head *head);

#endif
