/* splice.h — bytes from one plain connection to another through a kernel pipe, never copied
 * (DESIGN 7, bulk). */
#ifndef NET_SPLICE_H
#define NET_SPLICE_H

#include "net/conn.h"

struct splice;
struct splice_events {
    /* n bytes have left for the kernel on the far side. */
    void (*moved)(void *user, size_t n);
    /* Over, and all that was taken has left on the far side: n bytes, or EOF came before them, or
     * what comes is no bulk any more, or there is no pipe to be had.  The connections are their
     * users' again, and `from` tells of its EOF as ever.  Where a connection is lost there is no
     * done(): its closed() tells, and splice_stop() follows. */
    void (*done)(void *user, int64_t moved);
};

/* Moves n bytes (-1: until EOF) from `from` to `to`, both plain and of one worker; what `from` has
 * read and nobody took goes first.  While it runs, from's bytes() and eof() and to's fill() are not
 * called; their other directions and closed() go on.  No event before it returns.  NULL: one of
 * them is closing.  A pipe is held only while bytes lie in it. */
struct splice *splice_start(struct conn *from, struct conn *to, int64_t n,
                            const struct splice_events *ev, void *user);
/* The far side is full: the near one is not read meanwhile. */
bool splice_full(const struct splice *s);
/* Ends it without done().  Bytes may be lost: then neither side's message is whole, and both must
 * end. */
void splice_stop(struct splice *s);

#endif
