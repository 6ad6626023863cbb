/* opening.h — what comes before a session on an accepted connection: a PROXY header (v1 or v2),
 * then TLS.  Contract ingress 2. */
#ifndef NET_OPENING_H
#define NET_OPENING_H

#include "net/conn.h"

struct opening;
struct worker;

struct opening_rules {
    bool proxy_header;   /* the connection begins with a PROXY header; broken or missing: closed */
    struct tls_ctx *tls; /* then TLS, server role; NULL: plain; counted */
    uint64_t timeout_ms; /* for both together */
};

/* Takes over conn (attaches to it).  done(user, conn, WHY_OK): the user must conn_attach() before
 * it returns.  done(user, NULL, why): it was closed: CLIENT_PROTOCOL (PROXY header), TLS, DEADLINE,
 * CLIENT_GONE.  Once, never before this returns. */
struct opening *opening_start(struct worker *w, struct conn *conn,
                              const struct opening_rules *rules,
                              void (*done)(void *user, struct conn *conn, enum why why),
                              void *user);
/* Closes the connection; done() will not be called. */
void opening_cancel(struct opening *o);

#endif
