/* first.h — the beginning of a connection, looked at as it comes: what it carries, and of TLS the
 * whole ClientHello (contract egress-vault 8.1).  Pure but for the memory that hello.h collects in;
 * consumes nothing. */
#ifndef RELAY_FIRST_H
#define RELAY_FIRST_H

#include "base/buf.h"
#include "egress/relay/firstbytes.h"
#include "egress/relay/hello.h"

enum first_step {
    FIRST_STEP_MORE,
    FIRST_STEP_TLS, /* first.hello.hello is set */
    FIRST_STEP_HTTP,
    FIRST_STEP_OTHER, /* HTTP/2 in clear among it */
    FIRST_STEP_BAD    /* TLS that is malformed or too long */
};

struct first {
    struct hello_reader hello;
    size_t seen; /* bytes of the connection that hello has */
    enum first_step step;
    bool tls;
};

void first_init(struct first *f);
void first_done(struct first *f);
/* `bytes`: all that has come so far, from the first byte on.  Any answer but MORE is final. */
enum first_step first_look(struct first *f, const struct buf *bytes);

#endif
