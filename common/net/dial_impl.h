/* dial_impl.h — what dial.c asks of dial_parent.c. */
#ifndef NET_DIAL_IMPL_H
#define NET_DIAL_IMPL_H

#include "net/dial.h"

struct parent_ask;
struct parent_answer {
    enum why why;     /* OK, DIAL, or TLS */
    int status;       /* 0: there was no answer */
    struct str fault; /* as dial_fault() */
};

/* Can this be asked of a parent: a host and an authorization that fit into a head? */
bool parent_can_ask(const struct dial_to *to);
/* On a connection to the parent, which it takes over: TLS, CONNECT, the answer.  done(user, conn,
 * answer) with a conn at the target, the user must conn_attach() before it returns, what
 * came behind the answer lies untaken; or (user, NULL, answer).  Once, never before this returns.
 * The deadline is the caller's. */
struct parent_ask *parent_ask(struct worker *w, struct conn *c, const struct dial_to *to,
                              void (*done)(void *user, struct conn *c,
                                           const struct parent_answer *answer),
                              void *user);
/* done() will not be called; the connection goes. */
void parent_cancel(struct parent_ask *a);

#endif
