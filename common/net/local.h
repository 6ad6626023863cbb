/* local.h — connections to Unix sockets of this machine. */
#ifndef NET_LOCAL_H
#define NET_LOCAL_H

#include "base/mem.h"
#include "net/conn.h"

enum { LOCAL_PATH_BYTES = 107 /* of a path, at most: sun_path less its end */ };

/* Connects to the stream socket at path, which holds no NUL; a local connect ends at once.  The
 * conn is born ready (no ready()); the user must conn_attach() before it returns to the loop.  Its
 * peer in conn_info is the address "0.0.0.0:0".  NULL: *ret_errno says why; EAGAIN: the other
 * side's queue is full. */
struct conn *conn_local(struct worker *w, struct str path, int *ret_errno);

#endif
