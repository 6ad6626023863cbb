/* splice_impl.h — what a connection asks of the splice it takes part in, for conn.c only. */
#ifndef NET_SPLICE_IMPL_H
#define NET_SPLICE_IMPL_H

#include "net/splice.h"

/* readable: the near side has something to read; else the far side can take more. */
void splice_pump(struct splice *s, bool readable);
/* One of the two is closing. */
void splice_abandon(struct splice *s);
#endif
